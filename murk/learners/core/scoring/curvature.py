"""Corrections of the curvature over rows of covariates, by released curvatures."""

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

# Prior relative errors of the rows' curvature where all targets are present, as features are not normal: of the ratio
# and, relative to the mean eigenvalue, of each number; and of the curvature along the coefficients.
UNEVEN, _ALONG = 0.1, 1.0
CAREFUL = 1.0  # standard errors added to an estimated error, as noise may hide a larger one
# Difference of a number from that of normal rows, relative to the mean eigenvalue, that released curvatures may hide
# where the rows' moments are made of them.
_HIDDEN = 0.16
_LEAST = 0.02  # least share of people with a target


@dataclass(frozen=True)
class Curvature:
    """The difference between released curvatures and those over the rows, in the newest epoch's coordinates."""

    ratio: float  # ratio to the rows' curvature: below 1 if targets are missing
    along: Array  # the direction of the coefficients, of length 1, (p,)
    root: Array  # C, lower triangular, (2, 2): ``C C'`` is the covariance of the ratio and of the curvature along them
    correction: Array  # D, (p, p)
    error: float  # variance of the remaining error of an entry

    @classmethod
    def of(cls, found: Sequence[Summary], rows: Rows, response: Response, absorbed: float = 0.0) -> Curvature:
        """Return the correction of the rows' curvature by all epochs' released curvatures.

        ``absorbed`` is the share of these curvatures' noise that the rows' moments contain.
        """
        newest = found[-1].model
        p = len(newest.origin)
        size = p * (p + 1) / 2
        along = newest.back.T @ newest.origin
        turn, known = facing(along), bool(np.any(along))
        # Each is used several times.
        predicted = [cache(partial(mean_matrix, each.model, rows, response)) for each in found]
        released = [(each.model, each.curvature, prediction) for each, prediction in zip(found, predicted, strict=True)]
        everywhere = pooled(released, turn @ newest.transform)
        if everywhere is None:
            return cls._unknown(newest, rows, response)
        # Two errors affect many numbers: the ratio, which is the same at all models, and the excess along the
        # coefficients. Both are fitted; every other number is shrunk towards zero.
        _, alike, doubts = _fit_pair(everywhere, known)
        ratio, variance = drawn(float(alike[0]), float(doubts[0, 0]))
        implied = [_from_scatter(each, ratio, response) for each in found]
        more = [(each.model, one, prediction) for each, one, prediction in zip(found, implied, predicted, strict=True)]
        changes = [_moved(each.model, newest, rows, response) for each in found]
        here = pooled([*released, *more], turn @ newest.transform, [*changes, *changes]) or everywhere
        basis, fitted, errors = _fit_pair(here, known)
        measured, variances, first = here.measured, here.variances, basis[-1].reshape(p, p)
        # The excess is corrected for the better known ratio, by their covariance.
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
        mean = max(ratio, _LEAST) * float(np.trace(here.expected)) / p
        spread = max(excess, (UNEVEN * mean) ** 2)
        kept = spread / (spread + noise)
        careful = max(spread, excess + CAREFUL * noise * math.sqrt(2.0 / size))
        if response.binary:
            error = kept**2 * noise + (1.0 - kept) ** 2 * careful
        else:
            error = remaining_error(kept, absorbed, noise, careful, mean)
        correction = kept * rest
        if known:
            correction = correction + fitted[1] * first
        correction = turn.T @ correction @ turn
        kept_ratio = min(max(float(fitted[0]), _LEAST), 5.0)
        return cls(kept_ratio, turn[0], np.asarray(root, dtype=np.float64), correction, error)

    @classmethod
    def _unknown(cls, newest: Model, rows: Rows, response: Response) -> Curvature:
        """Return no correction, with a relative error of about a third, where no curvature was released."""
        p = len(newest.origin)
        nothing = np.eye(p)[0], np.diag([math.sqrt(0.1), 0.0]), np.zeros((p, p))
        loose = 0.3 * float(np.trace(mean_matrix(newest, rows, response))) / p
        return cls(1.0, *nothing, loose**2)


def remaining_error(kept: float, absorbed: float, noise: float, spread: float, mean: float) -> float:
    """Return the variance of a number of a matrix that is shrunk towards rows whose moments come from the same answers.

    ``kept`` is the share kept of its difference from the rows', and ``absorbed`` the share of the answers' noise that
    the rows contain, which shrinking leaves. ``noise`` and ``spread`` are variances of noise and difference, and
    ``mean`` is the matrix's mean eigenvalue.
    """
    missing = 1.0 - kept
    hidden = max(spread, (_HIDDEN * mean) ** 2)
    return (1.0 - missing * (1.0 - absorbed)) ** 2 * noise + missing**2 * hidden


def _fit_pair(found: Pooled, known: bool) -> tuple[Array, Array, Array]:
    """Fit the ratio to the prediction and, if ``known``, the excess along the first direction.

    Returns the matrices of both as vectors, (1 or 2, p p), the fitted values, and their covariance.
    """
    first = np.zeros_like(found.expected)
    first[0, 0] = 1.0
    basis = np.array([found.expected.ravel(), first.ravel()])[: 1 + known]
    weighed = basis / found.variances.ravel()
    gram = weighed @ basis.T
    # With two features both matrices may be the same.
    gram += 1e-9 * np.diag(np.diag(gram))
    if known:
        gram[1, 1] += 1.0 / (_ALONG * found.expected[0, 0]) ** 2
    errors = inverse(gram)
    return basis, errors @ (weighed @ found.measured.ravel()), errors


def _from_scatter(each: Summary, ratio: float, response: Response) -> Answer | None:
    """Return the curvature that a scatter implies if everybody has the same probability, else None."""
    if each.scatter is None or not response.binary or np.any(each.model.origin[:-1]):
        return None
    factor = 2.0 * ratio * float(response.weights(each.model.origin[-1:], each.model.exponent)[0])
    return each.scatter.times(factor)


def _moved(model: Model, newest: Model, rows: Rows, response: Response) -> Array:
    """Return how much the error of the curvature predicted at a model may differ from that at the newest, (p, p).

    At an origin of the constant alone all weights are equal, and only the share of targets may be wrong. At the newest
    origin the error may be as large as the predicted change from there. Other origins lie near the newest: 0.
    """
    if np.any(model.origin[:-1]):
        return np.zeros_like(model.transform)
    there = mean_matrix(replace(model, origin=newest.origin), rows, response)
    return there - mean_matrix(model, rows, response)


def drawn(ratio: float, variance: float, uneven: float = UNEVEN) -> tuple[float, float]:
    """Return posterior mean and variance of the curvature's ratio, from an estimate and its variance.

    The prior: either all targets are present, and the ratio is 1 within ``uneven``, or an unknown share of them is.
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
    if not total > 1e-300:  # neither case explains the estimate
        return min(max(ratio, 0.0), 2.0), max(variance, whole)
    mean = sum(w * m for w, m in zip(weights, means, strict=True)) / total
    spread = sum(w * (v + (m - mean) ** 2) for w, v, m in zip(weights, variances, means, strict=True)) / total
    return mean, spread
