"""Estimates and intervals of LDP-SGD, from learners' states and public covariates.

*Plug-in*: with public covariates the mean gradient ``G(theta; truth)`` of a right model is known. With weights ``q_i =
1 / (v C0^2 + d s_i^2)``, s_i^2 the noise of a release and ``v C0^2`` a gradient's approximate mean square, their sum
``Q``, and the running means ``m_theta`` of the iterates at which gradients were taken and ``m_g`` of the released
gradients, ``theta^`` is the truth at which ``m_g`` is expected. To first order this is a Newton step from ``m_theta``
along the Hessian A, which corrects slow directions. For the logistic and balanced losses G is curved, and is averaged
over the iterates' spread, too: iterates wander around the truth with covariance ``A^-1 sum eta_i / (2 d Q)``, that of
a linear stochastic approximation with steps eta_i. The estimate's covariance is ``A^-1 M A^-1``, M the variance of
``m_g``.

A missing target gives a zero gradient, which no release distinguishes from a small one. If a share m of targets is
missing, ``m_g`` is ``1 - m`` times the mean gradient of complete targets. Their estimate is ``theta^(m)``, computed
from ``m_g / (1 - m)``, with ``1 / (1 - m)`` times the standard error. The interval allows for every share up to m:
``theta^_j +- z sqrt([A^-1 M A^-1]_jj / (1 - m)^2 + (theta^(m) - theta^)_j^2)``. m is public, and a half if the task
does not state it.

*Huber*: A is ``P(|u| < c) / sigma`` times the weighted second moment, u the residual over the scale sigma. An estimated
scale solves ``E min(u^2, c^2) = kappa_c``, which nearly determines ``P(|u| < c)``: for c = 0.5 it is 0.37 for Laplace,
0.38 for normal and 0.39 for uniform residuals. An interval of the scale itself would require more knowledge of the
residuals' distribution, so there is none. With a known scale intervals allow for any unimodal residuals of that
standard deviation, by Gauss's inequality. The squared loss has no residual beyond the scale times c, so that its A is
exact.

*Random scaling*: ``V = t^-2 sum s^2 (bar_s - bar_t)^2`` and ``bar_j +- q sqrt(V_jj / t)`` need no Hessian (Lee, Liao,
Seo and Shin 2022; for LDP-SGD arXiv 2505.08227), but coverage is too low while a slow direction has not converged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.links import class_probabilities, logistic, normal_nodes
from murk.inference.estimate import FEWEST, RANDOM_SCALING, BallEstimate, Estimate, People
from murk.inference.poisoning import Influence, longest
from murk.privacy.mechanisms import Mechanism
from murk.protocols.averages import path_variance, weighted_mean
from murk.protocols.gradients import kernels as k
from murk.protocols.gradients.objectives import Balanced, Huber, Softmax
from murk.protocols.gradients.settings import SCALE, Settings
from murk.protocols.options import InverseScalingStep
from murk.protocols.rows import Rows
from murk.task.learning import ASKED

PLUG_IN = "plug-in"
_NODES, _NODE_SHARES = normal_nodes(9)
_ROUNDS = 3  # Newton steps
# With a smaller c and a known scale, A is the density of the residuals near zero, which the scale does not determine.
_LEAST_C = 0.1
# Standard errors by which forged gradients may move an estimate by being first: twice the largest effect in attacks.
_START = 2.0
NOT_ASKED = (
    "none: gradients alone allow only for random scaling, whose nominal 95% intervals held the truth in 79% to 96% of "
    "runs of the demonstration (docs/coverage.md). Scores have better intervals, public covariates give others, and "
    "intervals: random-scaling gives these"
)
# Note with public covariates, if an interval needs a quantity that they do not determine.
UNKNOWN_DENSITY = (
    "none: the density of residuals at zero is unknown, and public covariates do not tell it. Scores have intervals of "
    "a linear model, and intervals: random-scaling gives others (docs/coverage.md)"
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
    """Return the linear map from working parameters to reported coefficients (of softmax: a vector for each class)."""
    p = settings.features
    back = np.eye(p) if settings.transform is None else settings.transform.T
    if isinstance(settings.objective, Softmax):
        return np.asarray(np.kron(settings.objective.basis, back), dtype=np.float64)
    return _with_scale(settings, back, settings.multiplier)


def reported(settings: Settings, working: Floats) -> Floats:
    """Return working parameters ``(d,)`` in reported coordinates, without building a diagonal `report_matrix`."""
    if settings.transform is not None or isinstance(settings.objective, Softmax):
        return np.asarray(report_matrix(settings) @ working)
    values = np.array(working)
    if settings.scaled:
        values[-1] *= settings.multiplier
    return values


def _weighted(settings: Settings, covariates: Rows, power: int = 1) -> tuple[Floats, Floats]:
    """Return public rows in working coordinates, (u, p), and their shares times ``w(x)^power``, (u,)."""
    points = covariates.points
    if settings.transform is not None:
        points = points @ settings.transform.T
    share = covariates.shares
    square = np.einsum("ij,ij->i", points, points)
    if settings.weights == "norm":
        share = share / np.maximum(1.0, np.sqrt(square)) ** power
    elif settings.weights == "mallows":
        share = share * np.minimum(1.0, 2.0 / square) ** power
    return points, share


def _scatter(points: Floats, weights: Floats) -> Floats:
    return np.asarray((points * weights[:, None]).T @ points)


def _in_blocks(settings: Settings, points: Floats, share: Floats, theta: Floats) -> Floats:
    """Return the mean over rows of ``(diag(p) - p p') (x) x x'`` in contrast coordinates, ``(d, d)``."""
    assert isinstance(settings.objective, Softmax)
    basis, p = settings.objective.basis, settings.features
    odds = class_probabilities(points @ theta.reshape(-1, p).T, basis)
    inner = np.einsum("ka,ik,kb->iab", basis, odds, basis) - np.einsum("ka,ik,il,lb->iab", basis, odds, odds, basis)
    blocks = np.empty((settings.dimension, settings.dimension))
    for a, b in np.ndindex(inner.shape[1:]):
        blocks[a * p : (a + 1) * p, b * p : (b + 1) * p] = _scatter(points, share * inner[:, a, b])
    return blocks


def _with_scale(settings: Settings, slopes: Floats, scale: float) -> Floats:
    """Return a matrix of slopes, (p, p), with the scale's own entry if it is estimated."""
    if not settings.scaled:
        return slopes
    p = settings.features
    whole = np.zeros((p + 1, p + 1))
    whole[:p, :p], whole[p, p] = slopes, scale
    return whole


def hessian(settings: Settings, covariates: Rows, theta: Floats) -> Floats:
    """Return the mean Hessian at working parameters ``theta`` over public covariates, ``(d, d)``.

    Logistic: ``mean w(x) p (1 - p) x x'``; balanced, if theta were the truth: ``mean w(x) min(p, 1 - p) x x'``;
    softmax: with ``diag(p) - p p'`` in contrast coordinates; Huber, for normal residuals: ``mean w(x) x x' P(|u| < c) /
    sigma``, and for an estimated scale in units of m ``mean w(x) m^2 E[u^2; |u| < c] / sigma``.
    """
    points, share = _weighted(settings, covariates)
    objective = settings.objective
    if isinstance(objective, Softmax):
        return _in_blocks(settings, points, share, theta)
    if isinstance(objective, Huber):
        sigma = float(theta[-1]) * objective.multiplier if objective.scale is None else objective.scale
        inside = objective.inside
        slopes = _scatter(points, share) * (inside / sigma)
        squares = objective.kappa - objective.c**2 * (1.0 - inside)
        return _with_scale(settings, slopes, float(share.sum()) * objective.multiplier**2 * squares / sigma)
    p = logistic(points @ theta)
    steep = np.minimum(p, 1.0 - p) if isinstance(objective, Balanced) else p * (1.0 - p)
    return _scatter(points, share * steep)


def own_moment(settings: Settings, covariates: Rows, theta: Floats) -> Floats:
    """Return the mean of ``g g'``, ``(d, d)``, g the gradient at the true ``theta``; of a scale, a bound on it."""
    points, share = _weighted(settings, covariates, power=2)
    objective = settings.objective
    if isinstance(objective, Softmax):
        return _in_blocks(settings, points, share, theta)
    if isinstance(objective, Huber):
        c, kappa = objective.c, objective.kappa
        slopes = _scatter(points, share) * kappa
        return _with_scale(settings, slopes, float(share.sum()) * objective.multiplier**2 * kappa * (c * c - kappa) / 4)
    logit = points @ theta
    p = logistic(logit)
    return _scatter(points, share * (np.exp(-np.abs(logit)) if isinstance(objective, Balanced) else p * (1.0 - p)))


def estimate(
    settings: Settings,
    memories: Sequence[Any],
    covariates: Rows | None = None,
    classes: Sequence[object] = (),
    mechanisms: Mapping[str, Mechanism] | None = None,
) -> Estimate:
    """Return the estimate of the partitions; with ``mechanisms`` by level, also a forged release's influence."""
    merged = _estimate(settings, memories, covariates, classes)
    if mechanisms is None:
        return merged
    return replace(merged, influence=_influence(settings, memories, merged, mechanisms))


def _influence(
    settings: Settings, memories: Sequence[Any], estimate: Estimate, mechanisms: Mapping[str, Mechanism]
) -> Influence:
    """Return how far one forged gradient could have moved the estimate.

    The plug-in's Newton step corrects the path up to second order. Two standard errors, as with complete targets, are
    added because the first gradients can move iterates across the ball. An average of iterates, without the Newton
    step, is bounded by the ball alone.
    """
    rows = np.linalg.norm(report_matrix(settings), axis=1)
    limit = np.abs(estimate.values) + settings.radius * rows
    total = sum(float(memory.real[k.SUM_PRECISION]) for memory in memories)
    if estimate.method != PLUG_IN or total == 0.0:
        return Influence(math.inf, limit=limit)
    d, own_spread = settings.dimension, float(memories[0].real[k.OWN_SPREAD])
    farthest = max(longest(each) / (own_spread + d * float(each.variance)) for each in mechanisms.values())
    # Standard errors are larger by the allowance for missing targets.
    start = _START * (1.0 - settings.most_missing)
    return Influence(farthest * math.sqrt(d / total), start=start, limit=limit)


def has_plug_in(settings: Settings) -> bool:
    """Return whether public covariates give the Hessian, so that there are plug-in intervals."""
    objective = settings.objective
    if settings.weights == "clip":
        return False
    if not isinstance(objective, Huber):
        return True
    return settings.intervals != ASKED and not _needs_density(settings)


def _needs_density(settings: Settings) -> bool:
    """Return whether the Hessian is the density of residuals at zero, which a known scale does not determine."""
    objective = settings.objective
    return isinstance(objective, Huber) and objective.scale is not None and objective.c < _LEAST_C


def _estimate(
    settings: Settings, memories: Sequence[Any], covariates: Rows | None, classes: Sequence[object]
) -> Estimate:
    names = coefficient_names(settings, classes)
    n = sum(int(memory.whole[k.COUNT]) for memory in memories)
    if covariates is not None and has_plug_in(settings):
        return _plug_in(settings, memories, covariates, names, n)
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
        if covariates is not None and _needs_density(settings):
            note = UNKNOWN_DENSITY
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


def _plug_in(settings: Settings, memories: Sequence[Any], covariates: Rows, names: tuple[str, ...], n: int) -> Estimate:
    matrix = report_matrix(settings)
    precisions = [memory.real[k.SUM_PRECISION] for memory in memories]
    total, d = float(np.sum(precisions)), settings.dimension
    present = 1.0 - settings.most_missing
    targets = f"at most {settings.most_missing:.3g} of the targets missing" if present < 1.0 else "no missing targets"
    note = f"assumes a correct model, {targets}, and public covariates like the people's (docs/coverage.md)"
    if settings.scaled:
        note = f"none for the scale; {note}"
    if total == 0.0:
        values = matrix @ memories[0].rows[k.ITERATE]
        return Estimate(names, values, PLUG_IN, np.full(len(names), math.inf), note, len(memories), n)
    at, slope = (
        weighted_mean(precisions, [memory.rows[row] for memory in memories]) for row in (k.MEAN_AT, k.MEAN_GRADIENT)
    )
    wander = sum(_sum_of_steps(settings, memory) for memory in memories) / (2.0 * d * total)
    polished, curvature = _newton_step(settings, covariates, at, slope, wander)
    inverse = np.linalg.pinv(curvature, rcond=1e-9, hermitian=True)
    # Weights assume a mean square of v C0^2 of people's own gradients, and the noise is the rest of 1 / q.
    own_spread = float(memories[0].real[k.OWN_SPREAD])
    noise = max(1.0 / total - own_spread / n, 0.0) / d
    middle = noise * np.eye(d) + own_moment(settings, covariates, polished) / n
    variance = inverse @ middle @ inverse / present**2
    if present < 1.0:
        move = _newton_step(settings, covariates, at, slope / present, wander)[0] - polished
        variance = variance + np.outer(move, move)
    if isinstance(settings.objective, Huber):
        variance *= settings.objective.caution**2
    covariance = matrix @ variance @ matrix.T
    spread = np.sqrt(np.diag(covariance))
    if settings.scaled:
        spread[-1] = math.inf
    people = People(covariates.points, covariates.shares, sampled=True)
    slopes = d - settings.scaled
    error = math.sqrt(float(np.linalg.eigvalsh(variance[:slopes, :slopes])[-1]))
    room = (settings.radius - float(np.linalg.norm(polished[:slopes]))) / error if error > 0.0 else math.inf
    fields = (names, matrix @ polished, PLUG_IN, spread, note, len(memories), n, covariance, people)
    return BallEstimate(*fields, room=room)


def _sum_of_steps(settings: Settings, memory: Any) -> float:
    """Return the approximate sum of a partition's steps, as if no steps had been shortened for old gradients."""
    real, n = memory.real, float(memory.whole[k.COUNT])
    step = settings.step
    if not isinstance(step, InverseScalingStep):
        weight, spread = float(real[k.SUM_WEIGHT]), float(real[k.SUM_SPREAD])
        return k.STEP_SHARE * settings.radius * math.sqrt(2.0) * weight / math.sqrt(spread) if spread > 0.0 else 0.0
    if step.alpha == 1.0:
        return step.eta * math.log1p(n)
    return float(step.eta * n ** (1.0 - step.alpha) / (1.0 - step.alpha))


def _newton_step(
    settings: Settings, covariates: Rows, at: Floats, slope: Floats, wander: float
) -> tuple[Floats, Floats]:
    """Return the true parameters for which gradients around ``at`` have mean ``slope``, and the Hessian there.

    ``wander`` times the inverse Hessian is the iterates' covariance. The ball bounds the step, which is mostly noise at
    first.
    """
    curvature = hessian(settings, covariates, at)
    inverse = np.linalg.pinv(curvature, rcond=1e-9, hermitian=True)
    if isinstance(settings.objective, Softmax | Huber):
        theta = _project(settings, at - inverse @ slope)
        # An estimated scale is noise at first, and a small one would make intervals narrow.
        return theta, hessian(settings, covariates, np.maximum(theta, at)) if settings.scaled else curvature
    mean = _mean_of_labels(settings, covariates, at, np.asarray(wander * inverse))
    theta = at
    for _ in range(_ROUNDS):
        gradient, curvature = mean(theta)
        theta = _project(settings, theta - np.linalg.pinv(curvature, rcond=1e-9, hermitian=True) @ (slope - gradient))
    return theta, mean(theta)[1]


_Mean = Callable[[Floats], tuple[Floats, Floats]]


def _mean_of_labels(settings: Settings, covariates: Rows, at: Floats, covariance: Floats) -> _Mean:
    """Return the mean gradient over normally distributed iterates, and its negative derivative, by the truth.

    At the logit t a residual has mean ``f(t) - p (f(t) + f(-t))``, p the true probability, integrated by quadrature.
    """
    points, share = _weighted(settings, covariates)
    deviation = np.sqrt(np.einsum("ij,jl,il->i", points, covariance, points))
    # No iterate is outside the ball.
    most = settings.radius * np.linalg.norm(points, axis=1) / 2.0
    logit = (points @ at)[:, None] + np.minimum(deviation, most)[:, None] * _NODES
    if isinstance(settings.objective, Balanced):
        false, true = np.exp(np.minimum(logit, 0.0)), np.exp(np.minimum(-logit, 0.0))
    else:
        false, true = logistic(logit), logistic(-logit)
    false, both = false @ _NODE_SHARES, (false + true) @ _NODE_SHARES

    def mean(theta: Floats) -> tuple[Floats, Floats]:
        p = logistic(points @ theta)
        return points.T @ (share * (false - p * both)), _scatter(points, share * both * p * (1.0 - p))

    return mean


def _project(settings: Settings, theta: Floats) -> Floats:
    """Return working parameters within the ball, and a scale within its bounds."""
    projected = np.array(theta)
    slopes = projected[: settings.dimension - settings.scaled]
    length = float(np.linalg.norm(slopes))
    if length > settings.radius:
        slopes *= settings.radius / length
    if settings.scaled:
        limits = settings.scale_floor / settings.multiplier, settings.scale_ceiling / settings.multiplier
        projected[-1] = min(max(float(projected[-1]), limits[0]), limits[1])
    return projected
