"""The order in which the rows of a file are released: random, or the file's.

Files are sorted: by outcome, by arm, by year. If rows were released in that order, learners would take it for the order
in which people come, and readers of the log could tell from which row a release is. So each row gets 64 random bits,
the keystream of SHAKE-128 under a key, and rows are released in ascending order of these bits. Rows with equal bits
(10^6 rows have none with probability 1 - 3e-8) are released in the file's order. Every order is equally likely, and
nobody without the key can tell it from any other. Computing a part of the order takes 8 bytes for each row of the file,
which are freed afterwards.
"""

from __future__ import annotations

from hashlib import blake2b, shake_128
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Order = Literal["random", "file"]
ORDERS: Final[tuple[Order, ...]] = ("random", "file")

KEY_BYTES: Final = 16
_CHUNK: Final = 2**16  # rows whose bits are computed together; part of the definition of an order


def key_of_seed(seed: int) -> bytes:
    """Return the key of a simulation's order."""
    return blake2b(seed.to_bytes(8, "big"), digest_size=KEY_BYTES, person=b"murk order seed").digest()


def rows_in_order(key: bytes, size: int, start: int, stop: int) -> NDArray[np.int64]:
    """Return the rows at the positions ``start`` to ``stop`` of the order of ``size`` rows under a key.

    >>> key = key_of_seed(1)
    >>> rows_in_order(key, 8, 0, 8).tolist()
    [0, 5, 4, 3, 7, 6, 2, 1]
    >>> rows_in_order(key, 8, 2, 5).tolist()
    [4, 3, 7]
    """
    if not 0 <= start < stop <= size:
        return np.empty(0, dtype=np.int64)
    words = np.concatenate([_words(key, first, size) for first in range(0, size, _CHUNK)])
    # Work in place, as every further copy would take 8 bytes for each row.
    words.partition([start, stop - 1])
    low, high = words[start], words[stop - 1]
    below = int(np.count_nonzero(words[:start] < low))
    del words
    rows, positions = [], []
    for first in range(0, size, _CHUNK):
        chunk = _words(key, first, size)
        inside = np.flatnonzero((low <= chunk) & (chunk <= high))
        rows.append(inside + first)
        positions.append(chunk[inside])
    order = np.argsort(np.concatenate(positions), kind="stable")[start - below : stop - below]
    return np.concatenate(rows)[order]


def words_of_rows(key: bytes, rows: NDArray[np.int64], size: int) -> NDArray[np.uint64]:
    """Return the random bits of some rows, in ascending order of rows, of a file of ``size`` rows."""
    words = np.empty(len(rows), dtype=np.uint64)
    for chunk in np.unique(rows // _CHUNK).tolist():
        first, last = np.searchsorted(rows, (chunk * _CHUNK, (chunk + 1) * _CHUNK))
        words[first:last] = _words(key, chunk * _CHUNK, size)[rows[first:last] - chunk * _CHUNK]
    return words


def _words(key: bytes, first: int, size: int) -> NDArray[np.uint64]:
    """Return the random bits of the rows of one chunk."""
    stream = shake_128(key + (first // _CHUNK).to_bytes(8, "big")).digest(8 * min(_CHUNK, size - first))
    return np.frombuffer(stream, dtype="<u8").astype(np.uint64)
