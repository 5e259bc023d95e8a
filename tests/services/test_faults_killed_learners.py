"""`kill -9` of learners at random moments, joining and leaving: as if one had learned it all in peace."""

import os

import pytest

from tests.protocols import GRADIENTS, OWN_MODELS
from tests.services.faults.campaign import Arrivals, Campaign
from tests.services.faults.nursery import Nursery
from tests.services.faults.world import as_if_undisturbed, caught_up, disturbed, new_log, stock

# More of them, and those of the other protocols' learners are in tests/soak.
KILLS = int(os.environ.get("MURK_LEARNER_KILLS", "7"))
FEW = KILLS // 2
# Of scores so many that each partition ends its first round; with models of their own, since these were released
# before.
CASES = [(GRADIENTS, 800, 4, KILLS - FEW), (OWN_MODELS, 6500, 2, FEW)]


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "rows", "partitions", "kills"), CASES, ids=str)
def test_killed_learners_learn_every_release_once(broker, tmp_path, protocol, rows, partitions, kills):
    task, released = stock(partitions, rows, protocol)
    messages = [disturbed(task, values, seed) for seed, values in enumerate(released)]
    url = new_log(broker, task)
    arrivals = Arrivals(url, messages)
    with Nursery(tmp_path / "children", [protocol], MURK_KAFKA_SESSION_TIMEOUT_MS="1000") as nursery:
        campaign = Campaign(url, nursery, arrivals, partitions, seed=partitions)
        try:
            campaign.fight(kills)
            arrivals.finish()
            caught_up(url, *campaign.learners)
            campaign.end()
        finally:
            arrivals.close()
            campaign.close()
    found = as_if_undisturbed(url, task)
    assert [counters["learned"] for _, counters in found] == [len(values) for values in released]
    assert all(
        counters["duplicates"] > len(values) // 15 for (_, counters), values in zip(found, released, strict=True)
    )
    assert all(counters["dead"] for _, counters in found)
