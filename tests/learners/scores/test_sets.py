"""Prediction sets: what devices answer, how the threshold is found, and the coverage on people who were not asked."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd
import pytest

import murk
from murk import Task
from murk._internal.links import class_probabilities, logistic
from murk.errors import DataWarning, MurkError, UserError
from murk.inference.poisoning import longest
from murk.inference.prediction_sets import LABELS, REAL, PredictionSets, Present, Reply, Root, at_least_present, bounds
from murk.learners import ScoreClassifier, ScoreRegressor
from murk.monitoring.figures import Place, figures
from murk.monitoring.metrics.catalogue import METRICS
from murk.monitoring.metrics.exporter import family
from murk.monitoring.metrics.monitor import VALUES
from murk.monitoring.snapshot import Snapshot
from murk.privacy import GaussianDP, PureDP, ZeroConcentratedDP
from murk.privacy.noise import SimulatedNoise
from murk.protocols.device import HostileModelError, device_for
from murk.protocols.linear_algebra import contrasts
from murk.protocols.scores.device import ScoreDevice
from murk.protocols.scores.engine import SharedScoreEngine
from murk.protocols.scores.model import Model, check_model, with_constant
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import ScoreRelease
from murk.stream.wire.state import Counters, StateMessage
from tests.producers.world import Untouchable, World, make_task

NAMES = ["a", "b"]
KINDS = ("real", "binary", "classes")
TARGETS = {
    "real": "{name: y, kind: real, low: 0, high: 10}",
    "binary": "{name: y, kind: binary, positive: 'yes', negative: 'no'}",
    "classes": "{name: y, kind: classes, classes: [u, v, w]}",
}


def task_of(kind, *more, sets="predictions: {coverage: 0.9, share: 0.2}"):
    features = "[{name: a, low: -1, high: 1}, {name: b, low: -1, high: 1}]"
    lines = ["name: t", f"features: {features}", f"target: {TARGETS[kind]}", sets, *more]
    return Task.parse("\n".join([*lines, "privacy: {guarantee: {gdp: {mu: 2.0}}}"]))


def people(kind, n, seed):
    """Features, and targets as codes: uneven noise, a probability of 5% to 95%, or three uneven classes."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    if kind == "real":
        return X, np.clip(0.4 * X[:, 0] + (0.15 + 0.1 * X[:, 1]) * rng.normal(size=n), -1, 1)
    if kind == "binary":
        return X, (rng.random(n) < logistic(2.5 * X[:, 0] - 0.5)).astype(float)
    odds = np.column_stack([np.ones(n), 1.5 * X[:, 0], X[:, 1] - 1.0])
    edges = np.cumsum(class_probabilities(odds, np.eye(3)), axis=1)
    return X, (rng.random(n)[:, None] > edges).sum(axis=1).clip(0, 2).astype(float)


def learner(kind, **more):
    given = {"guarantee": GaussianDP(2.0), "features": NAMES, "coverage": 0.9, "seed": 1, **more}
    if kind == "real":
        return ScoreRegressor(**given)
    return ScoreClassifier(classes=[0, 1] if kind == "binary" else [0, 1, 2], **given)


def model_of(device, b, threshold, share=1.0):
    """A published model that asks this share of people."""
    first = Model.of(device.initial, 3, sets=True)
    flat = first.flat.copy()
    flat[len(first.origin) + 9 + 2 : len(first.origin) + 9 + 7] = 0.0, 0.0, 0.0, 0.0, 1.0
    flat[-len(b) - 2 :] = [*b, threshold, share]
    return flat


