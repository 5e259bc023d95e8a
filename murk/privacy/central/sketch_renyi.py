"""Guarantees of a Gaussian sketch: Renyi divergences, their conversion, and the least threshold for a guarantee.

Notation of the paper: k sketch rows; data rows of norm at most C; g = (std^2 + lambda_min) / C^2, the smallest
eigenvalue of the noisy second moment in units of C^2; orders a with 1 < a < g. Every order gives a valid epsilon: the
best order is searched with floats, and its epsilon is computed with 60 digits and rounded against the claim. Public
functions raise `UserError` for a parameter out of range. Functions of `Decimal` return upper bounds, tight to 30
digits; call them within `precise`. Reference, unless another is given: Lev, Srinivasan, Shenfeld, Ligett, Sekhari,
Wilson, "The Gaussian mixing mechanism".
"""

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Literal

from murk.errors import UserError
from murk.privacy.guarantees import TruncatedCDP
from murk.privacy.rounding import decimal, float_up, gdp_delta_bound, precise, rational, require

_ERROR_CODE = "MURK-PRIVACY-001"

Neighbours = Literal["zero-out", "replace-one"]
Method = Literal["linear-mixing", "mixing"]
Analysis = Literal["published", "joint", "tight"]
Settings = tuple[Fraction, Fraction, Fraction]  # g, eta and tau

EIGENVALUE_SLACK = Fraction(1, 1024)
"""How far floating-point errors may move two neighbours' eigenvalues apart beyond the exact sensitivity, in C^2."""
# Rounding error of 60-digit operations on numbers below 1e12, some of which cancel to 1e-18 of their size.
MARGIN = Decimal("1e-30")
# If m exceeds 1 by less, no order gives a useful epsilon.
_LEAST_EXCESS = Fraction(1, 10**6)
_WIDTH = 2**20
PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459")
_GOLDEN = (math.sqrt(5) - 1) / 2


def total(
    settings: Settings, rows: int, delta: Fraction, method: Method, neighbours: Neighbours, analysis: Analysis
) -> Decimal:
    """Return the epsilon of a mechanism with these settings; infinite if tau is too small for delta."""
    g, eta, tau = settings
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
    r"""Return the epsilon of ModifiedGaussMix, which releases a noisy smallest eigenvalue and the sketch.

    .. math:: \tilde\epsilon = \frac{\sqrt{2 \log(3.75/\delta)}}{\eta} + \min_{1 < a < g} \varphi(a; k, g)
        + \frac{\log(3/\delta) + (a-1) \log(1 - 1/a) - \log a}{a - 1}

    A third of delta is for the eigenvalue, a third for the sketch, a third for an overestimated eigenvalue. Replacing a
    row moves the smallest eigenvalue no further than dropping it, so only phi differs. Reference: theorem 1.
    """
    return eigenvalue(eta, delta) + sketch(g, rows, delta / 3, neighbours)


def eigenvalue(eta: Fraction, delta: Fraction) -> Decimal:
    """Return the epsilon of the released eigenvalue at a third of delta, with noise eta C^2 and sensitivity C^2.

    It is the published sqrt(2 log(3.75 / delta)) / eta if the exact Gaussian curve, with lattice and floats, confirms
    it: that formula is proved for epsilon <= 1 and wrong beyond about 8. Otherwise it is mu^2 / 2 + mu sqrt(2 log(1.5 /
    delta)), mu = 1 / eta, which always holds: delta(epsilon) <= Phi(mu/2 - epsilon/mu), and Phi(-z) <= exp(-z^2 / 2) /
    2.
    """
    mu = steps(eta) / Decimal(_WIDTH**2 - 9).sqrt() * (1 + MARGIN)
    published = (2 * (Decimal("3.75") / decimal(delta)).ln()).sqrt() / decimal(eta) * (1 + MARGIN)
    if gdp_delta_bound(mu, Fraction(published)) <= decimal(delta / 3):
        return published
    return (mu * mu / 2 + mu * (2 * (Decimal("1.5") / decimal(delta)).ln()).sqrt()) * (1 + MARGIN)


def steps(eta: Fraction) -> int:
    """Return the eigenvalue's sensitivity in steps of eta / 2^20, with slack for floats and rounding."""
    return math.ceil((1 + EIGENVALUE_SLACK) * _WIDTH / eta) + 1


