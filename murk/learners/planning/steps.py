"""What is learned of an organisation's so many records, from the sums of their windows' Newton steps."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from murk.learners.estimates.estimate import Estimate
from murk.learners.gaussmix.problem import NewtonProblem
from murk.learners.gaussmix.solving.newton import model_of
from murk.learners.planning.design import Records
from murk.learners.planning.sums import split, within_bounds
from murk.learners.planning.windows import noise_of
from murk.privacy.gaussmix import NewtonMechanism
from murk.privacy.gaussmix.newton import EDGE

_MODELS = 8
"""Different models, at the most, that a level's windows are taken at."""


def estimate(
    problem: NewtonProblem, records: Records, people: int, levels: Mapping[str, float], chains: int,
    rng: np.random.Generator,
) -> Estimate:  # fmt: skip
    """The estimate of one organisation's so many records, in windows as the task has them."""
    engine, settings = problem.engine(), problem.settings
    z = within_bounds(problem.records(records.X, records.y), settings.feature_bound, settings.target_bound)
    d = z.shape[1]
    windows = split(max(people // (settings.window or people), 1), levels)
    size = people // sum(windows.values())
    for name, count in windows.items():
        mechanism = problem.mechanisms[name]
        own, others = mechanism.parts(size)
        for alike in np.diff(np.linspace(0, count, min(count, _MODELS) + 1).astype(int)).tolist():
            # Windows of one model have one weight, and their noise adds up.
            tried = _summed(z, own, records, rng) + noise_of(mechanism.start, d, rng)
            model = model_of(settings, mechanism.start, tried, own)
            first = _summed(z, alike * own, records, rng) + noise_of(mechanism.start, d, rng, alike)
            seen = _seen(z, model, mechanism)
            step = _summed(seen, alike * others, records, rng) + noise_of(mechanism.step, d, rng, alike)
            engine.learn_matrices(first, step, model=model, records=size, mechanism=mechanism, windows=alike)
    return engine.estimate()


def _summed(z: NDArray[np.float64], count: int, records: Records, rng: np.random.Generator) -> NDArray[np.float64]:
    """Second moments of so many records drawn."""
    found: NDArray[np.float64] = (z * records.drawn(count, rng)[:, None]).T @ z
    return found


def _seen(z: NDArray[np.float64], model: NDArray[np.float64], mechanism: NewtonMechanism) -> NDArray[np.float64]:
    """Rows as they look from a model."""
    from murk.privacy.gaussmix.newton_accumulator import at_model

    seen = np.zeros_like(z)
    at_model(z, model, mechanism.feature_bound, EDGE, np.zeros((1, z.shape[1])), seen)
    return seen
