"""Workers of partitions that share models: made once, committed with the first partition's state, and known in time."""

import json
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from murk.errors import MurkError
from murk.inference.drift import merged_curve
from murk.protocols.device import device_for
from murk.protocols.scores import device as scores
from murk.stream.log.interface import Checkpoint, UnreachableError
from murk.stream.log.sqlite import SqliteLog
from murk.stream.wire.codec import encode
from murk.stream.wire.releases import ModelMessage
from murk.stream.worker.sharing import CommittedLearners, Making, Told, sharing_of
from murk.stream.worker.worker import Worker
from tests.producers.world import Wrapped
from tests.protocols import OWN_MODELS, SCORES, contents
from tests.stream.harness import drain, fault_task, learner_for, message, put, rewrite, state_of

TASK = fault_task(SCORES, duplicates=51)
"""Of no other tests, which know it with its survey."""


@pytest.fixture(autouse=True)
def unsurveyed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models of scores from the beginning, at versions that are easy to count."""
    monkeypatch.setattr(scores, "_survey", lambda *_: None)


@cache
def answers() -> tuple[dict[str, Any], ...]:
    """What honest releases hold, at the first model."""
    return contents.__wrapped__(SCORES.name)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    with SqliteLog(tmp_path / "log.db") as log:
        log.register_task(TASK.document())
        yield log


def arrive(log: SqliteLog, partition: int, start: int, stop: int, **fields: Any) -> None:
    made = answers()
    numbers = range(start, stop)
    put(
        log,
        [message(TASK, one, **made[one % len(made)] | {"partition": partition} | fields) for one in numbers],
        partition,
    )


def worker(log: Any, partition: int, **settings: Any) -> Worker:
    return Worker(log, TASK, learner_for(TASK), partition, **{"look": 0.0, **settings})


def learn(log: SqliteLog, *partitions: int) -> None:
    for partition in partitions:
        with worker(log, partition) as one:
            drain(one)


def starts(log: SqliteLog, partition: int) -> list[int]:
    return [round_["start"] for round_ in state_of(log, partition).learner["rounds"]]


def version(log: SqliteLog, partition: int = 0) -> int | None:
    model = log.model(partition)
    return None if model is None else int(json.loads(model)["version"])


def reasons(log: SqliteLog) -> list[str]:
    return [letter.reason for letter in log.dead_letters()]


def test_the_first_partition_makes_a_model_of_what_all_have_learned(log: SqliteLog) -> None:
    arrive(log, 1, 0, 2_500)
    arrive(log, 0, 5_000, 5_499)
    learn(log, 1, 0)
    assert (version(log), starts(log, 0)) == (0, [0])
    arrive(log, 1, 2_500, 2_501)
    learn(log, 1)
    # Nothing arrived for the first partition itself.
    learn(log, 0)
    assert (version(log), starts(log, 0), starts(log, 1)) == (3_000, [0, 3_000], [0])
    assert version(log, 1) is None
    # What the others release at it is known to be of it, without anybody telling them.
    arrive(log, 1, 2_501, 2_600, version=3_000)
    learn(log, 1)
    assert starts(log, 1) == [0, 3_000]
    assert reasons(log) == []
    first, other = (state_of(log, partition).learner["rounds"][1] for partition in range(2))
    assert first["model"] == other["model"]
    whole = device_for(TASK).estimate(list(map(CommittedLearners(log, TASK, lambda: learner_for(TASK)), range(2))))
    assert whole.n_releases == 2_600 + 499


def test_the_curve_is_of_all_partitions_and_the_first_ones(log: SqliteLog) -> None:
    """A point at each model, of what it was made of; by itself a partition has learned next to nothing."""
    task: Any = TASK
    arrive(log, 0, 5_000, 6_600)
    arrive(log, 1, 0, 1_500)
    learn(log, 1, 0)
    whole = device_for(task).estimate(list(map(CommittedLearners(log, task, lambda: learner_for(task)), range(2))))
    first, other = (state_of(log, partition).history for partition in range(2))
    assert (first.counts, other.counts) == ([3_100], [])
    point = first.table(whole.values.size, "a test")[0]
    assert point[: whole.values.size].tolist() == whole.values.astype(np.float32).tolist()
    assert merged_curve([first, other], whole.values.size, whole.method)[0].releases == 3_100
    # A worker that comes later goes on with it.
    arrive(log, 1, 1_500, 4_500, version=3_000)
    learn(log, 1, 0)
    assert state_of(log).history.counts == [3_100, 6_100]
    assert state_of(log, 1).history.counts == []


def test_a_model_is_on_the_log_with_the_state_that_holds_it_or_not_at_all(log: SqliteLog) -> None:
    arrive(log, 1, 0, 3_100)
    learn(log, 1)
    with worker(log, 0) as one:
        commit = one._ownership.commit
        told: list[bytes] = []
        one._ownership.publish_uncommitted = told.append  # type: ignore[method-assign]

        def fails(*_: Any) -> None:
            raise MurkError("the disk is full")

        one._ownership.commit = fails  # type: ignore[assignment, method-assign]
        arrive(log, 0, 5_000, 5_300)
        with pytest.raises(MurkError, match="full"):
            one.step()
        assert version(log) is None
        assert told == []
        one._ownership.commit = commit  # type: ignore[method-assign]
        made = one._learner.state_dict()
        one.step()
        assert (version(log), state_of(log).learner) == (3_000, made)
    # Its owner is killed before it could commit: nobody has seen its model, and the next one makes it anew, once.
    arrive(log, 1, 3_100, 6_000)
    learn(log, 1)
    lost = worker(log, 0)
    lost._ownership.commit = fails  # type: ignore[assignment, method-assign]
    with pytest.raises(MurkError, match="full"):
        lost.step()
    assert version(log) == 3_000
    arrive(log, 1, 6_000, 6_050, version=3_000)
    learn(log, 1, 0)
    assert version(log) == 6_000
    model = log.model(0)
    learn(log, 0, 1, 0)
    assert log.model(0) == model


def test_other_partitions_look_once_after_they_have_read_and_no_more(log: SqliteLog) -> None:
    looks: list[int] = []

    def model(partition: int) -> bytes | None:
        looks.append(partition)
        return log.model(partition)

    with worker(Wrapped(log, model=model), 1, batch=1_000) as one:
        looks.clear()
        arrive(log, 1, 0, 700)
        one.step()
        assert looks == []
        # Forged: of models that nobody has made, in every part of a batch.
        for start in range(700, 1_700, 100):
            arrive(log, 1, start, start + 50)
            arrive(log, 1, start + 50, start + 100, version=6_000)
        one.step()
        assert looks == [0]
        assert set(reasons(log)) == {"future"}
        assert len(reasons(log)) == 500
        one.step()
        # It publishes nothing, and so has no model of its own to look after.
        assert looks == [0]
    learn(log, 1)
    arrive(log, 0, 5_000, 7_000)
    arrive(log, 1, 1_700, 3_000)
    learn(log, 1, 0)
    assert version(log) == 3_000
    # One who was not there when models came out learns of all of them at once.
    arrive(log, 0, 7_000, 9_500, version=3_000)
    learn(log, 0)
    assert version(log) == 6_000
    dead = len(reasons(log))
    arrive(log, 1, 3_000, 3_100, version=3_000)
    arrive(log, 1, 3_100, 3_200, version=6_000)
    with worker(log, 1) as one:
        drain(one)
    assert starts(log, 1) == [0, 3_000, 6_000]
    assert len(reasons(log)) == dead


def test_a_model_that_no_learner_made_is_told_to_nobody(log: SqliteLog, caplog: pytest.LogCaptureFixture) -> None:
    arrive(log, 0, 5_000, 8_000)
    learn(log, 0)
    honest = log.model(0)
    assert honest is not None
    parameters = json.loads(honest)["parameters"]
    forged = [
        b"not a model",
        encode(ModelMessage(task=TASK.hash, partition=1, version=6_000, parameters=parameters)),
        encode(ModelMessage(task=TASK.hash, partition=0, version=3_001, parameters=parameters)),
        encode(ModelMessage(task=TASK.hash, partition=0, version=3_000, parameters=[1e9, *parameters[1:]])),
        # Of more releases than there are messages.
        encode(ModelMessage(task=TASK.hash, partition=0, version=6_000, parameters=parameters)),
    ]
    for number, one in enumerate(forged):
        log.publish(0, one)
        arrive(log, 1, 10 * number, 10 * number + 5, version=6_000)
        # What honest people were asked stands in the first partition's state.
        arrive(log, 1, 10 * number + 5, 10 * number + 8, version=3_000)
        learn(log, 1)
        assert starts(log, 1) == [0, 3_000]
        assert len(reasons(log)) == 5 * (number + 1)
        # Of a version that is in the state nothing that a message says is looked at.
        assert ("not one that a learner has published" in caplog.text) is (number != 3)
        caplog.clear()
    # The first partition's worker puts the right one there again.
    learn(log, 0)
    assert log.model(0) == honest


def test_a_worker_that_begins_again_knows_all_models_that_there_are(log: SqliteLog) -> None:
    """Also of a version between those that its own people have answered at."""
    arrive(log, 0, 5_000, 8_000)
    learn(log, 0)
    arrive(log, 0, 8_000, 11_000, version=3_000)
    learn(log, 0)
    for again in (False, True):
        start = 1_000 * again
        arrive(log, 1, start, start + 10, version=6_000)
        if again:
            learn(log, 1)
        arrive(log, 1, start + 10, start + 20, version=3_000)
        learn(log, 1)
    assert (starts(log, 1), reasons(log)) == ([0, 3_000, 6_000], [])


def test_forged_models_and_answers_to_them_take_nothing_away(log: SqliteLog) -> None:
    arrive(log, 0, 5_000, 8_000)
    learn(log, 0)
    honest = log.model(0) or b""
    arrive(log, 1, 0, 50, version=3_000)
    learn(log, 1)
    before = [state_of(log, partition).learner for partition in range(2)]
    for number in range(10):
        far = 3_000 << 30 + number
        log.publish(0, honest.replace(b'"version":3000', f'"version":{far}'.encode()))
        arrive(log, 1, 100 + number, 101 + number, version=far)
        learn(log, 1, 0)
        assert log.model(0) == honest
    assert [state_of(log, partition).learner for partition in range(2)] == before
    assert reasons(log) == ["future"] * 10
    arrive(log, 0, 8_000, 11_000, version=3_000)
    learn(log, 0)
    arrive(log, 1, 200, 210, version=6_000)
    learn(log, 1)
    assert starts(log, 1) == [0, 3_000, 6_000]


def broken(log: SqliteLog, partition: int, kind: str) -> Any:
    """The log, on which another partition's state is not what its learner commits, or cannot be read."""

    def checkpoint(of: int) -> Checkpoint:
        found = log.checkpoint(of)
        if of != partition:
            return found
        if kind == "away":
            raise UnreachableError("its partition has no leader")
        state = json.loads(found.state or b"")
        offset = found.offset
        if kind == "counts":
            state["learner"]["n_releases"] = 2**60
        elif kind == "more":
            # In agreement with itself: of more releases than were ever there.
            more = 3_000 << 40
            offset += more
            state["offset"] += more
            state["counters"]["learned"] += more
            state["learner"]["n_releases"] += more
        elif kind == "numbers":
            for round_ in state["learner"]["rounds"]:
                for tally in round_["tallies"]:
                    tally["total"] = [2**126] * len(tally["total"])
        elif kind == "identity":
            state["identity"] = "0" * 32
        return Checkpoint(b"junk" if kind == "junk" else json.dumps(state).encode(), offset)

    return Wrapped(log, checkpoint=checkpoint)


