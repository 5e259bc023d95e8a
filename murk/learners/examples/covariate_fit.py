r"""Public rows beside outer products: what they say of ``A = E x x'/(1 + |x|^2)``, as far as they are like the people.

The target stays the same, ``A^-1 b`` with ``b = E x y/(1 + |x|^2)``: rows only make A better known. With a, alpha the
numbers of the released and of the rows' matrix (symmetric matrices as vectors, norms kept), pi the share of targets
that are there and ``d = a / pi - alpha``,

.. math:: d \sim N(0,\; \nu I + (\kappa + 1/n) \Gamma), \qquad \alpha^{} + K d, \quad
    K = \kappa \Gamma (\kappa \Gamma + \nu I)^{-1}

is the best combination: nu the noise, Gamma the covariance of one row's numbers, and 1 / kappa how many of the people
the rows are worth. kappa is 1 over their number where they are drawn from the people, and up to 1/4 where they are not
quite: each kappa of a grid is a hypothesis, weighed by its marginal likelihood, and intervals are of the mean over
hypotheses, as in `murk.learners.core.scoring.public`. pi is estimated from the trace.

Eigenvalues of the combination are used where the error *relative to it* is small: that of rows is proportional to what
is small, and hides nothing.

Before that, `misfit` compares both under the first hypothesis: rows that fail it at 1 in 10,000 are not used at all.

Directions of labels where covariates are public: the fit by the mean direction alone.

The mean of ``u = y x / |x|`` is linear in the fit, with a matrix that public rows tell:

.. math:: E[u] = E[x x' / |x|]\, \theta

so that ``theta^ = A_1^-1 mean u~`` takes no product of noise with noise. Its error is that of the mean, with noise of
variance s^2 and not s^4, and that of the rows. It is the fit weighted by ``1/|x|``, and it needs rows like the
people's: their second moment of ``x / |x|`` is compared with the released one, as far as noise lets see it, at one
false alarm in 10,000.

It is another fit than the one without rows, so which one is learned must not depend on what is released:
:func:`rows_are_used` decides by the task and the rows alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from murk.learners.core.symmetric import flattened, matrix_size, symmetric
from murk.learners.estimates.estimate import Estimate, PublicCovariates
from murk.learners.estimates.misfit import MOST_NUMBERS, UNLIKE, misfit
from murk.learners.examples import layout as k
from murk.learners.examples.protocol import LOUD, ROWS_OF_EACH

if TYPE_CHECKING:
    from murk.learners.examples.settings import ExampleSettings


Array = NDArray[np.float64]

_FACTOR, _MOST, _RIGHT = 4.0, 0.25, 0.5
_AT_ONCE = 2**20
_NULL = 1e-9


@dataclass(frozen=True)
class Rows:
    """Moments of the public rows' matrices ``w x x'``, of the first ``size`` coefficients.

    Attributes
    ----------
    count
        How many rows there are.
    alpha, gamma
        Mean and covariance of their numbers, (k,) and (k, k).
    """

    size: int
    count: float
    alpha: Array
    gamma: Array

    @classmethod
    def of(cls, covariates: PublicCovariates, size: int, extra: float) -> Rows:
        """Those with weights ``1 / (extra + |x|^2)``."""
        k, count = matrix_size(size), float(covariates.counts.sum())
        alpha, square = np.zeros(k), np.zeros((k, k))
        block = max(_AT_ONCE // k, 1)
        for start in range(0, len(covariates.points), block):
            points, share = covariates.points[start : start + block], covariates.counts[start : start + block] / count
            weight = 1.0 / (extra + np.square(points).sum(axis=1))
            own = points[:, :size]
            numbers = flattened(own[:, :, None] * own[:, None, :]) * weight[:, None]
            alpha += share @ numbers
            square += (numbers * share[:, None]).T @ numbers
        return cls(size, count, alpha, square - np.outer(alpha, alpha))

    @cached_property
    def _ones(self) -> Array:
        return flattened(np.eye(self.size))

    @property
    def trace(self) -> float:
        """Of the mean matrix."""
        return float(self._ones @ self.alpha)

    @cached_property
    def off_share(self) -> Array:
        """What is left of an error of a when pi is estimated from the trace of a, (k, k)."""
        return np.asarray(np.eye(len(self.alpha)) - np.outer(self.alpha, self._ones) / self.trace)

    @cached_property
    def relative(self) -> Array:
        """Covariance of one row's numbers, so compared."""
        return np.asarray(self.off_share @ self.gamma @ self.off_share.T)


@dataclass(frozen=True)
class Released:
    """What the people's releases say, of the coefficients that are learned.

    Attributes
    ----------
    mean, aimed
        Mean A and b.
    meat
        Covariance of ``A theta - b`` of these means, (p, p), at the points that the chains stood at.
    points
        These points, (chains, p).
    noise
        Variances of the noise of a number of the means: the largest and the smallest that it may have.
    people
        How many they are, in weight.
    """

    mean: Array
    aimed: Array
    meat: Array
    points: Array
    noise: tuple[float, float]
    people: float

    @cached_property
    def of_records(self) -> Array:
        """What of ``meat`` is no noise: that of b, and of A at the points, is taken from it."""
        turned = [acting(point) @ acting(point).T for point in self.points]
        noise = self.noise[1] * (0.5 * np.eye(len(self.mean)) + np.mean(turned, axis=0))
        values, vectors = np.linalg.eigh(self.meat - noise)
        return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


