"""What every protocol's learner reports: an estimate with its intervals, the method they come from, and their note."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.learners.estimates.extent import Extent, extent_of_rows
from murk.learners.estimates.forgers import Influence

RANDOM_SCALING = "random scaling"
ASKED, COMPLETE = "random-scaling", "complete"
FEWEST = 1000
"""Releases below which random scaling gives no interval: nominal 95% ones held the truth in half the runs."""

# Quantiles of |N(0,1)| / sqrt(mean of P independent integrals of a squared Brownian bridge), by level and
# number of chains: P = 1 from the literature, the others simulated with 200,000 draws (+-0.01).
_CHAINS = (1, 2, 3, 4, 6, 8, 12, 16, 32)
_QUANTILES = {
    0.95: (6.747, 5.86, 5.53, 5.36, 5.18, 5.08, 4.99, 4.95, 4.87),
    0.90: (5.323, 4.72, 4.51, 4.39, 4.27, 4.21, 4.15, 4.12, 4.08),
    0.80: (3.875, 3.53, 3.41, 3.34, 3.27, 3.24, 3.21, 3.19, 3.17),
}


def scaling_quantile(level: float, chains: int = 1) -> float:
    """Critical value of random scaling for ``chains`` chains; between tabled numbers the larger is taken.

    Raises
    ------
    UserError
        For a level other than 0.95, 0.90 and 0.80, for which the distribution is tabled.

    Examples
    --------
    >>> scaling_quantile(0.95)
    6.747
    """
    for known, quantiles in _QUANTILES.items():
        if math.isclose(level, known, abs_tol=1e-9):
            place = max(i for i, tabled in enumerate(_CHAINS) if tabled <= max(chains, 1))
            return quantiles[place]
    raise UserError(f"random scaling knows the levels 0.80, 0.90 and 0.95, not {level!r}")


class Intervals(dict[str, tuple[float, float]]):
    """Confidence intervals by coefficient name, with the method they come from.

    Attributes
    ----------
    method
        ``"plug-in"`` or ``"random scaling"``.
    level
        The nominal level.
    note
        What is known of the true coverage, in words; print it beside the numbers.
    """

    def __init__(self, items: dict[str, tuple[float, float]], *, method: str, level: float, note: str) -> None:
        super().__init__(items)
        self.method = method
        self.level = level
        self.note = note


@dataclass(frozen=True)
class PublicCovariates:
    """Coded covariates without labels that everybody may know: distinct points ``(u, p)`` and their counts."""

    points: NDArray[np.float64]
    counts: NDArray[np.int64]

    @property
    def second_moment(self) -> NDArray[np.float64]:
        """Mean of ``x x'``, ``(p, p)``."""
        share = self.counts / self.counts.sum()
        moment: NDArray[np.float64] = (self.points * share[:, None]).T @ self.points
        return moment


@dataclass(frozen=True)
class People:
    """What is known of the people's coded features.

    Parameters
    ----------
    points, shares
        Rows (m, p), the constant last, that stand for the people, and their shares (m,).
    sampled
        Whether the rows are people's own; otherwise only their second moments are right.
    doubt
        kappa: the people are as unlike the rows as if the rows were a sample of ``1 / kappa`` of them.
    """

    points: NDArray[np.float64]
    shares: NDArray[np.float64]
    sampled: bool
    doubt: float = 0.0


