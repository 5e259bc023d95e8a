"""Conversions: the papers' figures, independent oracles (mpmath, dp-accounting), rounding against the claim."""

import math
from decimal import Decimal
from fractions import Fraction

import dp_accounting
import mpmath
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from murk.errors import UserError
from murk.privacy import conversions
from murk.privacy.conversions import (
    classic_scale,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    gdp_to_pure,
    pure_delta,
    pure_epsilon,
    pure_to_gdp,
    zcdp_delta,
    zcdp_epsilon,
)
from murk.privacy.rounding import float_down, float_up, gdp_delta_bound, log_odds_bounds, rational


def logarithmic(low, high):
    """Floats spread evenly over the orders of magnitude."""
    return st.floats(math.log10(low), math.log10(high)).map(lambda power: 10.0**power)


mus = logarithmic(1e-6, 1e3)
epsilons = st.one_of(st.just(0.0), logarithmic(1e-9, 1e5))
deltas = logarithmic(1e-15, 0.9)


def meaning(value):
    """A float as its shortest decimal, in mpmath."""
    return mpmath.mpf(repr(float(value)))


def oracle_delta(mu, epsilon):
    """delta(epsilon) of mu-GDP with as many digits as the cancellation takes."""
    with mpmath.workdps(80):
        m, e = meaning(mu), meaning(epsilon)
        z = e / m - m / 2
        if z < 30:
            return mpmath.ncdf(-z) - mpmath.exp(e) * mpmath.ncdf(-z - m)
        # Far out through erfc alone, whose relative accuracy mpmath keeps.
        root = mpmath.sqrt(2)
        return (mpmath.erfc(z / root) - mpmath.exp(e) * mpmath.erfc((z + m) / root)) / 2


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.1269), (2.0, 0.0209), (3.0, 0.0015)])
def test_delta_of_one_gdp(epsilon, delta):
    assert round(gdp_delta(1.0, epsilon), 4) == delta


@settings(max_examples=60, deadline=None)
@given(mu=mus, epsilon=epsilons)
def test_gdp_delta_is_the_exact_curve_rounded_up(mu, epsilon):
    with mpmath.workdps(80):
        exact = oracle_delta(mu, epsilon)
        claimed = meaning(gdp_delta(mu, epsilon))
        assert claimed >= exact
        assert claimed <= max(exact * (1 + mpmath.mpf(1e-15)), mpmath.mpf(1e-300))


@settings(max_examples=50, deadline=None)
@given(mu=logarithmic(1e-4, 100.0), epsilon=st.one_of(st.just(0.0), logarithmic(1e-4, 1e3)))
def test_the_margin_of_the_certified_curve_covers_its_rounding(mu, epsilon):
    # The bound is the value plus a margin of 1e-48 or so; what was computed must be far closer than that.
    with mpmath.workdps(200):
        m, e = meaning(mu), meaning(epsilon)
        z = e / m - m / 2
        root = mpmath.sqrt(2)
        near, far = mpmath.erfc(z / root) / 2, mpmath.exp(e) * mpmath.erfc((z + m) / root) / 2
        margin = (near + far) * (1 + z * z) * mpmath.mpf("1e-48")
        bound = mpmath.mpf(str(gdp_delta_bound(rational(mu), rational(epsilon))))
        excess = bound - (near - far)
        assert abs(excess - margin) <= margin / 100


def test_gdp_delta_never_claims_nothing_can_happen():
    assert gdp_delta(1e-6, 1.0) > 0


@settings(max_examples=40, deadline=None)
@given(mu=mus, delta=deltas)
def test_gdp_epsilon_is_the_least_that_holds(mu, delta):
    epsilon = gdp_epsilon(mu, delta)
    with mpmath.workdps(80):
        assert oracle_delta(mu, epsilon) <= meaning(delta)
        if epsilon > 0:
            assert oracle_delta(mu, epsilon * (1 - 1e-13)) > meaning(delta)


