"""Philox4x32-10: random words as a function of a counter and a key.

Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). Every quantity is a uint64 that
holds 32 bits, so no product overflows.
"""

from enum import IntEnum

import numpy as np

from murk._internal.arrays import Words
from murk._internal.jit import inlined, jit

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
