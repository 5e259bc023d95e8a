"""Caps in truncated concentrated privacy: counted by the joint guarantee, in exact units, at one omega."""

import math
import random
import re
from functools import cache

import numpy as np
import pytest
import yaml

from murk import Task
from murk.errors import UserError
from murk.planning.plan import Plan, plan, remarks
from murk.privacy import (
    Accountant,
    ApproxDP,
    GaussianDP,
    GaussMixMechanism,
    GramMechanism,
    PrivacyLoss,
    PureDP,
    TruncatedCDP,
    calibrate,
    cap_of,
    cost_in,
    guarantee_from_dict,
    guarantee_from_text,
    truncated_cap,
)
from murk.privacy.central import sketch_renyi as renyi
from murk.privacy.central.explain import against_a_blank_record, any_two_records
from murk.privacy.mechanisms.costs import DELTA_UNITS, UNITS, truncated_cost
from murk.privacy.rounding import rational
from murk.producers import Ledger, Policy
from murk.producers.ledger.costs import Charge
from murk.producers.ledger.names import ReleaseRequests
from murk.producers.organisation import remedy, window_device_for
from murk.protocols.population import Population
from tests.producers.sketches.organisations import TEXT, WINDOW, SketchWorld, coded

ONE = ApproxDP(1.0, 1e-6)


@cache
def window(rows=100, epsilon=1.0, method="mixing", analysis="joint"):
    return GaussMixMechanism.calibrate(
        ApproxDP(epsilon, 1e-6), rows=rows, columns=4, feature_bound=1.0, target_bound=1.0, method=method,
        analysis=analysis,
    )  # fmt: skip


class Plain:
    """A mechanism with an (epsilon, delta) guarantee only."""

    kind, guarantees, guarantee = "plain", (ONE,), ONE

    def cost(self, currency):
        if currency == "approx":
            return cap_of(ONE)
        raise UserError("none")


MECHANISMS = {
    "few-rows": window(50),
    "many-rows": window(1000, 0.5),
    "with-eigenvalue": window(100, 1.0, "linear-mixing"),
    "as-tight": window(100, 2.0, "mixing", "tight"),
    "moments": GramMechanism.calibrate(ONE, columns=4, feature_bound=1.0, target_bound=1.0),
    "gaussian": calibrate("gaussian", GaussianDP(0.2), dimension=3, radius=1.0),
    "laplace": calibrate("laplace", PureDP(0.3), dimension=3, radius=1.0),
    "plain": Plain(),
}


class Account:
    """A real ledger in which one person pays for releases by any mechanism."""

    def __init__(self, path, cap, *, mechanisms=MECHANISMS, lifetime=False):
        self.ledger, self.mechanisms = Ledger(path), mechanisms
        charges = [Charge.of(level, made.guarantee, made) for level, made in mechanisms.items()]
        self.ledger.bind("log", "task", name="weeks")
        caps = {"lifetime": cap_of(cap)} if lifetime else {"caps": [("", cap_of(cap))]}
        self.ledger.book("task", charges, **caps)
        # No test here is about power failures.
        self.ledger._file._connection.execute("PRAGMA synchronous = OFF")

    def ask(self, *levels):
        """Return the levels at which releases were granted, and the refusals."""
        requests = ReleaseRequests([None] * len(levels), ["clinic"] * len(levels), list(levels))
        with self.ledger.spending("task", requests) as spend:
            count = len(spend.granted)
            if count:
                spend.freeze([b"x"] * count, [0] * count, [0] * count, 10**9)
        return list(spend.levels), list(spend.refusals.values())


