"""Releases drawn by their distribution are those that the learners make of the records themselves."""

import numpy as np
import pytest

from murk.learners import GaussMixRegressor
from murk.privacy import ApproxDP, SimulatedNoise
from murk.privacy.central import GaussMixMechanism, GramAccumulator, SketchAccumulator
from reproductions.gaussmix.baselines import Sheffet, least_squares
from reproductions.gaussmix.draws import Window, by_moments, released, squared_error

BUDGET, ROWS, REPEATS = ApproxDP(2.0, 1e-5), 12, 200
RNG = np.random.default_rng(1)
X = RNG.normal(size=(400, 3)) * [1.0, 0.5, 0.2]
X /= np.linalg.norm(X, axis=1).max()
Y = np.clip(X @ [1.0, -0.5, 0.3] + 0.1 * RNG.normal(size=len(X)), -1, 1)
Z = np.column_stack([X, Y])
WINDOW, TEST = Window(Z.T @ Z, len(Z)), Z.T @ Z / len(Z)


def agree(ours, theirs, within=5.0):
    """Means within 5 standard errors of their difference (false alarm 6e-7)."""
    gap = np.mean(ours) - np.mean(theirs)
    return abs(gap) < within * np.hypot(np.std(ours), np.std(theirs)) / np.sqrt(REPEATS)


def test_a_published_sketch_is_drawn_as_it_is_made_and_its_mean_is_known():
    mechanism = GaussMixMechanism.calibrate(BUDGET, rows=ROWS, columns=4, feature_bound=1.0, target_bound=1.0)
    made = []
    for seed in range(REPEATS):
        window = SketchAccumulator(mechanism, SimulatedNoise(seed))
        window.add_block(Z)
        sketch = window.release()
        made.append(squared_error(least_squares(mechanism.decode(sketch.integers, sketch.spread)), TEST))
    rng = np.random.default_rng(2)
    variances = [WINDOW.mixing_variance(mechanism, rng) for _ in range(REPEATS)]
    drawn = [squared_error(WINDOW.sketched(variance, ROWS, rng), TEST) for variance in variances]
    assert agree(drawn, made)
    mean = np.mean([WINDOW.expected(variance, ROWS, TEST) for variance in variances])
    assert agree(made, np.full(REPEATS, mean))
    assert not agree(made, np.full(REPEATS, 0.6 * mean))


@pytest.mark.parametrize("printed", [False, True])
def test_sheffets_sketch_has_the_mean_that_is_known(printed):
    rivals = [
        Sheffet(BUDGET, 1.0, noise=SimulatedNoise(seed), sketch_rows=ROWS, printed=printed) for seed in range(REPEATS)
    ]
    made = [squared_error(rival.fit(X, Y), TEST) for rival in rivals]
    mean = WINDOW.expected(rivals[0].variance(WINDOW.least, 0.0), ROWS, TEST)
    assert agree(made, np.full(REPEATS, mean))
    assert not agree(made, np.full(REPEATS, 1.6 * mean))


def test_second_moments_are_drawn_as_they_are_released():
    rng = np.random.default_rng(3)
    drawn, mechanism = zip(*(released(WINDOW.second, BUDGET, rng, 1.0) for _ in range(REPEATS)), strict=True)
    made = []
    for seed in range(REPEATS):
        window = GramAccumulator(mechanism[0], SimulatedNoise(seed))
        window.add_block(Z)
        made.append(mechanism[0].decode(window.release().integers))
    for place in np.ndindex(4, 4):
        assert agree([each[place] for each in drawn], [each[place] for each in made])
    spread = np.std(drawn, axis=0) / np.std(made, axis=0)
    # A standard deviation of 200 has a relative error of 1/20, their ratio one of 1/14: 5 of these.
    assert np.all(np.abs(np.log(spread)) < 0.36)


def test_the_learner_makes_the_same_of_its_window():
    model = GaussMixRegressor(guarantee=BUDGET, features=[0, 1, 2], feature_bound=1.0, intercept=False, seed=1)
    model.learn_many(X, Y)
    model.release()
    mine = by_moments(WINDOW, BUDGET, np.random.default_rng(1), 1.0)
    # Ten standard errors of the learner's own: another draw of the same.
    assert np.all(np.abs(model.estimate().values - mine) < 10 * model.estimate().spread)
