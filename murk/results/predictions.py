"""Predictions of a result for records, with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Floats
from murk._internal.links import class_probabilities, logistic
from murk.errors import UserError
from murk.inference.average_effects import combined_half_widths
from murk.inference.estimate import RANDOM_SCALING, Estimate
from murk.inference.prediction_sets import PredictionSets
from murk.inference.units import coded_unit
from murk.task.features import ClassTarget, RealTarget, words_of
from murk.task.task import Task

_ERROR_CODE = "MURK-LEARN-001"

_LEAST = 1e-6  # least probability of a class that is predicted by a line through labels


def predict(task: Task, coefficients: Mapping[str, float], records: Any) -> Floats:
    """Return predictions for raw records, coded like on a device; raise UserError as `Result.predict` does."""
    _refuse_quantiles(task)
    X = _coded(task, records)
    # For a class without coefficients they count as zero.
    by_label = [[coefficients.get(f"{label}{name}", 0.0) for name in task.coding.names] for label in _labels(task)]
    lines = np.column_stack([X @ np.array(theta) for theta in by_label])
    if isinstance(task.target, ClassTarget):
        return _class_shares(task, lines)
    return _mean(task, lines[:, 0])


def predicted_intervals(task: Task, estimate: Estimate, records: Any, level: float = 0.95) -> Floats:
    r"""Return intervals of the predictions for raw records: (m, 2), or (m, K, 2) for classes; see `predict`.

    A probability or mean is a monotone function of ``x'theta``, which maps the ends of the interval ``x'theta +- h``,
    with h from `combined_half_widths`. A class's log odds ``t_k = log(p_k / (1 - p_k))`` have the standard error of the
    delta method, with the gradient ``x (1[l = k] - 1[l != k] p_l / (1 - p_k))`` in the coefficients of class l; for
    lines through labels the same holds for ``p_k``. Intervals lie within the target's range; if a coefficient was not
    learned, they are the whole range. Raises UserError like `predict`, and for random scaling, which has no covariance.

    Source: Oehlert, "A note on the delta method", American Statistician 46(1), 1992.
    """
    _refuse_quantiles(task)
    if estimate.method == RANDOM_SCALING:
        raise UserError(
            "random scaling estimates no covariance, so predictions have no intervals: see the task's "
            "`learner: {intervals: ...}`"
        )
    X = _coded(task, records)
    # Without an intercept, or without coefficients of a class, columns are left out.
    columns, indices = [], []
    for label in _labels(task):
        names = [f"{label}{name}" for name in task.coding.names]
        columns.append([column for column, name in enumerate(names) if name in estimate.names])
        indices.append([estimate.names.index(name) for name in names if name in estimate.names])
    lines = np.column_stack([X[:, own] @ estimate.values[index] for own, index in zip(columns, indices, strict=True)])

    def halves(factors: Floats) -> Floats:
        weights = np.zeros((len(X), len(estimate.names)))
        for factor, column, index in zip(factors.T, columns, indices, strict=True):
            weights[:, index] = factor[:, None] * X[:, column]
        return combined_half_widths(estimate, weights, level)

    if not isinstance(task.target, ClassTarget):
        half = halves(np.ones((len(X), 1)))
        return np.column_stack([_mean(task, lines[:, 0] - half), _mean(task, lines[:, 0] + half)])
    by_line = task.coefficient_scale == "probability"
    shares = _class_shares(task, lines)
    total = np.clip((1.0 + lines) / 2.0, _LEAST, 1.0).sum(axis=1, keepdims=True)
    intervals = np.empty((*shares.shape, 2))
    for k, share in enumerate(shares.T):
        is_class = np.arange(shares.shape[1]) == k
        rest = np.maximum(1.0 - share, 1e-12)[:, None]
        half = halves(
            (is_class - share[:, None]) / (2.0 * total) if by_line else np.where(is_class, 1.0, -shares / rest)
        )
        for end, sign in enumerate((-1.0, 1.0)):
            if by_line:
                intervals[:, k, end] = np.clip(share + sign * half, 0.0, 1.0)
            else:
                intervals[:, k, end] = logistic(np.log(np.maximum(share, 1e-12) / rest[:, 0]) + sign * half)
    return intervals


def _refuse_quantiles(task: Task) -> None:
    if isinstance(task.target, RealTarget) and task.target.quantiles is not None:
        raise UserError(
            "a task of quantiles predicts no mean: read its quantiles from the result, or leave target.quantiles out"
        )


def predicted_sets(task: Task, estimate: Estimate, records: Any) -> NDArray[Any]:
    """Return prediction sets of raw records; see `Result.predict_sets`."""
    if estimate.sets is None:
        raise UserError(
            f"the people of {task.name!r} were not asked about prediction sets: a task with `predictions: {{coverage: "
            "0.9}` asks them"
        )
    X = _coded(task, records)
    target = task.target
    if not isinstance(target, RealTarget):
        return estimate.sets.members(X)
    return np.asarray((target.low + target.high) / 2.0 + coded_unit(task) * estimate.sets.intervals(X))


def describe_prediction(task: Task, estimate: Estimate, record: Mapping[str, str], level: float) -> dict[str, Any]:
    """Return the prediction for one record and its interval at ``level``, by class if there are several.

    An empty value is a missing one. Raises UserError if a feature is not given, another one is, or a value is not
    declared or beyond its bounds: a typing error would otherwise count as a missing value.
    """
    columns = task.coding.columns
    if not columns:
        raise UserError("predict: the task has no features, so its estimate is the prediction; leave --predict out")
    for name in (*columns, *record):
        if name not in columns or name not in record:
            reason = "not a feature of the task" if name not in columns else "not given"
            raise UserError(f"predict: {name!r} is {reason}; give a value of each of {', '.join(columns)}")
    coded = task.coding.encode({name: [value] for name, value in record.items()}, target=False)
    if coded.clamped.any() or coded.missing.sum() != sum(value == "" for value in record.values()):
        raise UserError(
            f"predict: {dict(record)} has a value that the task does not declare, or one beyond its bounds; give "
            "declared values, or nothing after = for a missing one"
        )
    theta = dict(zip(estimate.names, map(float, estimate.values), strict=True))
    values = np.atleast_1d(predict(task, theta, [record])[0]).tolist()
    pairs = predicted_intervals(task, estimate, [record], level).reshape(-1, 2).tolist()
    target = task.target
    labels = target.classes if isinstance(target, ClassTarget) else [getattr(target, "positive", "mean")]
    of = {label: {"value": value, "interval": pair} for label, value, pair in zip(labels, values, pairs, strict=True)}
    described = {"at": dict(record), "target": target.name, "of": of}
    if estimate.sets is not None and estimate.sets.known:
        described |= _describe_set(task, estimate.sets, predicted_sets(task, estimate, [record])[0].tolist())
    return described


def _describe_set(task: Task, sets: PredictionSets, members: list[Any]) -> dict[str, Any]:
    """Return a record's prediction set, and a sentence about it."""
    target = task.target
    if isinstance(target, RealTarget):
        chosen, words = members, f"between {members[0]:.4g} and {members[1]:.4g}"
    else:
        if isinstance(target, ClassTarget):
            labels: Sequence[str] = target.classes
        else:
            labels = target.negative or f"not {target.positive}", target.positive
        chosen = [label for label, inside in zip(labels, members, strict=True) if inside]
        words = " or ".join(chosen) or "none of the labels, as none is likely enough"
    sentence = f"A person's {words_of(target)} is {words}, by prediction sets of {sets.coverage:.0%} coverage."
    return {"set": chosen, "set_words": sentence}


