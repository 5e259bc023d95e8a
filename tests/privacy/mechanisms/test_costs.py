"""What a release costs in each currency, against figures computed in another way, with another library.

On every pair of mechanism and currency the cost is never below the exact loss, and above it by less than a unit (for
several parts: by less than a unit each).
"""

import math

import mpmath
import pytest

from murk.errors import UserError
from murk.privacy import (
    ApproxDP,
    CompositeMechanism,
    GaussianDP,
    GaussianMechanism,
    GaussMixMechanism,
    L2BallMechanism,
    LaplaceMechanism,
    PrivUnitMechanism,
    PureDP,
    RandomizedResponse,
    cap_of,
)

WIDTH = 2**20
STEPS = [1, 2, 3, 17, 1000, 65_537, 524_287, 524_288, 2**20 + 7, 12_345_678, 2**31 - 1]
EPSILONS = [1e-9, 1e-4, 0.01, 0.1, 1 / 3, 0.5, 1.0, 2.0, 4.6, 7.5, 20.0, 44.0]
CURRENCIES = ["gdp", "rho", "epsilon", "approx"]


def quantile(tail):
    """z with 1 - Phi(z) = tail, found by bisection."""
    low, high = mpmath.mpf(-20), mpmath.mpf(20)
    for _ in range(280):
        middle = (low + high) / 2
        if mpmath.erfc(middle / mpmath.sqrt(2)) / 2 > tail:
            low = middle
        else:
            high = middle
    return high


def pure_mu(epsilon):
    """2 Phi^-1(e^epsilon / (1 + e^epsilon)), from the smaller error 1 / (1 + e^epsilon)."""
    return 2 * quantile(1 / (1 + mpmath.exp(epsilon)))


def response_mu(mechanism):
    """Phi^-1(1 - q) + Phi^-1(p) of keeping a category with probability p, or releasing a given other one with q."""
    other = mpmath.mpf(mechanism.other) / 2**64
    return quantile(other) + quantile((mechanism.classes - 1) * other)


def losses(mechanism):
    """The exact loss of a mechanism in each currency in which it has one."""
    if isinstance(mechanism, CompositeMechanism):
        parts = [losses(part) for part in mechanism.parts]
        return {name: sum(part[name] for part in parts) for name in parts[0] if all(name in part for part in parts)}
    if isinstance(mechanism, GaussianMechanism):
        steps = mpmath.mpf(mechanism.steps)
        return {"gdp": (2 * steps) ** 2 / (mpmath.mpf(WIDTH) ** 2 - 9), "rho": 2 * (steps / WIDTH) ** 2}
    if isinstance(mechanism, LaplaceMechanism):
        epsilon = mpmath.mpf(2 * mechanism.steps) / WIDTH
    elif isinstance(mechanism, PrivUnitMechanism):
        epsilon = mpmath.log(mpmath.mpf(mechanism.odds[0]) / mechanism.odds[1])
    else:
        other = mechanism.other if isinstance(mechanism, RandomizedResponse) else 2**64 - mechanism.threshold
        epsilon = mpmath.log(mpmath.mpf(mechanism.threshold) / other)
    several = isinstance(mechanism, RandomizedResponse) and mechanism.classes > 2
    square = (response_mu(mechanism) if several else pure_mu(epsilon)) ** 2
    rho = min(epsilon**2, square) / 2 if several else epsilon**2 / 2
    return {"gdp": square, "rho": rho, "epsilon": epsilon, "approx": epsilon}


RESPONSES = [RandomizedResponse.calibrate(PureDP(e), classes=k) for e in EPSILONS for k in (2, 5)]
GRID = [
    *(GaussianMechanism(1, 1.0, steps) for steps in STEPS),
    *(LaplaceMechanism(1, 1.0, steps) for steps in STEPS[:-1]),
    *(L2BallMechanism.calibrate(PureDP(e), dimension=3, radius=1.0) for e in EPSILONS),
    L2BallMechanism(3, 1.0, 2**63 + 1),
    *(PrivUnitMechanism.calibrate(PureDP(e), dimension=3, radius=1.0) for e in EPSILONS),
    L2BallMechanism(3, 1.0, 2**64 - 1),
    *RESPONSES,
    CompositeMechanism((GaussianMechanism(2, 1.0, 300_000), RESPONSES[8], RESPONSES[14])),
    CompositeMechanism((RESPONSES[8], RESPONSES[12])),
]


