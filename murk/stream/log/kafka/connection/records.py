"""Where a batch's records stand, found in one compiled pass.

Records out of a fetch: a batch at once where it is of the plain form that releases have, else as the library does.

The library unpacks field by field, in Python, which takes as long as everything that is then done with a release.

Records to a producer: a whole batch at once, in place of one after another.

The library's `send` takes a record through checks, locks and a future of its own, which takes as long as everything
that a gateway does with it. A batch that is handed over whole goes the library's own way from there on: it is drained,
sent, repeated, expired and confirmed like any other, and its sequence number, where there were any, the library's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import repeat
from typing import Any, NamedTuple

import kafka
import numpy as np
from kafka import KafkaProducer, TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError, IllegalStateError
from kafka.producer.future import FutureRecordMetadata
from kafka.producer.producer_batch import ProducerBatch
from kafka.protocol.consumer import IsolationLevel
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecordsBuilder
from kafka.record.util import encode_varint
from numpy.typing import NDArray

from murk._jit import deferred, inlined

_LONGEST = 9
"""Bytes of the longest number that is read here, of 63 bits."""


@inlined
def _read_varint(data: NDArray[np.uint8], position: int) -> tuple[int, int]:
    """A zigzag number of at most 63 bits, and where it ends; that is -1 where there is none."""
    found, shift = np.int64(0), np.int64(0)
    end = np.int64(-1)
    for place in range(position, min(position + _LONGEST, len(data))):
        found |= np.int64(data[place] & 0x7F) << shift
        shift += 7
        if data[place] < 0x80:
            end = np.int64(place + 1)
            break
    return int((found >> 1) ^ -(found & 1)), int(end)


@deferred
def index(data: NDArray[np.uint8], start: int, count: int) -> NDArray[np.int64]:
    """Find records of a batch that have a value, no key and no headers; none at all where it is of another form.

    Parameters
    ----------
    data
        An uncompressed batch of magic 2.
    start
        Where its first record begins.
    count
        How many there are.

    Returns
    -------
    ndarray
        ``(count, 4)``: of each record the difference of its offset and of its time from the batch's, and where its
        value begins and ends. ``(0, 4)`` for a batch that holds anything else, or ends elsewhere than its last record.

    References
    ----------
    Kafka's message format (https://kafka.apache.org/documentation/#recordbatch).
    """
    nothing = np.empty((0, 4), dtype=np.int64)
    # No record is shorter than seven bytes: a count that is made up reserves no memory.
    if count < 1 or count > len(data) // 7:
        return nothing
    found = np.empty((count, 4), dtype=np.int64)
    position = start
    for i in range(count):
        length, begin = _read_varint(data, position)
        if begin < 0 or begin >= len(data) or data[begin] >= 0x80:
            return nothing
        time, position = _read_varint(data, begin + 1)
        if position < 0:
            return nothing
        offset, position = _read_varint(data, position)
        if position < 0:
            return nothing
        key, position = _read_varint(data, position)
        if position < 0 or key >= 0:
            return nothing
        size, position = _read_varint(data, position)
        # One byte is left for the number of headers, which is none.
        if position < 0 or size < 0 or size >= len(data) - position:
            return nothing
        found[i, 0], found[i, 1], found[i, 2], found[i, 3] = offset, time, position, position + size
        position += size
        if data[position] != 0:
            return nothing
        position += 1
        if position - begin != length:
            return nothing
    return found if position == len(data) else nothing


_KNOWN = "3.0."
"""Versions of the library whose private parts are as they are used here."""


class Record(NamedTuple):
    """What is read of a plain record; times are in milliseconds since 1970."""

    offset: int
    timestamp: int
    value: bytes
    key: None = None
    headers: tuple[()] = ()


_record = partial(tuple.__new__, Record)
"""Makes a record of a tuple, in half the time of its class."""


class IndexedRecords(Fetcher.PartitionRecords):  # type: ignore[misc]
    """The records of a fetch of one partition, of which plain batches are unpacked at once.

    From the first batch on that is not plain (compressed, of a transaction's mark, of an older format, damaged, with
    keys or headers), what is left of a fetch is the library's own work, and so are its errors.
    """

    def _unpack_records(self, tp: Any, records: Any, key_deserializer: Any, value_deserializer: Any) -> Iterator[Any]:
        if self.isolation_level == IsolationLevel.READ_COMMITTED:
            # Which transactions were aborted is the library's to know.
            yield from super()._unpack_records(tp, records, key_deserializer, value_deserializer)
            return
        last = None
        while (batch := records.next_batch()) is not None:
            found = plain(batch)
            if found is None:
                rest = _Rest(batch, records)
                yield from super()._unpack_records(tp, rest, key_deserializer, value_deserializer)
                return
            if self.check_crcs and not batch.validate_crc():
                raise CorruptRecordError(
                    f"Record batch for partition {tp} at offset {batch.base_offset} failed crc check"
                )
            self.leader_epoch = batch.leader_epoch
            self.records_read += len(found)
            self.bytes_read += batch.size_in_bytes
            for record in found:
                # Where to read on from, should the reader stop here.
                self.next_fetch_offset = record.offset + 1
                yield record
            last = batch
        if last is not None:
            self.next_fetch_offset = last.next_offset
        self.drain()


class _Rest:
    """A batch that was taken off a fetch, and those after it."""

    def __init__(self, first: Any, others: Any) -> None:
        self._first, self._others = first, others

    def next_batch(self) -> Any:
        first, self._first = self._first, None
        return self._others.next_batch() if first is None else first


def plain(batch: Any) -> list[Record] | None:
    """Return the records of a batch as the library would, if all of them are plain; None for any other batch."""
    if batch.magic != 2 or batch.compression_type != batch.CODEC_NONE or batch.is_control_batch:
        return None
    data = bytes(batch._buffer)
    places = index(np.frombuffer(data, dtype=np.uint8), batch.HEADER_STRUCT.size, batch.records_count)
    if not len(places):
        return None
    offset, first = batch.base_offset, batch.first_timestamp
    ahead, later, starts, stops = places.T.tolist()
    if batch.timestamp_type == batch.LOG_APPEND_TIME:
        times: Iterable[int] = repeat(batch.max_timestamp)
    else:
        times = [first + one for one in later]
    offsets, values = [offset + one for one in ahead], map(data.__getitem__, map(slice, starts, stops))
    return list(map(_record, zip(offsets, times, values, repeat(None), repeat(()), strict=False)))


def unpack_at_once(consumer: Any) -> None:
    """Let a consumer of a known version of the library unpack plain batches at once."""
    if kafka.__version__.startswith(_KNOWN):
        consumer._fetcher.PartitionRecords = IndexedRecords


"""Versions of the library whose private parts are as they are used here."""
_MAGIC = 2
_OVERHEAD = DefaultRecordBatchBuilder.MAX_RECORD_OVERHEAD
"""Most bytes of a record beside its value, that of the value's length included."""


