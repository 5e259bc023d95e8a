"""Gradients of a task without public rows are whitened by stated typical ranges."""

import numpy as np
import pytest

import murk
from murk import Task
from murk._internal.links import logistic
from murk.protocols.device import device_for

_TASK = """
name: temperature
features:
  - {name: age, low: 0, high: 1}
  - {name: arm, categories: [a, b, c]}
  - {name: temp, low: 30, high: 45%s}
target: {name: ill, kind: binary, positive: "yes", negative: "no"}
protocol: gradients
privacy: {guarantee: {gdp: {mu: 4.0}}}
"""
_TYPICAL = ", typical: [35.55, 37.85]"  # a mean of 36.7, and a standard deviation of 0.7
_SLOPE = 4.0  # of half of the bounds of temp


def slope(typical, seed):
    rng = np.random.default_rng(seed)
    n = 20_000
    temp = 36.7 + 0.7 * rng.normal(size=n)
    ill = rng.random(n) < logistic(_SLOPE * (temp - 36.7) / 7.5)
    people = {
        "age": rng.random(n),
        "arm": rng.choice(["a", "b", "c"], n),
        "temp": temp,
        "ill": np.where(ill, "yes", "no"),
    }
    rows = [dict(zip(people, row, strict=True)) for row in zip(*people.values(), strict=True)]
    return murk.run(Task.parse(_TASK % typical), rows, seed=seed).coefficients["temp"].value


def test_typical_ranges_let_gradients_learn_a_narrow_feature():
    """The error's standard deviation is about 0.4: four of it are exceeded with probability 6 in 100,000."""
    assert abs(slope(_TYPICAL, 1) - _SLOPE) < 1.6
    assert abs(slope("", 1) - _SLOPE) > 1.6


def test_the_stated_second_moment_is_that_of_uncorrelated_features():
    settings = device_for(Task.parse(_TASK % _TYPICAL)).settings
    mean = np.array([0.0, 0.0, 0.0, (36.7 - 37.5) / 7.5, 1.0])
    variance = np.array([1.0 / 3.0, 1.0, 1.0, (0.7 / 7.5) ** 2, 0.0])
    # The range that holds nine of ten values is rounded above.
    assert settings.second_moment == pytest.approx(np.outer(mean, mean) + np.diag(variance), abs=1e-4)
    assert device_for(Task.parse(_TASK % "")).settings.second_moment is None
