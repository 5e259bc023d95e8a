"""Shares of missing targets: every protocol states a lower bound, and says so."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from murk.inference.estimate import missing_words, surely_missing
from murk.learners import ShareClassifier
from murk.privacy import GaussianDP
from murk.protocols.moments.sums import Private
from tests.learners.public_glm.test_fit import exact, layout_of
from tests.learners.scores.people import class_outcomes, device_of, features, learn_sums, outcomes, public

MISSING, SEEDS = 0.4, 20
THETA = np.array([[0.8, -0.4, 0.3, 0.1], [-0.6, 0.9, 0.2, 0.0], [-0.2, -0.5, -0.5, -0.1]])
# A bound two standard errors below its estimate exceeds the truth in 2.3% of streams, so that more than 4 of 20 do so
# with a probability below 1e-4. Estimates exceed it in half of them: at most 4 do so with a probability of 0.6%.
MOST = 4


def gone(rng, y):
    return np.where(rng.random(len(y)) < MISSING, np.nan, y)


def of_scores(seed, *, classes=False, rows=False):
    rng, n = np.random.default_rng([3, seed]), 20_000
    X = features(rng, n + 2_000, 3)
    y = gone(rng, class_outcomes(rng, X[:n], THETA) if classes else outcomes(rng, X[:n], THETA[0]))
    more = {"labels": ("a", "b", "c")} if classes else {}
    device = device_of(3, 3.0, covariates=public(X[n:]) if rows else None, **more)
    estimate = learn_sums(device, X[:n], y, seed).estimate()
    assert (missing_words(estimate.missing()) in estimate.note) == (estimate.missing() > 0.0)
    return estimate.missing(), 1.0 - estimate.solution.targets[0]


def of_shares(seed):
    rng = np.random.default_rng([4, seed])
    model = ShareClassifier(guarantee=GaussianDP(1.0), classes=("a", "b"), seed=seed)
    labels = np.array(["a", "b", None], dtype=object)[rng.choice(3, size=3_000, p=[0.4, 0.2, MISSING])]
    model.learn_many(np.zeros((3_000, 0)), labels)
    estimate = model.estimate()
    assert missing_words(estimate.missing()) in estimate.note
    return estimate.missing(), None


def of_moments(seed):
    rng = np.random.default_rng([5, seed])
    X = np.column_stack([rng.choice([-1.0, 1.0], size=(4_000, 2)), np.ones(4_000)])
    layout = replace(layout_of(X), observed=True)
    sums = exact(layout, X, gone(rng, 0.3 * X[:, 0]), 4.0, rng)
    return Private.of(sums, layout).missing, 1.0 - layout.share(sums.total / sums.count)


@pytest.mark.filterwarnings("ignore:many of the first")
@pytest.mark.parametrize(
    "stated",
    [
        of_shares,
        of_moments,
        lambda seed: of_scores(seed, rows=True),
        lambda seed: of_scores(seed, classes=True, rows=True),
        lambda seed: of_scores(seed, classes=True),
    ],
    ids=["shares", "moments", "public rows", "classes and public rows", "class lines"],
)
def test_the_stated_share_is_a_lower_bound(stated):
    assert binom.sf(MOST, SEEDS, 0.023) < 1e-4
    bounds, estimates = zip(*map(stated, range(SEEDS)), strict=True)
    assert sum(bound > MISSING for bound in bounds) <= MOST
    assert np.median(bounds) > MISSING / 2.0
    if None not in estimates:
        # The wrong twin: estimates are no bounds.
        assert sum(share > MISSING for share in estimates) > MOST


def test_nothing_is_claimed_beyond_what_noise_explains():
    assert surely_missing(0.1, 0.06) == 0.0
    assert surely_missing(0.1, 0.01) == pytest.approx(0.08)
    assert missing_words(0.29) == "at least 29% of the targets are missing"
    assert missing_words(0.0059) == "at least 0.5% of the targets are missing"
