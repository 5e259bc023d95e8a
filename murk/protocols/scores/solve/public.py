"""Coefficients from rounds' answers with public covariates, allowing for people unlike the public rows.

The people's distribution of covariates is that of the rows, reweighted at random as if the rows were a sample of ``1 /
kappa`` of them. Rounds' mean scores and the mean curvature form one vector r with

    r = pi (G(theta) + b) + noise,    b ~ N(0, kappa Gamma),

where G is the rows' prediction, Gamma the covariance of one row's terms, and pi the share of people with a target.
Centred scores, whose terms vanish at the truth, keep their weight; others lose weight as kappa grows. Each kappa of a
grid from 1 over the number of rows to 1/4, with pi = 1 and with pi free, is a hypothesis: solved by generalized least
squares and weighted by its marginal likelihood. The estimate averages over hypotheses (Hoeting, Madigan, Raftery,
Volinsky, "Bayesian model averaging", 1999); its variance adds the differences between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Floats, Integers
from murk.errors import MurkError
from murk.inference.estimate import surely_missing
from murk.inference.misfit import UNLIKE, excess
from murk.protocols.linear_algebra import flattened, whitening
from murk.protocols.rows import Rows
from murk.protocols.scores.model import Expected, Model, Response, directions, inverse, mean_matrix
from murk.protocols.scores.solve.curve import LOGIT_SQUARE, ORIGIN_VARIANCE, PRIOR_VARIANCE, first_rejected
from murk.protocols.scores.solve.moments import gain, own_variance
from murk.protocols.scores.sums import Answer, Summaries

_ERROR_CODE = "MURK-LEARN-001"

_NUMBERS = 600  # largest number of entries for which all entries of a curvature are used


@dataclass(frozen=True)
class Equation:
    """One round's mean score, its expectation, and the transform to the coordinates of its group."""

    answer: Answer
    expected: Expected
    change: Floats

    def terms(self, part: int) -> Floats:
        """Return the rows' terms at level 0 (part 0), or their increase up to level 1 (part 1), (m, p)."""
        return np.asarray((self.expected.directions * self.expected.level[part][:, None]) @ self.change.T)

    def noise(self, logit: Floats, share: float) -> Floats:
        """Return the covariance of the mean score's noise, including people's own spread."""
        answer, mean = self.answer, self.expected.score(logit)
        share = min(max(share, 0.0), 1.0)  # a fitted share may lie outside [0, 1]
        spread = share * self.expected.spread(logit) - share**2 * np.outer(mean, mean)
        covariance = answer.noise * np.eye(len(mean)) + answer.share * spread + answer.whole * self.expected.square
        return np.asarray(self.change @ covariance @ self.change.T)


@dataclass(frozen=True)
class ReleasedMoments:
    """The releases, and each row's terms of their expectation.

    Scores have terms ``base + level bend``; only the level (a probability, or a line's height) depends on coefficients.
    """

    groups: list[list[Equation]]  # groups of equations, each solved as one
    rows: Rows
    response: Response
    released: Floats  # r: the groups' mean scores in the newest coordinates, and the curvature
    base: Floats  # terms of the scores at level 0, (m, numbers of scores)
    bend: Floats  # increase of these terms up to level 1, (m, numbers of scores)
    matrices: Floats  # rows' terms of the curvature, (m, its numbers); none before any was released
    own: Floats  # covariance of the released curvature's noise

    @classmethod
    def of(cls, found: Summaries, response: Response, rows: Rows) -> ReleasedMoments:
        """Extract the scores and curvatures of all rounds, and compute the rows' terms of their expectations."""
        groups = _grouped(found, response, rows)
        measured, matrices, own = _pooled(found, response, rows)
        answers = [np.asarray(sum(each.change @ each.answer.mean for each in group)) for group in groups]
        none = np.zeros((len(rows.points), 0))
        base, bend = (
            np.concatenate([none, *(np.asarray(sum(each.terms(part) for each in group)) for group in groups)], axis=1)
            for part in (0, 1)
        )
        return cls(groups, rows, response, np.concatenate([*answers, measured]), base, bend, matrices, own)

    @property
    def curvatures(self) -> bool:
        """Whether any curvature was released."""
        return bool(self.matrices.shape[1])

    def noise(self, theta: Floats, share: float) -> Floats:
        """Return the covariance of r's noise."""
        logit, scores = self.rows.points @ theta, self.base.shape[1]
        covariance = np.zeros((len(self.released), len(self.released)))
        p = len(theta)
        for k, group in enumerate(self.groups):
            at = slice(k * p, (k + 1) * p)
            covariance[at, at] = sum(each.noise(logit, share) for each in group)
        covariance[scores:, scores:] = self.own
        return covariance

    def level(self, theta: Floats) -> Floats:
        """Return each row's probability, or the line's height, at theta, (m,)."""
        return self.response.level(np.asarray(self.rows.points @ theta))

    def terms(self, theta: Floats) -> Floats:
        """Return the rows' terms of r minus their mean, (m, numbers of r)."""
        terms = np.concatenate([self.base + self.level(theta)[:, None] * self.bend, self.matrices], axis=1)
        return np.asarray(terms - self.rows.shares @ terms)

    def mean(self, theta: Floats) -> Floats:
        """Return the rows' prediction of r."""
        shares = self.rows.shares
        scores = shares @ self.base + (shares * self.level(theta)) @ self.bend
        return np.concatenate([scores, shares @ self.matrices])

    def slope(self, theta: Floats) -> Floats:
        """Return the derivative of `mean`."""
        steep = self.response.steep(np.asarray(self.rows.points @ theta))
        scores = self.bend.T @ ((self.rows.shares * steep)[:, None] * self.rows.points)
        return np.concatenate([scores, np.zeros((self.matrices.shape[1], len(theta)))])


