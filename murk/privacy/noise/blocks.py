"""Noise of many records at once: the compiled sampler, and the same draws in numpy until it is compiled.

In numpy, usual trials are decided for all records together, and undecided ones one by one with the sampler's own
functions. Equal words give equal integers either way.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from murk._jit import deferred_to
from murk._memory import borrowed
from murk._scratch import empty, keep, wiped
from murk.privacy.noise.distributions import GAUSSIAN_NOISE, LAPLACE_NOISE, NoiseDistribution
from murk.privacy.noise.kernels import (
    Progress,
    draw,
    fast_gaussian,
    fill_words,
    finish_simulated_trial,
    finish_trial,
    room_for,
    simulated_gaussian,
    simulated_laplace,
)
from murk.privacy.noise.philox import Purpose, block
from murk.privacy.noise.streaming import DONE, REJECTED, WORDS, Integers, Words

Flags = npt.NDArray[np.bool_]

_START = np.int64(0)
# The function also works on arrays.
_blocks: Any = block


def _decide(shape: Integers, table: Words, a: Words, b: Words) -> tuple[Integers, Flags, Flags]:
    """Return the values of trials with these words, which trials are accepted, and which are undecided."""
    step, step_bits, denominator, denominator_bits, width, _, quadratic = shape.tolist()
    word = np.bitwise_and(a, np.uint64((1 << width) - 1), out=empty(a.shape, np.uint64))
    k = keep(np.searchsorted(table[0], word, side="left"))
    close = keep(table[0][k])
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
    # All but the negative zero.
    kept = np.greater(x, 0, out=tied)
    plain = np.logical_not(negative, out=empty(a.shape, np.bool_))
    np.logical_or(kept, plain, out=kept)
    np.logical_and(kept, inside, out=kept)
    np.logical_and(kept, np.logical_not(undecided, out=plain), out=kept)
    return np.negative(x, out=x, where=negative), kept, undecided


@wiped
def _draw_early(shape: Integers, table: Words, guide: Integers, words: Words, spare: Words, out: Integers) -> Progress:
    trials = len(words) // 2
    values, kept, undecided = _decide(shape, table, words[: 2 * trials : 2], words[1 : 2 * trials : 2])
    before = keep(np.cumsum(kept))
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
    out[: len(chosen)] = keep(values[chosen])
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
    a, b = map(keep, _blocks(seed, numbers[:, None], np.uint64(Purpose.NOISE), trials))
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
    places = np.cumsum(kept, axis=1)
    enough = kept.sum(axis=1) >= size
    out[enough] = keep(values[enough[:, None] & kept & (places <= size)]).reshape(enough.sum(), size)
    for i in np.flatnonzero(~enough).tolist():
        simulate(seed, records[i], out[i])


def _gaussians_early(seed: np.uint64, records: Integers, out: Integers) -> None:
    _simulate_early(GAUSSIAN_NOISE, simulated_gaussian, seed, records, out)


def _laplaces_early(seed: np.uint64, records: Integers, out: Integers) -> None:
    _simulate_early(LAPLACE_NOISE, simulated_laplace, seed, records, out)


def _words_early(seed: np.uint64, records: Integers, purpose: int, out: Words) -> None:
    pairs = np.arange((out.shape[1] + 1) // 2, dtype=np.uint64)
    even, odd = _blocks(seed, records.astype(np.uint64)[:, None], np.uint64(purpose), pairs)
    out[:, ::2] = even
    out[:, 1::2] = odd[:, : out.shape[1] // 2]


@deferred_to(_gaussians_early)
def simulated_gaussians(seed: np.uint64, records: Integers, out: Integers) -> None:
    """Write `simulated_gaussian` of each record to its row of ``out``."""
    out, room = borrowed(out), np.empty(room_for(out.shape[1]), dtype=np.uint64)
    for i in range(out.shape[0]):
        fast_gaussian(seed, records[i], room, out[i])
    room[:] = np.uint64(0)


@deferred_to(_laplaces_early)
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
