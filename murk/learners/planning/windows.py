"""What is learned of an organisation's so many records, from the sums of their windows' second moments."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from murk.learners.estimates.estimate import Estimate
from murk.learners.gaussmix.problem import GramProblem
from murk.learners.gaussmix.windows.gram_sums import precision
from murk.learners.planning.design import Records
from murk.learners.planning.sums import split, within_bounds
from murk.privacy.gaussmix import GramMechanism


def estimate(
    problem: GramProblem, records: Records, people: int, levels: Mapping[str, float], chains: int,
    rng: np.random.Generator,
) -> Estimate:  # fmt: skip
    """The estimate of one organisation's so many records, in windows as the task has them."""
    engine, settings = problem.engine(), problem.settings
    z = within_bounds(problem.records(records.X, records.y), settings.feature_bound, settings.target_bound)
    d = z.shape[1]
    windows = split(max(people // (settings.window or people), 1), levels)
    for name, count in windows.items():
        mechanism, size = problem.mechanisms[name], people // sum(windows.values())
        variance = mechanism.scale**2
        # Windows of a level have one weight, and their noise adds up.
        moment = (z * records.drawn(count * size, rng)[:, None]).T @ z + noise_of(mechanism, d, rng, count)
        weight = 1.0
        if settings.weighting == "inverse-variance":
            weight = precision(records=size, noise=variance, square=settings.feature_bound**2)
        engine.sums.add(moment, records=count * size, noise=count * variance, weight=weight)
    return engine.estimate()


def noise_of(mechanism: GramMechanism, d: int, rng: np.random.Generator, windows: int = 1) -> NDArray[np.float64]:
    """The noise on the sum of so many windows' second moments ``(d, d)``, drawn at once."""
    noise = math.sqrt(windows) * mechanism.scale * np.triu(rng.normal(size=(d, d)))
    noise[np.triu_indices(d, 1)] /= math.sqrt(2.0)
    weights = np.append(np.ones(d - 1), mechanism.target_weight)
    found: NDArray[np.float64] = (noise + np.triu(noise, 1).T) / np.outer(weights, weights)
    return found
