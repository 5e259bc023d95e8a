"""From epochs' mean answers to coefficients without public rows: moments, curvature, weighted equations, solution.

In epoch k, at origin a_k and transform W_k, the mean score u_k estimates ``pi G_k(theta) + D_k h_k``, with
``h_k = W_k^-T (theta - a_k)``: G_k over rows of covariates (`Expected`), pi the share of people whose target is
there, and D what the released curvatures say beyond those rows. G_k is over normal rows with the released second
moments, which is right for some data and not for others; D makes it right at a_k, as the empirical Bayes estimate whose
prior variance is the excess of D's mean square over its noise. What is left of its error, of variance e^2 a number,
counts as noise of u_k:

    S_k(theta) = (s_k^2 + e^2 |h|^2 / 2) I + e^2 h h' / 2 + spread / n_k + (b b' + |b|^2 I / p),

b a part of what G_k is beyond its tangent at a_k, where the rows are not the people's. Two numbers of the curvature, pi
and D along the coefficients, matter most and are shared by all epochs: they are solved for together with theta, from
where released curvatures have them, as exactly as these do.

The estimate minimizes ``sum_k |u_k - ...|^2`` in S_k^-1, plus a weak prior; its variance has the error of D once, since
all epochs share it. The interval of a coefficient holds the values at which ``(theta_j - c)^2 <= z^2 V_j(c)``, V_j(c)
the variance *if c were the truth*: as in Fieller's, it is without bound where a direction's curvature cannot be
distinguished from zero. Its constants were chosen on generated tasks; docs/scores.md has what they cover.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from murk.errors import MurkError
from murk.learners.core.scoring.curvature import Curvature
from murk.learners.core.scoring.descent import descend
from murk.learners.core.scoring.model import Model, Response
from murk.learners.core.scoring.moments import Moments, gain, stretched
from murk.learners.core.scoring.rows import Expected, Rows, inverse, power
from murk.learners.core.scoring.sums import Answer, Summary

Array = NDArray[np.float64]
Rejected = Callable[[NDArray[np.int64], Array], NDArray[np.bool_]]

# Coefficients in coded units are within a few of zero. So is the logit, of the published origin and, without public
# rows, of the estimate: its intervals are around it, and as wide as without that.
PRIOR_VARIANCE, ORIGIN_VARIANCE, LOGIT_SQUARE = 25.0, 9.0, 25.0
_FITS, _STEPS = 3, 12
# A direction is stretched freely up to this part of the reach: the people of two categories are 2 apart in coded units,
# so that those of a rare one are then as long as the reach.
_FREE = 0.5
# Power of what is beyond it.
_BEYOND = 0.5
# And by up to so many times the reach: less would hide what is nearly collinear.
_STRETCHED = 4.0
# Nearly as wide as the prior's own: such an interval counts as one without an end.
_FARTHEST = 8.0
# Numbers that are worked on at once, where several coefficients' intervals are sought.
_AT_ONCE = 2**20
# Of the share of targets that are there.
_LEAST = 0.02
# Normal rows are made right where an epoch was asked. Of what they say of the way from there, so much may be wrong.
_BENT = 0.3


@dataclass(frozen=True)
class _Equation:
    """One epoch's: its mean score, and what it is expected to be."""

    answer: Answer
    expected: Expected
    correction: Array
    carried: Array
    along: Array
    into: Array
    origin: Array
    start: Array
    tangent: Array


