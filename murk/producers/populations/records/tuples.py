"""Tables whose rows are tuples of the wanted columns, and checks of their raw values."""

from __future__ import annotations

import datetime
import decimal
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from murk.errors import UserError
from murk.producers.ledger.names import is_unicode


def is_blank(value: Any) -> bool:
    """Return whether a cell is empty."""
    return value is None or (isinstance(value, str) and not value.strip())


def suspects(column: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Yield values that need a closer look, with their indices; none for columns of plain texts or numbers."""
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
"""Number of first records searched for a key; a key in none of them is taken for misspelled, not missing."""
PLAIN: Final = (str, bool, int, float, decimal.Decimal, datetime.date, type(None))


def index_columns(what: str, names: Sequence[str], wanted: Sequence[str], hint: Callable[[str], str]) -> dict[str, int]:
    """Return the index of each wanted column; raise a UserError with a hint if one is missing or duplicated."""
    for name in wanted:
        count = names.count(name)
        if count > 1:
            raise UserError(f"{what} has {count} columns named {name!r}: rename all but one")
        if count == 0:
            raise UserError(f"{what} has no column {name!r}. {hint(name)}")
    return {name: names.index(name) for name in wanted}


class TupleTable(ABC):
    """Base class for tables whose rows are tuples of the wanted columns' values. ``what`` is its name in messages.

    Raises UserError if a wanted column is missing or duplicated.
    """

    def __init__(self, what: str, names: Sequence[str], wanted: Sequence[str]) -> None:
        self.what, self.names = what, tuple(names)
        self.wanted = tuple(dict.fromkeys(wanted))
        self._positions = {name: position for position, name in enumerate(self.wanted)}
        index_columns(what, self.names, self.wanted, self._hint)

    @abstractmethod
    def rows(self, start: int) -> Iterator[tuple[Any, ...]]:
        """Yield the records from row ``start`` (counted from 0) on."""

    def columns(
        self, rows: Sequence[tuple[Any, ...]], numbers: Sequence[int], names: Sequence[str]
    ) -> dict[str, Sequence[Any]]:
        """Transpose rows into the named columns."""
        table = list(zip(*rows, strict=True))
        return {name: table[self._positions[name]] for name in names}

    def _hint(self, name: str) -> str:
        # Columns' names are not quoted: in a transposed table they are a person's values.
        if any(name.casefold() == other.strip().casefold() for other in self.names):
            return "It has one that differs in capitals or in spaces around it: spell both alike"
        return "Spell its columns as the task does"
