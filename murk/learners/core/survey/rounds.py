"""Rounds of a survey: whom it asks about which threshold, and when it ends.

In a round each person answers "is x_j above t?" for one coded column j and one threshold t, both drawn with public
chances. The first round's thresholds are even; later ones surround the centre found so far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from murk._arrays import Floats
from murk.learners.core.survey.coordinates import Coordinates
from murk.learners.core.survey.shapes import CAREFUL, Location, Reply, location_of, share_of
from murk.learners.core.survey.thresholds import THRESHOLDS

_PEOPLE: Final = 20.0  # people a column and round, times one person's variance
_LEAST, _MOST = 3, 6  # rounds
_SHARE: Final = 0.1  # largest share of the people expected
_NARROWEST: Final = 0.01  # least spread around which later thresholds lie
_CATEGORY: Final = 1.0 / 3.0  # scale of a category: its codes -1 and +1 lie beyond all thresholds
_REACH: Final = 3.0  # spreads of a real target beyond which it is cut
_STATED_CENTRE, _STATED_SPREAD = (
    0.25,
    0.35,
)  # errors of stated centres, in units of the spread, and of stated log spreads


@dataclass(frozen=True)
class Survey:
    """Public settings of a survey."""

    numbers: tuple[bool, ...]  # whether each column (features, perhaps the target) is a number; else it is a category
    first: int  # releases of the first round
    later: int  # releases of each later round, which asks about numbers only
    stated: tuple[tuple[float, float] | None, ...] = ()  # centre and spread of each column that are known already
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
    ) -> Survey | None:
        """Return the survey at a noise variance of one answer; None if everything is stated.

        A round has no fewer releases than a ``crowd``. ``people`` is the number expected, if known.
        """
        known = tuple(stated) or (None,) * len(numbers)
        asked = sum(each is None for each in known)
        if not asked:
            return None
        counted = sum(number and each is None for number, each in zip(numbers, known, strict=True))
        each = _PEOPLE * (1.0 + variance)
        if people is not None:
            each *= min(1.0, _SHARE * people / (each * (asked + (_MOST - 1) * counted)))
        first, later = (max(math.ceil(each * columns), crowd) for columns in (asked, counted))
        return cls(tuple(numbers), first, later if counted else 0, known, target)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Versions at which rounds may begin, and the one at which the last of them ends."""
        if not self.later:
            return 0, self.first
        return 0, *(self.first + place * self.later for place in range(_MOST))

    @property
    def end(self) -> int:
        """Number of releases after which no round begins."""
        return self.starts[-1]

    def opening(self) -> Round:
        """Return the first round."""
        columns = len(self.numbers)
        scale = [0.0 if known else 1.0 if number else _CATEGORY for number, known in self._columns]
        return Round(1, np.zeros(columns), np.array(scale))

    @property
    def _columns(self) -> list[tuple[bool, bool]]:
        return [(number, known is not None) for number, known in zip(self.numbers, self.stated, strict=True)]

    def concluded(self, replies: Sequence[list[Reply]], rounds: int) -> Coordinates | Round:
        """Return the coordinates, or the next round if ``rounds`` do not suffice; ``replies`` are by column."""
        found = [self._location(column, own) for column, own in enumerate(replies)]
        unsettled = [
            number and not known and (rounds < _LEAST or not location.settled)
            for (number, known), location in zip(self._columns, found, strict=True)
        ]
        if rounds < _MOST and any(unsettled):
            scale = [
                max(location.extent, _NARROWEST) if asked else 0.0
                for location, asked in zip(found, unsettled, strict=True)
            ]
            thresholds = min(rounds + 1, len(THRESHOLDS) - 1)
            return Round(thresholds, np.array([each.centre for each in found]), np.array(scale))
        features, target = (found[:-1], _target_of(found[-1])) if self.target else (found, (0.0, 1.0))

        def column(name: str) -> Floats:
            return np.array([_rounded(getattr(each, name)) for each in features])

        errors = column("centre_error"), column("log_spread_error")
        return Coordinates(column("centre"), column("spread"), *errors, target)

    def _location(self, column: int, replies: list[Reply]) -> Location:
        known = self.stated[column]
        if known is not None:
            centre, spread = known
            return Location(centre, spread, _STATED_CENTRE * spread, _STATED_SPREAD, spread)
        if self.numbers[column]:
            return location_of(replies)
        mean, error = share_of(replies)
        return Location(mean, 1.0, error, 0.0, 1.0)


def _target_of(location: Location) -> tuple[float, float]:
    """Return middle and half width of a target; all of its range where hardly anything would be cut."""
    # Too small a spread would cut many targets, so that the likely one is taken, rather a larger one.
    spread = location.spread * math.exp(2.0 * CAREFUL * location.log_spread_error)
    width = min(_REACH * spread, 1.0 + abs(location.centre))
    return (_rounded(location.centre), _rounded(width)) if width < 1.0 else (0.0, 1.0)


def _rounded(value: float) -> float:
    # The last digits differ between processors' mathematical functions.
    return float(f"{value:.9g}")


@dataclass(frozen=True, eq=False)
class Round:
    """The questions of one round: for a column j and a threshold c of a list, "is x_j above ``centre + c scale``?"."""

    thresholds: int  # index of the list in `THRESHOLDS`
    centre: Floats  # (columns,), coded units
    scale: Floats  # (columns,); 0 for a column that nobody is asked about
