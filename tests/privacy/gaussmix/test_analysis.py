"""The published figures, the search for an order, and rounding against the claim."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import mpmath
import pytest

from murk.errors import UserError
from murk.privacy import ApproxDP
from murk.privacy.central import (
    GaussMixMechanism,
    joint_settings,
    mixing_epsilon,
    phi,
    smallest_threshold,
)
from murk.privacy.central import sketch_renyi as renyi
from murk.privacy.central.sketch_renyi import eigenvalue, joint, modified, steps
from murk.privacy.rounding import decimal, float_up, precise, rational

NEIGHBOURS = ["zero-out", "replace-one"]


def exact(function, *arguments):
    with precise():
        return float_up(function(*arguments))


def joint_epsilon(eta, tau, g, rows, delta, neighbours="zero-out"):
    return exact(joint, *map(rational, (eta, tau, g)), rows, rational(delta), neighbours)


@pytest.mark.parametrize(("rows", "linear", "plain"), [(100, 85.33, 35.17), (400, 164.03, 63.63)])
def test_reference_thresholds(rows, linear, plain):
    """The published figures to the digits they have: within half of the last one."""
    assert abs(smallest_threshold(1.0, 1e-5, rows) - linear) <= 0.005
    assert abs(smallest_threshold(1.0, 1e-5, rows, "mixing") - plain) <= 0.005


def oracle(g, rows, delta, neighbours, rho=0):
    """The least epsilon by brute force over 20,000 orders, in 40 digits."""
    mpmath.mp.dps = 40
    g = mpmath.mpf(g)
    best = mpmath.inf
    for i in range(1, 4000):
        a = 1 + (g - 1) * mpmath.mpf(i) / 4000
        value = a * mpmath.log(1 - 1 / g) - mpmath.log(1 - a / g)
        if neighbours == "replace-one":
            value += a * mpmath.log(1 + 1 / g) - mpmath.log(1 + a / g)
        value = rows * value / (2 * (a - 1)) + a * rho
        best = min(best, value + mpmath.log(1 - 1 / a) - mpmath.log(a * mpmath.mpf(delta)) / (a - 1))
    return best


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize(("g", "rows", "delta"), [(35.17, 100, "1e-5"), (3.0, 4, "0.01"), (800.0, 1000, "1e-9")])
def test_epsilon_is_the_least_over_the_orders(g, rows, delta, neighbours):
    """Never above what a grid of orders gives; below it by the grid's coarseness only (a parabola: 1e-4)."""
    found = mixing_epsilon(g, rows, float(delta), neighbours)
    best = float(oracle(g, rows, delta, neighbours))
    assert best * (1 - 1e-4) <= found <= best * (1 + 1e-12)


def test_the_search_never_lands_where_the_divergence_is_infinite():
    for g in (1.0001, 1.5, 2.5, 10.0, 1e4, 1e9):
        for rows in (1, 100, 10**6):
            for delta in (0.5, 1e-5, 1e-15):
                value = mixing_epsilon(g, rows, delta)
                assert math.isfinite(value)
                assert value >= 0


@pytest.mark.parametrize("order", [1.0, 0.5, 40.0, 41.0, math.nan])
def test_phi_refuses_orders_outside(order):
    with pytest.raises(UserError, match="infinite"):
        phi(order, 100, 40.0)


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
@pytest.mark.parametrize("method", ["mixing", "linear-mixing"])
def test_the_least_threshold_holds_and_is_least(method, neighbours):
    for epsilon, delta, rows in ((1.0, 1e-5, 100), (0.05, 1e-9, 30), (8.0, 1e-6, 2000)):
        g = smallest_threshold(epsilon, delta, rows, method, neighbours)

        def figure(g):
            if method == "mixing":
                return mixing_epsilon(g, rows, delta, neighbours)  # noqa: B023
            numbers = *map(rational, (g / math.sqrt(rows), g)), rows, rational(delta)  # noqa: B023
            return exact(modified, *numbers, neighbours)

        assert figure(g) <= epsilon
        assert figure(g * (1 - 1e-9)) > epsilon


@pytest.mark.parametrize("neighbours", NEIGHBOURS)
def test_joint_settings_hold_and_need_less(neighbours):
    for epsilon, delta, rows in ((1.0, 1e-5, 100), (0.1, 1e-6, 1000), (5.0, 1e-6, 50)):
        g, eta, tau = joint_settings(epsilon, delta, rows, neighbours)
        assert joint_epsilon(eta, tau, g, rows, delta, neighbours) <= epsilon
        # The sensitivity in lattice steps is an integer: a relative step of eta / 2^20 in the figure.
        assert joint_epsilon(eta, tau, g * (1 - 1e-4), rows, delta, neighbours) > epsilon
        published = smallest_threshold(epsilon, delta, rows, "linear-mixing", neighbours)
        needs = published * (1 + math.sqrt(2 * math.log(3 / delta) / rows))
        assert g + eta * tau < 0.75 * needs


