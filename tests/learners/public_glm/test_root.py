"""The intercept and the factor: against exact answers, and where there are none."""

import numpy as np
import pytest
from scipy.optimize import brentq

from murk.errors import UserError
from murk.protocols.mean_functions import LINKS, LOSSES, curve_of
from murk.protocols.moments.solve import NoRootError, solve

CURVES = {**LOSSES, **LINKS}
SCORES = np.random.default_rng(4).normal(0.1, 0.15, size=2000)
EVEN = np.full(2000, 1 / 2000)


@pytest.mark.parametrize("name", CURVES)
def test_slopes_and_inverses_are_those_of_the_curve(name):
    curve, z, h = CURVES[name], np.linspace(-3, 3, 61), 1e-5
    np.testing.assert_allclose(curve.slope(z), (curve.mean(z + h) - curve.mean(z - h)) / (2 * h), atol=1e-8)
    np.testing.assert_allclose(curve.bend(z), (curve.slope(z + h) - curve.slope(z - h)) / (2 * h), atol=1e-8)
    np.testing.assert_allclose(curve.inverse(curve.mean(z)), z, atol=1e-6)


@pytest.mark.parametrize("name", sorted(set(CURVES) - {"identity"}))
def test_both_equations_hold(name):
    curve = CURVES[name]
    mean = 0.3
    a, c = solve(curve, SCORES, EVEN, mean)
    z = a + c * SCORES
    assert EVEN @ curve.mean(z) == pytest.approx(mean, abs=1e-9)
    assert c * (EVEN @ curve.slope(z)) == pytest.approx(1, abs=1e-9)


def test_poisson_is_known_in_closed_form():
    a, c = solve(LOSSES["poisson"], SCORES, EVEN, 0.4)
    assert c == pytest.approx(1 / 0.4)
    assert a == pytest.approx(np.log(0.4 / np.mean(np.exp(c * SCORES))))


@pytest.mark.parametrize("name", sorted(set(CURVES) - {"identity"}))
def test_steins_identity_gives_a_normal_models_coefficients_back(name):
    """Scores of normal features: least squares' slope is w E f'(z), and the root undoes it."""
    curve, w, b = CURVES[name], 0.7, -0.4
    nodes, weights = np.polynomial.hermite_e.hermegauss(81)
    shares = weights / weights.sum()
    z = b + w * nodes
    slope = w * (shares @ curve.slope(z))
    a, c = solve(curve, slope * nodes, shares, float(shares @ curve.mean(z)))
    assert (a, c * slope) == (pytest.approx(b, abs=1e-7), pytest.approx(w, abs=1e-7))


def test_without_an_intercept_the_papers_equation():
    a, c = solve(LOSSES["logistic"], SCORES - 0.1, EVEN, None)
    assert a == 0
    assert c * np.mean(LOSSES["logistic"].slope(c * (SCORES - 0.1))) == pytest.approx(1)


def test_scores_of_one_value_need_no_search():
    a, c = solve(LOSSES["logistic"], np.full(3, 0.2), np.full(3, 1 / 3), 0.25)
    assert (c, a + 0.2 * c) == (pytest.approx(1 / (0.25 * 0.75)), pytest.approx(np.log(1 / 3)))


def test_no_root_says_why():
    far = SCORES + 0.6
    with pytest.raises(NoRootError, match=r"at most 0\.\d+; without an intercept this is usual"):
        solve(LOSSES["logistic"], far, EVEN, None)
    # With one there is: that is what it is for.
    solve(LOSSES["logistic"], far, EVEN, 0.6)
    with pytest.raises(NoRootError, match="slopes too large") as caught:
        solve(LOSSES["logistic"], 10 * SCORES, EVEN, 0.5)
    assert isinstance(caught.value, UserError)
    with pytest.raises(NoRootError, match=r"mean response is estimated as 1\.2"):
        solve(LOSSES["logistic"], SCORES, EVEN, 1.2)
    with pytest.raises(NoRootError, match="mean response"):
        solve(LINKS["softplus"], SCORES, EVEN, -0.1)


def test_a_far_root_of_features_of_few_values_is_none():
    """Where one value holds many people, the curve becomes a step there: a root, of absurd coefficients."""
    curve = LOSSES["logistic"]
    scores, counts = np.unique(np.round(10 * SCORES), return_counts=True)
    shares = counts / 2000

    def left(c):
        a = brentq(lambda a: shares @ curve.mean(a + c * scores) - 0.4, -10 * c - 5, 10 * c + 5)
        return c * shares @ curve.slope(a + c * scores)

    assert left(5) < 0.3 < 1 < left(100)
    with pytest.raises(NoRootError):
        solve(curve, scores, shares, 0.4)


@pytest.mark.parametrize("mean", [1e-6, 0.5, 1 - 1e-6])
def test_extreme_means(mean):
    a, c = solve(LOSSES["logistic"], 1e-3 * min(mean, 1 - mean) * SCORES, EVEN, mean)
    assert np.isfinite([a, c]).all()
    assert c == pytest.approx(1 / (mean * (1 - mean)), rel=1e-2)


def test_unknown_curves_name_the_nearest():
    with pytest.raises(UserError, match="did you mean 'logistic'"):
        curve_of("logistics", LOSSES, "loss")
