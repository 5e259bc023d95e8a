"""Solving with a matrix that is known up to noise: what noise hides is kept small, and is not claimed to be known.

``A = sum_k l_k e_k e_k'`` of released directions has noise of about :func:`uncertainty` in its eigenvalues. Those
below a share of it are floored there, so that no coefficient is the quotient of two errors:

    theta^ = sum_k e_k (e_k'b) / max(l_k, floor)

With L the eigenvectors above the floor and H the *hidden* ones, ``theta_j = (P_L theta)_j + (P_H theta)_j``. The first
part has the standard error of the sandwich. Of the second it is known that it is at most ``|P_H e_j| |theta|``, and the
radius bounds ``|theta|``: an interval is as much wider, and a coefficient with much of it has none.
"""

from __future__ import annotations

import math

import numpy as np

from murk._jit import jit
from murk.learners.iwp_sgd.layout import AIMED, POLISH_WEIGHT, REAL_HEADER, ROWS, Array

_SWEEPS = 60


@jit
def eigen(matrix: Array, values: Array, vectors: Array) -> None:
    """Eigenvalues and eigenvectors (columns) of a symmetric matrix, which is overwritten, by Jacobi's rotations.

    No LAPACK in compiled learning: its results differ between builds.

    Examples
    --------
    >>> values, vectors = np.zeros(2), np.zeros((2, 2))
    >>> eigen(np.array([[2.0, 1.0], [1.0, 2.0]]), values, vectors)
    >>> np.sort(values).round(12).tolist()
    [1.0, 3.0]
    """
    p = matrix.shape[0]
    for i in range(p):
        for j in range(p):
            vectors[i, j] = 1.0 if i == j else 0.0
    for _ in range(_SWEEPS):
        off, size = 0.0, 0.0
        for i in range(p):
            for j in range(p):
                size += matrix[i, j] * matrix[i, j]
                if i != j:
                    off += matrix[i, j] * matrix[i, j]
        if not off > 1e-30 * size:
            break
        for i in range(p):
            for j in range(i + 1, p):
                if matrix[i, j] == 0.0:
                    continue
                angle = 0.5 * (matrix[j, j] - matrix[i, i]) / matrix[i, j]
                t = 1.0 / (abs(angle) + math.sqrt(1.0 + angle * angle))
                if angle < 0.0:
                    t = -t
                c = 1.0 / math.sqrt(1.0 + t * t)
                s = c * t
                for m in range(p):
                    one, other = matrix[m, i], matrix[m, j]
                    matrix[m, i], matrix[m, j] = c * one - s * other, s * one + c * other
                for m in range(p):
                    one, other = matrix[i, m], matrix[j, m]
                    matrix[i, m], matrix[j, m] = c * one - s * other, s * one + c * other
                for m in range(p):
                    one, other = vectors[m, i], vectors[m, j]
                    vectors[m, i], vectors[m, j] = c * one - s * other, s * one + c * other
    for i in range(p):
        values[i] = matrix[i, i]


@jit
def floored(real: Array, p: int, size: int, least: float, out: Array) -> bool:
    """Solve ``A theta = aimed`` for the first ``size`` of p coefficients, eigenvalues floored at ``least``."""
    aimed, bend, total = REAL_HEADER + AIMED * p, REAL_HEADER + ROWS * p, real[POLISH_WEIGHT]
    if not (least > 0.0 and least < math.inf):
        return False
    matrix, values, vectors = np.zeros((size, size)), np.zeros(size), np.zeros((size, size))
    for i in range(size):
        for j in range(i + 1):
            matrix[i, j] = matrix[j, i] = real[bend + i * (i + 1) // 2 + j] / total
    eigen(matrix, values, vectors)
    for j in range(size):
        out[j] = 0.0
    for m in range(size):
        along = 0.0
        for j in range(size):
            along += vectors[j, m] * real[aimed + j] / total
        along /= max(values[m], least)
        for j in range(size):
            out[j] += vectors[j, m] * along
    return True