def joint(eta: Fraction, tau: Fraction, g: Fraction, rows: int, delta: Fraction, neighbours: Neighbours) -> Decimal:
    r"""Return the epsilon of ModifiedGaussMix as one release; infinite unless P(z > tau) < delta.

    .. math:: \epsilon = \min_{1 < a < g} \frac{a}{2 \eta^2} + \varphi(a; k, g) + \log(1 - 1/a)
        - \frac{\log(a (\delta - \delta_\tau))}{a - 1}, \qquad \delta_\tau \ge P(z > \tau)

    Not in the paper: the divergences of eigenvalue and sketch add (Bun and Steinke 2016). The event that the eigenvalue
    is overestimated depends on z alone and is left out of the first neighbour's distribution. For all other values
    lemma 1 holds, so the sum bounds the moment of the rest.
    """
    left = decimal(delta) - tail(decimal(tau))
    if left <= 0:
        return Decimal("Infinity")
    # Discrete Gaussian noise of width S: exactly a steps^2 / 2 S^2 at every order a.
    return sketch(g, rows, Fraction(left), neighbours, Fraction(steps(eta) ** 2, 2 * _WIDTH**2))


def tail(tau: Decimal) -> Decimal:
    """Return a bound on P(z > tau), z discrete Gaussian in steps of 2^-20: the normal tail and at most one term."""
    # The sum over steps exceeds the integral by at most one term, and the normaliser is at least S sqrt(2 pi).
    density = (-tau * tau / 2).exp() / (2 * PI).sqrt()
    return density * (1 / tau + Decimal(1) / _WIDTH) * (1 + MARGIN)


def quantile(probability: float) -> float:
    """Return a tau for which `tail` is at most ``probability``."""
    low, high = 0.01, 60.0
    with precise():
        while high - low > 1e-9:
            middle = (low + high) / 2
            low, high = (low, middle) if tail(Decimal(middle)) <= Decimal(probability) else (middle, high)
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


@lru_cache(maxsize=1024)
def truncated(
    g: float, eta: float, tau: float, rows: int, delta: float, eigenvalue: bool, neighbours: Neighbours
) -> tuple[TruncatedCDP, ...]:
    r"""Return a sketch's truncated concentrated guarantees, for composition; ``eigenvalue``: whether that is released.

    .. math:: \rho = \frac{\varphi(\omega; k, m)}{\omega}
        \left[+ \frac{1}{2 \eta^2}\right] \left[+ \frac{k}{2} \left(\log(1 + 1/m') - \frac{1}{m' + 1}\right)\right]

    with omega the best order for 1, 4, ..., 256 sketches together at the given delta. phi(a) / a increases in a, since
    a log(1 - 1/m) - log(1 - a/m) is a (a - 1) times the integral of u / ((1 - u)(1 - a u)) over u up to 1/m. Without an
    eigenvalue m = g + 1, m' = g (see `tight`), and there is no delta. With it, m = m' = g + eta (tau - Z): the event z
    > Z is left out; over all these sketches its probability is a tenth of delta (`joint`). The last term is for
    replaced rows: for the row that enters, a log(1 + t) - log(1 + a t) = a (a - 1) times the integral of u / ((1 + u)(1
    + a u)) over u up to t = 1/m', so that its share of rho is largest for a = 1.

    Reference: lemma 1; Bun, Dwork, Rothblum, Steinke 2018 (truncated CDP).
    """
    claims = []
    with precise():
        for together in (1, 4, 16, 64, 256):
            leaves, enters, own, rho = rational(g) + 1, rational(g), Decimal(0), Decimal(0)
            if eigenvalue:
                reach = quantile(delta / (10 * together))
                own = tail(Decimal(reach))
                rho = decimal(Fraction(steps(rational(eta)) ** 2, 2 * _WIDTH**2))
                leaves = enters = rational(g) + rational(eta) * (rational(tau) - rational(reach))
            if not leaves > 1 + _LEAST_EXCESS:
                continue
            left = delta - together * float(own)
            order = best_order(float(leaves), together * rows, left, neighbours, together * float(rho))
            omega = decimal(rational(order))
            rho += curve(omega, rows, decimal(leaves), "zero-out") / omega
            if neighbours == "replace-one":
                m = decimal(enters)
                rho += rows * ((1 + 1 / m).ln() - 1 / (m + 1)) / 2
            claims.append(TruncatedCDP(float_up(rho + MARGIN), order, float_up(own)))
    return tuple(claims)


def best_order(g: float, rows: int, delta: float, neighbours: Neighbours, rho: float) -> float:
    """Return the order with the least epsilon by floats: a = 1 + (g - 1) / (1 + e^-u) is in (1, g) for every u."""

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


_LEAST, _MOST = 2.5, 1e9


def phi(order: float, rows: int, g: float, neighbours: Neighbours = "zero-out") -> float:
    r"""Return the Renyi divergence of order a between the sketches of neighbours, exact for the worst pair.

    .. math:: \varphi(a; k, g) = \frac{k a}{2(a-1)} \log(1 - 1/g) - \frac{k}{2(a-1)} \log(1 - a/g)

    for a row against the zero row. For a row against any other (replace-one), the same expression with -g in place of g
    is added: with S the noisy second moment, the divergence depends only on x'S^-1 x, y'S^-1 y <= 1/g and (x'S^-1 y)^2,
    increases in the first two and decreases in the third, so it is largest at 1/g, 1/g and 0, where the determinants
    factor. Raises `UserError` if the order is not in (1, g), where the divergence is infinite. Reference: lemma 1.

    >>> round(phi(5.0, 100, 40.0), 4)
    0.0868
    """
    if not 1 < order < g:
        raise UserError(f"order={order!r} is not between 1 and g={g!r}: the divergence is infinite there")
    with precise():
        return float(curve(Decimal(order), rows, Decimal(g), neighbours))


