"""Average effects of several classes by the lines through their indicators, where nobody's rows are public."""

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from murk import Task
from murk._internal.links import class_probabilities, logistic
from murk.inference.units import units
from murk.learners import ScoreClassifier
from murk.planning.forecast import forecast
from murk.privacy import GaussianDP
from murk.protocols.device import device_for
from murk.protocols.linear_algebra import contrasts
from murk.protocols.population import Effects, Records, designs
from murk.protocols.scores import forecast as planned
from murk.protocols.scores.model import Model, Response, directions, vectors
from murk.protocols.scores.solutions import disagreement
from murk.protocols.scores.solve.classes import ClassLines, centre, indicator
from murk.protocols.scores.sums import Answer, Summary
from murk.results.report import describe_target, report_estimate
from murk.results.result import predict
from murk.results.text import Table, describe_learned
from tests.learners.scores.test_line import POINTS, rows

K, P = 3, 4
LABELS = ("bus", "car", "train")
BASIS = contrasts(K)
TEXT = """
name: commute
features:
  - {name: age, low: 20, high: 90}
  - {name: urban, categories: ["no", "yes"]}
  - {name: visits, low: 0, high: 8}
target: {name: by, kind: classes, classes: [bus, car, train]}
privacy: {guarantee: {gdp: {mu: 2.0}}}
"""
SCORES = "protocol: scores\n"
# The last class has 6% of the people.
THETA = np.array([[0.8, 0.3, -0.4, 0.6], [-0.5, -0.3, 0.4, 0.6], [-0.3, 0.1, 0.3, -1.3]])


@cache
def chances() -> np.ndarray:
    return class_probabilities(rows() @ THETA.T, np.eye(K))


def lines_of(model: Model) -> np.ndarray:
    """Each class's least-squares line, weighted as people count, of labels -1 and +1, (K, P)."""
    D = directions(rows(), model)
    return 2.0 * np.linalg.solve(D.T @ rows(), D.T @ chances()).T - np.eye(P)[-1]


# The lines themselves, of drawn sums at one model.

BASE = Model(np.zeros((K - 1) * P), np.diag([1.7, 1.0, 2.6, 1.0]), 4.0, 1.0, 0.1, 0.05)
PEOPLE = 50_000


def at_rates(rates: list[float]) -> Model:
    origin = np.zeros((K - 1, P))
    origin[:, -1] = BASIS.T @ np.log(rates)
    return replace(BASE, origin=origin.ravel())


RATES = at_rates([0.5, 0.44, 0.06])


def at(model: Model, rng: np.random.Generator | None, share: float = 1.0) -> Summary:
    """Mean answers at a model of constants alone, by devices' own scores; of very many people without a generator."""
    people = PEOPLE if rng is not None else PEOPLE * 10_000
    X = rows()
    scores = [vectors(X, np.full(len(X), float(k)), model, Response(False, K), "score") for k in range(K)]
    mean = share * sum(chances()[:, k] @ scores[k] for k in range(K)) / len(X)
    scatter = directions(X, model).T @ (X @ model.transform.T) / len(X) / 2.0
    answers = {}
    for name, value, count in (
        ("score", mean, people), ("scatter", scatter, people / 5), ("curvature", share * scatter, people / 5),
    ):  # fmt: skip
        noise = 1.0 / count * (1.0 if name == "score" else model.matrix_clipping_norm**2 / 8)
        if rng is not None:
            draw = rng.normal(size=value.shape) * math.sqrt(noise)
            value = value + (draw if value.ndim == 1 else (draw + draw.T) / 2)
        answers[name] = Answer(value, noise, 0.0, 0.0)
    return Summary(model, answers["score"], answers["scatter"], answers["curvature"])


def test_the_lines_are_weighted_least_squares_of_any_distribution():
    """Skewed features, without noise, in the answers of two rounds that are centred at different shares."""
    found = ClassLines([at(BASE, None), at(RATES, None)], K)
    assert found.values.reshape(K, P) == pytest.approx(lines_of(BASE), abs=0.008)
    assert found.rates == pytest.approx(chances().mean(axis=0), abs=0.03)
    assert found.values.reshape(K, P)[:, :-1].sum(axis=0) == pytest.approx(np.zeros(P - 1), abs=1e-3)
    assert found.missing == 0.0


def test_missing_targets_are_told_from_small_effects():
    found = ClassLines([at(RATES, None, share=0.6)], K)
    assert found.values.reshape(K, P)[:, :-1] == pytest.approx(lines_of(BASE)[:, :-1], abs=0.02)
    assert 0.3 < found.missing < 0.4