@settings(max_examples=40, deadline=None)
@given(epsilon=epsilons, delta=deltas)
def test_gdp_mu_is_the_largest_that_holds(epsilon, delta):
    mu = gdp_mu(epsilon, delta)
    with mpmath.workdps(80):
        assert oracle_delta(mu, epsilon) <= meaning(delta)
        assert oracle_delta(mu * (1 + 1e-13), epsilon) > meaning(delta)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-9])
def test_analytic_calibration_agrees_with_dp_accounting(epsilon, delta):
    sigma = dp_accounting.get_sigma_gaussian(epsilon, delta)
    assert 1 / gdp_mu(epsilon, delta) == pytest.approx(sigma, rel=1e-6)
    assert gdp_epsilon(1 / sigma, delta) == pytest.approx(epsilon, rel=1e-6)


def test_classic_is_a_third_too_noisy_at_one():
    ratio = classic_scale(1.0, 1.0, 1e-5) * gdp_mu(1.0, 1e-5)
    assert ratio == pytest.approx(1.30, abs=0.005)


def test_classic_breaks_its_promise_at_ten():
    mu = 1 / classic_scale(1.0, 10.0, 1e-5)
    assert gdp_delta(mu, 10.0) == pytest.approx(2.27e-5, abs=0.005e-5)


@settings(max_examples=40, deadline=None)
@given(epsilon=logarithmic(1e-9, 1e5))
def test_pure_and_gdp_are_inverse_and_rounded_apart(epsilon):
    mu = pure_to_gdp(epsilon)
    assert log_odds_bounds(rational(mu))[0] >= rational(epsilon)
    assert log_odds_bounds(rational(mu * (1 - 1e-14)))[1] < rational(epsilon)
    assert gdp_to_pure(mu) == pytest.approx(epsilon, rel=1e-12)
    assert gdp_to_pure(mu * (1 - 1e-14)) <= epsilon


@pytest.mark.parametrize("mu", [0.01, 1.0, 6.0, 30.0])
def test_gdp_to_pure_by_its_formula(mu):
    with mpmath.workdps(400):
        half = mpmath.mpf(mu) / 2
        exact = mpmath.log(mpmath.ncdf(half) / mpmath.ncdf(-half))
        assert exact >= meaning(gdp_to_pure(mu)) >= exact * (1 - mpmath.mpf(1e-15))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_the_gdp_of_pure_covers_randomized_response_and_no_less_would(epsilon):
    mu = pure_to_gdp(epsilon)
    points = [epsilon * k / 50 for k in range(50)]
    assert all(pure_delta(epsilon, at) <= gdp_delta(mu, at) for at in points)
    # The twin: 1% less, and randomized response is told apart better than claimed.
    assert any(pure_delta(epsilon, at) > gdp_delta(0.99 * mu, at) for at in points)


@settings(max_examples=50, deadline=None)
@given(epsilon=logarithmic(1e-9, 1e5), share=st.floats(0.0, 1.0))
def test_pure_delta_and_epsilon(epsilon, share):
    at = share * epsilon
    delta = pure_delta(epsilon, at)
    with mpmath.workdps(60):
        e, a = meaning(epsilon), meaning(at)
        exact = max((1 - mpmath.exp(a - e)) / (1 + mpmath.exp(-e)), mpmath.mpf(0))
        assert exact <= meaning(delta) <= exact * (1 + mpmath.mpf(1e-15)) + mpmath.mpf(1e-44)
    if 0 < delta < 1:
        back = pure_epsilon(epsilon, delta)
        assert back <= at * (1 + 1e-12) + 1e-15
        if back > 0:
            assert pure_delta(epsilon, back) <= delta * (1 + 1e-9) + 1e-15


def test_pure_without_delta_is_itself():
    assert pure_epsilon(0.1, 0.0) == 0.1
    assert pure_delta(0.1, 0.1) == 0.0


