"""River's own contract, for every public learner, found by itself."""

import copy
import pickle
from types import GeneratorType

import numpy as np
import pandas as pd
import pytest
from river import compose, datasets, evaluate, metrics, optim, preprocessing, stream
from river.checks import yield_checks

import murk.learners
from murk import Task
from murk.errors import UserError
from murk.learners import (
    Encoder,
    IWPSGDClassifier,
    IWPSGDRegressor,
    LDPSGDClassifier,
    LDPSGDRegressor,
    ScoreRegressor,
)
from murk.privacy import ApproxDP, GaussianDP, PureDP, ZeroConcentratedDP
from murk.protocols.options import InverseScalingStep
from tests.learners.catalogue import NAMES


def learners():
    """Every public learner with each of its test settings."""
    for name in NAMES:
        learner = getattr(murk.learners, name)
        for number, params in enumerate(learner._unit_test_params()):
            yield pytest.param(learner(**params), id=f"{name}-{number}")


# How records become vectors, and chances labels, is the same code for all settings of a class: the first is checked.
OF_RECORDS = {
    "check_predict_proba_one_binary",
    "check_shuffle_features_no_impact",
    "check_emerging_features",
    "check_disappearing_features",
    "check_radically_disappearing_features",
    "check_no_state_aliasing_with_input",
}
OF_ENGINES = {
    "check_bounded_memory_growth", "check_pickling", "check_predict_proba_one", "check_predict_one_pure",
    "check_predict_one_before_any_learn",
}  # fmt: skip
# Settings whose engines keep something else than the first's: a mixed window, Newton steps, several classes, examples
# that are no outer products.
OTHER_ENGINES = {
    "GaussMixClassifier-1", "GaussMixClassifier-2", "LDPSGDClassifier-2", "IWPSGDClassifier-1", "IWPSGDRegressor-2",
}  # fmt: skip


def checks():
    """All checks for the first settings of each learner; for others, those that depend on settings.

    River's second data set is its first with labels of NumPy's: of a learner's settings one is checked with it.
    """
    for param in learners():
        model = param.values[0]
        first = param.id.endswith("-0")
        for check in yield_checks(model):
            name = check.__name__
            again = isinstance(getattr(check, "keywords", {}).get("dataset"), GeneratorType)
            if first:
                wanted = not again or name not in OF_RECORDS | OF_ENGINES or "proba" in name
            else:
                wanted = not again and name not in OF_RECORDS
                wanted &= name not in OF_ENGINES or param.id in OTHER_ENGINES
            if wanted:
                yield pytest.param(model, check, id=f"{param.id}-{name}")


@pytest.mark.parametrize(("model", "check"), list(checks()))
@pytest.mark.filterwarnings("ignore::murk.errors.DataWarning")  # River's data sets are not coded
def test_river_check(model, check):
    assert not model._unit_test_skips()
    check(model.clone())


def test_every_public_learner_is_an_estimator_with_a_required_budget():
    assert murk.learners.__all__ == sorted(murk.learners.__all__)
    for name in NAMES:
        with pytest.raises(TypeError, match="guarantee"):
            getattr(murk.learners, name)()


@pytest.mark.parametrize("budget", [PureDP(1.0), ApproxDP(1.0, 1e-6), GaussianDP(1.0), ZeroConcentratedDP(0.5)])
def test_every_kind_of_budget(budget):
    model = LDPSGDClassifier(guarantee=budget, seed=1)
    for x, y in datasets.Phishing().take(50):
        model.learn_one(x, y)
    assert model.n_releases == 50


def test_a_budget_that_is_none_is_refused():
    with pytest.raises(UserError, match="GaussianDP"):
        LDPSGDRegressor(guarantee=1.0)


def test_in_a_pipeline_with_progressive_validation():
    model = compose.Pipeline(
        compose.FuncTransformer(_half), LDPSGDClassifier(guarantee=GaussianDP(8.0), seed=4, radius=2.0)
    )
    metric = evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy())
    # Chance is about 0.56; a learner that learned nothing stays there.
    assert metric.get() > 0.75


def _half(x):
    return {name: 2 * value - 1 for name, value in x.items()}


