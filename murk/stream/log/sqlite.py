"""The embedded log: one SQLite file, for one machine.

Every append and commit is one transaction with ``synchronous=FULL``, which survives a power failure. Readers need no
lock (WAL). A number, the *epoch*, identifies a partition's owner: taking the partition over increments it, and a commit
first checks, within its transaction, that its epoch is current. A row of the table ``batches`` holds up to
`BATCH_MESSAGES` messages of one append, since writing a row takes as long as all other work on a release.
"""

from __future__ import annotations

import sqlite3
import struct
import time
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, count, repeat
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

from murk._internal.atomic_files import exposure
from murk._internal.sqlite import Database, FileKind
from murk.errors import UserError
from murk.stream.log import interface as base
from murk.stream.log.interface import Checkpoint, CrowdMark, Dead, DeadLetter, Log, Message, Ownership
from murk.stream.wire.codec import KEY
from murk.task.task import check_task_change

if TYPE_CHECKING:
    from murk.stream.wire.packed import Fetched, Packed

_ERROR_CODE = "MURK-LOG-001"

VERSION = 1  # version of the file's format
BATCH_BYTES = 64 * 2**10  # largest size of a row with more than one message
BATCH_MESSAGES = 256  # largest number of messages of a row
READ_BYTES = 16 * 2**20  # a read stops after this many bytes of messages, so that a hostile log cannot exhaust memory
TRIM_CHUNK = 10_000  # number of messages removed in one transaction, which bounds how long appends wait
HEARD = 0.01  # seconds for which a device reuses a model it has read
_SIZE = 4
_MARK = "shuffled"  # key under which the shuffler and its number of crowds are stored
_DEAD_PAGE = 256
_OFFSET = itemgetter(0)
_LAST = 2**63 - 1
# The batch that holds the first requested message and later batches; none where that message does not exist.
_READ = (
    'SELECT "offset", time, number, "check", value FROM batches WHERE "partition" = ? AND "offset" < ? AND "offset" >= '
    'coalesce((SELECT max("offset") FROM batches WHERE "partition" = ? AND "offset" <= ?), 0) '
    'AND EXISTS (SELECT 1 FROM streams WHERE "partition" = ? AND ? BETWEEN begin AND "end" - 1) ORDER BY "offset"'
)
# One statement, so that model and end are of the same moment.
_MODEL_AND_END = (
    'SELECT message, models."check", begin, "end", streams."check" FROM streams LEFT JOIN models USING ("partition") '
    'WHERE "partition" = ?'
)


TABLES = Path(__file__).with_name("tables.sql").read_text(encoding="utf-8")
LOG_FILE = FileKind("log", int.from_bytes(b"MLog"), VERSION, TABLES, page_bytes=2**14)


def checksum(value: bytes, *numbers: int) -> int:
    """Return the checksum of a row's bytes and numbers, by which reading notices a damaged disk."""
    return crc32(value, crc32(struct.pack(f"<{len(numbers)}q", *numbers)))


def pack(values: Sequence[bytes]) -> Iterator[tuple[int, bytes]]:
    r"""Pack messages into rows; yield the number of messages and the content of each row.

    The content is the message itself if there is one; otherwise the sizes of all messages as unsigned 32-bit
    little-endian integers, then the messages.

    >>> [*pack([b"one", b"three"])]
    [(2, b'\x03\x00\x00\x00\x05\x00\x00\x00onethree')]
    """
    return _rows_of(b"".join(values), [*map(len, values)])


def _rows_of(data: bytes, sizes: Sequence[int]) -> Iterator[tuple[int, bytes]]:
    """Pack messages, given one after another, into rows."""
    ends = [*accumulate(map(_SIZE.__add__, sizes))]
    first, used = 0, 0
    while first < len(sizes):
        fitting = bisect_right(ends, used + BATCH_BYTES)
        last = max(first + 1, min(fitting, first + BATCH_MESSAGES))
        number, end = last - first, ends[last - 1]
        content = data[used - _SIZE * first : end - _SIZE * last]
        yield number, content if number == 1 else struct.pack(f"<{number}I", *sizes[first:last]) + content
        first, used = last, end


