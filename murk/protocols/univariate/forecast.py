"""Forecasts of shares, means, quantiles and coefficients of known columns, from simulated sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.random import Generator

from murk._internal.arrays import Floats
from murk.inference.estimate import Estimate
from murk.privacy.mechanisms.base import direction_spread
from murk.privacy.mechanisms.outer_product import outer
from murk.privacy.mechanisms.selection import LEVELS
from murk.privacy.mechanisms.thresholds import THRESHOLDS
from murk.protocols import population as design
from murk.protocols.population import Records
from murk.protocols.univariate.cells import Level, fewest
from murk.protocols.univariate.device import TargetDevice
from murk.protocols.univariate.engine import estimated
from murk.protocols.univariate.quantiles import critical_value
from murk.protocols.univariate.statistics import (
    Cells,
    Grid,
    Numbers,
    Points,
    Products,
    Statistics,
    Subsets,
    Thresholds,
    Windows,
    statistics_of,
)
from murk.task.privacy import DEFAULT_LEVEL
from murk.task.task import Task


def estimate(
    device: TargetDevice, records: Records, people: int, levels: Mapping[str, float], partitions: int, rng: Generator
) -> Estimate:
    """Simulate the estimate from a number of people. Partitions make no difference, as their sums add up."""
    if device.settings.metrics:
        part = estimate(device.of_target, records, people // _drawn(device), levels, partitions, rng)
        return replace(part, n_releases=people)
    places = device.vectors(records.X, records.y)
    totals: dict[str, tuple[int, list[int]]] = {}
    known: dict[str, Statistics] = {}
    for level, size in design.split(people, levels).items():
        known[level] = statistics_of(device.settings, device.mechanisms[level])
        drawn = records.drawn(size, rng)
        totals[level] = size, np.rint(_sums(known[level], places, drawn, rng)).astype(np.int64).tolist()
    return estimated(device.settings, totals, known, partitions)


def _drawn(device: TargetDevice) -> int:
    """Return the number of targets and metrics among which a release is drawn."""
    return 1 + len(device.settings.metrics)


def _likely(device: TargetDevice, records: Records, *more: Any) -> Estimate:
    return estimate(device, _normal(records) if device.settings.quantiles else records, *more)


estimates = design.one_by_one(_likely)


def _normal(records: Records) -> Records:
    """Return records whose targets are normal with the same mean and variance, clipped to the bounds.

    A mean's forecast needs only the mean and variance of targets, for which two values suffice; a quantile's forecast
    needs a density.
    """
    y, known = records.y.copy(), np.isfinite(records.y)
    shares = records.shares[known] / records.shares[known].sum()
    mean = float(shares @ y[known])
    spread = math.sqrt(float(shares @ (y[known] - mean) ** 2))
    levels = np.cumsum(shares) - shares / 2.0
    y[known] = np.clip([NormalDist(mean, spread).inv_cdf(level) for level in levels.tolist()], -1.0, 1.0)
    return replace(records, y=y)


def _sums(statistics: Any, places: Floats, drawn: Floats, rng: Generator) -> Floats:
    """Draw the sums of people's releases, of which ``drawn[i]`` have the mechanism's input ``places[i]``."""
    mechanism = statistics.mechanism
    if isinstance(statistics, Cells):
        return _of_cells(statistics, places, drawn, rng)
    if isinstance(statistics, Products):
        return _of_products(statistics, places, drawn, rng)
    places = places.ravel()
    if isinstance(statistics, Thresholds):
        return _answers(statistics, places, drawn, rng)
    if isinstance(statistics, Grid | Windows):
        return _counts(statistics, places, drawn, rng)
    whole = np.floor(places).astype(np.int64)
    shares = np.zeros((len(places), statistics.size if isinstance(statistics, Subsets) else mechanism.vertices))
    at, last = np.arange(len(places)), shares.shape[1] - 1
    shares[at, np.minimum(whole + 1, last)] = places - whole
    shares[at, np.minimum(whole, last)] += 1.0 - (places - whole)
    total = drawn @ shares
    if isinstance(statistics, Subsets):
        covariance = sum(
            (count * mechanism.covariance(each) for count, each in zip(drawn, shares, strict=True) if count),
            np.zeros((last + 1, last + 1)),
        )
        values, vectors = np.linalg.eigh(covariance)
        total = total + vectors @ (np.sqrt(np.maximum(values, 0.0)) * rng.normal(size=last + 1))
        return np.asarray(mechanism.gain * total + drawn.sum() * mechanism.base)
    noise = np.sqrt(drawn.sum() * mechanism.variance) * rng.normal(size=last + 1)
    sums = mechanism.height * (total + noise)
    if isinstance(statistics, Points):
        return np.asarray(sums)
    assert isinstance(statistics, Numbers)
    into = np.array([[-1.0, 1.0]]) if last == 1 else np.array([[-1.0, 1.0, 0.0], [-1.0, -1.0, 2.0]])
    axes = shares @ into.T
    square = (axes * drawn[:, None]).T @ axes + drawn.sum() * mechanism.variance * into @ into.T
    coarse = square[np.triu_indices(last)] * (mechanism.height / 1024.0) ** 2
    return np.concatenate([into @ sums, coarse])


def _of_cells(statistics: Cells, places: Floats, drawn: Floats, rng: Generator) -> Floats:
    """Draw how many people are in each cell, and the sums of their targets."""
    sums = np.zeros((statistics.mechanism.cells, 1 + statistics.inner.size))
    for cell in np.unique(places[drawn > 0.0, 0]).astype(np.int64):
        # Many people have the same target.
        inside = places[:, 0] == cell
        targets, index = np.unique(places[inside, 1:], axis=0, return_inverse=True)
        people = np.bincount(index, weights=drawn[inside]).astype(np.float64)
        sums[cell] = [people.sum(), *_sums(statistics.inner, targets, people, rng)]
    return sums.ravel()


def _of_products(statistics: Products, vectors: Floats, drawn: Floats, rng: Generator) -> Floats:
    """Draw the sums of decoded numbers and of these numbers' products, if ``drawn[i]`` people have the vector i."""
    exact = outer(vectors, vectors.shape[1])
    numbers = design.released_sum(statistics.mechanism, exact, drawn, rng)
    across, along = direction_spread(statistics.mechanism)
    if along is not None:
        length = np.sqrt(np.square(exact).sum(axis=1))[:, None]
        exact = math.sqrt(along) * exact / np.where(length > 0.0, length, 1.0)
    noise = drawn.sum() * across * np.eye(exact.shape[1])
    return statistics.steps(numbers, (exact * drawn[:, None]).T @ exact + noise)


