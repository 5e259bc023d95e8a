"""What an organisation and a learner must agree on to speak of the same sketch, derived from a task.

River-free: an organisation's producer imports this and nothing heavier.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.learners.gaussmix.engine import SketchEngine
from murk.learners.gaussmix.estimates import estimate
from murk.learners.gaussmix.settings import SketchSettings, check_message, default_rows
from murk.learners.inference import Estimate
from murk.privacy.gaussmix import GaussMixMechanism
from murk.stream.task import Task


@dataclass(frozen=True)
class SketchProblem:
    """The sketches of a task: what is mixed, with how much noise, and what is learned from it.

    Attributes
    ----------
    settings
        Public settings of the learner.
    mechanisms
        Level name to mechanism.
    """

    settings: SketchSettings
    mechanisms: dict[str, GaussMixMechanism]

    kind = "sketch"
    interactive = False

    @property
    def dimension(self) -> int:
        """Integers in a release: ``rows * columns``."""
        return self.settings.rows * self.settings.columns

    def check_state(self) -> None:
        """Refuse a task whose sketches no log would take, before anything is set up.

        Raises
        ------
        UserError
            Naming the largest number of rows that fits.
        """
        check_message(self.settings.rows, self.settings.columns)

    def records(self, X: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        """The rows ``(m, p + 1)`` to be mixed, of coded records.

        A binary target, coded 0 and 1, becomes -1 and +1. A record whose target is missing becomes the zero row:
        it is counted, and says nothing.

        Parameters
        ----------
        X
            ``(m, p)`` coded features, the constant last.
        y
            ``(m,)`` coded targets, NaN where missing.
        """
        targets = np.asarray(y, dtype=np.float64)
        if self.settings.kind == "binary":
            targets = 2.0 * targets - 1.0
        rows = np.column_stack([np.asarray(X, dtype=np.float64), targets])
        rows[~np.isfinite(targets)] = 0.0
        return rows

    def engine(self) -> SketchEngine:
        """A learner of this task's sketches that has learned none."""
        return SketchEngine(self.settings, self.mechanisms)

    def estimate(self, engines: Sequence[SketchEngine]) -> Estimate:
        """The estimate of several chains, merged by sum."""
        return estimate(self.settings, [engine.sums for engine in engines])


def problem_for(task: Task) -> SketchProblem:
    """The sketch problem of a resolved task.

    Raises
    ------
    UserError
        If a level's guarantee is not (epsilon, delta), or the rows are too few.
    """
    block = task.sketch
    if block is None:
        raise UserError(f"the task {task.name!r} has protocol: {task.protocol}, not sketch")
    coding = task.coding
    columns = coding.size + 1
    binary = task.target.kind == "binary"
    rows = block.rows
    if rows is None:
        # More rows than records are work without gain.
        rows = max(min(default_rows(columns), block.window or default_rows(columns)), 2 * columns)
    settings = SketchSettings(
        names=tuple(coding.names),
        rows=rows,
        feature_bound=math.sqrt(coding.largest_square) if block.feature_bound is None else block.feature_bound,
        target_bound=1.0 if block.target_bound is None else block.target_bound,
        # Coded features lie in [-1, 1].
        largest=1.0,
        kind="binary" if binary else "real",
        reach=block.range if binary else None,
        window=block.window,
    )
    mechanisms = {
        level: GaussMixMechanism.calibrate(
            guarantee,
            rows=settings.rows,
            columns=settings.columns,
            feature_bound=settings.feature_bound,
            target_bound=settings.target_bound,
            method=block.method,
            neighbours=block.neighbours,
            analysis=block.analysis,
        )
        for level, guarantee in task.privacy.levels.items()
    }
    return SketchProblem(settings, mechanisms)
