"""Why a result is useless: each reason where it holds, and not where it does not or noise hides it."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import binom

from murk import Task
from murk.inference.estimate import Estimate, Extent
from murk.learners import ScoreClassifier
from murk.privacy import GaussianDP
from murk.protocols.scores.estimate import Need
from murk.results.diagnosis import Advice, _people, _together, categories, diagnose, diagnose_task, too_wide

NAMES = ("a", "b", "intercept")


@dataclass(frozen=True)
class Known(Estimate):
    """An estimate of whose people something is known."""

    where: Extent | None = None
    gone: float = 0.0

    def extent(self):
        return self.where

    def missing(self):
        return self.gone


def extent(covariance, mean=(0.0, 0.0), noise=0.0):
    """Where people lie: features' covariance and means, with a standard error on each number of the moments."""
    moment = np.zeros((3, 3))
    moment[:2, :2] = np.array(covariance) + np.outer(mean, mean)
    moment[:2, 2] = moment[2, :2] = mean
    moment[2, 2] = 1.0
    return Extent(moment, np.eye(3), np.full((3, 3), noise**2))


def told(where=None, gone=0.0, *, half=math.inf, scale="log odds", value=0.1, **more):
    values = np.array([value, value, 0.0])
    estimate = Known(NAMES, values, "some", np.full(3, half), "", 1, 20_000, where=where, gone=gone)
    infinite = math.isinf(half)
    found = {
        "confidence_intervals": {
            name: [float(each - half), float(each + half)] for name, each in zip(NAMES, values, strict=True)
        },
        "interval": {"level": 0.95},
        "not_learned": list(NAMES) if infinite else [],
        "needed": {},
        "releases": 20_000,
        "levels": {"default": {"guarantee": {"gdp": {"mu": 1.0}}}},
    }
    return diagnose(found, estimate, scale, **more)


def reasons(found):
    return [each["reason"] for each in found["reasons"]]


EVEN = ((1 / 3, 0.0), (0.0, 1 / 3))


@pytest.mark.parametrize(("scale", "unit", "most"), [
    ("log odds", 1.0, 0.5), ("own", None, 0.5), ("probability", 1.0, 0.25), ("slope", 1.0, 0.25), ("slope", 20.0, 5.0),
])  # fmt: skip
def test_an_interval_around_zero_is_useless_beyond_a_quarter_of_what_the_target_can_do(scale, unit, most):
    """From one end of the public range to the other: twice a coded coefficient, of log odds a quarter of that."""
    at = {"scale": scale, "unit": unit, "value": 0.0}
    assert told(half=0.99 * most, **at) is None
    found = told(half=1.01 * most, **at)
    assert found["useless"] == {"a": "too wide", "b": "too wide"}
    assert found["words"].startswith("Too wide to say anything: a, b. Why: 20,000 people at mu = 1 are too few.")
    # Of which sign it is, is an answer.
    assert told(half=1.01 * most, **at | {"value": 1.02 * most}) is None


def test_a_slope_without_bounds_of_its_target_is_never_too_wide():
    assert told(half=1e6, scale="slope", unit=None) is None


def around_zero(names, half=3.0):
    return {name: [-half, half] for name in names}


def test_a_feature_is_judged_whatever_its_name_ends_in():
    """Only the scale of a robust loss is not judged."""
    features = ["pain_scale", "image=grayscale", "knee_intercept", "scale"]
    for constant in ([], ["intercept"]):
        wide = {"confidence_intervals": around_zero([*features, *constant]), "not_learned": []}
        assert list(too_wide(wide, "log odds", 1.0)) == [*features, *constant]
    classes = {"confidence_intervals": around_zero(["b:pain_scale", "b:intercept"]), "not_learned": []}
    assert list(too_wide(classes, "own", 1.0)) == ["b:pain_scale", "b:intercept"]
    robust = {"confidence_intervals": around_zero(["pain_scale", "intercept", "scale"])}
    assert list(too_wide({**robust, "not_learned": []}, "slope", 1.0)) == ["pain_scale", "intercept"]


