r"""How far forged releases could have moved an estimate.

Whoever may write to a log may write releases that are of nobody. A receiver bounds the length of each, so that one of
length L and weight w moves a weighted mean by at most ``w L / W``, W the sum of all weights. Honest noise of standard
deviation s moves the same mean by ``sqrt(sum w^2 s^2) / W``, and a coefficient's standard error has all of that in it.
So one forged release moves a coefficient by at most

.. math:: \kappa = \max_l w_l L_l / \sqrt{\textstyle\sum w^2 s^2}

of its standard errors, the largest over the levels that a release may state, whatever direction it points in: kappa is
``L / (s sqrt n)`` where all n have one level. Forged releases also bend the matrix that a mean is divided by, one of
them by at most a share b of its smallest eigenvalue. Of m of them the bound is

.. math:: 2\, m\, \kappa\, \text{errors} / (1 - m b)

and there is none once ``m b`` reaches 1. The factor is for what is not linear in them: the weights that equations get,
and the intervals themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from murk.privacy.mechanisms.l2ball import L2BallMechanism
from murk.privacy.mechanisms.privunit import PrivUnitMechanism

Array = NDArray[np.float64]

SLACK: Final = 2.0
"""What the linear bound is multiplied by."""

SHARES: Final = (0.001, 0.01)
"""Shares of the releases for which reports say what so many forged ones could have done."""


@dataclass(frozen=True)
class Influence:
    """What one forged release could have done to an estimate at most.

    Parameters
    ----------
    errors
        kappa: how far it moves a coefficient, in standard errors.
    bend
        b: by which share it lowers the smallest eigenvalue of the matrix that is divided by.
    start
        How far any number of them moves a coefficient by coming first, in standard errors: where iterates begin.
    limit
        How far coefficients could have been moved by any number of forged releases, (p,), in the unit of the
        coefficients; None where nothing limits that.

    Examples
    --------
    >>> Influence(errors=0.05, bend=0.001).moved(10, np.array([0.2])).round(4).tolist()
    [0.202]
    >>> Influence(errors=0.05, bend=0.001).moved(1000, np.array([0.2])).tolist()
    [inf]
    """

    errors: float
    bend: float = 0.0
    start: float = 0.0
    limit: Array | None = field(default=None, compare=False)

    def moved(self, forged: int, errors: Array) -> Array:
        """How far so many forged releases could have moved coefficients with these standard errors, (p,)."""
        left = 1.0 - forged * self.bend
        factor = SLACK * forged * self.errors / left + self.start if left > 0.0 else math.inf
        with np.errstate(invalid="ignore"):
            moved = np.where(np.isfinite(errors) & (factor < math.inf), factor * errors, math.inf)
        return moved if self.limit is None else np.minimum(moved, self.limit)


def longest(mechanism: Any) -> float:
    """The l2 norm of the longest decoded release that a receiver admits of a mechanism.

    Examples
    --------
    >>> from murk.privacy import GaussianDP, GaussianMechanism
    >>> mechanism = GaussianMechanism.calibrate(GaussianDP(1.0), dimension=10, radius=1.0)
    >>> round(longest(mechanism) / mechanism.variance**0.5, 1)
    10.5
    """
    inner = getattr(mechanism, "noise", mechanism)
    if isinstance(inner, L2BallMechanism | PrivUnitMechanism):
        # All decoded releases are of this length: a payload stands for its direction.
        across, along = inner.second_moment
        return math.sqrt(across * (inner.dimension - 1) + along)
    units = getattr(mechanism, "units", None)
    parts = mechanism.reach.parts
    return math.sqrt(sum(square * float(mechanism.unit if units is None else units[a]) ** 2 for a, _, square in parts))


def noise_of_number(mechanism: Any) -> float:
    """Standard deviation of the noise on one number of a decoded release; of directions, across them."""
    inner = getattr(mechanism, "noise", mechanism)
    if isinstance(inner, L2BallMechanism | PrivUnitMechanism):
        return math.sqrt(inner.second_moment[0])
    return math.sqrt(float(mechanism.variance))


def counted(releases: int) -> Sequence[int]:
    """Numbers of forged releases that reports speak of: one, and shares of all.

    Examples
    --------
    >>> counted(50_000), counted(300)
    ([1, 50, 500], [1, 3])
    """
    return sorted({1, *(round(share * releases) for share in SHARES)} - {0})
