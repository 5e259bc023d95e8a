"""Fast paths around kafka-python's per-record work: plain batches are unpacked and sent as a whole.

They use private parts of kafka-python 3.0. With any other version, and for any batch that is not plain, the library's
public interface is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import repeat
from struct import Struct
from typing import Any, NamedTuple

import kafka
import numpy as np
from kafka import KafkaProducer, TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError, IllegalStateError
from kafka.producer.future import FutureRecordMetadata
from kafka.producer.producer_batch import ProducerBatch
from kafka.protocol.consumer import IsolationLevel
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecordsBuilder
from kafka.record.util import calc_crc32c, encode_varint
from numpy.typing import NDArray

from murk._internal.jit import deferred, inlined, jit_helper

_KNOWN = "3.0."  # prefix of the library's versions whose private parts are used here
_MAGIC = 2
_OVERHEAD = DefaultRecordBatchBuilder.MAX_RECORD_OVERHEAD  # largest number of bytes of a record besides its value
_LONGEST = 9  # bytes of the longest varint, of 63 bits
_LARGEST = 2**62  # batches with larger offsets or times are left to the library
# The header of a batch: its size, the places of its fields, and bits of its attributes.
_HEAD, _LENGTH_AT, _EPOCH_AT, _MAGIC_AT, _CHECK_AT, _ATTRIBUTES_AT = (
    DefaultRecordBatch.HEADER_STRUCT.size,
    8,
    12,
    16,
    17,
    21,
)
_LAST_OFFSET_AT, _FIRST_TIME_AT, _LAST_TIME_AT, _COUNT_AT = 23, 27, 35, 57
_COMPRESSED, _APPENDED, _MARK = 0x07, 0x08, 0x20
_LONG, _INT = Struct(">q"), Struct(">i")
_LARGEST_BATCH = 2**26  # bytes of an uncompressed batch that is copied to be indexed at once
_RUN = 1024  # batches that are indexed at once
_ROWS = 2**16  # records that are indexed at once, unless one batch has more: a short record takes fifty times its size


def _is_known() -> bool:
    return bool(kafka.__version__.startswith(_KNOWN))


# Reading

Array = Any


@inlined
def _read_varint(data: NDArray[np.uint8], position: int) -> tuple[int, int]:
    """Return a zigzag number of at most 63 bits and the position after it, or -1 where there is none."""
    value, shift = np.int64(0), np.int64(0)
    end = np.int64(-1)
    for index in range(position, min(position + _LONGEST, len(data))):
        value |= np.int64(data[index] & 0x7F) << shift
        shift += 7
        if data[index] < 0x80:
            end = np.int64(index + 1)
            break
    return int((value >> 1) ^ -(value & 1)), int(end)


@jit_helper
def _read_integer(data: Array, position: Array, size: Array) -> Any:
    """Return the signed big-endian integer of some bytes."""
    number = np.int64(data[position])
    if number > 0x7F:
        number -= 0x100
    for index in range(position + 1, position + size):
        number = (number << 8) | np.int64(data[index])
    return number


@jit_helper
def _end_of_batch(data: Array, position: Array) -> Any:
    """Return the end of the batch at a position; -1 if it is cut off, not of magic 2, compressed or a control batch."""
    if len(data) - position < _HEAD or data[position + _MAGIC_AT] != _MAGIC:
        return -1
    if data[position + _ATTRIBUTES_AT + 1] & (_COMPRESSED | _MARK):
        return -1
    end = position + _read_integer(data, position + _LENGTH_AT, 4) + _LENGTH_AT + 4
    # No record is shorter than seven bytes: a forged count reserves no memory.
    if not position + _HEAD <= end <= len(data):
        return -1
    if not 1 <= _read_integer(data, position + _COUNT_AT, 4) <= (end - position) // 7:
        return -1
    for index in (0, _FIRST_TIME_AT, _LAST_TIME_AT):
        # Not by `abs`: the smallest integer is its own absolute value.
        if not -_LARGEST < _read_integer(data, position + index, 8) < _LARGEST:
            return -1
    return end


@jit_helper
def _index_batch(data: Array, start: Array, end: Array, found: Array, i: Array) -> Any:
    """Fill in the records of a batch from a row on; return the row after them, or -1 if one is not plain."""
    base, first = _read_integer(data, start, 8), _read_integer(data, start + _FIRST_TIME_AT, 8)
    appended = _read_integer(data, start + _LAST_TIME_AT, 8)
    epoch, is_appended = _read_integer(data, start + _EPOCH_AT, 4), data[start + _ATTRIBUTES_AT + 1] & _APPENDED
    position = start + _HEAD
    for _ in range(_read_integer(data, start + _COUNT_AT, 4)):
        length, begin = _read_varint(data[:end], position)
        if begin < 0 or begin >= end or data[begin] >= 0x80:
            return -1
        time, position = _read_varint(data[:end], begin + 1)
        if position < 0:
            return -1
        offset, position = _read_varint(data[:end], position)
        if position < 0 or abs(offset) >= _LARGEST or abs(time) >= _LARGEST:
            return -1
        key, position = _read_varint(data[:end], position)
        if position < 0 or key > end - position:
            return -1
        found[i, 4], found[i, 5] = position, position + key if key >= 0 else -1
        found[i, 6] = epoch
        position += max(key, 0)
        size, position = _read_varint(data[:end], position)
        # One byte is left for the number of headers, 0.
        if position < 0 or size < 0 or size >= end - position:
            return -1
        found[i, 0], found[i, 1] = base + offset, appended if is_appended else first + time
        found[i, 2], found[i, 3] = position, position + size
        position += size
        if data[position] != 0:
            return -1
        position += 1
        if position - begin != length:
            return -1
        i += 1
    return i if position == end else -1


@deferred
def index(data: Array, start: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the records of the plain batches at a position: uncompressed, and all records with a value, no headers.

    ``data`` has batches in Kafka's message format (https://kafka.apache.org/documentation/#recordbatch). Return
    ``(m, 7)`` integers: each record's offset and time, begin and end of its value and of its key (end -1: none), and
    its batch's epoch; and ``(b, 4)``: begin, end and check sum of each batch, and the number of records up to its end.
    Both end before the first batch that is not plain; after `_RUN` batches, so that a batch that is not plain costs at
    most as many headers; or before there are more than `_ROWS` records, which bounds memory.
    """
    count, batches, position = 0, 0, start
    while batches < _RUN:
        end = _end_of_batch(data, position)
        if end < 0:
            break
        more = _read_integer(data, position + _COUNT_AT, 4)
        if batches > 0 and count + more > _ROWS:
            break
        count += more
        batches += 1
        position = end
    records, bounds = np.empty((count, 7), np.int64), np.empty((batches, 4), np.int64)
    position, row = start, 0
    for batch in range(batches):
        end, before = _end_of_batch(data, position), row
        row = _index_batch(data, position, end, records, row)
        if row < 0:
            return records[:before], bounds[:batch]
        bounds[batch, 0], bounds[batch, 1], bounds[batch, 3] = position, end, row
        bounds[batch, 2] = _read_integer(data, position + _CHECK_AT, 4) & 0xFFFFFFFF
        position = end
    return records, bounds


