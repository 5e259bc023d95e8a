"""Lower bounds of mu and epsilon from samples: exact shares, and no more failures than allowed."""

import math

import numpy as np
import pytest
from scipy.stats import binom, binomtest

from murk.audit import EpsilonAt, Mu, detectable, lower_bound
from murk.audit.bounds import greatest_share, least_share
from murk.errors import UserError


@pytest.mark.parametrize(("successes", "trials", "failure"), [(0, 50, 0.01), (7, 50, 1e-4), (50, 50, 0.025)])
def test_shares_are_clopper_and_pearsons(successes, trials, failure):
    exact = binomtest(successes, trials).proportion_ci(1 - 2 * failure, method="exact")
    assert least_share(np.array([successes]), trials, failure)[0] == pytest.approx(exact.low, rel=1e-9, abs=1e-300)
    assert greatest_share(np.array([successes]), trials, failure)[0] == pytest.approx(exact.high, rel=1e-9)


def test_bounds_exceed_the_truth_no_oftener_than_allowed():
    """300 audits at 20%: more than 104 failures have a probability below 1e-6; chosen and counted on one half, 80%."""
    rng = np.random.default_rng(7)
    runs, failure, most = 300, 0.2, 104
    assert binom.sf(most, runs, failure) < 1e-6
    beyond = careless = 0
    for _ in range(runs):
        first, second = rng.normal(0.5, 1, 400), rng.normal(0, 1, 400)
        beyond += lower_bound(first, second, Mu(0.5), failure) > 0.5
        # The twin: the same releases to choose on and to count, and shares as they were counted.
        cuts = np.quantile(np.concatenate([first, second]), np.linspace(0.02, 0.98, 97))
        shares = [np.mean(sample[:, None] >= cuts, axis=0).clip(1e-3, 1 - 1e-3) for sample in (first, second)]
        careless += Mu(0.5).least(*shares).max() > 0.5
    assert beyond <= most
    assert careless > most


def test_what_is_there_is_found():
    rng = np.random.default_rng(8)
    first, second = rng.normal(1, 1, 100_000), rng.normal(0, 1, 100_000)
    assert 0.9 < lower_bound(first, second, Mu(1.0), 1e-6) < 1.0
    # Kept with odds of e : 1; either of the two directions may be the one that shows it.
    coins = rng.random((2, 100_000)) < math.e / (1 + math.e)
    found = lower_bound(coins[0].astype(float), 1.0 - coins[1], EpsilonAt(1.0), 1e-6)
    assert 0.9 < found < 1.0
    assert lower_bound(second, second, Mu(1.0), 1e-6) == 0.0


def test_either_input_may_be_the_one_that_is_noticed():
    """The first is inside the second's support: only releases of the second are ever proof."""
    rng = np.random.default_rng(9)
    wide, narrow = rng.uniform(-1, 1, 4000), rng.uniform(0, 1, 4000)
    tested_guarantee = EpsilonAt(1.0, 0.01)
    assert lower_bound(narrow, wide, tested_guarantee, 1e-3) > 3
    assert lower_bound(-wide, -narrow, tested_guarantee, 1e-3) > 3


def test_delta_is_taken_off():
    first, second = np.append(np.zeros(9_600), np.ones(400)), np.zeros(10_000)
    rng = np.random.default_rng(1)
    rng.shuffle(first)
    assert lower_bound(first, second, EpsilonAt(1.0), 1e-3) > 2
    assert lower_bound(first, second, EpsilonAt(1.0, 0.05), 1e-3) == 0.0


def test_too_few_releases_are_refused():
    with pytest.raises(UserError, match="two releases"):
        lower_bound(np.zeros(1), np.zeros(5), Mu(1.0), 0.1)


@pytest.mark.parametrize("draws", [2_000, 20_000])
@pytest.mark.parametrize("claim", [Mu(0.5), Mu(1.0), EpsilonAt(1.0), EpsilonAt(1.0, 0.01)])
def test_a_detectable_loss_is_found(claim, draws):
    """Found in 95% of cases: 60 of 80 or more but for a chance below 1e-9; a tenth of the way there, hardly ever.

    The cut is chosen on half of the releases, so the power is a little below 95%; 0.88 gives the probability above.
    """
    least = detectable(claim, draws, 1e-3)
    assert least > claim.claimed
    rng = np.random.default_rng(5)

    def found(loss):
        for _ in range(80):
            if isinstance(claim, Mu):
                first, second = rng.normal(loss, 1, draws), rng.normal(0, 1, draws)
            else:
                # Disclosed with probability delta, else kept with odds of e^loss.
                hits, alarms = claim.tests(loss)
                first, second = (rng.random(draws) < share[0] for share in (hits, alarms))
            yield lower_bound(np.asarray(first, float), np.asarray(second, float), claim, 1e-3) > claim.claimed

    assert sum(found(least)) >= 60
    assert sum(found(claim.claimed + 0.1 * (least - claim.claimed))) <= 20


def test_too_few_draws_detect_nothing():
    assert detectable(Mu(1.0), 4, 1e-3) == math.inf
