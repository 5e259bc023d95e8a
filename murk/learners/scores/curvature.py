"""What released curvatures say beyond those that rows of covariates predict."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from murk.learners.scores.expected import mean_matrix
from murk.learners.scores.model import Model, Response
from murk.learners.scores.moments import pooled
from murk.learners.scores.rows import Rows, inverse
from murk.learners.scores.sums import Summary

Array = NDArray[np.float64]

# The error that intervals allow for is larger than the estimate of it by so many of its standard errors.
_CAREFUL = 4.0


@dataclass(frozen=True)
class Curvature:
    """How released curvatures differ from those over the rows, in the newest epoch's coordinates.

    Parameters
    ----------
    ratio, ratio_variance
        How much there is of what the rows predict: below 1 where targets are missing.
    along
        The direction of the coefficients, times the fourth root of the variance of the curvature along it, (p,).
    correction
        D, (p, p).
    error, caution
        Variance of what is left of a number's error: an unbiased estimate of it, and a careful one.
    """

    ratio: float
    ratio_variance: float
    along: Array
    correction: Array
    error: float
    caution: float

    @classmethod
    def of(cls, found: Sequence[Summary], rows: Rows, response: Response) -> Curvature:
        """What all epochs' released curvatures say, of those that rows predict."""
        newest = found[-1].model
        p = len(newest.origin)
        size = p * (p + 1) / 2
        together = pooled(found, lambda model: mean_matrix(model, rows, response))
        if together is None:
            return cls._unknown(newest, rows, response)
        measured, expected, noise = together
        # Two things may be wrong with many numbers at once: how much curvature there is, and how much of it lies along
        # the coefficients. They are fitted; of the rest each number is drawn towards zero.
        along = inverse(newest.transform).T @ newest.origin
        length = float(np.linalg.norm(along))
        along = along / length if length > 0.0 else np.zeros(p)
        basis = np.array([expected.ravel(), np.outer(along, along).ravel()])[: 2 if length > 0.0 else 1]
        gram = basis @ basis.T
        # Of two features, one direction and what is predicted may be the same matrix.
        gram += 1e-9 * np.trace(gram) * np.eye(len(gram))
        fitted = np.linalg.solve(gram, basis @ measured.ravel())
        variances = noise * np.diag(inverse(gram))
        rest = measured - (fitted @ basis).reshape(p, p)
        excess = max(0.0, float(np.sum(rest**2)) / max(size - len(fitted), 1.0) - noise)
        kept = excess / (excess + noise)
        careful = excess + _CAREFUL * noise * math.sqrt(2.0 / size)
        correction = kept * rest
        if length > 0.0:
            correction = correction + fitted[1] * np.outer(along, along)
        return cls(
            min(max(float(fitted[0]), 0.02), 5.0),
            float(variances[0]),
            along * math.sqrt(math.sqrt(float(variances[-1]))) if length > 0.0 else along,
            correction,
            kept * noise,
            kept**2 * noise + (1.0 - kept) ** 2 * careful,
        )

    @classmethod
    def _unknown(cls, newest: Model, rows: Rows, response: Response) -> Curvature:
        """Where no curvature was released yet: what rows predict, within a third."""
        p = len(newest.origin)
        nothing = np.zeros(p), np.zeros((p, p))
        loose = 0.3 * float(np.trace(mean_matrix(newest, rows, response))) / p
        return cls(1.0, 0.1, *nothing, loose**2, loose**2)
