"""Sending outside of transactions: releases from devices, and models between commits."""

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

_SHORTEST, _LONGEST = 1.0, 30.0
"""Seconds without an attempt to send after one that failed; each failure doubles them."""


class Sending:
    """A producer, made when it is first needed, that does not wait for a dead broker with every record.

    Parameters
    ----------
    clients
        Makes the producer.
    """

    def __init__(self, clients: Clients) -> None:
        self._clients = clients
        self._producer: Any = None
        self._at_once = False
        self._not_before, self._pause = 0.0, _SHORTEST

    def deliver(self, topic: str, records: Sequence[tuple[int, bytes]], *, key: bytes | None = None, ms: int) -> None:
        """Send (partition, value) pairs in order, and wait until all replicas have them.

        Raises
        ------
        UnreachableError
            When that was not confirmed in time, or the last failure was a moment ago.
        """
        with self._trying():
            if key is None and self._at_once:
                try:
                    self._wait(self._send_batches(topic, records, ms))
                    return
                except (MessageSizeTooLargeError, RecordListTooLargeError):
                    # A topic that takes less than a batch: the library splits those that it made itself. What was
                    # taken already counts once.
                    self._at_once = False
            self._wait(
                [
                    self._producer.send(topic, value, key=key, partition=partition, timestamp_ms=ms)
                    for partition, value in records
                ]
            )

    def start(self, topic: str, partition: int, value: bytes, key: bytes) -> Any:
        """Send a record without waiting; give what says when it has arrived.

        Raises
        ------
        UnreachableError
            When the topic could not be found in time, or the last failure was a moment ago.
        """
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
            for partition, own in values.items()
            for future in send_at_once(self._producer, topic, partition, own, ms)
        ]

    def _wait(self, futures: Sequence[Any]) -> None:
        try:
            for future in futures:
                future.get(timeout=3 * PATIENCE_MS / 1000)
        except KafkaError as error:
            # A future raises the error that it holds, whose traceback holds the future and, up to its caller, all that
            # was to be sent: a cycle, with megabytes at each try while a broker is away.
            del future, futures
            error.__traceback__ = None
            raise

    @contextmanager
    def pausing(self) -> Iterator[None]:
        """Ask for what belongs to a send, unless the broker could not be reached a moment ago.

        Raises
        ------
        UnreachableError
            When it could not, or cannot now: otherwise each of many releases would wait for a broker that is gone.
        """
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
            # Only here: a topic that takes nothing may still say where it begins.
            self._pause = _SHORTEST
