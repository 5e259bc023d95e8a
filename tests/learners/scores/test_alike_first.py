"""The first people are alike in a feature in which later ones differ: later answers correct the survey."""

import numpy as np
import pytest

from murk import Task
from murk._internal.links import logistic
from murk.privacy.noise import SimulatedNoise
from murk.protocols.device import device_for
from murk.protocols.scores.solve import moments

_TASK = """
name: sorted
features: [{name: age, low: -1, high: 1}, {name: smoker, categories: ["no", "yes"]}, {name: temp, low: -1, high: 1}]
target: {name: ill, kind: binary, positive: "yes", negative: "no"}
privacy: {guarantee: {gdp: {mu: 2}}}
"""
_TRUTH = np.array([0.5, 0.3, 1.2, 0.1])
_PEOPLE = 20_000


def learned(first, seed):
    """The estimate of people whose temperatures have a standard deviation of ``first`` during the survey."""
    device = device_for(Task.parse(_TASK))
    engine, noise, rng = device.engine(), SimulatedNoise(seed), np.random.default_rng(seed)
    spread = np.where(np.arange(_PEOPLE) < device.settings.survey.end, first, 0.33)
    temp = np.clip(spread * rng.normal(size=_PEOPLE), -1, 1)
    coin = np.where(rng.random(_PEOPLE) < 0.4, 1.0, -1.0)
    X = np.column_stack([rng.uniform(-1, 1, _PEOPLE), coin, temp, np.ones(_PEOPLE)])
    y = (rng.random(_PEOPLE) < logistic(X @ _TRUTH)).astype(float)
    while engine.n_releases < _PEOPLE:
        start, flat = engine.n_releases, engine.model.flat
        rows = np.arange(start, min(_PEOPLE, device.settings.round_end(start)), dtype=np.int64)
        asked, answers = np.array(device.draw_query(noise, rows, flat)), {}
        for query in sorted({*asked.tolist()}):
            mine = rows[asked == query]
            vectors = device.vectors(X[mine], y[mine], flat, query)
            answers["default", query] = device.mechanism("default", query).randomize(vectors, noise, mine)
        engine.learn_payloads(answers)
    return device.estimate([engine])


@pytest.mark.parametrize("seed", [1, 2])
def test_later_people_correct_a_survey_of_people_who_are_alike(seed, monkeypatch):
    """At 99.99%, one of three intervals of two runs misses with probability below 0.1%."""
    estimate = learned(0.02, seed)
    halves = estimate.half_widths(0.9999)[:3]
    assert (np.abs(estimate.values - _TRUTH)[:3] <= halves).all()
    assert np.isfinite(estimate.half_widths()[:2]).all()
    # The report still says that people changed, and in what.
    assert estimate.stream_change().features == ("temp",)
    # The twin: without the correction nothing is learned.
    monkeypatch.setattr(moments, "_corrected", lambda coordinates, known: None)
    assert not np.isfinite(learned(0.02, seed).half_widths()[:3]).any()


def test_nothing_is_corrected_where_people_stay_as_they_were():
    estimate = learned(0.33, 1)
    assert not estimate.solution.moments.understated.any()
    assert estimate.stream_change() is None
