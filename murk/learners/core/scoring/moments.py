"""Second moments of the covariates from released matrices, and corrections of the curvature over rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np

from murk._arrays import Floats
from murk.learners.core.scoring.model import Model, Response, Rows, inverse, mean_matrix
from murk.learners.core.scoring.sums import Answer, Summaries, Summary
from murk.learners.estimates.estimate import Extent

_SIGNIFICANT = 2.0  # standard errors from which a mean square's excess over its noise counts
_EVEN = 0.5  # features count as isotropic where their moments' eigenvalues spread by less than this part of the mean
_CONSTANT = 3.0  # prior standard deviation of the constant's excess, relative to the features


@dataclass(frozen=True)
class Moments:
    """The covariates' second moments, from released matrices.

    In the newest epoch's unstretched coordinates ``B x`` features are taken as isotropic unless matrices contradict it.
    """

    moment: Floats  # second moment of x, scaled so that the constant's is 1
    shape: Floats  # second moment of ``B x``, of mean eigenvalue 1
    scale: float  # factor of ``B x`` for a typical length of sqrt p
    settled: bool  # whether ``B x`` is spread evenly enough over all directions
    base: Floats  # B, (p, p)
    kept: float = 0.0  # share kept of the matrices' differences from isotropic features, and of their noise

    @classmethod
    def of(cls, found: Summaries, response: Response) -> Moments:
        """Return the moments of all epochs' released scatters, shrunk towards isotropic ones, more if noisier."""
        newest = found[-1].model
        base, back, turn, rows = _isotropic(newest)
        p, size = len(base), len(base) * (len(base) + 1) / 2
        together = _scatters(found, response, rows, turn @ base)
        if together is None:
            return cls(np.eye(p), np.eye(p), 1.0, False, base)
        measured, expected, variances = together.measured, together.expected, together.variances
        mean = float(np.trace(expected)) / p
        noise = float(np.mean(variances))
        # While it is mostly noise, even the trace may not be positive.
        ratio, more, ones = _fit_levels(together, turn @ base[:, -1], math.sqrt(noise / p) / mean)
        rest = measured - ratio * expected - more * ones
        square = float(np.sum(rest**2 / variances)) / size
        kept = 0.0 if square < 1.0 + _SIGNIFICANT * math.sqrt(2.0 / size) else 1.0 - 1.0 / square
        values, vectors = np.linalg.eigh(np.eye(p) + (kept * rest + more * ones) / (ratio * mean))
        values = np.maximum(values, max(0.5 * math.sqrt(noise) / (ratio * mean), 1e-3))
        shape = turn.T @ (vectors * values) @ vectors.T @ turn
        shape *= p / float(np.trace(shape))
        moment = back @ shape @ back.T
        rough = math.hypot(math.sqrt(max(square - 1.0, 0.0) * noise), more / p) / (ratio * mean)
        settled = len(found) > 1 and (rough < _EVEN or kept == 0.0)
        plain = Model(np.zeros(len(newest.origin)), base, newest.reach, 1.0, 0.0, 0.0)
        length = 2.0 * (ratio + more / (p * mean)) * float(np.trace(mean_matrix(plain, rows, response, flat=True)))
        return cls(moment / moment[-1, -1], shape, math.sqrt(p) / length, settled, base, kept)


def _isotropic(newest: Model) -> tuple[Floats, Floats, Floats, Rows]:
    """Return B, its inverse, a rotation that turns ``B x`` along the coefficients, and normal rows isotropic in it."""
    base = unstretched(newest)
    back = inverse(base)
    moment = back @ back.T
    rows = Rows.normal(moment / moment[-1, -1], np.array(newest.origin))
    return base, back, facing(back.T @ newest.origin), rows


def _scatters(found: Summaries, response: Response, rows: Rows, onto: Floats) -> Pooled | None:
    """Return released scatters (and curvatures at origin zero) pooled in the coordinates ``onto``."""
    answers: list[tuple[Model, Answer | None, Callable[[], Floats]]] = []
    for each in found:
        predicted = partial(mean_matrix, each.model, rows, response, flat=True)
        answers.append((each.model, each.scatter, predicted))
        if not np.any(each.model.origin):
            answers.append((each.model, each.curvature, predicted))
    return pooled(answers, onto)


