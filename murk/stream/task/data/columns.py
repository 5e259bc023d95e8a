"""Codes one raw column: numbers by their bounds, categories by their place in the list."""

import math
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from murk._scratch import keep, wiping

_TRUE: Final = frozenset({"true", "yes", "on"})
_FALSE: Final = frozenset({"false", "no", "off"})


class Cell(IntEnum):
    """What became of one raw value."""

    FINE = 0
    CLAMPED = 1
    MISSING = 2
    UNDECLARED = 3
    NOT_A_NUMBER = 4
    NOT_A_DATE = 5

    def describe(self) -> str:
        """Say it in words that end a sentence about a row and a column."""
        return _WORDS[self]


_WORDS: Final = {
    Cell.FINE: "is fine",
    Cell.CLAMPED: "is outside its bounds",
    Cell.MISSING: "is missing",
    Cell.UNDECLARED: "is none of the declared categories",
    Cell.NOT_A_NUMBER: "is not a finite number",
    Cell.NOT_A_DATE: "is not a date as in 2024-05-31",
}

_FINE, _CLAMPED, _MISSING, _UNDECLARED, _NOT_A_NUMBER, _ = map(int, Cell)


def raw_values(column: Sequence[Any]) -> Any:
    """Return a column of raw values as what can be iterated over."""
    return column.to_numpy() if hasattr(column, "to_numpy") else column


def _number(value: Any) -> tuple[float, int]:
    """Return a raw value as a finite number, or what is wrong with it."""
    if value is None:
        return math.nan, _MISSING
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        blank = not value.strip() if isinstance(value, str) else is_absent(value)
        return math.nan, _MISSING if blank else _NOT_A_NUMBER
    if number != number:
        return number, _MISSING
    return (number, _FINE) if math.isfinite(number) else (math.nan, _NOT_A_NUMBER)


def is_absent(value: Any) -> bool:
    """Whether a raw value is one of those that stand where nothing is."""
    # What data frames put where nothing is; named, so that a device need not import pandas to know them.
    return value is None or type(value).__name__ in ("NAType", "NaTType")


