"""The mechanism as a description: what it states, costs, refuses."""

import dataclasses
import math

import numpy as np
import pytest

from murk.errors import UserError
from murk.privacy import ApproxDP, GaussianDP, GaussMixMechanism, PrivacyLoss, PureDP, ZeroConcentratedDP, cap_of
from murk.privacy.central import LEAST_SPREAD

SHAPE = {"rows": 100, "columns": 4, "feature_bound": 1.5, "target_bound": 1.0}


def calibrated(guarantee=None, **changes):
    return GaussMixMechanism.calibrate(guarantee or ApproxDP(1.0, 1e-5), **SHAPE | changes)


def test_published_settings():
    mechanism = calibrated()
    assert mechanism.g == pytest.approx(85.33, abs=0.005)
    assert mechanism.eta == pytest.approx(mechanism.g / 10, rel=1e-12)
    assert mechanism.tau == pytest.approx(math.sqrt(2 * math.log(3e5)), rel=1e-12)
    assert mechanism.bound == pytest.approx(math.hypot(1.5, 1.0), rel=1e-11)
    assert mechanism.bound > math.hypot(1.5, 1.0)
    assert mechanism.releases_eigenvalue
    plain = calibrated(method="mixing")
    assert (plain.g, plain.eta, plain.tau) == (pytest.approx(35.17, abs=0.005), 0, 0)
    assert not plain.releases_eigenvalue


def test_a_large_budget_releases_no_eigenvalue():
    mechanism = calibrated(ApproxDP(30.0, 1e-5))
    assert mechanism.g <= mechanism.tau
    assert not mechanism.releases_eigenvalue
    # The published listing's g C would be more than twice the noise.
    assert mechanism.spread(0.0) == pytest.approx(math.sqrt(mechanism.g), rel=1e-11)


TIGHT = [{"analysis": "tight", "method": method} for method in ("mixing", "linear-mixing")]


@pytest.mark.parametrize(
    "changes", [{}, {"method": "mixing"}, {"analysis": "joint"}, {"neighbours": "replace-one"}, *TIGHT]
)
@pytest.mark.parametrize(
    "guarantee", [ApproxDP(1.0, 1e-5), ApproxDP(0.1, 1e-9), ApproxDP(1 / 3, 2e-7), ApproxDP(20.0, 0.01)]
)
def test_what_is_calibrated_is_claimed_and_charged(guarantee, changes):
    mechanism = calibrated(guarantee, **changes)
    assert mechanism.guarantee == guarantee
    assert mechanism.guarantees[0] == guarantee
    assert {claim.kind for claim in mechanism.guarantees[1:]} <= {"tcdp"}
    assert mechanism.cost("approx") == cap_of(guarantee)
    assert isinstance(mechanism.cost("approx"), PrivacyLoss)
    # A little less of anything and the statement is refused.
    with pytest.raises(UserError, match="does not hold"):
        dataclasses.replace(mechanism, g=max(1.01 if mechanism.g > 1.02 else 0.0, 0.99 * mechanism.g))
    with pytest.raises(UserError, match="does not hold"):
        dataclasses.replace(mechanism, stated=ApproxDP(0.98 * guarantee.epsilon, guarantee.delta))


@pytest.mark.parametrize("changes", [{}, {"method": "mixing"}, {"analysis": "joint"}, *TIGHT])
def test_replace_one(changes):
    mechanism = calibrated(**changes)
    restated = mechanism.replace_one()
    assert mechanism.guarantee.epsilon < restated.epsilon < 1.5
    assert restated.delta == mechanism.guarantee.delta
    # Two steps of the zero-out guarantee imply one for replaced rows, with more of both.
    epsilon, delta = mechanism.guarantee.epsilon, mechanism.guarantee.delta
    assert restated.implies(ApproxDP(2 * epsilon, (1 + math.exp(epsilon)) * delta))
    assert mechanism.neighbours == "zero-out"
    replaced = calibrated(neighbours="replace-one", **changes)
    assert replaced.g > mechanism.g
    assert replaced.replace_one() == replaced.guarantee == ApproxDP(1.0, 1e-5)