def test_pure_delta_agrees_with_dp_accounting():
    # k-ary response keeps with probability 1 - p (k - 1)/k: p = 2/(1 + e) for k = 2 and epsilon = 1.
    oracle = privacy_loss_distribution.from_randomized_response(2 / (1 + math.e), 2, value_discretization_interval=1e-4)
    for at in (0.0, 0.25, 0.75):
        assert pure_delta(1.0, at) == pytest.approx(oracle.get_delta_for_epsilon(at), abs=1e-4)


@pytest.mark.parametrize("rho", [0.001, 0.1, 0.5, 4.0, 50.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-12])
def test_zcdp_epsilon_is_the_best_order_and_beats_dp_accounting(rho, delta):
    accountant = dp_accounting.rdp.RdpAccountant(orders=[1 + 1.05**k / 100 for k in range(250)]).compose(
        dp_accounting.GaussianDpEvent(1 / math.sqrt(2 * rho))
    )
    theirs = accountant.get_epsilon(delta)
    ours = zcdp_epsilon(rho, delta)
    # Theirs tries a grid of orders and another formula where it is better; the exact curve is below both.
    assert ours == pytest.approx(theirs, rel=5e-3)
    assert ours <= theirs * (1 + 1e-9)
    assert ours >= gdp_epsilon(math.sqrt(2 * rho), delta)


@settings(max_examples=40, deadline=None)
@given(rho=logarithmic(1e-9, 1e4), delta=logarithmic(1e-15, 0.5))
def test_zcdp_delta_and_epsilon_are_inverse(rho, delta):
    epsilon = zcdp_epsilon(rho, delta)
    if epsilon > 1e-9 * rho:
        assert zcdp_delta(rho, epsilon) == pytest.approx(delta, rel=1e-3)
    assert zcdp_epsilon(rho, delta) >= gdp_epsilon(math.sqrt(2 * rho) * (1 - 1e-9), delta) * (1 - 1e-9)


RANGED = (
    "gdp_delta", "gdp_epsilon", "gdp_mu", "gdp_to_pure", "pure_delta", "pure_epsilon", "pure_to_gdp", "zcdp_delta",
    "zcdp_epsilon",
)  # fmt: skip


def test_nothing_spent_is_nothing():
    assert gdp_delta(0.0, 0.0) == gdp_epsilon(0.0, 0.1) == pure_to_gdp(0.0) == gdp_to_pure(0.0) == 0.0
    assert zcdp_epsilon(0.0, 0.1) == zcdp_delta(0.0, 0.0) == pure_delta(0.0, 0.0) == 0.0


@pytest.mark.parametrize("name", RANGED)
@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_parameters_out_of_range_are_refused(name, bad):
    function = getattr(conversions, name)
    arguments = [bad] if name in ("pure_to_gdp", "gdp_to_pure") else [bad, 0.5]
    with pytest.raises(UserError, match="out of range"):
        function(*arguments)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-9, 1.5])
def test_impossible_deltas_are_refused(delta):
    for function in (gdp_epsilon, gdp_mu, zcdp_epsilon):
        with pytest.raises(UserError, match="delta"):
            function(1.0, delta)


@given(st.floats(0.0, 1e9, allow_subnormal=False), st.integers(-3, 3))
def test_rounding_a_float_is_exact_and_minimal(value, nudge):
    exact = rational(value) * (1 + rational(nudge * 1e-17))
    up, down = float_up(exact), float_down(exact)
    assert rational(down) <= exact <= rational(up)
    assert math.nextafter(math.nextafter(down, math.inf), math.inf) >= up
    assert float_up(rational(value)) == value == float_down(rational(value))


def test_a_float_means_its_shortest_decimal():
    assert rational(0.1) * 10 == 1
    assert rational(1e-6) * 10**6 == 1


# The edges of 64-bit floats, and what lies between: no parameter in range ends in an error of arithmetic.
EDGES = [0.0, 5e-324, 1e-310, 2.3e-308, 1e-300, 1e-154, 1e-60, 1e-20, 1.0, 1e15, 1e19, 1e100, 1.4e154, 1e300, 1.7e308]
whatever = st.one_of(
    st.sampled_from(EDGES), st.floats(0, allow_nan=False, allow_infinity=False), logarithmic(1e-308, 1e308)
)
EVERY_CONVERSION = [
    gdp_delta, gdp_epsilon, gdp_mu, gdp_to_pure, pure_delta, pure_epsilon, pure_to_gdp, zcdp_delta, zcdp_epsilon,
]  # fmt: skip


