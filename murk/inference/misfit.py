"""Tests of whether a misfit is larger than chance explains."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from murk._internal.arrays import Floats

UNLIKE: Final = 3.72  # standard deviations with one false alarm in 10,000 checks
MOST_NUMBERS: Final = 600  # largest number of entries of matrices that are compared: those of 34 coefficients
_NULL = 1e-9


def excess(square: float, free: float) -> float:
    """Return the excess of a sum of squares, each divided by its variance, over its mean, in standard deviations.

    For normal numbers it is a chi-square with ``free`` > 0 degrees of freedom; the cube root of their ratio is nearly
    normal (Wilson and Hilferty, "The distribution of chi-square", PNAS 17, 1931).

    >>> round(excess(124.3, 100), 2)  # one chi-square of 100 degrees of freedom in 20 is larger
    1.64
    """
    spread = 2.0 / (9.0 * free)
    return float((square / free) ** (1.0 / 3.0) - 1.0 + spread) / math.sqrt(spread)


def misfit(off: Floats, covariance: Floats) -> float:
    """Return the excess of ``off' covariance^-1 off`` over its mean for normal ``off``, in standard deviations."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > _NULL * values[-1]
    free = int(kept.sum())
    if not free:
        return 0.0
    square = float(np.sum((vectors[:, kept].T @ off) ** 2 / values[kept]))
    return excess(square, free)