class WholeBatch(ProducerBatch):  # type: ignore[misc]
    """A batch that nobody adds to any more, and that is confirmed or refused as one.

    Splitting one that is too large for its topic takes a future for each of its records: it fails instead.
    """

    @property
    def record_count(self) -> int:
        """One, whatever it holds: what is sent or not."""
        return 1


def takes_batches(producer: Any) -> bool:
    """Whether a producer is of a known version, and its batches are plain: of format 2, and without compression.

    Nor is it of a transaction, or idempotent: the library gives such batches a place in a sequence.
    """
    if not isinstance(producer, KafkaProducer) or not kafka.__version__.startswith(_KNOWN):
        return False
    config = producer._accumulator.config
    plain = config["message_version"] == _MAGIC and config["compression_attrs"] == 0
    return plain and config["transaction_manager"] is None


def send_at_once(producer: Any, topic: str, partition: int, values: Sequence[bytes], ms: int) -> list[Any]:
    """Send records without keys or headers, in order, without waiting for them.

    Parameters
    ----------
    producer
        One that `takes_batches`.
    topic, partition
        Where they go.
    values
        Their bytes.
    ms
        Their time in milliseconds since 1970.

    Returns
    -------
    Futures
        One for each batch: resolved where the broker has confirmed it, failed where it has not.

    Raises
    ------
    ValueError
        Where the topic has no such partition.
    KafkaError
        Where what the topic has is not known in time, and where the producer was closed.
    """
    if partition not in producer.partitions_for(topic):
        raise ValueError(f"Unrecognized partition {partition} for topic {topic}")
    place, accumulator = TopicPartition(topic, partition), producer._accumulator
    futures = []
    for part in _parts(values, accumulator.config["batch_size"]):
        batch = batch_of(place, part, ms)
        future = FutureRecordMetadata(batch.produce_future, 0, ms, None, -1, len(part[0]), -1)
        # As the library's own `append` does it: who closes the producer waits for those who are adding.
        accumulator._appends_in_progress.increment()
        try:
            with accumulator._tp_lock(place):
                if accumulator._closed:
                    raise IllegalStateError("RecordAccumulator is closed")
                accumulator._batches[place].append(batch)
                accumulator._incomplete.add(batch)
        finally:
            accumulator._appends_in_progress.decrement()
        futures.append(future)
    producer._sender.wakeup()
    return futures


def batch_of(place: TopicPartition, values: Sequence[bytes], ms: int) -> WholeBatch:
    """Make a batch, byte for byte that of the library's own builder."""
    count = len(values)
    records = MemoryRecordsBuilder(_MAGIC, 0, 0)
    builder = records._builder
    builder._buffer += b"".join(_body(values))
    builder._first_timestamp = builder._max_timestamp = ms
    builder._last_offset, builder._num_records = count - 1, count
    records._next_offset = count
    # From here on the library adds nothing to it.
    records.close()
    batch = WholeBatch(place, records)
    batch.max_record_size = max(map(len, values)) + _OVERHEAD
    return batch


def _body(values: Sequence[bytes]) -> Iterator[bytes]:
    for offset, value in enumerate(values):
        head, size = _write_varint(offset), len(value)
        length = _write_varint(size)
        # No attributes, no difference in time, no key; and no headers at the end.
        yield _write_varint(4 + len(head) + len(length) + size)
        yield b"\0\0"
        yield head
        yield b"\1"
        yield length
        yield value
        yield b"\0"


@lru_cache(maxsize=1 << 14)
def _write_varint(number: int) -> bytes:
    written = bytearray()
    encode_varint(number, written.append)
    return bytes(written)


def _parts(values: Sequence[bytes], most: int) -> Iterator[Sequence[bytes]]:
    """Cut values so that a batch of each part has at most so many bytes, unless it is of one value."""
    room = most - DefaultRecordBatchBuilder.HEADER_STRUCT.size
    begin, size = 0, 0
    for place, value in enumerate(values):
        size += len(value) + _OVERHEAD
        if size > room and place > begin:
            yield values[begin:place]
            begin, size = place, len(value) + _OVERHEAD
    if begin < len(values):
        yield values[begin:]
