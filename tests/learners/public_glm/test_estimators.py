"""The River estimators of released moments."""

import copy
import json
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from river import compose, datasets, evaluate, metrics

from murk.errors import DataWarning, MurkError, UserError
from murk.learners import PublicGLMClassifier, PublicGLMRegressor
from murk.privacy import ApproxDP, GaussianDP, PureDP, SimulatedNoise, ZeroConcentratedDP
from murk.protocols.moments.solve import NoRootError
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import MomentRelease

RNG = np.random.default_rng(8)
X = RNG.normal(size=(30_000, 3)) * 0.4
TRUTH = np.array([1.0, -0.7, 0.4])
LABELS = RNG.random(len(X)) < 1 / (1 + np.exp(-(X @ TRUTH - 0.3)))
PUBLIC = RNG.normal(size=(3000, 3)) * 0.4


def glm(**more):
    more = {
        "guarantee": GaussianDP(4.0),
        "public": PUBLIC,
        "features": [0, 1, 2],
        "seed": 1,
        "release": "joint",
        **more,
    }
    return PublicGLMClassifier(**more)


def regression(**more):
    return PublicGLMRegressor(**{"guarantee": GaussianDP(4.0), "features": [0, 1, 2], "seed": 1, **more})


@pytest.mark.parametrize("solver", ["stein", "score"])
def test_a_logistic_model_is_found_within_its_intervals(solver):
    model = glm(solver=solver)
    model.learn_many(X, LABELS)
    found = model.estimate()
    errors = (found.values - np.append(TRUTH, -0.3)) / found.spread
    # 4 coefficients, a false alarm once in 10^6 runs.
    assert np.all(np.abs(errors) < 5.1)
    # The twin: the direction alone, without the factor.
    line = np.array(list(model.direction().values()))
    assert np.any(np.abs(line - TRUTH) / found.spread[:3] > 5.1)
    assert found.spread.max() < 0.25
    low, high = model.confidence_intervals()["0"]
    assert high - low == pytest.approx(2 * 1.96 * found.spread[0], rel=1e-3)
    assert "docs/public-glm.md" in model.confidence_intervals().note


@pytest.mark.parametrize(
    "budget", [PureDP(4.0), ApproxDP(2.0, 1e-6), GaussianDP(1.0), ZeroConcentratedDP(0.5)], ids=lambda b: b.kind
)
@pytest.mark.parametrize("mechanism", [None, "laplace"])
def test_every_kind_of_budget(budget, mechanism):
    if mechanism == "laplace" and not isinstance(budget, PureDP):
        with pytest.raises(UserError):
            glm(guarantee=budget, mechanism="l2 ball")
        return
    model = glm(guarantee=budget, mechanism=mechanism)
    model.learn_many(X[:100], LABELS[:100])
    assert model.n_releases == 100
    assert 0 <= model.predict_proba_one({0: 0.1, 1: 0.2, 2: 0.3})[True] <= 1


def test_a_budget_that_is_none_is_refused():
    with pytest.raises(UserError, match="GaussianDP"):
        PublicGLMClassifier(guarantee=1.0)
    with pytest.raises(TypeError, match="guarantee"):
        PublicGLMRegressor()


@pytest.mark.parametrize("make", [glm, regression])
@pytest.mark.parametrize("budget", [GaussianDP(1.0), PureDP(1.0)])
def test_many_is_one_by_one_bit_for_bit(make, budget):
    one = make(guarantee=budget)
    n, y = 60, LABELS if make is glm else X[:, 0]
    for row, target in zip(X[:n], y[:n], strict=True):
        one.learn_one(dict(enumerate(row.tolist())), target)
    array, frame = one.clone(), one.clone()
    array.learn_many(X[:25], y[:25])
    array.learn_many(X[25:n], y[25:n])
    table = pd.DataFrame(X[:n])
    frame.learn_many(table, pd.Series(y[:n]))
    assert one.state_dict() == array.state_dict() == frame.state_dict()
    assert np.array_equal(array.predict_many(X[:n]), frame.predict_many(table).to_numpy())
    if make is regression:
        assert one.predict_one(dict(enumerate(X[0]))) == pytest.approx(one.predict_many(X[:1])[0])
    else:
        assert one.predict_proba_many(table).to_numpy() == pytest.approx(one.predict_proba_many(X[:n]))


