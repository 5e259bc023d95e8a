"""Crowds are whole, of one level and version, released once; what is refused does not count."""

import json
import os
import sqlite3
import stat
from collections import Counter
from contextlib import closing

import pytest

from murk.errors import MurkError, UserError
from murk.producers import Ledger, Producer
from murk.shuffler import store as store_module
from murk.shuffler.store import Store
from murk.stream.log.interface import FencedError, truncate_time
from murk.stream.worker.worker import Worker
from tests.shuffler.crowds import (
    CROWD,
    DAY,
    NOW,
    drain,
    logs,
    make_task,
    message,
    model,
    numbers,
    released,
    second,
    shuffler,
    spoilt,
    waiting,
)
from tests.stream.harness import learner_for


def put(log, messages, partition=0):
    log.append([(partition, each) for each in messages])


def test_a_crowd_is_released_once_it_is_complete(tmp_path):
    task = make_task()
    with logs(tmp_path, task) as (input_log, log), shuffler(tmp_path, input_log, log, task) as one:
        put(input_log, [message(task, i) for i in range(CROWD - 1)])
        assert drain(one) == 0
        assert one.totals.waiting == CROWD - 1
        put(input_log, [message(task, CROWD - 1)])
        assert drain(one) == CROWD
        assert sorted(numbers(log)) == list(range(CROWD))
        assert numbers(log) != list(range(CROWD))
        totals = one.totals
    assert (totals.read, totals.released, totals.crowds, totals.waiting) == (CROWD, CROWD, 1, 0)


def test_nothing_but_the_answer_is_left_of_a_release(tmp_path):
    """Other ids, one time and expiry, another partition; whatever a device wrote in a form of its own is canonical."""
    task = make_task(partitions=2)
    odd = json.dumps(json.loads(message(task, 0, time=NOW - DAY)), indent=1).encode()
    with logs(tmp_path, task) as (input_log, log), shuffler(tmp_path, input_log, log, task) as one:
        put(input_log, [odd, *(message(task, i) for i in range(1, CROWD))])
        drain(one)
        found = released(log)
        intake_ids = {json.loads(message(task, i))["id"] for i in range(CROWD)}
        assert {each["id"] for each in found}.isdisjoint(intake_ids)
        assert len({each["id"] for each in found}) == CROWD
        assert {(each["time"], each["expires"]) for each in found} == {(NOW - NOW % DAY, NOW - NOW % DAY + 7 * DAY)}
        assert all(each["partition"] == each["partition"] for each in found)
        # All in one partition with probability 2^-49.
        assert {each["partition"] for each in found} == {0, 1}
        raw = {each.value for partition in range(2) for each in log.read(partition, 0, 100)}
        assert not any(b" " in each for each in raw)
        # A learner takes them all.
        with Worker(log, task, learner_for(task)) as first, Worker(log, task, learner_for(task), 1) as second:
            while first.step().read or second.step().read:
                pass
            assert first.counters.learned + second.counters.learned == CROWD


def test_levels_and_versions_are_crowds_of_their_own(tmp_path):
    task = make_task()
    with logs(tmp_path, task) as (input_log, log), shuffler(tmp_path, input_log, log, task) as one:
        later = second(task)
        log.publish(0, model(task, later))
        assert one.step().relayed
        assert input_log.model(0) == model(task, later)
        put(input_log, [message(task, i) for i in range(CROWD - 1)])
        put(input_log, [message(task, 100 + i, level="open") for i in range(CROWD)])
        put(input_log, [message(task, 200 + i, version=later) for i in range(CROWD - 1)])
        assert drain(one) == CROWD
        assert sorted(numbers(log)) == list(range(100, 100 + CROWD))
        put(input_log, [message(task, 999, version=later)])
        drain(one)
        assert {each["version"] for each in released(log)[CROWD:]} == {later}
        # The first crowd at a model closes the versions before it.
        assert one.totals.waiting == 0
        assert one.totals.dropped == CROWD - 1


