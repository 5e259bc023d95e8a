"""Scores of several classes: bounded, unbiased, solved to what was true; and in tasks as in River."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from murk import Task
from murk.errors import UserError
from murk.inference.units import units
from murk.learners import ScoreClassifier
from murk.privacy import GaussianDP, PureDP
from murk.privacy.noise import SimulatedNoise
from murk.producers.producer import randomize_records
from murk.protocols.device import HostileModelError, person_device_for
from murk.protocols.linear_algebra import contrasts
from murk.protocols.rows import Rows
from murk.protocols.scores.model import Model, Response, check_model, vectors
from murk.protocols.scores.settings import FIRST
from murk.protocols.scores.solve.classes import ClassScores, probabilities
from tests.learners.scores.people import class_outcomes, device_of, features, learn, public

K, P = 3, 3
LABELS = ("bus", "car", "train")
THETA = np.array([[0.8, -0.4, 0.3], [-0.6, 0.9, 0.2], [-0.2, -0.5, -0.5]])
numbers = st.floats(-1e8, 1e8)


@st.composite
def hostile(draw):
    """Any model that devices take."""
    model = Model(
        draw(arrays(float, (K - 1) * P, elements=st.floats(-1e4, 1e4))),
        draw(arrays(float, (P, P), elements=numbers)),
        draw(st.floats(1e-6, 1e4)),
        draw(st.floats(0, 1)),
        0.0,
        draw(st.floats(0, 1)),
    )
    return check_model(model.flat, P, K - 1)


@settings(max_examples=80, deadline=None)
@given(hostile(), arrays(float, (3, P), elements=st.floats(-1, 1)), st.sampled_from([0.0, 1.0, 2.0, 7.0, np.nan]))
def test_no_answer_is_longer_than_one(model, X, target):
    device, y = device_of(P - 1, 1.0, labels=LABELS), np.full(3, target)
    for query in device.queries:
        found = device.vectors(X, y, model.flat, query)
        assert np.all(np.isfinite(found))
        assert np.all(np.linalg.norm(found, axis=1) <= 1 + 1e-9)
        # Without a target, or with one that is none of the classes, nothing but a scatter.
        if not target <= 2 and query == "score":
            assert not found.any()


def test_a_model_of_another_number_of_classes_is_refused():
    device = device_of(P - 1, 1.0, labels=LABELS)
    device.check_model(device.initial)
    assert device.lengths == ((K - 1) * P, P * (P + 1) // 2)
    for other in (device_of(P - 1, 1.0), device_of(P - 1, 1.0, labels=(*LABELS, "none"))):
        with pytest.raises(HostileModelError, match="numbers"):
            device.check_model(other.initial)


def test_two_classes_are_a_binary_target():
    """One contrast, which is the logit over sqrt 2."""
    rng = np.random.default_rng(1)
    X, y, origin = rng.uniform(-1, 1, (50, P)), rng.integers(2, size=50).astype(float), 2 * rng.normal(size=P)
    transform = np.eye(P) + 0.2 * rng.normal(size=(P, P))
    for exponent in (0.0, 0.5, 1.0):
        classes = Model(origin / math.sqrt(2.0), transform, 1.2, exponent, 0.0, 0.0)
        binary = Model(origin, transform, 1.2, exponent, 0.0, 0.0)
        found = vectors(X, y, classes, Response(False, 2), "score")
        assert found == pytest.approx(vectors(X, y, binary, Response(True), "score"))


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0])
def test_the_mean_score_and_its_slope_are_those_of_devices(exponent):
    """Against a sum over records with every class, weighted by its probability; the slope by differences."""
    rng = np.random.default_rng(3)
    rows = Rows(np.c_[rng.uniform(-1, 1, size=(40, P - 1)), np.ones(40)], np.full(40, 0.025))
    origin, theta, basis = rng.normal(size=(K - 1) * P), rng.normal(size=(K - 1) * P), contrasts(K)
    model = Model(origin, np.eye(P) + 0.2 * rng.normal(size=(P, P)), 1.2, exponent, 0.0, 0.0)
    at = probabilities(rows.points, theta, basis)
    each = [vectors(rows.points, np.full(40, float(k)), model, Response(False, K), "score") for k in range(K)]
    expected = ClassScores.of(model, rows, basis)
    direct = sum(at[:, [k]] * each[k] for k in range(K))
    assert expected.summands(at) == pytest.approx(direct)
    assert expected.score(at) == pytest.approx(direct.mean(axis=0))
    square = sum((each[k] * at[:, [k]]).T @ each[k] for k in range(K)) / 40
    assert expected.spread(at) == pytest.approx(square)
    steps = 1e-6 * np.eye(len(theta))
    rise = [
        (
            expected.score(probabilities(rows.points, theta + s, basis))
            - expected.score(probabilities(rows.points, theta - s, basis))
        )
        / 2e-6
        for s in steps
    ]
    assert expected.slope(at) == pytest.approx(np.array(rise).T, abs=1e-7)
    if exponent == 1.0:
        # Centred: its mean is zero where the origin is the truth, whatever the distribution of the features.
        assert expected.score(probabilities(rows.points, origin, basis)) == pytest.approx(
            np.zeros(len(origin)), abs=1e-12
        )


REPLICATIONS = 8
# 8 x 6 intervals of 95% (two classes; the third follows from them), treated as independent: fewer than 38 hold with
# probability 2e-5; of 57% ones, with 99.9%.
FEWEST = 38


def held(seed, *, guarantee=None, missing=0.0, narrowed=1.0):
    rng = np.random.default_rng(seed)
    X = features(rng, 12_800, P - 1)
    y = class_outcomes(rng, X, THETA)
    y[rng.random(len(y)) < missing] = np.nan
    device = device_of(P - 1, 4.0, guarantee=guarantee, covariates=public(X[12_000:]), labels=LABELS)
    estimate = learn(device, X[:12_000], y[:12_000], seed).estimate()
    half, off = estimate.half_widths(), np.abs(estimate.values - (THETA - THETA.mean(axis=0)).ravel())
    assert np.all(np.isfinite(half))
    return np.sum(off[: 2 * P] <= half[: 2 * P]), np.sum(off[: 2 * P] <= 0.4 * half[: 2 * P])


@pytest.mark.parametrize("given", [{}, {"missing": 0.4}, {"guarantee": PureDP(5.0)}], ids=["all", "missing", "pure"])
def test_intervals_hold_the_truth(given):
    counts = np.sum([held(seed, **given) for seed in range(REPLICATIONS)], axis=0)
    assert counts[0] >= FEWEST
    # The twin: intervals of two fifths of the width, which would hold it in 57%.
    assert counts[1] < FEWEST


def test_public_rows_unlike_the_people_give_no_interval():
    rng = np.random.default_rng(1)
    X = features(rng, 14_000, P - 1)
    y = class_outcomes(rng, X, THETA)
    for wrong in (False, True):
        rows = X[12_000:] * (np.array([1.0, 0.2, 1.0]) if wrong else 1.0)
        engine = learn(device_of(P - 1, 4.0, covariates=public(rows), labels=LABELS), X[:12_000], y[:12_000], 1)
        # By chance once in 10,000 times.
        assert bool(np.all(np.isinf(engine.estimate().half_widths()))) is wrong
        assert engine.estimate().note.startswith("none") is wrong


def test_intervals_allow_for_people_as_unlike_the_rows_as_the_check_might_miss():
    """Rows of the people's own are taken for a sample of not many fewer; preferred ones, which pass, of much fewer."""
    rng = np.random.default_rng(1)
    X = features(rng, 22_000, P - 1)
    y = class_outcomes(rng, X, THETA)
    found = []
    for tilt in (0.0, 1.5):
        rows = X[12_000:]
        rows = rows[rng.random(len(rows)) < 1.0 / (1.0 + np.exp(-tilt * rows[:, 0]))][:3000]
        device = device_of(P - 1, 8.0, covariates=public(rows), labels=LABELS)
        found.append(learn(device, X[:12_000], y[:12_000], 1).estimate().solution)
    right, preferred = found
    assert right.alike
    assert right.doubt <= 16 / 3000
    assert preferred.doubt > 4 * right.doubt
    # What it adds is there: as if the rows were right, intervals are narrower.
    wide, preferred.doubt = preferred.half_widths(1.96), 1 / 3000
    del preferred.covariance
    assert np.all(np.diag(preferred.covariance) < (wide / 1.96) ** 2)