def test_budgets_for_each_row():
    budgets = [GaussianDP([0.5, 1.0, 2.0][i % 3]) for i in range(60)]
    many, one = glm(), glm()
    many.learn_many(X[:60], LABELS[:60], guarantee=budgets)
    for row, target, budget in zip(X[:60], LABELS[:60], budgets, strict=True):
        one.learn_one(dict(enumerate(row.tolist())), target, guarantee=budget)
    assert one.state_dict() == many.state_dict()
    with pytest.raises(UserError, match="60 rows, guarantee has 2"):
        many.learn_many(X[:60], LABELS[:60], guarantee=budgets[:2])
    with pytest.raises(UserError, match="y has 2"):
        many.learn_many(X[:60], LABELS[:2])


@pytest.mark.parametrize("seeded", [True, False])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_go_on_alike_only_where_seeded(copied, seeded):
    """A copy of an unseeded learner must not repeat its noise, or two releases give it away."""
    model = glm(seed=1 if seeded else None)
    model.learn_many(X[:20], LABELS[:20])
    model.predict_many(X[:2])
    model.estimate()
    twin = copied(model)
    assert twin.state_dict() == model.state_dict()
    model.learn_many(X[20:40], LABELS[20:40])
    twin.learn_many(X[20:40], LABELS[20:40])
    assert (twin.state_dict() == model.state_dict()) is seeded


def test_public_rows_of_a_generator_serve_clones_too():
    model = glm(public=({0: a, 1: b, 2: c} for a, b, c in PUBLIC.tolist()), features=None)
    twin = model.clone()
    array = glm(features=None)
    for each in (model, twin, array):
        each.learn_many(X[:100], LABELS[:100])
    assert model.estimate().values.tolist() == twin.estimate().values.tolist() == array.estimate().values.tolist()


def test_public_data_of_other_columns_are_refused():
    with pytest.raises(UserError, match="no column 'age'"):
        glm(public=[{"a": 1.0}], features=["age"])
    late = glm(public=[{"a": 1.0}, {"a": -1.0}], features=None)
    with pytest.raises(UserError, match="no column 'age'"):
        late.learn_one({"age": 1.0}, True)
    assert late.n_releases == 0


def released(model, n=50, level="default", seed=3):
    """Integers as devices would release them."""
    engine = model._require()
    vectors = engine.layout.vectors(model._coded(X[:n]), 2.0 * LABELS[:n] - 1)
    return engine.mechanisms[level].randomize(vectors, SimulatedNoise(seed), np.arange(n))


def test_releases_made_elsewhere():
    source = glm(seed=3)
    source.learn_many(X[:50], LABELS[:50])
    payloads = released(source)
    wire = glm()
    for i, payload in enumerate(payloads.tolist()):
        one = MomentRelease(
            id=f"{i:032x}",
            task="f" * 64,
            level="default",
            partition=0,
            payload=payload,
            time=0,
            expires=1,
            simulated=True,
        )
        wire.learn_release(one)
    assert source.state_dict() == wire.state_dict()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"level": "gold"}, "level"),
        ({"simulated": False}, "simulated"),
        ({"payload": [1, 2]}, "dimension"),
        ({"payload": [2**40] * 13}, "magnitude"),
    ],
)
def test_releases_that_do_not_fit_are_rejected(change, reason):
    model = glm()
    fields = {
        "id": "0" * 32, "task": "f" * 64, "level": "default", "partition": 0, "payload": [0] * 13, "time": 0,
        "expires": 1,
        "simulated": True,
    }  # fmt: skip
    with pytest.raises(RejectedError, match=reason):
        model.learn_release(MomentRelease(**{**fields, **change}))
    model.learn_release(MomentRelease(**fields))
    assert model.n_releases == 1


def test_any_loss_may_be_fitted_to_the_same_releases():
    model, other = glm(), glm(loss="boosting", seed=None)
    model.learn_many(X, LABELS)
    other.load_state_dict(json.loads(json.dumps(model.state_dict())))
    assert other.n_releases == len(X)
    assert other.direction() == model.direction()
    assert other.coefficients() != model.coefficients()


def test_states_of_others_are_refused():
    model = glm()
    model.learn_many(X[:10], LABELS[:10])
    state = model.state_dict()
    with pytest.raises(MurkError, match="features"):
        glm(public=None, features=["a", "b", "c"]).load_state_dict(state)
    with pytest.raises(MurkError, match="malformed"):
        glm().load_state_dict({"fold": {}})
    fresh = glm(features=None)
    with pytest.raises(MurkError):
        fresh.load_state_dict({**state, "fold": {**state["fold"], "total": "!"}})
    with pytest.raises(UserError, match="not known yet"):
        fresh.coefficients()
    fresh.load_state_dict(state)
    assert fresh.state_dict() == state


