r"""Fits of released examples that also use public covariate rows.

Outer products: rows improve ``A = E x x'/(1 + |x|^2)``; the estimand ``A^-1 b`` stays the same. Let a be the numbers of
the released matrix, alpha those of the rows' matrix, pi the share of targets present (estimated from the trace), and
``d = a / pi - alpha``. Let the noise of a / pi have variance nu, let one row's numbers have covariance Gamma, and let
the rows differ from the people as a sample of 1 / kappa people would. Then the difference's distribution and the best
combination of both matrices are

.. math:: d \sim N(0,\; \nu I + (\kappa + 1/n) \Gamma), \qquad \alpha^{} + K d, \quad
    K = \kappa \Gamma (\kappa \Gamma + \nu I)^{-1}.

Each kappa of a grid, from 1 over the number of rows to 1/4, is a hypothesis weighted by its marginal likelihood.
Eigenvalues are used where their error *relative to the matrix* is small.

Directions of labels: the mean of ``u = y x / |x|`` is linear in the fit weighted by ``1/|x|``, ``E[u] = E[x x' / |x|]
theta``, so ``theta^ = A_1^-1 mean u~``, with A_1 from public rows, has noise of variance s^2 instead of s^4. As this is
another estimand, it is chosen (:func:`rows_are_used`) by the task and the rows alone, never by releases.

Both compare the rows' second moments with the released ones first, by `misfit` at one false alarm in 10,000.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from murk._internal.arrays import Floats
from murk.inference.estimate import Estimate
from murk.inference.misfit import MOST_NUMBERS, UNLIKE, misfit
from murk.privacy.mechanisms.outer_product import matrix_size
from murk.protocols.examples import layout as k
from murk.protocols.linear_algebra import flattened, symmetric
from murk.protocols.rows import Rows
from murk.task.protocols.examples import LOUD, ROWS_OF_EACH

if TYPE_CHECKING:
    from murk.protocols.examples.settings import ExampleSettings


PUBLIC_ROWS = "public rows"
UNUSED = "public rows are not used: they are unlike the people's"

# Grid of kappa: ratio of successive values, largest value, and prior weight of the first value.
_FACTOR, _MOST, _RIGHT = 4.0, 0.25, 0.5
_NULL = 1e-9
_LEAST = 1e-6


@dataclass(frozen=True)
class RowMoments:
    """Moments of the public rows' matrices ``w x x'``, of the first ``size`` coefficients."""

    size: int
    count: float  # number of rows
    alpha: Floats  # mean of their numbers, (k,)
    gamma: Floats  # covariance of their numbers, (k, k)

    @classmethod
    def of(cls, covariates: Rows, size: int, extra: float) -> RowMoments:
        """Return the moments of rows with weights ``1 / (extra + |x|^2)``."""
        weights = 1.0 / (extra + np.square(covariates.points).sum(axis=1))
        return cls(size, covariates.people, *covariates.products(size, weights))

    @cached_property
    def _ones(self) -> Floats:
        return flattened(np.eye(self.size))

    @property
    def trace(self) -> float:
        """Trace of the mean matrix."""
        return float(self._ones @ self.alpha)

    @cached_property
    def off_share(self) -> Floats:
        """Linear map (k, k) from an error of a to pi times the error of ``a / pi``, as pi is from the trace of a."""
        return np.asarray(np.eye(len(self.alpha)) - np.outer(self.alpha, self._ones) / self.trace)

    @cached_property
    def relative(self) -> Floats:
        """Covariance of one row's numbers mapped by :attr:`off_share`."""
        return np.asarray(self.off_share @ self.gamma @ self.off_share.T)


@dataclass(frozen=True)
class Released:
    """Statistics of released outer products, from which the coefficients are estimated."""

    mean: Floats  # mean A, (p, p)
    aimed: Floats  # mean b, (p,)
    meat: Floats  # covariance of A theta - b of these means at the partitions' reference points, (p, p)
    points: Floats  # the reference points, (partitions, p)
    noise: tuple[float, float]  # largest and smallest possible noise variance of an entry of the means
    people: float  # effective number of people

    @cached_property
    def of_records(self) -> Floats:
        """The part of ``meat`` that is due to differences between records, and not to noise."""
        turned = [acting(point) @ acting(point).T for point in self.points]
        noise = self.noise[1] * (0.5 * np.eye(len(self.mean)) + np.mean(turned, axis=0))
        values, vectors = np.linalg.eigh(self.meat - noise)
        return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


