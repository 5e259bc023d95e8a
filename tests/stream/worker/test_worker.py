"""The worker: what it learns from a log, whatever is on it."""

import hashlib
import json
import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from murk.stream.log.interface import DeadLetter
from murk.stream.log.sqlite import SqliteLog
from murk.stream.wire.admission import lifetime_of
from murk.stream.wire.codec import decode_model
from murk.stream.worker.worker import DEAD_BYTES, Progress, Worker
from murk.task.task import Task
from tests.stream.harness import (
    DIMENSION,
    SumLearner,
    drain,
    hostile,
    learn,
    make_task,
    message,
    put,
    state_of,
    sums,
)


def test_a_step_learns_what_is_there(log: SqliteLog) -> None:
    task = make_task()
    put(log, [message(task, i) for i in range(20)])
    learner = SumLearner(task)
    with Worker(log, task, learner) as worker:
        assert worker.lag == 20
        assert worker.step(limit=12) == Progress(12, 12, 0, 0, offset=12, version=12)
        assert worker.step() == Progress(8, 8, 0, 0, offset=20, version=20)
        assert worker.step() == Progress(0, 0, 0, 0, offset=20, version=20)
        assert worker.lag == 0
        assert worker.counters.learned == 20
    assert learner.sums == [sum(range(20)), -sum(range(20)), 20]


@pytest.mark.parametrize(("restarted", "ahead", "counts"), [(0, 20, 0), (0, 40, 1), (1, 20, 0), (1, 70, 1)])
def test_a_copy_is_not_new_after_a_clock_that_was_up_to_a_day_ahead(tmp_path, restarted, ahead, counts) -> None:
    """A release comes, the log's clock is set ahead and back, and its copy comes, as it has not expired.

    While the clock is ahead, a release that expires as late as can be makes the learner forget, or a restarted one
    reads back from then. After a clock that was days ahead the copy counts, as documented.
    """
    hour, start = 3600, 1_700_006_400
    task = make_task(duplicates=5, more="expiry: 12h\ngranularity: 1h\n")
    lifetime = lifetime_of(task.expiry)
    clock = [start - 20 * hour if restarted else start]
    copied = message(task, 0, expires=clock[0] + (lifetime if restarted else 12 * hour))
    with SqliteLog(tmp_path / "log.db", create=True, clock=lambda: clock[0]) as log:
        log.register_task(task.document())
        put(log, [copied, *(message(task, i, expires=clock[0] + 12 * hour) for i in range(1, 20))])
        with Worker(log, task, SumLearner(task)) as worker:
            drain(worker)
            clock[0] = start + ahead * hour
            expires = clock[0] + (12 * hour if restarted else lifetime)
            put(log, [message(task, i, expires=expires) for i in range(20, 40)])
            drain(worker)
            if not restarted:
                clock[0] = start + hour
                put(log, [copied])
                drain(worker)
        if restarted:
            with Worker(log, task, SumLearner(task)) as worker:
                clock[0] = start + hour
                put(log, [copied])
                drain(worker)
        assert sums(state_of(log).counters) == {"learned": 40 + counts, "duplicates": 1 - counts, "dead": {}}


def test_state_offset_and_newest_model_stand_on_the_log_together(log: SqliteLog) -> None:
    task = make_task()
    put(log, [message(task, i) for i in range(20)])
    learn(log)
    state = state_of(log)
    assert json.loads(log.checkpoint(0).state or b"").keys() == {
        "schema", "kind", "task", "identity", "partition", "offset", "last_id", "counters", "history", "learner",
    }  # fmt: skip
    assert (state.task, state.identity, state.partition) == (task.hash, log.identity, 0)
    assert state.offset == log.checkpoint(0).offset == 20
    assert state.last_id == hashlib.sha256(b"19").hexdigest()[:32]
    assert sums(state.counters) == {"learned": 20, "duplicates": 0, "dead": {}}
    model = log.model(0)
    assert model is not None
    parameters = decode_model(model, task_hash=task.hash, dimension=DIMENSION, partition=0)
    assert (parameters.version, parameters.parameters) == (16, [120.0, -120.0, 16.0])


