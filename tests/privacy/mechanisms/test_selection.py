"""Subset and window selection, and Gaussian noise on a simplex: exact laws, guarantees, unbiased estimates."""

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from scipy.stats import chi2

from murk.errors import UserError
from murk.privacy import (
    ApproxDP,
    GaussianDP,
    PureDP,
    SimplexGaussian,
    SimulatedNoise,
    SubsetSelection,
    WindowSelection,
    ZeroConcentratedDP,
    cap_of,
    cost_in,
)
from murk.privacy.mechanisms.selection import LEVELS

GUARANTEES = PureDP(0.5), PureDP(4.0), ApproxDP(1.0, 1e-6), GaussianDP(0.5), GaussianDP(2.0), ZeroConcentratedDP(0.5)


def made(guarantee):
    for categories in (2, 3, 17):
        yield SubsetSelection.calibrate(guarantee, categories=categories)
    for missing in (False, True):
        yield WindowSelection.calibrate(guarantee, missing=missing)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_release_fits_under_the_cap_of_its_guarantee_and_no_other_odds_do(guarantee):
    cap = cap_of(guarantee)
    for mechanism in made(guarantee):
        assert cost_in(mechanism, cap.currency) <= cap
        # One in a thousand words fewer for the outcomes of smaller odds would cost more than the guarantee.
        more = type(mechanism)(*mechanism._layout, mechanism.other - mechanism.other // 1000)
        assert not cost_in(more, cap.currency) <= cap


def test_odds_bound_the_exact_probabilities_of_subsets():
    """Every subset's probability, from the integers that words are compared with, within the stated odds."""
    mechanism = SubsetSelection.calibrate(PureDP(1.0), categories=6)
    k, d, words = mechanism.categories, mechanism.size, 2**64

    def probability(subset, truth):
        inside = truth in subset
        share = Fraction(mechanism.threshold if inside else words - mechanism.threshold, words)
        left = d - inside
        others = [category for category in range(k) if category != truth]
        for place, category in enumerate(others):
            n = len(others) - place
            taken = Fraction(int(mechanism._limits[left, n]) + 1, words) if left else Fraction(0)
            share *= taken if category in subset else 1 - taken
            left -= category in subset
        return share

    subsets = [set(each) for each in combinations(range(k), d)]
    table = [[probability(subset, truth) for truth in range(k)] for subset in subsets]
    assert all(sum(column) == 1 for column in zip(*table, strict=True))
    top, bottom = mechanism.odds
    worst = max(max(row) / min(row) for row in table)
    assert worst <= Fraction(top, bottom)
    assert math.log(worst) <= 1.0
    assert math.log(worst) > 1.0 - 1e-9


def test_odds_bound_the_exact_probabilities_of_windows():
    mechanism = WindowSelection.calibrate(PureDP(2.0), missing=True)
    each, left = divmod(mechanism.threshold, mechanism.favoured)
    # The last favoured outcome has the words that are left over.
    assert Fraction(each + left, mechanism.other) <= Fraction(*mechanism.odds)
    rows = [set(row) for row in mechanism.favours.tolist()]
    assert len(rows) == LEVELS + 1
    assert all(len(row) == mechanism.favoured and max(row) < mechanism.outcomes for row in rows)


@pytest.mark.parametrize("guarantee", [PureDP(1.0), PureDP(4.0), GaussianDP(1.0)])
def test_mu_bounds_the_trade_off_between_two_categories(guarantee):
    """At each corner of the exact trade-off curve, and only just."""
    from scipy.special import ndtr, ndtri

    mechanism = SubsetSelection.calibrate(guarantee, categories=9)
    mu = min(claim.mu for claim in mechanism.guarantees if isinstance(claim, GaussianDP))
    more, less = map(float, mechanism._apart)
    corner = ndtri(1.0 - less) + ndtri(more)
    assert corner <= mu <= corner + 1e-9
    for wrong in (1.0, 0.99):
        holds = all(ndtr(ndtri(1.0 - a) - wrong * mu) <= b + 1e-12 for a, b in ((less, 1.0 - more), (1.0 - more, less)))
        assert holds is (wrong == 1.0)


def statistic(mechanism, place, shares, count=20_000):
    """Chi-square of the released outcomes against ``shares``, and its degrees of freedom."""
    rows = np.full((count, 1), place)
    released = mechanism.randomize(rows, SimulatedNoise(5), np.arange(count))
    assert mechanism.holds(released)
    if isinstance(mechanism, SubsetSelection):
        # The subsets as numbers.
        released = released @ (1 << np.arange(mechanism.categories))[:, None]
    counts = np.bincount(released[:, 0], minlength=len(shares))
    assert counts[shares == 0.0].sum() == 0
    expected = count * shares[shares > 0]
    return float(((counts[shares > 0] - expected) ** 2 / expected).sum()), len(expected) - 1


@pytest.mark.parametrize("wrong", [False, True])
def test_law_of_releases(wrong):
    """False alarms in 1e-6 of seeds for each case; releases of another value must be rejected."""
    subset = SubsetSelection.calibrate(PureDP(1.0), categories=5)
    truth, shares = 3, np.zeros(2**5)
    for each in combinations(range(5), subset.size):
        inside = (truth + wrong) % 5 in each
        ways = math.comb(4, subset.size - 1) if inside else math.comb(4, subset.size)
        shares[sum(1 << category for category in each)] = (subset.chance if inside else 1.0 - subset.chance) / ways
    window = WindowSelection.calibrate(PureDP(3.0), missing=True)
    # Between two levels, and a missing number.
    between = 0.25 * window.chances[7] + 0.75 * window.chances[8]
    missing = window.chances[-1]
    place = 7.75 / (LEVELS - 1)
    cases = [
        (subset, float(truth), shares),
        (window, place + 0.1 * wrong, between),
        (window, 2.0 - 1.5 * wrong, missing),
    ]
    for mechanism, at, law in cases:
        found, freedom = statistic(mechanism, at, law)
        assert bool(found > chi2.isf(1e-6, freedom)) is wrong


@pytest.mark.parametrize("missing", [False, True])
def test_weights_of_windows_are_unbiased_for_every_level(missing):
    for guarantee in (PureDP(0.5), PureDP(2.0), GaussianDP(4.0)):
        window = WindowSelection.calibrate(guarantee, missing=missing)
        means = window.chances @ window.weights
        assert np.allclose(means[:LEVELS, 0], window.values, atol=1e-9)
        assert np.allclose(means[:LEVELS, 1], 0.0, atol=1e-9)
        if missing:
            assert np.allclose(means[-1], [0.0, 1.0], atol=1e-9)


def test_covariance_of_subsets_is_that_of_their_law():
    mechanism = SubsetSelection.calibrate(PureDP(1.0), categories=5)
    shares = np.array([0.5, 0.2, 0.2, 0.1, 0.0])
    both, mean = np.zeros((5, 5)), np.zeros(5)
    for each in combinations(range(5), mechanism.size):
        marks = np.isin(np.arange(5), each).astype(float)
        for truth, share in enumerate(shares):
            ways = math.comb(4, mechanism.size - (truth in each))
            chance = share * (mechanism.chance if truth in each else 1.0 - mechanism.chance) / ways
            decoded = mechanism.decode(marks[None, :])[0]
            mean += chance * decoded
            both += chance * np.outer(decoded, decoded)
    assert np.allclose(mean, shares)
    assert np.allclose(both - np.outer(mean, mean), mechanism.covariance(shares))


def test_points_of_a_simplex_are_no_farther_apart_than_the_guarantee_allows():
    mechanism = SimplexGaussian.calibrate(GaussianDP(1.3), vertices=3)
    places = np.array([[0.0], [0.3], [0.5], [1.0], [2.0], [math.nan], [-5.0], [9.0]])
    points = [list(map(int, row)) for row in mechanism.points(places)]
    assert points[0] == [mechanism.height, 0, 0]
    assert points[4] == points[7] == [0, 0, mechanism.height]
    most = max(sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) for one in points for other in points)
    assert most <= (2 * mechanism.noise.steps) ** 2
    # One lattice step more would be too far.
    assert 2 * (mechanism.height + 1) ** 2 > (2 * mechanism.noise.steps) ** 2


def test_sizes_follow_the_guarantee():
    assert [SubsetSelection.calibrate(PureDP(e), categories=49).size for e in (0.5, 1.0, 2.0, 4.0)] == [19, 13, 6, 1]
    best = SubsetSelection.calibrate(PureDP(1.0), categories=49)
    others = [SubsetSelection(49, size, best.other)._calibrated(PureDP(1.0)) for size in (12, 14)]
    assert best.variance < min(each.variance for each in others)


@pytest.mark.parametrize("arguments", [(3, 0, 5), (3, 3, 5), (3, 1, 0), (3, 1, 2**64), (40_000, 1, 5)])
def test_impossible_subsets_are_refused(arguments):
    with pytest.raises(UserError, match="SubsetSelection"):
        SubsetSelection(*arguments)


def test_a_budget_beyond_words_is_refused():
    with pytest.raises(UserError, match="too small for 31000"):
        SubsetSelection.calibrate(PureDP(1e-11), categories=31_000)