def test_duplicates_and_hostile_messages_do_not_count_to_a_crowd(tmp_path):
    """Nor do they after a restart, though the input log is deleted by then."""
    task = make_task()
    honest = [message(task, i) for i in range(CROWD)]
    with logs(tmp_path, task) as (input_log, log):
        with shuffler(tmp_path, input_log, log, task) as one:
            put(input_log, honest[:-1])
            put(
                input_log,
                [honest[0], honest[1], *(spoilt(task, i) for i in range(7)), message(task, 77, expires=NOW - DAY)],
            )
            assert drain(one) == 0
            assert input_log.begin(0) == input_log.end(0)
        with shuffler(tmp_path, input_log, log, task) as one:
            put(input_log, honest[:-1])
            assert drain(one) == 0
            assert one.totals.duplicates == CROWD + 1
            assert one.totals.refused == {"expired": 1, "future": 2, "malformed": 3, "wrong-task": 2}
            put(input_log, honest[-1:])
            assert drain(one) == CROWD


def test_a_release_is_recognised_until_it_expires_wherever_it_comes_again(tmp_path, monkeypatch):
    """A relay that keeps one, and sends it after any number of others, would find it twice on the log."""
    monkeypatch.setattr("murk.shuffler.store._SEEN_PART", 2)
    task, now = make_task(partitions=2, duplicates=CROWD), [float(NOW)]
    with logs(tmp_path, task, clock=lambda: now[0]) as (input_log, log):
        with shuffler(tmp_path, input_log, log, task, clock=lambda: now[0]) as one:
            for day in range(7):
                now[0] = NOW + day * DAY
                put(input_log, [message(task, 1_000 * day + i, expires=NOW + 7 * DAY) for i in range(3 * CROWD)])
                drain(one)
        now[0] = NOW + 7 * DAY
        with shuffler(tmp_path, input_log, log, task, clock=lambda: now[0]) as one:
            put(input_log, [message(task, 0, expires=NOW + 7 * DAY)])
            put(input_log, [message(task, 1, partition=1, expires=NOW + 7 * DAY)], 1)
            put(input_log, [message(task, 9_000 + i, expires=NOW + 7 * DAY) for i in range(CROWD)])
            assert drain(one) == CROWD
            assert one.totals.duplicates == 2
            # Afterwards it is refused for its age, and the ids are forgotten.
            now[0] = NOW + 9 * DAY
            put(input_log, [message(task, 0, expires=NOW + 7 * DAY)])
            put(input_log, [message(task, 10_000, time=NOW + 9 * DAY, expires=NOW + 16 * DAY)])
            drain(one)
            assert one.totals.refused == {"expired": 1}
            assert [count for _, _, _, count in one._store._runs()] == [1]
            assert one._store.forgotten == NOW + 7 * DAY
            # A clock that was set back vouches for none of them.
            now[0] = NOW + 5 * DAY
            put(input_log, [message(task, 0, expires=NOW + 7 * DAY)])
            drain(one)
            assert one.totals.refused == {"expired": 2}
            # Nor is anything taken that expires later than ids are remembered.
            put(input_log, [message(task, 11_000, expires=NOW + 14 * DAY)])
            drain(one)
            assert one.totals.refused == {"expired": 2, "future": 1}
        assert len(set(numbers(log))) == len(numbers(log))


def test_nobody_else_reads_intake_store_or_log_whatever_the_umask(tmp_path):
    task, before = make_task(), os.umask(0o000)
    try:
        with logs(tmp_path, task) as (input_log, log), shuffler(tmp_path, input_log, log, task) as one:
            input_log.append([(0, message(task, number)) for number in range(CROWD)])
            drain(one)
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert {"input.db", "input.db-wal", "store", "store-wal", "store.lock", "log.db"} <= modes.keys()
    assert set(modes.values()) == {0o600}, modes


