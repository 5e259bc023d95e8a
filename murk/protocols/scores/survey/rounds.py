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
from murk.protocols.scores.survey.coordinates import THRESHOLDS, Coordinates
from murk.protocols.scores.survey.shapes import CAREFUL, Location, Reply, location_of, share_beyond, share_of

_PEOPLE: Final = 20.0  # people per column and round, divided by the variance of one answer
_LEAST, _MOST = 3, 6  # rounds
_SHARE: Final = 0.1  # largest share of the expected people who answer a survey
_NARROWEST: Final = 0.01  # least spread around which later thresholds lie
_CATEGORY: Final = 1.0 / 3.0  # scale of a category: its codes -1 and +1 lie beyond all thresholds
_CLIPPING_NORM: Final = 3.0  # number of spreads beyond which a real target is clipped


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
            each *= min(1.0, _SHARE * people / (each * (asked + (_MOST - 1) * counted)))
        first, later = (max(math.ceil(each * columns), crowd) for columns in (asked, counted))
        return cls(tuple(numbers), first, later if counted else 0, tuple(stated) or (None,) * asked, target)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Versions at which rounds may begin, and the one at which the last of them ends."""
        if not self.later:
            return 0, self.first
        return 0, *(self.first + index * self.later for index in range(_MOST))

    @property
    def end(self) -> int:
        """Number of releases after which no round begins."""
        return self.starts[-1]

    def opening(self) -> SurveyRound:
        """Return the first round."""
        columns = len(self.numbers)
        return SurveyRound(1, np.zeros(columns), np.where(self.numbers, 1.0, _CATEGORY))

    def concluded(self, replies: Sequence[list[Reply]], survey_rounds: int) -> Coordinates | SurveyRound:
        """Return the coordinates by ``replies`` (by column), or the next round if ``survey_rounds`` are too few."""
        locations = [self._location(column, own) for column, own in enumerate(replies)]
        unsettled = [
            number and ((stated is None and survey_rounds < _LEAST) or not location.settled)
            for number, stated, location in zip(self.numbers, self.stated, locations, strict=True)
        ]
        if survey_rounds < _MOST and any(unsettled):
            scale = [
                max(location.extent, _NARROWEST) if asked else 0.0
                for location, asked in zip(locations, unsettled, strict=True)
            ]
            thresholds = min(survey_rounds + 1, len(THRESHOLDS) - 1)
            return SurveyRound(thresholds, np.array([each.centre for each in locations]), np.array(scale))
        features, target = (locations[:-1], _target_of(locations[-1])) if self.target else (locations, (0.0, 1.0))

        def column(name: str) -> Floats:
            return np.array([_rounded(getattr(each, name)) for each in features])

        errors, beyond = (column("centre_error"), column("log_spread_error")), (0.0, 0.0)
        if target != (0.0, 1.0):
            middle, width = target
            share, most = share_beyond(replies[-1], middle - width, middle + width, self.stated[-1])
            beyond = _rounded(share), _rounded(most)
        return Coordinates(column("centre"), column("spread"), *errors, target, beyond)

    def _location(self, column: int, replies: list[Reply]) -> Location:
        if self.numbers[column]:
            return location_of(replies, self.stated[column])
        mean, error = share_of(replies)
        return Location(mean, 1.0, error, 0.0, 1.0)


def _target_of(location: Location) -> tuple[float, float]:
    """Return the middle and half width to which a target is clipped; its whole range if hardly any would be."""
    # Too small a spread would clip many targets, so that one a little above the likely spread is taken.
    spread = location.spread * math.exp(2.0 * CAREFUL * location.log_spread_error)
    width = min(_CLIPPING_NORM * spread, 1.0 + abs(location.centre))
    return (_rounded(location.centre), _rounded(width)) if width < 1.0 else (0.0, 1.0)


def _rounded(value: float) -> float:
    # The last digits differ between processors' mathematical functions.
    return float(f"{value:.9g}")


@dataclass(frozen=True, eq=False)
class SurveyRound:
    """The queries of one round: for a column j and a threshold c of a list, "is x_j above ``centre + c scale``?"."""

    thresholds: int  # index of the list in `THRESHOLDS`
    centre: Floats  # (columns,), coded units
    scale: Floats  # (columns,); 0 for a column that nobody is asked about
