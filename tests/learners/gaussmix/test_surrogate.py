"""The quadratic surrogate against scipy's minimax, and both ways to logistic coefficients against exact fits."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import expit
from statsmodels.discrete.discrete_model import Logit

from murk.errors import UserError
from murk.protocols.summaries.surrogate import by_normal_scores, by_quadratic, quadratic


def minimax(reach):
    """Best quadratic in the largest distance, as a linear program over a fine grid."""
    s = np.linspace(-reach, reach, 4001)
    table = np.column_stack([np.ones_like(s), s, s * s])
    wanted = -np.logaddexp(0.0, -s)
    ones = np.ones((len(s), 1))
    found = linprog(
        [0, 0, 0, 1.0],
        A_ub=np.block([[table, -ones], [-table, -ones]]),
        b_ub=np.concatenate([wanted, -wanted]),
        bounds=[(None, None)] * 3 + [(0, None)],
    )
    return found.x


@pytest.mark.parametrize("reach", [0.5, 1.0, 3.0, 8.0])
def test_quadratic_is_the_minimax_one(reach):
    ours, theirs = quadratic(reach), minimax(reach)
    # The grid misses the extremes by half a step h: the error there is off by at most f'' h^2 / 8 < 1e-6 here.
    assert ours.error == pytest.approx(theirs[3], abs=2e-6)
    assert (ours.b0, ours.b1, ours.b2) == pytest.approx(tuple(theirs[:3]), abs=5e-6)


def test_its_error_is_what_it_says_and_least_squares_is_near():
    ours = quadratic(3.0)
    s = np.linspace(-3, 3, 20_001)
    distance = np.abs(-np.logaddexp(0.0, -s) - (ours.b0 + ours.b1 * s + ours.b2 * s * s))
    assert distance.max() == pytest.approx(ours.error, rel=1e-6)
    nodes = 3.0 * np.cos((2 * np.arange(200) + 1) * np.pi / 400)
    fitted = np.polynomial.polynomial.polyfit(nodes, -np.logaddexp(0.0, -nodes), 2)
    assert -fitted[1] / (2 * fitted[2]) == pytest.approx(ours.scale, rel=0.01)


def test_small_ranges_give_taylor_and_large_ones_do_not_overflow():
    assert quadratic(0.001).scale == pytest.approx(2.0, rel=1e-6)
    assert 500 < quadratic(1000.0).scale < 501


@pytest.mark.parametrize("reach", [0.0, -1.0, float("nan"), 1e4])
def test_a_range_beyond_sense_is_refused(reach):
    with pytest.raises(UserError, match="range Q"):
        quadratic(reach)


def exact(theta, rows):
    """Least squares on labels, moments and maximum likelihood where every record carries its expected label."""
    chance = expit(rows @ theta)
    moment = rows.T @ rows / len(rows)
    fit = np.linalg.solve(moment, rows.T @ (2 * chance - 1) / len(rows))
    return fit, moment, float(np.mean(2 * chance - 1))


@pytest.mark.parametrize("length", [0.5, 1.5, 3.0])
def test_normal_scores_are_exact_for_normal_features(length):
    rng = np.random.default_rng(3)
    rows = np.column_stack([rng.normal(size=(200_000, 4)) * [1, 0.5, 2, 1] + [0, 1, 0, -0.5], np.ones(200_000)])
    theta = np.array([0.5, -0.5, 0.25, 0.5, -0.4]) * length
    found = by_normal_scores(*exact(theta, rows))
    # The only error is that of 200,000 draws standing for a normal distribution: about 1 / sqrt(n) = 0.002 of each.
    assert found == pytest.approx(theta, abs=0.02 * length)
    # The surrogate's scale is right for one length at most.
    off = [np.abs(by_quadratic(exact(theta, rows)[0], reach) - theta).max() for reach in (1.0, 3.0, 6.0)]
    assert max(off) > 5 * np.abs(found - theta).max()


def test_both_are_near_maximum_likelihood_on_small_effects():
    rng = np.random.default_rng(4)
    rows = np.column_stack([rng.uniform(-1, 1, (50_000, 3)), np.ones(50_000)])
    labels = rng.random(50_000) < expit(rows @ [0.3, -0.2, 0.1, 0.2])
    likely = Logit(labels.astype(float), rows).fit(disp=0).params
    moment = rows.T @ rows / len(rows)
    signs = 2.0 * labels - 1
    fit = np.linalg.solve(moment, rows.T @ signs / len(rows))
    assert by_normal_scores(fit, moment, signs.mean()) == pytest.approx(likely, abs=0.005)
    assert by_quadratic(fit, 0.5) == pytest.approx(likely, abs=0.02)


def test_no_curve_where_none_fits():
    moment = np.eye(2)
    assert by_normal_scores(np.array([5.0, 0.0]), moment, 0.0) is None  # more explained than there is
    assert by_normal_scores(np.array([0.1, 0.0]), moment, 1.5) is None  # a mean label that noise made
    assert by_normal_scores(np.array([0.1, 0.0]), np.zeros((2, 2)), 0.0) is None
    assert by_normal_scores(np.zeros(2), moment, 0.0) == pytest.approx([0.0, 0.0])


def test_chebyshev_meets_the_curve_at_its_nodes_and_is_further_off_in_between():
    close, through = quadratic(6.0), quadratic(6.0, "chebyshev")
    for place in range(3):
        s = 6.0 * math.cos(math.pi * (place + 0.5) / 3)
        assert through.b0 + through.b1 * s + through.b2 * s * s == pytest.approx(-math.log1p(math.exp(-s)), abs=1e-12)
    assert through.error > 1.05 * close.error
    assert by_quadratic(np.ones(1), 6.0, "chebyshev")[0] == through.scale != close.scale
    with pytest.raises(UserError, match="surrogate='cubic'"):
        quadratic(6.0, "cubic")
