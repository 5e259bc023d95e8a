"""Changes of coordinates: contrasts of classes, whitening, symmetric matrices as vectors, projection to a ball."""

from __future__ import annotations

import math

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.jit import jit
from murk.errors import UserError

_ERROR_CODE = "MURK-LEARN-001"


def contrasts(classes: int) -> Floats:
    """Return Helmert's orthonormal basis of the contrasts of classes, ``(classes, classes - 1)``."""
    basis = np.zeros((classes, classes - 1))
    for column in range(classes - 1):
        basis[: column + 1, column] = -1.0
        basis[column + 1, column] = column + 1.0
        basis[:, column] /= math.sqrt((column + 1.0) * (column + 2.0))
    return basis


def whitening(second_moment: Floats) -> Floats:
    """Return the symmetric inverse square root ``W = M^-1/2`` of a public second-moment matrix, ``(p, p)``.

    In coordinates ``z = W x`` the error due to noise, ``tr(M) tr(M^-2)``, becomes ``p tr(M^-1)``: never more. Raises
    UserError if M is not symmetric, finite, and positive definite by a margin of 1e-10.

    >>> import numpy as np
    >>> whitening(np.diag([4.0, 1.0])).tolist()
    [[0.5, 0.0], [0.0, 1.0]]
    """
    matrix = np.asarray(second_moment, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not np.all(np.isfinite(matrix)):
        raise UserError(f"the second-moment matrix must be square and finite, got shape {matrix.shape}")
    if not np.allclose(matrix, matrix.T, rtol=1e-9, atol=1e-12):
        raise UserError("the second-moment matrix must be symmetric")
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    if values[0] <= 1e-10 * max(values[-1], 1e-300):
        raise UserError(
            f"the second-moment matrix is singular (smallest eigenvalue {values[0]:.3g}): a feature is constant "
            "or a combination of others in the public sample; leave it out or give more public rows"
        )
    root: Floats = (vectors / np.sqrt(values)) @ vectors.T
    return (root + root.T) / 2.0


def symmetric(flat: Floats, features: int) -> Floats:
    """Return the symmetric matrix of a vector: its upper triangle by rows, with off-diagonal entries times sqrt 2."""
    rows, columns = np.triu_indices(features)
    matrix = np.zeros((features, features))
    matrix[rows, columns] = flat / np.where(rows == columns, 1.0, math.sqrt(2.0))
    matrix[columns, rows] = matrix[rows, columns]
    return matrix


def flattened(matrix: Floats) -> Floats:
    """Return symmetric matrices (..., p, p) as vectors of the same norm; the inverse of `symmetric`."""
    rows, columns = np.triu_indices(matrix.shape[-1])
    return np.asarray(matrix[..., rows, columns] * np.where(rows == columns, 1.0, math.sqrt(2.0)))


@jit
def confine(x: Floats, clipping_norm: float, constant: bool, zero: bool) -> bool:
    """Scale features (without the constant) down to the norm ``clipping_norm``; return whether they were longer.

    With ``zero`` longer ones become 0 instead. Values that are not finite count as 0.
    """
    slopes = x.shape[0] - 1 if constant else x.shape[0]
    if constant:
        x[slopes] = 1.0
    largest, square = 0.0, 0.0
    for i in range(slopes):
        if x[i] - x[i] != 0.0:
            x[i] = 0.0
        largest = max(largest, abs(x[i]))
        square += x[i] * x[i]
    if square <= clipping_norm * clipping_norm:
        return False
    square = 0.0
    # Scaled before squaring, so that 1e300 does not overflow.
    for i in range(slopes):
        square += (x[i] / largest) * (x[i] / largest)
    for i in range(slopes):
        x[i] = 0.0 if zero else x[i] / largest * (clipping_norm / math.sqrt(square))
    return True
