"""The people of a file in the order in which they release, each with their rows.

A person's name is hashed to 64 bits under the order's key, and people release in ascending order of the hashes. That
order is random, whatever the file's order, and rows of one person are grouped without sorting the file. Two of 10^6
people have the same hash with probability 3e-8; code that reads their rows sees two names and must refuse the file.

An index of at most `INDEX_ROWS` rows is in memory at a time, 40 bytes for each while it is sorted and 8 afterwards. A
longer file is read again for each part of the index. Nothing is written to disk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from murk._internal.arrays import Integers
from murk.populations.order import words_of_rows

INDEX_ROWS: Final = 2**22
MOST_ROWS: Final = 1024
"""Largest number of a person's rows that count; if there are more, this many are drawn uniformly."""
_PREFIX_BITS: Final = 12
_PREFIXES: Final = 2**_PREFIX_BITS


class Slice(NamedTuple):
    """The person of each of consecutive rows, from row ``start`` on, and the row's level (an index; -1: none), if any.

    ``windows`` are the numbers of the rows' windows, if there are any.
    """

    start: int
    names: Sequence[str]
    levels: Integers | None = None
    windows: Integers | None = None


@dataclass(frozen=True, eq=False)
class People:
    """Consecutive people of the order, from the position ``first`` on.

    Person i has the rows ``rows[starts[i]:starts[i + 1]]``, ascending, the level ``levels[i]`` and the window
    ``windows[i]``. A person with rows in several windows occurs once for each window; earlier windows come first.
    """

    first: int
    rows: Integers
    starts: Integers
    levels: Integers | None
    windows: Integers | None = None

    @property
    def stop(self) -> int:
        """Position after the last person."""
        return self.first + len(self.starts) - 1


class Tally(NamedTuple):
    """Numbers of people and rows, and the largest number of rows of one answer.

    ``windows`` are the first and the last window, and how many there are; ``answers`` is the number of people by the
    number of windows in which they have rows.
    """

    people: int
    rows: int
    most: int
    windows: tuple[int, int, int] | None = None
    answers: Mapping[int, int] = {}

    @property
    def size(self) -> int:
        """Number of answers: of people, each once in each of their windows."""
        return sum(number * people for number, people in self.answers.items()) or self.people


