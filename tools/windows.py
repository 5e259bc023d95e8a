"""Sizes of windows with the least mean variance over a number's range: ``python -m tools.windows`` (1 minute).

Prints, from each epsilon on, the levels of a window where every person has a number, and where numbers may be missing
also the outcomes that only a missing one favours. The variance is that of the mean of people with a number, averaged
over numbers spread evenly, and where some are missing also over means of 0, .3 and .6 in a range from -1 to 1. The
tables stand in ``murk/privacy/mechanisms/selection.py`` and ``devices/web/src/univariate.ts``.
"""

from __future__ import annotations

import math
import sys

import numpy as np

from murk._internal.arrays import Floats
from murk.privacy.mechanisms.selection import LEVELS, WindowSelection

_MEANS = (0.0, 0.3, 0.6)
_NEAR = 6  # sizes to try around the best at the epsilon before


def cost(window: int, apart: int, epsilon: float) -> float:
    """Return the mean variance over the range; infinite if the weights are not unbiased."""
    outcomes = LEVELS + window - 1 + max(apart, 0)
    other = int(2.0**64 / (window * math.exp(epsilon) + outcomes - window))
    mechanism = WindowSelection(window, apart, other)
    weights, chances, values = mechanism.weights, mechanism.chances[:LEVELS], mechanism.values
    if not np.allclose(mechanism.chances @ weights[:, 0], [*values, *[0.0] * (apart >= 0)], atol=1e-6):
        return math.inf
    means = _MEANS if apart >= 0 else (0.0,)
    return float(np.mean([_over_range(_variance(weights, chances, values, mean)) for mean in means]))


def _variance(weights: Floats, chances: Floats, values: Floats, mean: float) -> Floats:
    deviations = weights[:, 0] - mean * (1.0 - weights[:, 1])
    return np.asarray(chances @ deviations**2 - (values - mean) ** 2)


def _over_range(values: Floats) -> float:
    return float((values.sum() - (values[0] + values[-1]) / 2.0) / (len(values) - 1))


def table(missing: bool) -> list[tuple[float, int, int]]:
    """Return the epsilons at which the best size changes, with that size."""
    rows: list[tuple[float, int, int]] = []
    for step in range(1, 81):
        epsilon, known = step / 10, rows[-1][1] if rows else None
        sizes = range(1, LEVELS) if known is None else range(max(1, known - _NEAR), min(LEVELS - 1, known + _NEAR) + 1)
        choices = [(size, each) for size in sizes for each in (range(min(size, 12) + 1) if missing else (-1,))]
        costs = [cost(size, each, epsilon) for size, each in choices]
        best = choices[int(np.argmin(costs))]
        if not rows or rows[-1][1:] != best:
            rows.append((epsilon if rows else 0.0, *best))
    return rows


if __name__ == "__main__":
    for missing in (False, True):
        sys.stdout.write(f"{table(missing)}\n")
