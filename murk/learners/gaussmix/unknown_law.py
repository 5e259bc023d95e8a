r"""How far a logistic model's coefficients may be from what normal scores make of second moments.

Least squares on labels -1 and +1 gives ``b = M^-1 E x h(t)``, with ``t = x'theta`` and ``h(t) = tanh(t / 2)``. Whatever
the law of the features, split h into its best line in t and what is left, ``h = alpha + s t + r``: then

.. math:: b = s \theta + M^{-1} E[x r], \qquad |M^{-1} E[x r]|_j \le \sqrt{[M^{-1}]_{jj}\, E r^2}

by the Cauchy-Schwarz inequality. Of the law of t its mean and variance are known, and an interval that holds it, as
features are bounded; so s lies between, and ``E r^2`` below, the ends of two linear programs over all such laws.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_GRID = 257


def allowance(fit: Vector, values: Vector, moment: Matrix, inverse: Vector, reach: float) -> Vector:
    """The largest distance of each logistic coefficient from ``values``, ``(p,)``, for any law of the features.

    Parameters
    ----------
    fit
        b: least squares on labels -1 and +1, the constant last.
    values
        Logistic coefficients that were made of it, by a law that need not be the features' own.
    moment
        ``E x x'`` of the features, the constant last.
    inverse
        Diagonal of its inverse.
    reach
        No score is further than this from the intercept.

    Examples
    --------
    >>> moment, fit = np.diag([0.25, 1.0]), np.array([0.1, 0.0])
    >>> found = allowance(fit, np.array([0.2, 0.0]), moment, np.array([4.0, 1.0]), 0.2)
    >>> bool(0 < found[0] < 0.01)
    True
    """
    one = max(float(moment[-1, -1]), 1e-300)
    mean = float(moment[-1] @ values) / one
    square = float(values @ moment @ values) / one
    low, high = min(float(values[-1]) - reach, mean), max(float(values[-1]) + reach, mean)
    points = np.linspace(low, high, _GRID)
    step = float(points[1] - points[0])
    # On a grid the variance cannot be less than that of the two points beside the mean.
    variance = float(np.clip(square - mean**2, step**2 / 4.0, max((high - mean) * (mean - low), step**2 / 4.0)))
    if not step > 0.0:
        return np.zeros(len(fit))
    curve, away = np.tanh(points / 2.0), points - mean
    moments = np.vstack([np.ones(_GRID), away, away**2 / variance])
    least, most = (_end(sign, curve * away / variance, moments) for sign in (1.0, -1.0))
    scale = _middle(fit, values, moment)
    line = curve - float(np.tanh(mean / 2.0)) - scale * away
    # The best constant beside that slope is the mean of what is left, which only lowers it.
    rest = max(_end(-1.0, line**2, moments), 0.0)
    if not least > 0.0:
        return np.full(len(fit), math.inf)
    stretched = np.abs(fit) * max(1.0 / least - 1.0 / max(scale, least), 1.0 / max(scale, least) - 1.0 / most, 0.0)
    return np.asarray(stretched + np.sqrt(np.maximum(inverse, 0.0) * one * rest) / least)


def _middle(fit: Vector, values: Vector, moment: Matrix) -> float:
    """The slope by which the coefficients were made of the fit."""
    length = float(values[:-1] @ values[:-1])
    return float(fit[:-1] @ values[:-1]) / length if length > 0.0 else 0.5


def _end(sign: float, cost: Vector, moments: Matrix) -> float:
    from scipy.optimize import linprog

    found = linprog(sign * cost, A_eq=moments, b_eq=[1.0, 0.0, 1.0], bounds=(0.0, None), method="highs")
    return sign * float(found.fun) if found.success else -sign * math.inf
