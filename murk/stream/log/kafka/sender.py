"""Send outside transactions: releases from devices, and models between commits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

from kafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError

from murk.stream.log.base import UnreachableError
from murk.stream.log.kafka.connection.clients import PATIENCE_MS, Clients
from murk.stream.log.kafka.connection.errors import translate_errors
from murk.stream.log.kafka.connection.records import send_at_once, takes_batches

_SHORTEST, _LONGEST = 1.0, 30.0  # seconds between a failed attempt and the next one, doubling up to the latter


class Sending:
    """A producer, created on first use, that pauses after failures: no record waits for a broker that is away."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._producer: Any = None
        self._at_once = False
        self._not_before, self._pause = 0.0, _SHORTEST

    def deliver(self, topic: str, records: Sequence[tuple[int, bytes]], *, key: bytes | None = None, ms: int) -> None:
        """Send (partition, value) pairs in order, and wait until all replicas have them.

        Raises `UnreachableError` if that was not confirmed in time, or the last failure was a moment ago.
        """
        with self._trying():
            if key is None and self._at_once:
                try:
                    self._wait(self._send_batches(topic, records, ms))
                    return
                except (MessageSizeTooLargeError, RecordListTooLargeError):
                    # The batch exceeds the topic's limit. The library splits batches of its own; releases that are sent
                    # twice count once.
                    self._at_once = False
            send = self._producer.send
            self._wait([send(topic, value, key=key, partition=part, timestamp_ms=ms) for part, value in records])

    def start(self, topic: str, partition: int, value: bytes, key: bytes) -> Any:
        """Send a record without waiting; return a future. Raises `UnreachableError` as `deliver` does."""
        with self._trying():
            return self._producer.send(topic, value, key=key, partition=partition)

    def close(self) -> None:
        """Close the producer."""
        if self._producer is not None:
            self._producer.leave(1.0)
            self._producer = None

    def _send_batches(self, topic: str, records: Sequence[tuple[int, bytes]], ms: int) -> list[Any]:
        values: dict[int, list[bytes]] = {}
        for partition, value in records:
            values.setdefault(partition, []).append(value)
        return [
            future
            for partition, messages in values.items()
            for future in send_at_once(self._producer, topic, partition, messages, ms)
        ]

    def _wait(self, futures: Sequence[Any]) -> None:
        try:
            for future in futures:
                future.get(timeout=3 * PATIENCE_MS / 1000)
        except KafkaError as error:
            # The error's traceback refers to the future, which refers to the error: a cycle that keeps megabytes of
            # records alive at each attempt while a broker is away.
            del future, futures
            error.__traceback__ = None
            raise

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Allow a request that belongs to a send; `UnreachableError` if the broker is unreachable or just was."""
        if monotonic() < self._not_before:
            raise UnreachableError(f"{self._clients.url} could not be reached a moment ago")
        try:
            yield
        except UnreachableError:
            self._not_before = monotonic() + self._pause
            self._pause = min(2.0 * self._pause, _LONGEST)
            raise

    @contextmanager
    def _trying(self) -> Iterator[None]:
        with self.pausing():
            if self._producer is None:
                self._producer = self._clients.sender()
                self._at_once = takes_batches(self._producer)
            with translate_errors(self._clients.url, "sending"):
                yield
            # Not in `pausing`: a topic that accepts no record may still tell where it begins.
            self._pause = _SHORTEST