# What a device answers


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_is_whether_the_target_is_in_the_set(kind):
    device, rng = device_for(task_of(kind)), np.random.default_rng(3)
    X, y = people(kind, 400, 2)
    X, y = with_constant(X), np.where(np.arange(400) % 10 == 0, np.nan, y)
    b, t = rng.normal(size=6 if kind == "classes" else 3), 0.6 if kind == "classes" else 0.4
    given = device.vectors(X, y, model_of(device, b, t), "covered")
    if kind == "real":
        covered = np.abs(y - np.clip(X @ b, -1, 1)) <= t
    else:
        basis = contrasts(3) if kind == "classes" else np.array([[0.0], [1.0]])
        chances = class_probabilities(X @ b.reshape(-1, 3).T, basis)
        covered = chances[np.arange(400), np.nan_to_num(y).astype(int)] >= 1.0 - t
    assert given.shape == (400, 1)
    # People without a target answer C, which moves no threshold.
    assert np.array_equal(given[:, 0], np.where(np.isnan(y), 0.8, np.where(covered, 1.0, -1.0)))
    assert 0.1 < covered.mean() < 0.9
    one = np.array([device.vectors(X[i : i + 1], y[i : i + 1], model_of(device, b, t), "covered") for i in range(50)])
    assert np.array_equal(one[:, 0], given[:50])


def test_an_answer_is_bounded_whatever_the_model_and_the_record():
    device = device_for(task_of("classes"))
    X = np.array([[1e300, -1e300, 1.0], [0.0, 0.0, 1.0]])
    for numbers in ([1e4] * 6, [-1e4] * 6, [0.0] * 6):
        for t in (0.0, 1.0, 2.0):
            given = device.vectors(X, np.array([1e9, -3.0]), model_of(device, numbers, t), "covered")
            assert np.all(np.abs(given) <= 1.0)


def test_every_answer_costs_the_persons_whole_budget_and_no_more():
    for guarantee in (GaussianDP(1.0), PureDP(1.0), PureDP(4.0), ZeroConcentratedDP(0.5)):
        model = learner("real", guarantee=guarantee)
        model.learn_one({"a": 0.0, "b": 0.0}, 0.0)
        pair = model._require().mechanisms["default"]
        assert pair.mechanism("covered").dimension == 1
        assert pair.mechanism("covered").cost("gdp").units <= pair.score.cost("gdp").units * (1 + 1e-6)
        assert pair.mechanism("covered").kind == pair.kind
        rows = np.tile([[1.0]], (20_000, 1))
        payloads = pair.bit.randomize(rows, SimulatedNoise(1), np.arange(20_000))
        error = 5.0 * np.sqrt((pair.bit.variance + 1.0) / 20_000)
        # One false alarm in a million: five standard errors.
        assert abs(pair.bit.decode(payloads).mean() - 1.0) < error


@pytest.mark.parametrize("change", [{-2: -0.1}, {-2: 2.1}, {-1: 1.1}, {-1: -0.1}, {-3: 1e5}])
def test_a_hostile_model_is_refused_before_a_record_is_read(tmp_path, change):
    task = make_task("protocol: scores", "predictions: {}")
    device = device_for(task)
    flat = device.initial.copy()
    assert check_model(flat, device.settings.features, sets=True).sets is not None
    for place, value in change.items():
        flat[place] = value
    with pytest.raises(HostileModelError):
        device.check_model(flat)
    with World(tmp_path, task) as world:
        world.publish(flat.tolist(), version=3_000)
        with pytest.raises(UserError, match=r"refused|honest learner"):
            world.producer.release(Untouchable())
        assert world.ledger.totals().releases == 0


# What a learner admits and keeps


def unsurveyed(device):
    """The device without its survey, so that answers may be about sets from the beginning."""
    return ScoreDevice(replace(device.settings, survey=None), device.mechanisms)


def release(device, **more):
    fields = {"id": "0" * 32, "task": "f" * 64, "level": "default", "partition": 0, "time": 0, "expires": 86_400}
    return ScoreRelease(**fields | {"version": 0, "query": "covered", "payload": [7]} | more)


def test_answers_are_admitted_where_they_are_asked_for():
    asking, plain = (unsurveyed(device_for(task)) for task in (task_of("real"), task_of("real", sets="")))
    engine = asking.engine()
    engine.admit(release(asking), 0)
    assert engine.admits([release(asking)])
    for other, reason in (({"payload": [1, 2]}, "dimension"), ({"payload": [2**55]}, "magnitude")):
        with pytest.raises(RejectedError) as refused:
            engine.admit(release(asking, **other), 0)
        assert refused.value.reason == reason
        assert not engine.admits([release(asking, **other)])
    with pytest.raises(RejectedError, match="asks nobody"):
        plain.engine().admit(release(plain), 0)


