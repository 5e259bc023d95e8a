"""The shuffler's store: releases that wait for their crowd, in one SQLite file.

A waiting release has its crowd, a random key, the chain and the message that will be released, without its times. The
key decides its place in the crowd. Rows are ordered by key, so that not even the file has the order of arrival. The ids
under which devices sent their releases are kept apart, for the window for duplicates only.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path

from murk._files import open_own
from murk._sqlite import Database, FileKind
from murk.errors import UserError
from murk.stream.log.base import Message
from murk.stream.messages.wire import DuplicateWindow

_KEPT_MODELS = 8  # relayed models whose late answers are still taken
_READ = 1024  # rows read at once, in place of a statement that stays open
_SEEN = struct.Struct("<q16s")
_TIMES = b'"time":0,"expires":0'
"""The times in a waiting message; all of a crowd get the same ones."""


Place = tuple[str, int]
"""Level and version of the releases of a crowd."""

Waiting = tuple[bytes, int, bytes]
"""Random key of 16 bytes, chain and message of a waiting release."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """A crowd that takes no more releases, and its number among the log's crowds."""

    number: int
    crowd: int
    count: int


@dataclass(frozen=True, slots=True)
class Open:
    """A crowd that waits for more releases, and when its first one came."""

    crowd: int
    level: str
    version: int
    count: int
    since: int


TABLES = Path(__file__).with_name("tables.sql").read_text(encoding="utf-8")
STORE_FILE = FileKind("shuffler's store", int.from_bytes(b"MShf"), 1, TABLES, identity="id")
RELEASED, CROWDS, DROPPED, DUPLICATES = "released", "crowds", "dropped", "duplicates"
ALL = -1  # place of counts that belong to no partition


