"""Fast paths around kafka-python's per-record work: plain batches are unpacked and sent as a whole.

They use private parts of kafka-python 3.0. With any other version, and for any batch that is not plain, the library's
public interface is used.
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

_KNOWN = "3.0."  # versions whose private parts are used here
_MAGIC = 2
_OVERHEAD = DefaultRecordBatchBuilder.MAX_RECORD_OVERHEAD  # largest number of bytes of a record besides its value
_LONGEST = 9  # bytes of the longest varint, of 63 bits


def _is_known() -> bool:
    return bool(kafka.__version__.startswith(_KNOWN))


# Reading


@inlined
def _read_varint(data: NDArray[np.uint8], position: int) -> tuple[int, int]:
    """Return a zigzag number of at most 63 bits and the position after it, or -1 where there is none."""
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
    """Find the records of a batch, if all have a value, no key and no headers.

    ``data`` is an uncompressed batch of magic 2 in Kafka's message format
    (https://kafka.apache.org/documentation/#recordbatch) with ``count`` records from the position ``start`` on. Return
    ``(count, 4)`` integers: differences of each record's offset and time from the batch's, and begin and end of its
    value; ``(0, 4)`` for any other or damaged batch.
    """
    nothing = np.empty((0, 4), dtype=np.int64)
    # No record is shorter than seven bytes: a forged count reserves no memory.
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
        # One byte is left for the number of headers, 0.
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


class Record(NamedTuple):
    """A plain record; times are in milliseconds since 1970."""

    offset: int
    timestamp: int
    value: bytes
    key: None = None
    headers: tuple[()] = ()


_record = partial(tuple.__new__, Record)  # faster than `Record._make`


class IndexedRecords(Fetcher.PartitionRecords):  # type: ignore[misc]
    """The records of one partition's fetch, unpacked by batches; from the first batch that is not `plain`, singly."""

    def _unpack_records(self, tp: Any, records: Any, key_deserializer: Any, value_deserializer: Any) -> Iterator[Any]:
        if self.isolation_level == IsolationLevel.READ_COMMITTED:
            # Only the library knows which transactions were aborted.
            yield from super()._unpack_records(tp, records, key_deserializer, value_deserializer)
            return
        last = None
        while (batch := records.next_batch()) is not None:
            unpacked = plain(batch)
            if unpacked is None:
                rest = _Rest(batch, records)
                yield from super()._unpack_records(tp, rest, key_deserializer, value_deserializer)
                return
            if self.check_crcs and not batch.validate_crc():
                # As kafka-python says it.
                raise CorruptRecordError(
                    f"Record batch for partition {tp} at offset {batch.base_offset} failed crc check"
                )
            self.leader_epoch = batch.leader_epoch
            self.records_read += len(unpacked)
            self.bytes_read += batch.size_in_bytes
            for record in unpacked:
                # The reader may stop here.
                self.next_fetch_offset = record.offset + 1
                yield record
            last = batch
        if last is not None:
            self.next_fetch_offset = last.next_offset
        self.drain()


class _Rest:
    """A batch that was taken off a fetch, and the batches after it."""

    def __init__(self, first: Any, others: Any) -> None:
        self._first, self._others = first, others

    def next_batch(self) -> Any:
        first, self._first = self._first, None
        return self._others.next_batch() if first is None else first


def plain(batch: Any) -> list[Record] | None:
    """Return the records of a batch as the library would; None if compressed, old, control, damaged, with keys."""
    if batch.magic != 2 or batch.compression_type != batch.CODEC_NONE or batch.is_control_batch:
        return None
    data = bytes(batch._buffer)
    positions = index(np.frombuffer(data, dtype=np.uint8), batch.HEADER_STRUCT.size, batch.records_count)
    if not len(positions):
        return None
    offset, first = batch.base_offset, batch.first_timestamp
    offset_deltas, time_deltas, starts, stops = positions.T.tolist()
    if batch.timestamp_type == batch.LOG_APPEND_TIME:
        times: Iterable[int] = repeat(batch.max_timestamp)
    else:
        times = [first + delta for delta in time_deltas]
    offsets = [offset + delta for delta in offset_deltas]
    values = map(data.__getitem__, map(slice, starts, stops))
    return list(map(_record, zip(offsets, times, values, repeat(None), repeat(()), strict=False)))


def unpack_at_once(consumer: Any) -> None:
    """Let a consumer unpack each plain batch as a whole, if the library's version is known."""
    if _is_known():
        consumer._fetcher.PartitionRecords = IndexedRecords


# Sending


class WholeBatch(ProducerBatch):  # type: ignore[misc]
    """A batch that is confirmed or refused as a whole, and fails if it is too large for its topic."""

    @property
    def record_count(self) -> int:
        """One, whatever the batch holds."""
        return 1


def takes_batches(producer: Any) -> bool:
    """Return whether whole batches can be sent: known version, format 2, plain, unnumbered or in transactions."""
    if not isinstance(producer, KafkaProducer) or not _is_known():
        return False
    config = producer._accumulator.config
    plain = config["message_version"] == _MAGIC and config["compression_attrs"] == 0
    transactions = config["transaction_manager"]
    return plain and (transactions is None or transactions.is_transactional())


def send_at_once(producer: Any, topic: str, partition: int, values: Sequence[bytes], ms: int) -> list[Any]:
    """Send values in order, without keys, headers or waiting; return one future for each batch.

    ``ms`` is their time in milliseconds since 1970. The library drains, repeats, expires and confirms the batches like
    its own. Raises `ValueError` if the topic has no such partition; `KafkaError` if the topic's metadata do not arrive
    in time, or the producer was closed.
    """
    if partition not in producer.partitions_for(topic):
        raise ValueError(f"Unrecognized partition {partition} for topic {topic}")
    topic_partition, accumulator = TopicPartition(topic, partition), producer._accumulator
    transactions = accumulator.config["transaction_manager"]
    if transactions is not None:
        transactions.maybe_add_partition_to_transaction(topic_partition)
    futures = []
    for part in _parts(values, accumulator.config["batch_size"]):
        batch = batch_of(topic_partition, part, ms, numbered=transactions is not None)
        future = FutureRecordMetadata(batch.produce_future, 0, ms, None, -1, len(part[0]), -1)
        # The library may split a numbered batch; the future is then that of its first part.
        batch._record_futures.append(future)
        # As in the library's `append`: closing the producer waits for appends in progress.
        accumulator._appends_in_progress.increment()
        try:
            with accumulator._tp_lock(topic_partition):
                if accumulator._closed:
                    raise IllegalStateError("RecordAccumulator is closed")
                accumulator._batches[topic_partition].append(batch)
                accumulator._incomplete.add(batch)
        finally:
            accumulator._appends_in_progress.decrement()
        futures.append(future)
    producer._sender.wakeup()
    return futures


def batch_of(topic_partition: TopicPartition, values: Sequence[bytes], ms: int, numbered: bool = False) -> Any:
    """Return a batch with the same bytes as the library's own; it numbers a ``numbered`` one when it sends it."""
    count = len(values)
    records = MemoryRecordsBuilder(_MAGIC, 0, 0)
    builder = records._builder
    builder._buffer += b"".join(_body(values))
    builder._first_timestamp = builder._max_timestamp = ms
    builder._last_offset, builder._num_records = count - 1, count
    records._next_offset = count
    if not numbered:
        records.close()
    batch = (ProducerBatch if numbered else WholeBatch)(topic_partition, records)
    batch.max_record_size = max(map(len, values)) + _OVERHEAD
    return batch


def _body(values: Sequence[bytes]) -> Iterator[bytes]:
    for offset, value in enumerate(values):
        head, size = _write_varint(offset), len(value)
        length = _write_varint(size)
        # No attributes, time delta 0, no key, no headers.
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
    room = most - DefaultRecordBatchBuilder.HEADER_STRUCT.size
    begin, size = 0, 0
    for position, value in enumerate(values):
        size += len(value) + _OVERHEAD
        if size > room and position > begin:
            yield values[begin:position]
            begin, size = position, len(value) + _OVERHEAD
    if begin < len(values):
        yield values[begin:]
