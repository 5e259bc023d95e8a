"""Estimates from released examples, their intervals, and the influence of one forged release.

*sandwich*: the polished estimate and covariance of :mod:`murk.protocols.examples.newton` or, if the mean Hessian is too
noisy to invert, the average of the iterates without intervals. *public rows*: the fits of
:mod:`murk.protocols.examples.public_fit`, for directions of labels and outer products. *random scaling*: on request
without the Newton step, as for LDP-SGD (Lee, Liao, Seo, Shin 2022).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.lazy import bounding
from murk._internal.numbers import listed
from murk.inference.confidence_sequences import LARGEST
from murk.inference.estimate import FEWEST, RANDOM_SCALING, BallEstimate, Estimate, larger
from murk.inference.misfit import MOST_NUMBERS, UNLIKE
from murk.inference.poisoning import Influence
from murk.inference.selection import selection_factors
from murk.privacy.mechanisms.outer_product import matrix_size
from murk.protocols.averages import path_variance, weighted_mean
from murk.protocols.examples import layout as k
from murk.protocols.examples import public_fit as fit
from murk.protocols.examples.newton import TRUST, uncertainty
from murk.protocols.examples.settings import level_rows
from murk.protocols.rows import Rows

SANDWICH = "sandwich"
MISSING = "; needs next to no target missing"
WEIGHTED = "; of the fit weighted by {} (docs/iwp-sgd.md)"
MOST_HIDDEN = 0.25  # largest share of hidden directions in a coefficient with an interval
MOST_DOUBTFUL = 0.25  # largest relative error of the curvature along a coefficient with an interval
LEAST_QUANTILE = NormalDist().inv_cdf(0.9)
"""Divisor of the unknown part of a coefficient, so that intervals of 80% or more include this part in full."""
_MOST_LIFTED = 4.0  # largest factor of the errors along a direction that counts as seen
NOT_ASKED = (
    "none: without the Newton step there is only random scaling, which holds the truth far less often than its level "
    "says before the iterates settle. The Newton step gives better intervals; `intervals` of random-scaling asks for "
    "these"
)
LIGHT = 0.002  # smallest weight at which a hypothesis enters intervals
_NEAR = 0.98
_PSEUDO = 2.0  # pseudo-releases of each label, added to the real ones for the variance of residuals
_MANY = 100.0  # rarer labels, along the rarest direction of features, from which released residuals are precise


def estimate(engines: Sequence[Any]) -> Estimate:
    """Return the estimate of one or more partitions: weighted averages, and added sums of Newton steps."""
    if not engines[0].settings.exact:
        return estimate_of_sums(engines)
    first, *others = engines
    return replace(estimate_of_sums([first.summarized(others)]), partitions=len(engines))


def estimate_of_sums(engines: Sequence[Any]) -> Estimate:
    """Return the estimate from learners that have the sums of the Newton step."""
    return replace(_estimate(engines), influence=influence_of(engines))


def _estimate(engines: Sequence[Any]) -> Estimate:
    settings = engines[0].settings
    weights = [engine.real[k.SUM_WEIGHT] for engine in engines]
    average = weighted_mean(weights, [engine.rows[k.AVERAGE] for engine in engines])
    if not settings.newton:
        return _random_scaling(engines, average)
    polished, covariates = _sandwich(engines, average), engines[0].covariates
    if covariates is None or not settings.weighted or settings.regularization > 0.0:
        return polished
    noisiest = max(settings.noise(mechanism).variance for mechanism in bounding(engines[0].mechanisms).values())
    sums = _sums(engines)
    unused = settings.directed and not fit.rows_are_used(settings, covariates, noisiest)
    if unused or not sums[k.POLISH_WEIGHT] > 0.0:
        return polished
    bend = _matrix_sum(engines, 0) / sums[k.POLISH_WEIGHT]
    first, second = (_row_sum(engines, row) for row in (k.FIRST, k.SECOND))
    if settings.outer:
        return _outer_with_rows(polished, engines, covariates, sums, bend, first)
    return fit.with_public(polished, settings, covariates, sums, bend, first / sums[k.POLISH_WEIGHT], second)


def _sandwich(engines: Sequence[Any], average: Floats) -> Estimate:
    settings = engines[0].settings
    assert settings.radius is not None
    p, n = settings.features, sum(engine.n_releases for engine in engines)
    sums = _sums(engines)
    none = np.full(p, math.inf)
    if not sums[k.POLISH_WEIGHT] > 0.0:
        return Estimate(settings.names, average, SANDWICH, none, "none: nothing was learned yet", len(engines), n)
    total, free = sums[k.POLISH_WEIGHT], p - (not settings.intercept)
    bend = _matrix_sum(engines, 0) / total
    aimed = _row_sum(engines, k.AIMED) / total
    meat = _matrix_sum(engines, 1) / sums[k.MEAT_SQUARES]
    share = sums[k.POLISH_SQUARES] / total**2
    mean = float(aimed[-1])
    # Coefficients of the coded features, from those of the coordinates in which releases are made.
    back = (np.eye(p) if settings.coordinates is None else settings.coordinates.matrix)[:free, :free]
    bend, aimed, meat = bend[:free, :free], aimed[:free], meat[:free, :free]
    if not settings.weighted:
        bend = bend + settings.regularization * np.eye(free)
    values, vectors = np.linalg.eigh(bend)
    noise = uncertainty(sums, p)
    seen = values > TRUST * noise
    theta, spread, curvature_error = np.zeros(p), np.zeros(p), np.zeros(p)
    # Variance of an entry of the symmetric mean Hessian, whose diagonal has twice this variance.
    signal = share * float(np.sum(_matrix_sum(engines, 0) ** 2)) / total**2
    entry = max(sums[k.BEND_SQUARES] / total**2 - signal, 0.0) / (p * (p + 1))
    factors, selected = np.ones(free), None
    if settings.weighted and entry > 0.0:
        # Near the noise only directions that it has lifted are seen, so standard errors are multiplied by the factors.
        distances = (values - TRUST * noise) / math.sqrt(2.0 * entry)
        factors = selection_factors(distances)
        seen &= factors <= _MOST_LIFTED
        if seen.any():
            # A coefficient may depend on the least certain direction that is seen.
            selected = np.full(p, float(np.min(distances[seen])))
    inverse = (vectors[:, seen] / values[seen]) @ vectors[:, seen].T
    wide = (vectors[:, seen] * (factors / values)[seen]) @ vectors[:, seen].T
    doubtful = np.zeros(p, dtype=bool)
    doubtful[:free] = _curvature_errors(back, inverse, entry) > MOST_DOUBTFUL
    curvature_error[:free] = _curvature_errors(back, wide, entry)
    note = (
        f"noise moves the mean Hessian by about {noise / values[0]:.0%} of its smallest eigenvalue; from "
        f"{1 / TRUST:.0%} on there is no interval (docs/iwp-sgd.md)"
    )
    if not seen.all():
        if not settings.weighted:
            note = (
                "none: these releases do not determine the coefficients. The smallest eigenvalue of their mean Hessian "
                f"is {values[0]:.3g}, and noise alone moves it by about {noise:.3g}"
            )
            return Estimate(settings.names, _coded(settings, average), SANDWICH, none, note, len(engines), n)
        few = int(np.sum(~seen))
        theta[:free], spread[:free] = _floored_solution(
            values, vectors, aimed, meat * share, few, TRUST * noise, settings.radius, back, factors
        )
        note = _hidden_note(settings.names, spread, few)
    else:
        theta[:free] = inverse @ aimed
        if not settings.exact:
            # Residuals are those at projections onto the ball. Of noise they have at least the share radius / |theta|.
            meat = meat * max(float(np.linalg.norm(theta)) / settings.radius, 1.0) ** 2
        if not settings.weighted:
            raw = bend - settings.regularization * np.eye(free)
            meat = larger(meat, raw * _least_square(engines[0], theta, mean, float(values[0]), 1.0 / share))
        covariance = back @ wide @ meat @ wide @ back.T * share
        spread[:free] = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    if settings.weighted:
        # A curvature that stands out from noise by chance is overstated, and its coefficient far too small.
        spread[doubtful] = math.inf
    near = np.isfinite(spread) & (curvature_error > 1.0 / LARGEST)
    if near.any():
        names = ", ".join(name for name, is_near in zip(settings.names, near, strict=True) if is_near)
        note += f"; wide intervals, or none, for {names}, whose features' variance is little more than its noise"
    if settings.weighted:
        note += WEIGHTED.format(settings.weight)
    elif settings.form == k.REAL:
        note += MISSING
    if settings.loss in ("quadratic", "squared"):
        shifted = 0.0 if settings.coordinates is None else settings.coordinates.target[0]
        return Estimate(
            settings.names,
            _coded(settings, theta),
            SANDWICH,
            spread,
            note,
            len(engines),
            n,
            curvature_error=curvature_error,
            selected=selected,
            shifted=shifted,
        )
    length = float(np.linalg.norm(theta))
    if length > settings.radius:
        # Outside the ball the loss's estimate is not valid, and the Hessian was not taken there.
        theta = theta * (settings.radius / length)
        note = (
            f"none: the best coefficients lie outside the ball of radius {settings.radius:.3g}, to which these are "
            "projected, and no interval is valid. Give a larger radius, a weaker guarantee, or loss='quadratic'"
        )
        return Estimate(settings.names, theta, SANDWICH, none, note, len(engines), n)
    error = math.sqrt(float(np.linalg.eigvalsh(covariance)[-1]))
    room = (settings.radius - length) / error if error > 0.0 else math.inf
    if room < LARGEST:
        note += (
            f"; an interval of more than {room:.1f} standard errors has no bound, as it reaches the edge of the ball "
            f"of radius {settings.radius:.3g}: give a larger radius, a weaker guarantee, or loss='quadratic'"
        )
    return BallEstimate(
        settings.names, theta, SANDWICH, spread, note, len(engines), n, curvature_error=curvature_error, room=room
    )


def _coded(settings: Any, coefficients: Floats) -> Floats:
    """Return coefficients of the coded features, from those of the coordinates in which releases are made."""
    return coefficients if settings.coordinates is None else settings.coordinates.coded(coefficients)


def _least_square(engine: Any, theta: Floats, mean: float, least: float, people: float) -> float:
    """Return a lower bound on the ratio of the mean of ``r r'`` to the mean Hessian, for any released residuals.

    With few releases the rarer label is rare or absent, and released residuals hardly vary. So the bound is the
    model's: the mean square of the loss's slope is its mean curvature for `log` (nearly for `probit`), and ``cosh z``
    times its mean curvature for `exponential`, here at the score z of the middle of the features. For `quadratic` it is
    the variance of a label that does not depend on features, where the ``mean`` includes `_PSEUDO` further releases of
    each label. The bound falls once the rarer label is frequent along the direction with the ``least`` eigenvalue.
    """
    settings = engine.settings
    if settings.target == "real":
        return 0.0
    if settings.loss != "quadratic":
        return math.cosh(float(theta[-1])) if settings.loss == "exponential" else 1.0
    # Randomized response multiplies a label by 2 k - 1, with k the weight of the released one.
    label = min(2.0 * settings.noise(each).keep - 1.0 for each in bounding(engine.mechanisms).values())
    square = label**2 - (mean * people / (people + 2.0 * _PSEUDO)) ** 2
    return square * min(1.0, 8.0 * _MANY / (people * square * least)) if square > 0.0 else 0.0


def _outer_with_rows(
    polished: Estimate,
    engines: Sequence[Any],
    covariates: Rows,
    sums: Floats,
    bend: Floats,
    noise: Floats,
) -> Estimate:
    """Combine the fit of outer products with public rows."""
    settings = engines[0].settings
    assert settings.radius is not None
    p, free, total = settings.features, settings.features - (not settings.intercept), sums[k.POLISH_WEIGHT]
    if matrix_size(free) > MOST_NUMBERS:
        note = f"{polished.note}; public rows are not used: {free} coefficients have too many second moments to compare"
        return replace(polished, note=note)
    aimed = _row_sum(engines, k.AIMED)[:free] / total
    meat = _matrix_sum(engines, 1)[:free, :free]
    released = fit.Released(
        bend[:free, :free],
        aimed,
        meat / sums[k.MEAT_SQUARES] * sums[k.POLISH_SQUARES] / total**2,
        np.array([engine.rows[k.REFERENCE][:free] for engine in engines]),
        (float(noise[0]) / total**2, float(noise[1]) / total**2),
        total**2 / sums[k.POLISH_SQUARES],
    )
    rows = fit.RowMoments.of(covariates, free, 1.0)
    if fit.share_of(released, rows) == 0.0:
        return polished
    if fit.unlike(released, rows) > UNLIKE:
        return replace(polished, note=f"{polished.note}; {fit.UNUSED}", alike=False)
    mean = np.asarray(polished.values)
    # Errors depend on the coefficients, and public rows change the coefficients that noise hides: hence two rounds.
    for _ in range(2):
        fitted = fit.hypotheses(released, rows, mean[:free])
        weights = np.exp([each.evidence - max(other.evidence for other in fitted) for each in fitted])
        heavy = [i for i in range(len(fitted)) if weights[i] >= LIGHT * weights.sum()]
        weights = weights[heavy] / weights[heavy].sum()
        values, spreads = np.zeros((len(heavy), p)), np.zeros((len(heavy), p))
        for i, hypothesis in enumerate(fitted[index] for index in heavy):
            own, vectors = np.linalg.eigh(hypothesis.matrix)
            few, least = fit.hidden(own, vectors, hypothesis.covariance, TRUST)
            values[i, :free], spreads[i, :free] = _floored_solution(
                own, vectors, aimed, hypothesis.meat, few, least, settings.radius
            )
        mean = weights @ values
        spread = np.sqrt(weights @ (spreads**2 + (values - mean) ** 2))
    note = f"by the releases and {int(rows.count):,} public rows, as far as these are like the people's"
    missing = _without_interval(settings.names, spread)
    if missing:
        note = f"none for {listed(missing)}, which noise hides; {note}"
    note += WEIGHTED.format(settings.weight)
    return replace(
        polished,
        values=mean,
        spread=spread,
        curvature_error=None,
        selected=None,
        method=fit.PUBLIC_ROWS,
        note=note,
        alike=True,
    )


def _curvature_errors(back: Floats, inverse: Floats, variance: float) -> Floats:
    """Return relative errors of the curvature along the coefficients, by the variance of a matrix's entry."""
    along, lengths = back @ inverse, np.sum(back**2, axis=1)
    changes = np.sum(along**2, axis=1) / lengths + (np.sum(along * back, axis=1) / lengths) ** 2
    return np.asarray(np.sqrt(variance * changes))


