"""What strangers send to the learners of each protocol: a dead letter, or a release that cannot do much."""

import base64
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from murk.errors import MurkError
from murk.protocols.device import device_for
from murk.stream.log.sqlite import SqliteLog
from murk.stream.wire.releases import SketchRelease
from murk.stream.worker.worker import Worker
from murk.task.task import Task
from tests.protocols import BY_NAME, HONEST, contents, title_of
from tests.stream.harness import (
    altered,
    bound,
    drain,
    fault_task,
    hostile,
    learn,
    learner_for,
    message,
    put,
    rewrite,
    state_of,
)

NAMES = tuple(BY_NAME)


@pytest.fixture(params=NAMES)
def task(request: pytest.FixtureRequest) -> Task:
    return fault_task(BY_NAME[request.param], 10_000)


@pytest.fixture
def log(path: Path, task: Task) -> Iterator[SqliteLog]:
    with SqliteLog(path) as opened:
        opened.register_task(task.document())
        yield opened


def test_hostile_messages_are_counted_by_reason_and_change_nothing(log: SqliteLog, task: Task, tmp_path: Path) -> None:
    honest, bad = [message(task, number) for number in range(60)], hostile(task)
    with SqliteLog(tmp_path / "clean.db") as clean:
        clean.register_task(task.document())
        put(clean, honest)
        wanted = learn(clean, task)
    # Each once: what is dead for its place or its time is a duplicate when it comes again.
    places = random.Random(7).sample(range(len(honest) + len(bad)), len(bad))
    stream = list(honest)
    for place, (value, _) in sorted(zip(places, bad, strict=True), key=lambda pair: pair[0]):
        stream.insert(place, value)
    put(log, stream)
    found = learn(log, task, batch=7)
    assert found.counters.dead == Counter(reason for _, reason in bad)
    assert found.counters.learned == 60
    assert found.learner == wanted.learner
    reasons = {letter.offset: letter.reason for letter in log.dead_letters()}
    assert reasons == {stream.index(value): reason for value, reason in bad}


def extremes(task: Task) -> list[bytes]:
    """The largest releases that fit the wire's rules, honest ones among them."""
    most, found = bound(task), []
    if task.protocol == "summaries":
        block = task.summaries
        assert block is not None
        rng = np.random.default_rng(5)
        for number in range(200):
            sketch = contents(title_of(task))[number % HONEST]
            integers = SketchRelease.model_construct(payload=sketch["payload"]).integers
            # Beyond and within what records and noise can make, and with a window that is said to be empty.
            stretched = np.clip(integers * 2 ** rng.integers(0, 30), -most, most)
            found.append(altered(message(task, 2 * number), payload=SketchRelease.packed(stretched)))
            found.append(altered(message(task, 2 * number + 1), records=int(rng.integers(0, 2))))
        return found
    for number in range(200):
        good = message(task, 2 * number)
        signs = random.Random(number).choices([-1, 1], k=len(json.loads(good)["payload"]))
        found.append(altered(good, payload=[most * sign for sign in signs]))
        found.append(message(task, 2 * number + 1))
    return found


def test_whatever_fits_the_rules_leaves_a_state_that_is_finite(log: SqliteLog, task: Task) -> None:
    put(log, extremes(task))
    with Worker(log, task, learner_for(task), batch=16) as worker:
        drain(worker)
        assert worker.counters.read == 400
        # What is not learned has a reason; at least the honest ones are.
        assert worker.counters.learned >= 200
        assert set(worker.counters.dead) <= {"magnitude"}
    state = state_of(log)
    device = device_for(task)
    engine = device.engine()
    engine.load_state_dict(state.learner)
    assert engine.n_releases == state.counters.learned
    assert all(np.isfinite(value) for value in engine.figures().values())
    assert all(np.isfinite(floats).all() for floats in packed(state.learner))
    assert np.isfinite(device.estimate([engine]).values).all()


def packed(state: Any) -> Iterator[np.ndarray[Any, np.dtype[np.float64]]]:
    """All arrays and numbers of a learner's state."""
    if isinstance(state, dict):
        for name, value in state.items():
            if name not in ("settings", "moments", "schema", "level", "query"):
                yield from packed(value)
    elif isinstance(state, list):
        for value in state:
            yield from packed(value)
    elif isinstance(state, str):
        yield np.frombuffer(base64.b64decode(state, validate=True), dtype="<f8")
    elif state is not None:
        yield np.asarray(state, dtype=np.float64)


def spoilt(state: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """A learner's state with something missing, of another shape or of another learner."""
    for name, value in state.items():
        yield f"without {name}", {key: other for key, other in state.items() if key != name}
        wrong: tuple[Any, ...] = (None, [], {}, "x")
        yield from ((f"{name}: {other}", {**state, name: other}) for other in wrong if other != value)
    yield "nothing", {}
    yield "one more", {**state, "n_releases": state["n_releases"] + 1}


def test_a_damaged_state_of_a_learner_is_refused(log: SqliteLog, task: Task) -> None:
    """What a disk has spoilt, or anyone who may write states, is a clear error, and nothing is learned on it."""
    put(log, [message(task, number) for number in range(20)])
    state = learn(log, task).learner
    standing = log.checkpoint(0).state
    assert standing is not None
    for name, learner in spoilt(state):
        rewrite(log, "UPDATE states SET state = ? WHERE partition = 0", altered(standing, learner=learner))
        with pytest.raises(MurkError) as refusal:
            Worker(log, task, learner_for(task)).close()
        assert "unexpected" not in str(refusal.value), name
    rewrite(log, "UPDATE states SET state = ? WHERE partition = 0", standing)
    put(log, [message(task, number) for number in range(20, 30)])
    assert learn(log, task).counters.learned == 30
