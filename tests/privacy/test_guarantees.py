"""Guarantees: validation, conversions allowed and refused, plain data, plain words."""

import copy
import dataclasses
import math
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import murk.privacy
from murk.errors import UserError
from murk.privacy import ApproxDP, GaussianDP, PureDP, ZeroConcentratedDP, cap_of, guarantee_from_dict
from murk.privacy.guarantees import KINDS, max_attack_accuracy, number, percent

ALL = [PureDP(1.0), ApproxDP(1.0, 1e-6), GaussianDP(1.0), ZeroConcentratedDP(0.5)]


@pytest.mark.parametrize("guarantee", ALL)
def test_guarantees_are_frozen_data(guarantee):
    name = dataclasses.fields(guarantee)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(guarantee, name, 2.0)
    assert not hasattr(guarantee, "__dict__")
    assert eval(repr(guarantee)) == guarantee
    assert pickle.loads(pickle.dumps(guarantee)) == guarantee == copy.deepcopy(guarantee)
    assert len({guarantee, copy.copy(guarantee)}) == 1
    assert guarantee_from_dict(guarantee.to_dict()) == guarantee


def test_numbers_of_any_type_become_floats():
    assert repr(PureDP(1)) == "PureDP(epsilon=1.0)"
    assert repr(GaussianDP(np.float64(0.1))) == "GaussianDP(mu=0.1)"


@pytest.mark.parametrize("bad", [-0.1, math.nan, math.inf, 1e7, True, None, "1.0", [1.0], 10**400])
@pytest.mark.parametrize("cls", [PureDP, GaussianDP, ZeroConcentratedDP, lambda v: ApproxDP(v, 1e-6)])
def test_impossible_parameters_are_refused(cls, bad):
    with pytest.raises(UserError):
        cls(bad)


@pytest.mark.parametrize("delta", [-1e-9, 1.0, 2.0, math.nan, "1e-6", True])
def test_impossible_deltas_are_refused(delta):
    with pytest.raises(UserError, match="delta"):
        ApproxDP(1.0, delta)


def test_every_conversion_that_is_valid():
    pure, gdp, zcdp = PureDP(1.0), GaussianDP(1.0), ZeroConcentratedDP(0.5)
    assert pure.to("pure") is pure
    assert pure.to("zcdp") == ZeroConcentratedDP(0.5)
    assert pure.to("gdp").mu == pytest.approx(1.2320353853)
    assert pure.to("approx", epsilon=1.0) == ApproxDP(1.0, 0.0)
    assert pure.to("approx", epsilon=0.0).delta == pytest.approx(math.tanh(0.5))
    assert pure.to("approx", delta=0.01).epsilon == pytest.approx(0.9862267889)
    assert gdp.to("gdp") is gdp
    assert gdp.to("zcdp") == ZeroConcentratedDP(0.5)
    assert gdp.to("approx", delta=1e-5).epsilon == pytest.approx(4.377, abs=5e-4)
    assert gdp.to("approx", epsilon=1.0).delta == pytest.approx(0.1269, abs=5e-5)
    assert zcdp.to("zcdp") is zcdp
    assert zcdp.to("approx", delta=1e-5).epsilon == pytest.approx(4.728, abs=5e-4)
    assert zcdp.to("approx", epsilon=4.728).delta == pytest.approx(1e-5, rel=1e-2)


def test_an_approximate_guarantee_moves_along_its_own_curve():
    approx = ApproxDP(1.0, 0.01)
    assert approx.to("approx", epsilon=2.0) == ApproxDP(2.0, 0.01)
    assert approx.to("approx", delta=0.01) == approx
    # (1 + delta) / 2 of all: total variation delta + (1 - delta) tanh(epsilon / 2).
    assert approx.to("approx", epsilon=0.0).delta == pytest.approx(0.01 + 0.99 * math.tanh(0.5))
    there = approx.to("approx", epsilon=0.5)
    assert there.to("approx", epsilon=0.5) == there
    assert approx.to("approx", delta=there.delta).epsilon == pytest.approx(0.5)
    assert ApproxDP(1.0, 0.0).to("zcdp") == ZeroConcentratedDP(0.5)


