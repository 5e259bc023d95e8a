"""Code records as features and a target; the same layout for codec, devices and learners.

A number's public bounds are mapped to [-1, 1]. Two categories become -1 and +1 under the feature's name; of three or
more, each but the first becomes a -1/+1 feature named like ``origin=JFK``. A date becomes a number of days, a weekday
or a month. The constant 1 comes last. Missing and undeclared values become 0 in coded units, or the feature's public
``missing``, so that nobody is left out because of a value.
"""

import datetime
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final, NamedTuple
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from murk._internal.wiping import numbers_were_used, track, wiping
from murk.errors import UserError
from murk.task.features import (
    INDICATOR,
    UNIT_DAYS,
    BinaryTarget,
    CategoryFeature,
    ClassTarget,
    DateFeature,
    Feature,
    Target,
    stated_location,
    words_of,
    words_of_value,
)

_ERROR_CODE = "MURK-TASK-001"

MISSING_VALUE: Final = math.nan
_NUMBER: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,4000}(\.0*)?", re.ASCII)
_BOOLEANS: Final = {"true": True, "false": False}
_SPECIAL: Final = {"": MISSING_VALUE, "nan": MISSING_VALUE, "true": 1.0, "false": 0.0}
_EXACT: Final = 2.0**53  # below it, floats represent every integer


def is_absent(value: Any) -> bool:
    """Return whether a raw value is None, or pandas' NA or NaT."""
    # Compared by name, so that devices need not import pandas.
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def is_nan(value: Any) -> bool:
    """Return whether a raw value is a float NaN."""
    return isinstance(value, float | np.floating) and bool(value != value)


def as_boolean(value: Any) -> bool | None:
    """Return a boolean, or text that spells true or false in any case, as a bool; otherwise None.

    >>> as_boolean(True), as_boolean("FALSE"), as_boolean(1), as_boolean("yes")
    (True, False, None, None)
    """
    if isinstance(value, bool | np.bool_):
        return bool(value)
    return _BOOLEANS.get(value.strip().lower()) if isinstance(value, str) else None


def read_number(value: Any) -> float | None:
    r"""Return a raw value as a float, perhaps infinite; NaN if it is missing, None if it is not a number.

    Numbers in text are decimal, like 12, -1.5 or 1e3. Booleans are 0 or 1, also as text.

    >>> list(map(read_number, (24, " 24.5", "1e3", True, "2_4", "\uff12\uff14", "inf", b"24", [24], None, "nan")))
    [24.0, 24.5, 1000.0, 1.0, None, None, None, None, None, nan, nan]
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
    return _SPECIAL.get(text.lower())


def exact_number(value: Any) -> int | float | None:
    """Return a finite number for comparisons, or None; integers that floats cannot represent stay exact.

    >>> exact_number("24.0") == exact_number(24), exact_number("9007199254740993") == exact_number(2.0**53)
    (True, False)
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
        """Describe the outcome, as the end of a sentence about a row and a column."""
        return _WORDS[self]


_WORDS: Final = (
    "is fine",
    "is outside its bounds",
    "is missing",
    "is none of the declared categories",
    "is not a finite number",
    "is not a date as in 2024-05-31",
)

_DIRECT: Final = frozenset({str, int, float, type(None)})
"""Types whose equal values are the same category; not booleans, since 1 equals True."""
_BOOLEAN_TYPES: Final = frozenset({bool, type(None)})

_FINE, _CLAMPED, _MISSING, _UNDECLARED, _NOT_A_NUMBER, _ = map(int, Cell)


def _as_array(column: Any, what: str = "") -> Any:
    # Imported here, as devices code records and not columns.
    from murk.task.containers import column_array

    return column_array(column, what) if what else column_array(column)


def raw_values(column: Any) -> Sequence[Any]:
    """Return the values of a column as Python objects; a list or tuple unchanged."""
    return column if isinstance(column, list | tuple) else _as_array(column).tolist()


def as_number(value: Any) -> tuple[float, int]:
    """Return a raw value as a finite number, and its outcome."""
    number = read_number(value)
    if number is None:
        return math.nan, _NOT_A_NUMBER
    if number != number:
        return math.nan, _MISSING
    return (number, _FINE) if math.isfinite(number) else (math.nan, _NOT_A_NUMBER)


