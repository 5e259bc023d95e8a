"""Sequences of bounded releases are exact: their e-values have a mean of 1, and they hold from the first release on."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from murk.errors import UserError
from murk.inference.confidence_sequences import critical_values
from murk.inference.exact_sequences import (
    difference_evidence,
    difference_sequence,
    mean_evidence,
    mean_sequence,
    true_means,
)
from murk.privacy import PureDP, RandomizedResponse, SimulatedNoise

STREAMS = 2_000
# A share of 5% or less of the streams exceeds this with probability 1e-6 at most.
MOST = binom.isf(1e-6, STREAMS, 0.05) / STREAMS


@pytest.mark.parametrize("q", [0.001, 0.3, 0.5, 0.98])
@pytest.mark.parametrize("n", [2, 7, 400])
def test_e_values_of_coins_have_mean_one_exactly(n, q):
    """Over all sums, without any chance."""
    sums = np.arange(n + 1)
    evidence = mean_evidence(sums, n, q, 200)
    assert np.exp(binom.logpmf(sums, n, q) + evidence).sum() == pytest.approx(1.0, abs=1e-9)
    # The twin: coins with another mean.
    assert np.exp(np.minimum(binom.logpmf(sums, n, 0.7) + evidence, 700)).sum() > 1.001


def test_e_values_of_other_bounded_numbers_have_a_mean_of_at_most_one():
    """Numbers 0, 1/2 and 1 with mean 0.3, over all sums."""
    law, total = np.array([0.5, 0.4, 0.1]), np.array([1.0])
    for n in range(1, 41):
        total = np.convolve(total, law)
        mean = total @ np.exp(mean_evidence(np.arange(2 * n + 1) / 2.0, n, 0.3, 200))
        assert 0.5 < mean <= 1.0 + 1e-12


def test_e_values_of_a_difference_have_a_mean_of_at_most_one():
    one, other = np.meshgrid(np.arange(21), np.arange(11))
    chances = binom.pmf(one, 20, 0.6) * binom.pmf(other, 10, 0.4)
    mean = (chances * np.exp(difference_evidence((one, other), (20, 10), 0.2, 30))).sum()
    assert 0.1 < mean <= 1.0
    # The twin: no difference is rejected.
    assert (chances * np.exp(difference_evidence((one, other), (20, 10), -0.5, 30))).sum() > 1.0


def test_the_truth_is_hardly_ever_excluded_from_the_first_release_on():
    """Rare ones, 1,000 looks; fails with probability 1e-6 (`MOST`)."""
    rng, q, n = np.random.default_rng(1), 0.02, np.arange(1, 1_001)
    sums = np.cumsum(rng.random((STREAMS, len(n))) < q, axis=1)
    wrong = mean_evidence(sums, n, q, 1_000) >= math.log(20.0)
    assert wrong.any(axis=1).mean() <= MOST
    # The twin: the asymptotic sequence, which may not be used with so few.
    share = sums / n
    off = np.abs(share - q) > critical_values(n / 1_000) * np.sqrt(share * (1 - share) / n)
    assert off.any(axis=1).mean() > 0.5


@pytest.mark.parametrize(("total", "count"), [(0, 5), (1, 1), (3, 400), (37.5, 90), (900, 1_000)])
def test_ends_are_where_evidence_excludes_a_mean(total, count):
    q = np.linspace(0, 1, 4_001)
    held = q[mean_evidence(total, count, q, 500) < math.log(20.0)]
    low, high = mean_sequence(total, count, 500)
    assert (float(low), float(high)) == pytest.approx((held[0], held[-1]), abs=3e-4)
    assert low <= held[0]
    assert high >= held[-1]
    # An interval: no mean between its ends is excluded.
    assert len(held) == round((held[-1] - held[0]) * 4_000) + 1


def test_ends_of_a_difference_are_where_evidence_excludes_it():
    away = np.linspace(-1, 1, 2_001)
    held = away[difference_evidence((30, 9), (50, 40), away, 100) < math.log(20.0)]
    low, high = difference_sequence((30, 9), (50, 40), 100)
    assert (float(low), float(high)) == pytest.approx((held[0], held[-1]), abs=1.1e-3)
    assert low < 30 / 50 - 9 / 40 < high


def test_it_is_nearly_as_narrow_as_the_asymptotic_one():
    n = 20_000
    low, high = mean_sequence(0.3 * n, n, n)
    half = critical_values(np.array([1.0]))[0] * math.sqrt(0.3 * 0.7 / n)
    assert (high - low) / 2 == pytest.approx(half, rel=0.02)


def test_shares_are_learned_from_randomized_responses():
    """5,000 people at epsilon 1; the interval misses the truth with probability far below 5%."""
    response, rng = RandomizedResponse.calibrate(PureDP(1.0), classes=2), np.random.default_rng(2)
    truth = rng.random(5_000) < 0.2
    told = response.randomize(truth.astype(np.int64), SimulatedNoise(3), np.arange(5_000))
    low, high = true_means(response, mean_sequence(told.sum(), 5_000, 5_000))
    assert low < 0.2 < high < 0.35
    # The twin: the released share itself lies elsewhere.
    assert told.mean() > high


def test_bad_input_is_refused():
    with pytest.raises(UserError, match="between 0 and their count"):
        mean_sequence(11, 10, 100)
    for level in (0.0, 1.0, math.nan):
        with pytest.raises(UserError, match="is not between 0 and 1"):
            mean_sequence(3, 10, 100, level)
    for count in (-5.0, 0.0, math.inf, math.nan):
        with pytest.raises(UserError, match="not a positive number of releases"):
            mean_sequence(3, 10, count)
    with pytest.raises(UserError, match="strictly between 0 and 1"):
        difference_sequence((0.5, 1), (10, 10), 100)
    with pytest.raises(UserError, match="3 values"):
        true_means(RandomizedResponse.calibrate(PureDP(1.0), classes=3), 0.5)
    assert [float(end) for end in mean_sequence(0.5, 10, 100)] == [0.0, 1.0]
    assert [float(end) for end in mean_sequence(0, 0, 100)] == [0.0, 1.0]


def test_a_difference_of_sums_that_begin_between_whole_numbers_is_refused():
    """There the sum over q is not convex: golden sections would find 0.29 where the least is -13."""
    with pytest.raises(UserError, match="strictly between 0 and 1: begin after more releases"):
        difference_evidence((0.5, 3.5), (9, 4), -0.2, 30)
