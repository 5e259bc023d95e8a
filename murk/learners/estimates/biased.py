"""Intervals around an estimate with a bounded bias."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_ROUNDS = 60


def around_biased(error: Vector, bias: Vector, level: float = 0.95) -> Vector:
    r"""Return half-widths of intervals around normal estimates with standard errors and bounds of their bias, ``(p,)``.

    With ``t = bias / error`` a half-width is ``c error``, where c solves

    .. math:: \Phi(c - t) - \Phi(-c - t) = \mathrm{level},

    the coverage at the largest possible bias. At 95%, c is 1.96 without bias, and ``t + 1.64`` for a large bias, as
    intervals then miss on one side only. Errors and biases are infinite where unknown.

    References
    ----------
    Armstrong and Kolesar, "Optimal inference in a class of regression models", 2018 (fixed-length intervals).

    Examples
    --------
    >>> around_biased(np.array([1.0, 1.0, 1.0]), np.array([0.0, 1.0, 10.0])).round(2).tolist()
    [1.96, 2.65, 11.64]
    """
    from scipy.special import ndtr

    known = np.isfinite(error) & np.isfinite(bias)
    unit = np.where(known & (error > 0.0), error, 1.0)
    # Without an error only the bias remains.
    ratio = np.where(known, np.abs(bias) / unit, 0.0)
    most = NormalDist().inv_cdf(0.5 + level / 2.0)
    low, high = np.full_like(ratio, 0.0), ratio + most
    for _ in range(_ROUNDS):
        middle = (low + high) / 2.0
        short = ndtr(middle - ratio) - ndtr(-middle - ratio) < level
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return np.where(known, np.where(error > 0.0, high * unit, np.abs(bias)), np.inf)
