"""Intervals of what is shown only where it stands out from noise."""

from __future__ import annotations

import math

import numpy as np

from murk._internal.arrays import Floats

_TAIL = 0.025
_QUANTILE = 1.959963984540054  # of the tail
_FARTHEST = 200.0  # standard deviations by which a number at the limit may be smaller
_HALVINGS = 50


def selection_factors(distance: Floats) -> Floats:
    """Return factors of the standard errors of numbers that are shown only above a limit.

    ``distance`` are the numbers' distances from the limit in standard deviations. A number near it is mostly one that
    noise has lifted. Given that it is above, a truth smaller by t deviations is rejected at 95% if ``P(N > t) <= .025
    P(N > t - distance)`` for a normal N; the factor is the least such t over 1.96.

    >>> selection_factors(np.array([0.5, 1.0, 2.0, 4.0])).round(2).tolist()
    [3.82, 2.01, 1.21, 1.0]
    """
    from scipy.special import log_ndtr

    low, high = np.full(distance.shape, _QUANTILE), np.full(distance.shape, _FARTHEST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        rejected = log_ndtr(-middle) <= math.log(_TAIL) + log_ndtr(np.maximum(distance, 0.0) - middle)
        low, high = np.where(rejected, low, middle), np.where(rejected, middle, high)
    return np.asarray(high / _QUANTILE)
