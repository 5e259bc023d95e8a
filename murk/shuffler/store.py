"""The shuffler's store: releases that wait for their crowd, in one SQLite file.

A waiting release has its crowd, its new random id, and its answer. The id decides its place in the crowd. A crowd is
cut into parts by the first bits of ids; a row has a part, sorted by id, and is written anew when releases are added. So
not even the file has the order of arrival, and a large batch costs few writes. Fingerprints of the ids under which
devices sent their releases are kept apart, 8 bytes for each, until the releases expire: a repeated one is recognised.
Every row has a checksum, so that a damaged file is refused and no answer is altered.
"""

from __future__ import annotations

import os
import re
import secrets
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from typing import Any, Final

import numpy as np

from murk._internal.arrays import Integers, Words
from murk._internal.atomic_files import open_own
from murk._internal.sqlite import Database, FileKind, Kinds, row_checksum
from murk.errors import UserError
from murk.shuffler.duplicates import Window
from murk.stream.wire.columns import HEAD, Columns, Layout, merge
from murk.stream.wire.duplicates import contained, ends_of
from murk.stream.wire.packed import Packed

_ERROR_CODE = "MURK-SHUFFLE-001"

_PART = 64  # releases of a part of a complete crowd, on average: a page of the file or less
_PARTS = 256  # parts read at once, so that no statement stays open and a crowd need not fit into memory
_SEEN_PART, _SEEN_PARTS = 1024, 64  # fingerprints of a part of a run, at most, on average; parts read at once
_PRINT = np.dtype("<u8")
_NOTHING = np.empty(0, np.uint64), np.empty(0, np.int64)
_KEY_BYTES = 16
_PLACES = 32  # number of bits of a part's number within the key of its row
_MOST_BITS = 24

Place = tuple[str, int]
"""Level of the releases of a crowd, and their version or, of releases without versions, the cell of known columns."""


@dataclass(frozen=True, slots=True)
class SealedCrowd:
    """A crowd that takes no more releases, and its number among the log's crowds."""

    number: int
    crowd: int
    level: str
    version: int
    count: int


@dataclass(frozen=True, slots=True)
class OpenCrowd:
    """A crowd that waits for more releases, and when its first one came."""

    crowd: int
    level: str
    version: int
    count: int
    since: int


@dataclass(frozen=True, slots=True)
class Relayed:
    """A model that was relayed to devices, and when, in seconds since 1970."""

    message: bytes
    since: int


TABLES = Path(__file__).with_name("tables.sql").read_text(encoding="utf-8")
STORE_FILE = FileKind(
    "shuffler's store",
    int.from_bytes(b"MShf"),
    1,
    TABLES,
    identity="id",
    page_bytes=2**14,
    holds="what people have sent",
)
_COLUMNS: Final[Mapping[str, Mapping[str, Kinds]]] = {
    "places": {'"partition"': int, '"offset"': int},
    "crowds": {
        "crowd": int,
        "level": str,
        "version": int,
        "bits": int,
        "count": int,
        "since": int,
        "sealed": (int, type(None)),
    },
    "waiting": {"place": int, "count": int, "records": bytes},
    "models": {"version": int, "message": bytes, "since": int},
    "counts": {'"partition"': int, "name": str, "count": int},
    "runs": {"run": int, "until": int, "bits": int, "count": int},
    "prints": {"place": int, "seen": bytes},
}
RELEASED, CROWDS, DROPPED, DUPLICATES = "released", "crowds", "dropped", "duplicates"
CLOSED, FORGOTTEN = "closed below", "forgotten until"
"""Names of two numbers that only grow: the first version whose answers are taken in, and the time up to which ids of
expired releases may have been forgotten."""
ALL = -1  # stands for the partition in counts that belong to none


