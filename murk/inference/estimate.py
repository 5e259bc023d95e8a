"""Estimates of all protocols' learners, with intervals, their coverage, and the features' second moments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.numbers import fewest_percent
from murk.errors import UserError
from murk.inference.levels import divided_error, quantile_of
from murk.inference.poisoning import Influence
from murk.inference.prediction_sets import PredictionSets
from murk.inference.selection import further_factors
from murk.inference.stream_change import StreamChange
from murk.task.coding import INTERCEPT

_ERROR_CODE = "MURK-LEARN-001"


@dataclass(frozen=True)
class Extent:
    """Second moments of the coded features, with the variance of their noise.

    >>> extent = Extent(np.array([[0.26, 0.5], [0.5, 1.0]]), np.eye(2), np.zeros((2, 2)))
    >>> extent.mean.tolist(), round(extent.variance(0)[0], 2)
    ([0.5], 0.01)
    """

    moment: Floats  # mean of x x' up to a factor, (p, p), the constant last; it may have noise
    into: Floats  # C, (p, p): a'x is (C a)'z in the coordinates z, in which the noise is known
    variances: Floats  # variances of the moment's entries in the coordinates z, (p, p)

    @cached_property
    def known(self) -> bool:
        """Whether the constant, which is 1 for everybody, is well above the noise."""
        return bool(self.moment[-1, -1] > 4.0 * self._error(np.eye(len(self.moment))[-1]))

    @property
    def mean(self) -> Floats:
        """Mean of the features, (p - 1,)."""
        return np.asarray(self.moment[:-1, -1] / self.moment[-1, -1])

    def along(self, direction: Floats) -> tuple[float, float]:
        """Return the variance of a combination (p - 1,) of features (noise may make it negative), and its error."""
        whole = self._centred(direction)
        scale = float(self.moment[-1, -1])
        value = float(whole @ self.moment @ whole) / scale
        constant = np.eye(len(self.moment))[-1]
        return value, math.hypot(self._error(whole), value * self._error(constant)) / scale

    def variance(self, feature: int) -> tuple[float, float]:
        """Return the variance of one feature and the variance's standard error."""
        return self.along(np.eye(len(self.moment) - 1)[feature])

    def covariance_error(self, one: Floats, other: Floats) -> float:
        """Return the standard error of the covariance of two combinations (p - 1,) of features."""
        a, b = (self.into @ self._centred(direction) for direction in (one, other))
        both = np.outer(a, b) + np.outer(b, a)
        return math.sqrt(float(np.sum(self.variances * both**2))) / 2.0 / float(self.moment[-1, -1])

    def _centred(self, direction: Floats) -> Floats:
        """Return a combination with the constant that makes its mean zero, (p,)."""
        return np.append(direction, -float(direction @ self.mean))

    def _error(self, whole: Floats) -> float:
        squares = (self.into @ whole) ** 2
        return math.sqrt(float(squares @ self.variances @ squares))


RANDOM_SCALING = "random scaling"
_SURELY = 2.0  # standard errors by which a lower bound on a share lies below its estimate
_SINGULAR = 1e-12  # share of the largest eigenvalue below which a direction has no variance
FEWEST = 1000  # number of releases below which random scaling gives no interval, as it would cover far too rarely

# Quantiles of |N(0,1)| / sqrt(mean of P independent integrals of a squared Brownian bridge), by level and number of
# partitions: P = 1 from the literature, the others from 200,000 simulated draws (+-0.01).
_PARTITIONS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
_QUANTILES = {
    0.95: (6.747, 5.86, 5.53, 5.36, 5.18, 5.08, 4.99, 4.95, 4.87),
    0.90: (5.323, 4.72, 4.51, 4.39, 4.27, 4.21, 4.15, 4.12, 4.08),
    0.80: (3.875, 3.53, 3.41, 3.34, 3.27, 3.24, 3.21, 3.19, 3.17),
}


def scaling_quantile(level: float, partitions: int = 1) -> float:
    """Return random scaling's critical value for some partitions; raise UserError unless the level is tabulated."""
    for tabulated, quantiles in _QUANTILES.items():
        if math.isclose(level, tabulated, abs_tol=1e-9):
            return quantiles[max(i for i, tabled in enumerate(_PARTITIONS) if tabled <= max(partitions, 1))]
    raise UserError(f"random scaling has intervals at the levels 0.80, 0.90 and 0.95, not {level!r}")


class Intervals(dict[str, tuple[float, float]]):
    """Confidence intervals by coefficient name, with their ``method``, nominal ``level``, and ``note`` on coverage."""

    def __init__(self, items: dict[str, tuple[float, float]], *, method: str, level: float, note: str) -> None:
        super().__init__(items)
        self.method = method
        self.level = level
        self.note = note


@dataclass(frozen=True)
class People:
    """The distribution of the people's coded features, as far as known."""

    points: Floats  # rows (m, p), the constant last
    shares: Floats  # share of the people at each row, (m,)
    sampled: bool  # whether the rows are a sample of people; otherwise only their second moments are right
    doubt: float = 0.0  # kappa: people may differ from the rows as if the rows were a sample of 1 / kappa people


