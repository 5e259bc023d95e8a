"""Models on a log of released windows: other columns, or another target.

A window's second moments, or its mixtures of records, are those of any of its columns. The sums of whole windows are
kept, and a model's own are taken from them when it is fitted. A Newton step was made at the task's own model, and
serves no other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from murk.learners.core.part import Part, all_numbers
from murk.learners.estimates.estimate import Estimate
from murk.learners.sketches.engine import GramEngine, SketchEngine
from murk.learners.sketches.estimates import estimate, estimate_grams, influence_of
from murk.learners.sketches.problem import GramProblem, SketchProblem
from murk.learners.sketches.settings import GramSettings, SketchSettings
from murk.learners.sketches.sums import GramSums, SketchSums
from murk.privacy.sketches import GaussMixMechanism, GramMechanism
from murk.stream.task.model import Columns, Model, task_of
from murk.stream.task.task import Task

Sums = TypeVar("Sums", GramSums, SketchSums)


def part_of_sums(sums: Sums, columns: Columns) -> Sums:
    """Return the sums of a model's columns, the target last."""
    last = sums.columns - 1
    places = [last if place < 0 else place for place in (*columns.places, columns.aim)]
    signs = np.ones(len(places))
    signs[-1] = columns.sign
    part = type(sums)(len(places))
    part.moment[...] = sums.moment[np.ix_(places, places)] * np.outer(signs, signs)
    for name in (*sums.scalars, *sums.counts):
        setattr(part, name, getattr(sums, name))
    return part


@dataclass(frozen=True)
class GramFit:
    """A regression of some columns of Gram matrices. ``settings`` are the model's, ``whole`` those of the log."""

    settings: GramSettings
    whole: GramSettings
    columns: Columns
    mechanisms: dict[str, GramMechanism]

    def __call__(self, sums: Sequence[GramSums]) -> Estimate:
        """Return the joint estimate from the sums of several chains."""
        target_weight = next(iter(self.mechanisms.values())).target_weight if self.columns.own_target else 1.0
        found = estimate_grams(self.settings, target_weight, [part_of_sums(each, self.columns) for each in sums])
        # No smaller than for the model's columns alone, whose eigenvalues are not below those of all.
        return replace(found, influence=influence_of(self.whole, self.mechanisms, sums[0].merged(*sums[1:])))


@dataclass(frozen=True)
class SketchFit:
    """A regression of some columns of sketches, with the model's settings."""

    settings: SketchSettings
    columns: Columns

    def __call__(self, sums: Sequence[SketchSums]) -> Estimate:
        """Return the joint estimate from the sums of several chains."""
        return estimate(self.settings, [part_of_sums(each, self.columns) for each in sums])


class GramPartEngine(GramEngine):
    """A `GramEngine` whose estimate is of some columns."""

    def __init__(self, settings: GramSettings, mechanisms: dict[str, GramMechanism], fit: GramFit) -> None:
        super().__init__(settings, mechanisms)
        self.fit = fit

    @property
    def coefficients(self) -> int:
        """Number of coefficients."""
        return len(self.fit.settings.names)

    def estimate(self) -> Estimate:
        """Return coefficients in coded units with their intervals."""
        return self.fit([self.sums])


class SketchPartEngine(SketchEngine):
    """A `SketchEngine` whose estimate is of some columns."""

    def __init__(self, settings: SketchSettings, mechanisms: dict[str, GaussMixMechanism], fit: SketchFit) -> None:
        super().__init__(settings, mechanisms)
        self.fit = fit

    @property
    def coefficients(self) -> int:
        """Number of coefficients."""
        return len(self.fit.settings.names)

    def estimate(self) -> Estimate:
        """Return coefficients in coded units with their intervals."""
        return self.fit([self.sums])


@dataclass(frozen=True)
class PartProblem:
    """The windows of a log, and a model of some columns."""

    whole: GramProblem | SketchProblem
    fit: Any

    def check_state(self) -> None:
        """Raise UserError, with the size, if a state is too large for a log."""
        self.whole.check_state()

    def engine(self) -> GramPartEngine | SketchPartEngine:
        """Return a learner of the model, at version 0."""
        whole = self.whole
        if isinstance(whole, GramProblem):
            return GramPartEngine(whole.settings, whole.mechanisms, self.fit)
        return SketchPartEngine(whole.settings, whole.mechanisms, self.fit)

    def estimate(self, engines: Sequence[Any]) -> Estimate:
        """Return the joint estimate of several chains."""
        found: Estimate = self.fit([engine.sums for engine in engines])
        return found


def part_of(model: Model, task: Task, columns: Columns, whole: Any) -> Part:
    """Return the part of released windows that a model uses.

    Raises UserError if they cannot serve the model, with what they could serve.
    """
    model.refuse_beyond((), task.protocol)
    others = ", ".join(feature.name for feature in task.features)
    if not isinstance(whole, GramProblem | SketchProblem):
        raise model.refuse(
            "name",
            f"the log of {task.name!r} releases Newton steps, each made at the task's own model, which serve no other; "
            "sketch: {method: moments} in a task serves any of its columns",
        )
    if columns.uses_own_target and isinstance(whole, GramProblem):
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
    # Bounds keep their ratio to the box.
    share = math.sqrt(len(names) / len(whole.settings.names))
    own: dict[str, Any] = {"names": names, "kind": kind}
    own["reach"] = whole.settings.reach if columns.own_target else None
    own["feature_bound"], own["whole_bound"] = whole.settings.feature_bound * share, whole.settings.feature_bound
    own["target_bound"] = whole.settings.target_bound if columns.own_target else 1.0
    settings = replace(whole.settings, **own)
    note = "" if columns.own_target else f"; of records whose {task.target.name} is known"
    if isinstance(whole, GramProblem):
        assert isinstance(settings, GramSettings)
        fit: Any = GramFit(settings, whole.settings, columns, whole.mechanisms)
    else:
        assert isinstance(settings, SketchSettings)
        fit = SketchFit(settings, columns)
    return Part(derived, PartProblem(whole, fit), all_numbers, note)