class Grouping:
    """Groups the rows of a file by person.

    ``read`` reads the file from its beginning; ``size`` is its number of rows. With ``by_row`` people release in the
    order of their first rows, and the whole index is in memory. ``disagree`` is called with two rows of one person
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
        self._known: Integers = np.zeros(1, dtype=np.int64)  # windows, ascending
        self._first = [0]
        # The part in memory: its number, and the largest number of rows of a person.
        self._part: tuple[int, People, int] | None = None

    def tally(self) -> Tally:
        """Count people and rows."""
        people = most = 0
        for number in range(len(self._ranges()) - 1):
            part, largest = self._build(number)
            people, most = part.stop, max(most, largest)
        if self._part is None or self._part[1].windows is None:
            return Tally(people, self._size, most)
        answers = self._answers()
        windows = int(self._known[0]), int(self._known[-1]), len(self._known)
        return Tally(sum(answers.values()), self._size, most, windows, answers)

    def _answers(self) -> dict[int, int]:
        """Return the number of people by the number of windows in which they have rows; reads the file again."""
        rows = np.zeros(_PREFIXES, dtype=np.int64)
        if self._size > INDEX_ROWS:
            for piece in self._read():
                rows += np.bincount(_prefixes(self._words(piece.names)), minlength=_PREFIXES)
        bounds, counts = _cut(rows), np.zeros(len(self._known) + 1, dtype=np.int64)
        for low, high in pairwise(bounds):
            pairs = [np.empty((0, 2), dtype=np.uint64)]
            for piece in self._read():
                words, index = self._words(piece.names), np.searchsorted(self._known, _windows_of(piece))
                prefixes = _prefixes(words)
                inside = (prefixes >= low) & (prefixes < high)
                pairs.append(np.unique(np.column_stack([words[inside], index[inside].astype(np.uint64)]), axis=0))
            words = np.unique(np.concatenate(pairs), axis=0)[:, 0]
            counts += np.bincount(np.unique(words, return_counts=True)[1], minlength=len(counts))
        return {number: int(counts[number]) for number in np.flatnonzero(counts).tolist()}

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
        return replace(part, rows=part.rows[kept], starts=starts)

    def _ranges(self) -> list[int]:
        """Return the bounds of the parts: each is a window's place followed by the leading bits of a name's hash."""
        if self._bounds is None:
            counts: dict[int, Integers] = {}
            whole = self._size <= INDEX_ROWS or self._by_row
            for piece in self._read():
                if whole and piece.windows is None:
                    break
                windows = _windows_of(piece)
                prefixes = np.zeros(len(windows), dtype=np.int64) if whole else _prefixes(self._words(piece.names))
                for window in np.unique(windows).tolist():
                    count = np.bincount(prefixes[windows == window], minlength=_PREFIXES)
                    counts[window] = counts.get(window, 0) + count
            if counts:
                self._known = np.array(sorted(counts), dtype=np.int64)
            last = len(self._known) * _PREFIXES
            whole |= not counts
            self._bounds = [0, last] if whole else _cut(np.concatenate([counts[each] for each in self._known.tolist()]))
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
        words, rows, indices, levels, has_windows = [], [], [], [], False
        for piece in self._read():
            each, index = self._words(piece.names), np.searchsorted(self._known, _windows_of(piece))
            at = index * _PREFIXES + _prefixes(each)
            inside = np.flatnonzero((at >= low) & (at < high))
            words.append(each[inside])
            rows.append(inside + piece.start)
            indices.append(index[inside].astype(np.int32))
            has_windows |= piece.windows is not None
            if piece.levels is not None:
                levels.append(piece.levels[inside])
        bits, index = np.concatenate(words), np.concatenate(indices)
        del words, indices
        by_person = np.lexsort((bits, index)) if has_windows else np.argsort(bits, kind="stable")
        bits, index = bits[by_person], index[by_person]
        new = (bits[1:] != bits[:-1]) | (index[1:] != index[:-1])
        starts = np.flatnonzero(np.concatenate([[True], new, [True]]) if len(bits) else [True])
        windows = self._known[index[starts[:-1]]] if has_windows else None
        del bits, index, new
        ordered = np.concatenate(rows)[by_person]
        chosen = self._levels(np.concatenate(levels)[by_person], ordered, starts) if levels else None
        part = People(self._first[number], ordered, starts, chosen, windows)
        part = self._thinned(_by_first_row(part) if self._by_row else part)
        if len(self._first) == number + 1:
            self._first.append(part.stop)
        self._part = number, part, int(np.diff(starts).max(initial=0))
        return self._part[1:]

    def _levels(self, levels: Integers, rows: Integers, starts: Integers) -> Integers:
        """Return the level of each person, -1 if no row has a level; raise an error if levels of two rows differ."""
        chosen: Integers = np.maximum.reduceat(levels, starts[:-1]) if len(levels) else levels
        other = np.flatnonzero((levels >= 0) & (levels != np.repeat(chosen, np.diff(starts))))
        if len(other):
            person = int(np.searchsorted(starts, other[0], side="right")) - 1
            span = slice(int(starts[person]), int(starts[person + 1]))
            like = span.start + int(np.flatnonzero(levels[span] == chosen[person])[0])
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


def _by_first_row(part: People) -> People:
    """Return people in the order of their windows, and then of their first rows."""
    first, counts = part.rows[part.starts[:-1]], np.diff(part.starts)
    order = np.argsort(first) if part.windows is None else np.lexsort((first, part.windows))
    sizes = counts[order]
    ends = np.cumsum(sizes)
    # A row's index: its person's start plus its number among the person's rows.
    indices = np.arange(len(part.rows)) + np.repeat(part.starts[:-1][order] - (ends - sizes), sizes)
    levels, windows = (None if each is None else each[order] for each in (part.levels, part.windows))
    return People(part.first, part.rows[indices], np.concatenate([[0], ends]), levels, windows)


def _windows_of(piece: Slice) -> Integers:
    return np.zeros(len(piece.names), dtype=np.int64) if piece.windows is None else piece.windows
