"""The tight analysis against the distributions themselves: chi-square, quadrature, and random windows."""

import math
from decimal import Decimal

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from murk.privacy import ApproxDP, GaussMixMechanism
from murk.privacy.central import joint_settings, smallest_threshold
from murk.privacy.central import sketch_tight as tight
from murk.privacy.central import sketch_tight as tight_settings
from murk.privacy.rounding import precise
from tests.privacy.gaussmix.test_claim import gaussian_divergence, mixing_delta, replaced_delta, signed_delta

SETTINGS = [(100, 1.0, 1e-5), (400, 1.0, 1e-5), (50, 3.0, 1e-6), (1000, 0.1, 1e-6)]


@pytest.mark.parametrize(
    ("rows", "noise", "epsilon"), [(100, 30.0, 1.0), (7, 3.0, 2.0), (1, 0.1, 5.0), (4096, 170.0, 0.3)]
)
def test_mixings_delta_is_that_of_chi_square(rows, noise, epsilon):
    with precise():
        found = float(tight.mixing_delta(Decimal(noise), rows, Decimal(epsilon)))
    assert found == pytest.approx(mixing_delta(noise + 1, rows, epsilon), rel=1e-8)


@pytest.mark.parametrize(("rows", "epsilon", "delta"), SETTINGS)
def test_mixing_takes_no_more_noise_than_it_must(rows, epsilon, delta):
    """The noise itself, and the row's own C^2 on top of it; with one part in a thousand less it does not hold."""
    noise = tight_settings.mixing_noise(epsilon, delta, rows)
    assert mixing_delta(noise + 1, rows, epsilon) <= delta
    assert mixing_delta(0.999 * noise + 1, rows, epsilon) > delta
    assert noise < 0.96 * smallest_threshold(epsilon, delta, rows, "mixing")


@pytest.mark.parametrize(("rows", "epsilon", "delta"), SETTINGS)
def test_no_smaller_multiple_would_do(rows, epsilon, delta):
    """The noise is the least of the grid with which the analysis holds, and not one or two steps more."""
    step = 2.0**-12
    mixing, replaced = (
        found(epsilon, delta, rows) for found in (tight_settings.mixing_noise, tight_settings.replaced_noise)
    )
    with precise():
        assert tight.mixing_delta(Decimal(mixing), rows, Decimal(epsilon)) <= Decimal(delta)
        assert tight.mixing_delta(Decimal(mixing - step), rows, Decimal(epsilon)) > Decimal(delta)
        assert tight.replaced(Decimal(replaced), rows, Decimal(delta)) <= Decimal(epsilon)
        assert tight.replaced(Decimal(replaced - step), rows, Decimal(delta)) > Decimal(epsilon)


@pytest.mark.parametrize(("rows", "epsilon", "delta"), SETTINGS)
def test_replaced_rows(rows, epsilon, delta):
    """Exact delta of variances s + 1, s against s, s + 1; the oracle has the first direction's less one."""
    noise = tight_settings.replaced_noise(epsilon, delta, rows)

    def given(u):
        from scipy.stats import chi2

        square = chi2.isf(u, rows)
        return signed_delta(noise + 1, rows, epsilon - (rows / 2 * math.log1p(1 / noise) - square / (2 * (noise + 1))))

    assert quad(given, 0, 1, epsabs=1e-12, epsrel=1e-6, limit=200)[0] <= delta
    assert noise < smallest_threshold(epsilon, delta, rows, "mixing", "replace-one")
    assert replaced_delta(0.9 * noise, rows, epsilon) > delta


def test_no_pair_of_rows_is_worse_than_the_worst():
    """2,000 random windows and pairs of rows, of any length: none beyond the curve, some close to it."""
    rng = np.random.default_rng(5)
    closest = 0.0
    for _ in range(2000):
        d, noise = int(rng.integers(2, 4)), float(np.exp(rng.uniform(-1, 4)))
        order = 1 + noise * rng.uniform(0.01, 0.95)
        shared = np.diag(rng.exponential(size=d) * rng.integers(0, 2, d)) + noise * np.eye(d)
        leaves, enters = rng.normal(size=(2, d))
        leaves *= rng.uniform(0.5, 1) ** 0.1 / np.linalg.norm(leaves)
        enters *= rng.uniform(0.5, 1) ** 0.1 / np.linalg.norm(enters)
        first, second = (shared + np.outer(row, row) for row in (leaves, enters))
        bound = -(math.log1p(-order / (noise + 1)) + math.log1p(order / noise)) / (2 * (order - 1))
        found = gaussian_divergence(order, first, second)
        assert found <= bound * (1 + 1e-9)
        closest = max(closest, found / bound)
    assert closest > 0.9