@dataclass(frozen=True)
class _Stacked:
    """All epochs' equations side by side, (k, ...): the parts that noise is made of, which is asked for often.

    Parameters
    ----------
    mean
        Their answers, (k, p).
    noise, share, whole
        Of their answers, (k, 1, 1).
    square
        Mean of ``c^2 z z'`` over the rows, (k, p, p).
    low, rise
        G_k is ``low + rise @ level`` where rows' probabilities (or means) are ``level``: (k, p) and (k, p, m).
    correction, carried, into, along, origin, start, tangent
        Each equation's own, one after the other.
    gained
        What the newest coordinates' noise is in each one's, (k,).
    """

    mean: Array
    noise: Array
    share: Array
    whole: Array
    square: Array
    low: Array
    rise: Array
    correction: Array
    carried: Array
    into: Array
    along: Array
    origin: Array
    start: Array
    tangent: Array
    gained: Array

    @classmethod
    def of(cls, equations: Sequence[_Equation], rows: Rows) -> _Stacked:
        """That of some equations."""
        levels = [one.expected.level for one in equations]
        columns = [one.expected.directions.T * rows.shares for one in equations]
        answers = [one.answer for one in equations]
        noise, share, whole = (
            np.array([getattr(each, name) for each in answers])[:, None, None] for name in ("noise", "share", "whole")
        )
        each = {
            name: np.array([getattr(one, name) for one in equations])
            for name in ("correction", "carried", "into", "along", "origin", "start", "tangent")
        }
        return cls(
            np.array([each.mean for each in answers]),
            noise,
            share,
            whole,
            np.array([one.expected.square for one in equations]),
            np.array([part @ low for part, (low, _) in zip(columns, levels, strict=True)]),
            np.array([part * rise for part, (_, rise) in zip(columns, levels, strict=True)]),
            gained=np.array([gain(one.carried) for one in equations]),
            **each,
        )

    def scores(self, level: Array) -> Array:
        """G_k of each, (..., k, p), at levels (..., m)."""
        return np.asarray(self.low + np.moveaxis(self.rise @ level.T, (0, 1), (-2, -1)))

    def ways(self, theta: Array) -> tuple[Array, Array]:
        """How far solutions (..., p) are from each origin, as it is and in that epoch's coordinates, (..., k, p)."""
        way = theta[..., None, :] - self.origin
        return way, (self.into @ way[..., None])[..., 0]


