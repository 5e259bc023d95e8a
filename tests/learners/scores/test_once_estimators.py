"""The River estimators where people answer once, without a model."""

import copy
import json
import pickle

import numpy as np
import pandas as pd
import pytest
from river import compose, datasets, evaluate, metrics

from murk.errors import MurkError, UserError
from murk.learners import PublicGLMClassifier, ScoreClassifier, ScoreRegressor
from murk.privacy import ApproxDP, GaussianDP, PureDP, SimulatedNoise
from murk.protocols.mean_functions import LINKS, LOSSES
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import ScoreRelease

RNG = np.random.default_rng(8)
X = RNG.normal(size=(30_000, 3)) * 0.4
TRUTH = np.array([1.0, -0.7, 0.4])
LABELS = RNG.random(len(X)) < 1 / (1 + np.exp(-(X @ TRUTH - 0.3)))
WEEKS = 26 + 20 * X[:, 0] + RNG.uniform(-3, 3, len(X))
PUBLIC = RNG.normal(size=(3000, 3)) * 0.4


def glm(**more):
    return ScoreClassifier(
        **{
            "interactive": False,
            "guarantee": GaussianDP(4.0),
            "public": PUBLIC,
            "features": [0, 1, 2],
            "seed": 1,
            **more,
        }
    )


def regression(**more):
    given = {
        "guarantee": GaussianDP(4.0),
        "public": PUBLIC,
        "features": [0, 1, 2],
        "seed": 1,
        "target_bounds": (-30, 82),
    }
    return ScoreRegressor(interactive=False, **{**given, **more})


def test_a_logistic_model_is_found_within_its_intervals_and_nearer_than_by_moments():
    model = glm(guarantee=GaussianDP(1.0))
    moments = PublicGLMClassifier(guarantee=GaussianDP(1.0), public=PUBLIC, features=[0, 1, 2], release="joint", seed=1)
    for each in (model, moments):
        each.learn_many(X, LABELS)
    found, truth = model.estimate(), np.append(TRUTH, -0.3)
    # 4 coefficients of a normal distribution, a false alarm once in 10^6 runs.
    assert np.all(np.abs(found.values - truth) < 5.1 * found.spread)
    assert np.any(np.abs(found.values + truth) > 5.1 * found.spread)
    assert np.sum(found.spread[:3] ** 2) < 0.75 * np.sum(moments.estimate().spread[:3] ** 2)
    assert found.alike
    assert "docs/scores.md" in model.confidence_intervals().note
    assert np.mean(model.predict_many(X[:1000]) == LABELS[:1000]) > 0.6


@pytest.mark.parametrize("loss", ["poisson", "boosting"])
def test_other_losses_are_solved_for(loss):
    X = np.random.default_rng(5).uniform(-1, 1, (30_000, 3))
    truth = np.array([0.6, -0.4, 0.3, -1.5])
    labels = np.random.default_rng(6).random(len(X)) < LOSSES[loss].mean(X @ truth[:3] + truth[3])
    model, wrong = (glm(loss=each, public=X[:5000], guarantee=GaussianDP(16.0)) for each in (loss, "logistic"))
    for each in (model, wrong):
        each.learn_many(X[5000:], labels[5000:])
    found, other = model.estimate(), wrong.estimate()
    # 4 coefficients of a normal distribution, a false alarm once in 10^6 runs.
    assert np.all(np.abs(found.values - truth) < 5.1 * found.spread)
    assert np.any(np.abs(other.values - truth) > 5.1 * other.spread)
    chance = LOSSES[loss].mean(np.array([0.3 - 1.5]))[0]
    assert model.predict_proba_one({0: 0.5, 1: 0.0, 2: 0.0})[True] == pytest.approx(chance, abs=0.05)