def pair_delta(g, eta, tau, rows, epsilon, low, step):
    """The exact delta of eigenvalue and sketch, both ways, of the worst pair with eigenvalues low and low + step.

    The released eigenvalue is cut at 0; of what lies below, only its probabilities are known.
    """

    def threshold(u):
        return low + 1 + max(g - max(u, 0.0), 2.0**-16)

    def back(level, m):
        from scipy.stats import chi2

        cut = max(0.0, (-level - rows / 2 * math.log1p(-1 / m)) * 2 * m * (m - 1))
        return chi2.cdf(cut / (m - 1), rows) - math.exp(level) * chi2.cdf(cut / m, rows)

    def total(first, second, one):
        at = first - eta * tau

        def given(z):
            loss = ((z * eta + first - second) ** 2 - (z * eta) ** 2) / (2 * eta**2)
            return norm.pdf(z) * max(one(epsilon - loss, threshold(at + eta * z)), 0.0)

        here, there = norm.cdf(tau - first / eta), norm.cdf(tau - second / eta)
        cut = here * max(one(epsilon - math.log(here / there), threshold(0.0)), 0.0) if here > 1e-300 else 0.0
        start = max(tau - first / eta, -10.0)
        return cut + (quad(given, start, 10, epsabs=1e-13, limit=400)[0] if start < 10 else 0.0)

    return max(total(low + step, low, lambda level, m: signed_delta(m, rows, level)), total(low, low + step, back))


@pytest.mark.parametrize(("rows", "epsilon", "delta"), SETTINGS[2:])
def test_linear_mixing_whatever_the_eigenvalue(rows, epsilon, delta):
    """From windows without an eigenvalue to such as need no noise, and sensitivities from 0 to 1: all hold.

    With noise and threshold 15% lower some do not; and the settings need less of both than the joint analysis.
    """
    g, eta, tau = tight_settings.settings(epsilon, delta, rows)
    needed = g + eta * tau
    places = [(share * needed, step) for share in (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 1.3) for step in (1.0, 0.5, 0.0)]
    assert all(pair_delta(g, eta, tau, rows, epsilon, *place) <= delta for place in places)
    assert any(pair_delta(0.85 * g, 0.85 * eta, tau, rows, epsilon, *place) > delta for place in places)
    before = joint_settings(epsilon, delta, rows)
    assert needed < 0.97 * (before[0] + before[1] * before[2])
    assert g < before[0]


@pytest.mark.parametrize("order", [8.0])
def test_the_moment_is_no_less_than_the_laws(order):
    """F(L, 1) of windows by quadrature, with z > Z left out: below the bound everywhere, and close to it somewhere."""
    g, eta, tau, rows, reach = 40.0, 8.0, 3.0, 100, 4.9
    bound = tight.log_moment(order, g, eta, tau, 1.0, rows, reach)
    shift = order / eta

    def rho(m):
        return math.exp(float(tight.forward(order, rows, np.array([m]))[0]))

    found = []
    for low in np.linspace(0, 90, 31):
        at = low - eta * tau

        def given(y, at=at, low=low):
            return norm.pdf(y) * rho(low + 1 + max(g - max(at + eta * (y + shift), 0.0), 0.0))

        first, second = norm.cdf(-(at + 1) / eta), norm.cdf(-at / eta)
        end, start = reach - (order - 1) / eta, max(-at / eta - shift, -12.0)
        integral = quad(given, start, end, epsabs=0, epsrel=1e-9, limit=200)[0] if start < end else 0.0
        atom = math.exp(order * math.log(first) + (1 - order) * math.log(second)) * rho(low + 1 + g)
        found.append(math.log(atom + math.exp(order * (order - 1) / (2 * eta**2)) * integral))
    assert max(found) <= bound
    # In epsilon, within a percent or two; the twin, of a mechanism with a tenth more noise, is below.
    assert (bound - max(found)) / (order - 1) < 0.02
    assert max(found) > tight.log_moment(order, 1.1 * g, 1.1 * eta, tau, 1.0, rows, reach)


def test_calibrated_mechanisms_say_what_they_rest_on():
    shape = {"rows": 100, "columns": 4, "feature_bound": 1.5, "target_bound": 1.0, "analysis": "tight"}
    mixing = GaussMixMechanism.calibrate(ApproxDP(1.0, 1e-5), method="mixing", **shape)
    assert mixing.g == pytest.approx(30.66, abs=0.01)
    linear = GaussMixMechanism.calibrate(ApproxDP(1.0, 1e-5), **shape)
    assert (linear.g, linear.eta, linear.tau) == tight_settings.settings(1.0, 1e-5, 100)
    # A large budget: less noise than the square of C, and no eigenvalue.
    large = GaussMixMechanism.calibrate(ApproxDP(60.0, 0.01), **shape)
    assert large.g < 1
    assert not large.releases_eigenvalue
    for mechanism in (mixing, linear, large):
        assert mechanism.replace_one().epsilon > mechanism.stated.epsilon
        assert mechanism.spread(0.0) ** 2 == pytest.approx(mechanism.g, rel=1e-9)


@pytest.mark.parametrize(("order", "width"), [(1.5, 4.0), (3.0, 8.0), (1.01, 1.2)])
def test_moments_of_normals_are_their_integrals(order, width):
    for found, p, q in ((tight.forward, width, width - 1), (tight.reverse, width - 1, width)):
        one, other = norm(scale=math.sqrt(p)), norm(scale=math.sqrt(q))
        moment, _ = quad(lambda x: math.exp(order * one.logpdf(x) + (1 - order) * other.logpdf(x)), -80, 80, limit=400)  # noqa: B023
        assert found(order, 7, np.array([width]))[0] == pytest.approx(7 * math.log(moment), abs=1e-7)
