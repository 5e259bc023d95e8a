"""The people of a file in the order in which they release, each with their rows.

A person's name is hashed to 64 bits under the order's key, and people release in ascending order of these: in a random
order, whatever the file's, and rows of one person are grouped without sorting the file. Two of 10^6 people have the
same bits with probability 3e-8; whoever reads their rows sees two names and must refuse.

An index of at most `INDEX_ROWS` rows is in memory at a time, 32 bytes for each while it is sorted and 8 afterwards. A
longer file is read again for each part of the index. Nothing is written to disk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np

from murk._internal.arrays import Integers
from murk.populations.order import words_of_rows

INDEX_ROWS: Final = 2**22
MOST_ROWS: Final = 1024
"""Largest number of a person's rows that count; of more, these are drawn uniformly."""
_PREFIX_BITS: Final = 12
_PREFIXES: Final = 2**_PREFIX_BITS


class Slice(NamedTuple):
    """Whose consecutive rows are, from the row ``start`` on, and each row's level (an index, -1 for none) if any."""

    start: int
    names: Sequence[str]
    levels: Integers | None = None


@dataclass(frozen=True, eq=False)
class People:
    """Consecutive people of the order, from the position ``first`` on.

    Person i has the rows ``rows[starts[i]:starts[i + 1]]``, ascending, and the level ``levels[i]``.
    """

    first: int
    rows: Integers
    starts: Integers
    levels: Integers | None

    @property
    def stop(self) -> int:
        """Position after the last person."""
        return self.first + len(self.starts) - 1


class Tally(NamedTuple):
    """Numbers of people and rows, and the largest number of rows of one person."""

    people: int
    rows: int
    most: int


