r"""Coefficients of known columns, from the sums of randomized targets of each cell.

Let u be the unbiased estimate of a target from one release (indicators of the classes, or a number), f(x) a model, and
``r = u - f(x)`` the residual, of people with a target. Noise adds a known covariance to that of r, so that

*linear effects*, and lines of real targets, are least squares of u on x, with the sandwich of HC1. They always exist.

*log odds* minimise :math:`\sum_l \kappa_l \sum [\log \sum_k e^{s_k} - u's] + |A|^2 / 50` over contrasts A of scores s.
The weights are :math:`\kappa_l = \mathrm{tr}\,V_0 / \mathrm{tr}\,V_l`, with the covariances V_0 of r without noise and
V_l at level l, both at the overall shares. The covariance is
:math:`H^{-1} (\sum \kappa^2 \mathrm{Cov}(r) \otimes x x' + \Lambda) H^{-1}`. The weak prior makes the fit exist, and
intervals allow for this prior.

Every covariance is the larger of two: from each cell's own residuals, and from residuals pooled over cells. While a
rare outcome has not occurred in a small cell, the covariance from its own residuals is far too small. There is no
interval before the smallest category has max(100, 25 skew^2) people, for the skewness of one release.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Floats, Integers
from murk._internal.links import class_probabilities
from murk.inference.estimate import Estimate, People, larger, surely_missing
from murk.inference.known_columns import CLEAR, CellMeans, KnownEstimate
from murk.inference.poisoning import Influence
from murk.privacy.mechanisms.selection import SubsetSelection
from murk.protocols.linear_algebra import contrasts
from murk.protocols.univariate.estimate import Totals, missing_note
from murk.protocols.univariate.settings import Settings
from murk.protocols.univariate.statistics import Cells, Numbers, Statistics, Windows

METHOD: Final = "sandwich (HC1)"
_PRIOR: Final = 25.0  # variance of a contrast's coefficients a priori
_UNLEARNED: Final = 0.25  # share of the prior variance from which a coefficient is mostly the prior
_FEWEST, _PER_SKEW = 100, 25.0
_STEPS, _CLOSE = 60, 1e-9
_SINGULAR: Final = 1e-9  # share of the largest eigenvalue below which people do not determine a direction


@dataclass(frozen=True)
class Level:
    """Releases of one level by cell, with the mean and covariance of the unbiased estimate from one release."""

    statistics: Cells
    counts: Floats  # (cells,)
    sums: Floats  # of the cells' targets (cells, size)
    means: Floats  # (cells, q); zeros without releases
    covariances: Floats  # of one release, (cells, q, q)

    @classmethod
    def of(cls, statistics: Cells, counts: Floats, sums: Floats) -> Level:
        """Return the level of releases with these counts (cells,) and sums (cells, size)."""
        size = len(statistics.inner.summary(sums.sum(axis=0), int(counts.sum())).values)
        means, covariances = np.zeros((len(counts), size)), np.zeros((len(counts), size, size))
        for cell in np.flatnonzero(counts):
            count = int(counts[cell])
            summary = statistics.inner.summary(sums[cell], count, pseudo=0.0)
            means[cell], covariances[cell] = summary.values, summary.covariance * count
        return cls(statistics, counts, sums, means, covariances)

    @property
    def pooled(self) -> tuple[Floats, Floats]:
        """Mean and covariance of one release over all cells; pseudo-releases keep classes from seeming surely empty."""
        count = int(self.counts.sum())
        summary = self.statistics.inner.summary(self.sums.sum(axis=0), count)
        return summary.values, summary.covariance * count

    def skewness(self, classes: int) -> Floats:
        """Return an upper bound on the size of the skewness of one release, by class (or of a number)."""
        inner, (means, covariance) = self.statistics.inner, self.pooled
        variances = np.maximum(np.diag(covariance), 1e-300)
        if isinstance(inner, Windows):
            weights, counts = inner.mechanism.weights[:, 0], self.sums.sum(axis=0) + 1.0
            centred = weights - counts @ weights / counts.sum()
            variance = counts @ centred**2 / counts.sum()
            return np.array([abs(counts @ centred**3 / counts.sum()) / variance**1.5])
        if isinstance(inner, Numbers):
            # Noise is symmetric, and a number in [-1, 1] has a third moment of at most its variance times the range.
            own = max(float(variances[0]) - 2.0 * inner.mechanism.variance, 0.0)
            return np.array([2.0 * own / float(variances[0]) ** 1.5])
        shares = np.clip(means[:classes], 1.0 / self.counts.sum(), 1.0)
        if isinstance(inner.mechanism, SubsetSelection):
            inside = inner.mechanism.base + inner.mechanism.gain * shares
            return np.asarray(np.abs(1.0 - 2.0 * inside) / np.sqrt(inside * (1.0 - inside)))
        third = shares * (1.0 - shares) * np.abs(1.0 - 2.0 * shares)
        return np.asarray(third / variances[:classes] ** 1.5)


@dataclass(frozen=True)
class Table:
    """Releases of all levels by cell, with the cells' coded features."""

    classes: int  # K, or 0 for a number
    X: Floats  # (cells, p), the constant last
    levels: Sequence[Level]

    def only(self, chosen: NDArray[np.bool_]) -> Table:
        """Return the table of some cells, without levels that have no release there."""
        levels = [
            replace(
                level,
                counts=level.counts[chosen],
                sums=level.sums[chosen],
                means=level.means[chosen],
                covariances=level.covariances[chosen],
            )
            for level in self.levels
            if level.counts[chosen].any()
        ]
        return Table(self.classes, self.X[chosen], levels)

    @property
    def counts(self) -> Floats:
        """Releases of each cell, (cells,)."""
        return np.asarray(sum(level.counts for level in self.levels))

    @property
    def outputs(self) -> int:
        """Number of classes, or 1 for a number."""
        return self.classes or 1

    def present(self, level: Level) -> Floats:
        """Return the estimated share of people with a target in each cell, (cells,)."""
        if self.classes:
            return np.asarray(level.means[:, : self.classes].sum(axis=1))
        return np.asarray(1.0 - level.means[:, 1])

    def residuals(self, level: Level, fit: Floats) -> tuple[Floats, Floats]:
        """Return the mean residuals (cells, k), and the derivatives of one residual by the estimates (cells, k, q)."""
        k, q = self.outputs, level.means.shape[1]
        slopes = np.zeros((len(fit), k, q))
        if self.classes:
            slopes[:, :, :k] = np.eye(k) - fit[:, :, None]
            offset = np.zeros_like(fit)
        else:
            slopes[:, 0, 0], slopes[:, 0, 1] = 1.0, fit[:, 0]
            offset = -fit
        return np.einsum("ckq,cq->ck", slopes, level.means) + offset * (level.counts > 0.0)[:, None], slopes

    def scatter(self, level: Level, fit: Floats) -> Floats:
        """Return the sums of squared residuals of each cell, (cells, k, k)."""
        residuals, slopes = self.residuals(level, fit)
        own = np.einsum("ckq,cqr,clr->ckl", slopes, level.covariances, slopes)
        return np.asarray(level.counts[:, None, None] * (own + residuals[:, :, None] * residuals[:, None, :]))

    def meats(self, fit: Floats, weights: Sequence[float], basis: Floats) -> tuple[Floats, Floats]:
        """Return covariances (d, d) of the summed scores ``B'r x``, by each cell's own residuals and by pooled ones."""
        p, width = self.X.shape[1], basis.shape[1]
        both = [np.zeros((width, p, width, p)) for _ in range(2)]
        people = self.counts.sum()
        factor = people / max(people - p, 1.0)
        for level, weight in zip(self.levels, weights, strict=True):
            scatter = factor * weight**2 * np.einsum("ka,ckl,lb->cab", basis, self.scatter(level, fit), basis)
            mean = scatter.sum(axis=0) / level.counts.sum()
            both[0] += np.einsum("cab,ci,cj->aibj", scatter, self.X, self.X)
            both[1] += np.einsum("ab,c,ci,cj->aibj", mean, level.counts, self.X, self.X)
        own, pooled = (each.reshape(width * p, width * p) for each in both)
        return own, pooled