class Solution:
    """The solution of all epochs' equations.

    Parameters
    ----------
    found
        The epochs' mean answers, oldest first.
    response
        How the target enters.
    unlike
        Whether there are public rows that the people are unlike: only centred scores are used then.
    """

    public = False

    def __init__(self, found: Sequence[Summary], response: Response, *, unlike: bool = False) -> None:
        self.response = response
        self.newest = found[-1].model
        self.features = p = len(self.newest.origin)
        self.unlike = unlike
        self._back = self.newest.back
        self.moments = Moments.of(found, response)
        self.rows = Rows.normal(self.moments.moment, np.array(self.newest.origin))
        self.curvature = Curvature.of(found, self.rows, response)
        asked = [each for each in found if each.score is not None]
        if unlike:
            # Only a centred score has mean zero at the truth whatever the distribution of the covariates.
            asked = [each for each in asked if each.model.exponent == 1.0]
        self._equations = [self._equation(each) for each in asked]
        pull = self.rows.second_moment * p / LOGIT_SQUARE + np.eye(p) / ORIGIN_VARIANCE
        self._solution = np.concatenate([self.newest.origin, np.zeros(2)])
        if self._equations:
            self._solution = self._solve(self._solution, _beside(pull))
        self.values = self.origin = self._solution[:p]

    @property
    def doubt(self) -> float:
        """The normal rows say nothing of the people but their second moments: nothing is to be doubted beside."""
        return 0.0

    @property
    def missing(self) -> float:
        """Not known without rows: it takes part in how much curvature there is."""
        return 0.0

    @property
    def alike(self) -> bool:
        """Whether there are no public rows that are unlike the people."""
        return not self.unlike

    def _equation(self, each: Summary) -> _Equation:
        assert each.score is not None
        into = each.model.transform @ self._back
        factor = 1.0 if self.response.binary else 2.0
        expected, logit = Expected.of(each.model, self.rows, self.response), self.rows.points @ each.model.origin
        return _Equation(
            each.score,
            expected,
            factor * into @ self.curvature.correction @ into.T,
            math.sqrt(factor) * into,
            math.sqrt(factor) * into @ self.curvature.along,
            each.model.back.T,
            each.model.origin,
            expected.score(logit),
            expected.slope(logit),
        )

    def of_fewer(self, found: Sequence[Summary]) -> Solution:
        """The solution of fewer answers, in the way in which all were solved."""
        return Solution(found, self.response, unlike=self.unlike)

    # The equations

    @cached_property
    def _stacked(self) -> _Stacked:
        return _Stacked.of(self._equations, self.rows)

    def _spreads_at(self, theta: Array) -> Array:
        """What people's scores vary by at theta, (k, p, p)."""
        logit = self.rows.points @ theta
        return self.curvature.ratio * np.array([one.expected.spread(logit) for one in self._equations])

    def _noise(self, theta: Array, scores: Array, spreads: Array, error: float) -> tuple[Array, Array]:
        """S_k at theta, (..., k, p, p): what is each epoch's own, and what comes of an error that they share."""
        all_, identity = self._stacked, np.eye(self.features)
        way, h = all_.ways(theta)
        shared = (error * all_.gained**2 / 2.0)[:, None, None] * lengthened(h, 1.0, identity)
        # What G_k is beyond its tangent at the origin.
        curved = scores - all_.start - (all_.tangent @ way[..., None])[..., 0]
        bent = lengthened(self.curvature.ratio * _BENT * curved, 1.0 / self.features, identity)
        return all_.noise * identity + all_.share * spreads + all_.whole * all_.square + bent, shared

    def _expected(self, solution: Array) -> tuple[Array, Array]:
        """The mean scores that are expected, (k, p), and their slopes, (k, p, p + 2)."""
        all_, theta, unknown = self._stacked, solution[: self.features], solution[self.features :]
        logit = self.rows.points @ theta
        level, steep = self.response.level_and_steep(logit)
        risen = all_.rise @ np.column_stack([level, steep[:, None] * self.rows.points])
        score, h = all_.low + risen[:, :, 0], all_.ways(theta)[1]
        along = np.sum(all_.along * h, axis=1, keepdims=True) * all_.along
        ratio, more = np.array([self.curvature.ratio, 0.0]) + self.curvature.root @ unknown
        ratio = max(ratio, _LEAST)
        correction = all_.correction + more * all_.along[:, :, None] * all_.along[:, None, :]
        slope = ratio * risen[:, :, 1:] + correction @ all_.into
        expected = ratio * score + (correction @ h[:, :, None])[:, :, 0]
        return expected, np.concatenate([slope, np.stack([score, along], axis=2) @ self.curvature.root], axis=2)

    def _terms(self, solution: Array, pull: Array, inverses: Array) -> tuple[Array, Array, float]:
        """Curvature, gradient and value of the sum to be minimized, with given S_k^-1."""
        expected, slopes = self._expected(solution)
        left, pulled = self._stacked.mean - expected, pull @ solution
        weighed = slopes.transpose(0, 2, 1) @ inverses
        information = pull + np.sum(weighed @ slopes, axis=0)
        gradient = np.sum(weighed @ left[:, :, None], axis=0)[:, 0] - pulled
        return information, gradient, float(solution @ pulled + np.einsum("ki,kij,kj->", left, inverses, left))

    def _solve(self, solution: Array, pull: Array) -> Array:
        """Nonlinear least squares, with the weights S_k^-1 taken again at each of a few solutions."""
        for _ in range(_FITS):
            theta = solution[: self.features]
            scores = self._stacked.scores(self.response.level(self.rows.points @ theta))
            own, shared = self._noise(theta, scores, self._spreads_at(theta), self.curvature.error)
            terms = partial(self._terms, pull=pull, inverses=inverse(own + shared))
            solution = descend(solution, terms, _STEPS)
        if not np.all(np.isfinite(solution)):
            raise MurkError("the epochs' equations have no finite solution")
        return solution

    # What is known of the solution

    @cached_property
    def _slopes(self) -> Array:
        return self._expected(self._solution)[1][:, :, : self.features]

    @cached_property
    def _spreads(self) -> Array:
        return self._spreads_at(self.values)

    def _covariance(self, theta: Array) -> Array:
        """Covariances of the solution, (..., p, p), if each ``theta``, (..., p), were the truth.

        ``H^-1 M H^-1``: M adds up each epoch's own noise, and the errors that they share as they pull together.
        """
        p, curvature, all_ = self.features, self.curvature, self._stacked
        prior, h = _beside(np.eye(p) / PRIOR_VARIANCE), all_.ways(theta)[1]
        scores = all_.scores(self.response.level(theta @ self.rows.points.T))
        own, shared = self._noise(theta, scores, self._spreads, curvature.error)
        along = np.sum(all_.along * h, axis=-1, keepdims=True) * all_.along
        unknown = np.stack([scores, along], axis=-1) @ curvature.root
        slopes = np.concatenate([np.broadcast_to(self._slopes, (*unknown.shape[:-1], p)), unknown], axis=-1)
        weighed = np.linalg.solve(own + shared, slopes)
        across = weighed.swapaxes(-1, -2)
        information = prior + np.sum(slopes.swapaxes(-1, -2) @ weighed, axis=-3)
        middle = prior + np.sum(across @ own @ weighed, axis=-3)
        numbers = (h[..., None, :] @ all_.carried)[..., 0, :]
        by_number = np.einsum("...kia,...kb->...iab", across @ all_.carried, numbers)
        # A symmetric matrix of errors, of this variance on the diagonal and half of it beside it.
        flat = by_number.reshape(*by_number.shape[:-2], -1)
        both = flat + by_number.swapaxes(-1, -2).reshape(flat.shape)
        middle += curvature.error / 2.0 * (flat @ both.swapaxes(-1, -2))
        back = inverse(information)
        return np.asarray((back @ middle @ back)[..., :p, :p])

    @cached_property
    def misfits(self) -> Array:
        """Squared residual of each epoch's mean score at the solution, in units of its variance, (k,)."""
        if not self._equations:
            return np.zeros(0)
        logit = self.rows.points @ self.values
        scores = self._stacked.scores(self.response.level(logit))
        own, shared = self._noise(self.values, scores, self._spreads, self.curvature.error)
        left = self._stacked.mean - self._expected(self._solution)[0]
        return np.asarray(np.einsum("ki,kij,kj->k", left, inverse(own + shared), left))

    @cached_property
    def covariance(self) -> Array:
        """Covariance of the solution, (p, p)."""
        if not self._equations:
            return np.eye(self.features) * PRIOR_VARIANCE
        return self._covariance(self.values)

    def half_widths(self, quantile: float) -> Array:
        """Half widths of the intervals of all coefficients, (p,); infinite where one was not learned."""
        return first_rejected(self.values, self.covariance, quantile, far_from(self.values, self._covariance, quantile))

    # What comes next

    def next_model(self, reach: float, exponent: float, shares: tuple[float, float]) -> Model:
        """The model of the next epoch: at the solution, in coordinates whose curvature is even."""
        base = self.even_coordinates(reach)
        if not self.moments.settled:
            return Model(np.zeros(self.features), base, reach, exponent, 0.0, 0.5).rounded()
        origin = self.values if self.response.binary else np.zeros(self.features)
        return Model(origin, stretched(base, origin), reach, exponent, *shares).rounded()

    def even_coordinates(self, reach: float) -> Array:
        """A transform in whose coordinates people are spread evenly over all directions, (p, p)."""
        return even_coordinates(self.moments, reach)


