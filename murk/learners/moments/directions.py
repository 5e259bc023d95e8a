"""Released directions of tasks: scores at coefficients of zero, in one epoch, so that nobody reads a model.

A person releases their label's sign times ``z / |z|``, z their whitened features. The expected mean is computed over
public rows as a function of the coefficients; the learner solves for the coefficients that give the released mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from murk.learners.core.curves import LINKS, LOSSES, CodedCurve, Curve, curve_of
from murk.learners.core.scoring.model import Question
from murk.learners.core.scoring.problem import ScoreProblem, covariates_of, level_mechanisms
from murk.learners.core.scoring.settings import Settings
from murk.privacy.noise import NoiseSource

if TYPE_CHECKING:
    from murk.learners.core.scoring.record import OneAnswer
    from murk.stream.task.task import Task


@dataclass(frozen=True)
class DirectionProblem(ScoreProblem):
    """The directions of a task: scores at the model of version 0, which is never published.

    One person in ten, drawn without looking at the record, releases ``z z'`` instead, to compare the public rows with
    the people. With more than 34 features, nobody does, as it would be too noisy.
    """

    interactive: ClassVar[bool] = False

    @property
    def questions(self) -> tuple[Question, ...]:
        """The questions asked."""
        return ("score", "curvature") if self.settings.matrices else ("score",)

    def ask(self, noise: NoiseSource, indices: NDArray[np.int64], model: NDArray[np.float64]) -> list[Question]:
        """Draw the question that each person answers, at version 0."""
        return super().ask(noise, indices, self.initial)

    def vectors(
        self, X: NDArray[np.float64], y: NDArray[np.float64], theta: NDArray[np.float64] | None = None,
        question: Question = "score",
    ) -> NDArray[np.float64]:  # fmt: skip
        """Return the same as `ScoreProblem.vectors` at the model of version 0."""
        return super().vectors(X, y, None, question)

    def in_place(self, level: str, theta: NDArray[np.float64], seed: int | None) -> OneAnswer | None:
        """Return the same as `ScoreProblem.in_place` at the model of version 0."""
        return super().in_place(level, self.initial, seed)


def own_curve(curve: Curve, middle: float, half: float) -> CodedCurve | None:
    """Return the curve to solve for, or None for the curves that scores solve for by default."""
    return None if curve.name in ("logistic", "identity") else CodedCurve(curve, middle, half)


def directions_of(task: Task) -> DirectionProblem:
    """Return the directions of a resolved task with ``protocol: moments`` and ``release: directions``.

    Raises UserError if a level's guarantee and the task's mechanism do not fit, or if the public covariates have other
    features.
    """
    block, binary = task.block, task.target.kind == "binary"
    assert block is not None
    if binary:
        curve = own_curve(curve_of(block.loss or "logistic", LOSSES, "loss"), 0.0, 1.0)
    else:
        # Links apply to the target's position in its range, from 0 to 1.
        curve = own_curve(curve_of(block.link or "identity", LINKS, "link"), 0.5, 0.5)
    settings = Settings(task.coding.names, binary, covariates_of(task), once=True, curve=curve)
    return DirectionProblem(settings, level_mechanisms(task, settings))
