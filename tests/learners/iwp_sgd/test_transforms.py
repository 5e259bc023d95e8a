"""The inverse transforms against what defines them: smoothing them by Gaussian noise gives the loss back."""

import math

import mpmath
import numpy as np
import pytest

from murk.errors import UserError
from murk.protocols.examples.losses import (
    LOGIT_WIDTH,
    best_truncation,
    check_loss,
    checked_radius,
    default_radius,
    largest_radius,
    truncation_error,
)
from murk.protocols.examples.transforms import EXPONENTIAL, LOG, PROBIT, QUADRATIC, bends, log_derivative, slopes, value

NODES = np.linspace(-10, 10, 1601)
WEIGHTS = np.exp(-0.5 * NODES**2)
WEIGHTS /= WEIGHTS.sum()


def smoothed(function, z, v):
    """E function(z + N(0, v)): the trapezoidal rule, which on a Gaussian is exact to 1e-12 here."""
    return float(sum(w * function(z + math.sqrt(v) * x) for w, x in zip(WEIGHTS, NODES, strict=True)))


def loss(code, z):
    return value(code, 0, LOGIT_WIDTH, z, 0.0)


EXACT = [QUADRATIC, EXPONENTIAL, PROBIT]


@pytest.mark.parametrize("code", EXACT)
@pytest.mark.parametrize("z", [-2.0, 0.3, 1.7])
@pytest.mark.parametrize("v", [0.1, 1.0, 2.4])
def test_smoothing_gives_the_loss_back(code, z, v):
    assert smoothed(lambda s: value(code, 0, LOGIT_WIDTH, s, v), z, v) == pytest.approx(loss(code, z), abs=1e-9)
    # Its twin, the loss itself in place of its inverse, is off by the bias that noise causes.
    assert abs(smoothed(lambda s: loss(code, s), z, v) - loss(code, z)) > 1e-3


@pytest.mark.parametrize("code", EXACT)
@pytest.mark.parametrize("v", [0.1, 2.4])
def test_smoothing_the_slopes_gives_the_losses_slopes_back(code, v):
    for z in (-1.3, 0.4):
        first = (loss(code, z + 1e-5) - loss(code, z - 1e-5)) / 2e-5
        assert smoothed(lambda s: slopes(code, 0, LOGIT_WIDTH, s, v)[0], z, v) == pytest.approx(first, abs=1e-6)


def test_the_exponential_losss_second_derivative_is_positive():
    """The paper's appendix D.6 prints -exp(-z) for it; its main text has it right."""
    first, second = slopes(EXPONENTIAL, 0, 0.0, 0.7, 0.0)
    assert second == -first == pytest.approx(math.exp(-0.7))


def test_the_probit_type_slope_is_that_of_the_logistic_loss_nearly():
    gaps = [abs(slopes(PROBIT, 0, LOGIT_WIDTH, z, 0.0)[0] - log_derivative(1, z)) for z in np.linspace(-8, 8, 400)]
    assert max(gaps) < 0.0096
    # Another width only rescales: f_t(z) = sqrt(t) f_1(z / sqrt t).
    root = math.sqrt(LOGIT_WIDTH)
    assert loss(PROBIT, 0.6) == pytest.approx(root * value(PROBIT, 0, 1.0, 0.6 / root, 0.0))