def test_a_few_late_people_are_not_completed_by_a_forger(tmp_path):
    """A version closes with the first crowd at the next one, or an hour after its model."""
    task, now = make_task(), [float(NOW)]
    with logs(tmp_path, task, clock=lambda: now[0]) as (input_log, log):
        with shuffler(tmp_path, input_log, log, task, clock=lambda: now[0]) as one:
            put(input_log, [message(task, i) for i in range(CROWD)])
            log.publish(0, model(task, second(task)))
            drain(one)
            put(input_log, [message(task, 100 + i) for i in range(7)])
            drain(one)
            assert one.totals.waiting == 7
            now[0] += 3_599
            put(input_log, [message(task, 120)])
            drain(one)
            assert one.totals.waiting == 8
            now[0] += 1
            put(input_log, [message(task, 200 + i) for i in range(CROWD)])
            drain(one)
            assert (one.totals.dropped, one.totals.waiting, one.totals.refused) == (8, 0, {"version": CROWD})
            put(input_log, [message(task, 300 + i, version=second(task)) for i in range(CROWD)])
            log.publish(0, model(task, second(task, second(task))))
            assert drain(one) == CROWD
            put(input_log, [message(task, 400 + i, version=second(task, second(task))) for i in range(CROWD)])
            assert drain(one) == CROWD
            put(input_log, [message(task, 500 + i, version=second(task)) for i in range(CROWD)])
            assert drain(one) == 0
        # Also after a restart.
        with shuffler(tmp_path, input_log, log, task, clock=lambda: now[0]) as one:
            put(input_log, [message(task, 600 + i, version=second(task) * (i % 2)) for i in range(2 * CROWD)])
            assert drain(one) == 0
            assert one.totals.refused == {"version": 4 * CROWD}


def changed(kind, value):
    if kind is bytes:
        return value[:-1] + bytes([value[-1] ^ 1])
    return f"{value}x" if kind is str else (value or 0) + 1


def test_a_damaged_row_is_refused_and_no_answer_is_altered(tmp_path):
    """Any cell of any table of a store, changed to another value of its type."""
    task, checked = make_task(partitions=2), 0
    with logs(tmp_path, task) as (input_log, log):

        def go_on():
            with shuffler(tmp_path, input_log, log, task) as one:
                waiting(one._store, task)
                put(input_log, [message(task, 1_000 + i, version=second(task)) for i in range(CROWD)])
                drain(one)

        with shuffler(tmp_path, input_log, log, task) as one:
            log.publish(0, model(task, second(task)))
            put(input_log, [message(task, i, version=second(task) * (i % 2)) for i in range(CROWD - 1)])
            put(input_log, [message(task, 99, partition=1)], 1)
            drain(one)
        whole = (tmp_path / "store").read_bytes()
        for table, columns in store_module._COLUMNS.items():
            for column, kind in columns.items():
                (tmp_path / "store").write_bytes(whole)
                with closing(sqlite3.connect(tmp_path / "store", isolation_level=None)) as file:
                    [old] = file.execute(f"SELECT max({column}) FROM {table}").fetchone()
                    values = changed(kind, old), old
                    assert file.execute(f"UPDATE {table} SET {column} = ? WHERE {column} IS ?", values).rowcount
                with pytest.raises(UserError, match=r"is damaged .* restore it from a copy") as caught:
                    go_on()
                assert caught.value.code == "MURK-FILE-002"
                checked += 1
        # The twin: the store itself goes on.
        (tmp_path / "store").write_bytes(whole)
        go_on()
        assert len(numbers(log)) > CROWD
    assert checked > 20


def test_what_waits_too_long_is_dropped_and_counted(tmp_path):
    task, now = make_task(), [float(NOW)]
    with logs(tmp_path, task) as (input_log, log):
        with shuffler(tmp_path, input_log, log, task, clock=lambda: now[0]) as one:
            put(input_log, [message(task, i) for i in range(CROWD - 1)])
            drain(one)
            now[0] += 3600
            assert one.step().dropped == 0
            # The moment says the first arrival's time in the task's granularity only.
            now[0] = truncate_time(now[0], task.granularity) + task.granularity - 1
            assert one.step().dropped == 0
            # Whoever arrived just before the end of that period has waited for a second, and has an hour.
            now[0] += 3600
            assert one.step().dropped == 0
            now[0] += 1
            assert one.step().dropped == CROWD - 1
            put(input_log, [message(task, 1_000)])
            drain(one)
            totals = one.totals
        assert (totals.dropped, totals.waiting, totals.released) == (CROWD - 1, 1, 0)
        assert released(log) == []


