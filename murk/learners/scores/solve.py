"""From epochs' mean answers to coefficients without public rows: moments, curvature, weighted equations, solution.

In epoch k, at origin a_k and transform W_k, the mean score u_k estimates ``pi G_k(theta) + D_k h_k``, with
``h_k = W_k^-T (theta - a_k)``: G_k over rows of covariates (`Expected`), pi the share of people whose target is
there, and D what the released curvatures say beyond those rows. G_k is over normal rows with the released second
moments, which is right for some data and not for others; D makes it right at a_k, as the empirical Bayes estimate whose
prior variance is the excess of D's mean square over its noise. What is left of its error, of variance e^2 a number,
counts as noise of u_k:

    S_k(theta) = (s_k^2 + e^2 |h|^2 / 2) I + e^2 h h' / 2 + spread / n_k + (b b' + |b|^2 I / p),

b a part of what G_k is beyond its tangent at a_k, where the rows are not the people's.

The estimate minimizes ``sum_k |u_k - ...|^2`` in S_k^-1, plus a weak prior; its variance has the error of D once, since
all epochs share it. The interval of a coefficient holds the values at which ``(theta_j - c)^2 <= z^2 V_j(c)``, V_j(c)
the variance *if c were the truth*: as in Fieller's, it is without bound where a direction's curvature cannot be told
from zero. Its constants were chosen on generated tasks; docs/scores.md has what they cover.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from murk.errors import MurkError
from murk.learners.scores.curvature import Curvature
from murk.learners.scores.expected import Expected, mean_matrix
from murk.learners.scores.model import Model, Response
from murk.learners.scores.moments import Moments, gain
from murk.learners.scores.rows import Rows, inverse, power
from murk.learners.scores.sums import Answer, Summary

Array = NDArray[np.float64]

# Of the estimate: coefficients in coded units are within a few of zero. Of the published origin: so is the logit.
PRIOR_VARIANCE, ORIGIN_VARIANCE, LOGIT_SQUARE = 25.0, 9.0, 25.0
_FITS, _STEPS = 3, 12
# A direction is stretched by up to so many times the reach: less would hide what is nearly collinear.
_STRETCHED = 4.0
_FARTHEST = 12.0
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

    def curved(self, theta: Array, logit: Array) -> Array:
        """What G_k is beyond its tangent at the origin, (p,)."""
        return np.asarray(self.expected.score(logit) - self.start - self.tangent @ (theta - self.origin))


class Solution:
    """The solution of all epochs' equations.

    Parameters
    ----------
    found
        The epochs' mean answers, oldest first.
    response
        How the target enters.
    rows
        Public covariates, if there are any.
    """

    public = False

    def __init__(self, found: Sequence[Summary], response: Response, *, unlike: bool = False) -> None:
        self.response = response
        self.newest = found[-1].model
        self.features = p = len(self.newest.origin)
        self.unlike = unlike
        self._back = inverse(self.newest.transform)
        self.moments = Moments.of(found)
        self.rows = Rows.normal(self.moments.moment)
        self.curvature = Curvature.of(found, self.rows, response)
        asked = [each for each in found if each.score is not None]
        if unlike:
            # Only a centred score has mean zero at the truth whatever the law of the covariates.
            asked = [each for each in asked if each.model.exponent == 1.0]
        self._equations = [self._equation(each) for each in asked]
        moment = self.rows.second_moment
        pull = moment * p / LOGIT_SQUARE + np.eye(p) / ORIGIN_VARIANCE
        self.origin = self._solve(np.array(self.newest.origin), pull) if self._equations else np.zeros(p)
        self._prior = np.eye(p) / PRIOR_VARIANCE
        self.values = self._solve(self.origin.copy(), self._prior) if self._equations else np.zeros(p)

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
            inverse(each.model.transform).T,
            each.model.origin,
            expected.score(logit),
            expected.slope(logit),
        )

    # The equations

    def _noise(self, one: _Equation, theta: Array, spread: Array, error: float) -> tuple[Array, Array]:
        """S_k at theta: what is the epoch's own, and what comes of a correction's error, which all epochs share."""
        identity = np.eye(self.features)
        own = one.answer.noise * identity + one.answer.share * spread + one.answer.whole * one.expected.square
        logit = self.rows.points @ theta
        shared = np.zeros_like(own)
        if self.curvature.ratio_variance:
            scaled = one.expected.score(logit)
            shared += self.curvature.ratio_variance * np.outer(scaled, scaled)
        h = one.into @ (theta - one.origin)
        known = error * gain(one.carried) ** 2
        shared += known / 2.0 * (float(h @ h) * identity + np.outer(h, h))
        shared += float(one.along @ h) ** 2 * np.outer(one.along, one.along)
        bent = self.curvature.ratio * _BENT * one.curved(theta, logit)
        own = own + float(bent @ bent) / self.features * identity + np.outer(bent, bent)
        return own, shared

    def _terms(self, theta: Array, pull: Array, inverses: Sequence[Array]) -> tuple[Array, Array, float]:
        """Curvature, gradient and value of the sum to be minimized, with given S_k^-1."""
        information, gradient = pull.copy(), -pull @ theta
        value = float(theta @ pull @ theta)
        logit = self.rows.points @ theta
        for one, precision in zip(self._equations, inverses, strict=True):
            h = one.into @ (theta - one.origin)
            left = one.answer.mean - self.curvature.ratio * one.expected.score(logit) - one.correction @ h
            slope = self._slope(one, logit)
            information += slope.T @ precision @ slope
            gradient += slope.T @ precision @ left
            value += float(left @ precision @ left)
        return information, gradient, value

    def _slope(self, one: _Equation, logit: Array) -> Array:
        return np.asarray(self.curvature.ratio * one.expected.slope(logit) + one.correction @ one.into)

    def _solve(self, theta: Array, pull: Array) -> Array:
        """Levenberg-Marquardt, with the weights S_k^-1 taken anew at each of a few solutions."""
        for _ in range(_FITS):
            logit = self.rows.points @ theta
            inverses = []
            for one in self._equations:
                spread = self.curvature.ratio * one.expected.spread(logit)
                own, shared = self._noise(one, theta, spread, self.curvature.error)
                inverses.append(inverse(own + shared))
            theta = self._descend(theta, pull, inverses)
        if not np.all(np.isfinite(theta)):
            raise MurkError("the epochs' equations have no finite solution")
        return theta

    def _descend(self, theta: Array, pull: Array, inverses: Sequence[Array]) -> Array:
        damping = 1e-3
        information, gradient, value = self._terms(theta, pull, inverses)
        for _ in range(_STEPS):
            step = np.linalg.solve(information + damping * np.diag(np.diag(information)), gradient)
            tried = self._terms(theta + step, pull, inverses)
            if tried[2] <= value:
                theta = theta + step
                information, gradient, value = tried
                damping /= 4.0
                if float(np.max(np.abs(step))) < 1e-6:
                    break
            else:
                damping *= 6.0
        return theta

    # What is known of the solution

    @cached_property
    def _slopes(self) -> list[Array]:
        logit = self.rows.points @ self.values
        return [self._slope(one, logit) for one in self._equations]

    @cached_property
    def _spreads(self) -> list[Array]:
        logit = self.rows.points @ self.values
        return [self.curvature.ratio * one.expected.spread(logit) for one in self._equations]

    def _weighed(self, theta: Array) -> Iterator[tuple[_Equation, Array, Array, Array]]:
        """Each equation with its slope, its own noise, and ``S_k^-1`` times the slope, if ``theta`` were the truth."""
        for one, slope, spread in zip(self._equations, self._slopes, self._spreads, strict=True):
            own, shared = self._noise(one, theta, spread, self.curvature.caution)
            yield one, slope, own, np.asarray(np.linalg.solve(own + shared, slope), dtype=np.float64)

    def _covariance(self, theta: Array) -> Array:
        """Covariance of the solution if ``theta`` were the truth.

        ``H^-1 M H^-1``: M adds up each epoch's own noise, and the errors that they share as they pull together.
        """
        p, curvature = self.features, self.curvature
        logit = self.rows.points @ theta
        information, middle = self._prior.copy(), self._prior.copy()
        by_ratio, along, by_number = np.zeros(p), np.zeros(p), np.zeros((p, p, p))
        for one, slope, own, weigh in self._weighed(theta):
            information += slope.T @ weigh
            middle += weigh.T @ own @ weigh
            h = one.into @ (theta - one.origin)
            by_ratio += weigh.T @ one.expected.score(logit)
            along += float(one.along @ h) * weigh.T @ one.along
            by_number += (weigh.T @ one.carried)[:, :, None] * (one.carried.T @ h)[None, None, :]
        middle += curvature.ratio_variance * np.outer(by_ratio, by_ratio) + np.outer(along, along)
        # A symmetric matrix of errors, of this variance on the diagonal and half of it beside it.
        flat, turned = by_number.reshape(p, -1), by_number.transpose(0, 2, 1).reshape(p, -1)
        middle += curvature.caution / 2.0 * (flat @ flat.T + flat @ turned.T)
        back = inverse(information)
        return np.asarray(back @ middle @ back)

    @cached_property
    def covariance(self) -> Array:
        """Covariance of the solution, (p, p), with what the public sample's finite size adds."""
        if not self._equations:
            return np.eye(self.features) * PRIOR_VARIANCE
        return self._covariance(self.values)

    def half_widths(self, quantile: float) -> Array:
        """Half widths of the intervals of all coefficients, (p,); infinite where one was not learned."""
        if self.curvature.caution == 0.0:
            return _straight(self.covariance, quantile)

        def test(j: int) -> Callable[[Array], bool]:
            def rejected(theta: Array) -> bool:
                variance = max(float(self._covariance(theta)[j, j]), 0.0)
                return abs(float(theta[j] - self.values[j])) > quantile * math.sqrt(variance)

            return rejected

        return first_rejected(self.values, self.covariance, quantile, test)

    # What comes next

    def next_model(self, reach: float, exponent: float, shares: tuple[float, float]) -> Model:
        """The model of the next epoch: at the solution, in coordinates whose curvature is even."""
        p = self.features
        if not self.moments.settled:
            shape = self.moments.shape
            transform = _within(self.moments.scale * power(shape, -0.5, 1e-3) @ self.newest.transform, reach)
            return Model(np.zeros(p), transform, reach, exponent, 0.0, 0.5).rounded()
        at = Model(self.origin if self.response.binary else np.zeros(p), self.newest.transform, reach, exponent, 0, 0)
        predicted = mean_matrix(at, self.rows, self.response)
        values, vectors = np.linalg.eigh(predicted + self.curvature.correction)
        # A correction that is mostly noise may leave next to nothing.
        mean = max(float(np.mean(values)), 0.25 * float(np.trace(predicted)) / p)
        values = np.maximum(values, mean / 4.0) / mean
        transform = self.moments.scale * (vectors / np.sqrt(values)) @ vectors.T @ self.newest.transform
        transform = _within(transform, reach)
        return Model(at.origin, transform, reach, exponent, *shares).rounded()


