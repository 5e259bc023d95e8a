"""The estimators, the device of a task, evaluation on released examples; the reference figures, scaled down."""

import math

import numpy as np
import pytest
from river import evaluate, linear_model, metrics, optim

from murk import Task
from murk.errors import MurkError, UserError
from murk.learners import IWPSGDClassifier, IWPSGDRegressor
from murk.learners.evaluation import Evaluated, Example, UnbiasedLoss
from murk.privacy import ApproxDP, GaussianDP, GaussianMechanism, PureDP, RandomizedResponse, SimulatedNoise
from murk.protocols.examples.device import device_for
from murk.protocols.options import InverseScalingStep
from murk.stream.wire.codec import RejectedError
from tests.learners.iwp_sgd.worlds import records, release

LEVELS = {"open": GaussianDP(8.0)}
FORMS = ["outer", "directions", "joint", "separate"]


def as_records(x):
    return [dict(zip(["a", "b"], row, strict=True)) for row in x.tolist()]


@pytest.mark.parametrize("learner", [IWPSGDClassifier, IWPSGDRegressor])
@pytest.mark.parametrize("form", FORMS)
def test_one_by_one_many_and_releases_agree_bit_for_bit(learner, form):
    target = "binary" if learner is IWPSGDClassifier else "real"
    x, y = records(200, target=target)
    labels = (y > 0.5) if target == "binary" else y
    more = {"guarantee": GaussianDP(4.0), "levels": LEVELS, "release": form, "features": ["a", "b"], "seed": 4}
    one, many, parts = learner(**more), learner(**more), learner(**more)
    for i, (row, label) in enumerate(zip(as_records(x), labels.tolist(), strict=True)):
        one.learn_one(row, label, guarantee=GaussianDP(8.0) if i % 4 == 0 else None)
    import pandas as pd

    budgets = [GaussianDP(8.0) if i % 4 == 0 else GaussianDP(4.0) for i in range(200)]
    many.learn_many(pd.DataFrame(x, columns=["a", "b"]), labels, guarantee=budgets)
    engine = parts._engine
    device = _device(target, form)
    rows = device.vectors(np.column_stack([x, np.ones(200)]), y)
    for i in range(200):
        level = "open" if i % 4 == 0 else "default"
        payload = engine.mechanisms[level].randomize(rows[i : i + 1], SimulatedNoise(4), [i])[0]
        parts.learn_release(release(payload, level, simulated=True))
    assert one.state_dict() == many.state_dict() == parts.state_dict()
    assert one.n_releases == 200
    assert one.unbiased_loss == parts.unbiased_loss
    assert one.refused_updates == 0


TASK = """
name: example
features: [{{name: a, low: -1, high: 1}}, {{name: b, low: -1, high: 1}}]
target: {target}
protocol: examples
examples: {{release: {form}}}
privacy:
  guarantee: {{gdp: {{mu: 4.0}}}}
  levels: {{open: {{gdp: {{mu: 8.0}}}}}}
"""
TARGETS = {
    "binary": '{name: y, kind: binary, positive: "1", negative: "0"}',
    "real": "{name: y, kind: real, low: -1, high: 1}",
}


def _device(target, form):
    return device_for(Task.parse(TASK.format(target=TARGETS[target], form=form)))


@pytest.mark.parametrize("target", ["binary", "real"])
@pytest.mark.parametrize("form", FORMS)
def test_the_device_of_a_task(target, form):
    device = _device(target, form)
    assert (device.kind, device.interactive, device.dimension) == (
        "example",
        False,
        {"outer": 10, "directions": 5}.get(form, 3),
    )
    device.check_state()
    x, y = records(100, target=target)
    y[:3] = math.nan
    rows = device.vectors(np.column_stack([x, np.ones(100)]), y)
    assert not rows[:3, :3].any(), "a record without a target is released like any other, as zeros"
    engines = [device.engine(), device.engine()]
    assert set(engines[0].mechanisms) == {"default", "open"}
    for engine in engines:
        payloads = device.mechanisms["default"].randomize(rows, SimulatedNoise(1), np.arange(100))
        releases = [release(payload) for payload in payloads]
        for each in releases:
            engine.admit(each, 0)
        engine.learn_releases(releases)
    found = device.estimate(engines)
    assert (found.n_releases, found.partitions, found.names) == (200, 2, ("a", "b", "intercept"))


