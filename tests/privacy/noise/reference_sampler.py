"""The sampler once more, in numpy and Python's integers: identical values from identical words.

Written apart from the compiled kernels, so that each is a check of the other: numpy decides the trials that
two words decide (about 98%), and Python's integers settle the others, in order. Words of Philox, too, by numpy.
"""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Integers, Words
from murk.privacy.noise.distributions import NoiseDistribution
from murk.privacy.noise.kernels import DEEPER, DONE, REJECTED, SPARE, WORDS, Purpose, philox
from murk.privacy.noise.sources import Feed, fill

# What a trial of two words may come to, beside a value and `REJECTED`.
UNDECIDED = REJECTED + 1


class _Missing(Exception):
    """A trial cannot be settled yet, for want of what the status says."""

    def __init__(self, status: int) -> None:
        self.status = status


def decide(distribution: NoiseDistribution, a: Words, b: Words) -> Integers:
    """Trials from their two words: values, `REJECTED` or `UNDECIDED`, in the shape of ``a``."""
    word = a & np.uint64((1 << distribution.width) - 1)
    digits = distribution.table[0]
    k = np.searchsorted(digits, word, side="left")
    j, negative, u1 = _split(distribution, b)
    numerator = j * (2 * k * distribution.step + j) if distribution.kind == "gaussian" else j
    result: Integers = k * distribution.step + j
    np.negative(result, out=result, where=negative)
    result[negative & (result == 0)] = REJECTED
    result[(u1 < numerator) | (digits[k] == word)] = UNDECIDED
    result[(j >= distribution.step) | (u1 >= distribution.denominator)] = REJECTED
    return result


def _split(distribution: NoiseDistribution, b: Words) -> tuple[Integers, npt.NDArray[np.bool_], Integers]:
    """J's, the sign's and u1's disjoint bits of the second words."""
    j = (b & np.uint64((1 << distribution.step_bits) - 1)).astype(np.int64)
    negative = (b >> np.uint64(distribution.step_bits) & np.uint64(1)).astype(np.bool_)
    mask = np.uint64((1 << distribution.denominator_bits) - 1)
    u1 = (b >> np.uint64(distribution.step_bits + 1) & mask).astype(np.int64)
    return j, negative, u1


def settle(distribution: NoiseDistribution, a: int, b: int, spare: Sequence[int], used: int) -> tuple[int, int, int]:
    """A trial that `decide` left open: (status, value or `REJECTED`, spare words used by then)."""
    tape = _Tape(spare, used)
    try:
        value = _finish_trial(distribution, a, b, tape)
    except _Missing as missing:
        return missing.status, REJECTED, used
    return DONE, value, tape.used


class _Tape:
    """Spare words, read in order."""

    def __init__(self, words: Sequence[int], used: int) -> None:
        self.words = words
        self.used = used

    def next(self) -> int:
        if self.used == len(self.words):
            raise _Missing(SPARE)
        self.used += 1
        return self.words[self.used - 1]

    def uniform(self, bound: int) -> int:
        """Uniform on [0, bound): mask and reject."""
        mask = (1 << (bound - 1).bit_length()) - 1
        while True:
            u = self.next() & mask
            if u < bound:
                return u


def _finish_trial(distribution: NoiseDistribution, a: int, b: int, tape: _Tape) -> int:
    k = _coarse(distribution, a, tape)
    j = b & ((1 << distribution.step_bits) - 1)
    negative = b >> distribution.step_bits & 1
    u1 = b >> (distribution.step_bits + 1) & ((1 << distribution.denominator_bits) - 1)
    x = k * distribution.step + j
    if negative and x == 0:
        return REJECTED
    numerator = j * (2 * k * distribution.step + j) if distribution.kind == "gaussian" else j
    wholes, rest = divmod(numerator, distribution.denominator)
    accepted = _bernoulli(rest, distribution.denominator, u1, tape)
    while accepted and wholes:
        accepted = _bernoulli(distribution.denominator, distribution.denominator, 0, tape)
        wholes -= 1
    if not accepted:
        return REJECTED
    return -x if negative else x


