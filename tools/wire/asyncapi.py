"""The AsyncAPI document of a log's topics on Kafka; messages refer to the published JSON Schemas."""

from __future__ import annotations

from typing import Any, Final

from murk.stream.wire.releases import KINDS
from tools.wire.schemas import files

_FORMAT: Final = "application/schema+json;version=draft-2020-12"
_RELEASES: Final = "releases"

# Address, description and kinds of messages of each channel but that of releases; who writes it.
_OTHERS: Final = {
    "models": ("Newest model of each partition, and the task under the key `task`; compacted.", ("model", "task")),
    "states": ("Newest state of each partition's learner; compacted, in transactions.", ("state",)),
    "dead-letters": ("Messages that were not learned, with a reason.", ("dead-letter",)),
    "estimates": ("Newest published estimate; compacted.", ("estimate",)),
}
_HEADERS: Final = {
    "state": {"offset": "the state's offset, as decimal text", "owner": "the process that wrote it"},
    "dead-letter": {"reason": "why the message was not learned", "detail": "what was found"},
}
_TITLES: Final = {"dead-letter": "A dead letter: the message as it stood"}


def document() -> dict[str, Any]:
    """Return the AsyncAPI 3.0 document of a task's topics.

    Examples
    --------
    >>> sorted(document()["channels"])
    ['dead-letters', 'estimates', 'models', 'releases', 'states']
    """
    schemas = {name.rpartition("-")[0]: name for name in files()}
    described = {_RELEASES: ("One person's or organisation's privatized answers.", tuple(KINDS)), **_OTHERS}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Murk: releases, models and states of one task",
            "version": "1.0.0",
            "description": "JSON in UTF-8, neither compressed nor signed; docs/wire.md says what the fields mean.",
        },
        "defaultContentType": "application/json",
        "servers": {"kafka": {"host": "broker:9092", "protocol": "kafka-secure", "description": "A Kafka cluster."}},
        "channels": {name: _channel(name, words, kinds) for name, (words, kinds) in described.items()},
        "operations": {
            "release": _operation("send", _RELEASES, "Devices append releases, without key and headers."),
            "follow": _operation("receive", "models", "Devices read the task and the newest model."),
            "learn": _operation("receive", _RELEASES, "Learners read releases, each partition in order."),
            "publish": _operation("send", "models", "Learners publish models."),
            "commit": _operation("send", "states", "Learners commit state and offset in one transaction."),
            "reject": _operation("send", "dead-letters", "Learners write what they refuse."),
            "estimate": _operation("send", "estimates", "Learners publish estimates, if they are asked to."),
        },
        "components": {"messages": {kind: _message(kind, name) for kind, name in schemas.items()}},
    }


def _channel(name: str, words: str, kinds: tuple[str, ...]) -> dict[str, Any]:
    return {
        "address": f"murk-{{name}}-{name}",
        "description": words,
        "parameters": {"name": {"description": "The task's name, or that of the log's URL."}},
        "messages": {kind: {"$ref": f"#/components/messages/{kind}"} for kind in kinds},
    }


def _operation(action: str, channel: str, words: str) -> dict[str, Any]:
    return {"action": action, "channel": {"$ref": f"#/channels/{channel}"}, "summary": words}


def _message(kind: str, name: str) -> dict[str, Any]:
    message: dict[str, Any] = {"name": kind, "title": _TITLES.get(kind, kind.capitalize())}
    if kind in _HEADERS:
        properties = {header: {"type": "string", "description": words} for header, words in _HEADERS[kind].items()}
        message["headers"] = {"type": "object", "properties": properties}
    if kind == "dead-letter":
        # Its value is any bytes: the schema describes the whole record.
        return {**message, "summary": f"schemas/{name} describes key, headers and value as text."}
    return {**message, "payload": {"schemaFormat": _FORMAT, "schema": {"$ref": f"./schemas/{name}"}}}
