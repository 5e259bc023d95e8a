"""Shares and means of each combination of known columns, for reports."""

from __future__ import annotations

from typing import Any, Final

from murk.inference.estimate import Estimate
from murk.inference.known_columns import cells_of
from murk.inference.levels import quantile_of
from murk.inference.units import POINTS
from murk.task.features import CategoryFeature, ClassTarget, RealTarget
from murk.task.task import Task

MISSING: Final = "missing"  # value of a column that is missing or undeclared


def describe_cells(task: Task, estimate: Estimate, level: float) -> list[dict[str, Any]] | None:
    """Return, for each combination of known columns, the people and the shares or the mean; None without known columns.

    Shares are in percent. Intervals are at ``level``, and infinite where too few people answered.
    """
    if not task.known_columns:
        return None
    cells = cells_of(estimate)
    if cells is None:
        return []
    features = [feature for feature in task.features if isinstance(feature, CategoryFeature) and feature.known]
    target, quantile, rows = task.target, quantile_of(level), []
    names, factor, shift, low, high = [target.name], POINTS, 0.0, 0.0, POINTS
    columns = [cells.means.shape[1] - 1]
    if isinstance(target, ClassTarget):
        names, columns = [f"{target.name} = {label}" for label in target.classes], list(range(len(target.classes)))
    elif isinstance(target, RealTarget):
        low, high = target.low, target.high
        factor, shift = (high - low) / 2.0, (high + low) / 2.0
    else:
        names = [f"{target.name} = {target.positive}"]
    for values, people, means, errors in zip(cells.values, cells.counts, cells.means, cells.errors, strict=True):
        pairs = zip(features, values.tolist(), strict=True)
        entry: dict[str, Any] = {
            "known": {each.name: [*each.categories, MISSING][value] for each, value in pairs},
            "people": int(people),
        }
        for name, column in zip(names, columns, strict=True):
            value, half = shift + factor * float(means[column]), quantile * factor * float(errors[column])
            ends = [max(value - half, low), min(value + half, high)] if half < float("inf") else [-half, half]
            entry[name] = {"value": min(max(value, low), high), "interval": ends}
        rows.append(entry)
    return rows
