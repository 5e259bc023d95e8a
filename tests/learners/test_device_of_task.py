"""What a task asks of devices and learners, and which models a device refuses."""

import numpy as np
import pytest

from murk import Task
from murk.errors import UserError
from murk.privacy import GaussianDP, PureDP, cap_of
from murk.protocols.device import HostileModelError, device_for
from murk.protocols.gradients.engine import SGDEngine
from murk.protocols.gradients.objectives import Balanced, Huber, Logistic, Softmax
from murk.task.task import check_task_change

BINARY = """
name: t
features: [{name: a, low: 0, high: 10}, {name: b, categories: [x, y, z]}]
target: {name: y, kind: binary, positive: "1"}
protocol: gradients
privacy:
  guarantee: {gdp: {mu: 1.0}}
  levels: {less: {gdp: {mu: 0.5}}}
"""
REAL = BINARY.replace('kind: binary, positive: "1"', "kind: real, low: 0, high: 52")
CLASSES = BINARY.replace('kind: binary, positive: "1"', "kind: classes, classes: [p, q, r]")


def test_a_feature_may_not_be_called_as_an_estimated_scale_is():
    named = REAL.replace("{name: a,", "{name: scale,")
    with pytest.raises(UserError, match="rename the feature"):
        device_for(Task.parse(named))
    assert "scale" in device_for(Task.parse(named + "objective: squared\n")).settings.names


@pytest.mark.parametrize(
    ("text", "objective", "dimension"),
    [
        (BINARY, Balanced(), 4),
        (BINARY + "objective: logistic\n", Logistic(), 4),
        (REAL, Huber(0.5, None, 4.0), 5),
        (CLASSES, Softmax(3), 8),
    ],
)
def test_a_task_becomes_a_device(text, objective, dimension):
    device = device_for(Task.parse(text))
    assert device.settings.objective == objective
    assert device.dimension == dimension
    assert device.settings.names == ("a", "b=y", "b=z", "intercept")
    assert set(device.mechanisms) == {"default", "less"}
    for level, guarantee in (("default", GaussianDP(1.0)), ("less", GaussianDP(0.5))):
        # A release at a level fits under a cap of that level's guarantee.
        assert device.mechanisms[level].cost("gdp") <= cap_of(guarantee)
    device.check_model(device.initial)


@pytest.mark.parametrize("guarantee", ["pure: {epsilon: 1.0}", "approx: {epsilon: 1.0, delta: 1.0e-6}"])
def test_pure_and_approximate_budgets_get_the_best_mechanism(guarantee):
    task = Task.parse(BINARY.split("privacy:", maxsplit=1)[0] + f"privacy: {{guarantee: {{{guarantee}}}}}\n")
    mechanism = device_for(task).mechanisms["default"]
    assert mechanism.kind == "privunit"
    assert mechanism.cost("epsilon") <= cap_of(PureDP(1.0))
    assert mechanism.guarantees == (PureDP(1.0),)


def test_a_log_of_before_goes_on_with_its_own_mechanisms():
    """Documents that name none are of version 0.3 and before: Gaussian noise, and the l2 ball where all is pure."""
    text = BINARY.split("privacy:", maxsplit=1)[0] + (
        "privacy: {guarantee: {approx: {epsilon: 1.0, delta: 1.0e-6}}, levels: {less: {pure: {epsilon: 0.5}}}}\n"
    )
    task = Task.parse(text)
    assert {level: one.kind for level, one in device_for(task).mechanisms.items()} == {
        "default": "privunit",
        "less": "privunit",
    }
    document = task.document().replace(b'"mechanism":"best"', b'"mechanism":null')
    before = Task.from_document(document)
    assert before.document() == document
    assert {level: one.kind for level, one in device_for(before).mechanisms.items()} == {
        "default": "gaussian",
        "less": "l2-ball",
    }
    named = Task.parse(text.replace("privacy: {", "privacy: {mechanism: l2-ball, "))
    with pytest.raises(UserError, match=r"differs in: privacy\.mechanism"):
        check_task_change("sqlite:///log.db", document, named.document())


