"""Several mixtures together: truncated concentrated guarantees against high precision and exact distributions."""

import json
from decimal import Decimal

import mpmath
import pytest

from murk.errors import UserError
from murk.privacy import (
    Accountant,
    ApproxDP,
    GaussianDP,
    GaussMixMechanism,
    PureDP,
    TruncatedCDP,
    ZeroConcentratedDP,
    calibrate,
    guarantee_from_dict,
    guarantee_from_text,
)
from murk.privacy.central import sketch_tight as tight
from murk.privacy.central.sketch_renyi import quantile
from murk.privacy.conversions import zcdp_delta, zcdp_epsilon
from murk.privacy.rounding import precise
from murk.producers.ledger.costs import Charge, Cost
from murk.producers.ledger.statements import _compose

ASKED = ApproxDP(1.0, 1e-5)
SETTINGS = [
    (method, analysis, neighbours)
    for method in ("mixing", "linear-mixing")
    for analysis in ("tight", "joint", "published")
    for neighbours in ("zero-out", "replace-one")
]


def mechanism(method="mixing", analysis="tight", neighbours="zero-out", rows=100):
    return GaussMixMechanism.calibrate(
        ASKED, rows=rows, columns=4, feature_bound=1.0, target_bound=1.0, method=method, analysis=analysis,
        neighbours=neighbours,
    )  # fmt: skip


def exact(value):
    """Return the number that a float's shortest decimal means."""
    return mpmath.mpf(repr(value))


def moment(one, reach, a):
    """Return the Renyi divergence of order a, of the worst pair at the least noise; z up to ``reach``."""
    leaves, enters = exact(one.g) + 1, exact(one.g)
    noise = mpmath.mpf(0)
    if one.releases_eigenvalue:
        leaves = enters = exact(one.g) + exact(one.eta) * (exact(one.tau) - exact(reach))
        noise = a / (2 * exact(one.eta) ** 2)
    value = a * mpmath.log(1 - 1 / leaves) - mpmath.log(1 - a / leaves)
    if one.neighbours == "replace-one":
        value += a * mpmath.log(1 + 1 / enters) - mpmath.log(1 + a / enters)
    return noise + one.rows * value / (2 * (a - 1))


@pytest.mark.parametrize(("method", "analysis", "neighbours"), SETTINGS)
def test_claims_cover_the_renyi_curve(method, analysis, neighbours):
    one = mechanism(method, analysis, neighbours)
    stated, *claims = one.guarantees
    assert stated == ASKED
    assert len(claims) == 5
    assert [claim.omega for claim in claims] == sorted((claim.omega for claim in claims), reverse=True)
    with mpmath.workdps(50):
        for together, claim in zip((1, 4, 16, 64, 256), claims, strict=True):
            reach = quantile(1e-5 / (10 * together)) if one.releases_eigenvalue else 0.0
            # The event left out has a tenth of delta over all sketches.
            assert bool(claim.delta) == one.releases_eigenvalue
            assert mpmath.erfc(exact(reach) / mpmath.sqrt(2)) / 2 <= exact(claim.delta) or not claim.delta
            assert claim.delta * together <= 1.001e-6
            orders = [1 + (exact(claim.omega) - 1) * share / 16 for share in range(1, 17)]
            most = max(moment(one, reach, a) / a for a in orders)
            # Not below the curve, and above it only by the eigenvalue's slack and the bound on the row that enters.
            assert most <= exact(claim.rho)
            assert most > claim.rho * (1 - (0.003 if neighbours == "zero-out" else 0.12))
            assert any(moment(one, reach, a) > 0.85 * claim.rho * a for a in orders), "a smaller rho would be false"


@pytest.mark.parametrize("rows", [100, 4096])
@pytest.mark.parametrize("count", [2, 16, 200])
def test_windows_cost_no_less_than_their_exact_distribution(rows, count):
    one = mechanism(rows=rows)
    spent = Accountant().compose(one, count).spent("approx", delta=1e-5)
    with precise():
        # That many mixtures with the same noise are one of that many times the rows.
        assert tight.mixing_delta(Decimal(one.g), rows * count, Decimal(spent.epsilon)) <= Decimal("1e-5")
        least = tight.mixing_epsilon(Decimal(one.g), rows * count, Decimal("1e-5"), Decimal("0.1"))
        assert tight.mixing_delta(Decimal(one.g), rows * count, Decimal(0.8 * spent.epsilon)) > Decimal("1e-5")
    assert float(least) < spent.epsilon < min(1.2 * float(least), count)
    # The way back.
    assert Accountant().compose(one, count).spent("approx", epsilon=spent.epsilon).delta == pytest.approx(1e-5)


def test_conversion_up_to_an_order():
    for rho, omega, delta in [(0.03, 8.0, 1e-5), (0.03, 40.0, 1e-5), (2.0, 1.5, 1e-9), (1e-4, 1.0001, 0.01)]:
        epsilon, back = zcdp_epsilon(rho, delta, omega), zcdp_delta(rho, 1.0, omega)
        with mpmath.workdps(50):
            r, d = mpmath.mpf(str(rho)), mpmath.mpf(str(delta))
            orders = [1 + (mpmath.mpf(str(omega)) - 1) * mpmath.mpf(k) / 4000 for k in range(1, 4001)]
            found = min(r * a + mpmath.log(1 - 1 / a) - mpmath.log(d * a) / (a - 1) for a in orders)
            least = min(mpmath.exp((a - 1) * (a * r - 1)) / (a - 1) * (1 - 1 / a) ** a for a in orders)
            assert float(found) * (1 - 1e-5) < epsilon <= float(found) * (1 + 1e-12)
            assert min(float(least), 1.0) * (1 - 1e-4) < back <= float(least) * (1 + 1e-12)
    assert zcdp_epsilon(0.03, 1e-5, 1e6) == pytest.approx(zcdp_epsilon(0.03, 1e-5), rel=1e-9)
    assert zcdp_epsilon(0.03, 1e-5, 2.0) > zcdp_epsilon(0.03, 1e-5)
    for wrong in (1.0, 0.5, float("nan")):
        with pytest.raises(UserError, match="omega="):
            zcdp_epsilon(0.03, 1e-5, wrong)


