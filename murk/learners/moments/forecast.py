"""What is learned of so many people's second moments, from their sums."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from murk.learners.core.design import Records
from murk.learners.core.sums_forecast import released_sum, split
from murk.learners.estimates.estimate import Estimate
from murk.learners.moments import kernels
from murk.learners.moments.mechanism import Level
from murk.learners.moments.problem import MomentProblem
from murk.learners.moments.sums import MomentSums


def estimate(
    problem: MomentProblem, records: Records, people: int, levels: Mapping[str, float], chains: int,
    rng: np.random.Generator,
) -> Estimate:  # fmt: skip
    """The estimate of so many people; chains only add up."""
    layout, V = problem.layout, problem.vectors(records.X, records.y)
    parts = [layout.cross, layout.dimension - layout.cross]
    total, sums = np.zeros(layout.dimension), np.zeros(kernels.SUMS)
    for name, size in split(people, levels).items():
        mechanism = problem.mechanisms[name]
        level = Level.of(mechanism, layout)
        weights, variances, drawn = np.array(level.weights), np.array(level.variances), records.drawn(size, rng)
        if layout.observed:
            released = released_sum(mechanism, V, drawn, rng)
        else:
            released = drawn @ V + np.sqrt(size * np.repeat(variances, parts)) * rng.normal(size=layout.dimension)
        total += np.repeat(weights, parts) * released
        for part in (0, 1):
            sums[kernels.WEIGHTS + part] += size * weights[part]
            sums[kernels.NOISE + part] += size * weights[part] ** 2 * variances[part]
            sums[kernels.SQUARES + part] += size * weights[part] ** 2
    return problem.model.fit(MomentSums(total, sums, people), layout).estimate
