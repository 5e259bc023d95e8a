"""The broker killed and frozen while learners learn and people produce: nothing is lost, and nothing doubled.

Killed under gradients, whose people wait for models; frozen under sketches, whose windows are open meanwhile.
"""

import os
import time

import pytest

from murk import Task
from murk.stream import open_log
from tests.protocols import GRADIENTS, SKETCH
from tests.services.faults.devices import PAUSED
from tests.services.faults.nursery import Nursery
from tests.services.faults.world import as_if_undisturbed, caught_up, folder_of, offsets, seen
from tests.services.services import eventually

DEVICES = "tests.services.faults.devices"
# Longer than any client waits for one answer; the long campaign makes it 20.
FROZEN = float(os.environ.get("MURK_FREEZE", "12"))
# Anyone who waits for no model is much quicker.
ROWS = {GRADIENTS: 40, SKETCH: 1_600}
# Small blocks, so that there is something in flight at every moment.
BLOCKS = {GRADIENTS: 10, SKETCH: 10}
SENDS = 10


def further(url, before):
    """Wait until more was learned; how much it is."""
    return seen(url, lambda log: (now := sum(offsets(log))) > before and now)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocols", "disturb"), [((GRADIENTS,), "kill"), ((SKETCH,), "freeze")], ids=["kill", "freeze"]
)
def test_everything_goes_on_when_the_broker_is_back(own_broker, tmp_path, protocols, disturb):
    urls = {protocol: f"{own_broker.url}/{disturb}-{protocol}" for protocol in protocols}
    folders = {one: folder_of(tmp_path / str(one), ROWS[one], 2, one) for one in protocols}
    with Nursery(tmp_path / "children", protocols, MURK_KAFKA_SESSION_TIMEOUT_MS="2000") as nursery:
        for protocol, url in urls.items():
            topics = nursery.murk("topics", "task.yaml", "--log", url, "--simulated", folder=folders[protocol])
            assert topics.wait() == 0, topics.err
        # Where people set public records aside, the task is announced by them.
        learners = {one: [nursery.learner(url, "--wait") for _ in range(2 if one is GRADIENTS else 1)]
                    for one, url in urls.items()}  # fmt: skip
        people = {}
        for one, url in urls.items():
            people[one] = child = nursery.call(
                f"{DEVICES}:murk", PAUSED, SENDS, "produce", "task.yaml", "--source", "people.csv", "--log", url,
                "--seed", 1, "--block", BLOCKS[one], "--patience", 120, "--json", folder=folders[one],
            )  # fmt: skip
            # Until all have come so far.
            eventually(lambda child=child: child.is_stopped)
        before = {protocol: further(url, 0) for protocol, url in urls.items()}
        for child in people.values():
            child.thaw()
        time.sleep(0.1)
        for protocol, child in people.items():
            assert child.status is None, f"{protocol}: over too soon"
        if disturb == "kill":
            own_broker.kill()
            time.sleep(0.5)
            own_broker.start()
        else:
            own_broker.freeze()
            time.sleep(FROZEN)
            own_broker.thaw()
        for protocol, url in urls.items():
            further(url, before[protocol])
        for protocol, url in urls.items():
            assert people[protocol].wait(300) == 0, people[protocol].err
            caught_up(url, *learners[protocol])
            for learner in learners[protocol]:
                assert learner.stop() == 0, learner.err
    for protocol, url in urls.items():
        with open_log(url) as log:
            task = Task.from_document(log.document())
        found = as_if_undisturbed(url, task)
        # A resend whose first attempt had arrived is a duplicate; nothing is a dead letter.
        assert sum(counters["learned"] for _, counters in found) == protocol.releases(ROWS[protocol])
        assert all(counters["dead"] == {} for _, counters in found)
