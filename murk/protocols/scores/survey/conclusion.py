"""The conclusion of a survey's round: the features' coordinates, or the next round's queries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from murk._internal.arrays import Floats
from murk.protocols.scores.survey.coordinates import THRESHOLDS, Coordinates
from murk.protocols.scores.survey.rounds import MOST_ROUNDS, Survey, SurveyRound
from murk.protocols.scores.survey.shapes import CAREFUL, Location, Reply, location_of, share_beyond, share_of

_LEAST: Final = 3  # rounds
_NARROWEST: Final = 0.01  # least spread around which later thresholds lie
_CLIPPING_NORM: Final = 3.0  # number of spreads beyond which a real target is clipped


def conclude(survey: Survey, replies: Sequence[list[Reply]], survey_rounds: int) -> Coordinates | SurveyRound:
    """Return the coordinates by ``replies`` (by column), or the next round if ``survey_rounds`` are too few."""
    locations = [_location(survey, column, own) for column, own in enumerate(replies)]
    unsettled = [
        number and ((stated is None and survey_rounds < _LEAST) or not location.settled)
        for number, stated, location in zip(survey.numbers, survey.stated, locations, strict=True)
    ]
    if survey_rounds < MOST_ROUNDS and any(unsettled):
        scale = [
            max(location.extent, _NARROWEST) if asked else 0.0
            for location, asked in zip(locations, unsettled, strict=True)
        ]
        thresholds = min(survey_rounds + 1, len(THRESHOLDS) - 1)
        return SurveyRound(thresholds, np.array([each.centre for each in locations]), np.array(scale))
    features, target = (locations[:-1], _target_of(locations[-1])) if survey.target else (locations, (0.0, 1.0))

    def column(name: str) -> Floats:
        return np.array([_rounded(getattr(each, name)) for each in features])

    errors, beyond = (column("centre_error"), column("log_spread_error")), (0.0, 0.0)
    if target != (0.0, 1.0):
        middle, width = target
        share, most = share_beyond(replies[-1], middle - width, middle + width, survey.stated[-1])
        beyond = _rounded(share), _rounded(most)
    return Coordinates(column("centre"), column("spread"), *errors, target, beyond)


def _location(survey: Survey, column: int, replies: list[Reply]) -> Location:
    if survey.numbers[column]:
        return location_of(replies, survey.stated[column])
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