def even_coordinates(moments: Moments, reach: float) -> Array:
    """A transform in whose coordinates people of these moments are spread evenly over all directions, (p, p)."""
    return _within(moments.scale * power(moments.shape, -0.5, 1e-3) @ moments.base, reach)


def _beside(pull: Array) -> Array:
    """A prior's precision of the coefficients, with that of the two unknowns of the curvature."""
    p = len(pull)
    both = np.eye(p + 2)
    both[:p, :p] = pull
    return both


def lengthened(vectors: Array, share: float, identity: Array) -> Array:
    """Products ``v v' + share |v|^2 I`` of vectors (..., p)."""
    squares = np.sum(vectors * vectors, axis=-1)[..., None, None]
    return np.asarray(share * squares * identity + vectors[..., :, None] * vectors[..., None, :])


def _within(transform: Array, reach: float) -> Array:
    """A transform that stretches no direction of the coded features more than it has to.

    Of a direction that few people have much of, as of a rare category, the coordinates make those people long. In
    matrices and scores alike they count for less the longer they are, and beyond R for ``R/|z|`` of that: such a
    direction seems weak however far it is stretched, and would be stretched again at every epoch, until these people
    count for nothing. Released matrices do not tell it from one that all have little of. So a direction that would be
    even when stretched by s, beyond h = R/2, is stretched by ``sqrt(h s)``. Asked about again in those coordinates, it
    comes to rest at ``h / sqrt(v)`` if it seems to have v of what others have, where ``s^(2/3)`` would come to rest at
    ``h / v``.
    """
    left, stretches, right = np.linalg.svd(transform)
    free = _FREE * reach
    held = np.minimum(free * np.maximum(stretches / free, 1.0) ** _BEYOND, _STRETCHED * reach)
    return np.asarray((left * np.minimum(stretches, held)) @ right)


