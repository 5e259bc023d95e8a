"""Sources of noise: the operating system's randomness, and a reproducible simulation."""

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from murk._scratch import empty, keep
from murk.errors import UserError
from murk.privacy.noise import blocks
from murk.privacy.noise.distributions import GAUSSIAN_NOISE, LAPLACE_NOISE, NOISE_DISTRIBUTIONS, NoiseDistribution
from murk.privacy.noise.philox import Purpose
from murk.privacy.noise.streaming import Integers, Words, fill


def compiled(distribution: NoiseDistribution, words: Words, spare: Words, out: Integers) -> tuple[int, int, int, int]:
    """Call the compiled sampler with the interface of `streaming.Draw`."""
    status, produced, trials, spares = blocks.draw_block(
        distribution.shape, distribution.table, distribution.guide, words, spare, out
    )
    return int(status), int(produced), int(trials), int(spares)


class NoiseSource(Protocol):
    """Source of a mechanism's noise.

    ``records`` are the indices of the m records for which noise is drawn; only a simulation uses their values.
    """

    @property
    def simulated(self) -> bool:
        """Whether anyone who knows the seed can repeat the draws, which then protect nobody."""

    def gaussian(self, records: npt.ArrayLike, size: int) -> Integers:
        """Draw integers (m, size), ``P(x)`` proportional to ``exp(-x^2 / 2 S^2)`` with S = 2^20."""

    def laplace(self, records: npt.ArrayLike, size: int) -> Integers:
        """Draw integers (m, size), ``P(x)`` proportional to ``exp(-|x| / S)`` with S = 2^20."""

    def words(self, records: npt.ArrayLike, size: int, purpose: Purpose) -> Words:
        """Draw uniform 64-bit words (m, size)."""


def draw_noise(source: NoiseSource, kind: str, records: npt.ArrayLike, size: int) -> Integers:
    """Draw integers (m, size) of a kind of `NOISE_DISTRIBUTIONS` from a source.

    Raises `UserError` if the kind is unknown or the source does not draw it.
    """
    drawn = getattr(source, kind, None) if kind in NOISE_DISTRIBUTIONS else None
    if drawn is None:
        raise UserError(f"{source!r} draws no noise of kind {kind!r}; known are {', '.join(NOISE_DISTRIBUTIONS)}")
    noise: Integers = drawn(records, size)
    return noise


class DrawnNoise(ABC):
    """Base class of the sources whose noise is drawn by distribution."""

    __slots__ = ()

    def gaussian(self, records: npt.ArrayLike, size: int) -> Integers:
        """Draw integers (m, size), ``P(x)`` proportional to ``exp(-x^2 / 2 S^2)`` with S = 2^20."""
        return self._draw(GAUSSIAN_NOISE, records, size)

    def laplace(self, records: npt.ArrayLike, size: int) -> Integers:
        """Draw integers (m, size), ``P(x)`` proportional to ``exp(-|x| / S)`` with S = 2^20."""
        return self._draw(LAPLACE_NOISE, records, size)

    @abstractmethod
    def _draw(self, distribution: NoiseDistribution, records: npt.ArrayLike, size: int) -> Integers:
        """Draw integers (m, size) of a distribution."""


class SecureNoise(DrawnNoise):
    r"""Exact noise from the operating system's randomness.

    Given ideal random bits, the distribution is exact: integers with ``P(x) \propto exp(-x^2 / 2 S^2)`` or ``P(x)
    \propto exp(-|x| / S)``, ``S = 2^20``. There is no pool and no state, so a copy, a pickle, a fork or a snapshot of a
    virtual machine never repeats a draw.

    Examples
    --------
    >>> noise = SecureNoise()
    >>> noise.gaussian([0, 1], size=3).shape
    (2, 3)
    """

    __slots__ = ()
    simulated = False

    def _draw(self, distribution: NoiseDistribution, records: npt.ArrayLike, size: int) -> Integers:
        count = _length(records)
        out = empty(count * size, np.int64)
        fill(distribution, out, secure_feed, compiled)
        return out.reshape(count, size)

    def words(self, records: npt.ArrayLike, size: int, purpose: Purpose) -> Words:
        """Draw uniform 64-bit words (m, size), fresh at every call."""
        count = _length(records)
        return keep(np.frombuffer(os.urandom(8 * count * size), dtype=np.uint64)).reshape(count, size)

    def __repr__(self) -> str:
        return "SecureNoise()"


def secure_feed(trials: int, spares: int) -> tuple[Words, Words]:
    """Return words of the operating system for `streaming.fill`."""
    fresh = keep(np.frombuffer(os.urandom(16 * trials + 8 * spares), dtype=np.uint64))
    return fresh[: 2 * trials], fresh[2 * trials :]


def fill_from(words: Words, trials: int, extra: int, distribution: NoiseDistribution, out: Integers) -> None:
    """Fill ``out`` with secure draws, first from words that did not suffice, then from new ones.

    Replacing the words would bias the distribution, because which words suffice depends on the values. ``words`` holds
    two for each of ``trials`` trials, then spare ones, then ``extra`` words for another use.
    """
    first = [(words[: 2 * trials], words[2 * trials : len(words) - extra])]

    def feed(trials: int, spares: int) -> tuple[Words, Words]:
        return first.pop() if first else secure_feed(trials, spares)

    fill(distribution, out, feed, compiled)


def _length(records: npt.ArrayLike) -> int:
    return len(records) if isinstance(records, list | np.ndarray) else len(np.asarray(records))


@dataclass(frozen=True, slots=True)
class SimulatedNoise(DrawnNoise):
    """Reproducible noise of the same distribution, for simulation only: it protects nobody.

    The noise is a function of the seed, the record's index and the purpose (counter-based: Philox4x32-10), so a
    record's draws do not depend on other records or on time. A copy repeats them. A record's shorter vectors are
    prefixes of its longer ones, and its Gaussian and Laplace draws use the same words.

    Raises `UserError` for a seed that is not such an integer, or a negative record index.

    Parameters
    ----------
    seed
        An integer in [0, 2^64).

    Examples
    --------
    >>> noise = SimulatedNoise(seed=1)
    >>> both = noise.gaussian([3, 4], size=2)
    >>> bool((both[1] == noise.gaussian([4], size=2)[0]).all())
    True
    """

    seed: int

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, int | np.integer):
            raise UserError(f"a seed is an integer from 0 to 2^64 - 1, got {self.seed!r}")
        if not 0 <= self.seed < 2**64:
            raise UserError(f"a seed is an integer from 0 to 2^64 - 1, got {self.seed}; choose a smaller one")
        object.__setattr__(self, "seed", int(self.seed))

    @property
    def simulated(self) -> bool:
        """Always true."""
        return True

    def _draw(self, distribution: NoiseDistribution, records: npt.ArrayLike, size: int) -> Integers:
        draw = blocks.simulated_gaussians if distribution is GAUSSIAN_NOISE else blocks.simulated_laplaces
        out = empty((_length(records), size), np.int64)
        draw(np.uint64(self.seed), _indices(records), out)
        return out

    def words(self, records: npt.ArrayLike, size: int, purpose: Purpose) -> Words:
        """Draw uniform 64-bit words (m, size)."""
        indices = _indices(records)
        out = empty((len(indices), size), np.uint64)
        blocks.simulated_words(np.uint64(self.seed), indices, int(purpose), out)
        return out


def _indices(records: npt.ArrayLike) -> Integers:
    indices = np.asarray(records, dtype=np.int64)
    if indices.size and indices.min() < 0:
        raise UserError(f"a record's index must not be negative, got {indices.min()}")
    return indices
