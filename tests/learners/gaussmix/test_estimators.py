"""The River estimators: windows, releases, what copies lose, and what is learned."""

import copy
import json
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from river import compose, evaluate, metrics, stream
from scipy.special import expit
from statsmodels.discrete.discrete_model import Logit
from statsmodels.regression.linear_model import OLS

from murk.errors import DataWarning, MurkError, UserError
from murk.learners import GaussMixClassifier, GaussMixRegressor
from murk.privacy import ApproxDP, GaussianDP, SimulatedNoise
from murk.privacy.central import SketchAccumulator
from murk.protocols.summaries.surrogate import quadratic
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import SketchRelease

BUDGET = ApproxDP(2.0, 1e-5)


def records(n=3000, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, 3))
    return x, np.clip(x @ [0.4, -0.3, 0.2] + 0.1 + 0.2 * rng.normal(size=n), -1, 1)


def regressor(**more):
    return GaussMixRegressor(**{"guarantee": BUDGET, "rows": 200, "features": [0, 1, 2], "seed": 5, **more})


def one_by_one(model, x, y):
    for row, target in zip(x.tolist(), y.tolist(), strict=True):
        model.learn_one(dict(enumerate(row)), target)
    return model


def test_before_the_first_release_predictions_are_neutral():
    x, y = records(50)
    model = one_by_one(regressor(), x, y)
    assert (model.n_releases, model.pending) == (0, 50)
    assert model.predict_one({0: 1.0}) == 0.0
    assert model.predict_many(x).tolist() == [0.0] * 50
    assert set(model.coefficients().values()) == {0.0}
    assert model.confidence_intervals()["intercept"] == (-math.inf, math.inf)
    classifier = GaussMixClassifier(guarantee=BUDGET, features=["a"])
    classifier.learn_one({"a": 1.0}, True)
    assert classifier.predict_proba_one({"a": 1.0}) == {False: 0.5, True: 0.5}


def test_a_full_window_is_released_by_itself_and_others_by_hand():
    x, y = records(250)
    model = one_by_one(regressor(window=100, windows=3), x, y)
    assert (model.n_releases, model.pending) == (2, 50)
    model.release()
    assert (model.n_releases, model.pending) == (3, 0)
    with pytest.raises(UserError, match="no record"):
        model.release()


def test_no_more_windows_than_were_granted():
    x, y = records(200)
    model = regressor(window=100)
    with pytest.raises(UserError, match="windows=1"):
        model.learn_many(x, y)
    assert model.n_releases == 1
    with pytest.raises(UserError, match="windows=1"):
        one_by_one(model, x[:1], y[:1])
    with pytest.raises(UserError, match="windows=1"):
        model.clone().learn_many(x, y)


def test_many_is_one_by_one_bit_for_bit():
    x, y = records(1000)
    one = one_by_one(regressor(window=300, windows=9), x, y)
    array, frame = regressor(window=300, windows=9), regressor(window=300, windows=9)
    array.learn_many(x[:450], y[:450])
    array.learn_many(x[450:], y[450:])
    frame.learn_many(pd.DataFrame(x), pd.Series(y))
    assert one.state_dict() == array.state_dict() == frame.state_dict()
    assert np.array_equal(array.predict_many(x), frame.predict_many(pd.DataFrame(x)).to_numpy())
    assert array.predict_one(dict(enumerate(x[0].tolist()))) == pytest.approx(array.predict_many(x)[0], rel=1e-12)


def test_it_finds_the_regression_within_its_errors():
    x, y = records(20_000)
    model = regressor(rows=2000)
    model.learn_many(x, y)
    model.release()
    truth = OLS(y, np.column_stack([x, np.ones(len(x))])).fit().params
    estimate = model.estimate()
    # 5 standard errors: 2e-6 for the four.
    assert np.all(np.abs(estimate.values - truth) < 5 * estimate.spread)
    assert np.all(estimate.spread < 0.05)
    assert list(model.coefficients()) == ["0", "1", "2", "intercept"]