def test_the_first_iterate_is_published_before_there_is_anything_to_read(log: SqliteLog) -> None:
    """Somebody has to give devices the iterate at which the first gradients are taken."""
    task = make_task()
    with Worker(log, task, SumLearner(task)) as worker:
        assert worker.step() == Progress(0, 0, 0, 0, offset=0, version=0)
    model = log.model(0)
    assert model is not None
    assert decode_model(model, task_hash=task.hash, dimension=DIMENSION).version == 0


def test_a_worker_with_nothing_to_do_writes_nothing(log: SqliteLog, path: Path) -> None:
    task = make_task()
    put(log, [message(task, i) for i in range(20)])
    learn(log)
    with Worker(log, task, SumLearner(task)) as worker, closing(sqlite3.connect(path)) as other:
        before = other.execute("PRAGMA data_version").fetchone()
        for _ in range(3):
            assert worker.step().read == 0
        assert other.execute("PRAGMA data_version").fetchone() == before
        put(log, [b"junk"])
        worker.step()
        assert other.execute("PRAGMA data_version").fetchone() != before


def test_partitions_are_apart(log: SqliteLog) -> None:
    task = make_task()
    put(log, [message(task, i) for i in range(5)])
    put(log, [message(task, i, partition=1) for i in range(5, 12)], partition=1)
    for partition, count in ((1, 7), (0, 5)):
        with Worker(log, task, SumLearner(task), partition) as worker:
            assert [p.learned for p in drain(worker)] == [count]
    assert (state_of(log, 0).counters.learned, state_of(log, 1).counters.learned) == (5, 7)


def test_hostile_messages_become_dead_letters_and_every_message_is_accounted_for(path: Path) -> None:
    task = make_task(duplicates=10_000)
    with SqliteLog(path) as log:
        log.register_task(task.document())
        check_hostile(log, task)


def check_hostile(log: SqliteLog, task: Task) -> None:
    rng = random.Random(7)
    bad = hostile(task)
    honest = [message(task, i) for i in range(100)]
    stream = [(value, "") for value in honest] + bad + bad
    rng.shuffle(stream)
    put(log, [value for value, _ in stream])
    learner = SumLearner(task)
    with Worker(log, task, learner, batch=9) as worker:
        steps = drain(worker)
        counters = worker.counters
    assert learner.n_releases == 100
    assert learner.sums == [sum(range(100)), -sum(range(100)), 100]
    # What was valid in itself is a duplicate when it comes again, unless it is dead already for its place or
    # its time: see the order of the checks in the worker.
    reasons = [reason for _, reason in bad]
    once = {reason: reasons.count(reason) for reason in reasons}
    assert counters.duplicates == 1
    assert counters.dead == {reason: 2 * count - (1 if reason == "future" else 0) for reason, count in once.items()}
    assert counters.read == len(stream) == log.end(0)
    assert state_of(log).counters == counters
    for field in ("read", "learned", "duplicates", "dead"):
        total = sum(counters.dead.values()) if field == "dead" else getattr(counters, field)
        assert sum(getattr(p, field) for p in steps) == total
    assert all(p.read == p.learned + p.duplicates + p.dead for p in steps)
    letters = list(log.dead_letters(0))
    assert len(letters) == sum(counters.dead.values())
    for letter in letters:
        value, reason = stream[letter.offset]
        assert letter.reason == reason
        assert letter.value == value[:DEAD_BYTES]
        assert len(letter.detail) < 300
        assert letter.detail.isprintable()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(values=st.lists(st.binary(max_size=300) | st.text(max_size=100).map(str.encode), max_size=20))
def test_no_bytes_stop_the_stream(log: SqliteLog, values: list[bytes]) -> None:
    task = make_task()
    before = log.end(0)
    with Worker(log, task, SumLearner(task)) as worker:
        drain(worker)
        put(log, values)
        drain(worker)
        assert worker.offset == before + len(values) == worker.counters.read
        assert worker.counters.learned == 0


