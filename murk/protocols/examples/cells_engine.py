r"""One partition's learner of released cells, and the estimate from the sums of several.

With ``a = 1 / (p - q)`` and weights ``w = 1 / a^2`` of the releases, the share of cell c is estimated by

.. math:: h_c = \frac{1}{W} \sum_i w_i a_i (1[\tilde c_i = c] - q_i)

The coefficients minimise ``sum_c h_c f(theta; c)``. Their covariance is the sandwich ``A^-1 S A^-1``, where A is the
Hessian and S the covariance of the gradient at the estimate, both exact functions of the released cells.

A rare cell that nobody has released yet adds nothing to this S, though people may have it. So S is also computed from
the shares that cells would have if targets did not depend on features, clipped to intervals around their estimates. The
larger of the two covariances counts (`larger`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from murk._internal.arrays import Floats, Integers
from murk._internal.lazy import bounding
from murk._internal.links import class_probabilities, logistic
from murk._internal.locks import ForkSafeLock, locked
from murk._internal.wiping import track, wiped
from murk.inference.estimate import Estimate, larger
from murk.inference.levels import quantile_of
from murk.inference.poisoning import Influence
from murk.privacy.noise import NoiseSource
from murk.protocols.averages import NeverPublished
from murk.protocols.engine import RecordEngine
from murk.protocols.examples import losses
from murk.protocols.examples.admission import CellRules
from murk.protocols.examples.cells import CellMechanism, CellTable, cell_vectors, note_of
from murk.protocols.examples.estimate import SANDWICH
from murk.protocols.examples.layout import FIRST_REFRESH
from murk.protocols.examples.newton import TRUST
from murk.protocols.examples.settings import ExampleSettings
from murk.protocols.linear_algebra import contrasts
from murk.protocols.one_record import Held
from murk.protocols.options import chosen_noise, levels_of
from murk.stream.wire.columns import columns_of
from murk.stream.wire.releases import ExampleRelease
from murk.stream.wire.state import check_header, count_of, pack, reading, unpack

# Rows of the sums by cell: w a, (w a)^2 and (w a)^2 q.
FIRST, SECOND, THIRD = range(3)
# Sums over all releases: 1, w, w a q, w^2, (w a q)^2; and of the losses l at the reference: w l, (w l)^2, w^2 l.
COUNT, WEIGHT, SHIFT, SQUARES, SHIFTS, LOSS, LOSS_SQUARES, LOSS_CROSS, TOTALS = range(9)
_UNKNOWN = -1e300  # sum of squared losses if some losses are unknown; it stays negative, whatever is added
_NEVER = 2**62 - 1  # number of releases that no learner reaches
_BLOCK = 4096
_GROWTH = 8
_STEPS = 50
_CLOSE = 1e-10
# Linear predictors with standard errors below this limit leave the Hessian nearly as it is, along every direction and
# in any coding. A larger limit would be met by chance too often, since noise that increases a rare cell's share lowers
# its standard error and moves its estimate.
_SURE = 0.15
_PSEUDO = 2.0  # pseudo-releases of each value of the target, added to the real ones for pooled shares
_COMPATIBLE = 3.0  # standard errors up to which a share agrees with its estimate
_OF_CLASSES = "mean changes of each class's probability by the softmax model; over the classes they add up to 0"


@dataclass(frozen=True)
class CellSums:
    """Sums of released cells."""

    cells: Floats  # (3, classes)
    totals: Floats  # (TOTALS,)

    @property
    def shares(self) -> Floats:
        """Unbiased estimates of the cells' shares, (classes,)."""
        return np.asarray((self.cells[FIRST] - self.totals[SHIFT]) / self.totals[WEIGHT])

    def expected(self, shares: Floats) -> CellSums:
        """Return the expected sums of as many releases at the same levels, if cells have these ``shares``."""
        classes, (_, second, third) = len(shares), self.cells.sum(axis=1)
        weight, shift, shifts = self.totals[[WEIGHT, SHIFT, SHIFTS]]
        # Level by level a release is cell c with probability q + h_c / a, so sums over cells give sums over levels.
        rows = shift + weight * shares, third + (second - classes * third) * shares
        return CellSums(np.array([*rows, shifts + (third - classes * shifts) * shares]), self.totals)

    def compatible(self, shares: Floats) -> Floats:
        """Return ``shares``, each clipped to the Wilson interval of its estimate, `_COMPATIBLE` errors to each side.

        The variance of an estimated share h is ``(u + v h - s h^2) / W^2`` in the sums of `covariance`.
        """
        at, square = self.shares, (_COMPATIBLE / self.totals[WEIGHT]) ** 2
        none, whole = (self.expected(np.full(len(at), share)).cells for share in (0.0, 1.0))
        u = none[SECOND] - self.totals[SHIFTS]
        v = (whole - none)[SECOND] - 2.0 * (whole - none)[THIRD]
        lead, middle = 1.0 + square * self.totals[SQUARES], at + square * v / 2.0
        root = np.sqrt(np.maximum(middle**2 - lead * (at**2 - square * u), 0.0))
        return np.asarray(np.maximum(np.clip(shares, (middle - root) / lead, (middle + root) / lead), 0.0))

    def covariance(self, values: Floats) -> Floats:
        """Return the covariance (r, r) of the estimated mean of functions with ``values`` (classes, r)."""
        total, mean = values.sum(axis=0), self.shares @ values
        crossed = np.outer(self.cells[THIRD] @ values, total)
        square = (values * self.cells[SECOND][:, None]).T @ values - crossed - crossed.T
        square += self.totals[SHIFTS] * np.outer(total, total) - self.totals[SQUARES] * np.outer(mean, mean)
        return np.asarray(square / self.totals[WEIGHT] ** 2)


