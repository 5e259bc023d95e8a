"""`Device` classes of ``protocol: summaries``: what the windows of organisations release. Does not import River."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.wiping import track
from murk.errors import UserError
from murk.privacy import Guarantee, truncated_cap
from murk.privacy import central as sketches
from murk.privacy.central import GaussMixMechanism, GramMechanism, Neighbours, NewtonMechanism
from murk.privacy.central.gram_matrix import LARGEST_COLUMNS
from murk.privacy.central.newton_step import default_first
from murk.protocols.summaries.settings import GramSettings, NewtonSettings, SketchSettings, default_rows
from murk.stream.wire.releases import GramRelease, NewtonRelease, Release, SketchRelease
from murk.task.privacy import cap_refusal
from murk.task.protocols.summaries import GRAM, NEWTON
from murk.task.task import Task

if TYPE_CHECKING:
    from murk.inference.estimate import Estimate
    from murk.privacy.central import Newton, NewtonAccumulator, Sketch
    from murk.privacy.noise import NoiseSource
    from murk.stream.wire.admission import AdmissionRules

_ERROR_CODE = "MURK-LEARN-001"

Settings = SketchSettings | GramSettings | NewtonSettings


class WindowDevice:
    """Base class of devices for tasks to which organisations release windows of records."""

    settings: Any
    mechanisms: Any

    kind: ClassVar[str]
    interactive: ClassVar[bool] = False
    name: ClassVar[str]  # begins the names of the classes of its engine and its rules of admission
    adder: ClassVar[str]  # name of the class of its accumulators
    message: ClassVar[Any]  # class of its releases on a log

    @property
    def dimension(self) -> int:
        """Number of integers in a release."""
        dimension: int = self.settings.dimension
        return dimension

    @property
    def rows(self) -> int | None:
        """Number of rows of a mixture; None if nothing is mixed."""
        return getattr(self.settings, "rows", None)

    @property
    def fewest(self) -> int:
        """Least number of records in a source's last window for which that window is released."""
        # More rows than records cost time without gain, and fewer records than columns do not determine a fit.
        return self.rows or int(self.settings.columns)

    def check_state(self) -> None:
        """Raise UserError, with a size that fits, if a release is too long for a log."""
        self.settings.check_message()

    def accumulator(self, level: str, noise: NoiseSource | None, window: int) -> Any:
        """Return an accumulator of the rows of a window, at a level."""
        # Loaded on first access: learners do not need it.
        return getattr(sketches, self.adder)(self.mechanisms[level], noise, window)

    def release(self, made: Any, **fields: Any) -> Release:
        """Return the message of an accumulator's release ``made``, with further fields."""
        payload = self.message.packed(made.integers)
        release: Release = self.message(payload=payload, records=made.records, **fields)
        return release

    def admission(self) -> AdmissionRules:
        """Return the rules by which this task's releases are admitted."""
        # Imported here like the engine, as organisations do not need either.
        from murk.protocols.summaries import admission

        rules: AdmissionRules = getattr(admission, f"{self.name}Rules")(self.settings, self.mechanisms)
        return rules

    def engine(self) -> Any:
        """Return a learner of this task's releases, at version 0."""
        from murk.protocols.summaries import engine

        return getattr(engine, f"{self.name}Engine")(self.settings, self.mechanisms)

    def estimate(self, engines: Sequence[Any]) -> Estimate:
        """Return the joint estimate of several partitions."""
        estimate: Estimate = engines[0].estimate(*engines[1:])
        return estimate

    def records(self, X: Floats, y: Floats) -> Floats:
        """Return the rows ``(m, p + 1)`` of coded features ``X`` (m, p), the constant last, and targets ``y`` (m,).

        Binary targets 0 and 1 become -1 and +1. A record with a missing target (NaN) becomes a row of zeros.
        """
        targets = np.asarray(y, dtype=np.float64)
        if self.settings.kind == "binary":
            targets = track(2.0 * targets - 1.0)
        rows = track(np.column_stack([np.asarray(X, dtype=np.float64), targets]))
        rows[~np.isfinite(targets)] = 0.0
        return rows


@dataclass(frozen=True)
class SketchDevice(WindowDevice):
    """The device of a task to which organisations release sketches: Gaussian mixtures of a window's rows."""

    settings: SketchSettings
    mechanisms: dict[str, GaussMixMechanism]

    kind = "sketch"
    name = "Sketch"
    adder = "SketchAccumulator"
    message = SketchRelease

    def release(self, made: Sketch, **fields: Any) -> Release:
        """Return the message of a sketch."""
        return super().release(made, rows=made.rows, spread=made.spread, **fields)


@dataclass(frozen=True)
class GramDevice(WindowDevice):
    """The device of a task to which organisations release second moments of windows."""

    settings: GramSettings
    mechanisms: dict[str, GramMechanism]

    kind = GRAM
    name = "Gram"
    adder = "GramAccumulator"
    message = GramRelease


