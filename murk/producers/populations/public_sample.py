"""Public covariates from a file: features that everybody may know, without the target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.producers.populations.records.files import open_table
from murk.stream.task.data.columns import Cell
from murk.stream.task.task import Task


def public_covariates(path: Path, task: Task) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Read the distinct coded features of a file and how often each occurs; the target is not read.

    Raises
    ------
    UserError
        When the file cannot be read, lacks a column, has fewer than two rows, or holds a value that the task
        does not declare.
    """
    coding = task.coding
    table = open_table(path, list(coding.columns))
    records = list(table.rows(0))
    if len(records) < 2:
        raise UserError(f"{path} has {len(records)} rows: a sample of public covariates needs at least 2")
    rows = range(len(records))
    coded = coding.encode(table.columns(records, rows, coding.columns), target=False)
    for row, column in zip(*np.nonzero(coded.cells >= Cell.MISSING), strict=True):
        name, cell = coded.columns[column], Cell(int(coded.cells[row, column]))
        raise UserError(
            f"{path}, row {row + 1}, column {name!r}: the value {cell.describe()}. "
            "Public covariates must be complete and declared: correct it, or leave the row out"
        )
    points, counts = np.unique(coded.x, axis=0, return_counts=True)
    return points, counts.astype(np.int64)
