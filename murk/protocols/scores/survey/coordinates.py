"""Centres and spreads of coded features, and the coordinates that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from murk._internal.arrays import Floats

UNTOLD = 2.0  # standard error of log s that stands for a spread that cannot be distinguished from zero
STATED_ERROR = 0.1  # relative error of a stated spread, and error of the stated centre in units of the spread
_LEAST = 1e-6  # standard error that counts as zero
THRESHOLDS: Final[tuple[tuple[float, ...], ...]] = (
    (),
    tuple((2 * index - 15) / 16 for index in range(16)),
    (-1.4, -0.7, 0.0, 0.7, 1.4),
    (-2.0, -1.0, -0.3, 0.3, 1.0, 2.0),
)
"""Lists of thresholds, which a model names by index: distances from the published centre in published spreads."""


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Estimated centre m and spread s of each coded feature without the constant, in coded units.

    Models are computed in the coordinates ``x'_j = (x_j - m_j) / s_j``.

    >>> import numpy as np
    >>> half = Coordinates(np.array([0.5]), np.array([0.25]), np.array([0.01]), np.array([0.1]))
    >>> (half.transform @ np.array([0.75, 1.0])).tolist()
    [1.0, 1.0]
    """

    centre: Floats  # m, (p - 1,)
    spread: Floats  # s, (p - 1,), positive
    centre_error: Floats  # standard errors of m, (p - 1,)
    log_spread_error: Floats  # standard errors of log s, (p - 1,); 0 if s is a convention, as of categories
    target: tuple[float, float] = (0.0, 1.0)  # middle and half width of the range to which a real target is clipped
    beyond: tuple[float, float] = (0.0, 0.0)  # share of targets that are clipped, and a bound on it: `share_beyond`

    def in_target(self, coefficients: Floats) -> Floats:
        """Return coefficients, the constant last, of the coded target from those of the target in units of `target`."""
        middle, width = self.target
        if (middle, width) == (0.0, 1.0):
            return coefficients
        return np.asarray(width * coefficients + middle * np.eye(len(coefficients))[-1])

    @cached_property
    def transform(self) -> Floats:
        """The matrix from coded features, the constant last, to x' and the constant, (p, p)."""
        matrix = np.diag(np.append(1.0 / self.spread, 1.0))
        matrix[:-1, -1] = -self.centre / self.spread
        return matrix


def pooled(found: Sequence[Coordinates | None]) -> Coordinates | None:
    """Return the mean of surveys of the same features, weighted by precision; None without any."""
    stated = [each for each in found if each is not None]
    if len(stated) < 2:
        return stated[0] if stated else None
    centre, centre_error = _mean([each.centre for each in stated], [each.centre_error for each in stated])
    logs = [np.log(each.spread) for each in stated]
    log_spread, log_error = _mean(logs, [each.log_spread_error for each in stated])
    shares, bounds = zip(*(each.beyond for each in stated), strict=True)
    beyond = sum(shares) / len(shares), max(bounds)
    return Coordinates(centre, np.exp(log_spread), centre_error, log_error, stated[0].target, beyond)


def _mean(values: Sequence[Floats], errors: Sequence[Floats]) -> tuple[Floats, Floats]:
    weights = 1.0 / np.maximum(errors, _LEAST) ** 2
    total = weights.sum(axis=0)
    exact = np.min(errors, axis=0) == 0.0
    return np.sum(weights * values, axis=0) / total, np.where(exact, 0.0, 1.0 / np.sqrt(total))
