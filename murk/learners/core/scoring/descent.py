"""Nonlinear least squares by Levenberg and Marquardt's method."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

_CLOSE = 1e-6


def descend(at: Array, terms: Callable[[Array], tuple[Array, Array, float]], steps: int) -> Array:
    """Minimize a sum of squares from a starting point (p,), in at most ``steps`` steps.

    For a point, ``terms`` returns half the curvature (p, p), minus half the gradient (p,), and the sum to minimize.

    Source: Marquardt, "An algorithm for least-squares estimation of nonlinear parameters", J. SIAM 11(2), 1963.

    Examples
    --------
    >>> def terms(x):
    ...     left, slope = 4.0 - x**2, 2.0 * x  # squares are minimal where x^2 = 4
    ...     return np.diag(slope**2), slope * left, float(left @ left)
    >>> descend(np.array([1.0]), terms, 20).round(6)
    array([2.])
    """
    damping = 1e-3
    information, gradient, value = terms(at)
    for _ in range(steps):
        step = np.linalg.solve(information + damping * np.diag(np.diag(information)), gradient)
        tried = terms(at + step)
        if tried[2] <= value:
            at = at + step
            information, gradient, value = tried
            damping /= 4.0
        else:
            damping *= 6.0
        # Also after a rejected step: this close to the minimum rounding decides.
        if float(np.max(np.abs(step))) < _CLOSE:
            break
    return at
