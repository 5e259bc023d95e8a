"""From the epochs' mean answers to coefficients: covariates' moments, curvature, weighted equations, their solution.

In epoch k, at origin a_k and transform W_k, the mean score u_k estimates ``pi G_k(theta) + D_k h_k``, with
``h_k = W_k^-T (theta - a_k)``: G_k over rows of covariates (`Expected`), pi the share of people whose target is
there, and D what the released curvatures say beyond those rows. Public rows need no D. Without them G_k is over normal
rows with the released second moments, which is right for some data and not for others; D makes it right at a_k, as
the empirical Bayes estimate whose prior variance is the excess of D's mean square over its noise. What is left of its
error, of variance e^2 a number, counts as noise of u_k:

    S_k(theta) = (s_k^2 + e^2 |h|^2 / 2) I + e^2 h h' / 2 + spread / n_k + (b b' + |b|^2 I / p),

b a part of what G_k is beyond its tangent at a_k, where the rows are not the people's.

The estimate minimizes ``sum_k |u_k - ...|^2`` in S_k^-1, plus a weak prior. The interval of a coefficient holds the
values at which ``(theta_j - c)^2 <= z^2 V_j(c)``, V_j(c) the variance *if c were the truth*: as in Fieller's, it is
without bound where a direction's curvature cannot be told from zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from murk.errors import MurkError
from murk.learners.scores.expected import Expected, mean_matrix
from murk.learners.scores.model import Model, Response
from murk.learners.scores.rows import Rows, power
from murk.learners.scores.sums import Answer, Summary

Array = NDArray[np.float64]

# Of the estimate: coefficients in coded units are within a few of zero. Of the published origin: so is the logit.
PRIOR_VARIANCE, ORIGIN_VARIANCE, LOGIT_SQUARE = 25.0, 9.0, 25.0
_FITS, _STEPS = 3, 12
# An excess of a mean square over its noise counts from so many of its standard errors.
_SIGNIFICANT = 2.0
# The error that intervals allow for is larger than the estimate of it by so many of its standard errors.
_CAREFUL = 4.0
_FARTHEST = 12.0
# Normal rows are made right where an epoch was asked. Of what they say of the way from there, so much may be wrong.
_BENT = 0.3
# Standard deviations beyond which public rows count as unlike the people: by chance once in 10,000 times.
_UNLIKE = 3.72


@dataclass(frozen=True)
class _Moments:
    """What the matrices say of the covariates, in the newest epoch's coordinates z = W x.

    Parameters
    ----------
    moment
        Second moment of x, up to the constant's being 1.
    shape
        The same in z, of mean eigenvalue 1.
    scale
        What W is multiplied by for a typical |z| of sqrt p.
    settled
        Whether z is spread evenly enough over all directions.
    """

    moment: Array
    shape: Array
    scale: float
    settled: bool


@dataclass(frozen=True)
class _Equation:
    """One epoch's: its mean score, and what it is expected to be."""

    answer: Answer
    expected: Expected
    correction: Array
    error: float
    along: Array
    into: Array
    origin: Array
    start: Array
    tangent: Array

    def curved(self, theta: Array, logit: Array) -> Array:
        """What G_k is beyond its tangent at the origin, (p,)."""
        return np.asarray(self.expected.score(logit) - self.start - self.tangent @ (theta - self.origin))


