"""What a worker takes messages for: exactly what `decode` does, by another parser."""

import json
from random import Random
from typing import Any

import msgspec
import pytest

from murk.stream.wire.codec import RejectedError, WireRules, decode, encode, json_schema, struct_of
from murk.stream.wire.columns import Columns, Layout
from murk.stream.wire.packed import Packed
from murk.stream.wire.releases import KINDS, PackedRelease, Release
from tests.fuzz.mutate import TOKENS, written
from tests.fuzz.wire import received
from tests.stream.harness import fields_of

TASK = "0123456789abcdef" * 4
LEVELS = {"default": 1_000, "open": 10}
MORE: dict[str, dict[str, Any]] = {
    "gradient": {"version": 7},
    "score": {"version": 7, "query": "scatter", "item": 0},
    "sketch": {"rows": 1, "records": 9, "spread": 0.5},
    "gram": {"records": 9},
    "newton": {"records": 9, "model": [0.25]},
}
WITH_NUMBERS = sorted(kind for kind, model in KINDS.items() if not issubclass(model, PackedRelease))


def rules(kind: str, **changes: Any) -> WireRules:
    fixed = {"simulated": False, "lengths": (3,), "magnitudes": LEVELS, "partitions": 2, "max_bytes": 4_096}
    return WireRules(TASK, **{**fixed, **changes}, kind=kind)


def release(kind: str) -> Release:
    model, payload = KINDS[kind], [1, -2, 3]
    return model(
        id="0123456789abcdef" * 2, task=TASK, level="default", partition=1, time=86_400, expires=172_800,
        payload=model.packed(payload) if issubclass(model, PackedRelease) else payload, **MORE.get(kind, {}),
    )  # fmt: skip


def outcome(data: bytes, its: WireRules) -> str:
    """What becomes of a message; a difference from `decode` is an error."""
    try:
        received(data, its, Layout(its))
    except RejectedError as refused:
        return refused.reason
    return "taken"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_an_honest_release_is_taken_for_what_it_is(kind: str) -> None:
    data, its = encode(release(kind)), rules(kind)
    assert outcome(data, its) == "taken"
    fields = json.loads(data)
    rng = Random(1)
    for _ in range(50):
        # Another order, spaces and escapes are the same release.
        assert outcome(written(rng, fields), its) in ("taken", "malformed", "schema")
    assert outcome(json.dumps(fields, indent=1).encode(), its) == "taken"
    assert outcome(json.dumps(dict(reversed(fields.items()))).encode(), its) == "taken"


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_compiled_reader_takes_it(kind: str) -> None:
    """Otherwise all tests would pass with `decode` alone; releases of organisations are left to that."""
    assert (block([encode(release(kind))], rules(kind)) is not None) == (kind in WITH_NUMBERS)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("level", ["default", "open", "none", ""])
def test_edges_are_where_decode_has_them(kind: str, level: str) -> None:
    its = rules(kind)
    fields = json.loads(encode(release(kind))) | {"level": level}
    edges = [True, None, -1, -0.0, 1.0, "1", 0, 1, 2, *(2**n + k for n in (31, 53, 62, 63, 64) for k in (-1, 0, 1))]
    found = {outcome(json.dumps(fields | {name: edge}).encode(), its) for name in fields for edge in edges}
    if kind in WITH_NUMBERS:
        payloads: list[Any] = [[], [1], [1, 2], [1, 2, 3, 4], [1, 2, None], [1, 2, "3"], [1, 2, 3.0], [1, 2, True]]
        payloads += [[0, 0, sign * (bound + k)] for bound in (10, 1_000, 2**62, 2**63) for k in (-1, 0, 1)
                     for sign in (-1, 1)]  # fmt: skip
        found |= {outcome(json.dumps(fields | {"payload": payload}).encode(), its) for payload in payloads}
        assert {"schema", "dimension" if level in LEVELS else "level"} <= found
    assert ("taken" in found) == (level in LEVELS)


@pytest.mark.parametrize("kind", WITH_NUMBERS)
def test_strings_are_as_strict(kind: str) -> None:
    its, fields = rules(kind), json.loads(encode(release(kind)))
    strange = ["F" * 32, "f" * 31, "f" * 33, "f" * 31 + " ", " " * 32, "f" * 15 + "  " + "f" * 15, "0" * 32, "é" * 32,
               "f" * 30 + "\u0660\u0660", "\ud800" * 32, "f" * 32 + "\n", "a:b"]  # fmt: skip
    for name in ("id", "task", "level", "kind", "query"):
        for text in strange:
            taken = outcome(json.dumps(fields | {name: text}).encode(), its) == "taken"
            assert taken == ((name, text) == ("id", "0" * 32))
    twice = json.dumps(fields)[:-1]
    assert outcome(f'{twice}, "partition": 1}}'.encode(), its) == "malformed"
    assert outcome(f'{twice}, "p\\u0061rtition": 1}}'.encode(), its) == "malformed"


@pytest.mark.parametrize("kind", WITH_NUMBERS)
def test_bytes_put_anywhere_are_seen_alike(kind: str) -> None:
    its, data = rules(kind), encode(release(kind))
    found = {outcome(data[:at] + token + data[at:], its) for at in range(0, len(data) + 1, 5) for token in TOKENS}
    found |= {outcome(data[:at] + data[at + 1 :], its) for at in range(len(data))}
    assert {"taken", "malformed", "schema"} <= found