def test_a_task_without_sets_is_as_before():
    plain = device_for(task_of("real", sets=""))
    assert plain.queries == ("score", "scatter", "curvature", "above-0")
    assert (plain.lengths, plain.model_size) == ((3, 6, 1), 19)
    assert b"predictions" not in task_of("real", sets="").document()
    assert task_of("real", sets="").hash == task_of("real", sets="predictions: null").hash
    assert task_of("real", sets="").hash != task_of("real").hash


def test_states_come_back_and_do_not_mix_with_others():
    asked, plain = learner("real"), learner("real", coverage=None)
    X, y = people("real", 4_000, 5)
    for model in (asked, plain):
        model.learn_many(X, y)
    state = json.loads(json.dumps(asked.state_dict()))
    again = learner("real")
    again.load_state_dict(state)
    for model in (asked, again):
        model.learn_many(X, y)
    assert again.state_dict() == asked.state_dict()
    assert again.predict_interval_one({"a": 0.3}) == asked.predict_interval_one({"a": 0.3})
    for model, other in ((learner("real"), plain), (learner("real", coverage=None), asked)):
        with pytest.raises(MurkError, match="other settings"):
            model.load_state_dict(other.state_dict())


@pytest.mark.parametrize("budget", [GaussianDP(2.0), PureDP(4.0)])
def test_records_one_by_one_are_learned_as_a_block(budget):
    X, y = people("classes", 3_200, 6)
    block, single = learner("classes", guarantee=budget), learner("classes", guarantee=budget)
    block.learn_many(X, y)
    for row, target in zip(X.tolist(), y.tolist(), strict=True):
        single.learn_one(dict(zip(NAMES, row, strict=True)), target)
    assert single.state_dict() == block.state_dict()


# The threshold


def replies(curve, scale, coverage, n, seed, noise=0.25, present=1.0, stated=1.0):
    """Answers by rounds at the thresholds that the root asks about; ``stated`` multiplies the noise that is stated."""
    rng, found, start, end = np.random.default_rng(seed), [], 0, 300
    while start < n:
        asked = min(end, n) - start
        threshold = Root(scale, coverage, found, Present(present, present)).next_query()
        covered = rng.binomial(asked, present * curve(threshold) + (1.0 - present) * coverage)
        share = covered / asked + np.sqrt(noise / asked) * rng.normal()
        found.append(Reply(threshold, share, stated * noise / asked, asked, 0.0))
        start, end = end, 2 * end
    return found


CURVES = {
    "smooth": (REAL, lambda t: 1.0 - np.exp(-t / 0.2)),
    "a uniform error": (REAL, lambda t: min(t / 0.8, 1.0)),
    "a plateau of 88% before 97%": (REAL, lambda t: 0.88 * (t >= 0.05) + 0.09 * (t >= 1.0) + 0.03 * (t >= 1.9)),
    "everybody at one distance": (REAL, lambda t: float(t >= 0.3)),
    "an outcome of 6%": (LABELS, lambda t: 0.94 * (t >= 0.06) + 0.06 * (t >= 0.94)),
    "an outcome of 12%": (LABELS, lambda t: 0.88 * (t >= 0.12) + 0.12 * (t >= 0.88)),
    "even chances": (LABELS, lambda t: 0.6 * (t >= 0.4) + 0.4 * (t >= 0.6)),
}
RUNS = 20


def served(name, n, coverage=0.9, runs=RUNS, **more):
    """Sets by run, and the share of people with a target whose set contains it."""
    scale, curve = CURVES[name]
    found = []
    for seed in range(runs):
        present = Present(more.get("present", 1.0), more.get("present", 1.0))
        root = Root(scale, coverage, replies(curve, scale, coverage, n, seed, **more), present)
        sets = PredictionSets(root, np.zeros(1), None if scale.real else np.eye(2), n)
        found.append((sets, 1.0 if sets.whole else float(curve(sets._threshold))))
    return found


