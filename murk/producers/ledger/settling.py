"""Transactions of a ledger: in each of them the bytes of releases are deleted that the log has confirmed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from sqlite3 import Connection

from murk.producers.ledger import outbox
from murk.producers.ledger.naming.names import Names
from murk.producers.ledger.schema import LedgerFile


class Settling:
    """Begins and ends the transactions of one open ledger.

    Parameters
    ----------
    file
        The ledger's file.
    names
        What it calls people; a key that was made gets its name after the commit.
    """

    def __init__(self, file: LedgerFile, names: Names) -> None:
        self._file, self._names = file, names
        self._confirmed: list[tuple[int, int]] = []
        self._deleted = 0

    @property
    def is_due(self) -> bool:
        """Whether there is anything to delete."""
        return bool(self._confirmed)

    def confirm(self, numbers: Sequence[int]) -> None:
        """Note that the log has these releases."""
        self._confirmed.extend(outbox.ranges(numbers))

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """Hold a transaction; commit at the end, or leave everything as it was."""
        connection = self.begin()
        try:
            yield connection
            self.commit()
        except BaseException as error:
            self.undo(error)
            raise

    def begin(self) -> Connection:
        """Begin one; `commit` or `undo` ends it."""
        connection = self._file.begin()
        try:
            self._deleted = len(self._confirmed)
            outbox.remove(connection, self._confirmed)
        except BaseException as error:
            self.undo(error)
            raise
        return connection

    def commit(self) -> None:
        """Commit."""
        self._file.commit()
        self._names.committed()
        # After the commit only: rolled back, the bytes are still there and still to be deleted.
        del self._confirmed[: self._deleted]

    def undo(self, error: BaseException) -> None:
        """Leave everything as it was; raise what an error of SQLite's means."""
        self._file.undo(error)