class NumberColumn:
    """Maps [low, high] to [-1, 1]; values outside are clamped.

    Parameters
    ----------
    low, high
        Public bounds, low < high.
    start
        The coded feature's place.
    """

    def __init__(self, low: float, high: float, start: int) -> None:
        self.low, self.high, self.start = low, high, start
        self.range = high - low
        self.half_range = self.range / 2

    def encode(self, column: Sequence[Any], x: NDArray[np.float64], cells: NDArray[np.uint8]) -> None:
        """Write the coded values into their column of x and what became of them into cells."""
        with wiping():
            coded = keep(self._coded(column, cells))
            coded[cells >= _MISSING] = 0.0
            x[:, self.start] = coded

    def targets(self, column: Sequence[Any], cells: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return coded targets, NaN where there is none."""
        return self._coded(column, cells)

    def _coded(self, column: Sequence[Any], cells: NDArray[np.uint8]) -> NDArray[np.float64]:
        values = keep(self._numbers(raw_values(column), cells))
        cells[(values < self.low) | (values > self.high)] = _CLAMPED
        np.clip(values, self.low, self.high, out=values)
        # The order of the operations is that of `_one`: one by one or in blocks, the same bits.
        coded: NDArray[np.float64] = values - self.low
        coded /= self.range
        coded *= 2.0
        coded -= 1.0
        return coded

    @staticmethod
    def _numbers(column: Any, cells: NDArray[np.uint8]) -> NDArray[np.float64]:
        values: NDArray[np.float64]
        if isinstance(column, np.ndarray) and column.dtype.kind in "fiub":
            values = column.astype(np.float64)
        else:
            try:
                values = np.fromiter(map(float, column), np.float64, len(column))
            except (TypeError, ValueError, OverflowError):
                pairs = [_number(value) for value in column]
                values = np.array([number for number, _ in pairs])
                cells[:] = [cell for _, cell in pairs]
                return values
        odd = ~np.isfinite(values)
        if odd.any():
            cells[odd] = np.where(np.isnan(values[odd]), _MISSING, _NOT_A_NUMBER)
            values[odd] = np.nan
        return values

    def encode_one(self, value: Any, x: list[float]) -> int:
        """Write one coded value into its place in x and give what became of it."""
        coded, cell = self.target(value)
        if cell < _MISSING:
            x[self.start] = coded
        return cell

    def target(self, value: Any) -> tuple[float, int]:
        """Return one coded value, NaN where there is none, and what became of it."""
        number, cell = _number(value)
        if cell:
            return number, cell
        if number < self.low:
            return -1.0, _CLAMPED
        if number > self.high:
            return 1.0, _CLAMPED
        return (number - self.low) / self.range * 2.0 - 1.0, _FINE


class CategoryColumn:
    """Finds a raw value among declared categories.

    A value matches a category that is written the same, or that is the same number (``1``, ``1.0``,
    ``"1"``); a boolean also matches true or false however it is written, and yes or no, on or off.

    Parameters
    ----------
    categories
        The declared categories; None for one that is not declared.
    start
        The place of the first coded feature.
    other
        The index that undeclared values count as; None where they count as undeclared.
    """

    half_range = 1.0

    def __init__(self, categories: Sequence[str | None], start: int, other: int | None = None) -> None:
        self.start, self.other = start, other
        self.size = len(categories)
        self._lookup: dict[Any, int] = {}
        self._booleans: dict[bool, int] = {}
        declared = [(category, index) for index, category in enumerate(categories) if category is not None]
        for category, index in declared:
            self._lookup[category] = index
        for category, index in declared:
            # After all categories as written, since "1" must not shadow a declared "1.0".
            number, cell = _number(category)
            if cell == _FINE:
                self._lookup.setdefault(number, index)
            word = category.lower()
            if word in _TRUE or word in _FALSE:
                self._booleans.setdefault(word in _TRUE, index)
        self._find: Callable[..., int] = self._lookup.get

    def _index(self, value: Any) -> tuple[int, int]:
        """Return the index of a value that is not found as it is, and what became of it."""
        if is_absent(value) or (isinstance(value, float | np.floating) and value != value):
            return -1, _MISSING
        if isinstance(value, bool | np.bool_):
            found = self._booleans.get(bool(value))
        elif isinstance(value, str):
            text = value.strip()
            if not text:
                return -1, _MISSING
            found = self._lookup.get(text)
            if found is None:
                number, cell = _number(text)
                found = self._lookup.get(number) if cell == _FINE else None
            if found is None and text.lower() in ("true", "false"):
                found = self._booleans.get(text.lower() == "true")
        else:
            found = None
        if found is None:
            found = self.other
        return (-1, _UNDECLARED) if found is None else (found, _FINE)

    def _indices(self, column: Sequence[Any], cells: NDArray[np.uint8]) -> NDArray[np.intp]:
        values = raw_values(column)
        raw = values.tolist() if isinstance(values, np.ndarray) else values
        find = self._find
        try:
            indices = np.fromiter((find(value, -1) for value in raw), np.intp, len(raw))
        except (TypeError, ValueError):  # a value that cannot be hashed, hence is no category
            indices = np.array([self._lookup.get(value, -1) if _hashable(value) else -1 for value in raw], np.intp)
        for row in np.flatnonzero(indices < 0).tolist():
            indices[row], cells[row] = self._index(raw[row])
        return indices

    def encode(self, column: Sequence[Any], x: NDArray[np.float64], cells: NDArray[np.uint8]) -> None:
        """Write the coded values into their columns of x and what became of them into cells."""
        indices = self._indices(column, cells)
        missing = cells >= _MISSING
        if self.size == 2:
            x[:, self.start] = np.where(missing, 0.0, 2.0 * indices - 1.0)
            return
        x[:, self.start : self.start + self.size - 1] = np.where(missing, 0.0, -1.0)[:, None]
        rows = np.flatnonzero(indices > 0)
        x[rows, self.start + indices[rows] - 1] = 1.0

    def targets(self, column: Sequence[Any], cells: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return the indices as coded targets, NaN where there is none."""
        indices = self._indices(column, cells)
        return np.where(indices < 0, np.nan, indices.astype(np.float64))

    def encode_one(self, value: Any, x: list[float]) -> int:
        """Write one coded value into its places in x and give what became of it."""
        index, cell = self._one(value)
        if index < 0:
            return cell
        if self.size == 2:
            x[self.start] = 2.0 * index - 1.0
        else:
            x[self.start : self.start + self.size - 1] = [-1.0] * (self.size - 1)
            if index:
                x[self.start + index - 1] = 1.0
        return cell

    def target(self, value: Any) -> tuple[float, int]:
        """Return one index as a coded target, NaN where there is none, and what became of it."""
        index, cell = self._one(value)
        return (math.nan if index < 0 else float(index)), cell

    def _one(self, value: Any) -> tuple[int, int]:
        try:
            index = self._find(value, -1)
        except (TypeError, ValueError):  # a value that cannot be hashed, hence is no category
            index = -1
        return (index, _FINE) if index >= 0 else self._index(value)


def _hashable(value: Any) -> bool:
    try:
        hash(value)
    except (TypeError, ValueError):  # numpy's timedelta64 without a unit raises the latter
        return False
    return True