@dataclass(frozen=True)
class _Curvature:
    """How released curvatures differ from those over the rows, in the newest epoch's coordinates.

    Parameters
    ----------
    ratio, ratio_variance
        How much there is of what the rows predict: below 1 where targets are missing.
    along
        The direction of the coefficients, times the fourth root of the variance of the curvature along it, (p,).
    correction
        D, (p, p).
    error, caution
        Variance of what is left of a number's error: an unbiased estimate of it, and a careful one.
    noise
        Of a number, before any of it was drawn towards zero.
    """

    ratio: float
    ratio_variance: float
    along: Array
    correction: Array
    error: float
    caution: float
    noise: float

    @classmethod
    def unknown(cls, solution: Solution) -> _Curvature:
        """Where no curvature was released yet: what rows predict, within a third, unless they are public."""
        p = solution.features
        nothing = np.zeros(p), np.zeros((p, p))
        if solution.public:
            return cls(1.0, 0.0, *nothing, 0.0, 0.0, 0.0)
        loose = 0.3 * float(np.trace(mean_matrix(solution.newest, solution.rows, solution.response))) / p
        return cls(1.0, 0.1, *nothing, loose**2, loose**2, loose**2)


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

    def __init__(self, found: Sequence[Summary], response: Response, rows: Rows | None = None) -> None:
        self.response = response
        self.newest = found[-1].model
        self.features = p = len(self.newest.origin)
        self.public = rows is not None
        self.unlike = 0.0
        self._back = np.linalg.inv(self.newest.transform)
        self.moments = _moments(found, self.newest, self._back) if rows is None else None
        self.rows = rows if rows is not None else Rows.normal(self._normal_moment())
        self.curvature = self._curvature(found)
        asked = [each for each in found if each.score is not None]
        if not self.alike:
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
        """Share of the people whose target is missing, where public rows let it be told."""
        return max(0.0, 1.0 - self.curvature.ratio) if self._trusted else 0.0

    @property
    def _trusted(self) -> bool:
        """Whether the rows are the people's own law, and not only made to fit it at the origins."""
        return self.public and self.alike

    @property
    def alike(self) -> bool:
        """Whether released curvatures are what the public rows predict, as far as can be told."""
        return self.unlike <= _UNLIKE

    # What matrices say

    def _normal_moment(self) -> Array:
        assert self.moments is not None
        return self.moments.moment

    def _curvature(self, found: Sequence[Summary]) -> _Curvature:
        """What released curvatures say of those that the rows predict, in newest coordinates."""
        p = self.features
        size = p * (p + 1) / 2
        measured, expected, weight = np.zeros((p, p)), np.zeros((p, p)), 0.0
        for each in found:
            if each.curvature is None:
                continue
            into = self.newest.transform @ np.linalg.inv(each.model.transform)
            share = 1.0 / (_own(each.curvature, p) * _gain(into) ** 2)
            measured += share * into @ each.curvature.mean @ into.T
            expected += share * into @ mean_matrix(each.model, self.rows, self.response) @ into.T
            weight += share
        if weight == 0.0:
            return _Curvature.unknown(self)
        measured, expected, noise = measured / weight, expected / weight, 1.0 / weight
        square = float(np.sum(expected**2))
        ratio, ratio_variance = float(np.sum(measured * expected)) / square, noise / square
        if self.public:
            missing = ratio < 1.0 - 3.0 * math.sqrt(ratio_variance)
            ratio = max(ratio, 0.02) if missing else 1.0
            # Wilson and Hilferty: the cube root of a chi-square over its degrees of freedom is nearly normal.
            left = float(np.sum((measured - ratio * expected) ** 2)) / noise / size
            self.unlike = (left ** (1.0 / 3.0) - (1.0 - 2.0 / (9.0 * size))) / math.sqrt(2.0 / (9.0 * size))
            if self.alike:
                return _Curvature(ratio, ratio_variance if missing else 0.0, np.zeros(p), np.zeros((p, p)), 0.0, 0.0, 0.0)
        # Two things may be wrong with many numbers at once: how much curvature there is, and how much of it lies along
        # the coefficients. They are fitted; of the rest each number is drawn towards zero.
        along = np.linalg.inv(self.newest.transform).T @ self.newest.origin
        length = float(np.linalg.norm(along))
        along = along / length if length > 0.0 else np.zeros(p)
        basis = np.array([expected.ravel(), np.outer(along, along).ravel()])[: 2 if length > 0.0 else 1]
        gram = basis @ basis.T
        fitted = np.linalg.solve(gram, basis @ measured.ravel())
        variances = noise * np.diag(np.linalg.inv(gram))
        rest = measured - (fitted @ basis).reshape(p, p)
        excess = max(0.0, float(np.sum(rest**2)) / max(size - len(fitted), 1.0) - noise)
        kept = excess / (excess + noise)
        careful = excess + _CAREFUL * noise * math.sqrt(2.0 / size)
        correction = kept * rest
        if length > 0.0:
            correction = correction + fitted[1] * np.outer(along, along)
        return _Curvature(
            min(max(float(fitted[0]), 0.02), 5.0),
            float(variances[0]),
            along * math.sqrt(math.sqrt(float(variances[-1]))) if length > 0.0 else along,
            correction,
            kept * noise,
            kept**2 * noise + (1.0 - kept) ** 2 * careful,
            noise,
        )

    def _equation(self, each: Summary) -> _Equation:
        assert each.score is not None
        into = each.model.transform @ self._back
        factor = 1.0 if self.response.binary else 2.0
        expected, logit = Expected.of(each.model, self.rows, self.response), self.rows.points @ each.model.origin
        return _Equation(
            each.score,
            expected,
            factor * into @ self.curvature.correction @ into.T,
            (factor * _gain(into)) ** 2,
            math.sqrt(factor) * into @ self.curvature.along,
            np.linalg.inv(each.model.transform).T,
            each.model.origin,
            expected.score(logit),
            expected.slope(logit),
        )

    # The equations

    def _noise(self, one: _Equation, theta: Array, spread: Array, error: float) -> Array:
        """S_k at theta."""
        h = one.into @ (theta - one.origin)
        known = error * one.error
        diagonal = one.answer.noise + known / 2.0 * float(h @ h)
        noise = diagonal * np.eye(self.features) + known / 2.0 * np.outer(h, h) + one.answer.share * spread
        logit = self.rows.points @ theta
        if self.curvature.ratio_variance:
            scaled = one.expected.score(logit)
            noise += self.curvature.ratio_variance * np.outer(scaled, scaled)
        if self._trusted:
            return np.asarray(noise)
        noise += float(one.along @ h) ** 2 * np.outer(one.along, one.along)
        bent = self.curvature.ratio * _BENT * one.curved(theta, logit)
        return np.asarray(noise + float(bent @ bent) / self.features * np.eye(self.features) + np.outer(bent, bent))

    def _terms(self, theta: Array, pull: Array, inverses: Sequence[Array]) -> tuple[Array, Array, float]:
        """Curvature, gradient and value of the sum to be minimized, with given S_k^-1."""
        information, gradient = pull.copy(), -pull @ theta
        value = float(theta @ pull @ theta)
        logit = self.rows.points @ theta
        for one, inverse in zip(self._equations, inverses, strict=True):
            h = one.into @ (theta - one.origin)
            left = one.answer.mean - self.curvature.ratio * one.expected.score(logit) - one.correction @ h
            slope = self._slope(one, logit)
            information += slope.T @ inverse @ slope
            gradient += slope.T @ inverse @ left
            value += float(left @ inverse @ left)
        return information, gradient, value

    def _slope(self, one: _Equation, logit: Array) -> Array:
        return np.asarray(self.curvature.ratio * one.expected.slope(logit) + one.correction @ one.into)

    def _solve(self, theta: Array, pull: Array) -> Array:
        """Levenberg-Marquardt, with the weights S_k^-1 taken anew at each of a few solutions."""
        for _ in range(_FITS):
            logit = self.rows.points @ theta
            inverses = [
                np.linalg.inv(self._noise(one, theta, self.curvature.ratio * one.expected.spread(logit), self.curvature.error))
                for one in self._equations
            ]
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

    def _covariance(self, theta: Array) -> Array:
        """Covariance of the solution if ``theta`` were the truth."""
        information = self._prior.copy()
        for one, slope, spread in zip(self._equations, self._slopes, self._spreads, strict=True):
            noise = self._noise(one, theta, spread, self.curvature.caution)
            information += slope.T @ np.linalg.solve(noise, slope)
        return np.linalg.inv(information)

    @cached_property
    def covariance(self) -> Array:
        """Covariance of the solution, (p, p), with what the public sample's finite size adds."""
        if not self._equations:
            return np.eye(self.features) * PRIOR_VARIANCE
        found = self._covariance(self.values)
        if math.isinf(self.rows.sample):
            return found
        logit = self.rows.points @ self.values
        pulled = np.zeros_like(self.rows.points)
        for one, slope, spread in zip(self._equations, self._slopes, self._spreads, strict=True):
            summands = self.curvature.ratio * one.expected.summands(logit)
            summands -= self.rows.shares @ summands
            pulled += summands @ np.linalg.solve(self._noise(one, self.values, spread, self.curvature.caution), slope)
        extra = (pulled * (self.rows.shares / self.rows.sample)[:, None]).T @ pulled
        return np.asarray(found + found @ extra @ found)

    def half_widths(self, quantile: float) -> Array:
        """Half widths of the intervals of all coefficients, (p,); infinite where one was not learned."""
        out = np.full(self.features, math.inf)
        covariance = self.covariance
        for j in range(self.features):
            # Where the prior says more than a quarter of what is known, there is no answer, only a guess.
            if covariance[j, j] > PRIOR_VARIANCE / 4.0:
                continue
            widths = [self._reach(j, sign, quantile, covariance) for sign in (-1.0, 1.0)]
            out[j] = max(widths)
        return out

    def _reach(self, j: int, sign: float, quantile: float, covariance: Array) -> float:
        """How far from the solution a value of coefficient j is first rejected, in one direction."""
        width = quantile * math.sqrt(float(covariance[j, j]))
        if self.curvature.caution == 0.0:
            return width
        path = sign * covariance[:, j] / covariance[j, j]

        def rejected(distance: float) -> bool:
            variance = float(self._covariance(self.values + distance * path)[j, j])
            return distance > quantile * math.sqrt(max(variance, 0.0))

        low = high = width
        while not rejected(high):
            low, high = high, 1.3 * high
            if high > _FARTHEST:
                return math.inf
        if high == width:
            return width
        for _ in range(6):
            middle = (low + high) / 2.0
            low, high = (low, middle) if rejected(middle) else (middle, high)
        return high

    # What comes next

    def next_model(self, reach: float, exponent: float, shares: tuple[float, float]) -> Model:
        """The model of the next epoch: at the solution, in coordinates whose curvature is even."""
        p = self.features
        if self.moments is not None and not self.moments.settled:
            shape = self.moments.shape
            transform = self.moments.scale * power(shape, -0.5, 1e-3) @ self.newest.transform
            return Model(np.zeros(p), transform, reach, exponent, 0.0, 0.5).rounded()
        at = Model(self.origin if self.response.binary else np.zeros(p), self.newest.transform, reach, exponent, 0, 0)
        predicted = mean_matrix(at, self.rows, self.response)
        values, vectors = np.linalg.eigh(predicted + self.curvature.correction)
        # A correction that is mostly noise may leave next to nothing.
        mean = max(float(np.mean(values)), 0.25 * float(np.trace(predicted)) / p)
        values = np.maximum(values, mean / (1e6 if self.public else 4.0)) / mean
        scale = self.moments.scale if self.moments is not None else self._public_scale()
        transform = scale * (vectors / np.sqrt(values)) @ vectors.T @ self.newest.transform
        return Model(at.origin, transform, reach, exponent, *shares).rounded()

    def _public_scale(self) -> float:
        """Back to a typical length of sqrt p."""
        Z = self.rows.points @ self.newest.transform.T
        square = float(self.rows.shares @ np.einsum("ij,ij->i", Z, Z))
        return math.sqrt(self.features / square)


