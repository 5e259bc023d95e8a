"""Philox4x32-10: random words as a function of a counter and a key.

Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). Every quantity is a
uint64 that holds 32 bits, so no product overflows and the same lines serve scalars and arrays.
"""

from enum import IntEnum
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from murk._jit import jit

# A word, or an array of them.
T = TypeVar("T", np.uint64, npt.NDArray[np.uint64])

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_MULTIPLIER_0 = np.uint64(0xD2511F53)
_MULTIPLIER_1 = np.uint64(0xCD9E8D57)
_WEYL_0 = np.uint64(0x9E3779B9)
_WEYL_1 = np.uint64(0xBB67AE85)


class Purpose(IntEnum):
    """What a record's words are for: each purpose is a stream of its own."""

    NOISE = 0
    SPARE = 1
    COIN = 2
    IDENTIFIER = 3
    CHAIN = 4
    LEVEL = 5
    SELECTION = 6
    QUESTION = 7


def _philox(c0: T, c1: T, c2: T, c3: T, k0: np.uint64, k1: np.uint64) -> tuple[T, T, T, T]:
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


philox = jit(_philox)
"""Four 32-bit counters and two 32-bit keys (all uint64) to four 32-bit outputs."""


@jit
def block(seed: np.uint64, record: np.uint64, purpose: np.uint64, index: np.uint64) -> tuple[np.uint64, np.uint64]:
    """Words ``2 index`` and ``2 index + 1`` of a record's stream for a purpose; index below 2^32."""
    w0, w1, w2, w3 = philox(index, purpose, record & _LOW, record >> _HALF, seed & _LOW, seed >> _HALF)
    return w0 | (w1 << _HALF), w2 | (w3 << _HALF)


def stream(seed: int, records: npt.NDArray[np.int64], purpose: int, start: int, size: int) -> npt.NDArray[np.uint64]:
    """Words ``start .. start + size - 1`` of each record's stream, by numpy: shape (m, size)."""
    first, last = start // 2, -(-(start + size) // 2)
    index = np.arange(first, last, dtype=np.uint64)[None, :]
    record = records.astype(np.uint64)[:, None]
    shape = np.broadcast_shapes(index.shape, record.shape)
    k0, k1 = np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32)
    w0, w1, w2, w3 = _philox(
        np.broadcast_to(index, shape),
        np.full(shape, purpose, dtype=np.uint64),
        np.broadcast_to(record & _LOW, shape),
        np.broadcast_to(record >> _HALF, shape),
        k0,
        k1,
    )
    words = np.stack([w0 | (w1 << _HALF), w2 | (w3 << _HALF)], axis=-1).reshape(len(records), 2 * (last - first))
    begin = start - 2 * first
    chosen: npt.NDArray[np.uint64] = words[:, begin : begin + size]
    return chosen