def test_a_cap_allows_sixteen_windows_and_not_one_more(tmp_path):
    cap = truncated_cap(window(), 16, delta=1e-6)
    assert cap.to("approx", delta=1e-6).epsilon < 4.0
    account = Account(tmp_path / "ledger.db", cap, mechanisms={"default": window()})
    granted, refusals = account.ask(*["default"] * 17)
    assert (len(granted), len(refusals)) == (16, 1)
    assert refusals[0].scope == "task"
    assert "delta = 0 left, and this release needs rho = 0.01706" in refusals[0].reason
    assert account.ask("default")[0] == []  # from the stored account, too
    found = account.ledger.account("clinic")
    assert found.guarantee.delta == 1e-6
    assert found.guarantee.epsilon <= cap.to("approx", delta=1e-6).epsilon
    [status] = found.tasks[0].caps
    assert status.cap == cap_of(cap)
    assert status.spent == cost_in(window(), cap_of(cap).currency) * 16
    assert status.to_dict()["cap"] == cap.to_dict()
    assert cap_of(cap) // cost_in(window(), cap_of(cap).currency) == 16
    # A cap in approx of the same total counts by addition.
    added = Account(tmp_path / "added.db", ApproxDP(3.9, 1e-5), mechanisms={"default": window()})
    assert len(added.ask(*["default"] * 17)[0]) == 3


class OtherMath:
    """The functions of another machine's C library, whose last digit may differ."""

    def __init__(self, seed):
        self._draw = random.Random(seed)

    def __getattr__(self, name):
        function = getattr(math, name)
        if name not in ("exp", "log", "log1p"):
            return function
        return lambda x: math.nextafter(function(x), self._draw.choice([-math.inf, function(x), math.inf]))


def test_a_cap_allows_as_many_windows_on_another_machine(monkeypatch):
    cap = truncated_cap(window(), 16, delta=1e-6)
    omegas = set()
    for seed in range(4):
        monkeypatch.setattr(renyi, "math", OtherMath(seed))
        renyi.truncated.cache_clear()
        omegas.add(window().guarantees[3].omega)
        assert cap_of(cap) // cost_in(window(), cap_of(cap).currency) == 16
    renyi.truncated.cache_clear()
    assert len(omegas) > 1


@pytest.mark.parametrize("count", [1, 5, 300, 50_000])
def test_a_cap_allows_exactly_the_releases_asked_for(count):
    for name in ("few-rows", "with-eigenvalue", "moments", "gaussian"):
        cap = truncated_cap(MECHANISMS[name], count, delta=0.5)
        assert cap_of(cap) // cost_in(MECHANISMS[name], cap_of(cap).currency) == count
        assert all(float(f"{figure:.6g}") == figure for figure in cap.to_dict()["tcdp"].values())


def test_a_cap_needs_releases_and_a_delta():
    for count in (0, -1, 1.5, True):
        with pytest.raises(UserError, match="is not a positive integer"):
            truncated_cap(window(), count, delta=1e-6)
    for delta in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(UserError, match=r"delta=.* is out of range"):
            truncated_cap(window(), 16, delta=delta)


def test_a_printed_omega_is_not_larger_than_the_real_one():
    cap = cap_of(TruncatedCDP(0.3, 7.176860291547098))
    assert str(cap) == "rho = 0.3, omega = 7.176860291547098, delta = 0"
    assert cap.rounded() == "rho = 0.3, omega = 7.176, delta = 0"
    assert cap_of(TruncatedCDP(0.3, 8.0)).rounded() == "rho = 0.3, omega = 8, delta = 0"


def accountant_exceeds(cap, levels, delta):
    """Return whether releases together have a larger epsilon at a delta than a cap."""
    account = Accountant()
    for level in levels:
        account.compose(MECHANISMS[level])
    return account.spent("approx", delta=delta).epsilon > cap.to("approx", delta=delta).epsilon * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("lifetime", [False, True])
