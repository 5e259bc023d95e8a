"""Data written in transactions: a partition's commits, the task's document, and crowds."""

from __future__ import annotations

import json
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from kafka.errors import KafkaError

from murk.errors import MurkError
from murk.stream.log import interface as base
from murk.stream.log.interface import Checkpoint, CrowdMark, Dead, FencedError, Ownership, UnreachableError
from murk.stream.log.kafka.connection.clients import CROWD_MS, PATIENCE_MS, Clients
from murk.stream.log.kafka.connection.errors import deleted, translate, translate_errors
from murk.stream.log.kafka.connection.records import send_at_once, takes_batches
from murk.stream.log.kafka.consumers import Table, record
from murk.stream.log.kafka.topics import Names
from murk.stream.wire.codec import KEY
from murk.stream.wire.packed import Packed

_ERROR_CODE = "MURK-KAFKA-001"

OFFSET = "offset"
OWNER = "owner"
_UNCONFIRMED = 32  # batches of a crowd that may be on their way


class KafkaOwnership(Ownership):
    """The newest producer with a partition's transactional id, which fences the one before and aborts its transaction.

    After a commit whose outcome is unknown, the partition must be acquired again. ``load`` reads the committed state
    and offset; ``check`` raises if the topics are not those with which the log was opened; ``start_model`` sends a
    model without waiting and returns a future.
    """

    def __init__(
        self,
        clients: Clients,
        names: Names,
        partition: int,
        load: Callable[[int], Checkpoint],
        check: Callable[[], None],
        start_model: Callable[[bytes], Any],
    ) -> None:
        self.partition = partition
        self._url, self._names = clients.url, names
        self._load, self._check, self._start_model = load, check, start_model
        self._sent_model: Any = None
        self._lost: MurkError | None = None
        self._producer = clients.owner(names.owner(partition), f"taking over partition {partition}")

    def load(self) -> Checkpoint:
        """Read the committed state."""
        self._check_owned()
        return self._load(self.partition)

    def commit(
        self, state: bytes, offset: int, dead: Dead = (), model: bytes | None = None, estimate: bytes | None = None
    ) -> None:
        """Write everything in one transaction."""
        self._check_owned()
        self._check()
        # A model that was published earlier but arrived after the commit's model would replace it.
        sent, self._sent_model = self._sent_model, None
        if sent is not None:
            with suppress(KafkaError):
                sent.get(timeout=PATIENCE_MS / 1000)
        key, names = str(self.partition).encode(), self._names
        owner = f"{socket.gethostname()}:{os.getpid()}".encode()
        try:
            self._producer.begin_transaction()
            # The task's own learner lists dead letters; a model only counts them.
            for letter in dead if names.model is None else ():
                self._producer.send(names.dead, partition=self.partition, **record(letter))
            if model is not None:
                self._producer.send(names.models, model, key=key, partition=self.partition)
            if estimate is not None:
                self._producer.send(names.estimates, estimate, key=KEY, partition=0)
            headers = [(OFFSET, str(offset).encode()), (OWNER, owner)]
            self._producer.send(names.states, state, key=key, partition=self.partition, headers=headers)
            self._producer.commit_transaction()
        except KafkaError as error:
            lost = translate(error, self._url, f"committing partition {self.partition}")
            self._lost = base.taken_over(self.partition, self._url) if isinstance(lost, FencedError) else lost
            raise self._lost from error
        except BaseException:
            # The outcome of an interrupted commit is unknown.
            self._lost = MurkError(
                f"a commit to partition {self.partition} of {self._url} was interrupted: acquire it again"
            )
            raise

    def publish_uncommitted(self, model: bytes) -> None:
        """Send a model without waiting, outside any transaction."""
        # If it cannot be sent, the commit that follows reports why.
        with suppress(UnreachableError):
            self._sent_model = self._start_model(model)

    def close(self) -> None:
        """Close the producer; the next owner or the time-out aborts an open transaction."""
        self._lost = self._lost or MurkError(f"partition {self.partition} of {self._url} was given up")
        self._producer.leave()

    def _check_owned(self) -> None:
        if self._lost is not None:
            raise self._lost


TASK = b"task"  # key of the task's document on the topic of models
TASK_PLACE = 0  # partition of the records with the keys `TASK` and `TOPICS`
TOPICS = b"topics"  # key of the ids, by name, of the four topics on which the task was registered