def shortfalls(found, wanted=0.9):
    """Numbers of runs that cover less than wanted, and in which the stated interval does not contain the coverage."""
    wrong = [not low - 1e-9 <= true <= high + 1e-9 for sets, true in found for low, high in [sets.interval]]
    return sum(true < wanted - 1e-9 for _, true in found), sum(wrong)


@pytest.mark.parametrize("coverage", [0.9, 0.5])
@pytest.mark.parametrize("name", CURVES)
def test_the_threshold_covers_in_nearly_all_runs(name, coverage):
    """A run falls short, or misstates coverage, with probability 5%; of 20, more than 6 do with probability 3e-5."""
    found = served(name, 9_600, coverage)
    assert max(shortfalls(found, coverage)) <= 6
    if coverage == 0.9:
        mean = np.mean([true for _, true in found])
        assert mean < {"smooth": 0.95, "a uniform error": 0.98, "an outcome of 6%": 0.96}.get(name, 1.01)


@pytest.mark.parametrize("name", CURVES)
def test_missing_targets_lower_no_coverage(name):
    """As above, where four targets in five are missing and count as 90%."""
    assert max(shortfalls(served(name, 9_600, present=0.2))) <= 6


def test_thresholds_of_a_lower_coverage_fall_short():
    """The wrong twin of the tests above: they would notice a lower nominal coverage."""
    assert shortfalls(served("smooth", 100_000, coverage=0.85))[0] > 15


def test_bounds_that_leave_out_noise_fall_short():
    """The wrong twin of the tests above: they would notice intervals without the noise of answers."""
    assert max(shortfalls(served("an outcome of 12%", 2_400, noise=4.0, stated=0.01))) > 6


def test_where_no_threshold_is_known_to_suffice_sets_contain_everything():
    """90% of the targets are near, and the others at a bound: answers cannot tell 90% from less."""
    few = Root(REAL, 0.9, [Reply(0.3, 0.9, 1e-4, 1e4, 0.0)])
    sets = PredictionSets(few, np.array([0.1, 0.2]), None, 10_000)
    assert sets.known
    assert sets.whole
    assert sets.intervals(np.array([[1.0, 1.0], [-1.0, 1.0]])).tolist() == [[-1.0, 1.0]] * 2
    assert "the target's whole range" in sets.to_dict()["words"]
    labels = PredictionSets(Root(LABELS, 0.9, few.replies), np.array([1e4, 0.0]), np.array([[0.0], [1.0]]), 10_000)
    assert labels.members(np.array([[1.0, 1.0], [-1.0, 1.0]])).all()


def test_sets_are_of_the_newest_model_whose_own_answers_suffice():
    good, bad, few = ((share, noise) for share, noise in ((0.97, 1e-5), (0.91, 1e-4), (0.99, 1e-2)))
    given = [
        Reply(0.3 + k / 10, *each, 1e5, 0.0, np.array([float(k)])) for k, each in enumerate((good, good, bad, few))
    ]
    sets = PredictionSets(Root(REAL, 0.9, given), np.array([9.0]), None, 10)
    assert (sets.threshold, sets.origin.tolist()) == (0.4, [1.0])


def test_where_nobody_may_have_a_target_there_are_no_sets():
    """Missing targets count as C, so that nobody's answers look like perfect ones."""
    replied = [Reply(0.3, 0.93, 1e-5, 1e5, 0.0)]
    for present in (Present(0.3, 0.25), Present(0.02, 0.0)):
        sets = PredictionSets(Root(REAL, 0.9, replied, present), np.zeros(1), None, 1_000)
        assert sets.known == (present.least > 0.1)
    with pytest.raises(UserError, match="not known that anybody has a target"):
        sets.threshold  # noqa: B018
    assert bounds(0.9, replied)[0][0] > 0.9
    assert 0.2 < at_least_present(0.9, replied) < 0.3


