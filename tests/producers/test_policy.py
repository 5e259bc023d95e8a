"""What a device lets a task ask for."""

from typing import Any

import pytest

from murk.errors import UserError
from murk.privacy import ApproxDP, GaussianDP, PureDP, ZeroConcentratedDP, cap_of
from murk.producers import Policy
from murk.producers.producer import Admission
from murk.protocols.device import device_for
from tests.producers.world import make_task, paid_task

PURE = """
name: pure
features: [{name: age, low: 0, high: 1}]
target: {name: y, kind: binary, positive: "yes"}
privacy: {guarantee: {pure: {epsilon: 1.0}}, levels: {gauss: {gdp: {mu: 1.0}}}}
"""


def admit(policy: Policy, task: Any) -> Admission:
    return policy.admit(task, device_for(task).mechanisms)


def test_by_default_one_release_at_each_level() -> None:
    admission = admit(Policy(), make_task())
    assert list(admission.charges) == ["default", "strict", "open"]
    assert dict(admission.caps) == {
        "default": cap_of(GaussianDP(1.0)),
        "strict": cap_of(GaussianDP(0.5)),
        "open": cap_of(GaussianDP(2.0)),
    }
    for level, cap in admission.caps:
        assert admission.charges[level].costs["gdp"] <= cap
    assert admission.lifetime is None


def test_the_task_may_promise_a_cap_of_its_own() -> None:
    admission = admit(Policy(lifetime=GaussianDP(8.0)), paid_task(4.0))
    assert admission.caps == (("", cap_of(GaussianDP(4.0))),)
    assert admission.lifetime == cap_of(GaussianDP(8.0))


def test_a_task_may_not_ask_for_more_than_the_policy_allows() -> None:
    assert admit(Policy(per_task=GaussianDP(4.0)), paid_task(4.0)).caps == (("", cap_of(GaussianDP(4.0))),)
    with pytest.raises(UserError, match="asks for up to"):
        admit(Policy(per_task=GaussianDP(3.9)), paid_task(4.0))


def test_levels_beyond_the_policy_are_not_to_be_had() -> None:
    for policy in (Policy(per_task=GaussianDP(1.0)), Policy(lifetime=ZeroConcentratedDP(0.5))):
        admission = admit(policy, make_task())
        assert list(admission.charges) == ["default", "strict"]
        assert "policy allows" in admission.refused["open"]
    with pytest.raises(UserError, match="no release"):
        admit(Policy(lifetime=GaussianDP(0.4)), make_task())


def test_caps_in_different_currencies_all_hold() -> None:
    from murk import Task

    task = Task.parse(PURE)
    admission = admit(Policy(lifetime=PureDP(3.0), per_task=GaussianDP(3.0)), task)
    # The gaussian level has no valid bound in epsilon.
    assert list(admission.charges) == ["default"]
    assert "cannot be applied" in admission.refused["gauss"]
    assert admission.caps == (("default", cap_of(PureDP(1.0))), ("", cap_of(GaussianDP(3.0))))


APPROX = "privacy: {guarantee: {approx: {epsilon: 1.0, delta: 1.0e-6}}, mechanism: MECHANISM}"


@pytest.mark.parametrize("named", ["best", "privunit", "gaussian"])
def test_a_pure_mechanism_is_charged_in_every_currency(named: str) -> None:
    """For an (epsilon, delta) it takes epsilon alone, and of a mu far more than Gaussian noise does."""
    from murk import Task

    task = Task.parse(PURE[: PURE.index("privacy:")] + APPROX.replace("MECHANISM", named))
    charge = admit(Policy(lifetime=ApproxDP(2.0, 1e-5)), task).charges["default"]
    assert admit(Policy(), task).caps == (("default", cap_of(ApproxDP(1.0, 1e-6))),)
    if named == "gaussian":
        assert charge.mechanism == "gaussian"
        assert charge.costs["approx"] == cap_of(ApproxDP(1.0, 1e-6))
        assert "epsilon" not in charge.costs
        assert charge.costs["gdp"] * 16 <= cap_of(GaussianDP(1.0))
        return
    assert charge.mechanism == "privunit"
    assert (charge.costs["approx"].units, charge.costs["approx"].delta_units) == (10**12, 0)
    assert charge.costs["epsilon"] == cap_of(PureDP(1.0))
    assert charge.costs["rho"] == cap_of(ZeroConcentratedDP(0.5))
    assert charge.costs["gdp"].units == pytest.approx(1.2320**2 * 10**12, rel=1e-4)
    with pytest.raises(UserError, match=r"a release costs mu = 1\.23.*, and the policy allows mu = 1 over all tasks"):
        admit(Policy(lifetime=GaussianDP(1.0)), task)


def test_a_cap_that_no_level_has_a_figure_in() -> None:
    with pytest.raises(UserError, match="cannot be applied"):
        admit(Policy(lifetime=ApproxDP(1.0, 1e-6)), make_task())


def test_mechanisms_may_be_ruled_out() -> None:
    with pytest.raises(UserError, match="'gaussian' is not among l2-ball"):
        admit(Policy(mechanisms=("l2-ball",)), make_task())


def test_is_frozen() -> None:
    with pytest.raises(AttributeError):
        Policy().lifetime = GaussianDP(1.0)  # type: ignore[misc]