def _within(transform: Array, reach: float) -> Array:
    """A transform that stretches no direction of the coded features beyond a few times the reach.

    Of a direction that few people have much of, as of a rare category, the coordinates make those people long, who then
    count for less: it seems the weaker the more it is stretched, and would be stretched again at every epoch, until
    these people count for nothing.
    """
    left, stretches, right = np.linalg.svd(transform)
    return np.asarray((left * np.minimum(stretches, _STRETCHED * reach)) @ right)


def _straight(covariance: Array, quantile: float) -> Array:
    """Half widths of a normal law; infinite where the prior says more than a quarter of what is known."""
    variances = np.diag(covariance)
    return np.asarray(np.where(variances > PRIOR_VARIANCE / 4.0, math.inf, quantile * np.sqrt(variances)))


def first_rejected(
    values: Array, covariance: Array, quantile: float, test: Callable[[int], Callable[[Array], bool]]
) -> Array:
    """Half widths of the intervals: how far from the solution a value of each coefficient is first rejected, (p,).

    ``test(j)(theta)`` tells it of coefficient j's value in theta, where the others are as likely as can be.
    """
    found = _straight(covariance, quantile)
    for j in np.flatnonzero(np.isfinite(found)).tolist():
        path, rejected = covariance[:, j] / covariance[j, j], test(j)
        found[j] = max(_reach(rejected, values, sign * path, float(found[j])) for sign in (-1.0, 1.0))
    return found


def _reach(rejected: Callable[[Array], bool], values: Array, path: Array, start: float) -> float:
    """The first distance along a path that is rejected."""
    low, high = 0.0, start
    while not rejected(values + high * path):
        low, high = high, 1.3 * high
        if high > _FARTHEST:
            return math.inf
    for _ in range(7):
        middle = (low + high) / 2.0
        low, high = (low, middle) if rejected(values + middle * path) else (middle, high)
    return high
