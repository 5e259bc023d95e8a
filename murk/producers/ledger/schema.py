"""The ledger's file: its tables, and how it is made, opened and verified.

A missing or unreadable ledger is an error: a new ledger would let people spend again. So no ledger is made where there
has been one, and no message advises to continue without it.

The file ``LEDGER.last`` beside the ledger has the number of the last relevant write. A ledger that does not know that
write is an older copy, or has lost its ``-wal``, and is refused. An old copy of the whole folder cannot be detected.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from murk._internal.atomic_files import sync
from murk._internal.sqlite import Database, FileKind, error_name, primary_code, row_checksum
from murk.errors import MurkError, UserError
from murk.producers.ledger.costs import PRICE_COLUMNS, Cap
from murk.producers.ledger.names import DRAFT, SUFFIX

_ERROR_CODE = "MURK-LEDGER-001"

FORMAT = 1  # number of the file's format
APPLICATION = 0x4D75726C  # SQLite's application id of a ledger ("Murl")

# Size of the page cache: names come in any order, so a block may touch any page of a large ledger
CACHE_KIB = 16_384
BEYOND = (
    "Nothing was spent or sent. Only the ledger records what people have spent: keep what is left of it, and put back "
    "its newest intact copy before anything else is released"
)

LAST = ".last"
LOST = "MURK-LEDGER-002"
TABLES = Path(__file__).with_name("tables.sql").read_text(encoding="utf-8")
KIND = FileKind("ledger", APPLICATION, FORMAT, TABLES)


def _lost(what: str) -> UserError:
    return UserError(f"{what}. {BEYOND}", code=LOST)


class LedgerFile(Database):
    """A ledger's SQLite file. A missing one is made only with ``create``, without ``identity``, where none has been.

    ``timeout`` is the number of seconds to wait for another process's write.
    """

    def __init__(self, path: str | Path, *, create: bool, timeout: float, identity: str | None = None) -> None:
        self._owner = os.getpid(), threading.get_ident()
        path = Path(path)
        # Look for companion files first: a ledger that another process is making appears before its companions.
        left = [end for end in ("-wal", "-shm", SUFFIX, DRAFT) if Path(f"{path.resolve()}{end}").exists()]
        if path.is_file() and path.stat().st_size == 0:
            raise _lost(f"the ledger {path} is empty: its content was lost")
        if not path.exists():
            if left:
                raise _lost(f"the ledger {path} is gone, and its companion {path.name}{left[0]} is still there")
            if not create or identity is not None:
                raise _lost(f"there is no ledger at {path}: check the path")
            if path.parent.is_dir():
                _make(path, timeout)
        self._examined, self.is_open, self._patient = False, True, True
        super().__init__(path, KIND, create=False, timeout=timeout)
        try:
            self.query(f"PRAGMA cache_size = -{CACHE_KIB}")
            self._examine()
            self._examined = True
            self.identity = str(self.query("SELECT value FROM meta WHERE key = 'identity'")[0][0])
            if identity is not None and identity != self.identity:
                raise UserError(
                    f"{self.path} is not the ledger that was used here before and that records what people have spent "
                    f"(its identity begins with {self.identity[:8]}, not {identity[:8]}): give the path of that ledger",
                    code="MURK-LEDGER-003",
                )
            self._check_newest()
        except BaseException:
            self.close()
            raise

    def check(self) -> None:
        """Raise an error if the file was replaced, or if another process or thread opened it."""
        self.check_owner()
        if self.is_writing:
            raise MurkError("one block of releases must be done before the next begins")
        super().check()
        if not self._patient:
            # An interrupt came before the flag was reset.
            self._wait_again()

    def note_last(self, number: int) -> None:
        """Write a committed write's number to a file beside the ledger, for `_check_newest`; ignore a full disk."""
        # Written without a sync: a power failure leaves a smaller number, which refuses less.
        with suppress(OSError):
            handle = os.open(self._last_path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                os.pwrite(handle, f"{self.identity} {number:020d}".encode(), 0)
            finally:
                os.close(handle)

    @property
    def _last_path(self) -> Path:
        return Path(f"{self.path.resolve()}{LAST}")

    def _check_newest(self) -> None:
        """Raise an error if the ledger does not know the last write that was noted beside it."""
        noted = self._last_path.read_text().split() if self._last_path.exists() else []
        next_number = int(self.query("SELECT value FROM meta WHERE key = 'next'")[0][0])
        if len(noted) == 2 and noted[0] == self.identity and noted[1].isdigit() and int(noted[1]) > next_number:
            later = f"{self._last_path.name} beside it knows {int(noted[1]) - next_number:,} later writes"
            raise _lost(f"the ledger {self.path} is an older copy, or has lost its -wal: {later}")

    @property
    def closed_on(self) -> int | None:
        """Day on which the ledger was closed (seconds since 1970), or None."""
        rows = self.query("SELECT value FROM meta WHERE key = 'closed'")
        return int(rows[0][0]) if rows else None

    def was_closed(self) -> UserError:
        """Return the error for a closed ledger."""
        return UserError(
            f"the ledger {self.path} was closed: its accounts are deleted, and nobody releases with it. Its people may "
            "be asked again only by a new task that they agree to, with a new ledger"
        )

    def empty_log(self) -> bool:
        """Empty the write-ahead log, which holds deleted rows until then; False if another process prevents it."""
        self.check()
        self._patient = False
        try:
            self._connection.execute("PRAGMA busy_timeout = 0")
            return not self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.Error as error:
            raise self._explained(error) from error
        finally:
            self._wait_again()

    def _wait_again(self) -> None:
        self._connection.execute(f"PRAGMA busy_timeout = {round(1000 * self._timeout)}")
        self._patient = True

    def close(self) -> None:
        """Close the file. Closing twice is allowed."""
        self.is_open = False
        if self._owner == (os.getpid(), threading.get_ident()):
            super().close()

    def __reduce__(self) -> NoReturn:
        raise MurkError("an open ledger cannot be copied or pickled: open it by its path where it is needed")

    def check_owner(self) -> None:
        """Raise an error in any process or thread but the one that opened the file."""
        # SQLite's locks do not survive a fork: two processes on one connection could spend the same units.
        if self._owner != (os.getpid(), threading.get_ident()):
            raise MurkError(
                f"the ledger {self.path} was opened by another process or thread: open it again in the one that uses it"
            )

    def _verify(self) -> None:
        if self._pragma("application_id") != APPLICATION:
            raise _lost(f"{self.path} is a database of something else, not a ledger")
        if (other := self._other_version()) is not None:
            raise other

    def _of_version(self, version: object) -> UserError:
        return UserError(
            f"the ledger {self.path} was written by another version of Murk (format "
            f"{'unknown' if version is None else version}; this one reads format {FORMAT}): "
            f"use the version that wrote it. {BEYOND}",
            code="MURK-LEDGER-004",
        )

    def _examine(self) -> None:
        """Read the whole file once, as damage that is found in the middle of a transaction is found too late."""
        if self.query("PRAGMA quick_check(1)") != [("ok",)]:
            raise self.damaged("its pages do not fit together")
        for table, columns in (("promises", Cap.columns), ("tariffs", PRICE_COLUMNS)):
            for *row, check in self.query(f'SELECT {columns}, "check" FROM {table}'):
                if check != row_checksum(table, *row):
                    raise self.damaged(f"a row of the table {table} does not fit its checksum")
        tally = """
            SELECT tariff, sum(debited), sum(released) FROM (
                SELECT tariff, count(*) AS debited, 0 AS released FROM debits GROUP BY tariff
                UNION ALL SELECT tariff, 0, sum(released) FROM spending GROUP BY tariff)
            GROUP BY tariff"""
        if any(debited != released for _, debited, released in self.query(tally)):
            raise self.damaged("its debits and its accounts do not agree")

    def damaged(self, what: str) -> UserError:
        """Return the error for a damaged ledger."""
        return _lost(f"the ledger {self.path} is damaged ({what})")

    def _explained(self, error: Exception) -> Exception:
        name = error_name(error)
        match primary_code(error):
            case sqlite3.SQLITE_CONSTRAINT if name == "SQLITE_CONSTRAINT_TRIGGER":
                return self.was_closed()
            case sqlite3.SQLITE_NOTADB:
                return _lost(f"{self.path} is not a ledger, or its beginning was destroyed")

            case sqlite3.SQLITE_CORRUPT:
                return self.damaged(name or "unreadable")
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
                return MurkError(f"the ledger {self.path} is read-only for this user: make it and its folder writable")
            case sqlite3.SQLITE_ERROR if not self._examined:
                return self.damaged("its tables are not the ones that Murk makes")
            case _:
                return super()._explained(error)


class _Draft(Database):
    """A ledger that is being made; errors name its final path."""

    def __init__(self, draft: Path, path: Path, timeout: float) -> None:
        self._becomes = path
        super().__init__(draft, KIND, timeout=timeout)

    def finish(self) -> None:
        """Write everything into the ledger's one file, or raise an error: closing it does not report a full disk."""
        try:
            self.query("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self.close()

    def _explained(self, error: Exception) -> Exception:
        self.path = self._becomes
        return super()._explained(error)


def _make(path: Path, timeout: float) -> None:
    """Make a ledger under another name and link it to its path.

    A process that dies meanwhile leaves no partial ledger, which would have to be refused forever. If two processes
    make the same ledger, the slower one finds the other's.
    """
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        # The file is readable by its owner only: no noise protects who takes part.
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        _Draft(draft, path, timeout).finish()
        sync(draft)
        os.link(draft, path)
        sync(path.parent)
    except FileExistsError:
        if not path.exists():
            raise
    except OSError as error:
        raise MurkError(
            f"the ledger {path} cannot be made ({error.strerror}): its directory must be writable, and its "
            "file system must have hard links"
        ) from error
    finally:
        for end in ("", "-wal", "-shm"):
            Path(f"{draft}{end}").unlink(missing_ok=True)