def extent_of(found: Summaries, response: Response) -> Extent | None:
    """Return the features' second moments from released scatters, without shrinkage."""
    base, _, turn, rows = _isotropic(found[-1].model)
    onto = turn @ base
    together = _scatters(found, response, rows, onto)
    if together is None:
        return None
    back = inverse(onto)
    return Extent(back @ together.measured @ back.T, back.T, together.variances)


def _fit_levels(together: Pooled, constant: Floats, least: float) -> tuple[float, float, Floats]:
    """Fit factors for the moments of isotropic features and for the constant's matrix; return them and that matrix.

    With a common factor, the features' noise would be kept as soon as the constant, which is 1, exceeds it.
    """
    ones = np.outer(constant, constant) / float(constant @ constant)
    basis = np.array([together.expected.ravel(), ones.ravel()])
    weighed = basis / together.variances.ravel()
    gram = weighed @ basis.T
    gram[1, 1] += 1.0 / (_CONSTANT * float(np.trace(together.expected)) / len(constant)) ** 2
    ratio, more = np.linalg.solve(gram, weighed @ together.measured.ravel()).tolist()
    if ratio < least:
        ratio, more = least, float(weighed[1] @ (together.measured - least * together.expected).ravel()) / gram[1, 1]
    return ratio, more, ones


def stretched(base: Floats, origin: Floats) -> Floats:
    """Return whitening coordinates ``base`` stretched along the coefficients b, at the same typical length.

    Along them a score's curvature is lower by a factor of about ``1 + |b|^2``.
    """
    p = len(base)
    if not np.any(origin[:-1]):
        # With one probability for everybody, curvature is lower by the same factor in all directions.
        return base
    along = inverse(base).T @ origin
    square = float(along @ along)
    out = base + (math.sqrt(1.0 + square) - 1.0) / square * np.outer(along, along @ base)
    return np.asarray(math.sqrt(p / (p + square)) * out)


def unstretched(model: Model) -> Floats:
    """Return the ``base`` from which `stretched` made a model's transform."""
    p = len(model.transform)
    if not np.any(model.origin[:-1]):
        return model.transform
    along = model.back.T @ model.origin
    square = float(along @ along)
    half = p * (1.0 - square) / 2.0
    before = math.sqrt(half**2 + square * p) - half
    root = math.sqrt(1.0 + before)
    out = model.transform + (1.0 / root - 1.0) / square * np.outer(along, along @ model.transform)
    return np.asarray(math.sqrt((p + before) / p) * out)


def gain(into: Floats) -> float:
    """Return the mean factor by which a linear map multiplies a matrix's noise variance."""
    return float(np.sum(into * into)) / len(into)


@dataclass(frozen=True)
class Pooled:
    """The precision-weighted mean of released matrices, and of their predictions."""

    measured: Floats  # (p, p)
    expected: Floats  # (p, p)
    variances: Floats  # variances of the measured numbers, (p, p); off the diagonal of sqrt 2 times them


def pooled(
    answers: Sequence[tuple[Model, Answer | None, Callable[[], Floats]]], onto: Floats, doubts: Sequence[Floats] = ()
) -> Pooled | None:
    """Return released matrices in the coordinates ``onto``, (p, p), weighted by precision; None if there are none.

    ``answers`` are models, released matrices and their predictions; ``doubts`` are each matrix's possible errors as an
    estimate at ``onto``, (p, p). Epochs in other coordinates may determine the first coordinate of ``onto`` poorly.
    """
    p = len(onto)
    measured, expected, weights = np.zeros((p, p)), np.zeros((p, p)), np.zeros((p, p))
    for place, (model, answer, predicted) in enumerate(answers):
        if answer is None:
            continue
        into = onto @ model.back
        grown = np.sum(into * into, axis=1)
        variance = own_variance(answer, p) * np.outer(grown, grown)
        if doubts:
            variance = variance + (into @ doubts[place] @ into.T) ** 2
        share = 1.0 / variance
        measured += share * (into @ answer.mean @ into.T)
        expected += share * (into @ predicted() @ into.T)
        weights += share
    return Pooled(measured / weights, expected / weights, 1.0 / weights) if weights.any() else None


