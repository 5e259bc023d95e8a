"""The JSON Schema of everything on a log's topics, made from the models that check it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel

from murk.stream.wire.codec import REASONS, json_schema
from murk.stream.wire.releases import KINDS, ModelMessage, Release
from murk.stream.wire.state import EstimateMessage, StateMessage
from murk.stream.worker.worker import DEAD_BYTES
from murk.task.features import ADDED as ADDED_TO_FEATURES
from murk.task.learning import ADDED, ADDED_TO_TASK
from murk.task.protocols.registry import BLOCKS
from murk.task.task import SCHEMA_VERSION, Task

Schema = dict[str, Any]

_ADDED_TO_FEATURES: Final = [(name, key) for name, keys in ADDED_TO_FEATURES.items() for key in keys]

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
# Pydantic writes bounds within a choice under its own names, which no validator knows.
_BOUNDS: Final = {"gt": "exclusiveMinimum", "ge": "minimum", "lt": "exclusiveMaximum", "le": "maximum"}
# What a model does not know, since it checks other things or is not of this layer.
_COUNT: Final = {"type": "integer", "minimum": 0}
_BASE64: Final = {"type": "string", "contentEncoding": "base64", "pattern": "^[A-Za-z0-9+/]*={0,2}$"}
_ROWS: Final = ("iterate", "average", "scaling_a", "scaling_b", "mean_at", "mean_gradient")


def _object(description: str, properties: Mapping[str, Any], optional: Mapping[str, Any] | None = None) -> Schema:
    return {
        "type": "object",
        "description": description,
        "properties": {**properties, **(optional or {})},
        "required": list(properties),
        "additionalProperties": False,
    }


LEARNER: Final = _object(
    "State of a partition's learner. Arrays are base64 of little-endian float64.",
    {
        "schema": {"const": 1},
        "settings": {"type": "string", "description": "fingerprint of the learner's settings"},
        "dimension": {"type": "integer", "minimum": 1},
        "n_releases": {**_COUNT, "description": "releases learned: the partition's version"},
        "sums": {**_BASE64, "description": "sums of precisions, weights, weighted spreads and squared counts"},
        "rows": _object("d numbers each, in working coordinates", dict.fromkeys(_ROWS, _BASE64)),
        "published": _object(
            "Published iterates that gradients may still arrive for, the newest last",
            {"versions": {"type": "array", "items": _COUNT}, "iterates": _BASE64},
        ),
    },
    {"delays": {**_BASE64, "description": "where steps are adaptive: mean age, two sums of the curvature, weights"}},
)
DEAD_LETTER: Final = _object(
    "A dead letter as a record: its key, headers and value, all three bytes; here as UTF-8 text.",
    {
        "key": {"type": "string", "pattern": "^[0-9]+:[0-9]+$", "description": "PARTITION:OFFSET where it stood"},
        "headers": _object(
            "Why it was not learned.",
            {
                "reason": {"enum": list(REASONS)},
                "detail": {"type": "string", "description": "what was found, escaped to printable ASCII"},
            },
        ),
        "value": {"description": f"the message as it stood, or its first {DEAD_BYTES:,} bytes"},
    },
)


def schemas() -> dict[str, Schema]:
    """Return the schemas by kind: of each protocol's release, and of everything else on a log's topics.

    Examples
    --------
    >>> " ".join(schemas())
    'gradient score example moment target sketch gram newton model state task estimate dead letter'
    """
    codec = json_schema()
    state = _written(StateMessage.model_json_schema(by_alias=True, mode="serialization"))
    state["$defs"]["Counters"] = _described(state["$defs"]["Counters"], StateMessage.model_fields["counters"])
    state["$defs"]["History"] = _described(state["$defs"]["History"], StateMessage.model_fields["history"])
    state["$defs"]["History"]["properties"]["numbers"] |= _BASE64
    state["properties"]["learner"] = LEARNER
    state["required"].remove("adopted")
    task = _written(Task.model_json_schema(by_alias=True, mode="serialization"), descriptions=False)
    task["properties"]["schema"] = {"const": SCHEMA_VERSION}
    # The block of its protocol is there, and no other.
    task["required"] = [key for key in task["required"] if key not in BLOCKS and key not in ADDED_TO_TASK] + ["schema"]
    for name, added in (*((f"{name.capitalize()}Block", key) for name, key in ADDED), *_ADDED_TO_FEATURES):
        block = task["$defs"][name]
        block["required"] = [key for key in block["required"] if key != added]
    found = {
        **{kind: _described(_written(codec[kind]), model) for kind, model in KINDS.items()},
        "model": _described(_written(codec["model"]), ModelMessage),
        "state": _described(state, StateMessage),
        "task": {**task, "description": "A task's resolved document; what its keys mean: task-file.md."},
        "estimate": _described(_written(EstimateMessage.model_json_schema(by_alias=True)), EstimateMessage),
        "dead letter": DEAD_LETTER,
    }
    return {
        kind: {"$schema": DRAFT, "$id": identifier(kind, schema), **_ordered(schema)} for kind, schema in found.items()
    }


def identifier(kind: str, schema: Schema) -> str:
    """Return the name of a schema in every registry: its kind and the number that its messages say.

    Examples
    --------
    >>> identifier("state", {"properties": {"schema": {"const": 1}}})
    'urn:murk:wire:state:1'
    """
    number = schema["properties"].get("schema", {"const": 1})["const"]
    return f"urn:murk:wire:{kind.replace(' ', '-')}:{number}"


def files() -> dict[str, Schema]:
    """Return the schemas by their file's name, for a registry."""
    return {
        f"{schema['$id'].removeprefix('urn:murk:wire:').replace(':', '-')}.json": schema
        for schema in schemas().values()
    }