def test_of_two_classes_the_second_is_a_binary_targets_positive_label():
    """The score about it is the binary one at the same share, number for number."""
    basis, X = contrasts(2), rows()[:50]
    constant = 0.9
    origin = np.append(np.zeros(P - 1), constant)
    classes = replace(BASE, origin=origin / math.sqrt(2.0))
    assert centre(classes, basis) == pytest.approx(logistic(np.array([-constant, constant])))
    for target in (0.0, 1.0):
        y = np.full(len(X), target)
        mean = vectors(X, y, classes, Response(False, 2), "score").mean(axis=0)
        own = vectors(X, y, replace(BASE, origin=origin), Response(True), "score").mean(axis=0)
        made = indicator(Summary(classes, Answer(mean, 1.0, 1.0, 0.0), None, None), 1, basis)
        assert made.score is not None
        assert made.score.mean == pytest.approx(own)
        assert made.score.noise == pytest.approx(1.0)
        assert made.model.origin == pytest.approx(origin)


@pytest.mark.parametrize("narrower", [1.0, 0.3])
def test_intervals_hold_the_lines(narrower: float):
    """Of 30 draws at 95% fewer than 23 hold a slope once in 12,000 times, and any of nine slopes once in 1,300.

    The twin: intervals 0.3 times as wide, which hold it in 44%.
    """
    rng, held = np.random.default_rng(3), []
    truth = lines_of(BASE)[:, :-1]
    for _ in range(30):
        found = ClassLines([at(RATES, rng)], K)
        halves = found.half_widths(1.96).reshape(K, P)[:, :-1]
        held.append(np.abs(found.values.reshape(K, P)[:, :-1] - truth) <= narrower * halves)
    shares = np.mean(held, axis=0)
    assert np.all(shares >= 23 / 30) == (narrower == 1.0)


def test_the_covariance_knows_that_slopes_of_all_classes_add_up_to_zero():
    found = ClassLines([at(RATES, np.random.default_rng(1)), at(BASE, np.random.default_rng(2))], K)
    joint = found.covariance.reshape(K, P, K, P)
    together, alone = np.trace(joint.sum(axis=(0, 2))), np.trace(found.covariance)
    assert np.linalg.eigvalsh(found.covariance)[0] > -1e-9 * alone
    assert together < 0.05 * alone
    # The twin: classes that have nothing in common, whose sum varies by as much as all of them.
    apart = joint * np.eye(K)[:, None, :, None]
    assert not np.trace(apart.sum(axis=(0, 2))) < 0.05 * alone


def test_intervals_are_wider_where_epochs_disagree():
    """Honest ones do so less than once in 10^7 times; in the other one somebody has added to the scores."""
    rng = np.random.default_rng(5)
    honest = [at(RATES, rng), at(BASE, rng)]
    assert disagreement(ClassLines(honest, K)) == 1.0
    score = honest[1].score
    assert score is not None
    forged = replace(honest[1], score=replace(score, mean=score.mean + 0.3))
    assert disagreement(ClassLines([honest[0], forged], K)) > 1.2


def test_before_anything_is_told_nothing_is_learned():
    only = replace(at(BASE, None), scatter=None)
    for one in (replace(only, score=None), only):
        found = ClassLines([one], K)
        assert np.all(np.isinf(found.half_widths(1.96)))
        assert found.values.reshape(K, P)[:, -1] == pytest.approx(np.full(K, 2.0 / K - 1.0))
        assert found.covariance.shape == (K * P, K * P)
        assert found.next_model(4.0, (1.0, 1.0)).scatter == pytest.approx(0.375)


# Tasks and learners.


def estimate(more: str = SCORES, people: int = 60_000, seed: int = 1) -> Any:
    device = device_for(Task.parse(TEXT + more))
    records = Records(
        np.tile(rows(), (K, 1)), np.repeat(np.arange(3.0), len(rows())), chances().T.ravel() / len(rows())
    )
    [step] = planned.estimates(device, records, [people], {"default": 1.0}, 1, np.random.default_rng(seed))
    return step()


def test_a_task_without_rows_has_average_effects():
    found = estimate()
    values, halves = found.values.reshape(K, P), found.half_widths(0.9999).reshape(K, P)
    # Each nominal interval at 99.99% fails once in 10,000 times, one of nine in 1,000.
    truth = lines_of(replace(found.solution.newest, origin=np.zeros((K - 1) * P)))
    assert np.all(np.abs(values - truth)[:, :-1] <= halves[:, :-1])
    # In points: per 10 years, urban or not, and a visit.
    assert np.all(found.half_widths().reshape(K, P)[:, :-1] / 2.0 * POINTS <= (2.5, 8.0, 4.0))
    assert not np.any(found.solution.newest.origin.reshape(K - 1, P)[:, :-1])
    assert found.solution.rates == pytest.approx(chances().mean(axis=0), abs=0.03)
    assert found.not_learned() == []
    assert found.extent().known


