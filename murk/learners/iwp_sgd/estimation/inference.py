"""Estimates from released examples, and their intervals.

*sandwich*: the polished estimate with the covariance of
:mod:`murk.learners.iwp_sgd.estimation.polish`, from the releases alone. Where the mean Hessian is not known well enough
to be inverted, the average stands in and there is no interval: that is how a hopeless budget shows.

*public rows*: directions of labels, and outer products, where covariates are public, see
:mod:`murk.learners.iwp_sgd.estimation.public` and :mod:`murk.learners.iwp_sgd.estimation.rows`.

*random scaling*: where nothing is polished and it is asked for by name, as for LDP-SGD (Lee, Liao, Seo, Shin 2022),
over the updates' averages.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from murk.learners.estimates.estimate import FEWEST, RANDOM_SCALING, Estimate, PublicCovariates
from murk.learners.estimates.misfit import MOST_NUMBERS, UNLIKE
from murk.learners.iwp_sgd import layout as k
from murk.learners.iwp_sgd.estimation.chain_sums import ChainSums
from murk.learners.iwp_sgd.estimation.forgers import influence_of, symmetric
from murk.learners.iwp_sgd.estimation.polish import TRUST, uncertainty
from murk.learners.iwp_sgd.estimation.public import PUBLIC_ROWS, UNUSED, rows_are_used, with_public
from murk.learners.iwp_sgd.estimation.rows import (
    Released,
    Rows,
    hidden,
    hypotheses,
    share_of,
    unlike,
)
from murk.learners.scores.layout import matrix_size

if TYPE_CHECKING:
    pass

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