def larger(first: Floats, second: Floats) -> Floats:
    """Return a covariance that is nowhere below either of two, with their larger variance along each common axis.

    Common axes are those of the two matrices' simultaneous diagonalization; the result does not depend on coordinates.
    Of two numbers it is the larger one.

    >>> larger(np.diag([1.0, 4.0]), np.diag([2.0, 3.0])).round(9).tolist()
    [[2.0, 0.0], [0.0, 4.0]]
    """
    sizes, axes = np.linalg.eigh(first + second)
    used = sizes > _SINGULAR * max(float(sizes[-1]), 0.0)
    roots = np.sqrt(sizes[used])
    white = axes[:, used] / roots
    shares, turned = np.linalg.eigh(white.T @ first @ white)
    back = (axes[:, used] * roots) @ turned
    return np.asarray((back * np.maximum(shares, 1.0 - shares)) @ back.T)


def surely_missing(share: float, error: float) -> float:
    """Return a lower bound on the share of missing targets, from an estimate and its standard error; 0 if unknown."""
    return min(max(share - _SURELY * error, 0.0), 1.0)


def missing_words(fewest: float, rows: int = 1) -> str:
    """Describe a lower bound on the share of missing targets or, if up to ``rows`` rows a person count, missing rows.

    >>> missing_words(0.299)
    'at least 29% of the targets are missing'
    >>> missing_words(0.299, 10)
    'up to 10 rows of a person count, and at least 29% of these are not there'
    """
    if rows > 1:
        return f"up to {rows} rows of a person count, and at least {fewest_percent(fewest)} of these are not there"
    return f"at least {fewest_percent(fewest)} of the targets are missing"


def ratio_half_widths(ratios: Floats, errors: Floats, doubts: Floats, quantile: float) -> Floats:
    """Return the distances from ratios to the farther ends of their Fieller intervals; see `Estimate.half_widths`.

    ``errors`` are the ratios' standard errors, and ``doubts`` the relative standard errors of their denominators.

    >>> ratio_half_widths(np.ones(2), np.ones(2), np.array([0.0, 0.6]), 2.0).tolist()
    [2.0, inf]
    """
    doubt, size = (quantile * doubts) ** 2, np.abs(ratios)
    left = 1.0 - doubt
    with np.errstate(invalid="ignore"):  # spreads and errors are infinite where nothing is known
        root = np.sqrt(np.maximum(left, 0.0) * errors**2 + doubt * (doubts * size) ** 2)
    return np.where(left > 0.0, (size * doubt + quantile * root) / np.maximum(left, 1e-300), math.inf)