@pytest.mark.parametrize("reach", [None, 1.0])
def test_it_finds_the_logistic_regression(reach):
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, (20_000, 3))
    y = rng.random(20_000) < expit(x @ [0.8, -0.6, 0.3] + 0.2)
    model = GaussMixClassifier(guarantee=BUDGET, rows=2000, features=[0, 1, 2], range=reach, seed=1)
    model.learn_many(x, y)
    model.release()
    truth = Logit(y.astype(float), np.column_stack([x, np.ones(len(x))])).fit(disp=0).params
    estimate = model.estimate()
    # 5 standard errors, and the surrogate's own bias: about a twentieth of the coefficients.
    assert np.all(np.abs(estimate.values - truth) < 5 * estimate.spread + 0.05 * np.abs(truth))
    assert np.all(estimate.spread < 0.15)
    labels = model.predict_many(x)
    assert np.mean(labels == y) > 0.6
    assert labels[:20].tolist() == [model.predict_one(dict(enumerate(row))) for row in x[:20].tolist()]
    assert np.allclose(
        model.predict_proba_many(x)[:, 1], expit(np.column_stack([x, np.ones(len(x))]) @ estimate.values)
    )


def test_the_rest_of_a_classifier():
    with pytest.raises(UserError, match="two distinct labels"):
        GaussMixClassifier(guarantee=BUDGET, classes=("a", "b", "c"))
    model = GaussMixClassifier(guarantee=BUDGET, classes=("no", "yes"), features=["a"], rows=50, seed=1, window=4)
    for label in ("yes", "no", "neither", ["not hashable"]):
        model.learn_one({"a": 1.0}, label)
    assert model.n_releases == 1
    assert set(model.predict_proba_one({"a": 0.5})) == {"no", "yes"}
    frame = model.predict_proba_many(pd.DataFrame({"a": [0.1, 0.2]}))
    assert list(frame.columns) == ["no", "yes"]


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_hold_released_sketches_and_no_record(copied):
    x, y = records(250)
    model = one_by_one(regressor(window=100, windows=3, seed=None, target_bound=1.0), x, y)
    twin = copied(model)
    assert (twin.pending, model.pending) == (0, 50)
    assert twin.state_dict() == model.state_dict()
    # What was granted and spent goes with the copy; another window's randomness does not.
    one_by_one(twin, x[:100], y[:100])
    model.release()
    assert twin.n_releases == model.n_releases == 3
    assert twin.state_dict() != model.state_dict()
    with pytest.raises(UserError, match="windows=3"):
        one_by_one(twin, x[:1], y[:1])


def test_nothing_stored_depends_on_open_records():
    x, y = records(60)
    empty, full = regressor(window=100), regressor(window=100)
    one_by_one(full, x, y)
    assert pickle.dumps(empty) == pickle.dumps(full)
    assert json.dumps(empty.state_dict()) == json.dumps(full.state_dict())
    assert full.clone().pending == 0


