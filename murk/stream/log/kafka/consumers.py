"""Reading partitions: releases in order, the newest record, a compacted topic as a table.

Dead letters as records of a topic, and back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from time import monotonic, sleep
from typing import Any

from kafka import TopicPartition
from kafka.errors import KafkaTimeoutError, OffsetOutOfRangeError

from murk.stream.log.base import DeadLetter
from murk.stream.log.kafka.connection.clients import PATIENCE_MS, Clients, close_in_time
from murk.stream.log.kafka.connection.errors import translate_errors

_TAIL = 8
_UNDECIDED = 2.0
_UNUSED = 30.0
"""Seconds after which a partition's reader is closed, where nobody has asked for it."""
_SHORTEST, _LONGEST = 0.002, 0.05
"""Seconds between two looks at a transaction that is not over yet: as long as was waited already, up to the latter."""


class Ends:
    """Where partitions begin and end.

    It has connections of its own: on one that waits for new records, a broker answers nothing else meanwhile.
    """

    def __init__(self, clients: Clients) -> None:
        self._url = clients.url
        self._all = clients.reader(committed=False)
        try:
            self._committed = clients.reader(committed=True)
        except BaseException:
            # Nobody else knows of it, and its thread would go on for ever.
            self._all.close(timeout_ms=1000)
            raise

    def begin(self, *places: TopicPartition) -> dict[TopicPartition, int]:
        """Offsets of the oldest records."""
        return self._ask(self._all.beginning_offsets, places)

    def end(self, *places: TopicPartition) -> dict[TopicPartition, int]:
        """Offsets after the newest records, open transactions included."""
        return self._ask(self._all.end_offsets, places)

    def of(self, topic: str, *partitions: int) -> list[int]:
        """The same, of some partitions of a topic, in their order."""
        places = [TopicPartition(topic, partition) for partition in partitions]
        found = self.end(*places)
        return [found[place] for place in places]

    def decided(self, *places: TopicPartition) -> dict[TopicPartition, int]:
        """Offsets up to which transactions are over, as soon as all are that stand there now.

        A commit returns when the broker has decided on it; the marks that show it to readers follow a moment
        later. A reader that must see what was committed before waits for them. A dead owner's transaction is
        waited for only so long: the broker ends it after `TRANSACTION_MS`.
        """
        ends = self.end(*places)
        deadline, pause = monotonic() + _UNDECIDED, _SHORTEST
        while True:
            seen = self._ask(self._committed.end_offsets, places)
            if all(seen[place] >= end for place, end in ends.items()) or monotonic() > deadline:
                return seen
            sleep(pause)
            pause = min(_LONGEST, 2.0 * pause)

    def close(self) -> None:
        """Close the consumers."""
        with ExitStack() as both:
            for consumer in (self._all, self._committed):
                both.callback(consumer.close, timeout_ms=1000)

    def _ask(self, how: Any, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        with translate_errors(self._url, "looking where topics end"):
            found: dict[TopicPartition, int] = how(list(places), timeout_ms=PATIENCE_MS)
            return found


class Reader:
    """One partition, read from any place on.

    Parameters
    ----------
    clients
        Makes the consumer.
    ends
        Knows where it begins and ends.
    topic, partition
        What is read.
    committed
        See `Clients.reader`.
    consumer
        Reads; where it is given others use it, too, and close it.
    """

    def __init__(
        self, clients: Clients, ends: Ends, topic: str, partition: int, *, committed: bool, consumer: Any = None
    ) -> None:
        self._url = clients.url
        self._doing = f"reading {topic}"
        self._ends = ends
        self._is_committed = committed
        self._place = TopicPartition(topic, partition)
        self._consumer = consumer or clients.reader(committed=committed)
        self._next = -1

    def read(self, offset: int, limit: int) -> list[Any]:
        """Read at most ``limit`` records from ``offset`` on; none only when there is none yet.

        Raises
        ------
        UnreachableError
            When the broker does not answer.
        IndexError
            When there is no such offset (any more, or yet).
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
            if found := self._poll(0, limit):
                return found
            end = self.end()
            if offset == end:
                # Where it begins need not be asked: no later than it ends. Who follows a log is here at each look.
                return []
            if not self.begin() <= offset < end:
                raise IndexError(offset)
            deadline = monotonic() + PATIENCE_MS / 1000
            # Between here and the end there may be nothing but the marks of transactions.
            while self._consumer.position(self._place, timeout_ms=PATIENCE_MS) < end:
                if found := self._poll(100, limit):
                    return found
                if monotonic() > deadline:
                    raise KafkaTimeoutError(f"nothing heard for {PATIENCE_MS} ms")
            return []

    def begin(self) -> int:
        """Offset of the oldest record."""
        return self._ends.begin(self._place)[self._place]

    def end(self) -> int:
        """Offset after the newest record that may be read."""
        ask = self._ends.decided if self._is_committed else self._ends.end
        return ask(self._place)[self._place]

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close(timeout_ms=1000)

    def _poll(self, wait: int, limit: int) -> list[Any]:
        try:
            found = self._consumer.poll(timeout_ms=wait, max_records=limit)
        except OffsetOutOfRangeError as error:
            self._next = -1
            raise IndexError(str(self._place)) from error
        records: list[Any] = found.get(self._place, [])
        if records:
            self._next = records[-1].offset + 1
        return records


class Readers:
    """Readers of partitions, each opened when it is first asked for: it takes sockets and a thread."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], Reader] = {}
        self._asked: dict[tuple[str, int], float] = {}

    def get(self, clients: Clients, ends: Ends, topic: str, partition: int, *, committed: bool) -> Reader:
        """The reader of a partition."""
        place = topic, partition
        if place not in self._open:
            self._open[place] = Reader(clients, ends, topic, partition, committed=committed)
        self._asked[place] = monotonic()
        return self._open[place]

    def close_unused(self, url: str) -> None:
        """Close those that nobody has asked for lately; they are opened again when something arrives."""
        now = monotonic()
        for place in [place for place, asked in self._asked.items() if now - asked > _UNUSED]:
            del self._asked[place]
            close_in_time(self._open.pop(place), url)

    def __iter__(self) -> Iterator[Reader]:
        return iter(self._open.values())


class Newest:
    """The newest record of a partition; asking again reads only what has come since.

    Parameters
    ----------
    reader
        Reads the partition.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._record: Any | None = None
        self._end = -1

    def record(self) -> Any | None:
        """Return the newest record as it is now, or None where there is none.

        Raises
        ------
        UnreachableError
            When the broker does not answer.
        """
        end = self._reader.end()
        if end != self._end:
            # An end that went back is another partition's: nothing of the old one is believed.
            found = self._last(self._end, end) if 0 <= self._end < end else None
            self._record = found or (self._record if 0 <= self._end < end else self._search(end))
            self._end = end
        return self._record

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()

    def _search(self, end: int) -> Any | None:
        begin, reach = self._reader.begin(), _TAIL
        while True:
            # Near the end there may be nothing but marks and aborted records: look further and further back.
            offset = max(begin, end - reach)
            found = self._last(offset, end)
            if found is not None or offset <= begin:
                return found
            reach *= 16

    def _last(self, offset: int, end: int) -> Any | None:
        last = None
        while offset < end and (found := self._reader.read(offset, 500)):
            last = found[-1]
            offset = last.offset + 1
        return last


class Shared:
    """One consumer for several partitions, one read at a time: a consumer for each takes sockets and a thread.

    Parameters
    ----------
    clients, committed
        As of `Reader`.
    """

    def __init__(self, clients: Clients, *, committed: bool) -> None:
        self._clients = clients
        self._committed = committed
        self._consumer = clients.reader(committed=committed)
        self._newest: dict[tuple[str, int], Newest] = {}

    def newest(self, ends: Ends, topic: str, partition: int) -> Newest:
        """What follows the newest record of one of the partitions."""
        place = topic, partition
        if place not in self._newest:
            reader = Reader(
                self._clients, ends, topic, partition, committed=self._committed, consumer=self._consumer
            )  # fmt: skip
            self._newest[place] = Newest(reader)
        return self._newest[place]

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close(timeout_ms=1000)


def records(reader: Reader) -> Iterator[Any]:
    """Iterate over a partition from its beginning to its end as it is now."""
    position, end = reader.begin(), reader.end()
    while position < end and (found := reader.read(position, 500)):
        yield from found
        position = found[-1].offset + 1


class Table:
    """A compacted topic: the newest value of each key, in memory.

    Parameters
    ----------
    clients
        Makes the consumer.
    topic, partitions
        What is read.
    ends
        Knows where they end.
    """

    def __init__(self, clients: Clients, topic: str, partitions: int, ends: Ends) -> None:
        self._ends = ends
        self._url = clients.url
        self._doing = f"reading {topic}"
        self._places = [TopicPartition(topic, number) for number in range(partitions)]
        # Before there is a consumer that would have to be closed: the topic may have been deleted.
        begin = ends.begin(*self._places)
        self._consumer = clients.reader(committed=True)
        self._consumer.assign(self._places)
        for place, offset in begin.items():
            self._consumer.seek(place, offset)
        self.values: dict[bytes, bytes] = {}

    def refresh(self, partition: int | None = None) -> dict[bytes, bytes]:
        """Read all that is on the topic now, or at least all that is on one partition of it.

        If the writer of one partition died in a transaction, readers of another do not wait for it.

        Raises
        ------
        UnreachableError
            When the broker does not answer.
        """
        with translate_errors(self._url, self._doing):
            places = self._places if partition is None else [self._places[partition]]
            ends = self._ends.decided(*places)
            deadline = monotonic() + PATIENCE_MS / 1000
            while any(self._consumer.position(place) < end for place, end in ends.items()):
                if self.poll(100):
                    deadline = monotonic() + PATIENCE_MS / 1000
                elif monotonic() > deadline:
                    raise KafkaTimeoutError(f"nothing heard for {PATIENCE_MS} ms")
        return self.values

    def poll(self, wait: int) -> int:
        """Take in what has arrived, waiting up to so many milliseconds for it; give the number of records."""
        count = 0
        with translate_errors(self._url, self._doing):
            for found in self._consumer.poll(timeout_ms=wait, max_records=5000).values():
                for record in found:
                    count += 1
                    if record.value is None:
                        self.values.pop(record.key, None)
                    elif record.key is not None:
                        self.values[record.key] = record.value
        return count

    def close(self) -> None:
        """Close the consumer."""
        self._consumer.close(timeout_ms=1000)


_REASON = "reason"
_DETAIL = "detail"
_DIGITS = 19


def record(letter: DeadLetter) -> dict[str, Any]:
    """Return what is sent for a letter: its message, its place as the key, the rest as headers."""
    return {
        "value": letter.value,
        "key": f"{letter.partition}:{letter.offset}".encode(),
        "headers": [(_REASON, letter.reason.encode()), (_DETAIL, letter.detail.encode())],
    }


def letters(reader: Reader, chain: int) -> Iterator[DeadLetter]:
    """Iterate over a chain's dead letters; what a repeated commit wrote twice is given once."""
    last = -1
    for found in records(reader):
        place = (found.key or b"").rpartition(b":")[2]
        # Somebody else's record in the topic is none of ours.
        if place.isdigit() and len(place) <= _DIGITS and int(place) > last:
            last = int(place)
            headers = dict(found.headers)
            # A stranger's header may have no value at all.
            reason, detail = ((headers.get(key) or b"").decode("utf-8", "replace") for key in (_REASON, _DETAIL))
            yield DeadLetter(chain, last, reason, detail, found.value or b"")
