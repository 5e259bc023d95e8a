"""What a worker refuses: other logs, other states, other tasks, and logs with something missing."""

from pathlib import Path
from typing import Any

import pytest

from murk.errors import MurkError, UserError
from murk.stream.log.sqlite import SqliteLog
from murk.stream.worker.worker import Worker
from tests.stream.harness import (
    FOREVER,
    Bound,
    SumLearner,
    altered,
    learn,
    make_task,
    message,
    put,
    rewrite,
    spoil,
    sums,
)


def test_a_log_without_the_task_is_refused_before_anybody_is_fenced(path: Path) -> None:
    task, other = make_task(), make_task(name="other")
    with SqliteLog(path) as log:
        with pytest.raises(UserError, match="carries no task yet: announce 'sums'"):
            Worker(log, task, SumLearner(task))
        log.register_task(task.document())
        owner = log.acquire(0)
        with pytest.raises(UserError, match=r"carries the task 'sums' .*, not 'other'"):
            Worker(log, other, SumLearner(other))
        owner.load()


def test_a_learner_of_other_levels_or_with_a_past_is_refused(log: SqliteLog) -> None:
    task = make_task()
    stranger, used = SumLearner(task), SumLearner(task)
    stranger.mechanisms["strict"] = Bound()
    with pytest.raises(UserError, match=r"levels .*strict.*make the learner from the task"):
        Worker(log, task, stranger)
    used.n_releases = 3
    with pytest.raises(UserError, match="already learned 3 releases"):
        Worker(log, task, used)
    with pytest.raises(UserError, match="at least 1 message"):
        Worker(log, task, SumLearner(task), batch=0)


def change_state(log: SqliteLog, **changes: Any) -> None:
    state = log.checkpoint(0).state
    assert state is not None
    rewrite(log, "UPDATE states SET state = ? WHERE partition = 0", altered(state, **changes))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"identity": "0" * 32}, "another identity.*recreated"),
        ({"task": "0" * 64}, "of another task"),
        ({"partition": 1}, "that of partition 1"),
        ({"offset": 9}, "ends at offset 9, and 10 was committed"),
        ({"last_id": "0" * 32}, "last release before offset 10 is not the one"),
        ({"last_id": None}, "last release before offset 10 is not the one"),
        ({"schema": 3}, "another version of Murk .schema 3"),
        ({"kind": "model"}, "invalid: kind"),
        ({"counters": {"learned": -1, "duplicates": 0, "dead": {}}}, "invalid: counters.learned"),
        (
            {"counters": {"learned": 9, "duplicates": 1, "dead": {}}},
            "learned 10 releases, and 9 were counted",
        ),
        ({"surprise": 1}, "invalid: surprise"),
    ],
)
def test_a_state_that_is_not_this_logs_is_refused(log: SqliteLog, changes: dict[str, Any], words: str) -> None:
    task = make_task()
    put(log, [message(task, i) for i in range(10)])
    learn(log)
    change_state(log, **changes)
    before = log.checkpoint(0)
    for _ in range(2):
        with pytest.raises(MurkError, match=words):
            Worker(log, task, SumLearner(task))
    assert log.checkpoint(0) == before


@pytest.mark.parametrize("state", [b"", b"{", b"[]", b"\xff"])
def test_a_state_that_is_no_state_is_refused(log: SqliteLog, state: bytes) -> None:
    task = make_task()
    log.acquire(0).commit(state, 0)
    with pytest.raises(MurkError, match=r"not JSON|damaged"):
        Worker(log, task, SumLearner(task))
    log.acquire(0).commit(b"x", 5)
    rewrite(log, "UPDATE states SET state = NULL")
    with pytest.raises(MurkError, match="read up to offset 5, but its state is gone"):
        Worker(log, task, SumLearner(task))


def test_an_old_state_on_a_recreated_log_is_refused(path: Path, log: SqliteLog, tmp_path: Path) -> None:
    """The same task announced on a new log, the old state carried over, the same releases sent again."""
    task = make_task()
    releases = [message(task, i) for i in range(10)]
    put(log, releases)
    learn(log)
    with SqliteLog(tmp_path / "new.db") as new:
        new.register_task(task.document())
        put(new, releases)
        new.acquire(0).commit(log.checkpoint(0).state or b"", 10)
        with pytest.raises(MurkError, match=r"another identity.*recreated"):
            Worker(new, task, SumLearner(task))


def test_a_log_that_lost_its_end_or_was_refilled_is_refused(log: SqliteLog) -> None:
    task = make_task()
    for i in range(10):
        put(log, [message(task, i)])
    learn(log)
    spoil(log, "DELETE FROM batches WHERE offset >= 5")
    rewrite(log, 'UPDATE streams SET "end" = 5')
    with pytest.raises(MurkError, match=r"read up to offset 10, and the log ends at 5\. .*restored from an older"):
        Worker(log, task, SumLearner(task))
    put(log, [message(task, i) for i in range(50, 60)])
    with pytest.raises(MurkError, match="last release before offset 10 is not the one"):
        Worker(log, task, SumLearner(task))


def test_unread_messages_that_are_gone_are_not_passed_over(log: SqliteLog) -> None:
    task = make_task()
    put(log, [message(task, i) for i in range(30)])
    with Worker(log, task, SumLearner(task), batch=10) as worker:
        worker.step()
        rewrite(log, 'UPDATE streams SET begin = 15 WHERE "partition" = 0')
        with pytest.raises(MurkError, match=r"begins at offset 15, and offset 10 .*retention has removed"):
            worker.step()
    with pytest.raises(MurkError, match="now begins at 15: retention has removed 5 unread messages"):
        Worker(log, task, SumLearner(task))
    assert log.checkpoint(0).offset == 10


def test_a_window_that_retention_has_cut_does_not_stop_a_worker(log: SqliteLog) -> None:
    """A broker removes by time alone. What it removes has expired, and expiry is looked at first."""
    task = make_task()
    put(log, [message(task, i) for i in range(30)])
    learn(log)
    for begin in (20, 30):
        rewrite(log, 'UPDATE streams SET begin = ? WHERE "partition" = 0', begin)
        assert learn(log).counters.learned == 30
    put(log, [message(task, 30), message(task, 29, expires=0, time=0)])
    assert sums(learn(log).counters) == {"learned": 31, "duplicates": 0, "dead": {"expired": 1}}


def test_a_closed_worker_does_nothing(log: SqliteLog) -> None:
    task = make_task()
    put(log, [message(task, 0, expires=FOREVER)])
    worker = Worker(log, task, SumLearner(task))
    worker.close()
    with pytest.raises(MurkError, match="was closed"):
        worker.step()
    assert log.checkpoint(0) == (None, 0)
