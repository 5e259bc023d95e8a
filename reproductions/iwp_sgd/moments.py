r"""Moments of the paper's gradient estimate for a loss ``f(theta'x y)``, by quadrature (theorem 5.3).

A record enters through ``u = y x``: its score ``z = theta'u`` and its squared length. Noise of variance s adds ``N(0, s
t^2)`` to the score, ``t = |theta|``, and to the squared length of the part orthogonal to theta its mean, ``s (p - 1)``.
So every moment is a one-dimensional Gaussian integral.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import ndtr

from murk.privacy import ApproxDP, GaussianMechanism
from murk.protocols.examples.losses import LOGIT_WIDTH
from reproductions.iwp_sgd.paths import DELTA
from reproductions.iwp_sgd.plain import Array

NODES: Final = 1601
_REACH: Final = 12.0
_TIMES: Final = 32


@dataclass(frozen=True)
class Inverse:
    """A loss by derivatives 1 to 3 of its inverse Weierstrass transform, at scores z for a score variance v."""

    name: str
    at: Callable[[Array, Array], tuple[Array, Array, Array]]


def _exponential(z: Array, v: Array) -> tuple[Array, Array, Array]:
    found = np.exp(-z - 0.5 * v)
    return -found, found, -found


def _probit(z: Array, v: Array) -> tuple[Array, Array, Array]:
    left = LOGIT_WIDTH - v
    density = np.exp(-0.5 * z * z / left) / np.sqrt(2.0 * math.pi * left)
    return ndtr(-z / np.sqrt(left)) * -1.0, density, -z / left * density


QUADRATIC: Final = Inverse("quadratic", lambda z, v: (z - 1.0, np.ones_like(z + v), np.zeros_like(z + v)))
EXPONENTIAL: Final = Inverse("exponential", _exponential)
PROBIT: Final = Inverse("probit", _probit)


@dataclass(frozen=True)
class Place:
    """A place of the domain: number of features p, length t of theta, score of the record, its squared length."""

    p: int
    t: float
    score: float
    square: float


@dataclass(frozen=True)
class Release:
    """The paper's release: feature noise of variance ``noise``, and randomized response with ``epsilon_y``."""

    noise: float
    epsilon_y: float

    @classmethod
    def published(cls, p: int, epsilon: float) -> Release:
        """Return the release of features in [-1, 1]^p with half of epsilon each, by the printed calibration."""
        budget = ApproxDP(epsilon / 2.0, DELTA)
        noise = GaussianMechanism.calibrate(budget, dimension=p, radius=math.sqrt(p), method="classic")
        return cls(noise.variance, epsilon / 2.0)

    @property
    def keep(self) -> float:
        """Return S, the probability of the true label."""
        return 1.0 / (1.0 + math.exp(-self.epsilon_y))

    @property
    def weight(self) -> float:
        """Return S~, the weight of the released label; ``1 - S~`` is that of the other."""
        return 1.0 / -math.expm1(-self.epsilon_y)

    @property
    def kappa(self) -> float:
        """Return ``S~ (S~ - 1)``, the label's factor of the variance."""
        return self.weight * (self.weight - 1.0)


def _scores(place: Place, s: Array, nodes: int) -> tuple[Array, Array, Array]:
    """Return scores and mean squared lengths under noise of variances s, ``(s, nodes)``, and the weights.

    The trapezoidal rule on a Gaussian converges faster than any power. Squares of ``exp(-z)`` move its centre by ``2
    sqrt v`` standard deviations, so the rule reaches further by as much.
    """
    root = np.sqrt(s[:, None]) * place.t
    at = np.linspace(-1.0, 1.0, nodes) * (_REACH + 2.0 * root)
    weights = np.exp(-0.5 * at * at) * (at[:, 1] - at[:, 0])[:, None] / math.sqrt(2.0 * math.pi)
    z = place.score + root * at
    aside = max(place.square - (place.score / place.t) ** 2, 0.0)
    return z, (z / place.t) ** 2 + aside + s[:, None] * (place.p - 1), weights


def curvature(loss: Inverse, place: Place, z: Array, square: Array, s: Array, *, labels: bool = False) -> Array:
    """Return ``|W_s^-1[grad_theta grad_x l](x)|^2`` (Frobenius), or with ``labels`` that of both labels' difference.

    The matrix is ``g' I + g'' u theta' - s g''' theta theta'``, with g the inverse transform.
    """
    t, p = place.t, place.p
    a, b, c = loss.at(z, s * t * t)
    if labels:
        others = loss.at(-z, s * t * t)
        a, b, c = a + others[0], b - others[1], c + others[2]
    c = -s * c
    found = p * a * a + b * b * square * t * t + c * c * t**4
    return np.asarray(found + 2.0 * (a * b * z + a * c * t * t + b * c * z * t * t))