def _grouped(found: Summaries, response: Response, rows: Rows) -> list[list[Equation]]:
    """Return rounds' equations, grouped by exponent and similar variance, weighted by precision in each group."""
    newest = found[-1].model
    groups: dict[tuple[float, int], list[Equation]] = {}
    for each in found:
        if each.score is not None:
            change = newest.transform @ each.model.back
            key = each.model.exponent, math.floor(math.log2(_variance(each.score)))
            equation = Equation(each.score, Expected.of(each.model, rows, response), change)
            groups.setdefault(key, []).append(equation)
    weighted = []
    for group in groups.values():
        weights = np.array([1.0 / _variance(each.answer) for each in group])
        weights = weights / weights.sum()
        weighted.append([replace(one, change=float(w) * one.change) for w, one in zip(weights, group, strict=True)])
    return weighted


def _variance(answer: Answer) -> float:
    """Return the variance of an entry of a mean score, with the largest possible spread of people."""
    return answer.noise + answer.share + answer.whole


def _pooled(found: Summaries, response: Response, rows: Rows) -> tuple[Floats, Floats, Floats]:
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
        reached = directions(rows.points, each.model, each.model.matrix_clipping_norm)
        Z = rows.points @ each.model.transform.T
        square = np.einsum("ij,ij->i", Z, Z)
        lengths = np.einsum("ij,ij->i", reached, Z) / np.where(square > 0.0, square, 1.0)  # c(z)
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
    variance = noise / 2.0 * (np.eye(p) + np.outer(along, along))
    return measured @ along, Z * (factors * (Z @ along))[:, None], variance


_STEPS, _ROUNDS = 8, 2
_USEFUL = 1.0 / 50.0  # rows whose kappa is larger are not used
_FACTOR, _MOST = 4.0, 0.25  # the grid of kappa: its factor and its largest value
_MISSING, _RIGHT = 0.5, 0.5  # prior probabilities that some targets are missing, and that the people are like the rows
_SELECTED = 0.005  # least kappa where some targets are missing
_THERE = 0.4  # prior standard deviation of a free pi
_SURELY = 2.5  # standard deviations from which missing targets are reported
_LIGHT = 0.002  # hypotheses of less weight do not count for intervals
_TERMS = 40_000_000  # most terms of rows held at once; beyond it rows are left out


@dataclass(frozen=True)
class _Hypothesis:
    """A hypothesis about the model: a value of kappa, with pi fixed at 1 or free."""

    kappa: float
    free: bool
    prior: float


@dataclass(frozen=True)
class _Fitted:
    """Solution under one hypothesis, linearized at a point."""

    evidence: float
    step: Floats
    influence: Floats
    covariance: Floats
    misfit: float
    share: float


