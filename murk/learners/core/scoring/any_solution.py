"""The solution of all epochs' equations, and whether the epochs agree with each other."""

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


def solution_of(answers: Sequence[Summary], response: Response, rows: Rows | None) -> AnySolution:
    """Return the solution of epochs' answers, over public rows if there are any and people are like them.

    Without public rows, each of several classes has its least-squares line.
    """
    if response.classes:
        return ClassLines(answers, response.classes) if rows is None else ClassSolution(answers, response.classes, rows)
    if rows is None:
        return Solution(answers, response)
    if response.curve is not None:
        return CurveSolution(answers, response, rows)
    public = PublicSolution(answers, response, rows)
    return public if public.alike and public.useful else Solution(answers, response, unlike=True)


NATS: Final = 20.0
"""Honest equations count as disagreeing with probability e^-NATS, or 2e-9, at most."""


def largest_square(freedom: float, nats: float = NATS) -> float:
    """Return a bound that a chi-square variable of ``freedom`` degrees exceeds with probability at most e^-nats.

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
    """Return the factor by which disagreeing epochs widen intervals; 1 where chance explains the differences.

    The squared residuals of the equations, in units of their variances, are chi-square. Beyond what chance explains,
    all variances grow with the residuals (Birge's ratio). The factor is 1 over public rows: `solution_of` drops them
    where answers contradict them.
    """
    if isinstance(solution, ClassLines):
        # Classes share their scores' noise: the largest factor counts.
        return max((_factor(line.misfits, solution.features) for line in solution.lines), default=1.0)
    return _factor(solution.misfits, solution.features) if isinstance(solution, Solution) else 1.0


def _factor(squares: NDArray[np.float64], features: int) -> float:
    if len(squares) < 2:
        return 1.0
    freedom = features * (len(squares) - 1)
    together = float(np.sum(squares)) / largest_square(freedom)
    alone = float(np.max(squares)) / largest_square(features)
    return math.sqrt(max(together, alone, 1.0))