def test_merging_adds_the_sums():
    whole, left, right = glm(guarantee=GaussianDP(8.0)), glm(seed=2), glm(seed=3)
    left.learn_many(X[:15_000], LABELS[:15_000])
    right.learn_many(X[15_000:], LABELS[15_000:])
    merged = left.merged([right])
    assert (merged.partitions, merged.n_releases) == (2, 30_000)
    assert np.all(np.abs(merged.values - np.append(TRUTH, -0.3)) < 5.1 * merged.spread)
    with pytest.raises(UserError, match="merge"):
        whole.merged([glm(features=["a", "b", "c"], public=None)])


def test_where_there_is_no_root_the_direction_stays():
    model = PublicGLMClassifier(
        guarantee=GaussianDP(50.0), public=PUBLIC + 2.0, features=[0, 1, 2], radius=8.0, intercept=False, seed=1
    )
    model.learn_many(X + 2.0, LABELS)
    with pytest.raises(NoRootError, match="without an intercept this is usual") as caught:
        model.coefficients()
    assert caught.value.direction == model.direction()
    expected = np.linalg.lstsq(X + 2.0, LABELS.astype(float))[0]
    np.testing.assert_allclose(list(model.direction().values()), expected, atol=0.1)
    assert all(map(math.isinf, np.ravel(list(model.confidence_intervals().values()))))
    # Predictions use the line.
    assert 0 <= model.predict_proba_one({0: 2.0, 1: 2.0, 2: 2.0})[True] <= 1
    assert model.predict_proba_many(X[:3] + 2.0).shape == (3, 2)


def test_own_units_do_not_depend_on_the_bound_given():
    """The bound sets the noise, and the coefficients stay those of the features as they come."""
    wide = regression(guarantee=GaussianDP(200.0), radius=100.0)
    wide.learn_many(10 * X, X @ TRUTH / 4)
    held = {name: 10 * value for name, value in wide.coefficients().items() if name != "intercept"}
    np.testing.assert_allclose(list(held.values()), TRUTH / 4, atol=0.02)


def test_targets_in_their_own_units():
    model = regression(guarantee=GaussianDP(100.0), target_bounds=(0, 52))
    y = 26 + 20 * X[:, 0]
    with pytest.warns(DataWarning, match="targets are beyond 0 and 52"):
        model.learn_many(X, y)
    assert model.coefficients()["0"] == pytest.approx(20, abs=1.0)
    assert model.coefficients()["intercept"] == pytest.approx(26, abs=1.0)
    assert model.predict_one({0: 0.5, 1: 0.0, 2: 0.0}) == pytest.approx(36, abs=1.5)
    assert model.predict_one({0: 5.0}) == 52.0
    with pytest.raises(UserError, match="target_bounds"):
        regression(target_bounds=(1, 0))


def test_counts_by_poisson_regression():
    counts = np.random.default_rng(2).poisson(np.exp(X @ TRUTH - 0.3))
    model = regression(guarantee=GaussianDP(8.0), link="exp", target_bounds=(0, 8), public=PUBLIC)
    with pytest.warns(DataWarning, match="targets are beyond 0 and 8"):
        model.learn_many(X, counts)
    found = model.estimate()
    # Counts above 8 (fewer than one in 10^4) are projected to it.
    assert np.all(np.abs(found.values - np.append(TRUTH, -0.3)) < 5.1 * found.spread)


def test_as_published_has_the_papers_settings():
    model = PublicGLMClassifier.as_published(guarantee=ApproxDP(1.0, 1e-6), radius=1.5, features=[0, 1, 2])
    assert (model.release, model.calibration, model.covariance, model.intercept, model.outliers, model.repair) == (
        "separate", "classic", "pooled", False, "zero", False,
    )  # fmt: skip
    assert model._engine.model.repair is False
    # In the features' own units: the constants 32 r^4 and 32 r^2 of the paper.
    mechanism, gain = model._engine.mechanisms["default"], model._gain
    paper = 32 * math.log(2.5e6)
    assert mechanism.variances[0] / gain**4 == pytest.approx(paper * 1.5**4, rel=1e-3)
    assert mechanism.variances[-1] / gain**2 == pytest.approx(paper * 1.5**2, rel=1e-3)
    bounded = PublicGLMRegressor.as_published(
        guarantee=ApproxDP(1.0, 1e-6), link="sigmoid", radius=1.5, lipschitz=0.25, error=0.1, features=[0, 1, 2]
    )
    size = 0.25 * 1.5 + 0.5 + 0.1
    assert bounded.target_bounds == (-size, size)
    noise = bounded._engine.mechanisms["default"].variances[-1] / bounded._gain**2 * size**2
    assert noise == pytest.approx(paper * 1.5**2 * size**2, rel=1e-3)
    # Algorithm 3: the bound of the features is read off public rows, that of the target is declared.
    normal = {"guarantee": ApproxDP(1.0, 1e-6), "link": "cubic", "lipschitz": 1.0, "error": 0.1, "features": [0, 1, 2]}
    free = PublicGLMRegressor.as_published(**normal, design="gaussian", public=PUBLIC, target_bounds=(-2.0, 2.0))
    assert (free.radius, free.target_bounds) == (None, (-2.0, 2.0))
    with pytest.raises(UserError, match="give radius= or target_bounds="):
        PublicGLMRegressor.as_published(**normal, design="gaussian", public=PUBLIC)
    with pytest.raises(UserError, match="classic"):
        PublicGLMClassifier.as_published(guarantee=ApproxDP(20.0, 1e-6), radius=1.0, features=[0])


