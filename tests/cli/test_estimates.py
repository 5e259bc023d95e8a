"""Estimates as JSON beside the states: what they say, when they are published, and by whom."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from murk import Task
from murk.cli.estimates import Estimates, publisher
from murk.errors import MurkError
from murk.populations.local_run import LocalRun
from murk.populations.people import PopulationConfig
from murk.protocols.device import device_for
from murk.results.report import report_log
from murk.stream import Worker, open_log
from murk.stream.log.interface import Checkpoint, FencedError, Log, UnreachableError
from murk.stream.wire.state import EstimateMessage, decode_state
from tests.cli.harness import ANY_PROTOCOL, LOG, murk, people, world
from tests.producers.world import Wrapped

TASK = Task.parse(
    ANY_PROTOCOL.replace("mu: 1.0", "mu: 40.0") + "protocol: examples\nlog: {partitions: 2}\n"
).with_simulated(True)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def log(tmp_path: Path) -> Any:
    """A log of 900 releases that nobody has learned."""
    with LocalRun(
        TASK,
        PopulationConfig(people(tmp_path / "p.csv", 900), seed=1),
        f"sqlite:///{tmp_path}/all.db",
        tmp_path / "l.db",
    ) as run:
        list(run.steps())
        messages = [(partition, one.value) for partition in range(2) for one in run.log.read(partition, 0, 1000)]
    with open_log(f"sqlite:///{tmp_path}/log.db") as log:
        log.register_task(TASK.document())
        log.append(messages)
        yield log


def published(log: Log) -> EstimateMessage:
    message = log.estimate()
    assert message is not None
    return EstimateMessage.model_validate_json(message)


def test_it_is_the_estimate_of_all_partitions_as_reports_have_it(log: Log) -> None:
    device, clock = device_for(TASK), Clock()
    assert log.estimate() is None
    with (
        Worker(log, TASK, device.engine(), 1) as second,
        Worker(log, TASK, device.engine(), 0, estimates=Estimates(log, TASK, device, 10.0, clock)) as first,
    ):
        second.step()
        first.step()
        found, wanted = published(log), report_log(TASK, log, live=True)
        assert found.releases == wanted["releases"] == 900
        assert (found.task, found.name, found.simulated) == (TASK.hash, TASK.name, True)
        assert (found.method, found.level) == (wanted["interval"]["method"], 0.95)
        assert found.note == f"{wanted['interval']['note']}; 95% at every look"
        for name, value in wanted["coefficients"].items():
            one, unit = found.coefficients[name], wanted["per_unit"][name]
            assert one.value == value
            assert [one.low, one.high] == wanted["confidence_intervals"][name]
            assert one.low is not None
            assert one.effect is not None
            assert (one.effect.unit, one.effect.scale, one.effect.value) == (unit["unit"], unit["scale"], unit["value"])
            assert [one.effect.low, one.effect.high] == unit["interval"]
        # Nothing of one person, no time and no place: only these.
        assert set(EstimateMessage.model_fields) == {
            "schema_", "kind", "task", "name", "simulated", "releases", "level", "method", "note",
            "standard_error", "coefficients",
        }  # fmt: skip


@pytest.mark.parametrize(
    ("error", "stops"), [(MurkError("the state of partition 1 is damaged"), False), (UnreachableError("away"), True)]
)
def test_another_partitions_state_stops_no_learner(
    log: Log, error: MurkError, stops: bool, caplog: pytest.LogCaptureFixture
) -> None:
    device, clock = device_for(TASK), Clock()

    def checkpoint(_: int) -> Checkpoint:
        if failing:
            raise error
        return log.checkpoint(1)

    failing = True
    estimates = Estimates(Wrapped(log, checkpoint=checkpoint), TASK, device, 10.0, clock)  # type: ignore[arg-type]
    with Worker(log, TASK, device.engine(), 0, batch=10, estimates=estimates) as first:
        if stops:
            with pytest.raises(UnreachableError, match="away"):
                first.step()
            return
        assert first.step().learned == 10
        assert "no estimate can be published at the moment: the state of partition 1 is damaged" in caplog.text
        failing = False
        for now, due in ((29.0, False), (31.0, True)):
            clock.now = now
            assert first.step().learned == 10
            assert (log.estimate() is not None) is due


def test_it_is_published_when_it_is_due_and_something_is_new(log: Log) -> None:
    device, clock = device_for(TASK), Clock()
    with (
        Worker(log, TASK, device.engine(), 0, estimates=Estimates(log, TASK, device, 10.0, clock)) as first,
        Worker(log, TASK, device.engine(), 1) as second,
    ):
        first.step(limit=20)
        assert published(log).releases == 20
        clock.now = 9.0
        first.step(limit=20)
        assert published(log).releases == 20
        clock.now = 10.0
        # Nothing is read, and what was learned meanwhile is published all the same, with its state.
        assert first.step(limit=0).read == 0
        assert published(log).releases == 40
        clock.now = 20.0
        before = log.checkpoint(0)
        assert first.step(limit=0).read == 0
        assert log.checkpoint(0) == before
        second.step(limit=5)
        clock.now = 30.0
        first.step(limit=0)
        assert published(log).releases == 45


def test_it_takes_a_fiftieth_of_the_time_at_most(log: Log) -> None:
    device, clock, made = device_for(TASK), Clock(), []

    class Slow(Estimates):
        def _newest(self, engine: Any) -> bytes | None:
            clock.now += 2.0
            made.append(clock.now)
            return super()._newest(engine)

    with Worker(log, TASK, device.engine(), 0, estimates=Slow(log, TASK, device, 1.0, clock)) as worker:
        while clock.now < 1000.0:
            worker.step(limit=1)
            clock.now += 1.0
    assert all(later - earlier >= 100.0 for earlier, later in pairwise(made))
    assert len(made) >= 9


def test_state_and_estimate_are_one_write(log: Log) -> None:
    """Who was fenced publishes neither, and what stands there is what the state says."""
    device, clock = device_for(TASK), Clock()
    with Worker(log, TASK, device.engine(), 0, estimates=Estimates(log, TASK, device, 1.0, clock)) as first:
        first.step(limit=10)
        with Worker(log, TASK, device.engine(), 0, estimates=Estimates(log, TASK, device, 1.0, clock)) as successor:
            clock.now += 2.0
            with pytest.raises(FencedError):
                first.step(limit=50)
            assert published(log).releases == 10
            for _ in range(5):
                clock.now += 2.0
                successor.step(limit=7)
                state = log.checkpoint(0).state
                assert state is not None
                assert published(log).releases == decode_state(state, "").counters.learned


def test_only_the_first_partition_publishes_and_only_where_it_is_wanted(log: Log) -> None:
    device = device_for(TASK)
    asked = []

    def never(engine: Any) -> None:
        asked.append(engine)

    with Worker(log, TASK, device.engine(), 1, estimates=never) as worker:
        worker.step()
    assert (asked, log.estimate()) == ([], None)
    assert publisher(log, TASK, device, 0.0) is None


def test_learn_publishes(folder: Path) -> None:
    world(folder, rows=60, task=ANY_PROTOCOL + "protocol: examples\n")
    log = open_log(f"sqlite:///{folder}/third-child.db")
    produce = ["produce", "task.yaml", "--source", "people.csv", "--log", LOG, "--seed", 1, "--json"]
    assert murk(*produce, folder=folder).json["releases"] == 60
    assert murk("learn", "--log", LOG, "--idle", 0.2, "--estimates", 0, "--json", folder=folder).json["releases"] == 60
    assert log.estimate() is None
    found = murk("learn", "--log", LOG, "--idle", 0.2, "--estimates", 0.01, "--json", folder=folder).json
    message = json.loads(log.estimate() or b"")
    assert {name: one["value"] for name, one in message["coefficients"].items()} == found["coefficients"]
    log.close()
