"""Coefficients with their standard errors, from the sums of sketches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from murk.learners.gaussmix.settings import SketchSettings
from murk.learners.gaussmix.solver import FEWEST, Solution, solve
from murk.learners.gaussmix.sums import Sums
from murk.learners.gaussmix.surrogate import by_normal_scores, by_quadratic
from murk.learners.inference import Estimate

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]

METHOD = "sketch"
FALLBACK_RANGE = 3.0

_LINEAR = (
    "for the population's best linear fit: the sketch's randomness, its noise and the sampling of records; takes "
    "residuals of one variance and organisations that are alike (docs/gaussmix.md)"
)
_QUADRATIC = "for the quadratic surrogate's coefficients, not the logistic ones; otherwise " + _LINEAR
_NORMAL = "takes the scores as normal, which biases coefficients where few features decide; otherwise " + _LINEAR
_HELD = "no interval: the noise hides {} of {} directions of the features, whose coefficients are shrunk; more records"
_SHRUNK = "no interval: the published estimate is shrunk by the noise it does not take off"
_FEW = "no interval: so few rows more than coefficients say nothing sensible of the error; mix more rows"
_NO_CURVE = "no interval: no logistic curve on normal scores fits the moments; the quadratic on [-3, 3] stands in"


def estimate(settings: SketchSettings, sums: Sequence[Sums]) -> Estimate:
    """Coefficients in coded units from the sums of one or more learners, merged by addition."""
    merged = sums[0].merged(*sums[1:])
    solution = solve(merged, debiased=settings.debiased)
    values, covariance, note = _model(settings, solution)
    if solution.held:
        note = _HELD.format(solution.held, settings.features)
    elif not settings.debiased and not np.all(np.isfinite(covariance)):
        note = _SHRUNK
    elif merged.rows - settings.features < FEWEST:
        note = _FEW
    # Not the root of a negative rounding error.
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    return Estimate(settings.names, values, METHOD, spread, note, len(sums), merged.sketches)


def _model(settings: SketchSettings, solution: Solution) -> tuple[Vector, Matrix, str]:
    fit, covariance = solution.values, solution.covariance
    if settings.kind == "real":
        return fit, covariance, _LINEAR
    if settings.reach is not None:
        scale = by_quadratic(np.ones(1), settings.reach)[0]
        return scale * fit, scale * scale * covariance, _QUADRATIC
    p = settings.features
    features, label = solution.moment[:p, :p], _mean_label(solution.moment)
    values = by_normal_scores(fit, features, label)
    if values is None:
        return by_quadratic(fit, FALLBACK_RANGE), np.full((p, p), math.inf), _NO_CURVE
    if not np.all(np.isfinite(covariance)):
        return values, covariance, _NORMAL
    # How the curve's parameters follow the fit. The mean label moves with it, as least squares passes through means.
    jacobian = np.empty((p, p))
    for j in range(p):
        step = np.zeros(p)
        step[j] = max(1e-4 * math.sqrt(covariance[j, j]), 1e-9)
        shift = float(features[-1] @ step) / max(float(features[-1, -1]), 1e-300)
        up = by_normal_scores(fit + step, features, label + shift)
        down = by_normal_scores(fit - step, features, label - shift)
        if up is None or down is None:
            return values, np.full((p, p), math.inf), _NO_CURVE
        jacobian[:, j] = (up - down) / (2.0 * step[j])
    return values, jacobian @ covariance @ jacobian.T, _NORMAL


def _mean_label(moment: Matrix) -> float:
    # The constant's column against the target's: the mean, with the constant's own noise divided out.
    one = float(moment[-2, -2])
    return float(moment[-2, -1]) / one if one > 0.0 else 0.0
