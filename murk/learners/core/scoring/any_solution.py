"""The solution of all epochs' equations, by what the target is and what is public."""

from __future__ import annotations

from collections.abc import Sequence

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
