"""Recognise repeated releases until they expire, by fingerprints.

A fingerprint is the SipHash of an id and a time of expiry, the same for every copy of a release: two of n random ids
share one with a probability of n^2 / 2^65, 3e-6 for ten million. The key is a hash of the log's identity, which is
random but not secret: a sender who can read it can choose ids that share a fingerprint.
Fingerprints that expire in the same *period* are kept in runs, each of which is sorted, so that a whole period is
forgotten at once. A Bloom filter recognises nearly every new id without a look at the runs.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Self

import numpy as np

from murk._internal.arrays import Integers, Words
from murk._internal.jit import deferred, jit_helper
from murk.task.learning import SLACK

AHEAD = 86_400
"""Seconds by which a log's clock may have been ahead when it is set back: no copy of a release is then new."""
_PERIODS = 16  # largest number of periods until a release expires
_SPARE = 2**17  # number of ids for which an empty filter has room
_BITS = 12  # bits of a filter for each id: fewer than 1 of 150 new ids are false positives
_MOST_BITS = 2**32
_PROBES = 4
Array = Any


def lifetime_of(expiry: int) -> int:
    """Return the longest time, in seconds, from the arrival of a release to its expiry, for a task's ``expiry``."""
    return expiry + SLACK


def key_of(identity: str) -> Words:
    """Return the key of fingerprints, a function of a log's random identity, so that a replay decides the same."""
    return np.frombuffer(blake2b(identity.encode(), digest_size=16, person=b"murk duplicates").digest(), "<u8").astype(
        np.uint64
    )


