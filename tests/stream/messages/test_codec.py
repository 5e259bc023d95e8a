"""The codec: what is encoded comes back, and of any other bytes nothing but a reason."""

import json
import math
import subprocess
import sys
from typing import Any, get_args

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from murk.stream.log.interface import truncate_time
from murk.stream.wire.codec import (
    EXCERPT,
    REASONS,
    Reason,
    RejectedError,
    WireRules,
    decode,
    decode_model,
    encode,
    excerpt,
    json_schema,
    longest_release,
)
from murk.stream.wire.releases import GradientRelease, ModelMessage

TASK = "0123456789abcdef" * 4
LEVELS = {"default": 1_000, "open": 10}
RULES = WireRules(TASK, simulated=False, lengths=(3,), magnitudes=LEVELS, partitions=2, max_bytes=4_096)
RELEASE = GradientRelease(
    id="f" * 32,
    task=TASK,
    level="default",
    partition=1,
    version=7,
    payload=[1, -2, 3],
    time=86_400,
    expires=172_800,
)
DATA = encode(RELEASE)
FIELDS: dict[str, Any] = json.loads(DATA)
ITERATE = ModelMessage(task=TASK, partition=0, version=7, parameters=[0.1, -1e-300, 5.0])


def message(**changes: Any) -> bytes:
    return json.dumps(FIELDS | changes).encode()


def rejection(data: bytes, rules: WireRules = RULES) -> RejectedError:
    with pytest.raises(RejectedError) as caught:
        decode(data, rules)
    assert caught.value.reason in REASONS
    assert len(caught.value.detail) <= 250
    assert caught.value.detail.isascii()
    assert caught.value.detail.isprintable()
    return caught.value


def reason(data: bytes, rules: WireRules = RULES) -> Reason:
    return rejection(data, rules).reason


hexadecimal = st.text("0123456789abcdef", min_size=32, max_size=32)
sixty_two_bits = st.integers(0, 2**62 - 1)


@settings(deadline=None)
@given(
    hexadecimal,
    st.from_regex(r"[A-Za-z0-9_-]{1,32}", fullmatch=True),
    sixty_two_bits,
    sixty_two_bits,
    st.lists(st.integers(-(2**62) + 1, 2**62 - 1), min_size=1, max_size=20),
    st.integers(0, 2**53 - 1),
    st.integers(0, 2**53 - 1),
    st.booleans(),
)
def test_a_release_comes_back(
    id: str,
    level: str,
    partition: int,
    version: int,
    payload: list[int],
    time: int,
    expires: int,
    simulated: bool,
) -> None:
    release = GradientRelease(
        id=id,
        task=id * 2,
        level=level,
        partition=partition,
        version=version,
        payload=payload,
        time=time,
        expires=expires,
        simulated=simulated,
    )
    # The default of max_bytes has to have room for the largest numbers.
    rules = WireRules(id * 2, simulated, (len(payload),), {level: 2**62}, partitions=2**62)
    again = decode(encode(release), rules)
    assert again == release
    assert encode(again) == encode(release)


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20), sixty_two_bits)
@example([5e-324, 1.7976931348623157e308, -0.0, 0.1, 1 / 3], 0)
def test_an_iterate_comes_back_bit_for_bit(parameters: list[float], version: int) -> None:
    data = encode(ModelMessage(task=TASK, partition=1, version=version, parameters=parameters))
    again = decode_model(data, task_hash=TASK, dimension=len(parameters), partition=1)
    assert [value.hex() for value in again.parameters] == [value.hex() for value in parameters]
    assert again.version == version


def test_the_bytes_are_pinned() -> None:
    assert (
        b'{"schema":1,"kind":"gradient","id":"' + b"f" * 32 + b'","task":"' + TASK.encode() + b'",'
        b'"level":"default","partition":1,"payload":[1,-2,3],"time":86400,"expires":172800,'
        b'"simulated":false,"version":7}'
    ) == DATA
    assert encode(ITERATE) == (
        b'{"schema":1,"kind":"model","task":"' + TASK.encode() + b'","partition":0,"version":7,'
        b'"parameters":[0.1,-1e-300,5.0]}'
    )


def test_order_and_spaces_do_not_matter() -> None:
    assert decode(json.dumps(dict(reversed(FIELDS.items())), indent=1).encode(), RULES) == RELEASE


