"""The shuffler's window for duplicates: the ids at the newest offsets of a partition, in one compact table."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk._arrays import Integers, Words
from murk._jit import deferred, within

SEEN = np.dtype([("offset", "<i8"), ("id", ">u8", 2)])
"""An id at its offset, as it is stored."""
Array = Any
_LEAST = 1024  # places of an empty table
_FREE = -1  # offset of a place without an id


class Window:
    """Like `DuplicateWindow`, with at most 48 bytes for each id in reach; lists the ids that it was given.

    A place in the table has an id and its newest offset. When three quarters are taken, ids out of reach are removed.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        # Secret, so that no sender can choose ids that share a place.
        self._key = np.frombuffer(os.urandom(16), np.uint64)
        self._make(_LEAST)
        self.given: list[NDArray[np.void]] = []

    def seen(self, offset: int, identifier: str) -> bool:
        """Add a hexadecimal id at an offset, which must grow from call to call; return whether it is a duplicate."""
        ids = np.frombuffer(bytes.fromhex(identifier), ">u8").astype(np.uint64)[None]
        return bool(self.add(np.array([offset]), ids)[0])

    def add(self, offsets: Integers, ids: Words) -> NDArray[np.bool_]:
        """Add ids (m, 2) at growing offsets; return which ones are duplicates."""
        given = np.empty(len(ids), SEEN)
        given["offset"], given["id"] = offsets, ids
        self.given.append(given)
        if 4 * (self._used + len(ids)) > 3 * len(self._offsets):
            self._make_room(int(offsets[0]), len(ids))
        repeated = np.empty(len(ids), np.bool_)
        self._used += note(self._ids, self._offsets, self._key, self.size, offsets, ids, repeated)
        return repeated

    def _make(self, places: int) -> None:
        self._ids, self._offsets, self._used = np.empty((places, 2), np.uint64), np.full(places, _FREE), 0

    def _make_room(self, offset: int, more: int) -> None:
        ids, offsets = self._ids, self._offsets
        live = offsets >= max(0, offset - self.size)
        ids, offsets = ids[live], offsets[live]
        self._make(max(_LEAST, 2 * (len(ids) + more)))
        self._used = note(self._ids, self._offsets, self._key, self.size, offsets, ids, np.empty(len(ids), np.bool_))

    def __len__(self) -> int:
        return self._used


@within
def _round(a: Array, b: Array, c: Array, d: Array) -> Any:
    """Return the four words after a round of SipHash."""
    a, c = a + b, c + d
    b = (b << np.uint64(13)) | (b >> np.uint64(51))
    d = (d << np.uint64(16)) | (d >> np.uint64(48))
    b, d = b ^ a, d ^ c
    a = (a << np.uint64(32)) | (a >> np.uint64(32))
    a, c = a + d, c + b
    b = (b << np.uint64(17)) | (b >> np.uint64(47))
    d = (d << np.uint64(21)) | (d >> np.uint64(43))
    b, d = b ^ c, d ^ a
    return a, b, (c << np.uint64(32)) | (c >> np.uint64(32)), d


@within
def digest(key: Array, high: Array, low: Array) -> Any:
    """Return the SipHash-1-3 of two words."""
    a, b = key[0] ^ np.uint64(0x736F6D6570736575), key[1] ^ np.uint64(0x646F72616E646F6D)
    c, d = key[0] ^ np.uint64(0x6C7967656E657261), key[1] ^ np.uint64(0x7465646279746573)
    for word in (high, low, np.uint64(16 << 56)):
        d ^= word
        a, b, c, d = _round(a, b, c, d)
        a ^= word
    c ^= np.uint64(255)
    for _ in range(3):
        a, b, c, d = _round(a, b, c, d)
    return a ^ b ^ c ^ d


@deferred
def note(known: Array, places: Array, key: Array, size: Array, offsets: Array, ids: Array, repeated: Array) -> int:
    """Add ids at offsets to a table, fill in which are duplicates, and return how many places they took."""
    taken, count = 0, np.uint64(len(places))
    for m in range(len(ids)):
        high, low = ids[m, 0], ids[m, 1]
        at = digest(key, high, low) % count
        while places[at] >= 0 and not (known[at, 0] == high and known[at, 1] == low):
            at = at + np.uint64(1) if at + np.uint64(1) < count else np.uint64(0)
        repeated[m] = places[at] >= 0 and offsets[m] - places[at] <= size
        if places[at] < 0:
            known[at, 0], known[at, 1] = high, low
            taken += 1
        places[at] = offsets[m]
    return taken
