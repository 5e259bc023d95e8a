"""What is looked at in raw values before they are coded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any


def is_blank(value: Any) -> bool:
    """Whether nothing stands in a cell."""
    return value is None or (isinstance(value, str) and not value.strip())


def is_unicode(text: str) -> bool:
    """Whether all bytes of a text were characters."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def suspects(column: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Return values worth a closer look; none, and quickly, for a column of plain texts or numbers."""
    kinds = set(map(type, column))
    if kinds == {str}:
        joined = "".join(column)
        words = joined.lower()
        if "true" not in words and "false" not in words and (joined.isascii() or is_unicode(joined)):
            return
    elif kinds <= {int, float, type(None)}:
        return
    yield from enumerate(column)