def test_more_answers_give_smaller_sets_and_more_certainty():
    few, many = (served("smooth", n, runs=1)[0] for n in (2_400, 100_000))
    assert many[0]._error < few[0]._error / 5.0
    assert abs(many[1] - 0.9) < 0.03 < few[1] - 0.9
    low, high = many[0].interval
    assert high < low + 0.06
    assert Root(REAL, 0.9, []).error() == np.inf


def test_replies_at_another_prediction_count_for_less():
    reply = Reply(0.3, 0.9, 1e-4, 1e4, 0.0)
    still, moved = (Root(REAL, 0.9, [Reply(0.3, 0.9, 1e-4, 1e4, m)]) for m in (reply.moved, 0.5))
    assert moved.error() > 5.0 * still.error()
    assert moved.quantile(0.95) > still.quantile(0.95) > 0.3


# Coverage of people who were not asked


@cache
def coverages(kind, coverage):
    """Coverage of held-out people and mean size of sets, in 5 runs."""
    found = []
    for seed in range(5):
        model = learner(kind, coverage=coverage, coverage_share=0.3, seed=seed)
        asked = 24_000 + model._require().settings.survey.end
        X, y = people(kind, asked + 20_000, 200 + seed)
        model.learn_many(X[:asked], y[:asked])
        if kind == "real":
            ends = model.predict_interval_many(X[asked:])
            covered, sizes = (ends[:, 0] <= y[asked:]) & (y[asked:] <= ends[:, 1]), ends[:, 1] - ends[:, 0]
        else:
            members = model.predict_set_many(X[asked:])
            covered, sizes = members[np.arange(20_000), y[asked:].astype(int)], members.sum(axis=1)
        found.append((covered.mean(), sizes.mean()))
    return np.array(found)


LEAST = 0.9 - 3.0 * np.sqrt(0.9 * 0.1 / 20_000)  # three standard errors of 20,000 held-out people


