"""Windows of time in which budgets renew: days, weeks, months, or a number of days, in UTC."""

from __future__ import annotations

import datetime
import re
from typing import Any, Final

from murk.task.coding import day_number
from murk.task.errors import shown, task_error

NONE: Final = "none"
MOST_DAYS: Final = 3660
_NAMED: Final = ("day", "week", "month")
_EPOCH: Final = datetime.date(1970, 1, 1).toordinal()
_MONDAY: Final = 3  # 1970-01-01 was a Thursday, three days after a Monday
_DAY: Final = 86_400
_QUARTER: Final = _DAY // 4


def check_window(window: object) -> str:
    """Return the text of a valid window, unchanged; raise a ValueError, with the remedy, for anything else.

    >>> [check_window(each) for each in ("none", "week", "90d")]
    ['none', 'week', '90d']
    """
    text = str(window)
    if text in (NONE, *_NAMED):
        return text
    match = re.fullmatch(r"([1-9][0-9]{0,3})d", text)
    if match is None or int(match[1]) > MOST_DAYS:
        raise ValueError(f"write none, {', '.join(_NAMED)}, or a number of days up to {MOST_DAYS:,}, as in 90d")
    return text


def task_window(value: object) -> str:
    """Return the text of a task file's window; raise `PydanticCustomError`, with the remedy, if it is invalid."""
    try:
        return check_window(value)
    except ValueError as error:
        raise task_error(f"{shown(value)} is not a window; {error}") from None


def window_of(window: str, day: int) -> int:
    """Return the number of the window that contains a day (days since 1970-01-01).

    Weeks begin on Monday; windows of N days are counted from 1970-01-01.

    >>> [window_of("week", day) for day in (3, 4, 10, 11)]
    [0, 1, 1, 2]
    >>> window_of("month", utc_day("2024-05-31")) - window_of("month", utc_day("2024-05-01"))
    0
    """
    if window == "month":
        date = datetime.date.fromordinal(_EPOCH + day)
        return 12 * (date.year - 1970) + date.month - 1
    if window == "week":
        return (day + _MONDAY) // 7
    return day // (1 if window == "day" else int(window[:-1]))


def begin_of(window: str, number: int) -> datetime.date:
    """Return the first day of a window.

    >>> begin_of("week", window_of("week", utc_day("2024-05-31"))).isoformat()
    '2024-05-27'
    """
    if window == "month":
        return datetime.date(1970 + number // 12, number % 12 + 1, 1)
    if window == "week":
        return datetime.date.fromordinal(_EPOCH + 7 * number - _MONDAY)
    return datetime.date.fromordinal(_EPOCH + number * (1 if window == "day" else int(window[:-1])))


def start_of(window: str, number: int) -> int:
    """Return when a window begins, in seconds since 1970-01-01; 0 if it begins before that day.

    >>> start_of("week", window_of("week", utc_day("2024-05-31"))) == 86_400 * utc_day("2024-05-27")
    True
    """
    return 86_400 * max(begin_of(window, number).toordinal() - _EPOCH, 0)


def end_of(window: str, number: int) -> int:
    """Return when a window ends, in seconds since 1970.

    >>> end_of("week", 0) == 4 * 86_400
    True
    """
    return start_of(window, number + 1)


def spread_of(window: str) -> int:
    """Return the seconds after a window's end over which devices spread their answers: a quarter of a window.

    >>> spread_of("week") / 3600
    42.0
    """
    return _QUARTER * {"day": 1, "week": 7, "month": 28}.get(window, 0) or _QUARTER * int(window[:-1])


def utc_day(value: Any) -> int | None:
    """Return the UTC day of a date or time, counted from 1970-01-01; a time without a zone is in UTC.

    None for anything else, and beyond the years 1 to 9999.

    >>> utc_day("2024-05-31T23:30:00-02:00") == utc_day(datetime.date(2024, 6, 1)) == 19875
    True
    >>> utc_day("yesterday"), utc_day(20240531)
    (None, None)
    """
    if isinstance(value, str):
        try:
            value = datetime.datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    try:
        if isinstance(value, datetime.datetime) and value.tzinfo is not None:
            value = value.astimezone(datetime.UTC)
        day, cell = day_number(value)
    except (OverflowError, ValueError):
        return None
    return None if cell or not 1 <= day <= datetime.date.max.toordinal() else day - _EPOCH


def each_of(window: str) -> str:
    """Return "a week" for ``week``, and "each 90 days" for ``90d``.

    >>> each_of("week"), each_of("90d"), each_of("1d")
    ('a week', 'each 90 days', 'a day')
    """
    if window in _NAMED or window == "1d":
        return f"a {'day' if window == '1d' else window}"
    return f"each {int(window[:-1])} days"


def many_of(window: str, count: int) -> str:
    """Return a number of windows in words.

    >>> many_of("week", 10), many_of("90d", 1)
    ('10 weeks', '1 window of 90 days')
    """
    noun = window if window in _NAMED else "window"
    plural = "" if count == 1 else "s"
    return f"{count:,} {noun}{plural}" + ("" if window in _NAMED else f" of {int(window[:-1])} days")