@pytest.mark.parametrize(
    "guarantee", [PureDP(1.0), GaussianDP(1.0), ZeroConcentratedDP(0.5), ApproxDP(1.0, 0.0), ApproxDP(0.0, 1e-5)]
)
def test_other_guarantees_are_refused(guarantee):
    with pytest.raises(UserError, match=r"approx: \{epsilon: \.\.\., delta: \.\.\.\}"):
        calibrated(guarantee)


@pytest.mark.parametrize("currency", ["gdp", "rho", "epsilon"])
def test_other_currencies_are_refused(currency):
    with pytest.raises(UserError, match="approx"):
        calibrated().cost(currency)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"rows": 3}, "set rows to at least 4"),
        ({"rows": 0}, "set rows"),
        ({"rows": 2.5}, "not an integer"),
        ({"columns": 1}, "at least 2"),
        ({"rows": 2**24, "columns": 2**10}, "too large"),
        ({"feature_bound": 0.0}, "feature_bound"),
        ({"target_bound": math.inf}, "target_bound"),
        ({"method": "linear"}, "did you mean 'linear-mixing'"),
        ({"neighbours": "add"}, "zero-out, replace-one"),
        ({"analysis": "sharp"}, "published, joint, tight"),
    ],
)
def test_impossible_settings_are_refused(changes, named):
    with pytest.raises(UserError, match=named):
        calibrated(**changes)


def test_an_exact_eigenvalue_is_refused():
    for changes in ({"eta": 0.0}, {"tau": 0.0}):
        with pytest.raises(UserError, match="eigenvalue itself"):
            dataclasses.replace(calibrated(), **changes)
    for analysis in ("published", "joint"):
        mechanism = calibrated(analysis=analysis)
        with pytest.raises(UserError, match="does not hold"):
            dataclasses.replace(mechanism, tau=0.5 * mechanism.tau)
    with pytest.raises(UserError, match="both are 0"):
        dataclasses.replace(calibrated(method="mixing"), eta=1.0)


def test_spread_follows_the_eigenvalue():
    mechanism = calibrated()
    assert mechanism.spread(-5.0) == mechanism.spread(0.0) == mechanism.largest_spread
    assert mechanism.spread(40.0) ** 2 == pytest.approx(mechanism.g - 40.0, rel=1e-11)
    assert mechanism.spread(40.0) ** 2 + 40.0 > mechanism.g
    assert mechanism.spread(1e6) == pytest.approx(LEAST_SPREAD, rel=1e-11)
    assert mechanism.noise_variance(2.0) == pytest.approx(4 * 3.25, rel=1e-11)


def test_decode():
    mechanism = calibrated()
    integers = np.arange(400)
    decoded = mechanism.decode(integers, 4.0)
    assert decoded.shape == (100, 4)
    # 2^20 steps are one standard deviation of the noise.
    assert mechanism.decode(integers * 2**20, 4.0)[0, 1] == pytest.approx(4.0 * mechanism.bound, rel=1e-15)
    for bad, spread in (
        (integers[:-1], 4.0),
        (integers * 1.0, 4.0),
        (integers, 1e-5),
        (integers, 10.0),
        (integers, math.nan),
    ):
        with pytest.raises(UserError):
            mechanism.decode(bad, spread)


def test_plain_data_and_equality():
    mechanism = calibrated()
    assert mechanism == calibrated()
    assert hash(mechanism) == hash(calibrated())
    data = mechanism.to_dict()
    assert data["kind"] == "gaussmix"
    data.pop("kind")
    data["stated"] = ApproxDP(**data["stated"]["approx"])
    assert GaussMixMechanism(**data) == mechanism
    assert mechanism.dimension == 400
    assert mechanism.magnitude < 2**62
