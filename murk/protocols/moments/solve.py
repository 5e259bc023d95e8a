r"""Solvers for the coefficients of a model with a curved mean function.

:func:`solve` scales a least-squares direction u by a factor c and adds an intercept a. With ``s_j = x_j'u`` over public
features, both follow by bracketing (Newton's method diverges where there is no root) from

.. math:: \frac1m \sum_j f(a + c s_j) = \bar y, \qquad \frac cm \sum_j f'(a + c s_j) = 1.

The second is the papers' equation; the first is needed as Stein's identity holds for centred features.
:func:`solve_score` solves the maximum likelihood equations, which are consistent for any distribution of the features
if public covariates are like the private ones, with the right side from releases:

.. math:: \frac1m \sum_j x_j f(x_j'w) = \widehat{E\,x y}
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from murk._internal.arrays import Floats
from murk.errors import UserError
from murk.protocols.mean_functions import Curve
from murk.protocols.rows import Rows

_ERROR_CODE = "MURK-LEARN-001"

_GROWTH = 1.2
_FALLEN = 0.9
_FARTHEST = 1e4
# Largest number of Newton steps for an intercept, after which it is bracketed, and their tolerance.
_STEPS, _NEAR = 8, 1e-13
# Largest plausible standard deviation of ``x'w`` for a probability, in `solve` and in `solve_score`.
_LONGEST, _LONGEST_SCORE = 20.0, 50.0
_DESCENT_STEPS = 200


class NoRootError(UserError):
    """Raised if no factor turns the least-squares ``direction``, slopes by feature, into the curve's coefficients."""

    def __init__(self, message: str, direction: Mapping[str, float] | None = None) -> None:
        super().__init__(message)
        self.direction = dict(direction or {})


def solve(curve: Curve, scores: Floats, shares: Floats, mean: float | None) -> tuple[float, float]:
    """Return the intercept a and the factor c; a is 0 if ``mean``, the mean response, is None.

    ``scores`` (m,) are the ``s_j``, ``shares`` (m,) the shares of people at each of them. Raises NoRootError if there
    is no root.
    """
    from scipy.optimize import brentq, minimize_scalar

    if mean is not None and not curve.low < mean < curve.high:
        raise NoRootError(
            f"the mean response is estimated as {mean:.4g}, but {curve.name} has means between {curve.low:g} and "
            f"{curve.high:g} only: noise still outweighs the mean, or the target's bounds are too narrow"
        )
    centre = 0.0 if mean is None else float(curve.inverse(np.array(mean)))
    low, high = float(scores.min()), float(scores.max())
    # Successive factors have similar intercepts, so that each search begins at the last one.
    last = [centre]

    def intercept(c: float) -> float:
        if mean is None or high == low:
            return centre - (0.0 if mean is None else c * low)
        # f is increasing, so its inverse at the mean lies between a + c low and a + c high.
        clipping_norm = 1e-9 * (1.0 + abs(centre) + c * max(abs(low), abs(high)))
        ends = centre - c * high - clipping_norm, centre - c * low + clipping_norm
        last[0] = _intercept(curve, c * scores, shares, mean, ends, last[0])
        return last[0]

    def excess(c: float) -> float:
        return c * float(shares @ curve.slope(intercept(c) + c * scores)) - 1.0

    spread = math.sqrt(float(shares @ (scores - shares @ scores) ** 2)) if mean is not None else 0.0
    spread = spread or max(abs(low), abs(high))
    flat = float(curve.slope(np.array(centre)))
    if spread == 0.0:
        if not flat > 0.0:
            raise NoRootError(_no_factor(curve, 0.0))
        return intercept(1.0 / flat), 1.0 / flat
    c = 0.5 / flat if flat > 0.0 else 1.0 / spread
    while excess(c) > 0.0:
        c /= 8.0
    top, peak, before = c, -1.0, c
    value = excess(c)
    # The model's root lies where the left side first grows (the paper's Assumption 2). Features of few values have
    # other roots far beyond, where the curve is a step.
    limit = _LONGEST / spread if math.isfinite(curve.high - curve.low) else _FARTHEST * max(1.0 / spread, c)
    while value < 0.0 and value + 1.0 >= _FALLEN * (peak + 1.0) and c < limit:
        if value > peak:
            top, peak = c, value
        before, c = c, c * _GROWTH
        value = excess(c)
    if value < 0.0:
        # The largest excess may lie between two of the factors tried.
        best = minimize_scalar(lambda t: -excess(t), bounds=(top / _GROWTH, top * _GROWTH), method="bounded")
        if float(best.fun) > 0.0:
            raise NoRootError(_no_factor(curve, 1.0 - float(best.fun), mean is None))
        before, c = top / _GROWTH**2, float(best.x)
    c = float(brentq(excess, before, c, xtol=1e-13, rtol=1e-12))
    return intercept(c), c


