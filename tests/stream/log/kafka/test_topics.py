"""Topics whose settings are repaired, on a broker that shows the former ones for a moment."""

from types import SimpleNamespace

import pytest

from murk.errors import UserError
from murk.stream.log.interface import UnreachableError
from murk.stream.log.kafka.log import KafkaLog, TopicSetup
from murk.stream.log.kafka.topics import Topics
from murk.stream.wire.state import Counters, StateMessage
from murk.task.task import Task

TASK_TEXT = (
    'name: t\nfeatures: [{name: a, low: 0, high: 1}]\ntarget: {name: y, kind: binary, positive: "yes"}\n'
    "privacy: {guarantee: {gdp: {mu: 1.0}}}\n"
)
TASK = Task.parse(TASK_TEXT)


@pytest.mark.parametrize(("seconds", "stays"), [(0.0, []), (0.3, []), (9.0, ["wrong"])])
def test_what_was_repaired_is_shown_before_it_is_judged(monkeypatch, seconds, stays):
    now, repaired = [0.0], []

    def problems(*where, estimates):
        return [] if repaired and now[0] >= repaired[0] + seconds else ["wrong"]

    def pause(time):
        now[0] += time

    module = "murk.stream.log.kafka.log"
    monkeypatch.setattr(f"{module}.Clients", lambda *given: SimpleNamespace(admin=lambda: None))
    monkeypatch.setattr(f"{module}.monotonic", lambda: now[0])
    monkeypatch.setattr(f"{module}.sleep", pause)
    monkeypatch.setattr(Topics, "describe", lambda *where: {})
    monkeypatch.setattr(Topics, "create", lambda *where, estimates: [])
    monkeypatch.setattr(Topics, "repair", lambda *where: repaired.append(now[0]))
    monkeypatch.setattr(Topics, "problems", problems)
    setup = TopicSetup("kafka://here:1/t", TASK)
    assert setup.create() == []
    assert len(repaired) == 1
    assert setup.problems() == stays


@pytest.mark.parametrize(("wanted", "refused"), [(2, False), (3, True)])
def test_without_the_task_that_a_log_carried_no_partitions_are_added(monkeypatch, wanted, refused):
    task = Task.parse(TASK_TEXT + f"protocol: moments\nlog: {{partitions: {wanted}}}\n")
    found = {"murk-t-releases": {"topic_id": "id", "partitions": [{}, {}]}}
    created = []
    module = "murk.stream.log.kafka.log"
    monkeypatch.setattr(f"{module}.Clients", lambda *given: SimpleNamespace(admin=lambda: None))
    monkeypatch.setattr(Topics, "describe", lambda *where: found)
    monkeypatch.setattr(Topics, "create", lambda *where, estimates: created.append("models") or created)
    monkeypatch.setattr(Topics, "problems", lambda *where, estimates: [])
    setup = TopicSetup("kafka://here:1/t", task)
    if refused:
        with pytest.raises(UserError, match=r"murk-t-models, .* is missing.* set log.partitions to 2"):
            setup.create()
        assert created == []
    else:
        assert setup.create() == ["models"]


@pytest.mark.parametrize("changed", [False, True])
def test_without_the_task_that_a_log_carried_states_tell_whether_it_is_this_one(monkeypatch, changed):
    task = Task.parse(TASK_TEXT + "protocol: moments\nlog: {partitions: 2}\n")
    learned = task.with_simulated(True) if changed else task
    state = StateMessage(
        task=learned.hash, identity="id", partition=1, offset=0, last_id=None, counters=Counters(), learner={},
    )  # fmt: skip
    records = [None, SimpleNamespace(value=state.encode())]
    monkeypatch.setattr(KafkaLog, "_state", lambda log, partition: records[partition])
    monkeypatch.setattr(KafkaLog, "_current_ends", lambda log: SimpleNamespace(end=lambda place: {place: 0}))
    log = object.__new__(KafkaLog)
    log.url, log._name, log.model_name = "kafka://here:1/t", "t", None
    if changed:
        with pytest.raises(UserError, match=r"murk-t-states has states of another task than 't' .* --simulated"):
            log._check_beginning(task)
    else:
        log._check_beginning(task)


def test_a_task_is_kept_with_its_topics_only(monkeypatch):
    """A broker that goes away between the two reads leaves no task whose topics are not known."""
    answers = [UnreachableError("away"), "id"]

    def find(log):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(KafkaLog, "document", lambda log: TASK.document())
    monkeypatch.setattr(KafkaLog, "_find_identity", find)
    log = object.__new__(KafkaLog)
    log._known, log.url = None, "kafka://nowhere/weeks"
    with pytest.raises(UnreachableError):
        log.registered_task()
    assert log.registered_task() == log.registered_task() == TASK
    assert (log._known, answers) == ("id", [])