@pytest.mark.parametrize(
    ("scale", "interval", "useless"),
    [
        ("log odds", [math.log(0.00045), math.log(394.0)], True), ("log odds", [-0.45, 1.7], False),
        ("log odds", [3.0, 9.0], False), ("probability", [0.1, 1.2], True), ("slope", [-0.4, 0.5], False),
        ("own", [-3.0, 3.0], True),
    ],
)  # fmt: skip
def test_a_level_is_useless_if_its_interval_spans_more_than_half_of_what_is_possible(scale, interval, useless):
    of = {"confidence_intervals": {"intercept": interval}, "not_learned": []}
    assert list(too_wide(of, scale, 1.0)) == ["intercept"] * useless


def test_a_feature_that_was_not_learned_is_useless_whatever_its_name_ends_in():
    values = np.zeros(2)
    names = ("knee_intercept", "intercept")
    estimate = Known(names, values, "some", np.full(2, math.inf), "", 1, 20_000)
    found = {
        "confidence_intervals": around_zero(names, math.inf), "interval": {"level": 0.95},
        "not_learned": list(names), "needed": {}, "releases": 20_000,
        "levels": {"default": {"guarantee": {"gdp": {"mu": 1.0}}}},
    }  # fmt: skip
    assert diagnose(found, estimate, "log odds")["useless"] == {"knee_intercept": "not learned"}


def test_what_was_not_learned_is_useless():
    found = told()
    assert found["useless"] == {"a": "not learned", "b": "not learned"}
    assert reasons(found) == ["people"]


def test_bounds_are_too_wide_where_people_fill_little_of_them():
    # Uniform over a tenth of the range.
    found = told(extent(((1 / 300, 0.0), (0.0, 1 / 3)), mean=(-0.8, 0.0)))
    assert reasons(found) == ["people", "bounds"]
    assert "most people fill at most 10% of a" in found["words"]
    # What tighter ones would do is not concluded from that: rows may be whitened.
    assert "tighter" not in found["words"]
    assert found["helps_most"] == ""


@pytest.mark.parametrize("where", [
    extent(EVEN),
    # It might be as wide as the others, as far as noise lets anybody tell.
    extent(((1 / 300, 0.0), (0.0, 1 / 3)), noise=0.1),
    # Nothing is told from noise at all.
    extent(((1 / 300, 0.0), (0.0, 1 / 3)), noise=0.5),
    None,
])  # fmt: skip
def test_bounds_are_not_blamed_without_evidence(where):
    assert reasons(told(where)) == ["people"]


def test_few_people_have_a_category():
    of = {"a": ("trained: yes", "trained: no")}
    variance = 4 * 0.03 * 0.97
    for mean, words in ((-0.94, "few people have trained: yes"), (0.94, "few people have trained: no")):
        found = told(extent(((variance, 0.0), (0.0, 1 / 3)), mean=(mean, 0.0)), categories=of)
        assert reasons(found) == ["people", "rare"]
        assert f"{words}." in found["words"]
    of = {"a": ("at: B", "another at than B")}
    found = told(extent(((variance, 0.0), (0.0, 1 / 3)), mean=(-0.94, 0.0)), categories=of)
    assert "have at: B." in found["words"]
    half = extent(((1.0, 0.0), (0.0, 1 / 3)))
    assert reasons(told(half, categories=of)) == ["people"]


def test_the_need_of_one_rare_category_is_not_said_of_all():
    needs = {
        name: Need(people).to_dict() for name, people in (("a", 30_000), ("b", 40_000), ("rare", 9_000_000))
    }  # fmt: skip
    needs["dark"] = Need(seen=False).to_dict()
    found = {"releases": 20_000, "levels": {"default": {"guarantee": {"gdp": {"mu": 1.0}}}}}
    assert _people(found, list(needs), needs).cure == "about 40,000 people in all, for b"
    assert _people(found, ["a"], {"a": needs["a"]}).cure == "about 30,000 people in all"
    assert _people(found, ["dark"], {"dark": needs["dark"]}).cure == ""


