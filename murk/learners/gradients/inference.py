"""Estimates and intervals of LDP-SGD, from learners' states and public covariates.

*Plug-in*: with public covariates the Hessian ``A`` of the logistic, balanced and softmax objectives is known. With
weights ``q_i = 1 / (s_i^2 + C0^2 / (4 d))`` (balanced: ``C0^2 / d``), s_i^2 the noise of a release, their sum ``Q``,
and the running means ``m_theta`` of the iterates at which gradients were taken and ``m_g`` of the released gradients,
``theta^ = m_theta - A(m_theta)^-1 m_g`` (a Newton polish, which corrects slow directions). A missing target gives a
zero gradient, which no release distinguishes from a small one. With a share ``1/u`` of targets present, the equations
give ``m_theta - u A^-1 m_g``, with u times the standard error. The interval allows for every u up to 2: ``theta^_j +- z
sqrt(4 [A^-1 A^-1]_jj / Q + delta_j^2)``, ``delta = A^-1 m_g``; with ``intervals="complete"``, for no missing targets,
``theta^_j +- z sqrt([A^-1 A^-1]_jj / Q)``, with the logistic objective's A for the balanced one.

*Random scaling*: ``V = t^-2 sum s^2 (bar_s - bar_t)^2`` and ``bar_j +- q sqrt(V_jj / t)`` need no Hessian (Lee, Liao,
Seo and Shin 2022; for LDP-SGD arXiv 2505.08227), but coverage is too low while a slow direction has not converged.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from murk._arrays import Floats
from murk.learners.core.engine import path_variance, weighted_mean
from murk.learners.estimates.estimate import ASKED, COMPLETE, FEWEST, RANDOM_SCALING, Estimate, People, PublicCovariates
from murk.learners.estimates.forgers import Influence, longest
from murk.learners.estimates.links import class_probabilities, logistic
from murk.learners.gradients import kernels as k
from murk.learners.gradients.losses import Balanced, Huber, Logistic, Softmax
from murk.learners.gradients.settings import SCALE, Settings
from murk.privacy.mechanisms import Mechanism

PLUG_IN = "plug-in"
_MISSING = 2.0  # the largest u that intervals allow for: 1 over the share of targets present
# Standard errors by which forged gradients may move an estimate by being first: twice the largest effect in attacks.
_START = 1.0
NOT_ASKED = (
    "none: gradients alone allow only for random scaling, whose nominal 95% intervals held the truth in 79% to 96% of "
    "runs of the demonstration (docs/coverage.md). Scores have better intervals, public covariates give others, and "
    "intervals: random-scaling gives these"
)
NOT_ASKED_OF_CLASSES = (
    "none: gradients alone allow only for random scaling (intervals: random-scaling), which holds the truth less often "
    "than its level says (docs/coverage.md); protocol: scores has intervals of average effects on each class's "
    "probability, and with public covariates of log odds"
)


def coefficient_names(settings: Settings, classes: Sequence[object] = ()) -> tuple[str, ...]:
    """Return the names of the reported coefficients: features, the scale as ``"scale"``, or ``class:feature``."""
    if isinstance(settings.objective, Softmax):
        labels = classes or range(settings.objective.classes)
        return tuple(f"{label}:{name}" for label in labels for name in settings.names)
    return settings.names + ((SCALE,) if settings.scaled else ())


def report_matrix(settings: Settings) -> Floats:
    """Return the map from working parameters to coefficients: unwhitened, the scale in its unit, contrasts by class."""
    p = settings.features
    back = np.eye(p) if settings.transform is None else settings.transform.T
    if isinstance(settings.objective, Softmax):
        return np.asarray(np.kron(settings.objective.basis, back), dtype=np.float64)
    if settings.scaled:
        whole = np.zeros((p + 1, p + 1))
        whole[:p, :p] = back
        whole[p, p] = settings.multiplier
        return whole
    return back


def reported(settings: Settings, working: Floats) -> Floats:
    """Return working parameters ``(d,)`` in reported coordinates; a diagonal `report_matrix` is not built."""
    if settings.transform is not None or isinstance(settings.objective, Softmax):
        return np.asarray(report_matrix(settings) @ working)
    values = np.array(working)
    if settings.scaled:
        values[-1] *= settings.multiplier
    return values


def hessian(settings: Settings, covariates: PublicCovariates, theta: Floats) -> Floats:
    """Return the mean Hessian at working parameters ``theta`` over public covariates, ``(d, d)``.

    Logistic: ``mean w(x) p (1 - p) x x'``; balanced, if theta were the truth: ``mean w(x) min(p, 1 - p) x x'``;
    softmax: with ``diag(p) - p p'`` in contrast coordinates.
    """
    points = covariates.points
    if settings.transform is not None:
        points = points @ settings.transform.T
    share = covariates.counts / covariates.counts.sum()
    square = np.einsum("ij,ij->i", points, points)
    if settings.weights == "norm":
        share = share / np.maximum(1.0, np.sqrt(square))
    elif settings.weights == "mallows":
        share = share * np.minimum(1.0, 2.0 / square)
    if isinstance(settings.objective, Softmax):
        basis = settings.objective.basis
        odds = class_probabilities(points @ theta.reshape(-1, settings.features).T, basis)
        inner = np.einsum("ka,ik,kb->iab", basis, odds, basis) - np.einsum("ka,ik,il,lb->iab", basis, odds, odds, basis)
        blocks = np.einsum("i,iab,ij,il->ajbl", share, inner, points, points)
        return np.asarray(blocks).reshape(settings.dimension, settings.dimension)
    probability = logistic(points @ theta)
    if isinstance(settings.objective, Balanced):
        steep = np.minimum(probability, 1.0 - probability)
    else:
        steep = probability * (1.0 - probability)
    curved: Floats = (points * (share * steep)[:, None]).T @ points
    return curved


def estimate(
    settings: Settings,
    memories: Sequence[Any],
    covariates: PublicCovariates | None = None,
    classes: Sequence[object] = (),
    mechanisms: Mapping[str, Mechanism] | None = None,
) -> Estimate:
    """Return the estimate of one or more chains.

    With ``mechanisms``, by privacy level, the estimate states how far a forged release could have moved it.
    """
    merged = _estimate(settings, memories, covariates, classes)
    if mechanisms is None:
        return merged
    return replace(merged, influence=_influence(settings, memories, merged, mechanisms))


def _influence(
    settings: Settings, memories: Sequence[Any], estimate: Estimate, mechanisms: Mapping[str, Mechanism]
) -> Influence:
    """Return how far one forged gradient could have moved the estimate.

    The plug-in's Newton step corrects a path of iterates except for the curvature along it. First gradients can send
    iterates across the ball: one standard error is allowed for that, or two of the "complete" ones, which are half as
    large. An average of iterates is bounded by the ball alone.
    """
    rows = np.linalg.norm(report_matrix(settings), axis=1)
    limit = np.abs(estimate.values) + settings.radius * rows
    total = sum(float(memory.real[k.SUM_PRECISION]) for memory in memories)
    if estimate.method != PLUG_IN or total == 0.0:
        return Influence(math.inf, limit=limit)
    d, own = settings.dimension, float(memories[0].real[k.OWN_SPREAD])
    farthest = max(longest(each) / (own + d * float(each.variance)) for each in mechanisms.values())
    # Without an allowance for missing targets, standard errors are smaller by this factor.
    start = _START * (_MISSING if settings.intervals == COMPLETE else 1.0)
    return Influence(farthest * math.sqrt(d / total), start=start, limit=limit)


def _estimate(
    settings: Settings, memories: Sequence[Any], covariates: PublicCovariates | None, classes: Sequence[object]
) -> Estimate:
    names = coefficient_names(settings, classes)
    n = sum(int(memory.whole[k.COUNT]) for memory in memories)
    if covariates is not None and not isinstance(settings.objective, Huber) and settings.weights != "clip":
        return _plug_in(settings, memories, covariates, names, report_matrix(settings), n)
    weights = [memory.real[k.SUM_WEIGHT] for memory in memories]
    values = reported(settings, weighted_mean(weights, [memory.rows[k.AVERAGE] for memory in memories]))
    note = (
        "valid in the limit only; on the demonstration's data nominal 95% intervals of this kind held the truth in "
        "79% to 96% of runs (docs/coverage.md)"
    )
    spread = np.full(len(names), math.inf)
    if settings.averaging != "polyak":
        note = "none: random scaling needs the plain average; this learner uses another"
    elif settings.intervals != ASKED:
        note = NOT_ASKED_OF_CLASSES if isinstance(settings.objective, Softmax) else NOT_ASKED
    elif n < FEWEST:
        note = f"none yet: random scaling needs at least {FEWEST:,} releases"
    elif settings.random_scaling:
        spread = np.sqrt(sum(_scaling(settings, memory) for memory in memories) / len(memories) / n)
        if isinstance(settings.objective, Softmax):
            # Only V's diagonal is kept, so a class's standard error is bounded by the sum over its contrasts.
            basis = np.abs(settings.objective.basis)
            spread = (basis @ spread.reshape(-1, settings.features)).ravel()
    return Estimate(names, values, RANDOM_SCALING, spread, note, len(memories), n)


def _scaling(settings: Settings, memory: Any) -> Floats:
    """Return the diagonal of random scaling's V in reported coordinates (softmax: contrasts, un-whitened)."""
    p = settings.features
    bar = memory.rows[k.AVERAGE].copy()
    if settings.transform is not None:
        for start in range(0, settings.dimension - settings.scaled, p):
            bar[start : start + p] = settings.transform.T @ bar[start : start + p]
    a, b, c = memory.rows[k.SCALING_A], memory.rows[k.SCALING_B], memory.real[k.SUM_SQUARES]
    variance = path_variance(bar, a, b, c, float(memory.whole[k.COUNT]))
    if settings.scaled:
        variance[p] *= settings.multiplier**2
    return variance


