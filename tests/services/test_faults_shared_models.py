"""`kill -9` of learners of partitions that share models, while people release: as if one process had learned it all."""

import json
import random
import time

from murk import Task
from murk.protocols.device import device_for
from murk.stream import open_log
from tests.protocols import SCORES
from tests.services.faults.nursery import Nursery
from tests.services.faults.world import caught_up, folder_of, new_log, offsets
from tests.services.services import eventually

ROWS, KILLS = 6_500, 4
"""So many people that two models are made after the survey's, of all partitions together."""
COMMAND = ("task.yaml", "--source", "people.csv", "--seed", 5, "--json")


def outcome(child):
    assert child.wait() == 0, child.err
    return json.loads(child.out)


def standing(url):
    """How far each partition is."""
    with open_log(url, create=False) as log:
        return offsets(log)


def test_models_that_partitions_share_are_made_once_whoever_is_killed(broker, tmp_path):
    rng = random.Random(3)
    with Nursery(tmp_path / "children", [SCORES], MURK_KAFKA_SESSION_TIMEOUT_MS="1000") as nursery:
        expected = {}
        for partitions in (1, 2):
            folder = folder_of(tmp_path / f"of-{partitions}", ROWS, partitions, SCORES)
            expected[partitions] = outcome(nursery.murk("run", *COMMAND, folder=folder))
        folder = folder_of(tmp_path / "apart", ROWS, 2, SCORES)
        url = new_log(broker, Task.load(folder / "task.yaml").with_simulated(True))
        people = nursery.murk("produce", *COMMAND, "--log", url, folder=folder)
        learners = [nursery.learner(url) for _ in range(2)]
        for _ in range(KILLS):
            before = standing(url)
            eventually(lambda before=before: standing(url) != before or people.status is not None, 120)
            time.sleep(rng.uniform(0.0, 0.5))
            learners.pop(rng.randrange(2)).kill()
            learners.append(nursery.learner(url))
        assert outcome(people)["releases"] == ROWS
        caught_up(url, *learners)
        for learner in learners:
            assert learner.stop() == 0, learner.err
        with open_log(url, create=False) as log:
            newest = device_for(Task.from_document(log.document())).settings.round_start(ROWS)
            assert 0 < newest < ROWS
            assert json.loads(log.model(0))["version"] == newest
            assert log.model(1) is None
            assert list(log.dead_letters()) == []
    found = json.loads(learners[-1].out)
    assert found["state_digest"] == expected[2]["state_digest"]
    # One partition of everybody comes to the same, to the bit.
    for key in ("coefficients", "releases"):
        assert found[key] == expected[2][key] == expected[1][key]
    # A learner's log is open, and its intervals hold at every look.
    assert found["fixed_intervals"] == expected[2]["confidence_intervals"] == expected[1]["confidence_intervals"]
