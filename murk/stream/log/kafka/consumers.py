"""Read partitions: ends, records in order, newest records, compacted topics, dead letters and models."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError, OffsetOutOfRangeError

from murk.errors import MurkError
from murk.stream.log.interface import DeadLetter, UnreachableError
from murk.stream.log.kafka.connection.clients import PATIENCE_MS, Clients, close_in_time
from murk.stream.log.kafka.connection.errors import translate_errors
from murk.stream.log.kafka.topics import Names

_TAIL = 8
_BATCH = 500
_UNDECIDED = 2.0
_UNUSED = 30.0  # seconds after which an unused reader of a partition is closed
_SHORTEST, _LONGEST = 0.002, 0.05  # pauses in seconds between two checks of an open transaction; they double
_CLOSE_MS = 1_000
_REASON = "reason"
_DETAIL = "detail"
_DIGITS = 19


class Ends:
    """Begin and end offsets of partitions, on separate connections, as a connection that waits for records is busy."""

    def __init__(self, clients: Clients) -> None:
        self._url = clients.url
        self._all = clients.reader(committed=False)
        try:
            self._committed = clients.reader(committed=True)
        except BaseException:
            # Otherwise its thread would run for ever.
            self._all.close(timeout_ms=_CLOSE_MS)
            raise

    def begin(self, *places: TopicPartition) -> dict[TopicPartition, int]:
        """Return the offsets of the oldest records."""
        return self._ask(self._all.beginning_offsets, places)

    def end(self, *places: TopicPartition) -> dict[TopicPartition, int]:
        """Return the offsets after the newest records, including open transactions."""
        return self._ask(self._all.end_offsets, places)

    def of(self, topic: str, *partitions: int) -> list[int]:
        """Return the ends of some partitions of a topic, in their order."""
        topic_partitions = [TopicPartition(topic, partition) for partition in partitions]
        ends = self.end(*topic_partitions)
        return [ends[topic_partition] for topic_partition in topic_partitions]

    def decided(self, *places: TopicPartition) -> dict[TopicPartition, int]:
        """Wait until all currently open transactions have ended; return the offsets before which none is open.

        A commit returns when the broker has decided; the markers that readers wait for follow a moment later. The wait
        is short even if an owner has died: the broker aborts its transaction after `TRANSACTION_MS`.
        """
        ends = self.end(*places)
        deadline, pause = monotonic() + _UNDECIDED, _SHORTEST
        while True:
            seen = self._ask(self._committed.end_offsets, places)
            if all(seen[topic_partition] >= end for topic_partition, end in ends.items()) or monotonic() > deadline:
                return seen
            sleep(pause)
            pause = min(_LONGEST, 2.0 * pause)

    def close(self) -> None:
        """Close the consumers."""
        with ExitStack() as both:
            for consumer in (self._all, self._committed):
                both.callback(consumer.close, timeout_ms=_CLOSE_MS)

    def _ask(self, request: Any, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        with translate_errors(self._url, "looking where topics end"):
            offsets: dict[TopicPartition, int] = request(list(places), timeout_ms=PATIENCE_MS)
            return offsets


class Reader:
    """Reader of one partition, from any offset; a ``consumer`` that is passed in is shared, and closed by its owner."""

    def __init__(
        self, clients: Clients, ends: Ends, topic: str, partition: int, *, committed: bool, consumer: Any = None
    ) -> None:
        self._url, self._doing = clients.url, f"reading {topic}"
        self._ends, self._is_committed = ends, committed
        self._place = TopicPartition(topic, partition)
        self._consumer = consumer or clients.reader(committed=committed)
        self._next = -1

    def read(self, offset: int, limit: int) -> list[Any]:
        """Read at most ``limit`` records from ``offset`` on; an empty list only if there are none yet.

        Raises `UnreachableError` if the broker does not answer; `IndexError` if the offset does not exist any more, or
        not yet.
        """
        if limit <= 0:
            return []
        with translate_errors(self._url, self._doing):
            if self._consumer.assignment() != {self._place}:
                self._consumer.assign([self._place])
                self._next = -1
            if offset != self._next:
                self._consumer.seek(self._place, offset)
                self._next = offset
            if batch := self._poll(0, limit):
                return batch
            end = self.end()
            if offset == end:
                # In this common case, of a reader that follows the log, no request for the beginning is needed.
                return []
            if offset > end:
                raise IndexError(offset)
            deadline = monotonic() + PATIENCE_MS / 1000
            # Between here and the end there may be only transaction markers.
            while self._consumer.position(self._place, timeout_ms=PATIENCE_MS) < end:
                if batch := self._poll(100, limit):
                    return batch
                if offset < self.begin():
                    raise IndexError(offset)
                if monotonic() > deadline:
                    raise KafkaTimeoutError(f"no records for {PATIENCE_MS} ms")
            return []

    def position(self) -> int:
        """Return the offset of the next record to read, after a read."""
        with translate_errors(self._url, self._doing):
            return int(self._consumer.position(self._place, timeout_ms=PATIENCE_MS))

    def begin(self) -> int:
        """Return the offset of the oldest record."""
        return self._ends.begin(self._place)[self._place]

    def end(self) -> int:
        """Return the offset after the newest record that may be read."""
        ask = self._ends.decided if self._is_committed else self._ends.end
        return ask(self._place)[self._place]

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close(timeout_ms=_CLOSE_MS)

    def _poll(self, wait: int, limit: int) -> list[Any]:
        try:
            polled = self._consumer.poll(timeout_ms=wait, max_records=limit)
        except OffsetOutOfRangeError as error:
            self._next = -1
            raise IndexError(str(self._place)) from error
        records: list[Any] = polled.get(self._place, [])
        if records:
            self._next = records[-1].offset + 1
        return records


class Readers:
    """Readers of partitions, opened on demand: each takes sockets and a thread."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int, bool], Reader] = {}
        self._asked: dict[tuple[str, int, bool], float] = {}

    def get(self, clients: Clients, ends: Ends, topic: str, partition: int, *, committed: bool) -> Reader:
        """Return the reader of a partition."""
        key = topic, partition, committed
        if key not in self._open:
            self._open[key] = Reader(clients, ends, topic, partition, committed=committed)
        self._asked[key] = monotonic()
        return self._open[key]

    def close_unused(self, url: str) -> None:
        """Close readers that were not used lately; they are reopened when needed."""
        now = monotonic()
        for key in [key for key, asked in self._asked.items() if now - asked > _UNUSED]:
            del self._asked[key]
            close_in_time(self._open.pop(key), url)

    def __iter__(self) -> Iterator[Reader]:
        return iter(self._open.values())


