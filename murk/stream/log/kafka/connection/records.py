"""Records out of a fetch: a batch at once where it is of the plain form that releases have, else as the library does.

The library unpacks field by field, in Python, which takes as long as everything that is then done with a release.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import kafka
import numpy as np
from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError
from kafka.protocol.consumer import IsolationLevel

from murk.stream.log.kafka.connection.record_index import index

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
