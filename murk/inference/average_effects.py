"""Average marginal effects: the effect of a unit of each feature on the probability, on average over the people.

    AME_j = theta_j S(theta),    S(theta) = E sigma'(x'theta),    sigma'(t) = sigma(t) (1 - sigma(t)).

The average is over the people's features, or over a public sample's. Scores release only the features' second moments.
S then lies between the least and the largest mean of sigma' over all distributions of t = x'theta within public bounds
with the released mean and second moment (two linear programs), and the interval of an effect covers all of them.

Source: Bartus, "Estimation of marginal effects using margeff", Stata Journal 5(3), 2005, for the average marginal
effect; Krein and Nudelman, "The Markov Moment Device and Extremal Problems", 1977, for the bounds.
"""

from __future__ import annotations

import math

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.links import logistic
from murk.inference.estimate import Estimate, People, ratio_half_widths
from murk.inference.levels import divided_error, quantile_of

_GRID = 257
_PIVOTS = 1000
_TINY = 1e-11


def mean_slope(theta: Floats, people: People) -> tuple[float, Floats, float, float]:
    """Return ``S(theta)``, its gradient (p,), and its least and largest possible values, for features in [-1, 1]."""
    logit = people.points @ theta
    probability = logistic(logit)
    curved = probability * (1.0 - probability)
    slope = float(people.shares @ curved)
    gradient = (people.shares * curved * (1.0 - 2.0 * probability)) @ people.points
    if people.sampled:
        return slope, gradient, slope, slope
    reach, middle = float(np.abs(theta[:-1]).sum()), float(theta[-1])
    mean = float(people.shares @ logit)
    low, high = _bounds(mean, float(people.shares @ logit**2), middle - reach, middle + reach)
    return slope, gradient, min(low, slope), max(high, slope)


def marginal_effects(estimate: Estimate, level: float = 0.95) -> tuple[Floats, Floats] | None:
    """Return average marginal effects of a logit's coefficients, (p,), and their half-widths at ``level``.

    The half-width is the delta method's standard error, times the coefficient's ratio of half-width to standard error,
    plus an allowance for the range of S. As people may differ from the public rows, the variance of S includes kappa
    (`People.doubt`) times the variance of sigma' over the rows. Returns None if the people's features or the covariance
    are unknown.
    """
    return marginal_differences(estimate, np.eye(len(estimate.values)), level)


def marginal_differences(estimate: Estimate, weights: Floats, level: float = 0.95) -> tuple[Floats, Floats] | None:
    """Return average marginal effects and half-widths of weighted sums of coefficients, for weights (q, p)."""
    people, covariance = estimate.people, estimate.covariance
    if people is None or covariance is None:
        return None
    theta = estimate.values
    slope, gradient, low, high = mean_slope(theta, people)
    sums, halves = weights @ theta, combined_half_widths(estimate, weights, level)
    unlike = people.doubt * _spread(theta, people)
    out = np.full(len(weights), math.inf)
    for j in np.flatnonzero(np.isfinite(halves)):
        pull = sums[j] * gradient + slope * weights[j]
        variance = max(float(pull @ covariance @ pull), 0.0) + float(sums[j]) ** 2 * unlike
        ratio = math.sqrt(variance / float(weights[j] @ covariance @ weights[j]))
        out[j] = ratio * halves[j] + (abs(sums[j]) + halves[j]) * max(high - slope, slope - low)
    return sums * slope, out