def test_a_pipelines_summary_is_its_learners_in_the_encoders_units():
    encoder = Encoder(
        Task.parse("""
name: commuters
features: [{name: age, low: 20, high: 80}]
target: {name: minutes, kind: real, low: 0, high: 100}
privacy: {guarantee: {gdp: {mu: 4.0}}}
""")
    )
    learner = ScoreRegressor(guarantee=GaussianDP(4.0), features=encoder.features, target_bounds=(0, 100), seed=1)
    model = encoder | learner
    for i in range(2_000):
        age = 20 + i * 7919 % 61
        model.learn_one({"age": age}, 10 + age / 2)
    assert str(model.summary()) == str(learner.summary(encoder))
    assert "age: one unit more" in str(model.summary())
    assert type(model.clone()) is type(model)
    # Whatever pipeline an encoder is put before stays what it is.
    assert type(encoder | compose.Pipeline(learner.clone())) is compose.Pipeline


def test_budget_reaches_the_learner_through_a_pipeline():
    model = compose.Pipeline(compose.FuncTransformer(_half), LDPSGDClassifier(guarantee=GaussianDP(1.0), seed=4))
    other = model.clone()
    for x, y in datasets.Phishing().take(20):
        model.learn_one(x, y, guarantee=GaussianDP(0.5))
        other.learn_one(x, y)
    assert not np.array_equal(model["LDPSGDClassifier"].iterate, other["LDPSGDClassifier"].iterate)


def rows(n=400):
    rng = np.random.default_rng(8)
    x = rng.normal(size=(n, 3))
    return x, x @ np.array([1.0, -1.0, 0.5]) + 0.3 + rng.normal(size=n)


@pytest.mark.parametrize("budget", [GaussianDP(1.0), PureDP(1.0)])
@pytest.mark.parametrize("mechanism", [None, "laplace"])
@pytest.mark.parametrize("extra", [{}, {"step": optim.schedulers.InverseScaling(0.3, 0.6)}, {"weights": "mallows"}])
def test_many_is_one_by_one_bit_for_bit(budget, mechanism, extra):
    if mechanism == "laplace" and isinstance(budget, GaussianDP):
        budget = PureDP(0.7)
    x, y = rows()
    one = LDPSGDRegressor(guarantee=budget, mechanism=mechanism, seed=5, features=[0, 1, 2], **extra)
    for row, target in zip(x, y, strict=True):
        one.learn_one(dict(enumerate(row.tolist())), target)
    array, frame = one.clone(), one.clone()
    array.learn_many(x[:150], y[:150])
    array.learn_many(x[150:], y[150:])
    table = pd.DataFrame(x)
    frame.learn_many(table, pd.Series(y))
    assert one.state_dict() == array.state_dict() == frame.state_dict()
    assert np.array_equal(array.predict_many(x), frame.predict_many(table).to_numpy())
    assert array.predict_one(dict(enumerate(x[0].tolist()))) == pytest.approx(array.predict_many(x)[0], rel=1e-12)


def test_many_takes_a_budget_for_each_row():
    x, y = rows(60)
    budgets = [GaussianDP([0.5, 1.0, 2.0][i % 3]) for i in range(60)]
    many = LDPSGDRegressor(guarantee=GaussianDP(1.0), seed=5, features=[0, 1, 2])
    one = many.clone()
    many.learn_many(x, y, guarantee=budgets)
    for row, target, budget in zip(x, y, budgets, strict=True):
        one.learn_one(dict(enumerate(row.tolist())), target, guarantee=budget)
    assert one.state_dict() == many.state_dict()
    # After a mixed batch the default budget applies again.
    many.learn_one({0: 1.0, 1: 1.0, 2: 1.0}, 1.0)
    one.learn_one({0: 1.0, 1: 1.0, 2: 1.0}, 1.0)
    assert one.state_dict() == many.state_dict()


@pytest.mark.parametrize("seeded", [True, False])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
def test_copies_go_on_alike_only_where_seeded(copied, seeded):
    """Rule 6: a copy of an unseeded learner must not repeat its noise, or two releases give it away."""
    data = list(datasets.Phishing().take(40))
    model = LDPSGDClassifier(guarantee=GaussianDP(1.0), seed=1 if seeded else None, features=list(data[0][0]))
    for x, y in data[:20]:
        model.learn_one(x, y)
    twin = copied(model)
    assert twin.state_dict() == model.state_dict()
    for x, y in data[20:]:
        model.learn_one(x, y)
        twin.learn_one(x, y)
    assert (twin.state_dict() == model.state_dict()) is seeded