def fit_of(settings: Settings, totals: Totals, statistics: Mapping[str, Statistics], partitions: int) -> Estimate:
    """Return the coefficients of known columns in coded units, with standard errors."""
    names = settings.names
    count = sum(number for number, _ in totals.values())
    none = np.full(len(names), math.inf)
    real = not settings.classes
    nothing = KnownEstimate(names, np.zeros(len(names)), METHOD, none, "no release yet", partitions, count)
    if not real:
        nothing = replace(nothing, line=np.zeros(len(names)), line_covariance=np.diag(none), line_spread=none)
    if not count:
        return nothing
    every, used = table_of(settings, totals, statistics)
    # An undeclared value is coded in the middle, where these people need not be: effects are of the other people.
    declared = settings.known.declared(used)
    if not declared.any():
        return nothing
    table = every.only(declared)
    p, k = table.X.shape[1], table.outputs
    # Of two classes coefficients are reported of the second, or of both.
    shown = np.eye(k) if real or len(names) == k * p else np.eye(k)[1:]
    skew = np.max([level.skewness(settings.classes) for level in table.levels], axis=0)
    means = _means(settings, every, used, skew)
    absences = means.absent[declared], means.absent_errors[declared]
    short = too_few(table, shown @ skew, settings, used[declared], absences)
    values, spread, covariance = _line(table, shown)
    spread = np.where(short, math.inf, spread)
    absent, error = _absent(settings, every)
    missing = surely_missing(absent, error)
    note = "noise and the sampling of people count; the larger one of each cell's own and the pooled residuals"
    if missing:
        note += missing_note(settings, missing)
    people = People(table.X, table.counts / table.counts.sum(), sampled=True)
    if not declared.all():
        note += "; of people whose known columns all have a declared value"
    found = replace(
        nothing,
        note=note,
        absent=missing,
        people=people,
        influence=influence(table),
        cells=means,
    )
    if real:
        return replace(found, values=values, spread=spread, covariance=covariance)
    found = replace(found, line=values, line_covariance=covariance, line_spread=spread)
    fitted = _log_odds(settings, table, shown)
    if fitted is None:
        return replace(found, note=f"{note}; log odds are not determined")
    values, spread, covariance = fitted
    return replace(found, values=values, spread=np.where(short, math.inf, spread), covariance=covariance)


