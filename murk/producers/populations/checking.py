"""An explicit look at a file before its people release: it refuses what cannot be coded, and sends nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from murk.producers.populations.labels import LabelSurvey
from murk.producers.populations.overlap import check_apart

if TYPE_CHECKING:
    from murk.producers.populations.file_work import PopulationConfig
    from murk.stream.task.task import Task


def check_records(task: Task, crowd: PopulationConfig) -> int:
    """Read a population's file as strictly as a simulation does, whatever its noise, and return the number of rows.

    Neither a log nor a ledger is opened, so whether it refuses is seen by whoever called it and by nobody else.

    Raises
    ------
    UserError
        For a value that is not declared, is no number or date, or is missing where the task says ``missing: error``; a
        row that cannot be read; one that names nobody, or no level; labels that are all the same; and people who are
        in the task's file of public covariates. Messages name file, row and column, and never a value.
    """
    source = crowd.open(task.with_simulated(crowd.seed is not None), strict=True)
    labels, rows = LabelSurvey(source), 0
    for block in source.blocks():
        labels.add(block)
        rows += len(block)
    labels.check()
    if task.public_path is not None:
        check_apart(source, task.public_path)
    return rows
