"""SQLite files of a known kind, checked when opened and written in short exclusive transactions.

A file of a different kind or version is refused and left unchanged. SQLite's errors become messages with a remedy.
"""

import os
import secrets
import sqlite3
import time
import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any
from urllib.parse import quote

from murk._internal.atomic_files import warn_if_exposed
from murk.errors import MurkError, UserError

_ERROR_CODE = "MURK-FILE-001"

Kinds = type | tuple[type, ...]
"""Types that values of a column may have."""

# SQLite's message about a damaged file may quote bytes that are not UTF-8.
_ERRORS = (sqlite3.Error, UnicodeDecodeError)
_SIZED = (bytes, str)
_FETCH = 32  # rows fetched at once within a budget of bytes
_LEAST_BYTES = 512  # SQLite's smallest page
_WAL_BYTES = 2**22  # size at which the write-ahead log is copied into the file


@dataclass(frozen=True, slots=True)
class FileKind:
    """A kind of file: how it is recognised and created."""

    noun: str  # name for messages ("log")
    application_id: int  # SQLite's application id, a 32-bit integer in the file's header
    version: int  # version of the file's format, stored under ``format`` in the table ``meta``
    tables: str  # statements that create its tables, other than ``meta``
    identity: str = "identity"  # key of the file's random identity in ``meta``
    page_bytes: int = 4096  # size of a page of a new file: large ones suit large writes
    holds: str = ""  # what others would learn from the file; if set, only its owner may read it


def make_tables(connection: sqlite3.Connection, tables: str) -> None:
    """Execute the statements of an SQL file, each of which ends a line with a semicolon."""
    for statement in tables.split(";\n"):
        if statement.strip():
            connection.execute(statement)


class _Block:
    """Marker that lives as long as a transaction's block, to detect a transaction that an interrupt left open."""

    __slots__ = ("__weakref__",)