def test_no_sequence_of_releases_exceeds_its_cap(tmp_path, seed, lifetime):
    draw = random.Random(seed)
    cap = TruncatedCDP(draw.uniform(0.05, 1.0), draw.choice([2.0, 5.5, 9.7, 15.0]), draw.choice([0.0, 1e-7, 1e-6]))
    account = Account(tmp_path / "ledger.db", cap, lifetime=lifetime)
    granted, blocks = [], 0
    while blocks < 12:
        levels, refusals = account.ask(*draw.choices(list(MECHANISMS), k=draw.randint(1, 8)))
        granted += levels
        blocks += 1
        spent = sum((cost_in(MECHANISMS[each], cap_of(cap).currency) for each in granted), cap_of(cap) * 0)
        assert spent <= cap_of(cap)
        # Refused only for lack of room.
        for refusal in refusals:
            cost = truncated_cost(MECHANISMS[refusal.level].guarantees, cap_of(cap).currency)
            assert cost is None or not PrivacyLoss(cap_of(cap).currency, *cost) <= refusal.left
            assert cost is not None or refusal.left is None
    assert granted
    assert "plain" not in granted
    for delta in (1e-5, 1e-4):
        assert not accountant_exceeds(cap, granted, delta)


def test_a_ledger_that_ignored_omega_would_exceed_its_cap(tmp_path, monkeypatch):
    """The wrong twin of the test above: the least rho of any order."""

    def careless(claims, currency):
        figures = [(claim.rho, claim.delta) for claim in claims if isinstance(claim, TruncatedCDP)]
        rho, delta = min(figures)
        return int(rho * UNITS), int(delta * DELTA_UNITS)

    monkeypatch.setattr("murk.producers.ledger.costs.truncated_cost", careless)
    cap = TruncatedCDP(0.1, 15.0)
    account = Account(tmp_path / "ledger.db", cap, mechanisms={"few-rows": window(50)})
    granted, _ = account.ask(*["few-rows"] * 20)
    assert accountant_exceeds(cap, granted, 1e-6)


def test_costs_are_whole_units_rounded_up():
    for name, made in MECHANISMS.items():
        for omega in (2.0, 7.0, 15.0, 1e6):
            cost = truncated_cost(made.guarantees, cap_of(TruncatedCDP(1.0, omega)).currency)
            enough = [claim for claim in made.guarantees if isinstance(claim, TruncatedCDP) and claim.omega >= omega]
            if enough:
                least = min(enough, key=lambda claim: claim.omega)
                assert 0 <= cost[0] - rational(least.rho) * UNITS < 1
                assert 0 <= cost[1] - rational(least.delta) * DELTA_UNITS < 1
            elif name in ("moments", "gaussian", "laplace"):
                assert abs(cost[0] - made.cost("rho").units) <= 1
                assert cost[1] == 0
            else:
                assert cost is None


def test_what_has_no_bound_is_refused_with_the_reason(tmp_path):
    currency = cap_of(TruncatedCDP(1.0, 50.0)).currency
    with pytest.raises(UserError, match=r"bounded for orders up to 1[0-9.]+ only; give the cap no larger omega"):
        cost_in(window(50), currency)
    with pytest.raises(UserError, match=r"only an .epsilon, delta. guarantee, which bounds no Renyi divergence"):
        cost_in(MECHANISMS["plain"], currency)
    with pytest.raises(UserError, match="have no joint truncated guarantee at delta=1e-09: give a larger delta"):
        truncated_cap(window(100, 1.0, "linear-mixing"), 16, delta=1e-9)
    account = Account(tmp_path / "ledger.db", TruncatedCDP(1.0, 50.0))
    _, [refusal] = account.ask("few-rows")
    assert "in which the mechanism of this release has no valid bound" in refusal.reason
    assert account.ask("moments")[0] == ["moments"]


def test_a_release_of_unknown_cost_leaves_nothing(tmp_path):
    """An approx cap came first; under the later one the release of an unknown rho counts as all of it."""
    account = Account(tmp_path / "ledger.db", ApproxDP(10.0, 1e-4))
    assert account.ask("plain")[0] == ["plain"]
    charges = [Charge.of(level, made.guarantee, made) for level, made in MECHANISMS.items()]
    account.ledger.book("task", charges, caps=[("", cap_of(TruncatedCDP(1.0, 5.0)))])
    _, [refusal] = account.ask("moments")
    assert "an earlier release has no known cost: nothing is left" in refusal.reason