def test_a_release_that_fails_is_not_tried_again(monkeypatch):
    x, y = records(60)
    model = one_by_one(regressor(windows=2), x, y)
    monkeypatch.setattr(SketchAccumulator, "release", lambda self: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        model.release()
    assert (model.pending, model.n_releases) == (0, 0)
    with pytest.raises(UserError, match="no record"):
        model.release()


def test_the_state_round_trips_and_keeps_what_was_spent():
    x, y = records(200)
    model = regressor(window=100, windows=2)
    model.learn_many(x, y)
    state = json.loads(json.dumps(model.state_dict()))
    fresh = GaussMixRegressor(guarantee=BUDGET, rows=200, window=100, windows=2, seed=5)
    fresh.load_state_dict(state)
    assert fresh.state_dict() == model.state_dict()
    assert fresh.coefficients() == model.coefficients()
    with pytest.raises(UserError, match="windows=2"):
        one_by_one(fresh, x[:1], y[:1])
    # An older state gives nothing back.
    model.load_state_dict(regressor(window=100, windows=2).state_dict())
    with pytest.raises(UserError, match="windows=2"):
        one_by_one(model, x[:1], y[:1])


@pytest.mark.parametrize("damage", [{"features": ["z"]}, {"released": -1}, {"released": "many"}, {"fold": {}}])
def test_a_damaged_state_is_refused(damage):
    model = regressor()
    with pytest.raises(MurkError, match="state"):
        model.load_state_dict({**model.state_dict(), **damage})
    fresh = GaussMixRegressor(guarantee=BUDGET, rows=200, seed=1)
    with pytest.raises(MurkError):
        fresh.load_state_dict({**model.state_dict(), "fold": {}})
    with pytest.raises(MurkError, match="malformed"):
        fresh.load_state_dict({})
    with pytest.raises(UserError, match="features are not known"):
        fresh.coefficients()


def test_several_organisations_are_better_than_one():
    x, y = records(12_000)
    parts = []
    for number, share in enumerate(np.array_split(np.arange(len(x)), 3)):
        part = regressor(seed=number)
        part.learn_many(x[share], y[share])
        part.release()
        parts.append(part)
    merged = parts[0].merged(parts[1:])
    assert (merged.partitions, merged.n_releases) == (3, 3)
    assert np.all(merged.spread < 0.75 * parts[0].estimate().spread)
    truth = OLS(y, np.column_stack([x, np.ones(len(x))])).fit().params
    assert np.all(np.abs(merged.values - truth) < 5 * merged.spread)
    with pytest.raises(UserError, match="same features and settings"):
        parts[0].merged([regressor(rows=100)])


def elsewhere(model, n=3000, level="default", **changes):
    x, y = records(n)
    window = SketchAccumulator(model._engine.mechanisms[level], SimulatedNoise(9), 0)
    window.add_block(np.column_stack([x, np.ones(n), y]))
    sketch = window.release()
    fields = {
        "id": "0" * 32, "task": "f" * 64, "level": level, "partition": 0, "rows": sketch.rows, "records": n, "time": 0,
        "spread": sketch.spread, "payload": SketchRelease.packed(sketch.integers.ravel()), "expires": 1,
        "simulated": True,
    }  # fmt: skip
    return SketchRelease(**{**fields, **changes})


def test_merging_before_learning_is_refused():
    fresh = GaussMixRegressor(guarantee=BUDGET, rows=200, seed=1)
    for merge in (lambda: fresh.merged([]), lambda: fresh.merged([regressor()]), lambda: regressor().merged([fresh])):
        with pytest.raises(UserError, match="features"):
            merge()


def test_sketches_made_elsewhere_are_learned_or_refused():
    model = regressor(levels={"strict": ApproxDP(0.5, 1e-6)})
    model.learn_release(elsewhere(model))
    model.learn_release(elsewhere(model, level="strict"))
    assert model.n_releases == 2
    for changes, reason in (
        ({"simulated": False}, "simulated"), ({"rows": 7}, "dimension"), ({"spread": 1e6}, "magnitude"),
        ({"records": 1}, "magnitude"),
    ):  # fmt: skip
        with pytest.raises(RejectedError) as caught:
            model.learn_release(elsewhere(model, **changes))
        assert caught.value.reason == reason
    with pytest.raises(UserError, match="features are not known"):
        GaussMixRegressor(guarantee=BUDGET, seed=1).learn_release(elsewhere(model))


def test_records_beyond_the_bounds_are_scaled_and_counted_nowhere():
    x, y = records(500)
    near, far = regressor(feature_bound=0.5, windows=2), regressor(feature_bound=0.5, windows=2)
    rows = np.column_stack([x, np.ones(500)])
    near.learn_many(x, y)
    with pytest.warns(DataWarning, match="500 of the first 500 targets are beyond"):
        far.learn_many(x, 1e9 * y)
    kept = [getattr(far._window, name) for kind in type(far._window).__mro__ for name in getattr(kind, "__slots__", ())]
    counts = [each for each in kept if isinstance(each, int) or getattr(each, "dtype", None) == np.int64]
    assert 500 in counts  # the records, which are public
    assert sum(np.sum(each) == 500 for each in counts) == 1
    assert "500" not in json.dumps(far.state_dict()).replace(far.state_dict()["fold"]["settings"], "")
    for model in (near, far):
        model.release()
    assert np.all(np.isfinite(far.estimate().values))
    assert np.linalg.norm(rows, axis=1).min() > 0.5


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf, "text", 1e300])
def test_no_value_is_ever_refused(value):
    model = regressor(window=2)
    model.learn_one({0: value, 1: 1.0}, 1.0)
    model.learn_one({0: 1.0}, value)
    assert model.n_releases == 1
    assert np.all(np.isfinite(model.estimate().values))


