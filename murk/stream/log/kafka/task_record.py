"""What stands on the topic of models about the log itself: the task, and the topics that it was announced on."""

from __future__ import annotations

import json
from collections.abc import Mapping

from murk.errors import MurkError
from murk.stream.log.base import FencedError
from murk.stream.log.kafka.connection.clients import Clients
from murk.stream.log.kafka.connection.errors import deleted, translate_errors
from murk.stream.log.kafka.consumers import Table
from murk.stream.log.kafka.topics import Names

TASK = b"task"
"""Key of the task's document on the topic of models."""

TASK_PLACE = 0
"""Partition of that topic on which it stands, and what follows."""

TOPICS = b"topics"
"""Key beside it: the ids of the four topics that the task was announced on, by name."""


def announced_topics(models: Mapping[bytes, bytes], names: Names) -> dict[str, str]:
    """Read the ids of the topics that the task was announced on.

    Raises
    ------
    MurkError
        When they do not stand there.
    """
    try:
        found = json.loads(models.get(TOPICS, b""))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.keys() != set(names.all):
        raise MurkError(
            f"{names.models} does not say which topics its task was announced on: somebody else has written there. "
            "Bring the topic back from a copy (docs/recover.md)"
        )
    return found


def check_same(url: str, announced: Mapping[str, str], now: Mapping[str, str]) -> None:
    """Make sure that topics are those that the task was announced on.

    Names say nothing: a topic deleted and created again has the same name and other messages.

    Raises
    ------
    MurkError
        When one is another, or is not there.
    """
    for topic, known in announced.items():
        if topic not in now:
            raise MurkError(deleted(url, f"looking at {topic}"), code="MURK-LOG-006")
        if now[topic] != known:
            raise MurkError(
                f"{topic} of {url} was deleted and created again: what was learned before does not go with it, and "
                "nothing starts over by itself. Bring the topics back, or begin with a new log (docs/recover.md)",
                code="MURK-LOG-006",
            )


def put_document(
    clients: Clients, names: Names, models: Table, standing: bytes | None, document: bytes, ids: Mapping[str, str]
) -> None:
    """Write document and topics' ids if the document that stands is still there.

    Raises
    ------
    FencedError
        When somebody else writes, too.
    """
    producer = clients.owner(names.announcer)
    try:
        with translate_errors(clients.url, "announcing the task"):
            # A later announcer ends our transaction here; an earlier one is done or was ended.
            producer.init_transactions()
            if models.refresh(TASK_PLACE).get(TASK) != standing:
                raise FencedError("another one has announced")
            producer.begin_transaction()
            producer.send(names.models, document, key=TASK, partition=TASK_PLACE)
            producer.send(names.models, json.dumps(ids).encode(), key=TOPICS, partition=TASK_PLACE)
            producer.commit_transaction()
    finally:
        producer.leave()