@dataclass(frozen=True)
class Estimate:
    """Coefficients in coded units with their standard errors or half widths, and where they come from.

    Attributes
    ----------
    names
        Names of the coefficients.
    values
        The coefficients (p,), in coded units.
    method
        Where the intervals come from, such as ``"plug-in"``, ``"random scaling"`` or ``"scores"``.
    note
        What is known of their true coverage, in words; print it beside the numbers.
    spread
        For random scaling ``sqrt(V_jj / n)``, for every other method standard errors; infinite where none is known.
    chains
        Number of chains merged.
    covariance
        Of the values, (p, p), where the method has it.
    people
        What is known of the people's features, for averages over them; None where nothing is.
    alike
        Whether public covariates pass a check that they are like the people's; None where none is made.
    kept
        Newest releases that it is of, where older ones were forgotten; None where it is of all.
    absent
        Share of the people whose target is surely missing; 0 where that cannot be told from none.
    influence
        What one forged release could have done to it at most; None where no bound is known.
    forecasts
        Whether it can tell what it would take to learn the rest (`needs`).
    """

    forecasts: ClassVar[bool] = False

    names: tuple[str, ...]
    values: NDArray[np.float64]
    method: str
    spread: NDArray[np.float64]
    note: str
    chains: int
    n_releases: int
    covariance: NDArray[np.float64] | None = None
    people: People | None = None
    alike: bool | None = None
    kept: int | None = None
    absent: float = 0.0
    influence: Influence | None = None

    @property
    def releases_used(self) -> int:
        """Releases that it is of."""
        return self.n_releases if self.kept is None else self.kept

    def half_widths(self, level: float = 0.95) -> NDArray[np.float64]:
        """Half widths of the intervals at ``level``."""
        if not 0 < level < 1:
            raise UserError(f"a confidence level lies between 0 and 1, got {level!r}")
        if self.method == RANDOM_SCALING:
            return np.asarray(scaling_quantile(level, self.chains) * self.spread)
        return np.asarray(NormalDist().inv_cdf(0.5 + level / 2.0) * self.spread)

    @property
    def standard_error(self) -> float:
        """Root of the summed squared standard errors of the coefficients; infinite where one is not known.

        Random scaling's V has a mean of a sixth of the variance (the integral of a squared Brownian bridge).
        """
        scale = 6.0 if self.method == RANDOM_SCALING else 1.0
        return math.sqrt(scale * float(np.sum(np.square(self.spread))))

    def extent(self) -> Extent | None:
        """Where people lie within public bounds; None where nothing is known of it."""
        if self.people is None or not self.people.sampled:
            return None
        return extent_of_rows(self.people.points, self.people.shares)

    def missing(self) -> float:
        """Share of the people whose target is surely missing; 0 where that cannot be told from none."""
        return self.absent

    def moved(self, forged: int, level: float = 0.95) -> NDArray[np.float64]:
        """How far so many forged releases could have moved each coefficient, (p,); infinite where nothing bounds it.

        In the unit of the coefficients, by the half widths at ``level``: the threat model has the formula.
        """
        if self.influence is None:
            return np.full(len(self.names), math.inf)
        errors = self.half_widths(level)
        if self.method != RANDOM_SCALING:
            errors = errors / NormalDist().inv_cdf(0.5 + level / 2.0)
        return self.influence.moved(forged, errors)

    def doubts(self) -> list[str]:
        """Signs of forged releases, in words; none where everything is as honest releases make it."""
        return []

    def not_learned(self, level: float = 0.95) -> list[str]:
        """Names of the coefficients that noise hides, where the method can tell; others have no end of an interval."""
        return []

    def needs(self, level: float = 0.95, within: Mapping[str, float] | None = None) -> dict[str, Any]:
        """What it would take to learn the rest, by name, where the method can forecast it; see ``ScoreEstimate``."""
        return {}

    def effects(self, level: float = 0.95) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
        """Average marginal effects on the probability, and their half widths, where the method has its own."""
        return None

    @property
    def effects_note(self) -> str:
        """What average effects are of, where they do not follow from the coefficients; else empty."""
        return ""

    def _without_end(self, level: float) -> list[str]:
        halves = self.half_widths(level)
        return [name for name, half in zip(self.names, halves, strict=True) if not math.isfinite(half)]

    def intervals(self, level: float = 0.95) -> Intervals:
        """Intervals by name."""
        items = {
            name: (float(value - half), float(value + half))
            for name, value, half in zip(self.names, self.values, self.half_widths(level), strict=True)
        }
        return Intervals(items, method=self.method, level=level, note=self.note)
