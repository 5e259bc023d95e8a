"""Second moments of the covariates from released matrices, for tasks without public rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from murk.learners.core.scoring.model import Model, Response
from murk.learners.core.scoring.rows import Rows, inverse, mean_matrix
from murk.learners.core.scoring.sums import Answer, Summary
from murk.learners.estimates.estimate import Extent

Array = NDArray[np.float64]

_SIGNIFICANT = 2.0  # standard errors from which a mean square's excess over its noise counts
_EVEN = 0.5  # features are even where their moments' eigenvalues spread by less than this part of the mean
_CONSTANT = 3.0  # prior standard deviation of the constant's excess, relative to the features


@dataclass(frozen=True)
class Moments:
    """The covariates' second moments, estimated from released matrices in the newest epoch's unstretched coordinates.

    In these coordinates ``B x`` features are taken as even unless released matrices contradict it.
    """

    moment: Array  # second moment of x, scaled so that the constant's is 1
    shape: Array  # second moment of ``B x``, of mean eigenvalue 1
    scale: float  # factor of ``B x`` for a typical length of sqrt p
    settled: bool  # whether ``B x`` is spread evenly enough over all directions
    base: Array  # B, (p, p)
    kept: float = 0.0  # share kept of the matrices' differences from even features, and of their noise

    @classmethod
    def of(cls, found: Sequence[Summary], response: Response) -> Moments:
        """Return the moments of all epochs' released scatters, shrunk towards even ones by the noise."""
        newest = found[-1].model
        p, base = len(newest.transform), unstretched(newest)
        back, turn = inverse(base), _rotation(newest)
        size = p * (p + 1) / 2
        rows = _even_rows(newest)
        together = _scatters(found, response, rows)
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


def _rotation(newest: Model) -> Array:
    """Return a rotation of ``B x`` whose first axis lies along the coefficients."""
    return facing(inverse(unstretched(newest)).T @ newest.origin)


def _even_rows(newest: Model) -> Rows:
    """Return normal rows of even features in the coordinates ``B x``."""
    back = inverse(unstretched(newest))
    moment = back @ back.T
    return Rows.normal(moment / moment[-1, -1], np.array(newest.origin))


def _scatters(found: Sequence[Summary], response: Response, rows: Rows) -> Pooled | None:
    """Return released scatters (and curvatures at origin zero) pooled in ``B x`` turned along the coefficients."""
    newest = found[-1].model
    answers: list[tuple[Model, Answer | None, Callable[[], Array]]] = []
    for each in found:
        predicted = partial(mean_matrix, each.model, rows, response, flat=True)
        answers.append((each.model, each.scatter, predicted))
        if not np.any(each.model.origin):
            answers.append((each.model, each.curvature, predicted))
    return pooled(answers, _rotation(newest) @ unstretched(newest))


def extent_of(found: Sequence[Summary], response: Response) -> Extent | None:
    """Return where people lie within the box, by released scatters without shrinkage."""
    newest = found[-1].model
    together = _scatters(found, response, _even_rows(newest))
    if together is None:
        return None
    onto = _rotation(newest) @ unstretched(newest)
    back = inverse(onto)
    return Extent(back @ together.measured @ back.T, back.T, together.variances)


def _fit_levels(together: Pooled, constant: Array, least: float) -> tuple[float, float, Array]:
    """Return the ratio to the moments of even features, the constant's excess, and its matrix.

    The constant is no feature: it is 1, while features lie within 1 of zero. Shrunk like them, it would let all noise
    in once it stands out itself.
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


def stretched(base: Array, origin: Array) -> Array:
    """Return whitening coordinates ``base`` stretched along the coefficients b, by which curvature is lower.

    That is by a factor of about ``1 + |b|^2``. The typical length stays the same.
    """
    p = len(base)
    if not np.any(origin[:-1]):
        # With one probability for everybody, curvature is lower by the same factor in all directions.
        return base
    along = inverse(base).T @ origin
    square = float(along @ along)
    out = base + (math.sqrt(1.0 + square) - 1.0) / square * np.outer(along, along @ base)
    return np.asarray(math.sqrt(p / (p + square)) * out)


def unstretched(model: Model) -> Array:
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


def gain(into: Array) -> float:
    """Return the mean factor by which a change of coordinates multiplies a matrix's noise."""
    return float(np.sum(into * into)) / len(into)


@dataclass(frozen=True)
class Pooled:
    """The precision-weighted mean of released matrices, and of their predictions."""

    # measured, expected: (p, p)
    measured: Array
    expected: Array
    variances: Array  # variances of the measured numbers, (p, p); off the diagonal of sqrt 2 times them


def pooled(
    answers: Sequence[tuple[Model, Answer | None, Callable[[], Array]]], onto: Array, doubts: Sequence[Array] = ()
) -> Pooled | None:
    """Return released matrices in the coordinates ``onto``, (p, p), weighted by precision; None if there are none.

    ``answers`` are models, released matrices and their predictions; ``onto``'s first coordinate may be poorly known to
    other epochs. ``doubts`` are each matrix's possible deviations from the one wanted, (p, p).
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


def facing(along: Array) -> Array:
    """Return an orthogonal matrix, (p, p), whose first row lies along a direction."""
    p, length = len(along), float(np.linalg.norm(along))
    mirror = along / length - np.eye(p)[0] if length > 0.0 else np.zeros(p)
    square = float(mirror @ mirror)
    return np.eye(p) - 2.0 / square * np.outer(mirror, mirror) if square > 1e-12 else np.eye(p)


def own_variance(answer: Answer, features: int) -> float:
    """Return the variance of an entry of a mean matrix: the mechanism's noise and at most people's spread."""
    return answer.noise + (answer.share + answer.whole) / (features * (features + 1) / 2)