class NumberColumn:
    """Map [low, high] to [-1, 1] and clamp values outside; ``start`` is the coded feature's position."""

    def __init__(self, low: float, high: float, start: int) -> None:
        self.low, self.high, self.start = low, high, start
        self.range = high - low
        self.half_range = self.range / 2

    def encode(self, column: Sequence[Any], x: NDArray[np.float64], cells: NDArray[np.uint8]) -> None:
        """Write coded values into x and outcomes into cells."""
        with wiping():
            coded = track(self.targets(column, cells))
            coded[cells >= _MISSING] = 0.0
            x[:, self.start] = coded

    def targets(self, column: Sequence[Any], cells: NDArray[np.uint8]) -> NDArray[np.float64]:
        """Return coded values, NaN if missing or invalid, and write outcomes into cells."""
        values = track(self._numbers(column, cells))
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
    """Find raw values among declared categories; the category None stands for all undeclared values.

    A value matches a category that is written the same or is the same number (``1``, ``1.0``, ``"1"``); a date matches
    its ISO form; true or false, also as text, match true or false in any case, yes or no, on or off, otherwise 1 or 0.
    White space around text is ignored. ``start`` is the position of the first coded feature, ``other`` the index of
    undeclared values, or None.
    """

    half_range = 1.0

    def __init__(self, categories: Sequence[str | None], start: int, other: int | None = None) -> None:
        self.start, self.other = start, other
        self.size = len(categories)
        self._lookup: dict[Any, int] = {}
        self._booleans: dict[bool | None, int] = {}
        declared = {category: index for index, category in enumerate(categories) if category is not None}
        self._lookup |= {normalize("NFC", category): index for category, index in declared.items()} | declared
        for category, index in declared.items():
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
        # Look texts and numbers up directly, but not booleans, which equal 0 and 1.
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
        if text is not None:
            # Canonically equal texts are the same text.
            index = self._lookup.get(text, self._lookup.get(normalize("NFC", text)))
            if index is not None:
                return index
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
        column = _as_array(column)
        if column.dtype.kind != "O":
            numbers: NDArray[np.float64] = column.astype(np.float64)
            return numbers
        column = column.tolist()
    kinds = set(map(type, column))
    if kinds == {float}:
        return np.fromiter(column, np.float64, len(column))
    # Texts that `float` reads and `read_number` does not: other digits, 1_000, inf and nan.
    joined = "".join(column) if kinds == {str} else ""
    if not joined.isascii() or any(letter in joined for letter in "_nN"):
        return None
    if kinds <= {float, int, bool} or kinds == {str}:
        try:
            return np.fromiter(map(float, column), np.float64, len(column))
        except (ValueError, OverflowError):
            return None
    return None


WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS: Final = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
PARTS: Final[dict[str, tuple[str, ...]]] = {"number": (), "weekday": WEEKDAYS, "month": MONTHS}
"""Parts of a date that can be coded, with their categories."""
_TIME: Final = r"(?:[01]\d|2[0-3])(?::?[0-5]\d(?::?(?:[0-5]\d|60)(?:[.,]\d*)?)?)?|24(?::?00(?::?00(?:[.,]0*)?)?)?"
_OFFSET: Final = r"[+-](?:[01]\d|2[0-3])(?::?[0-5]\d(?::?[0-5]\d(?:[.,]\d*)?)?)?(?: [A-Z]{2,5})?"
_WRITTEN: Final = re.compile(
    r"(?P<year>\d{4}|[+-]\d{4,9}|\d{5,9})(?P<day>-\d{2}-\d{2})"
    rf"(?:[T ](?:{_TIME}) ?(?:Z|UTC|GMT|{_OFFSET}|[A-Z][A-Z_]+(?:/[A-Z0-9_+-]+)+)?)?(?:\[!?[A-Z0-9_/=:+-]+\])*",
    re.ASCII | re.IGNORECASE,
)
"""A day, optionally with a time and its zone, as in RFC 3339 (leap seconds too), RFC 9557, and the own texts of
databases and Go; `fromisoformat` differs between Python versions."""
_CYCLE: Final = 146_097  # number of days in 400 years, after which the calendar repeats
_EPOCH: Final = datetime.date(1970, 1, 1).toordinal()
_NO_DAY: Final = 0