def unpack(rows: Iterable[tuple[int, int, int, bytes]]) -> list[Message]:
    """Unpack rows (first offset, time, number of messages, content); raise `ValueError` when one is damaged."""
    # Faster than `Message._make`.
    new = tuple.__new__
    messages: list[Message] = []
    end = -1
    for offset, appended, number, value in rows:
        if offset < end:
            raise ValueError("a batch begins within another")
        if number == 1:
            messages.append(new(Message, (offset, appended, value)))
        else:
            ends = [*accumulate(_sizes(number, value), initial=_SIZE * number)]
            values = map(value.__getitem__, map(slice, ends, ends[1:]))
            messages += map(new, repeat(Message), zip(count(offset), repeat(appended), values, strict=False))
        end = offset + number
    return messages


def _sizes(number: int, value: bytes) -> tuple[int, ...]:
    """Return the sizes of a row's messages."""
    if not (1 < number <= BATCH_MESSAGES and _SIZE * number <= len(value)):
        raise ValueError("a batch does not have the number of messages that it states")
    sizes = struct.unpack_from(f"<{number}I", value)
    if _SIZE * number + sum(sizes) != len(value):
        raise ValueError("the lengths of a batch and of its messages differ")
    return sizes


class _States:
    """The table of the partitions' states: those of the task's own learner, or those of a model."""

    def __init__(self, model: str | None) -> None:
        self.model = model
        self.table = "states" if model is None else "model_states"
        self.estimate_key = KEY.decode() if model is None else f"{KEY.decode()} {model}"

    def checkpoints(self, database: Database, partition: int, epoch: int | None = None) -> list[Checkpoint]:
        """Return a partition's committed checkpoint; [] if there is none, or a given epoch is not the current one."""
        where, values = self.condition(partition, epoch)
        kinds = ((bytes, type(None)), int, int)
        rows = database.query(f'SELECT state, "offset", "check" FROM {self.table} WHERE {where}', values, kinds)
        for state, offset, check in rows:
            _compare(database, self.table, check, state or b"", partition, offset)
        return [
            self.first(database, partition) if self.model and state is None else Checkpoint(state, offset)
            for state, offset, _ in rows
        ]

    def first(self, database: Database, partition: int) -> Checkpoint:
        """Return a model's first offset, that of the oldest message, since a model may be fitted late."""
        extent = _extent(database, partition)
        return Checkpoint(None, 0 if extent is None else extent[0])

    def condition(self, partition: int, epoch: int | None = None) -> tuple[str, tuple[Any, ...]]:
        of_task = self.model is None
        where, values = (
            ("partition = ?", (partition,)) if of_task else ("partition = ? AND model = ?", (partition, self.model))
        )
        return (where, values) if epoch is None else (f"{where} AND epoch = ?", (*values, epoch))

    def take(self, connection: sqlite3.Connection, partition: int) -> int | None:
        """Begin the next epoch of a partition and return its number; None if the log has no such partition."""
        if self.model is not None:
            row = self.model, partition, checksum(b"", partition, 0)
            connection.execute("INSERT OR IGNORE INTO model_states VALUES (?, ?, 0, 0, NULL, ?)", row)
        where, values = self.condition(partition)
        update = f"UPDATE {self.table} SET epoch = epoch + 1 WHERE {where} RETURNING epoch"
        rows = connection.execute(update, values).fetchall()
        return int(rows[0][0]) if rows else None


def _compare(database: Database, table: str, check: int, value: bytes, *numbers: int) -> None:
    """Raise `UserError` if a row does not fit its checksum."""
    if check != checksum(value, *numbers):
        raise database.damaged(f"a row of the table {table} does not fit its checksum")


