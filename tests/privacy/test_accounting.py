"""Composition: exact sums, the best route between kinds, independent oracles, and refusals."""

import math

import dp_accounting
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st

from murk.errors import UserError
from murk.privacy import (
    Accountant,
    ApproxDP,
    GaussianDP,
    GaussianMechanism,
    L2BallMechanism,
    LaplaceMechanism,
    PrivUnitMechanism,
    PureDP,
    RandomizedResponse,
    TruncatedCDP,
    ZeroConcentratedDP,
)
from murk.privacy.conversions import gdp_delta, gdp_epsilon, pure_to_gdp, zcdp_epsilon


def account(*releases):
    result = Accountant()
    for release in releases:
        result.compose(release)
    return result


def test_sums_of_one_kind():
    assert Accountant().compose(PureDP(0.1), count=3).spent("pure") == PureDP(0.3)
    assert Accountant().compose(ZeroConcentratedDP(0.1), count=7).spent("zcdp") == ZeroConcentratedDP(0.7)
    assert account(GaussianDP(3.0), GaussianDP(4.0)).spent("gdp") == GaussianDP(5.0)
    approx = account(ApproxDP(1.0, 1e-6), ApproxDP(0.5, 2e-6)).spent("approx", delta=3e-6)
    assert approx == ApproxDP(1.5, 3e-6)
    assert account(ApproxDP(1.0, 1e-6), ApproxDP(0.5, 2e-6)).spent("approx", epsilon=1.5) == ApproxDP(1.5, 3e-6)


@given(st.floats(1e-6, 100.0))
def test_one_release_is_what_it_was(value):
    for guarantee in (PureDP(value), GaussianDP(value), ZeroConcentratedDP(value)):
        assert account(guarantee).spent(guarantee.kind) == guarantee


@given(st.lists(st.floats(1e-3, 10.0), min_size=1, max_size=20))
def test_order_and_grouping_do_not_matter(values):
    forwards = account(*[GaussianDP(value) for value in values])
    backwards = account(*[GaussianDP(value) for value in reversed(values)])
    assert forwards.spent("gdp") == backwards.spent("gdp")
    assert forwards.spent("gdp").mu == pytest.approx(math.sqrt(sum(v * v for v in values)))
    assert forwards.releases == len(values)


def test_nothing_released():
    empty = Accountant()
    assert empty.spent("pure") == PureDP(0.0)
    assert empty.spent("gdp") == GaussianDP(0.0)
    assert empty.spent("zcdp") == ZeroConcentratedDP(0.0)
    assert empty.spent("approx", delta=1e-6) == ApproxDP(0.0, 1e-6)
    assert empty.spent("approx", epsilon=0.0) == ApproxDP(0.0, 0.0)
    assert empty.describe() == "Nothing was released, so nothing is disclosed."


def test_mixtures_go_through_the_common_kind():
    mixed = account(PureDP(1.0), GaussianDP(1.0))
    assert mixed.spent("gdp").mu == pytest.approx(math.hypot(pure_to_gdp(1.0), 1.0))
    assert mixed.spent("zcdp") == ZeroConcentratedDP(1.0)
    with_rho = account(PureDP(1.0), GaussianDP(1.0), ZeroConcentratedDP(0.25))
    assert with_rho.spent("zcdp") == ZeroConcentratedDP(1.25)
    with pytest.raises(UserError, match="only a rho"):
        with_rho.spent("gdp")
    with pytest.raises(UserError, match="Gaussian noise, whose rare outcomes"):
        mixed.spent("pure")


def test_approximate_releases_add_to_the_rest():
    mixed = account(ApproxDP(0.5, 1e-6), GaussianDP(1.0))
    spent = mixed.spent("approx", delta=3e-6)
    assert spent.epsilon == pytest.approx(0.5 + gdp_epsilon(1.0, 2e-6))
    assert mixed.spent("approx", epsilon=spent.epsilon).delta == pytest.approx(3e-6, rel=1e-9)
    for kind in ("pure", "gdp", "zcdp"):
        with pytest.raises(UserError, match=r"only an \(epsilon, delta\) guarantee"):
            mixed.spent(kind)
    with pytest.raises(UserError, match="below the sum of the releases' own deltas; give 1e-06"):
        mixed.spent("approx", delta=1e-7)
    with pytest.raises(UserError, match=r"below the sum of .* own epsilons; give 0\.5"):
        mixed.spent("approx", epsilon=0.4)
    with pytest.raises(UserError, match="no delta is left"):
        mixed.spent("approx", delta=1e-6)
    only_pure = account(ApproxDP(0.5, 1e-6), PureDP(1.0))
    assert only_pure.spent("approx", delta=1e-6) == ApproxDP(1.5, 1e-6)
    assert account(ApproxDP(0.5, 0.0), PureDP(1.0)).spent("pure") == PureDP(1.5)


