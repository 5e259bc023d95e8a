"""Intervals of what is shown only where it stands out from noise."""

from __future__ import annotations

import numpy as np

from murk._internal.arrays import Floats
from murk.inference.levels import quantile_of

_FARTHEST = 200.0  # standard deviations by which a number at the limit may be smaller
_HALVINGS = 50


def selection_factors(distance: Floats, level: float = 0.95) -> Floats:
    """Return factors of the standard errors of numbers that are shown only above a limit.

    ``distance`` are the numbers' distances from the limit in standard deviations. A number near it is mostly one that
    noise has lifted. Given that it is above, a truth smaller by t deviations is rejected at 95% if ``P(N > t) <= .025
    P(N > t - distance)`` for a normal N; the factor is the least such t over 1.96. It is larger at higher levels.

    >>> selection_factors(np.array([0.5, 1.0, 2.0, 4.0])).round(2).tolist()
    [3.82, 2.01, 1.21, 1.0]
    >>> selection_factors(np.array([0.5, 1.0, 2.0, 4.0]), 0.999).round(2).tolist()
    [4.68, 2.42, 1.38, 1.03]
    """
    from scipy.special import log_ndtr

    quantile = quantile_of(level)
    low, high = np.full(distance.shape, quantile), np.full(distance.shape, _FARTHEST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        rejected = log_ndtr(-middle) <= log_ndtr(-quantile) + log_ndtr(np.maximum(distance, 0.0) - middle)
        low, high = np.where(rejected, low, middle), np.where(rejected, middle, high)
    return np.asarray(high / quantile)


def further_factors(distance: Floats, level: float) -> Floats:
    """Return factors at a level, over those at 95%; 1 at lower levels, at which those of 95% are large enough."""
    if level <= 0.95:
        return np.ones(distance.shape)
    return selection_factors(distance, level) / selection_factors(distance)
