"""Rows of covariates, and expectations of honest answers over them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from murk.learners.core.scoring.model import Model, Response, directions
from murk.learners.estimates.estimate import PublicCovariates

Array = NDArray[np.float64]

# Approximate number of normal rows.
_ROWS = 768
_GOLDEN = (5.0**0.5 - 1.0) / 2.0
_KEY = 0x6D75726B


@dataclass(frozen=True)
class Rows:
    """Coded rows and their shares."""

    points: Array  # (m, p), the constant last
    shares: Array  # (m,), adding up to 1
    sample: float = float("inf")  # sample size of the rows; infinite if they represent a distribution

    @classmethod
    def public(cls, covariates: PublicCovariates) -> Rows:
        """Return the rows of public covariates."""
        size = int(covariates.counts.sum())
        return cls(covariates.points, covariates.counts / size, float(size))

    @classmethod
    def normal(cls, moment: Array, along: Array | None = None) -> Rows:
        """Return normal rows with a second moment (p, p) whose last entry, of the constant, is 1.

        The draws are always the same, so that results are smooth in the moment, and even around the coefficients
        ``along`` (p,), on which results depend most.
        """
        p = len(moment)
        mean = moment[:-1, -1]
        root = power(moment[:-1, :-1] - np.outer(mean, mean), 0.5)
        normals = _normals(p - 1)
        if along is not None and p > 1:
            normals = _turned(normals, root @ along[:-1])
        points = np.ones((len(normals), p))
        points[:, :-1] = mean + normals @ root
        return cls(points, np.full(len(points), 1.0 / len(points)))

    def thinned(self, most: int) -> Rows:
        """Return at most ``most`` of the rows, evenly spaced."""
        if len(self.points) <= most:
            return self
        kept = np.linspace(0, len(self.points) - 1, most).round().astype(np.int64)
        shares = self.shares[kept]
        total = float(shares.sum())
        return Rows(self.points[kept], shares / total, self.sample * total)

    @property
    def second_moment(self) -> Array:
        """Mean of ``x x'``."""
        return np.asarray((self.points * self.shares[:, None]).T @ self.points)


@lru_cache(maxsize=8)
def _normals(size: int) -> Array:
    """Return fixed standard normal rows (m, size) with mean 0 and second moment the identity.

    Each quantile of the first number is combined with both ends of a random orthogonal frame of normal length, so that
    the other numbers have the second moments of normal ones at every first number.
    """
    # Loading it is slow, and most processes do not need it.
    from scipy import special

    other = max(size - 1, 0)
    layers = max(_ROWS // max(2 * other, 1), 32)
    quantiles = special.ndtri((np.arange(layers) + 0.5) / layers)
    if not other:
        normals = quantiles[:, None][:, :size]
        return np.asarray(normals / np.sqrt(np.mean(normals**2, axis=0)))
    words = np.random.Philox(key=_KEY).random_raw(layers * other * other)
    uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54
    frames = np.linalg.qr(special.ndtri(uniform).reshape(layers, other, other))[0]
    # Lengths are those of normal rows, in an order unrelated to the first number.
    rank = np.minimum(np.arange(layers), np.arange(layers)[::-1]) + 0.5
    lengths = np.sqrt(2.0 * special.gammaincinv(other / 2.0, rank * _GOLDEN % 1.0))
    frames = frames * lengths[:, None, None]
    ends = np.concatenate([frames, -frames], axis=1)
    first = np.broadcast_to(quantiles[:, None, None], (layers, 2 * other, 1))
    normals = np.concatenate([first, ends], axis=2).reshape(-1, size)
    return np.asarray(normals / np.sqrt(np.mean(normals**2, axis=0)))


def _turned(normals: Array, along: Array) -> Array:
    """Return rows reflected so that their first axis lies along a direction."""
    length = float(np.linalg.norm(along))
    if not length > 0.0:
        return normals
    mirror = along / length
    mirror = mirror - np.eye(len(along))[0]
    square = float(mirror @ mirror)
    if square < 1e-12:
        return normals
    return np.asarray(normals - np.outer(normals @ mirror, 2.0 / square * mirror))


def power(matrix: Array, exponent: float, least: float = 1e-12) -> Array:
    """Return a power of a symmetric matrix, its eigenvalues raised to at least ``least`` times the largest."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    values = np.maximum(values, max(least * float(values[-1]), 1e-300)) if len(values) else values
    return np.asarray((vectors * values**exponent) @ vectors.T)


def inverse(matrix: Array) -> Array:
    """Return the inverse of a matrix, float64."""
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


@dataclass(frozen=True)
class Expected:
    """The mean score of an epoch as a function of the coefficients theta.

    ``G(theta) = mean m(x, theta) c(z) z``, with ``m = q r(1) + (1 - q) r(0)`` for a binary target of probability q at
    ``x'theta``, and ``m = x'theta``, or its link's mean, for a real one.
    """

    rows: Rows  # the covariates
    directions: Array  # ``c(z) z`` of each row, (m, p)
    # high, low: r(1) and r(0) of each row, (m,)
    high: Array
    low: Array
    response: Response  # how the target enters a score

    @classmethod
    def of(cls, model: Model, rows: Rows, response: Response) -> Expected:
        """Return the expectation at one epoch's model."""
        high, low = response.answers(rows.points @ model.origin, model.exponent)
        return cls(rows, directions(rows.points, model), high, low, response)

    def score(self, logit: Array) -> Array:
        """Return the expected mean score G at ``logit``, the logits of the rows."""
        return np.asarray(self.directions.T @ (self.rows.shares * self._mean(logit)))

    def slope(self, logit: Array) -> Array:
        """Return the derivative of the expected mean score by theta, (p, p)."""
        steep = self.response.steep(logit)
        if self.response.binary:
            steep = steep * (self.high - self.low)
        return np.asarray(self.directions.T @ ((self.rows.shares * steep)[:, None] * self.rows.points))

    def spread(self, logit: Array) -> Array:
        """Return the mean square of scores, ``r^2 c^2 z z'``, (p, p), an upper bound on a score's covariance."""
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
        """Mean answer m of each row at probability 0 (for a real target, at mean 0), and its increase up to 1."""
        if not self.response.binary:
            return np.zeros_like(self.high), np.ones_like(self.high)
        return self.low, self.high - self.low

    def _mean(self, logit: Array) -> Array:
        q = self.response.level(logit)
        if not self.response.binary:
            return q
        return np.asarray(q * self.high + (1.0 - q) * self.low)


def mean_matrix(model: Model, rows: Rows, response: Response, *, flat: bool = False) -> Array:
    """Return the mean of ``w(t) z z' c(z)``, (p, p); with ``flat`` that of the scatter, w = 1/2."""
    Z = rows.points @ model.transform.T
    reached = directions(rows.points, model, model.matrix_reach)
    weight = np.full(len(Z), 0.5) if flat else response.weights(rows.points @ model.origin, model.exponent)
    product = (reached * (rows.shares * weight)[:, None]).T @ Z
    return np.asarray((product + product.T) / 2.0)
