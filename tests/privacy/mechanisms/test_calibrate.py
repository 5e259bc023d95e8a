"""Calibration of every mechanism to every guarantee: never beyond it, never beyond its cap, and no noise wasted."""

import math
from fractions import Fraction

import dp_accounting
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from murk.errors import UserError
from murk.privacy import (
    ApproxDP,
    GaussianDP,
    GaussianMechanism,
    L2BallMechanism,
    LaplaceMechanism,
    PrivacyLoss,
    PrivUnitMechanism,
    PureDP,
    RandomizedResponse,
    ZeroConcentratedDP,
    calibrate,
    cap_of,
)
from murk.privacy.conversions import classic_scale, gdp_delta
from murk.privacy.mechanisms import WIDTH, plain_kind
from murk.privacy.mechanisms.costs import really_given

KINDS = [GaussianMechanism, LaplaceMechanism, L2BallMechanism, PrivUnitMechanism]


def logarithmic(low, high):
    return st.floats(math.log10(low), math.log10(high)).map(lambda power: 10.0**power)


def rounded(values, digits):
    """Also figures as people write them: 0.1, 0.5, 2."""
    return st.one_of(values, values.map(lambda value: float(f"{value:.{digits}g}")))


pures = rounded(logarithmic(1e-5, 50.0), 2).map(PureDP)
gdps = rounded(logarithmic(1e-5, 200.0), 2).map(GaussianDP)
zcdps = rounded(logarithmic(1e-9, 1e4), 2).map(ZeroConcentratedDP)
approxes = st.builds(ApproxDP, rounded(logarithmic(1e-4, 100.0), 2), rounded(logarithmic(1e-14, 0.5), 1))
guarantees = st.one_of(pures, gdps, zcdps, approxes)
dimensions = st.integers(1, 200)
radii = logarithmic(1e-6, 1e6)


def holds(mechanism, guarantee):
    """Whether what the mechanism claims of itself implies what it was calibrated to."""
    return any(claim.implies(guarantee) for claim in mechanism.guarantees)


@settings(max_examples=150, deadline=None)
@given(guarantee=guarantees, dimension=dimensions, radius=radii, cls=st.sampled_from(KINDS))
def test_never_beyond_the_guarantee_nor_its_cap(guarantee, dimension, radius, cls):
    assume(not (cls is GaussianMechanism and isinstance(guarantee, PureDP)))
    mechanism = cls.calibrate(guarantee, dimension=dimension, radius=radius)
    assert holds(mechanism, guarantee)
    cap = cap_of(guarantee)
    assert mechanism.cost(cap.currency) <= cap
    assert mechanism.variance > 0
    assert math.isfinite(mechanism.variance)
    assert mechanism.sensitivity >= 2 * radius


@settings(max_examples=80, deadline=None)
@given(guarantee=guarantees, classes=st.integers(2, 1000))
def test_randomized_response_never_beyond_the_guarantee_nor_its_cap(guarantee, classes):
    response = RandomizedResponse.calibrate(guarantee, classes=classes)
    assert holds(response, guarantee)
    cap = cap_of(guarantee)
    assert response.cost(cap.currency) <= cap


@settings(max_examples=40, deadline=None)
@given(guarantee=st.one_of(gdps, zcdps, approxes))
def test_gaussian_noise_is_the_least_that_integers_allow(guarantee):
    mechanism = GaussianMechanism.calibrate(guarantee, dimension=1, radius=1.0)
    stated = guarantee if isinstance(guarantee, ApproxDP) else None
    if stated is not None:
        # One step more and the exact curve exceeds (epsilon, delta) in the ledger's units.
        with pytest.raises(UserError, match="does not hold"):
            GaussianMechanism(1, 1.0, mechanism.steps + 1, stated)
        assert mechanism.cost("approx") == cap_of(stated)
    else:
        more = GaussianMechanism(1, 1.0, mechanism.steps + 1)
        cap = cap_of(guarantee)
        exceeds = not more.cost(cap.currency) <= cap
        assert exceeds or not holds(more, guarantee)