def day_number(value: Any) -> tuple[int, Cell]:
    """Return the day of a raw value, counted from 0001-01-01 as day 1, and its outcome.

    A value is a date, a time (its local day), or text like ``2024-05-31`` or ``2024-05-31T12:30``. Days before year 1
    are 0 and less, and years may have more than four digits.

    >>> day_number("2024-05-31T23:30:00+02:00") == day_number(datetime.date(2024, 5, 31)), day_number("31/05/2024")
    (True, (0, <Cell.NOT_A_DATE: 5>))
    """
    if is_absent(value) or is_nan(value):
        return _NO_DAY, Cell.MISSING
    if isinstance(value, str):
        return _day_of_text(value.strip())
    if isinstance(value, np.datetime64):
        return _day_of_numpy(value)
    if type(value).__name__ == "Period":
        return _day_of_period(value)
    if type(value) is np.ndarray and value.ndim == 0 and value.dtype.kind == "M":
        return _day_of_numpy(np.datetime64(value.astype("datetime64[us]").item(), "us"))
    if not isinstance(value, datetime.date):
        return _NO_DAY, Cell.NOT_A_DATE
    try:
        return value.toordinal(), Cell.FINE
    except (NotImplementedError, OverflowError, ValueError):
        # A pandas time that Python cannot represent.
        return _day_of_numpy(np.datetime64(getattr(value, "to_datetime64", lambda: "NaT")()))


def _by_canonical_name(record: Mapping[str, Any]) -> Callable[[str], Any]:
    """Return a function that looks a column up by its name in any canonically equal spelling."""
    normalized: dict[str, Any] = {}

    def get(name: str) -> Any:
        if name in record:
            return record[name]
        if not normalized:
            normalized.update((normalize("NFC", key), value) for key, value in record.items() if isinstance(key, str))
        return normalized.get(normalize("NFC", name))

    return get


def _day_of_period(period: Any) -> tuple[int, Cell]:
    """Return the day of a period of pandas that is within one day."""
    try:
        first, last = (_day_of_numpy(time.to_datetime64()) for time in (period.start_time, period.end_time))
    except (AttributeError, ArithmeticError, ValueError):
        return _NO_DAY, Cell.NOT_A_DATE
    return first if first == last else (_NO_DAY, Cell.NOT_A_DATE)


def _day_of_text(text: str) -> tuple[int, Cell]:
    if not text:
        return _NO_DAY, Cell.MISSING
    match = _WRITTEN.fullmatch(text)
    if match is None:
        return _NO_DAY, Cell.NOT_A_DATE
    year = int(match["year"])
    # Python's dates have years 1 to 9999: use a year with the same calendar.
    alike = year if 1 <= year <= datetime.MAXYEAR else 2000 + year % 400
    try:
        day = datetime.date.fromisoformat(f"{alike:04d}{match['day']}").toordinal()
    except ValueError:
        return _NO_DAY, Cell.NOT_A_DATE
    return day + (year - alike) // 400 * _CYCLE, Cell.FINE


def _day_of_numpy(value: np.datetime64) -> tuple[int, Cell]:
    if np.isnat(value):
        return _NO_DAY, Cell.MISSING
    try:
        return int(value.astype("datetime64[D]").astype(np.int64)) + _EPOCH, Cell.FINE
    except (OverflowError, ValueError):
        return _NO_DAY, Cell.NOT_A_DATE


