"""Random words of a counter and a key, and the compiled sampler.

One draw takes two random words, and further words only in rare cases.

Everything is integer arithmetic. Words are uint64 and values computed from them int64, with explicit conversions,
because uint64 with int64 becomes float64 in numpy and wraps in numba.

A trial, given a word A and a word B (notation of `murk.privacy.noise.distributions`):

1. k by comparing A with the table; a word equal to an entry is undecided and continues with further words.
2. j, a sign and u1 (uniform below the denominator) from disjoint bits of B; a value out of range rejects the trial.
3. Accept with probability exp(-num / den), num = j (2 k J + j) and den = 2 S^2 (Laplace: j and S), by von Neumann's
   method as in Canonne, Kamath, Steinke (2020), Algorithm 1: u1 < num is its first comparison, nearly always the last.
4. Reject the negative zero.

Simulated words are Philox4x32-10: a function of a counter and a key, computed in uint64 that hold 32 bits, so that no
product overflows.

Sources: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011); Karney (2016, arXiv
1303.6257); Ducas, Durmus, Lepoint, Lyubashevsky (2013) for the decomposition; von Neumann (1951).
"""

from enum import IntEnum

import numpy as np

from murk._internal.arrays import Integers, Words
from murk._internal.jit import inlined, jit, jit_helper
from murk.errors import MurkError
from murk.privacy.noise.distributions import GAUSSIAN_NOISE, LAPLACE_NOISE

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)


class Purpose(IntEnum):
    """Purpose of a record's words; each has its own stream."""

    NOISE = 0
    SPARE = 1
    COIN = 2
    IDENTIFIER = 3
    PARTITION = 4
    LEVEL = 5
    SELECTION = 6
    QUERY = 7
    RECORD = 8


