"""Average effects by the line through labels, where noise hides the curvature of log odds."""

import math
import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from murk import Task
from murk._internal.links import logistic
from murk.inference.units import effect_units, units
from murk.protocols.device import device_for
from murk.protocols.population import Records
from murk.protocols.scores import forecast as planned
from murk.protocols.scores.model import Model, Response, directions
from murk.protocols.scores.solve.line import ProbabilityLine
from murk.protocols.scores.sums import Answer, Summary
from murk.results.coefficients import coefficient
from murk.results.diagnosis import describe_forgers
from murk.results.html import result_html
from murk.results.plot import forest
from murk.results.report import report_estimate
from murk.results.text import as_text, average_table, describe_learned

TEXT = """
name: readmissions
features:
  - {name: age, low: 20, high: 90}
  - {name: emergency, categories: ["no", "yes"]}
  - {name: visits, low: 0, high: 8}
target: {name: back, kind: binary, positive: "yes"}
privacy: {guarantee: {gdp: {mu: 2.0}}}
"""
POINTS = np.array([1000 / 35, 200.0, 25.0])


@cache
def rows() -> np.ndarray:
    """Age uniform, an emergency of 38%, a skewed count of visits: coded, the constant last."""
    rng, n = np.random.default_rng(0), 4_000
    age, emergency = rng.uniform(-1, 1, n), np.where(rng.random(n) < 0.38, 1.0, -1.0)
    visits = np.minimum(rng.geometric(0.45, n) - 1, 8) / 4 - 1
    return np.column_stack([age, emergency, visits, np.ones(n)])


def chances(intercept: float) -> np.ndarray:
    return logistic(rows() @ np.array([1.16, 0.35, 0.64, intercept]))


def records(intercept: float) -> Records:
    X, chance = rows(), chances(intercept)
    shares = np.concatenate([chance, 1.0 - chance]) / len(X)
    y = np.repeat([1.0, 0.0], len(X))
    return Records(np.concatenate([X, X]), y, shares / shares.sum())


def estimate(intercept: float, more: str = "", seed: int = 1, people: int = 60_000) -> Any:
    device = device_for(Task.parse(TEXT + more))
    rng = np.random.default_rng(seed)
    [step] = planned.estimates(device, records(intercept), [people], {"default": 1.0}, 1, rng)
    return step()


def line_of(model: Model, chance: np.ndarray) -> np.ndarray:
    """The least-squares line through labels, weighted as people count."""
    D = directions(rows(), model)
    return np.linalg.solve(D.T @ rows(), D.T @ chance)


def test_a_rare_outcome_has_average_effects_without_public_rows():
    """6% positive; what a task file and documents of before the key say of it decides."""
    found = estimate(-2.45)
    assert found.by_line
    assert 0.05 < chances(-2.45).mean() < 0.07
    values, halves = found.effects()
    assert np.all(halves[:-1] * POINTS <= (1.8, 6.4, 3.1))
    # Each nominal interval at 99.99% fails once in 10,000 times.
    wide = found.effects(0.9999)[1]
    assert np.all(np.abs(values - line_of(found.line.model, chances(-2.45)))[:-1] <= wide[:-1])
    former = estimate(-2.45, "scores: {effects: logistic}\n")
    assert former.effects() is None
    assert not np.isfinite(former.half_widths()[:-1]).all()


def test_balanced_outcomes_have_models_at_the_fitted_coefficients():
    found = estimate(0.4)
    assert not found.by_line
    assert found.effects_note == ""
    assert np.any(found.solution.newest.origin[:-1])
    assert np.isfinite(found.half_widths()).all()


def reported(found: Any) -> dict[str, Any]:
    task = Task.parse(TEXT)
    report = report_estimate(found, "log odds", units(task), 0.95, effects=effect_units(task), forecast=False)
    more = {"odds_ratios": True, "chances": False, "diagnosis": None, "task": "t", "releases": 60_000}
    return report | more | {"of": "log odds of back = yes"}


def test_reports_say_what_average_effects_are_of_and_state_them_first():
    found = estimate(-2.45)
    report = reported(found)
    assert "line through the labels" in report["effects_note"]
    assert report["average_effects"]["age"]["interval"][0] < report["average_effects"]["age"]["interval"][1]
    table, note = average_table(report)
    assert list(describe_learned(report))[:2] == [table, note]
    assert report["effects_note"] in note.text
    age = coefficient(report | {"not_learned": ["age"]}, "age")
    assert not age.learned
    assert age.average_effect == report["average_effects"]["age"]["value"]
    assert "average effect" in str(age)