@pytest.mark.parametrize("kind", ["junk", "counts", "more", "identity", "numbers", "away"])
def test_a_partition_is_not_held_up_by_anothers_state(
    log: SqliteLog, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    arrive(log, 1, 0, 2_500)
    learn(log, 1)
    arrive(log, 0, 5_000, 6_000)
    with worker(broken(log, 1, kind), 0) as one:
        drain(one)
        assert one._learner.n_releases == 1_000
    # Sums that no one can tell from a learner's make a model as bad as they are; of all others none is made.
    assert ("no new model can be made" in caplog.text) is (kind != "numbers")
    if kind == "more":
        assert "2500 messages were ever on its partition: restore it" in caplog.text
    learn(log, 0)
    assert version(log) == 3_000


@pytest.mark.parametrize("kind", ["junk", "counts", "identity"])
def test_a_partition_goes_on_where_the_first_ones_state_is_damaged(log: SqliteLog, kind: str) -> None:
    arrive(log, 0, 5_000, 8_000)
    learn(log, 0)
    arrive(log, 1, 0, 10)
    arrive(log, 1, 10, 20, version=6_000)
    arrive(log, 1, 20, 30, version=3_000)
    with worker(broken(log, 0, kind), 1) as one:
        drain(one)
    # The model itself is on the log.
    assert (starts(log, 1), reasons(log)) == ([0, 3_000], ["future"] * 10)


@pytest.mark.parametrize("error", [MurkError("database is locked"), UnreachableError("no leader")])
def test_what_people_answered_is_not_refused_because_a_read_failed(log: SqliteLog, error: MurkError) -> None:
    arrive(log, 0, 5_000, 8_000)
    learn(log, 0)
    arrive(log, 0, 8_000, 11_000, version=3_000)
    learn(log, 0)
    arrive(log, 1, 0, 10)
    # Of a model that is not the newest: the state alone has it.
    arrive(log, 1, 10, 20, version=3_000)

    def checkpoint(_: int) -> Checkpoint:
        raise error

    with worker(Wrapped(log, checkpoint=checkpoint), 1) as one:
        with pytest.raises(type(error), match=str(error)):
            one.step()
        with pytest.raises(MurkError, match="did not get to the end of a step: start a new one"):
            one.step()
    learn(log, 1)
    assert (starts(log, 1), reasons(log)) == ([0, 3_000], [])
    assert state_of(log, 1).counters.learned == 20


def test_nothing_is_learned_before_the_newest_model_is_known(log: SqliteLog) -> None:
    """With an older copy of the first partition's state, and a partition that is away: its answers would be refused."""
    arrive(log, 1, 0, 3_000)
    learn(log, 0, 1)
    before = log._database.query('SELECT state, "offset" FROM states WHERE partition = 0', (), (bytes, int))
    learn(log, 0)
    arrive(log, 0, 7_000, 7_010, version=3_000)
    rewrite(log, 'UPDATE states SET state = ?, "offset" = ? WHERE partition = 0', *before[0])
    asked = 0

    def ends() -> Sequence[int]:
        nonlocal asked
        asked += 1
        raise UnreachableError("a partition is away")

    with pytest.raises(UnreachableError):
        worker(Wrapped(log, ends=ends), 0)
    learn(log, 0)
    assert (starts(log, 0), reasons(log)) == ([0, 3_000], [])
    assert state_of(log).counters.learned == 10
    # A state that has the model waits for nobody.
    asked = 0
    with worker(Wrapped(log, ends=ends), 0):
        assert asked == 0


def test_a_published_model_is_not_made_again_by_a_state_that_was_restored(log: SqliteLog) -> None:
    """From a copy of before it was made: people have answered at it, and a second one would be another."""
    arrive(log, 1, 0, 3_000)
    learn(log, 0, 1)
    database = log._database
    before = database.query('SELECT state, "offset" FROM states WHERE partition = 0', (), (bytes, int))
    learn(log, 0)
    model = log.model(0)
    assert version(log) == 3_000
    arrive(log, 1, 3_000, 5_900)
    arrive(log, 0, 7_000, 7_010)
    learn(log, 1)
    for honest in (True, False):
        rewrite(log, 'UPDATE states SET state = ?, "offset" = ? WHERE partition = 0', *before[0])
        if not honest:
            # Of a version that there can be none of yet: it would be long before there is another.
            log.publish(0, (model or b"").replace(b'"version":3000', b'"version":6000'))
        learn(log, 0)
        assert starts(log, 0) == [0, 3_000]
        assert (log.model(0) == model) is honest
        assert version(log) == 3_000
    log.publish(0, b"not a model")
    learn(log, 0)
    assert version(log) == 3_000


def test_a_worker_looks_at_others_now_and_then(log: SqliteLog) -> None:
    now = 100.0
    looks: list[float] = []

    def ends() -> Sequence[int]:
        nonlocal now
        looks.append(now)
        now += cost
        if failing:
            raise UnreachableError("a partition is away")
        return log.ends()

    cost, failing = 0.0, False
    one = Making(Wrapped(log, ends=ends), TASK, learner_for(TASK), 0.2, clock=lambda: now)  # type: ignore[arg-type]
    for moment, looked in ((100.0, True), (100.1, False), (100.2, True), (100.39, False), (100.41, True)):
        now = moment
        looks.clear()
        one.step()
        assert bool(looks) is looked
    # Where it takes long, it is done seldom, but not so that models come late; and after a failure more seldom.
    for each, fails, pause in ((0.01, False, 0.5), (3.0, False, 5.0), (0.01, True, 30.0)):
        cost, failing, now = each, fails, now + 1_000.0
        one.step()
        begun = now
        for moment, looked in ((begun + 0.99 * pause, False), (begun + 1.01 * pause, True)):
            now = moment
            looks.clear()
            one.step()
            assert bool(looks) is looked


def test_who_makes_models_and_who_is_told_of_them(log: SqliteLog) -> None:
    shared, own = learner_for(TASK), learner_for(fault_task(OWN_MODELS, duplicates=51))
    kinds = [
        type(sharing_of(log, TASK, learner, partition, 0.2)) for learner in (shared, own) for partition in range(2)
    ]
    assert kinds == [Making, Told, type(None), type(None)]


def test_a_partitions_learner_is_decoded_again_where_its_state_has_moved(log: SqliteLog) -> None:
    others = CommittedLearners(log, TASK, lambda: learner_for(TASK))
    nothing = others(1)
    assert nothing.n_releases == 0
    assert others(1) is nothing
    arrive(log, 0, 5_000, 5_010)
    learn(log, 0)
    assert others(1) is nothing
    arrive(log, 1, 0, 10)
    learn(log, 1)
    assert others(1).n_releases == 10
    # A model is made at an offset that was committed before.
    arrive(log, 1, 10, 3_000)
    learn(log, 1)
    first = others(0)
    learn(log, 0)
    assert others(0) is not first
    assert others(0).model.flat.tolist() == json.loads(log.model(0) or b"")["parameters"]