def test_the_best_route_is_taken():
    # Few pure releases: addition wins.
    few = Accountant().compose(PureDP(1.0), count=2)
    assert few.spent("approx", delta=1e-9).epsilon == pytest.approx(2.0, abs=1e-6)
    # Many small ones: Renyi, since each costs epsilon^2 / 2 there and (1.25 epsilon)^2 / 2 as GDP.
    many = Accountant().compose(PureDP(0.05), count=400)
    assert many.spent("approx", delta=1e-6).epsilon == zcdp_epsilon(0.5, 1e-6)
    assert zcdp_epsilon(0.5, 1e-6) < gdp_epsilon(many.spent("gdp").mu, 1e-6)
    # Some small pure ones beside a large Gaussian one: the exact curve.
    beside = account(GaussianDP(4.0)).compose(PureDP(0.3), count=10)
    assert beside.spent("approx", delta=1e-6).epsilon == gdp_epsilon(beside.spent("gdp").mu, 1e-6)
    # One large pure release and one small Gaussian: the pure one by addition, the other by its curve.
    uneven = account(PureDP(10.0), GaussianDP(0.1))
    assert uneven.spent("approx", delta=1e-6).epsilon == pytest.approx(10.0 + gdp_epsilon(0.1, 1e-6))
    assert uneven.spent("approx", epsilon=10.25).delta == gdp_delta(0.1, 0.25)
    # Gaussian releases known by rho alone: the Renyi conversion, which is worse.
    renyi = account(ZeroConcentratedDP(0.5)).spent("approx", delta=1e-6).epsilon
    assert renyi == zcdp_epsilon(0.5, 1e-6) > account(GaussianDP(1.0)).spent("approx", delta=1e-6).epsilon


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.floats(0.01, 3.0).map(PureDP),
            st.floats(0.01, 3.0).map(GaussianDP),
            st.floats(0.01, 3.0).map(ZeroConcentratedDP),
            st.floats(0.01, 3.0).map(lambda e: ApproxDP(e, 1e-7)),
        ),
        min_size=1,
        max_size=5,
    )
)
def test_more_releases_never_promise_more(releases):
    spent = [account(*releases[: k + 1]).spent("approx", delta=1e-5).epsilon for k in range(len(releases))]
    assert spent == sorted(spent)
    whole = account(*releases)
    there = whole.spent("approx", epsilon=spent[-1])
    assert there.delta == pytest.approx(1e-5, rel=1e-3) or there.delta < 1e-5


def test_many_gaussian_releases_agree_with_dp_accounting():
    composed = Accountant().compose(GaussianDP(0.2), count=30)
    theirs = dp_accounting.get_epsilon_gaussian(1 / (0.2 * math.sqrt(30)), 1e-6)
    assert composed.spent("approx", delta=1e-6).epsilon == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize(("epsilon", "sigma", "count"), [(0.5, 2.0, 1), (0.2, 4.0, 5), (2.0, 1.0, 1)])
def test_mixtures_are_covered_by_the_exact_loss_distribution(epsilon, sigma, count):
    # The numerical composition of dp-accounting is nearly exact for these: ours must lie above, not far.
    exact = privacy_loss_distribution.from_randomized_response(
        2 / (1 + math.exp(epsilon)), 2, value_discretization_interval=1e-3
    ).self_compose(count)
    exact = exact.compose(privacy_loss_distribution.from_gaussian_mechanism(sigma, value_discretization_interval=1e-3))
    mixed = Accountant().compose(PureDP(epsilon), count=count).compose(GaussianDP(1 / sigma))
    ours = mixed.spent("approx", delta=1e-6).epsilon
    theirs = exact.get_epsilon_for_delta(1e-6)
    # Their discretisation rounds up by at most one interval a composition.
    assert theirs - 1e-3 * (count + 1) <= ours <= 1.35 * theirs


MECHANISMS = [
    GaussianMechanism.calibrate(ZeroConcentratedDP(0.5), dimension=3, radius=1.0),
    GaussianMechanism.calibrate(ApproxDP(1.0, 1e-6), dimension=3, radius=1.0),
    LaplaceMechanism.calibrate(PureDP(1.0), dimension=3, radius=1.0),
    L2BallMechanism.calibrate(PureDP(1.0), dimension=3, radius=1.0),
    PrivUnitMechanism.calibrate(ApproxDP(1.0, 1e-6), dimension=3, radius=1.0),
    RandomizedResponse.calibrate(PureDP(1.0), classes=3),
]


@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: m.kind)
def test_mechanisms_enter_by_what_they_claim(mechanism):
    composed = account(mechanism)
    for claim in mechanism.guarantees:
        if claim.kind == "approx":
            assert composed.spent("approx", delta=claim.delta).epsilon <= claim.epsilon
        else:
            assert composed.spent(claim.kind) == claim
    assert "1 release together" in composed.describe()


def test_a_gaussian_mechanism_counts_with_its_exact_rho():
    # Through mu, which includes the lattice's loss, it would be 4e-12 more.
    assert account(MECHANISMS[0]).spent("zcdp") == ZeroConcentratedDP(0.5)


