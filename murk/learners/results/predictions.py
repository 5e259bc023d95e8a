"""Predictions of a result for records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.learners.estimates.links import logistic
from murk.stream.task.data.features import ClassTarget, RealTarget
from murk.stream.task.task import Task

Array = NDArray[np.float64]


def predict(task: Task, coefficients: Mapping[str, float], records: Any) -> Array:
    """Return predictions for raw records, coded like on a device; see `Result.predict`.

    Raises UserError if the coefficients predict neither a probability nor a mean, or a column is missing.
    """
    coding, scale, target = task.coding, task.coefficient_scale, task.target
    if scale == "own" and not isinstance(target, ClassTarget):
        raise UserError(
            f"the coefficients of {task.name!r} are in the unit of its loss, and predict no probability or mean"
        )
    X = coding.encode(_columns(records, coding.columns), target=False).x
    if isinstance(target, ClassTarget):
        # A class without coefficients has zeros.
        lines = np.column_stack([
            X @ np.array([coefficients.get(f"{label}:{name}", 0.0) for name in coding.names])
            for label in target.classes
        ])  # fmt: skip
        if scale == "probability":
            # Each class's line through labels of -1 and +1, clipped and normalized to probabilities.
            chances = np.clip((1.0 + lines) / 2.0, 1e-6, 1.0)
            return np.asarray(chances / chances.sum(axis=1, keepdims=True))
        odds = np.exp(lines - lines.max(axis=1, keepdims=True))
        return np.asarray(odds / odds.sum(axis=1, keepdims=True))
    line = X @ np.array([coefficients[name] for name in coding.names])
    if isinstance(target, RealTarget):
        middle, half = (target.low + target.high) / 2.0, (target.high - target.low) / 2.0
        return np.asarray(np.clip(middle + half * line, target.low, target.high))
    if scale == "log odds":
        return logistic(line)
    # The line is the mean of labels -1 and +1.
    return np.asarray(np.clip((1.0 + line) / 2.0, 0.0, 1.0))


def _columns(records: Any, names: Sequence[str]) -> Mapping[str, Any]:
    if isinstance(records, str | bytes):
        raise UserError("predict takes records, not a file's name: give a sequence of mappings, or a frame")
    if isinstance(records, Mapping) and not all(isinstance(records.get(name), str | int | float) for name in names):
        return records
    if isinstance(records, Mapping):
        records = [records]
    if hasattr(records, "columns"):
        return {name: records[name] for name in names if name in list(records.columns)}
    rows = list(records)
    return {name: [row.get(name) for row in rows] for name in names}
