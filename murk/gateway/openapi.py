"""Description of a gateway's endpoints in OpenAPI 3.1, with the schemas of the wire; `openapi.yaml` is its text."""

from importlib.resources import files
from typing import Any

import msgspec
import yaml

from murk import __version__
from murk.stream.wire.codec import REASONS, json_schema
from murk.task.task import Task


def description(task: Task) -> bytes:
    """Return the description of the gateway of a task, as JSON."""
    text = (files("murk.gateway") / "openapi.yaml").read_text(encoding="utf-8").replace("/NAME", f"/{task.name}")
    schemas = json_schema()
    filled = {
        "VERSION": __version__,
        "PARTITIONS": task.log.partitions,
        "REASONS": list(REASONS),
        "RELEASE": schemas[task.release_kind],
        "MODEL": schemas["model"],
    }

    def fill(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: fill(item) for key, item in value.items()}
        if isinstance(value, list):
            return [fill(item) for item in value]
        return filled.get(value, value) if isinstance(value, str) else value

    return msgspec.json.encode(fill(yaml.safe_load(text)))
