"""Workers of chains that share models: made once, committed with the first chain's state, and known in time."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from murk.errors import MurkError
from murk.learners.problem import problem_for
from murk.stream.log.sqlite.log import SqliteLog
from murk.stream.messages.codec import encode_iterate
from murk.stream.messages.releases import IterateMessage
from murk.stream.worker.committed import CommittedLearners
from murk.stream.worker.sharing import Alone, Making, Told, sharing_of
from murk.stream.worker.worker import Worker
from tests.producers.world import Wrapped
from tests.protocols import OWN_MODELS, SCORES
from tests.stream.harness import drain, fault_task, learner_for, message, put, state_of

TASK = fault_task(SCORES)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteLog]:
    with SqliteLog(tmp_path / "log.db") as log:
        log.register_task(TASK.document())
        yield log


def arrive(log: SqliteLog, chain: int, start: int, stop: int, **fields: Any) -> None:
    put(log, [message(TASK, number, chain=chain, **fields) for number in range(start, stop)], chain)


def worker(log: Any, chain: int, **settings: Any) -> Worker:
    return Worker(log, TASK, learner_for(TASK), chain, **{"look": 0.0, **settings})


def learn(log: SqliteLog, *chains: int) -> None:
    for chain in chains:
        with worker(log, chain) as one:
            drain(one)


def starts(log: SqliteLog, chain: int) -> list[int]:
    return [epoch["start"] for epoch in state_of(log, chain).learner["epochs"]]


def version(log: SqliteLog, chain: int = 0) -> int | None:
    model = log.model(chain)
    return None if model is None else int(json.loads(model)["version"])


def reasons(log: SqliteLog) -> list[str]:
    return [letter.reason for letter in log.dead_letters()]


def test_the_first_chain_makes_a_model_of_what_all_have_learned(log: SqliteLog) -> None:
    arrive(log, 1, 0, 2_500)
    arrive(log, 0, 5_000, 5_499)
    learn(log, 1, 0)
    assert (version(log), starts(log, 0)) == (0, [0])
    arrive(log, 1, 2_500, 2_501)
    learn(log, 1)
    # Nothing arrived for the first chain itself.
    learn(log, 0)
    assert (version(log), starts(log, 0), starts(log, 1)) == (3_000, [0, 3_000], [0])
    assert version(log, 1) is None
    # What the others release at it is known to be of it, without anybody telling them.
    arrive(log, 1, 2_501, 2_600, version=3_000)
    learn(log, 1)
    assert starts(log, 1) == [0, 3_000]
    assert reasons(log) == []
    first, other = (state_of(log, chain).learner["epochs"][1] for chain in range(2))
    assert first["model"] == other["model"]
    whole = problem_for(TASK).estimate(list(map(CommittedLearners(log, lambda: learner_for(TASK)), range(2))))
    assert whole.n_releases == 2_600 + 499


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


def test_other_chains_look_once_after_they_have_read_and_no_more(log: SqliteLog) -> None:
    looks: list[int] = []

    def model(chain: int) -> bytes | None:
        looks.append(chain)
        return log.model(chain)

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
        # While nothing arrives a worker looks after its own model.
        assert looks == [0, 1]
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
    iterate = json.loads(honest)["iterate"]
    forged = [
        b"not a model",
        encode_iterate(IterateMessage(task=TASK.hash, chain=1, version=6_000, iterate=iterate)),
        encode_iterate(IterateMessage(task=TASK.hash, chain=0, version=6_001, iterate=iterate)),
        encode_iterate(IterateMessage(task=TASK.hash, chain=0, version=6_000, iterate=[1e9, *iterate[1:]])),
    ]
    for number, one in enumerate(forged):
        log.publish(0, one)
        arrive(log, 1, 10 * number, 10 * number + 5, version=6_000)
        learn(log, 1)
        assert starts(log, 1) == [0]
        assert len(reasons(log)) == 5 * (number + 1)
        assert "none that learners publish" in caplog.text
        caplog.clear()
    # The first chain's worker puts the right one there again.
    learn(log, 0)
    assert log.model(0) == honest
    arrive(log, 1, 100, 105, version=3_000)
    learn(log, 1)
    assert starts(log, 1) == [0, 3_000]


def test_a_published_model_is_not_made_again_by_a_state_that_was_restored(log: SqliteLog) -> None:
    """From a copy of before it was made: people have answered at it, and a second one would be another."""
    arrive(log, 1, 0, 3_000)
    learn(log, 0, 1)
    database = log._database
    before = database.query('SELECT state, "offset" FROM states WHERE chain = 0', (), (bytes, int))
    learn(log, 0)
    model = log.model(0)
    assert version(log) == 3_000
    arrive(log, 1, 3_000, 5_900)
    arrive(log, 0, 7_000, 7_010)
    learn(log, 1)
    for honest in (True, False):
        with database.write() as connection:
            connection.execute('UPDATE states SET state = ?, "offset" = ? WHERE chain = 0', before[0])
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
    ends: list[int] = []

    def end(chain: int) -> int:
        nonlocal now
        ends.append(chain)
        now += cost
        return log.end(chain)

    cost = 0.0
    one = Making(Wrapped(log, end=end), TASK, learner_for(TASK), 0.2, clock=lambda: now)  # type: ignore[arg-type]
    for moment, looked in ((100.0, True), (100.1, False), (100.2, True), (100.39, False), (100.41, True)):
        now = moment
        ends.clear()
        one.step()
        assert bool(ends) is looked
    # Where it takes long, it is done seldom: two partitions, half a second each.
    cost, now = 0.5, 200.0
    one.step()
    assert now == 201.0
    for moment, looked in ((250.9, False), (251.1, True)):
        now = moment
        ends.clear()
        one.step()
        assert bool(ends) is looked


def test_who_makes_models_and_who_is_told_of_them(log: SqliteLog) -> None:
    shared, own = learner_for(TASK), learner_for(fault_task(OWN_MODELS))
    kinds = [type(sharing_of(log, TASK, learner, chain, 0.2)) for learner in (shared, own) for chain in range(2)]
    assert kinds == [Making, Told, Alone, Alone]


def test_a_chains_learner_is_decoded_again_where_its_state_has_moved(log: SqliteLog) -> None:
    others = CommittedLearners(log, lambda: learner_for(TASK))
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
    assert others(0).model.flat.tolist() == json.loads(log.model(0) or b"")["iterate"]