class Grouping:
    """Groups the rows of a file by person.

    ``read`` reads the file from its beginning; ``size`` is its number of rows. With ``by_row`` people release in the
    order of their first rows, and the index is always in memory. ``disagree`` is called with two rows of one person
    whose levels differ, and returns the error to raise.
    """

    def __init__(
        self,
        read: Callable[[], Iterator[Slice]],
        size: int,
        key: bytes,
        *,
        by_row: bool = False,
        disagree: Callable[[int, int], Exception],
    ) -> None:
        self._read, self._size, self._key, self._by_row, self._disagree = read, size, key, by_row, disagree
        self._bounds: list[int] | None = None
        self._first = [0]
        # The part in memory: its number, and the largest number of rows of a person.
        self._part: tuple[int, People, int] | None = None

    def tally(self) -> Tally:
        """Count people and rows."""
        people = most = 0
        for number in range(len(self._ranges()) - 1):
            part, largest = self._build(number)
            people, most = part.stop, max(most, largest)
        return Tally(people, self._size, most)

    def part(self, position: int) -> People | None:
        """Return the part of the order with the person at a position; None after the last one."""
        bounds = self._ranges()
        number = bisect_right(self._first, position) - 1
        while number < len(bounds) - 1:
            part, _ = self._build(number)
            if position < part.stop:
                return part
            number += 1
        return None

    def _thinned(self, part: People) -> People:
        """Return a part without the rows of a person beyond `MOST_ROWS`."""
        counts = np.diff(part.starts)
        heavy = np.flatnonzero(counts > MOST_ROWS)
        if not len(heavy):
            return part
        kept = np.ones(len(part.rows), dtype=bool)
        for person in heavy.tolist():
            first, stop = part.starts[person : person + 2].tolist()
            words = words_of_rows(self._key, part.rows[first:stop], self._size)
            kept[first + np.argsort(words, kind="stable")[MOST_ROWS:]] = False
        starts = np.concatenate([[0], np.cumsum(np.minimum(counts, MOST_ROWS))])
        return People(part.first, part.rows[kept], starts, part.levels)

    def _ranges(self) -> list[int]:
        """Return the bounds of the parts, in the leading bits of people's words."""
        if self._bounds is None:
            self._bounds = [0, _PREFIXES]
            if self._size > INDEX_ROWS and not self._by_row:
                counts = np.zeros(_PREFIXES, dtype=np.int64)
                for piece in self._read():
                    counts += np.bincount(_prefixes(self._words(piece.names)), minlength=_PREFIXES)
                self._bounds = _cut(counts)
        return self._bounds

    def _words(self, names: Sequence[str]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        key = self._key
        bits = b"".join(
            [blake2b(each.encode(), key=key, digest_size=8, person=b"murk people").digest() for each in names]
        )
        return np.frombuffer(bits, dtype="<u8")

    def _build(self, number: int) -> tuple[People, int]:
        """Read the file; return a part of the order, and the largest number of rows of a person."""
        if self._part is not None and self._part[0] == number:
            return self._part[1:]
        self._part = None
        low, high = self._ranges()[number : number + 2]
        words, rows, levels = [], [], []
        for piece in self._read():
            each = self._words(piece.names)
            inside = np.flatnonzero((_prefixes(each) >= low) & (_prefixes(each) < high))
            words.append(each[inside])
            rows.append(inside + piece.start)
            if piece.levels is not None:
                levels.append(piece.levels[inside])
        bits = np.concatenate(words)
        by_person = np.argsort(bits, kind="stable")
        bits = bits[by_person]
        starts = np.flatnonzero(np.concatenate([[True], bits[1:] != bits[:-1], [True]]) if len(bits) else [True])
        del bits, words
        ordered = np.concatenate(rows)[by_person]
        chosen = self._levels(np.concatenate(levels)[by_person], ordered, starts) if levels else None
        if self._by_row:
            ordered, starts, chosen = _by_first_row(ordered, starts, chosen)
        part = self._thinned(People(self._first[number], ordered, starts, chosen))
        if len(self._first) == number + 1:
            self._first.append(part.stop)
        self._part = number, part, int(np.diff(starts).max(initial=0))
        return self._part[1:]

    def _levels(self, levels: Integers, rows: Integers, starts: Integers) -> Integers:
        """Return the level of each person, -1 if no row has one; raise an error if two rows have different ones."""
        chosen: Integers = np.maximum.reduceat(levels, starts[:-1]) if len(levels) else levels
        other = np.flatnonzero((levels >= 0) & (levels != np.repeat(chosen, np.diff(starts))))
        if len(other):
            person = int(np.searchsorted(starts, other[0], side="right")) - 1
            own = slice(int(starts[person]), int(starts[person + 1]))
            like = own.start + int(np.flatnonzero(levels[own] == chosen[person])[0])
            raise self._disagree(*sorted((int(rows[other[0]]), int(rows[like]))))
        return chosen


def _prefixes(words: np.ndarray[tuple[int], np.dtype[np.uint64]]) -> Integers:
    return (words >> np.uint64(64 - _PREFIX_BITS)).astype(np.int64)


def _cut(counts: Integers) -> list[int]:
    """Return bounds of ranges of prefixes with at most `INDEX_ROWS` rows each, or with a single prefix."""
    bounds, rows = [0], 0
    for prefix, count in enumerate(counts.tolist()):
        if rows and rows + count > INDEX_ROWS:
            bounds.append(prefix)
            rows = 0
        rows += count
    return [*bounds, len(counts)]


def _by_first_row(
    rows: Integers, starts: Integers, levels: Integers | None
) -> tuple[Integers, Integers, Integers | None]:
    """Return people in the order of their first rows."""
    order, counts = np.argsort(rows[starts[:-1]]), np.diff(starts)
    sizes = counts[order]
    ends = np.cumsum(sizes)
    # The index of each row: its person's start, and its number among theirs.
    places = np.arange(len(rows)) + np.repeat(starts[:-1][order] - (ends - sizes), sizes)
    return rows[places], np.concatenate([[0], ends]), None if levels is None else levels[order]