def test_a_normal_design_takes_its_bound_from_public_covariates():
    ours = glm(design="gaussian", people=10**5)
    paper = glm(design="gaussian", people=10**5, release="separate", guarantee=ApproxDP(1.0, 1e-6), outliers="zero")
    clipping_norm = [math.sqrt(3) / each._gain for each in (ours, paper)]
    norm = np.linalg.norm(PUBLIC.T @ PUBLIC / len(PUBLIC), 2)
    assert clipping_norm[1] == pytest.approx(math.sqrt(5 * norm * 3 * math.log(10**5 / 0.05)))
    assert clipping_norm[0] < 0.6 * clipping_norm[1]
    with pytest.raises(UserError, match="give public="):
        glm(design="gaussian", public=None)


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), -float("inf"), "text", 1e300, [1], {}])
def test_no_value_is_ever_refused(value):
    """Whether a record is learned must not depend on what it says."""
    for model in (regression(features=["a", "b"]), glm(features=["a"], public=None)):
        model.learn_one({"a": value, "b": 1.0}, 1.0)
        model.learn_one({"a": 1.0}, value)
        model.learn_many(pd.DataFrame({"a": [value, 0.5]}), pd.Series([value, True], dtype=object))
        assert model.n_releases == 4
        assert np.all(np.isfinite(model._engine.sums.total))
        model.predict_one({"a": value})
        assert np.all(np.isfinite(model.estimate().values))


def test_wrong_settings_name_the_remedy():
    for change, message in [
        ({"release": "twice"}, "release='twice' is not one of 'observed', 'joint', 'separate'"),
        ({"outliers": "drop"}, "outliers="),
        ({"loss": "logit"}, "unknown loss"),
        ({"solver": "score", "public": None}, "give public="),
        ({"classes": (1, 2, 3)}, "two distinct"),
        ({"radius": -1.0}, "radius=-1.0"),
        ({"noise": SimulatedNoise(1)}, "one of them"),
        ({"features": [0, 0, 1]}, "distinct"),
        ({"features": ["intercept"], "public": None}, "intercept"),
        ({"features": list(range(400)), "public": None}, "at most 299"),
    ]:
        with pytest.raises(UserError, match=message):
            glm(**change)


def _half(x):
    return {name: 2 * value - 1 for name, value in x.items()}


def test_in_a_pipeline_with_progressive_validation():
    data = list(datasets.Phishing().take(900))
    public = [_half(x) for x, _ in data[:300]]
    model = compose.Pipeline(
        compose.FuncTransformer(_half),
        PublicGLMClassifier(guarantee=GaussianDP(16.0), public=public, release="joint", seed=4),
    )
    metric = evaluate.progressive_val_score(data[300:], model, metrics.Accuracy())
    # Chance is about 0.56; a learner that learned nothing stays there.
    assert metric.get() > 0.75


def test_moments_in_other_units_do_not_merge():
    near, far = (PublicGLMClassifier(guarantee=GaussianDP(4.0), features=["a"], seed=1, radius=r) for r in (1.5, 15.0))
    for model in (near, far):
        model.learn_one({"a": 0.5}, True)
    with pytest.raises(UserError, match="merge"):
        near.merged([far])
    with pytest.raises(MurkError):
        near.load_state_dict(far.state_dict())


def test_a_feature_that_does_not_vary_in_public_gets_no_absurd_coefficient():
    rng = np.random.default_rng(3)
    model = glm(public=np.zeros((50, 1)), features=["k"], seed=2)
    model.learn_many(np.zeros((2_000, 1)), rng.random(2_000) < 0.4)
    found = model.estimate()
    assert abs(found.values[0]) < 10.0
    assert np.all(np.isinf(found.spread))
