"""Waiting for a model is waiting for one that can still come of what is on the log, and for no other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from murk.errors import MurkError
from murk.populations.people import wait_for_models
from murk.producers.producer import NoModels
from murk.stream import open_log
from murk.stream.log.interface import Checkpoint, Log, UnreachableError
from murk.stream.wire.codec import encode
from murk.stream.wire.releases import ModelMessage
from murk.stream.wire.state import Counters, StateMessage
from murk.task.task import Task
from tests.producers.world import Wrapped
from tests.stream.harness import make_task

TASK = make_task(partitions=1)
ROUND = 10


class Epochs:
    """All that waiting asks of a device."""

    shares_models = False

    def next_published(self, version: int) -> int:
        return version + ROUND


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(f"sqlite:///{tmp_path}/log.db") as log:
        log.register_task(TASK.document())
        yield log


def waits(log: Log) -> bool:
    """Whether somebody who has no patience gives up, on a clock that only moves when it is looked at."""
    times = iter(range(10_000))
    device: Any = Epochs()
    try:
        wait_for_models(log, device, 3.0, clock=lambda: float(next(times)))
    except MurkError:
        return True
    return False


def append(log: Log, count: int) -> None:
    log.append([(0, b"a release")] * count)


def commit(log: Log, offset: int, learned: int, model: int | None, partition: int = 0, task: Task = TASK) -> None:
    state = StateMessage(
        task=task.hash, identity=log.identity, partition=partition, offset=offset, last_id=None,
        counters=Counters(learned=learned, levels={"default": learned}), learner={},
    )  # fmt: skip
    message = (
        None if model is None else ModelMessage(task=task.hash, partition=partition, version=model, parameters=[0.0])
    )
    ownership = log.acquire(partition)
    ownership.commit(state.encode(), offset, [], None if message is None else encode(message))
    ownership.close()


def test_a_model_that_is_not_due_is_not_waited_for(log: Log) -> None:
    append(log, ROUND - 1)
    assert not waits(log)
    append(log, 1)
    assert waits(log)
    device: Any = Epochs()
    with pytest.raises(MurkError, match=r"no learner has read .* start `murk learn"):
        wait_for_models(log, device, 0.0)


def test_a_model_that_is_due_is_waited_for_until_it_is_out(log: Log) -> None:
    append(log, ROUND)
    commit(log, ROUND - 1, ROUND - 1, 0)
    assert waits(log)
    commit(log, ROUND, ROUND, 0)
    assert waits(log)
    commit(log, ROUND, ROUND, ROUND)
    assert not waits(log)
    append(log, ROUND - 1)
    assert not waits(log)


def test_what_was_read_and_not_learned_brings_no_model(log: Log) -> None:
    append(log, ROUND)
    commit(log, ROUND, ROUND - 3, 0)
    assert not waits(log)


def test_a_partition_whose_state_is_gone_is_left_to_its_learner(log: Log) -> None:
    append(log, ROUND)
    assert not waits(Wrapped(log, checkpoint=lambda partition: Checkpoint(None, ROUND)))  # type: ignore[arg-type]


def test_of_models_that_partitions_share_all_are_waited_for(tmp_path: Path) -> None:
    """Whatever each of them has: the model is of what all have learned, and the first partition publishes it."""
    shared = make_task(partitions=2)
    with open_log(f"sqlite:///{tmp_path}/shared.db") as log:
        log.register_task(shared.document())
        device: Any = Epochs()
        device.shares_models = True

        def waiting() -> bool:
            times = iter(range(10_000))
            try:
                wait_for_models(log, device, 3.0, clock=lambda: float(next(times)))
            except MurkError:
                return True
            return False

        log.append([(0, b"a release")] * 4 + [(1, b"a release")] * (ROUND - 5))
        assert not waiting()
        log.append([(1, b"a release")])
        assert waiting()
        commit(log, 4, 4, 0, task=shared)
        assert waiting()
        commit(log, ROUND - 4, ROUND - 5, None, 1, task=shared)
        # One of them was not learned: none is due.
        assert not waiting()
        commit(log, ROUND - 4, ROUND - 4, None, 1, task=shared)
        assert waiting()
        commit(log, 4, 4, ROUND, task=shared)
        assert not waiting()


def test_releases_of_no_model_are_of_an_empty_one(log: Log) -> None:
    append(log, 3)
    for model in (NoModels(log).newest(0), NoModels(log).cached_model(0)):
        assert (model.version, model.parameters.shape, model.end) == (0, (0,), 3)


def test_what_is_no_model_is_left_to_those_who_look_closer(log: Log) -> None:
    append(log, ROUND)
    log.publish(0, b"not a model")
    assert not waits(log)


def test_patience_is_for_a_learner_that_reads_nothing(log: Log) -> None:
    """While it reads on, however slowly, it is waited for; and then as long as was said, and no longer."""
    append(log, 2 * ROUND)
    commit(log, ROUND, ROUND - 1, 0)
    state = log.checkpoint(0).state
    looks: list[int] = []

    def slow(partition: int) -> Checkpoint:
        looks.append(min(len(looks), 12))
        return Checkpoint(state, looks[-1])

    times = iter(range(100))
    device: Any = Epochs()
    with pytest.raises(MurkError, match=r"has read .* for 3 s"):
        wait_for_models(Wrapped(log, checkpoint=slow), device, 3.0, clock=lambda: float(next(times)))  # type: ignore[assignment, method-assign]
    # Twelve steps on, and then four seconds at one place.
    assert looks == [*range(12), *[12] * 5]


def test_a_log_that_is_away_is_waited_for_too(log: Log) -> None:
    device: Any = Epochs()
    for away, patience, gives_up in ((2, 3.0, False), (50, 3.0, True)):
        looks: list[int] = []

        def model(partition: int, away: int = away, looks: list[int] = looks) -> bytes | None:
            looks.append(partition)
            if len(looks) <= away:
                raise UnreachableError("the log is away")
            return log.model(partition)

        times = iter(range(100))
        wrapped: Any = Wrapped(log, model=model)  # type: ignore[arg-type]
        if gives_up:
            with pytest.raises(MurkError, match="for 3 s"):
                wait_for_models(wrapped, device, patience, clock=lambda times=times: float(next(times)))  # type: ignore[assignment, method-assign]
            assert len(looks) == 5
        else:
            wait_for_models(wrapped, device, patience, clock=lambda times=times: float(next(times)))  # type: ignore[assignment, method-assign]
            assert len(looks) == 3
