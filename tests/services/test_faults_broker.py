"""The broker killed and frozen while learners learn and people produce: nothing is lost, and nothing doubled.

Gradients by themselves; the other protocols together, three logs under one broker.
"""

import os
import time

import pytest

from murk.stream import Task, open_log
from murk.stream.log.base import UnreachableError
from tests.protocols import EXAMPLES, GRADIENTS, MOMENTS, OTHERS, SKETCH
from tests.services.faults.nursery import Nursery
from tests.services.faults.world import as_if_undisturbed, caught_up, folder_of
from tests.services.services import eventually

# Longer than any client waits for one answer; the long campaign makes it 20.
FROZEN = float(os.environ.get("MURK_FREEZE", "12"))
# Anyone who waits for no model is much quicker.
ROWS = {GRADIENTS: 300, EXAMPLES: 1600, MOMENTS: 1600, SKETCH: 6_000}
# Small blocks, so that there is something in flight at every moment.
BLOCKS = {GRADIENTS: 10, EXAMPLES: 4, MOMENTS: 4, SKETCH: 10}


def learned(url):
    """How many releases were learned, or -1 while nobody can say."""
    try:
        with open_log(url, create=False) as log:
            return sum(log.checkpoint(chain).offset for chain in range(log.partitions))
    except UnreachableError:
        return -1


def further(url, before):
    """Wait until more was learned."""
    return eventually(lambda: (now := learned(url)) > before and now, 180, every=0.1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocols", "disturb"), [((GRADIENTS,), "kill"), ((GRADIENTS,), "freeze"), (OTHERS, "kill")],
    ids=["gradients-kill", "gradients-freeze", "others-kill"],
)  # fmt: skip
def test_everything_goes_on_when_the_broker_is_back(own_broker, tmp_path, protocols, disturb):
    urls = {protocol: f"{own_broker.url}/{protocol}" for protocol in protocols}
    folders = {one: folder_of(tmp_path / str(one), ROWS[one], 2, one) for one in protocols}
    with Nursery(tmp_path / "children", protocols, MURK_KAFKA_SESSION_TIMEOUT_MS="2000") as nursery:
        for protocol, url in urls.items():
            topics = nursery.murk("topics", "task.yaml", "--log", url, "--simulated", folder=folders[protocol])
            assert topics.wait() == 0, topics.err
        # Where people set public records aside, the task is announced by them.
        learners = {one: [nursery.learner(url, "--wait") for _ in range(2 // len(protocols) or 1)]
                    for one, url in urls.items()}  # fmt: skip
        people = {
            one: nursery.murk("produce", "task.yaml", "--source", "people.csv", "--log", url, "--seed", 1,
                              "--block", BLOCKS[one], "--patience", 120, "--json", folder=folders[one])
            for one, url in urls.items()
        }  # fmt: skip
        before = {protocol: further(url, 100) for protocol, url in urls.items()}
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