def test_as_published_has_the_papers_settings():
    model = LDPSGDRegressor.as_published(guarantee=GaussianDP(1.0), eta=0.5, alpha=0.6, seed=1)
    assert (model.weights, model.c, model.scale_multiplier, model.weighting) == (
        "mallows",
        1.345,
        1.0,
        "uniform",
    )
    assert model.step == InverseScalingStep(0.5, 0.6)
    assert LDPSGDClassifier.as_published(guarantee=PureDP(1.0), seed=1).mechanism == "laplace"


def test_the_riverscheduler_gives_the_published_steps():
    x, y = rows(50)
    ours = LDPSGDRegressor.as_published(guarantee=GaussianDP(1.0), seed=3)
    theirs = LDPSGDRegressor.as_published(
        guarantee=GaussianDP(1.0), seed=3, step=optim.schedulers.InverseScaling(0.2, 0.5)
    )
    ours.learn_many(x, y)
    theirs.learn_many(x, y)
    assert ours.state_dict() == theirs.state_dict()


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), -float("inf"), "text", 1e300])
def test_no_value_is_ever_refused(value):
    """Whether a record is learned must not depend on what it says."""
    model = LDPSGDRegressor(guarantee=GaussianDP(1.0), features=["a", "b"], seed=1)
    model.learn_one({"a": value, "b": 1.0}, 1.0)
    model.learn_one({"a": 1.0, "b": 1.0}, value)
    assert model.n_releases == 2
    assert np.all(np.isfinite(model.iterate))
    classifier = LDPSGDClassifier(guarantee=GaussianDP(1.0), features=["a"], seed=1)
    classifier.learn_one({"a": value}, "a label nobody declared")
    assert np.all(np.isfinite(classifier.iterate))


def test_scaler_then_learner_still_runs():
    model = preprocessing.MinMaxScaler() | LDPSGDRegressor(guarantee=GaussianDP(1.0), seed=1)
    for x, y in datasets.TrumpApproval().take(30):
        model.learn_one(x, y)
    assert isinstance(model.predict_one(x), float)


def test_iter_frame_and_predictions_have_the_frames_kind():
    x, y = rows(30)
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    model = LDPSGDClassifier(guarantee=GaussianDP(1.0), seed=1)
    for record, target in stream.iter_frame(frame, pd.Series(y > 0)):
        model.learn_one(record, target)
    labels = model.predict_many(frame)
    chances = model.predict_proba_many(frame)
    assert list(chances.columns) == [False, True]
    assert labels.tolist() == [model.predict_one(record) for record, _ in stream.iter_frame(frame)]


@pytest.mark.parametrize("budget", [ApproxDP(1.0, 1e-6), GaussianDP(1.0), ZeroConcentratedDP(0.5)])
@pytest.mark.parametrize("release", ["joint", "separate"])
def test_iwp_every_kind_of_budget(budget, release):
    model = IWPSGDClassifier(guarantee=budget, release=release, seed=1)
    for x, y in datasets.Phishing().take(50):
        model.learn_one(x, y, guarantee=budget)
    assert model.n_releases == 50


def test_iwp_in_a_pipeline_with_progressive_validation():
    model = compose.Pipeline(
        compose.FuncTransformer(_half), IWPSGDClassifier(guarantee=GaussianDP(30.0), seed=4, loss="quadratic")
    )
    metric = evaluate.progressive_val_score(datasets.Phishing(), model, metrics.Accuracy())
    # Chance is about 0.56; a learner that learned nothing stays there.
    assert metric.get() > 0.7


@pytest.mark.parametrize("seeded", [True, False])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))], ids=["deepcopy", "pickle"])
@pytest.mark.parametrize("release", ["joint", "separate"])
def test_iwp_copies_go_on_alike_only_where_seeded(copied, seeded, release):
    data = list(datasets.Phishing().take(40))
    model = IWPSGDRegressor(
        guarantee=GaussianDP(1.0),
        seed=1 if seeded else None,
        release=release,
        features=list(data[0][0]),
        target_bound=1.0,
    )
    for x, y in data[:20]:
        model.learn_one(x, float(y))
    twin = copied(model)
    assert twin.state_dict() == model.state_dict()
    for x, y in data[20:]:
        model.learn_one(x, float(y))
        twin.learn_one(x, float(y))
    assert (twin.state_dict() == model.state_dict()) is seeded