@pytest.mark.parametrize(
    ("data", "wanted"),
    [
        (b" " * (RULES.max_bytes + 1), "too-large"),
        (message(pad="x" * 10_000), "too-large"),
        (b"", "malformed"),
        (b"\x00", "malformed"),
        (b"\xff\xfe{}", "malformed"),
        (b"null", "malformed"),
        (b"[]", "malformed"),
        (b"7", "malformed"),
        (b'"text"', "malformed"),
        (b"{", "malformed"),
        (DATA + b"{}", "malformed"),
        (DATA + DATA, "malformed"),
        (b"[" * 500, "malformed"),
        (b'{"a":' * 100, "malformed"),
        (DATA.replace(b'"level":"default"', b'"level":"\xff"'), "malformed"),
        (DATA.replace(b'"level":"default"', b'"level":"\\ud800"'), "malformed"),
        (DATA.replace(b'"partition":1', b'"partition":1,"partition":1'), "malformed"),
        (DATA.replace(b'"level":"default"', b'"level":"a:b","level":"default"'), "malformed"),
        (DATA.replace(b'"partition":1', b'"p\\u0061rtition":0,"partition":1'), "malformed"),
        (DATA.replace(b"[1,-2,3]", b"[1,-2,3],"), "malformed"),
        (DATA.replace(b"[1,-2,3]", b"[1,-2,03]"), "malformed"),
        (b"{}", "schema"),
        (message(schema=2), "schema"),
        (message(schema=1.0), "schema"),
        (message(schema=True), "schema"),
        (message(kind="model"), "schema"),
        (message(extra=1), "schema"),
        (message(**{"ex\ntra" * 20: 1}), "schema"),
        (message(id="F" * 32), "schema"),
        (message(id="f" * 31), "schema"),
        (message(id="f" * 32 + "\n"), "schema"),
        (message(id="٣" * 32), "schema"),
        (message(level=""), "schema"),
        (message(level="a" * 33), "schema"),
        (message(level="a:b"), "schema"),
        (message(partition=-1), "schema"),
        (message(partition=1.0), "schema"),
        (message(partition="1"), "schema"),
        (message(partition=True), "schema"),
        (message(version=2**62), "schema"),
        (message(version=10**400), "schema"),
        (DATA.replace(b"[1,-2,3]", b"[1,-2,3e0]"), "schema"),
        (DATA.replace(b"[1,-2,3]", b"[1,-2,NaN]"), "schema"),
        (DATA.replace(b"[1,-2,3]", b"[1,-2,Infinity]"), "schema"),
        (DATA.replace(b"[1,-2,3]", b"[1,-2,1e999]"), "schema"),
        (DATA.replace(b"[1,-2,3]", b"[1,-2," + b"9" * 300 + b"]"), "schema"),
        (message(payload=[1, -2, None]), "schema"),
        (message(payload=[1, -2, [3]]), "schema"),
        (message(payload={"0": 1}), "schema"),
        (message(payload="[1,-2,3]"), "schema"),
        (message(time=86_400.0), "schema"),
        (message(time=-1), "schema"),
        (message(expires=2**53), "schema"),
        (message(simulated=0), "schema"),
        (message(task="0" * 64), "wrong-task"),
        (message(simulated=True), "simulated"),
        (message(partition=2), "partition"),
        (message(level="strict"), "level"),
        (message(payload=[]), "dimension"),
        (message(payload=[1, 2]), "dimension"),
        (message(payload=[1, 2, 3, 4]), "dimension"),
        (message(payload=[1, 2, 1_001]), "magnitude"),
        (message(payload=[1, -1_001, 2]), "magnitude"),
        (message(payload=[1, -(2**62) + 1, 2]), "magnitude"),
        (message(level="open", payload=[0, 0, 11]), "magnitude"),
    ],
    ids=lambda value: repr(value)[:50],
)
def test_what_does_not_fit_is_rejected_with_its_reason(data: bytes, wanted: Reason) -> None:
    assert reason(data) == wanted


@pytest.mark.parametrize("key", FIELDS)
def test_no_field_may_be_left_out(key: str) -> None:
    left = {name: value for name, value in FIELDS.items() if name != key}
    assert reason(json.dumps(left).encode()) == "schema"
    # Nor replaced by repeating another one.
    other = "partition" if key != "partition" else "version"
    repeated = json.dumps(left).encode()[:-1] + f',"{other}":{FIELDS[other]}}}'.encode()
    assert reason(repeated) in ("schema", "malformed")


@pytest.mark.parametrize("key", FIELDS)
def test_no_key_may_be_given_twice(key: str) -> None:
    for first in (FIELDS[key], None, ":", [], {"a": 1}):
        data = b"{" + json.dumps({key: first}).encode()[1:-1] + b"," + DATA[1:]
        assert reason(data) in ("malformed", "schema")
    assert reason(DATA[:-1] + b"," + json.dumps({key: FIELDS[key]}).encode()[1:]) == "malformed"


