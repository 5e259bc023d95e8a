"""Forgetting as a task asks for it: its key, and what it leaves as it was."""

import json

import pytest

from murk import Task
from murk.errors import MurkError
from murk.protocols.device import device_for
from tests.stream.tasks import ANY_PROTOCOL

FORGETFUL = ANY_PROTOCOL + "protocol: scores\nforget: 24000\n"


def test_a_task_that_forgets_nothing_is_the_task_that_it_was() -> None:
    plain = Task.parse(ANY_PROTOCOL + "protocol: scores\n")
    assert "forget" not in json.loads(plain.document())
    assert Task.parse(ANY_PROTOCOL + "protocol: scores\nforget: null\n") == plain
    forgetful = Task.parse(FORGETFUL)
    assert json.loads(forgetful.document())["forget"] == 24_000
    assert forgetful.hash != plain.hash
    assert Task.from_document(forgetful.document()) == forgetful


def test_states_go_on_only_where_the_same_is_forgotten() -> None:
    plain, forgetful = (device_for(Task.parse(text)) for text in (ANY_PROTOCOL + "protocol: scores\n", FORGETFUL))
    state = plain.engine().state_dict()  # type: ignore[attr-defined]
    with pytest.raises(MurkError, match="other settings"):
        forgetful.engine().load_state_dict(state)


def test_another_protocol_is_tried_without_it() -> None:
    assert Task.parse(FORGETFUL).with_protocol("moments").forget is None