@dataclass(frozen=True)
class Hypothesis:
    """What follows if the rows are worth ``1 / kappa`` people.

    Attributes
    ----------
    evidence
        Logarithm of its weight.
    matrix
        A.
    covariance
        Of its numbers, (k, k).
    meat
        Covariance of ``A theta - b``.
    """

    evidence: float
    matrix: Array
    covariance: Array
    meat: Array


def share_of(told: Released, rows: Rows) -> float:
    """pi, the share of the people whose target is there; 0 where that is not known."""
    trace = float(np.trace(told.mean))
    return trace / rows.trace if trace > 5.0 * math.sqrt(rows.size * told.noise[0]) else 0.0


def unlike(told: Released, rows: Rows) -> float:
    """By how many standard deviations the released matrix and that of the rows differ beyond randomness."""
    share, project = share_of(told, rows), rows.off_share
    noise = told.noise[0] / share**2 * project @ project.T
    off = flattened(told.mean) / share - rows.alpha
    return misfit(off, noise + (1.0 / rows.count + 1.0 / told.people) * rows.relative)


def hypotheses(told: Released, rows: Rows, theta: Array) -> list[Hypothesis]:
    """Every kappa of the grid, with what follows from it at the coefficients theta."""
    kappas = [1.0 / rows.count]
    while kappas[-1] * _FACTOR <= _MOST:
        kappas.append(kappas[-1] * _FACTOR)
    others = (1.0 - _RIGHT) / max(len(kappas) - 1, 1)
    return [_fit(told, rows, theta, kappa, _RIGHT if i == 0 else others) for i, kappa in enumerate(kappas)]


def _fit(told: Released, rows: Rows, theta: Array, kappa: float, prior: float) -> Hypothesis:
    share, project, own = share_of(told, rows), rows.off_share, rows.relative
    off = flattened(told.mean) / share - rows.alpha
    noise = told.noise[0] / share**2
    spread = noise * project @ project.T + (kappa + 1.0 / told.people) * own
    values, vectors = np.linalg.eigh(spread)
    kept = values > _NULL * values[-1]
    square = float(np.sum((vectors[:, kept].T @ off) ** 2 / values[kept]))
    evidence = math.log(prior) - 0.5 * (square + float(np.sum(np.log(values[kept]))))
    gain = np.linalg.solve(kappa * own + noise * np.eye(len(own)), kappa * own).T
    left = np.eye(len(own)) - gain
    # Errors of a enter the combination by into, and what is taken from the rows instead by beside = 1 - into.
    beside = left @ project
    into = np.eye(len(own)) - beside
    doubt = share**2 * (kappa + 1.0 / told.people) * left @ own @ left.T
    covariance = told.noise[0] * into @ into.T + doubt
    turn = acting(theta)
    meat = told.of_records + 0.5 * told.noise[0] * np.eye(rows.size) + turn @ covariance @ turn.T
    return Hypothesis(evidence, symmetric(share * (rows.alpha + gain @ off), rows.size), covariance, meat)


def size_of_error(covariance: Array, turn: Array) -> float:
    """About how far errors E of a symmetric matrix move the eigenvalues of ``turn' E turn``.

    It is ``2 |E[(turn' E turn)^2]|^(1/2)``, for errors of the same size everywhere ``2 sqrt(p)`` times one.

    Parameters
    ----------
    covariance
        Of the matrix's numbers, (k, k).
    turn
        (p, q).
    """
    p, q = turn.shape
    units = np.array([symmetric(one, p) for one in np.eye(matrix_size(p))])
    turned = (turn.T @ units @ turn).reshape(-1, q * q)
    other = (covariance @ turned).reshape(-1, q, q)
    square = other.transpose(1, 0, 2).reshape(q, -1) @ turned.reshape(-1, q, q).reshape(-1, q)
    return 2.0 * math.sqrt(max(float(np.linalg.eigvalsh((square + square.T) / 2.0)[-1]), 0.0))


def hidden(values: Array, vectors: Array, covariance: Array, trust: float) -> tuple[int, float]:
    """How many of the smallest eigenvalues of a matrix are not known well enough to divide by, and their floor.

    Those above them span a space in which the error, relative to the matrix, is below ``1 / trust``: an error that is
    proportional to what is small there does no harm, as that of public rows is.
    """
    first, last = int(np.sum(values <= 0.0)), len(values)
    while first < last:
        middle = (first + last) // 2
        relative = vectors[:, middle:] / np.sqrt(values[middle:])
        first, last = (first, middle) if trust * size_of_error(covariance, relative) < 1.0 else (middle + 1, last)
    floor = trust * size_of_error(covariance, vectors[:, :first]) if first else 0.0
    return first, floor


