"""Batches handed to a producer as a whole: byte for byte the library's own, and treated as its own."""

import time
from random import Random
from types import SimpleNamespace

import kafka
import pytest
from kafka import KafkaProducer, TopicPartition
from kafka.errors import IllegalStateError, InvalidRecordError, KafkaTimeoutError, MessageSizeTooLargeError
from kafka.producer.record_accumulator import RecordAccumulator
from kafka.producer.sender import Sender
from kafka.record import MemoryRecords
from kafka.record.memory_records import MemoryRecordsBuilder

from murk.stream.log.kafka.connection.records import batch_of, send_at_once, takes_batches
from murk.stream.log.kafka.log import Sending

PLACE = TopicPartition("t", 2)
NOW = 1_700_000_000_000


def some(count, longest=200, seed=0):
    rng = Random(seed)
    return [rng.randbytes(rng.randrange(longest)) for _ in range(count)]


def by_library(values, ms=NOW):
    records = MemoryRecordsBuilder(2, 0, 10**9)
    for value in values:
        assert records.append(ms, None, value, [])
    records.close()
    return bytes(records.buffer())


class Producer(KafkaProducer):
    """One with the library's own queue, and no broker."""

    def __init__(self, size=256 * 1024, **settings):
        timeouts = {"request_timeout_ms": 1000, "delivery_timeout_ms": 1000}
        self._accumulator = RecordAccumulator(batch_size=size, **timeouts, **settings)
        self._sender = SimpleNamespace(wakeup=lambda: None)
        self.sent = []

    def __del__(self):
        """There is nothing to close."""

    def partitions_for(self, topic):
        return {0, 1, 2}

    def send(self, topic, value, *, key, partition, timestamp_ms):
        self.sent.append((partition, value))
        return SimpleNamespace(get=lambda timeout: None)

    def drained(self):
        """What the sender takes off the queue, partition by partition."""
        cluster = SimpleNamespace(partitions_for_broker=lambda node: [TopicPartition("t", i) for i in range(3)])
        found = []
        while more := self._accumulator.drain(cluster, [0], 2**20)[0]:
            found += more
        return found


@pytest.mark.parametrize("values", [[b""], [b"x"], some(3), some(70), some(9000, 40), [b"x" * 300_000]])
def test_bytes_are_those_of_the_library(values):
    batch = batch_of(PLACE, values, NOW)
    assert bytes(batch.records.buffer()) == by_library(values)
    assert batch.records.next_offset() == len(values)
    # The twin: another time, and another order.
    assert bytes(batch_of(PLACE, values, NOW + 1).records.buffer()) != by_library(values)
    if len(values) > 1:
        assert bytes(batch_of(PLACE, values[::-1], NOW).records.buffer()) != by_library(values)


@pytest.mark.parametrize("size", [100, 1000, 10_000])
def test_no_batch_is_larger_than_it_may_be_and_order_stays(size):
    producer, values = Producer(size), [*some(200), b"y" * 12_000, *some(9, seed=1)]
    futures = send_at_once(producer, "t", 2, values, NOW)
    drained = producer.drained()
    assert len(drained) == len(futures) > 1
    written = [[record.value for record in part] for one in drained for part in MemoryRecords(one.records.buffer())]
    assert [value for part in written for value in part] == values
    for one, part in zip(drained, written, strict=True):
        assert one.records.size_in_bytes() <= size or len(part) == 1


def test_answers_are_those_of_the_batch():
    producer = Producer(1000)
    futures = send_at_once(producer, "t", 1, some(20), NOW)
    first, *others = producer.drained()
    assert not any(future.is_done for future in futures)
    first.complete(500, -1)
    assert futures[0].get(timeout=0).offset == 500
    for one in others:
        one.complete_exceptionally(InvalidRecordError(), InvalidRecordError)
    for future in futures[1:]:
        with pytest.raises(InvalidRecordError):
            future.get(timeout=0)


def test_nobody_adds_to_it_and_it_is_ready_at_once():
    producer = Producer()
    send_at_once(producer, "t", 0, [b"a"], NOW)
    accumulator = producer._accumulator
    accumulator.append(TopicPartition("t", 0), NOW, None, b"b", [])
    first, second = producer.drained()
    assert (first.records.next_offset(), second.records.next_offset()) == (1, 1)
    # Repeated as it is, before what came after it.
    accumulator.reenqueue(first)
    assert bytes(first.records.buffer()) == by_library([b"a"])
    assert accumulator._batches[TopicPartition("t", 0)][0] is first


