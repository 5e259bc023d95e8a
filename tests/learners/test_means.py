"""Tasks without features: a mean, a share, or the shares of classes, of people who have a target."""

import json
import math
import re

import numpy as np
import pytest
from scipy.stats import binom

import murk
from murk import Task
from murk.errors import UserError
from murk.learners import (
    GaussMixRegressor,
    IWPSGDClassifier,
    LDPSGDRegressor,
    MeanRegressor,
    PublicGLMClassifier,
    PublicGLMRegressor,
    ScoreClassifier,
    ScoreRegressor,
    ShareClassifier,
)
from murk.monitoring import Monitor
from murk.monitoring.metrics.monitor import VALUES
from murk.planning.choice import recommend
from murk.planning.plan import plan
from murk.privacy import GaussianDP, PureDP, SimplexGaussian, SubsetSelection, WindowSelection
from murk.privacy.mechanisms.selection import LEVELS
from murk.protocols.device import device_for, part
from murk.protocols.population import Records
from murk.results.result import Result
from murk.stream import open_log

TARGETS = {
    "binary": "{name: y, kind: binary, positive: 'yes', negative: 'no'}",
    "real": "{name: y, kind: real, low: 10, high: 60}",
    "classes": "{name: y, kind: classes, classes: [red, green, blue]}",
}
MU = GaussianDP(mu=1.0)


def task(kind, more=""):
    text = f"name: simple\nfeatures: []\ntarget: {TARGETS[kind]}\nprivacy: {{guarantee: {{gdp: {{mu: 1.0}}}}}}\n{more}"
    return Task.parse(text)


def rows(people):
    return np.zeros((people, 0))


# Tasks


def test_protocol_by_rule():
    assert {task(kind).protocol for kind in TARGETS} == {"univariate"}
    assert [task(kind).coefficient_scale for kind in TARGETS] == ["probability", "slope", "probability"]
    assert [task(kind).coding.unit_labels[0] for kind in TARGETS] == ["share of y = yes", "mean of y", "share of y"]


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        ("binary", "protocol: examples", "protocol: examples cannot learn shares without features"),
        ("real", "protocol: gradients", "learn a mean without features: leave protocol out, or say protocol: univar"),
        ("real", "protocol: scores", "say protocol: univariate"),
        ("classes", "protocol: moments", "say protocol: univariate"),
        ("classes", "protocol: summaries", "say protocol: univariate"),
        ("binary", "objective: logistic", "which learns shares or a mean; remove it"),
        ("binary", "max_staleness: {releases: 5}", "max_staleness: has no effect"),
        ("binary", "forget: 30000", "forget: 30,000 has no effect"),
        ("binary", "predictions: {}", "predictions: has no effect"),
        ("binary", "privacy: {guarantee: {gdp: {mu: 1}}, mechanism: gaussian}", "mechanism: has no effect"),
        ("real", "summaries: {method: mixing}\nprotocol: summaries", "has no effect without features; remove it"),
        ("binary", "public: {set_aside: 100}", "no covariates that could be public; remove it"),
    ],
)
def test_refused_with_remedy(kind, more, words):
    text = f"name: simple\nfeatures: []\ntarget: {TARGETS[kind]}\n{more}"
    text += "" if "privacy" in more else "\nprivacy: {guarantee: {gdp: {mu: 1.0}}}"
    with pytest.raises(UserError, match=re.escape(words)):
        Task.parse(text)


def test_features_are_refused():
    with pytest.raises(UserError, match=re.escape("say features: [], or leave protocol out")):
        Task.parse(
            f"name: t\nfeatures: [{{name: x, low: 0, high: 1}}]\ntarget: {TARGETS['real']}\nprotocol: univariate\n"
            "privacy: {guarantee: {gdp: {mu: 1.0}}}"
        )


# What a device releases


