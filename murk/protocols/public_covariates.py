"""Public covariates of a task, as its devices know them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from murk._internal.arrays import Floats, Integers
from murk.errors import UserError

if TYPE_CHECKING:
    from murk.task.task import Task

_ERROR_CODE = "MURK-LEARN-001"


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


def covariates_of(task: Task) -> PublicCovariates | None:
    """Return the public covariates of a resolved task, if any; raise UserError if their features are not the task's."""
    if task.covariates is None:
        return None
    covariates = PublicCovariates(*task.covariates)
    if covariates.points.shape[1] != task.coding.size:
        raise UserError(
            f"the public covariates have {covariates.points.shape[1]} coded features and the task {task.coding.size}: "
            "give public data with the task's columns"
        )
    return covariates
