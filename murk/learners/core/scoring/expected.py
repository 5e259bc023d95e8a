"""What honest answers are on average over rows of covariates: the equations that the learner solves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from murk.learners.core.scoring.model import Model, Response, directions
from murk.learners.core.scoring.rows import Rows

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Expected:
    """The mean score of an epoch as a function of the coefficients theta.

    ``G(theta) = mean m(x, theta) c(z) z``, with ``m = q r(1) + (1 - q) r(0)``, q the probability at ``x'theta``, for a
    binary target and ``x'theta`` (or what its link makes of that) for a real one.

    Parameters
    ----------
    rows
        The covariates.
    directions
        ``c(z) z`` of each, (m, p).
    high, low
        r(1) and r(0) of each, (m,).
    response
        How the target enters.
    """

    rows: Rows
    directions: Array
    high: Array
    low: Array
    response: Response

    @classmethod
    def of(cls, model: Model, rows: Rows, response: Response) -> Expected:
        """That of one epoch's model."""
        high, low = response.answers(rows.points @ model.origin, model.exponent)
        return cls(rows, directions(rows.points, model), high, low, response)

    def score(self, logit: Array) -> Array:
        """G at ``logit`` = X theta."""
        return np.asarray(self.directions.T @ (self.rows.shares * self._mean(logit)))

    def slope(self, logit: Array) -> Array:
        """dG/dtheta, (p, p)."""
        steep = self.response.steep(logit)
        if self.response.binary:
            steep = steep * (self.high - self.low)
        return np.asarray(self.directions.T @ ((self.rows.shares * steep)[:, None] * self.rows.points))

    def spread(self, logit: Array) -> Array:
        """Mean of ``r^2 c^2 z z'``, (p, p): what one person's score varies by, at most."""
        if self.response.binary:
            q = np.clip(self.response.level(logit), 0.0, 1.0)
            square = q * self.high**2 + (1.0 - q) * self.low**2
        else:
            square = np.ones_like(logit)
        return np.asarray((self.directions * (self.rows.shares * square)[:, None]).T @ self.directions)

    @cached_property
    def square(self) -> Array:
        """Mean of ``c^2 z z'``, (p, p)."""
        return np.asarray((self.directions * self.rows.shares[:, None]).T @ self.directions)

    @property
    def level(self) -> tuple[Array, Array]:
        """m of each row where its probability (a real target's line) is 0, and how much it grows to where that is 1."""
        if not self.response.binary:
            return np.zeros_like(self.high), np.ones_like(self.high)
        return self.low, self.high - self.low

    def _mean(self, logit: Array) -> Array:
        q = self.response.level(logit)
        if not self.response.binary:
            return q
        return np.asarray(q * self.high + (1.0 - q) * self.low)


def mean_matrix(model: Model, rows: Rows, response: Response, *, flat: bool = False) -> Array:
    """Mean of ``w(t) z z' c(z)``, (p, p); with w = 1/2 throughout where ``flat``, which is the scatter."""
    Z = rows.points @ model.transform.T
    reached = directions(rows.points, model, model.matrix_reach)
    weight = np.full(len(Z), 0.5) if flat else response.weights(rows.points @ model.origin, model.exponent)
    found = (reached * (rows.shares * weight)[:, None]).T @ Z
    return np.asarray((found + found.T) / 2.0)
