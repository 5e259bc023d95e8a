"""Path of an estimate over the number of releases, from the trails (past points) in chains' states.

Chains are merged at equal counts: a point consists of each chain's newest point at or below one count of the grid. A
release draws its chain uniformly, so that learned chains reach a count at about the same time; a chain without an owner
keeps its last point. Neither the order of learning nor the time of day matters. If chains share models, the first
chain's trail has the estimates of all chains together, and the other chains have no trail.

*Random scaling*: with n_c releases of chain c, ``sum n_c theta_c / n``, as in the estimate of all chains, and
half-widths from the mean of the chains' V, known if every chain knows its own.

*All other methods*: chains share no release, so their estimates are independent: each coefficient is averaged by
inverse variance, or by numbers of releases if no chain knows its variance. (The estimate itself is slightly more
precise, as it is computed from the sums of all chains.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from murk.learners.estimates.estimate import RANDOM_SCALING, scaling_quantile
from murk.stream.messages.state import LEVEL, Trail

Floats = NDArray[np.float64]


class CurvePoint(NamedTuple):
    """The estimate from a number of releases, with 95% half-widths, and the time at which the log held the releases."""

    releases: int
    time: int
    values: tuple[float, ...]
    half_widths: tuple[float, ...]
    estimated_error: float


def columns(points: Sequence[CurvePoint], names: Sequence[str]) -> dict[str, Any]:
    """Return points as plain data: a list for each field, or by name a list for each coefficient."""
    plain = ("releases", "time", "estimated_error")
    data: dict[str, Any] = {key: [getattr(point, key) for point in points] for key in plain}
    for key in ("values", "half_widths"):
        rows = [getattr(point, key) for point in points]
        data[key] = {name: [row[index] for row in rows] for index, name in enumerate(names)}
    return data


def merged_curve(trails: Sequence[Trail], coefficients: int, method: str) -> tuple[CurvePoint, ...]:
    """Return the merged points of all chains, by number of releases; ``method`` is the intervals' method.

    Raises MurkError if a trail has a different number of coefficients.
    """
    tables = [trail.table(coefficients, f"chain {chain}").astype(np.float64) for chain, trail in enumerate(trails)]
    grid = sorted({count for trail in trails for count in trail.counts})
    newest = np.array([np.searchsorted(trail.counts, grid, side="right") - 1 for trail in trails])
    points = []
    for at in newest.T:
        known = [chain for chain, index in enumerate(at) if index >= 0]
        rows = np.array([tables[chain][at[chain]] for chain in known])
        counts = np.array([trails[chain].counts[at[chain]] for chain in known])
        values, halves, errors = rows[:, :coefficients], rows[:, coefficients:-1], rows[:, -1]
        if len(known) == 1:
            value, half, error = values[0], halves[0], float(errors[0])
        else:
            value, half, error = _merged(values, halves, counts.astype(np.float64), method)
        time = max(trails[chain].times[at[chain]] for chain in known)
        points.append(CurvePoint(int(counts.sum()), time, tuple(value.tolist()), tuple(half.tolist()), error))
    return tuple(points)


def _merged(values: Floats, halves: Floats, counts: Floats, method: str) -> tuple[Floats, Floats, float]:
    shares = (counts / counts.sum())[:, None]
    by_count = (shares * values).sum(axis=0)
    if method == RANDOM_SCALING:
        single, joint = scaling_quantile(LEVEL), scaling_quantile(LEVEL, len(counts))
        spread = np.sqrt((np.square(halves / single) * counts[:, None]).mean(axis=0) / counts.sum())
        return by_count, joint * spread, math.sqrt(6.0 * float(np.sum(np.square(spread))))
    quantile = NormalDist().inv_cdf(0.5 + LEVEL / 2.0)
    # A half-width is 0 for a known coefficient, and infinite for an unknown one.
    with np.errstate(divide="ignore"):
        precisions = np.minimum(np.square(quantile / halves), 1e300 / len(counts))
    total = precisions.sum(axis=0)
    unknown = total == 0.0
    weighted = (precisions * values).sum(axis=0) / np.where(unknown, 1.0, total)
    with np.errstate(divide="ignore"):
        spread = np.sqrt(1.0 / total)
    error = math.sqrt(float(np.sum(np.square(spread))))
    return np.where(unknown, by_count, weighted), quantile * spread, error
