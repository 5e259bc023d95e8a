"""Where people lie within the box of public bounds, as far as releases or public rows show."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Extent:
    """Second moments of the coded features, with the variance of their noise.

    Examples
    --------
    >>> extent = Extent(np.array([[0.26, 0.5], [0.5, 1.0]]), np.eye(2), np.zeros((2, 2)))
    >>> extent.mean.tolist(), round(extent.variance(0)[0], 2)
    ([0.5], 0.01)
    """

    moment: Array  # mean of x x' up to a factor, (p, p), the constant last; it may have noise
    into: Array  # C, (p, p): a'x is (C a)'z in the coordinates z, in which the noise is known
    variances: Array  # variances of the moment's entries in the coordinates z, (p, p)

    @cached_property
    def known(self) -> bool:
        """Whether the constant, which is 1 for everybody, is well above the noise."""
        constant = np.eye(len(self.moment))[-1]
        return bool(self.moment[-1, -1] > 4.0 * self._error(constant))

    @property
    def mean(self) -> Array:
        """Mean of the features, (p - 1,)."""
        return np.asarray(self.moment[:-1, -1] / self.moment[-1, -1])

    def along(self, direction: Array) -> tuple[float, float]:
        """Return the variance of a combination (p - 1,) of features, which noise may make negative, and its error."""
        whole = np.append(direction, -float(direction @ self.mean))
        scale = float(self.moment[-1, -1])
        value = float(whole @ self.moment @ whole) / scale
        constant = np.eye(len(self.moment))[-1]
        return value, math.hypot(self._error(whole), value * self._error(constant)) / scale

    def variance(self, feature: int) -> tuple[float, float]:
        """Return the variance of one feature and the variance's standard error."""
        return self.along(np.eye(len(self.moment) - 1)[feature])

    def _error(self, whole: Array) -> float:
        squares = (self.into @ whole) ** 2
        return math.sqrt(float(squares @ self.variances @ squares))


def extent_of_rows(points: Array, shares: Array) -> Extent:
    """Return the extent of public rows, which have no noise."""
    p = points.shape[1]
    return Extent((points * shares[:, None]).T @ points, np.eye(p), np.zeros((p, p)))
