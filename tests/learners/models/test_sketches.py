"""Models of released windows: the task's own fit to the bit, fits of other columns, and refusals."""

from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

from murk.errors import UserError
from murk.privacy import SimulatedNoise
from murk.protocols.device import device_for
from murk.results.models import model_device_for
from murk.task.models import Model
from tests.learners.models.worlds import EVERYBODY, LABEL, REAL, coded, made, truth

TASKS = {
    "moments": made(REAL, "summaries", "gdp: {mu: 1.0}", method="moments"),
    "moments of a label": made(LABEL, "summaries", "gdp: {mu: 1.0}", method="moments"),
    "mixing": made(REAL, "summaries", "approx: {epsilon: 4.0, delta: 1.0e-6}", method="mixing", rows=400),
}
REPEATS, PEOPLE = 100, 3_000


def learned(device, task, seed, people):
    """An engine that has learned one window of people drawn from the population."""
    X, y = coded(task, np.random.default_rng(seed).integers(0, len(EVERYBODY["age"]), people))
    own = device_for(task)
    accumulator = own.accumulator("default", SimulatedNoise(seed), people)
    accumulator.add_block(own.records(X, y))
    made = accumulator.release()
    fields = {"id": "0" * 32, "task": task.hash, "level": "default", "partition": 0, "time": 0, "expires": 1}
    engine = device.engine()
    release = own.release(made, simulated=True, **fields)
    engine.admit(release, 0)
    engine.learn_releases([release])
    return engine


@pytest.mark.parametrize("name", TASKS)
def test_a_model_of_all_columns_is_the_tasks_own_fit_to_the_bit(name):
    task = TASKS[name]
    own, device = device_for(task), model_device_for(Model.parse("name: all"), task)
    expected = own.estimate([learned(own, task, 1, PEOPLE)])
    engine = learned(device, task, 1, PEOPLE)
    found = device.estimate([engine])
    assert found.values.tolist() == expected.values.tolist() == engine.estimate().values.tolist()
    assert found.spread.tolist() == expected.spread.tolist()
    assert found.influence == expected.influence
    again = device.engine()
    again.load_state_dict(engine.state_dict())
    assert again.state_dict() == engine.state_dict()


MODELS = {
    "moments, subset": ("moments", "{name: m, features: [age, married]}"),
    "moments, another column": ("moments", "{name: m, features: [age, region], target: hours}"),
    "mixing, subset": ("mixing", "{name: m, features: [age, married]}"),
    "mixing, another column": ("mixing", "{name: m, features: [age, wage], target: hours}"),
}


@cache
def fits(name):
    task, model = TASKS[MODELS[name][0]], MODELS[name][1]
    device = model_device_for(Model.parse(model), task)
    found = [device.estimate([learned(device, task, seed, PEOPLE)]) for seed in range(REPEATS)]
    return device, np.array([each.values for each in found]), np.array([each.half_widths() for each in found])


def fewest(coefficients):
    """Fewest intervals that hold, by chance at most once in 10,000, where 93% of them do (nominally 95%)."""
    return binom.ppf(1e-4 / coefficients, REPEATS, 0.93)


@pytest.mark.parametrize("name", MODELS)
def test_intervals_of_other_models_hold_the_fit_over_all_people(name):
    """The truth is exact: people are drawn from 256 records. False alarm: 1 in 10,000 for each model."""
    device, values, widths = fits(name)
    assert np.isfinite(widths).all()
    expected = truth(device, np.ones(256))
    assert ((np.abs(values - expected) <= widths).sum(axis=0) >= fewest(len(expected))).all()


def test_intervals_do_not_hold_another_fit():
    """The twin of the wrong parameter: the fit of the task's own target by the same columns."""
    _, values, widths = fits("moments, another column")
    other = model_device_for(Model.parse("{name: m, features: [age, region]}"), TASKS["moments"])
    expected = truth(other, np.ones(256))
    assert ((np.abs(values - expected) <= widths).sum(axis=0) < fewest(len(expected))).any()


def test_a_category_of_a_window_is_a_target_of_log_odds():
    task = TASKS["moments of a label"]
    text = "{{name: m, features: [age, hours], target: {{name: married, positive: {}}}}}"
    found = []
    for positive in ("'yes'", "'no'"):
        device = model_device_for(Model.parse(text.format(positive)), task)
        found.append(device.estimate([learned(device, task, 2, PEOPLE)]))
        assert device.task.coefficient_scale == "log odds"
    assert found[0].values == pytest.approx(-found[1].values, rel=1e-6)
    expected = truth(device, np.ones(256))
    # The line through labels: below 4.6 standard errors, but by chance once in 200,000.
    assert np.abs((found[1].fit - expected) / found[1].error).max() < 4.6


@pytest.mark.parametrize(
    ("task", "model", "words"),
    [
        (TASKS["moments"], "features: [wage], target: hours", "cannot be a feature: this log serves age, hours"),
        (TASKS["moments"], "loss: squared", "loss: has no effect on a log of protocol: summaries"),
        (made(LABEL, "summaries", "gdp: {mu: 1.0}", method="newton"), "features: [age]", "serve no other; summaries"),
    ],
)
def test_what_a_release_cannot_serve_is_refused_with_what_it_can(task, model, words):
    with pytest.raises(UserError, match=words):
        model_device_for(Model.parse(f"{{name: m, {model}}}"), task)