def test_public_covariates_of_a_task_reach_its_learners():
    text = TASK.format(target=TARGETS["binary"], form="directions") + "public: {set_aside: 10}\n"
    points = np.array([[1.0, 0.5, 1.0], [-1.0, 0.0, 1.0], [0.25, -1.0, 1.0]])
    device = device_for(Task.parse(text).with_public(points, np.array([3, 5, 2])))
    engine = device.engine()
    assert engine.covariates is device.covariates is not None
    assert device.covariates.counts.sum() == 10
    assert device.estimate([engine]).note == "none: nothing was learned yet"
    assert device_for(Task.parse(text)).engine().covariates is None


def test_bad_values_never_stop_it():
    for odd in (None, math.nan, math.inf, -math.inf, "text", 1e300, [1], 10**400):
        for model in (
            IWPSGDClassifier(guarantee=GaussianDP(1.0), features=["a", "b"], seed=1),
            IWPSGDClassifier(
                guarantee=GaussianDP(1.0), features=["a", "b"], release="separate", loss="quadratic", seed=1
            ),
            IWPSGDRegressor(guarantee=GaussianDP(1.0), features=["a", "b"], seed=1),
        ):
            model.learn_one({"a": odd, "b": 1.0}, True)
            model.learn_one({"a": 1.0}, odd)
            assert model.n_releases == 2
            assert np.all(np.isfinite(model._engine.real))
            assert math.isfinite(float(model.predict_one({"a": odd})))


def test_what_it_refuses():
    for bad in ({"loss": "probit"}, {"release": "directions"}):
        with pytest.raises(UserError, match="GaussianDP or ZeroConcentratedDP"):
            IWPSGDClassifier(guarantee=PureDP(1.0), **bad)
    with pytest.raises(UserError, match="is for release='outer'"):
        IWPSGDClassifier(guarantee=ApproxDP(1.0, 1e-6), loss="probit", mechanism="privunit")
    with pytest.raises(UserError, match="calibration='classic'"):
        IWPSGDClassifier(guarantee=ApproxDP(1.0, 1e-6), calibration="classic")
    with pytest.raises(UserError, match="not a guarantee"):
        IWPSGDRegressor(guarantee=1.0, target_bound=1.0)
    with pytest.raises(UserError, match="two distinct labels"):
        IWPSGDClassifier(guarantee=GaussianDP(1.0), classes=[1, 1])
    for bad in ({"bound": 0.0}, {"bound": math.inf}, {"inputs": "raw"}, {"step": 3}, {"loss": "squared"}):
        with pytest.raises(UserError):
            IWPSGDClassifier(guarantee=GaussianDP(1.0), **bad)
    with pytest.raises(UserError, match="target_bound"):
        IWPSGDRegressor(guarantee=GaussianDP(1.0), target_bound=-1.0)
    model = IWPSGDClassifier(guarantee=GaussianDP(4.0), features=["a", "b"], loss="probit", seed=1)
    with pytest.raises(UserError, match="largest radius that works"):
        model.learn_one({"a": 1.0, "b": 1.0}, True, guarantee=GaussianDP(0.1))
    for payload, level, simulated, reason in (
        ([1, 2, 3], "none", True, "level"), ([1, 2, 3], "default", False, "simulated"),
        ([1, 2], "default", True, "dimension"), ([1, 2, 2**40], "default", True, "magnitude"),
    ):  # fmt: skip
        with pytest.raises(RejectedError) as found:
            model.learn_release(release(payload, level, simulated))
        assert found.value.reason == reason
    assert model.n_releases == 0