class Record(NamedTuple):
    """A plain record; times are in milliseconds since 1970."""

    offset: int
    timestamp: int
    value: bytes
    key: bytes | None = None
    headers: tuple[()] = ()


_record = partial(tuple.__new__, Record)  # faster than `Record._make`


class IndexedRecords(Fetcher.PartitionRecords):  # type: ignore[misc]
    """The records of one partition's fetch; plain batches are unpacked together, compressed ones each as a whole.

    The library unpacks other batches (control, damaged, with headers), and all from the first one of an older format.
    """

    def _unpack_records(self, tp: Any, records: Any, key_deserializer: Any, value_deserializer: Any) -> Iterator[Any]:
        if self.isolation_level == IsolationLevel.READ_COMMITTED:
            # Only the library knows which transactions were aborted.
            yield from super()._unpack_records(tp, records, key_deserializer, value_deserializer)
            return
        data, after = bytes(records._buffer), None
        while records.has_next():
            size = len(records._next_slice)
            start, whole = records._pos - size, 0
            # If a batch states a negative length, its slice is another part of the data, or there is none.
            if size >= _HEAD and start >= 0:
                found, bounds = index(np.frombuffer(data, np.uint8), start)
                whole = _whole(data, bounds) if self.check_crcs else len(bounds)
            if whole:
                last, end, _, count = bounds[whole - 1].tolist()
                self.records_read += count
                self.bytes_read += end - start
                for record, epoch in zip(_rows(data, found[:count]), found[:count, 6].tolist(), strict=True):
                    # The reader may stop here.
                    self.next_fetch_offset, self.leader_epoch = record.offset + 1, epoch
                    yield record
                after = _LONG.unpack_from(data, last)[0] + _INT.unpack_from(data, last + _LAST_OFFSET_AT)[0] + 1
                records._pos = end
                records._cache_next()
                continue
            batch = records.next_batch()
            if batch.magic != _MAGIC:
                yield from super()._unpack_records(tp, _Rest(batch, records), key_deserializer, value_deserializer)
                return
            if self.check_crcs and not batch.validate_crc():
                # The same words as in kafka-python.
                raise CorruptRecordError(
                    f"Record batch for partition {tp} at offset {batch.base_offset} failed crc check"
                )
            self.leader_epoch, after = batch.leader_epoch, batch.next_offset
            if batch.is_control_batch:
                self.next_fetch_offset = after
                continue
            self.bytes_read += batch.size_in_bytes
            for record in _uncompressed(batch):
                self.records_read += 1
                self.next_fetch_offset = record.offset + 1
                yield record
        if after is not None:
            self.next_fetch_offset = after
        self.drain()


