"""Problem of a task with ``protocol: scores``."""

from __future__ import annotations

from murk.learners.core.scoring.problem import ScoreProblem, check_size, covariates_of, level_mechanisms
from murk.learners.core.scoring.settings import FIRST, Settings
from murk.learners.estimates.sets import Wanted
from murk.stream.task.data.features import ClassTarget
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
    settings = Settings(*facts, forget=forget, shared=shared, line=line, first=first, wanted=wanted)
    # Before mechanisms are calibrated, which may be impossible at this size.
    check_size(settings, len(task.privacy.levels), interactive=True)
    return ScoreProblem(settings, level_mechanisms(task, settings))