@pytest.mark.parametrize(("link", "bounds"), [("sigmoid", (0, 1)), ("softplus", (0, 2)), ("exp", (0, 4))])
def test_links_are_solved_for_in_the_targets_units(link, bounds):
    rng = np.random.default_rng(5)
    X, truth = rng.uniform(-1, 1, (30_000, 3)), np.array([0.6, -0.4, 0.3, -0.3])
    y = LINKS[link].mean(X @ truth[:3] + truth[3]) + rng.uniform(-0.1, 0.1, len(X))
    model = regression(link=link, public=X[:5000], target_bounds=bounds, guarantee=GaussianDP(16.0))
    model.learn_many(X[5000:], y[5000:])
    found = model.estimate()
    assert np.all(np.abs(found.values - truth) < 5.1 * found.spread)
    assert np.any(np.abs(found.values / 2 - truth) > 5.1 * found.spread)
    assert model.predict_one({0: 0.5, 1: 0.0, 2: 0.0}) == pytest.approx(LINKS[link].mean(np.zeros(1))[0], abs=0.15)
    assert pickle.loads(pickle.dumps(model)).state_dict() == model.state_dict()


def test_of_rows_unlike_the_people_no_other_loss_has_an_interval():
    rng = np.random.default_rng(5)
    X = rng.uniform(-1, 1, (60_000, 3))
    labels = rng.random(len(X)) < LOSSES["boosting"].mean(X @ TRUTH)
    model = glm(loss="boosting", public=np.column_stack([X[:5000, 0], X[:5000, 0], X[:5000, 2]]) * [1, 0.9, 0.3]
                + rng.uniform(-0.1, 0.1, (5000, 3)), guarantee=GaussianDP(8.0))  # fmt: skip
    model.learn_many(X, labels)
    found = model.estimate()
    assert not found.alike
    assert np.all(np.isinf(found.half_widths()))
    assert found.note.startswith("none: the public covariates are not like the people's")


def test_the_cubic_link_is_flat_where_answers_begin():
    with pytest.raises(UserError, match="link='cubic' is flat"):
        regression(link="cubic")


def test_a_line_is_in_the_targets_units():
    model = regression()
    model.learn_many(X, WEEKS)
    found = model.estimate()
    assert np.all(np.abs(found.values - [20, 0, 0, 26]) < 5.1 * found.spread)
    assert np.all(found.half_widths() < 6)
    assert found.spread[0] < 2
    assert model.predict_one({0: 0.5, 1: 0.0, 2: 0.0}) == pytest.approx(36, abs=3)
    assert model.predict_one({0: 1e9}) == 82.0


@pytest.mark.parametrize("make", [glm, regression])
@pytest.mark.parametrize("budget", [GaussianDP(1.0), PureDP(1.0), ApproxDP(1.0, 1e-6)], ids=lambda b: b.kind)
def test_many_is_one_by_one_bit_for_bit(make, budget):
    one, n = make(guarantee=budget), 40
    y = LABELS if make is glm else WEEKS
    for row, target in zip(X[:n], y[:n], strict=True):
        one.learn_one(dict(enumerate(row.tolist())), target)
    array, frame = one.clone(), one.clone()
    array.learn_many(X[:25], y[:25])
    array.learn_many(X[25:n], y[25:n])
    frame.learn_many(pd.DataFrame(X[:n]), pd.Series(y[:n]))
    assert one.state_dict() == array.state_dict() == frame.state_dict()
    assert np.array_equal(array.predict_many(X[:n]), frame.predict_many(pd.DataFrame(X[:n])).to_numpy())


def test_budgets_for_each_row():
    budgets = [GaussianDP([0.5, 4.0, 2.0][i % 3]) for i in range(30)]
    many, one = glm(), glm()
    many.learn_many(X[:30], LABELS[:30], guarantee=budgets)
    for row, target, budget in zip(X[:30], LABELS[:30], budgets, strict=True):
        one.learn_one(dict(enumerate(row.tolist())), target, guarantee=budget)
    assert one.state_dict() == many.state_dict()
    with pytest.raises(UserError, match="30 rows, guarantee has 2"):
        many.learn_many(X[:30], LABELS[:30], guarantee=budgets[:2])


@pytest.mark.parametrize("seeded", [True, False])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_go_on_alike_only_where_seeded(copied, seeded):
    model = glm(seed=1 if seeded else None)
    model.learn_many(X[:20], LABELS[:20])
    twin = copied(model)
    assert twin.state_dict() == model.state_dict()
    for each in (model, twin):
        each.learn_many(X[20:40], LABELS[20:40])
    assert (twin.state_dict() == model.state_dict()) is seeded


