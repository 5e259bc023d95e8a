"""What a Newton step's second order may miss: bounds that hold of every distribution, and that some nearly reach."""

import math

import numpy as np
import pytest
from scipy.special import expit

from murk.protocols.summaries.second_order import Scores
from murk.protocols.summaries.sums import NewtonSums

PEOPLE, EDGE = 4000, 1.0
MODEL, MOVE = np.array([0.4, -1.0, 0.3]), np.array([0.3, 0.6, -0.5])


def coins(rng, rare=0.5):
    return np.where(rng.random(PEOPLE) < rare, 1.0, -1.0)


DESIGNS = {
    "numbers": lambda rng: rng.uniform(-1, 1, (PEOPLE, 2)),
    "alike": lambda rng: np.clip(rng.normal(size=(PEOPLE, 1)) * 0.4 + 0.05 * rng.normal(size=(PEOPLE, 2)), -1, 1),
    "rare": lambda rng: np.column_stack([rng.uniform(-1, 1, PEOPLE), coins(rng, 0.01)]),
    "skew": lambda rng: np.minimum(rng.exponential(0.2, (PEOPLE, 2)), 2.0) - 1.0,
}


def weights(x, model):
    u = x @ model
    return np.minimum(np.exp(EDGE - np.abs(u)), 1.0) * expit(u) * expit(-u)


def drawn(design, constant=True):
    x = DESIGNS[design](np.random.default_rng(3))
    return np.column_stack([x, np.ones(PEOPLE)]) if constant else x


def sums_of(parts, truth):
    """The sums of steps without noise, of rows and models, with labels that the truth gives."""
    p, rng = len(truth), np.random.default_rng(5)
    sums = NewtonSums(p + 1)
    for x, model in parts:
        chance, own = expit(x @ model), weights(x, model)
        kept = own / (chance * (1.0 - chance))
        y = rng.random(len(x)) < expit(x @ truth)
        residual = np.sqrt(kept / (chance * (1.0 - chance))) * (y - chance)
        z, nothing = np.column_stack([x * np.sqrt(own)[:, None], residual]), np.zeros((p + 1, p + 1))
        sums.add(nothing, z.T @ z, model=model, records=(0, len(x)), noise=(0.0, 0.0), weights=(1.0, 1.0))
    return sums


def scores_of(sums, truth, constant=True):
    p = len(truth)
    return Scores.of(
        sums, truth, np.zeros((p, p)), people=(sums.stepped, 0.0), bounds=(1.0, math.sqrt(p)), target_weight=1.0,
        constant=constant,
    )  # fmt: skip


def scores(parts, truth, constant=True):
    sums, p = sums_of(parts, truth), len(truth)
    of = scores_of(sums, truth, constant)
    inverse = np.linalg.inv(sums.step[:p, :p])
    return of, inverse, of.remainder(inverse, sums.step[:p, :p], (1.0, math.sqrt(p)))


def missed(parts, truth, inverse):
    """What the second order misses, of who they are."""
    rest = 0.0
    for x, model in parts:
        u, v = x @ model, x @ (truth - model)
        h = weights(x, model) / (expit(u) * expit(-u))
        rest = rest + x.T @ (h * (expit(u + v) - expit(u) - expit(u) * expit(-u) * v))
    return np.abs(inverse @ rest)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("size", [0.2, 1.0, 3.0])
def test_no_distribution_misses_more(design, size, constant):
    p = 3 if constant else 2
    x, model = drawn(design, constant), MODEL[:p]
    truth = model + size * MOVE[:p]
    _, inverse, bound = scores([(x, model)], truth, constant)
    assert np.all(missed([(x, model)], truth, inverse) <= bound)


def test_a_rare_feature_that_decides_misses_nearly_as_much():
    """So a bound of half the size would not hold: nobody else's score moves."""
    rng = np.random.default_rng(4)
    x = np.column_stack([coins(rng), coins(rng, 0.01), np.ones(PEOPLE)])
    model, truth = np.array([0.0, 1.0, 0.0]), np.array([0.0, 0.2, -0.8])
    _, inverse, bound = scores([(x, model)], truth)
    found = missed([(x, model)], truth, inverse)
    assert np.all(found <= bound)
    assert found[1] > bound[1] / 2


def test_of_steps_at_several_models():
    x = drawn("skew")
    parts = [(x[:1500], MODEL), (x[1500:], MODEL + 0.5 * MOVE)]
    _, inverse, bound = scores(parts, MODEL + MOVE)
    assert np.all(missed(parts, MODEL + MOVE, inverse) <= bound)


@pytest.mark.parametrize("design", DESIGNS)
def test_the_mean_slope_is_within_its_ends_and_near_its_guess(design):
    x, truth = drawn(design), MODEL + MOVE
    guess, least, most = scores([(x, MODEL)], truth)[0].slope()
    slope = float(np.mean(expit(x @ truth) * expit(-x @ truth)))
    assert least <= slope <= most
    assert abs(guess - slope) < 0.05 * slope
    assert most - least < 0.06
    # Those of other coefficients are elsewhere.
    _, low, high = scores([(x, MODEL)], 6.0 * truth)[0].slope()
    assert not low <= slope <= high


def test_sums_that_no_distribution_has_are_taken_as_bounds():
    """Noise may leave a mean score beyond what the mean square allows."""
    sums = sums_of([(drawn("numbers"), MODEL)], MODEL + MOVE)
    to = np.append(MODEL + MOVE, [0.0, -1.0])
    for mean in (0.0, 0.3):
        sums.step[2, 4] += mean * PEOPLE
        square = float(to @ sums.step @ to)
        of = scores_of(sums, MODEL + MOVE)
        assert 0.999 * square < of.most(of.weights * of.v**2) < 1.001 * square


def test_a_step_that_goes_nowhere_misses_nothing():
    _, _, bound = scores([(drawn("numbers"), MODEL)], MODEL)
    assert np.all(bound < 1e-9)


def test_a_model_that_is_certain_of_everybody_bounds_nothing():
    sums, nothing = NewtonSums(4), np.zeros((4, 4))
    model = np.array([1.0, 1.0, 500.0])
    sums.add(nothing, nothing, model=model, records=(0, PEOPLE), noise=(0.0, 0.0), weights=(1.0, 1.0))
    of = scores_of(sums, MODEL)
    found = of.remainder(np.eye(3), np.eye(3), (1.0, math.sqrt(3.0)))
    assert np.all(np.isinf(found))
    assert of.slope() == (0.125, 0.0, 0.25)