@pytest.mark.parametrize("kind", WITH_NUMBERS)
def test_a_long_or_foreign_message_is_refused_alike(kind: str) -> None:
    data = encode(release(kind))
    for wanted, changes in {
        "too-large": {"max_bytes": len(data) - 1}, "simulated": {"simulated": True}, "partition": {"partitions": 1},
        "dimension": {"lengths": (2, 4)}, "magnitude": {"magnitudes": {"default": 2, "open": 5}},
        "level": {"magnitudes": {"open": 2**80}},
    }.items():  # fmt: skip
        assert outcome(data, rules(kind, **changes)) == wanted
    assert outcome(data, rules(kind, magnitudes={"default": 3, "open": 2**80})) == "taken"


@pytest.mark.parametrize("kind", WITH_NUMBERS)
def test_the_parser_has_the_published_schema(kind: str) -> None:
    """Its fields, types and bounds, but for patterns; one source makes all three."""
    _, parts = msgspec.json.schema_components([struct_of(KINDS[kind])])
    (found,) = parts.values()
    wanted = json_schema()[kind]
    assert found["required"] == wanted["required"]
    assert found["additionalProperties"] is wanted["additionalProperties"] is False
    assert list(found["properties"]) == list(wanted["properties"])
    for name, published in wanted["properties"].items():
        assert _plain(found["properties"][name]) == _plain(published), name


def _plain(schema: dict[str, Any]) -> dict[str, Any]:
    """What a schema says of values, in one way of saying it, without words and patterns."""
    found = {key: value for key, value in schema.items() if key not in ("title", "default", "pattern", "description")}
    if "const" in found:
        found["enum"] = [found.pop("const")]
    if "enum" in found:
        return {"enum": sorted(found["enum"])}
    if "items" in found:
        found["items"] = _plain(found["items"])
    for name, exclusive, step in (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1)):
        if exclusive in found:
            found[name] = found.pop(exclusive) + step
    return found


def block(values: list[bytes], its: WireRules) -> Columns | None:
    """What messages are read as; if they are, it is what `decode` takes each for."""
    columns = Layout(its).read(Packed.of(values))
    if columns is not None:
        for found, value in zip(fields_of(columns), values, strict=True):
            one = decode(value, its)
            assert found == {name: getattr(one, name) for name in found}
    return columns


def compact(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


@pytest.mark.parametrize("kind", WITH_NUMBERS)
def test_honest_releases_are_read_at_once_and_those_before_others(kind: str) -> None:
    its, fields = rules(kind), json.loads(encode(release(kind)))
    values = [compact(fields | {"id": f"{number:032x}", "partition": number % 2}) for number in range(5)]
    found = block(values, its)
    assert found is not None
    assert len(found) == 5
    # Another way to write it is left to `decode`.
    other = json.dumps(fields, indent=1).encode()
    assert block([*values, other], its) is None
    assert fields_of(Layout(its).read_first(Packed.of([*values, other, *values]))) == fields_of(found)


@pytest.mark.parametrize("kind", WITH_NUMBERS)
def test_a_block_with_anything_odd_is_not(kind: str) -> None:
    its, good = rules(kind), encode(release(kind))
    fields = json.loads(good)
    changes: list[dict[str, Any]] = [
        {"simulated": True}, {"partition": 2}, {"level": "none"}, {"task": TASK[::-1]}, {"payload": [1]},
        {"payload": []},
        {"payload": [0, 0, 1_001]}, {"level": "open", "payload": [0, -11, 0]}, {"payload": [1, 2, 3.5]},
        {"id": "F" * 32}, {"id": "f" * 31}, {"id": "f" * 30 + "  "}, {"extra": 1},
    ]  # fmt: skip
    odd = [b"", b"{}", good[:-1], good[1:], good + b" ", b" " + good, good + b"," + good, good + good]
    odd += [b"[" + good + b"]", compact(fields)[:-1] + b',"partition":1}']
    odd += [compact(fields | change) for change in changes]
    for one in odd:
        assert block([good, one, good], its) is None, one
        assert block([one], its) is None, one
    assert block([good, compact(fields | {"level": "open", "payload": [0, 9, -10]})], its) is not None


@pytest.mark.parametrize("kind", WITH_NUMBERS)
def test_messages_that_are_releases_only_together_are_not_taken(kind: str) -> None:
    """However two releases are cut into as many messages, only whole ones are taken."""
    its, good = rules(kind), encode(release(kind))
    both = good + good
    for at in range(1, len(both)):
        taken = block([both[:at], both[at:]], its)
        assert (taken is not None) == (at == len(good))


@pytest.mark.parametrize("kind", WITH_NUMBERS)
def test_a_block_with_bytes_put_anywhere_is_seen_alike(kind: str) -> None:
    its, good = rules(kind), encode(release(kind))
    taken = 0
    for at in range(0, len(good) + 1, 5):
        for token in TOKENS:
            taken += block([good, good[:at] + token + good[at:]], its) is not None
    assert taken > 0