class Store:
    """Releases that wait for their crowds; raise `UserError` if another process, log or task uses the store."""

    def __init__(self, path: str | Path, *, timeout: float = 30.0) -> None:
        self.path = Path(path)
        self._lock = open_own(Path(f"{path}.lock"), os.O_RDWR | os.O_CREAT)
        try:
            flock(self._lock, LOCK_EX | LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise UserError(
                f"another `murk shuffle` uses the store {path}: stop it first, or give this one another --store"
            ) from None
        try:
            self._database = Database(path, STORE_FILE, timeout=timeout)
        except BaseException:
            os.close(self._lock)
            raise
        self.id = str(self._meta("id"))

    def bind(self, names: Mapping[str, str]) -> None:
        """Bind the store to logs and a task, by their identities; raise `UserError` if it has others."""
        known = {name: self._meta(name) for name in names}
        for name, value in names.items():
            if known[name] not in (None, value):
                raise UserError(
                    f"the store {self.path} belongs to another {name}: give the --store of these logs, or a path "
                    "where there is none"
                )
        if None in known.values():
            with self._database.write() as connection:
                connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(names.items()))

    # What has arrived

    def offset(self, partition: int) -> int | None:
        """Return the first offset that was not taken in from a partition of the intake; None at first."""
        rows = self._database.query('SELECT "offset" FROM places WHERE "partition" = ?', (partition,), (int,))
        return int(rows[0][0]) if rows else None

    def start_at(self, offsets: Sequence[int]) -> None:
        """Begin at these offsets of the partitions, where the store does not know any."""
        with self._database.write() as connection:
            connection.executemany("INSERT OR IGNORE INTO places VALUES (?, ?)", list(enumerate(offsets)))

    def window(self, partition: int, size: int) -> DuplicateWindow:
        """Return the window for duplicates of a partition."""
        window = DuplicateWindow(size)
        for last, ids in self._database.query(
            'SELECT last, ids FROM seen WHERE "partition" = ? ORDER BY last', (partition,), (int, bytes)
        ):
            if len(ids) % _SEEN.size:
                raise self._database.damaged(f"the ids up to offset {last} are incomplete")
            for offset, identifier in _SEEN.iter_unpack(ids):
                window.seen(offset, identifier.hex())
        return window

    def take(
        self,
        partition: int,
        messages: Sequence[Message],
        ids: Iterable[tuple[int, str]],
        waiting: Mapping[Place, Sequence[Waiting]],
        counts: Mapping[str, int],
        now: int,
        window: int,
    ) -> None:
        """Take in a batch of one partition: add releases to their crowds, and move the offset, in one transaction.

        ``ids`` are the offsets and ids of valid messages, of which those within ``window`` offsets are kept;
        the messages of ``waiting`` have times 0.
        """
        offset = messages[-1].offset + 1
        with self._database.write() as connection:
            for place, releases in waiting.items():
                crowd = self._crowd(connection, place, len(releases), now)
                rows = [(crowd, *release) for release in releases]
                # In the order of the table, which is faster.
                connection.executemany("INSERT INTO waiting VALUES (?, ?, ?, ?)", sorted(rows))
            packed = b"".join([_SEEN.pack(at, bytes.fromhex(identifier)) for at, identifier in ids])
            connection.execute("INSERT INTO seen VALUES (?, ?, ?)", (partition, offset - 1, packed))
            connection.execute('DELETE FROM seen WHERE "partition" = ? AND last < ?', (partition, offset - window))
            connection.execute("INSERT OR REPLACE INTO places VALUES (?, ?)", (partition, offset))
            for name, count in counts.items():
                _add(connection, partition, name, count)

    def _crowd(self, connection: sqlite3.Connection, place: Place, more: int, now: int) -> int:
        """Return the open crowd of a level and version, grown by ``more``."""
        rows = connection.execute(
            "UPDATE crowds SET count = count + ? WHERE level = ? AND version = ? AND sealed IS NULL RETURNING crowd",
            (more, *place),
        ).fetchall()
        if not rows:
            rows = connection.execute(
                "INSERT INTO crowds (level, version, count, since) VALUES (?, ?, ?, ?) RETURNING crowd",
                (*place, more, now),
            ).fetchall()
        return int(rows[0][0])

    # Crowds

    def open_crowds(self) -> list[Open]:
        """Return the crowds that wait for more releases."""
        rows = self._database.query(
            "SELECT crowd, level, version, count, since FROM crowds WHERE sealed IS NULL ORDER BY crowd",
            (),
            (int, str, int, int, int),
        )
        return [Open(*row) for row in rows]

    def seal(self, crowd: int, number: int) -> None:
        """Close a crowd, as the log's crowd of a number: releases that come now wait for another one."""
        with self._database.write() as connection:
            connection.execute("UPDATE crowds SET sealed = ? WHERE crowd = ? AND sealed IS NULL", (number, crowd))

    def sealed(self) -> Sealed | None:
        """Return the crowd that was sealed and not deleted yet; there is at most one."""
        rows = self._database.query("SELECT sealed, crowd, count FROM crowds WHERE sealed IS NOT NULL", (), (int,) * 3)
        return Sealed(*rows[0]) if rows else None

    def messages(self, sealed: Sealed, time: int, expires: int) -> Iterator[tuple[int, bytes]]:
        """Iterate over the (chain, message) pairs of a sealed crowd, with these times, in the order of their keys."""
        times = b'"time":%d,"expires":%d' % (time, expires)
        last = b""
        # Page by page, so that no statement stays open and a crowd need not fit into memory.
        while rows := self._database.query(
            "SELECT key, chain, message FROM waiting WHERE crowd = ? AND key > ? ORDER BY key LIMIT ?",
            (sealed.crowd, last, _READ),
            (bytes, int, bytes),
        ):
            for _, chain, message in rows:
                yield chain, message.replace(_TIMES, times, 1)
            last = rows[-1][0]

    def delete(self, sealed: Sealed) -> None:
        """Delete and overwrite a crowd that the log has, and count it."""
        self._delete(sealed.crowd, {RELEASED: sealed.count, CROWDS: 1})

    def drop(self, crowd: Open) -> None:
        """Delete and overwrite a crowd that was not released, and count its releases."""
        self._delete(crowd.crowd, {DROPPED: crowd.count})

    def _delete(self, crowd: int, counts: Mapping[str, int]) -> None:
        with self._database.write() as connection:
            connection.execute("DELETE FROM waiting WHERE crowd = ?", (crowd,))
            connection.execute("DELETE FROM crowds WHERE crowd = ?", (crowd,))
            for name, count in counts.items():
                _add(connection, ALL, name, count)
        self._database.overwrite()

    # Models and counts

    def models(self) -> dict[int, bytes]:
        """Return the newest relayed models by version."""
        rows = self._database.query("SELECT version, message FROM models ORDER BY version", (), (int, bytes))
        return dict(rows)

    def add_model(self, version: int, message: bytes) -> None:
        """Keep a model before it is relayed, and forget the oldest of more than eight."""
        with self._database.write() as connection:
            connection.execute("INSERT INTO models VALUES (?, ?)", (version, message))
            connection.execute(
                "DELETE FROM models WHERE version NOT IN (SELECT version FROM models ORDER BY version DESC LIMIT ?)",
                (_KEPT_MODELS,),
            )

    def counts(self) -> Counter[tuple[int, str]]:
        """Return all counts by partition (-1: no partition) and name."""
        rows = self._database.query('SELECT "partition", name, count FROM counts', (), (int, str, int))
        return Counter({(partition, name): count for partition, name, count in rows})

    def close(self) -> None:
        """Close the file and let other processes use it."""
        self._database.close()
        with suppress(OSError):
            os.close(self._lock)

    def _meta(self, key: str) -> str | None:
        rows = self._database.query("SELECT value FROM meta WHERE key = ?", (key,), (str,))
        return rows[0][0] if rows else None


def _add(connection: sqlite3.Connection, partition: int, name: str, count: int) -> None:
    connection.execute(
        'INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT ("partition", name) DO UPDATE SET count = count + ?',
        (partition, name, count, count),
    )
