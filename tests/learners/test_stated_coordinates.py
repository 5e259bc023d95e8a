"""Releases of one round are made in coordinates of stated typical ranges, in which narrow features are learned."""

import math
from dataclasses import replace

import numpy as np
import pytest

from murk import Task
from murk.inference.estimate import Estimate
from murk.inference.selection import selection_factors
from murk.privacy.noise import SimulatedNoise
from murk.protocols.device import device_for
from murk.protocols.moments.sums import Private, distances_from_noise, noise_floor
from murk.protocols.stated import StatedCoordinates

CENTRE, SPREAD = 0.2, 0.05
TYPICAL = f", typical: [{CENTRE - 1.6448536 * SPREAD}, {CENTRE + 1.6448536 * SPREAD}]"
SLOPES = np.array([0.2, 4.0, -0.8])  # of age, of a narrow feature, and the constant
PEOPLE = 20_000


def task(protocol, known=TYPICAL, mu=2.0, target="kind: real, low: -1, high: 1"):
    return Task.parse(f"""
name: narrow
features: [{{name: age, low: -1, high: 1}}, {{name: temp, low: -1, high: 1{known}}}]
target: {{name: y, {target}}}
{protocol}
privacy: {{guarantee: {{gdp: {{mu: {mu}}}}}}}
""")


def people(seed, n=PEOPLE):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.uniform(-1, 1, n), CENTRE + SPREAD * rng.normal(size=n), np.ones(n)])
    return X, X @ SLOPES + 0.2 * rng.uniform(-1, 1, n)


def learned(own, X, y, seed):
    device = device_for(own)
    engine = device.engine()
    engine._noise, engine._direct = SimulatedNoise(seed), False
    engine.learn_records(X, y, [device.mechanisms["default"]])
    return device.estimate([engine])


OUTER, DIRECTIONS = (f"protocol: examples\nexamples: {{release: {each}}}" for each in ("outer", "directions"))
MOMENTS = "protocol: moments"


@pytest.mark.parametrize(("protocol", "mu"), [(OUTER, 2.0), (DIRECTIONS, 4.0), (MOMENTS, 2.0)])
def test_a_narrow_feature_is_learned_where_its_range_is_stated(protocol, mu):
    """Of three intervals of 99.99% in two runs, one misses with probability below 0.1%."""
    for seed in (1, 2):
        X, y = people(seed)
        estimate = learned(task(protocol, mu=mu), X, y, seed)
        halves = estimate.half_widths(0.9999)
        assert np.isfinite(halves).all()
        assert (np.abs(estimate.values - SLOPES) <= halves).all()
        # Without the statement the narrow feature is not learned, and nothing is said of it.
        assert not np.isfinite(learned(task(protocol, "", mu), X, y, seed).half_widths()[1])


@pytest.mark.parametrize(("protocol", "mu"), [(OUTER, 2.0), (MOMENTS, 16.0)])
def test_a_wrong_statement_gives_wide_intervals_and_no_wrong_ones(protocol, mu):
    """A range stated five times too wide, off by half of it; the interval misses with probability 0.01%."""
    X, y = people(3)
    estimate = learned(task(protocol, ", typical: [-0.3, 0.4]", mu), X, y, 3)
    assert abs(estimate.values[1] - SLOPES[1]) <= estimate.half_widths(0.9999)[1]