def _gain(into: Array) -> float:
    """What a change of coordinates multiplies a matrix's noise by, on average over directions."""
    return float(np.sum(into * into)) / len(into)


def _own(answer: Answer, features: int) -> float:
    """Variance of a number of a mean matrix: the mechanism's noise, and what people differ by at most."""
    return answer.noise + answer.share / (features * (features + 1) / 2)


def _moments(found: Sequence[Summary], newest: Model, back: Array) -> _Moments:
    """Second moments from released scatters: those of all epochs together, drawn towards even ones where noise rules.

    At origin zero a curvature is a scatter.
    """
    p = len(newest.origin)
    size = p * (p + 1) / 2
    total, weight = np.zeros((p, p)), 0.0
    for each in found:
        answers = [each.scatter, each.curvature if not np.any(each.model.origin) else None]
        for answer in answers:
            if answer is None:
                continue
            into = newest.transform @ np.linalg.inv(each.model.transform)
            share = 1.0 / (_own(answer, p) * _gain(into) ** 2)
            total += share * into @ answer.mean @ into.T
            weight += share
    if weight == 0.0:
        return _Moments(np.eye(p), np.eye(p), 1.0, False)
    scatter, noise = total / weight, 1.0 / weight
    # As long as it is mostly noise, even its trace may not be positive.
    mean = max(float(np.trace(scatter)) / p, math.sqrt(noise / p))
    uneven = float(np.sum((scatter - mean * np.eye(p)) ** 2)) / size
    drawn = 1.0 if uneven < noise * (1.0 + _SIGNIFICANT * math.sqrt(2.0 / size)) else noise / uneven
    scatter = (1.0 - drawn) * scatter + drawn * mean * np.eye(p)
    values, vectors = np.linalg.eigh(scatter)
    values = np.maximum(values, max(0.5 * math.sqrt(noise), 1e-3 * mean))
    scatter = (vectors * values) @ vectors.T
    moment = back @ scatter @ back.T
    rough = math.sqrt(max(uneven - noise, 0.0)) / mean
    settled = len(found) > 1 and (rough < 0.5 or drawn == 1.0)
    return _Moments(moment / moment[-1, -1], scatter / mean, math.sqrt(p) / (2.0 * mean * p), settled)