@pytest.mark.parametrize(
    ("guarantee", "kind", "reason"),
    [
        (ApproxDP(1.0, 1e-6), "pure", "with probability delta"),
        (ApproxDP(1.0, 1e-6), "gdp", "with probability delta"),
        (ApproxDP(1.0, 1e-6), "zcdp", "with probability delta"),
        (GaussianDP(1.0), "pure", "rare outcomes"),
        (ZeroConcentratedDP(0.5), "pure", "averages of the odds"),
        (ZeroConcentratedDP(0.5), "gdp", r"state GaussianDP\(1\)"),
    ],
)
def test_what_is_not_implied_is_refused_with_the_reason(guarantee, kind, reason):
    with pytest.raises(UserError, match=reason):
        guarantee.to(kind)


def test_what_is_asked_for_must_make_sense():
    with pytest.raises(UserError, match="did you mean 'approx'"):
        PureDP(1.0).to("aprox", delta=1e-6)
    with pytest.raises(UserError, match="needs one of epsilon and delta"):
        GaussianDP(1.0).to("approx")
    with pytest.raises(UserError, match="needs one of epsilon and delta"):
        GaussianDP(1.0).to("approx", delta=1e-6, epsilon=1.0)
    with pytest.raises(UserError, match="only"):
        GaussianDP(1.0).to("zcdp", delta=1e-6)
    with pytest.raises(UserError, match="below its own delta"):
        ApproxDP(1.0, 1e-6).to("approx", delta=1e-7)
    with pytest.raises(UserError, match="larger epsilon"):
        PureDP(1000.0).to("approx", epsilon=1.0)


def test_nothing_disclosed_is_nothing_in_every_kind():
    for nothing in (PureDP(0), GaussianDP(0), ZeroConcentratedDP(0), ApproxDP(0, 0)):
        for kind in KINDS:
            there = nothing.to(kind, **({"epsilon": 0.0} if kind == "approx" else {}))
            assert all(value == 0 for value in there.to_dict()[kind].values())
        assert "nothing about the record" in nothing.describe()


@given(st.floats(1e-3, 50.0), st.floats(1e-12, 0.5))
def test_implication_is_reflexive_and_rounded_against_the_claim(value, delta):
    pure = PureDP(value)
    assert pure.implies(pure)
    for kind in ("gdp", "zcdp"):
        assert pure.implies(pure.to(kind))
    assert pure.implies(ApproxDP(value, 0.0))
    assert not PureDP(value * 1.001).implies(pure)
    assert ApproxDP(value, delta).implies(ApproxDP(value, delta))


def test_implication():
    assert GaussianDP(1.0).implies(GaussianDP(1.0).to("approx", epsilon=1.0))
    assert GaussianDP(1.0).implies(ZeroConcentratedDP(0.5))
    assert not ZeroConcentratedDP(0.5).implies(GaussianDP(1.0))
    assert not GaussianDP(1.0).implies(PureDP(100.0))
    assert not GaussianDP(1.0).implies(ApproxDP(1.0, 0.1))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"gpd": {"mu": 1.0}}, "did you mean 'gdp'"),
        ({"gdp": {"my": 1.0}}, "did you mean 'mu'"),
        ({"gdp": {"mu": 1.0, "delta": 1e-6}}, "unknown key 'delta'"),
        ({"approx": {"epsilon": 1.0}}, "delta is missing"),
        ({"approx": {"epsilon": 1.0, "delta": "1e-6"}}, "written 1.0e-06"),
        ({"gdp": {"mu": 0.0}}, "allows no release"),
        ({"gdp": {"mu": -1.0}}, "negative"),
        ({"gdp": 1.0}, "by name"),
        ({"gdp": {"mu": 1.0}, "pure": {"epsilon": 1.0}}, "one of"),
        ({}, "one of"),
        ("gdp", "one of"),
        (None, "one of"),
    ],
)
def test_plain_data_that_is_not_a_guarantee(data, message):
    with pytest.raises(UserError, match=message):
        guarantee_from_dict(data)


