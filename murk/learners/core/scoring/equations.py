"""All releases as one vector of mean scores and the mean curvature, and the public rows' prediction of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from murk.learners.core.coordinates import flattened
from murk.learners.core.scoring.model import Response, directions
from murk.learners.core.scoring.moments import gain, own_variance
from murk.learners.core.scoring.rows import Expected, Rows
from murk.learners.core.scoring.sums import Answer, Summary

Array = NDArray[np.float64]

# Largest number of entries for which all entries of a curvature are used.
_NUMBERS = 600


@dataclass(frozen=True)
class Equation:
    """One epoch's mean score, its expectation, and the change to the coordinates of its group."""

    answer: Answer
    expected: Expected
    change: Array

    def terms(self, part: int) -> Array:
        """Return the rows' terms at level 0 (part 0), or their increase up to level 1 (part 1), (m, p)."""
        return np.asarray((self.expected.directions * self.expected.level[part][:, None]) @ self.change.T)

    def noise(self, logit: Array, share: float) -> Array:
        """Return the covariance of the mean score's noise, including people's own spread."""
        answer, mean = self.answer, self.expected.score(logit)
        share = min(max(share, 0.0), 1.0)  # a fitted share may lie outside
        spread = share * self.expected.spread(logit) - share**2 * np.outer(mean, mean)
        own = answer.noise * np.eye(len(mean)) + answer.share * spread + answer.whole * self.expected.square
        return np.asarray(self.change @ own @ self.change.T)


@dataclass(frozen=True)
class ReleasedMoments:
    """The releases, and each row's terms of their expectation.

    Scores have terms ``base + level bend``, where only the level (a probability, or a line's height) depends on the
    coefficients. The curvature's terms do not depend on them.
    """

    groups: list[list[Equation]]  # groups of equations, each solved as one
    # rows, response: covariates, and how the target enters a score
    rows: Rows
    response: Response
    released: Array  # r: the groups' mean scores in the newest coordinates, and the curvature
    # base, bend: rows' terms of the scores, (m, numbers of scores)
    base: Array
    bend: Array
    matrices: Array  # rows' terms of the curvature, (m, its numbers); none before any was released
    own: Array  # covariance of the released curvature's noise

    @classmethod
    def of(cls, found: Sequence[Summary], response: Response, rows: Rows) -> ReleasedMoments:
        """Return the releases in epochs' mean answers, with their terms over rows."""
        newest = found[-1].model
        groups = _grouped(found, response, rows)
        measured, matrices, own = _pooled(found, response, rows)
        answers = [np.asarray(sum(one.change @ one.answer.mean for one in group)) for group in groups]
        base, bend = (_joined(groups, part, (len(rows.points), len(newest.origin))) for part in (0, 1))
        return cls(groups, rows, response, np.concatenate([*answers, measured]), base, bend, matrices, own)

    @property
    def curvatures(self) -> bool:
        """Whether any curvature was released."""
        return bool(self.matrices.shape[1])

    def noise(self, theta: Array, share: float) -> Array:
        """Return the covariance of r's noise."""
        logit, scores = self.rows.points @ theta, self.base.shape[1]
        found = np.zeros((len(self.released), len(self.released)))
        p = len(theta)
        for k, group in enumerate(self.groups):
            at = slice(k * p, (k + 1) * p)
            found[at, at] = sum(one.noise(logit, share) for one in group)
        found[scores:, scores:] = self.own
        return found

    def level(self, theta: Array) -> Array:
        """Return each row's probability, or the line's height, at theta, (m,)."""
        return self.level_at(np.asarray(self.rows.points @ theta))

    def level_at(self, logit: Array) -> Array:
        """Return each row's probability, or the line's height, at its logit, (m,)."""
        return self.response.level(logit)

    def terms(self, theta: Array) -> Array:
        """Return the rows' terms of r less their mean, (m, numbers of r)."""
        terms = np.concatenate([self.base + self.level(theta)[:, None] * self.bend, self.matrices], axis=1)
        return np.asarray(terms - self.rows.shares @ terms)

    def mean(self, theta: Array) -> Array:
        """Return the rows' prediction of r."""
        shares = self.rows.shares
        scores = shares @ self.base + (shares * self.level(theta)) @ self.bend
        return np.concatenate([scores, shares @ self.matrices])

    def slope(self, theta: Array) -> Array:
        """Return the derivative of `mean`."""
        steep = self.response.steep(np.asarray(self.rows.points @ theta))
        scores = self.bend.T @ ((self.rows.shares * steep)[:, None] * self.rows.points)
        return np.concatenate([scores, np.zeros((self.matrices.shape[1], len(theta)))])


