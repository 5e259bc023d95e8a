"""Symmetric matrices as vectors of the same norm."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def matrix_size(features: int) -> int:
    """Return the number of entries of a symmetric matrix's triangle."""
    return features * (features + 1) // 2


def symmetric(flat: Array, features: int) -> Array:
    """Return the matrix of a vector: its upper triangle by rows, off the diagonal times sqrt 2, which keeps norms."""
    rows, columns = np.triu_indices(features)
    matrix = np.zeros((features, features))
    matrix[rows, columns] = flat / np.where(rows == columns, 1.0, math.sqrt(2.0))
    matrix[columns, rows] = matrix[rows, columns]
    return matrix


def flattened(matrix: Array) -> Array:
    """Return the vectors of matrices (..., p, p), the inverse of `symmetric`."""
    rows, columns = np.triu_indices(matrix.shape[-1])
    return np.asarray(matrix[..., rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0)))