class DateColumn:
    """Code dates as ``parts``, such as a number of days from ``low`` to ``high`` and a weekday, from ``start`` on."""

    def __init__(self, low: datetime.date | None, high: datetime.date | None, parts: Sequence[str], start: int) -> None:
        self.start = start
        self._columns: list[tuple[str, NumberColumn | CategoryColumn]] = []
        for part in parts:
            if low is not None and high is not None and part == "number":
                self._columns.append((part, NumberColumn(low.toordinal(), high.toordinal(), start)))
                start += 1
            else:
                self._columns.append((part, CategoryColumn(PARTS[part], start)))
                start += len(PARTS[part]) - 1

    def encode(self, column: Sequence[Any], x: NDArray[np.float64], cells: NDArray[np.uint8]) -> None:
        """Write coded values into x and outcomes into cells."""
        # Remember days of texts only: equal times may be different local days.
        texts: dict[str, tuple[int, Cell]] = {}
        days: list[int | None] = []
        for row, value in enumerate(raw_values(column)):
            if type(value) is not str:
                day, cell = day_number(value)
            elif value in texts:
                day, cell = texts[value]
            else:
                day, cell = texts[value] = day_number(value)
            days.append(None if cell else day)
            cells[row] = cell
        absent = np.array([day is None for day in days], dtype=bool)
        for part, inner in self._columns:
            outcome = np.zeros_like(cells)
            inner.encode([_part_of(day, part) for day in days], x, outcome)
            cells[~absent & (outcome == Cell.CLAMPED)] = Cell.CLAMPED

    def encode_one(self, value: Any, x: list[float]) -> int:
        """Write one coded value into x and return its outcome."""
        day, cell = day_number(value)
        return cell or max(inner.encode_one(_part_of(day, part), x) for part, inner in self._columns)