def test_joint_epsilon_against_brute_force():
    eta, tau, delta = 6.2, 4.7, mpmath.mpf("1e-5")
    left = delta - mpmath.ncdf(-tau)
    best = float(oracle(45.0, 100, left, "zero-out", 1 / (2 * mpmath.mpf(eta) ** 2)))
    # The tail's bound is at most 1 / tau^2 = 4.5% above the tail, itself 13% of delta; the eigenvalue's slack is
    # 2^-10 of its sensitivity.
    assert best * (1 - 1e-4) <= joint_epsilon(eta, tau, 45.0, 100, 1e-5) <= best * 1.003


def test_the_published_eigenvalue_figure_is_used_only_where_it_holds():
    """At epsilon = 10 the textbook's Gaussian noise breaks its promise (delta 2.27 times too large)."""
    size = math.sqrt(2 * math.log(3.75e5))
    assert exact(eigenvalue, rational(10.0), rational(1e-5)) == pytest.approx(size / 10, rel=1e-12)
    eta = size / 12
    mu = 1 / eta
    true = mpmath.ncdf(mu / 2 - 12 / mu) - mpmath.exp(12) * mpmath.ncdf(-mu / 2 - 12 / mu)
    assert true > 1e-5 / 3
    found = exact(eigenvalue, rational(eta), rational(1e-5))
    assert found > 12.1
    assert mpmath.ncdf(mu / 2 - found / mu) - mpmath.exp(found) * mpmath.ncdf(-mu / 2 - found / mu) <= 1e-5 / 3


@pytest.mark.parametrize(
    "call",
    [
        lambda: mixing_epsilon(1.0, 100, 1e-5),
        lambda: mixing_epsilon(40.0, 0, 1e-5),
        lambda: mixing_epsilon(40.0, 100, 0.0),
        lambda: mixing_epsilon(40.0, 100, 1e-5, "remove"),
        lambda: smallest_threshold(0.0, 1e-5, 100),
        lambda: smallest_threshold(1e-9, 1e-5, 10**6),
    ],
)
def test_impossible_parameters_are_refused(call):
    with pytest.raises(UserError):
        call()


def test_an_eigenvalue_costs_no_less_than_its_formula_in_more_digits():
    """Either the published figure or the one of Gaussian noise, and a part in 10^29 more at the most."""
    delta, seen = Fraction(1, 10**6), set()
    for eta in (Fraction(1, 7), Fraction(1, 3), Fraction(3), Fraction(20)):
        with precise():
            found = eigenvalue(eta, delta)
        with localcontext(prec=120):
            mu = steps(eta) / Decimal(2**40 - 9).sqrt()
            published = (2 * (Decimal("3.75e6")).ln()).sqrt() / (Decimal(eta.numerator) / eta.denominator)
            gaussian = mu * mu / 2 + mu * (2 * Decimal("1.5e6").ln()).sqrt()
            [which] = [one for one in (published, gaussian) if one <= found <= one * (1 + Decimal("1e-29"))]
            seen.add(which is published)
    assert seen == {True, False}


def test_a_tail_that_takes_all_of_delta_leaves_nothing(monkeypatch):
    delta = Fraction(1, 1000)
    settings = (Fraction(1), Fraction(6), Fraction(40), 100, delta, "zero-out")
    with precise():
        assert joint(*settings).is_finite()
        monkeypatch.setattr(renyi, "tail", lambda tau: decimal(delta))
        assert joint(*settings) == Decimal("Infinity")
        monkeypatch.setattr(renyi, "tail", lambda tau: decimal(delta) * (1 - Decimal("1e-40")))
        assert joint(*settings).is_finite()


def test_norms_have_limits():
    def made(bound):
        return GaussMixMechanism.calibrate(
            ApproxDP(1.0, 1e-5), rows=100, columns=3, feature_bound=bound, target_bound=bound, method="mixing"
        )

    for bound in (1e-100, 1e100):
        assert made(bound)
    for bound in (0.9e-100, 1.1e100, 0.0, -1.0, math.nan, math.inf, True, "1"):
        with pytest.raises(UserError, match=r"is not a bound on a norm; it needs a number above 0 \(from 1e-100 to"):
            made(bound)