@pytest.mark.parametrize(
    ("kind", "guarantee", "mechanism"),
    [
        ("binary", "gdp: {mu: 3}", SimplexGaussian),
        ("binary", "pure: {epsilon: 1}", SubsetSelection),
        ("binary", "approx: {epsilon: 1, delta: 1.0e-6}", SubsetSelection),
        ("classes", "gdp: {mu: 0.5}", SimplexGaussian),
        ("classes", "gdp: {mu: 2}", SubsetSelection),
        ("real", "gdp: {mu: 1}", SimplexGaussian),
        ("real", "gdp: {mu: 2}", WindowSelection),
        ("real", "zcdp: {rho: 0.5}", SimplexGaussian),
        ("real", "pure: {epsilon: 1}", WindowSelection),
    ],
)
def test_mechanism_of_least_variance(kind, guarantee, mechanism):
    assert type(device_for(made(kind, guarantee)).mechanisms["default"]) is mechanism


def test_one_family_for_all_levels():
    text = f"name: t\nfeatures: []\ntarget: {TARGETS['real']}\nprivacy: {{guarantee: {{gdp: {{mu: 1}}}}, levels: "
    mixed = device_for(Task.parse(text + "{strict: {pure: {epsilon: 1}}}}"))
    assert {type(each) for each in mixed.mechanisms.values()} == {WindowSelection}
    wide = device_for(Task.parse(text + "{open: {gdp: {mu: 4}}}}"))
    assert {type(each) for each in wide.mechanisms.values()} == {SimplexGaussian}


@pytest.mark.parametrize("kind", TARGETS)
def test_a_missing_target_is_a_category_of_its_own_unless_none_is_missing(kind):
    y = np.array([0.0, 1.0, np.nan])
    maybe, never = (device_for(made(kind, "pure: {epsilon: 1}", more)) for more in ("", ", missing_share: 0"))
    assert never.mechanisms["default"].outcomes < maybe.mechanisms["default"].outcomes
    assert maybe.vectors(np.ones((3, 1)), y)[2, 0] == {"binary": 2.0, "real": 2.0, "classes": 3.0}[kind]
    assert never.vectors(np.ones((3, 1)), y)[2, 0] == {"binary": 0.0, "real": 0.5, "classes": 0.0}[kind]


# Coverage


def made(kind, guarantee="gdp: {mu: 1.0}", more=""):
    target = TARGETS[kind].replace("}", more + "}")
    return Task.parse(f"name: simple\nfeatures: []\ntarget: {target}\nprivacy: {{guarantee: {{{guarantee}}}}}\n")


def covered(own, targets, shares, missing, factor=1.0, told=True, replications=400, people=1_500):
    """Number of intervals of the last share or mean, ``factor`` times as wide, that hold the truth.

    ``targets`` are coded. Unless ``told``, missing targets are in the middle and look like others.
    """
    device, shares = device_for(own), np.array(shares)
    y = np.array([*targets, np.nan if told else 0.5])
    records = Records(np.ones((len(y), 1)), y, np.append((1.0 - missing) * shares, missing))
    truth = shares @ targets if own.target.kind == "real" else 2.0 * shares[-1] - 1.0
    held = 0
    for replication in range(replications):
        rng = np.random.default_rng([7, replication])
        [step] = part(own.protocol, "forecast").estimates(device, records, [people], {"default": 1.0}, 1, rng)
        found = step()
        held += bool(abs(found.values[-1] - truth) <= factor * found.half_widths()[-1])
    return held


