"""Models of tasks of moments beside the common ones: counts, and no constant."""

from typing import Any

import numpy as np
import pytest

from murk import Task
from murk.errors import UserError
from murk.privacy.noise import SimulatedNoise
from murk.protocols.device import device_for

TEXT = """
name: moments
features: [{name: a, low: -1, high: 1}, {name: b, low: -1, high: 1}]
protocol: moments
privacy: {guarantee: {gdp: {mu: 40.0}}}
"""
COUNTS = "target: {name: y, kind: real, low: 0, high: 20}\nmoments: {link: exp}\n"


def test_counts_have_log_means_in_their_own_unit() -> None:
    rng, truth = np.random.default_rng(1), np.array([0.8, -0.5, 0.7])
    X = np.column_stack([rng.uniform(-1.0, 1.0, (4_000, 2)), np.ones(4_000)])
    counts = rng.poisson(np.exp(X @ truth))
    task = Task.parse(TEXT + COUNTS).with_simulated(True)
    device: Any = device_for(task)
    engine = device.engine()
    vectors = device.vectors(X, np.clip(counts, 0, 20) / 10.0 - 1.0)
    engine.learn_payloads(
        device.mechanisms["default"].randomize(vectors, SimulatedNoise(1), np.arange(4_000)), "default"
    )
    found = device.estimate([engine])
    # Uniform features are not normal: 0.1 allows for the bias. 4 standard errors: a false alarm has probability 2e-4.
    room = 0.1 + 4.0 * found.spread
    assert np.all(np.abs(found.values - truth) < room)
    assert np.all(room < 0.6)
    # The mean of the coded target, instead of the count's, has another intercept.
    assert abs(found.values[-1] - (truth[-1] - np.log(20.0))) > room[-1]
    assert (task.coefficient_scale, task.fitted_model) == ("own", "exp link")


def test_without_an_intercept_a_targets_bounds_are_centred() -> None:
    block = "moments: {intercept: false, release: joint}\ntarget: {name: y, kind: real, low: %s, high: 2}\n"
    device: Any = device_for(Task.parse(TEXT + block % -2))
    assert device.layout.names == ("a", "b")
    with pytest.raises(UserError, match=r"bounds of -b and b, but 'y' is from -1 to 2"):
        device_for(Task.parse(TEXT + block % -1))
