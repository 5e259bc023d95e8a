"""The worker counts everything once, whenever it is killed, frozen, fenced or out of disk: over all protocols.

Sums show best what was lost, doubled or moved; the learners of the protocols show that their states are exact.
"""

import random
import shutil
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murk.errors import MurkError
from murk.stream.log.interface import FencedError
from murk.stream.log.sqlite import SqliteLog
from murk.stream.worker.worker import Worker
from murk.task.task import Task
from tests.protocols import BY_NAME, OWN_MODELS
from tests.services.faults.nursery import Child
from tests.stream.harness import (
    SumLearner,
    drain,
    fault_task,
    learn,
    learner_for,
    make_task,
    message,
    mixed,
    put,
    rewrite,
    state_of,
    sums,
)
from tests.stream.processes import Start, at_once, finish

SUBJECTS = ("sums", *BY_NAME)
# Faults of processes and disks are the worker's, whatever is learned: over models and windows.
SOME = ("sums", "gradients", "scores", "summaries")
# When partitions make a model that they share is a matter of time, as each looks after the others (tests/services has
# such faults). A partition's own models are a function of its partition.
PROTOCOLS = {**BY_NAME, "scores": OWN_MODELS}
# Once it was shown that nothing depends on chance, few of the protocols' own will do, of organisations' fewest.
COUNTS = {"sums": 6_000, "summaries": 1_200}
USUAL = 3_000


def task_of(subject: str, duplicates: int) -> Task:
    return make_task(duplicates=duplicates) if subject == "sums" else fault_task(PROTOCOLS[subject], duplicates)


@pytest.mark.parametrize("subject", SUBJECTS)
@settings(max_examples=2)
@given(seed=st.integers(0, 2**32), duplicates=st.integers(1, 40), cuts=st.data())
def test_the_state_is_a_function_of_the_log(
    tmp_path_factory: pytest.TempPathFactory, subject: str, seed: int, duplicates: int, cuts: st.DataObject
) -> None:
    """However the stream is cut into steps, batches and workers' lives."""
    task = task_of(subject, duplicates)
    path = tmp_path_factory.mktemp("cut") / "log.db"
    with SqliteLog(path) as log:
        log.register_task(task.document())
        put(log, mixed(task, seed, 80))
        whole = path.with_name("whole.db")
        with closing(sqlite3.connect(whole)) as copy:
            log._database._connection.backup(copy)
        with SqliteLog(whole) as uninterrupted:
            learn(uninterrupted, task)
            wanted = (uninterrupted.checkpoint(0), uninterrupted.model(0), [*uninterrupted.dead_letters()])
        while log.checkpoint(0).offset < log.end(0):
            batch = cuts.draw(st.integers(1, 30), label="batch")
            with Worker(log, task, learner_for(task), batch=batch) as worker:
                for _ in range(cuts.draw(st.integers(1, 5), label="steps")):
                    worker.step(limit=cuts.draw(st.none() | st.integers(1, 30), label="limit"))
        assert (log.checkpoint(0), log.model(0), [*log.dead_letters()]) == wanted


def undisturbed(path: Path, task: Task, messages: Sequence[bytes]) -> Any:
    """Put messages on a new log; gives what stands on a copy of it when all was learned in peace."""
    with SqliteLog(path) as log:
        log.register_task(task.document())
        put(log, messages)
    whole = path.with_name("whole.db")
    shutil.copy(path, whole)
    with SqliteLog(whole) as uninterrupted:
        learn(uninterrupted, task)
        return outcome(uninterrupted)


def outcome(log: SqliteLog) -> Any:
    return log.checkpoint(0), log.model(0), [*log.dead_letters()]