# Near the lower bound, with a long tail.
SKEWED = [-1.0, -0.8, -0.4, 1.0], [0.8, 0.15, 0.04, 0.01]
CASES = {
    "a half": (made("binary"), [0.0, 1.0], [0.5, 0.5], 0.0),
    "rare": (made("binary"), [0.0, 1.0], [0.99, 0.01], 0.0),
    "rare, a pure guarantee": (made("binary", "pure: {epsilon: 4.0}"), [0.0, 1.0], [0.95, 0.05], 0.0),
    "missing": (made("binary"), [0.0, 1.0], [0.8, 0.2], 0.3),
    "rare, every person has a target": (made("binary", more=", missing_share: 0"), [0.0, 1.0], [0.98, 0.02], 0.0),
    "skewed": (made("real"), *SKEWED, 0.0),
    "skewed, missing": (made("real"), *SKEWED, 0.3),
    "skewed, a pure guarantee": (made("real", "pure: {epsilon: 4.0}"), *SKEWED, 0.0),
    "skewed, a pure guarantee, missing": (made("real", "pure: {epsilon: 2.0}"), *SKEWED, 0.3),
    "classes": (made("classes"), [0.0, 1.0, 2.0], [0.7, 0.25, 0.05], 0.0),
    "classes, missing": (made("classes"), [0.0, 1.0, 2.0], [0.7, 0.25, 0.05], 0.3),
    "classes, little privacy": (made("classes", "pure: {epsilon: 6.0}"), [0.0, 1.0, 2.0], [0.9, 0.08, 0.02], 0.0),
}
# With 95% coverage, fewer than 360 of 400 intervals hold with a probability below 1e-4. Those 0.65 times as wide hold
# with 80%, and 360 or more of them with a probability below 1e-4, too.
FEWEST = 360


@pytest.mark.parametrize("case", CASES)
def test_intervals_hold(case):
    assert binom.cdf(FEWEST - 1, 400, 0.95) < 1e-4
    assert covered(*CASES[case]) >= FEWEST


@pytest.mark.parametrize("case", ["missing", "classes, missing", "skewed, a pure guarantee, missing"])
def test_narrower_intervals_do_not_hold(case):
    assert binom.sf(FEWEST - 1, 400, 0.8) < 1e-4
    assert covered(*CASES[case], factor=0.65) < FEWEST


def test_missing_targets_in_the_middle_would_bias():
    assert covered(*CASES["skewed, missing"], told=False, people=20_000) < FEWEST


@pytest.mark.parametrize(("rate", "most"), [(0.5, 1.02), (0.05, 0.92), (0.01, 0.87)])
def test_width_beside_one_randomized_number(rate, most):
    people = 20_000
    y = (np.arange(people) % 1000 < 1000 * rate).astype(int)
    model = binary(3)
    model.learn_many(rows(people), y)
    # The sensitivity of a number in [0, 1] is 1, so that its Gaussian noise at mu = 1 has variance 1.
    alone = 1.96 * math.sqrt((1.0 + rate * (1.0 - rate)) / people)
    assert model.estimate().half_widths()[0] <= most * alone


# River


def binary(seed):
    return ShareClassifier(guarantee=MU, classes=(0, 1), seed=seed)


def classes(seed):
    return ShareClassifier(guarantee=MU, classes=("a", "b", "c"), seed=seed)


def test_one_record_at_a_time_learns_what_rows_do():
    y = [label for label in ("a", "b", None, "c", "x") for _ in range(60)]
    for make, values in ((classes, y), (binary, [1 if label == "a" else 0 for label in y])):
        one, many = make(5), make(5)
        for value in values:
            one.learn_one({"ignored": 3}, value)
        many.learn_many(rows(len(values)), np.array(values, dtype=object))
        assert json.dumps(one.state_dict()) == json.dumps(many.state_dict())
        assert one.predict_proba_one({}) == pytest.approx(many.predict_proba_one({}))


def test_river_estimates():
    rng = np.random.default_rng(2)
    mean = MeanRegressor(guarantee=PureDP(2.0), target_bounds=(0, 52), seed=1)
    mean.learn_many(rows(20_000), rng.uniform(0, 20, 20_000))
    low, high = mean.confidence_intervals()["mean"]
    assert low < 10.0 < high
    assert high - low < 1.0
    assert mean.predict_one({}) == pytest.approx(mean.coefficients()["mean"])
    shares = classes(2)
    shares.learn_many(rows(20_000), rng.choice(["a", "b", "c"], 20_000, p=[0.6, 0.3, 0.1]))
    assert list(shares.coefficients()) == ["a", "b", "c"]
    assert sum(shares.coefficients().values()) == pytest.approx(1.0)
    assert sum(shares.predict_proba_one({}).values()) == pytest.approx(1.0)
    assert "a" in str(shares.summary())
    again = classes(2)
    again.load_state_dict(json.loads(json.dumps(shares.state_dict())))
    assert again.coefficients() == shares.coefficients()
    assert shares.merged([again]).n_releases == 40_000