def _grouped(found: Sequence[Summary], response: Response, rows: Rows) -> list[list[Equation]]:
    """Return epochs' equations, grouped by exponent and similar variance, weighted by precision in each group."""
    newest = found[-1].model
    groups: dict[tuple[float, int], list[Equation]] = {}
    for each in found:
        if each.score is not None:
            change = newest.transform @ each.model.back
            key = each.model.exponent, math.floor(math.log2(_variance(each.score)))
            one = Equation(each.score, Expected.of(each.model, rows, response), change)
            groups.setdefault(key, []).append(one)
    weighted = []
    for group in groups.values():
        weights = np.array([1.0 / _variance(one.answer) for one in group])
        weights = weights / weights.sum()
        weighted.append([replace(one, change=float(w) * one.change) for w, one in zip(weights, group, strict=True)])
    return weighted


def _variance(answer: Answer) -> float:
    """Return the variance of an entry of a mean score, with the largest possible spread of people."""
    return answer.noise + answer.share + answer.whole


def _joined(groups: Sequence[Sequence[Equation]], part: int, shape: tuple[int, int]) -> Array:
    """Return the rows' terms of all groups side by side."""
    rows, p = shape
    terms = np.zeros((rows, len(groups) * p))
    for k, group in enumerate(groups):
        for one in group:
            terms[:, k * p : (k + 1) * p] += one.terms(part)
    return terms


def _pooled(found: Sequence[Summary], response: Response, rows: Rows) -> tuple[Array, Array, Array]:
    """Return the mean curvature in the newest coordinates, rows' terms of it, and its noise's covariance."""
    newest = found[-1].model
    p = len(newest.origin)
    measured, weight, factors = np.zeros((p, p)), 0.0, np.zeros(len(rows.points))
    for each in found:
        if each.curvature is None:
            continue
        change = newest.transform @ each.model.back
        share = 1.0 / (own_variance(each.curvature, p) * gain(change) ** 2)
        measured += share * change @ each.curvature.mean @ change.T
        reached = directions(rows.points, each.model, each.model.matrix_reach)
        lengths = _clip_factors(reached, rows.points @ each.model.transform.T)
        factors += share * response.weights(rows.points @ each.model.origin, each.model.exponent) * lengths
        weight += share
    if weight == 0.0:
        return np.zeros(0), np.zeros((len(factors), 0)), np.zeros((0, 0))
    Z = rows.points @ newest.transform.T
    factors, measured, noise = factors / weight, measured / weight, 1.0 / weight
    if p * (p + 1) / 2 <= _NUMBERS:
        numbers = flattened(measured)
        return numbers, flattened(Z[:, :, None] * Z[:, None, :]) * factors[:, None], noise * np.eye(len(numbers))
    # Of very many entries only those that matter most are used: along the coefficients.
    along = newest.back.T @ newest.origin
    along = along / max(float(np.linalg.norm(along)), 1e-12)
    own = noise / 2.0 * (np.eye(p) + np.outer(along, along))
    return measured @ along, Z * (factors * (Z @ along))[:, None], own


def _clip_factors(reached: Array, Z: Array) -> Array:
    """Return c(z) of rows, from ``c(z) z`` and z."""
    square = np.einsum("ij,ij->i", Z, Z)
    return np.asarray(np.einsum("ij,ij->i", reached, Z) / np.where(square > 0.0, square, 1.0))
