"""Average marginal effects: what a unit of each feature does to the probability, on average over the people.

A logit's coefficients say what a feature does to the log odds, a line's what it does to the target; only the average
marginal effect is the same thing for all models:

    AME_j = theta_j S(theta),    S(theta) = E sigma'(x'theta),    sigma'(t) = sigma(t) (1 - sigma(t)).

The average is over the people's features. Where a public sample stands for them it is that sample's. Where only their
second moments are known, as scores release them, S is bounded instead: it lies between the least and the largest mean
of sigma' that any distribution of t = x'theta has, on the interval that public bounds leave and with the mean and the
second moment that the released ones give it (two linear programs; the generalized Chebyshev inequality). The interval
of an effect then holds what every such distribution allows.

Source: Bartus, "Estimation of marginal effects using margeff", Stata Journal 5(3), 2005, for the average marginal
effect; Krein and Nudelman, "The Markov Moment Problem and Extremal Problems", 1977, for the bounds.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from murk.learners.estimates.estimate import Estimate, People
from murk.learners.estimates.links import logistic

Array = NDArray[np.float64]

_GRID = 257
_PIVOTS = 1000
_TINY = 1e-11


def mean_slope(theta: Array, people: People) -> tuple[float, Array, float, float]:
    """``S(theta)``, its gradient (p,), and the least and the largest that it may be.

    Parameters
    ----------
    theta
        Coefficients in coded units, (p,); features lie in [-1, 1].
    people
        What is known of the features.

    Examples
    --------
    >>> people = People(np.array([[-1.0, 1.0], [1.0, 1.0]]), np.array([0.5, 0.5]), sampled=False)
    >>> slope, _, low, high = mean_slope(np.array([0.2, 0.0]), people)
    >>> round(slope, 4), round(low, 4), round(high, 4)
    (0.2475, 0.2475, 0.2475)
    """
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


def marginal_effects(estimate: Estimate, level: float = 0.95) -> tuple[Array, Array] | None:
    """Average marginal effects of a logit's coefficients, (p,), and their half widths at ``level``.

    The half width is that of the delta method, as much wider as the coefficient's own interval is wider than its
    standard error says, and what S may differ comes on top. S of rows that are not quite the people has a variance of
    kappa times that of sigma' over the rows. None where it is not known what the average is over.

    Parameters
    ----------
    estimate
        Log odds in coded units, with their covariance and the people's features.
    level
        Nominal level.
    """
    people, covariance = estimate.people, estimate.covariance
    if people is None or covariance is None:
        return None
    theta = estimate.values
    slope, gradient, low, high = mean_slope(theta, people)
    own = estimate.half_widths(level)
    unlike = people.doubt * _spread(theta, people)
    out = np.full(len(theta), math.inf)
    for j in np.flatnonzero(np.isfinite(own)):
        pull = theta[j] * gradient
        pull[j] += slope
        variance = max(float(pull @ covariance @ pull), 0.0) + float(theta[j]) ** 2 * unlike
        ratio = math.sqrt(variance / float(covariance[j, j]))
        out[j] = ratio * own[j] + (abs(theta[j]) + own[j]) * max(high - slope, slope - low)
    return theta * slope, out


def _spread(theta: Array, people: People) -> float:
    """Variance of sigma' over the rows."""
    probability = logistic(people.points @ theta)
    curved = probability * (1.0 - probability)
    return float(people.shares @ curved**2 - (people.shares @ curved) ** 2)


def _bounds(mean: float, square: float, least: float, most: float) -> tuple[float, float]:
    """The least and the largest mean of ``sigma'`` on an interval, of distributions with two moments."""
    points = np.linspace(min(least, mean), max(most, mean), _GRID)
    probability = logistic(points)
    curved = probability * (1.0 - probability)
    # On a grid the second moment cannot be less than that of the two points beside the mean.
    step = float(points[1] - points[0])
    variance = float(np.clip(square - mean**2, step**2 / 4.0, (points[-1] - mean) * (mean - points[0])))
    if not variance > 0.0:
        return float(np.interp(mean, points, curved)), float(np.interp(mean, points, curved))
    # Beyond the grid the mean itself, at a cost that leaves it nothing in the end: with it and the ends there is a
    # distribution of every variance that there may be.
    away = np.append(points - mean, 0.0)
    moments = np.vstack([np.ones(_GRID + 1), away, away**2 / variance])
    low, high = (least_mean(np.append(sign * curved, 1.0), moments, [0, _GRID - 1, _GRID]) for sign in (1.0, -1.0))
    return (0.0 if low is None else low), (0.25 if high is None else -high)


def least_mean(costs: Array, moments: Array, support: list[int]) -> float | None:
    """``min costs'w`` over ``w >= 0`` with ``moments w = (1, 0, 1)``, by the simplex method; None where it gives up.

    Loading a general solver takes longer than a small run.

    Parameters
    ----------
    costs, moments
        (m,) and (3, m).
    support
        Three places at which a distribution with these moments stands. It is changed to those of the best.
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