class Database:
    """An open SQLite file of one kind, in WAL mode with ``synchronous=FULL``.

    With ``create`` a missing file is created; without, opening changes nothing. ``timeout`` is how many seconds to wait
    for another process's write. Raises UserError if the file is missing (with ``create=False``), foreign, damaged or of
    another version; MurkError if it cannot be opened, read or written.
    """

    def __init__(self, path: str | Path, kind: FileKind, *, create: bool = True, timeout: float = 30.0) -> None:
        self.path = Path(path)
        self._name = str(path)
        self.kind = kind
        self._timeout = timeout
        self._immutable = False
        self._waits: bool | None = None
        self._block: Callable[[], _Block | None] = lambda: None
        try:
            self._check_path(create)
        except OSError as error:
            remedy = "check the path and the permissions of its directories"
            raise MurkError(f"{self.path} cannot be reached ({error.strerror}): {remedy}") from error
        try:
            self._connection = self._connect(create)
        except _ERRORS as error:
            raise self._explained(error) from error
        self._file = self._inode()
        if kind.holds:
            warn_if_exposed(self.path, kind.holds)
        try:
            self._recognise(create)
        except BaseException as error:
            # Before closing: the file's version may explain the error.
            explained = self._explained(error) if isinstance(error, _ERRORS) else error
            self._connection.close()
            if explained is not error:
                raise explained from error
            raise

    def query(self, sql: str, values: tuple[Any, ...] = (), kinds: Sequence[Kinds] = ()) -> list[Any]:
        """Run a reading statement and return its rows, checking the types of columns against ``kinds``."""
        self.check()
        try:
            return self._checked(self._connection.execute(sql, values).fetchall(), kinds)
        except _ERRORS as error:
            raise self._explained(error) from error

    def rows(self, sql: str, values: tuple[Any, ...], budget: int, kinds: Sequence[Kinds] = ()) -> list[Any]:
        """Run a reading statement, and stop after the row whose last column exhausts a budget of bytes."""
        self.check()
        rows: list[Any] = []
        try:
            cursor = self._connection.execute(sql, values)
            while budget > 0 and (batch := cursor.fetchmany(_FETCH)):
                # Values of other types are refused below.
                sizes = [len(row[-1]) if isinstance(row[-1], _SIZED) else 1 for row in batch]
                left = budget - sum(sizes)
                if left <= 0:
                    cursor.close()
                    batch = batch[: bisect_left([*accumulate(sizes)], budget) + 1]
                rows += batch
                budget = left
        except _ERRORS as error:
            raise self._explained(error) from error
        return self._checked(rows, kinds)

    def _checked(self, rows: list[Any], kinds: Sequence[Kinds]) -> list[Any]:
        """Check types of read values: SQLite checks only writes, and a damaged page may hold anything."""
        if not kinds:
            return rows
        for column, kind in zip(zip(*rows, strict=True), kinds, strict=False):
            if not all(issubclass(value_type, kind) for value_type in set(map(type, column))):
                raise self.damaged_cell()
        return rows

    def damaged_cell(self) -> UserError:
        """Return the error for a cell of the wrong type."""
        return self.damaged("a value does not have the type of its column")

    def version(self) -> object:
        """Read the version of the file's format; None if it is missing."""
        rows = self._connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchall()
        return rows[0][0] if rows else None

    @contextmanager
    def write(self, *, waits: bool = True) -> Iterator[sqlite3.Connection]:
        """Hold the file's write lock; commit at the end, on disk if ``waits``, or roll back on any exception."""
        self.check()
        block = _Block()
        self._block = weakref.ref(block)
        try:
            if waits is not self._waits:
                # Forget the setting first: an interrupt may come before the change.
                self._waits = None
                self._connection.execute(f"PRAGMA synchronous = {'FULL' if waits else 'NORMAL'}")
                self._waits = waits
            self._connection.execute("BEGIN IMMEDIATE")
            yield self._connection
            self._connection.execute("COMMIT")
        except BaseException as error:
            # A closed connection has rolled back already.
            with suppress(sqlite3.ProgrammingError):
                self._roll_back()
            if isinstance(error, _ERRORS):
                raise self._explained(error) from error
            raise

    def overwrite(self) -> None:
        """Copy the write-ahead log into the file and empty it, so that neither has deleted content.

        While another process reads, this has no effect, and the next call tries again.
        """
        try:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except _ERRORS as error:
            raise self._explained(error) from error

    @property
    def is_writing(self) -> bool:
        """Whether a transaction is open; one left open by an interrupt is rolled back first."""
        if self._connection.in_transaction and self._block() is None:
            self._roll_back()
        return self._connection.in_transaction

    def _roll_back(self) -> None:
        # After some errors, such as a full disk, SQLite has rolled back already.
        if self._connection.in_transaction:
            self._connection.execute("ROLLBACK")

    def check(self) -> None:
        """Raise `MurkError` if the open file was deleted or replaced, since writes to it would be lost."""
        problem = ""
        if self._inode() != self._file:
            remedy = "Stop the other processes that use it, put the file back, and start again"
            problem = f"was deleted or replaced while it was in use. {remedy}"
        elif self._immutable and self._wal().exists():
            problem = "was opened for reading while no process wrote to it, and now one does: open it again"
        if problem:
            raise MurkError(f"the {self.kind.noun} {self.path} {problem}", code="MURK-FILE-006")

    def close(self) -> None:
        """Close the file; closing twice is allowed."""
        self._connection.close()

    def _check_path(self, create: bool) -> None:
        """Check the path first, since SQLite's own error is only 'unable to open database file'."""
        noun = self.kind.noun
        if self.path.is_dir():
            raise UserError(f"{self.path} is a directory: name a file for the {noun}")
        if self.path.exists():
            # SQLite treats a file of one byte as empty and would overwrite it.
            if 0 < self.path.stat().st_size < _LEAST_BYTES:
                raise self._not_a_database()
            return
        if not create:
            raise UserError(
                f"there is no {noun} at {self.path}: check the path, or create the {noun} first",
                code="MURK-LOG-004" if noun == "log" else None,
            )
        if not self.path.parent.is_dir():
            raise UserError(
                f"the directory {self.path.parent} for the {noun} {self.path.name} does not exist: create "
                "it, or check the path (an absolute one begins with /; in a URL, sqlite:////PATH)"
            )

    def _connect(self, create: bool) -> sqlite3.Connection:
        address = f"file:{quote(os.fsencode(self.path.absolute()))}"
        if create:
            # Only the owner may read the file; the write-ahead log gets the same mode.
            with suppress(OSError):
                os.close(os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
            options = "mode=rwc"
        elif os.access(self.path, os.W_OK):
            options = "mode=rw"
        elif os.access(self.path.parent, os.W_OK) or self._wal().exists():
            options = "mode=ro"
        else:
            # Nobody is writing, and this process cannot create the WAL's shared-memory file: SQLite then reads only
            # an immutable file.
            options = "mode=ro&immutable=1"
            self._immutable = True
        return sqlite3.connect(f"{address}?{options}", uri=True, timeout=self._timeout, isolation_level=None)

    def _recognise(self, create: bool) -> None:
        self._connection.execute("PRAGMA synchronous = FULL")
        self._waits = True
        self._connection.execute("PRAGMA trusted_schema = OFF")
        # Only some builds of SQLite overwrite deleted content by default.
        self._connection.execute("PRAGMA secure_delete = ON")
        if self._is_empty():
            if not create:
                raise UserError(f"{self.path} is empty, not a {self.kind.noun}: check the path", code="MURK-FILE-002")
            self._connection.execute(f"PRAGMA page_size = {self.kind.page_bytes}")
            self._use_wal()
            self._fill()
        self._verify()
        if create:
            self._use_wal()
        # This setting is of the connection only, and changes no file.
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_BYTES // self._pragma('page_size')}")

    def _is_empty(self) -> bool:
        count = self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        return bool(count == 0 and self._pragma("application_id") == 0 and self._pragma("user_version") == 0)

    def _fill(self) -> None:
        with self.write() as connection:
            # Another process may have created the tables meanwhile.
            if self._is_empty():
                connection.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID")
                connection.execute("INSERT INTO meta VALUES ('format', ?)", (self.kind.version,))
                make_tables(connection, self.kind.tables)
                connection.execute("INSERT INTO meta VALUES (?, ?)", (self.kind.identity, secrets.token_hex(16)))
                connection.execute(f"PRAGMA application_id = {self.kind.application_id}")

    def _verify(self) -> None:
        application_id = self._pragma("application_id")
        if application_id != self.kind.application_id:
            raise UserError(
                f"{self.path} is an SQLite database of something else (application id {application_id}), "
                f"not a {self.kind.noun}; it was left as it is. Name another file",
                code="MURK-FILE-002",
            )
        if (other := self._other_version()) is not None:
            raise other

    def _other_version(self) -> UserError | None:
        version = self.version()
        return None if version == self.kind.version else self._of_version(version)

    def _of_version(self, version: object) -> UserError:
        """Return the error for a format that this version cannot read."""
        return UserError(
            f"the {self.kind.noun} {self.path} was written by another version of Murk (format {version}, while this "
            f"one reads format {self.kind.version}); it was left as it is. Use the version that wrote it, or another "
            f"{self.kind.noun}",
            code="MURK-FILE-003",
        )

    def _use_wal(self) -> None:
        """Turn the write-ahead log on, waiting for other processes, which SQLite does not do for this statement."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                mode = self._connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            except sqlite3.OperationalError as error:
                if primary_code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
                continue
            if mode != "wal":
                raise MurkError(
                    f"{self.path} lies on a file system without the shared memory that SQLite's WAL needs "
                    f"(journal mode {mode}): put the {self.kind.noun} on a local disk"
                )
            return

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    def _wal(self) -> Path:
        return Path(f"{self.path}-wal")

    def _inode(self) -> tuple[int, int] | None:
        try:
            status = os.stat(self._name)
        except OSError:
            return None
        return status.st_dev, status.st_ino

    def _explained(self, error: Exception) -> Exception:
        """Return the error to raise: one with file and remedy, or SQLite's own if it shows a bug."""
        name = f"the {self.kind.noun} {self.path}"
        detail = error_name(error) or str(error)
        match primary_code(error):
            case sqlite3.SQLITE_FULL:
                return MurkError(
                    f"the disk is full: {name} could not be written and stays as it was before this write. "
                    "Free some space and start again: nothing is lost",
                    code="MURK-FILE-004",
                )
            case sqlite3.SQLITE_IOERR:
                return MurkError(
                    f"the disk failed while {name} was in use ({detail}). The {self.kind.noun} stays as it was before "
                    "this write. Check the disk, its quota and the limit on file sizes, and start again",
                    code="MURK-FILE-004",
                )
            case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
                return MurkError(
                    f"{name} is read-only for this user ({detail}): make the file and its directory "
                    "writable, or work on a copy"
                )
            case sqlite3.SQLITE_CANTOPEN:
                return MurkError(
                    f"{name} cannot be opened ({detail}): this user must be able to read and write "
                    "the file and to create files beside it, on a disk that is not mounted read-only"
                )
            case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED | sqlite3.SQLITE_PROTOCOL:
                # SQLITE_PROTOCOL: another process stopped while it took a lock.
                return MurkError(
                    f"another process kept {name} locked for more than {self._timeout:g} s: "
                    "wait until it is done, or stop it",
                    code="MURK-FILE-005",
                )
            case sqlite3.SQLITE_NOTADB:
                return self._not_a_database()
            case sqlite3.SQLITE_CORRUPT:
                return self.damaged(detail)
            case sqlite3.SQLITE_ERROR | 0 if isinstance(error, sqlite3.OperationalError | UnicodeDecodeError):
                # Missing tables or columns, or text that is not UTF-8: another version may have written the file.
                with suppress(*_ERRORS):
                    if (other := self._other_version()) is not None:
                        return other
                return self.damaged(ascii(str(error))[1:-1])
            case sqlite3.SQLITE_CONSTRAINT | sqlite3.SQLITE_TOOBIG:
                # Murk writes nothing that violates its tables, so existing content must be damaged.
                return self.damaged(ascii(str(error))[1:-1])
            case _:
                return error

    def damaged(self, what: str) -> UserError:
        """Return the error for a damaged file."""
        return UserError(
            f"the {self.kind.noun} {self.path} is damaged ({what}) and was left as it is: restore it from a copy",
            code="MURK-FILE-002",
        )

    def _not_a_database(self) -> UserError:
        return UserError(
            f"{self.path} is not a {self.kind.noun}: it is not an SQLite database, or its beginning "
            "was destroyed; it was left as it is. Name another file, or restore it from a copy",
            code="MURK-FILE-002",
        )


def row_checksum(table: str, *row: object) -> int:
    """Return the checksum of a table's row, by which reading notices a damaged disk."""
    digest = blake2b(table.encode(), digest_size=7)
    for value in row:
        data = value if isinstance(value, bytes) else repr(value).encode()
        digest.update(b"%d:" % len(data))
        digest.update(data)
    return int.from_bytes(digest.digest())


def primary_code(error: Exception) -> int:
    """Return SQLite's primary result code; 0 for an error that the module `sqlite3` itself raises."""
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def error_name(error: Exception) -> str:
    """Return SQLite's name of an error; empty for one that the module `sqlite3` itself raises."""
    return str(getattr(error, "sqlite_errorname", ""))
