"""`kill -9` of learners at random moments, joining and leaving: as if one had learned it all in peace."""

import os

import pytest

from tests.services.faults.campaign import Arrivals, Campaign
from tests.services.faults.nursery import Nursery
from tests.services.faults.world import as_if_undisturbed, caught_up, disturbed, new_log, stock

# Murk's own promise is 30; more of them in the long campaign.
KILLS = int(os.environ.get("MURK_LEARNER_KILLS", "30"))


@pytest.mark.slow
@pytest.mark.parametrize(("partitions", "kills"), [(2, KILLS // 2), (4, KILLS - KILLS // 2)])
def test_killed_learners_learn_every_release_once(broker, tmp_path, partitions, kills):
    task, released = stock(partitions)
    messages = [disturbed(task, values, seed) for seed, values in enumerate(released)]
    url = new_log(broker, task)
    arrivals = Arrivals(url, messages)
    with Nursery(tmp_path / "children", MURK_KAFKA_SESSION_TIMEOUT_MS="1000") as nursery:
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
    assert all(counters["duplicates"] > 100 and counters["dead"] for _, counters in found)
