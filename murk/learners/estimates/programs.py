r"""Linear programs over many places and few rows, by the simplex method: pure functions.

.. math:: \max_p c'p \quad\text{over}\quad p \ge 0,\ l \le R p \le h

A learner solves about ten of these for each estimate. SciPy's solver takes most of its time before it begins, so it is
asked only where the answer found here is not shown to be right: by prices of the rows, which no place beats.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

_STEPS = 300
_ZERO, _CLOSE, _FAR = 1e-11, 1e-9, 1e-6


def largest(cost: Vector, rows: Matrix, low: Vector, high: Vector) -> float | None:
    """The largest ``cost'p`` over non-negative p with ``low <= rows p <= high``; None where there is no such p.

    Parameters
    ----------
    cost
        c, ``(m,)``.
    rows
        R, ``(k, m)``.
    low, high
        ``(k,)``; infinite where a row is not bounded.

    Examples
    --------
    Of all distributions on -1, 0 and 1 with mean 1/2:

    >>> places = np.array([-1.0, 0.0, 1.0])
    >>> known = np.array([1.0, 0.5])
    >>> largest(places**2, np.vstack([np.ones(3), places]), known, known)
    1.0
    >>> largest(places, np.ones((1, 3)), np.array([2.0]), np.array([1.0])) is None
    True
    """
    if np.any(low > high):
        return None
    size = float(np.abs(cost).max(initial=0.0)) or 1.0
    units = np.abs(rows).max(axis=1, initial=0.0)
    units[units == 0.0] = 1.0
    scaled = rows / units[:, None], low / units, high / units
    # What overflows shows in the end.
    with np.errstate(all="ignore"):
        found = _simplex(cost / size, *scaled)
    if math.isnan(found):
        found = _by_scipy(cost / size, *scaled)
    return None if found == -math.inf else found * size


def _simplex(cost: Vector, rows: Matrix, low: Vector, high: Vector) -> float:
    """The largest sum; minus infinity where there is none, NaN where it is not sure."""
    fixed = low == high
    above, below = ~fixed & np.isfinite(high), ~fixed & np.isfinite(low)
    limits = np.concatenate([high[fixed], high[above], low[below]])
    if not all(np.isfinite(each).all() for each in (cost, rows, limits)):
        return math.nan
    k, m, slacks = len(limits), len(cost), len(limits) - int(fixed.sum())
    sides = np.ones(slacks)
    sides[int(above.sum()) :] = -1.0
    # Places, what is left to a bound, and what a row lacks, which is to vanish.
    first = m + slacks
    table = np.zeros((k, first + k + 1))
    table[:, :m] = np.concatenate([rows[fixed], rows[above], rows[below]])
    table[np.arange(k - slacks, k), np.arange(m, first)] = sides
    table[:, -1] = limits
    table[limits < 0.0] *= -1.0
    table[:, first:-1] = np.eye(k)
    given = table.copy()
    prices = np.zeros(first + k)
    prices[:m] = cost
    basis = np.arange(first, first + k)
    own = np.nonzero(table[np.arange(k - slacks, k), np.arange(m, first)] > 0.0)[0]
    basis[own + k - slacks] = m + own
    lacking = basis >= first
    gain = table[lacking].sum(axis=0)
    gain[first:-1] -= 1.0
    if not _climb(table, gain, basis, first):
        return math.nan
    if gain[-1] > _CLOSE:
        return -math.inf if gain[-1] > _FAR else math.nan
    for row in np.nonzero(basis >= first)[0].tolist():
        place = int(np.abs(table[row, :first]).argmax())
        if abs(table[row, place]) > _CLOSE:
            _pivot(table, gain, basis, row, place)
    gain = np.append(prices, 0.0) - prices[basis] @ table
    if not _climb(table, gain, basis, first):
        return math.nan
    # The table has gathered errors of rounding: what is said is of the rows themselves.
    try:
        shares = np.linalg.solve(given[:, basis], given[:, -1])
        worth = np.linalg.solve(given[:, basis].T, prices[basis])
    except np.linalg.LinAlgError:
        return math.nan
    beaten = float((prices[:first] - worth @ given[:, :first]).max(initial=0.0))
    right = shares.min(initial=0.0) >= -_CLOSE and shares[basis >= first].max(initial=0.0) <= _CLOSE
    return float(prices[basis] @ shares) if right and beaten <= _CLOSE else math.nan


def _climb(table: Matrix, gain: Vector, basis: NDArray[np.int64], count: int) -> bool:
    """Exchange places as long as that gains anything; whether it came to an end."""
    for _ in range(_STEPS):
        place = int(gain[:count].argmax())
        if gain[place] <= _ZERO:
            return True
        column = table[:, place]
        steps = np.full(len(column), math.inf)
        np.divide(table[:, -1], column, out=steps, where=column > _CLOSE)
        least = steps.min(initial=math.inf)
        if least == math.inf:
            return False
        # Of several the one that loses the fewest digits.
        row = int(np.where(steps <= least + _ZERO, column, 0.0).argmax())
        _pivot(table, gain, basis, row, place)
    return False


def _pivot(table: Matrix, gain: Vector, basis: NDArray[np.int64], row: int, place: int) -> None:
    table[row] /= table[row, place]
    column = table[:, place].copy()
    column[row] = 0.0
    table -= np.outer(column, table[row])
    gain -= gain[place] * table[row]
    basis[row] = place


def _by_scipy(cost: Vector, rows: Matrix, low: Vector, high: Vector) -> float:
    from scipy.optimize import linprog

    fixed = low == high
    above, below = ~fixed & np.isfinite(high), ~fixed & np.isfinite(low)
    found = linprog(
        -cost, A_eq=rows[fixed] if fixed.any() else None, b_eq=low[fixed] if fixed.any() else None,
        A_ub=np.concatenate([rows[above], -rows[below]]), b_ub=np.concatenate([high[above], -low[below]]),
        bounds=(0.0, None), method="highs",
    )  # fmt: skip
    if found.status == 3:
        return math.inf
    return -float(found.fun) if found.success else -math.inf
