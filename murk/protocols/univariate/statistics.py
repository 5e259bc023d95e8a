"""Exact sums of released integers, and the unbiased estimates with covariances that follow from them.

An estimate of shares has the shares of the K classes and, if targets may be missing, of missing targets, (k,). An
estimate of a mean has the mean of the coded number, with 0 for a missing one, and the share of missing numbers, (2,).

The sums depend on the mechanism. *Subsets*: sums of each category's indicator. *Windows*: numbers of releases with each
outcome. *Gaussian noise*: for more than two classes sums of the payloads; for a number also sums of their products; for
two classes numbers of releases in each cell of a grid, since the likelihood needs fewer people than the mean if one
class is rare. *Thresholds*: for each threshold the number of releases and the sums of payloads. *Known columns*: for
each cell the number of releases and their sums. *Products* of private features and the target: sums of the decoded
numbers and of their products. *Drawn*: sums for the target, and those for each metric.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np

from murk._internal.arrays import Floats, Integers
from murk.privacy.mechanisms.base import WIDTH, direction_spread, is_directional
from murk.privacy.mechanisms.drawn import DrawnMechanism
from murk.privacy.mechanisms.known import KnownMechanism
from murk.privacy.mechanisms.selection import SubsetSelection, WindowSelection
from murk.privacy.mechanisms.simplex import SimplexGaussian
from murk.privacy.mechanisms.thresholds import THRESHOLDS, ThresholdMechanism
from murk.protocols.univariate.settings import BareMechanism, Settings, TargetMechanism

_STEPS: Final = 4  # iterations of the likelihood's weights
_PSEUDO: Final = 2.0  # pseudo-releases of each class in variances, so that no class seems certain to be empty
_COARSE: Final = 10  # binary digits of payloads that products leave out
_ACROSS, _DOWN = 32, 16  # cells of the grid along the difference of two classes, and along a missing target


@dataclass(frozen=True)
class Summary:
    """An unbiased estimate (q,) and its covariance (q, q)."""

    values: Floats
    covariance: Floats


class Statistics(Protocol):
    """Sums of the releases of a level."""

    @property
    def size(self) -> int:
        """Number of integers that are summed."""

    @property
    def longest(self) -> float:
        """Largest change of an estimated number if one release is replaced, times the number of releases."""

    @property
    def variance(self) -> float:
        """Variance of a number that is estimated from one release."""

    def add(self, payloads: Integers) -> Integers:
        """Return the sums of payloads (m, d), for m of at most 65,536, int64."""

    def summary(self, sums: Floats, count: int) -> Summary:
        """Return the estimate from the sums of ``count`` releases."""


def statistics_of(settings: Settings, mechanism: TargetMechanism) -> Statistics:
    """Return the statistics that sum a mechanism's releases."""
    if isinstance(mechanism, ThresholdMechanism):
        noise = mechanism.noise
        return Thresholds(mechanism, Points(noise) if isinstance(noise, SimplexGaussian) else Subsets(noise))
    if isinstance(mechanism, DrawnMechanism):
        parts = zip((settings, *settings.metrics), mechanism.parts, strict=True)
        # Of known columns, each part has cells.
        return Drawn(tuple(statistics_of(each, part) for each, part in parts))  # type: ignore[misc]
    if isinstance(mechanism, KnownMechanism):
        inner: Any = mechanism.noise
        return Cells(mechanism, Products(inner, settings) if settings.private else _sums_of(settings, inner))
    if settings.classes == 2 and isinstance(mechanism, SimplexGaussian):
        return Grid(mechanism)
    return _sums_of(settings, mechanism)


def _sums_of(settings: Settings, mechanism: BareMechanism) -> Subsets | Windows | Points | Numbers:
    if isinstance(mechanism, SubsetSelection):
        return Subsets(mechanism)
    if isinstance(mechanism, WindowSelection):
        return Windows(mechanism)
    return Points(mechanism) if settings.classes else Numbers(mechanism)


def _present(shares: Floats, count: int, pseudo: float) -> Floats:
    """Return shares for variances: not negative and, with pseudo-releases, neither 0 nor 1."""
    raised = np.maximum(shares * count, 0.0) + pseudo
    return np.asarray(raised / raised.sum())


