"""Warnings about columns: constant, empty, or with many missing values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.learners.results.diagnosis import MATTERS, coded_as, kept_share
from murk.stream.task.data.columns import Cell
from murk.stream.task.data.features import INDICATOR, NumberFeature

if TYPE_CHECKING:
    from murk.learners.problem import Problem
    from murk.producers.populations.file_source import Block, FileSource
    from murk.stream.task.data.coding import Coding
    from murk.stream.task.task import Task


class ConstantSurvey:
    """Finds columns of a source that have one value in all rows, or none.

    The result depends on records, so only simulations are surveyed.
    """

    def __init__(self, source: FileSource) -> None:
        self._source = source
        coding = source.task.coding
        self._groups = _groups(coding)
        size = len(self._groups)
        self._low = [np.full(len(group), np.inf) for group in self._groups] + [np.array([np.inf])]
        self._high = [-low for low in self._low]
        self._seen = [False] * (size + 1)
        self._rows = 0
        self._sums = np.zeros((size + 1, 3))

    def add(self, block: Block) -> None:
        """Add a block of a simulation."""
        if not self._source.task.simulated:
            return
        values = [*(block.x[:, group] for group in self._groups), block.y[:, None]]
        self._rows += len(block.y)
        for position, column in enumerate(values):
            there = column[block.cells[:, position] < Cell.MISSING]
            self._sums[position] += np.array([len(there), there[:, 0].sum(), (there[:, 0] ** 2).sum()])
            if len(there):
                self._seen[position] = True
                self._low[position] = np.minimum(self._low[position], there.min(axis=0))
                self._high[position] = np.maximum(self._high[position], there.max(axis=0))

    def warnings(self) -> list[str]:
        """Return warnings about empty and constant columns, and about missing values."""
        source = self._source
        task = source.task
        if not task.simulated:
            return []
        found = []
        for position, name in enumerate((*task.coding.columns, task.coding.target)):
            where = f"the column {name!r} of {source.records}"
            if not self._seen[position]:
                found.append(f"{where} is empty in every row, so nothing is learned about it {_SEEN}")
            elif np.array_equal(self._low[position], self._high[position]):
                found.append(
                    f"{where} has the same value in every row, or only values beyond the same bound, so nothing is "
                    f"learned about it {_SEEN}"
                )
        return found + self._missing()

    def _missing(self) -> list[str]:
        """Return warnings about features whose missing values change their coefficient."""
        task, found = self._source.task, []
        coded = task.coding.encode_record({}, target=False).x
        for position, feature in enumerate(task.features):
            count, total, squares = self._sums[position].tolist()
            if not isinstance(feature, NumberFeature) or feature.missing == INDICATOR or not 0 < count < self._rows:
                continue
            share, mean = 1.0 - count / self._rows, total / count
            variance = squares / count - mean**2
            kept = kept_share(share, float(coded[self._groups[position][0]]) - mean, variance)
            # Constant columns have a warning of their own.
            if kept < MATTERS and self._low[position][0] < self._high[position][0]:
                typical = feature.low + (mean + 1.0) * (feature.high - feature.low) / 2.0
                found.append(
                    f"{100.0 * share:.2g}% of the column {feature.name!r} are missing and count as "
                    f"{coded_as(feature)}: its coefficient is about {kept:.2f} of what it is among complete records. "
                    f"To avoid this, set missing: {typical:.2g} (the mean of the others) or missing: indicator {_SEEN}"
                )
        return found


_SEEN = "(checked because this is a simulation; for real people nobody can check it)"


def constant_in_public(task: Task) -> list[str]:
    """Return warnings about coded features that are constant in a task's public covariates."""
    if task.covariates is None:
        return []
    points = task.covariates.points
    same = (points == points[:1]).all(axis=0)[:-1].tolist()
    return [
        f"{name!r} has the same value in all public rows, or only values beyond the same bound, so they do not show "
        "how it varies with other features"
        for name, constant in zip(task.coding.names, same, strict=False)
        if constant
    ]


def check_public(task: Task, problem: Problem) -> None:
    """Raise a UserError naming constant coded features if nothing can be learned with a task's public covariates."""
    try:
        problem.engine()
    except UserError as error:
        raise UserError("; ".join([*constant_in_public(task), str(error)])) from None


def _groups(coding: Coding) -> list[NDArray[np.intp]]:
    """Return the indices of the coded features of each raw one."""
    found, start = [], 0
    for index in range(len(coding.columns)):
        size = len(coding.names_of(index))
        found.append(np.arange(start, start + size))
        start += size
    return found
