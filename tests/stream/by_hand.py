"""Releases made by the code that docs/wire.md shows, which has nothing of Murk in it."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "wire.md"


def code() -> dict[str, Any]:
    """What the page's code defines, by name."""
    [block] = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert "murk" not in block
    names: dict[str, Any] = {}
    exec(compile(block, str(PAGE), "exec"), names)
    return names


def release(
    document: bytes, model: bytes | None, partition: int, record: Mapping[str, Any], level: str = "default"
) -> bytes:
    """The bytes of one release: the task's document and the partition's newest model as the log stores them in."""
    message: bytes = code()["release"](document, model, partition, record, level)
    return message