def _log(m: Floats) -> tuple[Floats, Floats, Floats]:
    right = logistic(m)
    return np.logaddexp(0.0, -m), right - 1.0, right * (1.0 - right)


def _exponential(m: Floats) -> tuple[Floats, Floats, Floats]:
    power = np.exp(np.minimum(-m, 300.0))
    return power, -power, power


def _probit(m: Floats) -> tuple[Floats, Floats, Floats]:
    root = math.sqrt(losses.LOGIT_WIDTH)
    wrong = np.array([0.5 * math.erfc(each) for each in m / (root * math.sqrt(2.0))])
    density = np.exp(-0.5 * (m / root) ** 2) / (root * math.sqrt(2.0 * math.pi))
    return losses.LOGIT_WIDTH * density - m * wrong, -wrong, density


# Loss of a margin ``y z``, with its first two derivatives.
_BY_MARGIN = {"log": _log, "exponential": _exponential, "probit": _probit}


@dataclass(frozen=True)
class CellLoss:
    """The loss of a table of cells."""

    table: CellTable
    settings: ExampleSettings

    @cached_property
    def basis(self) -> Floats:
        """Matrix (K, c) from a cell's c linear predictors to the K classes' scores; of two labels they are 0 and z."""
        labels = self.settings.labels
        return contrasts(len(labels)) if labels else np.array([[0.0], [1.0]])

    @cached_property
    def _groups(self) -> tuple[Integers, Integers, Floats]:
        """Numbers of each cell's group by features and group by target (classes,), and of the cells that share both."""
        (_, features), (_, targets) = (
            np.unique(values, axis=0, return_inverse=True) for values in (self.table.X, self.table.y)
        )
        both = np.unique(np.column_stack([features, targets]), axis=0, return_inverse=True, return_counts=True)
        return features, targets, both[2][both[1]].astype(np.float64)

    def pooled(self, sums: CellSums) -> CellSums:
        """Return sums expected if targets did not depend on features, with shares `compatible` with the releases."""
        features, targets, alike = self._groups
        shares, present = sums.shares, ~np.isnan(self.table.y)
        known = shares * present
        of_features, of_targets = (np.maximum(np.bincount(each, known), 0.0) for each in (features, targets))
        of_targets[np.unique(targets[present])] += _PSEUDO * sums.totals[SQUARES] / sums.totals[WEIGHT] ** 2
        apart = of_features[features] * of_targets[targets] / alike * present
        apart *= max(float(known.sum()), 0.0) / max(float(apart.sum()), 1e-300)
        return sums.expected(sums.compatible(np.where(present, apart, shares)))

    @property
    def named(self) -> Floats:
        """The rows of `basis` of classes with named coefficients: all classes, or the positive one of two labels."""
        return self.basis if self.settings.labels else self.basis[1:]

    def chances(self, theta: Floats) -> Floats:
        """Return the probabilities of the classes in each cell, (classes, K)."""
        return class_probabilities(self.table.X @ theta.reshape(-1, self.settings.features).T, self.basis)

    def at(self, theta: Floats) -> tuple[Floats, Floats, Floats]:
        """Return each cell's loss (classes,), its gradient (classes, d), and ``bend``, which `hessian` needs.

        The d coefficients are c rows of p: one row, or the K - 1 contrasts A of K classes, whose scores are ``B A x``.
        ``bend`` is the factor of ``x x'`` in the Hessian (classes,) or, for K classes, their probabilities (classes,
        K): a factor for every pair of contrasts would not fit into memory.
        """
        X, y = self.table.X, np.nan_to_num(self.table.y)
        known = ~np.isnan(self.table.y)
        if self.settings.labels:
            chances, is_class, basis = self.chances(theta), np.eye(len(self.basis))[y.astype(int)], self.basis
            loss = -np.log(np.maximum((chances * is_class).sum(axis=1), 1e-300))
            slope, bend = (chances - is_class) @ basis, chances * known[:, None]
        else:
            z = X @ theta
            if self.settings.loss in ("quadratic", "squared"):
                loss, slope, bend = 0.5 * (z - y) ** 2, z - y, np.ones(len(z))
            else:
                loss, slope, bend = _BY_MARGIN[self.settings.loss](y * z)
                # y is 0 if a feature is the model's target, and its value is missing.
                slope, bend = y * slope, y * y * bend
            slope, bend = slope[:, None], bend * known
        gradient = (slope * known[:, None])[:, :, None] * X[:, None, :]
        return loss * known, gradient.reshape(len(X), -1), bend

    def hessian(self, shares: Floats, bend: Floats) -> Floats:
        """Return the sum of the cells' Hessians with weights ``shares``, (d, d)."""
        X, p = self.table.X, self.settings.features
        if not self.settings.labels:
            return np.asarray((X * (shares * bend)[:, None]).T @ X)
        # With G of rows (p_1 x', ..., p_K x') it is diag_k(X' p_k X) - G' G, in the coordinates of contrasts.
        stacked = _beside(bend, X)
        weighted = stacked * shares[:, None]
        whole = -(stacked.T @ weighted).reshape(len(self.basis), p, -1, p)
        each = np.arange(len(self.basis))
        whole[each, :, each] += (weighted.T @ X).reshape(-1, p, p)
        turned = np.tensordot(self.basis, whole, (0, 0))
        return np.asarray(
            np.tensordot(turned, self.basis, (2, 0)).transpose(0, 1, 3, 2).reshape(2 * [self.settings.size])
        )

    def factors(self, bend: Floats) -> Floats:
        """Return the norm of what multiplies ``x x'`` in each cell's Hessian, (classes,)."""
        square = bend**2
        if self.settings.labels:
            # The squared norm of diag(p) - p p', as contrasts are orthonormal.
            square = (square * (1.0 - 2.0 * bend)).sum(axis=1) + square.sum(axis=1) ** 2
        return np.asarray(np.sqrt(square))

    def minimise(self, shares: Floats, ridge: float, start: Floats) -> tuple[Floats, bool]:
        """Minimise the mean loss by damped Newton steps; return the last point and whether it is a minimum."""
        theta, free = start.copy(), self.free
        for _ in range(_STEPS):
            _, slope, bend = self.at(theta)
            matrix = self.hessian(shares, bend) + ridge * np.eye(len(theta))
            step, pull = np.zeros(len(theta)), (shares @ slope + ridge * theta)[free]
            if self.settings.labels:
                block = matrix[np.ix_(free, free)]
                try:
                    # Cholesky's factorization tests definiteness much faster than hundreds of eigenvalues would.
                    np.linalg.cholesky(block)
                    step[free] = np.linalg.solve(block, pull)
                except np.linalg.LinAlgError:
                    return theta, False
            else:
                values, vectors = np.linalg.eigh(matrix[np.ix_(free, free)])
                if not values[0] > 0.0:
                    return theta, False
                step[free] = (vectors / values) @ (vectors.T @ pull)
            length = float(np.linalg.norm(step))
            theta = theta - step * min(1.0, 1.0 / max(length, 1e-300))
            if length < _CLOSE:
                return theta, bool(np.linalg.norm(theta) <= (self.settings.radius or math.inf))
        return theta, False

    @property
    def free(self) -> Integers:
        """Positions of the learned coefficients."""
        p = self.settings.features
        learned = np.arange(p) < p - (not self.settings.intercept)
        return np.flatnonzero(np.tile(learned, self.basis.shape[1]))

    def fit(self, sums: CellSums) -> CellFit:
        """Return the minimum of the estimated loss; without one, the minimum with negative shares set to 0."""
        ridge, shares, d = self.settings.regularization, sums.shares, self.settings.size
        positive = np.maximum(shares, 0.0)
        start, _ = self.minimise(positive / positive.sum(), max(ridge, 1e-3), np.zeros(d))
        theta, is_minimum = self.minimise(shares, ridge, start)
        if not is_minimum:
            theta = start * min(1.0, (self.settings.radius or math.inf) / max(float(np.linalg.norm(start)), 1e-300))
        _, slope, bend = self.at(theta)
        mean, total, crossed = (self.hessian(each, bend) for each in (shares, np.ones(len(bend)), sums.cells[THIRD]))
        values, vectors = np.linalg.eigh((mean + ridge * np.eye(d))[np.ix_(self.free, self.free)])
        factors = self.factors(bend)
        # The summed variance of the mean Hessian's entries, as in `CellSums.covariance`.
        square = float(sums.cells[SECOND] @ (factors * (self.table.X**2).sum(axis=1)) ** 2) - 2.0 * float(
            (crossed * total).sum()
        )
        square += sums.totals[SHIFTS] * float((total**2).sum()) - sums.totals[SQUARES] * float((mean**2).sum())
        # About how far noise moves eigenvalues: 2 sqrt(d) times the error of one entry.
        noise = 2.0 * math.sqrt(max(square, 0.0) / d) / float(sums.totals[WEIGHT])
        fit = CellFit(theta, slope, values, noise)
        if not (is_minimum and values[0] > 0.0):
            return fit
        inverse = np.zeros((d, d))
        inverse[np.ix_(self.free, self.free)] = (vectors / values) @ vectors.T
        pulled = slope @ inverse
        lengths = ((self.table.X @ self._features_part(inverse)) * self.table.X).sum(axis=1)
        turns = float((factors * lengths).max()), float(np.abs(np.linalg.eigvals(inverse @ total)).max())
        pooled = self.pooled(sums)
        covariance = larger(sums.covariance(pulled), pooled.covariance(pulled))
        error = self.error(covariance)
        determined = bool(values[0] > TRUST * noise) or error < _SURE
        return replace(
            fit, turns=turns, pooled=pooled, pulled=pulled, covariance=covariance, error=error, determined=determined
        )

    def _features_part(self, matrix: Floats) -> Floats:
        """Return the sum of a matrix's diagonal blocks, (p, p): one for each row of coefficients."""
        p = self.settings.features
        return np.asarray(np.einsum("kikj->ij", matrix.reshape(-1, p, len(matrix) // p, p)))

    def error(self, covariance: Floats) -> float:
        """Return the largest standard error of a linear predictor, over cells and named classes."""
        X, p = self.table.X, self.settings.features
        half = np.tensordot(self.named, covariance.reshape(-1, p, len(covariance) // p, p), 1)
        each = np.einsum("kibj,kb->kij", half, self.named)
        return math.sqrt(max(float(((X @ matrix) * X).sum(axis=1).max()) for matrix in each))


@dataclass(frozen=True)
class CellFit:
    """Coefficients fitted to sums."""

    theta: Floats
    slope: Floats  # gradient of each cell's loss (classes, d)
    values: Floats  # eigenvalues of the mean Hessian
    noise: float  # about how far noise moves these eigenvalues
    # bounds on the eigenvalues of a cell's Hessian, and of the sum of all, relative to the mean Hessian
    turns: tuple[float, float] = (math.inf, math.inf)
    pulled: Floats | None = None  # gradients times the inverse Hessian (classes, d), if there is a minimum
    pooled: CellSums | None = None  # sums of `CellLoss.pooled`
    covariance: Floats | None = None  # covariance of the coefficients (d, d)
    error: float = math.inf  # largest standard error of a cell's linear predictor
    determined: bool = False  # whether the releases determine the coefficients


@dataclass(frozen=True)
class CellEstimate(Estimate):
    """An estimate that, for log odds, has average effects on the probability, or on each of several classes'."""

    average: Floats | None = None
    average_covariance: Floats | None = None

    def effects(self, level: float = 0.95) -> tuple[Floats, Floats] | None:
        """Return average marginal effects on the probability and half-widths; None for other losses than log."""
        if self.average is None or self.average_covariance is None:
            return None
        errors = np.sqrt(np.maximum(np.diag(self.average_covariance), 0.0))
        return self.average, quantile_of(level) * errors

    def combined_effect(self, weights: Floats, level: float = 0.95) -> tuple[float, float] | None:
        """Return a weighted sum of `effects` and its half-width, from the effects' covariance."""
        if self.average is None or self.average_covariance is None:
            return None
        used = np.flatnonzero(weights)
        variance = float(weights[used] @ self.average_covariance[np.ix_(used, used)] @ weights[used])
        return float(weights @ self.average), quantile_of(level) * math.sqrt(max(variance, 0.0))

    @property
    def effects_note(self) -> str:
        """Definition of average effects of several classes; empty for others."""
        return _OF_CLASSES if self.average is not None and ":" in self.names[-1] else ""


class CellEngine(NeverPublished, RecordEngine):
    """Sums of released cells on one partition; noise is secure unless ``seed`` or ``noise`` is given."""

    kind = "example"
    dimension = 1
    refused_updates = 0

    def __init__(
        self,
        settings: ExampleSettings,
        mechanisms: Mapping[str, CellMechanism],
        *,
        table: CellTable | None = None,
        seed: int | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        assert settings.cells is not None
        self.settings, self.mechanisms = settings, mechanisms
        self.admission = CellRules(mechanisms, settings.cells.classes)
        self._loss = CellLoss(table or CellTable.of(settings.cells), settings)
        self._turns = ForkSafeLock()
        self._noise = chosen_noise(seed, noise)
        self.sums = CellSums(np.zeros((3, settings.cells.classes)), np.zeros(TOTALS))
        self.reference = np.zeros(settings.size)
        self._next = FIRST_REFRESH
        self._hold(Held(None), None)
        self._look()

    def _look(self) -> None:
        self._losses = self._loss.at(self.reference)[0]

    @property
    def n_releases(self) -> int:
        """Number of releases learned."""
        return int(self.sums.totals[COUNT])

    def snapshot(self) -> CellEngine:
        """Return this engine: estimates copy what they use."""
        return self

    def use(self, mechanism: CellMechanism) -> None:
        """Randomize the next records by ``mechanism``."""
        self.current = mechanism

    @property
    def coefficients(self) -> int:
        """Number of coefficients."""
        return len(self.settings.coefficients)

    @property
    def iterate(self) -> Floats:
        """The newest coefficients used for predictions."""
        return self.reference

    average = iterate

    def _learn_block(self, X: Floats, y: Floats) -> None:
        self._learn_records(X, y, [self.current or self.mechanisms["default"]])

    @locked
    def learn_records(self, X: Floats, y: Floats, mechanisms: Sequence[CellMechanism]) -> None:
        """Randomize coded records (m, p), the constant last or left out, by one mechanism each or for all; learn."""
        self._learn_records(X, y, mechanisms)

    @wiped
    def _learn_records(self, X: Floats, y: Floats, mechanisms: Sequence[CellMechanism]) -> None:
        distinct, levels = levels_of(mechanisms)
        if len(mechanisms) == 1:
            levels = np.zeros(len(X), dtype=np.int64)
        for start in range(0, len(X), _BLOCK):
            block = slice(start, min(start + _BLOCK, len(X)))
            vectors = cell_vectors(X[block], y[block], self.settings.features, self.settings.target)
            records = np.arange(self.n_releases, self.n_releases + len(vectors), dtype=np.int64)
            cells = np.empty(len(vectors), dtype=np.int64)
            for index, mechanism in enumerate(distinct):
                at_level = levels[block] == index
                if at_level.any():
                    cells[at_level] = mechanism.randomize(track(vectors[at_level]), self._noise, records[at_level])[
                        :, 0
                    ]
            self._learn(cells, levels[block], distinct)

    @locked
    def learn_releases(self, releases: Sequence[ExampleRelease]) -> None:
        """Learn from admitted releases in turn."""
        if not releases:
            return
        columns = columns_of(releases)
        levels, index = columns.levels()
        self._learn(columns.rows(1)[:, 0], index, [self.mechanisms[level] for level in levels])

    def _learn(self, cells: Integers, levels: Integers, mechanisms: Sequence[CellMechanism]) -> None:
        rows = np.array([_weights(each) for each in mechanisms])
        start = 0
        while start < len(cells):
            stop = min(len(cells), start + self._next - self.n_releases)
            self._add(cells[start:stop], rows[levels[start:stop]])
            if self.n_releases == self._next:
                self._next += max(self.n_releases // _GROWTH, 1)
                fit = self._loss.fit(self.sums)
                self.reference = fit.theta * fit.determined
                self._look()
            start = stop

    def _add(self, cells: Integers, rows: Floats) -> None:
        """Add releases with their `_weights`, one after the other, so that sums do not depend on batches."""
        gain, other, weight = rows.T
        loss = gain * (self._losses[cells] - other * self._losses.sum())
        pull, shift = weight * gain, weight * gain * other
        by_cell = (pull, pull**2, pull**2 * other)
        totals = (np.ones(len(cells)), weight, shift, weight**2, shift**2)
        of_loss = (weight * loss, (weight * loss) ** 2, weight**2 * loss)
        # All sums are replaced at once, so that readers and interrupts see either the old sums or the new ones.
        sums = CellSums(self.sums.cells.copy(), self.sums.totals.copy())
        for row, values in enumerate(by_cell):
            np.add.at(sums.cells[row], cells, values)
        for index, values in enumerate((*totals, *of_loss)):
            np.add.at(sums.totals, np.full(len(cells), index), values)
        self.sums = sums

    def add(self, mechanism: CellMechanism, counts: Integers) -> None:
        """Add simulated releases of a mechanism, ``counts`` (classes,) of each cell, without figures of the loss."""
        gain, other, weight = _weights(mechanism)
        pull, shift, n = weight * gain, weight * gain * other, float(counts.sum())
        by_cell = np.array([pull, pull**2, pull**2 * other])
        totals = np.zeros(TOTALS)
        totals[[COUNT, WEIGHT, SHIFT, SQUARES, SHIFTS]] = n, n * weight, n * shift, n * weight**2, n * shift**2
        self.sums = CellSums(self.sums.cells + by_cell[:, None] * counts, self.sums.totals + totals)

    def adopt(self, whole: CellEngine) -> None:
        """Continue from the sums of another model's learner of the same releases, without figures of its loss."""
        self.sums, self._next = CellSums(whole.sums.cells.copy(), _without_losses(whole.sums.totals)), whole._next

    joins = True

    def begin_part(self) -> None:
        """Leave out the figures of the loss, whose reference depends on the order of releases."""
        self.sums, self._next = CellSums(self.sums.cells, _without_losses(self.sums.totals)), _NEVER

    def join(self, later: CellEngine) -> None:
        """Add the sums of another learner of the same model."""
        sums = self.sums.cells + later.sums.cells, self.sums.totals + later.sums.totals
        self.sums = CellSums(sums[0], _without_losses(sums[1]))

    def estimate(self) -> Estimate:
        """Return the coefficients in coded units, with standard errors."""
        return estimate([self])

    @property
    def unbiased_loss(self) -> tuple[float, float]:
        """Mean and standard error of the unbiased losses, each at `reference` before its release was learned."""
        total = self.sums.totals
        if not total[WEIGHT] > 0.0 or total[LOSS_SQUARES] < 0.0:
            return math.nan, math.nan
        mean = total[LOSS] / total[WEIGHT]
        left = total[LOSS_SQUARES] - 2.0 * mean * total[LOSS_CROSS] + mean**2 * total[SQUARES]
        return float(mean), math.sqrt(max(float(left), 0.0)) / float(total[WEIGHT])

    def figures(self) -> dict[str, float]:
        """Return figures of progress, which depend on releases and public settings alone."""
        loss, error = self.unbiased_loss
        return {"unbiased_loss": loss, "unbiased_loss_error": error} if math.isfinite(loss) else {}

    @locked
    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as plain data; once loaded, learning continues bit for bit."""
        return {
            "schema": 1,
            "settings": self.settings.digest,
            "dimension": self.settings.features,
            "next_refresh": self._next,
            "cells": pack(self.sums.cells.ravel()),
            "totals": pack(self.sums.totals),
            "reference": pack(self.reference),
        }

    @locked
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state from :meth:`state_dict`. Raises MurkError if the state is malformed or for other settings."""
        p, classes = self.settings.features, len(self._losses)
        with reading():
            check_header(state, self.settings.digest, "dimension", p)
            sums = CellSums(unpack(state["cells"], 3 * classes).reshape(3, -1), unpack(state["totals"], TOTALS))
            following = count_of(state["next_refresh"], "next_refresh")
            reference = unpack(state["reference"], self.settings.size)
        self.sums, self.reference = sums, reference
        self._next = max(following, self.n_releases + 1)
        self._look()


def _without_losses(totals: Floats) -> Floats:
    """Return the sums over all releases with the losses marked as unknown."""
    totals = totals.copy()
    totals[[LOSS, LOSS_SQUARES, LOSS_CROSS]] = 0.0, _UNKNOWN, 0.0
    return totals


def _weights(mechanism: CellMechanism) -> tuple[float, float, float]:
    """Return a, q and w of a mechanism, as in the module's equation."""
    return mechanism.gain, mechanism.other, mechanism.gain**-2


def estimate(engines: Sequence[CellEngine]) -> Estimate:
    """Return the joint estimate of one or more partitions with the same settings."""
    first = engines[0]
    settings, fitted = first.settings, first._loss  # noqa: SLF001
    n, names = sum(engine.n_releases for engine in engines), settings.coefficients
    zero, none = np.zeros(len(names)), np.full(len(names), math.inf)
    result = CellEstimate(names, zero, SANDWICH, none, "none: nothing was learned yet", len(engines), n)
    if settings.loss == "log":
        result = replace(result, average=zero, average_covariance=np.diag(none))
    if n == 0:
        return result
    sums = CellSums(sum(each.sums.cells for each in engines), sum(each.sums.totals for each in engines))  # type: ignore[arg-type]
    fit = fitted.fit(sums)
    shown = np.kron(fitted.named, np.eye(settings.features))
    if not fit.determined or fit.pulled is None or fit.pooled is None or fit.covariance is None:
        why = (
            f"The smallest eigenvalue of their mean Hessian is {fit.values[0]:.3g}, and noise alone moves it by about "
            f"{fit.noise:.3g}"
        )
        if fit.error < math.inf:
            why += f". Standard errors of cells' linear predictors are up to {fit.error:.2g}, and not below {_SURE:g}"
        if fit.values[0] > TRUST * fit.noise:
            why = (
                f"Their estimated loss has no minimum within the radius {settings.radius:g}: give a larger one, or "
                "regularization if the features separate the labels"
            )
        note = f"none: these releases do not determine the coefficients. {why}"
        return replace(result, values=shown @ fit.theta, note=note)
    covariance = shown @ fit.covariance @ shown.T
    if settings.loss == "log":
        average, moved = _average_effects(sums, fitted, fit.theta, fit.pulled)
        spread = larger(sums.covariance(moved), fit.pooled.covariance(moved))
        result = replace(result, average=average, average_covariance=spread)
    note, most = f"standard errors of cells' linear predictors are at most {fit.error:.2g}", f"{_SURE:g}"
    if fit.values[0] > TRUST * fit.noise:
        note = f"noise moves the mean Hessian by about {fit.noise / fit.values[0]:.0%} of its smallest eigenvalue"
        most = f"{1 / TRUST:.0%}"
    note += f"; from {most} on there is no interval (docs/iwp-sgd.md){note_of(settings.names, fitted.table.rounded)}"
    spread = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    values, influence = shown @ fit.theta, _influence(engines, sums, fit)
    return replace(result, values=values, spread=spread, note=note, covariance=covariance, influence=influence)


def _average_effects(sums: CellSums, loss: CellLoss, theta: Floats, pulled: Floats) -> tuple[Floats, Floats]:
    """Return the mean of ``p_k v_kj`` over people with a target, by named coefficient, and each cell's influence.

    ``p_k`` is the probability of class k, ``v_kj = b_kj - sum_l p_l b_lj`` with the coefficients ``b = B A``, and
    ``pulled`` is each cell's gradient times the inverse Hessian. By the delta method, with ``m = p B``,
    derivatives in ``A_ci`` are ``p_k [(B_kc - m_c) (v_kj x_i + 1[i = j]) - x_i sum_l p_l v_lj B_lc]``.
    """
    X, basis, p = loss.table.X, loss.named, loss.settings.features
    y, chances = loss.table.y, loss.chances(theta)[:, -len(basis) :]
    # 0 also for a missing value of a feature that is a model's target.
    known = ~np.isnan(y) * 1.0 if loss.settings.labels else np.nan_to_num(y) ** 2
    mass = float(sums.shares @ known)
    rows, middle = basis @ theta.reshape(-1, p), chances @ basis
    each = chances[:, :, None] * (rows - (chances @ rows)[:, None, :]) * known[:, None, None]
    crossed = np.tensordot(each, basis, (1, 0)).transpose(0, 2, 1).reshape(len(X), -1)
    each = each.reshape(len(X), -1)
    mean = sums.shares @ each / mass
    weights = (sums.shares * known / mass)[:, None]
    shape, weighted, likely = (len(basis), p, -1, p), each * weights, chances * weights
    turned = -(_beside(likely, X).T @ crossed).reshape(shape).transpose(0, 3, 2, 1)
    turned -= (weighted.T @ _beside(middle, X)).reshape(shape)
    turned += (weighted.T @ X).reshape(len(basis), p, 1, p) * basis[:, None, :, None]
    shifts = likely.sum(axis=0)[:, None] * basis - likely.T @ middle
    turned += shifts[:, None, :, None] * np.eye(p)[:, None, :]
    moved = (each - np.outer(known, mean)) / mass - pulled @ turned.reshape(mean.size, -1).T
    return mean, moved


def _beside(factors: Floats, X: Floats) -> Floats:
    """Return each row of X times each of the row's ``factors`` (m, K), side by side, (m, K p)."""
    return np.asarray((factors[:, :, None] * X[:, None, :]).reshape(len(X), -1))


def _influence(engines: Sequence[CellEngine], sums: CellSums, fit: CellFit) -> Influence:
    """Return bounds on how far one forged cell moves an estimate, by its gradient and by its Hessian there.

    A gradient g moves no combination of coefficients by more than ``sqrt(g' M^-1 g)`` of the standard errors that
    gradients of covariance M give.
    """
    meat = sums.covariance(fit.slope) * sums.totals[WEIGHT] ** 2
    if not float(np.linalg.eigvalsh(meat)[0]) > 0.0:
        return Influence(math.inf, math.inf)
    turn, turns = fit.turns
    moved = turned = 0.0
    for gain, other, weight in map(_weights, bounding(engines[0].mechanisms).values()):
        slopes = weight * gain * (fit.slope + other * fit.slope.sum(axis=0))
        moved = max(moved, float(np.sum(slopes.T * np.linalg.solve(meat, slopes.T), axis=0).max()))
        turned = max(turned, weight * gain * (turn + other * turns))
    return Influence(math.sqrt(moved), turned / float(sums.totals[WEIGHT]))
