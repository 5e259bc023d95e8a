"""Assumed populations: within the task's bounds, with the effects that were stated."""

import numpy as np
import pytest
from scipy import special

from murk import Task
from murk.errors import UserError
from murk.protocols.population import Effects, designs, effect_of

TASK = """
name: t
features:
  - {name: age, low: 20, high: 60}
  - {name: sex, categories: [no, yes]}
  - {name: origin, categories: [EWR, JFK, LGA]}
  - {name: begun, kind: date, low: 2020-01-01, high: 2024-01-01, as: [number, weekday]}
target: %s
privacy: {guarantee: {gdp: {mu: 1.0}}}
"""
BINARY, REAL = "{name: y, kind: binary, positive: 'yes'}", "{name: y, kind: real, low: 0, high: 52}"


def task(target=BINARY):
    return Task.parse(TASK % target)


def test_designs_are_within_bounds_and_the_hard_one_is_harder():
    typical, hard = designs(task(), Effects())
    for one in (typical, hard):
        assert one.points.shape[1] == task().coding.size
        assert np.abs(one.points).max() <= 1.0
        assert (one.points[:, -1] == 1.0).all()
    deviation = typical.points.std(axis=0)
    assert deviation[0] == pytest.approx(0.4, rel=0.03)
    assert (typical.points[:, 1] > 0).mean() == pytest.approx(0.5, abs=0.01)
    # One of three origins each; one of twenty in the hard design.
    assert (typical.points[:, 2:4] > 0).mean(axis=0) == pytest.approx([1 / 3, 1 / 3], abs=0.01)
    assert (hard.points[:, 2:4] > 0).mean(axis=0) == pytest.approx([0.05, 0.05], abs=0.01)
    assert hard.points.std(axis=0)[0] < deviation[0] / 2
    assert abs(np.corrcoef(typical.points[:, :2].T)[0, 1]) < 0.15
    assert abs(np.corrcoef(hard.points[:, [0, 4]].T)[0, 1]) > 0.3


def test_effects_and_the_base_rate_are_those_stated():
    one = designs(task(), Effects(named={"age": 1.05, "sex": 2.0}, rate=0.2))[0]
    # Coded, 20 years are 1 and two categories are 2 apart.
    assert np.exp(one.theta[0] / 20) == pytest.approx(1.05)
    assert np.exp(2 * one.theta[1]) == pytest.approx(2.0)
    assert one.shares @ special.expit(one.points @ one.theta) == pytest.approx(0.2)
    records = one.records
    assert records.shares.sum() == pytest.approx(1.0)
    assert records.shares @ records.y == pytest.approx(0.2)
    weeks = designs(task(REAL), Effects(named={"age": 0.1}))[0]
    assert weeks.theta[0] * 26 / 20 == pytest.approx(0.1)
    each = designs(task(), Effects(each=2.0))[0]
    assert each.theta[:-1] * each.points[:, :-1].std(axis=0) == pytest.approx(np.log(2.0))


@pytest.mark.parametrize("rate", [0.5, 0.1])
def test_assumed_effects_of_many_features_stay_within_a_real_targets_bounds(rate):
    names = ", ".join(f"{{name: x{j}, low: 0, high: 1}}" for j in range(30))
    of = Task.parse(f"name: t\nfeatures: [{names}]\ntarget: {REAL}\nprivacy: {{guarantee: {{gdp: {{mu: 1.0}}}}}}")
    for one in designs(of, Effects(rate=rate)):
        line = one.points @ one.theta
        assert np.abs(line).max() <= 1.0
        assert one.shares @ line == pytest.approx(2 * rate - 1)
        assert 0.01 < line.std() <= 0.301
    # Stated ones are taken as they are.
    with pytest.raises(UserError, match="beyond its public bounds"):
        designs(of, Effects(each=5.0))


def test_public_rows_are_the_design_thinned_where_they_are_many():
    rng = np.random.default_rng(1)
    of = Task.parse("public: {file: rows.csv}\n" + TASK % BINARY)
    points = np.column_stack([rng.uniform(-1, 1, size=(5_000, of.coding.size - 1)), np.ones(5_000)])
    (one,) = designs(of.with_public(points, np.ones(5_000, dtype=np.int64)), Effects())
    assert one.name == "public"
    assert len(one.points) == 2_000
    assert one.points.mean(axis=0)[:-1] == pytest.approx(points.mean(axis=0)[:-1], abs=0.04)


def test_mistakes_are_said():
    with pytest.raises(UserError, match=r"'agee'.*age, sex"):
        designs(task(), Effects(named={"agee": 1.5}))
    with pytest.raises(UserError, match=r"odds ratio: give a positive number such as 1\.5, not -2"):
        designs(task(), Effects(each=-2.0))
    with pytest.raises(UserError, match="beyond its public bounds"):
        designs(task(REAL), Effects(each=60.0))
    with pytest.raises(UserError, match="between 0 and 1"):
        Effects(rate=1.0)
    for wrong in ("x", "age=", "=2", "age=nan"):
        with pytest.raises(UserError, match="is no effect"):
            effect_of(wrong, {})
    assert effect_of("age=1.5", {}) == ("age", 1.5)


