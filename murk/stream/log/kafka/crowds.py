"""The shuffler's side of a log on a cluster: its mark, and one transaction for each crowd."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka.errors import KafkaError

from murk.stream.log.base import CrowdMark, FencedError, check_claim, check_mark
from murk.stream.log.kafka.connection.clients import CROWD_MS, Clients
from murk.stream.log.kafka.connection.errors import translate
from murk.stream.log.kafka.task_record import TASK_PLACE
from murk.stream.log.kafka.topics import Names

MARK = b"shuffler"
"""Key, on the topic of models and on the task's partition, of the shuffler and its number of crowds."""


def mark_of(models: Mapping[bytes, bytes]) -> CrowdMark | None:
    """Return the mark among the newest models; None if there is none."""
    shuffler, _, crowds = models.get(MARK, b"").decode("ascii", "replace").partition(":")
    return CrowdMark(shuffler, int(crowds)) if crowds.isdigit() and crowds.isascii() else None


class CrowdWriter:
    """A transactional producer, which fences the shuffler before it.

    ``read`` returns the newest committed mark.
    """

    def __init__(self, clients: Clients, names: Names, read: Callable[[], CrowdMark | None]) -> None:
        self._url = clients.url
        self._names = names
        self._read = read
        self._producer = clients.owner(names.shuffler, CROWD_MS)
        try:
            self._producer.init_transactions()
        except BaseException as error:
            self.close()
            if isinstance(error, KafkaError):
                raise translate(error, self._url, "taking over from a shuffler") from error
            raise

    def claim(self, shuffler: str, replace: bool, released: bool) -> CrowdMark:
        """Write the shuffler's mark, unless it is there; see `Log.claim`."""
        found = self._read()
        if check_claim(self._url, found, shuffler, replace, released):
            found = CrowdMark(shuffler, 0)
            self._write((), found, 0)
        assert found is not None
        return found

    def append(self, messages: Iterable[tuple[int, bytes]], mark: CrowdMark, ms: int) -> None:
        """Write a crowd and its mark in one transaction; see `Log.append_crowd`."""
        check_mark(self._url, self._read(), mark)
        self._write(messages, mark, ms)

    def close(self) -> None:
        """Close the producer; the next one aborts an open transaction."""
        self._producer.leave()

    def _write(self, messages: Iterable[tuple[int, bytes]], mark: CrowdMark, ms: int) -> None:
        producer: Any = self._producer
        try:
            producer.begin_transaction()
            for partition, value in messages:
                producer.send(self._names.releases, value, partition=partition, timestamp_ms=ms)
            value = f"{mark.shuffler}:{mark.crowds}".encode()
            producer.send(self._names.models, value, key=MARK, partition=TASK_PLACE)
            # A transaction is committed only after all of its records have arrived.
            producer.flush(CROWD_MS / 1000)
            producer.commit_transaction()
        except KafkaError as error:
            found = translate(error, self._url, "appending a crowd")
            if isinstance(found, FencedError):
                raise FencedError(
                    f"another shuffler has taken {self._url} over: this one stops, and appended nothing"
                ) from error
            raise found from error
