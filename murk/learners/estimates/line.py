"""Log odds and average effects from a least-squares line through labels, for any distribution of the features."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Self

import numpy as np
from numpy.typing import NDArray

from murk.learners.estimates.estimate import Estimate
from murk.learners.estimates.unknown_distribution import Allowance

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class MomentEstimate(Estimate):
    """Coefficients from released moments, some of which noise may hide."""

    def not_learned(self, level: float = 0.95) -> list[str]:
        """Return names of the coefficients that noise hides."""
        return self._without_end(level)


@dataclass(frozen=True)
class LineEstimate(MomentEstimate):
    """Log odds from released moments, with intervals that hold for any distribution of the features."""

    fit: Vector = field(kw_only=True)  # least squares on labels -1 and +1, (p,)
    error: Vector = field(kw_only=True)  # standard errors of the fit, (p,)
    beyond: Allowance = field(kw_only=True)  # allowance for the unknown distribution of the features

    def half_widths(self, level: float = 0.95) -> Vector:
        """Return half-widths of the intervals at ``level``."""
        return super().half_widths(level) + self.beyond.coefficients

    def effects(self, level: float = 0.95) -> tuple[Vector, Vector]:
        """Return average marginal effects on the probability, half the line, and half-widths with the allowance."""
        return self.fit / 2.0, NormalDist().inv_cdf(0.5 + level / 2.0) * self.error / 2.0 + self.beyond.effects

    def scaled(self, factors: Vector) -> Self:
        """Return the estimate for features in other units, each of which equals ``factors`` of the present units."""
        beyond = Allowance(self.beyond.coefficients * factors, self.beyond.effects * factors)
        return replace(
            self, values=self.values * factors, spread=self.spread * factors, fit=self.fit * factors,
            error=self.error * factors, beyond=beyond,
        )  # fmt: skip