def test_what_fits_is_accepted_up_to_the_edges() -> None:
    assert decode(message(payload=[1_000, -1_000, 0]), RULES).payload == [1_000, -1_000, 0]
    assert decode(message(level="open", payload=[10, -10, 0]), RULES).level == "open"
    assert decode(message(simulated=True), WireRules(TASK, True, (3,), {"default": 3}, partitions=2)).simulated
    with pytest.raises(RejectedError, match="partition 1 of 1"):
        decode(message(partition=1), WireRules(TASK, False, (3,), {"default": 3}))
    exact = WireRules(TASK, False, (3,), {"default": 3}, partitions=2, max_bytes=len(DATA))
    assert decode(DATA, exact) == RELEASE
    assert reason(DATA + b" ", exact) == "too-large"


@pytest.mark.parametrize("length", range(len(DATA)))
def test_every_truncation_is_malformed(length: int) -> None:
    assert reason(DATA[:length]) == "malformed"


@settings(deadline=None, max_examples=120)
@given(st.binary(max_size=600))
def test_random_bytes_are_rejected(data: bytes) -> None:
    rejection(data)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)


@settings(deadline=None, max_examples=120)
@given(st.dictionaries(st.sampled_from([*FIELDS, "x"]), anything, min_size=1, max_size=3))
def test_type_confusions_are_rejected_or_fit(changes: dict[str, Any]) -> None:
    data = message(**changes)
    try:
        release = decode(data, RULES)
    except RejectedError:
        rejection(data)
    else:
        # What got through is exactly what the rules allow, of exactly the types.
        assert encode(release) == encode(GradientRelease.model_validate_json(data))
        assert all(type(value) is int and abs(value) <= 1_000 for value in release.payload)
        assert type(release.version) is int
        assert release.task == TASK


@settings(deadline=None, max_examples=120)
@given(st.data())
def test_damaged_messages_are_rejected_or_fit(data: st.DataObject) -> None:
    damaged = bytearray(DATA)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode(bytes(damaged), RULES)
    except RejectedError:
        rejection(bytes(damaged))


def test_a_message_of_many_mistakes_is_told_by_its_first() -> None:
    rules = WireRules(TASK, False, (3,), {"default": 3}, max_bytes=1_000_000)
    assert rejection(message(payload=["x"] * 100_000), rules).detail == "payload.0: 'x': int_type"
    assert rejection(message(payload=["x"] * 9), rules).detail == "payload.0: 'x': int_type"


def test_details_say_what_was_found_bounded_and_escaped() -> None:
    hostile = rejection(message(partition="\x1b[31m" + "é" * 500)).detail
    assert hostile.startswith(r"partition: '\\x1b[31m\xe9")
    assert hostile.endswith("...: int_type")
    assert len(hostile) < 100
    assert rejection(message(task="0" * 64)).detail == f"made for task {'0' * 12}, this one is {TASK[:12]}"
    assert rejection(message(level="strict")).detail == "level 'strict' is not one of the task's"
    assert rejection(b"{}").detail == "id: missing"
    assert str(rejection(message(partition=2))) == "partition: partition 2 of 2"


@given(st.text() | st.binary())
def test_excerpts_are_bounded_and_printable(text: str | bytes) -> None:
    shown = excerpt(text)
    assert len(shown) <= EXCERPT + 3
    assert shown.isascii()
    assert shown.isprintable() or not shown


def test_reasons_are_the_vocabulary() -> None:
    assert get_args(Reason) == REASONS
    assert all(name == name.lower() and name.isascii() for name in REASONS)


SCORE = {**FIELDS, "kind": "score", "query": "score", "item": 0}


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, None),
        ({"query": "scatter", "payload": [1, 2, 3, 4, 5, 6]}, None),
        ({"query": "curvature", "payload": [1] * 6}, None),
        ({"payload": [1, 2, 3, 4]}, "dimension"),
        ({"payload": [1] * 7}, "dimension"),
        ({"payload": [1, 2, 3, 4, 5, 1001]}, "magnitude"),
        ({"query": "gradient"}, "schema"),
        ({"query": None}, "schema"),
        ({"kind": "gradient"}, "schema"),
        ({"version": -1}, "schema"),
    ],
)
def test_a_score_has_one_of_several_lengths(changes: dict[str, Any], wanted: Reason | None) -> None:
    rules = WireRules(TASK, False, (3, 6), LEVELS, partitions=2, kind="score")
    assert rules.max_bytes == longest_release("score", 6)
    data = json.dumps({**SCORE, **changes}).encode()
    if wanted is None:
        assert json.loads(encode(decode(data, rules))) == {**SCORE, **changes}
    else:
        assert reason(data, rules) == wanted
    missing = {key: value for key, value in SCORE.items() if key != "query"}
    assert rejection(json.dumps(missing).encode(), rules).detail == "query: missing"


