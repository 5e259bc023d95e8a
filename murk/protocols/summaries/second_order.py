r"""Bounds on the error of a Newton step due to its second order, for any distribution of the features: pure functions.

At a model s with scores ``u = x's`` a step d moves a record's score by ``v = x'd``. With ``q = 1 / (1 + e^-u)``, ``w =
q (1 - q)``, a record's weight h and the Hessian ``L = sum h w x x'``, the gradient's mean is ``b = L d + R``,

.. math:: R = \sum h w\, g(u, v)\, x, \qquad g = \frac{e^v - 1}{1 + q (e^v - 1)} - v,

where g is the curve's rise over v, divided by w, minus v. As ``sum h w ([L^-1]_j x)^2 = [L^-1]_jj``, and rho bounds x,

.. math:: |[L^{-1} R]_j| \le \min\Bigl(\sqrt{[L^{-1}]_{jj} \sum h w g^2},\
    \rho \sum_k |[L^{-1}]_{jk}| \sum h w |g|\Bigr)

with and without the Cauchy-Schwarz inequality. The distribution of (u, v) over people is unknown, but the step's sums
determine, up to noise, ``sum h w (1, u, v, u^2, uv, v^2)`` and, with the labels, the sum of ``h ((1 - 2q)(p - q) + w) /
w``, p the probability after the step. The number of people is known, and bounded features keep (u, v) in a convex
figure. Linear programs give the largest value of both sums in the bound over all such distributions, and the least and
largest mean slope of the curve after the step. The estimate of that slope is its least-squares approximation by the
functions with known sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from murk._internal.arrays import Matrix, Vector
from murk.privacy.central.newton_step import EDGE
from murk.protocols.summaries.sums import NewtonSums

_SCORES, _MOVES, _SIDES = 33, 65, 48
_FARTHEST = 30.0  # larger scores are not considered, as the curve is flat there
_SURE = 3.0  # standard deviations by which noise and chance may have moved a sum


@dataclass(frozen=True)
class Scores:
    """All distributions of people over (u, v) that the sums of steps allow, on a grid of m points."""

    u: Vector  # scores at the step's model, (m,)
    v: Vector  # their changes by the step, (m,)
    weights: Vector  # h w at the points, (m,)
    likely: Vector  # weights of the points for the estimated slope
    people: float  # number of people
    rows: Matrix  # functions of (u, v), (k, m), the first of them 1
    known: Vector  # their means over people, (k,)
    doubt: Vector  # largest error of these means by noise and chance, (k,)
    constant: bool  # whether the number of people is bounded from both sides

    @classmethod
    def of(
        cls,
        sums: NewtonSums,
        values: Vector,
        covariance: Matrix,
        *,
        people: tuple[float, float],
        bounds: tuple[float, float],
        target_weight: float,
        constant: bool,
    ) -> Scores:
        """Return the distributions that the sums of steps to ``values`` with ``covariance`` allow.

        ``people`` is the number of records with a target and its error, ``bounds`` are on a single feature and on all
        together, and ``constant`` is whether the last feature is 1 in every record that counts.
        """
        p, count = len(values), people[0]
        u, v = _grid((sums.low, sums.high), values, bounds, constant)
        chance, after = 1.0 / (1.0 + np.exp(-u)), 1.0 / (1.0 + np.exp(-u - v))
        bernoulli = chance * (1.0 - chance)
        kept = np.exp(np.minimum(EDGE - np.abs(u), 0.0))
        squares = kept * ((1.0 - 2.0 * chance) * (after - chance) / bernoulli + 1.0)
        plane = {"1": np.ones_like(u), "u": u, "v": v}
        at = {name: np.zeros(p + 2) for name in plane}
        at["1"][p - 1] = at["u"][p + 1] = 1.0
        at["v"][:p], at["v"][p + 1] = values, -1.0
        # Pairs that do not need a constant come first.
        pairs = [("u", "u"), ("u", "v"), ("v", "v"), *([("1", "1"), ("1", "u"), ("1", "v")] if constant else [])]
        totals = [float(at[one] @ sums.step @ at[other]) for one, other in pairs]
        # The noise of the sums, computed at the middle of the models.
        middle, noise = (sums.low + sums.high) / 2.0, float(sums.step_noise[p, p])
        near = {"1": at["1"][:p], "u": middle, "v": values - middle}
        squared = [
            noise / 2.0 * ((near[one] @ near[one]) * (near[other] @ near[other]) + (near[one] @ near[other]) ** 2)
            for one, other in pairs
        ]
        # A label's square is at most e, and moves with the coefficients: by the Cauchy-Schwarz inequality.
        largest = math.exp(EDGE)
        loose = math.sqrt(max(float(np.sum(sums.step[:p, :p] * covariance)), 0.0))
        chances = _SURE * math.hypot(math.sqrt(largest * sums.step_sampled), math.sqrt(noise) / target_weight**2)
        doubt = [people[1], chances + math.sqrt(largest * sums.stepped) * loose, *_SURE * np.sqrt(squared)]
        rows = np.vstack([plane["1"], squares, *(kept * bernoulli * plane[one] * plane[other] for one, other in pairs)])
        means = np.array([count, float(sums.step[p, p]), *totals]) / count
        # Most people lie within about two standard deviations of the mean.
        likely = np.ones_like(u)
        if constant and means[5] > 0.0:
            for score, index, square in ((u, 6, 2), (v, 7, 4)):
                mean = means[index] / means[5]
                likely = likely * np.exp(-((score - mean) ** 2) / 8.0 / max(means[square] / means[5] - mean**2, 1e-6))
        units = np.abs(rows).max(axis=1, initial=1e-12)
        scaled = rows / units[:, None], means / units, np.array(doubt) / count / units
        return cls(u, v, kept * bernoulli, likely, count, *scaled, constant)

    def most(self, cost: Vector) -> float:
        """Return the maximum, over the distributions, of a function's sum over people; infinite if the solver fails."""
        from scipy.optimize import milp

        if not len(cost):
            # Everybody's score is beyond the grid.
            return math.inf
        size = float(np.abs(cost).max())
        if not size > 0.0:
            return 0.0
        high, low = self.known + self.doubt, self.known - self.doubt
        if not self.constant:
            low[0] = 0.0
        # If no distribution has these sums, allow all with at most these squares and this number of people.
        bounded = [0, 2, 4]
        for rows, least, limits in (
            (self.rows, low, high),
            (self.rows[bounded], -math.inf, np.maximum(high[bounded], 0.0)),
        ):
            # With so few rows presolving takes longer than solving.
            result = milp(-cost / size, constraints=(rows, least, limits), options={"presolve": False})
            if result.success:
                return -float(result.fun) * size * self.people
        return math.inf

    def remainder(self, inverse: Matrix, information: Matrix, bounds: tuple[float, float]) -> Vector:
        """Return an upper bound on ``|L^-1 R|`` for each coefficient (see the module), ``(p,)``."""
        rise = np.expm1(self.v)
        missed = rise / (1.0 + rise / (1.0 + np.exp(-self.u))) - self.v
        own = np.maximum(np.einsum("ij,jk,ki->i", inverse, information, inverse), 0.0)
        by_square = np.sqrt(own * self.most(self.weights * missed**2))
        largest = np.minimum(bounds[0] * np.abs(inverse).sum(axis=1), bounds[1] * np.linalg.norm(inverse, axis=1))
        return np.asarray(np.minimum(by_square, largest * self.most(self.weights * np.abs(missed))))

    def slope(self) -> tuple[float, float, float]:
        """Return the mean slope of the logistic curve over people after the step: estimate, least and largest."""
        if not len(self.u):
            return 0.125, 0.0, 0.25
        after = _slope(self.u + self.v)
        ends = -self.most(-after) / self.people, self.most(after) / self.people
        root = np.sqrt(self.likely)
        shares = np.linalg.lstsq((self.rows * root).T, after * root, rcond=1e-8)[0]
        return float(np.clip(shares @ self.known, *ends)), *ends