def test_as_published():
    model = IWPSGDClassifier.as_published(guarantee=ApproxDP(2.0, 1e-5), features=["a", "b"], calibration="classic")
    mechanism = model._engine.mechanisms["default"]
    features, label = mechanism.parts
    assert isinstance(label, RandomizedResponse)
    # s^2 = 8 log(1.25/delta) R^2 / eps_x^2, with the half of epsilon that is the features'.
    assert features.variance == pytest.approx(8 * math.log(1.25e5) * 2.0, rel=1e-5)
    assert label.guarantee.epsilon == pytest.approx(1.0)
    assert mechanism.guarantee == ApproxDP(2.0, 1e-5)
    settings = model._engine.settings
    assert (settings.loss, settings.batch, settings.averaging) == ("exponential", 128, None)
    assert settings.step == InverseScalingStep(1e-4, 0.0)
    regressor = IWPSGDRegressor.as_published(guarantee=ApproxDP(2.0, 1e-5), features=["a", "b"])
    assert all(isinstance(part, GaussianMechanism) for part in regressor._engine.mechanisms["default"].parts)
    step = optim.schedulers.InverseScaling(1e-4, 0.0)
    theirs = IWPSGDClassifier.as_published(guarantee=ApproxDP(2.0, 1e-5), features=["a", "b"], step=step)
    assert theirs._engine.settings.step == settings.step


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("learner", [IWPSGDClassifier, IWPSGDRegressor])
def test_released_examples_can_be_learned_from_and_evaluated_as_in_river(form, learner):
    """`progressive_val_score` over released examples gives the learner's own unbiased loss."""
    target = "binary" if learner is IWPSGDClassifier else "real"
    loss = "quadratic" if target == "binary" else "squared"
    more = {"guarantee": GaussianDP(4.0), "release": form, "features": ["a", "b"], "weighting": "uniform"}
    more |= {"loss": loss} if target == "binary" else {}
    reader = learner(seed=1, **more)
    device = _device(target, form)
    x, y = records(3000, target=target)
    rows = device.vectors(np.column_stack([x, np.ones(len(x))]), y)
    payloads = reader._engine.mechanisms["default"].randomize(rows, SimulatedNoise(1), np.arange(len(x)))
    released = [release(payload, simulated=True) for payload in payloads]
    for each in released:
        reader.learn_release(each)
    model, metric = learner(inputs="released", **more), UnbiasedLoss(loss)
    stream = [reader.decoded(each) for each in released]
    assert evaluate.progressive_val_score(stream, Evaluated(model), metric) is metric
    assert model.coefficients() == pytest.approx(reader.coefficients(), rel=1e-9)
    assert metric.get() == pytest.approx(reader.unbiased_loss, rel=1e-9)
    assert metric.error == pytest.approx(reader.unbiased_loss_error, rel=1e-2)
    # Another linear model of River's, on the same stream.
    other = linear_model.LogisticRegression() if target == "binary" else linear_model.LinearRegression()
    naive = evaluate.progressive_val_score(stream, Evaluated(other), UnbiasedLoss(loss))
    assert naive.count == 3000
    with pytest.raises(UserError, match="raw records"):
        model.learn_many(x, y)


@pytest.mark.parametrize(
    ("form", "settings"),
    [
        ("separate", {"features": ["a"]}),
        ("separate", {"guarantee": GaussianDP(1.0)}),
        ("separate", {"release": "joint"}),
        ("joint", {"guarantee": GaussianDP(8.0)}),
        ("directions", {"features": ["a"]}),
        ("directions", {"release": "separate"}),
        ("outer", {"release": "directions"}),
    ],
)
def test_an_example_with_other_noise_than_assumed_is_refused(form, settings):
    """One feature of two would have the noise of two taken for that of one, and a coefficient far off its interval."""
    more = {"guarantee": GaussianDP(4.0), "release": form, "features": ["a", "b"], "loss": "quadratic"}
    reader = IWPSGDClassifier(**more, seed=1)
    device = _device("binary", form)
    x, y = records(1)
    rows = device.vectors(np.column_stack([x, np.ones(1)]), y)
    [payload] = reader._engine.mechanisms["default"].randomize(rows, SimulatedNoise(1), np.arange(1))
    example, label = reader.decoded(release(payload, simulated=True))
    IWPSGDClassifier(**more, inputs="released").learn_one(example, label)
    other = IWPSGDClassifier(**{**more, **settings}, inputs="released")
    with pytest.raises(UserError, match=r"with other noise|kind of release|is a direction of"):
        other.learn_one(example, label)
    assert other.n_releases == 0


