"""The shuffler's store: releases that wait for their crowd, in one SQLite file.

A waiting release has its crowd, its new random id, and its answer. The id decides its place in the crowd. A crowd is
cut into parts by the first bits of ids; a row has a part, sorted by id, and is written anew when releases are added. So
not even the file has the order of arrival, and a large batch costs few writes. Fingerprints of the ids under which
devices sent their releases are kept apart, for the window for duplicates only.
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

import numpy as np
from numpy.typing import NDArray

from murk._arrays import Integers, Words
from murk._files import open_own
from murk._sqlite import Database, FileKind, make_tables
from murk.errors import UserError
from murk.shuffler.window import SEEN, Window, fingerprints
from murk.stream.messages.columns import HEAD, Columns, Layout, merge
from murk.stream.messages.packed import Packed

_KEPT_MODELS = 8  # relayed models whose late answers are still taken
_PART = 64  # releases of a part of a complete crowd, on average: a page of the file or less
_PARTS = (
    256  # parts read at once, in place of a statement that stays open, and so that a crowd need not fit into memory
)
_SEEN_PART, _SEEN_PARTS = 1024, 64  # fingerprints of a part of a run, at most, on average; parts read at once
_KEY_BYTES = 16
_PLACES = 32  # bits of a part's number in its place
_MOST_BITS = 24

Place = tuple[str, int]
"""Level and version of the releases of a crowd."""


@dataclass(frozen=True, slots=True)
class Sealed:
    """A crowd that takes no more releases, and its number among the log's crowds."""

    number: int
    crowd: int
    level: str
    version: int
    count: int


@dataclass(frozen=True, slots=True)
class Open:
    """A crowd that waits for more releases, and when its first one came."""

    crowd: int
    level: str
    version: int
    count: int
    since: int


