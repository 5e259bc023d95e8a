"""Read and code the values of a raw column: numbers by their bounds, categories by their position in the list.

A value is read the same from any container. White space around text is ignored.
"""

import datetime
import math
import re
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from murk._scratch import keep, wiping
from murk.stream.task.data.containers import column_array

MISSING_VALUE: Final = math.nan
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,4000}(\.0*)?", re.ASCII)
_BOOLEANS: Final = {"true": True, "false": False}
_EXACT: Final = 2.0**53  # below it, floats represent every integer


def is_absent(value: Any) -> bool:
    """Return whether a raw value is None, or pandas' NA or NaT."""
    # Compared by name, so that devices need not import pandas.
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def is_nan(value: Any) -> bool:
    """Return whether a raw value is a float NaN."""
    return isinstance(value, float | np.floating) and bool(value != value)


def as_boolean(value: Any) -> bool | None:
    """Return a boolean, or a text that spells true or false in any case, as a bool; otherwise None.

    >>> as_boolean(True), as_boolean("FALSE"), as_boolean(1), as_boolean("yes")
    (True, False, None, None)
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    return _BOOLEANS.get(value.strip().lower()) if isinstance(value, str) else None


def are_plain_numbers(joined: str) -> bool:
    """Return whether ``float`` reads the numbers in these joined texts as `read_number` does.

    False means uncertain (non-ASCII digits, underscores, or letters of infinity and NaN): then read them one by one.
    """
    return joined.isascii() and "_" not in joined and "n" not in joined and "N" not in joined


def read_number(value: Any) -> float | None:
    r"""Return a raw value as a float, perhaps infinite; NaN if it is missing, None if it is not a number.

    Numbers in text are decimal, like 12, -1.5 or 1e3. Booleans are 0 or 1, also as text. Times, durations, bytes and
    containers are not numbers.

    >>> [read_number(value) for value in (24, " 24.5", "1e3", True, "2_4", "\uff12\uff14", "inf", b"24", [24])]
    [24.0, 24.5, 1000.0, 1.0, None, None, None, None, None]
    >>> [read_number(value) for value in (None, "", "nan")]
    [nan, nan, nan]
    """
    kind = type(value)
    if kind is float:
        number: float = value
        return number
    if kind is str or isinstance(value, str):
        return _read_text(value)
    if is_absent(value):
        return MISSING_VALUE
    if isinstance(value, np.timedelta64 | np.datetime64 | datetime.date | datetime.timedelta):
        return None
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item") and not isinstance(value, np.generic):
        return read_number(value.item())
    # `float` would also read bytes, and some containers of one number.
    if hasattr(value, "__len__") or not (hasattr(value, "__float__") or hasattr(value, "__index__")):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, ArithmeticError):
        return None


def _read_text(text: str) -> float | None:
    text = text.strip()
    if _NUMBER.fullmatch(text):
        return float(text)
    word = text.lower()
    if not word or word == "nan":
        return MISSING_VALUE
    boolean = _BOOLEANS.get(word)
    return None if boolean is None else float(boolean)


def exact_number(value: Any) -> int | float | None:
    """Return a finite number for comparisons, or None.

    Numbers are compared as floats, except for integers that floats cannot represent, which are compared exactly.

    >>> exact_number("24.0") == exact_number(24) == exact_number(" 24 ")
    True
    >>> exact_number("9007199254740993") == exact_number(2.0**53)
    False
    """
    number = read_number(value)
    if number is None or not math.isfinite(number):
        return None
    if abs(number) < _EXACT:
        return number
    if isinstance(value, str):
        text = value.strip()
        return int(text.partition(".")[0]) if _INTEGER.fullmatch(text) else number
    if isinstance(value, float | np.floating):
        return number
    try:
        whole = int(value)
    except (TypeError, ValueError, ArithmeticError):
        return number
    return whole if whole == value else number


_TRUE: Final = frozenset({"true", "yes", "on"})
_FALSE: Final = frozenset({"false", "no", "off"})


class Cell(IntEnum):
    """Outcome of coding one raw value."""

    FINE = 0
    CLAMPED = 1
    MISSING = 2
    UNDECLARED = 3
    NOT_A_NUMBER = 4
    NOT_A_DATE = 5

    def describe(self) -> str:
        """Return the end of a sentence about a row and a column."""
        return _WORDS[self]


_WORDS: Final = {
    Cell.FINE: "is fine",
    Cell.CLAMPED: "is outside its bounds",
    Cell.MISSING: "is missing",
    Cell.UNDECLARED: "is none of the declared categories",
    Cell.NOT_A_NUMBER: "is not a finite number",
    Cell.NOT_A_DATE: "is not a date as in 2024-05-31",
}

_DIRECT: Final = frozenset({str, int, float, type(None)})
"""Types whose equal values are the same category; not booleans, since 1 equals True."""
_BOOLEAN_TYPES: Final = frozenset({bool, type(None)})

_FINE, _CLAMPED, _MISSING, _UNDECLARED, _NOT_A_NUMBER, _ = map(int, Cell)


def raw_values(column: Any) -> Sequence[Any]:
    """Return the values of a column as Python objects; a list or tuple unchanged."""
    return column if isinstance(column, list | tuple) else column_array(column).tolist()


def as_number(value: Any) -> tuple[float, int]:
    """Return a raw value as a finite number, and its outcome."""
    number = read_number(value)
    if number is None:
        return math.nan, _NOT_A_NUMBER
    if number != number:
        return math.nan, _MISSING
    return (number, _FINE) if math.isfinite(number) else (math.nan, _NOT_A_NUMBER)


class NumberColumn:
    """Map [low, high] to [-1, 1], clamping values outside; ``start`` is the coded feature's position."""

    def __init__(self, low: float, high: float, start: int) -> None:
        self.low, self.high, self.start = low, high, start
        self.range = high - low
        self.half_range = self.range / 2

    def encode(self, column: Sequence[Any], x: NDArray[np.float64], cells: NDArray[np.uint8]) -> None:
        """Write coded values into x and outcomes into cells."""
        with wiping():
            coded = keep(self._coded(column, cells))
            coded[cells >= _MISSING] = 0.0
            x[:, self.start] = coded

    def targets(self, column: Sequence[Any], cells: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return coded targets, NaN if missing or invalid."""
        return self._coded(column, cells)

    def _coded(self, column: Sequence[Any], cells: NDArray[np.uint8]) -> NDArray[np.float64]:
        values = keep(self._numbers(column, cells))
        cells[(values < self.low) | (values > self.high)] = _CLAMPED
        np.clip(values, self.low, self.high, out=values)
        # The same order of operations as in `target`, so that records and blocks give the same bits.
        coded: NDArray[np.float64] = values - self.low
        coded /= self.range
        coded *= 2.0
        coded -= 1.0
        return coded

    @staticmethod
    def _numbers(column: Any, cells: NDArray[np.uint8]) -> NDArray[np.float64]:
        values = _as_floats(column)
        if values is None:
            pairs = [as_number(value) for value in raw_values(column)]
            values = np.array([number for number, _ in pairs], dtype=np.float64)
            cells[:] = [cell for _, cell in pairs]
            return values
        odd = ~np.isfinite(values)
        if odd.any():
            cells[odd] = np.where(np.isnan(values[odd]), _MISSING, _NOT_A_NUMBER)
            values[odd] = np.nan
        return values

    def encode_one(self, value: Any, x: list[float]) -> int:
        """Write one coded value into x and return its outcome."""
        coded, cell = self.target(value)
        if cell < _MISSING:
            x[self.start] = coded
        return cell

    def target(self, value: Any) -> tuple[float, int]:
        """Return one coded value, NaN if missing or invalid, and its outcome."""
        number, cell = as_number(value)
        if cell:
            return number, cell
        if number < self.low:
            return -1.0, _CLAMPED
        if number > self.high:
            return 1.0, _CLAMPED
        return (number - self.low) / self.range * 2.0 - 1.0, _FINE


class CategoryColumn:
    """Find raw values among declared categories.

    A value matches a category that is written the same or is the same number (``1``, ``1.0``, ``"1"``); a date matches
    its ISO form. A boolean, or the text true or false, matches true or false in any case, yes or no, on or off,
    otherwise 1 or 0. White space around a text is ignored.

    Parameters
    ----------
    categories
        Declared categories; None for an undeclared one.
    start
        Position of the first coded feature.
    other
        Index that undeclared values get, or None.
    """

    half_range = 1.0

    def __init__(self, categories: Sequence[str | None], start: int, other: int | None = None) -> None:
        self.start, self.other = start, other
        self.size = len(categories)
        self._lookup: dict[Any, int] = {}
        self._booleans: dict[bool | None, int] = {}
        declared = [(category, index) for index, category in enumerate(categories) if category is not None]
        for category, index in declared:
            self._lookup[category] = index
        for category, index in declared:
            # After all categories as written, so that "1" does not shadow a declared "1.0".
            number = exact_number(category) if as_boolean(category) is None else None
            if number is not None:
                self._lookup.setdefault(number, index)
            word = category.lower()
            if word in _TRUE or word in _FALSE:
                self._booleans.setdefault(word in _TRUE, index)
        for boolean in (False, True):
            if int(boolean) in self._lookup:
                self._booleans.setdefault(boolean, self._lookup[int(boolean)])

    def _index(self, value: Any) -> tuple[int, int]:
        """Return the index of a value, and its outcome."""
        # Texts that equal a category, and numbers, but not booleans, which equal 0 and 1.
        if type(value) in _DIRECT:
            index = self._lookup.get(value)
            if index is not None:
                return index, _FINE
        if is_absent(value) or is_nan(value) or (isinstance(value, str) and not value.strip()):
            return -1, _MISSING
        index = self._find(value)
        if index is None:
            index = self.other
        return (-1, _UNDECLARED) if index is None else (index, _FINE)

    def _find(self, value: Any) -> int | None:
        text = value.strip() if isinstance(value, str) else value.isoformat() if type(value) is datetime.date else None
        if text is not None and text in self._lookup:
            return self._lookup[text]
        boolean = as_boolean(value)
        if boolean is not None:
            return self._booleans.get(boolean)
        number = exact_number(value)
        return None if number is None else self._lookup.get(number)

    def _indices(self, column: Sequence[Any], cells: NDArray[np.uint8]) -> NDArray[np.intp]:
        raw = raw_values(column)
        kinds = set(map(type, raw))
        if kinds <= _DIRECT or kinds <= _BOOLEAN_TYPES:
            find = self._lookup.get if kinds <= _DIRECT else self._booleans.get
            indices = np.fromiter((find(value, -1) for value in raw), np.intp, len(raw))
        else:
            indices = np.full(len(raw), -1, np.intp)
        for row in np.flatnonzero(indices < 0).tolist():
            indices[row], cells[row] = self._index(raw[row])
        return indices

    def encode(self, column: Sequence[Any], x: NDArray[np.float64], cells: NDArray[np.uint8]) -> None:
        """Write coded values into x and outcomes into cells."""
        indices = self._indices(column, cells)
        missing = cells >= _MISSING
        if self.size == 2:
            x[:, self.start] = np.where(missing, 0.0, 2.0 * indices - 1.0)
            return
        x[:, self.start : self.start + self.size - 1] = np.where(missing, 0.0, -1.0)[:, None]
        rows = np.flatnonzero(indices > 0)
        x[rows, self.start + indices[rows] - 1] = 1.0

    def targets(self, column: Sequence[Any], cells: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return the indices as coded targets, NaN if missing or undeclared."""
        indices = self._indices(column, cells)
        return np.where(indices < 0, np.nan, indices.astype(np.float64))

    def encode_one(self, value: Any, x: list[float]) -> int:
        """Write one coded value into x and return its outcome."""
        index, cell = self._index(value)
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
        """Return a value's category index as the coded target (NaN if missing or undeclared), and the outcome."""
        index, cell = self._index(value)
        return (math.nan if index < 0 else float(index)), cell


def _as_floats(column: Any) -> NDArray[np.float64] | None:
    """Return a column as floats if all its values can be read without `read_number`, else None."""
    if not isinstance(column, list | tuple):
        column = column_array(column)
        if column.dtype.kind != "O":
            numbers: NDArray[np.float64] = column.astype(np.float64)
            return numbers
        column = column.tolist()
    kinds = set(map(type, column))
    if kinds == {float}:
        return np.fromiter(column, np.float64, len(column))
    if kinds <= {float, int, bool} or (kinds == {str} and are_plain_numbers("".join(column))):
        try:
            return np.fromiter(map(float, column), np.float64, len(column))
        except (ValueError, OverflowError):
            return None
    return None
