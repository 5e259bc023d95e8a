"""The shuffler's window for duplicates: fingerprints of the ids at the newest offsets of a partition.

They are in the store, sorted; memory holds a Bloom filter of them, which recognises nearly every new id without a look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk._arrays import Integers, Words
from murk._jit import deferred, within

SEEN = np.dtype([("print", "<u8"), ("offset", "<i8")])
"""The fingerprint of an id, and its newest offset, as they are stored."""
Array = Any
_SPARE = 2**17  # ids that a filter holds besides two windows: two batches
_BITS = 12  # bits of the filter for each of them: it takes fewer than 1 of 150 new ids for a known one
_MOST_BITS = 2**32
_PROBES = 4


class Window:
    """Like `DuplicateWindow`, with three bytes of memory for each offset in reach; lists what it was given.

    An id counts as its SipHash with a secret ``key``: two of n ids share one with a probability of n^2 / 2^65, 3e-6 for
    ten million, and no sender can choose ids that do. ``newest`` returns the newest stored offset of each of some
    sorted fingerprints, -1 without one, and ``stored`` everything stored, as arrays of `SEEN`. The caller stores what
    was ``given``, and then calls `stored_all`.
    """

    def __init__(
        self,
        size: int,
        key: Words,
        newest: Callable[[Words], Integers],
        stored: Callable[[], Iterable[NDArray[np.void]]],
    ) -> None:
        self.size = size
        self.given: list[NDArray[np.void]] = []
        self._key, self._newest, self._stored = key, newest, stored
        # What was given, by fingerprint, as far as it was looked at.
        self._recent: dict[int, int] = {}
        self._looked = 0
        self._most = 2 * size + _SPARE
        self._refill(-1)

    def seen(self, offset: int, identifier: str) -> bool:
        """Add a hexadecimal id at an offset, which must grow from call to call; return whether it is a duplicate."""
        ids = np.frombuffer(bytes.fromhex(identifier), ">u8").astype(np.uint64)[None]
        return bool(self.add(np.array([offset]), ids)[0])

    def add(self, offsets: Integers, ids: Words) -> NDArray[np.bool_]:
        """Add ids (m, 2) at growing offsets; return which ones are duplicates."""
        given = np.empty(len(ids), SEEN)
        given["offset"], given["print"] = offsets, prints = offsets, fingerprints(self._key, ids)
        if self._used + len(ids) > self._most:
            self._refill(int(offsets[0]) - self.size)
        self._used += len(ids)
        suspect, repeated = np.empty(len(ids), np.bool_), np.zeros(len(ids), np.bool_)
        if mark(self._filter, prints, suspect):
            suspects = np.unique(prints[suspect])
            known = dict(zip(suspects.tolist(), self._before(suspects), strict=True))
            for at in np.flatnonzero(np.isin(prints, suspects)).tolist():
                before, offset = known[int(prints[at])], int(offsets[at])
                repeated[at] = before >= 0 and offset - before <= self.size
                known[int(prints[at])] = offset
        self.given.append(given)
        return repeated

    def stored_all(self) -> None:
        """Forget what was given: it is stored."""
        self.given, self._recent, self._looked = [], {}, 0

    def _before(self, prints: Words) -> list[int]:
        """Return the newest offset of each of some sorted fingerprints; -1 without one."""
        for given in self.given[self._looked :]:
            self._recent.update(zip(given["print"].tolist(), given["offset"].tolist(), strict=True))
        self._looked = len(self.given)
        stored = zip(prints.tolist(), self._newest(prints).tolist(), strict=True)
        return [self._recent.get(each, before) for each, before in stored]

    def _refill(self, oldest: int) -> None:
        """Make a new filter, without what is out of reach."""
        bits = min(_BITS * self._most, _MOST_BITS)
        self._filter, self._used = np.zeros(bits // 64, np.uint64), 0
        for seen in chain(self._stored(), self.given):
            live = np.ascontiguousarray(seen["print"][seen["offset"] >= oldest])
            mark(self._filter, live, np.empty(len(live), np.bool_))
            self._used += len(live)


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
def fingerprints(key: Array, ids: Array) -> Words:
    """Return the fingerprints of ids (m, 2)."""
    found = np.empty(len(ids), np.uint64)
    for m in range(len(ids)):
        found[m] = digest(key, ids[m, 0], ids[m, 1])
    return found


@deferred
def mark(words: Array, prints: Array, suspect: Array) -> int:
    """Add fingerprints to a Bloom filter; fill in which ones it had, or seemed to have, before; return their number."""
    bits, found = np.uint64(64 * len(words)), 0
    for m in range(len(prints)):
        # Two halves of a uniform hash give all places (Kirsch and Mitzenmacher, 2006).
        at, step = prints[m] & np.uint64(0xFFFFFFFF), (prints[m] >> np.uint64(32)) | np.uint64(1)
        had = True
        for _ in range(_PROBES):
            place = at % bits
            word, bit = np.int64(place >> np.uint64(6)), np.uint64(1) << (place & np.uint64(63))
            had = had and (words[word] & bit) != 0
            words[word] |= bit
            at += step
        suspect[m] = had
        found += had
    return found
