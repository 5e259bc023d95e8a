"""A learner that is killed and started again for ever: the others learn on, and take over from those who are gone."""

import json
import random
import sys
import threading
import time
from contextlib import contextmanager

import pytest
from click.testing import CliRunner
from kafka.errors import KafkaTimeoutError

from murk.cli import cli, options
from murk.stream import open_log
from murk.stream.log.kafka.connection import errors as faults
from murk.stream.log.kafka.connection.errors import translate_errors
from murk.stream.log.kafka.membership import KafkaMembership
from murk.stream.wire.state import decode_state
from murk.stream.worker import pool
from tests.protocols import EXAMPLES
from tests.services.faults.feeder import Feeder
from tests.services.faults.nursery import Nursery
from tests.services.faults.world import new_log, put, stock
from tests.services.services import eventually

PARTITIONS = 3
SESSION_MS = 3000
KILLS = 6
MANY = 30
"""Releases that the undisturbed learner has learned at least."""
LIVES = (0.5, 1.5)
"""Seconds that the learner is left to live."""


@pytest.fixture(scope="module")
def nursery(tmp_path_factory):
    folder = tmp_path_factory.mktemp("children")
    with Nursery(folder, ["examples"], MURK_KAFKA_SESSION_TIMEOUT_MS=str(SESSION_MS)) as children:
        yield children


class Loop:
    """A learner that is killed and started again."""

    def __init__(self, nursery, url, seed):
        self._start = lambda: nursery.learner(url, "--wait")
        self._rng = random.Random(seed)
        self.learner = self._start()
        self.later()

    def again(self):
        assert self.learner.status is None, self.learner.err
        self.learner.kill()
        self.learner = self._start()
        self.later()

    def later(self):
        self.due = time.monotonic() + self._rng.uniform(*LIVES)


def learned(log, partition):
    return decode_state(log.checkpoint(partition).state, log.url).counters.learned


def owners(log):
    return {partition: int(owner.rpartition(":")[2]) for partition, owner in log.owners().items()}


@pytest.mark.slow
def test_others_learn_on_and_take_over_while_one_crashes_for_ever(broker, nursery):
    task, released = stock(PARTITIONS, 1500, EXAMPLES)
    url, apart = new_log(broker, task), new_log(broker, task)
    # What nobody disturbs on the same machine at the same time: a learner that shares nothing with anybody.
    alone = nursery.learner(apart, "--partition", 0)
    with (
        open_log(url, create=False) as log,
        open_log(apart, create=False) as other,
        Feeder(url, released),
        Feeder(apart, released[:1]),
    ):
        healthy, loop = nursery.learner(url, "--wait"), Loop(nursery, url, seed=1)
        # Gone for good once it is gone: nobody else comes under its name.
        mortal = nursery.learner(url, "--wait", "--name", "mortal")
        pids = {healthy.pid, loop.learner.pid, mortal.pid}
        eventually(lambda: set(owners(log).values()) == pids, 120, every=0.25)
        eventually(lambda: owners(other), 120, every=0.25)
        partition = {pid: partition for partition, pid in owners(log).items()}
        ours, orphan = partition[healthy.pid], partition[mortal.pid]
        before = learned(log, ours), learned(other, 0)
        kills = 0
        # On a busy machine there are fewer rounds a second, of which a few more or less are no share to be compared.
        while kills < KILLS or learned(other, 0) - before[1] < MANY:
            time.sleep(max(0.0, loop.due - time.monotonic()))
            loop.again()
            kills += 1
        kept, undisturbed = learned(log, ours) - before[0], learned(other, 0) - before[1]
        # A learner that waits for the others has 0.2 of it.
        assert kept >= 0.8 * undisturbed > 0, (kept, undisturbed)
        mortal.kill()

        def taken():
            if time.monotonic() > loop.due:
                loop.again()
            return owners(log)[orphan] != mortal.pid

        eventually(taken, 120, every=0.25)
        assert owners(log)[ours] == healthy.pid
        loop.learner.kill()
        for learner in (healthy, alone):
            assert learner.stop() == 0, learner.err


def test_two_learners_of_one_name_say_so_and_both_go_on(broker, nursery):
    task, released = stock(2, 1500, EXAMPLES)
    url = new_log(broker, task)
    with open_log(url, create=False) as log, Feeder(url, released):
        first = nursery.learner(url, "--wait", "--name", "same")
        eventually(lambda: set(owners(log).values()) == {first.pid}, every=0.25)
        second = nursery.learner(url, "--wait", "--name", "same")
        first.said("another learner of")
        assert "has joined under the name same: give each its own --name" in first.err
        eventually(lambda: set(owners(log).values()) == {first.pid, second.pid}, every=0.25)
        assert first.err.count("another learner of") == 1
        assert "another learner of" not in second.err
        for learner in (first, second):
            assert learner.stop() == 0, learner.err


class Away:
    """A broker that is away at the first call; restarted, at the second; and so on, until a partition is taken over."""

    def __init__(self):
        self.met = []
        self._deep = self._count = 0
        self._begun = False

    def call(self, doing):
        if threading.current_thread() is not threading.main_thread():
            return
        self._count += 1
        self._begun = self._begun or doing.startswith("taking over")
        if self._count > self._deep and not self._begun:
            self._deep, self._count = self._deep + 1, 0
            self.met.append(doing)
            raise KafkaTimeoutError


def test_a_learner_that_waits_does_so_whatever_call_meets_a_broker_that_is_away(broker, monkeypatch):
    task, released = stock(2, 1500, EXAMPLES)
    url = new_log(broker, task)
    put(broker, url, released[0][:5], 0)
    away = Away()

    @contextmanager
    def shy(there, doing, **more):
        with translate_errors(there, doing, **more):
            away.call(doing)
            yield

    for name, module in list(sys.modules.items()):
        if name.startswith("murk.stream.log.kafka.") and hasattr(module, "translate_errors") and module is not faults:
            monkeypatch.setattr(module, "translate_errors", shy)
    for pause in (options, "_RETRY_SECONDS"), (pool, "PAUSE"):
        monkeypatch.setattr(*pause, 0.001)
    done = CliRunner().invoke(cli, ["learn", "--log", url, "--wait", "--json", "--idle", "5"])
    assert done.exit_code == 0, (done.output, done.exception, away.met)
    assert json.loads(done.stdout)["releases"] == 5
    # The one that `murk learn --wait` once ended with is the eighth call of a start.
    assert "looking at topics" in away.met
    assert len(away.met) > 8


def test_a_learner_whose_group_is_slow_to_answer_does_not_end_before_it_has_begun(broker, monkeypatch):
    """The time after which it ends if nothing arrives may be shorter."""
    task, released = stock(2, 1500, EXAMPLES)
    url, take_part = new_log(broker, task), KafkaMembership._take_part
    put(broker, url, released[0][:5], 0)

    def slow(membership):
        time.sleep(1)
        take_part(membership)

    monkeypatch.setattr(KafkaMembership, "_take_part", slow)
    done = CliRunner().invoke(cli, ["learn", "--log", url, "--json", "--idle", "0.5"])
    assert done.exit_code == 0, (done.output, done.exception)
    with open_log(url, create=False) as log:
        assert learned(log, 0) == 5
