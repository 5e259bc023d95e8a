"""Public covariates, and other coded rows of features without a target, as all protocols use them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from murk._internal.arrays import Floats, Integers
from murk.errors import UserError

if TYPE_CHECKING:
    from murk.task.task import Task

_ERROR_CODE = "MURK-LEARN-001"

_AT_ONCE: Final = 2**20  # largest number of floats in one block of a computation


@dataclass(frozen=True)
class Rows:
    """Coded rows and their shares."""

    points: Floats  # (u, p), the constant last
    shares: Floats  # (u,), adding up to 1
    people: float = math.inf  # number of people at the points; infinite if the rows represent a distribution
    moment: Floats | None = None  # second moment of all rows read, (p, p); None if the points are all
    total: float | None = None  # number of rows read; None if the points are all

    @classmethod
    def counted(cls, points: Floats, counts: Integers) -> Rows:
        """Return points with the number of people at each."""
        people = float(counts.sum())
        return cls(points, counts / people, people)

    @classmethod
    def of_features(cls, features: Floats) -> Rows:
        """Return the distinct rows of coded features without the constant, ``(m, p - 1)``."""
        points, counts = np.unique(features, axis=0, return_counts=True)
        return cls.counted(np.column_stack([points, np.ones(len(points))]), counts)

    @property
    def counts(self) -> Integers:
        """Number of people at each point."""
        return np.rint(self.shares * self.people).astype(np.int64)

    @property
    def second_moment(self) -> Floats:
        """Mean of ``x x'``, ``(p, p)``."""
        return np.asarray((self.points * self.shares[:, None]).T @ self.points) if self.moment is None else self.moment

    def select(self, columns: Sequence[int] | slice) -> Rows:
        """Return rows of these columns."""
        return replace(self, points=self.points[:, columns], moment=self.second_moment[columns][:, columns])

    def clipped(self, clipping_norm: float) -> Rows:
        """Return rows whose features are clipped to ``clipping_norm``."""
        if clipping_norm == math.inf:
            return self
        # Imported here and below, as most devices do not need it.
        from murk.protocols.linear_algebra import confine

        points = self.points.copy()
        for row in points:
            confine(row, clipping_norm, True, False)
        # Moment and number are known for the points only.
        return replace(self, points=points, moment=None, total=None)

    def thinned(self, most: int) -> Rows:
        """Return at most ``most`` of the rows, evenly spaced."""
        if len(self.points) <= most:
            return self
        kept = np.linspace(0, len(self.points) - 1, most).round().astype(np.int64)
        shares = self.shares[kept]
        total = float(shares.sum())
        return Rows(self.points[kept], shares / total, self.people * total)

    def products(self, size: int, weights: Floats) -> tuple[Floats, Floats]:
        """Return mean (q,) and covariance of ``flattened(w x x')``, x the first ``size`` coordinates of a row."""
        from murk.protocols.linear_algebra import flattened

        q = size * (size + 1) // 2
        mean, square, block = np.zeros(q), np.zeros((q, q)), max(_AT_ONCE // q, 1)
        for start in range(0, len(self.points), block):
            rows = slice(start, start + block)
            points, share = self.points[rows, :size], self.shares[rows]
            numbers = flattened(points[:, :, None] * points[:, None, :]) * weights[rows, None]
            mean += share @ numbers
            square += (numbers * share[:, None]).T @ numbers
        return mean, np.asarray(square - np.outer(mean, mean))

    @cached_property
    def scatter(self) -> Floats:
        """Covariance of the vector ``flattened(x x')`` of a random row x, (q, q)."""
        return self.products(self.points.shape[1], np.ones(len(self.points)))[1]

    @property
    def spread(self) -> float:
        """Variance of an entry of ``x x'``, averaged over all entries."""
        square = self.points**2
        fourth = (square * self.shares[:, None]).T @ square
        second = (self.points * self.shares[:, None]).T @ self.points
        return float(np.mean(np.maximum(fourth - second**2, 0.0)))


def public_rows(task: Task) -> Rows | None:
    """Return the public covariates of a resolved task, if any; raise UserError if their features are not the task's."""
    if task.covariates is None:
        return None
    rows = Rows.counted(*task.covariates)
    if rows.points.shape[1] != task.coding.size:
        raise UserError(
            f"the public covariates have {rows.points.shape[1]} coded features and the task {task.coding.size}: "
            "give public data with the task's columns"
        )
    return rows
