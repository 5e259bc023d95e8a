"""Estimates of a target beside known columns, which are sent without noise."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Floats, Integers
from murk.inference.estimate import Estimate
from murk.inference.levels import quantile_of

CLEAR: Final = 4.0  # standard errors by which the number of people with a target must exceed zero
_EFFECTS: Final = "differences of a linear model of the probability, by least squares"


@dataclass(frozen=True)
class CellMeans:
    """Means of a target's classes, or of a number, among people with a target, for each cell of known columns."""

    values: Integers  # number of each column's value, (cells, columns)
    counts: Integers  # number of releases, (cells,)
    means: Floats  # (cells, k)
    errors: Floats  # standard errors (cells, k), infinite where too few people answered
    absent: Floats  # estimated shares of missing targets, (cells,); zeros if every person has one
    absent_errors: Floats  # their standard errors, (cells,)
    sums: Floats  # estimated sums of the last class's indicators or of numbers, and of present targets, (cells, 2)
    covariances: Floats  # of these sums: from each cell's own releases, and from all, (2, cells, 2, 2)
    fewest: float  # least number of people for an interval

    def mean(self, inside: NDArray[np.bool_]) -> tuple[float, float, int]:
        """Return the mean of all people in some cells, its standard error, and their number.

        Cells are pooled, as a small one alone may show no target. The number of people in each varies by chance, too:
        with the pooled mean m, the people n, and the total t and the present targets s of each cell, the sum of
        (t - m s)^2 / n counts beside the variances within cells. The error is infinite if there are too few people, or
        all of their targets may be missing.
        """
        people = int(self.counts[inside].sum())
        total, present = self.sums[inside].sum(axis=0).tolist()
        both = self.covariances[:, inside].sum(axis=1)
        if min(people, present) < self.fewest or not present > CLEAR * math.sqrt(max(float(both[:, 1, 1].max()), 0.0)):
            return (total / present if present > 0.0 else 0.0), math.inf, people
        slope = np.array([1.0, -total / present]) / present
        within, pooled = (float(slope @ each @ slope) for each in both)
        differences = self.sums[inside] @ slope
        between = float((differences**2 / np.maximum(self.counts[inside], 1)).sum())
        return total / present, math.sqrt(max(within + between, pooled, 0.0)), people


@dataclass(frozen=True)
class KnownEstimate(Estimate):
    """Coefficients of known columns, the linear effects on probabilities in addition to log odds, and cells' means."""

    noise_hides: ClassVar[bool] = True

    line: Floats | None = None  # effects on the probability, (p,)
    line_covariance: Floats | None = None
    line_spread: Floats | None = None  # standard errors, infinite where unknown
    cells: CellMeans | None = None
    metrics: tuple[Estimate, ...] = ()  # estimates of an experiment's metrics, each from its own releases

    @property
    def people_by_cell(self) -> dict[tuple[int, ...], int]:
        """Number of releases of each cell, by its values, of the target and of all metrics."""
        counts: Counter[tuple[int, ...]] = Counter()
        for estimate in (self, *self.metrics):
            if isinstance(estimate, KnownEstimate) and estimate.cells is not None:
                cells = estimate.cells
                counts.update(dict(zip(map(tuple, cells.values.tolist()), cells.counts.tolist(), strict=True)))
        return dict(counts)

    def effects(self, level: float = 0.95) -> tuple[Floats, Floats] | None:
        """Return linear effects on the probability and half-widths; None for a real target."""
        if self.line is None or self.line_spread is None:
            return None
        return self.line, quantile_of(level) * self.line_spread

    def combined_effect(self, weights: Floats, level: float = 0.95) -> tuple[float, float] | None:
        """Return a weighted sum of `effects` and its half-width, by their covariance."""
        if self.line is None or self.line_covariance is None or self.line_spread is None:
            return None
        used = np.flatnonzero(weights)
        variance = float(weights[used] @ self.line_covariance[np.ix_(used, used)] @ weights[used])
        known = bool(np.isfinite(self.line_spread[used]).all())
        half = quantile_of(level) * math.sqrt(max(variance, 0.0)) if known else math.inf
        return float(weights @ self.line), half

    @property
    def effects_note(self) -> str:
        """The model that defines average effects; empty for a real target."""
        return "" if self.line is None else _EFFECTS


def cells_of(estimate: Estimate) -> CellMeans | None:
    """Return the cells' means of an estimate, if known."""
    return estimate.cells if isinstance(estimate, KnownEstimate) else None