def _extent(database: Database, partition: int) -> tuple[int, int] | None:
    """Return a partition's first offset and its end; None if the partition is missing."""
    query = 'SELECT begin, "end", "check" FROM streams WHERE "partition" = ?'
    for begin, end, check in database.query(query, (partition,), (int, int, int)):
        _compare(database, "streams", check, b"", partition, begin, end)
        return begin, end
    return None


def _put_extent(connection: sqlite3.Connection, partition: int, begin: int, end: int) -> None:
    row = partition, begin, end, checksum(b"", partition, begin, end)
    connection.execute("INSERT OR REPLACE INTO streams VALUES (?, ?, ?, ?)", row)


def _put_model(connection: sqlite3.Connection, partition: int, message: bytes) -> None:
    row = partition, message, checksum(message, partition)
    connection.execute("INSERT OR REPLACE INTO models VALUES (?, ?, ?)", row)


def _dead_check(letter: DeadLetter) -> int:
    words = f"{letter.reason}\0{letter.detail}\0".encode()
    return checksum(words + letter.value, letter.partition, letter.offset)


class _Epoch(Ownership):
    """Ownership of a partition: the epoch that its row of states had when the partition was acquired."""

    def __init__(
        self, url: str, database: Database, partition: int, epoch: int, clock: Callable[[], float], states: _States
    ) -> None:
        self.partition, self._url, self._database = partition, url, database
        self._epoch, self._clock, self._states = epoch, clock, states

    def load(self) -> Checkpoint:
        rows = self._states.checkpoints(self._database, self.partition, self._epoch)
        if not rows:
            raise base.taken_over(self.partition, self._url)
        return rows[0]

    def commit(
        self, state: bytes, offset: int, dead: Dead = (), model: bytes | None = None, estimate: bytes | None = None
    ) -> None:
        where, values = self._states.condition(self.partition, self._epoch)
        with self._database.write() as connection:
            written = connection.execute(
                f'UPDATE {self._states.table} SET state = ?, "offset" = ?, "check" = ? WHERE {where}',
                (state, offset, checksum(state, self.partition, offset), *values),
            ).rowcount
            if written != 1:
                raise base.taken_over(self.partition, self._url)
            # The task's own learner lists dead letters; a model only counts them.
            if dead and self._states.model is None:
                now = int(self._clock())
                connection.executemany(
                    "INSERT OR REPLACE INTO dead_letters VALUES (?, ?, ?, ?, ?, ?, ?)",
                    [(d.partition, d.offset, now, d.reason, d.detail, d.value, _dead_check(d)) for d in dead],
                )
            if model is not None:
                _put_model(connection, self.partition, model)
            if estimate is not None:
                row = self._states.estimate_key, estimate, checksum(estimate)
                connection.execute("INSERT OR REPLACE INTO estimates VALUES (?, ?, ?)", row)

    def close(self) -> None:
        pass  # the epoch stays until another process takes the partition over


