"""Coefficients with standard errors from the sums of sketches or Gram matrices, and the influence of a forged window.

A window counts for as many records as its organisation states. A forged Gram matrix may be as large as the largest
honest one: its spectral norm is ``n (C_X^2 + a^2 C_Y^2) + (2 sqrt d + 12) s``, with a the target's weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from murk._internal.arrays import Matrix, Vector
from murk.inference.estimate import Estimate
from murk.inference.linear_probability import LineEstimate, MomentEstimate, allowance
from murk.inference.poisoning import Influence
from murk.protocols.summaries.settings import GramSettings, SketchSettings
from murk.protocols.summaries.solve import FEWEST, GramSolution, Solution, solve, solve_gram
from murk.protocols.summaries.sums import GramSums, SketchSums
from murk.protocols.summaries.surrogate import by_normal_scores, by_quadratic
from murk.task.coding import INTERCEPT

if TYPE_CHECKING:
    from murk.privacy.central import GramMechanism


METHOD = "sketch"
GRAM_METHOD = "released moments"
FALLBACK_RANGE = 3.0
_FAR = 12.0  # standard deviations by which the extreme eigenvalues of honest noise may exceed its radius

_LINEAR = (
    "for the population's best linear fit: covers the sketch's randomness, its noise and the sampling of records; "
    "assumes residuals of one variance and similar organisations (docs/gaussmix.md)"
)
_QUADRATIC = "for the quadratic surrogate's coefficients, not the logistic ones; otherwise " + _LINEAR
_NORMAL = "assumes normal scores, which biases coefficients if few features dominate; otherwise " + _LINEAR
_HELD = "no interval: noise hides {} of {} directions of the features, whose coefficients are shrunk; use more records"
_SHRUNK = "no interval: the published estimate is shrunk, as it does not subtract the noise"
_FEW = "no interval: there are hardly more rows than coefficients; mix more rows"
_NOTHING = "no interval: nothing was learned yet"
_HIDDEN = "no interval where noise hides the features: {} of {} directions were not learned at this privacy"
_NO_CONSTANT = "no interval: log odds without a constant assume normal scores with mean 0"
_ALL_COUNTED = "assumes that every record has a target, as there is no constant to count them; "
_NO_CURVE = "no interval: no logistic curve on normal scores fits the moments; the quadratic on [-3, 3] is used instead"


def influence_of(settings: GramSettings, mechanisms: Mapping[str, GramMechanism], sums: GramSums) -> Influence | None:
    """Return how far one forged window could have moved the estimate; None before there is any."""
    if not sums.people > 0.0:
        return None
    p = sums.columns - 1
    least = float(np.linalg.eigvalsh(sums.moment[:p, :p])[0])
    if not (least > 0.0 and sums.noise > 0.0):
        return Influence(math.inf, math.inf)
    size = 0.0
    for mechanism in mechanisms.values():
        records = min(mechanism.largest_window, settings.window or mechanism.largest_window)
        square = mechanism.feature_bound**2 + (mechanism.target_weight * mechanism.target_bound) ** 2
        weight = settings.weight(mechanism, records)
        radius = mechanism.scale * (2.0 * math.sqrt(sums.columns) + _FAR)
        size = max(size, weight * (records * square + radius))
    return Influence(math.sqrt(2.0) * size / math.sqrt(sums.noise), size / least)


def estimate(settings: SketchSettings, sums: Sequence[SketchSums]) -> Estimate:
    """Return coefficients in coded units from the sums of one or more learners, merged by addition."""
    merged = sums[0].merged(*sums[1:])
    solution = solve(merged, debiased=settings.debiased, constant=settings.constant)
    values, covariance, note = _fitted(settings, solution)
    if solution.held:
        note = _HELD.format(solution.held, settings.features)
    elif not settings.debiased and not np.all(np.isfinite(covariance)):
        note = _SHRUNK
    elif merged.rows - settings.features < FEWEST:
        note = _FEW
    # Rounding may make a variance negative.
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    return Estimate(settings.names, values, METHOD, spread, note, len(sums), merged.releases)


def estimate_grams(
    settings: GramSettings,
    target_weight: float,
    sums: Sequence[GramSums],
    mechanisms: Mapping[str, GramMechanism] | None = None,
) -> MomentEstimate:
    """Return coefficients from released moments; with ``mechanisms`` by level, also a forged window's influence."""
    merged = sums[0].merged(*sums[1:])
    estimate = _of_grams(settings, target_weight, merged, len(sums))
    if mechanisms is None:
        return estimate
    return replace(estimate, influence=influence_of(settings, mechanisms, merged))