def classifier(rows, **more):
    given = {"guarantee": GaussianDP(4.0), "classes": LABELS, "features": ["a", "b"], "seed": 5, "public": rows}
    return ScoreClassifier(**{**given, **more})


def test_in_river_as_in_a_task_and_one_by_one_as_in_blocks():
    rng = np.random.default_rng(2)
    X = features(rng, FIRST + 900, P - 1)
    y = class_outcomes(rng, X, THETA)
    rows, X, y = X[:500, :-1], X[500:], y[500:]
    engine = learn(device_of(P - 1, 4.0, covariates=public(np.c_[rows, np.ones(500)]), labels=LABELS), X, y, 5)
    names = [LABELS[int(place)] for place in y]
    many, one = classifier(rows), classifier(rows)
    many.learn_many(X[:, :-1], names)
    for row, name in zip(X.tolist(), names, strict=True):
        one.learn_one({"a": row[0], "b": row[1]}, name)
    assert one.state_dict() == many.state_dict()
    assert many.state_dict()["fold"]["rounds"] == engine.state_dict()["rounds"]
    again = classifier(rows)
    again.load_state_dict(json.loads(json.dumps(many.state_dict())))
    assert again.coefficients() == many.coefficients()
    assert list(many.coefficients())[:4] == ["bus:a", "bus:b", "bus:intercept", "car:a"]
    assert sum(many.coefficients()[f"{label}:a"] for label in LABELS) == pytest.approx(0.0, abs=1e-12)
    found = many.predict_proba_many(X[:, :-1])
    assert np.array_equal(found, again.predict_proba_many(X[:, :-1]))
    assert found.sum(axis=1) == pytest.approx(1.0)
    # The most frequent class is right in 40%, the truth in 56%.
    assert np.mean(many.predict_many(X[:, :-1]) == np.array(names)) > 0.5
    assert many.merged([again]).n_releases == 2 * len(X)