class Unknown:
    guarantee = "trust me"


@pytest.mark.parametrize("release", [Unknown(), 1.0, None, "gdp", {"gdp": {"mu": 1.0}}])
def test_what_is_not_known_is_refused(release):
    with pytest.raises(UserError, match=f"cannot account for {type(release).__name__}"):
        Accountant().compose(release)


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_impossible_counts(count):
    with pytest.raises(UserError, match="count"):
        Accountant().compose(PureDP(1.0), count=count)


def test_questions_that_make_no_sense():
    composed = account(GaussianDP(1.0))
    with pytest.raises(UserError, match="did you mean 'gdp'"):
        composed.spent("gpd")
    with pytest.raises(UserError, match="needs one of epsilon and delta"):
        composed.spent("approx")
    with pytest.raises(UserError, match="only"):
        composed.spent("gdp", delta=1e-6)
    with pytest.raises(UserError, match="no joint guarantee"):
        Accountant().compose(ApproxDP(0.1, 0.1), count=10).spent("approx", epsilon=1.0)
    with pytest.raises(UserError, match="have no guarantee"):
        Accountant().compose(GaussianDP(1000.0)).spent("approx", epsilon=1.0)
    with pytest.raises(UserError, match="guarantees nothing"):
        Accountant().compose(PureDP(1e6), count=2).spent("pure")


def test_words_in_the_strongest_terms_that_hold():
    assert "2 releases together: Pure" in account(PureDP(1.0), PureDP(1.0)).describe()
    assert "Gaussian" in account(PureDP(1.0), GaussianDP(1.0)).describe()
    assert "Zero-concentrated" in account(PureDP(1.0), ZeroConcentratedDP(1.0)).describe()
    assert "delta = 1e-05" in account(PureDP(1.0), ApproxDP(1.0, 1e-6)).describe(1e-5)
    assert "delta = 0.02" in account(GaussianDP(1.0), ApproxDP(1.0, 0.01)).describe(1e-5)
    # Attacks on several pure releases are bounded by their mu, on one by epsilon itself.
    joint = account(PureDP(1.0), PureDP(1.0)).spent("gdp").describe()
    assert account(PureDP(1.0), PureDP(1.0)).describe().endswith(joint)
    assert "Gaussian" not in account(PureDP(1.0)).describe()


def test_a_delta_is_the_least_that_suffices():
    """That of one release if their curve needs no more, their sum, or twice that if others need a share."""
    assert account(ApproxDP(1.0, 1e-6), ApproxDP(0.5, 1e-7)).strongest() == ApproxDP(1.5, 1.1e-6)
    assert account(PureDP(1.0), ApproxDP(1.0, 1e-6)).strongest() == ApproxDP(2.0, 1e-6)
    with_noise = account(GaussianDP(1.0), ApproxDP(1.0, 1e-6))
    assert with_noise.strongest() == with_noise.spent("approx", delta=2e-6)
    assert account(TruncatedCDP(0.1, 8.0)).strongest() == TruncatedCDP(0.1, 8.0).to("approx", delta=1e-5)
    assert account(ApproxDP(1.0, 0.6), ApproxDP(1.0, 0.6)).strongest() is None
    assert with_noise.strongest() in with_noise.guarantees
    assert str(with_noise.strongest().epsilon)[:6] in with_noise.describe()
    assert repr(account(PureDP(1.0))) == "<Accountant of 1 releases>"


@given(
    st.sampled_from([PureDP, GaussianDP, ZeroConcentratedDP]),
    st.one_of(st.sampled_from([5e-324, 1e-300, 1e-154, 1e100, 1.4e154, 1.7e308]), st.floats(0, 1e300)),
    st.sampled_from([1, 7, 10**30, 10**700]),
    st.sampled_from([{"delta": 1e-300}, {"delta": 0.5}, {"epsilon": 0.0}, {"epsilon": 1e300}, "gdp", "zcdp", "pure"]),
)
@settings(max_examples=60, deadline=None)
def test_no_amount_and_no_number_of_releases_ends_in_an_error_of_arithmetic(kind, amount, count, asked):
    """What cannot be said is a clear refusal; what is said is no number beyond all."""
    try:
        account = Accountant().compose(kind(amount), count).compose(GaussianDP(1.0))
        account.describe()
        found = account.spent("approx", **asked) if isinstance(asked, dict) else account.spent(asked)
        found.describe()
    except UserError:
        return
    assert all(0.0 <= figure < math.inf for figure in found.to_dict()[found.kind].values())


@pytest.mark.parametrize("figure", [float("nan"), float("inf"), -1.0])
@pytest.mark.parametrize("name", ["delta", "epsilon"])
def test_a_figure_out_of_range_is_named(name, figure):
    with pytest.raises(UserError, match="out of range"):
        Accountant().compose(GaussianDP(1.0)).spent("approx", **{name: figure})
