"""Files and frames of records, by the numbers that a ledger gives them."""

from __future__ import annotations

from sqlite3 import Connection

from murk.producers.ledger.naming.names import Names


class Sources:
    """Numbers of the records that people of one open ledger release from.

    Parameters
    ----------
    names
        What it calls them.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._numbers: dict[str, int] = {}

    def number(self, connection: Connection, digest: str | None) -> int:
        """Number of records by their digest, given to them if they are new; 0 for those that come from no file."""
        if digest is None:
            return 0
        known = self._numbers.get(digest)
        if known is None:
            called = self._names.source(digest, connection)
            row = connection.execute("SELECT number FROM sources WHERE digest = ?", (called,)).fetchone()
            if row is None:
                # Not remembered here: the transaction may still be rolled back.
                added = connection.execute("INSERT INTO sources (digest) VALUES (?)", (called,))
                return int(added.lastrowid or 0)
            known = self._numbers[digest] = int(row[0])
        return known
