"""A small share of the campaign against shuffler, gateway, learner and broker; and that a wrong order is noticed."""

import numpy as np
import pytest

from tests.services import services
from tests.soak.crowds import CROWD, campaign, statistic, threshold


def fought(kills, kinds):
    found = campaign(kills, kinds, 1, lambda words: None)
    assert [result.violations for result in found] == [[] for _ in kinds]
    assert sum(result.kills.total() for result in found) == kills
    assert all(result.crowds and result.learned == result.released for result in found)


@pytest.mark.slow
def test_kills_on_files():
    fought(5, ["file", "beside"])


@pytest.mark.slow
def test_kills_on_kafka():
    services.require_kafka()
    fought(3, ["kafka"])


def test_the_statistic_finds_an_order_and_passes_chance():
    """20 crowds of different sizes; false alarm 1e-6 (`threshold`)."""
    rng = np.random.default_rng(3)
    crowds = [rng.permutation(CROWD + 7 * place).tolist() for place in range(20)]
    assert statistic(crowds) < threshold()
    # Twins: a quarter in the order of arrival, and a crowd that was shuffled in two halves.
    assert statistic([sorted(one[: len(one) // 4]) + one[len(one) // 4 :] for one in crowds]) > threshold()
    halves = [
        [*(who for who in one if 2 * who < len(one)), *(who for who in one if 2 * who >= len(one))] for one in crowds
    ]
    assert statistic(halves) > threshold()