def test_moments_of_people_beyond_the_bound_count_as_missing():
    """The bound is the mean and three deviations of a squared norm; a shortened record would bias the line."""
    device, plain = device_for(task(MOMENTS)), device_for(task(MOMENTS, ""))
    rows = np.array([[1.0, CENTRE, 1.0], [0.0, CENTRE + 2.8 * SPREAD, 1.0], [0.0, CENTRE + 2.9 * SPREAD, 1.0]])
    assert device.layout.clipping_norm == pytest.approx(np.sqrt(2.0 + 3.0 * 2.0))
    # A feature that is no number counts as at its centre.
    rows = np.vstack([rows, [[np.nan, np.inf, 1.0], [1e300, -1e300, 1.0]]])
    y = np.ones(len(rows))
    vectors = device.vectors(rows, y)
    assert (vectors[:, device.layout.cross - 1] > 0).tolist() == [True, True, False, True, False]
    assert np.isfinite(vectors).all()
    assert (np.linalg.norm(vectors, axis=1) <= device.layout.norm * (1 + 1e-12)).all()
    # The twin: without a statement nobody is beyond.
    assert (plain.vectors(rows[:3], y[:3])[:, plain.layout.cross - 1] > 0).all()
    assert device.layout.digest != plain.layout.digest


def test_average_effects_and_log_odds_of_a_label_hold_in_stated_coordinates():
    """Of three intervals of 99.99% each, one misses with probability below 0.1%."""
    X, _ = people(6, 40_000)
    rng = np.random.default_rng(7)
    slopes = np.array([1.0, 1.0 / SPREAD, -CENTRE / SPREAD])
    chance = 1.0 / (1.0 + np.exp(-X @ slopes))
    label = "kind: binary, positive: '1', negative: '0'"
    labels = np.where(rng.random(len(X)) < chance, 1.0, -1.0)
    estimate = learned(task(MOMENTS, target=label), X, labels, 6)
    assert (np.abs(estimate.values - slopes) <= estimate.half_widths(0.9999)).all()
    effects, halves = estimate.effects(0.9999)
    expected = slopes[:2] * np.mean(chance * (1.0 - chance))
    assert (np.abs(effects[:2] - expected) <= halves[:2]).all()
    # The twin: effects per unit of the released coordinates.
    assert abs(effects[1] - expected[1] * SPREAD) > halves[1]


def test_vectors_are_of_unit_length_in_stated_coordinates():
    X, y = people(4, 5)
    device = device_for(task(OUTER))
    Z = np.column_stack([X[:, 0] * np.sqrt(3.0), (X[:, 1] - CENTRE) / SPREAD, X[:, 2], y])
    expected = Z / np.sqrt(np.square(Z[:, :3]).sum(axis=1) + 1.0)[:, None]
    before = X.copy()
    assert device.vectors(X, y) == pytest.approx(expected, abs=1e-5)
    assert (before == X).all()
    # The twin: coded features, as without a statement.
    assert np.abs(device_for(task(OUTER, "")).vectors(X, y) - expected).max() > 0.1


def test_vectors_are_bounded_for_every_record():
    device = device_for(task(OUTER))
    X = np.array([[1.0, -1.0, 1.0], [np.nan, np.inf, 1.0], [1e300, -1e300, 1.0]])
    for y in (1.0, np.nan):
        assert (np.linalg.norm(device.vectors(X, np.full(3, y)), axis=1) <= 1.0 + 1e-12).all()


def test_a_part_of_the_coordinates_serves_another_target():
    """Coefficients of a model whose target is a stated feature, without noise."""
    X, _ = people(5, 400)
    X[:, 1] += 0.1 * X[:, 0]
    whole = StatedCoordinates((0.1, CENTRE), (0.5, SPREAD))
    part = whole.part((0, 2), 1)
    Z = np.column_stack([(X[:, 0] - 0.1) / 0.5, X[:, 2]])
    fitted = np.linalg.lstsq(Z, (X[:, 1] - CENTRE) / SPREAD, rcond=None)[0]
    expected = np.linalg.lstsq(X[:, [0, 2]], X[:, 1], rcond=None)[0]
    assert part.coded(fitted) == pytest.approx(expected)
    assert whole.part((0, 2), -1).coded(fitted) != pytest.approx(expected)