def _plug_in(
    settings: Settings, memories: Sequence[Any], covariates: PublicCovariates, names: tuple[str, ...],
    matrix: Floats, n: int,
) -> Estimate:  # fmt: skip
    precisions = [memory.real[k.SUM_PRECISION] for memory in memories]
    total = float(np.sum(precisions))
    complete = settings.intervals == COMPLETE
    targets = "no missing targets" if complete else "at most half of the targets missing"
    note = f"assumes a correct model, {targets}, and public covariates like the people's (docs/coverage.md)"
    if total == 0.0:
        values = matrix @ memories[0].rows[k.ITERATE]
        return Estimate(names, values, PLUG_IN, np.full(len(names), math.inf), note, len(memories), n)
    at, slope = (
        weighted_mean(precisions, [memory.rows[row] for memory in memories]) for row in (k.MEAN_AT, k.MEAN_GRADIENT)
    )
    curvature = hessian(settings, covariates, at)
    inverse = np.linalg.pinv(curvature, rcond=1e-9, hermitian=True)
    # total is the sum of 1 / (v C0^2 + d s^2), v the objective's spread: a d-th of the sum of 1 / (s^2 + v C0^2/d).
    wide = inverse if complete else _MISSING * inverse
    if complete and isinstance(settings.objective, Balanced):
        # With its own Hessian, intervals would be up to half as wide and ignore the bias of wandering iterates.
        slower = hessian(replace(settings, objective=Logistic()), covariates, at)
        wide = np.linalg.pinv(slower, rcond=1e-9, hermitian=True)
    variance = wide @ wide / (total * settings.dimension)
    move = inverse @ slope
    if not complete:
        variance = variance + (_MISSING - 1.0) ** 2 * np.outer(move, move)
    # Early on a Newton step is mostly noise; the result is projected to the ball.
    polished = at - move
    length = float(np.linalg.norm(polished))
    if length > settings.radius:
        polished *= settings.radius / length
    covariance = matrix @ variance @ matrix.T
    spread = np.sqrt(np.diag(covariance))
    people = People(covariates.points, covariates.counts / covariates.counts.sum(), sampled=True)
    values = matrix @ polished
    return Estimate(names, values, PLUG_IN, spread, note, len(memories), n, covariance, people)
