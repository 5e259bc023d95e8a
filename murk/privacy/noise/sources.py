"""Sources of noise and of uniform integers: the operating system's randomness, and a reproducible simulation.

Words arrive in pieces, and no trial of the sampler is dropped. Dropping the trial during which the words ran out would
bias the distribution, because how many words a trial uses depends on its value.

Noise of many records is drawn at once, by the compiled sampler or, until that is compiled, by numpy, which decides
usual trials for all records together and other trials one by one with the sampler's own functions. Both give the same
integers for the same words. Coins, bounded integers and identifiers follow from uniform words exactly, without floats.
"""

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Integers, Words
from murk._internal.jit import borrowed, deferred_to
from murk._internal.wiping import empty, track, wiped
from murk.errors import MurkError, UserError
from murk.privacy.noise.distributions import GAUSSIAN_NOISE, LAPLACE_NOISE, NOISE_DISTRIBUTIONS, NoiseDistribution
from murk.privacy.noise.kernels import (
    DEEPER,
    DONE,
    REJECTED,
    WORDS,
    Progress,
    Purpose,
    block,
    draw,
    fast_gaussian,
    fill_words,
    finish_simulated_trial,
    finish_trial,
    room_for,
    simulated_gaussian,
    simulated_laplace,
)

_ERROR_CODE = "MURK-PRIVACY-001"

# Number of trials for which words are fetched at once: large for few calls, small enough for the cache.
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
        """Draw until the words are used up; return the same as `kernels.draw`."""


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
    joined = track(np.concatenate([left, right])).view()
    # Read-only like the operating system's words, so that the kernels are compiled for one type only.
    joined.setflags(write=False)
    return joined


Flags = npt.NDArray[np.bool_]

_START = np.int64(0)
# The function also works on arrays.
_blocks: Any = block


def _decide(shape: Integers, table: Words, a: Words, b: Words) -> tuple[Integers, Flags, Flags]:
    """Return the values of trials with these words, which trials are accepted, and which are undecided."""
    step, step_bits, denominator, denominator_bits, width, _, quadratic = shape.tolist()
    word = np.bitwise_and(a, np.uint64((1 << width) - 1), out=empty(a.shape, np.uint64))
    k = track(np.searchsorted(table[0], word, side="left"))
    close = track(table[0][k])
    tied = np.equal(close, word, out=empty(a.shape, np.bool_))
    j = np.bitwise_and(b, np.uint64((1 << step_bits) - 1), out=word).view(np.int64)
    rest = np.right_shift(b, np.uint64(step_bits), out=close)
    flag = np.bitwise_and(rest, np.uint64(1), out=empty(a.shape, np.uint64))
    negative = np.not_equal(flag, np.uint64(0), out=empty(a.shape, np.bool_))
    np.right_shift(rest, np.uint64(1), out=rest)
    u1 = np.bitwise_and(rest, np.uint64((1 << denominator_bits) - 1), out=rest).view(np.int64)
    start = np.multiply(k, step, out=k)
    x = np.add(start, j, out=empty(a.shape, np.int64))
    inside = np.less(j, step, out=empty(a.shape, np.bool_))
    below = np.less(u1, denominator, out=empty(a.shape, np.bool_))
    np.logical_and(inside, below, out=inside)
    numerator = j
    if quadratic:
        np.add(start, x, out=start)
        numerator = np.multiply(start, j, out=start)
    undecided = np.less(u1, numerator, out=below)
    np.logical_or(undecided, tied, out=undecided)
    np.logical_and(undecided, inside, out=undecided)
    # Accept all but the negative zero.
    kept = np.greater(x, 0, out=tied)
    plain = np.logical_not(negative, out=empty(a.shape, np.bool_))
    np.logical_or(kept, plain, out=kept)
    np.logical_and(kept, inside, out=kept)
    np.logical_and(kept, np.logical_not(undecided, out=plain), out=kept)
    return np.negative(x, out=x, where=negative), kept, undecided


@wiped
def _draw_early(shape: Integers, table: Words, guide: Integers, words: Words, spare: Words, out: Integers) -> Progress:  # noqa: ARG001
    trials = len(words) // 2
    values, kept, undecided = _decide(shape, table, words[: 2 * trials : 2], words[1 : 2 * trials : 2])
    before = track(np.cumsum(kept))
    status, end, used, more = np.int64(WORDS), trials, _START, 0
    for trial in np.flatnonzero(undecided).tolist():
        if before[trial] + more >= len(out):
            break
        state, value, position = finish_trial(shape, table, words[2 * trial], words[2 * trial + 1], spare, used)
        if state != DONE:
            status, end = state, trial
            break
        used, values[trial] = position, value
        if value != REJECTED:
            kept[trial] = True
            more += 1
    chosen = np.flatnonzero(kept[:end])[: len(out)]
    if len(chosen) == len(out):
        status, end = np.int64(DONE), int(chosen[-1]) + 1 if len(chosen) else 0
    out[: len(chosen)] = track(values[chosen])
    return status, np.int64(len(chosen)), np.int64(end), used


