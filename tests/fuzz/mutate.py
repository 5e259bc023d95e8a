"""Makes hostile inputs out of honest ones: by changing what they say, how it is written, and the bytes themselves.

All of it is a function of a random generator, so that any input can be made again from its number.
"""

import json
from collections.abc import Callable, Sequence
from copy import deepcopy
from random import Random
from typing import Any

DEEP: Any = [[]]
for _ in range(60):
    DEEP = [DEEP]

STRANGE: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 7, 63, 64, 255, 256, 2**31 - 1, 2**31, 2**32, 2**53, 2**53 + 1, 2**62 - 1, 2**62,
    2**63 - 1, 2**63, -(2**62), -(2**63), -(2**63) - 1, 2**64, 10**19, 10**30, 10**400, 0.0, -0.0, 0.5, -1.5, 1e-9, 1e9,
    5e-324, 1e-308, 2.2250738585072014e-308, 1e308, 1.7976931348623157e308, float("nan"), float("inf"), float("-inf"),
    "", " ", "0", "1", "-1", "1e999", "nan", "x", "x" * 33, "0" * 32, "f" * 64, "F" * 64, "g" * 32, "A" * 32, "AAAA",
    "AAAAAAAAAAA=", "====", "\0", "\n", "\t", "\u001b[2J", "\u202e", "\ud800", "\udfff", "\ufeff", "e\u0301", "é", "💥",
    "%s%n", "{0}", "[red]", "${HOME}", "../../etc/passwd", "a.b", "yes", "no", "null", "true", "default", "__proto__",
    "__class__", [], {}, [0], [[]], [None], {"": 0}, {"a": {"a": {}}}, [1, 2, 3], [0.5, "x"], ["a"] * 40, DEEP,
)  # fmt: skip
"""What stands where something else belongs."""

TOKENS: tuple[bytes, ...] = (
    b"\0", b"\n", b"\r", b"\r\n", b"\t", b" ", b'"', b"'", b"\\", b"\\u0000", b"\\ud800", b"\\", b",", b":", b"{", b"}",
    b"[", b"]", b"[[[[[[[[", b'{"a":{"a":', b"null", b"true", b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e-999",
    b"-0", b"01", b"1_000", b"0x10", b"9" * 30, b"9" * 5000, b"1." + b"0" * 400, b"\xff", b"\xfe\xff", b"\xff\xfe",
    b"\xef\xbb\xbf", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x80\xa8", b"\x1f\x8b", b"\x85", b"#",
    b"- ", b"? ", b": ", b"&a ", b"*a", b"!!int ", b"!!python/object:os.system ", b"| ", b"> ", b"---\n", b"...\n",
    b"%YAML 9.9\n", b"<<: ", b"~", b"@", b"`", b"%", b";", b"|", b"=", b"=1+1", b"A" * 300,
)  # fmt: skip
"""What is put between other bytes."""


def strange(rng: Random) -> Any:
    """A value that has no business where it is put."""
    chosen = rng.choice(STRANGE)
    if isinstance(chosen, list | dict):
        # What is put somewhere may itself be changed there.
        return deepcopy(chosen)
    if isinstance(chosen, int) and not isinstance(chosen, bool) and rng.random() < 0.3:
        return chosen + rng.choice((-1, 1, rng.randrange(-1000, 1000)))
    return chosen


def places(value: Any, found: list[tuple[Any, Any]] | None = None) -> list[tuple[Any, Any]]:
    """Every (container, key) within plain data."""
    found = [] if found is None else found
    if isinstance(value, dict):
        for key, inner in value.items():
            found.append((value, key))
            places(inner, found)
    elif isinstance(value, list):
        for key, inner in enumerate(value):
            found.append((value, key))
            places(inner, found)
    return found