def facing(along: Floats) -> Floats:
    """Return an orthogonal matrix, (p, p), whose first row lies along a direction."""
    p, length = len(along), float(np.linalg.norm(along))
    mirror = along / length - np.eye(p)[0] if length > 0.0 else np.zeros(p)
    square = float(mirror @ mirror)
    return np.eye(p) - 2.0 / square * np.outer(mirror, mirror) if square > 1e-12 else np.eye(p)


def own_variance(answer: Answer, features: int) -> float:
    """Return a bound on the variance of an entry of a mean matrix: the noise plus people's largest spread."""
    return answer.noise + (answer.share + answer.whole) / (features * (features + 1) / 2)


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
    along: Floats  # the direction of the coefficients, of length 1, (p,)
    root: Floats  # C, lower triangular, (2, 2): ``C C'`` is the covariance of the ratio and of the curvature along them
    correction: Floats  # D, (p, p)
    error: float  # variance of the remaining error of an entry

    @classmethod
    def of(cls, found: Summaries, rows: Rows, response: Response, absorbed: float = 0.0) -> Curvature:
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
            # No correction, with a relative error of about a third.
            loose = 0.3 * float(np.trace(mean_matrix(newest, rows, response))) / p
            return cls(1.0, np.eye(p)[0], np.diag([math.sqrt(0.1), 0.0]), np.zeros((p, p)), loose**2)
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
        return cls(min(max(ratio, _LEAST), 5.0), turn[0], np.asarray(root, dtype=np.float64), correction, error)


def remaining_error(kept: float, absorbed: float, noise: float, spread: float, mean: float) -> float:
    """Return the error variance of an entry of a shrunk matrix, whose shrinkage target is from the same answers.

    ``kept`` is the share kept of its difference from the rows', ``absorbed`` the share of the answers' noise that the
    rows contain, ``noise`` and ``spread`` are variances of noise and difference, ``mean`` is the matrix's mean
    eigenvalue.
    """
    missing = 1.0 - kept
    hidden = max(spread, (_HIDDEN * mean) ** 2)
    return (1.0 - missing * (1.0 - absorbed)) ** 2 * noise + missing**2 * hidden


def _fit_pair(found: Pooled, known: bool) -> tuple[Floats, Floats, Floats]:
    """Fit the ratio to the prediction and, if ``known``, the excess along the first direction.

    Returns both matrices as vectors, (1 or 2, p p), the fitted values, and their covariance.
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
    """Convert a scatter to a curvature if everybody has the same probability; else return None."""
    if each.scatter is None or not response.binary or np.any(each.model.origin[:-1]):
        return None
    factor = 2.0 * ratio * float(response.weights(each.model.origin[-1:], each.model.exponent)[0])
    return each.scatter.times(factor)


def _moved(model: Model, newest: Model, rows: Rows, response: Response) -> Floats:
    """Return how much the error of the curvature predicted at a model may differ from that at the newest, (p, p).

    At an origin of constants alone only the share of targets may be wrong. At the newest origin the error may be as
    large as the predicted change from there. Other origins lie near the newest: 0.
    """
    if np.any(model.origin[:-1]):
        return np.zeros_like(model.transform)
    there = mean_matrix(replace(model, origin=newest.origin), rows, response)
    return there - mean_matrix(model, rows, response)


def drawn(ratio: float, variance: float, uneven: float = UNEVEN) -> tuple[float, float]:
    """Return the posterior mean and variance of the ratio of true to predicted curvature, from an estimate.

    The prior: if all targets are present, the ratio is 1 within ``uneven``; otherwise it is their unknown share.
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