class SqliteLog(Log):
    """The embedded log in one SQLite file on a local disk (WAL); `open_log` opens it by URL.

    ``create`` makes a missing file. ``clock`` gives seconds since 1970, recorded with every message; ``timeout`` is how
    many seconds to wait for another process's write. ``model`` names the model whose states are used, if not the task's
    own.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        create: bool = True,
        clock: Callable[[], float] = time.time,
        timeout: float = 30.0,
        model: str | None = None,
    ) -> None:
        self.url, self.model_name = f"sqlite:///{path}", model
        self._states, self._clock = _States(model), clock
        self._database = Database(path, LOG_FILE, create=create, timeout=timeout)
        [(identity,)] = self._database.query("SELECT value FROM meta WHERE key = 'identity'", (), (str,))
        self._identity = str(identity)
        self._heard: dict[int, tuple[float, tuple[bytes | None, int]]] = {}

    @property
    def identity(self) -> str:
        return self._identity

    def prepare(self, document: bytes) -> None:
        pass  # the file is all that is needed

    def register_task(self, document: bytes) -> None:
        # Without a change nothing is written, so that a read-only log can be used.
        if check_task_change(self.url, self.document(), document) is None:
            return
        with self._database.write() as connection:
            task = check_task_change(self.url, self.document(), document)
            if task is not None:
                self._put_meta(connection, "document", document)
                rows = [(number, checksum(b"", number, 0, 0)) for number in range(task.log.partitions)]
                connection.executemany("INSERT OR IGNORE INTO streams VALUES (?, 0, 0, ?)", rows)
                rows = [(number, checksum(b"", number, 0)) for number in range(task.log.partitions)]
                connection.executemany("INSERT OR IGNORE INTO states VALUES (?, 0, 0, NULL, ?)", rows)
        self._registered = task

    def document(self) -> bytes | None:
        return self._meta("document")

    def append(self, batch: Sequence[tuple[int, bytes]]) -> None:
        base.check_sizes(batch)
        messages: defaultdict[int, list[bytes]] = defaultdict(list)
        for partition, value in batch:
            messages[partition].append(value)
        for partition in messages:
            base.check_partition(self, partition)
        if not messages:
            return
        with self._database.write() as connection:
            if self.crowd_mark() is not None:
                raise base.not_an_input_log(self.url)
            now = int(self._clock())  # read under the lock, so that times grow with offsets
            for partition, values in messages.items():
                self._insert(connection, partition, len(values), pack(values), now)

    def _insert(
        self, connection: sqlite3.Connection, partition: int, count: int, rows: Iterable[tuple[int, bytes]], now: int
    ) -> None:
        begin, offset = self._whole_extent(partition)
        _put_extent(connection, partition, begin, offset + count)
        for number, value in rows:
            row = (partition, offset, now, value, number, checksum(value, partition, offset, now, number))
            connection.execute("INSERT INTO batches VALUES (?, ?, ?, ?, ?, ?)", row)
            offset += number

    def exposed(self) -> str:
        return exposure(self._database.path)

    def crowd_mark(self) -> CrowdMark | None:
        return CrowdMark.read(self._meta(_MARK))

    def claim(self, shuffler: str, *, replace: bool = False) -> CrowdMark:
        with self._database.write() as connection:
            mark = self.crowd_mark()
            if base.check_claim(self.url, mark, shuffler, replace, any(self.ends())):
                mark = CrowdMark(shuffler, 0)
                self._put_meta(connection, _MARK, mark.encoded)
        assert mark is not None
        return mark

    def append_crowd(self, messages: Iterable[tuple[int, Packed]], mark: CrowdMark) -> None:
        with self._database.write() as connection:
            base.check_mark(self.url, self.crowd_mark(), mark)
            now = int(self._clock())
            for partition, packed in messages:
                base.check_size(int(packed.sizes.max(initial=0)))
                self._insert(connection, partition, len(packed), _rows_of(packed.data, packed.sizes.tolist()), now)
            self._put_meta(connection, _MARK, mark.encoded)

    def discard(self, partition: int, offset: int) -> None:
        base.check_partition(self, partition)
        begin, offset = self.begin(partition), min(offset, self.end(partition))
        if begin >= offset:
            return
        while begin < offset:
            begin = min(begin + TRIM_CHUNK, offset)
            self._trim_to(partition, begin)
        self._database.overwrite()

    def read(self, partition: int, offset: int, limit: int) -> list[Message]:
        rows, end = self._rows(partition, offset, limit)
        try:
            messages = unpack(rows)
        except ValueError as error:
            raise self._database.damaged(str(error)) from error
        messages = messages[bisect_left(messages, offset, key=_OFFSET) : bisect_left(messages, end, key=_OFFSET)]
        if not messages or messages[0].offset != offset:
            base.check_range(self, partition, offset)
        return messages

    def fetch(self, partition: int, offset: int, limit: int) -> Fetched:
        import numpy as np

        from murk.stream.wire.packed import Fetched, Packed

        rows, end = self._rows(partition, offset, limit)
        offsets: list[int] = []
        times: list[int] = []
        sizes: list[int] = []
        pieces: list[bytes] = []
        try:
            for first, appended, number, value in rows:
                if offsets and first <= offsets[-1]:
                    raise ValueError("a batch begins within another")
                own, head = ((len(value),), 0) if number == 1 else (_sizes(number, value), _SIZE * number)
                # The first and the last row may have messages outside the range.
                begin, stop = max(offset - first, 0), min(end - first, number)
                offsets += range(first + begin, first + stop)
                times += repeat(appended, stop - begin)
                sizes += own[begin:stop]
                pieces.append(value[head + sum(own[:begin]) : head + sum(own[:stop])])
        except ValueError as error:
            raise self._database.damaged(str(error)) from error
        if not offsets or offsets[0] != offset:
            base.check_range(self, partition, offset)
        packed = Packed(b"".join(pieces), np.cumsum(sizes, dtype=np.int64))
        return Fetched(np.array(offsets, np.int64), np.array(times, np.int64), packed)

    def _rows(self, partition: int, offset: int, limit: int) -> tuple[list[Any], int]:
        """Return the rows that hold messages from an offset on, and the offset at which to stop."""
        base.check_partition(self, partition)
        end = min(offset + max(limit, 0), _LAST)
        values = (partition, end, partition, offset, partition, offset)
        rows = self._database.rows(_READ, values, READ_BYTES, (int, int, int, int, bytes))
        for first, appended, number, check, value in rows:
            _compare(self._database, "batches", check, value, partition, first, appended, number)
        return [(first, appended, number, value) for first, appended, number, _, value in rows], end

    def begin(self, partition: int) -> int:
        base.check_partition(self, partition)
        return self._whole_extent(partition)[0]

    def end(self, partition: int) -> int:
        base.check_partition(self, partition)
        return self._whole_extent(partition)[1]

    def publish(self, partition: int, message: bytes) -> None:
        base.check_partition(self, partition)
        with self._database.write() as connection:
            _put_model(connection, partition, message)
        self._heard.pop(partition, None)

    def model(self, partition: int) -> bytes | None:
        base.check_partition(self, partition)
        query = 'SELECT message, "check" FROM models WHERE partition = ?'
        rows = self._database.query(query, (partition,), (bytes, int))
        return self._whole_model(partition, *rows[0]) if rows else None

    def _whole_model(self, partition: int, message: bytes, check: int) -> bytes:
        _compare(self._database, "models", check, message, partition)
        return message

    def time_bounds(self) -> tuple[float, float]:
        now = self._clock()
        return now, now

    def cached_model(self, partition: int) -> tuple[bytes | None, int]:
        """Return a partition's newest model and its end, at most `HEARD` seconds old if not simulated."""
        now = time.monotonic()
        heard = self._heard.get(partition)
        if heard is not None and now - heard[0] < HEARD:
            self._database.check()
            return heard[1]
        rows = self._database.query(_MODEL_AND_END, (partition,))
        if not rows:
            base.check_partition(self, partition)
            raise self._incomplete(partition)
        message, check, begin, end, extent_check = rows[0]
        if not (message is None or type(message) is bytes) or type(begin) is not int or type(end) is not int:
            raise self._database.damaged_cell()
        _compare(self._database, "streams", extent_check, b"", partition, begin, end)
        row = None if message is None else self._whole_model(partition, message, check), end
        if not self.simulated:
            self._heard[partition] = now, row
        return row

    @property
    def takes_estimates(self) -> bool:
        return True

    def estimate(self) -> bytes | None:
        key = (self._states.estimate_key,)
        query = 'SELECT message, "check" FROM estimates WHERE key = ?'
        for message, check in self._database.query(query, key, (bytes, int)):
            _compare(self._database, "estimates", check, message)
            return bytes(message)
        return None

    def checkpoint(self, partition: int) -> Checkpoint:
        base.check_partition(self, partition)
        rows = self._states.checkpoints(self._database, partition)
        if rows:
            return rows[0]
        if self.model_name is not None:
            return self._states.first(self._database, partition)
        raise self._incomplete(partition)

    def acquire(self, partition: int) -> Ownership:
        base.check_partition(self, partition)
        with self._database.write() as connection:
            epoch = self._states.take(connection, partition)
        if epoch is None:
            raise self._incomplete(partition)
        return _Epoch(self.url, self._database, partition, epoch, self._clock, self._states)

    def dead_letters(self, partition: int | None = None) -> Iterator[DeadLetter]:
        partitions = range(self.partitions) if partition is None else [partition]
        for number in partitions:
            base.check_partition(self, number)
            last = -1
            # Page by page: a statement that stays open prevents WAL checkpoints.
            while rows := self._database.query(
                'SELECT "partition", "offset", reason, detail, value, "check" FROM dead_letters '
                'WHERE "partition" = ? AND "offset" > ? ORDER BY "offset" LIMIT ?',
                (number, last, _DEAD_PAGE),
                (int, int, str, str, bytes, int),
            ):
                for *fields, check in rows:
                    letter = DeadLetter._make(fields)
                    if check != _dead_check(letter):
                        raise self._database.damaged("a row of the table dead_letters does not fit its checksum")
                    yield letter
                last = rows[-1][1]

    def check_unchanged(self) -> None:
        self._database.check()

    def trim(self, before: float) -> int:
        if self.model_name is not None:
            return 0
        window = self.registered_task().duplicates
        removed = 0
        for partition in range(self.partitions):
            limit = self.checkpoint(partition).offset - window
            # The clock may have been set back: messages that follow a newer one are kept with it.
            rows = self._database.query(
                'SELECT "offset" FROM batches WHERE "partition" = ? AND "offset" < ? AND time >= ? '
                'ORDER BY "offset" LIMIT 1',
                (partition, limit, before),
            )
            target = rows[0][0] if rows else limit
            begin = self.begin(partition)
            while begin < target:
                begin = min(begin + TRIM_CHUNK, target)
                removed += self._trim_to(partition, begin)
        with self._database.write() as connection:
            connection.execute("DELETE FROM dead_letters WHERE time < ?", (before,))
        return removed

    def _trim_to(self, partition: int, begin: int) -> int:
        """Move a partition's beginning forward; a batch stays as long as one of its messages does."""
        with self._database.write() as connection:
            former, end = self._whole_extent(partition)
            # Two processes may trim at once: the beginning never moves back.
            begin = max(begin, former)
            _put_extent(connection, partition, begin, end)
            connection.execute(
                'DELETE FROM batches WHERE "partition" = ? AND "offset" < ? AND (? OR "offset" < '
                '(SELECT max("offset") FROM batches WHERE "partition" = ? AND "offset" <= ?))',
                (partition, begin, begin >= end, partition, begin),
            )
        return begin - former

    def close(self) -> None:
        self._database.close()

    def _meta(self, key: str) -> bytes | None:
        """Return a value that `_put_meta` wrote; None if there is none."""
        # One statement, so that value and checksum are of the same moment.
        query = "SELECT key, value FROM meta WHERE key IN (?, ?)"
        stored = dict(self._database.query(query, (key, f"{key} check")))
        if not stored:
            return None
        value, check = stored.get(key), stored.get(f"{key} check")
        if not isinstance(value, bytes) or check != checksum(value):
            raise self._database.damaged(f"the {key} in its table meta does not fit its checksum")
        return value

    def _put_meta(self, connection: sqlite3.Connection, key: str, value: bytes) -> None:
        rows = (key, value), (f"{key} check", checksum(value))
        connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", rows)

    def _whole_extent(self, partition: int) -> tuple[int, int]:
        extent = _extent(self._database, partition)
        if extent is None:
            raise self._incomplete(partition)
        return extent

    def _incomplete(self, number: int) -> UserError:
        return UserError(
            f"the log {self._database.path} is damaged (partition {number} of its task is missing) and was not "
            "changed: restore it from a copy"
        )
