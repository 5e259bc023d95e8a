"""Base class and field types for all parts of a task: known keys, exact types, finite numbers, durations."""

import re
from typing import Annotated, Any, ClassVar, Final

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, model_validator

from murk.task.errors import shown, task_error, unknown_key

LEVEL_PATTERN = r"^[A-Za-z0-9_-]{1,32}$"


class Block(BaseModel):
    """A mapping in a task file; unknown keys are refused, naming the nearest known one."""

    # A block is built with its task, unless it is used by itself.
    model_config = ConfigDict(
        defer_build=True,
        extra="forbid",
        frozen=True,
        populate_by_name=False,
        allow_inf_nan=False,
        protected_namespaces=(),
    )

    # Keys of the resolved document that no file sets and no message proposes.
    hidden: ClassVar[frozenset[str]] = frozenset()

    @classmethod
    def keys(cls) -> list[str]:
        """Return the keys that a file may set in this mapping."""
        names = (field.alias or name for name, field in cls.model_fields.items())
        return [name for name in names if name not in cls.hidden]

    @model_validator(mode="before")
    @classmethod
    def _refuse_unknown_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            keys = cls.keys()
            for key in data:
                if key not in keys and key not in cls.hidden:
                    # A comma ends an unquoted name between braces; the rest is read as a key without a value.
                    raise unknown_key(key, keys, cut="name" in data and data[key] is None)
        return data


def _readable(text: str) -> str:
    # Names and categories are printed, plotted and used as metrics labels.
    if not text.isprintable() or text != text.strip():
        raise task_error(f"{shown(text)} has unprintable characters or spaces around it; remove them")
    return text


def _text(value: object) -> object:
    if isinstance(value, bool | int | float):
        raise task_error(f"{shown(value)} is not text; write it in quotes")
    return value


# -0.0 + 0.0 is 0.0: both zeros must hash the same.
Number = Annotated[float, Field(strict=True), AfterValidator(lambda value: value + 0.0)]
Integer = Annotated[int, Field(strict=True)]
_Short = Field(strict=True, min_length=1, max_length=200)
Text = Annotated[str, _Short, BeforeValidator(_text), AfterValidator(_readable)]


UNITS: Final = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
LONGEST: Final = 3_660 * 86_400
SLACK: Final = UNITS["d"]
"""Seconds by which a device's clock may be ahead. Its releases then expire later, by as much."""
_DURATION = re.compile(r"([0-9]{1,9})\s?([dhms])")


def parse_duration(text: str) -> int:
    """Return the seconds of a duration such as ``"7d"``, ``"12h"``, ``"30m"`` or ``"45s"``, or raise `ValueError`.

    >>> parse_duration("12h")
    43200
    """
    match = _DURATION.fullmatch(text.strip())
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


def _seconds(value: object) -> int:
    if not isinstance(value, str):
        raise task_error(f"{shown(value)} has no unit: write a whole number and one of d, h, m, s, as in 7d")
    # Pydantic reports the error that `parse_duration` raises.
    return parse_duration(value)


Duration = Annotated[
    int,
    BeforeValidator(_seconds, json_schema_input_type=str),
    PlainSerializer(format_duration, return_type=str),
    Field(strict=True),
]
