"""Public covariates of a task, as its devices know them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from murk._internal.arrays import Floats, Integers


@dataclass(frozen=True)
class PublicCovariates:
    """Public coded covariates without labels: distinct points ``(u, p)`` and their counts."""

    points: Floats
    counts: Integers

    @classmethod
    def of_rows(cls, rows: Floats) -> PublicCovariates:
        """Return the covariates of rows of coded features without the constant, ``(m, p - 1)``."""
        points, counts = np.unique(rows, axis=0, return_counts=True)
        return cls(np.column_stack([points, np.ones(len(points))]), counts.astype(np.int64))

    @property
    def second_moment(self) -> Floats:
        """Mean of ``x x'``, ``(p, p)``."""
        share = self.counts / self.counts.sum()
        moment: Floats = (self.points * share[:, None]).T @ self.points
        return moment
