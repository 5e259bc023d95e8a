"""Tests of whether a misfit is larger than chance explains."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from murk._internal.arrays import Floats

UNLIKE: Final = 3.72  # threshold, in standard deviations, with one false alarm in 10,000 checks
MOST_NUMBERS: Final = 600  # largest number of entries of matrices that are compared: those of 34 coefficients
_NULL = 1e-9


def excess(square: float, free: float) -> float:
    """Return how far a sum of squares, each divided by its variance, exceeds its mean, in standard deviations.

    For normal numbers the sum is chi-square with ``free`` > 0 degrees of freedom. The cube root of ``square / free`` is
    then nearly normal (Wilson and Hilferty, "The distribution of chi-square", PNAS 17, 1931).

    >>> round(excess(124.3, 100), 2)  # one chi-square of 100 degrees of freedom in 20 is larger
    1.64
    """
    spread = 2.0 / (9.0 * free)
    return float((square / free) ** (1.0 / 3.0) - 1.0 + spread) / math.sqrt(spread)


def misfit(off: Floats, covariance: Floats) -> float:
    """Return how far ``off' covariance^-1 off`` exceeds its mean for normal ``off``, in standard deviations."""
    values, vectors = np.linalg.eigh(covariance)
    kept = values > _NULL * values[-1]
    free = int(kept.sum())
    if not free:
        return 0.0
    square = float(np.sum((vectors[:, kept].T @ off) ** 2 / values[kept]))
    return excess(square, free)
