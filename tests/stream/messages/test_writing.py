"""Bytes of releases, made by the compiled writer: those of the models, and their errors."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from murk.stream.wire import codec as writing
from murk.stream.wire.codec import encode, writer
from murk.stream.wire.releases import KINDS, PackedRelease
from tests.fuzz.mutate import STRANGE
from tests.stream.messages.test_receiving import MORE, WITH_NUMBERS

FIELDS: dict[str, Any] = {
    "id": "0123456789abcdef" * 2, "task": "f" * 64, "level": "default", "partition": 3, "payload": [1, -2, 2**62 - 1],
    "time": 86_400, "expires": 172_800, "simulated": True,
}  # fmt: skip


def fields_of(kind: str) -> dict[str, Any]:
    model = KINDS[kind]
    payload = {"payload": model.packed([1, -2])} if issubclass(model, PackedRelease) else {}
    return {**FIELDS, **MORE.get(kind, {}), **payload}


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_the_bytes_are_those_of_the_model(kind: str) -> None:
    fields = fields_of(kind)
    assert writer(kind)(**fields) == encode(KINDS[kind](**fields))
    # In whatever order they are given, and with what has a default left out.
    turned = dict(reversed(fields.items()))
    assert writer(kind)(**turned) == encode(KINDS[kind](**fields))
    for name in ("simulated", "item"):
        turned.pop(name, None)
    assert writer(kind)(**turned) == encode(KINDS[kind](**turned))


@settings(max_examples=80, deadline=None)
@given(
    payload=st.lists(st.integers(1 - 2**62, 2**62 - 1)),
    partition=st.integers(0, 2**62 - 1),
    time=st.integers(0, 2**53 - 1),
)
def test_every_number_is_written_alike(payload: list[int], partition: int, time: int) -> None:
    for kind in WITH_NUMBERS:
        fields = {**fields_of(kind), "payload": payload, "partition": partition, "time": time}
        assert writer(kind)(**fields) == encode(KINDS[kind](**fields))


@pytest.mark.parametrize("kind", WITH_NUMBERS)
def test_the_models_are_not_asked(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise all of this would hold without a writer."""
    monkeypatch.setattr(writing, "encode", lambda release: pytest.fail("asked the model"))
    assert writing.writer.__wrapped__(kind)(**fields_of(kind))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_what_no_receiver_takes_is_not_written(kind: str) -> None:
    """Field by field, whatever stands there; what a model refuses, it says why."""
    fields, refused = fields_of(kind), 0
    for name in fields:
        for value in [*STRANGE, [2**62], [-(2**62)], "F" * 64, "0" * 32 + "\n", "a:b"]:
            changed = {**fields, name: value}
            try:
                wanted = encode(KINDS[kind](**changed))
            except ValidationError:
                refused += 1
                with pytest.raises(ValidationError):
                    writer(kind)(**changed)
            else:
                assert writer(kind)(**changed) == wanted
    assert refused > 500
    for name in set(fields) - {"simulated", "item"}:
        with pytest.raises(ValidationError):
            writer(kind)(**{key: value for key, value in fields.items() if key != name})
    with pytest.raises(ValidationError):
        writer(kind)(**fields, another=1)
