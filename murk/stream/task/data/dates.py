"""Codes a column of dates: as a number of days, by weekday, by month."""

import datetime
import re
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from murk.stream.task.data.columns import CategoryColumn, Cell, NumberColumn, is_absent, raw_values

WEEKDAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MONTHS: Final = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
PARTS: Final[dict[str, tuple[str, ...]]] = {"number": (), "weekday": WEEKDAYS, "month": MONTHS}
"""What a date can be coded as, with the categories of what is one."""
_WRITTEN: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}([T ].*)?", re.ASCII)
_NONE: Final = 0


def day_number(value: Any) -> tuple[int, Cell]:
    """Return the day of a raw value, counted from 0001-01-01 as day 1, or what is wrong with it.

    A day is a date, a time, or a text as in ``2024-05-31`` or ``2024-05-31T12:30``; of a time it is the day on the
    clock that it was written by.

    Examples
    --------
    >>> day_number("2024-05-31T23:30:00+02:00") == day_number(datetime.date(2024, 5, 31))
    True
    >>> day_number("31/05/2024")
    (0, <Cell.NOT_A_DATE: 5>)
    """
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[D]").item()
    if is_absent(value) or (isinstance(value, float | np.floating) and value != value):
        return _NONE, Cell.MISSING
    if isinstance(value, str):
        text = value.strip()
        if not text:
            return _NONE, Cell.MISSING
        if not _WRITTEN.fullmatch(text):
            return _NONE, Cell.NOT_A_DATE
        try:
            value = datetime.datetime.fromisoformat(text)
        except ValueError:
            return _NONE, Cell.NOT_A_DATE
    return (value.toordinal(), Cell.FINE) if isinstance(value, datetime.date) else (_NONE, Cell.NOT_A_DATE)


class DateColumn:
    """Codes dates as what a task asks for, one after another.

    Parameters
    ----------
    low, high
        Public bounds of a date that is coded as a number; dates outside are clamped there.
    parts
        Some of `PARTS`.
    start
        The place of the first coded feature.
    """

    def __init__(self, low: datetime.date | None, high: datetime.date | None, parts: Sequence[str], start: int) -> None:
        self._columns: list[tuple[str, NumberColumn | CategoryColumn]] = []
        for part in parts:
            if low is not None and high is not None and part == "number":
                self._columns.append((part, NumberColumn(low.toordinal(), high.toordinal(), start)))
                start += 1
            else:
                self._columns.append((part, CategoryColumn(PARTS[part], start)))
                start += len(PARTS[part]) - 1

    def encode(self, column: Sequence[Any], x: NDArray[np.float64], cells: NDArray[np.uint8]) -> None:
        """Write the coded values into their columns of x and what became of them into cells."""
        known: dict[Any, tuple[int, Cell]] = {}
        days: list[int | None] = []
        for row, value in enumerate(raw_values(column)):
            try:
                found = known.get(value) or known.setdefault(value, day_number(value))
            except TypeError:  # a value that cannot be hashed, hence is no date
                found = day_number(value)
            day, cell = found
            days.append(day if cell == Cell.FINE else None)
            cells[row] = cell
        absent = np.array([day is None for day in days])
        for part, inner in self._columns:
            outcome = np.zeros_like(cells)
            inner.encode([_value(day, part) for day in days], x, outcome)
            cells[~absent & (outcome == Cell.CLAMPED)] = Cell.CLAMPED

    def encode_one(self, value: Any, x: list[float]) -> int:
        """Write one coded value into its places in x and give what became of it."""
        day, cell = day_number(value)
        if cell:
            return cell
        outcomes = [inner.encode_one(_value(day, part), x) for part, inner in self._columns]
        return max(outcomes)


def coded_parts(parts: Sequence[str]) -> tuple[str, ...]:
    """Return what is appended to a feature's name for each coded one.

    Examples
    --------
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
    return MONTHS[datetime.date.fromordinal(day).month - 1]
