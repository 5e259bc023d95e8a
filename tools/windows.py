"""Sizes of windows with the least variance of a number's mean: ``python -m tools.windows`` (2 minutes).

Prints, from each epsilon on, the levels of a window where every person has a number, and where numbers may be missing
also the outcomes that only a missing one favours. Where every person has a number, the variance is averaged over
numbers spread evenly. Where some are missing, it is that of the mean of people with a number, and the size is the one
whose variance exceeds the least by the smallest factor, over numbers spread evenly and around the middle, a fifth of
the range and an end. The tables stand in ``murk/privacy/mechanisms/selection.py`` and
``devices/web/src/univariate.ts``.
"""

from __future__ import annotations

import math
import sys

import numpy as np

from murk._internal.arrays import Floats
from murk.privacy.mechanisms.selection import LEVELS, WindowSelection

_AT = np.linspace(-1.0, 1.0, LEVELS)
_EVEN = np.where(np.abs(_AT) < 1.0, 1.0, 0.5)
_SHAPES = (_EVEN, np.exp(-12.5 * _AT**2), np.exp(-12.5 * (_AT + 0.6) ** 2), np.exp(-(_AT + 1.0) / 0.15))
_NEAR = 6  # sizes to try around the best at the epsilon before


def costs(window: int, apart: int, epsilon: float) -> Floats:
    """Return the variance for each shape, without people's own; infinite if the weights are not unbiased."""
    outcomes = LEVELS + window - 1 + max(apart, 0)
    other = int(2.0**64 / (window * math.exp(epsilon) + outcomes - window))
    mechanism = WindowSelection(window, apart, other)
    weights, chances, values = mechanism.weights, mechanism.chances[:LEVELS], mechanism.values
    shapes = _SHAPES if apart >= 0 else (_EVEN,)
    if not np.allclose(mechanism.chances @ weights[:, 0], [*values, *[0.0] * (apart >= 0)], atol=1e-6):
        return np.full(len(shapes), math.inf)
    found = []
    for shape in shapes:
        shares = shape / shape.sum()
        mean = float(shares @ values) if apart >= 0 else 0.0
        deviations = weights[:, 0] - mean * (1.0 - weights[:, 1])
        found.append(float(shares @ (chances @ deviations**2 - (values - mean) ** 2)))
    return np.array(found)


def table(missing: bool) -> list[tuple[float, int, int]]:
    """Return the epsilons at which the best size changes, with that size."""
    rows: list[tuple[float, int, int]] = []
    for step in range(1, 81):
        epsilon, known = step / 10, rows[-1][1] if rows else None
        sizes = range(1, LEVELS) if known is None else range(max(1, known - _NEAR), min(LEVELS - 1, known + _NEAR) + 1)
        choices = [(size, each) for size in sizes for each in (range(min(size, 12) + 1) if missing else (-1,))]
        of_choices = np.array([costs(size, each, epsilon) for size, each in choices])
        best = choices[int(np.argmin(np.max(of_choices / of_choices.min(axis=0), axis=1)))]
        if not rows or rows[-1][1:] != best:
            rows.append((epsilon if rows else 0.0, *best))
    return rows


if __name__ == "__main__":
    for missing in (False, True):
        sys.stdout.write(f"{table(missing)}\n")