class Newest:
    """The newest record of a partition; asking again reads only records that have arrived since."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._record: Any | None = None
        self._end = -1

    def record(self) -> Any | None:
        """Return the newest record, or None."""
        end = self._reader.end()
        if end != self._end:
            # An end that moved back belongs to a recreated partition: start over.
            if 0 <= self._end < end:
                self._record = self._last(self._end, end) or self._record
            else:
                self._record = self._search(end)
            self._end = end
        return self._record

    def _search(self, end: int) -> Any | None:
        begin, reach = self._reader.begin(), _TAIL
        while True:
            # Near the end there may be only markers and aborted records: look further and further back.
            offset = max(begin, end - reach)
            last = self._last(offset, end)
            if last is not None or offset <= begin:
                return last
            reach *= 16

    def _last(self, offset: int, end: int) -> Any | None:
        last = None
        while offset < end and (batch := self._reader.read(offset, _BATCH)):
            last = batch[-1]
            offset = last.offset + 1
        return last


class Shared:
    """One consumer for the newest committed records of a topic; one per partition would take a thread each."""

    def __init__(self, clients: Clients, ends: Ends, topic: str) -> None:
        self._clients, self._ends, self._topic = clients, ends, topic
        self._consumer = clients.reader(committed=True)
        self._newest: dict[int, Newest] = {}

    def record(self, partition: int) -> Any | None:
        """Return the newest record of a partition, or None."""
        if partition not in self._newest:
            where = self._clients, self._ends, self._topic, partition
            self._newest[partition] = Newest(Reader(*where, committed=True, consumer=self._consumer))
        return self._newest[partition].record()

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close(timeout_ms=_CLOSE_MS)


def records(reader: Reader) -> Iterator[Any]:
    """Iterate over a partition from its beginning to its current end."""
    position, end = reader.begin(), reader.end()
    while position < end and (batch := reader.read(position, _BATCH)):
        yield from batch
        position = batch[-1].offset + 1


class Table:
    """A compacted topic: the newest value of each key, in memory."""

    def __init__(self, clients: Clients, topic: str, partitions: int, ends: Ends) -> None:
        self._ends, self._url, self._doing = ends, clients.url, f"reading {topic}"
        self._places = [TopicPartition(topic, number) for number in range(partitions)]
        # This raises if the topic was deleted, so it precedes the consumer, which would have to be closed.
        begin = ends.begin(*self._places)
        self._consumer = clients.reader(committed=True)
        self._consumer.assign(self._places)
        for topic_partition, offset in begin.items():
            self._consumer.seek(topic_partition, offset)
        self.values: dict[bytes, bytes] = {}
        self.appended = 0.0  # largest append time of a record, by the broker's clock

    def refresh(self, partition: int | None = None) -> dict[bytes, bytes]:
        """Read all that the topic has now, or one partition, which does not wait for dead writers to the others."""
        with translate_errors(self._url, self._doing):
            topic_partitions = self._places if partition is None else [self._places[partition]]
            ends = self._ends.decided(*topic_partitions)
            deadline = monotonic() + PATIENCE_MS / 1000
            while any(self._consumer.position(topic_partition) < end for topic_partition, end in ends.items()):
                if self.poll(100):
                    deadline = monotonic() + PATIENCE_MS / 1000
                elif monotonic() > deadline:
                    raise KafkaTimeoutError(f"no records for {PATIENCE_MS} ms")
        return self.values

    def poll(self, wait: int) -> int:
        """Take in records that have arrived, waiting up to ``wait`` milliseconds; return their number."""
        count = 0
        with translate_errors(self._url, self._doing):
            for batch in self._consumer.poll(timeout_ms=wait, max_records=5000).values():
                for record in batch:
                    count += 1
                    self.appended = max(self.appended, record.timestamp / 1000)
                    if record.value is None:
                        self.values.pop(record.key, None)
                    elif record.key is not None:
                        self.values[record.key] = record.value
        return count

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close(timeout_ms=_CLOSE_MS)


def record(letter: DeadLetter) -> dict[str, Any]:
    """Return a dead letter as a record: its message as the value, its place as the key, the rest as headers."""
    return {
        "value": letter.value,
        "key": f"{letter.partition}:{letter.offset}".encode(),
        "headers": [(_REASON, letter.reason.encode()), (_DETAIL, letter.detail.encode())],
    }


def letters(reader: Reader, partition: int) -> Iterator[DeadLetter]:
    """Iterate over a partition's dead letters, without those that a repeated commit wrote again."""
    last = -1
    for stored in records(reader):
        offset = (stored.key or b"").rpartition(b":")[2]
        # Others may have written to the topic: skip records without a place, and allow headers without a value.
        if offset.isdigit() and len(offset) <= _DIGITS and int(offset) > last:
            last = int(offset)
            headers = dict(stored.headers)
            reason, detail = ((headers.get(key) or b"").decode("utf-8", "replace") for key in (_REASON, _DETAIL))
            yield DeadLetter(partition, last, reason, detail, stored.value or b"")


