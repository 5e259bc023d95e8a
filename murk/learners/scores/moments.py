"""Second moments of the covariates from released matrices, where no rows are public."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from murk.learners.scores.model import Model
from murk.learners.scores.rows import inverse
from murk.learners.scores.sums import Answer, Summary

Array = NDArray[np.float64]

# An excess of a mean square over its noise counts from so many of its standard errors.
_SIGNIFICANT = 2.0
# Eigenvalues of the transformed rows' moments, which are even where their spread is below this part of their mean.
_EVEN = 0.5


@dataclass(frozen=True)
class Moments:
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

    @classmethod
    def of(cls, found: Sequence[Summary]) -> Moments:
        """Those of all epochs' released scatters, drawn towards even ones where noise rules.

        At origin zero a curvature is a scatter.
        """
        newest = found[-1].model
        p, back = len(newest.origin), inverse(newest.transform)
        size = p * (p + 1) / 2
        total, weight = np.zeros((p, p)), 0.0
        for each in found:
            answers = [each.scatter, each.curvature if not np.any(each.model.origin) else None]
            for answer in answers:
                if answer is None:
                    continue
                into = newest.transform @ inverse(each.model.transform)
                share = 1.0 / (own_variance(answer, p) * gain(into) ** 2)
                total += share * into @ answer.mean @ into.T
                weight += share
        if weight == 0.0:
            return cls(np.eye(p), np.eye(p), 1.0, False)
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
        settled = len(found) > 1 and (rough < _EVEN or drawn == 1.0)
        return cls(moment / moment[-1, -1], scatter / mean, math.sqrt(p) / (2.0 * mean * p), settled)


def gain(into: Array) -> float:
    """What a change of coordinates multiplies a matrix's noise by, on average over directions."""
    return float(np.sum(into * into)) / len(into)


def pooled(found: Sequence[Summary], predicted: Callable[[Model], Array]) -> tuple[Array, Array, float] | None:
    """All epochs' released curvatures in the newest coordinates, by precision, and what was predicted of them.

    Returns
    -------
    tuple or None
        Both (p, p), and the variance of a number of the first; None where no curvature was released yet.
    """
    newest = found[-1].model
    p = len(newest.transform)
    measured, expected, weight = np.zeros((p, p)), np.zeros((p, p)), 0.0
    for each in found:
        if each.curvature is None:
            continue
        into = newest.transform @ inverse(each.model.transform)
        share = 1.0 / (own_variance(each.curvature, p) * gain(into) ** 2)
        measured += share * into @ each.curvature.mean @ into.T
        expected += share * into @ predicted(each.model) @ into.T
        weight += share
    return None if weight == 0.0 else (measured / weight, expected / weight, 1.0 / weight)


def own_variance(answer: Answer, features: int) -> float:
    """Variance of a number of a mean matrix: the mechanism's noise, and what people differ by at most."""
    return answer.noise + (answer.share + answer.whole) / (features * (features + 1) / 2)
