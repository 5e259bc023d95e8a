"""Released directions: scores at one model that never changes, which is public with the task. River-free.

A person releases the sign of their label times ``z / |z|``, z their whitened features: d numbers instead of all second
moments. The mean of that over public rows is a function of the coefficients, which is solved for. It is the score of
`murk.learners.scores` at coefficients of zero, in one epoch without an end: nobody reads a model, and nothing is late.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from murk.learners.core.curves import LINKS, LOSSES, CodedCurve, Curve, curve_of
from murk.learners.core.scoring.model import QUESTIONS, Question
from murk.learners.core.scoring.problem import ScoreProblem, covariates_of, level_mechanisms
from murk.learners.core.scoring.settings import Settings
from murk.privacy.noise import NoiseSource

if TYPE_CHECKING:
    from murk.learners.core.scoring.answers import OneAnswer
    from murk.stream.task.task import Task


@dataclass(frozen=True)
class DirectionProblem(ScoreProblem):
    """The directions of a task: scores that are all given at the model of version 0, which is never published.

    One person in ten releases a matrix ``z z'`` instead, drawn without looking at the record, which tells whether the
    public rows are like the people; with so many features that it would tell too little (more than 34), nobody.
    """

    interactive: ClassVar[bool] = False

    @property
    def questions(self) -> tuple[Question, ...]:
        """Those that anybody is asked."""
        return tuple(one for one in QUESTIONS if one == "score" or (one == "curvature" and self.settings.matrices))

    def ask(self, noise: NoiseSource, indices: NDArray[np.int64], model: NDArray[np.float64]) -> list[Question]:
        """Draw the question that each person answers; what a log says of models is not read."""
        return super().ask(noise, indices, self.initial)

    def vectors(
        self, X: NDArray[np.float64], y: NDArray[np.float64], theta: NDArray[np.float64] | None = None,
        question: Question = "score",
    ) -> NDArray[np.float64]:  # fmt: skip
        """As `ScoreProblem.vectors` at version 0; what a log says of models is not read."""
        return super().vectors(X, y, None, question)

    def in_place(self, level: str, theta: NDArray[np.float64], seed: int | None) -> OneAnswer | None:
        """As `ScoreProblem.in_place` at version 0; what a log says of models is not read."""
        return super().in_place(level, self.initial, seed)


def own_curve(curve: Curve, middle: float, half: float) -> CodedCurve | None:
    """The curve that is to be solved for, where scores do not have it anyway."""
    return None if curve.name in ("logistic", "identity") else CodedCurve(curve, middle, half)


def directions_of(task: Task) -> DirectionProblem:
    """The directions of a resolved task with ``protocol: moments`` and ``release: directions``.

    Raises
    ------
    UserError
        If a level's guarantee and the task's mechanism do not fit, or its public covariates are of other features.
    """
    block, binary = task.block, task.target.kind == "binary"
    assert block is not None
    if binary:
        curve = own_curve(curve_of(block.loss or "logistic", LOSSES, "loss"), 0.0, 1.0)
    else:
        # Links that are identified are of the share of the target's range.
        curve = own_curve(curve_of(block.link or "identity", LINKS, "link"), 0.5, 0.5)
    settings = Settings(task.coding.names, binary, covariates_of(task), once=True, curve=curve)
    return DirectionProblem(settings, level_mechanisms(task, settings))
