"""Public covariates of a task as a model of released moments uses them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from murk._internal.arrays import Floats
from murk.privacy.mechanisms.outer_product import matrix_size
from murk.protocols.linear_algebra import confine, flattened
from murk.protocols.public_covariates import PublicCovariates

_AT_ONCE: Final = 2**20  # largest number of floats in one block of a computation


@dataclass(frozen=True)
class Covariates:
    """Public covariates for fitting."""

    points: Floats  # coded, (u, p)
    shares: Floats  # share of people at each point, (u,)
    people: float  # number of people whose points are kept
    second_moment: Floats  # of all rows read, (p, p)
    total: float | None = None  # number of rows read; None if all are kept

    @classmethod
    def of(cls, public: PublicCovariates, clipping_norm: float = math.inf, *, constant: bool = True) -> Covariates:
        """Return a task's public points and shares, clipped to ``clipping_norm``, with or without the ``constant``."""
        points, people = public.points, float(public.counts.sum())
        shares, moment = public.counts / people, public.second_moment
        if clipping_norm < math.inf:
            points = points.copy()
            for row in points:
                confine(row, clipping_norm, True, False)
            moment = (points * shares[:, None]).T @ points
        size = points.shape[1] - (not constant)
        return cls(points[:, :size], shares, people, moment[:size, :size])

    @cached_property
    def scatter(self) -> Floats:
        """Covariance of the vector ``flattened(x x')`` of a random row x, (q, q)."""
        q = matrix_size(self.points.shape[1])
        mean, square, block = np.zeros(q), np.zeros((q, q)), max(_AT_ONCE // q, 1)
        for start in range(0, len(self.points), block):
            points, share = self.points[start : start + block], self.shares[start : start + block]
            numbers = flattened(points[:, :, None] * points[:, None, :])
            mean += share @ numbers
            square += (numbers * share[:, None]).T @ numbers
        return np.asarray(square - np.outer(mean, mean))

    @property
    def spread(self) -> float:
        """Variance of an entry of ``x x'``, averaged over all entries."""
        square = self.points**2
        fourth = (square * self.shares[:, None]).T @ square
        second = (self.points * self.shares[:, None]).T @ self.points
        return float(np.mean(np.maximum(fourth - second**2, 0.0)))