def _intercept(curve: Curve, scores: Floats, shares: Floats, mean: float, ends: tuple[float, float], a: float) -> float:
    """Return the intercept at which the response has this mean: by Newton steps from a, else by bracketing."""
    from scipy.optimize import brentq

    def gap(a: float) -> float:
        return float(shares @ curve.mean(a + scores)) - mean

    low, high = ends
    for _ in range(_STEPS):
        if not low < a < high:
            break
        missed = gap(a)
        low, high = (a, high) if missed < 0.0 else (low, a)
        slope = float(shares @ curve.slope(a + scores))
        step = missed / slope if slope > 0.0 else math.inf
        a -= step
        if abs(step) <= _NEAR:
            return a
    at = gap(low), gap(high)
    if at[0] >= 0.0 or at[1] <= 0.0:
        return low if at[0] >= 0.0 else high
    return float(brentq(gap, low, high, xtol=_NEAR))


def _no_factor(curve: Curve, most: float, bare: bool = False) -> str:
    cause = (
        "without an intercept this is usual on features that are not centred at 0: give it one"
        if bare
        else "noise still makes the least-squares slopes too large, or the response is nearly a function of the "
        "features, or the features are far from normal"
    )
    return (
        f"no factor c solves c mean f'(a + c s) = 1 for {curve.name}: the left side is at most {most:.3g}; {cause}. "
        "The estimate has the direction of least squares"
    )


def solve_score(curve: Curve, public: Rows, cross: Floats, start: Floats) -> Floats:
    """Return the coefficients w with ``mean x f(x'w) = cross``, by damped Newton steps from ``start``.

    ``cross`` is ``E x y``, (p,), y the response. As the curve increases, there is at most one solution; raises
    NoRootError if there is none.

    >>> from murk.protocols.mean_functions import LOSSES
    >>> X = np.column_stack([np.linspace(-1, 1, 201), np.ones(201)])
    >>> public = Rows(X, np.full(201, 1 / 201), 201.0, X.T @ X / 201)
    >>> cross = X.T @ LOSSES["logistic"].mean(X @ np.array([2.0, -1.0])) / 201
    >>> solve_score(LOSSES["logistic"], public, cross, np.zeros(2)).round(6).tolist()
    [2.0, -1.0]
    """
    X, shares = public.points, public.shares

    def miss(w: Floats) -> Floats:
        return np.asarray(X.T @ (shares * curve.mean(X @ w)) - cross)

    w, gap = start, miss(start)
    tiny = 1e-12 * (1.0 + float(np.linalg.norm(cross)))
    for _ in range(_DESCENT_STEPS):
        size = float(np.linalg.norm(gap))
        if size <= tiny:
            return w
        hessian = hessian_of(curve, public, w)
        damping = 1e-10 * float(np.trace(hessian)) + 1e-300
        step = np.linalg.solve(hessian + damping * np.eye(len(w)), gap)
        share = 1.0
        while share > 1e-8:
            new = w - share * step
            new_gap = miss(new)
            if np.all(np.isfinite(new_gap)) and float(np.linalg.norm(new_gap)) < (1.0 - 1e-4 * share) * size:
                break
            share /= 2.0
        else:
            if size <= 1e4 * tiny:
                return w
            break
        w, gap = new, new_gap
        bounded = np.isfinite(curve.high - curve.low)
        if bounded and float(shares @ (X @ w) ** 2) > _LONGEST_SCORE**2:
            break
    raise NoRootError(
        f"no coefficients of {curve.name} have the released moments: noise still outweighs the moments, or the "
        "response is a function of the features. The estimate has the direction of least squares"
    )


def hessian_of(curve: Curve, public: Rows, w: Floats) -> Floats:
    """Return ``mean f'(x'w) x x'``, (p, p)."""
    X = public.points
    return np.asarray((X * (public.shares * curve.slope(X @ w))[:, None]).T @ X)


def score_covariance(curve: Curve, public: Rows, w: Floats, middle: float, own: Floats) -> Floats:
    """Return the covariance of w, (p, p); ``own`` is the covariance of the estimate of ``E x y``, (p, p)."""
    X = public.points
    sides = X * (curve.mean(X @ w) - middle)[:, None]
    centred = sides - public.shares @ sides
    theirs = (centred * public.shares[:, None]).T @ centred / public.people
    inverse = np.linalg.inv(hessian_of(curve, public, w))
    return np.asarray(inverse @ (own + theirs) @ inverse)
