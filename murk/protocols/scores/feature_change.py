"""Checks of rounds' released answers: whether the people changed, and whether any people can give such answers.

*Changed.* Second moments are released in each round, as ``S_k = s_k W_k M W_k' + noise`` for features of second moment
M, with W_k the round's transform and s_k the mean weight of a matrix, that of the estimate's normal rows. If M is the
same in all rounds, least squares for M leaves residuals that are chi-square. Features are not normal, so weights differ
a little between transforms: a share `_TOLERATED` of the mean eigenvalue counts as noise.

*Possible.* Whatever people's records are, their mean score is no longer than 1, and their mean matrix is positive
semidefinite and no larger than one person's. Mean answers that are further away than noise explains are forged.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from murk._internal.arrays import Floats
from murk.inference.misfit import MOST_NUMBERS, excess
from murk.privacy.mechanisms.outer_product import matrix_size
from murk.protocols.linear_algebra import flattened, symmetric
from murk.protocols.rows import Rows
from murk.protocols.scores.model import Model, Query, Response, inverse, mean_matrix
from murk.protocols.scores.solutions import largest_square
from murk.protocols.scores.solve.moments import UNLIKELY, own_variance
from murk.protocols.scores.sums import Answer, Summaries

_TOLERATED: Final = 0.03
_NAMED: Final = 3.72  # standard deviations from which a feature is named; one in 10,000 is named falsely


@dataclass(frozen=True)
class FeatureChange:
    """A change of people's features over the stream, beyond noise."""

    excess: float  # excess of the squared residuals over their mean, in standard deviations
    features: tuple[int, ...]  # positions of the features whose means changed, the clearest first


def feature_change(
    found: Summaries, response: Response, rows: Rows, contradicted: Sequence[int] = ()
) -> FeatureChange | None:
    """Return how people's features changed over the rounds; None if they did not, or nothing shows it.

    ``contradicted`` are features whose spread later answers contradict: they changed after the survey.
    """
    if contradicted:
        return FeatureChange(math.inf, tuple(contradicted))
    released = _released(found, response)
    p = rows.points.shape[1]
    size = matrix_size(p)
    if len(released) < 2 or size > MOST_NUMBERS:
        return None
    plain, back = Response(False), inverse(released[-1][0].transform)
    upper = np.triu_indices(p)
    basis = np.zeros((size, p, p))
    basis[np.arange(size), upper[0], upper[1]] += 0.5
    basis[np.arange(size), upper[1], upper[0]] += 0.5
    information, weighed, squares = np.zeros((size, size)), np.zeros(size), 0.0
    # Each round's differences, and their slopes along the differences common to all rounds.
    residuals: list[tuple[Floats, Floats]] = []
    predictions = [mean_matrix(model, rows, plain, flat=True) for model, _ in released]
    for (model, answer), predicted in zip(released, predictions, strict=True):
        into = model.transform @ back
        weight = np.trace(predicted) / np.trace(model.transform @ rows.second_moment @ model.transform.T)
        slopes = weight * flattened(into @ basis @ into.T).T
        precision = 1.0 / (own_variance(answer, p) + (_TOLERATED * float(np.trace(predicted)) / p) ** 2)
        off = flattened(answer.mean - predicted)
        residuals.append((off, slopes))
        information += precision * slopes.T @ slopes
        weighed += precision * slopes.T @ off
        squares += precision * float(off @ off)
    common: Floats = np.linalg.lstsq(information, weighed, rcond=1e-12)[0].astype(np.float64)
    far = excess(max(squares - float(weighed @ common), 0.0), (len(released) - 1) * size)
    if far <= UNLIKELY:
        return None
    names = _changed(released, predictions)
    return FeatureChange(far, names or _spread_otherwise(released, residuals, common))


def _released(found: Summaries, response: Response) -> list[tuple[Model, Answer]]:
    """Return the released second moments of one kind: between kinds, missing targets would look like a change."""
    if response.binary:
        return [(each.model, each.scatter) for each in found if each.scatter is not None]
    return [(each.model, each.curvature) for each in found if each.curvature is not None]


def _changed(released: Sequence[tuple[Model, Answer]], predictions: Sequence[Floats]) -> tuple[int, ...]:
    """Return the features whose weighted means differ between rounds, the clearest first."""
    p = len(predictions[0])
    means, variances = np.zeros((len(released), p - 1)), np.zeros((len(released), p - 1))
    for place, ((model, answer), predicted) in enumerate(zip(released, predictions, strict=True)):
        back = model.back
        weight = float(back[-1] @ predicted @ back[-1])
        lengths = np.sum(back[:-1] ** 2, axis=1) * float(back[-1] @ back[-1]) + (back[:-1] @ back[-1]) ** 2
        means[place] = back[:-1] @ answer.mean @ back[-1] / weight
        variances[place] = own_variance(answer, p) * lengths / 2.0 / weight**2 + _TOLERATED**2
    centre = np.sum(means / variances, axis=0) / np.sum(1.0 / variances, axis=0)
    squares = np.sum((means - centre) ** 2 / variances, axis=0)
    far = [excess(float(each), len(released) - 1) for each in squares]
    # If one feature changes, records' weights change, and other features seem to change slightly.
    least = max(_NAMED, max(far, default=0.0) / 2.0)
    return tuple(index for index in sorted(range(p - 1), key=lambda index: -far[index]) if far[index] > least)


def _spread_otherwise(
    released: Sequence[tuple[Model, Answer]], residuals: Sequence[tuple[Floats, Floats]], common: Floats
) -> tuple[int, ...]:
    """Return the features along whose coordinates second moments differ between rounds by more than noise."""
    p = len(released[0][0].transform)
    squares = np.zeros(p - 1)
    for (model, answer), (off, slopes) in zip(released, residuals, strict=True):
        differences = np.diag(symmetric(off - slopes @ common, p)) ** 2 / own_variance(answer, p)
        # A coordinate is that of the feature that changes most along it.
        for feature, square in zip(np.argmax(np.abs(model.back[:-1]), axis=0).tolist(), differences, strict=True):
            squares[feature] += square
    far = [excess(float(each), len(released)) for each in squares]
    least = max(_NAMED, max(far, default=0.0) / 2.0)
    return tuple(index for index in sorted(range(p - 1), key=lambda index: -far[index]) if far[index] > least)


def impossible(found: Summaries) -> tuple[Query, ...]:
    """Return the queries with a mean answer that, beyond noise, no people's records can give, in any round."""
    queries: dict[Query, None] = {}
    for each in found:
        if each.score is not None and _beyond(float(np.linalg.norm(each.score.mean)) - 1.0, each.score):
            queries["score"] = None
        matrices: dict[Query, Answer | None] = {"scatter": each.scatter, "curvature": each.curvature}
        for query, answer in matrices.items():
            if answer is None:
                continue
            values = np.linalg.eigvalsh(answer.mean)
            negative = float(np.linalg.norm(np.minimum(values, 0.0)))
            larger = float(np.linalg.norm(values)) - each.model.matrix_clipping_norm / 2.0
            if _beyond(max(negative, larger), answer):
                queries[query] = None
    return tuple(queries)


def _beyond(distance: float, answer: Answer) -> bool:
    numbers = matrix_size(len(answer.mean)) if answer.mean.ndim == 2 else answer.mean.size
    # Only noise, without the variance between people, whose sample may have any mean. Directions have more noise
    # along their vector, which `whole` allows for.
    return distance > math.sqrt((answer.noise + answer.whole) * largest_square(numbers))