def test_what_was_taken_in_is_deleted_and_overwritten(tmp_path):
    """Neither the input log's file nor the store's has a byte of a released payload, nor of an id."""
    task = make_task()
    marks = [b"[%d]" % (654_000 + i) for i in range(CROWD)]
    sent = [message(task, 654_000 + i) for i in range(CROWD)]
    with logs(tmp_path, task) as (input_log, log):
        put(input_log, sent)
        assert marks[0] in (tmp_path / "input.db-wal").read_bytes()
        with shuffler(tmp_path, input_log, log, task) as one:
            drain(one)
            assert sorted(numbers(log)) == [654_000 + i for i in range(CROWD)]
            for name in ("input.db", "input.db-wal", "store", "store-wal"):
                content = (tmp_path / name).read_bytes()
                assert not any(mark in content for mark in marks), name
            with sqlite3.connect(tmp_path / "store") as store:
                assert store.execute("SELECT count(*) FROM waiting").fetchone() == (0,)


def test_a_second_model_of_a_version_is_not_relayed(tmp_path):
    """It would split the crowd by what its people were asked."""
    task = make_task()
    later = second(task)
    one_model, another = model(task, later), model(task, later, 0.5)
    with logs(tmp_path, task) as (input_log, log):
        with shuffler(tmp_path, input_log, log, task) as one:
            log.publish(0, one_model)
            one.step()
            log.publish(0, another)
            with pytest.raises(MurkError, match=f"another model of version {later}"):
                one.step()
            with pytest.raises(MurkError, match="start a new one"):
                one.step()
        log.publish(0, b"{}")
        with shuffler(tmp_path, input_log, log, task) as one, pytest.raises(MurkError, match="not one of this task"):
            one.step()
        assert input_log.model(0) == one_model


def test_people_without_a_model_are_given_none_of_version_0(tmp_path):
    """They answer at the device's initial model, as version 0: another one would split their crowd."""
    task = make_task()
    with logs(tmp_path, task) as (input_log, log):
        with shuffler(tmp_path, input_log, log, task) as one:
            log.publish(0, model(task, 0))
            assert not one.step().relayed
            log.publish(0, model(task, 0, 0.5))
            with pytest.raises(MurkError, match="another model of version 0"):
                one.step()
        assert input_log.model(0) is None


@pytest.mark.parametrize(("early", "origin"), [(1, 0.0), (0, 1e9)])
def test_a_model_that_devices_refuse_is_not_relayed(tmp_path, early, origin):
    """A version without a model, and numbers that no learner publishes."""
    task = make_task()
    with logs(tmp_path, task) as (input_log, log), shuffler(tmp_path, input_log, log, task) as one:
        log.publish(0, model(task, second(task) - early, origin))
        with pytest.raises(MurkError, match="not one of this task"):
            one.step()
        assert input_log.model(0) is None


def test_a_new_store_knows_the_model_at_which_people_answer(tmp_path):
    """Otherwise a second model of its version could be relayed after --replace."""
    task = make_task()
    with logs(tmp_path, task) as (input_log, log):
        with shuffler(tmp_path, input_log, log, task) as one:
            later = second(task)
            log.publish(0, model(task, later))
            assert one.step().relayed
        log.publish(0, model(task, later, 0.5))
        new = shuffler(tmp_path, input_log, log, task, store="new", replace=True)
        with new, pytest.raises(MurkError, match=f"another model of version {later}"):
            new.step()
        # The twin: an input log's model that devices refuse is replaced by the learner's.
        input_log.publish(0, b"{}")
        with shuffler(tmp_path, input_log, log, task, store="newest", replace=True) as newest:
            assert newest.step().relayed
        assert input_log.model(0) == model(task, later, 0.5)


