"""Description of a gateway's endpoints in OpenAPI 3.1, with the schemas of the wire; `openapi.yaml` is its text."""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import msgspec
import yaml

from murk import __version__
from murk.stream.wire.codec import REASONS, json_schema
from murk.task.task import Task

_RELEASE = "#/components/schemas/Release"


def description(tasks: Sequence[Task]) -> bytes:
    """Return the description of the gateway of some tasks, as JSON."""
    schemas = json_schema()
    common = {"VERSION": __version__, "REASONS": list(REASONS), "MODEL": schemas["model"]}
    text = (files("murk.gateway") / "openapi.yaml").read_text(encoding="utf-8")
    described = _filled(yaml.safe_load(text), common)
    of_task = {path: described["paths"].pop(path) for path in [*described["paths"]] if "/NAME" in path}
    components = described["components"]["schemas"]
    del components["Release"]
    for task in tasks:
        # Names of operations and schemas must differ between tasks.
        suffix = "" if len(tasks) == 1 else f"-{task.name}"
        components[f"Release{suffix}"] = schemas[task.release_kind]
        for path, operations in _filled(
            of_task, {"PARTITIONS": task.log.partitions, _RELEASE: _RELEASE + suffix}
        ).items():
            for operation in operations.values():
                operation["operationId"] += suffix
            described["paths"][path.replace("/NAME", f"/{task.name}")] = operations
    return msgspec.json.encode(described)


def _filled(value: Any, words: Mapping[str, Any]) -> Any:
    """Return a copy in which values replace words."""
    if isinstance(value, dict):
        return {key: _filled(item, words) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, words) for item in value]
    return words.get(value, value) if isinstance(value, str) else value
