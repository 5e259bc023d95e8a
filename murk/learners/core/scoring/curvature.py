"""What released curvatures say beyond those that rows of covariates predict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from murk.learners.core.scoring.model import Model, Response
from murk.learners.core.scoring.moments import Pooled, facing, pooled
from murk.learners.core.scoring.rows import Rows, inverse, mean_matrix
from murk.learners.core.scoring.sums import Answer, Summary

Array = NDArray[np.float64]

# What rows predict, where all targets are there, may be wrong by so much of it, as features are not normal: in all
# directions together and, in terms of the mean eigenvalue, in each number; and along the coefficients.
UNEVEN, _ALONG = 0.1, 1.0
# Where noise hides what is wrong, it may be as much as the estimate of it and so many of its standard errors.
CAREFUL = 1.0
# The least share of the people whose target is there.
_LEAST = 0.02


@dataclass(frozen=True)
class Curvature:
    """How released curvatures differ from those over the rows, in the newest epoch's coordinates.

    Parameters
    ----------
    ratio
        How much there is of what the rows predict: below 1 where targets are missing.
    along
        The direction of the coefficients, of length 1, (p,).
    root
        C, lower triangular, (2, 2): ``C C'`` is the covariance of the ratio and of the curvature along them.
    correction
        D, (p, p).
    error
        Variance of what is left of a number's error.
    """

    ratio: float
    along: Array
    root: Array
    correction: Array
    error: float

    @classmethod
    def of(cls, found: Sequence[Summary], rows: Rows, response: Response) -> Curvature:
        """What all epochs' released curvatures say, of those that rows predict."""
        newest = found[-1].model
        p = len(newest.origin)
        size = p * (p + 1) / 2
        along = newest.back.T @ newest.origin
        turn, known = facing(along), bool(np.any(along))
        # Each is asked for several times.
        predicted = [cache(partial(mean_matrix, each.model, rows, response)) for each in found]
        released = [(each.model, each.curvature, how) for each, how in zip(found, predicted, strict=True)]
        everywhere = pooled(released, turn @ newest.transform)
        if everywhere is None:
            return cls._unknown(newest, rows, response)
        # Two things may be wrong with many numbers at once: how much curvature there is, and how much of it lies along
        # the coefficients. They are fitted, the first, which is the same wherever people were asked, to all alike; of
        # the rest each number is drawn towards zero.
        _, alike, doubts = _two(everywhere, known)
        ratio, variance = drawn(float(alike[0]), float(doubts[0, 0]))
        told = [_by_scatter(each, ratio, response) for each in found]
        more = [(each.model, one, how) for each, one, how in zip(found, told, predicted, strict=True)]
        moved = [_moved(each.model, newest, rows, response) for each in found]
        here = pooled([*released, *more], turn @ newest.transform, [*moved, *moved]) or everywhere
        basis, fitted, errors = _two(here, known)
        measured, variances, first = here.measured, here.variances, basis[-1].reshape(p, p)
        # The other number follows, as far as both hang together.
        if known:
            tied = errors[1, 0] / errors[0, 0]
            fitted[1] += tied * (ratio - fitted[0])
            errors = errors + (variance - errors[0, 0]) * np.outer([1.0, tied], [1.0, tied])
        fitted[0] = ratio
        root = np.linalg.cholesky(errors) if known else np.diag([math.sqrt(variance), 0.0])
        rest = measured - (fitted @ basis).reshape(p, p)
        noise = float(np.mean(variances.ravel()[known:]))
        freedom = max(size - len(fitted), 1.0)
        excess = noise * max(0.0, float(np.sum(rest**2 / variances)) / freedom - 1.0)
        spread = max(excess, (UNEVEN * max(ratio, _LEAST) * float(np.trace(here.expected)) / p) ** 2)
        kept = spread / (spread + noise)
        careful = max(spread, excess + CAREFUL * noise * math.sqrt(2.0 / size))
        correction = kept * rest
        if known:
            correction = correction + fitted[1] * first
        correction = turn.T @ correction @ turn
        return cls(
            min(max(float(fitted[0]), _LEAST), 5.0),
            turn[0],
            np.asarray(root, dtype=np.float64),
            correction,
            kept**2 * noise + (1.0 - kept) ** 2 * careful,
        )

    @classmethod
    def _unknown(cls, newest: Model, rows: Rows, response: Response) -> Curvature:
        """Where no curvature was released yet: what rows predict, within a third."""
        p = len(newest.origin)
        nothing = np.eye(p)[0], np.diag([math.sqrt(0.1), 0.0]), np.zeros((p, p))
        loose = 0.3 * float(np.trace(mean_matrix(newest, rows, response))) / p
        return cls(1.0, *nothing, loose**2)


