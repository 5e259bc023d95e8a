r"""From epochs' answers to coefficients where covariates are public: as far as the people may be unlike these rows.

The people's distribution of covariates is taken as that of the rows, reweighted at random as if the rows were a sample
of ``1 / kappa`` of them; kappa is 1 over the number of rows where they are right, and up to 1/4. All that was released
is put together, epochs' mean scores and the mean curvature, as one vector r with

    r = pi (G(theta) + b) + noise,    b ~ N(0, kappa Gamma),

G what the rows predict of it, Gamma the covariance of one row's terms, pi the share of people whose target is there.
So centred scores, whose terms vanish at the truth, stay as they are released; those that are not count for less the
larger kappa is; and released curvatures correct those that the rows predict. Each kappa of a grid, with pi = 1 and with
pi free, is a hypothesis: solved by generalized least squares, and weighed by its marginal likelihood. The estimate is
the mean over hypotheses (Hoeting, Madigan, Raftery, Volinsky, "Bayesian model averaging", 1999), the variance theirs
and what they differ by.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from murk.errors import MurkError
from murk.learners.core.coordinates import whitening
from murk.learners.core.scoring.equations import ReleasedMoments
from murk.learners.core.scoring.model import Model, Response
from murk.learners.core.scoring.rows import Rows, inverse, mean_matrix
from murk.learners.core.scoring.solve import LOGIT_SQUARE, ORIGIN_VARIANCE, PRIOR_VARIANCE, first_rejected
from murk.learners.core.scoring.sums import Summary
from murk.learners.estimates.misfit import UNLIKE, excess

Array = NDArray[np.float64]

_STEPS, _ROUNDS = 8, 2
# Rows that are worth fewer of the people's own are not used.
_USEFUL = 1.0 / 50.0
# What kappa may be: from 1 over the number of rows by this factor up to the most.
_FACTOR, _MOST = 4.0, 0.25
# Of hypotheses before anything is known: that some targets are missing, and that the rows are right.
_MISSING, _RIGHT = 0.5, 0.5
# The least kappa where some targets are missing.
_SELECTED = 0.005
# Standard deviation of pi where it is free.
_THERE = 0.4
# Standard deviations by which targets are missing before anything is said of it.
_SURELY = 2.5
# Hypotheses of less weight are left out of intervals.
_LIGHT = 0.002
# Most terms of rows that are held at once; beyond it rows are left out.
_TERMS = 40_000_000


@dataclass(frozen=True)
class _Hypothesis:
    """One kappa, with pi = 1 or free."""

    kappa: float
    free: bool
    prior: float


@dataclass(frozen=True)
class _Fitted:
    """What a hypothesis says, at a linearization."""

    evidence: float
    step: Array
    influence: Array
    covariance: Array
    misfit: float
    share: float


class PublicSolution:
    """The solution of all epochs' equations over public rows.

    Parameters
    ----------
    found
        The epochs' mean answers, oldest first.
    response
        How the target enters.
    rows
        The public covariates.

    Attributes
    ----------
    checked
        Whether anybody was asked for a curvature. Where nobody was, rows are taken as they are and all targets as
        there: of so many numbers as coefficients nothing is left over that could say otherwise.
    """

    public = True

    def __init__(self, found: Sequence[Summary], response: Response, rows: Rows) -> None:
        self.newest = found[-1].model
        self.features = p = len(self.newest.origin)
        self.checked = any(each.model.curvature > 0.0 for each in found)
        rows = rows.thinned(_TERMS // (p * (len(found) + p * self.checked)))
        self.response, self.rows = response, rows
        self.told = ReleasedMoments.of(found, response, rows)
        self._hypotheses = self._grid()
        theta = np.array(self.newest.origin)
        share, best = 1.0, self._hypotheses[0]
        prior = np.eye(p) / PRIOR_VARIANCE
        for _ in range(_ROUNDS):
            self._linearize(theta, share)
            fitted = [self._fit(each, theta, prior) for each in self._hypotheses]
            weights = _shares(np.array([each.evidence for each in fitted]))
            best = self._hypotheses[int(np.argmax(weights))]
            theta, share = self._descend(theta, best, prior)
        self._linearize(theta, share)
        fitted = [self._fit(each, theta, prior) for each in self._hypotheses]
        weights = _shares(np.array([each.evidence for each in fitted]))
        self._best, self._share, self._at = best, share, theta
        self._fitted, self._weights = fitted, weights
        steps = np.array([each.step[:p] for each in fitted])
        self.values = theta + weights @ steps
        if not np.all(np.isfinite(self.values)):
            raise MurkError("the epochs' equations have no finite solution")
        differ = steps - weights @ steps
        self._between = (differ * weights[:, None]).T @ differ
        self.covariance = self._between + sum(
            w * each.covariance[:p, :p] for w, each in zip(weights, fitted, strict=True)
        )
        pull = rows.second_moment * p / LOGIT_SQUARE + np.eye(p) / ORIGIN_VARIANCE
        self.origin, _ = self._descend(self.values.copy(), best, pull)

    def _grid(self) -> list[_Hypothesis]:
        kappas = [1.0 / self.rows.sample]
        if not self.checked:
            return [_Hypothesis(kappas[0], False, 1.0)]
        while kappas[-1] * _FACTOR <= _MOST:
            kappas.append(kappas[-1] * _FACTOR)
        others = (1.0 - _RIGHT) / max(len(kappas) - 1, 1)
        priors = [_RIGHT, *[others] * (len(kappas) - 1)]
        # Nothing tells missing targets from small effects before curvatures are there.
        missing = _MISSING if self.told.curvatures else 0.0
        found = [_Hypothesis(each, False, prior * (1.0 - missing)) for each, prior in zip(kappas, priors, strict=True)]
        # Those whose target is there need not be like all people.
        selected = [each for each in kappas if each >= _SELECTED] or kappas[-1:]
        if missing:
            found += [_Hypothesis(each, True, missing / len(selected)) for each in selected]
        return found

    def _linearize(self, theta: Array, share: float) -> None:
        """Noise and Gamma at theta."""
        told = self.told
        terms = told.terms(theta) * np.sqrt(self.rows.shares)[:, None]
        self._noise, self._gamma = told.noise(theta, share), share**2 * terms.T @ terms
        self._predicted, self._slopes = told.mean(theta), told.slope(theta)
        self._inverses: dict[float, tuple[Array, float]] = {}

    def _weight(self, kappa: float) -> tuple[Array, float]:
        """Inverse of the covariance of r, and the logarithm of its determinant."""
        if kappa not in self._inverses:
            covariance = self._noise + kappa * self._gamma
            self._inverses[kappa] = inverse(covariance), float(np.linalg.slogdet(covariance)[1])
        return self._inverses[kappa]

    # Hypotheses

    def _priors(self, theta: Array, share: float, pull: Array, free: bool) -> tuple[Array, Array]:
        """Information before anything was released, and its pull from here."""
        p = self.features
        information, centre = np.zeros((p + free, p + free)), np.r_[-theta, [1.0 - share] * free]
        information[:p, :p] = pull
        if free:
            information[p, p] = 1.0 / _THERE**2
        return information, centre

    def _fit(self, one: _Hypothesis, theta: Array, pull: Array) -> _Fitted:
        """One step from the linearization, with its evidence."""
        precision, size = self._weight(one.kappa)
        share = self._target_share(precision) if one.free else 1.0
        left, design = self.told.released - share * self._predicted, share * self._slopes
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

    def _target_share(self, precision: Array) -> float:
        """pi that fits best at the linearization."""
        weighed, sure = precision @ self._predicted, 1.0 / _THERE**2
        share = (float(weighed @ self.told.released) + sure) / (float(weighed @ self._predicted) + sure)
        return min(max(share, 0.05), 1.0)

    def _descend(self, theta: Array, one: _Hypothesis, pull: Array) -> tuple[Array, float]:
        """Levenberg-Marquardt under one hypothesis, with weights that stay."""
        p, damping, precision = self.features, 1e-3, self._weight(one.kappa)[0]
        share = self._target_share(precision) if one.free else 1.0

        def value(theta: Array, share: float) -> float:
            left = self.told.released - share * self.told.mean(theta)
            prior, centre = self._priors(theta, share, pull, one.free)
            return float(left @ precision @ left + centre @ prior @ centre)

        now = value(theta, share)
        for _ in range(_STEPS):
            mean, design = self.told.mean(theta), share * self.told.slope(theta)
            left = self.told.released - share * mean
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

    def of_fewer(self, found: Sequence[Summary]) -> PublicSolution:
        """The solution of fewer answers, in the way in which all were solved."""
        return PublicSolution(found, self.response, self.rows)

    # What is known of the solution

    @cached_property
    def _misfit(self) -> float:
        """Standard deviations by which what is left exceeds randomness, were the rows a sample of the people."""
        complete = self._fitted[0].misfit
        missing = [each.misfit for one, each in zip(self._hypotheses, self._fitted, strict=True) if one.free]
        least = min([complete, *missing[:1]])
        free = len(self.told.released) - self.features
        if free <= 0:
            return 0.0
        return excess(least, free)

    @property
    def alike(self) -> bool:
        """Whether what was released is what the public rows predict, as far as can be told."""
        return self._misfit <= UNLIKE

    @property
    def useful(self) -> bool:
        """Whether the rows may be worth some number of the people's own: where what was released does not say no."""
        poor = np.array([one.kappa > _USEFUL for one in self._hypotheses])
        before = float(np.sum(np.array([one.prior for one in self._hypotheses])[poor]))
        return float(np.sum(self._weights[poor])) <= (1.0 + before) / 2.0

    @property
    def doubt(self) -> float:
        """How unlike the rows the people are: kappa, on average over hypotheses."""
        return float(self._weights @ np.array([one.kappa for one in self._hypotheses]))

    @property
    def missing(self) -> float:
        """Share of the people whose target is missing, where there are any beyond doubt."""
        known = zip(self._weights, self._hypotheses, self._fitted, strict=True)
        free = [(weight, each) for weight, one, each in known if one.free]
        total = sum(w for w, _ in free)
        if total < 0.5:
            return 0.0
        share = sum(w * (each.share + float(each.step[-1])) for w, each in free) / total
        variance = sum(w * float(each.covariance[-1, -1]) for w, each in free) / total
        return min(1.0 - share, 1.0) if 1.0 - share > _SURELY * math.sqrt(variance) else 0.0

    def half_widths(self, quantile: float) -> Array:
        """Half widths of the intervals of all coefficients, (p,); infinite where one was not learned.

        An interval holds the values whose probability to be missed so far, averaged over hypotheses, is not too small.
        """
        alpha = 2.0 * NormalDist().cdf(-quantile)
        test = cache(partial(self._test, alpha=alpha))

        def rejected(places: NDArray[np.int64], there: Array) -> NDArray[np.bool_]:
            return np.array([test(j)(theta) for j, theta in zip(places.tolist(), there, strict=True)])

        return first_rejected(self.values, self.covariance, quantile, rejected)

    @cached_property
    def _logit(self) -> Array:
        """Of the rows at the solution, (m,)."""
        return np.asarray(self.rows.points @ self.values)

    def _test(self, j: int, alpha: float) -> Callable[[Array], bool]:
        """Whether a value of coefficient j is rejected, as a function of all coefficients."""
        p, shares, normal = self.features, self.rows.shares, NormalDist()
        heavy = [i for i, weight in enumerate(self._weights) if weight >= _LIGHT]
        known = [(self._hypotheses[i], self._fitted[i], float(self._weights[i])) for i in heavy]
        pulls = np.array([each.influence[:, j] * each.share for _, each, _ in known]).T
        own = [
            float(each.influence[:, j] @ self._noise @ each.influence[:, j])
            + float(np.sum(each.covariance[:p, j] ** 2)) / PRIOR_VARIANCE
            for _, each, _ in known
        ]
        told, size = self.told, self.told.base.shape[1]
        base = told.base @ pulls[:size] + told.matrices @ pulls[size:]
        bend = told.bend @ pulls[:size]

        # Others are as likely as can be: all values of the coefficient lie on a line.
        start, along = self._logit, self.rows.points @ (self.covariance[:, j] / self.covariance[j, j])

        def rejected(theta: Array) -> bool:
            terms = base + told.level_at(start + (theta[j] - self.values[j]) * along)[:, None] * bend
            spread = shares @ terms**2 - (shares @ terms) ** 2
            total = 0.0
            for (one, each, weight), noise, bent in zip(known, own, spread.tolist(), strict=True):
                off = abs(float(theta[j] - self._at[j] - each.step[j]))
                total += weight * 2.0 * normal.cdf(-off / math.sqrt(noise + one.kappa * max(bent, 0.0)))
            return total < alpha

        return rejected

    # What comes next

    @cached_property
    def _tilted(self) -> Rows:
        """The rows with the weights that fit what was released best."""
        precision = self._weight(self._best.kappa)[0]
        left = self.told.released - self._share * self._predicted
        more = self._best.kappa * self._share * self.told.terms(self._at) @ (precision @ left)
        shares = self.rows.shares * np.maximum(0.05, 1.0 + more)
        return Rows(self.rows.points, shares / shares.sum(), self.rows.sample)

    def next_model(self, reach: float, exponent: float, shares: tuple[float, float]) -> Model:
        """The model of the next epoch: at the solution, in coordinates whose curvature is even."""
        p = self.features
        # Always from the second moments: from one epoch's coordinates to the next, what few people have much of would
        # be stretched again and again, and these people, beyond the reach, would count for less and less.
        base = whitening(self.rows.second_moment)
        at = Model(self.origin if self.response.binary else np.zeros(p), base, reach, exponent, 0, 0)
        predicted = mean_matrix(at, self._tilted, self.response)
        values, vectors = np.linalg.eigh(predicted)
        mean = float(np.mean(values))
        values = np.maximum(values, mean / 4.0) / mean
        Z = self.rows.points @ base.T
        scale = math.sqrt(p / float(self.rows.shares @ np.einsum("ij,ij->i", Z, Z)))
        transform = scale * (vectors / np.sqrt(values)) @ vectors.T @ base
        return Model(at.origin, transform, reach, exponent, *shares).rounded()


class CurveSolution(PublicSolution):
    """The same for a mean function of its own: where rows are not like the people's, nothing else would do."""

    @property
    def alike(self) -> bool:
        """Whether what was released is what the public rows predict, and they are worth some number of people."""
        return super().alike and self.useful

    def half_widths(self, quantile: float) -> Array:
        """As of any; infinite where the rows are not like the people's."""
        return super().half_widths(quantile) if self.alike else np.full(self.features, np.inf)


def _shares(evidence: Array) -> Array:
    """Posterior weights of logarithms of evidence."""
    found = np.exp(evidence - np.max(evidence))
    return np.asarray(found / found.sum())
