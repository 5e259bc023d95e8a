r"""Draw the results of releases directly from their distribution, given a window's second moment.

A sketch ``S Z + s Xi`` has independent rows ``N(0, Z'Z + s^2 I)``, so its second moment is Wishart-distributed and
least squares on it is exactly

.. math:: \theta = \beta + \sigma A^{-1/2} z / \sqrt{\chi^2_{k-p+1}}, \quad A = X'X + s^2 I, \quad \beta = A^{-1} X'y,
    \quad \sigma^2 = y'y + s^2 - \beta' A \beta

with z standard normal. A draw takes O(p^2), and its mean squared error is known. A released second moment is the
window's with symmetric noise.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from murk.privacy.central import GaussMixMechanism, GramMechanism
from murk.privacy.guarantees import ApproxDP
from murk.protocols.summaries.estimate import estimate_grams
from murk.protocols.summaries.forecast import noise_of
from murk.protocols.summaries.settings import GramSettings, Kind
from murk.protocols.summaries.sums import GramSums

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


class Window:
    """The second moment Z'Z ``(p + 1, p + 1)`` of ``n`` records ``(x, y)`` within their bounds."""

    def __init__(self, second: Matrix, n: int) -> None:
        self.second, self.n = second, n
        self.p = len(second) - 1
        values, self.vectors = np.linalg.eigh(second[:-1, :-1])
        self.values = np.maximum(values, 0.0)
        self.cross: Vector = self.vectors.T @ second[:-1, -1]
        self.square = float(second[-1, -1])
        self.least = max(float(np.linalg.eigvalsh(second)[0]), 0.0)

    def ridge(self, penalty: float) -> Vector:
        """Return ``(X'X + penalty I)^-1 X'y``."""
        found: Vector = self.vectors @ (self.cross / (self.values + penalty))
        return found

    def residual(self, variance: float) -> float:
        """Return sigma^2, the residual variance of a row of the sketch with noise of that variance."""
        return self.square + variance - float(np.sum(self.cross**2 / (self.values + variance)))

    def sketched(self, variance: float, rows: int, rng: np.random.Generator) -> Vector:
        """Draw least squares on a sketch of ``rows`` rows with noise of that variance."""
        scale = math.sqrt(max(self.residual(variance), 0.0) / rng.chisquare(rows - self.p + 1))
        spread = self.vectors @ (rng.normal(size=self.p) / np.sqrt(self.values + variance))
        found: Vector = self.ridge(variance) + scale * spread
        return found

    def expected(self, variance: float, rows: int, test: Matrix) -> float:
        """Return the mean of :func:`squared_error` over sketches."""
        along = np.einsum("ij,ij->j", self.vectors, test[:-1, :-1] @ self.vectors)
        wide = float(np.sum(along / (self.values + variance)))
        return squared_error(self.ridge(variance), test) + self.residual(variance) * wide / (rows - self.p - 1)

    def mixing_variance(self, mechanism: GaussMixMechanism, rng: np.random.Generator) -> float:
        """Return the noise variance of a sketch by ``mechanism``, with a drawn eigenvalue if it releases one."""
        eigenvalue = 0.0
        if mechanism.releases_eigenvalue:
            eigenvalue = self.least / mechanism.bound**2 - mechanism.eta * (mechanism.tau - float(rng.normal()))
        return mechanism.noise_variance(mechanism.spread(eigenvalue))

    @property
    def root(self) -> Matrix:
        """Return a square matrix of records with the same second moment."""
        values, vectors = np.linalg.eigh(self.second)
        found: Matrix = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        return found


def squared_error(theta: Vector, test: Matrix) -> float:
    """Return the mean squared error ``u'T u``, ``u = (-theta, 1)``, for a mean second moment T of test records."""
    u = np.append(-theta, 1.0)
    return float(u @ test @ u)


def released(
    second: Matrix, budget: ApproxDP, rng: np.random.Generator, bound: float, target_bound: float = 1.0
) -> tuple[Matrix, GramMechanism]:
    """Return a window's second moment as Murk releases it, and the mechanism."""
    d = len(second)
    mechanism = GramMechanism.calibrate(budget, columns=d, feature_bound=bound, target_bound=target_bound)
    noisy: Matrix = second + noise_of(mechanism, d, rng)
    return noisy, mechanism


def by_moments(
    window: Window, budget: ApproxDP, rng: np.random.Generator, bound: float, *, kind: Kind = "real",
    constant: bool = False,
) -> Vector:  # fmt: skip
    """Return Murk's default estimate: coefficients from the released second moment."""
    noisy, mechanism = released(window.second, budget, rng, bound)
    sums = GramSums(window.p + 1)
    sums.add(noisy, records=window.n, noise=mechanism.scale**2, weight=1.0)
    names = tuple(map(str, range(window.p)))
    settings = GramSettings(names, bound, kind=kind, constant=constant)
    found: Vector = estimate_grams(settings, mechanism.target_weight, [sums]).values
    return found
