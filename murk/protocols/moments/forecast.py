"""Simulated estimates from the second moments of a number of people, whose sums are drawn at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.random import Generator

from murk.inference.estimate import Estimate
from murk.protocols import population as design
from murk.protocols.moments import kernels
from murk.protocols.moments.device import MomentDevice
from murk.protocols.moments.estimate import fit
from murk.protocols.moments.mechanisms import Level
from murk.protocols.moments.sums import MomentSums
from murk.protocols.population import Records
from murk.task.privacy import DEFAULT_LEVEL
from murk.task.task import Task


def estimate(
    device: MomentDevice, records: Records, people: int, levels: Mapping[str, float], partitions: int, rng: Generator
) -> Estimate:
    """Simulate the estimate from a number of people. Partitions make no difference, as their sums add up."""
    layout, V = device.layout, device.vectors(records.X, records.y)
    parts = [layout.cross, layout.dimension - layout.cross]
    total, sums = np.zeros(layout.dimension), np.zeros(kernels.SUMS)
    for name, size in design.split(people, levels).items():
        mechanism = device.mechanisms[name]
        level = Level.of(mechanism, layout)
        weights, variances, drawn = np.array(level.weights), np.array(level.variances), records.drawn(size, rng)
        if layout.observed:
            released = design.released_sum(mechanism, V, drawn, rng)
        else:
            released = drawn @ V + np.sqrt(size * np.repeat(variances, parts)) * rng.normal(size=layout.dimension)
        total += np.repeat(weights, parts) * released
        for part in (0, 1):
            sums[kernels.WEIGHTS + part] += size * weights[part]
            sums[kernels.NOISE + part] += size * weights[part] ** 2 * variances[part]
            sums[kernels.SQUARES + part] += size * weights[part] ** 2
    return fit(device.model, MomentSums(total, sums, people), layout).estimate


estimates = design.one_by_one(estimate)


def effect_variance(device: Any, task: Task, people: int) -> float:
    """Return the variance of an effect per standard deviation of a feature, for a target coded to -1 and +1."""
    mechanism = device.mechanisms[DEFAULT_LEVEL]
    squares, cross = Level.of(mechanism, device.layout).variances
    # With observed targets, ``x y`` has as much noise as ``x x'``.
    cross = squares if device.layout.observed else cross
    factor = 1.4 if task.public is None else 1.7
    spread = {} if device.layout.coordinates is None else {"spread": 1.0}
    variance = design.moments_variance(cross / device.layout.weight**2, squares / 2.0, people, **spread)
    return factor**2 * variance + design.misfit_variance(task)
