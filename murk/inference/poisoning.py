"""Bounds on how far forged releases could have moved an estimate.

Anyone who may write to a log may forge releases. A receiver bounds the length of each release, so that a forged release
of length L and weight w moves a weighted mean by at most ``w L / W``, where W is the sum of all weights. Honest noise
of standard deviation s is part of the standard error and moves the mean by ``sqrt(sum w^2 s^2) / W``. So one forged
release moves a coefficient by at most ``kappa = max_l w_l L_l / sqrt(sum w^2 s^2)`` standard errors in any direction,
the maximum being over levels l. A forged release also lowers the smallest eigenvalue of the matrix that a mean is
divided by, by at most a share b. For m forged releases the bound is ``2 m kappa errors / (1 - m b)``, and infinite once
``m b`` reaches 1. The factor 2 covers nonlinear effects: the weights of equations, and the intervals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from murk._internal.arrays import Floats
from murk.privacy.mechanisms.base import of_vectors
from murk.privacy.mechanisms.composite import CompositeMechanism
from murk.privacy.mechanisms.l2ball import L2BallMechanism
from murk.privacy.mechanisms.privunit import PrivUnitMechanism

SLACK: Final = 2.0  # factor by which the linear bound is raised

SHARES: Final = (0.001, 0.01)  # shares of forged releases that reports consider


@dataclass(frozen=True)
class Influence:
    """Largest effect of one forged release on an estimate.

    >>> Influence(errors=0.05, bend=0.001).moved(10, np.array([0.2])).round(4).tolist()
    [0.202]
    """

    errors: float  # kappa: change of a coefficient, in standard errors
    bend: float = 0.0  # b: share by which it lowers the smallest eigenvalue of the matrix
    start: float = 0.0  # change by any number of releases at the beginning of the iterates, in standard errors
    limit: Floats | None = field(default=None, compare=False)  # largest change by any number of releases, (p,)

    def moved(self, forged: int, errors: Floats) -> Floats:
        """Return how far forged releases could have moved coefficients with standard errors ``errors``, (p,)."""
        left = 1.0 - forged * self.bend
        factor = SLACK * forged * self.errors / left + self.start if left > 0.0 else math.inf
        with np.errstate(invalid="ignore"):
            moved = np.where(np.isfinite(errors) & (factor < math.inf), factor * errors, math.inf)
        return moved if self.limit is None else np.minimum(moved, self.limit)


def longest(mechanism: Any) -> float:
    """Return the largest l2 norm of a mechanism's decoded releases that a receiver admits."""
    inner = of_vectors(mechanism)
    if isinstance(inner, L2BallMechanism | PrivUnitMechanism):
        # All decoded releases have this length: a payload is a direction.
        across, along = inner.second_moment
        return math.sqrt(across * (inner.dimension - 1) + along)
    units = mechanism.units if isinstance(mechanism, CompositeMechanism) else None
    parts = mechanism.payload_bound.parts
    return math.sqrt(sum(square * float(mechanism.unit if units is None else units[a]) ** 2 for a, _, square in parts))


def noise_of_number(mechanism: Any) -> float:
    """Return the noise's standard deviation in a coordinate; for directions, orthogonally to the true vector."""
    inner = of_vectors(mechanism)
    if isinstance(inner, L2BallMechanism | PrivUnitMechanism):
        return math.sqrt(inner.second_moment[0])
    return math.sqrt(float(mechanism.variance))


def counted(releases: int) -> Sequence[int]:
    """Return the numbers of forged releases that reports consider: one, and `SHARES` of all.

    >>> counted(50_000), counted(300)
    ([1, 50, 500], [1, 3])
    """
    return sorted({1, *(round(share * releases) for share in SHARES)} - {0})