def test_people_with_budgets_of_their_own():
    model, again = classes(3), classes(3)
    for index, label in enumerate("abc" * 20):
        model.learn_one({}, label, PureDP(1.0 + index % 2))
    assert model.n_releases == 60
    again.load_state_dict(json.loads(json.dumps(model.state_dict())))
    assert again.coefficients() == model.coefficients()
    for index in range(62):
        model.learn_one({}, "a", PureDP(3.0 + index / 100))
    with pytest.raises(UserError, match="different ones"):
        model.learn_one({}, "a", PureDP(5.0))


@pytest.mark.parametrize(
    "learner",
    [LDPSGDRegressor, IWPSGDClassifier, ScoreRegressor, ScoreClassifier, GaussMixRegressor, PublicGLMClassifier,
     PublicGLMRegressor],
)  # fmt: skip
def test_river_refusals(learner):
    with pytest.raises(UserError, match="ShareClassifier the shares of labels"):
        learner(guarantee=MU, features=[], seed=1)


# From a file of people to the report


def people(kind, count=6_000):
    rng = np.random.default_rng(4)
    if kind == "real":
        return [{"y": value} for value in (10 + 50 * rng.beta(0.5, 4.5, count)).tolist()], [15.0]
    names, shares = (["no", "yes"], [0.7, 0.3]) if kind == "binary" else (["red", "green", "blue"], [0.6, 0.39, 0.01])
    return [{"y": name} for name in rng.choice(names, count, p=shares).tolist()], shares[kind == "binary" :]


@pytest.fixture(scope="module", params=[*TARGETS, "summaries"])
def learned(request, tmp_path_factory):
    """A task that was learned from a file, its log, its result and the truth."""
    kind = "binary" if request.param == "summaries" else request.param
    own = task(kind, "protocol: summaries" if request.param == "summaries" else "log: {partitions: 2}")
    folder, (records, truth) = tmp_path_factory.mktemp("means"), people(kind)
    place = f"sqlite:///{folder / 'log.db'}"
    result: Result = murk.run(own, records, seed=1, log=place, ledger=folder / "ledger.db")
    return own, place, result, truth


def test_report(learned):
    own, _, result, truth = learned
    report, text = result.report, str(result)
    assert len(report["per_unit"]) == len(truth)
    unit = 1.0 if own.target.kind == "real" else 100.0
    for each, value in zip(report["per_unit"].values(), truth, strict=True):
        low, high = each["interval"]
        least, most = (10.0, 60.0) if own.target.kind == "real" else (0.0, 100.0)
        assert least <= low <= unit * value <= high <= most
        assert each["scale"] == ("target units" if own.target.kind == "real" else "percent")
        assert each["unit"] in text
    word = "mean" if own.target.kind == "real" else "percent"
    assert re.search(rf"^ +{word} +std. error +95% interval$", text, re.MULTILINE)
    assert not re.search("coded|odds|nan", text)
    assert next(iter(report["per_unit"].values()))["unit"] in result._repr_html_()
    frame = result.to_frame()
    assert (frame[frame.scale != "coded"].estimate >= 0.0).all()


def test_predictions_are_the_estimate(learned):
    own, _, result, _ = learned
    unit = 1.0 if own.target.kind == "real" else 100.0
    values = [each["value"] / unit for each in result.report["per_unit"].values()]
    predicted = np.asarray(result.predict([{}, {}]), dtype=float)
    intervals = np.asarray(result.predict_intervals([{}, {}]), dtype=float).reshape(2, -1, 2)
    assert predicted.reshape(2, -1)[0] == pytest.approx(values)
    assert (intervals[:, :, 0] <= values).all()
    assert (intervals[:, :, 1] >= values).all()