@inlined
def rounds(
    c0: np.uint64, c1: np.uint64, c2: np.uint64, c3: np.uint64, k0: np.uint64, k1: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Compute :func:`philox`, inlined into callers, so that loops are vectorised."""
    for _ in range(10):
        p0 = _MULTIPLIER_0 * c0
        p1 = _MULTIPLIER_1 * c2
        c0 = (p1 >> _HALF) ^ c1 ^ k0
        c1 = p1 & _LOW
        c2 = (p0 >> _HALF) ^ c3 ^ k1
        c3 = p0 & _LOW
        k0 = (k0 + _WEYL_0) & _LOW
        k1 = (k1 + _WEYL_1) & _LOW
    return c0, c1, c2, c3


@jit
def philox(
    c0: np.uint64, c1: np.uint64, c2: np.uint64, c3: np.uint64, k0: np.uint64, k1: np.uint64
) -> tuple[np.uint64, np.uint64, np.uint64, np.uint64]:
    """Map four 32-bit counters and two 32-bit keys (all uint64) to four 32-bit outputs."""
    return rounds(c0, c1, c2, c3, k0, k1)


@jit
def blocks(seed: np.uint64, record: np.uint64, purpose: np.uint64, out: Words) -> None:
    """Fill ``out``, of even length, with a record's first words for a purpose."""
    for index in range(out.shape[0] // 2):
        w0, w1, w2, w3 = rounds(np.uint64(index), purpose, record & _LOW, record >> _HALF, seed & _LOW, seed >> _HALF)
        out[2 * index], out[2 * index + 1] = w0 | (w1 << _HALF), w2 | (w3 << _HALF)


@jit
def block(seed: np.uint64, record: np.uint64, purpose: np.uint64, index: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Return words ``2 index`` and ``2 index + 1`` of a record's stream for a purpose; index below 2^32."""
    w0, w1, w2, w3 = philox(index, purpose, record & _LOW, record >> _HALF, seed & _LOW, seed >> _HALF)
    return w0 | (w1 << _HALF), w2 | (w3 << _HALF)


_ERROR_CODE = "MURK-PRIVACY-001"

# Status of a draw: done, or what is missing: words, spare words, or digits of the table.
DONE, WORDS, SPARE, DEEPER = 0, 1, 2, 3

# Result of a rejected trial; no value comes near it.
REJECTED = -(2**62)

# (status, values produced, trials used, spare words used)
Progress = tuple[np.int64, np.int64, np.int64, np.int64]

_ZERO = np.uint64(0)
_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_NOISE = np.uint64(Purpose.NOISE)
_SPARE = np.uint64(Purpose.SPARE)
_FIRST_SPARES = 2

# The two distributions in use, as constants of the compiled code.
_GAUSSIAN, _GAUSSIAN_TABLE, _GAUSSIAN_GUIDE = GAUSSIAN_NOISE.shape, GAUSSIAN_NOISE.table, GAUSSIAN_NOISE.guide
_LAPLACE, _LAPLACE_TABLE, _LAPLACE_GUIDE = LAPLACE_NOISE.shape, LAPLACE_NOISE.table, LAPLACE_NOISE.guide
_NO_WORDS = np.empty(0, dtype=np.uint64)
_NO_WORDS.setflags(write=False)


@jit
def draw(shape: Integers, table: Words, guide: Integers, words: Words, spare: Words, out: Integers) -> Progress:
    """Fill ``out`` with draws until the random words are used up: two of ``words`` per trial, and some of ``spare``.

    Returns (status, values drawn, trials used, spare words used). The status is `DONE`, or says what is missing:
    `WORDS`, `SPARE` or `DEEPER`. No trial may be dropped: continue with the unused words.
    """
    return _draw(shape, table, guide, words, spare, False, _ZERO, _ZERO, out)


@jit
def draw_gaussian(words: Words, spare: Words, out: Integers) -> Progress:
    """Apply `draw` to Gaussian noise."""
    return _draw(_GAUSSIAN, _GAUSSIAN_TABLE, _GAUSSIAN_GUIDE, words, spare, False, _ZERO, _ZERO, out)


@jit
def simulated_gaussian(seed: np.uint64, record: np.int64, out: Integers) -> None:
    """Fill ``out`` with ``SimulatedNoise(seed).gaussian([record], len(out))[0]``."""
    s, r = np.uint64(seed), np.uint64(record)
    _draw(_GAUSSIAN, _GAUSSIAN_TABLE, _GAUSSIAN_GUIDE, _NO_WORDS, _NO_WORDS, True, s, r, out)


@jit
def fast_gaussian(seed: np.uint64, record: np.int64, room: Words, out: Integers) -> None:
    """Compute `simulated_gaussian` faster: words are drawn several at once into ``room``, two per trial."""
    s, r = np.uint64(seed), np.uint64(record)
    blocks(s, r, _NOISE, room)
    _draw(_GAUSSIAN, _GAUSSIAN_TABLE, _GAUSSIAN_GUIDE, room, _NO_WORDS, True, s, r, out)


@jit_helper
def room_for(size: int) -> int:
    """Return the number of words that `fast_gaussian` usually needs for ``size`` numbers; fewer make it slower."""
    return 2 * (size + size // 40 + 1)


@jit
def simulated_laplace(seed: np.uint64, record: np.int64, out: Integers) -> None:
    """Fill ``out`` with ``SimulatedNoise(seed).laplace([record], len(out))[0]``."""
    s, r = np.uint64(seed), np.uint64(record)
    _draw(_LAPLACE, _LAPLACE_TABLE, _LAPLACE_GUIDE, _NO_WORDS, _NO_WORDS, True, s, r, out)


@jit
def simulated_words(seed: np.uint64, record: np.int64, purpose: int, out: Words) -> None:
    """Fill ``out`` with ``SimulatedNoise(seed).words([record], len(out), purpose)[0]``."""
    fill_words(np.uint64(seed), np.uint64(record), np.uint64(purpose), np.int64(0), out)


@inlined
def _draw(
    shape: Integers,
    table: Words,
    guide: Integers,
    words: Words,
    spare: Words,
    simulated: bool,
    seed: np.uint64,
    record: np.uint64,
    out: Integers,
) -> Progress:
    # One loop serves both origins of words and contains all steps of a usual trial: separate functions would not be
    # inlined, and a draw would take seven times as long. The loop is inlined into its callers, where the distribution
    # is a constant, which saves a third of the time.
    produced, trial, used = np.int64(0), np.int64(0), np.int64(0)
    trials = np.int64(words.shape[0] // 2)
    step, step_bits, denominator, quadratic = shape[0], np.uint64(shape[1]), shape[2], shape[6] == 1
    step_mask = (_ONE << step_bits) - _ONE
    u1_mask = (_ONE << np.uint64(shape[3])) - _ONE
    word_mask = _ALL >> (np.uint64(64) - np.uint64(shape[4]))
    guide_shift = np.uint64(shape[5])
    digits = table[0]
    while produced < out.shape[0]:
        if trial < trials:
            a, b = words[2 * trial], words[2 * trial + 1]
        elif simulated:
            a, b = block(seed, record, _NOISE, np.uint64(trial))
        else:
            return np.int64(WORDS), produced, trial, used
        word = a & word_mask
        # Unsigned, so that no index can mean "from the end".
        k = np.uint64(guide[word >> guide_shift])
        # No branch, which could not be predicted: the result is mostly this k or the next, rarely a larger k.
        k += np.uint64(digits[k] < word)
        while digits[k] < word:
            k += _ONE
        j = np.int64(b & step_mask)
        negative = np.int64((b >> step_bits) & _ONE)
        u1 = np.int64((b >> step_bits >> _ONE) & u1_mask)
        start = np.int64(k) * step
        x = start + j
        if (j < step) & (u1 < denominator):
            numerator = j * (start + x) if quadratic else j
            if (u1 < numerator) | (digits[k] == word):
                if simulated:
                    x, used = finish_simulated_trial(shape, table, a, b, seed, record, used)
                else:
                    status, x, used = finish_trial(shape, table, a, b, spare, used)
                    if status != DONE:
                        return status, produced, trial, used
                if x != REJECTED:
                    out[produced] = x
                    produced += 1
            elif x >= negative:
                # Accept all but the negative zero; a branch on the sign alone could not be predicted.
                out[produced] = (x ^ -negative) + negative
                produced += 1
        trial += 1
    return np.int64(DONE), produced, trial, used


@jit
def finish_trial(
    shape: Integers, table: Words, a: np.uint64, b: np.uint64, spare: Words, used: np.int64
) -> tuple[np.int64, np.int64, np.int64]:
    """Finish a trial that its two words leave undecided, with spare words from position ``used``.

    Returns the status, the value or `REJECTED`, and the position after the consumed words. With a status other than
    `DONE` nothing is consumed, and the same call with more words (or digits) continues identically.
    """
    step, step_bits, denominator = shape[0], np.uint64(shape[1]), shape[2]
    status, k, position = _coarse(shape, table, a, spare, used)
    if status != DONE:
        return status, np.int64(REJECTED), used
    j = np.int64(b & ((_ONE << step_bits) - _ONE))
    negative = np.int64((b >> step_bits) & _ONE)
    u1 = np.int64((b >> step_bits >> _ONE) & ((_ONE << np.uint64(shape[3])) - _ONE))
    x = k * step + j
    if x == 0 and negative == 1:
        return np.int64(DONE), np.int64(REJECTED), position
    numerator = j * (2 * k * step + j) if shape[6] == 1 else j
    # exp(-num/den) = exp(-rest/den) exp(-1)^wholes
    wholes = numerator // denominator
    rest = numerator - wholes * denominator
    status, accepted, position = _bernoulli(rest, denominator, u1, spare, position)
    while status == DONE and accepted and wholes > 0:
        status, accepted, position = _bernoulli(denominator, denominator, np.int64(0), spare, position)
        wholes -= 1
    if status != DONE:
        return status, np.int64(REJECTED), used
    if not accepted:
        return np.int64(DONE), np.int64(REJECTED), position
    return np.int64(DONE), (x ^ -negative) + negative, position


@jit
def _coarse(
    shape: Integers, table: Words, a: np.uint64, spare: Words, used: np.int64
) -> tuple[np.int64, np.int64, np.int64]:
    """Find k by comparing the digits of the word, and of as many spare words as needed, with the table."""
    mask = _ALL >> (np.uint64(64) - np.uint64(shape[4]))
    levels, entries = table.shape
    first = a & mask
    k = 0
    while table[0, k] < first:
        k += 1
    furthest = 0
    while k < entries:
        word, level = first, 0
        while table[level, k] == word:
            level += 1
            if level == levels:
                return np.int64(DEEPER), np.int64(k), used
            if used + level > spare.shape[0]:
                return np.int64(SPARE), np.int64(k), used
            furthest = max(furthest, level)
            word = spare[used + level - 1] & mask
        if word < table[level, k]:
            break
        k += 1
    # The last entry is all ones at every level, so the search ends there at the latest.
    return np.int64(DONE), np.int64(k), used + furthest


@jit
def _bernoulli(
    numerator: np.int64, denominator: np.int64, first: np.int64, spare: Words, used: np.int64
) -> tuple[np.int64, bool, np.int64]:
    """Draw exactly Bernoulli(exp(-num/den)), num <= den; ``first`` is already drawn, uniform below den."""
    trial = np.int64(1)
    below = bool(first < numerator)
    while below:
        trial += 1
        # Bernoulli(num / (den trial)) as two independent factors, which cannot overflow.
        status, u, used = _uniform(denominator, spare, used)
        below = bool(status == DONE and u < numerator)
        if below:
            status, u, used = _uniform(trial, spare, used)
            below = bool(status == DONE and u == 0)
        if status != DONE:
            return status, False, used
    return np.int64(DONE), bool(trial % 2 == 1), used


@jit
def _uniform(bound: np.int64, spare: Words, used: np.int64) -> tuple[np.int64, np.int64, np.int64]:
    """Draw uniformly on [0, bound) from spare words, by masking and rejection."""
    mask = _ZERO
    while mask < np.uint64(bound - 1):
        mask = (mask << _ONE) | _ONE
    while used < spare.shape[0]:
        u = np.int64(spare[used] & mask)
        used += 1
        if u < bound:
            return np.int64(DONE), u, used
    return np.int64(SPARE), np.int64(0), used


@jit
def finish_simulated_trial(
    shape: Integers,
    table: Words,
    a: np.uint64,
    b: np.uint64,
    seed: np.uint64,
    record: np.uint64,
    used: np.int64,
) -> tuple[np.int64, np.int64]:
    """Apply `finish_trial` with as many of the record's spare words as needed."""
    count = _FIRST_SPARES
    while True:
        spare = np.empty(count, dtype=np.uint64)
        fill_words(seed, record, _SPARE, used, spare)
        status, x, consumed = finish_trial(shape, table, a, b, spare, np.int64(0))
        if status == DONE:
            return x, used + consumed
        if status == DEEPER:
            raise MurkError("a simulated word agrees with the noise table to 256 bits: Philox is broken here")
        count *= 2


@jit
def fill_words(seed: np.uint64, record: np.uint64, purpose: np.uint64, start: np.int64, out: Words) -> None:
    """Write words ``start``, ``start + 1``, ... of a record's stream for a purpose."""
    even, odd = _ZERO, _ZERO
    for i in range(out.shape[0]):
        position = np.uint64(start + i)
        if i == 0 or position & _ONE == _ZERO:
            even, odd = block(seed, record, purpose, position >> _ONE)
        out[i] = odd if position & _ONE == _ONE else even