def test_one_shot_releases_wait_for_the_whole_logs_crowds(tmp_path):
    """Examples have no version: they are a crowd of their level."""
    task = make_task(protocol="examples")
    with logs(tmp_path, task) as (input_log, log), Ledger(tmp_path / "ledger.db") as ledger:
        producer = Producer(task, input_log, ledger, clock=input_log._clock)
        for person in range(CROWD + 5):
            receipt = producer.release({"age": 30, "third_child": "yes"}, person=f"{person}")
            assert receipt.outcome == "released"
        with shuffler(tmp_path, input_log, log, task, clock=input_log._clock) as one:
            assert drain(one) == CROWD + 5
            with Worker(log, task, learner_for(task)) as worker:
                assert worker.step().learned == CROWD + 5


class Away:
    """A log of which a device hears nothing: its releases wait, whether they have arrived or not."""

    def __init__(self, log, *, arrives):
        self._log, self._arrives = log, arrives

    def __getattr__(self, name):
        return getattr(self._log, name)

    def append(self, batch):
        if self._arrives:
            self._log.append(batch)
        raise MurkError("no answer")


@pytest.mark.parametrize(("arrives", "others"), [(False, CROWD - 1), (True, CROWD - 1), (False, 1_200), (True, 1_200)])
def test_what_waits_on_a_device_arrives_once(tmp_path, arrives, others):
    """Though the shuffler has deleted all at which the input log could show whether it did, and whatever came since.

    The task remembers the ids of 1,000 offsets, and a shuffler those of all releases that have not expired.
    """
    task = make_task(protocol="examples")
    with (
        logs(tmp_path, task) as (input_log, log),
        Ledger(tmp_path / "one.db") as one_ledger,
        Ledger(tmp_path / "other.db") as other_ledger,
        shuffler(tmp_path, input_log, log, task, clock=input_log._clock) as between,
    ):
        record = {"age": 30, "third_child": "yes"}
        late = Producer(task, Away(input_log, arrives=arrives), one_ledger, clock=input_log._clock)
        assert late.release(record, person="late").delivery == "queued"
        crowd = Producer(task, input_log, other_ledger, clock=input_log._clock)
        for person in range(others):
            crowd.release(record, person=f"{person}")
        drain(between)
        assert input_log.begin(0) == input_log.end(0) > 0
        report = Producer(task, input_log, one_ledger, clock=input_log._clock).flush()
        assert (report.sent, report.already) == (1, 0)
        drain(between)
        totals = between.totals
        assert totals.released + totals.waiting == others + 1
        assert totals.duplicates == int(arrives)


# One shuffler


def test_a_log_has_one_shuffler_and_an_intake_one_store(tmp_path):
    task, now = make_task(), [float(NOW)]
    with logs(tmp_path, task, clock=lambda: now[0]) as (input_log, log):
        put(input_log, [message(task, i) for i in range(10)])
        with shuffler(tmp_path, input_log, log, task) as one:
            with pytest.raises(UserError, match="another `murk shuffle` uses the store"):
                Store(tmp_path / "store")
            drain(one)
        with pytest.raises(UserError, match=r"another shuffler appends to .* give its --store"):
            shuffler(tmp_path, input_log, log, task, store="other")
        put(input_log, [message(task, i) for i in range(10, 20)])
        with shuffler(tmp_path, input_log, log, task, store="new", replace=True, clock=lambda: now[0]) as new:
            # What waits is given up, never repeated: the new store cannot vouch for what was made before.
            put(input_log, [message(task, i) for i in range(20)])
            now[0] += 2 * DAY
            put(input_log, [message(task, i, expires=NOW + 9 * DAY) for i in range(20, 20 + CROWD)])
            drain(new)
            assert new.totals.refused == {"expired": 20}
            assert sorted(numbers(log)) == list(range(20, 20 + CROWD))
        with pytest.raises(UserError, match="another shuffler appends"):
            shuffler(tmp_path, input_log, log, task)


