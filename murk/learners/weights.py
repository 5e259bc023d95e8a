"""Weights of a record by its features alone, and how far ``||x|| w(x)`` can reach.

The reach decides the gradient's bound and with it the noise. Over a box of features it is computed, not
assumed: the paper's Mallows weights reach sqrt 2 in general but only ``2 / sqrt(d)`` where every coded
feature is -1 or +1.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError

Weights = Literal["norm", "mallows", "clip"]
NAMES: tuple[Weights, ...] = ("norm", "mallows", "clip")


def reach(weights: Weights, smallest_square: float = 0.0, largest_square: float = math.inf) -> float:
    """Supremum of ``||x|| w(x)`` over features with ``smallest_square <= ||x||^2 <= largest_square``.

    ``norm``: ``w = 1 / max(1, ||x||)``, so ``min(1, ||x||)``. ``mallows``: ``w = min(1, 2 / ||x||^2)``, so
    ``min(||x||, 2 / ||x||)`` (Shi et al., section 5). ``clip`` has no weight: the bound is the clip's.

    Examples
    --------
    >>> reach("mallows") == 2**0.5
    True
    >>> reach("mallows", smallest_square=9, largest_square=9)  # eight features of +-1 and the constant
    0.6666666666666666
    """
    small, large = math.sqrt(smallest_square), math.sqrt(largest_square)
    if weights == "norm":
        return min(1.0, large)
    if weights == "mallows":
        peak = math.sqrt(2.0)
        return large if large < peak else 2.0 / small if small > peak else peak
    raise UserError(f"weights={weights!r} have no reach; weights are one of {', '.join(NAMES)}")


def whitening(second_moment: NDArray[np.float64]) -> NDArray[np.float64]:
    """Symmetric inverse square root ``W = M^-1/2`` of a public second-moment matrix, shape ``(p, p)``.

    Working in ``z = W x`` turns the total error ``tr(M) tr(M^-2)`` of the noise into ``d tr(M^-1)``, which
    is never more and far less for correlated or rare features.

    Raises
    ------
    UserError
        If M is not symmetric, not finite, or not positive definite by a margin of 1e-10.

    Examples
    --------
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
    root: NDArray[np.float64] = (vectors / np.sqrt(values)) @ vectors.T
    return (root + root.T) / 2.0
