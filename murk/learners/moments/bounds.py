"""Norm bound of normal features with public covariance."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

PEOPLE = 1_000_000  # Default number of people
FAILURE = 0.05  # Default probability that any of them is beyond the bound


def normal_reach(
    second_moment: NDArray[np.float64], people: int = PEOPLE, failure: float = FAILURE, *, published: bool = False
) -> float:
    """Return a norm that any of n normal vectors with covariance S exceeds with probability at most ``failure``.

    ``tr S + 2 sqrt(tr(S^2) t) + 2 ||S|| t`` with ``t = log(n / failure)`` bounds the squared norm (Hsu, Kakade and
    Zhang 2012). ``published`` gives the paper's larger ``5 ||S|| p t`` (Algorithm 1).

    Examples
    --------
    >>> round(normal_reach(np.eye(4), 1000), 2), round(normal_reach(np.eye(4), 1000, published=True), 2)
    (6.03, 14.07)
    """
    t = math.log(people / failure)
    values = np.linalg.eigvalsh(second_moment)
    largest = float(values[-1])
    if published:
        return math.sqrt(5.0 * largest * len(values) * t)
    return math.sqrt(float(values.sum()) + 2.0 * math.sqrt(float(values @ values) * t) + 2.0 * largest * t)
