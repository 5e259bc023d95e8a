"""Records to a producer: a whole batch at once, in place of one after another.

The library's `send` takes a record through checks, locks and a future of its own, which takes as long as everything
that a gateway does with it. A batch that is handed over whole goes the library's own way from there on: it is drained,
sent, repeated, expired and confirmed like any other, and its sequence number, where there were any, the library's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import kafka
from kafka import KafkaProducer, TopicPartition
from kafka.errors import IllegalStateError
from kafka.producer.future import FutureRecordMetadata
from kafka.producer.producer_batch import ProducerBatch
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.record.memory_records import MemoryRecordsBuilder
from kafka.record.util import encode_varint

_KNOWN = "3.0."
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
        head, size = _varint(offset), len(value)
        length = _varint(size)
        # No attributes, no difference in time, no key; and no headers at the end.
        yield _varint(4 + len(head) + len(length) + size)
        yield b"\0\0"
        yield head
        yield b"\1"
        yield length
        yield value
        yield b"\0"


@lru_cache(maxsize=1 << 14)
def _varint(number: int) -> bytes:
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