@deferred_to(_draw_early)
def draw_block(shape: Integers, table: Words, guide: Integers, words: Words, spare: Words, out: Integers) -> Progress:
    """Apply `kernels.draw`."""
    return draw(shape, table, guide, words, spare, out)


def _more_than(size: int) -> int:
    """Return the number of trials that nearly always gives ``size`` draws."""
    return size + size // 16 + 4


@wiped
def _simulate_early(noise: NoiseDistribution, simulate: Any, seed: np.uint64, records: Integers, out: Integers) -> None:
    size = out.shape[1]
    trials, numbers = np.arange(_more_than(size), dtype=np.uint64), records.astype(np.uint64)
    a, b = map(track, _blocks(seed, numbers[:, None], np.uint64(Purpose.NOISE), trials))
    values, kept, undecided = _decide(noise.shape, noise.table, a, b)
    before = np.cumsum(kept, axis=1)
    last, used, more = -1, _START, 0
    for i, trial in np.argwhere(undecided).tolist():
        if i != last:
            last, used, more = i, _START, 0
        if before[i, trial] + more < size:
            words = a[i, trial], b[i, trial]
            value, used = finish_simulated_trial(noise.shape, noise.table, *words, seed, numbers[i], used)
            if value != REJECTED:
                values[i, trial], kept[i, trial] = value, True
                more += 1
    indices = np.cumsum(kept, axis=1)
    enough = kept.sum(axis=1) >= size
    out[enough] = track(values[enough[:, None] & kept & (indices <= size)]).reshape(enough.sum(), size)
    for i in np.flatnonzero(~enough).tolist():
        simulate(seed, records[i], out[i])


