"""Draws from words that arrive in pieces, without dropping a trial.

Dropping the trial during which the words ran out would bias the distribution, because which trial that is depends on
its value.
"""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from murk._scratch import keep
from murk.privacy.noise.distributions import NoiseDistribution

Words = npt.NDArray[np.uint64]
Integers = npt.NDArray[np.int64]

# Status of a draw: done, or what is missing (words, spare words, digits of the table).
DONE, WORDS, SPARE, DEEPER = 0, 1, 2, 3

# Result of a rejected trial; no value comes near it.
REJECTED = -(2**62)

# Trials for which words are fetched at once: large for few calls, small enough for the cache.
_BLOCK = 1 << 12

_NOTHING = np.empty(0, dtype=np.uint64)


class Feed(Protocol):
    """Source of words: the next ``2 trials`` words for trials, and the next ``spares`` spare words."""

    def __call__(self, trials: int, spares: int) -> tuple[Words, Words]:
        """Return the words for trials, and the spare words."""


class Draw(Protocol):
    """An implementation of the sampler: fill ``out`` from words (two per trial) and spare words."""

    def __call__(
        self, distribution: NoiseDistribution, words: Words, spare: Words, out: Integers
    ) -> tuple[int, int, int, int]:
        """Draw as far as the words last."""


def fill(distribution: NoiseDistribution, out: Integers, feed: Feed, draw: Draw, block: int = _BLOCK) -> None:
    """Fill the vector ``out`` with draws of ``distribution`` from the words of ``feed``."""
    done, status = 0, WORDS
    words = spare = _NOTHING
    while done < len(out):
        if status == DEEPER:
            distribution = distribution.deeper()
        else:
            trials = _trials(min(len(out) - done, block)) if status == WORDS else 0
            more, more_spare = feed(trials, 6 + (trials + len(words) // 2) // 16)
            if done or len(words) or len(spare):
                more, more_spare = _join(words, more), _join(spare, more_spare)
            words, spare = more, more_spare
        status, produced, trials_used, spare_used = draw(distribution, words, spare, out[done:])
        if status == DONE:
            return
        done += produced
        words, spare = words[2 * trials_used :], spare[spare_used:]


def _trials(count: int) -> int:
    """Return the number of trials that almost always suffices for ``count`` draws, at an acceptance of 0.96."""
    return count + count // 25 + 2


def _join(left: Words, right: Words) -> Words:
    if len(left) == 0 or len(right) == 0:
        return left if len(left) else right
    joined = keep(np.concatenate([left, right])).view()
    # Read-only like the operating system's words, so that the kernels are compiled for one type only.
    joined.setflags(write=False)
    return joined