def test_the_bound_is_that_of_the_tasks_own_box():
    published = BINARY + "learner: {weights: mallows}\n"
    # ||x||^2 lies in [1, 4]: the paper's weights reach sqrt 2 in it.
    assert device_for(Task.parse(published)).settings.bound == pytest.approx(2**0.5)
    one = published.replace(
        "{name: a, low: 0, high: 10}, {name: b, categories: [x, y, z]}", "{name: a, low: 0, high: 1}"
    )
    assert device_for(Task.parse(one)).settings.bound == pytest.approx(2**0.5)
    assert device_for(Task.parse(BINARY)).settings.bound == 1.0


@pytest.mark.parametrize("text", [BINARY, REAL, CLASSES])
@pytest.mark.parametrize("bad", ["infinite", "nan", "huge", "just outside", "short", "long", "matrix"])
def test_hostile_models_are_refused(text, bad):
    device = device_for(Task.parse(text))
    theta = device.initial
    radius = device.settings.radius
    theta = {
        "infinite": lambda: np.where(np.arange(len(theta)) == 0, np.inf, theta),
        "nan": lambda: np.where(np.arange(len(theta)) == 1, np.nan, theta),
        "huge": lambda: np.where(np.arange(len(theta)) == 0, 1e300, theta),
        "just outside": lambda: np.where(np.arange(len(theta)) == 0, radius * 1.001, theta),
        "short": lambda: theta[:-1],
        "long": lambda: np.append(theta, 0.0),
        "matrix": lambda: theta[None, :],
    }[bad]()
    with pytest.raises(HostileModelError):
        device.check_model(theta)


@pytest.mark.parametrize("scale", [0.0, -1.0, 1e-9, 1e9])
def test_a_scale_outside_its_bounds_is_refused(scale):
    device = device_for(Task.parse(REAL))
    theta = device.initial
    theta[-1] = scale
    with pytest.raises(HostileModelError, match="scale"):
        device.check_model(theta)


def test_public_covariates_whiten():
    task = Task.parse(BINARY + "public: {set_aside: 10}\n")
    points = np.array([[1.0, -1, -1, 1], [-1, 1, -1, 1], [0.5, -1, 1, 1], [0, -1, -1, 1]])
    device = device_for(task.with_public(points, np.array([3, 2, 1, 4])))
    transform = device.settings.transform
    share = np.array([3, 2, 1, 4]) / 10
    z = points @ transform.T
    assert np.allclose((z * share[:, None]).T @ z, np.eye(4))
    assert device.engine().estimate().method == "plug-in"


def test_squared_learns_the_mean_and_median_the_median():
    """A target of which seven in ten are 0 and three in ten 1, at mu = 8 and n = 40,000.

    Noise and data give the mean a standard error of about 2 C0 / mu / sqrt(n) = 0.0025 (C0 = 2; curvature 1 in the
    intercept's direction, which the feature's mean of 0 leaves alone), and 0.035 is 14 of them; the twin is the other
    objective, 0.3 away.
    """
    rng = np.random.default_rng(3)
    x = np.column_stack([rng.choice([-1.0, 1.0], 40_000), np.ones(40_000)])
    y = np.where(rng.random(40_000) < 0.3, 1.0, 0.0)
    found = {}
    for objective in ("squared", "median"):
        text = f"""
        name: t
        features: [{{name: a, low: -1, high: 1}}]
        target: {{name: y, kind: real, low: -1, high: 1}}
        privacy: {{guarantee: {{gdp: {{mu: 8.0}}}}}}
        objective: {objective}
        """
        device = device_for(Task.parse(text))
        assert device.settings.bound == pytest.approx({"squared": 2.0, "median": 0.05}[objective])
        engine = SGDEngine(device.settings, device.mechanisms, seed=5)
        engine.use(device.mechanisms["default"])
        engine.learn_records(x, y)
        found[objective] = engine.estimate().values
    assert found["squared"] == pytest.approx([0.0, 0.3], abs=0.035)
    assert found["median"] == pytest.approx([0.0, 0.0], abs=0.035)


@pytest.mark.parametrize(
    ("kind", "objective"), [("real, low: 0, high: 1", "logistic"), ('binary, positive: "1"', "squared")]
)
def test_an_objective_of_another_kind_of_target_is_refused(kind, objective):
    with pytest.raises(UserError, match=f"'{objective}' does not fit a target of kind"):
        Task.parse(BINARY.replace('binary, positive: "1"', kind) + f"objective: {objective}\n")
