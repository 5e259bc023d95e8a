"""The model that a learner of scores publishes next, from the answers to all earlier models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from murk._internal.arrays import Floats
from murk.inference.prediction_sets import LABELS, REAL, PredictionSets, Present, Reply, Root, at_least_present
from murk.protocols.scores.mechanisms import LevelMechanisms
from murk.protocols.scores.model import Model
from murk.protocols.scores.settings import CHECK, NEVER, Settings
from murk.protocols.scores.solutions import AnySolution, solution
from murk.protocols.scores.solve import line
from murk.protocols.scores.solve.classes import ClassLines
from murk.protocols.scores.solve.curve import Solution
from murk.protocols.scores.sums import Round, Summaries, replies_of, summaries
from murk.protocols.scores.survey.coordinates import Coordinates
from murk.protocols.scores.survey.rounds import SurveyRound

_SURELY: Final = 2.0  # standard errors that are subtracted from the share of targets present


def following(
    settings: Settings,
    rounds: Sequence[Round],
    count: int,
    coordinates: Coordinates | None,
    mechanisms: LevelMechanisms,
) -> tuple[Model, Coordinates | None]:
    """Return the model of the round that begins at ``count``, and the survey's coordinates, None before its end."""
    if settings.survey is not None and coordinates is None:
        surveyed = [round_ for round_ in rounds if round_.model.survey and round_.tallies]
        concluded = settings.survey.concluded(
            replies_of(surveyed, mechanisms, settings.features)[: len(settings.survey.numbers)], len(surveyed)
        )
        if isinstance(concluded, SurveyRound):
            return settings.survey_model(concluded), None
        coordinates = concluded
    settings, answers = settings.at(coordinates), summaries(rounds, mechanisms, settings.features)
    # Rounds as short as a survey's rounds have too few answers to make a model from.
    if not answers or count <= settings.survey_rounds[-1]:
        model = settings.first_model(mechanisms)
        if model.sets is not None and count < settings.survey_rounds[-1]:
            # These rounds also have too few answers for the threshold of prediction sets.
            model = replace(model, sets=replace(model.sets, share=0.0))
        return model, coordinates
    return next_model(settings, answers, count, mechanisms), coordinates


def next_model(settings: Settings, found: Summaries, count: int, mechanisms: LevelMechanisms) -> Model:
    """Return the model of the round that begins at ``count``."""
    solved = solution(settings, found)
    chosen = _chosen(settings, solved, found, count, mechanisms)
    root = None if settings.wanted is None else root_of(settings, solved, found, chosen, solved.origin)
    return settings.completed(chosen, solved.origin, root)


def _chosen(
    settings: Settings, solution: AnySolution, found: Summaries, count: int, mechanisms: LevelMechanisms
) -> Model:
    pair: Any = mechanisms["default"]
    if isinstance(solution, ClassLines):
        noise = pair.score.variance, pair.matrix.variance
        return solution.next_model(settings.clipping_norm(False, mechanisms), noise)
    if solution.public or settings.labels:
        shares = (0.0, CHECK)
    else:
        shares = (0.05, 0.1) if settings.binary else (0.0, 0.15)
    exponent = _exponent(settings, solution, count, mechanisms, found[-1].model)
    model = solution.next_model(settings.clipping_norm(solution.public, mechanisms), exponent, shares)
    if not (settings.line and settings.binary and isinstance(solution, Solution)):
        return model
    people = min(settings.round_end(count), settings.forget or NEVER) - count
    return line.next_model(solution, found, model, max(people, 1), (pair.score.variance, pair.matrix.variance))


def sets(
    settings: Settings, solution: AnySolution | None, found: Summaries, model: Model, answers: int
) -> PredictionSets:
    """Return the prediction sets by the answers at all models; ``model`` is the newest one."""
    assert model.sets is not None
    basis = settings.response.basis if settings.binary or settings.labels else None
    root = root_of(settings, solution, found, model, model.sets.origin)
    return PredictionSets(root, model.sets.origin, basis, answers)


def root_of(settings: Settings, solution: AnySolution | None, found: Summaries, model: Model, origin: Floats) -> Root:
    """Return the posterior of the threshold with the nominal coverage, for the prediction ``origin``."""
    scale = LABELS if settings.binary or settings.labels else REAL
    replies = []
    for each in found:
        asked, answer = each.model.sets, each.covered
        if asked is None or answer is None:
            continue
        # The root mean square of how far the prediction has moved: people's second moment is the identity in z.
        change = (asked.origin - origin).reshape(-1, settings.features) @ model.back
        moved = scale.moved(float(np.linalg.norm(change)), asked.threshold)
        share = 0.5 + 0.5 * float(answer.mean[0])
        # Repeated answers of one person have independent noise, but are not of different people.
        spread = answer.noise / 4.0, 1.0 / (answer.share * settings.repeats)
        replies.append(Reply(asked.threshold, share, *spread, moved, asked.origin, answer.farthest / 2.0))
    # The share of targets present, by curvatures over scatters and by the replies.
    share, error = (1.0, math.inf) if solution is None else solution.targets
    least = max(share - _SURELY * error, at_least_present(settings.coverage, replies))
    present = Present(min(max(share, least), 1.0), min(least, 1.0))
    return Root(scale, settings.coverage, replies, present)


def _exponent(
    settings: Settings, solution: AnySolution, count: int, mechanisms: LevelMechanisms, before: Model
) -> float:
    """Return g by rule: 0 where the public rows' sampling error is small compared with the noise, else 1/2.

    The error is small with at least ``n / (p s^2)`` rows, n being the round's end and s^2 the noise's variance. g is 1
    without rows, with people unlike them, with missing targets, and in at least every other round: centred scores are
    valid for any distribution of the covariates, and check the other scores.
    """
    if settings.exponent is not None:
        return settings.exponent
    if settings.covariates is None or not settings.binary or not solution.public or solution.missing:
        return 1.0
    # Look at the round before as well: if a late model made learners skip a round, its number may be odd, too.
    if settings.round_number(count) % 2 == 0 or before.exponent != 1.0:
        return 1.0
    mechanism: Any = mechanisms["default"].score
    needed = min(settings.round_end(count), settings.forget or NEVER) / (settings.features * mechanism.variance)
    return 0.0 if settings.covariates.people >= needed else 0.5
