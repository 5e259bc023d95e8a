"""Transactions of a ledger, and the deletion of releases that the log has confirmed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from sqlite3 import Connection

from murk.errors import MurkError
from murk.producers.ledger import outbox
from murk.producers.ledger.naming.names import Names
from murk.producers.ledger.schema import LedgerFile

TIDY_SECONDS = 1.0
"""Deleted releases stand in the write-ahead log for about so long while others are made; emptying it takes the disk
a few milliseconds."""


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
        self._left = False
        self._tidied = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether there is anything to delete."""
        return bool(self._confirmed)

    def confirm(self, numbers: Sequence[int]) -> None:
        """Delete releases that the log has.

        The disk is not waited for: what a power failure brings back is looked for on the log again.
        """
        self._confirmed.extend(outbox.ranges(numbers))
        # The log has them whatever happens here. What cannot be deleted now is with the next transaction, which says
        # what is wrong with the disk.
        with suppress(MurkError):
            self.delete_confirmed()
            if time.monotonic() - self._tidied > TIDY_SECONDS:
                self.tidy()

    def delete_confirmed(self) -> None:
        """Delete what was confirmed, where that could not be done yet."""
        if self.is_due:
            with self.write(waits=False):
                pass

    def tidy(self) -> None:
        """Empty the write-ahead log, if anything that was deleted may stand in it; not while others use the file."""
        self._tidied = time.monotonic()
        if self._left and self._file.empty_log():
            self._left = False

    @contextmanager
    def write(self, *, waits: bool = True) -> Iterator[Connection]:
        """Hold a transaction; commit at the end, or leave everything as it was.

        Without ``waits`` the commit does not wait for the disk; that is for what is found out and written again
        after a power failure.
        """
        with self._file.write(waits=waits) as connection:
            deleted = len(self._confirmed)
            outbox.remove(connection, self._confirmed)
            yield connection
        self._names.committed()
        self._left = self._left or bool(deleted)
        # After the commit only: rolled back, the bytes are still there and still to be deleted.
        del self._confirmed[:deleted]
