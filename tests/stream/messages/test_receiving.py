"""What a worker takes messages for: exactly what `decode` does, by another parser."""

import json
from random import Random
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from murk.stream.wire import blocks as receiving
from murk.stream.wire.blocks import block_receiver, receiver, struct_of
from murk.stream.wire.codec import RejectedError, WireRules, encode, json_schema
from murk.stream.wire.releases import KINDS, PackedRelease, Release
from tests.fuzz.mutate import TOKENS, written
from tests.fuzz.wire import received

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
        received(data, its, receiver(its))
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


@pytest.mark.parametrize("kind", WITH_NUMBERS)
def test_the_compiled_parser_takes_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise all tests would pass with `decode` alone."""
    its = rules(kind)
    monkeypatch.setattr(receiving, "decode", lambda data, rules: pytest.fail("asked decode"))
    found = receiver(its)(encode(release(kind)))
    assert not isinstance(found, BaseModel)
    assert found.kind == kind


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


def block(values: list[bytes], its: WireRules) -> Any:
    """What a block of messages is taken for; one that is taken holds what each of its messages is taken for."""
    found = block_receiver(its)(values)
    if found is not None:
        alone = [receiver(its)(value) for value in values]
        names = KINDS[its.kind].model_fields
        assert [[getattr(one, name.rstrip("_")) for name in names] for one in found] == [
            [getattr(one, name.rstrip("_")) for name in names] for one in alone
        ]
    return found


@pytest.mark.parametrize("kind", WITH_NUMBERS)
def test_a_block_of_honest_releases_is_taken_at_once(kind: str) -> None:
    its, fields = rules(kind), json.loads(encode(release(kind)))
    values = [json.dumps(fields | {"id": f"{number:032x}", "partition": number % 2}).encode() for number in range(5)]
    assert len(block(values, its)) == 5
    assert len(block([encode(release(kind)), json.dumps(fields, indent=1).encode()], its)) == 2
    assert block([], its) is None


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
    odd += [b"[" + good + b"]", json.dumps(fields)[:-1].encode() + b', "partition": 1}']
    odd += [json.dumps(fields | change).encode() for change in changes]
    for one in odd:
        assert block([good, one, good], its) is None, one
        assert block([one], its) is None, one
    assert len(block([good, json.dumps(fields | {"level": "open", "payload": [0, 9, -10]}).encode()], its)) == 2


@pytest.mark.parametrize("kind", WITH_NUMBERS)
def test_messages_that_are_releases_only_together_are_not_taken(kind: str) -> None:
    """However two releases are cut into as many messages, only whole ones are taken."""
    its = rules(kind)
    for good in (encode(release(kind)), json.dumps(json.loads(encode(release(kind))), indent=1).encode()):
        both = good + b"," + good
        for at in (at for at, byte in enumerate(both) if byte == ord(",")):
            # Joined by a comma again, they are the same bytes.
            taken = block([both[:at], both[at + 1 :]], its)
            assert (taken is not None) == (at == len(good))
        # A text that holds the end of one and the beginning of another.
        inside = [good.replace(b'"default"', b'"defa},{ult"').replace(b"},{", b"}SPLIT{")]
        assert block(inside[0].split(b"SPLIT"), its) is None
    # As many colons in all, one too many in one and one too few in the other.
    fields = json.loads(encode(release(kind)))
    twice = json.dumps(fields)[:-1].encode() + b', "partition": 1}'
    fewer = json.dumps({name: value for name, value in fields.items() if name != "time"}).encode()
    assert block([twice, fewer], its) is None


@pytest.mark.parametrize("kind", WITH_NUMBERS)
def test_a_block_with_bytes_put_anywhere_is_seen_alike(kind: str) -> None:
    its, good = rules(kind), encode(release(kind))
    taken = 0
    for at in range(0, len(good) + 1, 5):
        for token in TOKENS:
            taken += block([good, good[:at] + token + good[at:]], its) is not None
    assert taken > 0