def test_as_published_is_the_ridge_of_the_paper():
    x, y = records(3000)
    ours, theirs = regressor(), GaussMixRegressor.as_published(guarantee=BUDGET, rows=200, features=[0, 1, 2], seed=5)
    for model in (ours, theirs):
        model.learn_many(x, y)
        model.release()
    assert (theirs.debiased, theirs.weighting) == (False, "uniform")
    # The same sketch; the noise that is not taken off shrinks.
    assert np.linalg.norm(theirs.estimate().values) < np.linalg.norm(ours.estimate().values)
    assert np.all(np.isinf(theirs.estimate().spread))
    assert "shrunk" in theirs.estimate().note
    published = GaussMixClassifier.as_published(guarantee=BUDGET, rows=64, seed=1)
    assert (published.range, published.debiased, published.analysis) == (3.0, False, "published")


@pytest.mark.parametrize("more", [{"rows": 500}, {"rows": None}, {"rows": 500, "debiased": False}])
def test_without_a_constant_records_are_as_the_paper_has_them(more):
    rng = np.random.default_rng(4)
    x = rng.uniform(0, 1, (3000, 2))
    y = x @ [0.5, -0.3] + 0.1 * rng.normal(size=len(x))
    model = regressor(features=["a", "b"], intercept=False, guarantee=ApproxDP(20.0, 1e-5), **more)
    model.learn_many(pd.DataFrame(x, columns=["a", "b"]), y)
    model.release()
    assert (model.mechanism.columns, list(model.coefficients())) == (3, ["a", "b"])
    assert model.mechanism.feature_bound == pytest.approx(math.sqrt(2))
    estimate = model.estimate()
    if "debiased" not in more:
        # 5 standard errors of two coefficients: 1e-6. With a constant both would be others.
        assert np.all(np.abs(estimate.values - [0.5, -0.3]) < 5 * estimate.spread)
        assert np.all(estimate.spread < 0.1)
        assert "every record" in estimate.note
    one = one_by_one(
        regressor(features=["a", "b"], intercept=False, guarantee=ApproxDP(20.0, 1e-5), **more), x[:0], y[:0]
    )
    for row, target in zip(x.tolist(), y.tolist(), strict=True):
        one.learn_one({"a": row[0], "b": row[1]}, target)
    one.release()
    assert np.array_equal(one.estimate().values, estimate.values)
    assert one.predict_one({"a": 0.0, "b": 0.0}) == 0.0
    assert {each.name for each in model.summary()} == {"a", "b"}
    # Of others the state is refused.
    with pytest.raises(MurkError, match="columns 3 does not fit"):
        regressor(features=["a", "b"], guarantee=ApproxDP(20.0, 1e-5), **more).load_state_dict(model.state_dict())