def test_the_metric_estimates_the_true_loss_of_any_linear_model():
    """A fixed model's loss over 8,000 released examples, within 5 standard errors of its true loss.

    Chance of a false alarm 6e-7 each. Evaluating on released examples as if they were true is off by far more.
    """
    x, y = records(8_000)
    reader = IWPSGDClassifier(
        guarantee=GaussianDP(4.0), release="separate", features=["a", "b"], seed=2, loss="quadratic"
    )
    device = _device("binary", "separate")
    rows = device.vectors(np.column_stack([x, np.ones(len(x))]), y)
    payloads = reader._engine.mechanisms["default"].randomize(rows, SimulatedNoise(2), np.arange(len(x)))
    fixed = linear_model.LogisticRegression(optim.SGD(0.1))
    for row, label in zip(as_records(x[:200]), y[:200].tolist(), strict=True):
        fixed.learn_one(row, label > 0.5)
    z = (x @ [fixed.weights["a"], fixed.weights["b"]] + fixed.intercept) * np.where(y > 0.5, 1, -1)
    truth = {"quadratic": np.mean(0.5 * (z - 1) ** 2), "exponential": np.mean(np.exp(-z))}
    for loss, true in truth.items():
        metric, naive = UnbiasedLoss(loss), []
        for payload in payloads:
            example, label = reader.decoded(release(payload, simulated=True))
            score = Evaluated(fixed).predict_one(example)
            metric.update(label, score)
            s = score.value if label else -score.value
            naive.append(0.5 * (s - 1) ** 2 if loss == "quadratic" else math.exp(-s))
        assert abs(metric.get() - true) < 5 * metric.error
        assert abs(np.mean(naive) - true) > 5 * metric.error
        before = metric.get()
        metric.update(label, score)
        metric.revert(label, score)
        assert metric.get() == pytest.approx(before)


def test_the_metric_wants_a_wrapped_linear_model():
    metric = UnbiasedLoss()
    assert not metric.works_with(linear_model.LogisticRegression())
    assert (metric.get(), metric.error, metric.bigger_is_better) == (0.0, math.inf, False)
    with pytest.raises(UserError, match="probit"):
        UnbiasedLoss("probitt")
    with pytest.raises(UserError, match="not a linear model"):
        Evaluated(metrics.Accuracy()).predict_one(Example({"a": 1.0}))
    with pytest.raises(ValueError, match="not compatible"):
        evaluate.progressive_val_score([], linear_model.LogisticRegression(), metric)


def test_probit_coefficients_are_those_of_the_probit_model():
    """Labels of a probit model; the estimate within 5 of its own standard errors of the truth (probability 2e-6)."""
    rng = np.random.default_rng(3)
    truth = np.array([0.5, -0.4, 0.3])
    x = rng.uniform(-1, 1, (200_000, 2))
    y = x @ truth[:2] + truth[2] + 1.702 * rng.normal(size=len(x)) > 0
    model = IWPSGDClassifier(guarantee=GaussianDP(4.0), features=[0, 1], loss="probit", seed=3)
    model.learn_many(x, y)
    found = model.estimate()
    assert np.all(np.abs(found.values - truth) < 5 * found.spread)
    assert np.all(found.spread < 0.05)
    # Its twin: the scale of another width.
    assert np.any(np.abs(found.values / 1.702 - truth) > 5 * found.spread)
    chance = model.predict_proba_one({0: 1.0, 1: -1.0})[True]
    assert chance == pytest.approx(0.5 * math.erfc(-1.2 / 1.702 / math.sqrt(2)), abs=0.03)


