"""The device of released cells, shared by devices and learners. Does not import River."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from murk._internal.arrays import Floats
from murk.protocols.examples.cells import CellTable, cell_vectors
from murk.protocols.examples.settings import ExampleSettings, settle
from murk.task.privacy import cap_refusal
from murk.task.task import Task

if TYPE_CHECKING:
    from murk.inference.estimate import Estimate
    from murk.protocols.examples.admission import CellRules
    from murk.protocols.examples.cells_engine import CellEngine


@dataclass(frozen=True)
class CellDevice:
    """Released cells: a record's combination of values, and how a learner uses it."""

    settings: ExampleSettings  # public settings, from `settle`
    mechanisms: Mapping[str, Any]
    table: CellTable  # the model's columns and target in each cell
    kind = "example"
    interactive = False
    averages = False
    dimension = 1

    def check_state(self) -> None:
        """Accept every task, as the number of cells is limited."""

    def vectors(self, X: Floats, y: Floats, theta: Floats | None = None) -> Floats:
        """Return the vectors (x, y) of coded records ``X``, ``(m, p)``, the constant last; NaN without a target."""
        return cell_vectors(X, y, self.settings.features, self.settings.target)

    def admission(self) -> CellRules:
        """Return the rules by which this task's releases are admitted."""
        from murk.protocols.examples.admission import CellRules

        return CellRules(self.mechanisms, len(self.table.X))

    def engine(self) -> CellEngine:
        """Return a learner for this task's releases, at version 0."""
        from murk.protocols.examples.cells_engine import CellEngine

        return CellEngine(self.settings, self.mechanisms, table=self.table)

    def estimate(self, engines: Sequence[CellEngine]) -> Estimate:
        """Return the joint estimate of several partitions."""
        from murk.protocols.examples.cells_engine import estimate

        return estimate(engines)


def cell_device_for(task: Task, settings: ExampleSettings) -> CellDevice:
    """Return the device of a resolved task; raises UserError if a level's guarantee is impossible."""
    assert settings.cells is not None
    mechanisms = task.privacy.by_level(settings.mechanism)
    if task.privacy.per_person is not None and (why := cap_refusal(mechanisms, task.privacy.per_person)):
        raise task.error_at(why, "privacy", "per_person")
    return CellDevice(settle(settings, mechanisms), mechanisms, CellTable.of(settings.cells))
