"""Killed anywhere, a shuffler neither repeats nor loses a release, nor splits a crowd.

``SHUFFLER_KILLS`` is the number of processes that are killed (5 by default).
"""

import os
import random
import time
from contextlib import contextmanager
from itertools import count

import pytest

from murk._internal.sqlite import Database
from murk.stream.worker.worker import Worker
from tests.services.faults.nursery import Nursery
from tests.shuffler.crowds import CROWD, NOW, Watch, drain, logs, make_task, message, numbers, shuffler, spoilt
from tests.stream.harness import learner_for

KILLS = int(os.environ.get("SHUFFLER_KILLS", "5"))


class PowerCut(BaseException):
    """The process has ended."""


@contextmanager
def power_cut(monkeypatch, at):
    """End the process at the beginning or the end of a transaction, of any file: the one numbered ``at``."""
    moments, write = count(), Database.write

    def here():
        if next(moments) == at:
            raise PowerCut

    @contextmanager
    def cut(database):
        here()
        with write(database) as connection:
            yield connection
        here()

    with monkeypatch.context() as patched:
        patched.setattr(Database, "write", cut)
        yield


def lives(tmp_path, monkeypatch, at):
    """Shuffle a crowd in two batches of two partitions, with a power cut at one moment; return whether it came."""
    task, folder = make_task(partitions=2), tmp_path / f"{at}"
    folder.mkdir()
    came = False
    with logs(folder, task) as (input_log, log):
        watch = Watch(log, CROWD)
        for partition in range(2):
            own = [message(task, 1000 * partition + i, partition=partition) for i in range(CROWD // 2 + 2)]
            input_log.append([(partition, each) for each in [*own, *own[:5], *(spoilt(task, i) for i in range(3))]])
        try:
            with power_cut(monkeypatch, at), shuffler(folder, input_log, log, task, batch=20) as one:
                drain(one)
        except PowerCut:
            came = True
        watch.look()
        with shuffler(folder, input_log, log, task, batch=20) as one:
            watch.look()
            drain(one)
            totals = one.totals
        watch.look()
        found = numbers(log)
        assert len(set(found)) == len(found) == totals.released
        assert totals.released + totals.waiting == 2 * (CROWD // 2 + 2)
        assert (totals.duplicates, sum(totals.refused.values())) == (10, 6)
        assert totals.crowds == log.crowd_mark().crowds == 1
        assert input_log.begin(0) == input_log.end(0)
    return came


def test_a_power_cut_between_any_two_transactions_changes_nothing(tmp_path, monkeypatch):
    for at in count():
        if not lives(tmp_path, monkeypatch, at):
            break
    # Binding, claim, acquiring; then taking in, sealing, appending, deleting, committing and discarding.
    assert at > 30


def test_the_power_cut_finds_a_shuffler_that_forgets_what_it_sealed(tmp_path, monkeypatch):
    """The twin: without the log's mark, a crowd that was appended and not yet deleted is appended again."""
    monkeypatch.setattr("murk.stream.log.interface.check_mark", lambda url, found, wanted: None)
    seal = "murk.shuffler.shuffler.Shuffler._forward_sealed"

    def forgetful(self):
        sealed = self._store.sealed(CROWD)
        if sealed is None:
            return 0
        self._append(sealed)
        self._store.delete(sealed)
        return sealed.count

    monkeypatch.setattr(seal, forgetful)

    def all_lives():
        for at in count():
            if not lives(tmp_path, monkeypatch, at):
                break

    with pytest.raises(AssertionError):
        all_lives()


def test_processes_killed_at_random_moments(tmp_path):
    """kill -9 of a whole process while devices go on sending; the last life is the test's own."""
    task, rng = make_task(partitions=2, duplicates=100_000), random.Random(5)
    batch, sent, lived = 300, 0, []
    with logs(tmp_path, task, time.time) as (input_log, log), Nursery(tmp_path / "children", ()) as nursery:
        watch = Watch(log, CROWD)

        def send():
            nonlocal sent
            now = int(time.time())
            fields = {"time": now - now % 86_400, "expires": now - now % 86_400 + 7 * 86_400}
            numbered = [(n % 2, message(task, n, partition=n % 2, **fields)) for n in range(sent, sent + batch)]
            # A device that does not know whether its release has arrived sends it again.
            input_log.append(numbered + numbered[::10] + [(0, spoilt(task, 3 * sent))])
            sent += batch

        for kill in range(KILLS):
            send()
            before = log.crowd_mark()
            child = nursery.call("tests.shuffler.crowds:main", "run", input_log.url, log.url, tmp_path)
            child.said("ready\n")
            # Every other life ends soon after a crowd has left, however slow it is.
            while kill % 2 == 0 and log.crowd_mark() == before and child.status is None:
                time.sleep(0.001)
            time.sleep(rng.uniform(0.0, 0.2))
            child.kill()
            watch.look()
            lived.append(log.crowd_mark() != before)
        send()
        with shuffler(tmp_path, input_log, log, task, clock=time.time) as one:
            drain(one)
            totals = one.totals
        watch.look()
        found = numbers(log)
    assert len(set(found)) == len(found) == totals.released
    assert set(found) <= set(range(sent))
    assert totals.released + totals.waiting == sent
    assert totals.duplicates == (KILLS + 1) * batch // 10
    assert totals.waiting < CROWD
    # Most were killed amid their work: otherwise nothing would have been shown.
    assert sum(lived) >= KILLS // 2


def test_a_full_disk_changes_nothing(tmp_path):
    """The shuffler stops with an error that says so, and the next one continues."""
    crowd = 10 * CROWD
    task = make_task(crowd)
    with logs(tmp_path, task) as (input_log, log):
        input_log.append([(0, message(task, i)) for i in range(crowd)])
        with shuffler(tmp_path, input_log, log, task) as one:
            pages = log._database._connection.execute("PRAGMA page_count").fetchone()[0]
            log._database._connection.execute(f"PRAGMA max_page_count = {pages}")
            with pytest.raises(Exception, match="the disk is full"):
                drain(one)
            assert numbers(log) == []
        log._database._connection.execute(f"PRAGMA max_page_count = {10 * pages}")
        with shuffler(tmp_path, input_log, log, task) as one:
            drain(one)
            assert one.totals.released == crowd
        assert sorted(numbers(log)) == list(range(crowd))


def test_a_crowds_times_are_those_of_its_append(tmp_path):
    """A crowd that is appended in a later life, after it would have expired, is not lost."""
    task, now = make_task(), [float(NOW)]
    with logs(tmp_path, task, lambda: now[0]) as (input_log, log):
        input_log.append([(0, message(task, i)) for i in range(CROWD)])
        with shuffler(tmp_path, input_log, log, task, clock=lambda: now[0]) as one:
            # A log without a mark refuses the crowd, which stays sealed.
            one._to = input_log
            with pytest.raises(Exception, match="another shuffler has taken"):
                one.step()
            waiting = [*one._store.messages(one._store.sealed(CROWD), one._layout, 1, 2)]
        now[0] += 9 * 86_400
        with shuffler(tmp_path, input_log, log, task, clock=lambda: now[0]):
            pass
        day = int(now[0]) - int(now[0]) % 86_400
        times = b'"time":%d,"expires":%d' % (day, day + 7 * 86_400)
        assert [each.value for each in log.read(0, 0, 1000)] == [
            each.replace(b'"time":1,"expires":2', times) for _, packed in waiting for each in packed.values()
        ]
        with Worker(log, task, learner_for(task)) as worker:
            assert worker.step().learned == CROWD