def test_expiry_is_judged_by_the_logs_own_time_to_the_second(path: Path) -> None:
    task, now = make_task(), [1_000.0]
    with SqliteLog(path, clock=lambda: now[0]) as log:
        log.register_task(task.document())
        for number, now[0] in enumerate((1_000.0, 1_999.9, 2_000.9, 2_001.0)):
            put(log, [message(task, number, time=0, expires=2_000)])
        state = learn(log, clock=lambda: 10.0**10)
        assert sums(state.counters) == {"learned": 3, "duplicates": 0, "dead": {"expired": 1}}
        assert [letter.offset for letter in log.dead_letters()] == [3]


def test_a_duplicate_counts_within_the_window_and_not_beyond(log: SqliteLog) -> None:
    task = make_task()
    assert task.duplicates == 50
    twice = message(task, 0)
    fill = [message(task, i) for i in range(1, 50)]
    put(log, [twice, *fill, twice, b"junk counts as an offset", *[message(task, i) for i in range(100, 149)]])
    # Its last place is offset 50; offset 100 is 50 behind it, and offset 151 is 51 behind that.
    assert learn(log, batch=13).counters.duplicates == 1
    put(log, [twice])
    state = learn(log)
    assert log.end(0) == 102
    assert (state.counters.duplicates, state.counters.learned) == (1, 100)


@pytest.mark.parametrize(
    ("spoiled", "taken"), [({"partition": 1}, False), ({"expires": 0, "time": 0}, False), ({"version": 10**6}, True)]
)
def test_an_id_is_taken_by_all_that_came_here_in_its_time(log: SqliteLog, spoiled: dict[str, int], taken: bool) -> None:
    """Whatever became of it; what retention may have removed takes none, or a window could not be rebuilt."""
    task = make_task()
    put(log, [message(task, 1, **spoiled), message(task, 1)])
    state = learn(log)
    assert (state.counters.learned, state.counters.duplicates) == ((0, 1) if taken else (1, 0))
    assert sum(state.counters.dead.values()) == 1


def test_a_stranger_cannot_take_an_id_with_a_message_of_another_task(log: SqliteLog) -> None:
    task = make_task()
    put(log, [message(make_task(name="other"), 1), message(task, 1, payload=[1]), message(task, 1)])
    state = learn(log)
    assert (state.counters.learned, state.counters.duplicates) == (1, 0)


@pytest.mark.parametrize("batch", [1, 7, 4096])
def test_staleness_is_counted_from_the_place_in_the_stream(log: SqliteLog, batch: int) -> None:
    """Not from where the batch began: what is dead must not depend on how the stream was cut."""
    task = make_task()
    put(log, [message(task, i, version=max(0, i - 10)) for i in range(15)])
    put(log, [message(task, 20, version=15), message(task, 21, version=17), message(task, 22, version=5)])
    with Worker(log, task, SumLearner(task, patience=10), batch=batch) as worker:
        drain(worker)
        assert sums(worker.counters) == {
            "learned": 16, "duplicates": 0, "dead": {"future": 1, "stale": 1},
        }  # fmt: skip


def test_a_dead_letter_keeps_the_beginning_of_a_long_message(log: SqliteLog) -> None:
    put(log, [b"x" * 900_000])
    learn(log)
    [letter] = log.dead_letters()
    assert letter == DeadLetter(0, 0, "too-large", letter.detail, b"x" * DEAD_BYTES)
    assert "900000" in letter.detail


def test_a_model_that_was_overwritten_is_put_back_while_nothing_arrives(log: SqliteLog) -> None:
    task, now = make_task(), [0.0]
    put(log, [message(task, number) for number in range(20)])
    with Worker(log, task, SumLearner(task), clock=lambda: now[0]) as worker:
        drain(worker)
        newest = log.model(0)
        assert newest is not None
        for overwritten in (b"an older one, from a worker that slept", b"a stranger's"):
            log.publish(0, overwritten)
            worker.step()
            assert log.model(0) == overwritten
            now[0] += 2.0
            worker.step()
            assert log.model(0) == newest
        assert state_of(log).counters.learned == 20
