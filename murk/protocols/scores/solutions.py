"""The solution of rounds' answers by the equations that fit the settings, and how far rounds disagree."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from murk._internal.arrays import Floats
from murk.protocols.rows import Rows
from murk.protocols.scores.model import Response
from murk.protocols.scores.settings import Settings
from murk.protocols.scores.solve.classes import ClassLines, ClassSolution
from murk.protocols.scores.solve.curve import Solution
from murk.protocols.scores.solve.public import CurveSolution, PublicSolution
from murk.protocols.scores.sums import Summaries
from murk.protocols.scores.survey.coordinates import Coordinates

AnySolution = Solution | PublicSolution | ClassSolution | ClassLines


def solution(settings: Settings, found: Summaries) -> AnySolution:
    """Return the solution of rounds' mean answers."""
    return solution_of(found, settings.response, settings.rows, settings.coordinates)


def solution_of(
    answers: Summaries, response: Response, rows: Rows | None, coordinates: Coordinates | None = None
) -> AnySolution:
    """Return the solution of answers over public rows, if people are like them; else by released moments alone."""
    if response.classes:
        if rows is None:
            return ClassLines(answers, response.classes, coordinates, weighed=response.weighed)
        return ClassSolution(answers, response.classes, rows)
    if rows is None:
        return Solution(answers, response, coordinates)
    if response.curve is not None:
        return CurveSolution(answers, response, rows)
    public = PublicSolution(answers, response, rows)
    return public if public.alike and public.useful else Solution(answers, response, unlike=True)


NATS: Final = 20.0  # honest rounds are found to disagree with probability at most e^-NATS, or 2e-9


def largest_square(freedom: float) -> float:
    """Return a bound that a chi-square variable of ``freedom`` degrees exceeds with probability at most e^-NATS.

    Source: Laurent and Massart, "Adaptive estimation of a quadratic functional by model selection", 2000, lemma 1.
    """
    return freedom + 2.0 * math.sqrt(freedom * NATS) + 2.0 * NATS


def disagreement(solution: AnySolution) -> float:
    """Return the factor by which disagreeing rounds widen intervals (Birge's ratio); 1 where chance explains them.

    Squared residuals, in units of their variances, are chi-square. Over public rows the factor is 1.
    """
    if isinstance(solution, ClassLines):
        # Classes share their scores' noise: the largest factor counts.
        return max((_factor(line.misfits, solution.features) for line in solution.lines), default=1.0)
    return _factor(solution.misfits, solution.features) if isinstance(solution, Solution) else 1.0


def _factor(squares: Floats, features: int) -> float:
    if len(squares) < 2:
        return 1.0
    freedom = features * (len(squares) - 1)
    together = float(np.sum(squares)) / largest_square(freedom)
    alone = float(np.max(squares)) / largest_square(features)
    return math.sqrt(max(together, alone, 1.0))
