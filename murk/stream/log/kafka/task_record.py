"""Records about the log itself on the topic of models: the task, and the topics on which it was registered."""

from __future__ import annotations

import json
from collections.abc import Mapping

from murk.errors import MurkError
from murk.stream.log.base import FencedError
from murk.stream.log.kafka.connection.clients import Clients
from murk.stream.log.kafka.connection.errors import deleted, translate_errors
from murk.stream.log.kafka.consumers import Table
from murk.stream.log.kafka.topics import Names

TASK = b"task"  # key of the task's document on the topic of models
TASK_PLACE = 0  # partition of both records
TOPICS = b"topics"  # key of the ids, by name, of the four topics on which the task was registered


def announced_topics(models: Mapping[bytes, bytes], names: Names) -> dict[str, str]:
    """Return the ids of the topics on which the task was registered; raise `MurkError` if they are missing."""
    try:
        ids = json.loads(models.get(TOPICS, b""))
    except (ValueError, RecursionError):
        ids = None
    if not isinstance(ids, dict) or ids.keys() != set(names.all):
        raise MurkError(
            f"{names.models} does not say on which topics its task was announced: somebody else has written there. "
            "Restore the topic from a copy (docs/recover.md)"
        )
    return ids


def check_same(url: str, announced: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Check that topics are those on which the task was registered: a recreated topic has the same name.

    Raises `MurkError` if one was recreated or is missing.
    """
    for topic, known in announced.items():
        if topic not in now:
            raise MurkError(deleted(url, f"looking at {topic}"), code="MURK-LOG-006")
        if now[topic] != known:
            raise MurkError(
                f"{topic} of {url} was deleted and created again: it does not continue what was learned before, and "
                "Murk does not start over by itself. Restore the topics, or begin with a new log (docs/recover.md)",
                code="MURK-LOG-006",
            )


def put_document(
    clients: Clients, names: Names, models: Table, standing: bytes | None, document: bytes, ids: Mapping[str, str]
) -> None:
    """Write the document and the topics' ids, if the stored document is still ``standing``.

    Raises `FencedError` if another process writes, too.
    """
    producer = clients.owner(names.announcer)
    try:
        with translate_errors(clients.url, "announcing the task"):
            # This aborts the transaction of an earlier writer; a later writer aborts ours.
            producer.init_transactions()
            if models.refresh(TASK_PLACE).get(TASK) != standing:
                raise FencedError("another process has announced a task")
            producer.begin_transaction()
            producer.send(names.models, document, key=TASK, partition=TASK_PLACE)
            producer.send(names.models, json.dumps(ids).encode(), key=TOPICS, partition=TASK_PLACE)
            producer.commit_transaction()
    finally:
        producer.leave()
