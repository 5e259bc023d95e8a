"""What every learner says of itself: a summary, and in a notebook what was learned and not only its parameters."""

import json
import math

import numpy as np
import pytest

from murk import Task
from murk.errors import UserError
from murk.learners import Encoder, IWPSGDClassifier, LDPSGDRegressor, ScoreClassifier, ScoreRegressor
from murk.privacy import GaussianDP, PureDP
from tests.learners.catalogue import FEATURED, FEATURES, NAMES, made, target_of

TASK = Task.parse("""
name: weeks
features: [{name: dose, low: 0, high: 50}, {name: fit, categories: ["no", "yes"]}]
target: {name: weeks, kind: real, low: 0, high: 40}
privacy: {guarantee: {gdp: {mu: 4.0}}}
""")


@pytest.fixture(scope="module")
def regressor():
    """By 20 + 10 a + 2 b of coded features: 0.4 a unit of dose, 4 for fit against not fit."""
    rng = np.random.default_rng(1)
    X = rng.choice([-1.0, 1.0], size=(20_000, 2))
    learner = ScoreRegressor(guarantee=GaussianDP(4.0), target_bounds=(0, 40), features=["dose", "fit"], seed=1)
    learner.learn_many(X, 20 + 10 * X[:, 0] + 2 * X[:, 1])
    return learner


def test_a_summary_has_the_learners_own_numbers(regressor):
    found = regressor.summary()
    intervals = regressor.confidence_intervals()
    assert {each.name: each.value for each in found} == regressor.coefficients()
    assert all(each.interval == intervals[each.name] for each in found)
    assert (found.method, found.level, found.n_releases) == (intervals.method, 0.95, 20_000)
    assert found["dose"].effect is None
    assert "mu = 4" in found.promise["default"]
    assert found.simulated
    assert json.loads(found.to_json())["coefficients"] == regressor.coefficients()


@pytest.mark.parametrize("given", [TASK, Encoder(TASK)], ids=["task", "encoder"])
def test_natural_units_come_of_the_task_that_coded_the_features(regressor, given):
    found = regressor.summary(given)
    for name, truth, units in (("dose", 0.4, 1 / 25), ("fit", 4.0, 2.0), ("intercept", 20.0, 1.0)):
        low, high = found[name].effect_interval
        assert low < truth < high
        assert (low, high) == pytest.approx([units * end for end in found[name].interval])
    assert found["dose"].average_effect == pytest.approx(found["dose"].effect)
    assert found["fit"].unit == "fit: yes against no"


def test_odds_ratios_are_the_exponentials_of_natural_units():
    task = Task.parse("""
name: fit
features: [{name: dose, low: 0, high: 50}]
target: {name: fit, kind: binary, positive: "yes"}
privacy: {guarantee: {gdp: {mu: 4.0}}}
""")
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, size=(20_000, 1))
    learner = ScoreClassifier(guarantee=GaussianDP(4.0), features=["dose"], seed=1)
    learner.learn_many(X, rng.random(20_000) < 1 / (1 + np.exp(-X[:, 0])))
    found = learner.summary(task)
    assert found["dose"].odds_ratio == pytest.approx(math.exp(found["dose"].value / 25.0))
    # In percentage points: on average over the people sigma' is 0.23 or so.
    assert found["dose"].average_effect == pytest.approx(23.0 * found["dose"].value / 25.0, rel=0.1)