def combined_half_widths(estimate: Estimate, weights: Floats, level: float = 0.95) -> Floats:
    """Return half-widths of weighted sums of coefficients, (q,), for weights (q, p).

    A sum of one coefficient has the coefficient's half-width, times the weight's size. A sum of several coefficients
    has the sum's standard error times the largest of their ratios of half-width to standard error or, without a
    covariance, the weighted sum of their simultaneous half-widths (Bonferroni). If the estimate states which parts of
    the coefficients the curvature divides (`Estimate.divided`), all half-widths are those of Fieller's intervals of the
    sums.

    >>> both = Estimate(("a", "b"), np.zeros(2), "plug-in", np.ones(2), "", 1, 100, np.array([[1.0, 0.5], [0.5, 1.0]]))
    >>> combined_half_widths(both, np.array([[2.0, 0.0], [1.0, -1.0]])).round(2).tolist()
    [3.92, 1.96]
    """
    used = weights != 0.0
    counts = used.sum(axis=1)
    if estimate.covariance is None:
        apart = {count: estimate.half_widths(divided_error(level, count)) for count in set(counts.tolist())}
        rows = zip(weights, used, counts.tolist(), strict=True)
        return np.array([np.abs(row[uses]) @ apart[count][uses] for row, uses, count in rows], dtype=np.float64)
    halves = estimate.half_widths(level)
    finite = np.where(np.isfinite(halves), halves, 0.0)
    errors = np.sqrt(np.diag(estimate.covariance))
    ratios = np.divide(finite, errors, out=np.zeros_like(finite), where=errors > 0.0)
    variances = np.maximum(np.einsum("ij,ij->i", weights @ estimate.covariance, weights), 0.0)
    several = (used * ratios).max(axis=1, initial=0.0) * np.sqrt(variances)
    out = np.where(counts == 1, np.abs(weights) @ finite, several)
    if estimate.divided is not None and estimate.curvature_error is not None:
        doubts = (used * estimate.curvature_error).max(axis=1, initial=0.0)
        out = ratio_half_widths(
            weights @ estimate.divided @ estimate.values, np.sqrt(variances), doubts, quantile_of(level)
        )
    return np.asarray(np.where((used & ~np.isfinite(halves)).any(axis=1), math.inf, out))


def _spread(theta: Floats, people: People) -> float:
    """Return the variance of sigma' over the rows."""
    probability = logistic(people.points @ theta)
    curved = probability * (1.0 - probability)
    return float(people.shares @ curved**2 - (people.shares @ curved) ** 2)


def _bounds(mean: float, square: float, least: float, most: float) -> tuple[float, float]:
    """Return the least and largest mean of ``sigma'`` over distributions on an interval with the first two moments."""
    points = np.linspace(min(least, mean), max(most, mean), _GRID)
    probability = logistic(points)
    curved = probability * (1.0 - probability)
    # A distribution on a grid may need the variance of the two points next to its mean, at most step^2 / 4.
    step = float(points[1] - points[0])
    variance = float(np.clip(square - mean**2, step**2 / 4.0, (points[-1] - mean) * (mean - points[0])))
    if not variance > 0.0:
        return float(np.interp(mean, points, curved)), float(np.interp(mean, points, curved))
    # The mean and the ends make every variance feasible; the mean has a cost that keeps it out of the optimum.
    away = np.append(points - mean, 0.0)
    moments = np.vstack([np.ones(_GRID + 1), away, away**2 / variance])
    low, high = (least_mean(np.append(sign * curved, 1.0), moments, [0, _GRID - 1, _GRID]) for sign in (1.0, -1.0))
    return (0.0 if low is None else low), (0.25 if high is None else -high)


def least_mean(costs: Floats, moments: Floats, support: list[int]) -> float | None:
    """Return ``min costs'w`` over ``w >= 0`` with ``moments w = (1, 0, 1)`` by the simplex method, or None.

    ``costs`` is (m,), ``moments`` (3, m). ``support`` has the positions of a feasible basis and gets those of the best
    one. Returns None if the optimum is not reached within the largest number of pivots. (Loading a solver takes too
    long.)
    """
    target = np.array([1.0, 0.0, 1.0])
    for _ in range(_PIVOTS):
        basis = moments[:, support]
        weights = np.linalg.solve(basis, target)
        reduced = costs - np.linalg.solve(basis.T, costs[support]) @ moments
        entering = int(np.argmin(reduced))
        if reduced[entering] > -_TINY:
            return float(costs[support] @ weights)
        along = np.linalg.solve(basis, moments[:, entering])
        with np.errstate(divide="ignore", invalid="ignore"):
            room = np.where(along > _TINY, np.maximum(weights, 0.0) / along, math.inf)
        support[int(np.argmin(room))] = entering
    return None
