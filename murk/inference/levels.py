"""Levels of intervals, and their normal quantiles, also beyond the levels that a float can hold."""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Final

SUREST: Final = 1.0 - 2.0**-50  # largest level that a plain float represents well enough to compute its quantile


class WideLevel(float):
    """A level above `SUREST`, which stores its quantile and equals only levels with the same quantile."""

    quantile: float

    def __new__(cls, quantile: float) -> WideLevel:
        """Return the level of intervals with this half-width, in standard errors."""
        level = super().__new__(cls, SUREST)
        level.quantile = quantile
        return level

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WideLevel) and other.quantile == self.quantile

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((SUREST, self.quantile))


def quantile_of(level: float) -> float:
    """Return the half-width, in standard errors, of a normal interval at ``level``.

    >>> round(quantile_of(0.95), 3), quantile_of(level_of(20.0))
    (1.96, 20.0)
    """
    return level.quantile if isinstance(level, WideLevel) else NormalDist().inv_cdf(0.5 + level / 2.0)


def level_of(quantile: float) -> float:
    """Return the level of the normal interval whose half-width is ``quantile`` standard errors.

    >>> round(level_of(1.96), 3)
    0.95
    """
    level = 2.0 * NormalDist().cdf(quantile) - 1.0
    return level if level <= SUREST else WideLevel(quantile)


def divided_error(level: float, count: int) -> float:
    """Return the level of each of several intervals at which all hold together with ``level`` (Bonferroni).

    The quantile q of a `WideLevel` becomes ``sqrt(q^2 + 2 log count)``, whose tail probability is at most that of q
    divided by ``count``.

    >>> round(divided_error(0.95, 5), 5), round(quantile_of(divided_error(level_of(20.0), 5)), 3)
    (0.99, 20.08)
    """
    if count <= 1:
        return level
    if isinstance(level, WideLevel):
        return WideLevel(math.sqrt(level.quantile**2 + 2.0 * math.log(count)))
    return min(1.0 - (1.0 - level) / count, SUREST)