def _answers(statistics: Thresholds, places: Floats, drawn: Floats, rng: Generator) -> Floats:
    """Draw how many people answer at each threshold, and the sums of their answers."""
    sums = np.zeros((THRESHOLDS, statistics.mechanism.dimension))
    # People between two thresholds answer alike; missing targets are the last of all.
    cells = np.where(places > 1.0, THRESHOLDS + 1.0, np.ceil(places * THRESHOLDS)).astype(np.int64)
    people = np.bincount(cells, weights=drawn, minlength=THRESHOLDS + 2).astype(np.int64)
    asked = rng.multinomial(people, np.full(THRESHOLDS, 1.0 / THRESHOLDS))
    for threshold, numbers in enumerate(asked.T):
        answers = np.array([numbers[: threshold + 1].sum(), numbers[threshold + 1 : -1].sum(), numbers[-1]])
        answers = answers[: statistics.mechanism.dimension - 1]
        sums[threshold, 0] = numbers.sum()
        if numbers.any():
            sums[threshold, 1:] = _sums(statistics.inner, np.arange(float(len(answers))), answers, rng)
    return sums.ravel()


def _counts(statistics: Grid | Windows, places: Floats, drawn: Floats, rng: Generator) -> Floats:
    """Draw how many releases have each outcome."""
    chances = statistics.mechanism.chances if isinstance(statistics, Windows) else statistics.chances
    total = np.zeros(statistics.size)
    for place, count in zip(places, drawn, strict=True):
        at: Floats = np.zeros(len(chances))
        if isinstance(statistics, Grid):
            at[int(place)] = 1.0
        elif place > 1.0:
            at[-1] = 1.0
        else:
            level = min(int(place * (LEVELS - 1)), LEVELS - 2)
            part = place * (LEVELS - 1) - level
            at[level : level + 2] = 1.0 - part, part
        outcome = at @ chances
        total += rng.multinomial(int(count), outcome / outcome.sum())
    return total


