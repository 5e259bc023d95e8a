"""Pure functions that compute logistic coefficients and their intervals from sums of Newton steps.

A window's first part gives a model s, as second moments do (`estimates`); its other rows give the gradient b and
Hessian L of the logistic loss there. With the truth at ``s + d``, ``b = L d + e + R``, with e from labels and noise,
and R of second order in d, bounded in `second_order`. So ``L^{-1} (b + L s)`` estimates the truth, and windows with
different models add up: ``(sum L)^-1 sum (b + L s)``. The covariance due to noise is that of `solve.solve_gram`, with
the distance from s in place of the coefficients. Labels add at most ``L`` to it: a record adds ``h^2 w`` where it adds
``h w`` to L, with a weight h of at most 1 and ``w`` as in `second_order`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Matrix, Vector
from murk.inference.levels import quantile_of
from murk.inference.linear_probability import LineEstimate, MomentEstimate, around_biased
from murk.privacy.central import Gram, GramMechanism, NewtonMechanism
from murk.protocols.summaries.estimate import FALLBACK_RANGE, estimate_grams, mean_label, without_constant
from murk.protocols.summaries.second_order import Scores
from murk.protocols.summaries.settings import MOST, NewtonSettings
from murk.protocols.summaries.solve import EDGE, LOADING, solve_gram
from murk.protocols.summaries.sums import GramSums, NewtonSums
from murk.protocols.summaries.surrogate import by_normal_scores, by_quadratic

METHOD = "newton step"

# Squared distance of start and step, divided by their variances, beyond which the start is taken as biased.
_APART = 4.0

_NOTE = (
    "of the logistic model, by a Newton step from each window's first records: covers noise, the sampling of records, "
    "and the step's second order; assumes similar organisations (docs/gaussmix.md)"
)
_NO_STEP = "from the windows' first records alone, as no window had more; "
_HIDDEN = "no interval where noise hides the features: {} of {} directions of the step were not learned; "


def first_model(settings: NewtonSettings, mechanism: NewtonMechanism, gram: Gram) -> Vector:
    """Return the model ``(p,)`` of a window's step, from its first part's release alone."""
    start = mechanism.start
    return model_of(settings, start, start.decode(gram.integers), gram.records)


def model_of(settings: NewtonSettings, start: GramMechanism, moment: Matrix, records: int) -> Vector:
    """Return the model from a first part's released matrix, in units of its ``records`` rows."""
    sums = GramSums(settings.columns)
    sums.add(moment, records=records, noise=start.scale**2, weight=1.0)
    solution = solve_gram(sums, target_weight=start.target_weight, slope=settings.slope, constant=settings.constant)
    features = solution.moment[:-1, :-1]
    if settings.constant:
        normal = by_normal_scores(solution.values, features, mean_label(solution.moment))
        values = by_quadratic(solution.values, FALLBACK_RANGE) if normal is None else normal
    else:
        values = without_constant(solution.values, features)[0]
    return np.clip(np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0), -MOST, MOST)


def estimate_newton(
    settings: NewtonSettings, target_weights: tuple[float, float], sums: Sequence[NewtonSums]
) -> MomentEstimate:
    """Return coefficients in coded units from Newton steps of one or more learners, merged by addition."""
    merged = sums[0].merged(*sums[1:])
    first = replace(estimate_grams(settings, target_weights[0], [merged.first]), partitions=len(sums))
    if not merged.stepped:
        return replace(first, note=_NO_STEP + first.note) if merged.people else first
    start = _start(first, settings)
    step = _take_step(merged, target_weights[1], start, settings)
    share = _share(start, step) if start.known else 0.0
    values = share * start.values + (1.0 - share) * step.values
    # Factor of the start's error that remains in the combination.
    left = share * np.eye(len(values)) + (1.0 - share) * step.left
    covariance = left @ start.covariance @ left.T + (1.0 - share) ** 2 * step.covariance
    # The second interval: the step's own error, plus the distance between step and combination.
    other = step.left @ start.covariance @ step.left.T + step.covariance
    spread, alone = (np.sqrt(np.maximum(np.diag(each), 0.0)) for each in (covariance, other))
    hidden = step.hidden & (not start.known)
    spread[hidden] = alone[hidden] = math.inf
    note = _NOTE if not np.any(hidden) else _HIDDEN.format(step.directions, settings.features) + _NOTE
    facts = settings.names, values, METHOD, spread, note, len(sums), merged.releases, covariance
    return NewtonEstimate(
        *facts,
        beyond=np.abs(left) @ start.beyond + (1.0 - share) * step.beyond,
        alone=alone,
        alone_beyond=np.abs(step.left) @ start.beyond + step.beyond,
        apart=share * np.abs(start.values - step.values),
        slope=_slope(step) if settings.constant else None,
    )


@dataclass(frozen=True)
class Slope:
    """Mean slope of the logistic curve over the people: the factor from log odds to average marginal effects."""

    value: float  # middle of the possible values
    away: float  # largest distance of the truth from the middle, apart from sampling
    error: float  # standard error


@dataclass(frozen=True)
class NewtonEstimate(MomentEstimate):
    """Log odds that combine start and step, with bounds on the second order that a step misses.

    The narrower of two valid intervals counts: that of the combination, or that of the step alone, widened by the
    distance between step and combination.
    """

    beyond: Vector = field(kw_only=True)  # bound on the bias, (p,)
    alone: Vector = field(kw_only=True)  # standard errors of the step alone
    alone_beyond: Vector = field(kw_only=True)  # bound on the step's own bias
    apart: Vector = field(kw_only=True)  # distance of the estimate from the step
    slope: Slope | None = field(kw_only=True)  # mean slope of the logistic curve; None without a constant

    def half_widths(self, level: float = 0.95) -> Vector:
        """Return half-widths of the intervals at ``level``."""
        other = around_biased(self.alone, self.alone_beyond, level) + self.apart
        return np.minimum(around_biased(self.spread, self.beyond, level), other)

    def effects(self, level: float = 0.95) -> tuple[Vector, Vector] | None:
        """Return average marginal effects on the probability, and their half-widths: log odds times the mean slope."""
        if self.slope is None:
            return None
        wide = quantile_of(level) * self.slope.error + self.slope.away
        half = self.half_widths(level)
        return self.values * self.slope.value, (self.slope.value + wide) * half + np.abs(self.values) * wide