def period_of(expiry: int, granularity: int) -> int:
    """Return the length, in seconds, of the periods at whose ends the ids of a task's releases are forgotten."""
    return max(granularity, -(-lifetime_of(expiry) // _PERIODS))


def ends_of(expires: Integers, period: int) -> Integers:
    """Return the ends of the periods in which releases expire.

    >>> ends_of(np.array([0, 1, 60, 61]), 60).tolist()
    [0, 60, 60, 120]
    """
    ends: Integers = -(-expires // period) * period
    return ends


class Filter:
    """A Bloom filter of fingerprints, of which ``room`` fit before it must be made anew."""

    def __init__(self, stored: Iterable[Words], count: int) -> None:
        self.room = 2 * count + _SPARE
        self._words = np.zeros(min(_BITS * self.room, _MOST_BITS) // 64, np.uint64)
        for prints in stored:
            self.add(prints)

    def add(self, prints: Words) -> Array:
        """Add fingerprints; return which ones the filter had, or seemed to have, before."""
        self.room -= len(prints)
        suspect = np.empty(len(prints), np.bool_)
        mark(self._words, prints, suspect)
        return suspect

    def probe(self, prints: Words) -> Array:
        """Return which fingerprints the filter has, or seems to have."""
        suspect = np.empty(len(prints), np.bool_)
        probe(self._words, prints, suspect)
        return suspect


class Unexpired:
    """Releases that have not expired, by id and time of expiry, in about 11 bytes of memory for each.

    ``key`` is the key of fingerprints. Releases that expire ``lifetime`` seconds or more before the newest one are
    forgotten, whole periods of ``period`` seconds at once.

    >>> known = Unexpired(np.array([1, 2], np.uint64), 60, 600)
    >>> ids = np.array([[1, 1], [2, 2], [1, 1]], np.uint64)
    >>> known.add(ids[:1], np.array([90]))
    >>> known.has(ids, np.array([90, 90, 91])).tolist()
    [True, False, False]
    >>> known.add(ids[1:2], np.array([721]))
    >>> known.has(ids[:2], np.array([90, 721])).tolist()
    [False, True]
    """

    def __init__(self, key: Words, period: int, lifetime: int) -> None:
        self._key, self._period, self._lifetime = key, period, lifetime
        self._runs: dict[int, list[Words]] = {}  # by the end of their period, the longest first
        self._filter = Filter((), 0)
        self._newest = 0

    @classmethod
    def of(cls, identity: str, expiry: int, granularity: int) -> Self:
        """Return an empty set for the log with this identity, and a task with this ``expiry`` and ``granularity``."""
        # The newest one may have come while the log's clock was ahead.
        return cls(key_of(identity), period_of(expiry, granularity), lifetime_of(expiry) + AHEAD)

    def add(self, ids: Words, expires: Integers) -> None:
        """Add ids (m, 2), with the times of their expiry in seconds since 1970."""
        self._newest = max(self._newest, int(expires.max()))
        for end in [end for end in self._runs if end < self._newest - self._lifetime]:
            del self._runs[end]
        prints, ends = fingerprints(self._key, ids, expires), ends_of(expires, self._period)
        for end in np.unique(ends).tolist():
            # Merged with runs that are not twice as long: so there are few, and each id is rarely moved.
            runs, new = self._runs.setdefault(end, []), np.sort(prints[ends == end])
            while runs and len(runs[-1]) < 2 * len(new):
                # A stable sort merges sorted runs.
                new = np.sort(np.concatenate([runs.pop(), new]), kind="stable")
            runs.append(new)
        if self._filter.room < len(prints):
            stored = [run for runs in self._runs.values() for run in runs]
            self._filter = Filter(stored, sum(map(len, stored)))
        else:
            self._filter.add(prints)

    def has(self, ids: Words, expires: Integers) -> Array:
        """Return which releases are known and not forgotten."""
        repeated = np.zeros(len(ids), np.bool_)
        if self._runs:
            prints = fingerprints(self._key, ids, expires)
            suspects = np.flatnonzero(self._filter.probe(prints))
            for run in [run for runs in self._runs.values() for run in runs] if len(suspects) else ():
                repeated[suspects] |= contained(prints[suspects], run)
        return repeated

    def __len__(self) -> int:
        return sum(len(run) for runs in self._runs.values() for run in runs)


def contained(prints: Words, known: Words) -> Any:
    """Return which fingerprints are among ``known``, which are sorted.

    >>> contained(np.array([1, 3], np.uint64), np.array([2, 3], np.uint64)).tolist()
    [False, True]
    """
    if not len(known):
        return np.zeros(len(prints), np.bool_)
    indices = np.searchsorted(known, prints)
    indices[indices == len(known)] = 0
    return known[indices] == prints


@jit_helper
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


@jit_helper
def digest(key: Array, high: Array, low: Array, last: Array) -> Any:
    """Return the SipHash-1-3 of three words."""
    a, b = key[0] ^ np.uint64(0x736F6D6570736575), key[1] ^ np.uint64(0x646F72616E646F6D)
    c, d = key[0] ^ np.uint64(0x6C7967656E657261), key[1] ^ np.uint64(0x7465646279746573)
    for word in (high, low, last, np.uint64(24 << 56)):
        d ^= word
        a, b, c, d = _round(a, b, c, d)
        a ^= word
    c ^= np.uint64(255)
    for _ in range(3):
        a, b, c, d = _round(a, b, c, d)
    return a ^ b ^ c ^ d


@deferred
def fingerprints(key: Array, ids: Array, expires: Array) -> Words:
    """Return the fingerprints of releases from their ids (m, 2) and times of expiry (m,)."""
    prints = np.empty(len(ids), np.uint64)
    for m in range(len(ids)):
        prints[m] = digest(key, ids[m, 0], ids[m, 1], np.uint64(expires[m]))
    return prints


@deferred
def mark(words: Array, prints: Array, suspect: Array) -> int:
    """Add fingerprints to a Bloom filter; fill in which ones it had, or seemed to have, before; return their number."""
    bits, repeated = np.uint64(64 * len(words)), 0
    for m in range(len(prints)):
        # Two halves of a uniform hash give all places (Kirsch and Mitzenmacher, 2006).
        at, step = prints[m] & np.uint64(0xFFFFFFFF), (prints[m] >> np.uint64(32)) | np.uint64(1)
        had = True
        for _ in range(_PROBES):
            index = at % bits
            word, bit = np.int64(index >> np.uint64(6)), np.uint64(1) << (index & np.uint64(63))
            had = had and (words[word] & bit) != 0
            words[word] |= bit
            at += step
        suspect[m] = had
        repeated += had
    return repeated


@deferred
def probe(words: Array, prints: Array, suspect: Array) -> None:
    """Fill in which fingerprints a Bloom filter has, or seems to have."""
    bits = np.uint64(64 * len(words))
    for m in range(len(prints)):
        at, step = prints[m] & np.uint64(0xFFFFFFFF), (prints[m] >> np.uint64(32)) | np.uint64(1)
        had = True
        for _ in range(_PROBES):
            index = at % bits
            had = had and (words[np.int64(index >> np.uint64(6))] & (np.uint64(1) << (index & np.uint64(63)))) != 0
            at += step
        suspect[m] = had


class DuplicateWindow:
    """Ids at the previous ``size`` offsets of a partition, and ids of ``unexpired`` releases before these offsets.

    A release at offset ``o`` is a duplicate if a valid message with the same id is at an offset ``o' < o``, whether or
    not that message was learned, and ``o' >= o - size`` or that release has not expired. A window rebuilt from all such
    offsets gives the same answers. Memory is at most ``2 * size`` ids, and what `Unexpired` needs for the others.

    >>> window = DuplicateWindow(2)
    >>> [window.seen(offset, id) for offset, id in [(0, "0a"), (1, "0b"), (2, "0a"), (5, "0a")]]
    [False, False, True, False]
    """

    __slots__ = ("_block", "_expires", "_last", "_newer", "_older", "_unexpired", "size")

    def __init__(self, size: int, unexpired: Unexpired | None = None) -> None:
        if size < 1:
            raise ValueError(f"the window for duplicates must have at least 1 offset, not {size}")
        self.size, self._unexpired = size, unexpired
        self._last: tuple[int, str] | None = None
        self._block = 0
        # Two dictionaries take turns for ``size`` offsets each. Keyed by bytes, not by int: the hash of an int is
        # predictable, and senders could choose ids that collide.
        self._newer: dict[bytes, int] = {}
        self._older: dict[bytes, int] = {}
        # Times of expiry, in the order of the newer ids.
        self._expires: list[int] = []

    def seen(self, offset: int, identifier: str, expires: int = 0) -> bool:
        """Add a hexadecimal id at an offset, with the time of its expiry; return whether it is a duplicate.

        Offsets must grow from call to call. With the expiry 0 an id is remembered within the window alone.
        """
        self._turn_to(offset)
        key = bytes.fromhex(identifier)
        before = self._newer.get(key, self._older.get(key))
        if key not in self._newer:
            self._expires.append(expires)
        self._newer[key] = offset
        self._last = (offset, identifier)
        if before is not None and offset - before <= self.size:
            return True
        if self._unexpired is None or not len(self._unexpired):
            return False
        return bool(self._unexpired.has(_words(key), np.array([expires]))[0])

    def add_new(self, offsets: Integers, ids: Words, expires: Integers) -> bool:
        """Add ids (m, 2) at offsets and return True if all are new and distinct; otherwise add none, return False."""
        first, last = int(offsets[0]), int(offsets[-1])
        if first // self.size != last // self.size:
            return False
        self._turn_to(first)
        keys: list[bytes] = ids.astype(">u8").view("V16").ravel().tolist()
        newer = self._newer
        if len(set(keys)) < len(keys) or not (newer.keys().isdisjoint(keys) and self._older.keys().isdisjoint(keys)):
            return False
        if self._unexpired and self._unexpired.has(ids, expires).any():
            return False
        newer.update(zip(keys, offsets.tolist(), strict=True))
        self._expires += expires.tolist()
        self._last = (last, keys[-1].hex())
        return True

    def _turn_to(self, offset: int) -> None:
        block = offset // self.size
        if block == self._block:
            return
        expires = np.array(self._expires, np.int64)
        if self._unexpired is not None and expires.any():
            self._unexpired.add(_words(b"".join(self._newer))[expires > 0], expires[expires > 0])
        self._older = self._newer if block == self._block + 1 else {}
        self._newer, self._expires = {}, []
        self._block = block

    def newest(self, offset: int) -> str | None:
        """Return the id of the newest message within reach of an offset, or None."""
        if self._last is None or offset - self._last[0] > self.size:
            return None
        return self._last[1]

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)


def _words(ids: bytes) -> Words:
    """Return ids of 16 bytes as their halves (m, 2)."""
    return np.frombuffer(ids, ">u8").astype(np.uint64).reshape(-1, 2)