@settings(max_examples=40, deadline=None)
@given(guarantee=pures)
def test_pure_noise_is_the_least_that_integers_allow(guarantee):
    cap = cap_of(guarantee)
    laplace = LaplaceMechanism.calibrate(guarantee, dimension=1, radius=1.0)
    assert not LaplaceMechanism(1, 1.0, laplace.steps + 1).cost("epsilon") <= cap
    ball = L2BallMechanism.calibrate(guarantee, dimension=1, radius=1.0)
    if guarantee.epsilon < 30:
        assert ball.guarantee.epsilon == pytest.approx(guarantee.epsilon, abs=2e-12, rel=1e-5)


@given(steps=st.integers(1, 2**31 - 1))
def test_costs_are_the_exact_loss_rounded_up(steps):
    gaussian, laplace = GaussianMechanism(1, 1.0, steps), LaplaceMechanism(1, 1.0, steps)
    epsilon = Fraction(2 * steps, WIDTH)
    for mechanism, currency, exact in (
        (gaussian, "rho", Fraction(2 * steps**2, WIDTH**2)),
        (laplace, "epsilon", epsilon),
        (laplace, "approx", epsilon),
        (laplace, "rho", epsilon**2 / 2),
    ):
        assert 0 <= mechanism.cost(currency).units - exact * 10**12 < 1


def test_half_of_one_rho_is_exact():
    mechanism = GaussianMechanism.calibrate(ZeroConcentratedDP(0.5), dimension=3, radius=1.0)
    assert mechanism.steps == WIDTH // 2
    assert mechanism.cost("rho") == PrivacyLoss("rho", 500_000_000_000)
    # As GDP, the lattice's own loss would exceed mu = 1 by 4e-12: one step less.
    assert GaussianMechanism.calibrate(GaussianDP(1.0), dimension=3, radius=1.0).steps == WIDTH // 2 - 1


def test_a_tenth_means_a_tenth():
    # 0.1 as a float is a little more than 1/10: two releases at 0.1 fit under a cap of 0.2, eleven at 1/10 not under 1.
    cost = LaplaceMechanism.calibrate(PureDP(0.1), dimension=1, radius=1.0).cost("epsilon")
    assert cost + cost <= cap_of(PureDP(0.2))
    assert cap_of(PureDP(0.1)) == PrivacyLoss("epsilon", 10**11)
    assert cap_of(PureDP(0.3)).units == 3 * cap_of(PureDP(0.1)).units
    assert cost * 10 <= cap_of(PureDP(1.0))
    assert not cost * 11 <= cap_of(PureDP(1.0))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
def test_analytic_agrees_with_dp_accounting(epsilon, delta):
    mechanism = GaussianMechanism.calibrate(ApproxDP(epsilon, delta), dimension=4, radius=2.0)
    sigma = dp_accounting.get_sigma_gaussian(epsilon, delta) * mechanism.sensitivity
    # The lattice's steps leave up to 1 / steps.
    assert mechanism.scale == pytest.approx(sigma, rel=2 / mechanism.steps + 1e-6)
    assert mechanism.scale >= sigma * (1 - 1e-9)
    assert gdp_delta(mechanism.guarantee.mu, epsilon) <= delta


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_gdp_calibration_agrees_with_dp_accounting(mu):
    mechanism = GaussianMechanism.calibrate(GaussianDP(mu), dimension=4, radius=2.0)
    multiplier = mechanism.scale / mechanism.sensitivity
    for delta in (1e-3, 1e-6):
        theirs = dp_accounting.get_epsilon_gaussian(multiplier, delta)
        assert GaussianDP(mu).to("approx", delta=delta).epsilon == pytest.approx(theirs, rel=1e-4)


