"""Durations in task files: 7d, 12h, 30m, 45s."""

import re
from typing import Annotated, Final

from pydantic import BeforeValidator, Field, PlainSerializer

from murk.stream.task.errors import shown, task_error

UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
LONGEST: Final = 3_660 * 86_400
_PATTERN = re.compile(r"([0-9]{1,9})\s?([dhms])")


def parse_duration(text: str) -> int:
    """Return the seconds of a duration such as ``"7d"``, ``"12h"``, ``"30m"`` or ``"45s"``.

    Raises `ValueError` if the text is not a whole number and a unit, or the duration is 0 or above ten years.

    >>> parse_duration("12h")
    43200
    """
    match = _PATTERN.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{shown(text)} is not a duration: write a whole number and one of d, h, m, s, as in 7d")
    seconds = int(match[1]) * UNITS[match[2]]
    if not 1 <= seconds <= LONGEST:
        raise ValueError(f"{shown(text)} is out of range: a duration is between 1s and {LONGEST // UNITS['d']}d")
    return seconds


def format_duration(seconds: int) -> str:
    """Return a duration in the largest unit that divides it.

    >>> format_duration(43_200), format_duration(90)
    ('12h', '90s')
    """
    unit = next(unit for unit, size in UNITS.items() if seconds % size == 0)
    return f"{seconds // UNITS[unit]}{unit}"


def _from_text(value: object) -> int:
    if not isinstance(value, str):
        raise task_error(f"{shown(value)} has no unit: write a whole number and one of d, h, m, s, as in 7d")
    try:
        return parse_duration(value)
    except ValueError as error:
        raise task_error(str(error)) from None


Duration = Annotated[
    int,
    BeforeValidator(_from_text, json_schema_input_type=str),
    PlainSerializer(format_duration, return_type=str),
    Field(strict=True),
]