@dataclass(frozen=True)
class Subsets:
    """Sums of the indicators of categories."""

    mechanism: SubsetSelection

    @property
    def size(self) -> int:
        """Number of integers that are summed."""
        return self.mechanism.categories

    @property
    def longest(self) -> float:
        """Largest change of a share by replacing one release, times the number of releases."""
        return 1.0 / self.mechanism.gain

    @property
    def variance(self) -> float:
        """Variance of a share that is estimated from one release."""
        return self.mechanism.variance

    def add(self, payloads: Integers) -> Integers:
        """Return how many subsets contain each category."""
        return np.asarray(payloads.sum(axis=0))

    def summary(self, sums: Floats, count: int, pseudo: float = _PSEUDO) -> Summary:
        """Return the shares of all categories."""
        shares = (sums / count - self.mechanism.base) / self.mechanism.gain
        return Summary(shares, self.mechanism.covariance(_present(shares, count, pseudo)) / count)


@dataclass(frozen=True)
class Windows:
    """Numbers of releases with each outcome."""

    mechanism: WindowSelection

    @property
    def size(self) -> int:
        """Number of integers that are summed."""
        return self.mechanism.outcomes

    @property
    def longest(self) -> float:
        """Largest change of a mean by replacing one release, times the number of releases."""
        return float(np.ptp(self.mechanism.weights[:, 0]))

    @property
    def variance(self) -> float:
        """Variance of a number that is estimated from one release."""
        return self.mechanism.variance

    def add(self, payloads: Integers) -> Integers:
        """Return how many payloads have each outcome."""
        return np.bincount(payloads[:, 0], minlength=self.size).astype(np.int64)

    def summary(self, sums: Floats, count: int, pseudo: float = _PSEUDO) -> Summary:
        """Return the mean and the share of missing numbers; the outcomes' spread includes that of people."""
        weights = self.mechanism.weights
        # A pseudo-release of either end of the range, so that no end seems certain to be empty.
        ends = self.mechanism.chances[0] + self.mechanism.chances[len(self.mechanism.values) - 1]
        counts = sums + pseudo / 2.0 * ends
        total = float(counts.sum())
        mean = counts @ weights / total
        spread = (weights * counts[:, None]).T @ weights / total - np.outer(mean, mean)
        return Summary(sums @ weights / count, spread / count)


@dataclass(frozen=True)
class Points:
    """Sums of points of a simplex in Gaussian noise."""

    mechanism: SimplexGaussian

    @property
    def size(self) -> int:
        """Number of integers that are summed."""
        return self.mechanism.vertices

    @property
    def longest(self) -> float:
        """Largest change of a share by replacing one release, times the number of releases."""
        return 2.0 * math.sqrt(self.mechanism.payload_bound.parts[0][2]) * self.mechanism.unit

    @property
    def variance(self) -> float:
        """Variance of a share that is estimated from one release."""
        k = self.mechanism.vertices
        return (self.mechanism.variance + 1.0 / k) * (1.0 - 1.0 / k)

    def add(self, payloads: Integers) -> Integers:
        """Return the sums of payloads."""
        return np.asarray(payloads.sum(axis=0))

    def summary(self, sums: Floats, count: int, pseudo: float = _PSEUDO) -> Summary:
        """Return the shares of all categories."""
        shares = self.mechanism.decode(sums[None, :] / count)[0]
        return Summary(shares, self.mechanism.covariance(_present(shares, count, pseudo)) / count)


def _axes(payloads: Integers) -> Integers:
    """Return payloads along the line from the first vertex to the second, and towards the third, (m, k - 1)."""
    along = payloads[:, 1] - payloads[:, 0]
    if payloads.shape[1] == 2:
        return np.asarray(along[:, None])
    return np.column_stack([along, 2 * payloads[:, 2] - payloads[:, 0] - payloads[:, 1]])