_MANY: Final = 10**9  # number of people from whom the variance of one release is estimated almost exactly


def residual_variances(device: TargetDevice, records: Records) -> tuple[float, float, float]:
    """Return the variance of one person's released target around the mean, and that of the target itself.

    The third number returned is the least number of people in an arm for an interval. A real target is in coded units;
    the mean is that of people with a target.
    """
    if device.settings.metrics:
        released, exact, least = residual_variances(device.of_target, records)
        return released * _drawn(device), exact, least * _drawn(device)
    statistics = device.engine().statistics[DEFAULT_LEVEL]
    assert isinstance(statistics, Cells)
    inner, rng = statistics.inner, np.random.default_rng(0)
    drawn = np.rint(records.shares * _MANY)
    present = np.isfinite(records.y)
    share = float(records.shares[present].sum())
    mean = float(records.shares[present] @ records.y[present]) / share
    exact = float(records.shares[present] @ (records.y[present] - mean) ** 2) / share**2
    if isinstance(inner, Products):
        # Adjusting for private features may reduce the variance between people, and adds noise; neither is forecast.
        unit = 0.25 if device.settings.classes else 1.0
        # The residual is V_0y - m V_00. If V_00 is released, it has noise, too, of twice the variance.
        coded = 2.0 * mean - 1.0 if device.settings.classes else mean
        products = 1.0 + 2.0 * coded**2 if device.settings.missing else 1.0
        noise = unit * inner.factor**2 * inner.noise * products / share**2
        # The noise on products is so large that releases are hardly skewed.
        return noise + exact, exact, float(fewest(np.zeros(1))[0])
    sums = _sums(inner, device.settings.positions(records.y)[:, 0], drawn, rng)
    summary = inner.summary(np.asarray(sums), int(drawn.sum()), pseudo=0.0)
    slope = np.zeros(len(summary.values))
    slope[:2] = [-mean, 1.0 - mean] if device.settings.classes else [1.0, mean]
    skew = Level.of(statistics, np.array([drawn.sum()]), np.asarray(sums)[None]).skewness(device.settings.classes)
    return float(slope @ summary.covariance @ slope) * drawn.sum() / share**2, exact, float(fewest(skew)[-1])


def effect_variance(device: TargetDevice, task: Task, people: int) -> float:
    """Return the variance of the estimate: of a mean, of a share (as 2 s - 1) or of a quantile, in coded units.

    With known columns it is the variance of an effect.

    For a quantile it is the variance with which a normal interval is as wide as the quantile's. If targets are evenly
    distributed, and a run of a share d of the thresholds ends at the quantile, the mean of F over the run is d / 2 from
    its value at the quantile, and the mean has the variance of d n answers.
    """
    variance = statistics_of(device.settings, device.mechanisms[DEFAULT_LEVEL]).variance
    if device.settings.quantiles:
        share = (2.0 * critical_value(0.95) * math.sqrt(variance / people)) ** (2.0 / 3.0)
        return float((2.0 * share / 1.96) ** 2)
    if device.settings.known.columns:
        # Changes of a probability are half those of labels, and a coded category has the variance `design.VARIANCE`.
        return float(variance / (people * design.VARIANCE))
    return float((4.0 if device.settings.classes else 1.0) * variance / people)
