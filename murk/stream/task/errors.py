"""What is wrong with a task, said in the words of its file: the place, the value and the remedy."""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from murk.errors import UserError

Path = tuple[str | int, ...]
MOST_SHOWN: Final = 10
LONGEST_WORD: Final = 300
# What to write for a key that people leave out.
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

# Values of tagged unions that pydantic puts into an error's place although they are not keys.
TAGS: Final = frozenset(
    {"<date>", "<number>", "<categories>", "<binary>", "<classes>", "<real>", "<word>", "<schedule>"}
)


def shown(value: object, limit: int = 60) -> str:
    """Return a public value as it is quoted in a message: its repr, cut where it is long."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[:limit]}..."


def task_error(message: str, *at: str | int) -> PydanticCustomError:
    """Make the error of a validator, about the key ``at`` below the value that it validates."""
    return PydanticCustomError("task", "{message}", {"message": message, "at": at})


def unknown_key(key: str, known: Iterable[str], *, cut: bool = False) -> PydanticCustomError:
    """Make the error about a key that is not known, naming the nearest one that is.

    ``cut`` says that it may be the rest of a name with a comma in it.
    """
    quotes = ' If it belongs to a name, quote the name, as in name: "a, b"' if cut else ""
    return task_error(f"unknown key; {nearest(key, known)}{quotes}", key)


def nearest(word: str, known: Iterable[str]) -> str:
    """Ask whether the known word nearest to the given one was meant, or list them all.

    Examples
    --------
    >>> nearest("gpd", ["pure", "approx", "gdp", "zcdp"])
    "did you mean 'gdp'?"
    """
    choices = list(known)
    lowered = {choice.lower(): choice for choice in choices}
    close = get_close_matches(word.lower(), lowered, n=1, cutoff=0.5)
    return f"did you mean {lowered[close[0]]!r}?" if close else f"known here: {', '.join(choices)}"


def place(path: Sequence[str | int]) -> str:
    """Return a path through the file as people write it.

    Examples
    --------
    >>> place(("features", 1, "high"))
    'features[1].high'
    """
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{_word(part)}" if text else _word(part)
    return text


def _word(key: str) -> str:
    # A key that nobody would write is quoted as a value is: what stands in it may be orders to a terminal.
    return key if key.isprintable() and 0 < len(key) <= LONGEST_WORD else shown(key)


def user_error(error: ValidationError, source: str, lines: Mapping[Path, int]) -> UserError:
    """Turn what pydantic found into one message: a line for each mistake, each with its place and remedy."""
    found = error.errors(include_url=False)
    mistakes = [_mistake(details, source, lines) for details in found[:MOST_SHOWN]]
    if len(found) > MOST_SHOWN:
        mistakes.append(f"and {len(found) - MOST_SHOWN} more")
    return UserError("\n".join(mistakes))


def _mistake(details: ErrorDetails, source: str, lines: Mapping[Path, int]) -> str:
    context: dict[str, Any] = details.get("ctx", {})
    path: Path = tuple(part for part in details["loc"] if part not in TAGS)
    path += tuple(context.get("at", ()))
    line = _line(path, lines)
    where = f"{source}, line {line}" if line else source
    return f"{where}: {place(path)}: {_message(details, context)}" if path else f"{where}: {_message(details, context)}"


def _line(path: Path, lines: Mapping[Path, int]) -> int | None:
    # A missing key has no line of its own; what it is missing from has one.
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return None


def _message(details: ErrorDetails, context: Mapping[str, Any]) -> str:
    kind, value = details["type"], shown(details["input"])
    match kind:
        case "task":
            return str(context["message"])
        case "value_error":
            return str(context["error"])
        case "missing":
            return f"missing, and required{REMEDIES.get(str(details['loc'][-1]), '')}"
        case "extra_forbidden":
            return "unknown key"
        case "float_type" | "int_type" if isinstance(details["input"], str):
            noun = "a number" if kind == "float_type" else "a whole number"
            return f"{value} is text; write {noun}, without quotes or units"
        case "float_type":
            return f"{value} is not a number"
        case "int_type" | "int_from_float":
            return f"{value} is not a whole number"
        case "finite_number":
            return f"{value} is not finite; write a finite number"
        case "string_type":
            return f"{value} is not text; write it in quotes"
        case "bool_type":
            return f"{value} is neither true nor false"
        case "list_type" | "tuple_type":
            return f"{value} is not a list; write [a, b] or one item a line, each after a dash"
        case "dict_type" | "model_type" | "model_attributes_type":
            return f"{value} is not a mapping; write keys and values, as in 'key: value'"
        case "literal_error":
            return f"{value} is not one of {context['expected']}"
        case "greater_than":
            return f"{value} is too small; it must be above {context['gt']:g}"
        case "greater_than_equal":
            return f"{value} is too small; it must be at least {context['ge']:g}"
        case "less_than":
            return f"{value} is too large; it must be below {context['lt']:g}"
        case "less_than_equal":
            return f"{value} is too large; it must be at most {context['le']:g}"
        case "too_short":
            return f"has {context['actual_length']} items; at least {context['min_length']} are needed"
        case "too_long":
            return f"has {context['actual_length']} items; at most {context['max_length']} are allowed"
        case "string_too_short":
            return "is empty; write some text"
        case "string_too_long":
            return f"is longer than {context['max_length']} characters; shorten it"
        case _:
            return f"{value}: {details['msg']}"