def test_words_give_the_success_of_telling_two_records_apart():
    # Phi(1/2) = 0.6915, Phi(1 - 1.645) = 0.2595; e / (1 + e) = 0.7311, e 0.05 = 0.1359.
    assert "at most 69.2% of the time" in GaussianDP(1.0).describe()
    assert "finds at most 26.0%" in GaussianDP(1.0).describe()
    assert "(4.378, 1e-05)" in GaussianDP(1.0).describe()
    assert "at most 73.2% of the time" in PureDP(1.0).describe()
    assert "at most 13.6%" in PureDP(1.0).describe()
    assert "e^1 = 2.719" in PureDP(1.0).describe()
    assert "delta = 1e-06" in ApproxDP(1.0, 1e-6).describe()
    assert ApproxDP(1.0, 0.0).describe() == PureDP(1.0).describe()
    assert "mu = 1, which says more" in ZeroConcentratedDP(0.5).describe()


def figures(text):
    import re

    return [float(found) for found in re.findall(r"at most ([\d.]+)%", text)]


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 2.5])
def test_words_of_weaker_statements_promise_no_more(mu):
    # What follows from a guarantee cannot protect better than the guarantee.
    gdp = GaussianDP(mu)
    for weaker in (gdp.to("zcdp"), gdp.to("approx", epsilon=mu), gdp.to("approx", delta=1e-5)):
        assert all(w >= g for w, g in zip(figures(weaker.describe()), figures(gdp.describe()), strict=True))


@pytest.mark.parametrize("kind", [PureDP, GaussianDP, ZeroConcentratedDP, lambda loss: ApproxDP(loss, 1e-6)])
def test_the_largest_loss_that_is_a_promise(kind):
    """A ledger has 64 bits for epsilon, mu^2 or rho in 10^-12, and so for eight of the largest."""
    most = 1e3 if kind is GaussianDP else 1e6
    assert 8 * cap_of(kind(most)).units < 2**63
    with pytest.raises(UserError, match=f"guarantees nothing; the largest accepted value is {re.escape(f'{most:g}')}"):
        kind(math.nextafter(most, math.inf))


@pytest.mark.parametrize("large", [PureDP(1e6), GaussianDP(1e3), ApproxDP(1e6, 0.5), ZeroConcentratedDP(1e6)])
def test_words_call_next_to_nothing_by_its_name(large):
    assert "next to no protection" in large.describe()


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.5, "0.5"), (2.71828, "2.719"), (4.3771, "4.378"), (1e-7, "1e-07"), (18.0, "18")]
)
def test_figures_are_rounded_up(value, text):
    assert number(value) == text


def test_exports_exist_and_loading_them_is_light():
    for name in murk.privacy.__all__:
        assert getattr(murk.privacy, name) is not None
    with pytest.raises(AttributeError):
        murk.privacy.nothing  # noqa: B018
    code = (
        "import sys, murk.privacy as p; p.PureDP(1.0).describe(); "
        "p.calibrate(None, p.GaussianDP(1.0), dimension=2, radius=1.0); "
        "heavy = {'numba', 'scipy', 'river', 'pandas', 'pydantic'} & set(sys.modules); assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 3.0, 6.0])
def test_nobody_tells_two_records_apart_better_than_is_said(mu):
    """The best guess from Gaussian noise is right with probability Phi(mu / 2): mu-GDP and (mu^2 / 2)-zCDP."""
    exact = (1 + math.erf(mu / math.sqrt(8))) / 2
    assert max_attack_accuracy("gdp", mu=mu) == pytest.approx(exact, rel=1e-12)
    rho = mu**2 / 2
    assert exact <= max_attack_accuracy("zcdp", rho=rho) <= min(1.0, (1 + mu / 2) / 2)
    # Randomized response: the answer itself.
    assert max_attack_accuracy("pure", epsilon=mu) == pytest.approx(math.exp(mu) / (1 + math.exp(mu)), rel=1e-12)
    assert max_attack_accuracy("approx", epsilon=mu, delta=0.1) == pytest.approx(
        0.1 + 0.9 * math.exp(mu) / (1 + math.exp(mu)), rel=1e-12
    )


@pytest.mark.parametrize(
    ("probability", "text"),
    [
        (0.5, "50.0%"), (0.50001, "50.1%"), (0.9994, "99.94%"), (0.99996, "99.9960%"), (0.999996, "99.9996%"),
        (0.9999996, "99.999960%"), (1 - 1e-12, "100%"), (1.0, "100%"),
    ],
)  # fmt: skip
def test_chances_are_rounded_up_and_never_to_certainty_before_it(probability, text):
    assert percent(probability) == text
