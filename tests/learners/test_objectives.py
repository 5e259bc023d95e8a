"""Gradients: right, and bounded for every record and iterate."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from murk.errors import MurkError, UserError
from murk.learners import LDPSGDClassifier
from murk.privacy import GaussianDP
from murk.privacy.mechanisms import calibrate
from murk.protocols.gradients import kernels as k
from murk.protocols.gradients.engine import SGDEngine
from murk.protocols.gradients.memory import Memory
from murk.protocols.gradients.objectives import Balanced, FullSoftmax, Huber, Logistic, Softmax
from murk.protocols.gradients.settings import Settings, reach
from murk.protocols.linear_algebra import whitening

NAMES = ("a", "b", "intercept")
OBJECTIVES = {
    "logistic": Logistic(),
    "balanced": Balanced(),
    "softmax": Softmax(4),
    "softmax-full": FullSoftmax(4),
    "huber": Huber(0.5, 2.0),
    "huber-scale": Huber(0.5, None, 4.0),
    "huber-published": Huber(1.345),
}


def gradients(settings: Settings, theta, X, y):
    memory = Memory(settings)
    out = np.zeros((len(X), settings.dimension))
    k.gradients(memory.real, memory.whole, np.asarray(theta, float), X, np.asarray(y, float), out)
    return out


def gradient(settings: Settings, theta, x, y):
    return gradients(settings, theta, np.atleast_2d(x), [y])[0]


def loss(settings: Settings, theta, x, y):
    """The objectives, written down a second time: plain formulas of the docstrings."""
    objective, p = settings.objective, settings.features
    z = x if settings.transform is None else settings.transform @ x
    square = float(z @ z)
    weight = {"norm": 1 / max(1.0, math.sqrt(square)), "mallows": min(1.0, 2 / square), "clip": 1.0}[settings.weights]
    if isinstance(objective, Logistic):
        return weight * (math.log1p(math.exp(theta @ z)) - y * (theta @ z))
    if isinstance(objective, Balanced):
        margin = theta @ z if y else -theta @ z
        return weight * (math.exp(-margin) if margin > 0 else 1.0 - margin)
    if isinstance(objective, Softmax):
        scores = objective.basis @ (theta.reshape(-1, p) @ z)
        return weight * (math.log(np.exp(scores).sum()) - scores[int(y)])
    sigma = objective.scale or theta[p] * objective.multiplier
    u, c = (y - theta[:p] @ z) / sigma, objective.c
    rho = u * u / 2 if abs(u) <= c else c * abs(u) - c * c / 2
    # A known scale is divided out.
    if objective.scale:
        return weight * sigma * rho
    return weight * (sigma * rho + objective.kappa * sigma / 2)


def draw_theta(settings, rng):
    theta = rng.normal(size=settings.dimension)
    if settings.scaled:
        theta[-1] = abs(theta[-1]) + 0.2
    return theta


@pytest.mark.parametrize("weights", ["norm", "mallows"])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_gradient_is_the_derivative_of_the_loss(name, weights):
    rng = np.random.default_rng(3)
    setup = Settings(objective=OBJECTIVES[name], names=NAMES, weights=weights)
    for _ in range(50):
        theta, x = draw_theta(setup, rng), np.append(rng.normal(size=2) * 2, 1.0)
        y = {
            "logistic": rng.integers(2),
            "balanced": rng.integers(2),
            "softmax": rng.integers(4),
            "softmax-full": rng.integers(4),
        }.get(name, rng.normal() * 3)
        found = gradient(setup, theta, x, y)
        if setup.scaled:
            found[-1] += setup.multiplier * setup.objective.centre
        step = 1e-6
        for j in range(setup.dimension):
            up, down = theta.copy(), theta.copy()
            up[j] += step
            down[j] -= step
            slope = (loss(setup, up, x, y) - loss(setup, down, x, y)) / (2 * step)
            assert found[j] == pytest.approx(slope, abs=2e-6)


@settings(max_examples=120, deadline=None)
@given(
    name=st.sampled_from(sorted(OBJECTIVES)),
    weights=st.sampled_from(["norm", "mallows"]),
    seed=st.integers(0, 10**6),
    size=st.floats(1e-3, 1e6),
)
def test_no_record_and_no_iterate_exceeds_the_bound(name, weights, seed, size):
    rng = np.random.default_rng(seed)
    setup = Settings(objective=OBJECTIVES[name], names=NAMES, weights=weights)
    theta, x = draw_theta(setup, rng) * size, np.append(rng.normal(size=2) * size, 1.0)
    if setup.scaled:
        theta[-1] = max(abs(theta[-1]), 0.01)
    y = {
        "logistic": rng.integers(2),
        "balanced": rng.integers(2),
        "softmax": rng.integers(4),
        "softmax-full": rng.integers(4),
    }.get(name, rng.normal() * size)
    assert np.linalg.norm(gradient(setup, theta, x, y)) <= setup.bound * (1 + 1e-12)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_bound_is_reached(name):
    """A bound that nothing comes near would waste noise: the worst of many records is within 2%."""
    rng, each = np.random.default_rng(5), 100
    setup = Settings(objective=OBJECTIVES[name], names=NAMES, weights="mallows")
    worst = 0.0
    for _ in range(200):
        theta = draw_theta(setup, rng) * 40
        if setup.scaled:
            theta[-1] = 0.01
        angle = rng.uniform(0, 2 * math.pi, each)
        X = np.column_stack([np.cos(angle), np.sin(angle), np.ones(each)])
        y = {
            "logistic": rng.integers(2, size=each),
            "balanced": rng.integers(2, size=each),
            "softmax": rng.integers(4, size=each),
            "softmax-full": rng.integers(4, size=each),
        }.get(name, rng.normal(size=each) * 100)
        worst = max(worst, float(np.linalg.norm(gradients(setup, theta, X, y), axis=1).max()))
    assert 0.98 * setup.bound <= worst <= setup.bound * (1 + 1e-12)


def test_published_constants():
    paper = Huber(1.345)
    assert paper.kappa == pytest.approx(0.710165, abs=1e-6)
    assert 2 * paper.bound(math.sqrt(2)) == pytest.approx(3.910287, abs=1e-6)
    assert Softmax(3).bound(math.sqrt(2)) == pytest.approx(2.0)
    # Without centring the norm would exceed half the sensitivity.
    assert math.hypot(1.345 * math.sqrt(2), (1.345**2 - paper.kappa) / 2) == pytest.approx(1.979880, abs=1e-6)


def test_reach_over_a_box():
    assert reach("mallows") == pytest.approx(math.sqrt(2))
    assert reach("mallows", 1.0, 1.5) == pytest.approx(math.sqrt(1.5))
    assert reach("mallows", 9.0, 9.0) == pytest.approx(2 / 3)
    assert reach("norm", 4.0, 9.0) == 1.0
    # Brute force over the interval.
    for low, high in [(1.0, 1.9), (1.0, 5.0), (3.0, 8.0)]:
        norms = np.sqrt(np.linspace(low, high, 100_001))
        assert reach("mallows", low, high) == pytest.approx(np.max(np.minimum(norms, 2 / norms)), abs=1e-9)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_missing_target_has_the_zero_gradient(name):
    setup = Settings(objective=OBJECTIVES[name], names=NAMES)
    found = gradient(setup, draw_theta(setup, np.random.default_rng(1)), [0.3, -2.0, 1.0], math.nan)
    if setup.scaled:
        found[-1] += setup.multiplier * setup.objective.centre
    assert np.all(found == 0.0)


def test_clipping_clips():
    setup = Settings(objective=Logistic(), names=NAMES, weights="clip", clip=0.7)
    assert np.linalg.norm(gradient(setup, [0.0, 0.0, 0.0], [30.0, 40.0, 1.0], 1)) == pytest.approx(0.7)
    assert setup.bound == 0.7


def test_whitening_makes_second_moments_the_identity():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(500, 3)) @ rng.normal(size=(3, 3))
    moment = x.T @ x / 500
    z = x @ whitening(moment).T
    assert np.allclose(z.T @ z / 500, np.eye(3))


@pytest.mark.parametrize(
    ("moment", "words"),
    [
        (np.ones((2, 2)), "singular"),
        (np.array([[1.0, 2.0], [0.0, 1.0]]), "symmetric"),
        (np.ones((2, 3)), "square"),
    ],
)
def test_a_bad_second_moment_is_refused(moment, words):
    with pytest.raises(UserError, match=words):
        whitening(moment)


@pytest.mark.parametrize(
    "bad",
    [
        {"weights": "none"},
        {"weights": "clip"},
        {"clip": 1.0},
        {"radius": 0.0},
        {"radius": math.nan},
        {"radius": math.inf},
        {"averaging": "mean"},
        {"weighting": "variance"},
        {"scale_floor": 0.0},
        {"second_moment": np.eye(2)},
    ],
)
def test_bad_settings_are_refused(bad):
    with pytest.raises(UserError):
        Settings(objective=Huber(), names=NAMES, **bad)


def test_the_default_of_two_classes_is_balanced_and_the_published_one_logistic():
    budget = GaussianDP(mu=2.0)
    made = {
        "default": LDPSGDClassifier(guarantee=budget, seed=1, features=["a"]),
        "logistic": LDPSGDClassifier(guarantee=budget, seed=1, features=["a"], objective="logistic"),
        "published": LDPSGDClassifier.as_published(guarantee=budget, seed=1, features=["a"]),
        "classes": LDPSGDClassifier(guarantee=budget, seed=1, features=["a"], classes=(1, 2, 3)),
    }
    for model in made.values():
        model.learn_one({"a": 0.5}, 1)
    used = {name: model.state_dict()["fold"]["settings"] for name, model in made.items()}
    assert len(set(used.values())) == 4
    # A state of before is of the logistic loss, and goes on with that alone.
    state = made["logistic"].state_dict()
    LDPSGDClassifier(guarantee=budget, seed=1, features=["a"], objective="logistic").load_state_dict(state)
    with pytest.raises(MurkError, match="other settings"):
        LDPSGDClassifier(guarantee=budget, seed=1, features=["a"]).load_state_dict(state)
    with pytest.raises(UserError, match="objective='hinge' is not one of"):
        LDPSGDClassifier(guarantee=budget, objective="hinge")


def test_the_balanced_mean_is_zero_at_the_logits_own_coefficients_alone():
    """Over outcomes that come as the logit says: at the truth whatever x, and nowhere else."""
    rng = np.random.default_rng(8)
    setup, theta = Settings(objective=Balanced(), names=NAMES), np.array([2.0, -3.0, 0.5])
    for x in rng.normal(size=(50, 3)):
        chance = 1 / (1 + math.exp(-theta @ x))

        def mean(at, x=x, chance=chance):
            return chance * gradient(setup, at, x, 1) + (1 - chance) * gradient(setup, at, x, 0)

        assert np.allclose(mean(theta), 0.0, atol=1e-12)
        assert mean(theta + 0.1 * x) @ x > 0 > mean(theta - 0.1 * x) @ x


def test_a_row_a_class_is_the_published_softmax_and_learns_the_same_with_a_kth_more_noise():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 2))
    y = np.argmax(X @ [[1.0, -1.0, 0.0], [0.0, 1.0, -1.0]] + rng.gumbel(size=(2000, 3)), axis=1)
    # Next to no noise: the same gradients in other coordinates.
    made = {
        name: LDPSGDClassifier.as_published(
            guarantee=GaussianDP(1000.0), classes=(0, 1, 2), features=[0, 1], seed=1, coordinates=name
        )
        for name in ("classes", "contrasts")
    }
    for model in made.values():
        model.learn_many(X, y)
    full, contrasts = (model.estimate() for model in made.values())
    assert (len(made["classes"].iterate), len(made["contrasts"].iterate)) == (9, 6)
    assert full.names == contrasts.names
    assert full.values == pytest.approx(contrasts.values, abs=0.02)
    assert np.abs(contrasts.values).max() > 0.2
    assert made["classes"].predict_proba_one({0: 1.0, 1: 0.0})[0] == pytest.approx(
        made["contrasts"].predict_proba_one({0: 1.0, 1: 0.0})[0], abs=0.01
    )
    published = LDPSGDClassifier.as_published(guarantee=GaussianDP(1.0), classes=(0, 1, 2), features=[0, 1], seed=1)
    assert len(published.iterate) == 9
    with pytest.raises(UserError, match="coordinates='rows'"):
        LDPSGDClassifier(guarantee=GaussianDP(1.0), coordinates="rows", seed=1)


@pytest.mark.parametrize("name", ["logistic", "huber-scale", "softmax", "softmax-full"])
@pytest.mark.parametrize("moment", [None, np.diag([4.0, 1.0, 1.0]) + 0.3])
def test_learning_starts_where_it_is_told(name, moment):
    objective = OBJECTIVES[name]
    rng = np.random.default_rng(4)
    start = rng.uniform(size=(4, 3) if name.startswith("softmax") else 3)
    if name == "softmax":
        start -= start.mean(axis=0)  # contrasts know no common shift
    setup = Settings(objective=objective, names=NAMES, radius=30.0, second_moment=moment, start=start)
    begun = SGDEngine(setup, {"default": calibrate(None, GaussianDP(1.0), dimension=setup.dimension, radius=1.0)})
    assert begun.estimate().values[: start.size] == pytest.approx(start.ravel())
    if name == "huber-scale":
        assert begun.estimate().values[-1] == 1.0
    elsewhere = replace(setup, start=None)
    assert elsewhere.digest != setup.digest
    with pytest.raises(UserError, match="of shape"):
        replace(setup, start=np.ones(5))
    with pytest.raises(UserError, match="beyond radius"):
        replace(setup, start=100.0 * start)


def test_states_of_before_there_was_a_start_go_on():
    assert Settings(objective=Softmax(3), names=NAMES).digest == "004e98873817ccc1"
    assert Settings(objective=Huber(1.345), names=NAMES, weights="mallows").digest == "5ceb1f41a0e1e7d9"