def test_states_go_on():
    model = glm()
    model.learn_many(X[:500], LABELS[:500])
    state = json.loads(json.dumps(model.state_dict()))
    late = glm(features=None)
    late.load_state_dict(state)
    assert late.state_dict() == model.state_dict()
    with pytest.raises(MurkError):
        glm(public=PUBLIC[:10]).load_state_dict(state)
    with pytest.raises(MurkError):
        ScoreClassifier(guarantee=GaussianDP(4.0), public=PUBLIC, features=[0, 1, 2], seed=1).load_state_dict(state)


def test_what_was_learned_apart_is_solved_together():
    left, right = glm(seed=2), glm(seed=3)
    left.learn_many(X[:15_000], LABELS[:15_000])
    right.learn_many(X[15_000:], LABELS[15_000:])
    merged = left.merged([right])
    assert (merged.partitions, merged.n_releases) == (2, 30_000)
    assert np.all(np.abs(merged.values - np.append(TRUTH, -0.3)) < 5.1 * merged.spread)


def test_releases_made_elsewhere():
    model = glm()
    fields = {
        "id": "0" * 32, "task": "f" * 64, "level": "default", "partition": 0, "time": 0, "expires": 1,
        "simulated": True,
        "version": 0, "query": "score", "payload": [0] * 4,
    }  # fmt: skip
    model.learn_release(ScoreRelease(**fields))
    assert model.n_releases == 1
    for change, reason in (
        ({"payload": [0] * 3}, "dimension"),
        ({"level": "gold"}, "level"),
        ({"version": 9}, "future"),
    ):
        with pytest.raises(RejectedError, match=reason):
            model.learn_release(ScoreRelease(**{**fields, **change}))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"public": None}, "interactive=False needs public covariates"),
        ({"exponent": 0.5}, "exponent=0.5 has no effect with interactive=False"),
        ({"forget": 24_000}, "forget=24000 has no effect with interactive=False"),
        ({"coverage": 0.9}, "coverage=0.9 has no effect with interactive=False"),
        ({"classes": list("abc"), "loss": "poisson"}, "loss='poisson' is for two classes, not 3"),
        ({"interactive": True, "loss": "poisson"}, "loss='poisson' is for people who answer once"),
    ],
)
def test_what_has_no_effect_is_refused_by_name(more, message):
    with pytest.raises(UserError, match=message):
        glm(**more)


def test_lines_of_classes_need_no_public_covariates_and_few_features():
    model = glm(public=None, classes=list("abc"))
    y = np.where(LABELS, "b", np.where(X[:, 1] > 0, "a", "c"))
    model.learn_many(X, y)
    assert model.estimate().values.shape == (12,)
    assert model.coefficients()["b:0"] > 0
    with pytest.raises(UserError, match="scores of several classes with interactive=False need few features"):
        glm(public=None, classes=list("abc"), features=list(range(40)))


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), "text", 1e300, [1], {}])
def test_no_value_is_ever_refused(value):
    for model in (glm(features=["a"], public=PUBLIC[:, :1]), regression(features=["a"], public=PUBLIC[:, :1])):
        model.learn_one({"a": value}, 1.0)
        model.learn_one({"a": 1.0}, value)
        model.learn_many(pd.DataFrame({"a": [value, 0.5]}), pd.Series([value, True], dtype=object))
        assert model.n_releases == 4
        model.predict_one({"a": value})
        assert np.all(np.isfinite(model.estimate().values))


def test_a_feature_that_does_not_vary_in_public_is_refused_as_in_tasks():
    with pytest.raises(UserError, match=r"singular.*leave it out or give more public rows"):
        glm(public=np.zeros((50, 1)), features=["k"])


def test_wrong_settings_name_the_remedy():
    with pytest.raises(UserError, match="unknown loss 'twice'"):
        glm(loss="twice")
    with pytest.raises(UserError, match="one of them"):
        glm(noise=SimulatedNoise(1))


def test_in_a_pipeline_with_progressive_validation():
    def half(x):
        return {name: 2 * value - 1 for name, value in x.items()}

    data = list(datasets.Phishing().take(900))
    public = [half(x) for x, _ in data[:300]]
    learner = ScoreClassifier(guarantee=GaussianDP(16.0), interactive=False, public=public, seed=4)
    metric = evaluate.progressive_val_score(data[300:], compose.FuncTransformer(half) | learner, metrics.Accuracy())
    # Chance is about 0.56; a learner that learned nothing stays there.
    assert metric.get() > 0.75