def test_classes_have_effects_on_each():
    of = Task.parse(
        "name: t\nfeatures: [{name: a, low: 0, high: 1}]\ntarget: {name: y, kind: classes, classes: [u, v, w]}\n"
        "public: {set_aside: 500}\nprivacy: {guarantee: {gdp: {mu: 1.0}}}"
    )
    one = designs(of, Effects())[0]
    assert one.theta.shape == (3, 2)
    assert one.records.shares.sum() == pytest.approx(1.0)
    with pytest.raises(UserError, match="classes"):
        designs(of, Effects(named={"a": 2.0}))


def stated(target, feature=""):
    return Task.parse(
        f"name: t\nfeatures: [{{name: age, low: 20, high: 60{feature}}}, {{name: sex, categories: [f, m]}}]\n"
        f"target: {{name: y, {target}}}\nprivacy: {{guarantee: {{gdp: {{mu: 1.0}}}}}}"
    )


def test_what_a_task_states_of_its_target_is_the_assumed_rate():
    for target, wanted in (("rate: 0.06, ", 0.06), ("", 0.5)):
        one = designs(stated(f"{target}kind: binary, positive: 'yes'"), Effects())[0]
        assert one.shares @ special.expit(one.points @ one.theta) == pytest.approx(wanted, abs=1e-6)
    # Who asks knows better.
    asked = designs(stated("rate: 0.06, kind: binary, positive: 'yes'"), Effects(rate=0.3))[0]
    assert asked.shares @ special.expit(asked.points @ asked.theta) == pytest.approx(0.3, abs=1e-6)
    classes = designs(stated("kind: classes, classes: [a, b, c], rate: [0.8, 0.15, 0.05]"), Effects())[0]
    odds = np.exp(classes.points @ classes.theta.T)
    assert classes.shares @ (odds / odds.sum(axis=1, keepdims=True)) == pytest.approx([0.8, 0.15, 0.05], abs=1e-6)
    with pytest.raises(UserError, match="state their shares in the task"):
        designs(stated("kind: classes, classes: [a, b, c]"), Effects(rate=0.1))
    real = designs(stated("kind: real, low: 0, high: 100, typical: [0, 20]"), Effects())[0]
    assert real.shares @ (real.points @ real.theta) == pytest.approx(-0.8)


def test_nine_tenths_of_a_feature_lie_in_its_typical_range():
    for one in designs(stated("kind: binary, positive: 'yes'", ", typical: [24, 32]"), Effects()):
        age = 40 + 20 * one.points[:, 0]
        assert np.mean((age >= 24) & (age <= 32)) == pytest.approx(0.9, abs=0.01)
    for one in designs(stated("kind: binary, positive: 'yes'"), Effects()):
        assert np.mean((40 + 20 * one.points[:, 0] >= 24) & (40 + 20 * one.points[:, 0] <= 32)) < 0.5


@pytest.mark.parametrize("fill", ["indicator", "24"])
def test_features_have_their_stated_shares_of_missing_values(fill):
    """Coded as devices code them; without a stated share nothing is missing, or one in twenty with an indicator."""
    for share, wanted in ((", missing_share: 0.1", 0.1), ("", 0.05 if fill == "indicator" else 0.0)):
        of = stated("kind: binary, positive: 'yes'", f", missing: {fill}{share}")
        coded = of.coding.encode_record({"sex": "f"}, target=False).x
        own = [index for index, name in enumerate(of.coding.names) if name.startswith("age")]
        for one in designs(of, Effects()):
            assert np.mean((one.points[:, own] == coded[own]).all(axis=1)) == pytest.approx(wanted)
            if fill == "indicator":
                assert np.mean(one.points[:, of.coding.names.index("age=missing")] == 1.0) == pytest.approx(wanted)


def test_categories_that_are_missing_are_none_of_them():
    text = TASK.replace("[EWR, JFK, LGA]", "[EWR, JFK, LGA], missing_share: 0.2")
    for one in designs(Task.parse(text % BINARY), Effects()):
        assert np.mean((one.points[:, 2:4] == 0.0).all(axis=1)) == pytest.approx(0.2)


@pytest.mark.parametrize("protocol", ["scores", "moments", "examples", "gradients", "summaries"])
def test_targets_are_missing_as_the_task_states_with_every_protocol(protocol):
    of = stated("kind: binary, positive: 'yes', rate: 0.3, missing_share: 0.2")
    for one in designs(of.with_protocol(protocol), Effects()):
        found = one.records
        missing = np.isnan(found.y)
        assert found.shares[missing].sum() == pytest.approx(0.2)
        assert found.shares[~missing] @ found.y[~missing] == pytest.approx(0.8 * 0.3)
        assert found.X[missing].T @ found.shares[missing] == pytest.approx(0.2 * one.points.T @ one.shares)
