"""Rows of covariates that expectations over people are computed with: public ones, or normal ones of known moments."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from murk.learners.inference import PublicCovariates

Array = NDArray[np.float64]

# Pairs of normal rows and their mirror images.
_PAIRS = 384
_KEY = 0x6D75726B


@dataclass(frozen=True)
class Rows:
    """Coded rows and their shares.

    Parameters
    ----------
    points
        (m, p), the constant last.
    shares
        (m,), adding up to 1.
    sample
        Size of the sample that they are; infinite where they stand for a law.
    """

    points: Array
    shares: Array
    sample: float = float("inf")

    @classmethod
    def public(cls, covariates: PublicCovariates) -> Rows:
        """Those of public covariates."""
        size = int(covariates.counts.sum())
        return cls(covariates.points, covariates.counts / size, float(size))

    @classmethod
    def normal(cls, moment: Array) -> Rows:
        """Normal rows with a second moment (p, p) whose last entry, of the constant, is 1.

        The same draws for every moment, so that what is computed with them is a smooth function of it.
        """
        p = len(moment)
        mean = moment[:-1, -1]
        covariance = moment[:-1, :-1] - np.outer(mean, mean)
        points = np.ones((2 * _PAIRS, p))
        points[:, :-1] = mean + _normals(p - 1) @ power(covariance, 0.5)
        return cls(points, np.full(len(points), 1.0 / len(points)))

    def thinned(self, most: int) -> Rows:
        """At most so many of them, evenly spaced."""
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
    """Standard normal rows (2 _PAIRS, size) with mean 0 and second moment the identity, always the same."""
    words = np.random.Philox(key=_KEY).random_raw(_PAIRS * size)
    uniform = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54
    inverse = NormalDist().inv_cdf
    half = np.array([inverse(value) for value in uniform.tolist()]).reshape(_PAIRS, size)
    if size and size < _PAIRS // 2:
        half = half @ power(half.T @ half / _PAIRS, -0.5)
    return np.concatenate([half, -half])


def power(matrix: Array, exponent: float, least: float = 1e-12) -> Array:
    """Power of a symmetric matrix, its eigenvalues raised to ``least`` times the largest first."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    values = np.maximum(values, max(least * float(values[-1]), 1e-300)) if len(values) else values
    return np.asarray((vectors * values**exponent) @ vectors.T)


def inverse(matrix: Array) -> Array:
    """Inverse of a matrix, float64."""
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)