@pytest.mark.parametrize("kind", ["classes", "binary"])
def test_a_stream_that_has_just_begun_has_no_interval_yet(kind, tmp_path):
    own = task(kind)
    place = f"sqlite:///{tmp_path / 'log.db'}"
    result = murk.run(own, people(kind, 4)[0], seed=1, log=place, ledger=tmp_path / "ledger.db")
    assert "4 releases learned" in str(result)
    assert "No intervals:" in str(result)
    assert all(tuple(each["interval"]) == (-math.inf, math.inf) for each in result.report["per_unit"].values())
    with open_log(place, create=False) as log:
        monitor = Monitor(log, Task.from_document(log.document()))
        monitor.poll()
        assert monitor.snapshot.problem is None
        monitor.close()


def test_pictures(learned):
    _, _, result, _ = learned
    assert result.plot().axes
    assert result.plot("curve").axes


def test_metrics(learned):
    own, place, result, _ = learned
    unit = 1.0 if own.target.kind == "real" else 100.0
    with open_log(place, create=False) as log:
        monitor = Monitor(log, Task.from_document(log.document()))
        monitor.poll()
        samples = VALUES["murk_mean"](monitor._snapshot)
        halves = VALUES["murk_mean_half_width"](monitor._snapshot).values()
        monitor.close()
    assert list(samples) == [each["unit"] for each in result.report["per_unit"].values()]
    shown = [each["value"] for each in result.report["per_unit"].values()]
    # Metrics have shares from 0 to 1.
    assert [unit * share for share in samples.values()] == pytest.approx(shown)
    assert all(0.0 < half < math.inf for half in halves)


def test_missing_targets_are_reported(tmp_path):
    records = [{"y": name} for name in ["red", "green", "blue", ""] * 1_500]
    result = murk.run(task("classes"), records, seed=1, log=f"sqlite:///{tmp_path}/l.db", ledger=tmp_path / "a.db")
    assert re.search("at least 2[0-4]% of the targets are missing", " ".join(str(result).split()))


# Plans


def test_plan_forecasts_half_widths(learned):
    own, _, result, _ = learned
    others = ["univariate", "scores", "examples"]
    found = plan(own, people=[6_000], budgets=[1.0], protocols=[own.protocol, *others], draws=2)
    made = next(cell.forecast for cell in found.cells if cell.protocol == own.protocol)
    for name, each in result.report["per_unit"].items():
        low, high = each["interval"]
        if low > 0.0:
            assert made.effects[name] == pytest.approx((high - low) / 2.0, rel=0.15)
    assert found.chosen[6_000][0] == own.protocol
    cells = {cell.protocol: cell for cell in found.cells if cell.design == "typical"}
    assert "cannot learn" in cells["examples"].refused


def test_recommended():
    assert {recommend(task(kind), 10_000).protocol for kind in TARGETS} == {"univariate"}
    assert recommend(task("real"), 10_000, organisation=True).protocol == "summaries"


def test_the_default_mean_near_an_end_costs_little_more_than_three_categories():
    """At epsilon 1 the variance of a mean of -0.85 is within 1.2 of randomized response of -1, 1 and missing."""
    levels = np.linspace(-1.0, 1.0, LEVELS)
    shares = np.exp(-(levels + 1.0) / 0.15)
    shares /= shares.sum()
    mean, chance = float(shares @ levels), math.e / (math.e + 2.0)
    other = (1.0 - chance) / 2.0
    told = np.array([(1.0 + mean) / 2.0, (1.0 - mean) / 2.0, 0.0]) * (chance - other) + other
    slopes = np.array([1.0 - mean, -1.0 - mean, 0.0]) / (chance - other)
    best = float(told @ slopes**2 - (told @ slopes) ** 2)

    def variance(mechanism):
        numbers = mechanism.weights @ np.array([1.0, mean])
        outcomes = shares @ mechanism.chances[:LEVELS]
        return float(outcomes @ numbers**2 - (outcomes @ numbers) ** 2)

    chosen = WindowSelection.calibrate(PureDP(1.0), missing=True)
    assert variance(chosen) < 1.2 * best
    # The twin: a window of fewer levels with fewer outcomes of a missing number, as good for means in the middle.
    outcomes = LEVELS + 25 - 1 + 3
    assert variance(WindowSelection(25, 3, int(2.0**64 / (25 * math.e + outcomes - 25)))) > 1.2 * best
