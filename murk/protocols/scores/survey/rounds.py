"""Rounds of a survey: whom it asks about which threshold, and when it ends.

In a round each person answers "is x_j above t?" for one coded column j and one threshold t, both drawn with public
probabilities. The first round's thresholds are evenly spaced; later ones surround the estimated centre.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from murk._internal.arrays import Floats

_PEOPLE: Final = 20.0  # people per column and round, divided by the variance of one answer
MOST_ROUNDS: Final = 6
_SHARE: Final = 0.1  # largest share of the expected people who answer a survey
_CATEGORY: Final = 1.0 / 3.0  # scale of a category: its codes -1 and +1 lie beyond all thresholds


@dataclass(frozen=True)
class Survey:
    """Public settings of a survey."""

    numbers: tuple[bool, ...]  # whether each column (features, perhaps the target) is a number; else it is a category
    first: int  # releases of the first round
    later: int  # releases of each later round, which asks about numbers only
    stated: tuple[tuple[float, float] | None, ...] = ()  # likely centre and spread of each column, if publicly stated
    target: bool = False  # whether the last column is a real target

    @classmethod
    def of(
        cls,
        numbers: Sequence[bool],
        variance: float,
        *,
        stated: Sequence[tuple[float, float] | None] = (),
        target: bool = False,
        crowd: int = 1,
        people: int | None = None,
    ) -> Survey:
        """Return the survey for answers whose noise has a ``variance``.

        Columns with a ``stated`` centre and spread are asked about once, and again only if the answers contradict the
        statement. A round has at least ``crowd`` releases. ``people`` is the expected number of people, if known.
        """
        asked, counted = len(numbers), sum(numbers)
        each = _PEOPLE * (1.0 + variance)
        if people is not None:
            each *= min(1.0, _SHARE * people / (each * (asked + (MOST_ROUNDS - 1) * counted)))
        first, later = (max(math.ceil(each * columns), crowd) for columns in (asked, counted))
        return cls(tuple(numbers), first, later if counted else 0, tuple(stated) or (None,) * asked, target)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Versions at which rounds may begin, and the one at which the last of them ends."""
        if not self.later:
            return 0, self.first
        return 0, *(self.first + index * self.later for index in range(MOST_ROUNDS))

    @property
    def end(self) -> int:
        """Number of releases after which no round begins."""
        return self.starts[-1]

    def opening(self) -> SurveyRound:
        """Return the first round."""
        columns = len(self.numbers)
        return SurveyRound(1, np.zeros(columns), np.where(self.numbers, 1.0, _CATEGORY))


@dataclass(frozen=True, eq=False)
class SurveyRound:
    """The queries of one round: for a column j and a threshold c of a list, "is x_j above ``centre + c scale``?"."""

    thresholds: int  # index of the list in `THRESHOLDS`
    centre: Floats  # (columns,), coded units
    scale: Floats  # (columns,); 0 for a column that nobody is asked about