def test_a_replaced_shuffler_appends_nothing(tmp_path):
    task = make_task()
    with logs(tmp_path, task) as (input_log, log):
        with shuffler(tmp_path, input_log, log, task) as old:
            put(input_log, [message(task, i) for i in range(CROWD - 1)])
            drain(old)
            with shuffler(tmp_path, input_log, log, task, store="new", replace=True):
                put(input_log, [message(task, CROWD)])
                with pytest.raises(FencedError):
                    old.step()
        assert released(log) == []


def test_an_older_copy_of_a_store_is_refused(tmp_path):
    task = make_task()
    with logs(tmp_path, task) as (input_log, log):
        with shuffler(tmp_path, input_log, log, task) as one:
            put(input_log, [message(task, 1)])
            drain(one)
        before = (tmp_path / "store").read_bytes()
        with shuffler(tmp_path, input_log, log, task) as one:
            put(input_log, [message(task, i) for i in range(2, 9)])
            drain(one)
        (tmp_path / "store").write_bytes(before)
        with pytest.raises(MurkError, match="is an older copy"):
            shuffler(tmp_path, input_log, log, task)


def test_an_older_copy_of_a_store_is_refused_by_its_crowds(tmp_path):
    """The input log shows nothing: the shuffler ended after a crowd, and before its commit."""
    task = make_task()
    with logs(tmp_path, task) as (input_log, log):
        with shuffler(tmp_path, input_log, log, task):
            pass
        before = (tmp_path / "store").read_bytes()
        put(input_log, [message(task, i) for i in range(CROWD)])
        with shuffler(tmp_path, input_log, log, task) as one:
            one._commit = lambda: None
            one.step()
        newest = (tmp_path / "store").read_bytes()
        (tmp_path / "store").write_bytes(before)
        with pytest.raises(MurkError, match=r"older copy: it knows 0 crowds of .*, which has 1"):
            shuffler(tmp_path, input_log, log, task)
        assert len(numbers(log)) == CROWD
        # The twin: the newest one goes on.
        (tmp_path / "store").write_bytes(newest)
        with shuffler(tmp_path, input_log, log, task) as one:
            assert drain(one) == 0
            assert one.totals.crowds == 1


def test_a_store_whose_place_was_taken_does_not_come_back(tmp_path):
    """Its releases were given up, or another shuffler took them in again."""
    task = make_task()
    with logs(tmp_path, task) as (input_log, log):
        with shuffler(tmp_path, input_log, log, task) as one:
            put(input_log, [message(task, i) for i in range(5)])
            drain(one)
        # Nothing is committed but the taking over; a restart needs no --replace.
        for replace in (True, False):
            with shuffler(tmp_path, input_log, log, task, store="new", replace=replace) as new:
                assert new.totals.waiting == 0
        with pytest.raises(UserError, match="the logs now belong to another store"):
            shuffler(tmp_path, input_log, log, task, replace=True)
        with shuffler(tmp_path, input_log, log, task, store="new"):
            pass


def test_a_refused_shuffler_claims_nothing(tmp_path):
    """The log has no shuffler yet, and the input log has another one."""
    task = make_task()
    (tmp_path / "more").mkdir()
    with (
        logs(tmp_path, task) as (input_log, log),
        logs(tmp_path / "more", task) as (_, another),
        shuffler(tmp_path, input_log, log, task) as one,
    ):
        one.step()
        with pytest.raises(UserError, match="was taken in with another store"):
            shuffler(tmp_path, input_log, another, task, store="other")
        assert another.crowd_mark() is None
        put(input_log, [message(task, i) for i in range(CROWD)])
        assert drain(one) == CROWD


def test_a_simulation_is_shuffled_in_the_same_way_again(tmp_path):
    found = []
    for name, is_simulated in (("one", True), ("two", True), ("real", False), ("again", False)):
        task = make_task(partitions=2).with_simulated(is_simulated)
        (tmp_path / name).mkdir()
        with logs(tmp_path / name, task) as (input_log, log):
            put(input_log, [message(task, i, simulated=is_simulated) for i in range(CROWD)])
            with shuffler(tmp_path / name, input_log, log, task) as one:
                assert drain(one) == CROWD
            found.append([each.value for partition in range(2) for each in log.read(partition, 0, 100)])
    assert found[0] == found[1]
    assert found[2] != found[3]
    assert numbers_of(found[0]) != sorted(numbers_of(found[0]))