def moments(loss: Inverse, place: Place, s: Array, *, labels: bool = False, nodes: int = NODES) -> Array:
    """Return the Gaussian-weighted moments ``E |W_s^-1[grad_theta grad_x l](x + N(0, s I))|^2`` at variances s."""
    z, square, weights = _scores(place, s, nodes)
    return np.asarray((weights * curvature(loss, place, z, square, s[:, None], labels=labels)).sum(axis=1))


def mean_moment(loss: Inverse, place: Place, noise: float, *, labels: bool = False, nodes: int = NODES) -> float:
    """Return the mean of :func:`moments` over s from 0 to the noise, by Gauss and Legendre."""
    at, weights = np.polynomial.legendre.leggauss(_TIMES)
    return float(0.5 * weights @ moments(loss, place, 0.5 * noise * (at + 1.0), labels=labels, nodes=nodes))


def slope_square(loss: Inverse, place: Place) -> float:
    """Return ``|grad_theta l|^2`` at the true record."""
    z, none = np.array([place.score]), np.zeros(1)
    return float(loss.at(z, none)[0][0] ** 2 * place.square)


def labels_square(loss: Inverse, place: Place) -> float:
    """Return the squared difference of the gradients at both labels."""
    z, none = np.array([place.score]), np.zeros(1)
    return float((loss.at(z, none)[0][0] + loss.at(-z, none)[0][0]) ** 2 * place.square)


def variance(loss: Inverse, place: Place, release: Release, *, nodes: int = NODES) -> float:
    """Return ``E |estimate - gradient|^2`` by its definition: an integral over the noisy score, for each label."""
    z, square, weights = _scores(place, np.array([release.noise]), nodes)
    v, w = np.array([release.noise * place.t**2]), release.weight
    total = 0.0
    for label, chance in ((1.0, release.keep), (-1.0, 1.0 - release.keep)):
        one, other = loss.at(label * z, v), loss.at(-label * z, v)
        along = label * (w * one[0] - (1.0 - w) * other[0])
        across = -release.noise * (w * one[1] + (1.0 - w) * other[1])
        squares = square * along**2 + 2.0 * z * along * across + (place.t * across) ** 2
        total += chance * float((weights * squares).sum())
    return total - slope_square(loss, place)


def decomposed(loss: Inverse, place: Place, release: Release, *, nodes: int = NODES) -> float:
    """Return the same by the identity of the theorem's proof, which is right."""
    own = mean_moment(loss, place, release.noise, nodes=nodes)
    both = mean_moment(loss, place, release.noise, labels=True, nodes=nodes)
    return release.noise * (own + release.kappa * both) + release.kappa * labels_square(loss, place)


def places(p: int, radius: float, count: int = 25) -> list[Place]:
    """Return places of ``|x| <= sqrt p, |theta| <= radius``: edge records at evenly spread scores, by length of theta.

    All quantities grow with the record's part orthogonal to theta, so that only edge records matter.
    """
    lengths = radius * np.linspace(1.0 / 8.0, 1.0, 8)
    return [Place(p, t, score, p) for t in lengths for score in t * math.sqrt(p) * np.linspace(-1.0, 1.0, count)]


@dataclass(frozen=True)
class Constants:
    """Suprema over the domain, by a grid: the printed C^2, and D^2 and G^2 of the right version."""

    printed: float
    slope: float
    moment: float

    def bound(self, release: Release, *, printed: bool = False) -> float:
        """Return the printed bound on the variance, or ``G^2 sigma^2 (1 + 4 kappa) + 4 kappa D^2``."""
        square, slope = (self.printed, self.printed) if printed else (self.moment, self.slope)
        return square * release.noise * (1.0 + 4.0 * release.kappa) + 4.0 * release.kappa * slope


def constants(loss: Inverse, p: int, radius: float, release: Release) -> Constants:
    """Return the suprema over ``|x| <= sqrt p, |theta| <= radius``."""
    where = places(p, radius)
    slope = max(slope_square(loss, place) for place in where)
    s = release.noise * np.linspace(0.0, 1.0, 65)
    printed = max(
        float(curvature(loss, place, np.full(65, place.score), np.full(65, place.square), s).max()) for place in where
    )
    moment = max(mean_moment(loss, place, release.noise) for place in where if place.t == radius)
    return Constants(max(printed, slope), slope, moment)
