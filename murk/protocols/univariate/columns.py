"""Known columns, which devices send without noise: their combinations of values are numbered cells."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Floats, Integers
from murk._internal.numbers import listed
from murk._internal.wiping import track
from murk.task.features import INDICATOR, CategoryFeature

if TYPE_CHECKING:
    from murk.task.task import Task

MISSING: Final = "missing"  # label of a missing or undeclared value
SMALLEST: Final = 20  # number of people below which a cell points at people
MOST_SMALL: Final = 0.05  # largest share of people in cells of fewer than `SMALLEST`
ENOUGH: Final = 1_000  # releases from which on a stream's cells can be judged


def identifying_words(counts: Sequence[int], columns: Sequence[str]) -> str:
    """Return in words that known columns nearly identify people, by the ``counts`` of cells' people; or empty.

    >>> identifying_words([1] * 40 + [200], ["zip"])[:61], identifying_words([1, 200], ["zip"])
    ('known columns nearly identify people: 40 of 240 people are in', '')
    """
    people, small = sum(counts), [count for count in counts if 0 < count < SMALLEST]
    if sum(small) <= MOST_SMALL * people:
        return ""
    return (
        f"known columns nearly identify people: {sum(small):,} of {people:,} people are in {len(small):,} combinations "
        f"of {listed(columns)} with fewer than {SMALLEST} each, {small.count(1):,} of them alone; at most "
        f"{MOST_SMALL:.0%} of them may be"
    )


@dataclass(frozen=True)
class KnownColumn:
    """A column of declared categories, with a last value for missing or undeclared ones unless these are ``coded``."""

    categories: int
    coded: bool = False  # whether a missing value counts as one of the categories
    indicated: bool = False  # whether a coded feature indicates a missing value

    @property
    def values(self) -> int:
        """Number of values."""
        return self.categories + (not self.coded)

    @property
    def width(self) -> int:
        """Number of coded features."""
        return self.categories - 1 + self.indicated

    def numbers(self, codes: Floats) -> Integers:
        """Return the numbers (m,) of the values that have these codes (m, width)."""
        own = codes[:, : self.categories - 1]
        above, below = track(own > 0.0), track(own < 0.0)
        first = track(np.where(track(np.all(below, axis=1)), 0, self.values - 1))
        return np.where(track(np.any(above, axis=1)), track(above.argmax(axis=1)) + 1, first).astype(np.int64)

    @property
    def codes(self) -> Floats:
        """The codes of each value, (values, width): zeros for a missing value."""
        rows = np.zeros((self.values, self.width))
        own = rows[: self.categories]
        own[:] = -1.0
        np.fill_diagonal(own[1:, : self.categories - 1], 1.0)
        if self.indicated:
            rows[-1, -1] = 1.0
        return rows


@dataclass(frozen=True)
class KnownColumns:
    """All known columns of a task; a cell is a value of each, the last column's changing fastest.

    >>> known = KnownColumns((KnownColumn(2), KnownColumn(3, coded=True)))
    >>> known.cells, known.numbers(known.codes(np.arange(9))).tolist(), known.values(np.array([5])).tolist()
    (9, [0, 1, 2, 3, 4, 5, 6, 7, 8], [[1, 2]])
    """

    columns: tuple[KnownColumn, ...] = ()
    starts: tuple[int, ...] = ()  # position of each column's first coded feature; empty: one after the other

    @classmethod
    def of(cls, task: Task) -> KnownColumns:
        """Return a task's known columns."""
        columns, starts, start = [], [], 0
        for index, feature in enumerate(task.features):
            if isinstance(feature, CategoryFeature) and feature.known:
                missing = feature.missing
                coded = missing not in (None, INDICATOR)
                columns.append(KnownColumn(len(feature.categories), coded, missing == INDICATOR))
                starts.append(start)
            start += len(task.coding.names_of(index))
        return cls(tuple(columns), tuple(starts) if len(columns) < len(task.features) else ())

    @property
    def cells(self) -> int:
        """Number of cells."""
        return math.prod(column.values for column in self.columns)

    @property
    def places(self) -> tuple[int, ...]:
        """Positions of the known coded features among all."""
        return tuple(index for _, place in self._places() for index in range(place.start, place.stop))

    def _places(self) -> Iterator[tuple[KnownColumn, slice]]:
        start = 0
        for index, column in enumerate(self.columns):
            start = self.starts[index] if self.starts else start
            yield column, slice(start, start + column.width)
            start += column.width

    def numbers(self, X: Floats) -> Integers:
        """Return the cells (m,) of coded records (m, p), the constant last."""
        cells = np.zeros(len(X), dtype=np.int64)
        for column, place in self._places():
            cells *= column.values
            cells += track(column.numbers(X[:, place]))
        return cells

    def values(self, cells: Integers) -> Integers:
        """Return the number of each column's value, (m, columns)."""
        sizes = [column.values for column in self.columns]
        return np.column_stack(np.unravel_index(cells, sizes)).astype(np.int64)

    def declared(self, cells: Integers) -> NDArray[np.bool_]:
        """Return whether all values of each cell are declared, or missing ones have an indicator, (m,)."""
        values = self.values(cells)
        fine = [(values[:, place] < each.categories) | each.indicated for place, each in enumerate(self.columns)]
        return np.asarray(np.all(fine, axis=0))

    def codes(self, cells: Integers) -> Floats:
        """Return the known coded features of cells, (m, p), the constant last."""
        values = self.values(cells)
        parts = [column.codes[values[:, place]] for place, column in enumerate(self.columns)]
        return np.column_stack([*parts, np.ones(len(cells))])


NONE_KNOWN: Final = KnownColumns()