@dataclass(frozen=True)
class _Start:
    """Estimate from the windows' first parts."""

    values: Vector
    covariance: Matrix
    beyond: Vector  # bound on the bias, (p,)
    known: bool  # whether every coefficient has an interval; if not, the values are a guess


@dataclass(frozen=True)
class _Step:
    """A step from the start."""

    values: Vector
    left: Matrix  # factor of the start's error that remains, (p, p)
    covariance: Matrix  # covariance that the step adds
    beyond: Vector  # bias that the step adds
    scores: Scores  # distributions of scores that are compatible with the step
    hidden: NDArray[np.bool_]  # coefficients in directions that the noise hides, (p,)
    directions: int  # number of hidden directions


def _start(first: MomentEstimate, settings: NewtonSettings) -> _Start:
    p, halves = settings.features, first.half_widths()
    if isinstance(first, LineEstimate) and first.covariance is not None and np.all(np.isfinite(halves)):
        return _Start(first.values, first.covariance, first.beyond.coefficients, True)
    return _Start(first.values, 4.0 * settings.slope**2 * np.eye(p), np.zeros(p), False)


def _share(start: _Start, step: _Step) -> float:
    """Return the start's weight against the step's, by variance; less if they differ by more than noise explains."""
    of_step, other = float(np.trace(step.covariance)), float(np.trace(start.covariance))
    apart = float(np.sum((start.values - step.values) ** 2))
    return of_step / (apart if apart > _APART * (of_step + other) else of_step + other)


def _take_step(sums: NewtonSums, target_weight: float, start: _Start, settings: NewtonSettings) -> _Step:
    p = sums.columns - 1
    information = sums.step[:p, :p]
    noise, along, around = sums.step_noise[p, p], sums.step_noise[:p, p], sums.step_noise[:p, :p]
    eigenvalues, vectors = np.linalg.eigh(information)
    # As in `solve_gram`. In hidden directions the step stays near the start: it is no longer than noise can make it.
    radii = np.sqrt(2.0 * noise * np.arange(1, p + 1))
    below = np.flatnonzero(eigenvalues <= np.maximum(EDGE * radii, 1e-10 * float(eigenvalues[-1])))
    lost = np.arange(p) < (below[-1] + 1 if len(below) else 0)
    count = int(lost.sum())
    floor = max(EDGE * math.sqrt(2.0 * max(count, 1) * noise), 1e-10 * float(eigenvalues[-1]), 1e-300)
    kept = np.where(lost, floor, eigenvalues)
    inverse = (vectors / kept) @ vectors.T
    left = (vectors * (1.0 - np.maximum(eigenvalues, 0.0) / kept)) @ vectors.T
    # b + L s, from the columns of the residuals and of the scores at s.
    values = left @ start.values + inverse @ (sums.step[:p, p] + sums.step[:p, p + 1])
    seen = (vectors[:, ~lost] / kept[~lost]) @ vectors[:, ~lost].T
    values = values - 0.5 * (float(np.trace(seen)) * seen + seen @ seen) @ (noise * values - along)
    cross = np.outer(values, along)
    apart = noise * np.outer(values, values) - cross - cross.T + around
    unit = np.eye(p)
    noisy = 0.5 * ((float(np.trace(apart)) + noise / target_weight**2) * unit + apart)
    sampled = (vectors * (np.maximum(eigenvalues, 0.0) / kept**2)) @ vectors.T
    first = inverse @ noisy @ inverse + sums.step_sampled / sums.stepped * sampled
    covariance = first + 0.5 * noise * inverse @ (float(np.trace(first)) * unit + first) @ inverse
    bounds = (settings.single_bound, settings.feature_bound)
    # A row within the bounds of each feature is not scaled down, and its constant is 1.
    whole = settings.constant and bounds[0] ** 2 * p <= bounds[1] ** 2 * (1.0 + 1e-9)
    bounds_and_people = {"people": _with_target(sums, settings), "bounds": bounds}
    scores = Scores.of(sums, values, covariance, **bounds_and_people, target_weight=target_weight, constant=whole)
    beyond = scores.remainder(inverse, information, bounds)
    hidden = np.einsum("ij,ij->i", vectors[:, lost], vectors[:, lost]) > LOADING
    return _Step(values, left, covariance, beyond, scores, hidden, count)


def _with_target(sums: NewtonSums, settings: NewtonSettings) -> tuple[float, float]:
    """Estimate the number of people in steps who have a target, from the first parts; return it with its error."""
    if not settings.constant:
        return sums.stepped, 0.0
    p = sums.columns - 1
    share, error = float(sums.moment[p - 1, p - 1]) / sums.people, math.sqrt(sums.noise) / sums.people
    return max(min(share, 1.0) * sums.stepped, 1.0), 3.0 * error * sums.stepped


def _slope(step: _Step) -> Slope:
    scores = step.scores
    guess, least, most = scores.slope()
    # Errors from the number of people, by which sums are divided, and from sampling the people.
    counted = guess * float(scores.doubt[0]) / 3.0
    return Slope(guess, max(guess - least, most - guess), math.hypot(counted, 0.25 / math.sqrt(scores.people)))
