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
from tools.wire.text import BY_HAND, CAUSES, HEAD, MESSAGES, RULES, SENDING, VERSIONS

WIDTH: Final = 100


def page() -> str:
    """Return the reference page, as Markdown."""
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
    """Return the code that makes a release by hand: its module without the docstring."""
    source = inspect.getsource(by_hand)
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