@pytest.mark.parametrize("kind", KINDS)
def test_sets_cover_people_who_were_not_asked(kind):
    """A run falls short with probability 5%: more than 2 of 5 do so with probability 0.0012."""
    found = coverages(kind, 0.9)
    assert (found[:, 0] < LEAST).sum() <= 2
    assert found[:, 0].mean() < 0.99
    assert found[:, 1].mean() < {"real": 1.1, "binary": 1.8, "classes": 2.9}[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_sets_of_a_lower_coverage_do_not(kind):
    """The wrong twin of the test above."""
    found = coverages(kind, 0.5)
    assert (found[:, 0] < LEAST).sum() > 2
    assert found[:, 1].mean() < coverages(kind, 0.9)[:, 1].mean()


def test_missing_targets_do_not_move_the_threshold():
    """If they counted as outside, 40% of them would make 90% unattainable, and the threshold the largest."""
    X, y = people("real", 48_000, 9)
    whole, part = learner("real", coverage_share=0.3), learner("real", coverage_share=0.3)
    whole.learn_many(X, y)
    with pytest.warns(DataWarning, match="without a target"):
        part.learn_many(X, np.where(np.random.default_rng(1).random(len(y)) < 0.4, np.nan, y))
    one, other = (model.prediction_sets().threshold for model in (whole, part))
    assert abs(np.log(one / other)) < 0.35


def test_forged_answers_move_coverage_by_no_more_than_is_stated():
    model = learner("real")
    X, y = people("real", 24_000 + model._require().settings.survey.end, 3)
    model.learn_many(X, y)
    sets, mechanism = model.prediction_sets(), model._require().mechanisms["default"].mechanism("covered")
    assert not sets.whole
    forged = model.summary().report["forged"]
    assert [each["lowered"] for each in forged["coverage"]] == pytest.approx([sets.reach, 24 * sets.reach, 1.0], 1e-9)
    assert "How far the coverage of prediction sets could have been lowered at most: 1 forged" in forged["words"]
    rounds = model._require().now.rounds
    (round_,) = [each for each in rounds if each.model.sets.origin.tolist() == sets.origin.tolist() and each.tallies]
    tally = round_.tallies["default", "covered"]
    # The same answers, with one of them forged.
    shares = [
        mechanism.unit * (tally.total[0] + more) / tally.count / 2.0
        for more in (0, longest(mechanism) / mechanism.unit)
    ]
    assert shares[1] - shares[0] <= sets.reach
    # Missing targets, which are not ruled out, raise the bound by less than a half here.
    assert shares[1] - shares[0] > sets.reach / 2.0


# Pickles of earlier versions


def test_a_pickled_model_holds_no_thresholds():
    model = Model.of(device_for(task_of("real", sets="")).initial, 3)
    assert len(model.thresholds) == 3
    assert "thresholds" not in pickle.loads(pickle.dumps(model)).__dict__


# River


def test_intervals_are_in_the_targets_units_and_bounds():
    model = learner("real", target_bounds=(0.0, 20.0))
    X, y = people("real", 30_000 + model._require().settings.survey.end, 3)
    model.learn_many(pd.DataFrame(X, columns=NAMES), 10.0 + 10.0 * y)
    low, high = model.predict_interval_one({"a": 0.1, "b": 0.0})
    threshold = 10.0 * model.prediction_sets().threshold
    assert high - low == pytest.approx(2.0 * threshold)
    assert model.predict_one({"a": 0.1, "b": 0.0}) == pytest.approx((low + high) / 2.0, abs=1.0)
    frame = model.predict_interval_many(pd.DataFrame([{"a": 0.1, "b": 0.0}, {"a": 1.0, "b": 0.0}]))
    assert frame.loc[0].tolist() == [low, high]
    assert frame.loc[1, "high"] <= 20.0
    found = model.summary().report["prediction_sets"]
    assert found["threshold"] == pytest.approx(threshold)
    assert found["interval"][0] < found["estimated"] <= found["interval"][1]
    assert 2_700 < found["answers"] < 3_300
    assert "plus or minus" in str(model.summary())
    assert "plus or minus" in model.summary()._repr_html_()
    assert pickle.loads(pickle.dumps(model)).predict_interval_one({"a": 0.1, "b": 0.0}) == (low, high)


def test_sets_hold_labels():
    X, y = people("binary", 30_000, 3)
    model = learner("binary", seed=2)
    model.learn_many(pd.DataFrame(X, columns=NAMES), y.astype(int))
    sure, unsure = {"a": -0.95, "b": 0.0}, {"a": 0.2, "b": 0.0}
    assert (model.predict_set_one(sure), model.predict_set_one(unsure)) == ({0}, {0, 1})
    table = model.predict_set_many(pd.DataFrame([sure, unsure]))
    assert table.to_dict("list") == {0: [True, True], 1: [False, True]}
    least = 1.0 - model.prediction_sets().threshold
    assert all((chance >= least) == (label in model.predict_set_one(sure)) for label, chance in
               model.predict_proba_one(sure).items())  # fmt: skip


def test_sets_are_refused_with_the_remedy():
    plain = learner("real", coverage=None)
    with pytest.raises(UserError, match=r"give coverage=0\.9"):
        plain.predict_interval_one({"a": 0.0})
    model = learner("real")
    X, y = people("real", 60 + model._require().settings.survey.end, 1)
    model.learn_many(X, y)
    with pytest.raises(UserError, match=r"learn from more people, about \d+\.\d times as many"):
        model.predict_interval_one({"a": 0.0})
    assert model.summary().report["prediction_sets"]["threshold"] is None
    for wrong in ({"coverage": 90}, {"coverage": 0.4}, {"coverage_share": 0.5}, {"coverage": "most"}):
        with pytest.raises(UserError, match="is not between"):
            learner("real", **wrong)


# Tasks


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("protocol: moments", "say protocol: scores"),
        ("protocol: gradients", "say protocol: scores"),
        ("log: {partitions: 2}\nscores: {models: per-partition}", "models: shared"),
    ],
)
def test_tasks_that_cannot_ask_are_refused(more, message):
    with pytest.raises(UserError, match=message):
        task_of("real", more)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Results of the same people by one partition and by three, which share models."""
    folder = tmp_path_factory.mktemp("sets")
    X, y = people("real", 6_500, 4)
    rows = pd.DataFrame({"a": X[:, 0].round(4), "b": X[:, 1].round(4), "y": (5.0 + 5.0 * y).round(4)})
    rows.to_csv(folder / "people.csv", index=False)
    return [
        murk.run(task_of("real", f"log: {{partitions: {count}}}"), folder / "people.csv", seed=3) for count in (1, 3)
    ]


def test_partitions_that_share_models_share_sets(results):
    one, three = (result.report["prediction_sets"] for result in results)
    assert dict(one) == dict(three)
    assert 1_150 < one["answers"] < 1_450


def test_results_have_sets(results):
    X, y = people("real", 20_000, 5)
    records = [{"a": a, "b": b} for a, b in X.tolist()]
    ends = results[0].predict_sets(records)
    assert ends.shape == (20_000, 2)
    assert ((ends[:, 0] <= 5.0 + 5.0 * y) & (5.0 + 5.0 * y <= ends[:, 1])).mean() > LEAST
    assert np.all((ends >= 0.0) & (ends <= 10.0))
    again = pickle.loads(pickle.dumps(results[0]))
    assert np.array_equal(again.predict_sets(records[:5]), ends[:5])


def test_the_monitor_shows_sets():
    task = task_of("real")
    device = device_for(task)
    engine, noise = device.engine(), SimulatedNoise(2)
    X, y = people("real", 6_000, 4)
    X = with_constant(X)
    while engine.n_releases < len(X):
        start = engine.n_releases
        rows = np.arange(start, min(device.next_published(start), len(X)))
        flat = np.array(engine.published()[1])
        asked, answers = np.array(device.draw_query(noise, rows, flat)), {}
        for query in sorted(set(asked.tolist())):
            own = rows[asked == query]
            given = device.vectors(X[own], y[own], flat, query)
            answers["default", query] = device.mechanism("default", query).randomize(given, noise, own)
        engine.learn_payloads(answers)
    message = StateMessage(
        task=task.hash, identity="x", partition=0, offset=6_000, last_id=None, counters=Counters(learned=6_000),
        learner=engine.state_dict(),
    )  # fmt: skip
    snapshot = Snapshot(
        task=task, url="x", started=0.0, now=0.0, figures=figures(task, device, [message], [Place(6_000, 6_000)]),
        read=True, problem=None, rate=0.0, grown=0.0, reference=None, history=(), pace={},
    )  # fmt: skip
    told = json.loads(snapshot.body)["estimate"]["prediction_sets"]
    samples = {
        (sample.name, sample.labels.get("end")): sample.value
        for metric in METRICS
        if metric.name.startswith("murk_prediction")
        for sample in family(metric, {"t": VALUES[metric.name](snapshot)}).samples
    }
    assert samples["murk_prediction_threshold", None] == told["threshold"] > 0.5
    assert samples["murk_prediction_answers", None] == told["answers"]
    ends = [samples["murk_prediction_coverage", end] for end in ("low", "estimate", "high")]
    assert ends == [told["interval"][0], told["estimated"], told["interval"][1]]


def test_late_models_keep_the_sums_of_their_own_threshold():
    """A partition learns answers at a model that another partition's learner made, and knows the joint sets."""
    device = device_for(task_of("real", "log: {partitions: 2}"))
    first, second = device.engine(), device.engine()
    assert isinstance(first, SharedScoreEngine)
    for engine in (first, second):
        engine.learn_payloads({("default", "covered"): np.full((40, 1), 1000), ("default", "score"): np.ones((1_500, 3))
                               .astype(np.int64)})  # fmt: skip
    first.begin_round([second])
    second.admission.hear(first.state_dict())
    assert second.model.sets is not None
    assert device.estimate([first, second]).sets.answers == 80
