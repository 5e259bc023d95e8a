"""The embedded log: one SQLite file, for one machine.

Every append and every commit is one transaction with ``synchronous=FULL``: it survives a power failure.
Reading needs no lock and goes on while others write (WAL). Who owns a chain is a number, the *epoch*: taking
a chain over increases it, and a commit first checks, within its own transaction, that it still holds.
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from pathlib import Path
from typing import Any

from murk._sqlite import Database, FileKind
from murk.errors import UserError
from murk.stream.log.base import (
    Checkpoint,
    DeadLetter,
    FencedError,
    Log,
    Message,
    Ownership,
    check_range,
    check_sizes,
)
from murk.stream.messages.estimates import KEY
from murk.stream.task.change import check_task_change
from murk.stream.task.task import Task

READ_BYTES = 16 * 2**20
"""One read stops after this many bytes of messages, so that a hostile log cannot fill the memory."""

TRIM_CHUNK = 10_000
"""Messages removed in one transaction: appends wait no longer than that takes."""

HEARD = 0.01
"""Seconds for which a device goes by the model that it has read: on a disk one release takes a tenth of that."""

_DEAD_PAGE = 256
# Both of one moment.
_MODEL_AND_END = (
    'SELECT message, "end" FROM streams LEFT JOIN models ON models.chain = streams."partition" '
    'WHERE streams."partition" = ?'
)


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("INSERT INTO meta VALUES ('identity', ?)", (secrets.token_hex(16),))
    # begin and end stand apart from the messages: they must outlive them.
    connection.execute(
        'CREATE TABLE streams ("partition" INTEGER PRIMARY KEY, begin INTEGER NOT NULL, "end" INTEGER NOT NULL)'
    )
    connection.execute(
        'CREATE TABLE messages ("partition" INTEGER, "offset" INTEGER, time INTEGER NOT NULL, '
        'value BLOB NOT NULL, PRIMARY KEY ("partition", "offset")) WITHOUT ROWID'
    )
    connection.execute(
        'CREATE TABLE dead_letters ("partition" INTEGER, "offset" INTEGER, time INTEGER NOT NULL, '
        "reason TEXT NOT NULL, detail TEXT NOT NULL, value BLOB NOT NULL, "
        'PRIMARY KEY ("partition", "offset")) WITHOUT ROWID'
    )
    connection.execute("CREATE TABLE models (chain INTEGER PRIMARY KEY, message BLOB NOT NULL)")
    connection.execute(
        'CREATE TABLE states (chain INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, "offset" INTEGER NOT NULL, state BLOB)'
    )


LOG_FILE = FileKind("log", int.from_bytes(b"MLog"), 1, _create)


class SqliteLog(Log):
    """The embedded log in one SQLite file; `open_log` opens it by URL.

    The file must lie on a local disk: SQLite's WAL does not work across machines.

    Parameters
    ----------
    path
        The file.
    create
        Make the file where there is none.
    clock
        Gives the time in seconds since 1970, recorded with every message.
    timeout
        Seconds to wait for another process's write.

    Examples
    --------
    >>> import tempfile
    >>> with SqliteLog(tempfile.mkdtemp() + "/log.db") as log:
    ...     print(len(log.identity))
    32
    """

    def __init__(
        self,
        path: str | Path,
        *,
        create: bool = True,
        clock: Callable[[], float] = time.time,
        timeout: float = 30.0,
    ) -> None:
        self.url = f"sqlite:///{path}"
        self._clock = clock
        self._database = Database(path, LOG_FILE, create=create, timeout=timeout)
        self._identity = str(self._meta("identity"))
        self._task: Task | None = None
        self._heard: dict[int, tuple[float, tuple[bytes | None, int]]] = {}

    @property
    def identity(self) -> str:
        """Random name from when the file was made."""
        return self._identity

    def prepare(self, document: bytes) -> None:
        """Do nothing: the file is all that is needed."""

    def register_task(self, document: bytes) -> None:
        """Create the task's partitions and chains in one transaction; see `Log.register_task`."""
        # Looking first spares a write where nothing changes, and lets a log that may only be read agree.
        if check_task_change(self.url, self.document(), document) is None:
            return
        with self._database.write() as connection:
            task = check_task_change(self.url, self.document(), document)
            if task is not None:
                connection.execute("INSERT OR REPLACE INTO meta VALUES ('document', ?)", (document,))
                numbers = [(number,) for number in range(task.log.partitions)]
                connection.executemany("INSERT OR IGNORE INTO streams VALUES (?, 0, 0)", numbers)
                connection.executemany("INSERT OR IGNORE INTO states VALUES (?, 0, 0, NULL)", numbers)
        self._task = task

    def document(self) -> bytes | None:
        """Return the announced task's document."""
        value = self._meta("document")
        return value.encode() if isinstance(value, str) else value

    @property
    def partitions(self) -> int:
        """Number of partitions, from the announced task."""
        return self._announced().log.partitions

    @property
    def simulated(self) -> bool:
        """Whether releases are simulated, from the announced task."""
        return self._announced().simulated

    def append(self, batch: Sequence[tuple[int, bytes]]) -> None:
        """Append a batch in one transaction; see `Log.append`."""
        counts: dict[int, int] = {}
        check_sizes(batch)
        for partition, _ in batch:
            counts[partition] = counts.get(partition, 0) + 1
        for partition in counts:
            self._check(partition)
        if not counts:
            return
        with self._database.write() as connection:
            # Read under the lock, so that the order of times is that of offsets while the clock runs forward.
            now = int(self._clock())
            ends = {
                partition: connection.execute(
                    'UPDATE streams SET "end" = "end" + ? WHERE "partition" = ? RETURNING "end"',
                    (count, partition),
                ).fetchall()[0][0]
                - count
                for partition, count in counts.items()
            }
            rows = []
            for partition, value in batch:
                offset = ends[partition]
                ends[partition] = offset + 1
                rows.append((partition, offset, now, value))
            connection.executemany("INSERT INTO messages VALUES (?, ?, ?, ?)", rows)

    def read(self, partition: int, offset: int, limit: int) -> list[Message]:
        """Read up to ``limit`` messages, or `READ_BYTES` of them; see `Log.read`."""
        self._check(partition)
        rows = self._database.rows(
            'SELECT "offset", time, value FROM messages WHERE "partition" = ? AND "offset" >= ? '
            'ORDER BY "offset" LIMIT ?',
            (partition, offset, max(limit, 0)),
            READ_BYTES,
            (int, int, bytes),
        )
        if not rows or rows[0][0] != offset:
            check_range(self, partition, offset)
        # As `Message._make` does it, which is a function of Python's.
        return [*map(tuple.__new__, repeat(Message), rows)]

    def begin(self, partition: int) -> int:
        """Offset of the oldest message kept."""
        self._check(partition)
        return self._stream("begin", partition)

    def end(self, partition: int) -> int:
        """Offset that the next message will get."""
        self._check(partition)
        return self._stream('"end"', partition)

    def publish(self, chain: int, message: bytes) -> None:
        """Replace a chain's newest model."""
        self._check(chain)
        with self._database.write() as connection:
            connection.execute("INSERT OR REPLACE INTO models VALUES (?, ?)", (chain, message))
        self._heard.pop(chain, None)

    def model(self, chain: int) -> bytes | None:
        """Return a chain's newest model."""
        self._check(chain)
        rows = self._database.query("SELECT message FROM models WHERE chain = ?", (chain,), (bytes,))
        return bytes(rows[0][0]) if rows else None

    def cached_model(self, chain: int) -> tuple[bytes | None, int]:
        """Return a chain's newest model and the end of its partition, as they were `HEARD` seconds ago at most.

        What a simulation gives does not depend on a clock: there they are read each time.
        """
        now = time.monotonic()
        known = self._heard.get(chain)
        if known is not None and now - known[0] < HEARD:
            self._database.check()
            return known[1]
        rows = self._database.query(_MODEL_AND_END, (chain,))
        if not rows:
            self._check(chain)
            raise self._incomplete(chain)
        message, end = found = rows[0]
        if not (message is None or type(message) is bytes) or type(end) is not int:
            raise self._database.damaged_cell()
        if not self.simulated:
            self._heard[chain] = now, found
        return message, end

    @property
    def takes_estimates(self) -> bool:
        """True: the file has a table for them, as soon as there is one."""
        return True

    def estimate(self) -> bytes | None:
        """Return the newest published estimate."""
        if not self._database.query("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'estimates'"):
            return None
        rows = self._database.query("SELECT message FROM estimates WHERE key = ?", (KEY.decode(),), (bytes,))
        return bytes(rows[0][0]) if rows else None

    def checkpoint(self, chain: int) -> Checkpoint:
        """Read a chain's committed state and offset without owning it."""
        self._check(chain)
        found = _checkpoints(self._database, "chain = ?", chain)
        if not found:
            raise self._incomplete(chain)
        return found[0]

    def acquire(self, chain: int) -> Ownership:
        """Take over a chain: its epoch grows by one."""
        self._check(chain)
        with self._database.write() as connection:
            rows = connection.execute(
                "UPDATE states SET epoch = epoch + 1 WHERE chain = ? RETURNING epoch", (chain,)
            ).fetchall()
        if not rows:
            raise self._incomplete(chain)
        return _Epoch(self.url, self._database, chain, rows[0][0], self._clock)

    def dead_letters(self, partition: int | None = None) -> Iterator[DeadLetter]:
        """Iterate over dead letters, a page at a time."""
        partitions = range(self.partitions) if partition is None else [partition]
        for number in partitions:
            self._check(number)
            last = -1
            # Page by page: a statement left open for long would keep the WAL from being taken in.
            while rows := self._database.query(
                'SELECT "partition", "offset", reason, detail, value FROM dead_letters '
                'WHERE "partition" = ? AND "offset" > ? ORDER BY "offset" LIMIT ?',
                (number, last, _DEAD_PAGE),
                (int, int, str, str, bytes),
            ):
                yield from map(DeadLetter._make, rows)
                last = rows[-1][1]

    def trim(self, before: float) -> int:
        """Remove old messages in transactions of `TRIM_CHUNK`; see `Log.trim`."""
        window = self._announced().duplicates
        removed = 0
        for partition in range(self.partitions):
            limit = self.checkpoint(partition).offset - window
            # The clock may have been set back: what stands behind a younger message stays with it.
            rows = self._database.query(
                'SELECT "offset" FROM messages WHERE "partition" = ? AND "offset" < ? AND time >= ? '
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
        with self._database.write() as connection:
            count = connection.execute(
                'DELETE FROM messages WHERE "partition" = ? AND "offset" < ?', (partition, begin)
            ).rowcount
            # Two processes may trim at once: the beginning never moves back.
            connection.execute('UPDATE streams SET begin = max(begin, ?) WHERE "partition" = ?', (begin, partition))
        return count

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _meta(self, key: str) -> Any:
        rows = self._database.query("SELECT value FROM meta WHERE key = ?", (key,), ((bytes, str),))
        return rows[0][0] if rows else None

    def _stream(self, column: str, partition: int) -> int:
        rows = self._database.query(f'SELECT {column} FROM streams WHERE "partition" = ?', (partition,), (int,))
        if not rows:
            raise self._incomplete(partition)
        return int(rows[0][0])

    def _incomplete(self, number: int) -> UserError:
        return UserError(
            f"the log {self._database.path} is damaged (partition {number} of its task is not there) and was left as "
            "it is: restore it from a copy"
        )

    def _announced(self) -> Task:
        if self._task is None:
            document = self.document()
            if document is None:
                raise UserError(
                    f"{self.url} carries no task yet: announce one first (murk run does)", code="MURK-LOG-003"
                )
            self._task = Task.from_document(document)
        return self._task

    def _check(self, partition: int) -> None:
        if not 0 <= partition < self.partitions:
            raise UserError(
                f"{self.url} has no partition {partition}: its partitions are numbered from 0 to {self.partitions - 1}"
            )


def _checkpoints(database: Database, where: str, *values: int) -> list[Checkpoint]:
    kinds = ((bytes, type(None)), int)
    rows = database.query(f'SELECT state, "offset" FROM states WHERE {where}', values, kinds)
    return [Checkpoint(*row) for row in rows]


class _Epoch(Ownership):
    """Ownership of a chain of the embedded log: the number that its row of states held when it was taken."""

    def __init__(self, url: str, database: Database, chain: int, epoch: int, clock: Callable[[], float]) -> None:
        self.chain = chain
        self._url = url
        self._database = database
        self._epoch = epoch
        self._clock = clock

    def load(self) -> Checkpoint:
        found = _checkpoints(self._database, "chain = ? AND epoch = ?", self.chain, self._epoch)
        if not found:
            raise self._fenced()
        return found[0]

    def commit(
        self,
        state: bytes,
        offset: int,
        dead: Sequence[DeadLetter] = (),
        model: bytes | None = None,
        estimate: bytes | None = None,
    ) -> None:
        with self._database.write() as connection:
            written = connection.execute(
                'UPDATE states SET state = ?, "offset" = ? WHERE chain = ? AND epoch = ?',
                (state, offset, self.chain, self._epoch),
            ).rowcount
            if written != 1:
                raise self._fenced()
            if dead:
                now = int(self._clock())
                connection.executemany(
                    "INSERT OR REPLACE INTO dead_letters VALUES (?, ?, ?, ?, ?, ?)",
                    [(d.partition, d.offset, now, d.reason, d.detail, d.value) for d in dead],
                )
            if model is not None:
                connection.execute("INSERT OR REPLACE INTO models VALUES (?, ?)", (self.chain, model))
            if estimate is not None:
                # Not in `_create`: logs of before get it as well, and earlier versions take no notice of it.
                connection.execute("CREATE TABLE IF NOT EXISTS estimates (key TEXT PRIMARY KEY, message BLOB NOT NULL)")
                connection.execute("INSERT OR REPLACE INTO estimates VALUES (?, ?)", (KEY.decode(), estimate))

    def close(self) -> None:
        """Keep the row: the epoch stays with the last owner until another takes the chain over."""

    def _fenced(self) -> FencedError:
        return FencedError(
            f"another worker has taken over chain {self.chain} of {self._url}; this one stops, and nothing "
            "of what it had not yet committed was applied. Run one worker for each chain"
        )
