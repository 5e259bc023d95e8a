"""What a ledger has noted of nobody in particular: it is read again where somebody else may have changed it."""

from __future__ import annotations

from collections.abc import Mapping
from sqlite3 import Connection
from typing import Any

from murk.producers.ledger.prices import Promise
from murk.producers.ledger.tasks import Booked, Prices

Lacking = Any
"""What `Spending` says of a cap without room; None where all have room."""


class Common:
    """Next number, prices, caps and whether anybody has withdrawn, as one open ledger knows them.

    SQLite tells whether another connection has written since (``PRAGMA data_version``), be it of another process. What
    this one writes it has to say itself: `forget` before, `keep` after the commit.

    Attributes
    ----------
    prices
        Every price in the ledger, by number.
    next
        Number that the next release gets.
    withdrawals
        Whether there are any.
    earlier
        Whether there are accounts of named people from before their names had one spelling each.
    """

    def __init__(self, prices: Prices) -> None:
        self.prices = prices
        self.next = 0
        self.withdrawals = self.earlier = True
        self.recognised: set[tuple[int, int]] = set()
        """(task, source) pairs whose people were found to be recognised, or need not be."""
        self._version: int | None = None
        self._known: int | None = None
        self._terms: dict[int, tuple[Mapping[int, list[Promise]], dict[int, Lacking]]] = {}

    def refresh(self, connection: Connection) -> None:
        """Make sure, within a transaction that writes, that this is what the file says."""
        version = connection.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version:
            return
        self.forget()
        self.next = int(connection.execute("SELECT value FROM meta WHERE key = 'next'").fetchone()[0])
        self.prices.refresh(connection)
        self.withdrawals = connection.execute("SELECT 1 FROM withdrawals LIMIT 1").fetchone() is not None
        self.earlier = connection.execute("SELECT 1 FROM earlier LIMIT 1").fetchone() is not None
        self._terms = {}
        self.recognised = set()
        self._version = self._known = version

    def terms(self, connection: Connection, task: Booked) -> tuple[Mapping[int, list[Promise]], dict[int, Lacking]]:
        """The caps that hold for a release at each price of a task, and a place for what they say of newcomers."""
        found = self._terms.get(task.number)
        if found is None:
            rows = connection.execute("SELECT * FROM promises WHERE task IN (0, ?)", (task.number,))
            caps = [Promise(*row) for row in rows]
            found = (
                {number: [cap for cap in caps if cap.level in ("", level)] for level, number in task.levels.items()},
                {},
            )
            self._terms[task.number] = found
        return found

    def forget(self) -> None:
        """Something is about to be written: until `keep`, or the next look, none of it holds."""
        self._version = None

    def keep(self, following: int) -> None:
        """Releases were written and committed, and nothing else of all this: the next one gets this number."""
        self.next, self._version = following, self._known