def meaning(schema: Schema) -> str:
    """Return a digest of what a schema takes, whatever its words."""

    def bare(value: Any, names: bool = False) -> Any:
        if isinstance(value, list):
            return [bare(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {
            key: bare(item, key in ("properties", "$defs"))
            for key, item in value.items()
            if names or key != "description"
        }

    return hashlib.sha256(json.dumps(bare(schema), sort_keys=True).encode()).hexdigest()


def _written(schema: Any, descriptions: bool = True) -> Any:
    """The schema as messages are written: every field is there, and nothing has a default."""
    if isinstance(schema, list):
        return [_written(item, descriptions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    dropped = {"title", "default"} if descriptions else {"title", "default", "description"}
    properties = schema.get("properties")
    found = {
        _BOUNDS.get(key, key): {name: _written(field, descriptions) for name, field in value.items()}
        if key in ("properties", "$defs")
        else _written(value, descriptions)
        for key, value in schema.items()
        if key not in dropped
    }
    if isinstance(properties, dict):
        found["required"] = list(properties)
    if "minimum" in found and found["minimum"] == found.get("maximum"):
        return {"const": found["minimum"]}
    return found


def _described(schema: Schema, source: Any) -> Schema:
    """The schema with the words of its model's docstring: what it is, and what each field means."""
    model: type[BaseModel] = source if isinstance(source, type) else source.annotation
    summary, words = _words(model.__doc__ or "")
    if issubclass(model, Release):
        words = {**_words(Release.__doc__ or "")[1], **words}
    properties = {
        name: {"description": words[name], **field} if name in words else field
        for name, field in schema["properties"].items()
    }
    return {**schema, "description": summary, "properties": properties}


def _words(docstring: str) -> tuple[str, dict[str, str]]:
    """First line of a docstring, and what its list says of each field."""
    summary = docstring.strip().splitlines()[0]
    items = re.findall(r"^ *- (``[^:]*``): (.*?)(?=\n *- ``|\n\s*\n|\s*\Z)", docstring, re.DOTALL | re.MULTILINE)
    words = {name: " ".join(text.split()) for names, text in items for name in re.findall(r"``(\w+)``", names)}
    # Python's None is null on the wire.
    return summary, {name: text.replace("``", "`").replace("None", "null") for name, text in words.items()}


def _ordered(schema: Schema) -> Schema:
    first = ("type", "description", "properties", "required", "additionalProperties")
    return {key: schema[key] for key in (*first, *(key for key in schema if key not in first)) if key in schema}