def _coded(task: Task, records: Any) -> Floats:
    if task.coefficient_scale == "own" and not isinstance(task.target, ClassTarget):
        raise UserError(
            f"coefficients of {task.name!r} are in the unit of its loss, and predict no probability or mean"
        )
    if not task.features:
        return np.ones((len(records), 1))
    return np.asarray(task.coding.encode(_columns(records, task.coding.columns), target=False).x)


def _labels(task: Task) -> list[str]:
    """Return the prefix of coefficients' names for each class; without classes, only the empty prefix."""
    return [f"{label}:" for label in task.target.classes] if isinstance(task.target, ClassTarget) else [""]


def _mean(task: Task, line: Floats) -> Floats:
    """Return the mean of a real target, or the probability of a binary one's positive value."""
    target = task.target
    if isinstance(target, RealTarget):
        middle, half = (target.low + target.high) / 2.0, (target.high - target.low) / 2.0
        return np.asarray(np.clip(middle + half * line, target.low, target.high))
    if task.coefficient_scale == "log odds":
        return logistic(line)
    # The line is the mean of labels -1 and +1.
    return np.asarray(np.clip((1.0 + line) / 2.0, 0.0, 1.0))


def _class_shares(task: Task, lines: Floats) -> Floats:
    """Return probabilities of classes, (m, K), from lines of log odds or through labels of -1 and +1."""
    if task.coefficient_scale != "probability":
        return class_probabilities(lines, np.eye(lines.shape[1]))
    chances = np.clip((1.0 + lines) / 2.0, _LEAST, 1.0)
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


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