def _floored_solution(
    values: Floats,
    vectors: Floats,
    aimed: Floats,
    meat: Floats,
    few: int,
    least: float,
    radius: float,
    back: Floats | None = None,
    factors: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Solve with the ``few`` smallest eigenvalues raised to ``least``; return the solution and its standard errors.

    Errors are of the combinations of coefficients in the rows of ``back``, by default of single coefficients, and
    infinite for combinations that depend too much on the raised eigenvalues. ``factors`` multiply errors along the
    eigenvectors.
    """
    factors = np.ones(len(values)) if factors is None else factors
    back = np.eye(len(values)) if back is None else back
    seen = np.arange(len(values)) >= few
    along = (vectors.T @ aimed) / np.where(seen, values, np.maximum(values, least))
    inverse = back @ (vectors[:, seen] * (factors / values)[seen]) @ vectors[:, seen].T
    # Of a few releases, a variance may be zero up to rounding.
    error = np.sqrt(np.maximum(np.diag(inverse @ meat @ inverse.T), 0.0))
    # The unknown part of a coefficient: its share of the hidden directions, times the largest length in the ball, which
    # is too small if the part that is seen is longer.
    length, longest = np.linalg.norm(back, axis=1), max(radius, float(np.linalg.norm(along[seen])))
    share = np.linalg.norm(back @ vectors[:, ~seen], axis=1) / length
    unknown = share * length * (longest + float(np.linalg.norm(along[~seen])))
    return vectors @ along, np.where(share <= MOST_HIDDEN, error + unknown / LEAST_QUANTILE, math.inf)


def _without_interval(names: tuple[str, ...], spread: Floats) -> list[str]:
    return [name for name, error in zip(names, spread, strict=True) if not math.isfinite(error)]


def _hidden_note(names: tuple[str, ...], spread: Floats, hidden: int) -> str:
    without = _without_interval(names, spread)
    which = "none" if len(without) == len(names) else f"none for {listed(without)}" if without else "all"
    return (
        f"{which}: noise hides {hidden} of {len(names)} directions of the features, so coefficients that depend on "
        "them are not learned at this privacy, and estimates are shrunk along them; `typical` ranges, tighter bounds "
        "or public rows help where a feature fills little of its bounds"
    )


def _random_scaling(engines: Sequence[Any], average: Floats) -> Estimate:
    settings = engines[0].settings
    assert settings.radius is not None
    n = sum(engine.n_releases for engine in engines)
    updates = sum(int(engine.whole[k.UPDATES]) for engine in engines)
    spread = np.full(settings.features, math.inf)
    note = "valid in the limit only: far below the nominal coverage before the iterates settle (docs/iwp-sgd.md)"
    if settings.intervals is None:
        note = NOT_ASKED
    elif settings.coordinates is not None:
        note = "none: random scaling has no intervals in stated coordinates (`typical`), where the Newton step has some"
    elif settings.averaging != "polyak":
        note = "none: random scaling needs the plain average; this learner uses another"
    elif updates < FEWEST:
        note = f"none yet: random scaling needs at least {FEWEST:,} updates"
    else:
        spread = np.sqrt(sum(_scaling(engine) for engine in engines) / len(engines) / updates)
        if np.linalg.norm(average) > _NEAR * settings.radius:
            note = f"the estimate lies at the edge of the ball (radius {settings.radius:.3g}); the best may lie outside"
    return Estimate(settings.names, _coded(settings, average), RANDOM_SCALING, spread, note, len(engines), n)


def _scaling(engine: Any) -> Floats:
    average, a, b = engine.rows[[k.AVERAGE, k.SCALING_A, k.SCALING_B]]
    return path_variance(average, a, b, engine.real[k.SUM_SQUARES], float(engine.whole[k.UPDATES]))


def influence_of(engines: Sequence[Any]) -> Influence | None:
    """Return a bound on how far one forged example moves an estimate; None for losses that are not quadratic.

    The estimate solves ``A theta = b``. A release of weight w, with residual ``r = g_i`` at the estimate, moves
    ``A theta - b`` by at most ``w |r| / W``, and A by ``w |H_i| / W``. With L the longest admitted vector, T the
    largest target and
    v the variance subtracted, ``|r| <= (L |theta| + T) L + v |theta|`` and ``|H| <= L^2 + v``; for outer products
    ``|r| <= L sqrt(|theta|^2 + 1)`` and ``|H| <= L``. Standard errors are at least those from the smallest eigenvalue
    of the mean of ``r r'``.
    """
    settings = engines[0].settings
    sums = _sums(engines)
    quadratic = settings.outer or settings.directed or settings.loss in ("quadratic", "squared")
    if not settings.newton or not quadratic or not sums[k.POLISH_WEIGHT] > 0.0:
        return None
    p, total = settings.features, float(sums[k.POLISH_WEIGHT])
    free = p - (not settings.intercept)
    bend, meat = (np.linalg.eigvalsh(_matrix_sum(engines, row)[:free, :free]) for row in (0, 1))
    least, spread = float(bend[0]) / total + settings.regularization, float(meat[0]) / float(sums[k.MEAT_SQUARES])
    if not (least > 0.0 and spread > 0.0):
        return Influence(math.inf, math.inf)
    theta = max(float(np.linalg.norm(engine.rows[k.REFERENCE])) for engine in engines)
    moved = turned = 0.0
    reals, _ = level_rows(settings, list(engines[0].mechanisms.values()))
    for row in reals:
        length, target, variance, keep = (
            float(row[index - k.UNIT]) for index in (k.LIMIT, k.TARGET_LIMIT, k.VARIANCE, k.KEEP)
        )
        weight = 1.0 / float(row[k.SPREAD - k.UNIT]) if settings.weighting == "inverse-variance" else 1.0
        if settings.outer:
            residual, matrix = length * math.hypot(theta, 1.0), length
        else:
            if settings.directed:
                # The variance subtracted is estimated from the length of the release itself.
                variance = max(variance, (length**2 + max(target, 1.0)) / p)
            matrix = length**2 + variance
            residual = (length * theta + max(target, 1.0)) * length + variance * theta
            # Under randomized response, learning uses both the label and its opposite.
            both = abs(keep) + abs(1.0 - keep) if settings.form == k.LABEL else 1.0
            residual, matrix = both * residual, both * matrix
        moved, turned = max(moved, weight * residual), max(turned, weight * matrix)
    return Influence(moved / math.sqrt(float(sums[k.POLISH_SQUARES]) * spread), turned / (total * least))


def _sums(engines: Sequence[Any]) -> Floats:
    return np.asarray(np.sum([engine.real for engine in engines], axis=0))


def _row_sum(engines: Sequence[Any], row: int) -> Floats:
    return np.asarray(np.sum([engine.rows[row] for engine in engines], axis=0))


def _matrix_sum(engines: Sequence[Any], triangle: int) -> Floats:
    """Return the symmetric matrix of the partitions' packed lower triangles."""
    p = engines[0].settings.features
    matrix = np.zeros((p, p))
    matrix[np.tril_indices(p)] = np.sum([engine.triangles[triangle] for engine in engines], axis=0)
    return np.asarray(matrix + np.tril(matrix, -1).T)