def test_what_waits_for_too_long_expires_and_a_closed_producer_takes_nothing():
    producer = Producer()
    (future,) = send_at_once(producer, "t", 0, some(3), NOW)
    (expired,) = producer._accumulator.expired_batches(now=time.monotonic() + 2)
    expired.complete_exceptionally(KafkaTimeoutError(), lambda place: KafkaTimeoutError())
    producer._accumulator.deallocate(expired)
    with pytest.raises(KafkaTimeoutError):
        future.get(timeout=0)
    (future,) = send_at_once(producer, "t", 0, some(3), NOW)
    producer._accumulator.abort_incomplete_batches()
    with pytest.raises(IllegalStateError):
        future.get(timeout=0)
    producer._accumulator.close()
    with pytest.raises(IllegalStateError):
        send_at_once(producer, "t", 0, some(3), NOW)
    with pytest.raises(ValueError, match="partition 7"):
        send_at_once(producer, "t", 7, some(3), NOW)


def test_it_fails_where_the_library_would_split():
    batch = batch_of(PLACE, some(5), NOW)
    sender = SimpleNamespace(_accumulator=Producer()._accumulator)
    assert not Sender._can_split(sender, batch, MessageSizeTooLargeError)


def test_a_numbered_batch_that_the_library_splits_is_answered():
    """Otherwise a shuffler would wait for its crowd for minutes, and then fail."""
    transactions = SimpleNamespace(is_transactional=lambda: True, maybe_add_partition_to_transaction=lambda place: None)
    producer = Producer(transaction_manager=transactions)
    accumulator = producer._accumulator
    (future,) = send_at_once(producer, "t", 2, [b"x" * 500] * 400, NOW)
    batch = accumulator._batches[PLACE].popleft()
    batch.records.close()
    assert Sender._can_split(SimpleNamespace(_accumulator=accumulator), batch, MessageSizeTooLargeError)
    assert accumulator.split_and_reenqueue(batch) == 2
    assert not future.is_done
    for offset, part in zip((700, 900), accumulator._batches[PLACE], strict=True):
        part.complete(offset, -1)
    assert future.get(timeout=0).offset == 700


def test_only_plain_producers_take_batches(monkeypatch):
    assert takes_batches(Producer())
    assert not takes_batches(Producer(compression_attrs=1))
    assert not takes_batches(Producer(message_version=1))
    assert takes_batches(Producer(transaction_manager=SimpleNamespace(is_transactional=lambda: True)))
    # An idempotent producer outside transactions.
    assert not takes_batches(Producer(transaction_manager=SimpleNamespace(is_transactional=lambda: False)))
    assert not takes_batches(SimpleNamespace(_accumulator=None))
    monkeypatch.setattr(kafka, "__version__", "3.1.0")
    assert not takes_batches(Producer())


RECORDS = [(place % 3, b"%d" % place) for place in range(12)]


def sending(producer, monkeypatch, answer):
    """A sender whose batches are answered by ``answer``, in the order in which they are drained."""

    def now(*given):
        futures = send_at_once(*given)
        for batch in producer.drained():
            answer(batch)
        return futures

    monkeypatch.setattr("murk.stream.log.kafka.log.send_at_once", now)
    return Sending(SimpleNamespace(url="kafka://here", sender=lambda: producer))


def test_what_is_delivered_stands_in_order_in_each_partition(monkeypatch):
    producer, seen = Producer(), {}

    def answer(batch):
        own = seen.setdefault(batch.topic_partition.partition, [])
        own += [record.value for part in MemoryRecords(batch.records.buffer()) for record in part]
        batch.complete(0, -1)

    sending(producer, monkeypatch, answer).deliver("t", RECORDS, ms=NOW)
    assert seen == {i: [value for place, value in RECORDS if place == i] for i in range(3)}
    assert not producer.sent


def test_a_topic_that_takes_less_gets_records_by_the_library(monkeypatch):
    producer, asked = Producer(), []

    def answer(batch):
        asked.append(batch)
        batch.complete_exceptionally(MessageSizeTooLargeError(), lambda place: MessageSizeTooLargeError())

    own = sending(producer, monkeypatch, answer)
    own.deliver("t", RECORDS, ms=NOW)
    assert producer.sent == RECORDS
    own.deliver("t", RECORDS, ms=NOW)
    assert producer.sent == 2 * RECORDS
    assert len(asked) == 3, "and from then on at once"


def test_what_has_a_key_is_sent_by_the_library(monkeypatch):
    producer = Producer()
    sending(producer, monkeypatch, pytest.fail).deliver("t", RECORDS, key=b"0", ms=NOW)
    assert producer.sent == RECORDS
