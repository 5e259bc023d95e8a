"""The broker killed and frozen while learners learn and people produce: nothing is lost, and nothing doubled."""

import os
import time

import pytest

from murk.stream import Task, open_log
from murk.stream.log import Unreachable
from tests.cli import harness
from tests.services.faults.nursery import Nursery
from tests.services.faults.world import as_if_undisturbed, caught_up, task_text
from tests.services.services import eventually

# Longer than any client waits for one answer; the long campaign makes it 20.
FROZEN = float(os.environ.get("MURK_FREEZE", "12"))
ROWS = 1000


def learned(url):
    """How many releases were learned, or -1 while nobody can say."""
    try:
        with open_log(url, create=False) as log:
            return sum(log.checkpoint(chain).offset for chain in range(log.partitions))
    except Unreachable:
        return -1


def further(url, before):
    """Wait until more was learned."""
    return eventually(lambda: (now := learned(url)) > before and now, 180, every=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("disturb", ["kill", "freeze"])
def test_everything_goes_on_when_the_broker_is_back(own_broker, tmp_path, disturb):
    folder = harness.world(tmp_path / "people", rows=ROWS, task=task_text(2))
    url = f"{own_broker.url}/third-child"
    with Nursery(folder, MURK_KAFKA_SESSION_TIMEOUT_MS="2000") as nursery:
        topics = nursery.murk("topics", "task.yaml", "--log", url, "--simulated")
        assert topics.wait() == 0, topics.err
        learners = [nursery.learner(url), nursery.learner(url)]
        # Small blocks, so that there is something in flight at every moment.
        people = nursery.murk("produce", "task.yaml", "--source", "people.csv", "--log", url, "--seed", 1,
                              "--block", 10, "--patience", 120, "--json")  # fmt: skip
        before = further(url, 100)
        for _ in range(2 if disturb == "kill" else 1):
            assert people.status is None, "over too soon"
            if disturb == "kill":
                own_broker.kill()
                time.sleep(0.5)
                own_broker.start()
            else:
                own_broker.freeze()
                time.sleep(FROZEN)
                own_broker.thaw()
            before = further(url, before)
        assert people.wait(300) == 0, people.err
        caught_up(url, *learners)
        for learner in learners:
            assert learner.stop() == 0, learner.err
    with open_log(url) as log:
        task = Task.from_document(log.document())
    found = as_if_undisturbed(url, task)
    # A resend whose first attempt had arrived is a duplicate; nothing is a dead letter.
    assert sum(counters["learned"] for _, counters in found) == ROWS
    assert all(counters["dead"] == {} for _, counters in found)