def test_where_log_odds_are_withheld_no_table_or_picture_is_of_log_odds():
    report = reported(estimate(-2.45))
    text = as_text(describe_learned(report))
    assert text.startswith("t: 60,000 releases learned; probability of back = yes: average marginal effects")
    assert "odds ratio" not in text
    assert "the outcome is too rare for log odds" in text
    assert "Intervals of average effects by scores" in " ".join(text.split())
    assert "Log odds not learned at this privacy: age, emergency, visits, intercept." in text
    # What forged releases could move is what was learned.
    assert "How far an average effect could have been moved at most: 1 forged release by 0." in text
    coefficients = [coefficient(report, name) for name in report["coefficients"]]
    page = result_html(report | {"public_sample": None, "simulated": True, "levels": {}, "cap_words": ""}, coefficients)
    assert re.findall(r"<th class=[^>]*>([a-z ,]+)", page) == ["coefficient", "average effect, points", "log odds"]
    drawn = forest(report, coefficients[:-1]).axes[0]
    assert drawn.get_xlabel() == "points, with 95% intervals"
    value = report["average_effects"]["age"]["value"]
    assert any(line.get_xdata()[0] == pytest.approx(value) for line in drawn.lines)


def test_where_log_odds_are_learned_they_are_stated_below_more_precise_average_effects():
    report = reported(estimate(-1.2))
    text = as_text(describe_learned(report))
    assert "they are more precise here than those that follow from log odds" in " ".join(text.split())
    assert "t: 60,000 releases learned; log odds of back = yes\nper " in text
    assert "odds ratio" in text


def test_where_nothing_was_learned_forgery_has_no_unbounded_effect():
    found = estimate(-2.45, "scores: {effects: logistic}\n")
    assert not np.isfinite(found.half_widths()).any()
    assert describe_forgers(found, 0.95)["words"] == ""


# The line itself, of drawn sums at one model.

BASE = Model(np.zeros(4), np.diag([1.7, 1.0, 2.6, 1.0]), 4.0, 1.0, 0.1, 0.05)
PEOPLE = 50_000


def at(model: Model, chance: np.ndarray, rng: np.random.Generator | None, share: float = 1.0) -> Summary:
    """Mean answers at a model whose origin is the constant alone; of very many people where there is no generator."""
    people = PEOPLE if rng is not None else PEOPLE * 10_000
    X, q = rows(), float(logistic(model.origin[-1:])[0])
    D = directions(X, replace(model, origin=np.zeros(4)))
    scatter = (D.T @ (X @ model.transform.T)) / len(X) / 2
    weight = 2.0 * float(Response(True).weights(model.origin[-1:], 1.0)[0])
    mean = share * D.T @ (chance - q) / len(X) / max(q, 1 - q)
    answers = {}
    for name, value, count in (
        ("score", mean, people), ("scatter", scatter, people / 5), ("curvature", share * weight * scatter, people / 5),
    ):  # fmt: skip
        noise = 1.0 / count * (1.0 if name == "score" else model.matrix_clipping_norm**2 / 8)
        if rng is not None:
            draw = rng.normal(size=value.shape) * math.sqrt(noise)
            value = value + (draw if value.ndim == 1 else (draw + draw.T) / 2)
        answers[name] = Answer(value, noise, 0.0, 0.0)
    return Summary(model, answers["score"], answers["scatter"], answers["curvature"])


def test_the_line_is_weighted_least_squares_of_any_distribution():
    """Skewed features, without noise, in two rounds' coordinates; normal rows alone would not give it."""
    chance, models = chances(-1.0), (BASE, replace(BASE, origin=np.array([0.0, 0.0, 0.0, -1.5])))
    found = ProbabilityLine.of([at(model, chance, None) for model in models], Response(True))
    assert found is not None
    assert found.values == pytest.approx(line_of(BASE, chance), abs=0.004)
    assert found.rate == pytest.approx(chance.mean(), abs=0.05)


def test_missing_labels_are_told_from_small_effects():
    chance = chances(-1.0)
    found = ProbabilityLine.of([at(BASE, chance, None, share=0.6)], Response(True))
    assert found is not None
    assert found.values[:-1] == pytest.approx(line_of(BASE, chance)[:-1], rel=0.05)


def test_epochs_at_fitted_coefficients_do_not_tell_the_line():
    fitted = replace(at(BASE, chances(-1.0), None), model=replace(BASE, origin=np.array([0.5, 0.0, 0.0, -1.0])))
    assert ProbabilityLine.of([fitted], Response(True)) is None
    assert ProbabilityLine.of([at(BASE, chances(-1.0), None)], Response(False)) is None


@pytest.mark.parametrize("narrower", [1.0, 0.3])
def test_intervals_hold_the_line(narrower: float):
    """At 95% coverage fewer than 24 of 30 intervals hold a given slope with probability 1 in 1,700 (binomial)."""
    model = replace(BASE, origin=np.array([0.0, 0.0, 0.0, -2.0]))
    chance, rng, held = chances(-1.9), np.random.default_rng(3), []
    truth = line_of(BASE, chance)[:-1]
    for _ in range(30):
        found = ProbabilityLine.of([at(model, chance, rng)], Response(True))
        assert found is not None
        held.append(np.abs(found.values[:-1] - truth) <= narrower * found.half_widths(1.96)[:-1])
    shares = np.mean(held, axis=0)
    assert np.all(shares >= 0.8) == (narrower == 1.0)