def announced_topics(models: Mapping[bytes, bytes], names: Names) -> dict[str, str]:
    """Return the ids of the topics on which the task was registered; raise `MurkError` if they are missing."""
    try:
        ids = json.loads(models.get(TOPICS, b""))
    except (ValueError, RecursionError):
        ids = None
    if not isinstance(ids, dict) or ids.keys() != set(names.all):
        raise MurkError(
            f"{names.models} lacks the ids of the topics of its task: something other than Murk has written to it. "
            "Restore the topic from a copy (docs/recover.md)"
        )
    return ids


def check_same(url: str, announced: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Raise `MurkError` if one of the topics on which the task was registered was recreated or is missing."""
    for topic, identity in announced.items():
        if topic not in now:
            raise MurkError(deleted(url, f"looking at {topic}"), code="MURK-LOG-006")
        if now[topic] != identity:
            raise MurkError(
                f"{topic} of {url} was deleted and created again: it does not continue what was learned before, and "
                "Murk does not start over by itself. Restore the topics, or begin with a new log (docs/recover.md)",
                code="MURK-LOG-006",
            )


def put_document(
    clients: Clients, names: Names, models: Table, standing: bytes | None, document: bytes, ids: Mapping[str, str]
) -> None:
    """Replace the document ``standing`` and topic ids; raise `FencedError` if another process writes them, too."""
    # This aborts the transaction of an earlier writer; a later writer aborts ours.
    producer = clients.owner(names.announcer, "announcing the task")
    try:
        with translate_errors(clients.url, "announcing the task"):
            if models.refresh(TASK_PLACE).get(TASK) != standing:
                raise FencedError("another process has announced a task")
            producer.begin_transaction()
            producer.send(names.models, document, key=TASK, partition=TASK_PLACE)
            producer.send(names.models, json.dumps(ids).encode(), key=TOPICS, partition=TASK_PLACE)
            producer.commit_transaction()
    finally:
        producer.leave()


MARK = b"shuffler"
"""Key, on the topic of models and on the task's partition, of the shuffler and its number of crowds."""


class CrowdWriter:
    """A transactional producer, which fences the shuffler before it; ``read`` returns the newest committed mark."""

    def __init__(self, clients: Clients, names: Names, read: Callable[[], CrowdMark | None]) -> None:
        self._url, self._names, self._read = clients.url, names, read
        self._producer = clients.owner(names.shuffler, "taking over from a shuffler", CROWD_MS)

    def claim(self, shuffler: str, replace: bool, released: bool) -> CrowdMark:
        """Write the shuffler's mark, unless it is there; see `Log.claim`."""
        mark = self._read()
        if base.check_claim(self._url, mark, shuffler, replace, released):
            mark = CrowdMark(shuffler, 0)
            self._write((), mark, 0)
        assert mark is not None
        return mark

    def append(self, messages: Iterable[tuple[int, Packed]], mark: CrowdMark, ms: int) -> None:
        """Write a crowd and its mark; see `Log.append_crowd`."""
        base.check_mark(self._url, self._read(), mark)
        self._write(messages, mark, ms)

    def close(self) -> None:
        """Close the producer; the next one aborts an open transaction."""
        self._producer.leave()

    def _write(self, messages: Iterable[tuple[int, Packed]], mark: CrowdMark, ms: int) -> None:
        producer: Any = self._producer
        try:
            producer.begin_transaction()
            self._send(messages, ms)
            producer.send(self._names.models, mark.encoded, key=MARK, partition=TASK_PLACE)
            # A transaction is committed only after all of its records have arrived.
            producer.flush(CROWD_MS / 1000)
            producer.commit_transaction()
        except KafkaError as error:
            translated = translate(error, self._url, "appending a crowd")
            if isinstance(translated, FencedError):
                raise FencedError(f"another shuffler has taken {self._url} over: this one stops") from error
            raise translated from error

    def _send(self, messages: Iterable[tuple[int, Packed]], ms: int) -> None:
        """Send a crowd; whole batches wait for older ones, so that a crowd need not fit into memory."""
        producer, topic = self._producer, self._names.releases
        at_once, sent = takes_batches(producer), deque[Any]()
        for partition, packed in messages:
            if not at_once:
                for value in packed.values():
                    producer.send(topic, value, partition=partition, timestamp_ms=ms)
                continue
            sent += send_at_once(producer, topic, partition, packed.values(), ms)
            while len(sent) > _UNCONFIRMED:
                sent.popleft().get(timeout=CROWD_MS / 1000)
