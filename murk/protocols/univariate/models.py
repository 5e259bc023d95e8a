"""Models of some of a log's known columns: sums of each cell add up to those of fewer columns' cells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from murk._internal.arrays import Integers
from murk.inference.estimate import Estimate
from murk.privacy.mechanisms.known import KnownMechanism
from murk.protocols.further_models import FurtherModel, all_numbers
from murk.protocols.univariate.device import TargetDevice, device_for
from murk.protocols.univariate.engine import Sums, TargetEngine, estimated, parts_of
from murk.protocols.univariate.estimate import Totals
from murk.protocols.univariate.settings import Settings
from murk.protocols.univariate.statistics import Cells, Statistics, statistics_of
from murk.task.models import OWN, Columns, Model, task_of
from murk.task.task import Task


@dataclass(frozen=True)
class PartDevice(TargetDevice):
    """The target of a log, and the settings ``part`` of a model of fewer known columns."""

    part: Settings = field(kw_only=True)
    cells: Integers = field(kw_only=True)  # for each cell of the log, the model's cell

    def engine(self) -> TargetEngine:
        """Return a learner of the model, at version 0."""
        return PartEngine(self)


class PartEngine(TargetEngine):
    """Sums of all cells of a log, from which a model of fewer known columns is estimated."""

    def __init__(self, device: PartDevice) -> None:
        super().__init__(device.settings, device.mechanisms)
        self._device = device

    @property
    def coefficients(self) -> int:
        """Number of reported coefficients."""
        return len(self._device.part.names)

    def fit(self, totals: Sums, statistics: Mapping[str, Statistics], partitions: int) -> Estimate:
        """Return the model's coefficients from the sums of all partitions."""
        device, part = self._device, self._device.part
        target: Totals = totals
        if device.settings.metrics:
            _, target, statistics = parts_of(device.settings, totals, statistics)[0]
        folded: dict[str, tuple[int, list[int]]] = {}
        known: dict[str, Statistics] = {}
        for level, (count, sums) in target.items():
            # An array of Python integers, which do not overflow.
            by_cell = np.array(sums, dtype=object).reshape(device.settings.known.cells, -1)
            new = np.zeros((part.known.cells, by_cell.shape[1]), dtype=object)
            np.add.at(new, device.cells, by_cell)
            folded[level] = count, new.ravel().tolist()
            cells = statistics[level]
            assert isinstance(cells, Cells)
            mechanism = cells.mechanism
            known[level] = statistics_of(part, KnownMechanism(mechanism.noise, part.known.cells))
        return estimated(part, folded, known, partitions)

    def adopt(self, whole: TargetEngine) -> None:
        """Continue from the sums of the task's own learner."""
        self.totals = whole.totals


def part_of(model: Model, task: Task, columns: Columns, whole: TargetDevice) -> FurtherModel:
    """Return the part of a log's known columns that a model uses, or raise UserError if they cannot serve it."""
    if whole.settings.private:
        words = f"the log of {task.name!r} releases products of private features, which serve the task's own model only"
        raise model.refuse("name", f"{words}: `murk learn` fits it")
    model.refuse_beyond((), task.protocol)
    if columns.aim != OWN or columns.uses_own_target:
        raise model.refuse(
            "target",
            f"the log of {task.name!r} has known columns: it serves models of the task's own target by any of these "
            "columns; leave target out",
        )
    derived = task_of(model, task, columns, {})
    part = device_for(derived).settings
    places = [task.known_columns.index(name) for name in derived.known_columns]
    values = whole.settings.known.values(np.arange(whole.settings.known.cells))[:, places]
    cells = np.ravel_multi_index(tuple(values.T), [column.values for column in part.known.columns])
    device = PartDevice(whole.settings, whole.mechanisms, part=part, cells=cells.astype(np.int64))
    return FurtherModel(derived, device, all_numbers, of_state=True)