def test_classes_without_rounds_answer_in_stated_coordinates():
    own = "kind: classes, classes: [a, b, c]"
    once = "protocol: scores\nscores: {interactive: false}"
    device = device_for(task(once, target=own))
    transform = device._model(device.initial).transform
    assert transform[1, 1] == pytest.approx(1.0 / SPREAD, rel=1e-5)
    assert transform[1, 2] == pytest.approx(-CENTRE / SPREAD, rel=1e-5)
    plain = device_for(task(once, "", target=own))
    assert (plain._model(plain.initial).transform == np.eye(3)).all()
    assert plain.settings.digest != device.settings.digest


def test_intervals_reach_the_farther_end_of_fiellers():
    """An estimate b / a with errors 1 of b and r of a = 1: the ends t solve ``(b - t)^2 = z^2 (1 + r^2 t^2)``."""
    b, r, z = 3.0, 0.3, 1.959964
    far = np.roots([1.0 - (z * r) ** 2, -2.0 * b, b * b - z * z]).max()
    spread = np.array([np.hypot(1.0, r * b)])
    names = (("x",), np.array([b]), "sandwich")
    estimate = Estimate(*names, spread, "", 1, 1, curvature_error=np.array([r]))
    assert b + estimate.half_widths()[0] == pytest.approx(far)
    # The twin: an interval with the same errors around the estimate.
    assert b + z * spread[0] < far


def of_two(least, noise):
    """Moments of two features of variances ``least`` and 0.3."""
    variances = np.full((3, 3), noise**2)
    return Private(np.diag([least, 0.3, 1.0]), np.zeros(3), variances, noise**2, (1e5, 1e5))


@pytest.mark.parametrize("distance", [-1.5, -0.5, 0.5, 2.0])
def test_a_feature_near_the_noise_has_an_interval_that_allows_for_how_it_was_chosen(distance):
    """Of 4,000 draws above the limit, 95% hold the variance, with a standard error of .34 points (5: p < 1e-6)."""
    noise, rng = 0.01, np.random.default_rng(4)
    limit = noise_floor(of_two(0.1, noise))
    true = limit + distance * noise
    draws = true + noise * rng.normal(size=100_000)
    draws = draws[draws >= limit][:4_000]
    # Factors are of the distance alone, and are interpolated.
    grid = np.linspace(0.0, 8.0, 400)
    factors = selection_factors(np.array([distances_from_noise(of_two(limit + at * noise, noise))[0] for at in grid]))
    halves = 1.96 * noise * np.interp((draws - limit) / noise, grid, factors)
    held = np.mean(np.abs(draws - true) <= halves)
    assert held >= 0.95 - 5 * np.sqrt(0.95 * 0.05 / len(draws))
    # The twin without factors misses far more often where the feature is rarely learned.
    plain = np.mean(np.abs(draws - true) <= 1.96 * noise)
    assert distance > -1.0 or plain < 0.93


@pytest.mark.parametrize("level", [0.99, 0.9991])
def test_intervals_near_the_noise_hold_at_higher_levels_too(level):
    """Of draws above the limit, which noise has lifted by a deviation and a half at least; twin: the factors of 95%."""
    draws = np.random.default_rng(6).normal(size=4_000_000)
    draws = draws[draws >= 1.5]
    found = Estimate(("a",), np.zeros(1), "delta", np.ones(1), "", 1, 1)
    grid = np.linspace(0.0, 8.0, 400)
    factors = selection_factors(grid)
    plain = np.array([replace(found, spread=factors[i : i + 1]).half_widths(level)[0] for i in range(400)])
    wider = np.array(
        [replace(found, spread=factors[i : i + 1], selected=grid[i : i + 1]).half_widths(level)[0] for i in range(400)]
    )
    missed, twin = (np.mean(draws > np.interp(draws - 1.5, grid, halves)) for halves in (wider, plain))
    # Some 267,000 draws: 4 standard errors are at most 0.08 points.
    assert missed <= (1.0 - level) / 2.0 + 4 * math.sqrt((1.0 - level) / 2.0 / len(draws))
    assert twin > 1.3 * (1.0 - level) / 2.0
