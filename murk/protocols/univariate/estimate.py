"""Shares and means with their standard errors, from all levels and partitions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from murk._internal.arrays import Floats
from murk.inference.estimate import Estimate, missing_words, surely_missing
from murk.inference.poisoning import Influence
from murk.protocols.univariate.settings import Settings
from murk.protocols.univariate.statistics import Statistics, Summary

Totals = Mapping[str, tuple[int, list[int]]]  # level to the number of releases and the sums

METHOD: Final = "delta method"
_KNOWN: Final = 0.25  # largest relative standard error of the share of targets present that leaves intervals bounded
_LEAST: Final = 1e-6  # least share of targets present that sums are divided by
_OF_PRESENT: Final = "of people with a target; noise and the sampling of people count"
_OF_ROWS: Final = "of rows with a target; noise and the sampling of people count"
_OF_ALL: Final = "noise and the sampling of people count; the task states that every person has a target"
_FEW: Final = "none: the noise hides how many targets are missing"
_FEWEST: Final = 30  # releases from which on variances are estimated well enough for an interval
_TOO_FEW: Final = f"none before {_FEWEST} releases"


def combined(totals: Totals, statistics: Mapping[str, Statistics]) -> Summary | None:
    """Return the estimate from all levels, weighted by inverse variance; None without releases."""
    summaries, weights = [], []
    for level, (count, sums) in totals.items():
        if count:
            summaries.append(statistics[level].summary(np.array(sums, dtype=np.float64), count))
            weights.append(count / statistics[level].variance)
    if not summaries:
        return None
    shares = np.array(weights) / sum(weights)
    values = sum((share * each.values for share, each in zip(shares, summaries, strict=True)), np.zeros(1))
    spread = sum((share**2 * each.covariance for share, each in zip(shares, summaries, strict=True)), np.zeros((1, 1)))
    return Summary(np.asarray(values), np.asarray(spread))


def estimate_of(settings: Settings, totals: Totals, statistics: Mapping[str, Statistics], partitions: int) -> Estimate:
    """Return shares as 2 s - 1, or a mean in [-1, 1], of people with a target, with standard errors."""
    names, count = settings.names, sum(number for number, _ in totals.values())
    found = combined(totals, statistics)
    if found is None:
        return Estimate(
            names, np.zeros(len(names)), METHOD, np.full(len(names), math.inf), "no release yet", partitions, 0
        )
    absent, error = 0.0, 0.0
    if settings.missing:
        absent, error = float(found.values[-1]), math.sqrt(max(float(found.covariance[-1, -1]), 0.0))
    present = max(1.0 - absent, _LEAST)
    values, slopes = _of_present(settings, found.values, present)
    covariance = slopes @ found.covariance @ slopes.T
    known = error <= _KNOWN * present and count >= _FEWEST
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0)) if known else np.full(len(names), math.inf)
    note = _OF_ROWS if settings.rows > 1 else _OF_PRESENT if settings.missing else _OF_ALL
    if not known:
        note = _TOO_FEW if count < _FEWEST else _FEW
    missing = surely_missing(absent, error)
    if missing:
        note += missing_note(settings, missing)
    influence = _influence(totals, statistics)
    return Estimate(
        names,
        values,
        METHOD,
        spread,
        note,
        partitions,
        count,
        covariance=covariance,
        absent=missing,
        influence=influence,
    )


def missing_note(settings: Settings, missing: float) -> str:
    """Return what a note says of a lower bound on the share of missing targets."""
    whose = "" if settings.rows > 1 else ", and the estimate is of people who have one"
    return f"; {missing_words(missing, settings.rows)}{whose}"


def _of_present(settings: Settings, values: Floats, present: float) -> tuple[Floats, Floats]:
    """Return the reported numbers of people with a target, and their derivatives by the estimated numbers."""
    if not settings.classes:
        mean = float(values[0]) / present
        slopes = np.array([[1.0, mean if settings.missing else 0.0]]) / present
        return np.array([mean]), slopes
    k = settings.classes
    shares = values[:k] / present
    slopes = np.zeros((k, len(values)))
    slopes[:, :k] = np.eye(k) / present
    if settings.missing:
        slopes[:, k] = shares / present
    reported = slice(1, 2) if len(settings.names) == 1 else slice(None)
    return 2.0 * shares[reported] - 1.0, 2.0 * slopes[reported]


def _influence(totals: Totals, statistics: Mapping[str, Statistics]) -> Influence:
    """Return a bound on one forged release's effect, relative to the standard error."""
    moved = noise = 0.0
    for level, (count, _) in totals.items():
        if count:
            variance = statistics[level].variance
            moved = max(moved, statistics[level].longest / variance)
            noise += count / variance
    return Influence(moved / math.sqrt(noise))