def test_the_surrogate_is_a_choice_of_scale():
    x = np.random.default_rng(2).uniform(-1, 1, (2000, 2))
    found = []
    for more in ({}, {"surrogate": "chebyshev"}):
        model = GaussMixClassifier(guarantee=ApproxDP(20.0, 1e-5), features=[0, 1], range=6.0, seed=1, **more)
        model.learn_many(x, x[:, 0] > 0.2 * x[:, 1])
        model.release()
        found.append(model)
    ratio = found[0].estimate().values / found[1].estimate().values
    assert ratio == pytest.approx(quadratic(6.0).scale / quadratic(6.0, "chebyshev").scale)
    with pytest.raises(UserError, match="same features and settings"):
        found[0].merged(found[1:])
    with pytest.raises(UserError, match="give range="):
        GaussMixClassifier(guarantee=BUDGET, surrogate="chebyshev")


def test_log_odds_without_a_constant_go_through_zero_and_have_no_interval():
    rng = np.random.default_rng(2)
    x = rng.uniform(-1, 1, (20_000, 3))
    theta = np.array([1.0, -0.5, 0.3])
    y = rng.random(20_000) < expit(x @ theta)
    model = GaussMixClassifier(guarantee=ApproxDP(20.0, 1e-5), features=[0, 1, 2], intercept=False, seed=1)
    model.learn_many(x, y)
    model.release()
    # A standard error is some 0.03 here; with half the scale of log odds, as of least squares, it would fail.
    assert model.estimate().values == pytest.approx(theta, abs=0.15)
    assert np.all(np.isinf(model.estimate().spread))
    assert "without a constant" in model.estimate().note
    assert model.predict_proba_one({0: 0.0})[True] == 0.5


def test_more_noise_than_signal_says_so():
    x, y = records(20)
    model = regressor(guarantee=ApproxDP(0.1, 1e-5))
    model.learn_many(x, y)
    model.release()
    assert np.all(np.isinf(model.estimate().spread))
    assert "hides" in model.estimate().note


def test_replaced_records_are_a_choice():
    ours = regressor(neighbours="replace-one")
    assert ours.mechanism.guarantee == BUDGET
    assert ours.mechanism.g > regressor().mechanism.g
    assert regressor().mechanism.replace_one().epsilon > BUDGET.epsilon


def test_mistakes_are_named():
    for wrong, match in (
        ({"guarantee": 1.0}, "ApproxDP"), ({"guarantee": GaussianDP(1.0)}, "approx"), ({"windows": 0}, "windows"),
        ({"windows": True}, "windows"), ({"window": 0}, "window"), ({"features": ["a", "a"]}, "distinct"),
        ({"rows": 4}, "rows"), ({"noise": SimulatedNoise(1)}, "one of them"), ({"method": "other"}, "method"),
        ({"feature_bound": -1.0}, "feature_bound"), ({"intercept": None}, "intercept=None"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=match):
            regressor(**wrong)
    with pytest.raises(UserError, match="2 rows, y has 3"):
        regressor().learn_many(np.zeros((2, 3)), np.zeros(3))
    with pytest.raises(UserError, match="shape"):
        regressor().learn_many(np.zeros((2, 4)), np.zeros(2))


def test_in_a_pipeline_with_progressive_validation():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame(rng.uniform(-0.5, 0.5, (4000, 2)), columns=["a", "b"])
    labels = pd.Series(frame["a"] + 0.1 * rng.normal(size=4000) > 0)
    model = compose.Pipeline(
        compose.FuncTransformer(_double),
        GaussMixClassifier(guarantee=BUDGET, rows=200, window=1000, windows=4, seed=4),
    )
    metric = evaluate.progressive_val_score(stream.iter_frame(frame, labels), model, metrics.Accuracy())
    # The first quarter is a guess; a learner that learned nothing stays at a half.
    assert metric.get() > 0.7


def _double(x):
    return {name: 2 * value for name, value in x.items()}