class PublicSolution:
    """The solution of all rounds' equations over public rows, from the rounds' mean answers, oldest first.

    If nobody was asked for a curvature (``checked``), people are assumed to resemble the rows and to have targets.
    """

    public = True

    def __init__(self, found: Summaries, response: Response, rows: Rows) -> None:
        self.newest = found[-1].model
        self.features = p = len(self.newest.origin)
        self.checked = any(each.model.curvature > 0.0 for each in found)
        rows = rows.thinned(_TERMS // (p * (len(found) + p * self.checked)))
        self.response, self.rows = response, rows
        self.moments = ReleasedMoments.of(found, response, rows)
        self._hypotheses = self._grid()
        theta = np.array(self.newest.origin)
        share, best = 1.0, self._hypotheses[0]
        prior = np.eye(p) / PRIOR_VARIANCE
        for refinements in reversed(range(_ROUNDS + 1)):
            self._linearize(theta, share)
            fitted = [self._fit(each, theta, prior) for each in self._hypotheses]
            evidence = np.array([each.evidence for each in fitted])
            weights = np.exp(evidence - np.max(evidence))
            weights = weights / weights.sum()
            if refinements:
                best = self._hypotheses[int(np.argmax(weights))]
                theta, share = self._descend(theta, best, prior)
        self._best, self._share, self._at = best, share, theta
        self._fitted, self._weights = fitted, weights
        steps = np.array([each.step[:p] for each in fitted])
        self.values = theta + weights @ steps
        if not np.all(np.isfinite(self.values)):
            raise MurkError("the rounds' equations have no finite solution")
        differ = steps - weights @ steps
        within = [w * each.covariance[:p, :p] for w, each in zip(weights, fitted, strict=True)]
        self.covariance = (differ * weights[:, None]).T @ differ + sum(within)
        pull = rows.second_moment * p / LOGIT_SQUARE + np.eye(p) / ORIGIN_VARIANCE
        self.origin, _ = self._descend(self.values.copy(), best, pull)

    def _grid(self) -> list[_Hypothesis]:
        kappas = [1.0 / self.rows.people]
        if not self.checked:
            return [_Hypothesis(kappas[0], False, 1.0)]
        while kappas[-1] * _FACTOR <= _MOST:
            kappas.append(kappas[-1] * _FACTOR)
        others = (1.0 - _RIGHT) / max(len(kappas) - 1, 1)
        priors = [_RIGHT, *[others] * (len(kappas) - 1)]
        # Without curvatures missing targets look like small effects.
        missing = _MISSING if self.moments.curvatures else 0.0
        hypotheses = [
            _Hypothesis(each, False, prior * (1.0 - missing)) for each, prior in zip(kappas, priors, strict=True)
        ]
        # People with a target need not be like all people.
        selected = [each for each in kappas if each >= _SELECTED] or kappas[-1:]
        if missing:
            hypotheses += [_Hypothesis(each, True, missing / len(selected)) for each in selected]
        return hypotheses

    def _linearize(self, theta: Floats, share: float) -> None:
        moments = self.moments
        terms = moments.terms(theta) * np.sqrt(self.rows.shares)[:, None]
        self._noise, self._gamma = moments.noise(theta, share), share**2 * terms.T @ terms
        self._predicted, self._slopes = moments.mean(theta), moments.slope(theta)
        self._inverses: dict[float, tuple[Floats, float]] = {}

    def _weight(self, kappa: float) -> tuple[Floats, float]:
        """Return the inverse of r's covariance, and its log determinant."""
        if kappa not in self._inverses:
            covariance = self._noise + kappa * self._gamma
            self._inverses[kappa] = inverse(covariance), float(np.linalg.slogdet(covariance)[1])
        return self._inverses[kappa]

    # Hypotheses

    def _priors(self, theta: Floats, share: float, pull: Floats, free: bool) -> tuple[Floats, Floats]:
        """Return the prior's information and its centre relative to theta."""
        p = self.features
        information, centre = np.zeros((p + free, p + free)), np.r_[-theta, [1.0 - share] * free]
        information[:p, :p] = pull
        if free:
            information[p, p] = 1.0 / _THERE**2
        return information, centre

    def _fit(self, one: _Hypothesis, theta: Floats, pull: Floats) -> _Fitted:
        """Take one step from the linearization point, and compute the log marginal likelihood (``evidence``)."""
        precision, size = self._weight(one.kappa)
        share = self._target_share(precision) if one.free else 1.0
        left, design = self.moments.released - share * self._predicted, share * self._slopes
        if one.free:
            design = np.c_[design, self._predicted]
        prior, centre = self._priors(theta, share, pull, one.free)
        weighed = precision @ design
        information = prior + design.T @ weighed
        covariance = inverse(information)
        step = covariance @ (weighed.T @ left + prior @ centre)
        rest = left - design @ step
        misfit = float(rest @ precision @ rest)
        off = step - centre
        value = misfit + float(off @ prior @ off)
        occam = float(np.linalg.slogdet(information)[1] - np.linalg.slogdet(prior)[1])
        evidence = math.log(one.prior) - 0.5 * (value + size + occam)
        return _Fitted(evidence, step, weighed @ covariance, covariance, misfit, share)

    def _target_share(self, precision: Floats) -> float:
        """Return the share pi of people with a target that fits best at the linearization."""
        weighed, sure = precision @ self._predicted, 1.0 / _THERE**2
        share = (float(weighed @ self.moments.released) + sure) / (float(weighed @ self._predicted) + sure)
        return min(max(share, 0.05), 1.0)

    def _descend(self, theta: Floats, one: _Hypothesis, pull: Floats) -> tuple[Floats, float]:
        """Run Levenberg-Marquardt under one hypothesis, with fixed weights."""
        p, damping, precision = self.features, 1e-3, self._weight(one.kappa)[0]
        share = self._target_share(precision) if one.free else 1.0

        def value(theta: Floats, share: float) -> float:
            left = self.moments.released - share * self.moments.mean(theta)
            prior, centre = self._priors(theta, share, pull, one.free)
            return float(left @ precision @ left + centre @ prior @ centre)

        now = value(theta, share)
        for _ in range(_STEPS):
            mean, design = self.moments.mean(theta), share * self.moments.slope(theta)
            left = self.moments.released - share * mean
            if one.free:
                design = np.c_[design, mean]
            prior, centre = self._priors(theta, share, pull, one.free)
            information = prior + design.T @ precision @ design
            gradient = design.T @ precision @ left + prior @ centre
            for _ in range(6):
                step = np.linalg.solve(information + damping * np.diag(np.diag(information)), gradient)
                tried = theta + step[:p], share + float(step[p]) if one.free else 1.0
                then = value(*tried)
                if then <= now:
                    break
                damping *= 6.0
            else:
                break
            theta, share = tried
            now, damping = then, damping / 4.0
            if float(np.max(np.abs(step))) < 1e-5:
                break
        return theta, share

    def refit(self, found: Summaries) -> PublicSolution:
        """Return the solution for other answers."""
        return PublicSolution(found, self.response, self.rows)

    # Precision of the solution

    @cached_property
    def _misfit(self) -> float:
        """Number of standard deviations by which residuals exceed chance if the rows are a sample of the people."""
        complete = self._fitted[0].misfit
        missing = [each.misfit for one, each in zip(self._hypotheses, self._fitted, strict=True) if one.free]
        least = min([complete, *missing[:1]])
        free = len(self.moments.released) - self.features
        return excess(least, free) if free > 0 else 0.0

    @property
    def alike(self) -> bool:
        """Whether the releases agree with the public rows' predictions."""
        return self._misfit <= UNLIKE

    @property
    def useful(self) -> bool:
        """Whether the releases leave it plausible that the rows are worth at least ``1 / _USEFUL`` people."""
        poor = np.array([hypothesis.kappa > _USEFUL for hypothesis in self._hypotheses])
        before = float(np.sum(np.array([hypothesis.prior for hypothesis in self._hypotheses])[poor]))
        return float(np.sum(self._weights[poor])) <= (1.0 + before) / 2.0

    @property
    def doubt(self) -> float:
        """Posterior mean of kappa over the hypotheses, which measures how much people may differ from the rows."""
        return float(self._weights @ np.array([hypothesis.kappa for hypothesis in self._hypotheses]))

    @property
    def missing(self) -> float:
        """Lower bound on the share of people whose target is missing; 0 unless significant."""
        weighted = zip(self._weights, self._hypotheses, self._fitted, strict=True)
        free = [(weight, each) for weight, one, each in weighted if one.free]
        total = sum(w for w, _ in free)
        if total < 0.5:
            return 0.0
        share = sum(w * (each.share + float(each.step[-1])) for w, each in free) / total
        variance = sum(w * float(each.covariance[-1, -1]) for w, each in free) / total
        error = math.sqrt(variance)
        return surely_missing(1.0 - share, error) if 1.0 - share > _SURELY * error else 0.0

    @property
    def targets(self) -> tuple[float, float]:
        """The share of people with a target, and its standard error, over all hypotheses."""
        fits = list(zip(self._hypotheses, self._fitted, strict=True))
        shares = np.array([each.share + one.free * float(each.step[-1]) for one, each in fits])
        errors = np.array([one.free * float(each.covariance[-1, -1]) for one, each in fits])
        mean = float(self._weights @ shares)
        return mean, math.sqrt(float(self._weights @ (errors + (shares - mean) ** 2)))

    def half_widths(self, quantile: float) -> Floats:
        """Return half-widths, (p,), of the intervals of values that are not rejected; infinite where not learned."""
        alpha = 2.0 * NormalDist().cdf(-quantile)
        test = cache(partial(self._test, alpha=alpha))

        def rejected(indices: Integers, points: Floats) -> NDArray[np.bool_]:
            return np.array([test(j)(theta) for j, theta in zip(indices.tolist(), points, strict=True)])

        return first_rejected(self.values, self.covariance, quantile, rejected)

    @cached_property
    def _logit(self) -> Floats:
        """The rows' logits at the solution, (m,)."""
        return np.asarray(self.rows.points @ self.values)

    def _test(self, j: int, alpha: float) -> Callable[[Floats], bool]:
        """Return a test of coefficient j: given all coefficients, it returns whether the value of j is rejected."""
        p, shares, normal = self.features, self.rows.shares, NormalDist()
        heavy = [i for i, weight in enumerate(self._weights) if weight >= _LIGHT]
        heavy_fits = [(self._hypotheses[i], self._fitted[i], float(self._weights[i])) for i in heavy]
        pulls = np.array([each.influence[:, j] * each.share for _, each, _ in heavy_fits]).T
        own = [
            float(each.influence[:, j] @ self._noise @ each.influence[:, j])
            + float(np.sum(each.covariance[:p, j] ** 2)) / PRIOR_VARIANCE
            for _, each, _ in heavy_fits
        ]
        moments, size = self.moments, self.moments.base.shape[1]
        base = moments.base @ pulls[:size] + moments.matrices @ pulls[size:]
        bend = moments.bend @ pulls[:size]

        # With the other coefficients at their most likely, all values of this one lie on a line.
        start, along = self._logit, self.rows.points @ (self.covariance[:, j] / self.covariance[j, j])

        def rejected(theta: Floats) -> bool:
            terms = base + self.response.level(start + (theta[j] - self.values[j]) * along)[:, None] * bend
            spread = shares @ terms**2 - (shares @ terms) ** 2
            total = 0.0
            for (one, each, weight), noise, bent in zip(heavy_fits, own, spread.tolist(), strict=True):
                off = abs(float(theta[j] - self._at[j] - each.step[j]))
                total += weight * 2.0 * normal.cdf(-off / math.sqrt(noise + one.kappa * max(bent, 0.0)))
            return total < alpha

        return rejected

    @cached_property
    def _tilted(self) -> Rows:
        """The rows with the weights that fit the releases best."""
        precision = self._weight(self._best.kappa)[0]
        left = self.moments.released - self._share * self._predicted
        more = self._best.kappa * self._share * self.moments.terms(self._at) @ (precision @ left)
        shares = self.rows.shares * np.maximum(0.05, 1.0 + more)
        return Rows(self.rows.points, shares / shares.sum(), self.rows.people)

    def next_model(self, clipping_norm: float, exponent: float, shares: tuple[float, float]) -> Model:
        """Return the next round's model: its origin is the solution, and its transform makes curvature isotropic."""
        p = self.features
        # Always from the second moments: else rare directions would be stretched again in every round.
        base = whitening(self.rows.second_moment)
        at = Model(self.origin if self.response.binary else np.zeros(p), base, clipping_norm, exponent, 0, 0)
        predicted = mean_matrix(at, self._tilted, self.response)
        values, vectors = np.linalg.eigh(predicted)
        mean = float(np.mean(values))
        values = np.maximum(values, mean / 4.0) / mean
        Z = self.rows.points @ base.T
        scale = math.sqrt(p / float(self.rows.shares @ np.einsum("ij,ij->i", Z, Z)))
        transform = scale * (vectors / np.sqrt(values)) @ vectors.T @ base
        return Model(at.origin, transform, clipping_norm, exponent, *shares).rounded()


class CurveSolution(PublicSolution):
    """The solution for a mean function without a fallback: it has no intervals if people are unlike the rows."""

    @property
    def alike(self) -> bool:
        """Whether the releases agree with the public rows' predictions, and the rows are useful."""
        return super().alike and self.useful

    def half_widths(self, quantile: float) -> Floats:
        """Return half-widths of all intervals; infinite where people are unlike the rows."""
        return super().half_widths(quantile) if self.alike else np.full(self.features, np.inf)