@pytest.mark.parametrize(
    "learner",
    [
        ScoreClassifier(guarantee=GaussianDP(4.0), classes=("bus", "car", "foot"), features=["fit"], seed=1),
        IWPSGDClassifier(
            guarantee=GaussianDP(4.0),
            classes=("bus", "car", "foot"),
            features=["fit"],
            loss="log",
            release="cells",
            grid=2,
            seed=1,
        ),
    ],
    ids=["scores", "cells"],
)
def test_average_effects_on_each_class_come_of_the_task(learner):
    """A class's line changes by the difference of its shares, a softmax by ``2 p_k (b_k - sum p b)`` on average.

    An interval misses the true difference with probability 2e-9. None holds another class's.
    """
    task = Task.parse("""
name: modes
features: [{name: fit, categories: ["no", "yes"]}]
target: {name: mode, kind: classes, classes: [bus, car, foot]}
privacy: {guarantee: {gdp: {mu: 4.0}}}
""")
    rng = np.random.default_rng(3)
    fit = rng.choice([-1.0, 1.0], size=20_000)
    unfit_shares, fit_shares = np.array([0.2, 0.7, 0.1]), np.array([0.2, 0.3, 0.5])
    unfit_people, fit_people = (rng.choice(learner.classes, p=p, size=20_000) for p in (unfit_shares, fit_shares))
    truths = fit_shares - unfit_shares
    if isinstance(learner, IWPSGDClassifier):
        b = np.log(fit_shares / unfit_shares) / 2.0
        truths = sum(p * (b - p @ b) for p in (unfit_shares, fit_shares))
    learner.learn_many(fit[:, None], np.where(fit > 0, fit_people, unfit_people))
    found = learner.summary(task, level=1.0 - 2e-9, forecast=False)
    for label, truth in zip(learner.classes, truths, strict=True):
        low, high = found[f"{label}:fit"].average_effect_interval
        assert low < 100.0 * truth < high
        assert high - low < 50.0
        assert found.report["average_effects"][f"{label}:fit"]["unit"] == f"{label}: fit: yes against no"
    assert str(found).count("bus: fit: yes against no") == 1
    other = Task.from_document(task.document().replace(b'"fit"', b'"age"'))
    with pytest.raises(UserError, match="codes the features bus:age"):
        learner.summary(other)


def test_a_task_of_other_features_is_refused(regressor):
    other = Task.parse("""
name: other
features: [{name: age, low: 0, high: 50}]
target: {name: weeks, kind: real, low: 0, high: 40}
privacy: {guarantee: {gdp: {mu: 4.0}}}
""")
    with pytest.raises(UserError, match="codes the features age, intercept, but the learner has dose, fit, intercept"):
        regressor.summary(other)


def test_there_is_no_summary_of_nothing():
    learner = ScoreRegressor(guarantee=GaussianDP(1.0), features=["dose"], seed=1)
    with pytest.raises(UserError, match="nothing was learned yet"):
        learner.summary()


def test_levels_are_promised_each():
    learner = LDPSGDRegressor(guarantee=GaussianDP(1.0), levels={"open": PureDP(4.0)}, features=["dose"], seed=1)
    learner.learn_one({"dose": 0.5}, 0.5)
    found = learner.summary()
    assert set(found.promise) == {"default", "open"}
    assert "epsilon = 4" in found.promise["open"]


@pytest.mark.parametrize("name", NAMES)
def test_every_learner_shows_what_it_learned(name):
    """Before the first record its parameters, then its coefficients, too, whatever the protocol."""
    learner = made(name, seed=1, **({"window": 50} if name.startswith("GaussMix") else {}))
    html = learner._repr_html_()
    assert "nothing learned yet" in html
    assert type(learner).__name__ in html
    y = target_of(name)
    rng = np.random.default_rng(1)
    targets = [bool(one) if y is True else float(one) for one in rng.integers(0, 2, size=200)]
    learner.learn_many(rng.uniform(-1, 1, size=(200, 2)), targets)
    html = learner._repr_html_()
    assert "releases learned" in html
    for coefficient in (*FEATURES, "intercept") if name in FEATURED else learner.estimate().names:
        assert f'<th scope="row">{coefficient}</th>' in html
    assert "guarantee" in html
    assert "What each release promises" in html
    text = str(learner.summary(forecast=False))
    assert "Promised for each release at level default" in text
    assert ("odds ratio" in html) is False  # without a task nobody knows what a unit is