@dataclass(frozen=True)
class Estimate:
    """Coefficients in coded units with their standard errors or half-widths."""

    forecasts: ClassVar[bool] = False  # whether `needs` returns forecasts
    noise_hides: ClassVar[bool] = False  # whether an infinite interval means that noise hides the coefficient

    names: tuple[str, ...]
    values: Floats  # coefficients (p,), in coded units
    method: str  # method of the intervals, such as "plug-in", "random scaling" or "scores"
    spread: Floats  # standard errors (for random scaling sqrt(V_jj / n)); infinite if unknown
    note: str  # what is known about the intervals' true coverage
    partitions: int  # number of partitions merged
    n_releases: int
    covariance: Floats | None = None  # covariance of the values, (p, p)
    people: People | None = None  # features of the people, for averages over them
    alike: bool | None = None  # whether public covariates pass a check that people's covariates are distributed alike
    kept: int | None = None  # number of newest releases used, if older ones were forgotten
    absent: float = 0.0  # lower bound on the share of missing targets; 0 if unknown
    sets: PredictionSets | None = None  # prediction sets, if the task asks about them
    influence: Influence | None = None  # bound on one forged release's effect; None if unknown
    # Standard errors of the curvature along each coefficient, relative to it, (p,); None where it has no noise
    curvature_error: Floats | None = None
    # Matrix (p, p) that maps the coefficients to their parts that the curvature divides; None if it divides all of them
    divided: Floats | None = None
    # Distances (p,) from the limit below which noise hides a coefficient, in standard deviations; None without a limit
    selected: Floats | None = None
    shifted: float = 0.0  # part of the intercept added by a change of the target's zero, which no curvature divides

    @property
    def releases_used(self) -> int:
        """Number of releases used."""
        return self.n_releases if self.kept is None else self.kept

    def half_widths(self, level: float = 0.95) -> Floats:
        """Return half-widths of the intervals at ``level``.

        With curvature errors r, half-widths reach from the estimate t, with standard error s, to the farther end of
        Fieller's interval. Its centre is ``t / (1 - z^2 r^2)``, and its half-width
        ``z sqrt(s^2 (1 - z^2 r^2) + z^2 r^4 t^2) / (1 - z^2 r^2)``: infinite if r exceeds 1 / z, as the curvature may
        then be zero.
        """
        if not 0 < level < 1:
            raise UserError(f"a confidence level lies between 0 and 1, got {level!r}")
        if self.method == RANDOM_SCALING:
            return np.asarray(scaling_quantile(level, self.partitions) * self.spread)
        quantile, further = quantile_of(level), self.further(level)
        if self.curvature_error is None:
            return np.asarray(quantile * further * self.spread)
        values = self.values
        if self.shifted:
            values = values - self.shifted * np.array([name == INTERCEPT for name in self.names])
        parts = values if self.divided is None else self.divided @ values
        return ratio_half_widths(parts, further * self.spread, further * self.curvature_error, quantile)

    def further(self, level: float) -> Floats | float:
        """Return factors of standard errors at a level above 95%, which those of 95% do not allow for."""
        return 1.0 if self.selected is None else further_factors(self.selected, level)

    def ends(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the lower and upper ends of the intervals at ``level``."""
        halves = self.half_widths(level)
        return self.values - halves, self.values + halves

    @property
    def standard_error(self) -> float:
        """Root of the summed squared standard errors; infinite if one is unknown."""
        return math.sqrt(float(np.sum(np.square(self.standard_errors))))

    @property
    def standard_errors(self) -> Floats:
        """Standard errors of the coefficients, (p,); infinite if unknown.

        Random scaling's V has a mean of a sixth of the variance (the integral of a squared Brownian bridge), so that
        the variance is estimated by 6 V.
        """
        return np.asarray((math.sqrt(6.0) if self.method == RANDOM_SCALING else 1.0) * self.spread)

    def extent(self) -> Extent | None:
        """Return the features' second moments; None if unknown."""
        if self.people is None or not self.people.sampled:
            return None
        points, p = self.people.points, self.people.points.shape[1]
        # Public rows have no noise.
        return Extent((points * self.people.shares[:, None]).T @ points, np.eye(p), np.zeros((p, p)))

    def missing(self) -> float:
        """Return a lower bound on the share of people whose target is missing; 0 if unknown."""
        return self.absent

    def moved(self, forged: int, level: float = 0.95, halves: Floats | None = None) -> Floats:
        """Return how far ``forged`` releases could have moved each coefficient, (p,); infinite if unbounded.

        ``halves`` are half-widths at ``level`` of other quantities with the same bound, in place of the coefficients'.
        """
        if self.influence is None:
            return np.full(len(self.names), math.inf)
        errors = self.half_widths(level) if halves is None else halves
        if self.method != RANDOM_SCALING:
            errors = errors / quantile_of(level)
        return self.influence.moved(forged, errors)

    def doubts(self) -> list[str]:
        """Return signs of forged releases, in words."""
        return []

    def stream_change(self) -> StreamChange | None:
        """Return how the stream contradicts one model of one group of people; None if no contradiction shows."""
        return None

    def not_learned(self, level: float = 0.95) -> list[str]:
        """Return the names of coefficients with infinite intervals, if the method attributes these to noise, or []."""
        if not self.noise_hides:
            return []
        halves = self.half_widths(level)
        return [name for name, half in zip(self.names, halves, strict=True) if not math.isfinite(half)]

    def needs(self, level: float = 0.95, within: Mapping[str, float] | None = None) -> dict[str, Any]:
        """Return, by name, forecasts of what it takes to learn coefficients that noise hides; {} without forecasts."""
        return {}

    def effects(self, level: float = 0.95) -> tuple[Floats, Floats] | None:
        """Return average marginal effects on the probability and half-widths, if the method estimates them itself."""
        return None

    def combined_effect(self, weights: Floats, level: float = 0.95) -> tuple[float, float] | None:
        """Return a weighted sum of `effects` and its half-width, here by simultaneous intervals (Bonferroni)."""
        used = np.flatnonzero(weights)
        effects = self.effects(divided_error(level, len(used)))
        return (
            None if effects is None else (float(weights @ effects[0]), float(np.abs(weights[used]) @ effects[1][used]))
        )

    @property
    def effects_note(self) -> str:
        """Definition of the average effects if they do not follow from the coefficients; else empty."""
        return ""

    def intervals(self, level: float = 0.95) -> Intervals:
        """Return intervals by name."""
        items = {name: (float(low), float(high)) for name, low, high in zip(self.names, *self.ends(level), strict=True)}
        return Intervals(items, method=self.method, level=level, note=self.note)


@dataclass(frozen=True)
class BallEstimate(Estimate):
    """An estimate in a ball that may not contain the truth: intervals are infinite if they reach the ball's edge."""

    room: float = math.inf  # distance to the edge, in standard errors along the least precise direction

    def half_widths(self, level: float = 0.95) -> Floats:
        """Return half-widths of the intervals at ``level``; infinite if intervals reach the ball's edge."""
        halves = super().half_widths(level)
        inside = quantile_of(level) < self.room
        return halves if inside else np.full(len(halves), math.inf)