def _two(found: Pooled, known: bool) -> tuple[Array, Array, Array]:
    """How much there is of what is predicted, and how much more along the first direction if ``known``, fitted.

    Returns
    -------
    Their matrices as numbers, (1 or 2, p p); both; and their covariance.
    """
    first = np.zeros_like(found.expected)
    first[0, 0] = 1.0
    basis = np.array([found.expected.ravel(), first.ravel()])[: 1 + known]
    weighed = basis / found.variances.ravel()
    gram = weighed @ basis.T
    # Of two features, one direction and what is predicted may be the same matrix.
    gram += 1e-9 * np.diag(np.diag(gram))
    if known:
        gram[1, 1] += 1.0 / (_ALONG * found.expected[0, 0]) ** 2
    errors = inverse(gram)
    return basis, errors @ (weighed @ found.measured.ravel()), errors


def _by_scatter(each: Summary, ratio: float, response: Response) -> Answer | None:
    """What a scatter says of the curvature where everybody's probability is the same; None elsewhere.

    There every person's weight is the same, and the curvature that share of the scatter, but for missing targets.
    """
    if each.scatter is None or not response.binary or np.any(each.model.origin[:-1]):
        return None
    factor = 2.0 * ratio * float(response.weights(each.model.origin[-1:], each.model.exponent)[0])
    return each.scatter.times(factor)


def _moved(model: Model, newest: Model, rows: Rows, response: Response) -> Array:
    """By how much what is wrong with an epoch's predicted curvature may differ from that at later origins, (p, p).

    At an origin of the constant alone nothing is wrong but the share of targets: every person's weight is the same.
    So what is wrong elsewhere comes with the way there, and may be as much as what rows predict of that way. Later
    origins lie near each other.
    """
    if np.any(model.origin[:-1]):
        return np.zeros_like(model.transform)
    there = mean_matrix(replace(model, origin=newest.origin), rows, response)
    return there - mean_matrix(model, rows, response)


def drawn(ratio: float, variance: float, uneven: float = UNEVEN) -> tuple[float, float]:
    """Mean and variance of how much curvature there is, of an estimate and its variance.

    Either all targets are there, and it is 1 within ``uneven``, as far as rows are the people's, or an unknown share of
    them.
    """
    whole = uneven**2
    both = whole + variance
    means, variances = [(ratio * whole + variance) / both], [whole * variance / both]
    weights = [math.exp(-((ratio - 1.0) ** 2) / both / 2.0) / math.sqrt(2.0 * math.pi * both)]
    error = math.sqrt(variance)
    low, high = -ratio / error, (1.0 - ratio) / error
    part = (math.erfc(-high / math.sqrt(2.0)) - math.erfc(-low / math.sqrt(2.0))) / 2.0
    if part > 1e-12:
        at_low, at_high = (math.exp(-value * value / 2.0) / math.sqrt(2.0 * math.pi) for value in (low, high))
        shift = (at_low - at_high) / part
        means.append(ratio + error * shift)
        variances.append(variance * max(1.0 + (low * at_low - high * at_high) / part - shift**2, 1e-3))
        weights.append(part)
    total = sum(weights)
    if not total > 1e-300:  # neither explains it
        return min(max(ratio, 0.0), 2.0), max(variance, whole)
    mean = sum(w * m for w, m in zip(weights, means, strict=True)) / total
    spread = sum(w * (v + (m - mean) ** 2) for w, v, m in zip(weights, variances, means, strict=True)) / total
    return mean, spread