def _slope(score: Vector) -> Vector:
    chance = 1.0 / (1.0 + np.exp(-np.abs(score)))
    return np.asarray(chance * (1.0 - chance))


def _grid(
    ends: tuple[Vector, Vector], values: Vector, bounds: tuple[float, float], constant: bool
) -> tuple[Vector, Vector]:
    """Return the grid points (u, v) that bounded features allow, and adjacent points outside."""

    def farthest(a: float, b: float) -> float:
        """Return the largest ``a u + b v``; as it is convex in the model, one of ``ends`` attains it."""
        each = [a * end + b * (values - end) for end in ends]
        sizes, fixed = np.maximum(*np.abs(each)), 0.0
        if constant:
            sizes, fixed = sizes[:-1], max(end[-1] for end in each)
        return fixed + min(bounds[0] * float(sizes.sum()), bounds[1] * float(np.linalg.norm(sizes)))

    low, high = [-farthest(-1.0, 0.0), -farthest(0.0, -1.0)], [farthest(1.0, 0.0), farthest(0.0, 1.0)]
    low, high = (np.clip(each, -_FARTHEST, _FARTHEST).tolist() for each in (low, high))
    u, v = (each.ravel() for each in np.meshgrid(*map(np.linspace, low, high, (_SCORES, _MOVES))))
    cell = [(high[0] - low[0]) / (_SCORES - 1), (high[1] - low[1]) / (_MOVES - 1)]
    wide, far = (max(end - start, 1e-9) for start, end in zip(low, high, strict=True))
    within = np.ones(len(u), dtype=bool)
    for angle in np.linspace(0.0, 2.0 * math.pi, _SIDES, endpoint=False).tolist():
        a, b = math.cos(angle) / wide, math.sin(angle) / far
        within &= a * u + b * v <= farthest(a, b) + abs(a) * cell[0] + abs(b) * cell[1]
    return u[within], v[within]