@dataclass(frozen=True)
class Hypothesis:
    """Posterior if the rows are worth ``1 / kappa`` people."""

    evidence: float  # logarithm of its weight
    matrix: Floats  # A
    covariance: Floats  # covariance of A's numbers, (k, k)
    meat: Floats  # covariance of A theta - b


def share_of(released: Released, rows: RowMoments) -> float:
    """Return pi, the share of people with a target; 0 if noise hides it."""
    trace = float(np.trace(released.mean))
    return trace / rows.trace if trace > 5.0 * math.sqrt(rows.size * released.noise[0]) else 0.0


def unlike(released: Released, rows: RowMoments) -> float:
    """Return the difference of the released matrix from the rows' matrix, in standard deviations."""
    share, project = share_of(released, rows), rows.off_share
    noise = released.noise[0] / share**2 * project @ project.T
    off = flattened(released.mean) / share - rows.alpha
    return misfit(off, noise + (1.0 / rows.count + 1.0 / released.people) * rows.relative)


def hypotheses(released: Released, rows: RowMoments, theta: Floats) -> list[Hypothesis]:
    """Return a hypothesis for each kappa of the grid, computed at the coefficients theta."""
    kappas = [1.0 / rows.count]
    while kappas[-1] * _FACTOR <= _MOST:
        kappas.append(kappas[-1] * _FACTOR)
    others = (1.0 - _RIGHT) / max(len(kappas) - 1, 1)
    return [_fit(released, rows, theta, kappa, _RIGHT if i == 0 else others) for i, kappa in enumerate(kappas)]


def _fit(released: Released, rows: RowMoments, theta: Floats, kappa: float, prior: float) -> Hypothesis:
    share, project, own = share_of(released, rows), rows.off_share, rows.relative
    off = flattened(released.mean) / share - rows.alpha
    noise = released.noise[0] / share**2
    spread = noise * project @ project.T + (kappa + 1.0 / released.people) * own
    values, vectors = np.linalg.eigh(spread)
    kept = values > _NULL * values[-1]
    square = float(np.sum((vectors[:, kept].T @ off) ** 2 / values[kept]))
    evidence = math.log(prior) - 0.5 * (square + float(np.sum(np.log(values[kept]))))
    gain = np.linalg.solve(kappa * own + noise * np.eye(len(own)), kappa * own).T
    left = np.eye(len(own)) - gain
    # Matrix from an error of a to the error of the combination.
    weight = np.eye(len(own)) - left @ project
    doubt = share**2 * (kappa + 1.0 / released.people) * left @ own @ left.T
    covariance = released.noise[0] * weight @ weight.T + doubt
    turn = acting(theta)
    meat = released.of_records + 0.5 * released.noise[0] * np.eye(rows.size) + turn @ covariance @ turn.T
    return Hypothesis(evidence, symmetric(share * (rows.alpha + gain @ off), rows.size), covariance, meat)


def size_of_error(covariance: Floats, turn: Floats) -> float:
    """Return approximately how far errors E of a symmetric matrix move the eigenvalues of ``turn' E turn``, (q, q).

    This is ``2 |E[(turn' E turn)^2]|^(1/2)``, for the ``covariance`` (k, k) of E's numbers.
    """
    p, q = turn.shape
    units = np.array([symmetric(unit, p) for unit in np.eye(matrix_size(p))])
    turned = (turn.T @ units @ turn).reshape(-1, q * q)
    other = (covariance @ turned).reshape(-1, q, q)
    square = other.transpose(1, 0, 2).reshape(q, -1) @ turned.reshape(-1, q, q).reshape(-1, q)
    return 2.0 * math.sqrt(max(float(np.linalg.eigvalsh((square + square.T) / 2.0)[-1]), 0.0))


def hidden(values: Floats, vectors: Floats, covariance: Floats, trust: float) -> tuple[int, float]:
    """Return how many of the smallest eigenvalues are too noisy to divide by, and their floor.

    In the space of the other eigenvectors, the error relative to the matrix is below ``1 / trust``.
    """
    first, last = int(np.sum(values <= 0.0)), len(values)
    while first < last:
        middle = (first + last) // 2
        relative = vectors[:, middle:] / np.sqrt(values[middle:])
        first, last = (first, middle) if trust * size_of_error(covariance, relative) < 1.0 else (middle + 1, last)
    floor = trust * size_of_error(covariance, vectors[:, :first]) if first else 0.0
    return first, floor