@dataclass(frozen=True)
class NewtonDevice(WindowDevice):
    """The device of a task to which organisations release Newton steps by windows."""

    settings: NewtonSettings
    mechanisms: dict[str, NewtonMechanism]

    kind = NEWTON
    name = "Newton"
    message = NewtonRelease

    @property
    def first_part(self) -> GramDevice:
        """The device of a window's first part alone."""
        return GramDevice(self.settings, {level: made.start for level, made in self.mechanisms.items()})

    def accumulator(self, level: str, noise: NoiseSource | None, window: int) -> NewtonAccumulator:
        """Return an accumulator whose model is estimated from the release of a window's first part alone."""
        from murk.protocols.summaries.newton_fit import first_model

        mechanism = self.mechanisms[level]
        return sketches.NewtonAccumulator(mechanism, partial(first_model, self.settings, mechanism), noise, window)

    def release(self, made: Newton, **fields: Any) -> Release:
        """Return the message of a Newton step."""
        return super().release(made, model=made.model.tolist(), **fields)


def windows_cap(mechanisms: Mapping[str, Any], level: str, count: int, delta: float) -> Guarantee:
    """Return a cap in tcdp for ``count`` windows at a level; raise `UserError` if another level cannot have it."""
    cap = truncated_cap(mechanisms[level], count, delta=delta)
    if why := cap_refusal(mechanisms, cap):
        raise UserError(f"privacy.per_person: {why}")
    return cap


def device_for(task: Task) -> SketchDevice | GramDevice | NewtonDevice:
    """Return the device of a task to which organisations release, or raise UserError if it has no mechanism."""
    block, coding, binary = task.block, task.coding, task.target.kind == "binary"
    if block is None:
        raise UserError(f"the task {task.name!r} has protocol: {task.protocol}, and organisations need summaries")
    shared: dict[str, Any] = {
        "names": tuple(coding.names),
        "feature_bound": math.sqrt(coding.largest_square) if block.feature_bound is None else block.feature_bound,
        "target_bound": 1.0 if block.target_bound is None else block.target_bound,
        "largest": 1.0,  # coded features are within [-1, 1]
        "kind": "binary" if binary else "real",
        "reach": block.range if binary else None,
        "window": block.window,
        "weighting": task.learner.weighting,
    }
    mixing: dict[str, Any] = {"method": block.method, "analysis": block.analysis}

    def mechanisms(settings: Settings) -> dict[str, Any]:
        """Return the mechanisms of all levels."""
        if isinstance(settings, GramSettings) and settings.columns > LARGEST_COLUMNS:
            # Checked before a mechanism raises a less helpful error.
            settings.check_message()
        people = block.most_rows
        made = {
            level: calibrate(settings, guarantee, neighbours=block.neighbours, mixing=mixing, rows_per_person=people)
            for level, guarantee in task.privacy.levels.items()
        }
        whole = task.privacy.per_person
        if whole is not None and whole.kind == "tcdp" and (why := cap_refusal(made, whole)):
            raise task.error_at(why, "privacy", "per_person")
        return made

    if block.method == "newton":
        del shared["target_bound"], shared["reach"]
        newton = NewtonSettings(**shared, first=first_part(block.first, coding.size, block.window))
        return NewtonDevice(newton, mechanisms(newton))
    if block.method == "moments":
        grams = GramSettings(**shared)
        return GramDevice(grams, mechanisms(grams))
    columns, rows = coding.size + 1, block.rows
    if rows is None:
        # More rows than records cost time without gain.
        rows = max(min(default_rows(columns), block.window or default_rows(columns)), 2 * columns)
    settings = SketchSettings(rows=rows, debiased=block.debiased, **shared)
    return SketchDevice(settings, mechanisms(settings))


def calibrate(
    settings: Settings, guarantee: Any, *, neighbours: Neighbours, mixing: Mapping[str, Any], rows_per_person: int = 1
) -> GaussMixMechanism | GramMechanism | NewtonMechanism:
    """Return the mechanism of a guarantee; ``mixing`` has the method and analysis of mixtures."""
    shared: dict[str, Any] = {
        "columns": settings.columns,
        "feature_bound": settings.feature_bound,
        "neighbours": neighbours,
    }
    if isinstance(settings, NewtonSettings):
        return NewtonMechanism.calibrate(guarantee, first=settings.first, rows_per_person=rows_per_person, **shared)
    shared["target_bound"] = settings.target_bound
    if isinstance(settings, GramSettings):
        return GramMechanism.calibrate(guarantee, rows_per_person=rows_per_person, **shared)
    return GaussMixMechanism.calibrate(guarantee, rows=settings.rows, **mixing, **shared)


def first_part(first: int | None, features: int, window: int | None) -> int:
    """Return the number of records in a window's first part: as given, or the default, at most half of the window."""
    if first is not None:
        return first
    first = default_first(features)
    return first if window is None else max(min(first, window // 2), 1)