_WAIT_MS = 500
_PAUSE = 0.5


@dataclass(frozen=True)
class CachedModels:
    """The newest model by partition, and the partitions' end offsets, which were read just after the models."""

    models: Mapping[bytes, bytes] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    appended: float = 0.0  # when the broker appended the newest of the models, in seconds since 1970


class ModelCache:
    """A thread that keeps a log's newest models."""

    def __init__(self, clients: Clients, names: Names, partitions: int) -> None:
        self._clients, self._names, self._partitions = clients, names, partitions
        self._cached: CachedModels | None = None
        self._error: MurkError | None = None
        self._first, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="murk-models", daemon=True)
        self._thread.start()

    def cached(self) -> CachedModels:
        """Return what was last read, waiting only the first time; raise `MurkError` if nothing was ever read."""
        if self._cached is None:
            self._first.wait(2 * PATIENCE_MS / 1000)
            if self._cached is None:
                raise self._error or UnreachableError(f"{self._clients.url} cannot be reached (reading models)")
        return self._cached

    @property
    def latest(self) -> CachedModels | None:
        """The models that were last read; None before the first time."""
        return self._cached

    def close(self) -> None:
        """Stop the thread."""
        self._stop.set()
        self._thread.join(2 * PATIENCE_MS / 1000)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._follow()
            except MurkError as error:
                # Devices go on with what was read before; `cached` raises the error if there is nothing.
                self._error = error
                self._first.set()
                self._stop.wait(_PAUSE)

    def _follow(self) -> None:
        releases = [TopicPartition(self._names.releases, number) for number in range(self._partitions)]
        with ExitStack() as stack:
            ends = Ends(self._clients)
            stack.callback(ends.close)
            table = Table(self._clients, self._names.models, self._partitions, ends)
            stack.callback(table.close)
            models = table.refresh()
            while not self._stop.is_set():
                # After the models: no model may have more releases than its partition.
                current = {topic_partition.partition: end for topic_partition, end in ends.end(*releases).items()}
                self._cached = CachedModels(dict(models), current, table.appended)
                self._first.set()
                table.poll(_WAIT_MS)