@dataclass(frozen=True)
class Numbers:
    """Sums of a number's points in Gaussian noise, and of the products of their coordinates."""

    mechanism: SimplexGaussian

    @property
    def _axes(self) -> int:
        return self.mechanism.vertices - 1

    @property
    def size(self) -> int:
        """Number of integers that are summed."""
        return self._axes + self._axes * (self._axes + 1) // 2

    @property
    def longest(self) -> float:
        """Largest change of a mean by replacing one release, times the number of releases."""
        return 2.0 * math.sqrt(2.0 * self.mechanism.payload_bound.parts[0][2]) * self.mechanism.unit

    @property
    def variance(self) -> float:
        """Variance of a number that is estimated from one release."""
        return 2.0 * self.mechanism.variance

    def add(self, payloads: Integers) -> Integers:
        """Return the sums along both axes, and of their products."""
        axes = _axes(payloads)
        coarse = axes >> _COARSE
        upper = np.triu_indices(self._axes)
        return np.concatenate([axes.sum(axis=0), (coarse.T @ coarse)[upper]])

    def summary(self, sums: Floats, count: int, pseudo: float = _PSEUDO) -> Summary:
        """Return the mean and the share of missing numbers, with the spread of the releases."""
        axes, height = self._axes, float(self.mechanism.height)
        products = np.zeros((axes, axes))
        products[np.triu_indices(axes)] = sums[axes:]
        mean = sums[:axes] / count
        square = 4.0**_COARSE * (products + np.triu(products, 1).T) / count
        covariance = square - np.outer(mean, mean)
        # A pseudo-release of either end of the range.
        covariance[0, 0] += pseudo * height**2 / (count + pseudo)
        into = np.zeros((2, axes))
        into[0, 0] = 1.0 / height
        share = 0.0
        if axes == 2:
            into[1, 1] = 1.0 / (3.0 * height)
            share = (float(mean[1]) / height + 1.0) / 3.0
        values = np.array([float(mean[0]) / height, share])
        return Summary(values, into @ covariance @ into.T / count)


@dataclass(frozen=True)
class Products:
    """Sums of the products ``v v'`` of private features and the target, and of the products of these numbers."""

    mechanism: Any  # a mechanism from `outer_mechanism`
    settings: Settings

    @property
    def numbers(self) -> int:
        """Number d of entries in the upper triangle of ``v v'``."""
        return int(self.mechanism.dimension)

    @property
    def size(self) -> int:
        """Number of integers that are summed."""
        return self.numbers + self.numbers * (self.numbers + 1) // 2

    @property
    def noise(self) -> float:
        """Noise variance of a number; of directions, across the input."""
        return float(direction_spread(self.mechanism)[0])

    @property
    def factor(self) -> float:
        """Factor from an off-diagonal number of ``v v'`` to the product of the constant and the target."""
        return self.settings.length**2 / (math.sqrt(2.0) * self.settings.weight**2)

    @property
    def longest(self) -> float:
        """Largest change of a target's mean by replacing one release, times the number of releases."""
        reach = self.mechanism.unit
        if not is_directional(self.mechanism):
            reach *= math.sqrt(self.mechanism.payload_bound.parts[0][2])
        return float(2.0 * self.factor * reach / self._labels)

    @property
    def variance(self) -> float:
        """Variance of a target's mean, or of a share, that is estimated from one release."""
        return (self.factor**2 * self.noise + 1.0) / self._labels**2

    @property
    def _labels(self) -> float:
        return 2.0 if self.settings.classes else 1.0

    @property
    def _step(self) -> float:
        """Width of the steps to which decoded numbers are rounded, so that sums are of integers."""
        return math.sqrt(self.noise) * 2.0**-_COARSE

    def add(self, payloads: Integers) -> Integers:
        """Return the sums of decoded numbers and of their products, in steps."""
        steps = np.rint(self.mechanism.decode(payloads) / self._step).astype(np.int64)
        return np.concatenate([steps.sum(axis=0), (steps.T @ steps)[np.triu_indices(self.numbers)]])

    def steps(self, numbers: Floats, products: Floats) -> Floats:
        """Return sums in steps from those of decoded numbers (d,) and their products (d, d)."""
        return np.concatenate([numbers / self._step, products[np.triu_indices(self.numbers)] / self._step**2])

    def summary(self, sums: Floats, count: int, pseudo: float = _PSEUDO) -> Summary:
        """Return the mean numbers, with the spread of the releases."""
        products = np.zeros((self.numbers, self.numbers))
        products[np.triu_indices(self.numbers)] = sums[self.numbers :]
        mean = sums[: self.numbers] / count
        covariance = (products + np.triu(products, 1).T) / count - np.outer(mean, mean)
        return Summary(self._step * mean, self._step**2 * covariance / count)