def test_features_that_hardly_vary_apart_are_named_with_their_combination():
    for sign, words in ((1.0, "the effect of a - b is hard to learn"), (-1.0, "the effect of a + b is hard to learn")):
        found = told(extent(((1 / 3, 0.33 * sign), (0.33 * sign, 1 / 3))))
        assert reasons(found) == ["people", "direction"]
        assert words in found["words"].replace("b - a", "a - b").replace("b + a", "a + b")
        assert found["helps_most"] == ""


@pytest.mark.parametrize(("tied", "noise"), [(0.2, 0.0), (0.33, 0.05)])
def test_features_that_vary_apart_or_may_are_not_blamed(tied, noise):
    assert "direction" not in reasons(told(extent(((1 / 3, tied), (tied, 1 / 3)), noise=noise)))


def alarms(correlation, features=6, alike=2, noise=0.02, streams=400):
    """Of that many noisy moments, in how many the first features, all correlated, hardly vary apart."""
    names, size, found = {f"x{index}": index for index in range(features)}, features + 1, 0
    moment = np.diag([1 / 3] * features + [1.0])
    moment[:alike, :alike] += correlation / 3 * (1.0 - np.eye(alike))
    rng = np.random.default_rng(5)
    for _ in range(streams):
        draw = noise * rng.normal(size=(size, size))
        where = Extent(moment + (draw + draw.T) / 2.0, np.eye(size), np.full((size, size), noise**2))
        found += bool(_together(where, names, tuple(names)))
    return found


# Of 400 streams, each with a false alarm of probability 1%, more than 13 have one with a probability of 1e-4.
FALSE = 13


@pytest.mark.parametrize(("features", "alike"), [(2, 2), (6, 2), (6, 6)])
def test_features_are_not_told_to_vary_together_by_chance(features, alike, monkeypatch):
    """The smallest eigenvalue is chosen among noisy ones; a correlation of .9 is the least that is reported."""
    assert binom.sf(FALSE, 400, 0.01) < 2e-4
    assert alarms(0.76, features, alike) == alarms(-0.76, features, min(alike, 2)) == 0
    assert alarms(0.9, features, alike) <= FALSE
    assert alarms(0.995, features, alike, noise=0.005) >= 390
    if alike > 2:
        # The wrong twin: without what the choice among noisy directions lowers the eigenvalue by.
        monkeypatch.setattr(Extent, "covariance_error", lambda *_: 0.0)
        assert alarms(0.9, features, alike) > FALSE


def test_missing_targets_are_blamed():
    found = told(gone=0.5)
    assert reasons(found) == ["people", "missing"]
    assert "at least 50% of the targets are missing" in found["words"]
    assert found["helps_most"] == ""
    assert reasons(told(gone=0.1)) == ["people"]


def test_only_what_was_forecast_is_advised():
    where = extent(((1 / 300, 0.0), (0.0, 1 / 3)))
    assert "help" not in told(where, gone=0.5)["words"]
    advice = [
        Advice("protocol: moments", "points", math.inf, 3.0, "b: one unit more", math.inf, 9.0),
        Advice("4 times the people", "units of wage", 8.0, 4.0, "b: one unit more", 90.0, math.inf),
    ]
    found = told(where, gone=0.2, advise=lambda: advice)
    assert found["helps_most"] == (
        "protocol: moments (forecast: the median half-width per standard deviation of a feature will be 3 points, "
        "while now most effects are not learned; the least precise over its range, b: one unit more, will be 9 points)"
    )
    assert found["advice"][0]["before"] is None
    assert found["advice"][1]["words"].endswith(
        "falls from 8 to 4 units of wage; the least precise over its range, b: one unit more, is not learned even then)"
    )
    assert found["words"].endswith(f"What would help most: {found['helps_most']}.")