@pytest.mark.parametrize("order", range(9))
@pytest.mark.parametrize("z", [-30.0, -2.5, 0.0, 0.8, 30.0])
def test_derivatives_of_the_log_loss(order, z):
    with mpmath.workdps(60):
        exact = mpmath.diff(lambda x: mpmath.log(1 + mpmath.exp(-x)), mpmath.mpf(z), order)
        assert log_derivative(order, z) == pytest.approx(float(exact), rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("z", [-1e4, 1e4, -750.0, 750.0])
def test_extremes_do_not_overflow(z):
    assert all(math.isfinite(log_derivative(order, z)) for order in range(9))
    assert math.isfinite(value(PROBIT, 0, LOGIT_WIDTH, z, 1.0))
    assert not math.isnan(value(EXPONENTIAL, 0, 0.0, z, 1.0))


CASES = [(QUADRATIC, 0), (EXPONENTIAL, 0), (PROBIT, 0), (LOG, 1), (LOG, 2), (LOG, 3)]
THETA, VECTOR, VARIANCES = np.array([0.5, -0.3, 0.2]), np.array([1.4, 2.0, -0.7]), np.array([1.5, 1.5, 0.4])


def estimated(code, terms, theta):
    return value(code, terms, LOGIT_WIDTH, float(theta @ VECTOR), float(theta @ (VARIANCES * theta)))


@pytest.mark.parametrize(("code", "terms"), CASES)
def test_the_gradient_and_hessian_are_those_of_the_loss_estimate(code, terms):
    z, v = float(THETA @ VECTOR), float(THETA @ (VARIANCES * THETA))
    noisy = VARIANCES * THETA
    first, second = slopes(code, terms, LOGIT_WIDTH, z, v)
    gradient = VECTOR * first - noisy * second
    eye = np.eye(3)
    h = 1e-4
    numeric = [(estimated(code, terms, THETA + h * e) - estimated(code, terms, THETA - h * e)) / (2 * h) for e in eye]
    assert gradient == pytest.approx(numeric, abs=1e-6)
    outer, inner, cross, last = bends(code, terms, LOGIT_WIDTH, z, v)
    mixed = np.outer(VECTOR, noisy)
    hessian = (
        outer * np.outer(VECTOR, VECTOR)
        - inner * np.diag(VARIANCES)
        - cross * (mixed + mixed.T)
        + last * np.outer(noisy, noisy)
    )
    for i in range(3):
        for j in range(3):
            a, b = h * eye[i], h * eye[j]
            corners = [estimated(code, terms, THETA + s * a + t * b) for s, t in ((1, 1), (1, -1), (-1, 1), (-1, -1))]
            numeric_ij = (corners[0] - corners[1] - corners[2] + corners[3]) / (4 * h * h)
            assert hessian[i, j] == pytest.approx(numeric_ij, abs=2e-5)


def test_the_truncation_is_the_best_of_three_by_the_papers_criterion():
    """An independent evaluation: Gauss-Hermite quadrature in place of the trapezoidal rule."""
    x, w = np.polynomial.hermite_e.hermegauss(120)
    w = w / w.sum()
    for v, reach in ((0.5, 2.0), (2.0, 3.0)):
        errors = []
        for terms in (1, 2, 3):
            worst = 0.0
            for z in np.linspace(-reach, reach, 25):
                at = [value(LOG, terms, 0.0, z + math.sqrt(v) * node, v) for node in x]
                worst = max(worst, abs(float(w @ at) - math.log1p(math.exp(-z))))
            errors.append(worst)
            assert truncation_error(terms, v, reach) == pytest.approx(worst, rel=1e-3)
        assert best_truncation(v, reach) == 1 + int(np.argmin(errors))


def test_three_terms_are_best_even_where_the_paper_says_one_is():
    """Its appendix D.7 reads K = 1 off an estimate by Monte Carlo for a large t; exact quadrature says otherwise."""
    for v in (4.0, 20.0, 50.0):
        errors = [truncation_error(terms, v, 1.0) for terms in (1, 2, 3)]
        assert errors == sorted(errors, reverse=True)
        assert best_truncation(v, 1.0) == 3


def test_radii_stay_inside_the_valid_region():
    for variance in (0.1, 2.0, 50.0):
        assert default_radius("probit", variance) < largest_radius("probit", variance)
        for name in ("quadratic", "exponential", "log", "squared"):
            assert checked_radius(name, None, variance) == default_radius(name, variance) > 0
    with pytest.raises(UserError, match=r"largest radius that works is 0\.850"):
        checked_radius("probit", 0.9, 4.0)
    assert checked_radius("probit", 0.8501, 4.0) == 0.8501
    for radius in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(UserError, match="radius"):
            checked_radius("quadratic", radius, 1.0)


def test_losses_by_name():
    with pytest.raises(UserError, match="quadratic"):
        check_loss("quadratc", "binary")
    with pytest.raises(UserError, match="squared"):
        check_loss("probit", "real")