def test_rules_need_a_dimension() -> None:
    for lengths in ((), (0,), (3, 0)):
        with pytest.raises(ValueError, match="at least one coordinate"):
            WireRules(TASK, False, lengths, {})


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({"task": "0" * 64}, "wrong-task"),
        ({"partition": 1}, "partition"),
        ({"parameters": [1.0, 2.0]}, "dimension"),
        ({"parameters": [1.0, 2.0, math.inf]}, "schema"),
        ({"parameters": [1.0, 2.0, math.nan]}, "schema"),
        ({"parameters": [1.0, 2.0, "3"]}, "schema"),
        ({"parameters": [1.0, 2.0, True]}, "schema"),
        ({"parameters": [0.0] * 10_000}, "too-large"),
        ({"version": -1}, "schema"),
        ({"version": 1.5}, "schema"),
        ({"kind": "gradient"}, "schema"),
        ({"schema": 2}, "schema"),
        ({"extra": 0}, "schema"),
    ],
)
def test_iterates_of_a_hostile_model_are_rejected(changes: dict[str, Any], wanted: Reason) -> None:
    data = json.dumps(json.loads(encode(ITERATE)) | changes).encode()
    with pytest.raises(RejectedError) as caught:
        decode_model(data, task_hash=TASK, dimension=3, partition=0)
    assert caught.value.reason == wanted


def test_overflowing_and_repeated_iterates_are_rejected() -> None:
    data = encode(ITERATE)
    for damaged, wanted in (
        (data.replace(b"5.0", b"1e999"), "schema"),
        (data.replace(b'"version":7', b'"version":6,"version":7'), "malformed"),
        (data[:-1], "malformed"),
    ):
        with pytest.raises(RejectedError) as caught:
            decode_model(damaged, task_hash=TASK, dimension=3)
        assert caught.value.reason == wanted
    assert decode_model(data.replace(b"5.0", b"5"), task_hash=TASK, dimension=3) == ITERATE


def test_releases_are_checked_where_they_are_made() -> None:
    good = RELEASE.model_dump()
    for changes in ({"id": "x"}, {"payload": [1.0]}, {"version": True}, {"partition": -1}, {"person": "me"}):
        with pytest.raises(ValidationError):
            GradientRelease(**(good | changes))
    with pytest.raises(ValidationError, match="frozen"):
        RELEASE.version = 8  # type: ignore[misc]


def test_times_are_truncated_to_the_granularity() -> None:
    assert truncate_time(1_700_049_599.9, 86_400) == 1_700_006_400
    assert truncate_time(1_700_006_400, 86_400) == 1_700_006_400
    assert truncate_time(5.7, 1) == 5


def test_json_schema_describes_every_message() -> None:
    schemas = json_schema()
    assert set(schemas) == {"gradient", "score", "example", "moment", "target", "sketch", "gram", "newton", "model"}
    gradient = schemas["gradient"]
    assert set(gradient["required"]) == set(gradient["properties"]) == set(FIELDS)
    assert gradient["additionalProperties"] is False
    assert gradient["properties"]["schema"]["maximum"] == 1
    assert gradient["properties"]["id"]["pattern"] == "^[0-9a-f]{32}$"
    json.dumps(schemas)


FIRST_USE = """
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from murk import Task
from murk.stream.wire.codec import WireRules, decode, encode
from murk.stream.wire.releases import KINDS, GradientRelease
print(any(model.__pydantic_complete__ for model in KINDS.values()), Task.__pydantic_complete__)
data = (
    b'{"schema":1,"kind":"gradient","id":"%s","task":"%s","level":"default","partition":0,"payload":[12,-7],'
    b'"time":0,"expires":9,"simulated":false,"version":7}' % (b"0" * 32, b"f" * 64)
)
rules, start = WireRules("f" * 64, simulated=False, lengths=(2,), magnitudes={"default": 20}), Barrier(16)
def use(_):
    start.wait()
    return encode(decode(data, rules)) == data
with ThreadPoolExecutor(16) as threads:
    print(*set(threads.map(use, range(16))))
"""


def test_models_are_built_when_first_used_in_whatever_threads():
    done = subprocess.run([sys.executable, "-c", FIRST_USE], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True"]
