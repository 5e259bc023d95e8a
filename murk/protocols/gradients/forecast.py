"""Simulated estimates from many people's gradients: the engine learns from fewer people with less noise.

If noise outweighs the differences between people, n releases with noise of variance s^2 lead to the same path as n / k
releases with s^2 / k (steps eta i^-alpha need k^(1 - alpha) times the eta). Further people only narrow the interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.random import Generator

from murk._internal.arrays import Floats, Integers
from murk.inference.estimate import Estimate
from murk.privacy import GaussianDP
from murk.privacy.mechanisms import Mechanism, calibrate
from murk.privacy.noise import SimulatedNoise
from murk.protocols.gradients import kernels as k
from murk.protocols.gradients.device import GradientDevice
from murk.protocols.gradients.engine import SGDEngine
from murk.protocols.gradients.estimate import has_plug_in
from murk.protocols.options import InverseScalingStep
from murk.protocols.population import Records, one_by_one, split, vectors_variance
from murk.task.privacy import DEFAULT_LEVEL
from murk.task.task import Task

MOST: Final = 100_000  # largest number of steps of one path
# Largest number of steps if intervals are taken from the path itself, whose variation fewer steps would underestimate.
MOST_SCALED: Final = 2**20
_OUTWEIGHS = 8.0  # least ratio of the noise's variance to the variance between people


def estimate(
    device: GradientDevice, records: Records, people: int, levels: Mapping[str, float], partitions: int, rng: Generator
) -> Estimate:
    """Simulate the estimate from a number of people, spread over partitions."""
    if device.settings.intervals is None and device.covariates is None:
        # Nothing to simulate: there is no interval, and the estimate's note says why.
        return device.estimate([SGDEngine(device.settings, device.mechanisms, seed=0, classes=device.classes)])
    each = max(people // partitions, 1)
    sizes = split(each, levels)
    factor = _factor(device, each, sizes)
    steps = min(max(round(each / factor), 1), _most(device))
    settings, step = device.settings, device.settings.step
    if each > steps and isinstance(step, InverseScalingStep):
        # A step counts for several releases; noise-aware steps need no change.
        eta = step.eta * (each / steps) ** (1.0 - step.alpha)
        settings = replace(settings, step=InverseScalingStep(eta, step.alpha))
    mechanisms = {level: _quieter(device, device.mechanisms[level], factor) for level in sizes}
    engines = []
    for _ in range(partitions):
        engine = SGDEngine(
            settings, mechanisms, seed=int(rng.integers(2**63)), covariates=device.covariates, classes=device.classes
        )
        drawn = rng.choice(len(records.shares), size=steps, p=records.shares)
        indices = np.repeat(np.arange(len(sizes)), list(split(steps, sizes, empty=True).values()))
        rng.shuffle(indices)
        _learn(replace(device, mechanisms=mechanisms), engine, records.X[drawn], records.y[drawn], indices, rng)
        _count_everybody(device, engine, sizes, each / (factor * steps))
        engines.append(engine)
    return device.estimate(engines)


def _learn(device: GradientDevice, engine: SGDEngine, X: Floats, y: Floats, levels: Integers, rng: Generator) -> None:
    """Learn from people in blocks, each at the iterate that was published before it, as devices release."""
    mechanisms, memory = list(device.mechanisms.values()), engine.memory
    kinds, units, variances = (
        np.array([getattr(each, name) for each in mechanisms]) for name in ("code", "unit", "variance")
    )
    noise, start = SimulatedNoise(int(rng.integers(2**63))), 0
    while start < len(X):
        block = slice(start, min(start + device.block(start), len(X)))
        published = engine.published()
        assert published is not None
        version, iterate = published
        gradients = device.vectors(X[block], y[block], np.array(iterate))
        index, payloads = np.arange(block.start, block.stop), np.empty(gradients.shape, dtype=np.int64)
        for level, mechanism in enumerate(mechanisms):
            rows = levels[block] == level
            if rows.any():
                payloads[rows] = mechanism.randomize(gradients[rows], noise, index[rows])
        versions = np.full(len(index), version)
        k.learn_releases(memory.real, memory.whole, payloads, versions, levels[block], kinds, units, variances)
        start = block.stop


def _factor(device: GradientDevice, people: int, sizes: Mapping[str, int]) -> float:
    """Return k, the factor by which the noise is reduced."""
    settings = device.settings
    quietest = min(device.mechanisms[level].variance for level in sizes)
    noise = settings.dimension * quietest / (settings.objective.spread * settings.bound**2)
    return max(1.0, min(people / _most(device), noise / _OUTWEIGHS))


def _most(device: GradientDevice) -> int:
    return MOST if device.settings.intervals is None else MOST_SCALED


def _quieter(device: GradientDevice, mechanism: Mechanism, factor: float) -> Mechanism:
    if factor == 1.0:
        return mechanism
    settings = device.settings
    mu = 2.0 * settings.bound / math.sqrt(mechanism.variance / factor)
    return calibrate("gaussian", GaussianDP(mu), dimension=settings.dimension, radius=settings.bound)


def _count_everybody(device: GradientDevice, engine: SGDEngine, sizes: Mapping[str, int], more: float) -> None:
    """Set the state's precision and count to those of all people, since each step counts for several of them."""
    settings, memory = device.settings, engine.memory
    precision = settings.objective.spread * settings.bound**2
    noise = {level: settings.dimension * device.mechanisms[level].variance for level in sizes}
    memory.real[k.SUM_PRECISION] = sum(size / (precision + noise[level]) for level, size in sizes.items())
    if device.covariates is not None and has_plug_in(settings):
        memory.whole[k.COUNT] = sum(sizes.values())
    elif more > 1.0:
        # Random scaling's V is linear in these three sums, and all people are worth this factor more than the steps.
        memory.real[k.SUM_SQUARES] /= more
        memory.rows[[k.SCALING_A, k.SCALING_B]] /= more


estimates = one_by_one(estimate)


def effect_variance(device: GradientDevice, task: Task, people: int) -> float:
    """Return the variance of an effect per standard deviation of a feature, for a target coded to -1 and +1."""
    factor = 3.6 if task.public is None else 2.2
    noise = device.mechanisms[DEFAULT_LEVEL].variance / device.settings.bound**2
    return factor**2 * vectors_variance(task.coding.size, noise, people)
