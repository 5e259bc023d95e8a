"""A gateway and a worker decide alike on the same releases, of every protocol, honest or hostile."""

import time
from typing import Any

import pytest

from murk import Task
from murk.gateway.admission import Admission
from murk.protocols.device import device_for
from murk.stream import open_log
from murk.stream.log.interface import Message
from murk.stream.wire.admission import wire_rules
from murk.stream.wire.codec import RejectedError, decode
from murk.stream.wire.columns import columns_of
from murk.stream.wire.releases import KINDS, PackedRelease
from murk.stream.wire.state import Counters
from murk.stream.worker.worker import StepCounters, Validator
from tests.gateway.offered import ORGANISATIONS, PEOPLE, offered, task_of


class NoCopies:
    """Takes every release for a new one, as gateways do."""

    def seen(self, offset: int, identifier: str, expires: int) -> bool:
        return False


def by_gateway(log: Any, task: Task, values: list[bytes], group: int, now: int) -> list[str | None]:
    door, found = Admission(log, task), list[str | None]()
    for start in range(0, len(values), group):
        door.begin()
        judged = door.judged(values[start : start + group], now)
        found += [each if isinstance(each, str) else None for each in judged]
    return found


def by_worker(task: Task, values: list[bytes], now: int) -> list[str | None]:
    learner: Any = device_for(task).engine()
    validator = Validator(0, wire_rules(task, learner.admission), learner)
    messages = [Message(offset, now, value) for offset, value in enumerate(values)]
    refused: dict[int, str] = {}
    # As many at once as leave no gradient stale.
    for start in range(0, len(messages), 50):
        validated = validator.validate_each(messages[start : start + 50], NoCopies(), StepCounters(Counters()))
        refused |= {letter.offset: letter.reason for letter in validated.dead}
    return [refused.get(offset) for offset in range(len(values))]


@pytest.mark.parametrize("name", [*PEOPLE, *ORGANISATIONS])
def test_gateway_and_worker_decide_alike(tmp_path: Any, name: str) -> None:
    task, now = task_of(name), int(time.time())
    values = offered(task, name, 400)
    expected = by_worker(task, values, now)
    with open_log(f"sqlite:///{tmp_path}/log.db") as log:
        log.register_task(task.document())
        for group in (1, 16):
            assert by_gateway(log, task, values, group, now) == expected
    reasons = {each for each in expected if each is not None}
    assert expected.count(None) > 60
    assert {"wrong-task", "level", "schema", "partition", "expired", "dimension", "magnitude"} <= reasons
    if issubclass(KINDS[task.release_kind], PackedRelease):
        return
    # Blocks are admitted if each of their releases is, and only then.
    admission: Any = device_for(task).admission()
    rules = wire_rules(task, admission)
    admitted = [decode(value, rules) for value, reason in zip(values, expected, strict=True) if reason is None]
    assert admission.accepts(columns_of(admitted[:50]), 0)
    for value in values:
        try:
            release = decode(value, rules)
        except RejectedError:
            continue
        try:
            admission.check(release, 0)
        except RejectedError:
            assert not admission.accepts(columns_of([release]), 0)


def test_a_gateway_with_other_rules_is_found(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    task, now = task_of("gradients"), int(time.time())
    values = offered(task, "gradients", 400)
    rules = type(device_for(task).admission())
    expected = by_worker(task, values, now)
    monkeypatch.setattr(rules, "check_payload", lambda self, release: None)
    with open_log(f"sqlite:///{tmp_path}/log.db") as log:
        log.register_task(task.document())
        assert by_gateway(log, task, values, 1, now) != expected
