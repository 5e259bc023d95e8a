"""Log odds and average effects from a least-squares line through labels, for every distribution of the features."""

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
    """Coefficients from released moments, of which noise may hide some."""

    def not_learned(self, level: float = 0.95) -> list[str]:
        """Names of the coefficients that noise hides."""
        return self._without_end(level)


@dataclass(frozen=True)
class LineEstimate(MomentEstimate):
    """Log odds from released moments, with intervals that hold for every distribution of the features.

    Attributes
    ----------
    fit, error
        Least squares on labels -1 and +1, and its standard errors, ``(p,)``.
    beyond
        What the distribution of the features may add, which the moments do not tell.
    """

    fit: Vector = field(kw_only=True)
    error: Vector = field(kw_only=True)
    beyond: Allowance = field(kw_only=True)

    def half_widths(self, level: float = 0.95) -> Vector:
        """Half widths of the intervals at ``level``."""
        return super().half_widths(level) + self.beyond.coefficients

    def effects(self, level: float = 0.95) -> tuple[Vector, Vector]:
        """Average marginal effects on the probability, and their half widths: half the line, and what it may miss."""
        return self.fit / 2.0, NormalDist().inv_cdf(0.5 + level / 2.0) * self.error / 2.0 + self.beyond.effects

    def scaled(self, factors: Vector) -> Self:
        """The same of features in other units, of which one of these has ``factors``."""
        beyond = Allowance(self.beyond.coefficients * factors, self.beyond.effects * factors)
        return replace(
            self, values=self.values * factors, spread=self.spread * factors, fit=self.fit * factors,
            error=self.error * factors, beyond=beyond,
        )  # fmt: skip
