"""Models of released moments: the task's own fit to the bit, unbiased fits of other columns, and refusals."""

from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

from murk.errors import UserError
from murk.protocols.device import device_for
from murk.results.models import model_device_for
from murk.task.models import Model
from tests.learners.models.worlds import LABEL, REAL, coded, fitted, made, released, truth

# Ranges so narrow that some records are beyond the bound.
STATED = REAL.replace("high: 60", "high: 60, typical: [30, 50]").replace("high: 80", "high: 80, typical: [20, 50]")
TASKS = {
    "observed": made(REAL, "moments", "gdp: {mu: 6.0}", release="observed"),
    "observed, approx": made(REAL, "moments", "approx: {epsilon: 8.0, delta: 1.0e-6}", release="observed"),
    "joint": made(REAL, "moments", "gdp: {mu: 6.0}", release="joint"),
    "separate": made(REAL, "moments", "gdp: {mu: 6.0}", release="separate"),
    "without repair": made(REAL, "moments", "gdp: {mu: 0.5}", release="separate", repair="false"),
    "stated": made(STATED, "moments", "gdp: {mu: 24.0}", release="observed"),
    "label": made(LABEL, "moments", "gdp: {mu: 6.0}", release="observed"),
}
REPEATS, PEOPLE = 150, 3_000


@pytest.mark.parametrize("name", TASKS)
def test_a_model_of_all_columns_is_the_tasks_own_fit_to_the_bit(name):
    task = TASKS[name]
    own, releases = device_for(task).engine(), released(task, 3, 500)
    own.learn_releases(releases)
    device = model_device_for(Model.parse("name: all"), task)
    engine = device.engine()
    engine.learn_releases(releases)
    expected, found = own.estimate(), device.estimate([engine])
    assert found.values.tolist() == expected.values.tolist()
    assert found.spread.tolist() == expected.spread.tolist()
    assert engine.coefficients == len(found.names)


MODELS = {
    "observed, subset": ("observed", "{name: m, features: [age, married]}"),
    "observed, another column": ("observed", "{name: m, features: [age, region], target: hours}"),
    "stated, subset": ("stated", "{name: m, features: [age, married]}"),
    "stated, another column": ("stated", "{name: m, features: [age, region], target: hours}"),
    "joint, another column": ("joint", "{name: m, features: [age, region], target: hours}"),
    "separate, subset": ("separate", "{name: m, features: [age, married]}"),
    "separate, another column": ("separate", "{name: m, features: [age, region], target: hours}"),
}


def fewest(coefficients):
    """Fewest intervals that hold, by chance at most once in 10,000, where 93% of them do (nominally at least 95%)."""
    return binom.ppf(1e-4 / coefficients, REPEATS, 0.93)


def weights(name):
    """Which of the population's records count: all but those beyond the bound of stated coordinates."""
    if name != "stated":
        return np.ones(256)
    device = device_for(TASKS[name])
    there = device.vectors(*coded(TASKS[name]))[:, device.layout.cross - 1] > 0.0
    assert 128 < there.sum() < 256
    return there.astype(float)


@cache
def fits(name):
    task, model = TASKS[MODELS[name][0]], MODELS[name][1]
    device = model_device_for(Model.parse(model), task)
    found = [fitted(task, model, seed, PEOPLE)[1] for seed in range(REPEATS)]
    return device, np.array([each.values for each in found]), np.array([each.half_widths() for each in found])


@pytest.mark.parametrize("name", MODELS)
def test_intervals_of_other_models_hold_the_fit_over_all_people(name):
    """The truth is exact: people are drawn from 256 records. False alarm: 1 in 10,000 for each model.

    Intervals hold more often than they say, as they take targets to fill their range. So estimates must also be
    without bias: each mean is within 4.9 standard errors of the truth, but by chance once in a million.
    """
    device, values, widths = fits(name)
    expected = truth(device, weights(MODELS[name][0]))
    assert ((np.abs(values - expected) <= widths).sum(axis=0) >= fewest(len(expected))).all()
    errors = values.std(axis=0) / np.sqrt(REPEATS)
    assert (np.abs(values.mean(axis=0) - expected) < 4.9 * errors).all()


def test_intervals_do_not_hold_another_fit():
    """The twin of the wrong parameter: the fit of the task's own target by the same column."""
    _, values, widths = fits("observed, another column")
    other = truth(model_device_for(Model.parse("{name: m, features: [age, region]}"), TASKS["observed"]), np.ones(256))
    assert ((np.abs(values - other) <= widths).sum(axis=0) < fewest(len(other))).any()


def test_a_part_of_directions_in_a_ball_is_unbiased():
    """Each z-score is below 4.6 in size but by chance, once in 200,000."""
    model = "{name: m, features: [age], target: hours}"
    device, estimate = fitted(TASKS["observed, approx"], model, 2, 5_000)
    assert next(iter(device.mechanisms.values())).kind in ("privunit", "l2-ball")
    expected = truth(device, np.ones(256))
    assert np.abs((estimate.values - expected) / estimate.spread).max() < 4.6
    assert np.abs(estimate.values / estimate.spread).max() > 4.6


def test_a_category_is_a_target_of_the_logistic_loss():
    """Its line through labels is that of all people: z-scores below 4.6, by chance once in 200,000."""
    model = "{name: m, features: [age, hours], target: {name: region, positive: south}}"
    device, estimate = fitted(TASKS["label"], model, 4, 20_000)
    assert device.task.coefficient_scale == "log odds"
    expected = truth(device, np.ones(256))
    assert np.abs((estimate.fit - expected) / estimate.error).max() < 4.6
    opposite = "{name: m, features: [age, hours], target: {name: married, positive: 'no'}}"
    one, other = (fitted(TASKS["label"], opposite.replace("'no'", each), 4, 2_000)[1] for each in ("'no'", "'yes'"))
    assert one.values == pytest.approx(-other.values, rel=1e-9)


@pytest.mark.parametrize(
    ("name", "model", "words"),
    [
        (
            "observed",
            "features: [wage], target: hours",
            "released without its square, and cannot be a feature: this log",
        ),
        ("observed", "loss: logistic", "loss: has no effect on a real target; remove it, or give link"),
        ("observed", "link: probit", "moments.link"),
        ("label", "regularization: 0.5", "regularization: has no effect on a log of protocol: moments"),
        ("label", "solver: score", "solver: score needs the task's public covariates"),
    ],
)
def test_what_a_release_cannot_serve_is_refused_with_what_it_can(name, model, words):
    with pytest.raises(UserError, match=words) as refused:
        model_device_for(Model.parse(f"{{name: m, {model}}}"), TASKS[name])
    assert refused.value.code == "MURK-TASK-004"
