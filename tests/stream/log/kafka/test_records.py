"""Records unpacked a batch at once: what the library gives, record for record and error for error."""

import struct
from collections.abc import Iterator
from random import Random
from typing import Any

import kafka
import numpy as np
import pytest
from kafka import TopicPartition
from kafka.consumer.fetcher import Fetcher
from kafka.protocol.consumer import IsolationLevel
from kafka.record import MemoryRecords
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.util import calc_crc32c

from murk.stream.log.kafka.connection import records
from murk.stream.log.kafka.connection.records import IndexedRecords, index, unpack_at_once

PLACE = TopicPartition("t", 3)
HEADER = DefaultRecordBatch.HEADER_STRUCT
LENGTH_AT, LEADER_AT, MAGIC_AT, ATTRIBUTES_AT, COUNT_AT = 8, 12, 16, 21, 57
APPEND_TIME, TRANSACTIONAL, CONTROL = 0x08, 0x10, 0x20
Item = tuple[int | None, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


def batch(*items: Item, base: int = 0, codec: int = 0, flags: int = 0, step: int = 1, producer: int = -1) -> bytes:
    """A batch as a broker stores it: items are (time, key, value, headers)."""
    own = (producer, 0, 0) if producer >= 0 else (-1, -1, -1)
    builder = DefaultRecordBatchBuilder(2, codec, bool(flags & TRANSACTIONAL), *own, 10**7)
    for place, (time, key, value, headers) in enumerate(items):
        assert builder.append(step * place, time, key, value, headers)
    data = bytearray(builder.build())
    struct.pack_into(">q", data, 0, base)
    struct.pack_into(">h", data, ATTRIBUTES_AT, struct.unpack_from(">h", data, ATTRIBUTES_AT)[0] | flags)
    return sealed(data)


def sealed(data: bytes | bytearray) -> bytes:
    """The batch with its own check sum."""
    whole = bytearray(data)
    struct.pack_into(">I", whole, MAGIC_AT + 1, calc_crc32c(whole[ATTRIBUTES_AT:]))
    return bytes(whole)


def values(count: int, size: int = 20, time: int = 1_700_000_000_000) -> list[Item]:
    rng = Random(count)
    return [(time + rng.randrange(-9, 10**6), None, rng.randbytes(rng.randrange(size)), []) for _ in range(count)]


def fetch(kind: Any, data: bytes, start: int, isolation: Any, aborted: Any, at_once: int, crcs: bool) -> Iterator[Any]:
    """What a fetch gives, and where its reader would go on after each part of it."""
    drained: list[int] = []
    part = kind(
        start, PLACE, MemoryRecords(data), check_crcs=crcs, isolation_level=isolation, aborted_transactions=aborted,
        on_drain=lambda part: drained.append(part.next_fetch_offset),
    )  # fmt: skip
    while part:
        try:
            found = part.take(at_once)
        except Exception as error:  # noqa: BLE001 - whatever the library raises, we raise
            yield type(error), str(error)
            return
        yield [(r.offset, r.timestamp, r.key, r.value, list(r.headers)) for r in found]
        yield part.next_fetch_offset, part.leader_epoch, drained
    yield "drained", drained


def same(data: bytes, start: int = 0, *, committed: bool = False, aborted: Any = None, crcs: bool = True) -> list[Any]:
    """What a fetch gives, which must be what the library's own class makes of it."""
    level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
    for at_once in (3, 10_000):
        theirs, ours = (
            list(fetch(kind, data, start, level, aborted, at_once, crcs))
            for kind in (Fetcher.PartitionRecords, IndexedRecords)
        )
        assert ours == theirs
    return ours


def is_plain(data: bytes) -> bool:
    """Whether a batch is indexed without the library."""
    return len(index(np.frombuffer(data, np.uint8), 0)[1]) > 0


def test_plain_batches_are_unpacked_at_once() -> None:
    for count in (1, 2, 200):
        data = batch(*values(count), base=10**15)
        assert is_plain(data)
        assert len(same(data)[0]) == count
    assert len(same(batch(*values(5)) + batch(*values(7), base=5) + batch(*values(1), base=12))[0]) == 13
    # Lengths of one to four bytes, times that go back, offsets with gaps as a compacted topic has them.
    large: list[Item] = [(1_700_000_000_000 - 10**6 * n, None, bytes(n), []) for n in (0, 63, 64, 8_191, 8_192, 2**20)]
    assert is_plain(batch(*large, step=3, base=7))
    same(batch(*large, step=3, base=7))


def test_the_brokers_time_stands_in_place_of_the_senders() -> None:
    data = batch(*values(20), flags=APPEND_TIME)
    assert is_plain(data)
    times = {time for _, time, *_ in same(data)[0]}
    assert times == {HEADER.unpack_from(data)[8]}


@pytest.mark.parametrize("start", [0, 1, 6, 7, 11, 12, 40])
def test_a_fetch_may_begin_and_end_within_a_batch(start: int) -> None:
    data = batch(*values(7)) + batch(*values(9), base=7)
    same(data, start)
    for cut in (1, 60, 61, 100, len(data) - 1):
        same(data[:cut], start)


def at(data: bytes, base: int) -> bytes:
    """The batch at another offset, which its check sum does not cover."""
    return struct.pack(">q", base) + data[8:]


KEYED = {
    "a key": batch(*values(3), (1, b"k", b"v", [])),
    "an empty key": batch(*values(3), (1, b"", b"v", [])),
    "a long key": batch((1, b"k" * 9_000, b"v", []), *values(3)),
}
OTHERS: dict[str, bytes] = {
    "compressed": batch(*values(50, 400), *[(0, None, b"a" * 500, [])], codec=1),
    "compressed, with keys and the broker's time": batch(*[(9, b"k", b"a" * 50, [])] * 9, codec=1, flags=APPEND_TIME),
    "compressed, with a header": batch(*[(0, None, b"a" * 50, [("h", b"x")])] * 9, codec=1),
    "said to be compressed": batch(*values(3), flags=1),
    "said to be compressed in an unknown way": batch(*values(3), flags=7),
    "without a value": batch(*values(3), (1, None, None, [])),
    "with a header": batch(*values(3), (1, None, b"v", [("h", b"x"), ("i", None)])),
    "a mark of a transaction": batch((1, b"\0\0\0\1", b"\0\0\0\0\0\0", []), flags=TRANSACTIONAL | CONTROL, producer=4),
    "a mark that looks like a release": batch((1, None, b"v", []), flags=CONTROL),
    "empty": batch(),
}


@pytest.mark.parametrize("name", KEYED)
def test_keys_are_kept(name: str) -> None:
    data = KEYED[name]
    assert is_plain(data)
    assert any(record[2] is not None for record in same(batch(*values(4)) + at(data, 4) + batch(*values(1), base=8))[0])


@pytest.mark.parametrize("name", OTHERS)
def test_other_batches_are_the_librarys(name: str) -> None:
    other = OTHERS[name]
    assert not is_plain(other)
    first, last = batch(*values(4)), batch(*values(3), base=900)
    for data in (other, first + at(other, 100) + last, at(other, 100) + last):
        same(data)
    same(first + at(other, 100) + last, committed=True)


def test_what_devices_send_one_by_one_is_indexed_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """In runs, between which other batches and a wrong check sum stand; a fetch may end within a batch."""
    single = [batch(value, base=place) for place, value in enumerate(values(40))]
    calls: list[int] = []
    monkeypatch.setattr(records, "index", lambda *given: calls.append(given[1]) or index._function(*given))  # type: ignore[attr-defined]
    same(b"".join(single), 5)
    assert len(calls) == 2, "two readings, each in one call"
    for other in (OTHERS["with a header"], OTHERS["compressed"], KEYED["a key"], OTHERS["a mark of a transaction"]):
        data = single[:]
        data[11] = at(other, 11)
        for cut in (0, 1, 30):
            whole = b"".join(data)
            same(whole[: len(whole) - cut])
    data[20] = data[20][:-2] + b"!!"
    same(b"".join(data))
    for most in (1, 2, 7):
        monkeypatch.setattr(records, "_RUN", most)
        same(b"".join(data))


@pytest.mark.parametrize("magic", [0, 1])
def test_batches_of_old_brokers_are_the_librarys(magic: int) -> None:
    builder = LegacyRecordBatchBuilder(magic, 0, 10**6)
    for place in range(5):
        builder.append(place, 1_700_000_000_000, None, b"value")
    same(bytes(builder.build()))
    same(batch(*values(3)) + bytes(builder.build()))


class Aborted:
    producer_id, first_offset = 4, 0


@pytest.mark.parametrize("committed", [False, True])
def test_aborted_transactions_are_seen_by_uncommitted_readers_alone(committed: bool) -> None:
    mark = bytearray(OTHERS["a mark of a transaction"])
    struct.pack_into(">q", mark, 0, 5)
    data = batch(*values(5), flags=TRANSACTIONAL, producer=4) + bytes(mark) + batch(*values(2), base=6)
    assert is_plain(data)
    found = same(data, committed=committed, aborted=[Aborted()])
    assert len(found[0]) == (2 if committed else 7)


def test_a_wrong_check_sum_is_an_error() -> None:
    good, bad = batch(*values(4)), bytearray(batch(*values(4), base=4))
    bad[-2] ^= 1
    assert same(good + bytes(bad))[0]
    kind, words = same(bytes(bad))[0]
    assert kind.__name__ == "CorruptRecordError"
    assert "failed crc check" in words


@pytest.mark.parametrize("crcs", [True, False])
def test_hostile_bytes_give_what_the_library_gives(crcs: bool) -> None:
    """With a check sum of their own, as a broker would pass them on that checks nothing else."""
    rng, honest = Random(1), [batch(value) for value in values(2)]
    wholes = batch(*values(12, 200), base=3), KEYED["a key"], batch(*values(6, 300), codec=1)
    kept = 0
    for turn in range(3_000):
        data = bytearray(wholes[turn % 3])
        for _ in range(rng.choice((1, 1, 2, 5))):
            place = rng.randrange(ATTRIBUTES_AT if crcs else LEADER_AT, len(data))
            data[place] = rng.choice((rng.randrange(256), 0, 1, 0x7F, 0x80, 0xFF, data[place] ^ 1 << rng.randrange(8)))
        # The number of records is read as it stands: none that keeps the library counting.
        if struct.unpack_from(">i", data, COUNT_AT)[0] > 10**6:
            continue
        kept += is_plain(bytes(data))
        # Between others, which it must not spoil.
        same(at(honest[0], 0) + sealed(data) + at(honest[1], 10**7), crcs=crcs)
    assert 50 < kept < 2_950


@pytest.mark.parametrize("length", [-(2**31), -400, -300, -113, -13, -12, -1, 0, 1, 48, 49, 2**31 - 1])
def test_a_length_that_is_made_up(length: int) -> None:
    """A negative one leads the library back, or to a slice that ends near the end of the fetch."""
    for place in range(3):
        parts = [batch(*values(1, 90), base=place) for place in range(4)]
        parts[place] = parts[place][:LENGTH_AT] + struct.pack(">i", length) + parts[place][LEADER_AT:]
        same(b"".join(parts))


@pytest.mark.parametrize("place", [0, 27, 35])
@pytest.mark.parametrize("number", [2**62 - 1, 2**62, 2**63 - 1, -(2**62), -(2**63)])
def test_offsets_and_times_do_not_overflow(place: int, number: int) -> None:
    data = bytearray(batch((0, None, b"v", []), (2**40, None, b"w", [])))
    struct.pack_into(">q", data, place, number)
    same(sealed(data))
    same(sealed(data), -(2**63))


def test_numbers_of_every_length() -> None:
    """Of a record's fields, each varint in turn; those of more bytes than any honest one has are the library's."""
    head = bytearray(batch((0, None, b"v", [])))[: HEADER.size]
    for extra in range(12):
        for field in range(5):
            fields = [b"\x00", b"\x00", b"\x01", b"\x02", b"\x00"]
            number = fields[field]
            if extra:
                fields[field] = bytes([number[0] | 0x80, *[0x80] * (extra - 1), 0])
            time, offset, key, size, count = fields
            body = b"\0" + time + offset + key + size + b"v" + count
            data = bytearray(head + bytes([2 * len(body)]) + body)
            struct.pack_into(">i", data, LENGTH_AT, len(data) - LEADER_AT)
            same(sealed(data))


@pytest.mark.parametrize("count", [-(2**31), -1, 0, 1, 2, 4, 6, 10_000])
def test_a_number_of_records_that_is_made_up(count: int) -> None:
    data = bytearray(batch(*values(5)))
    struct.pack_into(">i", data, COUNT_AT, count)
    assert not is_plain(bytes(data))
    same(sealed(data))


def test_the_index_is_the_same_interpreted_and_compiled() -> None:
    rng = Random(2)
    whole = np.frombuffer(batch(*values(6, 200)) + KEYED["a key"] + batch(*values(1), base=9), dtype=np.uint8)
    found = 0
    for _ in range(300):
        data = whole.copy()
        data[rng.randrange(len(data))] = rng.randrange(256)
        data.setflags(write=False)
        places = [how(data, 0) for how in (index._function, index.compiled)]  # type: ignore[attr-defined]
        assert all(map(np.array_equal, *places))
        found += len(places[0][1]) == 3
    assert 0 < found < 300


def test_another_version_of_the_library_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class Consumer:
        def __init__(self) -> None:
            self._fetcher = type("F", (), {"PartitionRecords": Fetcher.PartitionRecords})()

    known, later = Consumer(), Consumer()
    unpack_at_once(known)
    assert known._fetcher.PartitionRecords is IndexedRecords
    monkeypatch.setattr(records.kafka, "__version__", "3.1.0")
    unpack_at_once(later)
    assert later._fetcher.PartitionRecords is Fetcher.PartitionRecords
    assert kafka.__version__ == "3.1.0"
