"""What is predicted: labels by their probabilities, or targets; and how labels are coded."""

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
from murk.learners.core.frames import frame_of
from murk.learners.core.values import number
from murk.stream.task.data.containers import column_array


class LabelEstimator(StreamEstimator):
    """A classifier: before the first release all labels are equally likely."""

    classes: Sequence[Any]

    @abstractmethod
    def _chances(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities of the classes, ``(n, K)``, for rows of features without the constant, ``(n, d)``."""

    def predict_proba_one(self, x: Record, **kwargs: Any) -> dict[Any, float]:
        """Probability of each label; equal ones before the first release."""
        if not self.n_releases:
            return dict.fromkeys(self.classes, 1.0 / len(self.classes))
        row = np.array([[number(x.get(name)) for name in self._names]])
        return dict(zip(self.classes, self._chances(row)[0].tolist(), strict=True))

    def predict_proba_many(self, X: Any) -> Any:
        """Probabilities for the rows of a data frame or an ``(n, d)`` array, one column a label."""
        table = self._table(X)
        if isinstance(X, np.ndarray):
            return table
        frame = frame_of(X)
        if not frame.implementation.is_pandas_like() and len(set(map(str, self.classes))) < len(self.classes):
            raise UserError(
                f"the classes {self.classes!r} are not distinct as text, and a {type(X).__name__} names columns by "
                "text: give a pandas frame or an array, or learn classes that are"
            )
        columns = {label: table[:, place] for place, label in enumerate(self.classes)}
        return dataframe.to_native_frame(columns, like=frame)

    def predict_many(self, X: Any) -> Any:
        """Labels for the rows of a data frame or an ``(n, d)`` array."""
        labels = _labels(self.classes)[np.argmax(self._table(X), axis=1)]
        try:
            return series(labels, X, None)
        except UserError:
            raise
        except Exception as error:
            # Arrow and Polars have columns of one type each, and say so in errors of their own.
            raise UserError(
                f"the classes {self.classes!r} do not fit into one column of a {type(X).__name__}: give a pandas "
                "frame or an array, or learn classes of one type"
            ) from error

    def _table(self, X: Any) -> NDArray[np.float64]:
        if not self.n_releases:
            return np.full((len(X), len(self.classes)), 1.0 / len(self.classes))
        return self._chances(self._matrix(X, self._names))


class TargetEstimator(StreamEstimator):
    """A regressor: before the first release it predicts the middle of what the target may be."""

    _middle: float = 0.0

    @abstractmethod
    def _means(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Predicted targets, ``(n,)``, for rows of features without the constant, ``(n, d)``."""

    def predict_one(self, x: Record, **kwargs: Any) -> float:
        """The predicted target; the middle of what it may be before the first release."""
        if not self.n_releases:
            return self._middle
        return float(self._means(np.array([[number(x.get(name)) for name in self._names]]))[0])

    def predict_many(self, X: Any) -> Any:
        """Predictions for the rows of a data frame or an ``(n, d)`` array."""
        found = self._means(self._matrix(X, self._names)) if self.n_releases else np.full(len(X), self._middle)
        return series(found, X, None)


def _labels(classes: Sequence[Any]) -> NDArray[Any]:
    """The classes as an array that gives each back as it is: numpy makes text of a number beside a text."""
    if {type(label) for label in classes} in ({bool}, {str}, {int}, {float}):
        array = np.array(list(classes))
        if array.dtype.kind in "bUif":
            return array
    found = np.empty(len(classes), dtype=object)
    for place, label in enumerate(classes):
        found[place] = label
    return found


def two_labels(classes: Sequence[Any], codes: tuple[float, float] = (0.0, 1.0)) -> dict[Any, float]:
    """Codes of two classes.

    Raises
    ------
    UserError
        If they are not two, or the same.
    """
    if len(classes) != 2 or classes[0] == classes[1]:
        raise UserError(f"classes must be two distinct labels, got {classes!r}; for more use LDPSGDClassifier")
    return dict(zip(classes, codes, strict=True))


def two_chances(positive: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities of two classes from that of the second."""
    return np.column_stack([1.0 - positive, positive])


def code_of(label: Any, codes: Mapping[Any, float]) -> float:
    """A label's code, NaN for any other."""
    try:
        return codes.get(label, math.nan)
    except TypeError:  # what cannot be a key is no class
        return math.nan


def codes_of(labels: Any, codes: Mapping[Any, float]) -> NDArray[np.float64]:
    """The codes of a column of labels, NaN for others: each as `code_of` has it.

    Raises
    ------
    UserError
        If it has more than one column, saying its shape.
    """
    array = column_array(labels, "y")
    kind = array.dtype.kind
    if kind == "b":
        return np.array([codes.get(label, math.nan) for label in (False, True)])[array.astype(np.int8)]
    if kind in "iuf" and len(codes) <= 16:
        if kind == "f":
            # Or a label would be rounded as shorter floats are before they are compared.
            array = array.astype(np.float64, copy=False)
        found = np.full(len(array), math.nan)
        for label, code in codes.items():
            same = _within(label, kind)
            if same is not None:
                found[array == same] = code
        return found
    return np.array([code_of(label, codes) for label in array.tolist()], dtype=np.float64)


def _within(label: Any, kind: str) -> int | float | None:
    """The number of an array's kind that equals a label exactly; None where there is none."""
    if not isinstance(label, int | float | np.number | np.bool_):
        return None
    try:
        found = float(label) if kind == "f" else int(label)
    except (ValueError, OverflowError):  # infinite, NaN, or too large
        return None
    return found if found == label else None