def alter(rng: Random, value: Any, names: Sequence[str] = ()) -> Any:
    """Change plain data in place, in one to four places; ``names`` are keys that mean something somewhere."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        there = places(value)
        if not there:
            return strange(rng)
        holder, key = rng.choice(there)
        rng.choice(_CHANGES)(rng, holder, key, there, names)
    return value


def _replace(rng: Random, holder: Any, key: Any, there: Any, names: Any) -> None:
    holder[key] = strange(rng)


def _remove(rng: Random, holder: Any, key: Any, there: Any, names: Any) -> None:
    del holder[key]


def _move(rng: Random, holder: Any, key: Any, there: Any, names: Any) -> None:
    other, place = rng.choice(there)
    # As text: a copy, which cannot hold itself.
    holder[key] = json.loads(json.dumps(other[place])) if not isinstance(other[place], dict | list) else strange(rng)


def _add(rng: Random, holder: Any, key: Any, there: Any, names: Sequence[str]) -> None:
    if isinstance(holder, dict):
        name = rng.choice(names) if names and rng.random() < 0.8 else str(strange(rng))
        holder[name] = strange(rng)
    else:
        holder.insert(key, strange(rng))


def _wrap(rng: Random, holder: Any, key: Any, there: Any, names: Any) -> None:
    holder[key] = rng.choice(([holder[key]], {"value": holder[key]}, [holder[key], 0], str(holder[key])[:200]))


def _nudge(rng: Random, holder: Any, key: Any, there: Any, names: Any) -> None:
    value = holder[key]
    if isinstance(value, str):
        place = rng.randrange(len(value) + 1)
        holder[key] = value[:place] + str(strange(rng))[:80] + value[place + rng.randrange(3) :]
    elif isinstance(value, int | float):
        try:
            holder[key] = rng.choice((value + 1, value - 1, -value, value * 1000, value / 3, str(value)))
        except OverflowError:
            holder[key] = -value
    elif isinstance(value, list):
        holder[key] = rng.choice((value[:-1], value + value[:1], value[::-1], deepcopy(value) + value))
    else:
        holder[key] = strange(rng)


_CHANGES: tuple[Callable[..., None], ...] = (_replace, _replace, _replace, _remove, _move, _add, _wrap, _nudge, _nudge)


def written(rng: Random, value: Any) -> bytes:
    """The JSON of plain data, sometimes written in another way than a program would."""
    way = rng.random()
    if way < 0.7:
        return json.dumps(value, separators=(",", ":")).encode()
    if way < 0.8:
        return json.dumps(value, indent=rng.randrange(4)).encode("utf-8", "surrogatepass")
    if way < 0.9:
        return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
    text = json.dumps(value, separators=(",", ":"))
    if isinstance(value, dict) and value:
        # A key twice, or one that is written with escapes.
        key = rng.choice(list(value))
        if way < 0.95:
            return f"{{{json.dumps(key)}:{json.dumps(strange(rng))},{text[1:]}".encode()
        escaped = "".join(f"\\u{ord(letter):04x}" for letter in key if ord(letter) < 0x10000)
        return text.replace(json.dumps(key), f'"{escaped}"', 1).encode()
    return text.encode("utf-16")


def spoil(rng: Random, data: bytes, others: Sequence[bytes] = ()) -> bytes:
    """Change bytes in one to six places."""
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        size = len(data)
        here = rng.randrange(size + 1)
        there = min(size, here + rng.choice((0, 1, 1, 2, 4, 8, 64)))
        kind = rng.randrange(9)
        if kind == 0 and size:
            here = min(here, size - 1)
            data = data[:here] + bytes([data[here] ^ (1 << rng.randrange(8))]) + data[here + 1 :]
        elif kind == 1:
            data = data[:here] + data[there:]
        elif kind == 2:
            data = data[:here] + rng.choice(TOKENS) + data[here:]
        elif kind == 3:
            data = data[:here] + rng.choice(TOKENS) + data[there:]
        elif kind == 4:
            data = data[:here] + rng.randbytes(rng.randrange(9)) + data[there:]
        elif kind == 5:
            data = data[:here]
        elif kind == 6:
            data = data[:there] + data[here:]
        elif kind == 7 and others:
            other = rng.choice(others)
            data = data[:here] + other[rng.randrange(len(other) + 1) :]
        elif rng.random() < 0.02:
            # Seldom, since it takes its time: much of the same.
            data = data[:here] + data[here:there] * rng.choice((100, 10_000)) + data[there:]
    return data


UNITS = (
    b'""', b"[]", b"{}", b"null", b"0", b"1.5", b"-1", b"true", b'"x"', b"[[]]", b'{"":0}', b"9" * 30, b"a",
    b'{"a":{"b":[]}}',
)  # fmt: skip
"""What costs most to parse for its bytes."""


def crowd(rng: Random, count: int, keyed: bool) -> bytes:
    """Much of the same, parted by commas; with keys, where they are to be an object's."""
    unit = rng.choice(UNITS)
    if not keyed:
        return b",".join([unit] * count)
    return b",".join([b'"%d":%b' % (number if rng.random() < 0.9 else 0, unit) for number in range(count)])