def test_a_hopeless_budget_shows_in_the_interval():
    """p = 10, eps = 0.3 (of products 5): the error is as large as the coefficients, and the learner says so."""
    rng = np.random.default_rng(4)
    x = rng.uniform(-1, 1, (100_000, 10))
    y = x @ np.full(10, 0.2) + rng.normal(size=len(x)) > 0
    hopeless = IWPSGDClassifier(guarantee=ApproxDP(0.3, 1e-5), loss="quadratic", features=list(range(10)), seed=4)
    hopeless.learn_many(x, y)
    intervals = hopeless.confidence_intervals()
    assert all(math.isinf(high - low) for low, high in intervals.values())
    assert intervals.note.startswith("none: noise hides ")
    assert "not learned at this privacy" in intervals.note
    joint = IWPSGDClassifier(guarantee=ApproxDP(5.0, 1e-5), release="joint", features=list(range(10)), seed=4)
    joint.learn_many(x, y)
    assert "do not determine" in joint.confidence_intervals().note
    assert hopeless.n_releases == 100_000
    fine = IWPSGDClassifier(guarantee=ApproxDP(60.0, 1e-5), loss="quadratic", features=list(range(10)), seed=4)
    fine.learn_many(x, y)
    assert all(high - low < 0.5 for low, high in fine.confidence_intervals().values())


def test_an_estimate_outside_the_ball_says_so():
    rng = np.random.default_rng(5)
    x = rng.uniform(-1, 1, (100_000, 2))
    model = IWPSGDClassifier(guarantee=GaussianDP(6.0), features=[0, 1], loss="probit", seed=5, radius=0.3)
    model.learn_many(x, x[:, 0] > 0)
    found = model.estimate()
    assert np.linalg.norm(found.values) == pytest.approx(0.3)
    assert "outside the ball" in found.note
    assert found.note.startswith("none: ")
    assert np.all(np.isinf(found.spread))


def test_targets_in_other_units_do_not_merge():
    near, far = (
        IWPSGDRegressor(guarantee=GaussianDP(4.0), features=["a"], seed=1, target_bound=b) for b in (4.0, 40.0)
    )
    for model in (near, far):
        model.learn_one({"a": 0.5}, 1.0)
    with pytest.raises(UserError, match="merge"):
        near.merged([far])
    with pytest.raises(MurkError, match="other settings"):
        near.load_state_dict(far.state_dict())


def test_the_product_release_needs_far_fewer_people():
    """Reference figures of quadratic loss with ridge 0.1, at a quarter of their n: p = 2, eps = 5, n = 250,000.

    The product's squared error was 0.0027 at 10^6, and the paper's release with classic noise 0.060. Here both are
    calibrated analytically: the mean over 6 draws must be below 0.05 and less than half of the paper's,
    and each polished estimate within 5 standard errors of the optimum.
    """
    rng = np.random.default_rng(6)
    x = rng.uniform(-1, 1, (250_000, 2))
    y = x @ [0.8, -0.6] + 0.3 * rng.normal(size=len(x)) > 0
    u = np.column_stack([x, np.ones(len(x))])
    best = np.linalg.solve(u.T @ u / len(u) + 0.1 * np.eye(3), u.T @ np.where(y, 1.0, -1.0) / len(u))
    errors = {}
    for form in ("joint", "separate"):
        total = []
        for seed in range(6):
            model = IWPSGDClassifier(
                guarantee=ApproxDP(5.0, 1e-5), loss="quadratic", regularization=0.1, release=form, features=[0, 1],
                seed=seed,
            )  # fmt: skip
            model.learn_many(x, y)
            total.append(np.sum((model.average - best) ** 2))
            if form == "joint":
                found = model.estimate()
                assert np.all(np.abs(found.values - best) < 5 * found.spread)
        errors[form] = np.mean(total)
    assert errors["joint"] < 0.05
    assert errors["joint"] < errors["separate"] / 2