class Store:
    """Releases that wait for their crowds; raise `UserError` if another process, log or task uses the store."""

    def __init__(self, path: str | Path) -> None:
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
            self._database = Database(path, STORE_FILE)
            self.id = str(self._meta("id"))
            self._key = self._window_key()
        except BaseException:
            os.close(self._lock)
            raise

    def _window_key(self) -> Words:
        """Return the key of fingerprints: secret, so that no sender can choose ids that share one."""
        stored = self._meta("window")
        if stored is None and not self._rows("runs", "LIMIT 1"):
            key = secrets.token_hex(_KEY_BYTES)
            stored = f"{key}:{row_checksum('window', key)}"
            with self._database.write() as connection:
                connection.execute("INSERT INTO meta VALUES (?, ?)", ("window", stored))
        key, _, check = str(stored).partition(":")
        if re.fullmatch(f"[0-9a-f]{{{2 * _KEY_BYTES}}}", key) is None or check != f"{row_checksum('window', key)}":
            # With another key, no duplicate would be recognised.
            raise self._database.damaged("the key of its memory of releases is not whole")
        return np.frombuffer(bytes.fromhex(key), "<u8").astype(np.uint64)

    def bind(self, names: Mapping[str, str]) -> None:
        """Bind the store to logs and a task, by their identities; raise `UserError` if it has others."""
        stored = {name: self._meta(name) for name in names}
        for name, value in names.items():
            if stored[name] not in (None, value):
                raise UserError(
                    f"the store {self.path} belongs to another {name}: give the --store of these logs, or a path "
                    "where there is none"
                )
        if None in stored.values():
            with self._database.write() as connection:
                connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list(names.items()))

    # What has arrived

    def offset(self, partition: int) -> int | None:
        """Return the first offset that was not taken in from a partition of the input log; None at first."""
        offset: int | None = dict(self._rows("places")).get(partition)
        return offset

    def start_at(self, offsets: Sequence[int]) -> None:
        """Begin at these offsets in the partitions for which the store has no offset."""
        with self._database.write() as connection:
            for partition, offset in enumerate(offsets):
                if self.offset(partition) is None:
                    _put(connection, "places", partition, offset)

    def window(self) -> Window:
        """Return the memory of releases that have not expired."""

        def stored() -> Iterator[Words]:
            for run, _, _, _ in self._runs():
                yield from self._seen(run)

        def has(prints: Words) -> Any:
            seen = np.zeros(len(prints), np.bool_)
            for run, _, bits, _ in self._runs():
                parts = _parts_of(prints, bits)
                touched, starts = np.unique(parts, return_index=True)
                starts = np.append(starts, len(prints))
                for at in range(0, len(touched), _SEEN_PARTS):
                    these = touched[at : at + _SEEN_PARTS]
                    run_prints = self._as_prints(self._parts("prints", run, these))
                    span = slice(starts[at], starts[at + len(these)])
                    seen[span] |= contained(prints[span], run_prints)
            return seen

        return Window(self._key, has, stored, lambda: sum(count for _, _, _, count in self._runs()))

    @property
    def forgotten(self) -> int:
        """Time up to which ids may have been forgotten: a release that expires by then may be a duplicate."""
        return self._number(FORGOTTEN)

    def forget(self, before: int, *, unseen: int = 0) -> None:
        """Forget ids of releases that expired before a time; ids that expire up to ``unseen`` were never known."""
        gone = [(run, until) for run, until, _, _ in self._runs() if until < before]
        if gone or unseen > self.forgotten:
            with self._database.write() as connection:
                self._raise_number(connection, FORGOTTEN, max([unseen, *(until for _, until in gone)]))
                for run, _ in gone:
                    self._delete_run(connection, run)
            self._database.overwrite()

    def _runs(self) -> list[tuple[int, int, int, int]]:
        """Return the stored runs of fingerprints, oldest first: number, time of expiry, bits of a part, count."""
        return self._rows("runs", "ORDER BY run")

    def _seen(self, run: int) -> Iterator[Words]:
        """Iterate over the fingerprints of a run, in their order."""
        index, end, count = (run << _PLACES) - 1, (run + 1) << _PLACES, 0
        while rows := self._rows(
            "prints", "WHERE place > ? AND place < ? ORDER BY place LIMIT ?", (index, end, _SEEN_PARTS)
        ):
            index = rows[-1][0]
            count += len(prints := self._as_prints([seen for _, seen in rows]))
            yield prints
        if count != sum(number for each, _, _, number in self._runs() if each == run):
            raise self._database.damaged("the ids of a run are incomplete")

    def _as_prints(self, rows: Sequence[bytes]) -> Words:
        return np.frombuffer(b"".join(rows), _PRINT).astype(np.uint64)

    def _remember(self, connection: sqlite3.Connection, until: int, given: Words) -> None:
        """Store fingerprints that expire up to a time as a run, together with runs that are not twice as long.

        So there are few runs, and each fingerprint is rarely written again.
        """
        merged, count = [], len(given)
        for run, its, _, more in self._runs()[::-1]:
            if its == until:
                if more >= 2 * count:
                    break
                merged.append(run)
                count += more
        bits = min((count // _SEEN_PART).bit_length(), _MOST_BITS)
        new, total = _new(connection, "runs", until, bits, 0), 0
        for prints in _merged([*map(self._seen, merged), iter([np.sort(given)])], bits):
            parts, starts = np.unique(_parts_of(prints, bits), return_index=True)
            ends, total = np.append(starts[1:], len(prints)), total + len(prints)
            for part, begin, end in zip(parts.tolist(), starts.tolist(), ends.tolist(), strict=True):
                _put(connection, "prints", (new << _PLACES) + part, prints[begin:end].astype(_PRINT).tobytes())
        _put(connection, "runs", new, until, bits, total)
        for run in merged:
            self._delete_run(connection, run)

    def _delete_run(self, connection: sqlite3.Connection, run: int) -> None:
        connection.execute("DELETE FROM prints WHERE place >= ? AND place < ?", _places(run))
        connection.execute("DELETE FROM runs WHERE run = ?", (run,))

    def take(
        self,
        partition: int,
        offset: int,
        given: Sequence[tuple[Words, Integers]],
        period: int,
        releases: Columns,
        crowds: Mapping[Place, Integers | slice],
        ids: Words,
        counts: Mapping[str, int],
        now: int,
        crowd: int,
    ) -> None:
        """Take in a batch of one partition: add releases to their crowds, and move the offset, in one transaction.

        ``offset`` is the next one. ``given`` are fingerprints of the ids of valid messages with their times of expiry:
        each is remembered until the end of the ``period`` in which it expires; ``crowds`` are the indices of the
        releases of each crowd, and ``ids`` their random ones. A crowd is complete with ``crowd`` releases.
        """
        with self._database.write() as connection:
            for level_and_version, chosen in crowds.items():
                rows = np.arange(len(releases))[chosen]
                self._add(connection, level_and_version, releases, ids, rows, now, crowd)
            prints, expires = map(np.concatenate, zip(_NOTHING, *given, strict=True))
            ends = ends_of(expires, period)
            for end in np.unique(ends).tolist():
                self._remember(connection, end, prints[ends == end])
            _put(connection, "places", partition, offset)
            for name, count in counts.items():
                self._count(connection, partition, name, count)
        # SQLite's write-ahead log would replay the order of arrival.
        self._database.overwrite()

    def _add(
        self,
        connection: sqlite3.Connection,
        place: Place,
        releases: Columns,
        ids: Words,
        rows: Integers,
        now: int,
        size: int,
    ) -> None:
        """Add releases to the open crowd of a place."""
        crowd, bits = self._crowd(connection, place, len(rows), now, size)
        high = ids[rows, 0]
        order = np.argsort(high)
        if (np.diff(high[order]) == 0).any():
            order = np.lexsort((ids[rows, 1], high))
        rows, shift = rows[order], 63 - bits
        parts = _parts_of(ids[rows, 0], bits)
        touched, starts = np.unique(parts, return_index=True)
        starts = np.append(starts, len(rows))
        asked = releases.column("query"), releases.column("item")
        given = np.frombuffer(releases.packed.data, np.uint8), releases.texts, ids, *asked
        texts = releases.texts[:, 1] - releases.texts[:, 0] + HEAD
        for at in range(0, len(touched), _PARTS):
            these = touched[at : at + _PARTS]
            new = rows[starts[at] : starts[at + len(these)]]
            stored = b"".join(self._parts("waiting", crowd, these))
            out = np.empty(len(stored) + int(texts[new].sum()), np.uint8)
            first, span = int(these[0]), int(these[-1] - these[0] + 1)
            ends, numbers = np.empty(span, np.int64), np.zeros(span, np.int64)
            if not merge(np.frombuffer(stored, np.uint8), given, new, shift, first, out, ends, numbers):
                raise self._database.damaged("what waits for a crowd is not in order")
            begins, written = np.concatenate([[0], ends[:-1]]), out.tobytes()
            for part in (these - first).tolist():
                records = written[begins[part] : ends[part]]
                _put(connection, "waiting", (crowd << _PLACES) + first + part, int(numbers[part]), records)

    def _parts(self, table: str, whole: int, parts: Integers) -> list[bytes]:
        """Return ``parts`` of a crowd or run, in their order; if they are at least half of a range, the whole range."""
        first, last = whole << _PLACES | int(parts[0]), whole << _PLACES | int(parts[-1])
        indices = [(whole << _PLACES | part,) * 2 for part in parts.tolist()]
        ranges = [(first, last)] if last - first < 2 * len(parts) else indices
        query = "WHERE place BETWEEN ? AND ? ORDER BY place"
        return [row[-1] for each in ranges for row in self._rows(table, query, each)]

    def _crowd(self, connection: sqlite3.Connection, place: Place, more: int, now: int, size: int) -> tuple[int, int]:
        """Return the open crowd of a place, grown by ``more``, and how many bits decide a part."""
        rows = self._rows("crowds", "WHERE level = ? AND version = ? AND sealed IS NULL", place)
        if not rows:
            bits = min((size // _PART).bit_length(), _MOST_BITS)
            rows = [(_new(connection, "crowds", *place, bits, 0, now, None), *place, bits, 0, now, None)]
        [(crowd, _, _, bits, count, since, _)] = rows
        _put(connection, "crowds", crowd, *place, bits, count + more, since, None)
        return crowd, bits

    # Crowds

    def open_crowds(self) -> list[OpenCrowd]:
        """Return the crowds that wait for more releases."""
        return [OpenCrowd(*row[:3], *row[4:6]) for row in self._rows("crowds", "WHERE sealed IS NULL ORDER BY crowd")]

    def seal(self, crowd: int, number: int) -> None:
        """Close a crowd, which becomes the log's crowd ``number``: later releases wait for another crowd.

        Earlier versions are closed, too, since a later version has now had its first crowd.
        """
        with self._database.write() as connection:
            for *row, sealed in self._rows("crowds", "WHERE crowd = ?", (crowd,)):
                if sealed is None:
                    _put(connection, "crowds", *row, number)
                    self._raise_number(connection, CLOSED, row[2])

    def sealed(self, size: int) -> SealedCrowd | None:
        """Return the crowd that was sealed, with ``size`` releases or more, and not deleted; there is at most one."""
        rows = self._rows("crowds", "WHERE sealed IS NOT NULL")
        if not rows:
            return None
        crowd, level, version, _, count, _, number = rows[0]
        if count < size or number != self.counts()[ALL, CROWDS] + 1:
            raise self._database.damaged(f"of a crowd of {size} releases it has {count}, as number {number}")
        return SealedCrowd(number, crowd, level, version, count)

    def messages(
        self, crowd: SealedCrowd | OpenCrowd, layout: Layout, time: int, expires: int
    ) -> Iterator[tuple[int, Packed]]:
        """Iterate over the messages of a crowd, with these times and their partitions, in the order of their ids."""
        last, end, yielded = (crowd.crowd << _PLACES) - 1, (crowd.crowd + 1) << _PLACES, 0
        before = np.zeros(2, np.uint64)
        while rows := self._rows(
            "waiting", "WHERE place > ? AND place < ? ORDER BY place LIMIT ?", (last, end, _PARTS)
        ):
            last, count = rows[-1][0], sum(count for _, count, _ in rows)
            records = np.frombuffer(b"".join([records for _, _, records in rows]), np.uint8)
            try:
                written = layout.write(records, count, crowd.level, crowd.version, time, expires, before)
            except ValueError as error:
                raise self._database.damaged(str(error)) from error
            yielded += count
            yield from written
        if yielded != crowd.count:
            raise self._database.damaged(f"of a crowd of {crowd.count} releases it has {yielded}")

    def delete(self, sealed: SealedCrowd) -> None:
        """Delete and overwrite a crowd that the log has, and count it."""
        self._delete(sealed.crowd, {RELEASED: sealed.count, CROWDS: 1})

    def drop(self, crowd: OpenCrowd) -> None:
        """Delete and overwrite a crowd that was not released, and count its releases."""
        self._delete(crowd.crowd, {DROPPED: crowd.count})

    def _delete(self, crowd: int, counts: Mapping[str, int]) -> None:
        with self._database.write() as connection:
            connection.execute("DELETE FROM waiting WHERE place >= ? AND place < ?", _places(crowd))
            connection.execute("DELETE FROM crowds WHERE crowd = ?", (crowd,))
            for name, count in counts.items():
                self._count(connection, ALL, name, count)
        self._database.overwrite()

    # Models and counts

    def models(self) -> dict[int, Relayed]:
        """Return the relayed models whose answers are still taken in, by version."""
        return {
            version: Relayed(message, since) for version, message, since in self._rows("models", "ORDER BY version")
        }

    def add_model(self, version: int, message: bytes, now: int) -> None:
        """Keep a model before it is relayed."""
        with self._database.write() as connection:
            _put(connection, "models", version, message, now)

    @property
    def closed(self) -> int:
        """The first version whose answers are taken in."""
        return self._number(CLOSED)

    def close_below(self, version: int) -> None:
        """Take no further answers at earlier versions, and forget their models."""
        with self._database.write() as connection:
            self._raise_number(connection, CLOSED, version)
            connection.execute("DELETE FROM models WHERE version < ?", (version,))

    def counts(self) -> Counter[tuple[int, str]]:
        """Return all counts by partition (-1: no partition) and name."""
        return Counter({(partition, name): count for partition, name, count in self._rows("counts")})

    def _number(self, name: str) -> int:
        rows = self._rows("counts", 'WHERE "partition" = ? AND name = ?', (ALL, name))
        return int(rows[0][2]) if rows else 0

    def _raise_number(self, connection: sqlite3.Connection, name: str, to: int) -> None:
        if to > self._number(name):
            _put(connection, "counts", ALL, name, to)

    def _count(self, connection: sqlite3.Connection, partition: int, name: str, more: int) -> None:
        rows = self._rows("counts", 'WHERE "partition" = ? AND name = ?', (partition, name))
        _put(connection, "counts", partition, name, more + (rows[0][2] if rows else 0))

    def close(self) -> None:
        """Close the file and let other processes use it."""
        self._database.close()
        with suppress(OSError):
            os.close(self._lock)

    def _meta(self, key: str) -> str | None:
        rows = self._database.query("SELECT value FROM meta WHERE key = ?", (key,), (str,))
        return rows[0][0] if rows else None

    def _rows(self, table: str, where: str = "", values: Sequence[Any] = ()) -> list[Any]:
        """Return rows of a table, without their checksums; raise `UserError` if one is damaged."""
        columns = _COLUMNS[table]
        query = f'SELECT {", ".join(columns)}, "check" FROM {table} {where}'
        rows = self._database.query(query, tuple(values), (*columns.values(), int))
        if any(row_checksum(table, *row) != check for *row, check in rows):
            raise self._database.damaged(f"a row of the table {table} does not fit its checksum")
        return [row[:-1] for row in rows]


def _put(connection: sqlite3.Connection, table: str, *row: object) -> None:
    """Write a whole row, in place of an earlier row with its key."""
    marks = ", ".join("?" * len(row))
    connection.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks}, ?)", (*row, row_checksum(table, *row)))


def _new(connection: sqlite3.Connection, table: str, *row: object) -> int:
    """Write a row under a number that was never used in its table, and return the number."""
    marks = ", ".join("?" * len(row))
    number = connection.execute(f"INSERT INTO {table} VALUES (NULL, {marks}, 0)", row).lastrowid
    assert number is not None
    _put(connection, table, number, *row)
    return number


def _parts_of(words: Words, bits: int) -> Integers:
    """Return the parts of words: their first bits."""
    # Two shifts, as one by 64 bits is undefined.
    parts: Integers = ((words >> np.uint64(1)) >> np.uint64(63 - bits)).astype(np.int64)
    return parts


def _places(whole: int) -> tuple[int, int]:
    """Return the first place of a crowd or run, and of the next one."""
    return whole << _PLACES, (whole + 1) << _PLACES


def _merged(sources: Sequence[Iterator[Words]], bits: int) -> Iterator[Words]:
    """Merge sorted fingerprints, some parts at a time."""
    rests = [np.empty(0, np.uint64) for _ in sources]
    for first in range(0, 1 << bits, _SEEN_PARTS):
        end = (first + _SEEN_PARTS) << (64 - bits)
        pieces = []
        for i, source in enumerate(sources):
            parts = [rests[i]]
            while not len(parts[-1]) or int(parts[-1][-1]) < end:
                if (more := next(source, None)) is None:
                    break
                parts.append(more)
            whole = np.concatenate(parts)
            cut = len(whole) if end >= 2**64 else int(np.searchsorted(whole, np.uint64(end)))
            pieces.append(whole[:cut])
            rests[i] = whole[cut:]
        if len(prints := np.unique(np.concatenate(pieces))):
            yield prints
