"""The reference of the wire, made from the models that check it."""

import ast
import inspect
import json
from collections.abc import Iterator
from typing import Any, Final

from murk.privacy.mechanisms import calibrate
from tools.wire import by_hand
from tools.wire.examples import TASK, Example, examples
from tools.wire.schemas import schemas
from tools.wire.text import ALWAYS, BY_HAND, CAUSES, FIELDS, HEAD, MESSAGES, RELEASE, RULES, SENDING, VERSIONS

WIDTH: Final = 100
_POWERS: Final = {2**bits: f"2^{bits}" for bits in (31, 53, 62)}


def page() -> str:
    """Return the reference page, as Markdown."""
    mechanism = calibrate(None, TASK.privacy.guarantee, dimension=TASK.coding.size, radius=1.0)
    shown, known = examples(mechanism.magnitude), schemas()
    common = {**known["gradient"]["properties"], "kind": {"type": "string"}, "payload": {"type": "array or string"}}
    rows = [f"| `{name}` | {_type(common[name])} | {words} |" for name, words in RELEASE.items()]
    parts = [HEAD, "\n".join(["| field | type | meaning |", "|---|---|---|", *rows]), ""]
    for kind, (title, words) in MESSAGES.items():
        parts += [f"### {title}\n", f"{words}\n", *_example(shown[kind]), *_fields(kind, known[kind])]
    parts += ["## What a receiver refuses\n"]
    parts += ["The first reason that applies, in this order, becomes the dead letter's `reason`:\n"]
    parts += ["| reason | cause |\n|---|---|", *(f"| `{reason}` | {cause} |" for reason, cause in CAUSES.items())]
    parts += [RULES, BY_HAND, f"```python\n{code()}```", SENDING]
    parts += [
        (
            f"For the task of the examples, with mu = 1, steps are {mechanism.steps:,} and magnitudes are at most "
            f"{mechanism.magnitude:,}.\n"
        ),
        VERSIONS,
    ]
    return "\n".join(parts)


def code() -> str:
    """Return the code that makes a release by hand: its module without the docstring."""
    source = inspect.getsource(by_hand)
    end = ast.parse(source).body[0].end_lineno or 0
    return "\n".join(source.splitlines()[end:]).strip() + "\n"


def _example(example: Example) -> Iterator[str]:
    if example.key is not None:
        headers = "".join(f", header `{name}`: `{value}`" for name, value in example.headers.items())
        yield f"On `{example.topic}`, partition {example.partition}, key `{example.key}`{headers}:\n"
    yield f"```json\n{example.value.decode()}\n```\n"


def _fields(kind: str, schema: dict[str, Any]) -> Iterator[str]:
    """The message's fields beyond those that the page has explained, and its schema's file."""
    if kind in FIELDS:
        fields = FIELDS[kind]
        explained = set(RELEASE if "payload" in schema["properties"] else ALWAYS) | fields.keys()
        if explained != schema["properties"].keys():
            raise ValueError(f"{kind}: explain {sorted(explained ^ schema['properties'].keys())} in tools/wire/text.py")
        lines = [f"- `{name}` ({_type(schema['properties'][name])}): {words}" for name, words in fields.items()]
        if lines:
            yield "\n".join(lines) + "\n"
    name = schema["$id"].removeprefix("urn:murk:wire:").replace(":", "-") + ".json"
    yield f"Schema: [{name}](../deploy/schemas/{name})\n"


def _type(field: dict[str, Any]) -> str:
    """A field's type in words, with the bounds of integers and the pattern of identifiers."""
    if "const" in field:
        return json.dumps(field["const"])
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "anyOf" in field:
        return " or ".join(_type(choice) for choice in field["anyOf"])
    if field.get("type") == "array":
        return f"array of {_type(field['items'])}s"
    if field.get("type") == "integer" and "exclusiveMaximum" in field:
        return f"integer in [{field['minimum']}, {_POWERS[field['exclusiveMaximum']]})"
    if "pattern" in field:
        return f"string, `{field['pattern']}`"
    return str(field.get("type", "object"))


def pretty(value: Any, indent: int = 0) -> str:
    """Give JSON with what fits into a line on one line."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + indent <= WIDTH or not isinstance(value, dict | list) or not value:
        return flat
    pad = " " * (indent + 2)
    if isinstance(value, dict):
        inner = [f"{pad}{json.dumps(key)}: {pretty(item, indent + 2)}" for key, item in value.items()]
        return "{\n" + ",\n".join(inner) + "\n" + " " * indent + "}"
    return "[\n" + ",\n".join(pad + pretty(item, indent + 2) for item in value) + "\n" + " " * indent + "]"