def acting(theta: Floats) -> Floats:
    """Return the matrix that maps the entries of a symmetric E to ``E theta``, (p, k)."""
    p = len(theta)
    return np.column_stack([symmetric(unit, p) @ theta for unit in np.eye(matrix_size(p))])


def rows_are_used(settings: ExampleSettings, covariates: Rows, noise: float) -> bool:
    """Return whether directions are fitted with public rows, which depends on public settings alone.

    They are if the targets are labels, the noise variance at the noisiest level is at least 1 (mu <= 2), and there are
    at least 20 rows for each coefficient.
    """
    enough = covariates.people >= ROWS_OF_EACH * settings.features
    return settings.form == k.DIRECTED_LABEL and noise >= (2.0 / LOUD) ** 2 and enough


def with_public(
    polished: Estimate,
    settings: ExampleSettings,
    covariates: Rows,
    sums: Floats,
    bend: Floats,
    first: Floats,
    second: Floats,
) -> Estimate:
    """Fit with public rows; return ``polished``, the fit without rows, if rows are degenerate or unlike the people.

    ``sums`` are those of `layout` over all partitions, ``bend`` and ``first`` the weighted means of ``u u'`` and
    ``u~``, and ``second`` is ``sum q^2 u~_j^2``.
    """
    p, free = settings.features, settings.features - (not settings.intercept)
    total, squares, known = sums[k.POLISH_WEIGHT], sums[k.POLISH_SQUARES], float(np.trace(bend))
    rows, share, count = covariates.points, covariates.shares, covariates.people
    inverse = 1.0 / np.linalg.norm(rows, axis=1)
    if not known > 0.1:  # hardly any targets
        return polished
    noise = max(float(np.sum(second)) - squares * known, 0.0) / p / total**2
    if matrix_size(p) <= MOST_NUMBERS:
        theirs = RowMoments.of(covariates, p, 0.0)
        off = flattened(bend) / known - theirs.alpha
        people = total**2 / squares
        spread = _noise_of_products(p, noise, people, known, symmetric(theirs.alpha, p))
        if misfit(off, spread / known**2 + (1.0 / count + 1.0 / people) * theirs.gamma) > UNLIKE:
            return replace(polished, note=f"{polished.note}; {UNUSED}", alike=False)
    matrix = ((rows * (share * inverse)[:, None]).T @ rows)[:free, :free]
    eigenvalues, vectors = np.linalg.eigh(matrix)
    if not eigenvalues[0] > _LEAST * eigenvalues[-1]:
        return replace(polished, alike=True)
    back = (vectors / eigenvalues) @ vectors.T
    theta = back @ (first[:free] / known)
    spread = (bend - np.outer(first, first) / known) * squares / total**2
    meat = (spread[:free, :free] + noise * np.eye(free)) / known**2
    pulled = rows[:, :free] * (inverse * (rows[:, :free] @ theta))[:, None]
    mean = share @ pulled
    meat += ((pulled * share[:, None]).T @ pulled - np.outer(mean, mean)) / count
    covariance = np.zeros((p, p))
    covariance[:free, :free] = back @ meat @ back + np.outer(theta, theta) * noise / (2.0 * known**2)
    note = (
        f"of the fit weighted by 1/|x|, from the mean direction and {int(count):,} public rows, which must be like "
        "the people's (docs/iwp-sgd.md)"
    )
    error = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    values = np.append(theta, np.zeros(p - free))
    combined = replace(polished, values=values, method=PUBLIC_ROWS, spread=error, note=note, covariance=covariance)
    return replace(combined, curvature_error=None, selected=None, alike=True)


def _noise_of_products(p: int, noise: float, people: float, known: float, directions: Floats) -> Floats:
    """Return the noise covariance of the numbers of mean ``u~ u~' - own_variance I``, trace removed.

    ``u~ u~' = u u' + (u n' + n u') + n n'``: the last term has variance 2 s^4 in every number.
    """
    square = noise * people
    covariance = 2.0 * square**2 * np.eye(matrix_size(p))
    values, vectors = np.linalg.eigh(known * directions)
    for value, vector in zip(values, vectors.T, strict=True):
        crossed = np.array([flattened(np.outer(vector, unit) + np.outer(unit, vector)) for unit in np.eye(p)])
        covariance += square * max(float(value), 0.0) * crossed.T @ crossed
    ones = flattened(np.eye(p))
    project = np.eye(len(ones)) - np.outer(ones, ones) / p
    return np.asarray(project @ covariance @ project.T / people)
