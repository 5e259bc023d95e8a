"""Code a column of dates as a number of days, a weekday or a month."""

import datetime
import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from murk.stream.task.data.columns import CategoryColumn, Cell, NumberColumn, is_absent, is_nan, raw_values

WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
PARTS: Final[dict[str, tuple[str, ...]]] = {"number": (), "weekday": WEEKDAYS, "month": MONTHS}
"""Parts of a date that can be coded, with their categories."""
_TIME: Final = r"(?:[01]\d|2[0-3])(?::?[0-5]\d(?::?[0-5]\d(?:[.,]\d*)?)?)?"
_WRITTEN: Final = re.compile(
    rf"(?P<year>\d{{4}}|[+-]\d{{4,9}}|\d{{5,9}})(?P<day>-\d{{2}}-\d{{2}})(?:[T ]{_TIME} ?(?:Z|[+-]{_TIME})?)?", re.ASCII
)
"""A day, optionally with a time and its UTC offset; `fromisoformat` differs between Python versions."""
_CYCLE: Final = 146_097  # number of days in 400 years, after which the calendar repeats
_EPOCH: Final = datetime.date(1970, 1, 1).toordinal()
_NONE: Final = 0


def day_number(value: Any) -> tuple[int, Cell]:
    """Return the day of a raw value, counted from 0001-01-01 as day 1, and its outcome.

    A value is a date, a time, or text like ``2024-05-31`` or ``2024-05-31T12:30``; the day of a time is the local one.
    Days before year 1 are 0 and less, and years may have more than four digits.

    >>> day_number("2024-05-31T23:30:00+02:00") == day_number(datetime.date(2024, 5, 31))
    True
    >>> day_number("31/05/2024")
    (0, <Cell.NOT_A_DATE: 5>)
    """
    if is_absent(value) or is_nan(value):
        return _NONE, Cell.MISSING
    if isinstance(value, str):
        return _day_of_text(value.strip())
    if isinstance(value, np.datetime64):
        return _day_of_numpy(value)
    if not isinstance(value, datetime.date):
        return _NONE, Cell.NOT_A_DATE
    try:
        return value.toordinal(), Cell.FINE
    except (NotImplementedError, OverflowError, ValueError):
        # A pandas time that Python cannot represent.
        return _day_of_numpy(np.datetime64(getattr(value, "to_datetime64", lambda: "NaT")()))


def _day_of_text(text: str) -> tuple[int, Cell]:
    if not text:
        return _NONE, Cell.MISSING
    match = _WRITTEN.fullmatch(text)
    if match is None:
        return _NONE, Cell.NOT_A_DATE
    year = int(match["year"])
    # Python's dates have years 1 to 9999: use a year with the same calendar.
    alike = year if 1 <= year <= datetime.MAXYEAR else 2000 + year % 400
    try:
        day = datetime.date.fromisoformat(f"{alike:04d}{match['day']}").toordinal()
    except ValueError:
        return _NONE, Cell.NOT_A_DATE
    return day + (year - alike) // 400 * _CYCLE, Cell.FINE


def _day_of_numpy(value: np.datetime64) -> tuple[int, Cell]:
    if np.isnat(value):
        return _NONE, Cell.MISSING
    try:
        return int(value.astype("datetime64[D]").astype(np.int64)) + _EPOCH, Cell.FINE
    except (OverflowError, ValueError):
        return _NONE, Cell.NOT_A_DATE


class DateColumn:
    """Code the ``parts`` of dates, one after another.

    ``low`` and ``high`` are the public bounds of a date that is coded as a number, to which it is clamped; ``start`` is
    the position of the first coded feature.
    """

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
        # Only for texts: equal times may be different local days.
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
            inner.encode([_value(day, part) for day in days], x, outcome)
            cells[~absent & (outcome == Cell.CLAMPED)] = Cell.CLAMPED

    def encode_one(self, value: Any, x: list[float]) -> int:
        """Write one coded value into x and return its outcome."""
        day, cell = day_number(value)
        if cell:
            return cell
        outcomes = [inner.encode_one(_value(day, part), x) for part, inner in self._columns]
        return max(outcomes)


def coded_parts(parts: Sequence[str]) -> tuple[str, ...]:
    """Return the suffixes of a feature's coded names.

    >>> coded_parts(["number", "weekday"])[:3]
    ('', '=Tuesday', '=Wednesday')
    """
    return tuple(
        ending for part in parts for ending in ([""] if part == "number" else [f"={name}" for name in PARTS[part][1:]])
    )


def _value(day: int | None, part: str) -> int | str | None:
    if day is None or part == "number":
        return day
    if part == "weekday":
        return WEEKDAYS[(day - 1) % 7]
    return MONTHS[datetime.date.fromordinal((day - 1) % _CYCLE + 1).month - 1]