def test_classic_noise_by_name():
    guarantee = ApproxDP(1.0, 1e-5)
    classic = GaussianMechanism.calibrate(guarantee, dimension=3, radius=1.0, method="classic")
    analytic = GaussianMechanism.calibrate(guarantee, dimension=3, radius=1.0)
    assert classic.scale == pytest.approx(classic_scale(2.0, 1.0, 1e-5), rel=1e-4)
    assert classic.scale >= classic_scale(2.0, 1.0, 1e-5)
    assert classic.scale / analytic.scale == pytest.approx(1.30, abs=0.005)
    assert classic.cost("approx") == cap_of(guarantee)


@settings(max_examples=40, deadline=None)
@given(epsilon=logarithmic(1e-3, 20.0), delta=logarithmic(1e-13, 0.9))
def test_classic_noise_holds_wherever_it_is_not_refused(epsilon, delta):
    guarantee = ApproxDP(epsilon, delta)
    true = gdp_delta(1 / classic_scale(1.0, epsilon, delta), epsilon)
    if epsilon > 1 and true > delta * (1 - 1e-6):
        if true > delta * (1 + 1e-3):  # closer by, the lattice's rounding may keep it within
            with pytest.raises(UserError, match="more than the guarantee allows"):
                GaussianMechanism.calibrate(guarantee, dimension=1, radius=1.0, method="classic")
        return
    mechanism = GaussianMechanism.calibrate(guarantee, dimension=1, radius=1.0, method="classic")
    assert holds(mechanism, guarantee)
    assert mechanism.cost("approx") <= cap_of(guarantee)


def test_classic_noise_is_refused_where_it_breaks_the_promise():
    with pytest.raises(UserError, match=r"delta = 2\.27e-05.*more than the guarantee allows.*method='analytic'"):
        GaussianMechanism.calibrate(ApproxDP(10.0, 1e-5), dimension=3, radius=1.0, method="classic")
    for epsilon in (2.0, 5.0, 8.0):
        GaussianMechanism.calibrate(ApproxDP(epsilon, 1e-5), dimension=3, radius=1.0, method="classic")
    with pytest.raises(UserError, match="more than the guarantee allows"):
        GaussianMechanism.calibrate(ApproxDP(9.0, 1e-5), dimension=3, radius=1.0, method="classic")
    with pytest.raises(UserError, match="ApproxDP only"):
        GaussianMechanism.calibrate(GaussianDP(1.0), dimension=3, radius=1.0, method="classic")
    with pytest.raises(UserError, match="epsilon > 0"):
        GaussianMechanism.calibrate(ApproxDP(0.0, 0.1), dimension=3, radius=1.0, method="classic")
    for kind in ("laplace", "l2-ball"):
        with pytest.raises(UserError, match="one calibration"):
            calibrate(kind, ApproxDP(1.0, 1e-5), dimension=3, radius=1.0, method="classic")
    with pytest.raises(UserError, match="unknown calibration"):
        calibrate("gaussian", ApproxDP(1.0, 1e-5), dimension=3, radius=1.0, method="exact")


def test_a_stated_guarantee_that_does_not_hold_is_refused():
    with pytest.raises(UserError, match="does not hold"):
        GaussianMechanism(3, 1.0, WIDTH, ApproxDP(1.0, 1e-6))
    with pytest.raises(UserError, match="must be an ApproxDP"):
        GaussianMechanism(3, 1.0, 1, GaussianDP(1.0))


@pytest.mark.parametrize(
    ("guarantee", "dimension", "kind"),
    [
        (PureDP(1.0), 3, "privunit"),
        (ApproxDP(1.0, 0.0), 3, "privunit"),
        (ApproxDP(1.0, 1e-6), 3, "privunit"),
        # Few draws bring nothing here.
        (PureDP(0.1), 3, "l2-ball"),
        (PureDP(1.0), 1, "l2-ball"),
        # Additive noise gets below a direction's own length.
        (PureDP(8.0), 1, "laplace"),
        (ApproxDP(30.0, 1e-3), 6, "laplace"),
        (ApproxDP(0.01, 0.3), 50, "gaussian"),
        (ApproxDP(0.0, 0.1), 3, "gaussian"),
        (GaussianDP(1.0), 3, "gaussian"),
        (ZeroConcentratedDP(0.5), 3, "gaussian"),
    ],
)
def test_the_best_mechanism_for_each_guarantee(guarantee, dimension, kind):
    best = calibrate(None, guarantee, dimension=dimension, radius=1.0)
    assert best.kind == kind
    assert best == calibrate("best", guarantee, dimension=dimension, radius=1.0)
    assert holds(best, guarantee)
    for cls in KINDS:
        try:
            other = cls.calibrate(guarantee, dimension=dimension, radius=1.0)
        except UserError:
            continue
        assert best.variance <= other.variance / 0.99


