"""From scores to probabilities, in numpy and without overflow. Devices' kernels have scalar forms of their own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def logistic(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """``1 / (1 + e^-s)``.

    Examples
    --------
    >>> logistic(np.array([-1000.0, 0.0, 1000.0])).round(3).tolist()
    [0.0, 0.5, 1.0]
    """
    # np.clip takes longer than all the rest where there are few.
    return np.asarray(1.0 / (1.0 + np.exp(-np.minimum(np.maximum(scores, -700.0), 700.0))))


def class_probabilities(scores: NDArray[np.float64], basis: NDArray[np.float64]) -> NDArray[np.float64]:
    """Probabilities of K classes, (m, K), from scores over contrasts or classes (m, c), and their basis (K, c).

    Examples
    --------
    >>> class_probabilities(np.array([[1000.0, 0.0], [0.0, 0.0]]), np.eye(2)).tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    """
    classes = scores @ basis.T
    odds = np.exp(classes - classes.max(axis=1, keepdims=True))
    return np.asarray(odds / odds.sum(axis=1, keepdims=True))