def table_of(settings: Settings, totals: Totals, statistics: Mapping[str, Statistics]) -> tuple[Table, Integers]:
    """Return the table of the cells that have releases, and the numbers of these cells."""
    by_level = []
    for level, (count, sums) in totals.items():
        if count:
            known = statistics[level]
            assert isinstance(known, Cells)
            by_level.append((known, *known.by_group(np.array(sums, dtype=np.float64))))
    used = np.flatnonzero(sum(counts for _, counts, _ in by_level))
    levels = [Level.of(known, counts[used], sums[used]) for known, counts, sums in by_level]
    return Table(settings.classes, settings.known.codes(used), levels), used


def too_few(table: Table, skew: Floats, settings: Settings, used: Integers, absences: tuple[Floats, Floats]) -> Floats:
    """Return for each coefficient whether one of its categories has too few people for an interval, (p k,).

    A category has too few, too, if all of its targets may be missing: ``absences`` are the shares of missing targets in
    the cells ``used``, and their standard errors.
    """
    values, smallest = settings.known.values(used), []
    for place, column in enumerate(settings.known.columns):
        arms, present, squares = (
            np.bincount(values[:, place], weights=weights, minlength=column.values)
            for weights in (
                table.counts,
                table.counts * (1.0 - absences[0]),
                (table.counts * absences[1]) ** 2,
            )
        )
        arms = np.where(present < CLEAR * np.sqrt(squares), 0.0, arms)
        smallest += [min(arms[0], arms[each]) for each in range(1, column.categories)]
        smallest += [arms[-1]] * column.indicated
    # The constant is the fit at the middle of every column, and so needs all categories.
    smallest.append(min(smallest))
    return np.asarray((np.array(smallest)[None, :] < fewest(skew)[:, None]).ravel())


def fewest(skew: Floats) -> Floats:
    """Return the least number of people for an interval, for the skewness of one release."""
    return np.maximum(_FEWEST, _PER_SKEW * skew**2)


def _line(table: Table, shown: Floats) -> tuple[Floats, Floats, Floats]:
    """Return least-squares coefficients of the outputs with names, (k p,), their standard errors and covariance."""
    weights = [1.0 / level.statistics.variance for level in table.levels]
    X, p, k = table.X, table.X.shape[1], table.outputs
    gram, pull = np.zeros((p, p)), np.zeros((k, p))
    for level, weight in zip(table.levels, weights, strict=True):
        gram += (X * (weight * level.counts * table.present(level))[:, None]).T @ X
        pull += weight * (level.counts[:, None] * level.means[:, :k]).T @ X
    sizes, vectors = np.linalg.eigh(gram)
    clear = sizes > _SINGULAR * max(float(sizes[-1]), 0.0)
    inverse = (vectors[:, clear] / sizes[clear]) @ vectors[:, clear].T
    lines = pull @ inverse
    spread_over = np.kron(np.eye(k), inverse)
    own, pooled = (spread_over @ meat @ spread_over for meat in table.meats(X @ lines.T, weights, np.eye(k)))
    named = np.kron(shown, np.eye(p))
    covariance = named @ larger(own, pooled) @ named.T
    unknown = np.tile((vectors[:, ~clear] ** 2).sum(axis=1) > _SINGULAR, len(shown))
    spread = np.where(unknown, math.inf, np.sqrt(np.maximum(np.diag(covariance), 0.0)))
    return named @ lines.ravel(), spread, covariance