TASK = """
name: weeks
features: [{name: age, low: 20, high: 40}, {name: fit, categories: ["no", "yes"]}, {name: at, categories: [A, B, C]}]
target: {name: worked, kind: binary, positive: "yes"}
privacy: {guarantee: {gdp: {mu: 1.0}}}
"""


def test_categories_are_called_by_their_feature():
    assert categories(Task.parse(TASK)) == {
        "fit": ("fit: yes", "fit: no"),
        "at=B": ("at: B", "another at than B"),
        "at=C": ("at: C", "another at than C"),
    }


def test_forecasts_are_asked_for_the_people_who_released_and_where_they_lie():
    """Where the estimate itself says what more people would do, more of them are not forecast again."""
    asked = []

    def advise(*given):
        asked.append(given)
        return [Advice("more", "points", 5.0, 1.0, "a: one unit more", 9.0, 2.0)]

    task, where = Task.parse(TASK), extent(EVEN)
    estimate = Known(NAMES, np.zeros(3), "some", np.full(3, math.inf), "", 1, 20_000, where=where)
    found = {
        "confidence_intervals": {name: [-math.inf, math.inf] for name in NAMES}, "interval": {"level": 0.95},
        "not_learned": ["a", "b"], "needed": {}, "releases": 20_000,
        "levels": {"default": {"guarantee": {"gdp": {"mu": 1.0}}}},
    }  # fmt: skip
    assert diagnose_task(task, found, estimate, advise)["helps_most"].startswith("more (forecast")
    diagnose_task(task, {**found, "needed": {"a": Need(10).to_dict()}, "records_learned": 5}, estimate, advise)
    assert asked == [(task, 20_000, where, True), (task, 5, where, False)]
    assert diagnose_task(task, found, estimate)["helps_most"] == ""
    # Where nothing is useless nothing is forecast.
    fine = {**found, "confidence_intervals": {name: [1.0, 2.0] for name in NAMES}, "not_learned": []}
    assert diagnose_task(task, fine, estimate, advise) is None
    assert len(asked) == 2


@pytest.fixture(scope="module")
def learner():
    """From releases: a fills a tenth of its range, b and c are nearly the same."""
    rng = np.random.default_rng(1)
    b = rng.uniform(-1, 1, size=20_000)
    X = np.column_stack([rng.uniform(-0.9, -0.7, size=20_000), b, np.clip(b + 0.1 * rng.normal(size=20_000), -1, 1)])
    model = ScoreClassifier(guarantee=GaussianDP(4.0), features=["a", "b", "c"], seed=3)
    model.learn_many(X, rng.random(20_000) < 1 / (1 + np.exp(-b)))
    return model


def test_released_moments_tell_what_is_wrong(learner):
    found = learner.summary(forecast=False).report["diagnosis"]
    assert reasons(found) == ["people", "bounds", "direction"]
    assert list(found["reasons"][1]["names"]) == ["a"]
    assert sorted(found["reasons"][2]["names"]) == ["b", "c"]
    assert found["advice"] == ()
    assert found["helps_most"] == ""


def test_variances_are_within_their_errors(learner):
    """Five combinations at three standard errors and a tenth: a false alarm in 70 seeds at most."""
    where = learner.estimate().extent()
    truth = np.array([0.2**2 / 12, 1 / 3, 1 / 3])
    for feature in range(3):
        value, error = where.variance(feature)
        assert abs(value - truth[feature]) < 3 * error + 0.1 * truth[feature]
    value, error = where.along(np.array([0.0, 1.0, -1.0]))
    assert abs(value - 0.009) < 3 * error
    # The wrong twin: twice the variance is told from the right one.
    assert abs(where.variance(1)[0] - 2 * truth[1]) > 3 * where.variance(1)[1] + 0.1 * truth[1]
