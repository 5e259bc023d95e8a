"""Models of released examples: the task's own fit to the bit, unbiased fits of other columns, and refusals."""

from functools import cache

import numpy as np
import pytest
from scipy.stats import binom

from murk.errors import MurkError, UserError
from murk.privacy import SimulatedNoise
from murk.protocols.device import device_for
from murk.protocols.examples.engine import IWPEngine
from murk.results.models import model_device_for
from murk.stream.wire.columns import Columns
from murk.task.models import Model
from murk.task.task import Task
from tests.learners.models.worlds import LABEL, REAL, block, coded, fitted, made, model_device, released, truth

TASKS = {
    "outer": made(REAL, release="outer"),
    "outer of a label": made(LABEL, release="outer"),
    "outer, pure": made(REAL, guarantee="pure: {epsilon: 8.0}", release="outer"),
    "joint": made(REAL, guarantee="gdp: {mu: 8.0}", release="joint"),
    "separate": made(REAL, guarantee="gdp: {mu: 8.0}", release="separate", split=0.6),
    "product": made(LABEL, guarantee="gdp: {mu: 8.0}", release="joint"),
    "laplace": made(REAL, guarantee="pure: {epsilon: 30.0}", mechanism="laplace", release="joint"),
    "laplace product": made(LABEL, guarantee="pure: {epsilon: 30.0}", mechanism="laplace", release="joint"),
    "label": made(LABEL, guarantee="approx: {epsilon: 20.0, delta: 1.0e-6}", release="separate"),
    "directions": made(REAL, guarantee="gdp: {mu: 6.0}", release="directions"),
    "directions of a label": made(LABEL, guarantee="gdp: {mu: 6.0}", release="directions"),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_model_of_all_columns_is_the_tasks_own_fit_to_the_bit(name):
    task = TASKS[name]
    own = device_for(task).engine()
    releases = released(task, 3, 500)
    own.learn_releases(releases)
    device = model_device_for(Model.parse("name: all"), task)
    engine = device.engine()
    engine.learn_releases(releases)
    expected, found = own.estimate(), device.estimate([engine])
    assert found.names == expected.names
    assert found.values.tolist() == expected.values.tolist()
    assert found.spread.tolist() == expected.spread.tolist()


@pytest.mark.parametrize("loss", ["quadratic", "probit", "exponential", "log"])
def test_one_release_serves_each_loss_of_a_label(loss):
    """As a task of this loss does, whose release is the same."""
    released_for, other = TASKS["product"], made(LABEL, guarantee="gdp: {mu: 8.0}", release="joint", loss=loss)
    releases = released(released_for, 5, 500)
    own = device_for(other).engine()
    own.learn_releases(releases)
    device = model_device_for(Model.parse(f"{{name: m, loss: {loss}}}"), released_for)
    engine = device.engine()
    engine.learn_releases(releases)
    assert engine.estimate().values.tolist() == own.estimate().values.tolist()
    assert device.task.coefficient_scale == other.coefficient_scale


def test_solver_penalty_and_constant_are_the_models():
    settings = "regularization: 0.5, intercept: false, batch: 4"
    task, other = TASKS["product"], made(LABEL, guarantee="gdp: {mu: 8.0}", release="joint", loss="probit")
    releases = released(task, 6, 400)
    device = model_device_for(Model.parse(f"{{name: m, loss: probit, learner: {{radius: 0.5}}, {settings}}}"), task)
    engine = device.engine()
    engine.learn_releases(releases)
    found = device.estimate([engine])
    assert found.values[-1] == 0.0
    assert np.linalg.norm(engine.own.average) <= 0.5
    plain = device_for(other).engine()
    plain.learn_releases(releases)
    assert np.linalg.norm(found.values) < np.linalg.norm(plain.estimate().values)


def test_the_other_of_two_categories_has_the_opposite_fit():
    for name in ("outer", "joint", "separate"):
        model = "{{name: m, features: [age, hours], target: {{name: married, positive: {}}}}}"
        found = [fitted(TASKS[name], model.format(positive), 1, 400)[1] for positive in ("'yes'", "'no'")]
        assert found[0].values.tolist() == (-found[1].values).tolist()
        assert found[0].spread.tolist() == found[1].spread.tolist()


@pytest.mark.parametrize("uniform", [False, True])
def test_a_part_of_outer_products_is_judged_and_weighted_as_the_whole(uniform):
    """From the task's own state a model has the bits of all releases, at two levels and with a forged one.

    The forged one is implausible as a whole only: the numbers of the model's columns are ordinary. Other weights than
    the task's are not in its state.
    """
    task = made(REAL, guarantee="gdp: {mu: 8.0}}, levels: {strict: {gdp: {mu: 3.0}}", release="outer")
    whole, (X, y) = device_for(task), coded(task)
    blocks = []
    for level, mechanism in whole.mechanisms.items():
        payloads = mechanism.randomize(whole.vectors(X, y), SimulatedNoise(6), np.arange(len(X)))
        payloads[-1, 0] = 100.0 / mechanism.unit if level == "default" else payloads[-1, 0]
        each = block(payloads)
        blocks.append(Columns(each.numbers, {"level": [level]}, each.integers))
    more = ", learner: {weighting: uniform}" if uniform else ""
    device = model_device(task, f"{{name: m, features: [hours], target: wage{more}}}")
    assert device.used.of_state is not uniform
    learner, replayed = device.engine(), device.engine()
    for each in blocks:
        replayed.learn_releases(each)
    assert (replayed.own.n_releases, replayed.own.refused_updates) == (512, 1)
    if not uniform:
        own = whole.engine()
        for each in blocks:
            own.learn_releases(each)
        learner.adopt(own.state_dict())
        assert (learner.own.n_releases, learner.own.refused_updates) == (512, 1)
        one, other = device.estimate([learner]), device.estimate([replayed])
        assert one.values.tolist() == other.values.tolist()
        assert one.spread.tolist() == other.spread.tolist()


REPEATS, PEOPLE = 150, 1_500
# (name of the task, model); the constant's coefficient counts as well.
MODELS = {
    "outer, subset": ("outer", "{name: m, features: [age, married]}"),
    "outer, another column": ("outer", "{name: m, features: [age, region], target: hours}"),
    "outer, the task's target as a feature": (
        "outer", "{name: m, features: [wage, age], target: {name: region, positive: south}}",
    ),
    "joint, subset": ("joint", "{name: m, features: [age, married]}"),
    "joint, another column": ("joint", "{name: m, features: [age, region], target: hours}"),
    "separate, one against the rest": (
        "separate", "{name: m, features: [age, hours], target: {name: region, positive: south}}",
    ),
    "product, subset": ("product", "{name: m, features: [age, married]}"),
    "product, another column": ("product", "{name: m, features: [age, region], target: hours}"),
    "laplace, subset": ("laplace", "{name: m, features: [age, married]}"),
    "laplace, another column": ("laplace", "{name: m, features: [age, region], target: hours}"),
    "laplace product, another column": ("laplace product", "{name: m, features: [age, region], target: hours}"),
    "directions, subset": ("directions", "{name: m, features: [age, married]}"),
    "directions of a label, another column": (
        "directions of a label", "{name: m, features: [age, rich], target: hours}",
    ),
    "label, another column": ("label", "{name: m, features: [age], target: hours}"),
}  # fmt: skip


def weights(task):
    X, _ = coded(task)
    squares = np.square(X).sum(axis=1)
    return {"outer": 1.0 / (1.0 + squares), "directions": 1.0 / squares}.get(task.block.release, np.ones(len(X)))


@cache
def fits(task, model, fit=fitted):
    """Coefficients and half-widths of 95% intervals of the repeats."""
    found = [fit(task, model, seed, PEOPLE)[1] for seed in range(REPEATS)]
    return np.array([each.values for each in found]), np.array([each.half_widths(0.95) for each in found])


def holds(task, model, expected, *, fit=fitted):
    """How many of the repeats' 95% intervals hold what is expected, for each coefficient."""
    values, widths = fits(task, model, fit)
    return (np.abs(values - expected) <= widths).sum(axis=0)


def fewest(coefficients):
    """Fewest intervals that hold, by chance at most once in 10,000, where 93% of them do (nominally 95%)."""
    return binom.ppf(1e-4 / coefficients, REPEATS, 0.93)


@pytest.mark.parametrize("name", MODELS)
def test_intervals_of_other_models_hold_the_fit_over_all_people(name):
    """The truth is exact: people are drawn from 256 records. False alarm: 1 in 10,000 for each model."""
    which, model = MODELS[name]
    task = TASKS[which]
    expected = truth(model_device(task, model), weights(task))
    assert (holds(task, model, expected) >= fewest(len(expected))).all()


def test_a_part_of_a_pure_release_is_unbiased():
    """Directions in a ball (PrivUnit): each z-score is below 4.6 in size but by chance, once in 200,000."""
    model = "{name: m, features: [age], target: hours}"
    device, estimate = fitted(TASKS["outer, pure"], model, 2, 5_000)
    expected = truth(device, weights(TASKS["outer, pure"]))
    assert np.abs((estimate.values - expected) / estimate.spread).max() < 4.6
    assert np.abs(estimate.values / estimate.spread).max() > 4.6


def test_intervals_do_not_hold_another_fit():
    """The twin of the wrong parameter: the task's own coefficients of the columns of a subset."""
    task, model = TASKS["outer"], MODELS["outer, subset"][1]
    whole = model_device_for(Model.parse("name: all"), task)
    names = whole.task.coding.names
    other = truth(whole, weights(task))[[names.index(name) for name in ("age", "married", "intercept")]]
    assert (holds(task, model, other) < fewest(3)).any()


def test_the_noise_of_a_release_of_the_models_columns_alone_is_wrong():
    """The twin of the wrong noise: with fewer features, a task of its own would release less of it."""
    task, model = TASKS["joint"], MODELS["joint, another column"][1]
    device = model_device(task, model)
    own, unit = device_for(device.task), next(iter(device_for(task).mechanisms.values())).unit

    def assumed(task, model, seed, people):
        engine = IWPEngine(own.settings, own.mechanisms)
        releases = device.used.take(released(task, seed, people))
        decoded = unit * releases.rows(own.dimension)
        vectors = np.column_stack([decoded[:, :-1], np.ones(people)])
        engine.learn_decoded(vectors, decoded[:, -1], own.mechanisms["default"])
        return None, engine.estimate()

    assert (holds(task, model, truth(device, weights(task)), fit=assumed) < fewest(4)).any()


def test_levels_are_those_of_the_log():
    text = "privacy: {guarantee: {gdp: {mu: 4.0}}, levels: {open: {gdp: {mu: 8.0}}}}\n"
    task = Task.parse(f"{REAL}protocol: examples\nexamples: {{release: outer}}\n{text}").with_simulated(True)
    device = model_device_for(Model.parse("{name: m, features: [age], target: hours}"), task)
    assert device.mechanisms.keys() == {"default", "open"}
    own = device.used.device.mechanisms
    assert own["default"].variance == device.mechanisms["default"].variance
    assert own["open"].variance == device.mechanisms["open"].variance


def test_a_state_goes_on_with_the_same_model_alone():
    task, releases = TASKS["outer"], released(TASKS["outer"], 9, 300)

    def made_of(text):
        return model_device_for(Model.parse(text), task).engine()

    text = "{name: m, features: [age], target: hours}"
    whole, first, second = made_of(text), made_of(text), made_of(text)
    whole.learn_releases(releases)
    first.learn_releases(releases.part(0, 100))
    second.load_state_dict(first.state_dict())
    second.learn_releases(releases.part(100, 300))
    assert second.state_dict() == whole.state_dict()
    renamed = made_of(text.replace("name: m", "name: n"))
    renamed.load_state_dict(whole.state_dict())
    assert renamed.estimate().values.tolist() == whole.estimate().values.tolist()
    for other in ("{name: m, features: [married], target: hours}", "{name: m, features: [age]}"):
        with pytest.raises(MurkError, match="give the changed model another name"):
            made_of(other).load_state_dict(whole.state_dict())


def test_a_mistake_within_the_target_is_located():
    with pytest.raises(UserError, match=r"line 1: target\.positive: ") as refused:
        Model.parse("{name: m, target: {name: region, positive: [south]}}")
    assert "<" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "model", "words"),
    [
        ("outer", "loss: quadratic", "'quadratic' is not a loss of a real target; one of squared"),
        ("outer of a label", "loss: probit", "serve linear fits only .quadratic and squared., of any of its columns"),
        ("joint", "features: [wage], target: hours", "cannot be a feature: this log serves age, hours"),
        ("product", "features: [age, rich], target: hours", "cannot be a feature: this log serves age, hours"),
        ("label", "target: married, loss: probit", "serves linear fits only"),
        ("directions of a label", "loss: probit", "the log releases directions, which serve linear fits only"),
        ("directions", "features: [age], regularization: 0.1", "regularization: can be given for directions only"),
        ("outer", "target: region", "learn one against the rest: {name: region, positive: east}"),
        ("outer", "target: {name: region, positive: north}", "can be learned against the rest: east, south"),
        ("outer", "target: {name: age, positive: old}", "'age' is a number, which has no categories"),
        ("label", "target: {name: rich, positive: 'no'}", "'no' is not the positive value 'yes'"),
        ("joint", "truncation: 2", "examples.truncation: has no effect with loss: squared"),
    ],
)  # fmt: skip
def test_what_a_release_cannot_serve_is_refused_with_what_it_can(name, model, words):
    with pytest.raises(UserError, match=words) as refused:
        model_device_for(Model.parse(f"{{name: m, {model}}}"), TASKS[name])
    assert refused.value.code == "MURK-TASK-004"