@pytest.mark.parametrize("dimension", [1, 2, 5, 40, 1000])
@pytest.mark.parametrize("mu", [1e-3, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 20.0])
def test_no_pure_mechanism_is_better_than_gaussian_noise_where_that_is_the_currency(dimension, mu):
    for guarantee in (GaussianDP(mu), ZeroConcentratedDP(mu**2 / 2)):
        gaussian, *pure = [cls.calibrate(guarantee, dimension=dimension, radius=1.0).variance for cls in KINDS]
        # In one dimension a coin comes to the same under a small rho.
        assert 0.99 * gaussian <= min(pure)


def test_what_was_taken_before_there_was_a_best_mechanism():
    assert plain_kind(PureDP(1.0)) == plain_kind(ApproxDP(1.0, 0.0)) == "l2-ball"
    assert plain_kind(ApproxDP(1.0, 1e-6)) == plain_kind(GaussianDP(1.0)) == "gaussian"
    # The textbook's formula is for Gaussian noise, also where another mechanism would be better.
    assert calibrate(None, ApproxDP(1.0, 1e-6), dimension=3, radius=1.0, method="classic").kind == "gaussian"


def test_what_no_mechanism_can_give_says_why():
    with pytest.raises(UserError, match="at least 1e-12"):
        calibrate(None, PureDP(1e-13), dimension=3, radius=1.0)
    with pytest.raises(UserError, match="larger budget"):
        calibrate(None, ApproxDP(0.0, 1e-15), dimension=3, radius=1.0)


def test_a_pure_mechanism_states_what_it_gives_of_an_approximate_guarantee():
    stated = ApproxDP(4.0, 1e-6)
    for kind in ("laplace", "l2-ball", "privunit"):
        assert really_given(stated, calibrate(kind, stated, dimension=3, radius=1.0).guarantees) == PureDP(4.0)
    assert really_given(stated, calibrate("gaussian", stated, dimension=3, radius=1.0).guarantees) == stated
    assert really_given(ApproxDP(3.9, 1e-6), [PureDP(4.0)]) == ApproxDP(3.9, 1e-6)
    assert really_given(GaussianDP(1.0), [PureDP(0.1)]) == GaussianDP(1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gausian", GaussianDP(1.0), 3, 1.0), "did you mean 'gaussian'"),
        (("gaussian", PureDP(1.0), 3, 1.0), "rare outcomes.*l2-ball"),
        (("gaussian", ApproxDP(1.0, 0.0), 3, 1.0), "needs a delta"),
        (("gaussian", ApproxDP(1.0, 1e-16), 3, 1.0), "needs a delta"),
        (("gaussian", GaussianDP(1e-7), 3, 1.0), "larger budget"),
        (("gaussian", GaussianDP(0.0), 3, 1.0), "larger budget"),
        (("laplace", PureDP(1e-7), 3, 1.0), "larger budget"),
        (("laplace", PureDP(5000.0), 3, 1.0), "smaller budget"),
        (("gaussian", GaussianDP(1000.0), 1000, 1.0), "smaller budget"),
        (("l2-ball", PureDP(1e-13), 3, 1.0), "at least 1e-12"),
        (("privunit", PureDP(1e-13), 3, 1.0), "at least 1e-12"),
        (("priv-unit", PureDP(1.0), 3, 1.0), "did you mean 'privunit'"),
        (("gaussian", 1.0, 3, 1.0), "not a guarantee"),
        (("gaussian", GaussianDP(1.0), 0, 1.0), "dimension"),
        (("gaussian", GaussianDP(1.0), 2.0, 1.0), "not an integer"),
        (("gaussian", GaussianDP(1.0), 3, 0.0), "radius"),
        (("laplace", GaussianDP(1.0), 3, math.nan), "radius"),
        (("l2-ball", GaussianDP(1.0), 3, math.inf), "radius"),
        (("gaussian", GaussianDP(1.0), 3, "1"), "radius"),
    ],
)
def test_what_cannot_be_calibrated(arguments, message):
    kind, guarantee, dimension, radius = arguments
    with pytest.raises(UserError, match=message):
        calibrate(kind, guarantee, dimension=dimension, radius=radius)