TABLES, SEEN_TABLES = (
    Path(__file__).with_name(name).read_text(encoding="utf-8") for name in ("tables.sql", "seen.sql")
)
STORE_FILE = FileKind(
    "shuffler's store",
    int.from_bytes(b"MShf"),
    3,
    f"{TABLES}\n{SEEN_TABLES}",
    earlier=(2,),
    identity="id",
    page_bytes=2**14,
)
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
            self.id = str(self._meta("id"))
            is_current = self._database.version() == STORE_FILE.version
            self._key = self._window_key(is_current)
            if not is_current:
                self._upgrade()
        except BaseException:
            os.close(self._lock)
            raise

    def _window_key(self, is_current: bool) -> Words:
        """Return the key of fingerprints: secret, so that no sender can choose ids that share one."""
        key = self._meta("window")
        if key is None and not (is_current and self._database.query("SELECT 1 FROM runs LIMIT 1")):
            key = secrets.token_hex(_KEY_BYTES)
            with self._database.write() as connection:
                connection.execute("INSERT INTO meta VALUES (?, ?)", ("window", key))
        if re.fullmatch(f"[0-9a-f]{{{2 * _KEY_BYTES}}}", key or "") is None:
            # With another key, no duplicate would be recognised.
            raise self._database.damaged("the key of its window for duplicates is not whole")
        return np.frombuffer(bytes.fromhex(str(key)), "<u8").astype(np.uint64)

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

    def window(self, partition: int, size: int) -> Window:
        """Return the window for duplicates of a partition."""

        def stored() -> Iterator[NDArray[np.void]]:
            for run, _, _, _ in self._runs(partition):
                yield from self._seen(run)

        def newest(prints: Words) -> Integers:
            found = np.full(len(prints), -1, np.int64)
            # A later run has later offsets.
            for run, _, bits, _ in self._runs(partition):
                parts = _parts_of(prints, bits)
                touched, starts = np.unique(parts, return_index=True)
                starts = np.append(starts, len(prints))
                for at in range(0, len(touched), _SEEN_PARTS):
                    these = touched[at : at + _SEEN_PARTS]
                    seen = self._as_seen(self._parts("seen FROM prints", run, these))
                    own = slice(starts[at], starts[at + len(these)])
                    known = np.ascontiguousarray(seen["print"])
                    places = np.searchsorted(known, prints[own])
                    hit = places < len(known)
                    hit[hit] = known[places[hit]] == prints[own][hit]
                    found[own][hit] = seen["offset"][places[hit]]
            return found

        return Window(size, self._key, newest, stored)

    def _runs(self, partition: int) -> list[tuple[int, int, int, int]]:
        """Return the runs of fingerprints of a partition, and their last offsets, bits and counts, oldest first."""
        found = self._database.query(
            'SELECT run, last, bits, count FROM runs WHERE "partition" = ? ORDER BY last', (partition,), (int,) * 4
        )
        if any(not (0 < run < 2 ** (63 - _PLACES) and 0 <= bits <= _MOST_BITS) for run, _, bits, _ in found):
            raise self._database.damaged("a run has an impossible number, or number of bits")
        return found

    def _seen(self, run: int) -> Iterator[NDArray[np.void]]:
        """Iterate over the fingerprints of a run, in their order."""
        place, end = (run << _PLACES) - 1, (run + 1) << _PLACES
        while rows := self._database.query(
            "SELECT place, seen FROM prints WHERE place > ? AND place < ? ORDER BY place LIMIT ?",
            (place, end, _SEEN_PARTS),
            (int, bytes),
        ):
            place = rows[-1][0]
            yield self._as_seen([seen for _, seen in rows])

    def _as_seen(self, rows: Sequence[bytes]) -> NDArray[np.void]:
        try:
            return np.frombuffer(b"".join(rows), SEEN)
        except ValueError:
            raise self._database.damaged("the ids of a run are incomplete") from None

    def _remember(
        self, connection: sqlite3.Connection, partition: int, last: int, given: NDArray[np.void], oldest: int
    ) -> None:
        """Store fingerprints up to an offset, as a run, together with runs that are not twice as long.

        So there are few runs, and each fingerprint is rarely written again. Those before the offset ``oldest`` are
        dropped.
        """
        runs, merged, count = self._runs(partition)[::-1], [], len(given)
        gone = [run for run, newest, _, _ in runs if newest < oldest]
        for run, newest, _, more in runs:
            if newest < oldest or more >= 2 * count:
                break
            merged.append(run)
            count += more
        if len(given):
            bits = min((count // _SEEN_PART).bit_length(), _MOST_BITS)
            [(new,)] = self._database.query(
                'INSERT INTO runs ("partition", last, bits, count) VALUES (?, ?, ?, 0) RETURNING run',
                (partition, last, bits),
                (int,),
            )
            count = 0
            for seen in _merged([*map(self._seen, merged[::-1]), iter([_in_order([given], oldest)])], bits, oldest):
                parts, starts = np.unique(_parts_of(seen["print"], bits), return_index=True)
                ends, count = np.append(starts[1:], len(seen)), count + len(seen)
                connection.executemany(
                    "INSERT INTO prints VALUES (?, ?)",
                    [
                        ((new << _PLACES) + part, seen[begin:end].tobytes())
                        for part, begin, end in zip(parts.tolist(), starts.tolist(), ends.tolist(), strict=True)
                    ],
                )
            connection.execute("UPDATE runs SET count = ? WHERE run = ?", (count, new))
            gone += merged
        for run in gone:
            connection.execute("DELETE FROM prints WHERE place >= ? AND place < ?", _places(run))
            connection.execute("DELETE FROM runs WHERE run = ?", (run,))

    def _upgrade(self) -> None:
        """Upgrade a store of format 2, which has the ids of the newest messages in the order of arrival."""
        with self._database.write() as connection:
            make_tables(connection, SEEN_TABLES)
            partition, last, former = -1, -1, np.dtype([("offset", "<i8"), ("id", ">u8", 2)])
            while rows := self._database.query(
                'SELECT "partition", last, ids FROM seen WHERE ("partition", last) > (?, ?) '
                'ORDER BY "partition", last LIMIT 1',
                (partition, last),
                (int, int, bytes),
            ):
                [(partition, last, ids)] = rows
                if len(ids) % former.itemsize:
                    raise self._database.damaged(f"the ids up to offset {last} are incomplete")
                seen = np.frombuffer(ids, former)
                given = np.empty(len(seen), SEEN)
                given["offset"], given["print"] = seen["offset"], fingerprints(self._key, seen["id"].astype(np.uint64))
                self._remember(connection, partition, last, given, 0)
            connection.execute("DROP TABLE seen")
            connection.execute("UPDATE meta SET value = ? WHERE key = 'format'", (STORE_FILE.version,))
        self._database.overwrite()

    def take(
        self,
        partition: int,
        offset: int,
        seen: Sequence[NDArray[np.void]],
        releases: Columns,
        ids: Words,
        counts: Mapping[str, int],
        now: int,
        window: int,
        crowd: int,
    ) -> None:
        """Take in a batch of one partition: add releases to their crowds, and move the offset, in one transaction.

        ``offset`` is the next one. ``seen`` are fingerprints of the ids of valid messages, of which those within
        ``window`` offsets are kept; ``ids`` are the random ones of the releases. A crowd is complete with ``crowd``
        releases.
        """
        with self._database.write() as connection:
            for (level, version), chosen in releases.groups("level", "version").items():
                rows = np.arange(len(releases))[chosen]
                self._add(connection, (level, version), releases, ids, rows, now, crowd)
            given = np.concatenate([np.empty(0, SEEN), *seen])
            self._remember(connection, partition, offset - 1, given, offset - window)
            connection.execute("INSERT OR REPLACE INTO places VALUES (?, ?)", (partition, offset))
            for name, count in counts.items():
                _add(connection, partition, name, count)
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
        """Add releases to the open crowd of a level and version."""
        crowd, bits = self._crowd(place, len(rows), now, size)
        high = ids[rows, 0]
        order = np.argsort(high)
        if (np.diff(high[order]) == 0).any():
            order = np.lexsort((ids[rows, 1], high))
        rows, shift = rows[order], 63 - bits
        parts = _parts_of(ids[rows, 0], bits)
        touched, starts = np.unique(parts, return_index=True)
        starts = np.append(starts, len(rows))
        asked = releases.column("question"), releases.column("item")
        given = np.frombuffer(releases.packed.data, np.uint8), releases.texts, ids, *asked
        texts = releases.texts[:, 1] - releases.texts[:, 0] + HEAD
        for at in range(0, len(touched), _PARTS):
            these = touched[at : at + _PARTS]
            new = rows[starts[at] : starts[at + len(these)]]
            known = b"".join(self._parts("records FROM waiting", crowd, these))
            out = np.empty(len(known) + int(texts[new].sum()), np.uint8)
            first, span = int(these[0]), int(these[-1] - these[0] + 1)
            ends, numbers = np.empty(span, np.int64), np.zeros(span, np.int64)
            if not merge(np.frombuffer(known, np.uint8), given, new, shift, first, out, ends, numbers):
                raise self._database.damaged("what waits for a crowd is not in order")
            begins, written = np.concatenate([[0], ends[:-1]]), out.tobytes()
            connection.executemany(
                "INSERT OR REPLACE INTO waiting VALUES (?, ?, ?)",
                [
                    ((crowd << _PLACES) + first + part, int(numbers[part]), written[begins[part] : ends[part]])
                    for part in (these - first).tolist()
                ],
            )

    def _parts(self, column: str, whole: int, parts: Integers) -> list[bytes]:
        """Return some parts of a crowd or run, in their order; with others between them, if most are."""
        first, last = whole << _PLACES | int(parts[0]), whole << _PLACES | int(parts[-1])
        query = f"SELECT {column} WHERE place BETWEEN ? AND ? ORDER BY place"
        places = [(whole << _PLACES | part,) * 2 for part in parts.tolist()]
        ranges = [(first, last)] if last - first < 2 * len(parts) else places
        return [content for each in ranges for (content,) in self._database.query(query, each, (bytes,))]

    def _crowd(self, place: Place, more: int, now: int, size: int) -> tuple[int, int]:
        """Return the open crowd of a level and version, grown by ``more``, and how many bits decide a part."""
        rows = self._database.query(
            "UPDATE crowds SET count = count + ? WHERE level = ? AND version = ? AND sealed IS NULL "
            "RETURNING crowd, bits",
            (more, *place),
            (int, int),
        )
        if not rows:
            bits = min((size // _PART).bit_length(), _MOST_BITS)
            rows = self._database.query(
                "INSERT INTO crowds (level, version, bits, count, since) VALUES (?, ?, ?, ?, ?) RETURNING crowd, bits",
                (*place, bits, more, now),
                (int, int),
            )
        crowd, bits = rows[0]
        if not (0 < crowd < 2 ** (63 - _PLACES) and 0 <= bits <= _MOST_BITS):
            raise self._database.damaged("a crowd has an impossible number, or number of bits")
        return crowd, bits

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

    def sealed(self, size: int) -> Sealed | None:
        """Return the crowd that was sealed, with ``size`` releases or more, and not deleted; there is at most one."""
        rows = self._database.query(
            "SELECT sealed, crowd, level, version, count FROM crowds WHERE sealed IS NOT NULL",
            (),
            (int, int, str, int, int),
        )
        if not rows:
            return None
        sealed = Sealed(*rows[0])
        if sealed.count < size or sealed.number != self.counts()[ALL, CROWDS] + 1:
            raise self._database.damaged(
                f"of a crowd of {size} releases it has {sealed.count}, as number {sealed.number}"
            )
        return sealed

    def messages(self, crowd: Sealed | Open, layout: Layout, time: int, expires: int) -> Iterator[tuple[int, Packed]]:
        """Iterate over the messages of a crowd, with these times and by chain, in the order of their ids."""
        last, end, found = (crowd.crowd << _PLACES) - 1, (crowd.crowd + 1) << _PLACES, 0
        before = np.zeros(2, np.uint64)
        while rows := self._database.query(
            "SELECT place, count, records FROM waiting WHERE place > ? AND place < ? ORDER BY place LIMIT ?",
            (last, end, _PARTS),
            (int, int, bytes),
        ):
            last, count = rows[-1][0], sum(count for _, count, _ in rows)
            records = np.frombuffer(b"".join([records for _, _, records in rows]), np.uint8)
            try:
                written = layout.write(records, count, crowd.level, crowd.version, time, expires, before)
            except ValueError as error:
                raise self._database.damaged(str(error)) from error
            found += count
            yield from written
        if found != crowd.count:
            raise self._database.damaged(f"of a crowd of {crowd.count} releases it has {found}")

    def delete(self, sealed: Sealed) -> None:
        """Delete and overwrite a crowd that the log has, and count it."""
        self._delete(sealed.crowd, {RELEASED: sealed.count, CROWDS: 1})

    def drop(self, crowd: Open) -> None:
        """Delete and overwrite a crowd that was not released, and count its releases."""
        self._delete(crowd.crowd, {DROPPED: crowd.count})

    def _delete(self, crowd: int, counts: Mapping[str, int]) -> None:
        with self._database.write() as connection:
            connection.execute("DELETE FROM waiting WHERE place >= ? AND place < ?", _places(crowd))
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


def _parts_of(words: Words, bits: int) -> Integers:
    """Return the parts of words: their first bits."""
    # Two shifts, as one by 64 bits is undefined.
    parts: Integers = ((words >> np.uint64(1)) >> np.uint64(63 - bits)).astype(np.int64)
    return parts


def _places(whole: int) -> tuple[int, int]:
    """Return the first place of a crowd or run, and of the next one."""
    return whole << _PLACES, (whole + 1) << _PLACES


def _in_order(pieces: Sequence[NDArray[np.void]], oldest: int) -> NDArray[np.void]:
    """Return fingerprints, given in the order of their offsets, sorted: each once, with its newest offset."""
    seen = np.concatenate(pieces)
    seen = seen[np.argsort(seen["print"], kind="stable")]
    last = np.append(seen["print"][1:] != seen["print"][:-1], True)[: len(seen)]
    return seen[last & (seen["offset"] >= oldest)]


def _merged(sources: Sequence[Iterator[NDArray[np.void]]], bits: int, oldest: int) -> Iterator[NDArray[np.void]]:
    """Merge sorted fingerprints, older ones first, some parts at a time; see `_in_order`."""
    rests = [np.empty(0, SEEN) for _ in sources]
    for first in range(0, 1 << bits, _SEEN_PARTS):
        end = (first + _SEEN_PARTS) << (64 - bits)
        pieces = []
        for i, source in enumerate(sources):
            own = [rests[i]]
            while not len(own[-1]) or int(own[-1]["print"][-1]) < end:
                if (more := next(source, None)) is None:
                    break
                own.append(more)
            whole = np.concatenate(own)
            cut = len(whole) if end >= 2**64 else int(np.searchsorted(whole["print"], np.uint64(end)))
            pieces.append(whole[:cut])
            rests[i] = whole[cut:]
        if len(seen := _in_order(pieces, oldest)):
            yield seen


def _add(connection: sqlite3.Connection, partition: int, name: str, count: int) -> None:
    connection.execute(
        'INSERT INTO counts VALUES (?, ?, ?) ON CONFLICT ("partition", name) DO UPDATE SET count = count + ?',
        (partition, name, count, count),
    )
