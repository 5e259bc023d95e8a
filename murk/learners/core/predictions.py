"""Predictions of labels and targets, and codes of labels."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from river.utils import dataframe

from murk.errors import UserError
from murk.learners.core.estimator import Record, StreamEstimator, series
from murk.learners.core.values import frame_of, number, target, targets
from murk.stream.task.data.containers import column_array


class LabelEstimator(StreamEstimator):
    """Base class of classifiers: before the first release all labels are equally likely."""

    classes: Sequence[Any]
    _codes: Mapping[Any, float]

    def _coded_one(self, y: Any) -> float:
        return code_of(y, self._codes)

    def _coded_many(self, y: Any) -> NDArray[np.float64]:
        return codes_of(y, self._codes)

    @abstractmethod
    def _chances(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return probabilities of the classes, ``(n, K)``, for rows of features without the constant, ``(n, d)``."""

    def predict_proba_one(self, x: Record, **kwargs: Any) -> dict[Any, float]:
        """Return the probability of each label; before the first release all are equal."""
        if not self.n_releases:
            return dict.fromkeys(self.classes, 1.0 / len(self.classes))
        row = np.array([[number(x.get(name)) for name in self._names]])
        return dict(zip(self.classes, self._chances(row)[0].tolist(), strict=True))

    def predict_proba_many(self, X: Any) -> Any:
        """Return probabilities for the rows of a data frame or an ``(n, d)`` array, one column for each label."""
        table = self._table(X)
        if isinstance(X, np.ndarray):
            return table
        frame = frame_of(X)
        if not frame.implementation.is_pandas_like() and len(set(map(str, self.classes))) < len(self.classes):
            raise UserError(
                f"the classes {self.classes!r} are not distinct as text, and a {type(X).__name__} names columns by "
                "text: give a pandas frame or an array, or use classes that are distinct as text"
            )
        columns = {label: table[:, index] for index, label in enumerate(self.classes)}
        return dataframe.to_native_frame(columns, like=frame)

    def predict_many(self, X: Any) -> Any:
        """Return labels for the rows of a data frame or an ``(n, d)`` array."""
        labels = _labels(self.classes)[np.argmax(self._table(X), axis=1)]
        try:
            return series(labels, X, None)
        except UserError:
            raise
        except Exception as error:
            # Arrow and Polars, whose columns have one type each, raise their own errors.
            raise UserError(
                f"the classes {self.classes!r} do not fit into one column of a {type(X).__name__}: give a pandas "
                "frame or an array, or use classes of one type"
            ) from error

    def _table(self, X: Any) -> NDArray[np.float64]:
        if not self.n_releases:
            return np.full((len(X), len(self.classes)), 1.0 / len(self.classes))
        return self._chances(self._matrix(X, self._names))


class TargetEstimator(StreamEstimator):
    """Base class of regressors: before the first release they predict the middle of the target's range."""

    _middle: float = 0.0

    def _coded_one(self, y: Any) -> float:
        return target(y)

    def _coded_many(self, y: Any) -> NDArray[np.float64]:
        return targets(y)

    @abstractmethod
    def _means(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return predicted targets, ``(n,)``, for rows of features without the constant, ``(n, d)``."""

    def predict_one(self, x: Record, **kwargs: Any) -> float:
        """Return the predicted target; before the first release the middle of its range."""
        if not self.n_releases:
            return self._middle
        return float(self._means(np.array([[number(x.get(name)) for name in self._names]]))[0])

    def predict_many(self, X: Any) -> Any:
        """Return predictions for the rows of a data frame or an ``(n, d)`` array."""
        predicted = self._means(self._matrix(X, self._names)) if self.n_releases else np.full(len(X), self._middle)
        return series(predicted, X, None)


def _labels(classes: Sequence[Any]) -> NDArray[Any]:
    """Return the classes as an array that keeps their types; numpy itself would turn numbers among text into text."""
    if {type(label) for label in classes} in ({bool}, {str}, {int}, {float}):
        array = np.array(list(classes))
        if array.dtype.kind in "bUif":
            return array
    objects = np.empty(len(classes), dtype=object)
    for index, label in enumerate(classes):
        objects[index] = label
    return objects


def two_labels(classes: Sequence[Any], codes: tuple[float, float] = (0.0, 1.0)) -> dict[Any, float]:
    """Return the code of each of two classes, or raise UserError if they are not two distinct labels."""
    if len(classes) != 2 or classes[0] == classes[1]:
        raise UserError(f"classes must be two distinct labels, got {classes!r}; for more use LDPSGDClassifier")
    return dict(zip(classes, codes, strict=True))


def several_labels(classes: Sequence[Any]) -> dict[Any, float]:
    """Return each class's index as its code, or raise UserError unless there are at least two distinct labels."""
    codes = {label: float(index) for index, label in enumerate(classes)}
    if len(codes) != len(classes) or len(classes) < 2:
        raise UserError(f"classes must be at least two distinct labels, got {classes!r}")
    return codes


def two_chances(positive: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the probabilities of two classes from the probability of the second."""
    return np.column_stack([1.0 - positive, positive])


def code_of(label: Any, codes: Mapping[Any, float]) -> float:
    """Return a label's code, or NaN if it is not one of the classes."""
    try:
        return codes.get(label, math.nan)
    except TypeError:  # not hashable, so not a class
        return math.nan


def codes_of(labels: Any, codes: Mapping[Any, float]) -> NDArray[np.float64]:
    """Return the codes of a column of labels, like `code_of` for each.

    Raises UserError, with the shape, if it has more than one column.
    """
    array = column_array(labels, "y")
    kind = array.dtype.kind
    if kind == "b":
        return np.array([codes.get(label, math.nan) for label in (False, True)])[array.astype(np.int8)]
    if kind in "iuf" and len(codes) <= 16:
        if kind == "f":
            # Comparing shorter floats would round a label.
            array = array.astype(np.float64, copy=False)
        coded = np.full(len(array), math.nan)
        for label, code in codes.items():
            same = _within(label, kind)
            if same is not None:
                coded[array == same] = code
        return coded
    return np.array([code_of(label, codes) for label in array.tolist()], dtype=np.float64)


def _within(label: Any, kind: str) -> int | float | None:
    """Return a label as a number of the array kind ``kind``, or None unless the two are exactly equal."""
    if not isinstance(label, int | float | np.number | np.bool_):
        return None
    try:
        number = float(label) if kind == "f" else int(label)
    except (ValueError, OverflowError):  # infinite, NaN, or too large
        return None
    return number if number == label else None
