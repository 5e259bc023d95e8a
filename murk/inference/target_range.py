"""Public bounds of a regressor's target: clipping, coding, and estimates in its own units. Does not import River."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Final, Self, TypeVar

import numpy as np

from murk._internal.arrays import Floats
from murk.errors import UserError
from murk.inference.estimate import Estimate
from murk.task.coding import INTERCEPT
from murk.task.values import target, targets

_ERROR_CODE = "MURK-LEARN-001"

E = TypeVar("E", bound=Estimate)


@dataclass(frozen=True)
class TargetRange:
    """Public bounds of a target, and its code ``(y - middle) / unit``.

    >>> weeks = TargetRange.stated((0, 52), seed=1)
    >>> weeks.code(52), weeks.code(13), weeks.code(100), weeks.code("none")
    (1.0, -0.5, 1.0, nan)
    """

    low: float
    high: float
    middle: float
    unit: float

    @classmethod
    def stated(
        cls,
        bounds: tuple[float, float] | None,
        *,
        bound: float | None = None,
        seed: int | None,
        records: bool = True,
        intercept: bool = True,
    ) -> Self:
        """Return the range between ``bounds``, or from -``bound`` to ``bound``; raise UserError if it is invalid.

        Simulations default to -1 to 1. Without ``intercept`` the middle is 0, and the unit the larger absolute bound.
        """
        if bound is not None:
            bound = float(bound)
            if not (math.isfinite(bound) and bound > 0.0):
                raise UserError(f"target_bound={bound!r}, the public bound on |y|, must be positive and finite")
            if bounds is not None:
                raise UserError(f"target_bounds={bounds!r} and target_bound={bound!r}: give target_bounds alone")
            bounds = -bound, bound
        if bounds is None and seed is None and records:
            raise UserError(
                "target_bounds= is required with real noise: targets beyond their public bounds are projected to "
                "them, and noise is drawn for the whole range. Give publicly known bounds, as in "
                "target_bounds=(-1.0, 1.0)"
            )
        low, high = map(float, (-1.0, 1.0) if bounds is None else bounds)
        if not (math.isfinite(high - low) and low < high):
            raise UserError(f"target_bounds={bounds!r}: give two finite numbers, the lower one first")
        if intercept:
            return cls(low, high, (low + high) / 2.0, (high - low) / 2.0)
        return cls(low, high, 0.0, max(abs(low), abs(high)))

    @property
    def coded(self) -> bool:
        """Whether codes differ from targets."""
        return (self.middle, self.unit) != (0.0, 1.0)

    def code(self, y: Any) -> float:
        """Return a target's code, clipped to the bounds; NaN if it is missing or not a finite number."""
        value = target(y)
        return (min(max(value, self.low), self.high) - self.middle) / self.unit if math.isfinite(value) else math.nan

    def codes(self, y: Any) -> Floats:
        """Return the codes of a column of targets, ``(n,)``."""
        codes = targets(y)  # a new array
        codes[~np.isfinite(codes)] = np.nan
        np.clip(codes, self.low, self.high, out=codes)
        codes -= self.middle
        codes /= self.unit
        return codes

    def in_units(self, estimate: E) -> E:
        """Convert an estimate from coded targets to the target's units."""
        if not self.coded:
            return estimate
        values, unit = self.unit * estimate.values, self.unit
        if self.middle:
            values[estimate.names.index(INTERCEPT)] += self.middle
        covariance = None if estimate.covariance is None else unit * unit * estimate.covariance
        influence = estimate.influence
        if influence is not None and influence.limit is not None:
            influence = replace(influence, limit=unit * influence.limit)
        return replace(
            estimate,
            values=values,
            spread=unit * estimate.spread,
            covariance=covariance,
            influence=influence,
            shifted=unit * estimate.shifted + self.middle,
        )


ANY: Final = TargetRange(-math.inf, math.inf, 0.0, 1.0)
"""The range of a target without bounds, whose code is the target."""