def acting(theta: Array) -> Array:
    """The matrix that makes ``E theta`` of the numbers of a symmetric E, (p, k)."""
    p = len(theta)
    return np.column_stack([symmetric(one, p) @ theta for one in np.eye(matrix_size(p))])


PUBLIC_ROWS = "public rows"
UNUSED = "public rows are not used: they are unlike the people's"
_LEAST = 1e-6


def rows_are_used(settings: ExampleSettings, covariates: PublicCovariates, noise: float) -> bool:
    """Whether the fit is the one by public rows, by what is public before anybody releases anything.

    It is for labels, where noise is at least 1 in variance (mu <= 2), so that its square would be more, and there are
    20 rows for each coefficient, so that they can be compared. ``noise`` is the variance at the noisiest level.
    """
    enough = float(covariates.counts.sum()) >= ROWS_OF_EACH * settings.features
    return settings.form == k.DIRECTED_LABEL and noise >= (2.0 / LOUD) ** 2 and enough


def with_public(
    found: Estimate, settings: ExampleSettings, covariates: PublicCovariates, sums: NDArray[np.float64],
    bend: NDArray[np.float64], first: NDArray[np.float64], second: NDArray[np.float64],
) -> Estimate:  # fmt: skip
    """The fit by public rows, or ``found``, from the releases alone, where rows are unlike the people or degenerate.

    Parameters
    ----------
    found
        The fit without public rows.
    settings, covariates
        Of the task.
    sums, bend, first, second
        Of all chains: the sums of `layout`; mean ``u u'`` and mean ``u~`` by weight; ``sum q^2 u~_j^2``.
    """
    p, free = settings.features, settings.features - (not settings.intercept)
    total, squares, known = sums[k.POLISH_WEIGHT], sums[k.POLISH_SQUARES], float(np.trace(bend))
    share = covariates.counts / covariates.counts.sum()
    rows, count = covariates.points, float(covariates.counts.sum())
    inverse = 1.0 / np.linalg.norm(rows, axis=1)
    if not known > 0.1:  # next to no targets, as far as can be told
        return found
    noise = max(float(np.sum(second)) - squares * known, 0.0) / p / total**2
    if matrix_size(p) <= MOST_NUMBERS:
        theirs = Rows.of(covariates, p, 0.0)
        off = flattened(bend) / known - theirs.alpha
        spread = _noise_of_products(p, noise, total**2 / squares, known, symmetric(theirs.alpha, p))
        people = total**2 / squares
        if misfit(off, spread / known**2 + (1.0 / count + 1.0 / people) * theirs.gamma) > UNLIKE:
            return replace(found, note=f"{found.note}; {UNUSED}", alike=False)
    matrix = ((rows * (share * inverse)[:, None]).T @ rows)[:free, :free]
    values, vectors = np.linalg.eigh(matrix)
    if not values[0] > _LEAST * values[-1]:
        return replace(found, alike=True)
    back = (vectors / values) @ vectors.T
    theta = back @ (first[:free] / known)
    spread = (bend - np.outer(first, first) / known) * squares / total**2
    meat = (spread[:free, :free] + noise * np.eye(free)) / known**2
    pulled = rows[:, :free] * (inverse * (rows[:, :free] @ theta))[:, None]
    mean = share @ pulled
    meat += ((pulled * share[:, None]).T @ pulled - np.outer(mean, mean)) / count
    covariance = np.zeros((p, p))
    covariance[:free, :free] = back @ meat @ back + np.outer(theta, theta) * noise / (2.0 * known**2)
    note = (
        f"of the fit weighted by 1/|x|, by the mean direction and {int(count):,} public rows, which must be like the "
        "people's (docs/iwp-sgd.md)"
    )
    error = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    return Estimate(
        found.names, np.append(theta, np.zeros(p - free)), PUBLIC_ROWS, error, note, found.chains, found.n_releases,
        covariance, alike=True,
    )  # fmt: skip


def _noise_of_products(
    p: int, noise: float, people: float, known: float, directions: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Covariance of the noise in the numbers of mean ``u~ u~' - own_variance I``, of directions u.

    ``u~ u~' = u u' + (u n' + n u') + n n'``: with noise n of variance s^2 the last has 2 s^4 in every number, and the
    other is linear in ``u u'``. The trace is taken out.
    """
    square = noise * people
    found = 2.0 * square**2 * np.eye(matrix_size(p))
    values, vectors = np.linalg.eigh(known * directions)
    for value, vector in zip(values, vectors.T, strict=True):
        crossed = np.array([flattened(np.outer(vector, one) + np.outer(one, vector)) for one in np.eye(p)])
        found += square * max(float(value), 0.0) * crossed.T @ crossed
    ones = flattened(np.eye(p))
    project = np.eye(len(ones)) - np.outer(ones, ones) / p
    return np.asarray(project @ found @ project.T / people)