def _straight(covariance: Array, quantile: float) -> Array:
    """Half widths of a normal distribution; infinite where the prior says more than a quarter of what is known."""
    variances = np.diag(covariance)
    return np.asarray(np.where(variances > PRIOR_VARIANCE / 4.0, math.inf, quantile * np.sqrt(variances)))


def far_from(values: Array, covariance: Callable[[Array], Array], quantile: float) -> Rejected:
    """The test of `first_rejected` by what the solution's covariances are if values (c, p) were the truth."""

    def rejected(places: NDArray[np.int64], there: Array) -> NDArray[np.bool_]:
        each = np.arange(len(places))
        variances = np.maximum(covariance(there)[each, places, places], 0.0)
        return np.asarray(np.abs(there[each, places] - values[places]) > quantile * np.sqrt(variances))

    return rejected


def first_rejected(values: Array, covariance: Array, quantile: float, rejected: Rejected) -> Array:
    """Half widths of the intervals: how far from the solution a value of each coefficient is first rejected, (p,).

    ``rejected(places, there)`` tells of some coefficients' values in ``there``, (c, p), where the others are as likely
    as can be, whether each is rejected, (c,).
    """
    found = _straight(covariance, quantile)

    def reached(places: NDArray[np.int64]) -> Array:
        both, signs = np.tile(places, 2), np.repeat([-1.0, 1.0], len(places))
        paths = signs[:, None] * (covariance[:, both] / covariance[both, both]).T

        def far(some: NDArray[np.int64], off: Array) -> NDArray[np.bool_]:
            return rejected(both[some], values + off[:, None] * paths[some])

        return np.asarray(_reach(far, found[both]).reshape(2, -1).max(axis=0))

    known = np.flatnonzero(np.isfinite(found))
    # Each coefficient takes a table of p^3 numbers.
    for places in np.array_split(known, math.ceil(len(known) * len(values) ** 3 / _AT_ONCE) or 1):
        found[places] = reached(places)
    return found


def _reach(rejected: Rejected, start: Array) -> Array:
    """The first distances along paths that are rejected, (c,), by what is rejected of some paths' distances."""
    low, high, left = np.zeros_like(start), start.copy(), np.arange(len(start))
    while len(left):
        left = left[~rejected(left, high[left])]
        low[left], high[left] = high[left], 1.3 * high[left]
        left = left[high[left] <= _FARTHEST]
    endless = (high > _FARTHEST) & (high > start)
    left = np.flatnonzero(~endless)
    for _ in range(7 if len(left) else 0):
        middle = (low[left] + high[left]) / 2.0
        beyond = rejected(left, middle)
        low[left], high[left] = np.where(beyond, low[left], middle), np.where(beyond, middle, high[left])
    return np.where(endless, math.inf, high)
