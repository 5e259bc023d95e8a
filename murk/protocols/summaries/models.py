"""Models of some columns on a log of released windows, by the sums of all columns; Newton steps serve none."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from murk.inference.estimate import Estimate
from murk.protocols.further_models import FurtherModel, all_numbers, own_model
from murk.protocols.summaries.device import GramDevice, SketchDevice
from murk.protocols.summaries.engine import GramEngine, SketchEngine
from murk.protocols.summaries.estimate import estimate, estimate_grams, influence_of
from murk.protocols.summaries.settings import GramSettings, SketchSettings
from murk.protocols.summaries.sums import GramSums, SketchSums
from murk.task.models import Columns, Model, task_of
from murk.task.task import Task

Sums = TypeVar("Sums", GramSums, SketchSums)


def part_of_sums(sums: Sums, columns: Columns) -> Sums:
    """Return the sums of a model's columns, the target last."""
    last = sums.columns - 1
    indices = [last if index < 0 else index for index in (*columns.places, columns.aim)]
    signs = np.ones(len(indices))
    signs[-1] = columns.sign
    part = type(sums)(len(indices))
    part.moment[...] = sums.moment[np.ix_(indices, indices)] * np.outer(signs, signs)
    for name in (*sums.scalars, *sums.counts):
        setattr(part, name, getattr(sums, name))
    return part


@dataclass(frozen=True)
class FurtherModelDevice:
    """The windows of a log, and a model of some columns."""

    whole: GramDevice | SketchDevice
    settings: GramSettings | SketchSettings  # the model's settings
    columns: Columns

    def check_state(self) -> None:
        """Raise UserError, with the size, if a state is too large for a log."""
        self.whole.check_state()

    def engine(self) -> GramPartEngine | SketchPartEngine:
        """Return a learner of the model, at version 0."""
        return GramPartEngine(self) if isinstance(self.whole, GramDevice) else SketchPartEngine(self)

    def estimate(self, engines: Sequence[Any]) -> Estimate:
        """Return the joint estimate of several partitions."""
        estimate: Estimate = engines[0].estimate(*engines[1:])
        return estimate


class _PartEngine:
    """Engine that keeps the sums of whole windows, and estimates a model of some columns."""

    def __init__(self, device: FurtherModelDevice) -> None:
        super().__init__(device.whole.settings, device.whole.mechanisms)  # type: ignore[call-arg]
        self._own: Any = device.settings
        self._columns = device.columns

    def adopt(self, whole: Any) -> None:
        """Continue from the sums of the task's own learner of the same windows."""
        self.sums = whole.sums

    @property
    def coefficients(self) -> int:
        """Number of coefficients."""
        return len(self._own.names)


class GramPartEngine(_PartEngine, GramEngine):
    """A `GramEngine` whose estimate is of some columns."""

    def _fit(self, sums: Sequence[GramSums]) -> Estimate:
        weight = self.target_weight if self._columns.own_target else 1.0
        estimate = estimate_grams(self._own, weight, [part_of_sums(each, self._columns) for each in sums])
        # The influence by all columns is no smaller than by the model's, whose eigenvalues are not below those of all.
        return replace(estimate, influence=influence_of(self.settings, self.mechanisms, sums[0].merged(*sums[1:])))


class SketchPartEngine(_PartEngine, SketchEngine):
    """A `SketchEngine` whose estimate is of some columns."""

    def _fit(self, sums: Sequence[SketchSums]) -> Estimate:
        return estimate(self._own, [part_of_sums(each, self._columns) for each in sums])


def part_of(model: Model, task: Task, columns: Columns, whole: Any) -> FurtherModel:
    """Return the part of released windows that a model uses, or raise UserError if they cannot serve it."""
    model.refuse_beyond((), task.protocol)
    others = ", ".join(feature.name for feature in task.features)
    if not isinstance(whole, GramDevice | SketchDevice):
        return own_model(
            model,
            task,
            whole,
            f"the log of {task.name!r} releases Newton steps, each made at the task's own model, which serve no other; "
            "summaries: {method: moments} in a task serves any of its columns",
        )
    if columns.uses_own_target and isinstance(whole, GramDevice):
        raise model.refuse(
            "features",
            f"{task.target.name!r}, the task's target, is released with other noise than its features, and cannot be a "
            f"feature: this log serves {others}",
        )
    # The quadratic's range, like the bound of a label, is of the task's target.
    kept = {"method", "rows", "window", "organisation", "person", "rows_per_person", "analysis", "neighbours"}
    kept |= {"range"} if columns.own_target else set()
    derived = task_of(model, task, columns, task.block.model_dump(mode="json", include=kept))
    names, kind = tuple(derived.coding.names), columns.target.kind
    # The bound on fewer features keeps its ratio to the largest norm that their bounds of [-1, 1] allow.
    share = math.sqrt(len(names) / len(whole.settings.names))
    shared: dict[str, Any] = {"names": names, "kind": kind}
    shared["reach"] = whole.settings.reach if columns.own_target else None
    shared["feature_bound"], shared["whole_bound"] = whole.settings.feature_bound * share, whole.settings.feature_bound
    shared["target_bound"] = whole.settings.target_bound if columns.own_target else 1.0
    note = "" if columns.own_target else f"; of records whose {task.target.name} is known"
    device = FurtherModelDevice(whole, replace(whole.settings, **shared), columns)
    return FurtherModel(derived, device, all_numbers, note, of_state=True)
