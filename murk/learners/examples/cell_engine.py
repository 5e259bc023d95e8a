r"""One chain's learner of released cells, and the estimate from the sums of several.

With ``a = 1 / (p - q)`` and weights ``w = 1 / a^2`` of the releases, the share of cell c is estimated by

.. math:: h_c = \frac{1}{W} \sum_i w_i a_i (1[\tilde c_i = c] - q_i)

The coefficients minimise ``sum_c h_c f(theta; c)``. Their covariance is the sandwich ``A^-1 S A^-1``, where A is the
Hessian and S the covariance of the gradient at the estimate, both exact functions of the released cells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from murk._arrays import Floats, Integers
from murk._lazy import bounding
from murk._scratch import keep, wiped
from murk._turns import Turns, in_turn
from murk.learners.core.engine import NeverPublished
from murk.learners.core.in_place import Held, RecordEngine
from murk.learners.core.options import chosen_noise, levels_of
from murk.learners.estimates.estimate import Estimate
from murk.learners.estimates.forgers import Influence
from murk.learners.estimates.links import logistic
from murk.learners.examples import losses
from murk.learners.examples.cells import CellMechanism, CellTable, cell_vectors
from murk.learners.examples.inference import SANDWICH
from murk.learners.examples.polish import FIRST_REFRESH, TRUST
from murk.learners.examples.settings import ExampleSettings
from murk.privacy.noise import NoiseSource
from murk.stream.messages.codec import RejectedError
from murk.stream.messages.releases import ExampleRelease
from murk.stream.messages.state import check_header, count_of, pack, reading, unpack
from murk.stream.messages.wire import block_of

# Rows of the sums by cell: w a, (w a)^2 and (w a)^2 q.
FIRST, SECOND, THIRD = range(3)
# Sums over all releases: 1, w, w a q, w^2, (w a q)^2; and of the losses l at the reference: w l, (w l)^2, w^2 l.
COUNT, WEIGHT, SHIFT, SQUARES, SHIFTS, LOSS, LOSS_SQUARES, LOSS_CROSS, TOTALS = range(9)
_BLOCK = 4096
_GROWTH = 8
_STEPS = 50
_CLOSE = 1e-10


@dataclass(frozen=True)
class CellSums:
    """Sums of released cells."""

    cells: Floats  # (3, classes)
    totals: Floats  # (TOTALS,)

    @property
    def shares(self) -> Floats:
        """Unbiased estimates of the cells' shares, (classes,)."""
        return np.asarray((self.cells[FIRST] - self.totals[SHIFT]) / self.totals[WEIGHT])

    def covariance(self, values: Floats) -> Floats:
        """Return the covariance (r, r) of the estimated mean of functions with ``values`` (classes, r)."""
        total, mean = values.sum(axis=0), self.shares @ values
        crossed = np.outer(self.cells[THIRD] @ values, total)
        square = (values * self.cells[SECOND][:, None]).T @ values - crossed - crossed.T
        square += self.totals[SHIFTS] * np.outer(total, total) - self.totals[SQUARES] * np.outer(mean, mean)
        return np.asarray(square / self.totals[WEIGHT] ** 2)

    def variances(self, values: Floats) -> Floats:
        """Return the diagonal of `covariance`."""
        total, mean = values.sum(axis=0), self.shares @ values
        square = self.cells[SECOND] @ values**2 - 2.0 * (self.cells[THIRD] @ values) * total
        square += self.totals[SHIFTS] * total**2 - self.totals[SQUARES] * mean**2
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

    def at(self, theta: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the loss (classes,) of each cell, its gradient (classes, p) and its factor of ``x x'`` (classes,)."""
        X, y = self.table.X, np.nan_to_num(self.table.y)
        known = ~np.isnan(self.table.y)
        z = X @ theta
        if self.settings.loss in ("quadratic", "squared"):
            loss, slope, bend = 0.5 * (z - y) ** 2, z - y, np.ones(len(z))
        else:
            loss, slope, bend = _BY_MARGIN[self.settings.loss](y * z)
            # A missing value of a feature that is a model's target is 0.
            slope, bend = y * slope, y * y * bend
        return loss * known, (slope * known)[:, None] * X, bend * known

    def minimise(self, shares: Floats, ridge: float, start: Floats) -> tuple[Floats, bool]:
        """Minimise the mean loss by damped Newton steps; return the last point and whether it is a minimum."""
        theta, free = start.copy(), self.free
        for _ in range(_STEPS):
            _, slope, bend = self.at(theta)
            matrix = self._mixed(shares * bend) + ridge * np.eye(len(theta))
            values, vectors = np.linalg.eigh(matrix[:free, :free])
            if not values[0] > 0.0:
                return theta, False
            step = np.zeros(len(theta))
            step[:free] = (vectors / values) @ (vectors.T @ (shares @ slope + ridge * theta)[:free])
            length = float(np.linalg.norm(step))
            theta = theta - step * min(1.0, 1.0 / max(length, 1e-300))
            if length < _CLOSE:
                return theta, bool(np.linalg.norm(theta) <= (self.settings.radius or math.inf))
        return theta, False

    @property
    def free(self) -> int:
        """Number of learned coefficients."""
        return self.settings.features - (not self.settings.intercept)

    def fit(self, sums: CellSums) -> CellFit:
        """Return the fit: the minimum of the estimated loss, or that of the shares without negative ones."""
        ridge, shares = self.settings.regularization, sums.shares
        positive, p = np.maximum(shares, 0.0), self.settings.features
        start, _ = self.minimise(positive / positive.sum(), max(ridge, 1e-3), np.zeros(p))
        theta, found = self.minimise(shares, ridge, start)
        if not found:
            theta = start * min(1.0, (self.settings.radius or math.inf) / max(float(np.linalg.norm(start)), 1e-300))
        _, slope, bend = self.at(theta)
        mean = self._mixed(shares * bend)
        values, vectors = np.linalg.eigh((mean + ridge * np.eye(p))[: self.free, : self.free])
        # About how far noise moves eigenvalues: 2 sqrt(p) times the error of one entry.
        noise = 2.0 * math.sqrt(self._variance(sums, bend, mean) / p)
        return CellFit(theta, slope, bend, values, vectors, noise, found and bool(values[0] > TRUST * noise))

    def _mixed(self, weights: Floats) -> Floats:
        return np.asarray((self.table.X * weights[:, None]).T @ self.table.X)

    def _variance(self, sums: CellSums, bend: Floats, mean: Floats) -> float:
        """Return the sum of `CellSums.variances` of the mean Hessian's entries, without a Hessian of each cell."""
        total, crossed = self._mixed(bend), self._mixed(sums.cells[THIRD] * bend)
        square = sums.cells[SECOND] @ (bend * (self.table.X**2).sum(axis=1)) ** 2 - 2.0 * (crossed * total).sum()
        square += sums.totals[SHIFTS] * (total**2).sum() - sums.totals[SQUARES] * (mean**2).sum()
        return max(float(square), 0.0) / float(sums.totals[WEIGHT]) ** 2


@dataclass(frozen=True)
class CellFit:
    """Coefficients fitted to sums."""

    theta: Floats
    slope: Floats  # gradient of each cell's loss (classes, p)
    bend: Floats  # factor of ``x x'`` in its Hessian (classes,)
    values: Floats  # eigenvalues of the mean Hessian
    vectors: Floats  # its eigenvectors
    noise: float  # about how far noise moves these eigenvalues
    determined: bool  # whether the releases determine the coefficients


@dataclass(frozen=True)
class CellEstimate(Estimate):
    """An estimate with average effects on the probability, if it is of log odds."""

    average: Floats | None = None
    average_error: Floats | None = None

    def effects(self, level: float = 0.95) -> tuple[Floats, Floats] | None:
        """Return average marginal effects on the probability and half-widths, of the log loss."""
        if self.average is None or self.average_error is None:
            return None
        return self.average, NormalDist().inv_cdf(0.5 + level / 2.0) * self.average_error


class CellEngine(NeverPublished, RecordEngine):
    """Sums of released cells on one chain; noise is secure unless ``seed`` or ``noise`` is given."""

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
        self._loss = CellLoss(table or CellTable.of(settings.cells), settings)
        self._turns = Turns()
        self._noise = chosen_noise(seed, noise)
        self.sums = CellSums(np.zeros((3, settings.cells.classes)), np.zeros(TOTALS))
        self.reference = np.zeros(settings.features)
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
        return self.settings.features

    @property
    def iterate(self) -> Floats:
        """The newest coefficients used for predictions."""
        return self.reference

    average = iterate

    def _learn_block(self, X: Floats, y: Floats) -> None:
        self._learn_records(X, y, [self.current or self.mechanisms["default"]])

    @in_turn
    def learn_records(self, X: Floats, y: Floats, mechanisms: Sequence[CellMechanism]) -> None:
        """Randomize coded records (m, p), or without the constant, by one mechanism each or for all; learn them."""
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
            for place, mechanism in enumerate(distinct):
                own = levels[block] == place
                if own.any():
                    cells[own] = mechanism.randomize(keep(vectors[own]), self._noise, records[own])[:, 0]
            self._learn(cells, levels[block], distinct)

    def admit(self, release: ExampleRelease, ahead: int = 0) -> None:
        """Raise RejectedError for a number that is not a cell's."""
        if not 0 <= release.payload[0] < len(self._losses):
            raise RejectedError("magnitude", f"{release.payload[0]} is not a cell from 0 to {len(self._losses) - 1}")

    def admits(self, releases: Sequence[ExampleRelease]) -> bool:
        """Return whether `admit` accepts all these releases."""
        most = len(self._losses) - 1
        return all(rows.min() >= 0 and rows.max() <= most for rows in block_of(releases).split("level").values())

    @in_turn
    def learn_releases(self, releases: Sequence[ExampleRelease]) -> None:
        """Learn from admitted releases in turn."""
        if not releases:
            return
        block = block_of(releases)
        places = {level: place for place, level in enumerate(dict.fromkeys(block.levels))}
        levels = np.array([places[level] for level in block.levels], dtype=np.int64)
        self._learn(block.rows(1)[:, 0], levels, [self.mechanisms[level] for level in places])

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
        # Replaced, so that readers and interrupts see the old sums or the new.
        sums = CellSums(self.sums.cells.copy(), self.sums.totals.copy())
        for row, values in enumerate(by_cell):
            np.add.at(sums.cells[row], cells, values)
        for place, values in enumerate((*totals, *of_loss)):
            np.add.at(sums.totals, np.full(len(cells), place), values)
        self.sums = sums

    def add(self, mechanism: CellMechanism, counts: Integers) -> None:
        """Add simulated releases of a mechanism, with the count of each cell (classes,), losses left out."""
        gain, other, weight = _weights(mechanism)
        pull, shift, n = weight * gain, weight * gain * other, float(counts.sum())
        by_cell = np.array([pull, pull**2, pull**2 * other])
        totals = np.zeros(TOTALS)
        totals[[COUNT, WEIGHT, SHIFT, SQUARES, SHIFTS]] = n, n * weight, n * shift, n * weight**2, n * shift**2
        self.sums = CellSums(self.sums.cells + by_cell[:, None] * counts, self.sums.totals + totals)

    def estimate(self) -> Estimate:
        """Return the coefficients in coded units, with standard errors."""
        return estimate([self])

    @property
    def unbiased_loss(self) -> tuple[float, float]:
        """Mean and standard error of the unbiased losses, each at `reference` before its release was learned."""
        total = self.sums.totals
        if not total[WEIGHT] > 0.0:
            return math.nan, math.nan
        mean = total[LOSS] / total[WEIGHT]
        left = total[LOSS_SQUARES] - 2.0 * mean * total[LOSS_CROSS] + mean**2 * total[SQUARES]
        return float(mean), math.sqrt(max(float(left), 0.0)) / float(total[WEIGHT])

    def figures(self) -> dict[str, float]:
        """Return figures of progress, which depend on releases and public settings alone."""
        loss, error = self.unbiased_loss
        return {"unbiased_loss": loss, "unbiased_loss_error": error} if math.isfinite(loss) else {}

    @in_turn
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

    @in_turn
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state from :meth:`state_dict`. Raises MurkError if the state is malformed or for other settings."""
        p, classes = self.settings.features, len(self._losses)
        with reading():
            check_header(state, self.settings.digest, "dimension", p)
            sums = CellSums(unpack(state["cells"], 3 * classes).reshape(3, -1), unpack(state["totals"], TOTALS))
            following = count_of(state["next_refresh"], "next_refresh")
            reference = unpack(state["reference"], p)
        self.sums, self.reference = sums, reference
        self._next = max(following, self.n_releases + 1)
        self._look()


def _weights(mechanism: CellMechanism) -> tuple[float, float, float]:
    """Return a, q and w of a mechanism."""
    return mechanism.gain, mechanism.other, mechanism.gain**-2


def estimate(engines: Sequence[CellEngine]) -> Estimate:
    """Return the joint estimate of one or more chains with the same settings."""
    first = engines[0]
    settings, fitted = first.settings, first._loss
    n, p = sum(engine.n_releases for engine in engines), settings.features
    none = np.full(p, math.inf)
    if n == 0:
        note = "none: nothing was learned yet"
        return CellEstimate(settings.names, np.zeros(p), SANDWICH, none, note, len(engines), 0)
    sums = CellSums(sum(each.sums.cells for each in engines), sum(each.sums.totals for each in engines))  # type: ignore[arg-type]
    fit = fitted.fit(sums)
    if not fit.determined:
        why = (
            f"The smallest eigenvalue of their mean Hessian is {fit.values[0]:.3g}, and noise alone moves it by about "
            f"{fit.noise:.3g}"
        )
        if fit.values[0] > TRUST * fit.noise:
            why = (
                f"Their estimated loss has no minimum within the radius {settings.radius:g}: give a larger one, or "
                "regularization if the features separate the labels"
            )
        note = f"none: these releases do not determine the coefficients. {why}"
        return CellEstimate(settings.names, fit.theta, SANDWICH, none, note, len(engines), n)
    inverse = np.zeros((p, p))
    inverse[: fitted.free, : fitted.free] = (fit.vectors / fit.values) @ fit.vectors.T
    pulled = fit.slope @ inverse
    covariance = sums.covariance(pulled)
    estimate = CellEstimate(
        settings.names,
        fit.theta,
        SANDWICH,
        np.sqrt(np.maximum(np.diag(covariance), 0.0)),
        f"noise moves the mean Hessian by about {fit.noise / fit.values[0]:.0%} of its smallest eigenvalue; from "
        f"{1 / TRUST:.0%} on there is no interval (docs/iwp-sgd.md)",
        len(engines),
        n,
        covariance,
        influence=_influence(engines, sums, fit, fitted.table),
    )
    if settings.loss != "log":
        return estimate
    average, error = _average_effects(sums, fitted.table, fit, pulled)
    return replace(estimate, average=average, average_error=error)


def _average_effects(sums: CellSums, table: CellTable, fit: CellFit, pulled: Floats) -> tuple[Floats, Floats]:
    """Return ``theta_j S``, with S the mean slope of the probability over people with a target, and its errors."""
    known = np.nan_to_num(table.y) ** 2  # 0 for a missing value of a feature that is a model's target
    mass = float(sums.shares @ known)
    slope = float(sums.shares @ fit.bend) / mass
    turned = (sums.shares * fit.bend * (1.0 - 2.0 * logistic(table.X @ fit.theta))) @ table.X / mass
    moved = np.outer((fit.bend - slope * known) / mass - pulled @ turned, fit.theta) - slope * pulled
    return slope * fit.theta, np.sqrt(np.maximum(sums.variances(moved), 0.0))


def _influence(engines: Sequence[CellEngine], sums: CellSums, fit: CellFit, table: CellTable) -> Influence:
    """Return a bound on how far one forged cell moves an estimate: its pull, and its Hessian, at the estimate."""
    meat = float(np.linalg.eigvalsh(sums.covariance(fit.slope))[0]) * sums.totals[WEIGHT] ** 2
    if not meat > 0.0:
        return Influence(math.inf, math.inf)
    pull, pulls = float(np.linalg.norm(fit.slope, axis=1).max()), float(np.linalg.norm(fit.slope.sum(axis=0)))
    turn = float((fit.bend * (table.X**2).sum(axis=1)).max())
    turns = float(np.linalg.norm((table.X * fit.bend[:, None]).T @ table.X))
    moved = turned = 0.0
    for gain, other, weight in map(_weights, bounding(engines[0].mechanisms).values()):
        moved = max(moved, weight * gain * (pull + other * pulls))
        turned = max(turned, weight * gain * (turn + other * turns))
    return Influence(moved / math.sqrt(meat), turned / (float(sums.totals[WEIGHT]) * float(fit.values[0])))