@pytest.mark.parametrize("form", ["separate", "joint"])
def test_without_correction_it_is_plain_sgd_on_what_was_released(form):
    """Step by step as in numpy, on the decoded releases; the corrected learner, on the same ones, is elsewhere."""
    x, y = records(1_000, seed=8)
    labels = np.where(y > 0.5, 1.0, -1.0)
    more = {
        "guarantee": ApproxDP(6.0, 1e-5), "gamma": 0.01, "features": [0, 1], "seed": 3, "loss": "quadratic",
        "release": form, "calibration": "classic", "batch": 10, "radius": 100.0,
    }  # fmt: skip
    plain = IWPSGDClassifier.as_published(corrected=False, **more)
    corrected = IWPSGDClassifier.as_published(**more)
    for model in (plain, corrected):
        model.learn_many(x, labels > 0)
    rows = np.column_stack([x, labels if form == "separate" else np.ones(len(x))])
    rows *= 1.0 if form == "separate" else labels[:, None]
    mechanism = plain._engine.mechanisms["default"]
    noisy = mechanism.decode(mechanism.randomize(rows, SimulatedNoise(3), np.arange(len(x))))
    u = np.column_stack([noisy[:, :2], np.ones(len(x))]) * noisy[:, 2:] if form == "separate" else noisy
    theta = np.zeros(3)
    for batch in u.reshape(-1, 10, 3):
        theta = theta - 0.01 * ((batch @ theta - 1) @ batch / 10 + 5.0 * theta)
    np.testing.assert_allclose(plain.iterate, theta, rtol=1e-9)
    assert not np.allclose(corrected.iterate, theta, rtol=1e-2)
    assert math.isnan(plain.unbiased_loss)
    assert math.isfinite(corrected.unbiased_loss)
    assert "unbiased_loss" not in plain._engine.figures()
    with pytest.raises(MurkError, match="other settings"):
        corrected.load_state_dict(plain.state_dict())
    for bad in ({"release": "outer"}, {"newton": True}, {"corrected": None}):
        with pytest.raises(UserError, match="corrected="):
            IWPSGDClassifier.as_published(guarantee=GaussianDP(1.0), **{"corrected": False, "loss": "quadratic", **bad})


def test_the_papers_settings_beat_uncorrected_sgd():
    """The paper's comparison at n = 200,000 with a tenfold step: risk of the iterate against plain SGD on releases."""
    x, y = records(200_000, seed=8)
    labels = np.where(y > 0.5, 1.0, -1.0)
    u = np.column_stack([x, np.ones(len(x))]) * labels[:, None]
    risks = []
    for seed in range(3):
        model = IWPSGDClassifier.as_published(
            guarantee=ApproxDP(4.0, 1e-5), gamma=5e-4, features=[0, 1], seed=seed, loss="quadratic"
        )
        model.learn_many(x, labels > 0)
        mechanism = model._engine.mechanisms["default"]
        noisy = mechanism.decode(
            mechanism.randomize(np.column_stack([x, labels]), SimulatedNoise(seed), np.arange(len(x)))
        )
        noisy = np.column_stack([noisy[:, :2], np.ones(len(x))]) * noisy[:, 2:]
        moment = noisy.T @ noisy / len(x)
        # Where plain SGD on noisy examples ends: the minimiser of the smoothed risk.
        naive = np.linalg.solve(moment + 5 * np.eye(3), noisy.mean(axis=0))
        risks.append([np.mean(0.5 * (u @ theta - 1) ** 2) for theta in (model.iterate, naive)])
    best = np.linalg.solve(u.T @ u / len(u) + 5 * np.eye(3), u.mean(axis=0))
    optimum = np.mean(0.5 * (u @ best - 1) ** 2)
    ours, naive = np.mean(risks, axis=0) - optimum
    assert ours < 0.5 * naive


@pytest.mark.parametrize(("budget", "loss"), [(GaussianDP(2.0), "quadratic"), (GaussianDP(4.0), "probit")])
def test_intervals_cover(budget, loss):
    """Nominal 95% over 30 draws of 3 coefficients: fewer than 75 of 90 hold with probability below 1e-5 (binomial).

    The twin, of half the width, holds 67% and fails.
    """
    truth = np.array([0.2, -0.15, 0.1])
    held = half = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        x = rng.uniform(-1, 1, (40_000, 2))
        fit = x @ truth[:2] + truth[2]
        if loss == "quadratic":
            y = rng.random(len(x)) < 0.5 + 0.5 * fit  # E[y | x] is linear: the optimum is the truth
        else:
            y = fit + 1.702 * rng.normal(size=len(x)) > 0
        model = IWPSGDClassifier(guarantee=budget, loss=loss, features=[0, 1], seed=seed)
        model.learn_many(x, y)
        found = model.estimate()
        held += int(np.sum(np.abs(found.values - truth) < found.half_widths(0.95)))
        half += int(np.sum(np.abs(found.values - truth) < 0.5 * found.half_widths(0.95)))
    assert held >= 75
    assert half < 75
