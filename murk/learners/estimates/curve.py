"""How an estimate has moved, from the trails that chains carry in their states.

Chains are merged at equal counts: a point is made of each chain's newest point at or below one count of the grid. A
release draws its chain uniformly, so that chains which are all learned come to a count at about the same time; one
that has no owner stays with what it has learned. Neither the order in which chains were learned nor the time of day
plays any part.

Where chains share models the first one's trail is of all together, and the others have none.

*random scaling*: with n_c releases of chain c, ``sum n_c theta_c / n``, as in the estimate of all chains, and half
widths from the mean of the chains' V. They are known where every chain knows its own.

*all other methods*: chains share no release, so their estimates are independent: each coefficient is averaged with
the inverses of its variances. One that no chain knows a variance of is averaged by numbers of releases. (The estimate
itself is of the chains' sums together, and so slightly better.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from murk.learners.estimates.estimate import RANDOM_SCALING, scaling_quantile
from murk.stream.messages.trail import LEVEL, Trail

Floats = NDArray[np.float64]


class CurvePoint(NamedTuple):
    """The estimate from so many releases, with 95% half widths, and when the log had them."""

    releases: int
    time: int
    values: tuple[float, ...]
    half_widths: tuple[float, ...]
    estimated_error: float


def columns(points: Sequence[CurvePoint], names: Sequence[str]) -> dict[str, Any]:
    """Points as plain data, one list for each of their parts, and by name where there is one for each coefficient."""
    plain = ("releases", "time", "estimated_error")
    found: dict[str, Any] = {key: [getattr(point, key) for point in points] for key in plain}
    for key in ("values", "half_widths"):
        rows = [getattr(point, key) for point in points]
        found[key] = {name: [row[place] for row in rows] for place, name in enumerate(names)}
    return found


def merged_curve(trails: Sequence[Trail], coefficients: int, method: str) -> tuple[CurvePoint, ...]:
    """The points of all chains together, in the order of releases; ``method`` says how intervals are made.

    Raises
    ------
    MurkError
        When a trail is not one of so many coefficients.

    Examples
    --------
    >>> merged_curve([Trail(), Trail()], 3, "plug-in")
    ()
    """
    tables = [trail.table(coefficients, f"chain {chain}").astype(np.float64) for chain, trail in enumerate(trails)]
    grid = sorted({count for trail in trails for count in trail.counts})
    newest = np.array([np.searchsorted(trail.counts, grid, side="right") - 1 for trail in trails])
    points = []
    for at in newest.T:
        known = [chain for chain, place in enumerate(at) if place >= 0]
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
        one, all_ = scaling_quantile(LEVEL), scaling_quantile(LEVEL, len(counts))
        spread = np.sqrt((np.square(halves / one) * counts[:, None]).mean(axis=0) / counts.sum())
        return by_count, all_ * spread, math.sqrt(6.0 * float(np.sum(np.square(spread))))
    quantile = NormalDist().inv_cdf(0.5 + LEVEL / 2.0)
    # A half width of 0 is of a coefficient that is certain, and one of infinity says nothing.
    with np.errstate(divide="ignore"):
        precisions = np.minimum(np.square(quantile / halves), 1e300 / len(counts))
    total = precisions.sum(axis=0)
    nothing = total == 0.0
    weighed = (precisions * values).sum(axis=0) / np.where(nothing, 1.0, total)
    with np.errstate(divide="ignore"):
        spread = np.sqrt(1.0 / total)
    error = math.sqrt(float(np.sum(np.square(spread))))
    return np.where(nothing, by_count, weighed), quantile * spread, error