@pytest.mark.parametrize("cls", [GaussianMechanism, LaplaceMechanism])
@pytest.mark.parametrize("steps", [0, -1, 2**31, 1.0, True])
def test_impossible_steps(cls, steps):
    with pytest.raises(UserError):
        cls(2, 1.0, steps)


@pytest.mark.parametrize("threshold", [2**63, 2**64, 0, 1.0])
def test_impossible_thresholds(threshold):
    with pytest.raises(UserError, match="threshold"):
        L2BallMechanism(2, 1.0, threshold)


def test_costs_without_an_honest_figure_are_refused():
    gaussian = GaussianMechanism.calibrate(GaussianDP(1.0), dimension=3, radius=1.0)
    with pytest.raises(UserError, match="no cost in epsilon alone"):
        gaussian.cost("epsilon")
    with pytest.raises(UserError, match="state the level as approx"):
        gaussian.cost("approx")
    ball = L2BallMechanism.calibrate(PureDP(1.0), dimension=3, radius=1.0)
    assert ball.cost("epsilon") == PrivacyLoss("epsilon", 10**12)
    assert ball.cost("approx") == PrivacyLoss("approx", 10**12, 0)
    assert ball.cost("rho") == PrivacyLoss("rho", 5 * 10**11)
    for mechanism in (gaussian, ball):
        with pytest.raises(UserError, match="unknown currency"):
            mechanism.cost("euro")


def test_amounts_add_and_compare_in_their_own_currency_only():
    rho, approx = PrivacyLoss("rho", 5), PrivacyLoss("approx", 5, 7)
    assert rho + rho == rho * 2 == PrivacyLoss("rho", 10)
    assert approx + approx == PrivacyLoss("approx", 10, 14)
    assert approx <= PrivacyLoss("approx", 5, 7)
    assert not approx <= PrivacyLoss("approx", 6, 6)
    assert not approx <= PrivacyLoss("approx", 4, 8)
    assert str(PrivacyLoss("approx", 10**12, 10**9)) == "epsilon = 1, delta = 1e-06"
    assert str(PrivacyLoss("rho", 1)) == "rho = 1e-12"
    assert str(PrivacyLoss("gdp", 4 * 10**12)) == "mu = 2"
    # A cost is rounded up for reading, too.
    assert PrivacyLoss("gdp", 999_996_185_308).rounded() == "mu = 1"
    assert PrivacyLoss("gdp", 1_000_400_040_000).rounded() == "mu = 1.001"
    for action in (lambda: rho + approx, lambda: rho <= approx):
        with pytest.raises(UserError, match="account's currency"):
            action()
    for bad in (("rho", -1), ("rho", 1.0), ("rho", True), ("rho", 1, 1), ("euro", 1)):
        with pytest.raises(UserError):
            PrivacyLoss(*bad)
    for nonsense in (lambda: rho + 1, lambda: rho <= 1, lambda: rho * 0.5):
        with pytest.raises(TypeError):
            nonsense()
    with pytest.raises(UserError, match="not a guarantee"):
        cap_of("gdp")