def test_promises_are_tightened_and_not_raised(tmp_path):
    account = Account(tmp_path / "ledger.db", TruncatedCDP(1.0, 5.0))
    ledger, charges = account.ledger, [Charge.of("moments", ONE, MECHANISMS["moments"])]
    ledger.book("task", charges, caps=[("", cap_of(TruncatedCDP(0.5, 5.0)))])
    for more in (TruncatedCDP(0.6, 5.0), TruncatedCDP(0.5, 5.0, 1e-9)):
        with pytest.raises(UserError, match=r"promises each person a cap of rho = 0.5, omega = 5, delta = 0"):
            ledger.book("task", charges, caps=[("", cap_of(more))])
    # At another omega it is a further cap: both hold.
    ledger.book("task", charges, caps=[("", cap_of(TruncatedCDP(2.0, 9.0)))])
    assert [promise.units for promise in ledger.promises("task")] == [5 * 10**11, 2 * 10**12]


def test_a_cap_of_too_large_an_omega_can_be_replaced(tmp_path):
    wide, fitting = cap_of(TruncatedCDP(50.0, 500.0)), cap_of(truncated_cap(window(), 1, delta=1e-6))
    account = Account(
        tmp_path / "ledger.db", TruncatedCDP(50.0, 500.0), mechanisms={"default": window()}, lifetime=True
    )
    account.ledger.loosen(fitting)
    # Both hold, and a mixture has no cost up to the larger omega.
    [refusal] = account.ask("default")[1]
    assert refusal.needed is None
    with pytest.raises(UserError, match="promises no cap of"):
        account.ledger.loosen(fitting, instead_of=cap_of(TruncatedCDP(49.0, 500.0)))
    assert {promise.amount for promise in account.ledger.promises()} == {wide, fitting}
    account.ledger.loosen(fitting, instead_of=wide)
    assert [promise.amount for promise in account.ledger.promises()] == [fitting]
    # The task's own promise of one release holds as before.
    assert [len(account.ask("default")[0]) for _ in range(2)] == [1, 0]