def _log_odds(settings: Settings, table: Table, shown: Floats) -> tuple[Floats, Floats, Floats] | None:
    """Return log odds with standard errors and covariance; None if the estimated loss has no minimum."""
    X, p, k = table.X, table.X.shape[1], settings.classes
    basis = contrasts(k) if len(shown) == k else np.array([[0.0], [1.0]])
    width = basis.shape[1]
    weights = [_kappa(table, level) for level in table.levels]
    pull, mass = np.zeros((len(X), k)), np.zeros(len(X))
    for level, weight in zip(table.levels, weights, strict=True):
        pull += weight * level.counts[:, None] * level.means[:, :k]
        mass += weight * level.counts * table.present(level)
    ridge = np.eye(width * p) / _PRIOR

    def loss(theta: Floats) -> float:
        scores = X @ theta.reshape(width, p).T @ basis.T
        top = scores.max(axis=1)
        log_sum = top + np.log(np.exp(scores - top[:, None]).sum(axis=1))
        return float(mass @ log_sum - (pull * scores).sum() + theta @ theta / (2.0 * _PRIOR))

    def hessian(chances: Floats) -> Floats:
        bend = chances[:, :, None] * (np.eye(k) - chances[:, None, :])
        turned = np.einsum("ka,ckl,lb->cab", basis, bend, basis) * mass[:, None, None]
        return np.asarray(np.einsum("cab,ci,cj->aibj", turned, X, X).reshape(width * p, width * p) + ridge)

    theta = np.zeros(width * p)
    for _ in range(_STEPS):
        chances = class_probabilities(X @ theta.reshape(width, p).T, basis)
        slope = (basis.T @ (mass[:, None] * chances - pull).T @ X).ravel() + theta / _PRIOR
        sizes, vectors = np.linalg.eigh(hessian(chances))
        if not sizes[0] > 0.0:
            return None
        step = (vectors / sizes) @ (vectors.T @ slope)
        before, share = loss(theta), 1.0
        while loss(theta - share * step) > before + 1e-9 * abs(before) and share > 1e-6:
            share /= 2.0
        theta = theta - share * step
        if np.abs(share * step).max() < _CLOSE:
            break
    chances = class_probabilities(X @ theta.reshape(width, p).T, basis)
    inverse = np.linalg.inv(hessian(chances))
    own, pooled = (inverse @ (meat + ridge) @ inverse for meat in table.meats(chances, weights, basis))
    named = np.kron(shown @ basis, np.eye(p))
    covariance = named @ larger(own, pooled) @ named.T
    guessed = np.diag(named @ inverse @ named.T) > _UNLEARNED * _PRIOR * np.diag(named @ named.T)
    spread = np.where(guessed, math.inf, np.sqrt(np.maximum(np.diag(covariance), 0.0)))
    return np.asarray(named @ theta), np.asarray(spread), covariance


def _kappa(table: Table, level: Level) -> float:
    """Return the variance of residuals without noise over that with noise, at the overall shares."""
    means, covariance = level.pooled
    k = table.classes
    shares = np.maximum(means, 1.0 / level.counts.sum())
    shares /= shares.sum()
    fit = shares[:k] / shares[:k].sum()
    slope = np.zeros((k, len(shares)))
    slope[:, :k] = np.eye(k) - fit[:, None]
    exact = np.diag(shares) - np.outer(shares, shares)
    return float(np.trace(slope @ exact @ slope.T) / np.trace(slope @ covariance @ slope.T))