def test_a_simulation_depends_on_no_batch_and_its_ids_are_distinct(tmp_path):
    """Equal ids on two partitions are one release; refused messages and duplicates are among others."""
    task, found = make_task(crowd=80, partitions=2).with_simulated(True), []
    for batch in (65_536, 16):
        (tmp_path / f"{batch}").mkdir()
        with logs(tmp_path / f"{batch}", task) as (input_log, log):
            for partition in range(2):
                sent = [
                    message(task, i + 37 * partition, simulated=True, partition=partition)
                    for i in range(43 - 3 * (1 - partition))
                ]
                put(input_log, [*sent[:20], b"bad", *sent[18:]], partition)
            with shuffler(tmp_path / f"{batch}", input_log, log, task, batch=batch) as one:
                assert drain(one) == 80
                assert (one.totals.duplicates, one.totals.refused) == (4 + 3, {"malformed": 2})
            found.append([each["id"] for each in released(log)])
    assert len(set(found[0])) == 80
    assert found[0] == found[1]


def numbers_of(values):
    return [json.loads(each)["payload"][0] for each in values]


def test_logs_in_the_wrong_place_are_refused(tmp_path):
    task = make_task()
    with logs(tmp_path, task) as (input_log, log):
        with pytest.raises(UserError, match="both the input log and the log of releases"):
            shuffler(tmp_path, input_log, input_log, task)
        put(log, [message(task, 1)])
        with pytest.raises(UserError, match="already has unshuffled releases"):
            shuffler(tmp_path, input_log, log, task)


def test_devices_write_to_the_intake_and_learners_read_the_log(tmp_path):
    task = make_task()
    with logs(tmp_path, task) as (input_log, log), Ledger(tmp_path / "ledger.db") as ledger:
        with pytest.raises(UserError, match="no shuffler writes to"):
            Worker(input_log, task, learner_for(task))
        with shuffler(tmp_path, input_log, log, task):
            pass
        with pytest.raises(UserError, match="send to the shuffler's input log"):
            Producer(task, log, ledger)
        Producer(task, input_log, ledger)


def test_a_device_that_took_the_log_for_an_intake_is_stopped(tmp_path):
    """It opened the log before the shuffler had claimed it."""
    task = make_task(protocol="examples")
    with logs(tmp_path, task) as (input_log, log), Ledger(tmp_path / "ledger.db") as ledger:
        astray = Producer(task, log, ledger)
        with shuffler(tmp_path, input_log, log, task):
            receipt = astray.release({"age": 30, "third_child": "yes"}, person="p")
            assert receipt.delivery == "queued"
            assert "send to the shuffler's input log" in receipt.reason
        assert log.end(0) == 0


def test_an_intake_that_was_learned_from_is_refused(tmp_path):
    task = make_task()
    with logs(tmp_path, task) as (input_log, log):
        input_log.acquire(0).commit(
            b'{"schema":1,"kind":"state","task":"","identity":"","partition":0,"offset":0,"last_id":null,'
            b'"counters":{},"learner":{}}',
            0,
        )
        with pytest.raises(UserError, match="was learned from"):
            shuffler(tmp_path, input_log, log, task)


def test_counts_say_nothing_of_order(tmp_path):
    """All that a batch says is how many: the reasons of what was refused, by partition."""
    task = make_task(partitions=2)
    with logs(tmp_path, task) as (input_log, log), shuffler(tmp_path, input_log, log, task) as one:
        put(input_log, [message(task, i, partition=1) for i in range(4)] + [message(task, 9)], partition=1)
        drain(one)
        assert one.totals.refused == {"partition": 1}
        assert Counter(each.version for each in one._store.open_crowds()) == {0: 1}
