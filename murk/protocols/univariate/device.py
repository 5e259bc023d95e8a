"""The target of a task without features, or with known columns and private features, for devices and learners.

Does not import River.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.lazy import bounding
from murk.errors import UserError
from murk.privacy.mechanisms.selection import LEVELS
from murk.privacy.mechanisms.simplex import SimplexGaussian
from murk.protocols.univariate.columns import KnownColumns
from murk.protocols.univariate.settings import Settings, TargetMechanism
from murk.protocols.windows import windows_of
from murk.stream.wire.codec import MAX_MESSAGE, MAX_STATE, history_bytes
from murk.task.features import ClassTarget, RealTarget, quantile_name

if TYPE_CHECKING:
    from murk.inference.estimate import Estimate
    from murk.protocols.univariate.admission import TargetRules
    from murk.protocols.univariate.engine import TargetEngine
    from murk.task.task import Task

_ERROR_CODE = "MURK-LEARN-001"

_ENVELOPE, _NUMBER, _STATE_SUM = 512, 22, 24  # bytes of a release's other fields, of its numbers, and of a state's sums
_CELLS = 512  # sums of the largest grid of two classes


@dataclass(frozen=True)
class TargetDevice:
    """A task's target, and its mechanisms."""

    settings: Settings
    mechanisms: Mapping[str, TargetMechanism]
    kind: ClassVar[str] = "target"
    interactive: ClassVar[bool] = False

    @property
    def averages(self) -> bool:
        """Whether people release the mean of their records: true if a mean is learned with Gaussian noise."""
        is_mean = not (self.settings.classes or self.settings.quantiles or self.settings.metrics)
        return is_mean and isinstance(self.mechanisms["default"], SimplexGaussian)

    @property
    def cell_place(self) -> int | None:
        """Position of the number of the known cell in a payload, by which a shuffler forms crowds; None without one."""
        return (1 if self.settings.metrics else 0) if self.settings.known.columns else None

    @property
    def dimension(self) -> int:
        """Number of integers in a release."""
        return self.mechanisms["default"].dimension

    @property
    def of_target(self) -> TargetDevice:
        """The same device without metrics, for a person whose release is of the target."""
        if not self.settings.metrics:
            return self
        mechanisms = {level: mechanism.parts[0] for level, mechanism in cast("Any", self.mechanisms).items()}
        return TargetDevice(replace(self.settings, metrics=()), mechanisms)

    def check_state(self) -> None:
        """Raise UserError if releases or states are too large for a log."""
        sums = max(self.settings.categories, _CELLS) * len(self.mechanisms)
        if self.settings.known.columns:
            self._check_cells()
            return
        windows = 0 if self.settings.windows is None else self.settings.windows.kept
        state = (1 + windows) * _STATE_SUM * sums + history_bytes(len(self.settings.names)) + 4096
        if _ENVELOPE + _NUMBER * self.dimension > MAX_MESSAGE or state > MAX_STATE:
            raise UserError(
                f"{self.settings.classes:,} classes at {len(self.mechanisms)} levels make a learner's state of up to "
                f"{state / 2**20:.1f} MB, and a log accepts {MAX_STATE / 2**20:g} MB: give fewer classes, levels or "
                "windows (track)"
            )

    def _check_cells(self) -> None:
        known, levels = self.settings.known, len(self.mechanisms) * (1 + len(self.settings.metrics))
        # Counts of a number's outcomes are the most that is kept for a cell without private features.
        kept = max(1 + self.settings.categories, 1 + 2 * LEVELS if not self.settings.classes else 0)
        if self.settings.private:
            numbers = self.dimension - 1
            kept = 1 + numbers + numbers * (numbers + 1) // 2
        state = _STATE_SUM * known.cells * kept * levels + history_bytes(len(self.settings.names)) + 4096
        if state > MAX_STATE:
            raise UserError(
                f"{known.cells:,} combinations of known columns, missing values included, at {levels} levels make a "
                f"learner's state of up to {state / 2**20:.1f} MB, and a log accepts {MAX_STATE / 2**20:g} MB: give "
                "fewer known columns, private features, categories or levels, or code missing values as a category "
                "(missing: NAME)"
            )

    def vectors(self, X: Floats, y: Floats, theta: Floats | None = None) -> Floats:
        """Return the mechanism's inputs for coded records, (m, 1) or with known columns (m, 1 + k), for any `theta`."""
        return self.settings.vectors(X, np.asarray(y, dtype=np.float64))

    def admission(self) -> TargetRules:
        """Return the rules by which this task's releases are admitted."""
        from murk.protocols.univariate.admission import TargetRules

        return TargetRules(self.mechanisms)

    def engine(self) -> TargetEngine:
        """Return a learner for this task's releases, at version 0."""
        from murk.protocols.univariate.engine import TargetEngine

        return TargetEngine(self.settings, self.mechanisms)

    def estimate(self, engines: Sequence[TargetEngine]) -> Estimate:
        """Return the joint estimate of several partitions."""
        from murk.protocols.univariate.engine import merged

        return merged(engines)

    def windows(self, engines: Sequence[TargetEngine], reach: int = 0) -> dict[int, Estimate]:
        """Return the joint estimate of each kept window, with ``reach`` neighbours to either side, by number."""
        from murk.protocols.univariate.engine import estimates_by_window

        return estimates_by_window(engines, reach)


def device_for(task: Task) -> TargetDevice:
    """Return a resolved task's device; raise UserError if a guarantee does not fit."""
    target, names = task.target, task.coding.names
    classes = 0 if target.kind == "real" else 2
    if isinstance(target, ClassTarget):
        classes = len(target.classes)
        names = tuple(f"{label}:{name}" for label in target.classes for name in names)
    quantiles: tuple[float, ...] = ()
    if isinstance(target, RealTarget) and target.quantiles is not None:
        quantiles, names = target.quantiles, tuple(quantile_name(each, names[0]) for each in target.quantiles)
    # A missing share of zero states that every person has a target; rows that a person lacks have none.
    missing = target.missing_share != 0.0 or task.most_rows > 1
    known = KnownColumns.of(task)
    places = set(known.places)
    coded = len(task.coding.names) - 1
    private = tuple(each for each in range(coded) if known.columns and each not in places)
    rows = task.most_rows
    metrics = tuple(
        Settings(names, 2 if each.kind == "binary" else 0, each.missing_share != 0.0, (), known, private=private)
        for each in task.metrics
    )
    settings = Settings(names, classes, missing, quantiles, known, windows_of(task), rows, private, metrics)
    family = settings.family(bounding(task.privacy.levels).values())
    return TargetDevice(settings, task.privacy.by_level(lambda guarantee: settings.mechanism(guarantee, family)))