@dataclass(frozen=True)
class Grid:
    """Numbers of the releases of two classes in the cells of a grid, and the likelihood of shares given these."""

    mechanism: SimplexGaussian

    @property
    def _ends(self) -> list[tuple[int, int, int]]:
        """Start, width and number of the cells along each axis; the outermost cells are unbounded."""
        height = self.mechanism.height
        # The grid reaches 3.5 standard deviations of noise beyond the vertices.
        ends = [(-height - 5 * WIDTH, height + 5 * WIDTH, _ACROSS)]
        if self.mechanism.vertices == 3:
            ends.append((-height - 9 * WIDTH, 2 * height + 9 * WIDTH, _DOWN))
        return [(start, -(-(stop - start) // cells), cells) for start, stop, cells in ends]

    @property
    def size(self) -> int:
        """Number of integers that are summed."""
        return math.prod(cells for _, _, cells in self._ends)

    @property
    def longest(self) -> float:
        """Largest change of a share by replacing one release, times the number of releases."""
        even = np.full(self.mechanism.vertices, 1.0 / self.mechanism.vertices)
        return float(np.ptp(self._weights(even), axis=1).max())

    @property
    def variance(self) -> float:
        """Variance of a share that is estimated from one release."""
        return Points(self.mechanism).variance

    def add(self, payloads: Integers) -> Integers:
        """Return the numbers of releases in the cells."""
        axes, cells = _axes(payloads), np.zeros(len(payloads), dtype=np.int64)
        for values, (start, width, number) in zip(axes.T, self._ends, strict=True):
            cells = cells * number + np.clip((values - start) // width, 0, number - 1)
        return np.bincount(cells, minlength=self.size).astype(np.int64)

    @cached_property
    def chances(self) -> Floats:
        """Probability of each cell for each vertex, (k, cells)."""
        # Loading SciPy is slow, and most processes do not need it.
        from scipy.special import ndtr

        height, tables = self.mechanism.height, []
        means = [np.array([-height, height, 0]), np.array([-height, -height, 2 * height])]
        for axis, (start, width, number) in enumerate(self._ends):
            edges = start + width * np.arange(1, number) - 0.5
            spread = WIDTH * math.sqrt(2.0 if axis == 0 else 6.0)
            below = ndtr((edges[None, :] - means[axis][: self.mechanism.vertices, None]) / spread)
            whole = np.column_stack([np.zeros(len(below)), below, np.ones(len(below))])
            tables.append(np.diff(whole, axis=1))
        if len(tables) == 1:
            return np.asarray(tables[0])
        return np.asarray((tables[0][:, :, None] * tables[1][:, None, :]).reshape(len(tables[0]), -1))

    def _weights(self, shares: Floats) -> Floats:
        """Return weights of cells (k, cells), whose means over releases are the shares, of least variance at them."""
        per = self.chances / np.maximum(shares @ self.chances, 1e-300)
        return np.asarray(np.linalg.solve(per @ self.chances.T, per))

    def summary(self, sums: Floats, count: int) -> Summary:
        """Return the shares by scores of the likelihood; for any fixed weights they are unbiased."""
        at = np.full(self.mechanism.vertices, 1.0 / self.mechanism.vertices)
        for _ in range(_STEPS):
            weights = self._weights(at)
            shares = weights @ sums / count
            squares = (weights * (at @ self.chances)) @ weights.T
            covariance = (squares - np.outer(shares, shares)) / count
            # Shares are raised to their error: at smaller shares the weights would depend on noise.
            error = np.sqrt(np.maximum(np.diag(covariance), 1.0 / count**2))
            at = np.maximum(shares, error)
            at /= at.sum()
        return Summary(shares, (covariance + covariance.T) / 2.0)


@dataclass(frozen=True)
class Grouped:
    """Number of releases of each group, which their first number names, and the sums of their further numbers."""

    mechanism: Any
    inner: Any  # statistics of a group

    @property
    def groups(self) -> int:
        """Number of groups."""
        return int(self.mechanism.cells)

    @property
    def size(self) -> int:
        """Number of integers that are summed."""
        return self.groups * (1 + int(self.inner.size))

    @property
    def longest(self) -> float:
        """Largest change of a number of one group by replacing one release, times the number of releases."""
        return float(self.inner.longest)

    @property
    def variance(self) -> float:
        """Variance of a group's number that is estimated from one release of the group."""
        return float(self.inner.variance)

    def add(self, payloads: Integers) -> Integers:
        """Return the numbers and sums by group."""
        order = np.argsort(payloads[:, 0], kind="stable")
        groups, starts = np.unique(payloads[order, 0], return_index=True)
        sums = np.zeros((self.groups, 1 + self.inner.size), dtype=np.int64)
        for group, rows in zip(groups, np.split(order, starts[1:]), strict=True):
            sums[group, 0] = len(rows)
            sums[group, 1:] = self.inner.add(payloads[rows, 1:])
        return sums.ravel()

    def by_group(self, sums: Floats) -> tuple[Floats, Floats]:
        """Return the number of releases (groups,) and the sums (groups, size) of each group."""
        by_group = sums.reshape(self.groups, -1)
        return by_group[:, 0], by_group[:, 1:]

    def summary(self, sums: Floats, count: int) -> Summary:
        """Return the estimate for all groups together."""
        summary: Summary = self.inner.summary(self.by_group(sums)[1].sum(axis=0), count)
        return summary


@dataclass(frozen=True)
class Thresholds(Grouped):
    """`Grouped` by threshold: shares of people at or below it, of those above, and of missing targets."""

    mechanism: ThresholdMechanism
    inner: Subsets | Points

    groups = THRESHOLDS

    def shares(self, sums: Floats) -> tuple[Floats, Floats]:
        """Return numbers of releases by threshold (t,), and the estimated shares (t, k) multiplied by these numbers."""
        counts, totals = self.by_group(sums)
        used = np.maximum(counts, 1.0)
        return counts, counts[:, None] * self.inner.mechanism.decode(totals / used[:, None])


@dataclass(frozen=True)
class Cells(Grouped):
    """`Grouped` by cell of known columns."""

    mechanism: KnownMechanism
    inner: Subsets | Points | Windows | Numbers | Products  # of a cell's private numbers


@dataclass(frozen=True)
class Drawn:
    """Sums of the releases of the target, and of those of each metric."""

    parts: tuple[Cells, ...]

    @property
    def size(self) -> int:
        """Number of integers."""
        return sum(part.size for part in self.parts)

    @property
    def longest(self) -> float:
        """Largest change of the target's number of a cell by replacing one release, times the number of releases."""
        return self.parts[0].longest

    @property
    def variance(self) -> float:
        """Variance of the target's number per release, as only one of several releases is of the target."""
        return self.parts[0].variance * len(self.parts)

    def add(self, payloads: Integers) -> Integers:
        """Return the sums of all parts."""
        sums = []
        for number, part in enumerate(self.parts):
            released = payloads[payloads[:, 0] == number, 1 : 1 + part.mechanism.dimension]
            sums.append(part.add(released) if len(released) else np.zeros(part.size, dtype=np.int64))
        return np.concatenate(sums)

    def split(self, sums: Sequence[int]) -> list[tuple[int, list[int]]]:
        """Return the number of releases of each part, and their sums."""
        pairs, start = [], 0
        for part in self.parts:
            of_part = list(sums[start : start + part.size])
            pairs.append((sum(of_part[:: 1 + part.inner.size]), of_part))
            start += part.size
        return pairs

    def summary(self, sums: Floats, count: int) -> Summary:
        """Return the estimate of the target for all cells together."""
        part = self.parts[0]
        of_target = np.asarray(sums)[: part.size]
        return part.summary(of_target, int(part.by_group(of_target)[0].sum()))