class _Rest:
    """A batch that was taken off a fetch, and the batches after it."""

    def __init__(self, first: Any, others: Any) -> None:
        self._first, self._others = first, others

    def next_batch(self) -> Any:
        first, self._first = self._first, None
        return self._others.next_batch() if first is None else first


def _whole(data: bytes, bounds: NDArray[np.int64]) -> int:
    """Return the number of batches before the first one with a wrong check sum."""
    view = memoryview(data)
    for index, (begin, end, check, _) in enumerate(bounds.tolist()):
        if calc_crc32c(view[begin + _ATTRIBUTES_AT : end]) != check:
            return index
    return len(bounds)


def _rows(data: bytes, found: NDArray[np.int64]) -> list[Record]:
    """Return the records that `index` has found."""
    offsets, times, starts, stops, _, key_stops, _ = found.T.tolist()
    values = map(data.__getitem__, map(slice, starts, stops))
    if max(key_stops, default=-1) < 0:
        return list(map(_record, zip(offsets, times, values, repeat(None), repeat(()), strict=False)))
    keys = [None if stop < 0 else data[start:stop] for start, stop in found[:, 4:6].tolist()]
    return list(map(_record, zip(offsets, times, values, keys, repeat(()), strict=False)))


def _uncompressed(batch: Any) -> Iterable[Any]:
    """Return the records of a batch that is not plain, read as a whole if it is compressed and otherwise plain."""
    if batch.compression_type == batch.CODEC_NONE:
        return batch  # type: ignore[no-any-return]
    head = batch._buffer[:_HEAD]
    iter(batch)  # uncompresses
    # A compressed batch may hold any number of records: the library makes many of them one by one.
    if batch.records_count <= _ROWS and len(batch._buffer) < _LARGEST_BATCH:
        head[_ATTRIBUTES_AT + 1] &= ~_COMPRESSED
        _INT.pack_into(head, _LENGTH_AT, _HEAD + len(batch._buffer) - _LENGTH_AT - _INT.size)
        data = bytes(head + batch._buffer)
        count, bounds = index(np.frombuffer(data, np.uint8), 0)
        if len(bounds):
            return _rows(data, count)
    return batch  # type: ignore[no-any-return]


def unpack_at_once(consumer: Any) -> None:
    """Let a consumer unpack each plain batch as a whole, if the library's version is known."""
    if _is_known():
        consumer._fetcher.PartitionRecords = IndexedRecords


# Sending


class WholeBatch(ProducerBatch):  # type: ignore[misc]
    """A batch that is confirmed or refused as a whole, and fails if it is too large for its topic."""

    @property
    def record_count(self) -> int:
        """One, whatever the number of records in the batch."""
        return 1


def takes_batches(producer: Any) -> bool:
    """Return whether a producer can send whole batches: known version, uncompressed, transactional if idempotent."""
    if not isinstance(producer, KafkaProducer) or not _is_known():
        return False
    config = producer._accumulator.config
    plain = config["message_version"] == _MAGIC and config["compression_attrs"] == 0
    transactions = config["transaction_manager"]
    return plain and (transactions is None or transactions.is_transactional())


def send_at_once(producer: Any, topic: str, partition: int, values: Sequence[bytes], ms: int) -> list[Any]:
    """Send values in order, without keys, headers or waiting; return one future for each batch.

    ``ms`` is their time in milliseconds since 1970. From here on the library handles a batch like its own: it drains,
    repeats, expires and confirms it. Raises `ValueError` if the topic has no such partition; `KafkaError` if the
    topic's metadata do not arrive in time, or the producer was closed.
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
    """Return a batch with the same bytes as the library's own builder makes.

    The library writes the sequence number of a ``numbered`` batch, and counts its records, when it sends it.
    """
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
