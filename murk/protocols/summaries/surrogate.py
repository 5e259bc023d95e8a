"""Logistic models from a least-squares fit on labels -1 and +1.

*Quadratic* (the paper's): ``-log(1 + e^-s)`` is replaced by ``b0 + b1 s + b2 s^2`` on ``[-Q, Q]``, whose maximum is at
``-(b1 / (2 b2))`` times the least-squares fit. *Normal scores*: a sketch's second moments give the mean and variance of
the scores ``x'u``. If scores were normal, the logistic coefficients would be ``c u``, with the c for which the mean
slope of the logistic curve gives the least-squares fit (Stein's identity), so no range is needed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from murk._internal.arrays import Matrix, Vector
from murk._internal.links import normal_nodes
from murk.errors import UserError

_ERROR_CODE = "MURK-LEARN-001"

Surrogate = Literal["minimax", "chebyshev"]

# Largest standard deviation of logits for which a curve is sought: beyond, nearly all labels would be certain.
WIDEST = 10.0
_NODES = 64
_RANGE = (1e-3, 1e3)


@dataclass(frozen=True, slots=True)
class Quadratic:
    """``b0 + b1 s + b2 s^2`` in place of ``-log(1 + e^-s)`` on ``[-range, range]``."""

    b0: float
    b1: float  # 1/2 for every range
    b2: float  # negative
    error: float  # largest distance to -log(1 + e^-s) on the range (the paper's q)

    @property
    def scale(self) -> float:
        """``-b1 / (2 b2)``, the factor of the least-squares fit on labels -1 and +1."""
        return -self.b1 / (2.0 * self.b2)


@lru_cache(maxsize=64)
def quadratic(reach: float, surrogate: Surrogate = "minimax") -> Quadratic:
    """Return the quadratic with the least maximal distance from ``-log(1 + e^-s)`` on ``[-reach, reach]`` (minimax).

    ``-log(1 + e^-s) = s/2 - log(2 cosh(s/2))``, so ``b1 = 1/2`` and the even rest is fitted in ``v = s^2``, in which it
    is convex: the best line has the chord's slope and lies midway between the chord and the parallel tangent
    (Chebyshev). The surrogate ``"chebyshev"`` meets the curve at the Chebyshev nodes, 0 and ``+-Q sqrt(3) / 2``.
    Source: Lev et al., The Gaussian Mixing Mechanism, section 5.2; Huggins, Adams and Broderick 2017.

    Raises UserError for a range Q outside 0.001 to 1000, or an unknown surrogate.

    >>> round(quadratic(6.0).scale, 3), round(quadratic(6.0, "chebyshev").scale, 3)
    (3.897, 3.533)
    """
    if surrogate not in ("minimax", "chebyshev"):
        raise UserError(f'surrogate={surrogate!r} is not one of "minimax", "chebyshev"')
    if not _RANGE[0] <= reach <= _RANGE[1]:
        raise UserError(f"the range Q of the logistic surrogate lies from 0.001 to 1000, got {reach!r}")

    def even(s: float) -> float:
        # -log(2 cosh(s/2)), also where cosh overflows.
        return -(s / 2.0 + math.log1p(math.exp(-s)))

    if surrogate == "chebyshev":
        bend = (even(reach * math.sqrt(0.75)) - even(0.0)) / (0.75 * reach**2)
        gaps = (abs(even(s) - even(0.0) - bend * s * s) for s in np.linspace(0.0, reach, 2001).tolist())
        return Quadratic(b0=even(0.0), b1=0.5, b2=bend, error=max(gaps))
    slope = (even(reach) - even(0.0)) / reach**2
    # The tangent point: d even / d(s^2) = -tanh(s/2) / (4 s) equals the slope; it falls in size with s.
    low, high = 1e-9 * reach, reach
    for _ in range(200):
        middle = 0.5 * (low + high)
        if -math.tanh(middle / 2.0) / (4.0 * middle) < slope:
            low = middle
        else:
            high = middle
    tangent = even(low) - slope * low**2
    chord = even(0.0)
    return Quadratic(b0=0.5 * (tangent + chord), b1=0.5, b2=slope, error=0.5 * abs(tangent - chord))


def by_quadratic(fit: Vector, reach: float, surrogate: Surrogate = "minimax") -> Vector:
    """Return logistic coefficients, ``quadratic(reach).scale`` times the least-squares ``fit`` on labels -1 and +1."""
    return np.asarray(quadratic(reach, surrogate).scale * fit)


def by_normal_scores(fit: Vector, moment: Matrix, label: float) -> Vector | None:
    """Return logistic coefficients (p,) from the least-squares ``fit`` on labels -1 and +1, by normal scores.

    With ``u = fit / 2``, ``s = x'u`` without the constant, and ``p(s) = 1/(1 + e^-(a + c s))``, it solves ``E p = E y``
    and ``c E p (1 - p) = 1`` for ``(a, c)``: both hold for the maximum-likelihood coefficients ``(c u, a)`` if x is
    normal, and nearly so if many features add up (Wang, Zhang, Gaboardi and Xu, with an intercept). ``moment`` is
    ``E x x'`` (p, p), the constant last, and ``label`` the mean label. Returns None if there is no solution: noise may
    make the fit explain more of the labels than a logistic curve on normal scores can.
    """
    from scipy.optimize import brentq
    from scipy.special import expit

    # A sketch's constant is noisy too: normalise by it.
    count = float(moment[-1, -1])
    if not count > 0.0:
        return None
    mean = moment[-1, :-1] / count
    slopes = fit[:-1] / 2.0
    centre = float(mean @ slopes)
    variance = float(slopes @ (moment[:-1, :-1] / count) @ slopes) - centre**2
    share = 0.5 + label / 2.0
    if not 0.0 < share < 1.0:
        return None
    logit = math.log(share / (1.0 - share))
    if variance <= 1e-12:
        # If slopes are nearly zero, the curve is a line.
        scale = 1.0 / (share * (1.0 - share))
        return np.append(scale * slopes, logit - scale * centre)
    nodes, weights = normal_nodes(_NODES)
    spread = math.sqrt(variance) * nodes

    def intercept(scale: float) -> float:
        far = abs(logit) + scale * float(np.max(np.abs(spread))) + 1.0
        return float(brentq(lambda a: float(weights @ expit(a + scale * spread)) - share, -far, far))

    def excess(scale: float) -> float:
        probability = expit(intercept(scale) + scale * spread)
        return scale * float(weights @ (probability * (1.0 - probability))) - 1.0

    # The mean slope is at most 1/4, so c is at least 4. The left side rises to a limit that noise may keep below 1.
    high = 4.0
    while excess(high) < 0.0:
        high *= 2.0
        if high > 4.0 and 0.5 * high * math.sqrt(variance) > WIDEST:
            return None
    scale = float(brentq(excess, 1.0, high))
    return np.append(scale * slopes, intercept(scale) - scale * centre)