def _of_grams(settings: GramSettings, target_weight: float, merged: GramSums, count: int) -> MomentEstimate:
    names = settings.names
    solution = solve_gram(merged, target_weight=target_weight, slope=settings.slope, constant=settings.constant)
    if not merged.people:
        nothing = np.full(len(names), math.inf)
        return MomentEstimate(names, solution.values, GRAM_METHOD, nothing, _NOTHING, count, merged.releases)
    values, covariance, note = _fitted(settings, solution)
    if solution.directions:
        note = f"{_HIDDEN.format(solution.directions, settings.features)}; otherwise {note}"
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    spread[solution.hidden] = math.inf
    facts = names, values, GRAM_METHOD, spread, note, count, merged.releases, covariance
    if _is_line(settings) or settings.reach is not None or not np.all(np.isfinite(covariance)):
        return MomentEstimate(*facts)
    features = solution.moment[:-1, :-1]
    beyond = allowance(solution.values, values, features, solution.inverse, settings.single_bound)
    error = np.sqrt(np.maximum(np.diag(solution.covariance), 0.0))
    error[solution.hidden] = math.inf
    return LineEstimate(*facts, fit=solution.values, error=error, beyond=beyond)


def _is_line(settings: SketchSettings | GramSettings) -> bool:
    """Return whether the least-squares line is itself the model: for a real target, or for labels without features."""
    return settings.kind == "real" or settings.names == (INTERCEPT,)


def _fitted(settings: SketchSettings | GramSettings, solution: Solution | GramSolution) -> tuple[Vector, Matrix, str]:
    fit, covariance = solution.values, solution.covariance
    if _is_line(settings):
        return fit, covariance, _LINEAR if settings.constant else _ALL_COUNTED + _LINEAR
    if settings.reach is not None:
        scale = by_quadratic(np.ones(1), settings.reach, settings.surrogate)[0]
        return scale * fit, scale * scale * covariance, _QUADRATIC
    p = settings.features
    if not settings.constant:
        return without_constant(fit, solution.moment[:p, :p])
    features, label = solution.moment[:p, :p], mean_label(solution.moment)
    values = by_normal_scores(fit, features, label)
    if values is None:
        return by_quadratic(fit, FALLBACK_RANGE), np.full((p, p), math.inf), _NO_CURVE
    if not np.all(np.isfinite(covariance)):
        return values, covariance, _NORMAL
    # Derivatives of the curve's parameters. The mean label moves with the fit, as the line passes through the means.
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


def without_constant(fit: Vector, features: Matrix) -> tuple[Vector, Matrix, str]:
    """Return log odds through zero; scores and labels are taken to have mean 0, which moments do not determine."""
    p = len(fit)
    moment = np.eye(p + 1)
    moment[:p, :p] = features
    values = by_normal_scores(np.append(fit, 0.0), moment, 0.0)
    unknown = np.full((p, p), math.inf)
    if values is None:
        return by_quadratic(fit, FALLBACK_RANGE), unknown, _NO_CURVE
    return values[:p], unknown, _NO_CONSTANT


def mean_label(moment: Matrix) -> float:
    """Return the mean of labels -1 and +1, from the noisy second moment of records with a constant."""
    # The target's entry in the constant's column, divided by the constant's own entry.
    count = float(moment[-2, -2])
    return float(moment[-2, -1]) / count if count > 0.0 else 0.0
