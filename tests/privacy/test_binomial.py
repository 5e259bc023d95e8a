"""Bounds of binomial probabilities: on the right side of exact values, and close to them."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murk.privacy.amplification import MAX_TRIALS, fair_tail_ratio_below, mass_above, probability_above


def exact(count, trials, p):
    """Probability of so many successes, to fifty digits: p is the float itself."""
    with mpmath.workdps(60):
        p = mpmath.mpf(p)
        logarithm = mpmath.loggamma(trials + 1) - mpmath.loggamma(count + 1) - mpmath.loggamma(trials - count + 1)
        return mpmath.exp(logarithm + count * mpmath.log(p) + (trials - count) * mpmath.log1p(-p))


def above(count, trials, odds):
    return float(probability_above(np.array([float(count)]), np.array([float(trials)]), odds)[0])


@pytest.mark.parametrize("trials", [1, 2, 15, 16, 17, 200, 10**5, 10**9, MAX_TRIALS])
@pytest.mark.parametrize("p", [0.5, 0.3, 1e-3, 1e-9])
def test_probabilities_lie_just_above(trials, p):
    mean, deviation = trials * p, math.sqrt(trials * p * (1 - p))
    counts = {0, 1, trials, *(round(mean + z * deviation) for z in (-30, -5, -1, 0, 1, 5, 30))}
    for count in counts & set(range(trials + 1)) if trials < 10**4 else {c for c in counts if 0 <= c <= trials}:
        truth = exact(count, trials, p)
        if truth > 1e-290:
            # Of a deviation of z standard deviations s, 1e-16 z s is lost.
            slack = 1e-11 + 1e-14 * abs(count - mean)
            assert truth <= above(count, trials, (p, 1 - p)) <= truth * (1 + slack)


def test_failures_may_be_the_rare_ones():
    p = 1 - 2.0**-40
    for count in (10**6, 10**6 - 1, 10**6 - 5):
        truth = exact(count, 10**6, p)
        assert truth <= above(count, 10**6, (p, 2.0**-40)) <= truth * (1 + 1e-9)


def test_there_are_no_fewer_than_no_successes():
    counts = np.array([-1.0, 0.0, 3.0, 4.0])
    found = probability_above(counts, np.full(4, 3.0), (0.5, 0.5))
    assert found.tolist() == pytest.approx([0.0, 0.125, 0.125, 0.0])


@settings(max_examples=40)
@given(st.integers(1, 200), st.sampled_from([0.5, 0.1, 0.98]), st.data())
def test_groups_lie_above(trials, p, data):
    first = data.draw(st.integers(0, trials))
    last = data.draw(st.integers(first, trials))
    middle = data.draw(st.integers(first, last))
    group = (np.array([float(c)]) for c in (first, middle, last))
    found = float(mass_above(*group, float(trials), (p, 1 - p))[0])
    truth = mpmath.fsum(exact(c, trials, p) for c in range(first, last + 1))
    assert truth <= found
    if first == middle == last:
        assert found <= truth * (1 + mpmath.mpf(1e-10))


def test_narrow_groups_are_tight():
    """Of a fiftieth of a standard deviation: to a ten-thousandth, where the middle is."""
    deviation = 5_000
    first = np.arange(-5, 5, 0.02) * deviation + 5 * 10**7
    found = mass_above(first, first + 50, first + 99, 1e8, (0.5, 0.5))
    assert 1 <= found.sum() <= 1 + 1e-4


@settings(max_examples=60)
@given(st.integers(0, 150), st.data(), st.sampled_from([2, 8, 64, 128]))
def test_ratios_of_fair_coins_lie_below(trials, data, depth):
    least = data.draw(st.integers(max(1, trials // 2), trials + 1))
    tail = sum(math.comb(trials, k) for k in range(least, trials + 1))
    truth = Fraction(tail, math.comb(trials, least - 1))
    found = Fraction(float(fair_tail_ratio_below(np.array([float(least)]), np.array([float(trials)]), depth)[0]))
    assert found <= truth
    if depth > trials - least:
        assert found >= truth * Fraction(1 - 1e-11)


@pytest.mark.parametrize("trials", [10**4, 10**8, 10**12])
@pytest.mark.parametrize("deviations", [1.0, 3.0, 6.0])
def test_ratios_of_many_coins_are_close(trials, deviations):
    """Against the normal distribution, which differs by a share of some z^3 / sqrt(n)."""
    least = math.ceil(trials / 2 + deviations * math.sqrt(trials) / 2)
    found = float(fair_tail_ratio_below(np.array([float(least)]), np.array([float(trials)]), 64)[0])
    z = (2 * least - 1 - trials) / math.sqrt(trials)
    mills = float(mpmath.ncdf(-z) / mpmath.npdf(z)) * math.sqrt(trials) / 2
    assert found == pytest.approx(mills, rel=(2 + z**3) * 2 / math.sqrt(trials) + 1e-6)