def _words_early(seed: np.uint64, records: Integers, purpose: int, out: Words) -> None:
    pairs = np.arange((out.shape[1] + 1) // 2, dtype=np.uint64)
    even, odd = _blocks(seed, records.astype(np.uint64)[:, None], np.uint64(purpose), pairs)
    out[:, ::2] = even
    out[:, 1::2] = odd[:, : out.shape[1] // 2]


@deferred_to(partial(_simulate_early, GAUSSIAN_NOISE, simulated_gaussian))
def simulated_gaussians(seed: np.uint64, records: Integers, out: Integers) -> None:
    """Write `simulated_gaussian` of each record to its row of ``out``."""
    out, room = borrowed(out), np.empty(room_for(out.shape[1]), dtype=np.uint64)
    for i in range(out.shape[0]):
        fast_gaussian(seed, records[i], room, out[i])
    room[:] = np.uint64(0)


@deferred_to(partial(_simulate_early, LAPLACE_NOISE, simulated_laplace))
def simulated_laplaces(seed: np.uint64, records: Integers, out: Integers) -> None:
    """Write `simulated_laplace` of each record to its row of ``out``."""
    out = borrowed(out)
    for i in range(out.shape[0]):
        simulated_laplace(seed, records[i], out[i])


@deferred_to(_words_early)
def simulated_words(seed: np.uint64, records: Integers, purpose: int, out: Words) -> None:
    """Write ``SimulatedNoise(seed).words(records, out.shape[1], purpose)`` to ``out``."""
    out = borrowed(out)
    for i in range(out.shape[0]):
        fill_words(seed, np.uint64(records[i]), np.uint64(purpose), _START, out[i])


def compiled(distribution: NoiseDistribution, words: Words, spare: Words, out: Integers) -> tuple[int, int, int, int]:
    """Call the compiled sampler with the interface of `Draw`."""
    status, produced, trials, spares = draw_block(
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
    """Draw integers (m, size) of a kind of noise; raise `UserError` if it is unknown or the source does not draw it."""
    drawn = getattr(source, kind, None) if kind in NOISE_DISTRIBUTIONS else None
    if drawn is None:
        raise UserError(f"{source!r} draws no noise of kind {kind!r}, only {', '.join(NOISE_DISTRIBUTIONS)}")
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
        return track(np.frombuffer(os.urandom(8 * count * size), dtype=np.uint64)).reshape(count, size)

    def __repr__(self) -> str:
        return "SecureNoise()"


def secure_feed(trials: int, spares: int) -> tuple[Words, Words]:
    """Return words of the operating system for `fill`."""
    fresh = track(np.frombuffer(os.urandom(16 * trials + 8 * spares), dtype=np.uint64))
    return fresh[: 2 * trials], fresh[2 * trials :]


def fill_from(words: Words, trials: int, distribution: NoiseDistribution, out: Integers) -> None:
    """Fill ``out`` with secure draws, from ``words``, which were too few for it, and then from new words.

    Replacing the words would bias the distribution, because whether they suffice depends on the drawn values. ``words``
    holds two words for each of ``trials`` trials, then spare words.
    """
    first = [(words[: 2 * trials], words[2 * trials :])]

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
    prefixes of its longer ones, and its Gaussian and Laplace draws use the same words. Raises `UserError` for a seed
    that is not an integer in the range, or a negative record index.

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
    simulated: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if isinstance(self.seed, bool) or not isinstance(self.seed, int | np.integer):
            raise UserError(f"a seed is an integer from 0 to 2^64 - 1, got {self.seed!r}")
        if not 0 <= self.seed < 2**64:
            raise UserError(f"a seed is an integer from 0 to 2^64 - 1, got {self.seed}")
        object.__setattr__(self, "seed", int(self.seed))

    def _draw(self, distribution: NoiseDistribution, records: npt.ArrayLike, size: int) -> Integers:
        draw = simulated_gaussians if distribution is GAUSSIAN_NOISE else simulated_laplaces
        out = empty((_length(records), size), np.int64)
        draw(np.uint64(self.seed), _indices(records), out)
        return out

    def words(self, records: npt.ArrayLike, size: int, purpose: Purpose) -> Words:
        """Draw uniform 64-bit words (m, size)."""
        indices = _indices(records)
        out = empty((len(indices), size), np.uint64)
        simulated_words(np.uint64(self.seed), indices, int(purpose), out)
        return out


def _indices(records: npt.ArrayLike) -> Integers:
    indices = np.asarray(records, dtype=np.int64)
    if indices.size and indices.min() < 0:
        raise UserError(f"a record's index must not be negative, got {indices.min()}")
    return indices


def coins(words: Words, threshold: int) -> npt.NDArray[np.bool_]:
    """Convert each word to a coin that is true with probability exactly ``threshold / 2^64``.

    Raises `UserError` if the threshold is not in [0, 2^64].

    >>> coins(np.array([0, 2**63], dtype=np.uint64), threshold=2**63).tolist()
    [True, False]
    """
    if not 0 <= threshold <= 2**64:
        raise UserError(f"a coin's threshold is an integer from 0 to 2^64, got {threshold}")
    if threshold == 2**64:
        return np.ones(words.shape, dtype=np.bool_)
    result: npt.NDArray[np.bool_] = words < np.uint64(threshold)
    return result


def below(words: Words, n: int) -> Integers:
    """Return integers exactly uniform on [0, n), one for each row of candidates ``words`` (m, k).

    The first candidate is taken whose low bits are below n. All k candidates of a row fail with probability below 2^-k.
    Raises `UserError` if n is not in [1, 2^63]. Raises `MurkError` if all candidates of a row fail; give more
    candidates per row.

    >>> below(np.array([[7, 1], [2, 0]], dtype=np.uint64), n=3).tolist()
    [1, 2]
    """
    if not 1 <= n <= 2**63:
        raise UserError(f"the bound of a uniform integer is from 1 to 2^63, got {n}")
    candidates = words & np.uint64((1 << (n - 1).bit_length()) - 1)
    good = candidates < np.uint64(n)
    if not good.any(axis=1).all():
        raise MurkError(f"none of {words.shape[1]} words gave an integer below {n}; give more words per record")
    first = good.argmax(axis=1)
    chosen: Integers = candidates[np.arange(len(words)), first].astype(np.int64)
    return chosen


def identifiers(noise: NoiseSource, records: npt.ArrayLike) -> list[str]:
    """Return a random identifier for each record: 128 bits as 32 hexadecimal digits.

    >>> from murk.privacy.noise import SecureNoise
    >>> [len(name) for name in identifiers(SecureNoise(), [0, 1])]
    [32, 32]
    """
    return [f"{high:016x}{low:016x}" for high, low in noise.words(records, 2, Purpose.IDENTIFIER).tolist()]
