"""The model that is fitted to released moments, and the public covariates that it uses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from murk._internal.arrays import Floats
from murk.privacy.mechanisms.outer_product import matrix_size
from murk.protocols.linear_algebra import confine, flattened
from murk.protocols.mean_functions import LOSSES, Curve, ResponseRange
from murk.protocols.moments.statistics import Statistics
from murk.protocols.public_covariates import PublicCovariates

if TYPE_CHECKING:
    from murk.protocols.moments.sums import MomentSums, Private

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


@dataclass(frozen=True)
class MomentModel:
    """The model to fit to the moments."""

    curve: Curve  # mean function of the loss or the link
    response: ResponseRange  # meaning of coded targets
    public: Covariates | None  # None: ``x'w`` is taken as normal
    covariance: str = "both"  # "both", "private" or "pooled": see `sums.private_share`
    solver: str = "stein"  # "stein": the paper's two equations; "score": maximum likelihood; see `solve`
    repair: bool = True  # whether to repair second moments that noise outweighs: see `sums.design_of`

    def size(self, layout: Statistics) -> int:
        """Return the number of coefficients."""
        return layout.size

    def own_layout(self, layout: Statistics) -> Statistics:
        """Return the layout of those released numbers that the model uses."""
        return layout

    def private(self, sums: MomentSums, layout: Statistics) -> Private:
        """Return the means, and their noise, of the numbers that the model uses."""
        # Imported here, as devices do not need it.
        from murk.protocols.moments.sums import Private

        return Private.of(sums, layout, self.curve.name in LOSSES)