@pytest.mark.parametrize(("subject", "kills"), [(subject, 4 if subject == "sums" else 2) for subject in SOME])
def test_killed_at_random_moments_it_ends_in_the_same_state(path: Path, start: Start, subject: str, kills: int) -> None:
    """kill -9 of a whole process, again and again; the last life is the test's own."""
    task, rng, count = task_of(subject, 1000), random.Random(11), COUNTS.get(subject, USUAL)
    wanted = undisturbed(path, task, mixed(task, 3, count))
    seen = [0]
    with SqliteLog(path) as log:
        for kill in range(kills):
            # All together come to less than the end.
            process = start("learn", f"sqlite:///{path}", 3, count // (3 * (kills + 1)))
            process.said("ready\n")
            # The first one while it compiles, perhaps; the others once they have learned.
            while kill and log.checkpoint(0).offset == seen[-1] and process.status is None:
                time.sleep(0.001)
            time.sleep(rng.uniform(0.0, 6e-5 * count / kills))
            process.kill()
            seen.append(log.checkpoint(0).offset)
        assert seen == sorted(seen)
        # Most lives ended amid the stream: otherwise nothing would have been shown.
        assert len({offset for offset in seen if 0 < offset < log.end(0)}) >= kills // 2
        state = learn(log, task)
        assert outcome(log) == wanted
    assert state.counters.read == count
    assert state.history.counts[-1] > state.counters.learned // 2
    assert state.counters.duplicates > count // 30


@pytest.mark.parametrize(("subject", "times"), [(subject, 2 if subject == "sums" else 1) for subject in SOME])
def test_a_worker_frozen_amid_its_work_is_refused_when_it_wakes(
    path: Path, start: Start, subject: str, times: int
) -> None:
    """Its partition has moved on meanwhile; more than once, where that is quick."""
    task = task_of(subject, 1000)
    wanted = undisturbed(path, task, mixed(task, 4, COUNTS.get(subject, USUAL)))
    # The process holds the lock most of the time, and keeps it when it is frozen: try again soon.
    with SqliteLog(path, timeout=0.01) as log:
        for _ in range(times):
            before = log.checkpoint(0).offset
            process = start("learn", f"sqlite:///{path}", 1, COUNTS.get(subject, USUAL) // 4)
            worker = take_over(log, task, process, before)
            assert 0 < worker.offset < log.end(0)
            worker.step(limit=20)
            process.thaw()
            assert finish(process) == ["fenced"]
            worker.step(limit=20)
            worker.close()
        learn(log, task)
        assert outcome(log) == wanted


def take_over(log: SqliteLog, task: Task, process: Child, before: int) -> Worker:
    """Freeze a process that has learned, where it does not hold the log's lock, and take its partition."""
    while True:
        while log.checkpoint(0).offset == before:
            assert process.status is None
            time.sleep(0.001)
        process.freeze()
        try:
            return Worker(log, task, learner_for(task))
        except MurkError:
            process.thaw()


def test_learning_while_two_processes_append(path: Path, log: SqliteLog, start: Start) -> None:
    task = make_task()
    processes = [start("append", f"sqlite:///{path}", first, 1_000, 10) for first in (0, 1_000)]
    learner, reads = SumLearner(task), 0
    with Worker(log, task, learner, batch=50) as worker:
        at_once(processes)
        while learner.n_releases < 2_000:
            reads += worker.step().read > 0
        for process in processes:
            finish(process)
        assert sums(worker.counters) == {"learned": 2_000, "duplicates": 0, "dead": {}}
    assert reads > 2_000 // 50 // 2
    numbers = range(2_000)
    assert learner.sums == [sum(i % 1000 for i in numbers), -sum(i % 777 for i in numbers), 2_000]


@pytest.mark.parametrize("subject", SOME)
def test_the_newer_worker_fences_the_older(path: Path, subject: str) -> None:
    task = task_of(subject, 50)
    wanted = undisturbed(path, task, [message(task, i) for i in range(10)])
    with SqliteLog(path) as log, SqliteLog(path) as elsewhere:
        older = Worker(log, task, learner_for(task), batch=4)
        older.step()
        newer = Worker(elsewhere, task, learner_for(task), batch=3)
        with pytest.raises(
            FencedError, match=r"another worker has taken over partition 0.*one worker for each partition"
        ):
            older.step()
        assert log.checkpoint(0).offset == 4
        with pytest.raises(MurkError, match="was fenced by another one: start a new one"):
            older.step()
        drain(newer)
        assert sums(state_of(log).counters) == {"learned": 10, "duplicates": 0, "dead": {}}
        assert outcome(log) == wanted


@pytest.mark.parametrize("subject", SOME)
def test_a_full_disk_stops_the_worker_and_it_carries_on_after(path: Path, subject: str) -> None:
    """A real SQLITE_FULL at the commit; the same worker, and another one, then end in the same state."""
    task = task_of(subject, 50)
    with SqliteLog(path) as log:
        log.register_task(task.document())
        put(log, mixed(task, 5, 300))
        log.trim(0)
        learner = learner_for(task)
        plain, ballast = learner.state_dict, {"ballast": "x" * 300_000}
        learner.state_dict = lambda: {**plain(), **ballast}
        with Worker(log, task, learner, batch=100) as worker:
            pages = log._database.query("PRAGMA page_count")[0][0]
            log._database.query(f"PRAGMA max_page_count = {pages + 5}")
            for _ in range(3):
                with pytest.raises(MurkError, match="the disk is full"):
                    worker.step()
            assert log.checkpoint(0) == (None, 0)
            assert list(log.dead_letters()) == []
            log._database.query(f"PRAGMA max_page_count = {2**30}")
            first = worker.step()
            assert (first.read, first.offset) == (100, 100)
            drain(worker)
            assert worker.counters.read == 300
        state = state_of(log)
        assert len(list(log.dead_letters())) == sum(state.counters.dead.values()) > 0
        rewrite(log, 'UPDATE states SET state = NULL, "offset" = 0')
        again = learn(log, task)
        assert state.learner == {**again.learner, **ballast}
        assert state.counters == again.counters


def test_a_learner_that_fails_leaves_the_log_as_it_was(log: SqliteLog) -> None:
    task = make_task()
    put(log, [message(task, i) for i in range(10)])

    class Failing(SumLearner):
        def learn_releases(self, releases: Sequence[Any]) -> None:
            super().learn_releases(releases[:3])
            raise KeyboardInterrupt

    worker = Worker(log, task, Failing(task))
    with pytest.raises(KeyboardInterrupt):
        worker.step()
    with pytest.raises(MurkError, match="did not get to the end of a step: start a new one"):
        worker.step()
    assert log.checkpoint(0) == (None, 0)
    assert learn(log).counters.learned == 10


def test_a_state_that_json_cannot_hold_is_refused_and_not_written(log: SqliteLog) -> None:
    task = make_task()
    put(log, [message(task, 0)])
    learner = SumLearner(task)
    learner.state_dict = lambda: {"sums": [float("nan")]}  # type: ignore[method-assign]
    with Worker(log, task, learner) as worker, pytest.raises(MurkError, match="not plain JSON"):
        worker.step()
    assert log.checkpoint(0) == (None, 0)


def test_a_copy_from_a_clock_a_day_ahead_counts_once_after_a_restart(path: Path) -> None:
    """The least retention that a task may have keeps the first message until its last copy has expired."""
    task, now = make_task(duplicates=30, more="expiry: 7d\n"), [10_000.0]
    last = int(now[0]) + 8 * 86_400
    with SqliteLog(path, clock=lambda: now[0]) as log:
        log.register_task(task.document())
        put(log, [message(task, i, expires=last) for i in range(100)])
        with Worker(log, task, SumLearner(task), clock=lambda: now[0]) as worker:
            drain(worker)
        now[0] = last - 60.0
        for _ in range(2):
            with Worker(log, task, SumLearner(task), clock=lambda: now[0]) as worker:
                worker.step()
                put(log, [message(task, 5, expires=last)])
                drain(worker)
                counted = sums(worker.counters)
        assert counted == {"learned": 100, "duplicates": 2, "dead": {}}


def test_old_messages_leave_once_they_are_learned(path: Path) -> None:
    """The retention of the task, by the worker's clock; a resumed worker still has its window."""
    task, now = make_task(duplicates=30, retention="25h", more="expiry: 1h\ngranularity: 1h\n"), [10_000.0]
    with SqliteLog(path, clock=lambda: now[0]) as log:
        log.register_task(task.document())
        put(log, [message(task, i) for i in range(100)])
        with Worker(log, task, SumLearner(task), batch=40, clock=lambda: now[0]) as worker:
            now[0] += 93_600.0
            assert worker.step().learned == 40
            assert log.begin(0) == 0
            now[0] += 600.0
            assert worker.step().learned == 40
            assert log.begin(0) == 10
            drain(worker)
            now[0] += 600.0
            worker.step()
            assert log.begin(0) == 70
        put(log, [message(task, i) for i in (70, 99, 100)])
        with Worker(log, task, SumLearner(task), clock=lambda: now[0]) as worker:
            drain(worker)
            assert sums(worker.counters) == {"learned": 101, "duplicates": 2, "dead": {}}
        # Sent again when it has left the window and the log: no sooner than retention, and so expired.
        now[0] += 93_600.0
        put(log, [message(task, 5, expires=int(now[0]) - 1)])
        with Worker(log, task, SumLearner(task), clock=lambda: now[0]) as worker:
            drain(worker)
            assert sums(worker.counters) == {"learned": 101, "duplicates": 2, "dead": {"expired": 1}}
