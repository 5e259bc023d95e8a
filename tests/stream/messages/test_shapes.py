"""A message costs its reader no more than its sender: one mistake is described, and what has too many keys unread."""

import json

import pytest

from murk.stream.wire import codec
from murk.stream.wire.codec import RejectedError, WireRules, decode, decode_model
from murk.stream.wire.releases import KINDS, PackedRelease

SIZE = 2000
ITEMS = ['""', "null", "{}", "[]", "[[[]]]", "1.5", "true", "-", "9" * 30, '"x"', '{"a":1}']
LISTS = [kind for kind in KINDS if not issubclass(KINDS[kind], PackedRelease)]


@pytest.fixture
def described(monkeypatch):
    """How many mistakes each refusal was chosen from."""
    found = []

    def rejected(error):
        found.append(error.error_count())
        return actual(error)

    actual = codec._rejected
    monkeypatch.setattr(codec, "_rejected", rejected)
    return found


def rules(kind):
    return WireRules("f" * 64, simulated=False, lengths=(SIZE,), magnitudes={"default": 2**40}, kind=kind)


def message(kind, payload):
    fields = {"schema": 1, "kind": kind, "id": "0" * 32, "task": "f" * 64, "level": "default", "partition": 0,
              "time": 0, "expires": 9, "simulated": False}  # fmt: skip
    fields |= {"version": 0} if kind in ("gradient", "score") else {}
    fields |= {"query": "score", "item": 0} if kind == "score" else {}
    fields |= {"records": 9} if kind in ("sketch", "gram", "newton") else {}
    fields |= {"rows": 1, "spread": 1.0} if kind == "sketch" else {}
    fields |= {"model": []} if kind == "newton" else {}
    text = json.dumps(fields)
    return f'{text[:-1]}, "payload": [{payload}]}}'.encode()


@pytest.mark.parametrize("item", ITEMS)
@pytest.mark.parametrize("kind", LISTS)
def test_of_a_hostile_list_one_mistake_is_described(kind, item, described):
    data = message(kind, ",".join([item] * (rules(kind).max_bytes // (len(item) + 1) - 200)))
    assert len(data) <= rules(kind).max_bytes
    with pytest.raises(RejectedError) as error:
        decode(data, rules(kind))
    assert error.value.reason in ("schema", "malformed")
    assert len(str(error.value)) < 400
    assert max(described, default=0) <= 1


@pytest.mark.parametrize("item", ITEMS)
def test_so_it_is_of_models(item, described):
    data = message("model", "").replace(b'"payload": []', b'"parameters": [' + ",".join([item] * SIZE).encode() + b"]")
    data = data.replace(b'"id": "' + b"0" * 32 + b'", ', b"")
    with pytest.raises(RejectedError):
        decode_model(data, task_hash="f" * 64, dimension=SIZE)
    assert max(described, default=0) <= 8
    newton = message("newton", "").replace(b'"model": []', b'"model": [' + ",".join([item] * SIZE).encode() + b"]")
    with pytest.raises(RejectedError):
        decode(newton, WireRules("f" * 64, simulated=False, lengths=(SIZE * SIZE,), magnitudes={}, kind="newton"))
    assert max(described, default=0) <= 8


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("make", "reason"), [
    (lambda pairs: "{" + pairs + "}", "schema"),
    (lambda pairs: " {" + pairs + "}\n", "schema"),
    (lambda pairs: '{"id": {' + pairs + "}}", "schema"),
    (lambda pairs: "{" + pairs + ",}", "malformed"),
    (lambda pairs: "{" + pairs, "malformed"),
    (lambda pairs: "[{" + pairs + "}]", "malformed"),
])  # fmt: skip
@pytest.mark.parametrize("key", ['"{}"', '"a"'])
def test_what_has_far_too_many_keys_is_not_parsed(kind, make, reason, key, described):
    data = make(",".join(f'{key.format(number)}:""' for number in range(SIZE))).encode()
    with pytest.raises(RejectedError) as error:
        decode(data, rules(kind))
    assert error.value.reason == reason
    assert described == []


@pytest.mark.parametrize("kind", LISTS)
def test_honest_ones_are_read(kind):
    data = message(kind, ",".join(["-123456789"] * SIZE))
    assert decode(data, rules(kind)).payload == [-123456789] * SIZE
