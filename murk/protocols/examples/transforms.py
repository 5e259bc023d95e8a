r"""Compiled losses and their inverse Weierstrass transforms (Dufraiche et al., equation 7 and section 5.2).

A loss ``f(theta'u)`` is evaluated at ``z = theta'u~``, noise of variance ``v = theta'D theta``. Its inverse transform
``g(., v)`` satisfies ``E g(theta'u~, v) = f(theta'u)`` and ``dg/dv = -g''/2``, so that the gradient of
``g(theta'u~, theta'D theta)`` is

.. math:: \tilde u\, g'(z) - D\theta\, g''(z)

=============  ==================================  =============================================
loss           f(z)                                g(z)
=============  ==================================  =============================================
quadratic      (z - 1)^2 / 2                       (z - 1)^2 / 2 - v / 2
exponential    exp(-z)                             exp(-z - v / 2)
log            log(1 + exp(-z))                    sum over k <= K of (-v/2)^k / k! f^(2k)(z)
probit         f' = -Phi(-z / sqrt t)              the same with t - v in place of t, while v < t
=============  ==================================  =============================================

The probit-type loss is not in the paper: as a smoothed loss it has an exact, bounded inverse. The log loss has none:
its sum is truncated (appendix D.7), and so are its gradients.
"""

from __future__ import annotations

import math

from murk._internal.jit import jit

QUADRATIC, EXPONENTIAL, LOG, PROBIT, SQUARED = range(5)
_ROOT_HALF = math.sqrt(0.5)
_ROOT_TWO_PI = math.sqrt(2.0 * math.pi)


@jit
def log_derivative(order: int, z: float) -> float:
    """Return the derivative of order 0 to 8 of ``log(1 + exp(-z))``, a polynomial in ``s = 1 / (1 + exp(-z))``."""
    if order == 0:
        return math.log1p(math.exp(-abs(z))) + max(-z, 0.0)
    if z >= 0:
        e = math.exp(-z) if z < 700.0 else 0.0
        s, r = 1.0 / (1.0 + e), e / (1.0 + e)
    else:
        e = math.exp(z) if z > -700.0 else 0.0
        s, r = e / (1.0 + e), 1.0 / (1.0 + e)
    if order == 1:
        return -r
    # All are polynomials in h = s (1 - s); those of odd order are multiplied by 1 - 2 s.
    h = s * r
    if order == 2:
        return h
    if order == 3:
        return h * (r - s)
    if order == 4:
        return h * (1.0 - 6.0 * h)
    if order == 5:
        return h * (r - s) * (1.0 - 12.0 * h)
    if order == 6:
        return h * (1.0 - 30.0 * h + 120.0 * h * h)
    if order == 7:
        return h * (r - s) * (1.0 - 60.0 * h + 360.0 * h * h)
    return h * (1.0 - 126.0 * h + 1680.0 * h * h - 5040.0 * h * h * h)


@jit
def slopes(loss: int, terms: int, width: float, z: float, v: float) -> tuple[float, float]:
    """Return ``(g', g'')`` at z; ``terms`` is K of the log loss, ``width`` t of the probit-type loss."""
    if loss == QUADRATIC:
        return z - 1.0, 1.0
    if loss == EXPONENTIAL:
        power = -z - 0.5 * v
        found = math.exp(power) if power < 700.0 else math.inf
        return -found, found
    if loss == PROBIT:
        spread = width - v
        if not spread > 0.0:
            return math.nan, math.nan
        root = math.sqrt(spread)
        a = z / root
        return -0.5 * math.erfc(a * _ROOT_HALF), math.exp(-0.5 * a * a) / (root * _ROOT_TWO_PI)
    first, second, factor = 0.0, 0.0, 1.0
    for k in range(terms + 1):
        first += factor * log_derivative(2 * k + 1, z)
        if k < terms:
            # In the gradient of the truncated sum, g'' has one term less.
            second += factor * log_derivative(2 * k + 2, z)
        factor *= -0.5 * v / (k + 1)
    return first, second


@jit
def bends(loss: int, terms: int, width: float, z: float, v: float) -> tuple[float, float, float, float]:
    """Return the factors of the four matrices in the Hessian of ``g(theta'u~, theta'D theta)``.

    With ``d = D theta``: of ``u~u~'`` and ``-D`` (by ``g''``, which differ only for truncated sums), of
    ``-(u~d' + d u~')`` (by the third derivative) and of ``dd'`` (by the fourth).
    """
    if loss in (QUADRATIC, SQUARED):
        return 1.0, 1.0, 0.0, 0.0
    if loss == EXPONENTIAL:
        power = -z - 0.5 * v
        found = math.exp(power) if power < 700.0 else math.inf
        return found, found, -found, found
    if loss == PROBIT:
        spread = width - v
        if not spread > 0.0:
            return math.nan, math.nan, math.nan, math.nan
        root = math.sqrt(spread)
        a = z / root
        found = math.exp(-0.5 * a * a) / (root * _ROOT_TWO_PI)
        return found, found, -found * a / root, found * (a * a - 1.0) / spread
    outer, inner, cross, last, factor = 0.0, 0.0, 0.0, 0.0, 1.0
    for k in range(terms + 1):
        outer += factor * log_derivative(2 * k + 2, z)
        if k < terms:
            inner += factor * log_derivative(2 * k + 2, z)
            cross += factor * log_derivative(2 * k + 3, z)
        if k < terms - 1:
            last += factor * log_derivative(2 * k + 4, z)
        factor *= -0.5 * v / (k + 1)
    return outer, inner, cross, last


@jit
def value(loss: int, terms: int, width: float, z: float, v: float) -> float:
    """Return ``g`` at z for noise of variance v: an unbiased estimate of the loss."""
    if loss == QUADRATIC:
        return 0.5 * (z - 1.0) * (z - 1.0) - 0.5 * v
    if loss == EXPONENTIAL:
        power = -z - 0.5 * v
        return math.exp(power) if power < 700.0 else math.inf
    if loss == PROBIT:
        spread = width - v
        if not spread > 0.0:
            return math.nan
        root = math.sqrt(spread)
        a = z / root
        return root * (math.exp(-0.5 * a * a) / _ROOT_TWO_PI - 0.5 * a * math.erfc(a * _ROOT_HALF))
    total, factor = 0.0, 1.0
    for k in range(terms + 1):
        total += factor * log_derivative(2 * k, z)
        factor *= -0.5 * v / (k + 1)
    return total
