"""A shuffler between two logs of a real broker: crowds are transactions, and the input log is deleted."""

import random
import time
import uuid
from contextlib import ExitStack

import pytest

from murk.errors import UserError
from murk.stream import open_log
from murk.stream.log.interface import FencedError
from murk.stream.wire.packed import Packed
from murk.stream.worker.worker import Worker
from tests.services.faults.nursery import Nursery
from tests.services.fixtures import *  # noqa: F403
from tests.shuffler.crowds import CROWD, drain, make_task, message, numbers, shuffler, spoilt
from tests.stream.harness import learner_for

KILLS = 4
DAY = 86_400


@pytest.fixture
def logs(broker):
    """An input log and a log of releases of one broker, with names of their own."""
    name = f"s{uuid.uuid4().hex[:8]}"
    with ExitStack() as stack:
        opened = [stack.enter_context(open_log(f"{broker.url}/{name}-{kind}")) for kind in ("input", "out")]
        yield opened


def announced(logs, task):
    for log in logs:
        log.register_task(task.document())
    return task


def fields():
    now = int(time.time())
    return {"time": now - now % DAY, "expires": now - now % DAY + 7 * DAY}


def test_a_crowd_is_one_transaction_and_the_intake_is_deleted(logs, tmp_path):
    input_log, log = logs
    task, same = announced(logs, make_task(partitions=2)), fields()
    sent = [(i % 2, message(task, i, partition=i % 2, **same)) for i in range(CROWD)]
    input_log.append(sent[:-1] + sent[:3] + [(0, spoilt(task, 0))])
    with shuffler(tmp_path, input_log, log, task, clock=time.time) as one:
        assert drain(one) == 0
        input_log.append(sent[-1:])
        assert drain(one) == CROWD
        assert [input_log.begin(partition) for partition in range(2)] == [
            input_log.end(partition) for partition in range(2)
        ]
        totals = one.totals
    assert (totals.duplicates, totals.refused, totals.crowds) == (3, {"malformed": 1}, 1)
    found = numbers(log)
    assert sorted(found) == list(range(CROWD))
    with Worker(log, task, learner_for(task)) as first, Worker(log, task, learner_for(task), 1) as second:
        while first.step().read or second.step().read:
            pass
        assert first.counters.learned + second.counters.learned == CROWD
        # The record that ends the transaction is nothing to wait for, and committed with what was learned.
        assert (first.lag, second.lag) == (0, 0)
    assert [log.status(partition).lag for partition in range(2)] == [0, 0]
    with Worker(log, task, learner_for(task)) as first, Worker(log, task, learner_for(task), 1) as second:
        assert (first.step().read, second.step().read) == (0, 0)
        assert first.counters.learned + second.counters.learned == CROWD
    with pytest.raises(UserError, match="another shuffler appends to"):
        shuffler(tmp_path, input_log, log, task, store="other")


def test_readers_do_not_see_a_crowd_before_it_is_complete(logs, tmp_path):
    """Nor one whose shuffler was replaced amid it."""
    input_log, log = logs
    task, same = announced(logs, make_task()), fields()
    input_log.append([(0, message(task, i, **same)) for i in range(CROWD)])
    with shuffler(tmp_path, input_log, log, task, clock=time.time) as one:
        messages = one._store.messages

        def interrupted(sealed, *times):
            [(partition, packed)] = messages(sealed, *times)
            for number, each in enumerate(packed.values()):
                if number == CROWD // 2:
                    log._crowds._producer.flush()
                    with open_log(log.url, create=False) as reader:
                        assert numbers(reader) == []
                        with shuffler(tmp_path, input_log, reader, task, store="new", replace=True, clock=time.time):
                            pass
                yield partition, Packed.of([each])

        one._store.messages = interrupted
        with pytest.raises(FencedError):
            drain(one)
    with open_log(log.url, create=False) as reader:
        assert numbers(reader) == []


def test_killed_shufflers_release_everything_once(logs, tmp_path):
    """kill -9 while devices go on sending; the last life is the test's own."""
    input_log, log = logs
    task, rng, batch = announced(logs, make_task(partitions=2, duplicates=100_000)), random.Random(3), 300
    with Nursery(tmp_path / "children", ()) as nursery:

        def send(round_):
            same = fields()
            numbered = [
                (n % 2, message(task, n, partition=n % 2, **same)) for n in range(round_ * batch, (round_ + 1) * batch)
            ]
            input_log.append(numbered + numbered[::10])

        for round_ in range(KILLS):
            send(round_)
            child = nursery.call("tests.shuffler.crowds:main", "run", input_log.url, log.url, tmp_path)
            child.said("ready\n")
            time.sleep(rng.uniform(0.0, 1.0))
            child.kill()
        send(KILLS)
        with shuffler(tmp_path, input_log, log, task, clock=time.time) as one:
            drain(one)
            totals = one.totals
    found = numbers(log)
    assert len(set(found)) == len(found) == totals.released
    assert totals.released + totals.waiting == (KILLS + 1) * batch
    assert totals.duplicates == (KILLS + 1) * batch // 10
    assert totals.crowds == log.crowd_mark().crowds
    assert totals.released >= CROWD * totals.crowds