def test_guarantees_compose_up_to_the_least_order():
    first, second = TruncatedCDP(0.03, 8.0, 1e-7), TruncatedCDP(0.01, 20.0)
    both = Accountant().compose(first).compose(second, 3).spent("approx", delta=1e-5)
    assert both == TruncatedCDP(0.06, 8.0, 1e-7).to("approx", delta=1e-5)
    gaussian = Accountant().compose(first).compose(ZeroConcentratedDP(0.02)).compose(GaussianDP(0.1))
    assert gaussian.spent("approx", epsilon=2.0) == TruncatedCDP(0.055, 8.0, 1e-7).to("approx", epsilon=2.0)
    added = Accountant().compose(first).compose(ApproxDP(1.0, 1e-6)).spent("approx", delta=1e-5)
    left = TruncatedCDP(0.03, 8.0).to("approx", delta=8.9e-6).epsilon
    assert added.epsilon == pytest.approx(1.0 + left, rel=1e-12)
    with pytest.raises(UserError, match="delta=1e-08 is below the sum of the releases' own deltas; give 1e-07"):
        Accountant().compose(first).spent("approx", delta=1e-8)
    with pytest.raises(UserError, match="no delta is left"):
        Accountant().compose(first).spent("approx", delta=1e-7)
    with pytest.raises(UserError, match="deltas add up to 1"):
        Accountant().compose(TruncatedCDP(0.1, 2.0, 0.5), 2).spent("approx", delta=0.9)
    with pytest.raises(UserError, match="no joint zcdp guarantee"):
        Accountant().compose(first).spent("zcdp")


def test_one_guarantee():
    one = TruncatedCDP(0.03, 8.0, 1e-7)
    assert guarantee_from_dict(json.loads(json.dumps(one.to_dict()))) == one
    assert one.implies(one)
    assert one.implies(TruncatedCDP(0.04, 7.0, 1e-6))
    assert not one.implies(TruncatedCDP(0.02, 7.0, 1e-6))
    assert not one.implies(TruncatedCDP(0.04, 9.0, 1e-6))
    assert not one.implies(TruncatedCDP(0.04, 7.0))
    assert ZeroConcentratedDP(0.03).implies(one)
    assert PureDP(0.1).implies(one)
    assert not ASKED.implies(one)
    assert one.implies(one.to("approx", delta=1e-5))
    assert not one.implies(ZeroConcentratedDP(1e6))
    # No more than of the same rho for all orders, but for delta and the conversion.
    accuracy = one.max_attack_accuracy
    assert ZeroConcentratedDP(0.03).max_attack_accuracy - 0.01 < accuracy < 0.65
    assert "orders" not in one.describe()
    assert "rho = 0.03, omega = 8, delta = 1e-07" in one.describe()
    for wrong, named in [({"omega": 1.0}, "omega"), ({"rho": -1.0}, "rho"), ({"delta": 1.0}, "delta")]:
        with pytest.raises(UserError, match=named):
            TruncatedCDP(**{"rho": 0.03, "omega": 8.0, **wrong})
    # It is what a mechanism has, and a cap, and nothing that one asks of a release.
    assert guarantee_from_text("tcdp:0.03,8,1e-7") == one
    with pytest.raises(UserError, match="unknown kind"):
        ASKED.to("tcdp")
    for kind in (None, "gaussian", "laplace", "privunit"):
        with pytest.raises(UserError, match=r"TruncatedCDP|not a guarantee"):
            calibrate(kind, one, dimension=3, radius=1.0)
    with pytest.raises(UserError, match="cannot give"):
        GaussMixMechanism.calibrate(one, rows=100, columns=4, feature_bound=1.0, target_bound=1.0)


def test_an_account_of_windows():
    """Sixteen windows at the delta of one; windows that an earlier version booked add their (epsilon, delta)."""
    one = mechanism("linear-mixing", "joint")
    price = Cost(1, 1, *Charge.of("default", ASKED, one).row())
    assert price.guarantees == (ASKED, *one.guarantees)
    accountant, total = _compose({1: 16}, {1: price})
    assert total == Accountant().compose(one, 16).spent("approx", delta=1e-5)
    assert 4.0 < total.epsilon < 4.6
    assert f"epsilon = {total.epsilon:.10g}, delta = 1e-05" in accountant.describe()
    former = Cost(2, 1, "default", "gaussmix", json.dumps([ASKED.to_dict()] * 2), None, None, 10**12, 10**10, None)
    assert _compose({2: 16}, {2: former})[1] == ApproxDP(16.0, 1.6e-4)
    mixed = _compose({1: 16, 2: 2}, {1: price, 2: former})[1]
    assert 2.0 < mixed.epsilon < 2.0 + total.epsilon
    # An account adds the price of each window to its cap, whatever they cost together.
    assert price.cost("approx") == (10**12, 10**10)
