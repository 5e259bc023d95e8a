r"""Effects of known columns and private features together, from the sums of released products in each cell.

A release has the cell, and unbiased estimates V of the products ``(1, u, y)(1, u, y)'`` of p private features u and the
target y, which are 0 without a target. With k the codes of the cell and the constant, and x = (k, u), the residuals of
a line are a linear function of V: ``R_0 = V_0y - V_00 k'alpha - V_0u beta`` and ``R_1 = V_uy - V_u0 k'alpha - V_uu
beta``. The line solves

.. math:: \sum k R_0 = 0, \qquad \sum R_1 = 0

which is least squares of y on x: products of known columns are exact, those of known with private ones are private
entries times the codes, and noise is on private entries only. The covariance is the sandwich of the scores ``(k R_0,
R_1)``, with the spread of releases within each cell: the larger of the covariances by each cell's own and by pooled
residuals (see `murk.protocols.univariate.cells`). It includes the noise in second moments, to first order. Coefficients
of private features, and the part of other coefficients that depends on them, are ratios. Their denominator is the
private features' variance given the known columns. With the relative noise r of this variance, intervals reach the
farther end of Fieller's; there is none if r exceeds a half. Log odds do not follow from products: of two classes the
line is that of labels -1 and +1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from murk._internal.arrays import Floats, Integers
from murk.inference.estimate import Estimate, People, larger, surely_missing
from murk.inference.known_columns import CLEAR, CellMeans, KnownEstimate
from murk.protocols.univariate import cells
from murk.protocols.univariate.cells import METHOD
from murk.protocols.univariate.estimate import Totals, missing_note
from murk.protocols.univariate.settings import Settings
from murk.protocols.univariate.statistics import Products, Statistics

# Largest noise of the private features' least variance, relative to this variance, at which there are intervals. With
# a smaller limit only variances that noise made large would pass, and their coefficients are far too small. At this
# limit intervals are so wide that they are hardly bounded.
_MOST_DOUBTFUL: Final = 0.5
_LEAST: Final = 1e-6  # least share of targets present that sums are divided by


@dataclass(frozen=True)
class _Layout:
    """Positions of the products among the numbers of a release, and the factors to the products' units."""

    settings: Settings

    @property
    def features(self) -> int:
        """Number p of private coded features."""
        return len(self.settings.private)

    @property
    def matrix(self) -> Integers:
        """Index of each entry of the symmetric matrix among the released numbers, (p + 2, p + 2)."""
        size = self.features + 2
        places = np.zeros((size, size), dtype=np.int64)
        places[np.triu_indices(size)] = np.arange(size * (size + 1) // 2)
        return np.maximum(places, places.T)

    @property
    def factors(self) -> Floats:
        """Factor from a released number to the product, (p + 2, p + 2)."""
        lengths = np.ones(self.features + 2)
        lengths[[0, -1]] = self.settings.weight
        whole = self.settings.length**2 / np.outer(lengths, lengths) / math.sqrt(2.0)
        np.fill_diagonal(whole, np.diag(whole) * math.sqrt(2.0))
        return np.asarray(whole)

    def products(self, means: Floats) -> Floats:
        """Return the mean products (cells, p + 2, p + 2); every person has a target if none may be missing."""
        found = means[:, self.matrix] * self.factors
        if not self.settings.missing:
            found[:, 0, 0] = 1.0
        return np.asarray(found)

    def slopes(self, line: Floats) -> Floats:
        """Return derivatives by the released numbers of ``V e`` without its last row, for lines e (cells, p + 2)."""
        rows, size = self.features + 1, self.features + 2
        slopes = np.zeros((len(line), rows, size * (size + 1) // 2))
        for row in range(rows):
            for column in range(size):
                if row or column or self.settings.missing:
                    slopes[:, row, self.matrix[row, column]] += line[:, column] * self.factors[row, column]
        return slopes


def fit_of(settings: Settings, totals: Totals, statistics: Mapping[str, Statistics], partitions: int) -> Estimate:
    """Return the effects of known columns and private features in coded units, with standard errors."""
    names = settings.names
    count = sum(number for number, _ in totals.values())
    none = np.full(len(names), math.inf)
    nothing = KnownEstimate(names, np.zeros(len(names)), METHOD, none, "no release yet", partitions, count)
    if not count:
        return nothing
    layout = _Layout(settings)
    every, used = cells.table_of(settings, totals, statistics)
    declared = settings.known.declared(used)
    if not declared.any():
        return nothing
    table = every.only(declared)
    values, covariance, doubt, people, divided = _line(layout, table)
    clear = doubt <= _MOST_DOUBTFUL
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    skew = np.array([max(_skewness(layout, level) for level in table.levels)])
    means = _means(layout, every, used, skew)
    absences = means.absent[declared], means.absent_errors[declared]
    short = cells.too_few(table, skew, settings, used[declared], absences)
    # The constant and private features are learned from everybody, as long as every category has enough people.
    short = np.concatenate([short[:-1], np.repeat(short[-1], layout.features + 1)])
    spread = np.where(short, math.inf, spread) if clear else none
    absent = float(every.counts @ means.absent / every.counts.sum())
    error = math.sqrt(float((every.counts / every.counts.sum()) ** 2 @ means.absent_errors**2))
    missing = surely_missing(absent, error) if settings.missing else 0.0
    note = "noise and the sampling of people count; the larger one of each cell's own and the pooled residuals"
    if missing:
        note += missing_note(settings, missing)
    if not declared.all():
        note += "; of people whose known columns all have a declared value"
    if not clear:
        note += "; the noise is not small beside the variance of the private features"
    # Map from the order "known codes, constant, private features" to the order of all coded features.
    order = np.argsort([*settings.known.places, len(names) - 1, *settings.private])
    values, spread = values[order], spread[order]
    covariance, divided = covariance[np.ix_(order, order)], divided[np.ix_(order, order)]
    return replace(
        nothing,
        values=values,
        spread=spread,
        covariance=covariance,
        curvature_error=np.full(len(names), doubt),
        divided=divided,
        note=note,
        absent=missing,
        people=People(people[:, order], table.counts / table.counts.sum(), sampled=False),
        influence=cells.influence(table),
        cells=means,
    )


def _line(layout: _Layout, table: cells.Table) -> tuple[Floats, Floats, float, Floats, Floats]:
    """Return the coefficients of known codes, the constant and private features, with their covariance.

    Also returns the noise of the private features' least variance, relative to that variance; the mean of known codes,
    constant and private features in each cell; and the matrix from the coefficients to their parts that move with
    private coefficients.
    """
    p, K = layout.features, table.X
    known = K.shape[1]
    size = known + p
    weights = [1.0 / level.statistics.variance for level in table.levels]
    sums = np.zeros((len(K), p + 2, p + 2))
    for level, weight in zip(table.levels, weights, strict=True):
        sums += (weight * level.counts)[:, None, None] * layout.products(level.means)
    gram, pull = np.zeros((size, size)), np.zeros(size)
    gram[:known, :known] = (K * sums[:, :1, 0]).T @ K
    gram[:known, known:] = K.T @ sums[:, 0, 1:-1]
    gram[known:, :known] = gram[:known, known:].T
    gram[known:, known:] = sums[:, 1:-1, 1:-1].sum(axis=0)
    pull[:known], pull[known:] = K.T @ sums[:, 0, -1], sums[:, 1:-1, -1].sum(axis=0)
    inverse = np.linalg.pinv(gram, rcond=1e-9, hermitian=True)
    line = inverse @ pull
    # e of each cell: R = V e.
    errors = np.column_stack([-K @ line[:known], np.tile(-line[known:], (len(K), 1)), np.ones(len(K))])
    people = table.counts.sum()
    own, pooled = np.zeros((size, size)), np.zeros((size, size))
    into = np.zeros((len(K), size, p + 1))
    into[:, :known, 0] = K
    into[:, known:, 1:] = np.eye(p)
    for level, weight in zip(table.levels, weights, strict=True):
        residuals = np.einsum("crq,cq->cr", layout.products(level.means)[:, :-1], errors)
        slopes = layout.slopes(errors)
        scatter = np.einsum("crd,cde,cse->crs", slopes, level.covariances, slopes)
        scatter = scatter + residuals[:, :, None] * residuals[:, None, :]
        counts = weight**2 * people / max(people - size, 1.0) * level.counts
        own += np.einsum("c,cir,crs,cjs->ij", counts, into, scatter, into)
        shared = np.einsum("c,crs->rs", level.counts / level.counts.sum(), scatter)
        pooled += np.einsum("c,cir,rs,cjs->ij", counts, into, shared, into)
    covariance = larger(inverse @ own @ inverse, inverse @ pooled @ inverse)
    # Eigenvalues of the private features' second moments, given the known columns.
    part = gram[:known, known:]
    from_known = np.linalg.pinv(gram[:known, :known], hermitian=True) @ part
    sizes, vectors = np.linalg.eigh(gram[known:, known:] - part.T @ from_known)
    # A direction's variance also subtracts its fitted value f by known columns: V_uu - 2 f V_0u + f^2 V_00.
    fitted = (K @ from_known @ vectors[:, 0]) / layout.settings.weight
    parts = 1.0 + 2.0 * fitted**2 + (fitted**4 if layout.settings.missing else 0.0)
    noise = sum(
        weight**2 * float(level.counts @ parts) * _noise(level)
        for level, weight in zip(table.levels, weights, strict=True)
    )
    least = float(sizes[0])
    doubt = math.sqrt(p * noise) * layout.settings.length**2 / least if least > 0.0 else math.inf
    divided = np.zeros((size, size))
    divided[:known, known:], divided[known:, known:] = -from_known, np.eye(p)
    present = np.maximum(sums[:, :1, 0], _LEAST * sums[:, :1, 0].max())
    means = np.clip(sums[:, 0, 1:-1] / present, -1.0, 1.0)
    return line, covariance, doubt, np.column_stack([K, means]), divided


def _products(level: cells.Level) -> Products:
    inner = level.statistics.inner
    assert isinstance(inner, Products)
    return inner


def _noise(level: cells.Level) -> float:
    return _products(level).noise


def _skewness(layout: _Layout, level: cells.Level) -> float:
    """Return an upper bound on the size of the skewness of one release's product of the constant and the target."""
    values, covariance = level.pooled
    place, factor = layout.matrix[0, -1], layout.factors[0, -1]
    mean, variance = factor * float(values[place]), factor**2 * max(float(covariance[place, place]), 1e-300)
    # A number in [-1, 1] has a third moment of at most its variance times the range.
    own = max(variance - factor**2 * _noise(level), 0.0)
    return float((2.0 * min(abs(mean), 1.0) if layout.settings.classes else 2.0) * own / variance**1.5)


def _means(layout: _Layout, table: cells.Table, used: Integers, skew: Floats) -> CellMeans:
    """Return the means of each cell's targets; standard errors are the larger of those by own and pooled residuals."""
    weights = np.array([level.counts / level.statistics.variance for level in table.levels])
    weights /= weights.sum(axis=0)
    products = [layout.products(level.means) for level in table.levels]
    present = np.maximum(sum(w * each[:, 0, 0] for w, each in zip(weights, products, strict=True)), _LEAST)
    means = np.asarray(sum(w * each[:, 0, -1] for w, each in zip(weights, products, strict=True))) / present
    line = np.zeros((len(means), layout.features + 2))
    line[:, 0], line[:, -1] = -means, 1.0
    slopes = layout.slopes(line)[:, 0]
    place, factor = layout.matrix[0, 0], layout.factors[0, 0]
    own, pooled, gone = np.zeros(len(means)), np.zeros(len(means)), np.zeros(len(means))
    for weight, level in zip(weights, table.levels, strict=True):
        part = weight**2 / np.maximum(level.counts, 1.0)
        _, shared = level.pooled
        own += part * np.einsum("cd,cde,ce->c", slopes, level.covariances, slopes)
        pooled += part * np.einsum("cd,de,ce->c", slopes, shared, slopes)
        gone += part * factor**2 * np.maximum(level.covariances[:, place, place], shared[place, place])
    gone = np.sqrt(gone) if layout.settings.missing else np.zeros(len(means))
    errors = np.sqrt(np.maximum(np.maximum(own, pooled), 0.0)) / present
    least = float(cells.fewest(skew).max())
    errors = np.where((present < CLEAR * gone) | (table.counts < least), math.inf, errors)
    into, constant = np.zeros((2, slopes.shape[1])), np.array([0.0, 0.0 if layout.settings.missing else 1.0])
    into[0, layout.matrix[0, -1]] = layout.factors[0, -1]
    if layout.settings.missing:
        into[1, place] = factor
    if layout.settings.classes:
        # Labels are coded to -1 and +1.
        means, errors = (means + 1.0) / 2.0, errors / 2.0
        into[0], constant[0] = (into[0] + into[1]) / 2.0, constant[1] / 2.0
    pool = cells.pooled_sums(table, weights, into, constant)
    absent = 1.0 - present if layout.settings.missing else np.zeros(len(means))
    counts, values = table.counts.astype(np.int64), layout.settings.known.values(used)
    return CellMeans(values, counts, means[:, None], errors[:, None], absent, gone, *pool, least)