@pytest.mark.parametrize("convert", EVERY_CONVERSION)
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_no_parameter_ends_in_an_error_of_arithmetic(convert, data):
    parameters = [data.draw(whatever) for _ in range(2)]
    if convert in (gdp_to_pure, pure_to_gdp):
        parameters.pop()
    elif convert in (gdp_epsilon, gdp_mu, pure_epsilon, zcdp_epsilon):
        parameters[1] = data.draw(st.one_of(logarithmic(1e-308, 0.9), st.sampled_from([5e-324, 1e-300, 1 - 2**-53])))
    assert convert(*parameters) >= 0.0  # and no NaN


def test_where_zero_division_was():
    # total variation 2 Phi(mu / 2) - 1 = mu / sqrt(2 pi) near 0
    assert gdp_mu(0.0, 1e-300) == pytest.approx(math.sqrt(2 * math.pi) * 1e-300, rel=1e-15)
    assert gdp_delta(1e-300, 0.0) == pytest.approx(1e-300 / math.sqrt(2 * math.pi), rel=1e-15)
    assert 0 < gdp_mu(0.0, 5e-324) <= 1.5e-323
    assert gdp_to_pure(1e16) == pytest.approx(1e32 / 8, rel=1e-12)
    assert pure_to_gdp(1e100) == pytest.approx(math.sqrt(8e100), rel=1e-12)
    assert gdp_epsilon(1.4e154, 1e-6) == pytest.approx(0.98e308, rel=1e-12)
    assert gdp_epsilon(1e300, 1e-6) == math.inf
    assert gdp_delta(1e300, 1.0) == zcdp_delta(1e300, 1.0) == 1.0
    assert classic_scale(1.0, 1.0, 5e-324) == pytest.approx(math.sqrt(2 * (math.log(1.25) + 744.44)), rel=1e-5)


@pytest.mark.parametrize("power", [-320, -300, -100, -49, -30, -21, -20, -19, -10])
def test_small_figures_are_exact_to_the_last_bits(power):
    """Both sides of where slopes take over, against mpmath; the claim is never below the exact value."""
    mu = float(f"1e{power}")
    with mpmath.workdps(700):
        tail = mpmath.ncdf(meaning(mu) / 2)
        for epsilon in (0.0, mu, 3 * mu):
            exact = oracle_small(mu, epsilon)
            assert exact <= meaning(gdp_delta(mu, epsilon)) <= exact * (1 + mpmath.mpf(2) ** -51) + math.ulp(0.0)
        odds = mpmath.log(tail / (1 - tail))
        assert odds * (1 - mpmath.mpf(2) ** -51) - math.ulp(0.0) <= meaning(gdp_to_pure(mu)) <= odds
    assert pure_to_gdp(gdp_to_pure(mu)) == pytest.approx(mu, rel=2**-50, abs=3 * math.ulp(0.0))


def oracle_small(mu, epsilon):
    m, e = meaning(mu), meaning(epsilon)
    z = e / m - m / 2
    return mpmath.ncdf(-z) - mpmath.exp(e) * mpmath.ncdf(-z - m)


def test_rounding_of_what_no_float_holds():
    assert float_up(Decimal("1e999999999")) == math.inf
    assert float_up(Decimal("-1e999999999")) == -float_down(Decimal("1e999999999")) == -1.7976931348623157e308
    assert float_down(Decimal("-1e999999999")) == -math.inf
    assert float_up(Decimal("1e-999999999")) == -float_down(Decimal("-1e-999999999")) == 5e-324
    assert float_down(Decimal("1e-999999999")) == float_up(Decimal("-1e-999999999")) == 0.0
    assert float_up(Fraction(10**308)) == 1e308
