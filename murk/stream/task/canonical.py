"""Canonical JSON of a task's resolved document, and differences between documents."""

import json


def canonical_json(content: object) -> bytes:
    """Return data as canonical JSON: sorted keys, no spaces, floats by repr, UTF-8.

    >>> canonical_json({"b": 0.1, "a": [1, None]})
    b'{"a":[1,null],"b":0.1}'
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def differences(first: bytes, second: bytes) -> list[str]:
    """Return the keys in which two tasks' documents differ, as a task file writes them.

    >>> differences(b'{"a": {"b": 1}, "c": 2}', b'{"a": {"b": 3}, "c": 2}')
    ['a.b']
    """
    return _differences(json.loads(first), json.loads(second), "")


def _differences(left: object, right: object, path: str) -> list[str]:
    keys: list[str] = []
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted({*left, *right}):
            keys += _differences(left.get(key), right.get(key), f"{path}.{key}" if path else key)
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, pair in enumerate(zip(left, right, strict=True)):
            keys += _differences(*pair, f"{path}[{index}]")
    elif left != right:
        keys.append(path)
    return keys
