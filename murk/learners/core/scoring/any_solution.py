"""The solution of all epochs' equations, and whether these agree with each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from murk.learners.core.scoring.class_lines import ClassLines
from murk.learners.core.scoring.classes import ClassSolution
from murk.learners.core.scoring.model import Response
from murk.learners.core.scoring.public import CurveSolution, PublicSolution
from murk.learners.core.scoring.rows import Rows
from murk.learners.core.scoring.solve import Solution
from murk.learners.core.scoring.sums import Summary

AnySolution = Solution | PublicSolution | ClassSolution | ClassLines


def solution_of(found: Sequence[Summary], response: Response, rows: Rows | None) -> AnySolution:
    """The solution: over public rows, where there are any and they are like the people.

    Of several classes without public rows it is their lines.
    """
    if response.classes:
        return ClassLines(found, response.classes) if rows is None else ClassSolution(found, response.classes, rows)
    if rows is None:
        return Solution(found, response)
    if response.curve is not None:
        return CurveSolution(found, response, rows)
    public = PublicSolution(found, response, rows)
    return public if public.alike and public.useful else Solution(found, response, unlike=True)


NATS: Final = 20.0
"""Honest equations are taken for such as disagree with a probability of e^-20, or 2e-9, at most."""


def largest_square(freedom: float, nats: float = NATS) -> float:
    """What a chi-square variable exceeds with a probability of at most e^-nats.

    References
    ----------
    Laurent and Massart, "Adaptive estimation of a quadratic functional by model selection", 2000, lemma 1.

    Examples
    --------
    >>> round(largest_square(10.0), 1)
    78.3
    """
    return freedom + 2.0 * math.sqrt(freedom * nats) + 2.0 * nats


def disagreement(solution: AnySolution) -> float:
    """By which factor intervals are wider since the epochs' mean scores disagree; 1 where chance alone explains it.

    The squared residuals of the equations at their solution, in units of their own variances, are together chi-square.
    Beyond what chance leaves, all variances are taken to be as much larger as the residuals are (Birge's ratio). Public
    rows are held against the answers in another way, and not used where these contradict them.
    """
    if isinstance(solution, ClassLines):
        # The noise of one class's scores is in the others', too: the largest of all classes counts.
        return max((_factor(line.misfits, solution.features) for line in solution.lines), default=1.0)
    return _factor(solution.misfits, solution.features) if isinstance(solution, Solution) else 1.0


def _factor(squares: NDArray[np.float64], features: int) -> float:
    if len(squares) < 2:
        return 1.0
    freedom = features * (len(squares) - 1)
    together = float(np.sum(squares)) / largest_square(freedom)
    alone = float(np.max(squares)) / largest_square(features)
    return math.sqrt(max(together, alone, 1.0))
