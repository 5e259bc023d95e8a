"""A task's resolved document: the one way to write it, and where two differ."""

import json


def canonical_json(content: object) -> bytes:
    """Return the one way to write some data as JSON: sorted keys, no spaces, floats by repr, UTF-8.

    Examples
    --------
    >>> canonical_json({"b": 0.1, "a": [1, None]})
    b'{"a":[1,null],"b":0.1}'
    """
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def differences(first: bytes, second: bytes) -> list[str]:
    """Return the keys in which two tasks' documents differ, as the task file writes them.

    Examples
    --------
    >>> differences(b'{"a": {"b": 1}, "c": 2}', b'{"a": {"b": 3}, "c": 2}')
    ['a.b']
    """
    return _differences(json.loads(first), json.loads(second), "")


def _differences(left: object, right: object, path: str) -> list[str]:
    found: list[str] = []
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted({*left, *right}):
            found += _differences(left.get(key), right.get(key), f"{path}.{key}" if path else key)
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            found += _differences(one, other, f"{path}[{index}]")
    elif left != right:
        found.append(path)
    return found
