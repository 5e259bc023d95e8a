"""What is looked at in raw values before they are coded.

What tables of records have in common: how they are read, and those whose rows are tuples.
"""

from __future__ import annotations

import datetime
import decimal
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final

from murk.errors import UserError


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


SLICE: Final = 4096
"""Rows that are read at a time."""
KEYS_LOOKED_AT: Final = 1000
"""A key that is in none of so many first records (lines of JSON, mappings) is taken for misspelled, not missing."""
PLAIN: Final = (str, bool, int, float, decimal.Decimal, datetime.date, type(None))


class TupleTable(ABC):
    """A table whose rows are tuples of the wanted columns' values.

    Parameters
    ----------
    what
        What it is called in messages.
    names
        The names of all its columns, in their order.
    wanted
        Columns that must be there, each once.

    Raises
    ------
    UserError
        When one is not there, or twice.
    """

    def __init__(self, what: str, names: Sequence[str], wanted: Sequence[str]) -> None:
        self.what, self.names = what, tuple(names)
        self.wanted = tuple(dict.fromkeys(wanted))
        self._places = {name: place for place, name in enumerate(self.wanted)}
        for name in self.wanted:
            count = self.names.count(name)
            if count > 1:
                raise UserError(f"{what} has {count} columns named {name!r}: rename all but one")
            if count == 0:
                raise UserError(f"{what} has no column {name!r}. {self._hint(name)}")

    @abstractmethod
    def rows(self, start: int) -> Iterator[tuple[Any, ...]]:
        """Iterate over the records from row ``start`` (0 is the first) on."""

    def columns(
        self, rows: Sequence[tuple[Any, ...]], numbers: Sequence[int], names: Sequence[str]
    ) -> dict[str, Sequence[Any]]:
        """Transpose rows into the named columns."""
        table = list(zip(*rows, strict=True))
        return {name: table[self._places[name]] for name in names}

    def _hint(self, name: str) -> str:
        # Columns' names are not repeated: of a table that was turned round they are somebody's values.
        if any(name.casefold() == other.strip().casefold() for other in self.names):
            return "It has one that differs in capitals or in spaces around it: spell both alike"
        return "Spell its columns as the task does"