def test_amounts_of_two_orders_do_not_mix():
    one, other = cap_of(TruncatedCDP(1.0, 5.0)), cap_of(TruncatedCDP(1.0, 6.0))
    for mix in (lambda: one + other, lambda: one <= other, lambda: one // other):
        with pytest.raises(UserError, match="cannot be compared or added"):
            mix()
    for wrong in ("tcdp", "tcdp:", "tcdp:1.0", "tcdp:8", "tcdp:nan", "8.0"):
        with pytest.raises(UserError, match="unknown currency"):
            PrivacyLoss(wrong, 1)
    assert guarantee_from_dict(one.to_dict()) == TruncatedCDP(1.0, 5.0)
    assert guarantee_from_text("tcdp:0.3,8,1e-7") == TruncatedCDP(0.3, 8.0, 1e-7)
    assert guarantee_from_dict({"tcdp": {"rho": 0.3, "omega": 8.0}}) == TruncatedCDP(0.3, 8.0)
    with pytest.raises(UserError, match="allows no release"):
        guarantee_from_dict({"tcdp": {"rho": 0.0, "omega": 8.0}})


def test_any_two_records_are_two_steps_apart():
    cap = truncated_cap(window(), 4, delta=1e-6)
    both = any_two_records(cap)
    assert cap.max_attack_accuracy < both.max_attack_accuracy < 1.0
    # Two steps at epsilon / 2 from the cap's own curve.
    own = cap.to("approx", epsilon=both.epsilon / 2)
    assert both.delta == pytest.approx((1 + math.exp(own.epsilon)) * own.delta, rel=1e-9)
    assert any_two_records(TruncatedCDP(500.0, 8.0)).max_attack_accuracy > 0.999999
    assert f"rho = {cap.rho:.10g}, omega = {cap.omega:.10g}" in against_a_blank_record(cap)
    assert "It is also (epsilon, delta) = (" in cap.describe()


MIXTURES = f"summaries: {{method: mixing, analysis: joint, rows: 50, window: {WINDOW}}}\n"
PEOPLE = """
name: weeks
features: [{name: age, low: 20, high: 40}]
target: {name: weeks, kind: real, low: 0, high: 52}
protocol: moments
privacy: {guarantee: {approx: {epsilon: 1.0, delta: 1.0e-6}}, per_person: %s}
"""


def sketches(cap, sketch=MIXTURES):
    return Task.parse(TEXT.replace("privacy:\n", f"privacy:\n  per_person: {cap}\n") + sketch).with_simulated(True)


@pytest.mark.parametrize("sketch", [MIXTURES, f"summaries: {{window: {WINDOW}}}\n"])
def test_a_task_of_windows(tmp_path, sketch):
    one = window_device_for(sketches("null", sketch)).mechanisms["default"]
    cap = truncated_cap(one, 4, delta=1e-6)
    task = sketches(cap.as_yaml(), sketch)
    assert Task.from_document(task.document()).hash == task.hash
    assert task.privacy.per_person == cap
    with SketchWorld(tmp_path, task) as world:
        receipts = [receipt for window in range(5) for receipt in world.producer.add_block(*coded(WINDOW))]
        assert [receipt.outcome for receipt in receipts] == ["released"] * 4 + ["refused"]
        assert "privacy.per_person: {tcdp: {rho: " in receipts[-1].reason
        assert world.ledger.account("clinic").guarantee.to("approx", delta=1e-6).epsilon < 0.9 * 4
        assert world.ledger.account("clinic").tasks[0].caps[0].spent == cost_in(one, cap_of(cap).currency) * 4
    [words, *_] = remarks_of(task)
    assert "allows an organisation 4 windows of rho = " in words
    assert "; together they disclose " in words


def remarks_of(task):
    """The remarks of a plan without forecasts."""
    return list(
        remarks(Plan(task, (Population("few", np.ones((1, 2)), np.ones(1), np.zeros(2), "real"),), (), {}, 1.0, {}))
    )


def test_a_plan_suggests_a_cap():
    for sketch in (MIXTURES, f"summaries: {{window: {WINDOW}}}\n"):
        [words] = [one for one in remarks_of(sketches("null", sketch)) if "per_person" in one]
        cap = guarantee_from_dict(
            yaml.safe_load(words[words.index("{per_person") : words.index(" allows")])["per_person"]
        )
        [mechanism, *_] = window_device_for(sketches("null", sketch)).mechanisms.values()
        assert cap_of(cap) // cost_in(mechanism, cap_of(cap).currency) == 16
    [words, _] = remarks_of(sketches("{approx: {epsilon: 3, delta: 1.0e-5}}"))
    assert "A cap of epsilon = 3, delta = 1e-05 allows an organisation 3 windows of epsilon = 1" in words


def test_a_suggested_cap_allows_windows_at_every_level():
    """A looser level has no cost at the omega that is best for the default one."""
    text = TEXT.replace("strict: {approx: {epsilon: 0.5", "open: {approx: {epsilon: 6.0") + MIXTURES
    task = Task.parse(text).with_simulated(True)
    assert not [one for one in remarks_of(task) if "tcdp" in one]
    assert "per_person: {approx: {epsilon: 10, delta: 1e-05}}" in remedy(task, "default")
    for level in ("default", "open"):
        found = re.search(r"per_person: (\{.*\}\}), or", remedy(task, level)).group(1)
        capped = Task.parse(text.replace("privacy:\n", f"privacy:\n  per_person: {found}\n")).with_simulated(True)
        assert set(window_device_for(capped).mechanisms) == {"default", "open"}


def test_a_plan_says_why_there_is_no_window():
    too_few = f"summaries: {{method: mixing, rows: 2, window: {WINDOW}}}\n"
    for cap, sketch, words in [
        ("null", too_few, "a sketch of rows=2 cannot determine 3 coefficients"),
        ("{tcdp: {rho: 1.0e-6, omega: 5.0}}", MIXTURES, "privacy.per_person: a cap of rho = 1e-06, omega = 5"),
        (
            "{tcdp: {rho: 1.0, omega: 50.0}}",
            MIXTURES,
            "privacy.per_person: cannot cap level 'default': a release",
        ),
    ]:
        notes = plan(sketches(cap, sketch), people=[1000], budgets=[1.0], protocols=["summaries"], draws=1).to_dict()[
            "notes"
        ]
        assert sum(note.startswith("summaries: ") and words in note for note in notes) == 1, notes


def test_tasks_with_wrong_caps_are_refused():
    for cap, words in [
        ("{tcdp: {omega: 5.0}}", "rho: missing"),
        ("{tcdp: {rho: 1.0, omega: 1.0}}", "leaves no order"),
        ("{tcdp: {rho: 1.0, omega: 5.0, mu: 1}}", "mu: unknown key"),
        ("{tcdp: {rho: 0, omega: 5.0}}", "allows no release"),
    ]:
        with pytest.raises(UserError, match=words):
            sketches(cap)
    with pytest.raises(
        UserError,
        match=r"guarantee.tcdp: only privacy.per_person and privacy.lifetime can be in tcdp; "
        "write one of pure, approx, gdp, zcdp$",
    ):
        Task.parse(PEOPLE.replace("approx: {epsilon: 1.0, delta: 1.0e-6}", "tcdp: {rho: 1.0, omega: 5.0}") % "null")
    with pytest.raises(UserError, match=r"allows no release at level 'default', which costs rho = "):
        window_device_for(sketches("{tcdp: {rho: 1.0e-6, omega: 5.0}}"))
    with pytest.raises(
        UserError, match=r": privacy.per_person: cannot cap level 'default': .* the cap no larger omega"
    ):
        window_device_for(sketches("{tcdp: {rho: 1.0, omega: 50.0}}"))
    with pytest.raises(UserError, match=r"allows no release at level 'default', which costs rho = "):
        Task.parse(PEOPLE % "{tcdp: {rho: 1.0e-6, omega: 5.0}}")


def test_people_and_policies_have_such_caps():
    task = Task.parse(PEOPLE % "{tcdp: {rho: 1.0, omega: 5.0}}")
    # A pure mechanism would cost more, as under gdp and zcdp.
    assert task.privacy.mechanism is None
    assert Task.parse(PEOPLE % "null").privacy.mechanism == "best"
    admission = Policy(lifetime=TruncatedCDP(0.5, 3.0)).admit(task, {"default": MECHANISMS["gaussian"]})
    assert admission.lifetime == cap_of(TruncatedCDP(0.5, 3.0))
    assert admission.caps == (("", cap_of(TruncatedCDP(1.0, 5.0))),)
    with pytest.raises(
        UserError, match=r"cap over all tasks .* cannot be applied to it: .* give the cap no larger omega"
    ):
        Policy(lifetime=TruncatedCDP(1.0, 50.0)).admit(task, {"default": window(50)})
    with pytest.raises(UserError, match=r"a release costs rho = .*, and the policy allows rho = 0.0001, omega = 3"):
        Policy(lifetime=TruncatedCDP(1e-4, 3.0)).admit(task, {"default": window(50)})
    with pytest.raises(UserError, match="asks for up to rho = 1, omega = 5, delta = 0 of each person"):
        Policy(per_task=TruncatedCDP(0.5, 5.0)).admit(task, {"default": MECHANISMS["gaussian"]})
