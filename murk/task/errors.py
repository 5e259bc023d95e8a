"""Errors of task files: the place, the value and the remedy."""

import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from murk.errors import UserError

_ERROR_CODE = "MURK-TASK-001"

Path = tuple[str | int, ...]
MOST_SHOWN: Final = 10
LONGEST_WORD: Final = 300
# Hints for missing keys.
REMEDIES: Final = {
    "low": "; bounds are public and stated, never taken from the data, as in low: 0",
    "high": "; bounds are public and stated, never taken from the data, as in high: 100",
    "privacy": "; say what a release promises, as in privacy: {guarantee: {gdp: {mu: 1.0}}}",
    "guarantee": "; say what a release promises, as in {gdp: {mu: 1.0}}",
    "features": "; list the columns to learn from, as in - {name: age, low: 0, high: 100}",
    "target": "; say what to learn, as in {name: y, kind: binary, positive: 'yes'}",
    "positive": "; give the value that counts as 1, as in positive: 'yes'",
    "classes": "; list all classes, as in classes: [red, green, blue]",
    "name": "; give a name",
}

_NO_MAPPING: Final = "{value} is not a mapping; write keys and values, as in 'key: value'"
_NO_LIST: Final = "{value} is not a list; write [a, b] or one item a line, each after a dash"
# Messages by type of pydantic's errors, with the fields of their context.
_MESSAGES: Final = {
    "task": "{message}",
    "value_error": "{error}",
    "extra_forbidden": "unknown key",
    "float_type": "{value} is not a number",
    "int_type": "{value} is not a whole number",
    "int_from_float": "{value} is not a whole number",
    "finite_number": "{value} is not finite; write a finite number",
    "string_type": "{value} is not text; write it in quotes",
    "bool_type": "{value} is neither true nor false",
    **dict.fromkeys(("list_type", "tuple_type"), _NO_LIST),
    **dict.fromkeys(("dict_type", "model_type", "model_attributes_type"), _NO_MAPPING),
    "literal_error": "{value} is not one of {expected}",
    "greater_than": "{value} is too small; it must be above {gt:g}",
    "greater_than_equal": "{value} is too small; it must be at least {ge:g}",
    "less_than": "{value} is too large; it must be below {lt:g}",
    "less_than_equal": "{value} is too large; it must be at most {le:g}",
    "too_short": "has {actual_length} items; at least {min_length} are required",
    "too_long": "has {actual_length} items; at most {max_length} are allowed",
    "string_too_short": "is empty; write some text",
    "string_too_long": "is longer than {max_length} characters; shorten it",
}

# A tag of a union, which pydantic includes in an error's location although it is not a key.
_TAG: Final = re.compile("<[a-z]+>")


def shown(value: object, limit: int = 60) -> str:
    """Return the repr of a public value for a message, truncated to ``limit``."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


def task_error(message: str, *at: str | int) -> PydanticCustomError:
    """Return a validator's error about the key ``at`` below the validated value."""
    return PydanticCustomError("task", "{message}", {"message": message, "at": at})


def unknown_key(key: str, known: Iterable[str], *, cut: bool = False) -> PydanticCustomError:
    """Return the error about an unknown key; ``cut`` says that the key may be the rest of a name with a comma."""
    quotes = ' If it belongs to a name, quote the name, as in name: "a, b"' if cut else ""
    return task_error(f"unknown key; {nearest(key, known)}{quotes}", key)


def nearest(word: str, known: Iterable[str]) -> str:
    """Ask whether the nearest known word was meant, or list all known words.

    >>> nearest("gpd", ["pure", "approx", "gdp", "zcdp"])
    "did you mean 'gdp'?"
    """
    choices = list(known)
    lowered = {choice.lower(): choice for choice in choices}
    close = get_close_matches(word.lower(), lowered, n=1, cutoff=0.5)
    return f"did you mean {lowered[close[0]]!r}?" if close else f"known here: {', '.join(choices)}"


def path_text(path: Sequence[str | int]) -> str:
    """Return a path in a task file as text.

    >>> path_text(("features", 1, "high"))
    'features[1].high'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{_word(part)}" if text else _word(part)
    return text


def _word(key: str) -> str:
    # Quoted, since an unprintable key may contain terminal control sequences.
    return key if key.isprintable() and 0 < len(key) <= LONGEST_WORD else shown(key)


def user_error(error: ValidationError, source: str, lines: Mapping[Path, int]) -> UserError:
    """Turn a validation error into one message with a line for each mistake."""
    errors = error.errors(include_url=False)
    mistakes = [_mistake(details, source, lines) for details in errors[:MOST_SHOWN]]
    if len(errors) > MOST_SHOWN:
        mistakes.append(f"and {len(errors) - MOST_SHOWN} more")
    return UserError("\n".join(mistakes))


def _mistake(details: ErrorDetails, source: str, lines: Mapping[Path, int]) -> str:
    context: dict[str, Any] = details.get("ctx", {})
    path: Path = tuple(part for part in details["loc"] if not _TAG.fullmatch(str(part)))
    return mistake(_message(details, context), path + tuple(context.get("at", ())), source, lines)


def mistake(message: str, path: Path, source: str, lines: Mapping[Path, int]) -> str:
    """Return a message about the key at a path of a task file, with file, line and key."""
    line = _line(path, lines)
    return ": ".join(filter(None, (f"{source}, line {line}" if line else source, path_text(path), message)))


def _line(path: Path, lines: Mapping[Path, int]) -> int | None:
    # A missing key has the line of its parent.
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def _message(details: ErrorDetails, context: Mapping[str, Any]) -> str:
    kind, given = details["type"], details["input"]
    if kind == "missing":
        return f"missing, and required{REMEDIES.get(str(details['loc'][-1]), '')}"
    if kind in ("float_type", "int_type") and isinstance(given, str):
        noun = "a number" if kind == "float_type" else "a whole number"
        return f"{shown(given)} is text; write {noun}, without quotes or units"
    message = _MESSAGES.get(kind, "{value}: {msg}")
    return message.format(value=shown(given), msg=details["msg"], **context)
