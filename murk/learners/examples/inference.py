"""What estimates take of a chain of released examples.

How far one forged example moves an estimate: by its length, and by the square of its length.

The estimate solves ``A theta = b``, both means of what releases say; one release of weight w moves it by at most
``w |r| / W`` in the residual ``r = g_i`` at the estimate, and A by ``w |H_i| / W``. What is longer than honest noise
makes it is not learned. So with L the longest vector and T the largest target that are, ``|r| <= (L |theta| + T) L +
v |theta|`` and ``|H| <= L^2 + v``, v the variance that is taken off; for outer products, which are linear in what is
released, ``|r| <= L sqrt(|theta|^2 + 1)`` and ``|H| <= L``. Standard errors have the mean square of r, of which the
smallest eigenvalue is what is known in every direction.

Estimates from released examples, and their intervals.

*sandwich*: the polished estimate with the covariance of
:mod:`murk.learners.examples.polish`, from the releases alone. Where the mean Hessian is not known well enough
to be inverted, the average stands in and there is no interval: that is how a hopeless budget shows.

*public rows*: directions of labels, and outer products, where covariates are public, see
:mod:`murk.learners.examples.covariate_fit` and :mod:`murk.learners.examples.covariate_fit`.

*random scaling*: where nothing is polished and it is asked for by name, as for LDP-SGD (Lee, Liao, Seo, Shin 2022),
over the updates' averages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from murk.learners.core.symmetric import matrix_size
from murk.learners.estimates.estimate import FEWEST, RANDOM_SCALING, Estimate, PublicCovariates
from murk.learners.estimates.forgers import Influence
from murk.learners.estimates.misfit import MOST_NUMBERS, UNLIKE
from murk.learners.examples import layout as k
from murk.learners.examples.covariate_fit import (
    PUBLIC_ROWS,
    UNUSED,
    Released,
    Rows,
    hidden,
    hypotheses,
    rows_are_used,
    share_of,
    unlike,
    with_public,
)
from murk.learners.examples.polish import TRUST, uncertainty
from murk.learners.examples.settings import level_rows

if TYPE_CHECKING:
    from murk.learners.examples.settings import ExampleMechanism, ExampleSettings


class ChainSums(Protocol):
    """What a chain has summed of its releases, in the places that `murk.learners.examples.layout` names."""

    settings: ExampleSettings
    covariates: PublicCovariates | None

    @property
    def real(self) -> NDArray[np.float64]:
        """All of its float64 numbers."""

    @property
    def whole(self) -> NDArray[np.int64]:
        """All of its int64 numbers."""

    @property
    def rows(self) -> NDArray[np.float64]:
        """State vectors."""

    @property
    def triangles(self) -> NDArray[np.float64]:
        """The two sums of the polish."""

    @property
    def mechanisms(self) -> Mapping[str, ExampleMechanism]:
        """Level name to mechanism."""

    @property
    def n_releases(self) -> int:
        """Number of releases learned."""


def influence_of(engines: Sequence[ChainSums]) -> Influence | None:
    """What one forged example could have done; None where nothing bounds it: for losses that are not quadratic."""
    settings = engines[0].settings
    sums = np.sum([engine.real for engine in engines], axis=0)
    quadratic = settings.outer or settings.directed or settings.loss in ("quadratic", "squared")
    if not settings.polish or not quadratic or not sums[k.POLISH_WEIGHT] > 0.0:
        return None
    p, total = settings.features, float(sums[k.POLISH_WEIGHT])
    free = p - (not settings.intercept)
    bend, meat = (
        np.linalg.eigvalsh(symmetric(np.sum([engine.triangles[row] for engine in engines], axis=0), p)[:free, :free])
        for row in (0, 1)
    )
    least, spread = float(bend[0]) / total + settings.regularization, float(meat[0]) / float(sums[k.MEAT_SQUARES])
    if not (least > 0.0 and spread > 0.0):
        return Influence(math.inf, math.inf)
    theta = max(float(np.linalg.norm(engine.rows[k.REFERENCE])) for engine in engines)
    moved = turned = 0.0
    reals, _ = level_rows(settings, list(engines[0].mechanisms.values()))
    for row in reals:
        length, target, variance, keep = (
            float(row[place - k.UNIT]) for place in (k.LIMIT, k.TARGET_LIMIT, k.VARIANCE, k.KEEP)
        )
        weight = 1.0 / float(row[k.SPREAD - k.UNIT]) if settings.weighting == "inverse-variance" else 1.0
        if settings.outer:
            residual, matrix = length * math.hypot(theta, 1.0), length
        else:
            if settings.directed:
                # It is taken from the length of the release itself.
                variance = max(variance, (length**2 + max(target, 1.0)) / p)
            matrix = length**2 + variance
            residual = (length * theta + max(target, 1.0)) * length + variance * theta
            # A label in randomized response is learned from as itself and as the other one.
            both = abs(keep) + abs(1.0 - keep) if settings.form == k.LABEL else 1.0
            residual, matrix = both * residual, both * matrix
        moved, turned = max(moved, weight * residual), max(turned, weight * matrix)
    return Influence(moved / math.sqrt(float(sums[k.POLISH_SQUARES]) * spread), turned / (total * least))


def symmetric(packed: NDArray[np.float64], p: int) -> NDArray[np.float64]:
    """The symmetric matrix of a packed lower triangle."""
    matrix = np.zeros((p, p))
    matrix[np.tril_indices(p)] = packed
    whole: NDArray[np.float64] = matrix + np.tril(matrix, -1).T
    return whole


SANDWICH = "sandwich"
MISSING = "; needs next to no target missing"
WEIGHTED = "; of the fit weighted by {} (docs/iwp-sgd.md)"
MOST_HIDDEN = 0.25
"""A coefficient with more of its length in hidden directions has no interval: it would say next to nothing."""
LEAST_QUANTILE = NormalDist().inv_cdf(0.9)
"""What is unknown is added to half widths of 80% or more in full, and to wider ones more than that."""
NOT_ASKED = (
    "none: without the polish only random scaling is known, which covers far less than its name before the iterates "
    "settle; polish=True gives others, and intervals='random-scaling' asks for these"
)
LIGHT = 0.002
"""Hypotheses of less weight are left out of intervals."""
_NEAR = 0.98


def estimate(engines: Sequence[ChainSums]) -> Estimate:
    """Estimate from one chain's learner, or from several merged.

    Averages are weighted by each chain's sum of weights; the sums of the polish add up.
    """
    return replace(_estimate(engines), influence=influence_of(engines))


def _estimate(engines: Sequence[ChainSums]) -> Estimate:
    settings = engines[0].settings
    weights = np.array([engine.real[k.SUM_WEIGHT] for engine in engines])
    shares = weights / weights.sum() if weights.sum() > 0 else np.full(len(engines), 1.0 / len(engines))
    average = np.asarray(sum(s * engine.rows[k.AVERAGE] for s, engine in zip(shares, engines, strict=True)))
    if not settings.polish:
        return _random_scaling(engines, average)
    found, covariates = _sandwich(engines, average), engines[0].covariates
    if covariates is None or not settings.weighted or settings.regularization > 0.0:
        return found
    noisiest = max(settings.noise(mechanism).variance for mechanism in engines[0].mechanisms.values())
    if settings.directed and not rows_are_used(settings, covariates, noisiest):
        return found
    sums = np.sum([engine.real for engine in engines], axis=0)
    if not sums[k.POLISH_WEIGHT] > 0.0:
        return found
    bend = np.sum([engine.triangles[0] for engine in engines], axis=0) / sums[k.POLISH_WEIGHT]
    first, second = (np.sum([engine.rows[row] for engine in engines], axis=0) for row in (k.FIRST, k.SECOND))
    bend = symmetric(bend, settings.features)
    if settings.outer:
        return _beside_rows(found, engines, covariates, sums, bend, first)
    return with_public(found, settings, covariates, sums, bend, first / sums[k.POLISH_WEIGHT], second)


def _sandwich(engines: Sequence[ChainSums], average: NDArray[np.float64]) -> Estimate:
    settings = engines[0].settings
    assert settings.radius is not None
    p, n = settings.features, sum(engine.n_releases for engine in engines)
    sums = np.sum([engine.real for engine in engines], axis=0)
    none = np.full(p, math.inf)
    if not sums[k.POLISH_WEIGHT] > 0.0:
        return Estimate(settings.names, average, SANDWICH, none, "none: nothing was learned yet", len(engines), n)
    total, free = sums[k.POLISH_WEIGHT], p - (not settings.intercept)
    bend = symmetric(np.sum([engine.triangles[0] for engine in engines], axis=0), p) / total
    aimed = np.sum([engine.rows[k.AIMED] for engine in engines], axis=0) / total
    meat = symmetric(np.sum([engine.triangles[1] for engine in engines], axis=0), p) / sums[k.MEAT_SQUARES]
    share = sums[k.POLISH_SQUARES] / total**2
    bend, aimed, meat = bend[:free, :free], aimed[:free], meat[:free, :free]
    if not settings.weighted:
        bend = bend + settings.regularization * np.eye(free)
    values, vectors = np.linalg.eigh(bend)
    noise = uncertainty(sums, p)
    seen = values > TRUST * noise
    found, spread, note = np.zeros(p), np.zeros(p), _shares(noise, values[0])
    if not seen.all():
        if not settings.weighted:
            note = (
                "none: these releases do not determine the coefficients. The smallest eigenvalue of their mean Hessian "
                f"is {values[0]:.3g}, and noise alone moves it by about {noise:.3g}"
            )
            return Estimate(settings.names, average, SANDWICH, none, note, len(engines), n)
        found[:free], spread[:free] = _beside_hidden(
            values, vectors, aimed, meat * share, int(np.sum(~seen)), TRUST * noise, settings.radius
        )
        note = _hidden_words(settings.names, spread, int(np.sum(~seen)))
    else:
        inverse = (vectors / values) @ vectors.T
        found[:free] = inverse @ aimed
        spread[:free] = np.sqrt(np.diag(inverse @ meat @ inverse * share))
    if settings.weighted:
        note += WEIGHTED.format(settings.weight)
    elif settings.target == "real":
        note += MISSING
    length = float(np.linalg.norm(found))
    if length > settings.radius and settings.loss not in ("quadratic", "squared"):
        # Outside the ball the loss's estimate is not valid, and the Hessian was taken elsewhere.
        found = found * (settings.radius / length)
        note = (
            f"none: the best coefficients lie outside the ball of radius {settings.radius:.3g}; these are projected "
            "to it, and no interval holds. Give a larger radius, a weaker guarantee, or loss='quadratic'"
        )
        return Estimate(settings.names, found, SANDWICH, none, note, len(engines), n)
    return Estimate(settings.names, found, SANDWICH, spread, note, len(engines), n)


def _beside_rows(
    found: Estimate, engines: Sequence[ChainSums], covariates: PublicCovariates, sums: NDArray[np.float64],
    bend: NDArray[np.float64], noise: NDArray[np.float64],
) -> Estimate:  # fmt: skip
    """The fit of outer products with what public rows say of A."""
    settings = engines[0].settings
    assert settings.radius is not None
    p, free, total = settings.features, settings.features - (not settings.intercept), sums[k.POLISH_WEIGHT]
    if matrix_size(free) > MOST_NUMBERS:
        note = f"{found.note}; public rows are not used: {free} coefficients have too many second moments to compare"
        return replace(found, note=note)
    aimed = np.sum([engine.rows[k.AIMED] for engine in engines], axis=0)[:free] / total
    meat = symmetric(np.sum([engine.triangles[1] for engine in engines], axis=0), p)[:free, :free]
    told = Released(
        bend[:free, :free], aimed, meat / sums[k.MEAT_SQUARES] * sums[k.POLISH_SQUARES] / total**2,
        np.array([engine.rows[k.REFERENCE][:free] for engine in engines]),
        (float(noise[0]) / total**2, float(noise[1]) / total**2), total**2 / sums[k.POLISH_SQUARES],
    )  # fmt: skip
    rows = Rows.of(covariates, free, 1.0)
    if share_of(told, rows) == 0.0:
        return found
    if unlike(told, rows) > UNLIKE:
        return replace(found, note=f"{found.note}; {UNUSED}", alike=False)
    mean = np.asarray(found.values)
    # Errors are those at the coefficients, which rows change where noise hides some.
    for _ in range(2):
        length = max(float(np.linalg.norm(mean)), settings.radius)
        fitted = hypotheses(told, rows, mean[:free] * (settings.radius / length))
        weights = np.exp([one.evidence - max(each.evidence for each in fitted) for one in fitted])
        heavy = [i for i in range(len(fitted)) if weights[i] >= LIGHT * weights.sum()]
        weights = weights[heavy] / weights[heavy].sum()
        values, spreads = np.zeros((len(heavy), p)), np.zeros((len(heavy), p))
        for i, one in enumerate(fitted[place] for place in heavy):
            own, vectors = np.linalg.eigh(one.matrix)
            few, least = hidden(own, vectors, one.covariance, TRUST)
            values[i, :free], spreads[i, :free] = _beside_hidden(
                own, vectors, aimed, one.meat, few, least, settings.radius
            )
        mean = weights @ values
        spread = np.sqrt(weights @ (spreads**2 + (values - mean) ** 2))
    note = f"by the releases and {int(rows.count):,} public rows, as far as these are like the people's"
    missing = [name for name, one in zip(settings.names, spread, strict=True) if not math.isfinite(one)]
    if missing:
        note = f"none for {', '.join(missing)}, which noise hides; {note}"
    note += WEIGHTED.format(settings.weight)
    return replace(found, values=mean, spread=spread, method=PUBLIC_ROWS, note=note, alike=True)


def _shares(noise: float, least: float) -> str:
    return (
        f"noise moves the mean Hessian by about {noise / least:.0%} of its smallest eigenvalue; from "
        f"{1 / TRUST:.0%} on there is no interval (docs/iwp-sgd.md)"
    )


def _beside_hidden(
    values: NDArray[np.float64], vectors: NDArray[np.float64], aimed: NDArray[np.float64], meat: NDArray[np.float64],
    few: int, least: float, radius: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:  # fmt: skip
    """The floored solution and its spread, infinite where hidden directions matter (see `spectral`).

    The ``few`` smallest eigenvalues are hidden, and floored at ``least``.
    """
    seen = np.arange(len(values)) >= few
    along = (vectors.T @ aimed) / np.where(seen, values, np.maximum(values, least))
    inverse = (vectors[:, seen] / values[seen]) @ vectors[:, seen].T
    error = np.sqrt(np.diag(inverse @ meat @ inverse))
    # What is not known of a coefficient: its share of the hidden directions, times what the ball leaves them.
    share = np.linalg.norm(vectors[:, ~seen], axis=1)
    unknown = share * (radius + float(np.linalg.norm(along[~seen])))
    return vectors @ along, np.where(share <= MOST_HIDDEN, error + unknown / LEAST_QUANTILE, math.inf)


def _hidden_words(names: tuple[str, ...], spread: NDArray[np.float64], hidden: int) -> str:
    without = [name for name, one in zip(names, spread, strict=True) if not math.isfinite(one)]
    listed = "none" if len(without) == len(names) else f"none for {', '.join(without)}" if without else "all"
    return (
        f"{listed}: noise hides {hidden} of {len(names)} directions of the features, so that what depends on them is "
        "not learned at this privacy. Estimates are shrunk there"
    )


def _random_scaling(engines: Sequence[ChainSums], average: NDArray[np.float64]) -> Estimate:
    settings = engines[0].settings
    assert settings.radius is not None
    n = sum(engine.n_releases for engine in engines)
    updates = sum(int(engine.whole[k.UPDATES]) for engine in engines)
    spread = np.full(settings.features, math.inf)
    note = "valid in the limit only: it covers far less than its name before the iterates settle (docs/iwp-sgd.md)"
    if settings.intervals is None:
        note = NOT_ASKED
    elif settings.averaging != "polyak":
        note = "none: random scaling needs the plain average; this learner uses another"
    elif updates < FEWEST:
        note = f"none yet: random scaling says nothing sensible of fewer than {FEWEST:,} updates"
    else:
        spread = np.sqrt(sum(_scaling(engine) for engine in engines) / len(engines) / updates)
        if np.linalg.norm(average) > _NEAR * settings.radius:
            note = f"the estimate lies at the edge of the ball (radius {settings.radius:.3g}); the best may lie outside"
    return Estimate(settings.names, average, RANDOM_SCALING, spread, note, len(engines), n)


def _scaling(engine: ChainSums) -> NDArray[np.float64]:
    """Diagonal of V = t^-2 sum s^2 (bar_s - bar_t)^2."""
    count = float(engine.whole[k.UPDATES])
    if count == 0:
        return np.full(engine.settings.features, math.inf)
    bar = engine.rows[k.AVERAGE]
    a, b, c = engine.rows[k.SCALING_A], engine.rows[k.SCALING_B], engine.real[k.SUM_SQUARES]
    return np.asarray(np.maximum(a - 2.0 * bar * b + c * bar * bar, 0.0) / count**2)
