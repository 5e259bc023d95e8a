r"""Log odds and average effects from a least-squares line through labels, for any distribution of the features.

Least squares on labels -1 and +1 gives ``b = M^-1 E x h(t)``, with ``t = x'theta`` and ``h(t) = tanh(t / 2)``. For any
line in t let ``h = alpha + s t + r``; then, except for the constant,

.. math:: b = s \theta + e, \qquad e = M^{-1} E[x r], \qquad
    |e_j| \le \min\bigl(\sqrt{[M^{-1}]_{jj}\, E r^2},\ \rho \sum_k |[M^{-1}]_{jk}|\, E |r|\bigr)

by the Cauchy-Schwarz inequality, and as no feature exceeds rho. With ``s = E h'(t)`` this bounds the distance of
``b / 2`` from the average marginal effects ``s theta / 2``. With the slope s of the least-squares line of h on t, the
first bound holds for coefficients, ``theta = (b - e) / s``. (The second bound takes the distribution of t at the
estimates, and is too small for estimates that are far off.) Mean, variance and range of t are known, as features are
bounded: linear programs over all such distributions bound s, ``E r^2`` and ``E |r|``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import numpy as np

from murk._internal.arrays import Matrix, Vector
from murk.inference.estimate import Estimate
from murk.inference.levels import quantile_of

_GRID = 257


@dataclass(frozen=True)
class Allowance:
    """Widths added to both sides of intervals for the unknown distribution of the features."""

    coefficients: Vector  # for log odds, (p,)
    effects: Vector  # for average marginal effects on the probability, (p,); without meaning for the constant


def allowance(
    fit: Vector, values: Vector, moment: Matrix, inverse: Matrix, largest: float, *, by_norm: bool = False
) -> Allowance:
    """Return bounds on ``|theta - values|``, and on the distance of average effects from ``fit / 2``.

    ``fit`` is b of the module, its constant last. ``values`` are the coefficients theta that b implies for one possible
    distribution of x. ``moment`` is ``E x x'``, ``inverse`` its inverse, and ``largest`` the bound rho on each feature
    or, with ``by_norm``, on the features' norm.
    """
    people = max(float(moment[-1, -1]), 1e-300)
    mean, square = float(moment[-1] @ values) / people, float(values @ moment @ values) / people
    reach = largest * float(np.linalg.norm(values[:-1], 2 if by_norm else 1))
    distributions = _Distributions.of(mean, square - mean**2, float(values[-1]), reach)
    if distributions is None:
        nothing = np.zeros(len(fit))
        return Allowance(nothing, nothing)
    by_square = np.sqrt(np.maximum(np.diag(inverse), 0.0) * people)
    by_size = largest * people * np.abs(inverse).sum(axis=1)
    length = float(values[:-1] @ values[:-1])
    scale = float(fit[:-1] @ values[:-1]) / length if length > 0.0 else 0.5
    least, most = distributions.range(distributions.curve * distributions.away / distributions.variance)
    steep = distributions.range((1.0 - distributions.curve**2) / 2.0)
    unknown = np.full(len(fit), math.inf)
    if not (math.isfinite(most) and least > 0.0 and math.isfinite(steep[1])):
        return Allowance(unknown, unknown)
    # The distance of marginal effects is convex in the slope, so that one of its extremes is the worst case.
    effects = np.zeros(len(fit))
    for slope in steep:
        left = np.abs(distributions.left(slope, mean))
        bounds = by_square * math.sqrt(max(distributions.most(left**2), 0.0)), by_size * distributions.most(left)
        effects = np.maximum(effects, np.minimum(*bounds) / 2.0)
    # Each distribution's own best line has no larger squared residuals than this one.
    missed = by_square * math.sqrt(max(distributions.most(distributions.left(scale, mean) ** 2), 0.0)) / least
    stretched = np.abs(fit) * max(1.0 / least - 1.0 / max(scale, least), 1.0 / max(scale, least) - 1.0 / most, 0.0)
    return Allowance(np.asarray(stretched + missed), effects)


@dataclass(frozen=True)
class _Distributions:
    """All distributions of t on a grid that have a given mean and variance."""

    curve: Vector  # h at the grid's points
    away: Vector  # differences of the grid's points from the mean of t
    variance: float

    @classmethod
    def of(cls, mean: float, variance: float, middle: float, reach: float) -> _Distributions | None:
        """Return the distributions of t up to ``reach`` from ``middle``; None if t has one value only."""
        low, high = min(middle - reach, mean), max(middle + reach, mean)
        points = np.linspace(low, high, _GRID)
        step = float(points[1] - points[0])
        if not step > 0.0:
            return None
        # A distribution on a grid may need the variance of the two points next to its mean, at most step^2 / 4.
        most = max((high - mean) * (mean - low), step**2 / 4.0)
        return cls(np.tanh(points / 2.0), points - mean, float(np.clip(variance, step**2 / 4.0, most)))

    def left(self, slope: float, mean: float) -> Vector:
        """Return the residuals of h, at the grid's points, from a line of this slope that meets h at the mean of t."""
        return np.asarray(self.curve - math.tanh(mean / 2.0) - slope * self.away)

    def range(self, cost: Vector) -> tuple[float, float]:
        return -self.most(-cost), self.most(cost)

    def most(self, cost: Vector) -> float:
        """Return the largest mean of a function of t with values ``cost``; infinite if the solver finds none."""
        from scipy.optimize import milp

        moments = np.vstack([np.ones(_GRID), self.away, self.away**2 / self.variance])
        known = [1.0, 0.0, 1.0]
        # With so few rows presolving takes longer than solving.
        result = milp(-cost, constraints=(moments, known, known), options={"presolve": False})
        return -float(result.fun) if result.success else math.inf


