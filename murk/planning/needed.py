"""The number of people needed for given half-widths."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from murk.errors import UserError
from murk.learners.core.design import Population
from murk.learners.estimates.looks import nominal_level
from murk.learners.estimates.units import units
from murk.learners.results.numbers import rounded
from murk.planning.forecast import forecast
from murk.stream.task.data.coding import is_constant
from murk.stream.task.task import Task

FEWEST: Final = 1_000
MOST: Final = 2**30
"""Bounds of the search for a number of people."""


def people_for(
    task: Task, population: Population, within: Mapping[str | None, float], draws: int = 1, *, watched: bool = False
) -> int | None:
    """Return the number of people needed for these half-widths of average effects per unit; None beyond a billion.

    Half-widths are of 95% intervals for one planned look or, if ``watched``, for every look. Bisects powers of two;
    between the last two, half-widths are taken to shrink with the root of the number.

    Raises UserError for a feature that the task does not have, or a half-width that is not above 0.
    """
    names = check_half_widths(task, within)

    def excess(people: int) -> float:
        """Return the largest ratio of a half-width to the one wanted."""
        level = nominal_level(people / task.tightest_at, 0.95) if watched else 0.95
        effects = forecast(task, population, people, draws=draws, level=level).effects
        wanted = {name: within.get(name, within.get(None, math.inf)) for name in names}
        return max((effects[name] / wanted[name] for name in effects if math.isfinite(wanted[name])), default=math.inf)

    try:
        low, high = int(math.log2(FEWEST)), int(math.log2(MOST))
        if excess(2**high) > 1.0:
            return None
        while high > low:
            middle = (low + high) // 2
            low, high = (low, middle) if excess(2**middle) <= 1.0 else (middle + 1, high)
    except UserError:
        return None
    if 2**high <= FEWEST:
        return FEWEST
    over = excess(2**high)
    return rounded(max(2**high * over**2, 2 ** (high - 1)))


def check_half_widths(task: Task, within: Mapping[str | None, float]) -> list[str]:
    """Return the names of the coefficients that have half-widths, after checking those wanted.

    Raises UserError for a feature that the task does not have, or a half-width that is not above 0.
    """
    names = [name for name in units(task) if not is_constant(name)]
    for name, value in within.items():
        if name is not None and name not in names:
            known = ", ".join(names) or "none, as log odds of classes have no units"
            raise UserError(f"no half-width of {name!r} can be requested; features with an average effect: {known}")
        if not value > 0.0:
            raise UserError(f"a half-width must be above 0, got {value:g}")
    return names