def mixing_epsilon(g: float, rows: int, delta: float, neighbours: Neighbours = "zero-out") -> float:
    r"""Return the epsilon of a sketch whose smallest noisy eigenvalue is at least g C^2, at a delta; rounded up.

    .. math:: \epsilon = \min_{1 < a < g} \varphi(a; k, g) + \log(1 - 1/a) - \frac{\log(a \delta)}{a - 1}

    Reference: lemma 1; Canonne, Kamath, Steinke 2020, proposition 12 (conversion).

    >>> round(mixing_epsilon(35.17, 100, 1e-5), 3)
    1.0
    """
    _check(g, rows, delta)
    with precise():
        return float_up(sketch(rational(g), rows, rational(delta), neighbours))


@lru_cache(maxsize=1024)
def smallest_threshold(
    epsilon: float, delta: float, rows: int, method: Method = "linear-mixing", neighbours: Neighbours = "zero-out"
) -> float:
    """Return the least g > 5/2 with which a sketch of k rows is (epsilon, delta)-DP (algorithm 2).

    With ``"linear-mixing"`` the eigenvalue is released with eta = g / sqrt(k) (`modified`); with ``"mixing"``
    it is not (`mixing_epsilon`). Raises `UserError` if no g up to 1e9 is enough.

    >>> round(smallest_threshold(1.0, 1e-5, 100), 2), round(smallest_threshold(1.0, 1e-5, 100, "mixing"), 2)
    (85.33, 35.17)
    """
    require("epsilon", epsilon, positive=True)
    _check(_LEAST, rows, delta)
    part = rational(delta)

    def epsilon_of(g: float) -> Decimal:
        if method == "mixing":
            return sketch(rational(g), rows, part, neighbours)
        return modified(rational(noise_on_eigenvalue(g, rows)), rational(g), rows, part, neighbours)

    return _search(epsilon_of, epsilon, delta, rows)


@lru_cache(maxsize=1024)
def joint_settings(
    epsilon: float, delta: float, rows: int, neighbours: Neighbours = "zero-out"
) -> tuple[float, float, float]:
    """Return the joint analysis's (g, eta, tau) of least g + eta tau, the eigenvalue from which no noise is needed.

    A tenth of delta is for an overestimated eigenvalue; eta is g / sqrt(k) times 1, sqrt 2, 2 or 2 sqrt 2.

    >>> g, eta, tau = joint_settings(1.0, 1e-5, 100)
    >>> round(g + eta * tau, 1)  # published: 128.2
    74.4
    """
    require("epsilon", epsilon, positive=True)
    _check(_LEAST, rows, delta)
    part = rational(delta)
    tau = quantile(delta / 10)

    def settings(ratio: float) -> tuple[float, float, float]:
        def eta(g: float) -> float:
            return ratio * noise_on_eigenvalue(g, rows)

        def epsilon_of(g: float) -> Decimal:
            return joint(rational(eta(g)), rational(tau), rational(g), rows, part, neighbours)

        g = _search(epsilon_of, epsilon, delta, rows)
        return g, eta(g), tau

    return min((settings(2 ** (i / 2)) for i in range(4)), key=lambda found: found[0] + found[1] * found[2])


def _search(epsilon_of: Callable[[float], Decimal], epsilon: float, delta: float, rows: int) -> float:
    """Return the least threshold g above 5/2 at which ``epsilon_of``, which decreases in g, is at most ``epsilon``."""
    target = rational(epsilon)

    def holds(g: float) -> bool:
        with precise():
            return epsilon_of(g) <= decimal(target)

    low, high = _LEAST, 8.0
    while not holds(high):
        low, high = high, 4 * high
        if high > _MOST:
            raise UserError(
                f"no threshold up to {_MOST:g} gives epsilon={epsilon!r}, delta={delta!r} with {rows} sketch rows; "
                "give a larger epsilon or delta, or fewer rows"
            )
    # Search to a relative 1e-12; the value returned is one for which the exact figure holds.
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _check(g: float, rows: int, delta: float) -> None:
    require("delta", delta, positive=True, below=1.0)
    if isinstance(rows, bool) or not isinstance(rows, int) or rows < 1:
        raise UserError(f"rows={rows!r}: the number of sketch rows is a positive integer")
    if not 1 < g <= _MOST:
        raise UserError(f"g={g!r} is out of range: the smallest noisy eigenvalue is above 1 and at most {_MOST:g}")