TEXT = """
name: commute
features: [{name: a, low: -1, high: 1}, {name: b, low: -1, high: 1}]
target: {name: by, kind: classes, classes: [bus, car, train]}
protocol: scores
privacy: {guarantee: {gdp: {mu: 2.0}}}
"""


def test_log_odds_without_public_covariates_are_refused_with_the_choices():
    curve = f"{TEXT}scores: {{effects: logistic}}\n"
    with pytest.raises(UserError, match=r"several classes need public.*effects: linear.*file: F.*set_aside: N"):
        Task.parse(curve)
    rows = "public: {set_aside: 50}\n"
    assert Task.parse(curve + rows).hash == Task.parse(TEXT + rows).hash
    with pytest.raises(UserError, match=r"scores.effects: 'linear' with several classes uses no public covariates"):
        Task.parse(f"{TEXT}scores: {{effects: linear}}\n{rows}")
    with pytest.raises(UserError, match=r"scores.exponent: 0.5 needs public covariates"):
        Task.parse(f"{TEXT}scores: {{exponent: 0.5}}\n")
    with pytest.raises(UserError, match="distinct labels"):
        classifier(np.eye(2), classes=("a", "b", "a"))


def test_a_tasks_devices_answer_and_its_learner_learns():
    task = Task.parse(f"{TEXT}public: {{set_aside: 50}}\n")
    rng = np.random.default_rng(4)
    X = features(rng, 300, P - 1)
    y = class_outcomes(rng, X, THETA)
    points, counts = np.unique(X[:50], axis=0, return_counts=True)
    device = person_device_for(task.with_public(points, counts.astype(np.int64)))
    device.check_state()
    engine, people = device.engine(), np.arange(250)
    noise, models = SimulatedNoise(3), {0: np.array(device.engine().published()[1])}
    payloads, asked = randomize_records(device, X[50:], y[50:], [0] * 250, models, ["default"] * 250, noise, people)
    assert {len(payload) for payload in payloads} == set(device.lengths)
    engine.learn_payloads({
        ("default", name): np.array([p for p, other in zip(payloads, asked, strict=True) if other == name])
        for name in set(asked)
    })  # fmt: skip
    assert engine.coefficients == len(engine.estimate().names) == K * P
    assert engine.estimate().names[3] == "car:a"
    assert units(task) == {}
    assert task.fitted_model == "softmax"
    restored = device.engine()
    restored.load_state_dict(json.loads(json.dumps(engine.state_dict())))
    assert restored.estimate().values.tolist() == engine.estimate().values.tolist()
