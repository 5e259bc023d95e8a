"""Writes the reference of the wire from the models that check it.

Run ``python -m murk.stream.wire_reference > docs/wire.md`` after a change; a test compares the two. With
``--schemas`` it prints the JSON Schema of every message instead.
"""

import ast
import inspect
import json
import sys
from collections.abc import Iterator
from typing import Any, Final

from murk.privacy.mechanisms import calibrate
from murk.stream import wire_reference_by_hand
from murk.stream.wire_reference_examples import TASK, Example, examples
from murk.stream.wire_reference_schemas import schemas
from murk.stream.wire_reference_text import BY_HAND, CAUSES, HEAD, MESSAGES, RULES, SENDING, VERSIONS

WIDTH: Final = 100


def page() -> str:
    """Give the reference page, as Markdown."""
    mechanism = calibrate(None, TASK.privacy.guarantee, dimension=TASK.coding.size, radius=1.0)
    shown, known = examples(mechanism.magnitude), schemas()
    parts = [HEAD]
    for kind, (title, words) in MESSAGES.items():
        parts += [f"### {title}\n", f"{words}\n", *_example(shown[kind]), *_schema(kind, known[kind])]
    parts += ["## What a receiver refuses\n"]
    parts += ["The first reason that applies, in this order, becomes the dead letter's `reason`:\n"]
    parts += ["| reason | cause |\n| --- | --- |", *(f"| `{reason}` | {cause} |" for reason, cause in CAUSES.items())]
    parts += [RULES, BY_HAND, f"```python\n{code()}```", SENDING]
    parts += [
        f"At the task of the examples, whose level promises mu = 1, steps are {mechanism.steps:,} and the magnitude is "
        f"at most {mechanism.magnitude:,}.\n",
        VERSIONS,
    ]
    return "\n".join(parts)


def code() -> str:
    """Give the code that makes a release by hand: its module without the docstring."""
    source = inspect.getsource(wire_reference_by_hand)
    end = ast.parse(source).body[0].end_lineno or 0
    return "\n".join(source.splitlines()[end:]).strip() + "\n"


def _example(example: Example) -> Iterator[str]:
    yield (
        f"On `{example.topic}`, partition {example.partition}, key "
        + ("none" if example.key is None else f"`{example.key}`")
        + "".join(f", header `{name}`: `{value}`" for name, value in example.headers.items())
        + ":\n"
    )
    yield f"```json\n{example.value.decode()}\n```\n"


def _schema(kind: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f"<details><summary>JSON Schema: {kind}</summary>\n"
    yield f"```json\n{pretty(schema)}\n```\n\n</details>\n"


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


if __name__ == "__main__":
    sys.stdout.write(pretty(schemas()) + "\n" if "--schemas" in sys.argv[1:] else page())
