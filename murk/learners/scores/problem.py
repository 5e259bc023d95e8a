"""Problem of a task with ``protocol: scores``."""

from __future__ import annotations

from murk.learners.core.design import stated_location
from murk.learners.core.scoring.problem import (
    ScoreProblem,
    check_size,
    covariates_of,
    level_mechanisms,
    survey_of,
)
from murk.learners.core.scoring.settings import FIRST, Settings
from murk.learners.core.survey.rounds import Survey
from murk.learners.estimates.sets import Wanted
from murk.stream.task.data.features import CategoryFeature, ClassTarget, RealTarget
from murk.stream.task.privacy import DEFAULT_LEVEL
from murk.stream.task.task import Task


def problem_for(task: Task) -> ScoreProblem:
    """Return a resolved task's problem; raise UserError if guarantee, mechanism, size or covariates do not fit."""
    block, coding = task.block, task.coding
    assert block is not None
    labels = tuple(task.target.classes) if isinstance(task.target, ClassTarget) else ()
    shared = block.models == "shared"
    # The task's number is for each partition, but shared epochs count the releases of all partitions.
    forget = task.forget if task.forget is None or not shared else task.forget * task.log.partitions
    first = FIRST if task.shuffle is None else max(FIRST, task.shuffle.crowd)
    asked = task.predictions
    wanted = None if asked is None else Wanted(asked.coverage, asked.share)
    facts = coding.names, task.target.kind == "binary", covariates_of(task), block.exponent, labels
    line = block.effects == "line"
    survey = _survey(task, len(labels))
    settings = Settings(*facts, forget=forget, shared=shared, line=line, first=first, wanted=wanted, survey=survey)
    # Before mechanisms are calibrated, which may be impossible at this size.
    check_size(settings, len(task.privacy.levels), interactive=True)
    return ScoreProblem(settings, level_mechanisms(task, settings))


def _survey(task: Task, classes: int) -> Survey | None:
    """Return the survey of a task without public covariates, which show features' spreads themselves."""
    if task.covariates is not None or not task.features:
        return None
    privacy, coding = task.privacy, task.coding
    guarantee = privacy.levels[DEFAULT_LEVEL]
    separate = task.log.partitions if task.block.models == "own" else 1
    # Chains with targets in different units could not be joined; nor is there a unit for prediction sets.
    own = task.target if isinstance(task.target, RealTarget) and separate == 1 and task.predictions is None else None
    numbers = (*coding.numbers, *([] if own is None else [True]))
    stated: list[tuple[float, float] | None] = [None] * len(numbers)
    for feature in task.features:
        if not isinstance(feature, CategoryFeature) and feature.typical is not None:
            # Among the columns of a date, its number has the feature's own name.
            stated[coding.names.index(feature.name)] = stated_location(feature)
    if own is not None and own.typical is not None:
        stated[-1] = stated_location(own)
    return survey_of(
        privacy.kind_for(guarantee),
        guarantee,
        max(classes - 1, 1) * coding.size,
        numbers,
        stated=stated,
        target=own is not None,
        crowd=1 if task.shuffle is None else task.shuffle.crowd,
        people=None if task.people is None else task.people // separate,
    )