def coded_parts(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the suffixes of a feature's coded names.

    >>> coded_parts(["number", "weekday"])[:3]
    ('', '=Tuesday', '=Wednesday')
    """
    endings = {part: [f"={name}" for name in names[1:]] for part, names in PARTS.items()} | {"number": [""]}
    return tuple(ending for part in parts for ending in endings[part])


def _part_of(day: int | None, part: str) -> int | str | None:
    if day is None or part == "number":
        return day
    date = datetime.date.fromordinal((day - 1) % _CYCLE + 1)
    return WEEKDAYS[date.weekday()] if part == "weekday" else MONTHS[date.month - 1]


INTERCEPT: Final = "intercept"
MIDDLE: Final = "at the middle of every feature"  # unit of the intercept of a model with features


def is_constant(name: str) -> bool:
    """Return whether a name is that of a constant's coefficient, also for one of several classes.

    >>> [name for name in ("age", "intercept", "b:intercept", "origin=intercept") if is_constant(name)]
    ['intercept', 'b:intercept']
    """
    return name.rpartition(":")[2] == INTERCEPT


def of_interest(names: Collection[str]) -> list[str]:
    """Return the names of the coefficients of interest: features' coefficients or, without features, constants.

    >>> of_interest(["age", "intercept"]), of_interest(["a:intercept", "b:intercept"])
    (['age'], ['a:intercept', 'b:intercept'])
    """
    return [name for name in names if not is_constant(name)] or list(names)


def without_features(names: Collection[str]) -> bool:
    """Return whether all coefficients are constants: a mean, or shares."""
    return all(map(is_constant, names))


def class_clash(classes: Sequence[str], names: Collection[str]) -> tuple[str, str, str] | None:
    """Return two classes and a feature for which two coefficients CLASS:FEATURE have the same name, or None.

    >>> class_clash(["a", "a:b"], ["c", "b:c"])
    ('a:b', 'a', 'c')
    """
    labels = set(classes)
    if len(labels) < len(classes):
        twice = next(label for index, label in enumerate(classes) if label in classes[:index])
        return twice, twice, next(iter(names))
    for label in classes:
        for colon in re.finditer(":", label):
            if (other := label[: colon.start()]) in labels:
                for name in names:
                    if f"{label[colon.end() :]}:{name}" in names:
                        return label, other, name
    return None


class EncodedRecord(NamedTuple):
    """One coded record."""

    x: NDArray[np.float64]  # (p,): coded features, metrics if there are any, and the constant last
    y: float  # NaN if missing or undeclared
    clamped: int  # number of values outside their bounds
    missing: int  # number of missing or invalid values


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """Coded records; see `EncodedRecord`."""

    x: NDArray[np.float64]  # (m, p)
    y: NDArray[np.float64]  # (m,)
    clamped: NDArray[np.int64]  # (m,)
    missing: NDArray[np.int64]  # (m,)
    cells: NDArray[np.uint8]  # (m, columns): `Cell` of each raw value
    columns: tuple[str, ...]  # features, metrics, and the target last


class Coding:
    """Layout of a task's coded features and target.

    ``names`` are the names of the ``size`` (p) coded features, ``"intercept"`` last; ``columns`` and ``target`` name
    the raw ones; ``indicators`` are the positions of coded features that indicate a missing value; ``numbers`` tells
    for each coded feature but the constant whether it is a number, not a category. ``low`` and ``high`` (float64, shape
    (p,)) are the box of the coded features, 1 and 1 for the constant; ``smallest_square`` and ``largest_square`` bound
    ||x||^2 over it, missing values (0) included.

    ``unit_factors`` (float64, shape (p,)) turn coefficients in coded units into those per unit of the feature, which
    ``unit_labels`` describe: 2 unit / (high - low) for a number or a date, 2 for a category, 1 for the constant; for a
    real target also half its range.

    A coded record has ``width`` numbers: metrics, NaN if missing, come before the constant.
    """

    def __init__(self, features: Sequence[Feature], target: Target, metrics: Sequence[Target] = ()) -> None:
        self._features = tuple(features)
        self._target = target
        self.columns: tuple[str, ...] = tuple(feature.name for feature in features)
        self.metrics: tuple[str, ...] = tuple(metric.name for metric in metrics)
        self.target: str = target.name
        self.all_columns: tuple[str, ...] = (*self.columns, *self.metrics, self.target)
        self._inputs: list[NumberColumn | CategoryColumn | DateColumn] = []
        names: list[str] = []
        for index, feature in enumerate(self._features):
            start = len(names)
            names.extend(self.names_of(index))
            if isinstance(feature, CategoryFeature):
                self._inputs.append(CategoryColumn(feature.categories, start))
            elif isinstance(feature, DateFeature):
                self._inputs.append(DateColumn(feature.low, feature.high, feature.parts, start))
            else:
                self._inputs.append(NumberColumn(feature.low, feature.high, start))
        self.indicators: tuple[int, ...] = tuple(
            names.index(indicator_of(feature)) for feature in self._features if feature.missing == INDICATOR
        )
        self._fills = [self._fill(index) for index in range(len(self._features))]
        self._has_ascii_names = all(name.isascii() for name in self.all_columns)
        # Columns that are not numbers get bounds that contain no value, so that they are coded by `encode_one`.
        self._record_columns = [
            (name, column, column.low, column.high, column.range, column.start, fill)
            if isinstance(column, NumberColumn)
            else (name, column, math.inf, -math.inf, 1.0, 0, fill)
            for name, column, fill in zip(self.columns, self._inputs, self._fills, strict=True)
        ]
        self._complete = [-1.0 if index in self.indicators else 0.0 for index in range(len(names))]
        self._complete += [math.nan] * len(self.metrics) + [1.0]
        self._output = _target_column(target)
        self._metrics = [
            (len(names) + index, name, _target_column(metric))
            for index, (name, metric) in enumerate(zip(self.metrics, metrics, strict=True))
        ]
        self.names: tuple[str, ...] = (*names, INTERCEPT)
        self.numbers: tuple[bool, ...] = tuple(
            number for index in range(len(self._features)) for number in self._numbers(index)
        )
        self.size: int = len(self.names)
        self.width: int = self.size + len(self.metrics)
        self.low, self.high = np.full(self.size, -1.0), np.ones(self.size)
        self.low[-1] = 1.0
        self.smallest_square: float = 1.0
        self.largest_square: float = float(self.size)
        self.unit_factors, self.unit_labels = self._units()
        for array in (self.low, self.high, self.unit_factors):
            array.setflags(write=False)

    def names_of(self, index: int) -> tuple[str, ...]:
        """Return the coded names of one raw feature."""
        feature = self._features[index]
        names: tuple[str, ...] = (feature.name,)
        if isinstance(feature, CategoryFeature) and len(feature.categories) > 2:
            names = tuple(f"{feature.name}={category}" for category in feature.categories[1:])
        elif isinstance(feature, DateFeature):
            names = tuple(feature.name + ending for ending in coded_parts(feature.parts))
        return (*names, indicator_of(feature)) if feature.missing == INDICATOR else names

    def _numbers(self, index: int) -> list[bool]:
        feature, names = self._features[index], self.names_of(index)
        if isinstance(feature, DateFeature):
            # Of a date's coded features, the number, if any, has the feature's own name.
            return [name == feature.name for name in names]
        return [not isinstance(feature, CategoryFeature) and name == feature.name for name in names]

    def _fill(self, index: int) -> tuple[tuple[int, float], ...]:
        """Return the (position, value) pairs that code a feature's missing value; empty if it is coded as 0."""
        feature, column = self._features[index], self._inputs[index]
        if feature.missing is None:
            return ()
        if feature.missing == INDICATOR:
            return ((column.start + len(self.names_of(index)) - 1, 1.0),)
        coded = [0.0] * sum(len(self.names_of(index)) for index in range(index + 1))
        column.encode_one(feature.missing, coded)
        return tuple((index, coded[index]) for index in range(column.start, len(coded)))

    @property
    def stated(self) -> list[tuple[float, float] | None]:
        """Stated centre and spread (`stated_location`) of each coded feature but the constant; None if not stated."""
        stated: list[tuple[float, float] | None] = [None] * (self.size - 1)
        for feature in self._features:
            if not isinstance(feature, CategoryFeature) and feature.typical is not None:
                # Of a date's coded features, the number has the feature's own name.
                stated[self.names.index(feature.name)] = stated_location(feature)
        return stated

    @property
    def stated_coordinates(self) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """Centres and spreads of the coded features but the constant, from `stated`; None if nothing is stated.

        A number without a stated range counts as uniform within its bounds, and a category as of mean 0 and variance 1.
        """
        stated = self.stated
        if not any(stated):
            return None
        default = [(0.0, 1.0 / math.sqrt(3.0)) if number else (0.0, 1.0) for number in self.numbers]
        centres, spreads = zip(*(at or other for at, other in zip(stated, default, strict=True)), strict=True)
        return centres, spreads

    def encode(self, columns: Mapping[str, Sequence[Any]], *, target: bool = True) -> EncodedBlock:
        """Code records given as columns (see `murk.task.containers.column_array`); without ``target``, every y is NaN.

        Raises `UserError` if a column is missing or the columns differ in length, never because of a value.

        >>> from murk.task.features import NumberFeature, RealTarget
        >>> age = NumberFeature(name="age", low=20, high=40)
        >>> coding = Coding([age], RealTarget(name="weeks", kind="real", low=0, high=52))
        >>> block = coding.encode({"age": ["25", "", 50], "weeks": [52, 26, 0]})
        >>> block.x[:, 0].tolist(), block.y.tolist(), block.clamped.tolist(), block.missing.tolist()
        ([-0.5, 0.0, 1.0], [1.0, 0.0, -1.0], [0, 0, 1], [0, 1, 0])
        """
        wanted = self.all_columns if target else self.columns
        absent = [name for name in wanted if name not in columns]
        if absent:
            raise UserError(f"column {absent[0]!r} is missing; there are: {', '.join(map(str, columns))}")
        lengths = {len(columns[name]) for name in wanted}
        if len(lengths) > 1:
            sizes = ", ".join(map(str, sorted(lengths)))
            raise UserError(f"columns of different lengths ({sizes}); give one value per row")
        values: dict[str, Any] = {name: columns[name] for name in wanted}
        for name, column in values.items():
            if not isinstance(column, list | tuple):
                values[name] = _as_array(column, f"column {name!r}")
        m = lengths.pop()
        x = np.empty((m, self.width))
        x[:, -1] = 1.0
        cells = np.zeros((m, len(self.all_columns)), dtype=np.uint8)
        for index, (name, coder) in enumerate(zip(self.columns, self._inputs, strict=True)):
            coder.encode(values[name], x, cells[:, index])
        for index, (at, name, output) in enumerate(self._metrics, start=len(self.columns)):
            x[:, at] = track(output.targets(values[name], cells[:, index])) if target else math.nan
        x[:, list(self.indicators)] = -1.0
        for index, fill in enumerate(self._fills):
            if fill:
                gaps = cells[:, index] >= Cell.MISSING
                for place, value in fill:
                    x[gaps, place] = value
        y = self._output.targets(values[self.target], cells[:, -1]) if target else np.full(m, np.nan)
        clamped, missing = (cells == Cell.CLAMPED).sum(axis=1), (cells >= Cell.MISSING).sum(axis=1)
        return EncodedBlock(x, y, clamped, missing, cells, self.all_columns)

    def encode_record(self, record: Mapping[str, Any], *, target: bool = True) -> EncodedRecord:
        """Code one record without errors for any value; absent keys count as missing. Without ``target``, y is NaN."""
        x = self._complete.copy()
        clamped = missing = 0
        get = record.get if self._has_ascii_names else _by_canonical_name(record)
        for name, column, low, high, width, index, fill in self._record_columns:
            value = get(name)
            if type(value) is float and low <= value <= high:
                # As in `NumberColumn`, without a call: most values are numbers within their bounds.
                x[index] = (value - low) / width * 2.0 - 1.0
                continue
            cell = column.encode_one(value, x)
            if cell:
                if cell == Cell.CLAMPED:
                    clamped += 1
                else:
                    missing += 1
                    for at, coded in fill:
                        x[at] = coded
        y = float("nan")
        if target:
            y, cell = self._output.target(get(self.target))
            clamped += cell == Cell.CLAMPED
            missing += cell >= Cell.MISSING
            for at, name, output in self._metrics:
                x[at], cell = output.target(get(name))
                clamped += cell == Cell.CLAMPED
                missing += cell >= Cell.MISSING
        # The coded values are Python numbers, since filling a list is faster than filling an array.
        numbers_were_used(len(x))
        return EncodedRecord(track(np.array(x)), y, clamped, missing)

    def _units(self) -> tuple[NDArray[np.float64], tuple[str, ...]]:
        units: list[tuple[float, str]] = []
        for feature in self._features:
            units += _units_of(feature)
            if feature.missing == INDICATOR:
                units.append((2.0, f"{words_of(feature)}: missing against known"))
        constant, target = f"mean of {words_of(self._target)}", self._target
        if self._features:
            constant = MIDDLE
        elif isinstance(target, BinaryTarget):
            constant = f"share of {words_of(target)} = {words_of_value(target, target.positive)}"
        elif isinstance(target, ClassTarget):
            constant = f"share of {words_of(target)}"
        factors, labels = zip(*units, (1.0, constant), strict=True)
        return np.array(factors) * self._output.half_range, labels


def indicator_of(feature: Feature) -> str:
    """Return the name of the coded feature that indicates a missing value."""
    return f"{feature.name}=missing"


def _units_of(feature: Feature) -> list[tuple[float, str]]:
    if isinstance(feature, CategoryFeature):
        return _against_first(feature, [words_of_value(feature, category) for category in feature.categories])
    if isinstance(feature, DateFeature):
        units: list[tuple[float, str]] = []
        for part in feature.parts:
            if feature.low is None or feature.high is None or part != "number":
                units += _against_first(feature, PARTS[part])
            else:
                days = (feature.high - feature.low).days
                units.append((2.0 * UNIT_DAYS[feature.unit] / days, f"{words_of(feature)}: one {feature.unit} later"))
        return units
    unit, written = (1.0, "one unit") if feature.unit is None else (feature.unit, f"{feature.unit:,.12g}")
    return [(2.0 * unit / (feature.high - feature.low), f"{words_of(feature)}: {written} more")]


def _against_first(feature: Feature, categories: Sequence[str]) -> list[tuple[float, str]]:
    first, *others = categories
    return [(2.0, f"{words_of(feature)}: {category} against {first}") for category in others]


def _target_column(target: Target) -> NumberColumn | CategoryColumn:
    if isinstance(target, BinaryTarget):
        # Without a declared negative, every other value counts as negative.
        return CategoryColumn((target.negative, target.positive), 0, other=0 if target.negative is None else None)
    if isinstance(target, ClassTarget):
        return CategoryColumn(target.classes, 0)
    return NumberColumn(target.low, target.high, 0)


class Counts:
    """Sums over the coded records; they never leave the device, even if they are over many people.

    A second process may count all of these records except one; the difference would disclose that record's values.
    """

    def __init__(self) -> None:
        self.records = self.clamped = self.missing = 0

    def add(self, records: int, clamped: int, missing: int) -> None:
        """Count records, and their values that were clamped or missing."""
        self.records += records
        self.clamped += clamped
        self.missing += missing

    def __repr__(self) -> str:
        # A program's log must not reveal values.
        return "Counts()"
