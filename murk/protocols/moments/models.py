"""Models on a log of released moments, whose means contain all features' products with each other and the target.

The target's square is not released, so it is no feature of a model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from murk.protocols.further_models import FurtherModel, all_numbers
from murk.protocols.mean_functions import LINKS, LOSSES, curve_of, response_range_of
from murk.protocols.moments.device import MomentDevice
from murk.protocols.moments.model import MomentModel
from murk.protocols.moments.statistics import Statistics
from murk.protocols.moments.sums import MomentSums, Private
from murk.protocols.stated import StatedCoordinates
from murk.task.models import Columns, Model, task_of
from murk.task.task import Task


@dataclass(frozen=True)
class PartModel(MomentModel):
    """The model of some columns, fitted to the sums of whole releases; ``labels`` if the task's targets are labels."""

    columns: Columns = field(kw_only=True)
    names: tuple[str, ...] = field(kw_only=True)
    labels: bool = field(kw_only=True)

    def size(self, layout: Statistics) -> int:
        """Return the number of coefficients."""
        return len(self.names)

    def own_layout(self, layout: Statistics) -> Statistics:
        """Return the layout of the model's columns."""
        coordinates = None if layout.coordinates is None else layout.coordinates.part(self.columns.places, -1)
        return replace(layout, names=self.names, coordinates=coordinates)

    def private(self, sums: MomentSums, layout: Statistics) -> Private:
        """Return the means of the model's columns, with the noise of the whole release."""
        return part_of_means(Private.of(sums, layout, self.labels), self.columns, layout.coordinates)


def part_of_means(private: Private, columns: Columns, coordinates: StatedCoordinates | None = None) -> Private:
    """Return the means of a model's columns, with the noise of the release; a feature as target is in coded units."""
    indices = list(columns.places)
    among = np.ix_(indices, indices)
    part = replace(private, matrix=private.matrix[among], matrix_noise=private.matrix_noise[among])
    if columns.own_target:
        return replace(part, cross=private.cross[indices])
    cross, people = columns.sign * private.matrix[indices, columns.aim], (private.people[0], private.people[0])
    # Off the diagonal, all entries have the same noise.
    noise = float(private.matrix_noise[indices[0], columns.aim])
    part = replace(part, cross=cross, cross_noise=noise, people=people)
    if coordinates is None:
        return part
    centre, spread = columns.sign * coordinates.centres[columns.aim], coordinates.spreads[columns.aim]
    mean, square = cross[-1], private.matrix[columns.aim, columns.aim]
    square += 2.0 * math.sqrt(private.matrix_noise[columns.aim, columns.aim])
    square = centre**2 + 2.0 * centre * spread * mean + spread**2 * square
    cross = spread * cross + centre * part.matrix[:, -1]
    bound = min(max(float(square), float(cross[-1]) ** 2), 1.0)
    return replace(part, cross=cross, cross_noise=spread**2 * noise, centre=centre, target_square=bound)


def part_of(model: Model, task: Task, columns: Columns, whole: Any) -> FurtherModel:
    """Return the part of released moments that a model uses, or raise UserError if they cannot serve it."""
    model.refuse_beyond(("loss", "link", "solver"), task.protocol)
    others = ", ".join(feature.name for feature in task.features)
    if not whole.layout.constant:
        raise model.refuse("name", f"the log of {task.name!r} has no constant (moments.intercept: false)")
    if columns.uses_own_target:
        raise model.refuse(
            "features",
            f"{task.target.name!r}, the task's target, is released without its square, and cannot be a feature: this "
            f"log serves {others}",
        )
    binary = columns.target.kind == "binary"
    key, wrong, choices = ("loss", "link", LOSSES) if binary else ("link", "loss", LINKS)
    if getattr(model, wrong) is not None:
        raise model.refuse(wrong, f"has no effect on a {columns.target.kind} target; remove it, or give {key}")
    if model.solver == "score" and (whole.model.public is None or getattr(model, key) == "identity"):
        raise model.refuse("solver", "score needs the task's public covariates, and a loss or link; use stein")
    block: Mapping[str, Any] = {"release": task.block.release, key: getattr(model, key)}
    derived = task_of(model, task, columns, block)
    curve = curve_of(getattr(derived.block, key), choices, key)
    public = whole.model.public and whole.model.public.select(list(columns.places))
    fitted = curve, response_range_of(columns.target, curve), public
    ways = task.block.covariance, model.solver, task.block.repair
    names, labels = tuple(derived.coding.names), task.target.kind == "binary"
    used = PartModel(*fitted, *ways, columns=columns, names=names, labels=labels)
    device = MomentDevice(whole.layout, used, whole.mechanisms, whole.binary)
    note = f"; of people whose {task.target.name} is known" if whole.layout.observed and not columns.own_target else ""
    return FurtherModel(derived, device, all_numbers, note, of_state=True)