def _means(settings: Settings, table: Table, used: Integers, skew: Floats) -> CellMeans:
    """Return the means of each cell; standard errors are the larger of those by its own and by pooled residuals."""
    weights = np.array([level.counts / level.statistics.variance for level in table.levels])
    weights /= weights.sum(axis=0)
    k = table.outputs
    present = sum(w * table.present(level) for w, level in zip(weights, table.levels, strict=True))
    sums = sum(w[:, None] * level.means[:, :k] for w, level in zip(weights, table.levels, strict=True))
    known = np.maximum(present, 1e-6)[:, None]
    means = np.asarray(sums / known)
    own = pooled = np.zeros_like(means)
    absent = gone = gone_pooled = np.zeros(len(means))
    for weight, level in zip(weights, table.levels, strict=True):
        _, slopes = table.residuals(level, means)
        _, shared = level.pooled
        part = (weight**2 / np.maximum(level.counts, 1.0))[:, None]
        own = own + part * np.einsum("ckq,cqr,ckr->ck", slopes, level.covariances, slopes)
        pooled = pooled + part * np.einsum("ckq,qr,ckr->ck", slopes, shared, slopes)
        if settings.missing:
            absent = absent + weight * level.means[:, -1]
            gone = gone + part[:, 0] * level.covariances[:, -1, -1]
            gone_pooled = gone_pooled + part[:, 0] * shared[-1, -1]
    errors = np.sqrt(np.maximum(np.maximum(own, pooled), 0.0)) / known
    absent_errors = np.sqrt(np.maximum(np.maximum(gone, gone_pooled), 0.0))
    unclear = (present < CLEAR * absent_errors)[:, None] | (table.counts[:, None] < fewest(skew))
    errors = np.where(unclear, math.inf, errors)
    size = table.levels[0].means.shape[1]
    into, constant = np.zeros((2, size)), np.zeros(2)
    if settings.classes:
        into[0, k - 1], into[1, :k] = 1.0, 1.0
    else:
        into[0, 0], into[1, 1], constant[1] = 1.0, -1.0, 1.0
    pool = pooled_sums(table, weights, into, constant)
    counts, least = table.counts.astype(np.int64), float(fewest(skew).max())
    return CellMeans(settings.known.values(used), counts, means, errors, absent, absent_errors, *pool, least)


def pooled_sums(table: Table, weights: Floats, into: Floats, constant: Floats) -> tuple[Floats, Floats]:
    """Return each cell's sums of ``B u + c`` of all releases, (cells, 2), and their covariances (2, cells, 2, 2).

    Levels have weights (levels, cells), B is ``into`` (2, q), and c the ``constant``. The first covariances are by each
    cell's own releases, the second ones by those of all.
    """
    counts = table.counts
    sums, covariances = np.zeros((len(counts), 2)), np.zeros((2, len(counts), 2, 2))
    for weight, level in zip(weights, table.levels, strict=True):
        share = weight * counts
        sums += share[:, None] * (level.means @ into.T + constant)
        part = (share**2 / np.maximum(level.counts, 1.0))[:, None, None]
        covariances[0] += part * np.einsum("aq,cqr,br->cab", into, level.covariances, into)
        covariances[1] += part * (into @ level.pooled[1] @ into.T)
    return sums, covariances


def _absent(settings: Settings, table: Table) -> tuple[float, float]:
    """Return the estimated share of missing targets and its standard error."""
    if not settings.missing:
        return 0.0, 0.0
    means, variances, counts = zip(
        *(
            (mean[-1], covariance[-1, -1], level.counts.sum())
            for level in table.levels
            for mean, covariance in [level.pooled]
        ),
        strict=True,
    )
    shares = np.array(counts) / sum(counts)
    variance = float(shares**2 @ (np.array(variances) / np.array(counts)))
    return float(shares @ np.array(means)), math.sqrt(max(variance, 0.0))


def influence(table: Table) -> Influence:
    """Return a bound on one forged release's effect, relative to the standard error.

    A coefficient is ``a'sum(r x)``: the forged release is in the cell with the largest ``|a'x|``.
    """
    moved = noise = 0.0
    for level in table.levels:
        moved = max(moved, level.statistics.longest / level.statistics.variance)
        noise += float(level.counts.sum()) / level.statistics.variance
    # A forger outweighs most people in the cell with the largest leverage, which is the smallest one.
    gram = (table.X * table.counts[:, None]).T @ table.X
    leverage = float(np.einsum("ci,ij,cj->c", table.X, np.linalg.pinv(gram), table.X).max())
    return Influence(moved / math.sqrt(noise) * math.sqrt(max(leverage * float(table.counts.sum()), 1.0)))