@dataclass(frozen=True)
class MomentEstimate(Estimate):
    """Coefficients from released moments; noise may hide some of the coefficients."""

    noise_hides: ClassVar[bool] = True


@dataclass(frozen=True)
class LineEstimate(MomentEstimate):
    """Log odds from released moments, with intervals that hold for any distribution of the features."""

    fit: Vector = field(kw_only=True)  # least squares on labels -1 and +1, (p,)
    error: Vector = field(kw_only=True)  # standard errors of the fit, (p,)
    beyond: Allowance = field(kw_only=True)  # allowance for the unknown distribution of the features

    def half_widths(self, level: float = 0.95) -> Vector:
        """Return half-widths of the intervals at ``level``."""
        return super().half_widths(level) + self.beyond.coefficients

    def effects(self, level: float = 0.95) -> tuple[Vector, Vector]:
        """Return average marginal effects on the probability, ``fit / 2``, and half-widths with the allowance."""
        return self.fit / 2.0, quantile_of(level) * self.further(level) * self.error / 2.0 + self.beyond.effects

    def scaled(self, factors: Vector) -> Self:
        """Return the estimate for features in other units: coefficients are multiplied by ``factors``."""
        scaled = {name: getattr(self, name) * factors for name in ("values", "spread", "fit", "error")}
        beyond = Allowance(self.beyond.coefficients * factors, self.beyond.effects * factors)
        return replace(self, **scaled, beyond=beyond)


_ROUNDS = 60


def around_biased(error: Vector, bias: Vector, level: float = 0.95) -> Vector:
    r"""Return half-widths of intervals around normal estimates with standard errors and bounds of their bias, ``(p,)``.

    With ``t = bias / error`` a half-width is ``c error``, where c solves

    .. math:: \Phi(c - t) - \Phi(-c - t) = \mathrm{level},

    the coverage at the largest possible bias. At 95%, c is 1.96 without bias, and ``t + 1.64`` for a large bias, as
    intervals then miss on one side only. Errors and biases are infinite where unknown. Source: Armstrong and Kolesar,
    "Optimal inference in a class of regression models", 2018 (fixed-length intervals).

    >>> around_biased(np.array([1.0, 1.0, 1.0]), np.array([0.0, 1.0, 10.0])).round(2).tolist()
    [1.96, 2.65, 11.64]
    """
    from scipy.special import ndtr

    finite = np.isfinite(error) & np.isfinite(bias)
    unit = np.where(finite & (error > 0.0), error, 1.0)
    # Without an error only the bias remains.
    ratio = np.where(finite, np.abs(bias) / unit, 0.0)
    most = quantile_of(level)
    tails = 2.0 * ndtr(-most)
    low, high = np.full_like(ratio, 0.0), ratio + most
    for _ in range(_ROUNDS):
        middle = (low + high) / 2.0
        # Far out a float represents tail probabilities accurately, but no coverage near 1.
        short = ndtr(ratio - middle) + ndtr(-middle - ratio) > tails
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return np.where(finite, np.where(error > 0.0, high * unit, np.abs(bias)), np.inf)