def test_reports_say_that_effects_are_of_lines_and_log_odds_are_not_learned():
    task, found = Task.parse(TEXT + SCORES), estimate()
    assert (task.coefficient_scale, task.fitted_model) == ("probability", "least squares")
    assert list(units(task))[:5] == ["bus:age", "bus:urban", "bus:visits", "bus:intercept", "car:age"]
    report = report_estimate(found, task.coefficient_scale, units(task), 0.95, forecast=False)
    report |= {"odds_ratios": False, "chances": True, "diagnosis": None, "task": "t", "releases": 60_000}
    effect = report["average_effects"]["train:age"]
    assert "bus:intercept" not in report["average_effects"]
    # Coded, 35 years are 1, and half of a coefficient is what it changes the probability by.
    assert effect["value"] == pytest.approx(100.0 * found.values[2 * P] / 2.0 / 35.0)
    report |= {"of": describe_target(task)}
    table, note, *others = describe_learned(report)
    # Once, with each class's level.
    assert len(table.rows) == K * P
    assert table.rows[-2][0] == "train: visits: one unit more"
    assert table.title.endswith("probability of each class of by")
    assert not any(isinstance(block, Table) for block in others)
    assert "line through each class's indicator" in note.text
    assert "log odds and odds ratios are not learned without public covariates" in note.text


def test_a_result_predicts_probabilities_by_the_lines():
    task, found = Task.parse(TEXT + SCORES), estimate()
    coefficients = dict(zip(found.names, found.values.tolist(), strict=True))
    people = [{"age": 80, "urban": "yes", "visits": 1}, {"age": 25, "urban": "no", "visits": 8}]
    made = predict(task, coefficients, people)
    assert made.sum(axis=1) == pytest.approx(np.ones(2))
    X = np.array([[25 / 35, 1.0, -0.75, 1.0], [-30 / 35, -1.0, 1.0, 1.0]])
    assert made == pytest.approx(class_probabilities(X @ THETA.T, np.eye(K)), abs=0.2)
    assert made[0, 0] > made[1, 0] + 0.3


def test_a_plan_forecasts_the_effects_of_each_class():
    task = Task.parse(TEXT + SCORES)
    people = designs(task, Effects())[0]
    found = forecast(task, people, 60_000, draws=2, more=False)
    assert list(found.effects) == [name for name in units(task) if not name.endswith("intercept")]
    assert all(map(math.isfinite, found.effects.values()))
    assert 0.5 < found.points < 6.0
    with_gradients = forecast(task.with_protocol("gradients"), people, 60_000, draws=1, more=False)
    assert not with_gradients.learned
    assert "protocol: scores has intervals of average effects" in with_gradients.why


def test_in_river_a_classifier_without_rows_has_lines_and_predicts():
    rng = np.random.default_rng(2)
    X = rows()[rng.integers(len(rows()), size=13_000)]
    odds = class_probabilities(X @ THETA.T, np.eye(K))
    y = [LABELS[int(place)] for place in (rng.random(len(X))[:, None] > odds.cumsum(axis=1)).sum(axis=1)]
    model = ScoreClassifier(guarantee=GaussianDP(8.0), classes=LABELS, features=["a", "b", "c"], seed=5)
    model.learn_many(X[:12_500, :-1], y[:12_500])
    low, high = model.confidence_intervals(0.95)["bus:a"]
    assert 0.0 < low < high
    assert "bus:a" in model.summary(forecast=False).report["coefficients"]
    made = model.predict_proba_many(X[12_500:, :-1])
    assert made.sum(axis=1) == pytest.approx(np.ones(500))
    known = np.array([LABELS.index(name) for name in y[12_500:]])
    logs = np.log(made[np.arange(500), known]).mean()
    # Better than each class's share by itself, which has -0.88 on average, by what the features tell: 0.1 of it.
    assert logs > np.log(odds.mean(axis=0))[known].mean() + 0.02


def test_predicted_shares_of_few_people_stay_near_each_other():
    """Noise is not taken for certainty: 30 people say nothing, 20,000 give the shares."""
    rng = np.random.default_rng(7)
    for people, expected, clipping_norm in ((30, (1 / 3, 1 / 3, 1 / 3), 0.1), (20_000, (0.2, 0.345, 0.455), 0.15)):
        learner = ScoreClassifier(guarantee=GaussianDP(2.0), features=("a", "b"), classes=LABELS, seed=3)
        for a, b, u in zip(rng.uniform(-1, 1, people), rng.uniform(-1, 1, people), rng.random(people), strict=True):
            label = LABELS[int(np.searchsorted(np.cumsum([0.2, 0.3 + 0.15 * a]), u))]
            learner.learn_one({"a": a, "b": b}, label)
        shares = learner.predict_proba_one({"a": 0.3, "b": -0.2})
        assert [shares[label] for label in LABELS] == pytest.approx(expected, abs=clipping_norm)