@pytest.fixture(scope="module")
def exact_losses():
    """The exact losses of each mechanism of the grid."""
    with mpmath.workdps(90):
        return [losses(mechanism) for mechanism in GRID]


@pytest.mark.parametrize("currency", CURRENCIES)
def test_a_cost_is_the_exact_loss_rounded_up(exact_losses, currency):
    for mechanism, known in zip(GRID, exact_losses, strict=True):
        with mpmath.workdps(90):
            exact = known.get(currency)
            if exact is None:
                with pytest.raises(UserError):
                    mechanism.cost(currency)
                continue
            cost = mechanism.cost(currency)
            parts = len(getattr(mechanism, "parts", "1"))
            assert cost.currency == currency
            assert 0 <= cost.units - exact * 10**12 < parts, (mechanism, cost)
            assert cost.delta_units == 0


@pytest.mark.parametrize("stated", [ApproxDP(1.0, 1e-6), ApproxDP(1 / 3, 1e-5 / 3)])
def test_a_stated_point_costs_what_it_says_and_holds_at_it(stated):
    gaussian = GaussianMechanism.calibrate(stated, dimension=2, radius=1.0)
    sketch = GaussMixMechanism.calibrate(stated, rows=50, columns=3, feature_bound=1.0, target_bound=1.0)
    for mechanism in (gaussian, sketch):
        assert mechanism.cost("approx") == cap_of(stated)
    cost = gaussian.cost("approx")
    with mpmath.workdps(60):
        mu = 2 * gaussian.steps / mpmath.sqrt(mpmath.mpf(WIDTH) ** 2 - 9)
        epsilon = mpmath.mpf(cost.units) / 10**12
        z, root = epsilon / mu - mu / 2, mpmath.sqrt(2)
        delta = (mpmath.erfc(z / root) - mpmath.exp(epsilon) * mpmath.erfc((z + mu) / root)) / 2
        assert delta <= mpmath.mpf(cost.delta_units) / 10**15


def test_a_sketch_has_no_figure_in_gdp_and_says_so():
    sketch = GaussMixMechanism.calibrate(ApproxDP(1.0, 1e-6), rows=50, columns=3, feature_bound=1.0, target_bound=1.0)
    with pytest.raises(UserError, match=r"no cost in gdp.*it has no GDP"):
        sketch.cost("gdp")


def test_pure_releases_under_a_cap_of_mu():
    pure = L2BallMechanism.calibrate(PureDP(1.0), dimension=3, radius=1.0).cost("gdp")
    assert math.sqrt(pure.units / 10**12) == pytest.approx(1.2320, abs=1e-4)
    assert not pure <= cap_of(GaussianDP(1.0))
    assert pure * 2 <= cap_of(GaussianDP(2.0))
    assert not pure * 3 <= cap_of(GaussianDP(2.0))


@pytest.mark.parametrize("mu", [2e-6, 3.9e-6, 1e-3 / 3, 0.05, 0.1, 1 / 3, 0.7, 1.0, 2 / 3, 3.3, 4.6, 5.0, 40.0])
def test_a_release_at_the_guarantee_fits_under_its_cap_and_uses_it(mu):
    guarantee = GaussianDP(mu)
    cap = cap_of(guarantee)
    made = [GaussianMechanism.calibrate(guarantee, dimension=1, radius=1.0)]
    made.append(LaplaceMechanism.calibrate(guarantee, dimension=1, radius=1.0)) if mu > 1e-5 else None
    made.append(L2BallMechanism.calibrate(guarantee, dimension=1, radius=1.0))
    for mechanism in made:
        cost = mechanism.cost("gdp")
        assert cost <= cap
        # Pure ones are held to mu by rho, too, from 4.6 on; a lattice step is the coarser the smaller mu.
        if mu <= 4.6 and mu > 1e-3:
            assert cost.units >= cap.units * (1 - 1e-4)


def test_what_is_calibrated_to_a_mu_is_what_it_was():
    # Learners and devices must agree on these integers, whatever their versions.
    assert [GaussianMechanism.calibrate(GaussianDP(mu), dimension=1, radius=1.0).steps for mu in (0.1, 1.0, 3.3)] == [
        52_428, 524_287, 1_730_150
    ]  # fmt: skip
    ball = [L2BallMechanism.calibrate(GaussianDP(mu), dimension=1, radius=1.0).threshold for mu in (0.1, 1.0, 8.0)]
    assert ball == [9_591_178_085_287_480_737, 12_755_231_059_695_234_786, 18_440_557_955_677_751_386]