def _coarse(distribution: NoiseDistribution, a: int, tape: _Tape) -> int:
    """K as the first entry above the words read as one number, read only as far as needed."""
    mask = (1 << distribution.width) - 1
    words = [a & mask]
    for k in range(bisect_left(distribution.digits[0], words[0]), len(distribution.digits[0])):
        level = 0
        while (digit := distribution.digits[level][k]) == words[level]:
            level += 1
            if level == distribution.levels:
                raise _Missing(DEEPER)
            if level == len(words):
                words.append(tape.next() & mask)
        if words[level] < digit:
            return k
    raise _Missing(DEEPER)


def _bernoulli(numerator: int, denominator: int, first: int, tape: _Tape) -> bool:
    """Exact Bernoulli(exp(-num/den)), num <= den; ``first`` is uniform below den and already drawn."""
    trial = 1
    below = first < numerator
    while below:
        trial += 1
        below = tape.uniform(denominator) < numerator and tape.uniform(trial) == 0
    return trial % 2 == 1


def draw(distribution: NoiseDistribution, words: Words, spare: Words, out: Integers) -> tuple[int, int, int, int]:
    """Fill ``out`` from ``words`` (two a trial) and ``spare``, as far as they reach.

    The twin of `kernels.draw`: returns (status, values produced, trials used, spare words used).
    """
    values = decide(distribution, words[0 : len(words) // 2 * 2 : 2], words[1::2])
    kept = (values != REJECTED) & (values != UNDECIDED)
    before = np.cumsum(kept)
    tape = spare.tolist()
    status, end, used, extra = WORDS, len(values), 0, 0
    for trial in np.flatnonzero(values == UNDECIDED):
        if before[trial] + extra >= len(out):
            break
        state, value, position = settle(distribution, int(words[2 * trial]), int(words[2 * trial + 1]), tape, used)
        if state != DONE:
            status, end = state, int(trial)
            break
        used = position
        values[trial] = value
        if value != REJECTED:
            kept[trial] = True
            extra += 1
    chosen = np.flatnonzero(kept[:end])
    if len(chosen) >= len(out):
        status, chosen = DONE, chosen[: len(out)]
        end = int(chosen[-1]) + 1 if len(chosen) else 0
    out[: len(chosen)] = values[chosen]
    return status, len(chosen), end, used


def stream(seed: int, record: int, purpose: int, start: int, size: int) -> Words:
    """Words ``start .. start + size - 1`` of a record's stream, by numpy."""
    index = np.arange(start // 2, -(-(start + size) // 2), dtype=np.uint64)
    purposes, low, high = (np.full(len(index), part, np.uint64) for part in (purpose, record & 2**32 - 1, record >> 32))
    # The kernel's own lines, as numpy runs them on arrays.
    w0, w1, w2, w3 = philox.py_func(index, purposes, low, high, np.uint64(seed & 2**32 - 1), np.uint64(seed >> 32))  # type: ignore[attr-defined]
    shift = np.uint64(32)
    words: Words = np.stack([w0 | (w1 << shift), w2 | (w3 << shift)], axis=-1).ravel()
    return words[start % 2 :][:size]


def simulate(distribution: NoiseDistribution, seed: int, record: int, out: Integers) -> None:
    """Fill ``out`` with a record's draws under ``seed``."""
    fill(distribution, out, _feed(seed, record), draw)


def _feed(seed: int, record: int) -> Feed:
    """The words of one record, in order."""
    position = {Purpose.NOISE: 0, Purpose.SPARE: 0}

    def take(purpose: Purpose, size: int) -> Words:
        start = position[purpose]
        position[purpose] += size
        words = stream(seed, record, purpose, start, size)
        words.setflags(write=False)
        return words

    return lambda trials, spares: (take(Purpose.NOISE, 2 * trials), take(Purpose.SPARE, spares))
