"""Upper bounds behind `renyi`, as 60-digit decimals that are tight to 30 digits.

Call all but `best_order` and `least` within `murk.privacy.rounding.precise`.
"""

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Literal

from murk.errors import UserError
from murk.privacy.rounding import decimal, gdp_delta_bound, precise

Neighbours = Literal["zero-out", "replace-one"]
Method = Literal["linear-mixing", "mixing"]
Analysis = Literal["published", "joint", "tight"]

EIGENVALUE_SLACK = Fraction(1, 1024)
"""How far floating-point errors may move two neighbours' eigenvalues apart beyond the exact sensitivity, in C^2."""
# Rounding error of 60-digit operations on numbers below 1e12, some of which cancel to 1e-18 of their size.
MARGIN = Decimal("1e-30")
_WIDTH = 2**20
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
_GOLDEN = (math.sqrt(5) - 1) / 2


def total(
    g: Fraction,
    eta: Fraction,
    tau: Fraction,
    rows: int,
    delta: Fraction,
    method: Method,
    neighbours: Neighbours,
    analysis: Analysis,
) -> Decimal:
    """Return the epsilon of a mechanism with these settings; infinite if tau is too small for delta."""
    if method == "mixing":
        return sketch(g, rows, delta, neighbours)
    if analysis == "joint":
        return joint(eta, tau, g, rows, delta, neighbours)
    if (-(decimal(tau) ** 2) / 2).exp() * (1 + MARGIN) > decimal(delta / 3):
        return Decimal("Infinity")
    return modified(eta, g, rows, delta, neighbours)


def noise_on_eigenvalue(g: float, rows: int) -> float:
    """Return the published eta = g / sqrt(k)."""
    return g / math.sqrt(rows)


def modified(eta: Fraction, g: Fraction, rows: int, delta: Fraction, neighbours: Neighbours) -> Decimal:
    """Return the epsilon of ModifiedGaussMix by the paper's theorem 1."""
    return eigenvalue(eta, delta) + sketch(g, rows, delta / 3, neighbours)


def eigenvalue(eta: Fraction, delta: Fraction) -> Decimal:
    """Return the epsilon of the released eigenvalue at a third of delta: the published one if it holds."""
    mu = steps(eta) / Decimal(_WIDTH**2 - 9).sqrt() * (1 + MARGIN)
    published = (2 * (Decimal("3.75") / decimal(delta)).ln()).sqrt() / decimal(eta) * (1 + MARGIN)
    if gdp_delta_bound(mu, Fraction(published)) <= decimal(delta / 3):
        return published
    return (mu * mu / 2 + mu * (2 * (Decimal("1.5") / decimal(delta)).ln()).sqrt()) * (1 + MARGIN)


def steps(eta: Fraction) -> int:
    """Return the eigenvalue's sensitivity in steps of eta / 2^20, with slack for floats and rounding."""
    return math.ceil((1 + EIGENVALUE_SLACK) * _WIDTH / eta) + 1


def joint(eta: Fraction, tau: Fraction, g: Fraction, rows: int, delta: Fraction, neighbours: Neighbours) -> Decimal:
    """Return the epsilon of ModifiedGaussMix as one release; infinite if tau leaves nothing of delta."""
    left = decimal(delta) - tail(decimal(tau))
    if left <= 0:
        return Decimal("Infinity")
    # Discrete Gaussian noise of width S: exactly a steps^2 / 2 S^2 at every order a.
    return sketch(g, rows, Fraction(left), neighbours, Fraction(steps(eta) ** 2, 2 * _WIDTH**2))


def tail(tau: Decimal) -> Decimal:
    """Return a bound on P(z > tau), z discrete Gaussian of width S in steps of 1/S: the normal tail and one more step.

    The sum over steps exceeds the integral by at most one term, and the normaliser is at least S sqrt(2 pi).
    """
    density = (-tau * tau / 2).exp() / (2 * _PI).sqrt()
    return density * (1 / tau + Decimal(1) / _WIDTH) * (1 + MARGIN)


def quantile(probability: float) -> float:
    """Return a tau for which `tail` is at most ``probability``."""
    low, high = 0.01, 60.0
    with precise():
        while high - low > 1e-9:
            middle = (low + high) / 2
            if tail(Decimal(middle)) <= Decimal(probability):
                high = middle
            else:
                low = middle
    return high


def sketch(g: Fraction, rows: int, delta: Fraction, neighbours: Neighbours, rho: Fraction = Fraction(0)) -> Decimal:
    """Return the epsilon of the sketch composed with a rho-zCDP release."""
    order = Decimal(best_order(float(g), rows, float(delta), neighbours, float(rho)))
    value = curve(order, rows, decimal(g), neighbours) + order * decimal(rho)
    value += (1 - 1 / order).ln() - (order * decimal(delta)).ln() / (order - 1)
    # An epsilon is at least 0.
    return max(value + MARGIN, Decimal(0))


def curve(order: Decimal, rows: int, g: Decimal, neighbours: Neighbours) -> Decimal:
    """Return the Renyi divergence of an order in (1, g)."""
    value = order * (1 - 1 / g).ln() - (1 - order / g).ln()
    if neighbours == "replace-one":
        value += order * (1 + 1 / g).ln() - (1 + order / g).ln()
    elif neighbours != "zero-out":
        raise UserError(f"unknown neighbours {neighbours!r}; use one of zero-out, replace-one")
    return value * rows / (2 * (order - 1))


def best_order(g: float, rows: int, delta: float, neighbours: Neighbours, rho: float) -> float:
    """Return the order in (1, g) with the least epsilon, by floats.

    The search is over a = 1 + (g - 1) / (1 + e^-u) for u in a bounded interval, so every point is inside (1, g), where
    the divergence is finite.
    """

    def order(u: float) -> float:
        return 1 + (g - 1) / (1 + math.exp(-u))

    def cost(u: float) -> float:
        a = order(u)
        value = a * math.log1p(-1 / g) - math.log1p(-a / g)
        if neighbours == "replace-one":
            value += a * math.log1p(1 / g) - math.log1p(a / g)
        return a * rho + rows * value / (2 * (a - 1)) + math.log1p(-1 / a) - math.log(a * delta) / (a - 1)

    return order(least(cost, -20.0, 12.0))


def least(cost: Callable[[float], float], low: float, high: float, points: int = 64, cuts: int = 40) -> float:
    """Minimize ``cost`` on [low, high]: a grid, then golden-section search around its best point."""
    grid = [low + (high - low) * i / points for i in range(points + 1)]
    best = min(range(points + 1), key=lambda i: cost(grid[i]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, points)]
    inner, outer = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_inner, at_outer = cost(inner), cost(outer)
    for _ in range(cuts):
        if at_inner < at_outer:
            high, outer, at_outer = outer, inner, at_inner
            inner = high - _GOLDEN * (high - low)
            at_inner = cost(inner)
        else:
            low, inner, at_inner = inner, outer, at_outer
            outer = low + _GOLDEN * (high - low)
            at_outer = cost(outer)
    return (low + high) / 2
