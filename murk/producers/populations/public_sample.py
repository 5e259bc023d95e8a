"""Public covariates from a file: features that everyone may know, without the target."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.producers.populations.records.files import open_table
from murk.stream.task.data.columns import Cell
from murk.stream.task.task import Task


def public_covariates(path: Path, task: Task) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the distinct coded features of a file and how often each occurs; the target is not read.

    Missing values are coded by the task's rule. For features with a ``missing_share``, values of further rows are
    removed until that share is missing: pseudorandomly, and the same ones at every reading.

    Raises UserError if the file cannot be read, lacks a column, has fewer than two rows, or has an undeclared value.
    """
    coding = task.coding
    table = open_table(path, list(coding.columns))
    records = list(table.rows(0))
    if len(records) < 2:
        raise UserError(f"{path} has {len(records)} rows: a sample of public covariates needs at least 2")
    rows = range(len(records))
    columns = table.columns(records, rows, coding.columns)
    coded = coding.encode(columns, target=False)
    stated = [feature.missing_share for feature in task.features]
    for row, column in zip(*np.nonzero(coded.cells[:, : len(stated)] >= Cell.MISSING), strict=True):
        name, cell = coded.columns[column], Cell(int(coded.cells[row, column]))
        if cell == Cell.MISSING and stated[column] is not None:
            continue
        raise UserError(
            f"{path}, row {row + 1}, column {name!r}: the value {cell.describe()}. "
            "Public covariates must be complete and declared: correct it, leave the row out, or state in the task "
            "which share of people's values is missing (missing_share)"
        )
    if any(stated):
        absent = left_out(coded.cells[:, : len(stated)] == Cell.MISSING, stated)
        thinned = {
            name: [None if out else value for value, out in zip(columns[name], absent[:, index].tolist(), strict=True)]
            for index, name in enumerate(coding.columns)
        }
        coded = coding.encode(thinned, target=False)
    points, counts = np.unique(coded.x, axis=0, return_counts=True)
    return points, counts.astype(np.int64)


def left_out(missing: NDArray[np.bool_], stated: Sequence[float | None]) -> NDArray[np.bool_]:
    """Return which values (m, features) to treat as missing, so that each feature's stated share is missing.

    ``missing`` values stay missing; a share of None changes nothing.
    """
    missing = missing.copy()
    for column, share in enumerate(stated):
        if share is None:
            continue
        more = round(share * len(missing)) - int(missing[:, column].sum())
        if more > 0:
            rng = np.random.Generator(np.random.Philox(key=[0x6D697373, column]))
            missing[rng.choice(np.flatnonzero(~missing[:, column]), size=more, replace=False), column] = True
    return missing
