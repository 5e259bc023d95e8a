r"""The tight analysis of a Gaussian sketch: it uses that the row in which two windows differ is part of one of them.

The notation is that of `sketch_renyi`, in units of C^2. The windows Z and Z_0 differ in a row x that is zero in Z_0,
|x| <= 1. Given the noise s^2, the rows of the sketches are N(0, S_0 + x x') and N(0, S_0) with S_0 = Z_0'Z_0 + s^2 I.

**Mixing, exactly.** Multiplied by S_0^{-1/2} these are N(0, I + v v') and N(0, I), which differ only in the direction
of v: k normals of variance 1 + q against k of variance 1, q = x'S_0^{-1}x <= 1/s^2. The case of a smaller q follows
from that of a larger one by adding independent noise and scaling, so q = 1/s^2 is the worst. The (epsilon, delta) of
chi-square distributions with variances s^2 + 1 and s^2 are therefore exact, in both directions (`mixing_delta`). Lemma
1 of the paper is for variances g and g - 1, so noise s^2 = g - 1 suffices where the lemma needs g.

**Replaced rows.** One window has row x where the other has row y. The Renyi divergence of order a of N(0, I + v v')
from N(0, I + w w') increases in |v| and |w| (derivatives (a - 1)/(1 - (a - 1) t) - (a - 1)/(1 + t) and a/(1 + t) - a/(1
+ a t), t the squared length) and decreases in (v'w)^2, which enters its determinant as + a (a - 1)(v'w)^2. The worst
case is |v|^2 = |w|^2 = 1/s^2 and v'w = 0: x leaves at variance s^2 + 1, y enters at s^2 (`replaced`).

**The released eigenvalue** (zero-out). The computed eigenvalues of the two windows are L + D and L, where L is at most
the least eigenvalue of Z_0'Z_0 and D at most the sensitivity d. Released is u = L (+ D) - eta tau + eta z, cut at 0,
and s^2 >= max(g - max(u, 0), 0). So S_0 >= (max(L, 0) + s^2) I, and by the above the sketch is no worse than k normals
of variance m against m - 1,

.. math:: m = \max(L, 0) + 1 + \max(g - \max(u, 0), 0).

Its moment rho(m) = exp((a - 1) D_a) decreases in m, so it increases in u. Leave z > Z out of the first distribution,
and its probability out of delta. With P and Q the distributions of the cut u, the moment of order a of the pair is

.. math:: F(L, D) = P_0^a Q_0^{1-a} \rho(m_0) + e^{a (a-1) D^2 / 2 \eta^2} \int_{u > 0} N(u; L + a D - \eta\tau, \eta^2)
    \rho(m(u)) du.

- *F increases in D >= 0*: it is E_Q[r^a rho], r the likelihood ratio; its derivative is a times the covariance under P
  of r^{a-1} rho and the score of D, which both increase in u. So D = d.
- *In L*: with u = L + a d - eta tau + eta y the integrand is at most phi(y) rho(1 + g - a d + eta tau - eta y) for
  every L, and the range y > y_0(L) grows with L; the first term decreases in L (the inverse Mills ratio decreases). So
  between two values of L the first term at the lower and the integral at the higher bound F, on a grid and beyond it.
- *In the other direction* the sketch's moment is smaller (`reverse`). There the first term increases in D and the
  integral's range is largest at D = 0; both bounds are combined. Within a cell the logarithm of the first term grows
  with -L no faster than that of Q_0: a h(x) - (a - 1) h(x - d) <= h(x), h the inverse Mills ratio, which decreases.
- *Negative D* (at least -sigma) arises only from floating-point rounding: r^a has a moment of at most
  exp(a (a-1) sigma^2 / 2 eta^2), and rho is taken at min(m(u), g + 1), as if nothing were known of L.

Integrals are sums over cells with the moment at the worse end. Each cell's share of the discrete Gaussian distribution
is at most the normal one plus one lattice step. Floats are used: all terms are positive, and 1e-9 is added.
"""

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np

from murk._internal.arrays import Floats
from murk.errors import UserError
from murk.privacy.central import sketch_renyi as renyi
from murk.privacy.central.sketch_renyi import (
    EIGENVALUE_SLACK,
    MARGIN,
    PI,
    Neighbours,
    Settings,
    joint_settings,
    least,
    quantile,
)
from murk.privacy.rounding import decimal, float_down, precise, rational

_ERROR_CODE = "MURK-PRIVACY-001"

_STEP = 2.0**-20
_CELL, _COARSE = 2.0**-6, 2.0**-3
_FIRST = -9.0
_MARGIN = 1e-9
SHARE = 10
"""The event that the eigenvalue is overestimated gets 1 / SHARE of delta."""


@lru_cache(maxsize=64)
def _gamma(rows: int) -> Decimal:
    """Return Gamma(k/2 + 1); call within `precise`."""
    value, start = (Decimal(1), Decimal(1)) if rows % 2 == 0 else (PI.sqrt() / 2, Decimal("1.5"))
    while start <= Decimal(rows) / 2:
        value *= start
        start += 1
    return value


def _lower(rows: int, x: Decimal) -> Decimal:
    """Return P(chi^2_k <= 2 x) to 50 digits; call within `precise`."""
    if x <= 0:
        return Decimal(0)
    a = Decimal(rows) / 2
    if x > a and x - a - a * (x / a).ln() > 150:
        return Decimal(1)  # Chernoff: all but e^-150
    term = total = Decimal(1)
    n = a
    while term > total * Decimal("1e-62"):
        n += 1
        term = term * x / n
        total += term
    return total * (a * x.ln() - x).exp() / _gamma(rows)


def mixing_delta(noise: Decimal, rows: int, epsilon: Decimal) -> Decimal:
    r"""Return an upper bound, tight to 29 digits, of the exact delta of mixing, zero-out, in both directions.

    With n the noise (a variance, in units of C^2) and c the level of chi^2 at which the loss is epsilon,

    .. math:: \delta = P(\chi^2_k > c / (n + 1)) - e^\epsilon P(\chi^2_k > c / n), \quad
        c = \max(0, 2 n (n + 1) (\epsilon + \tfrac{k}{2} \log(1 + 1/n)))

    in one direction; in the other with P(<=), -epsilon and the variances exchanged. Call within `precise`.
    """
    size, loss = 2 * noise * (noise + 1), Decimal(rows) / 2 * (1 + 1 / noise).ln()
    odds = epsilon.exp()
    cut = max(size * (loss + epsilon), Decimal(0)) / 2
    there = 1 - _lower(rows, cut / (noise + 1)) - odds * (1 - _lower(rows, cut / noise))
    cut = max(size * (loss - epsilon), Decimal(0)) / 2
    back = _lower(rows, cut / noise) - odds * _lower(rows, cut / (noise + 1))
    return max(there, back, Decimal(0)) + MARGIN


def mixing_epsilon(noise: Decimal, rows: int, delta: Decimal, claimed: Decimal) -> Decimal:
    """Return an upper bound on the exact epsilon of mixing: ``claimed`` if that holds, else a bound tight to 1e-9."""
    if mixing_delta(noise, rows, claimed) <= delta:
        return claimed
    low, high = claimed, 2 * claimed
    while mixing_delta(noise, rows, high) > delta:
        low, high = high, 2 * high
    while high - low > high * Decimal("1e-9"):
        middle = (low + high) / 2
        low, high = (low, middle) if mixing_delta(noise, rows, middle) <= delta else (middle, high)
    return high


def replaced(noise: Decimal, rows: int, delta: Decimal) -> Decimal:
    """Return the epsilon of mixing for replaced rows by Renyi divergences, rounded up; call within `precise`."""
    s = float(noise)

    def cost(u: float) -> float:
        a = 1 + s / (1 + math.exp(-u))
        value = -a * math.log1p(1 / s) - math.log1p(-a / (s + 1)) + a * math.log1p(1 / s) - math.log1p(a / s)
        return rows * value / (2 * (a - 1)) + math.log1p(-1 / a) - math.log(a * float(delta)) / (a - 1)

    order = Decimal(1 + s / (1 + math.exp(-least(cost, -20.0, 12.0))))
    # What leaves: a log(s / (s + 1)) - log(1 - a / (s + 1)); what enters: a log(1 + 1/s) - log(1 + a/s).
    value = -(1 - order / (noise + 1)).ln() - (1 + order / noise).ln()
    epsilon = value * rows / (2 * (order - 1)) + (1 - 1 / order).ln() - (order * delta).ln() / (order - 1)
    return max(epsilon + MARGIN, Decimal(0))


def total(
    settings: Settings, rows: int, delta: Fraction, eigenvalue: bool, neighbours: Neighbours, claimed: Decimal
) -> Decimal:
    """Return the epsilon of a mechanism with these settings (``claimed`` if that holds); call within `precise`."""
    g, eta, tau = settings
    part = decimal(delta)
    if not eigenvalue:
        if neighbours == "zero-out":
            return mixing_epsilon(decimal(g), rows, part, claimed)
        return replaced(decimal(g), rows, part)
    epsilon = linear_epsilon(eta, tau, g, rows, delta, neighbours)
    # The joint analysis of the same settings is valid, too: take the smaller figure.
    return epsilon if epsilon <= claimed or g <= 1 else min(epsilon, renyi.joint(eta, tau, g, rows, delta, neighbours))


def linear_epsilon(
    eta: Fraction, tau: Fraction, g: Fraction, rows: int, delta: Fraction, neighbours: Neighbours
) -> Decimal:
    """Return the epsilon of linear mixing, infinite without an order; for replaced rows by `renyi.joint`."""
    reach = quantile(float(delta) / SHARE)
    if neighbours == "replace-one":
        # The event z > Z is left out instead of z > tau, which lowers g by eta (Z - tau).
        lowered = g + eta * (tau - rational(reach))
        if lowered <= 1:
            return Decimal("Infinity")
        return renyi.joint(eta, rational(reach), lowered, rows, delta, neighbours)
    left = float_down(Fraction(decimal(delta) - renyi.tail(Decimal(reach))))
    epsilon = _linear(float(g), float(eta), float(tau), renyi.steps(eta) * _STEP * float(eta), rows, left, reach)
    return Decimal(epsilon) if math.isfinite(epsilon) else Decimal("Infinity")


def _linear(g: float, eta: float, tau: float, d: float, rows: int, delta: float, reach: float) -> float:
    """Return epsilon at the order that is best by a coarse integral; epsilon is valid at every order."""
    most = 1 + g - d + eta * (tau - reach)
    if not most > 1.0 + 1e-6:
        return math.inf

    def order(u: float) -> float:
        return 1 + (most - 1) / (1 + math.exp(-u))

    def cost(a: float, moment: float) -> float:
        return (moment - math.log(a * delta)) / (a - 1) + math.log1p(-1 / a)

    def coarse(u: float) -> float:
        a = order(u)
        return cost(a, _worst_case(a, g, eta, tau, d, rows, reach, _COARSE))

    grid = [0.5 * i for i in range(-14, 9)]
    best = min(grid, key=coarse)
    u = least(coarse, best - 0.5, best + 0.5, 8, 8)
    a = order(u)
    return max(cost(a, log_moment(a, g, eta, tau, d, rows, reach) + _MARGIN) * (1 + 1e-12), 0.0)


def forward(order: float, rows: int, m: Floats) -> Floats:
    """Return the log moment of ``rows`` normals of variance m against m - 1, for m > order."""
    return np.asarray(rows / 2 * (order * np.log1p(-1 / m) - np.log1p(-order / m)))


def reverse(order: float, rows: int, m: Floats) -> Floats:
    """Return the log moment of ``rows`` normals of variance m - 1 against m, for m > 1; less than `forward`.

    With t = 1 / (m - 1), 2/k times the derivative of the difference by t is (2 a - 1) (1 / ((1 - (a - 1) t)(1 + a t)) -
    1 / (1 + t)), and (1 - (a - 1) t)(1 + a t) is at most 1 + t.
    """
    t = 1 / (m - 1)
    return np.asarray(rows / 2 * (order * np.log1p(t) - np.log1p(order * t)))


def log_moment(order: float, g: float, eta: float, tau: float, d: float, rows: int, reach: float) -> float:
    """Return the logarithm of a bound on the moment of order a over all windows (see the module; ``reach`` is Z).

    The order is in (1, 1 + g - d + eta (tau - reach)), d the eigenvalue's sensitivity.
    """
    a, highest = order, 1 + g + eta * tau
    there = _worst_case(a, g, eta, tau, d, rows, reach, _CELL)
    back = _back(a, g, eta, tau, d, rows, reach)
    sigma = (math.ceil(float(EIGENVALUE_SLACK) / (eta * _STEP)) + 1) * eta * _STEP
    edges, masses = _cells(reach, _CELL)
    m = np.minimum(highest - a * sigma - eta * np.append(edges, reach), g + 1)
    if not float(m[-1]) > a:
        return math.inf
    stray = float(_tails(np.append(masses, _log_upper(reach)) + forward(a, rows, m))[0])
    return max(there, back, stray + _gain(a, sigma, eta))


def _gain(a: float, d: float, eta: float) -> float:
    return a * (a - 1) * d * d / (2 * eta * eta)


def _floor(eta: float) -> float:
    """Return a lower bound on the computed least eigenvalue of any window."""
    return -(2.0**-9 + eta * _STEP)


def _worst_case(a: float, g: float, eta: float, tau: float, d: float, rows: int, reach: float, cell: float) -> float:
    """Return the logarithm of a bound on the moment F, the largest over L (see the module)."""
    from scipy.special import log_ndtr

    gain, floor = _gain(a, d, eta), _floor(eta)
    # Integrate up to the end of the range, where m is 1 + g - d + eta (tau - reach).
    edges, masses = _cells(reach - (a - 1) * d / eta, cell)
    m = 1 + g - a * d + eta * tau - eta * edges
    terms = masses + forward(a, rows, m)
    integral = _tails(terms) + gain
    # For windows whose y_0 lies in a cell (below the first edge, ..., beyond the last), take the integral from the cell
    # on, and the first term at the lowest possible L.
    lowest = np.maximum(eta * tau - a * d - eta * np.append(edges, math.inf), floor)
    highest = np.append(math.inf, eta * tau - a * d - eta * edges)
    at = tau - lowest / eta
    atom = a * log_ndtr(at - d / eta + _STEP) + (1 - a) * log_ndtr(at - _STEP)
    atom += forward(a, rows, g + 1 + np.maximum(lowest, 0.0))
    total = np.logaddexp(atom, np.append(integral, -math.inf))
    return float(np.max(total[highest >= floor]))


def _back(a: float, g: float, eta: float, tau: float, d: float, rows: int, reach: float) -> float:
    """Return the logarithm of a bound on the moment in the other direction, the largest over L and D."""
    from scipy.special import log_ndtr

    gain, floor = _gain(a, d, eta), _floor(eta)
    # Here y_0 = tau - L / eta. The first edge is so low that the first term decreases in L below it.
    edges, masses = _cells(reach, _CELL, min(_FIRST, -(a - 1) * d / eta - 1.0))
    m = 1 + g + eta * tau - eta * edges
    beyond = _log_upper(reach) + float(reverse(a, rows, np.array([1 + g + eta * (tau - reach)]))[0])
    integral = np.logaddexp(_tails(masses + reverse(a, rows, m)), beyond) + gain
    top = tau - floor / eta
    highest = np.minimum(np.append(edges, math.inf), top)
    lowest = np.minimum(np.append(edges[0], edges), top)
    size = log_ndtr(lowest + _STEP)
    atom = a * size + (1 - a) * log_ndtr(lowest - d / eta - _STEP)
    # As -L / eta grows, the first term's logarithm grows no faster than that of Phi.
    atom += (highest - lowest) * np.exp(-np.square(lowest + _STEP) / 2 - size) / math.sqrt(2 * math.pi)
    atom += reverse(a, rows, g + 1 + np.maximum(eta * (tau - highest), 0.0))
    total = np.logaddexp(atom, np.append(integral, beyond + gain))
    return float(np.max(total[np.append(edges[0], edges) <= top]))


def _cells(end: float, cell: float, first: float = _FIRST) -> tuple[Floats, Floats]:
    """Return upper edges of cells up to ``end`` (the first cell is everything below) and log bounds of their shares."""
    from scipy.special import log_ndtr, ndtr

    first = min(first, end - 1.0)
    count = math.ceil((end - first) / cell)
    edges = end - cell * np.arange(count, -1, -1)
    low, high = edges[:-1], edges[1:]
    # Subtract the tails on the side on which nothing cancels.
    share = np.where(low > 0, ndtr(-low) - ndtr(-high), ndtr(high) - ndtr(low))
    nearest = np.where(low > 0, low, np.minimum(high, 0.0))
    share += _STEP * np.exp(-nearest * nearest / 2)
    with np.errstate(divide="ignore"):
        shares: Floats = np.append(float(log_ndtr(edges[0] + _STEP)), np.log(share))
    return np.asarray(edges, dtype=np.float64), shares


def _tails(terms: Floats) -> Floats:
    """Return the logarithms of the sums of exp(terms) from each index on."""
    top = float(np.max(terms))
    sums = np.cumsum(np.exp(terms - top)[::-1])[::-1]
    with np.errstate(divide="ignore"):
        logs: Floats = np.log(sums) + top
    return logs


def _log_upper(reach: float) -> float:
    from scipy.special import log_ndtr

    return float(log_ndtr(-reach + _STEP))


# Settings are multiples of this step, so that machines whose floats differ in the last bit calibrate equally.
_GRID = 2.0**-12
_MOST = 1e9
_TAU = 3.0


@lru_cache(maxsize=1024)
def mixing_noise(epsilon: float, delta: float, rows: int) -> float:
    """Return the least noise with which mixing is (epsilon, delta)-DP, zero-out; raise `UserError` beyond 1e9."""
    with precise():
        target, part = decimal(rational(epsilon)), decimal(rational(delta))

        def holds(noise: float) -> bool:
            with precise():
                return mixing_delta(Decimal(noise), rows, target) <= part

        return _search(holds, epsilon, delta, rows)


@lru_cache(maxsize=1024)
def replaced_noise(epsilon: float, delta: float, rows: int) -> float:
    """Return the least noise with which mixing is (epsilon, delta)-DP for replaced rows."""

    def holds(noise: float) -> bool:
        with precise():
            return replaced(Decimal(noise), rows, decimal(rational(delta))) <= decimal(rational(epsilon))

    return _search(holds, epsilon, delta, rows)


@lru_cache(maxsize=1024)
def settings(epsilon: float, delta: float, rows: int) -> tuple[float, float, float]:
    """Return settings (g, eta, tau) of linear mixing for zero-out neighbours with little noise for every eigenvalue.

    eta is g / sqrt(k) times a power of sqrt 2; tau is 3, or the value that z exceeds with a tenth of delta. The pair
    with the least 4 g + eta tau is chosen: three times the noise at eigenvalue 0, plus the eigenvalue from which no
    noise is needed. If mixing alone needs no more noise than tau, no eigenvalue is released.
    """
    alone = mixing_noise(epsilon, delta, rows)
    if alone <= _TAU:
        return alone, 1.0, _TAU
    exact, target = rational(delta), rational(epsilon)

    def eta_of(g: float, power: int) -> float:
        return math.ceil(g / math.sqrt(rows) * 2 ** (power / 2) / _GRID) * _GRID

    def least_g(power: int, tau: float, low: float, error: float) -> float:
        def holds(g: float) -> bool:
            with precise():
                value = linear_epsilon(rational(eta_of(g, power)), rational(tau), rational(g), rows, exact, "zero-out")
                return value <= decimal(target)

        return _search(holds, epsilon, delta, rows, low, error)

    def cost(choice: tuple[int, float]) -> float:
        try:
            g = least_g(*choice, alone, 2.0**-7)
        except UserError:
            return math.inf
        return 4 * g + eta_of(g, choice[0]) * choice[1]

    costs: dict[tuple[int, float], float] = {}
    power = round(math.log2(rows) / 3)
    for _ in range(12):
        near = [(power + step, _TAU) for step in (-1, 0, 1)]
        costs |= {choice: cost(choice) for choice in near if choice not in costs}
        best = min(near, key=costs.__getitem__)[0]
        if best == power:
            break
        power = best
    large = round(quantile(delta / SHARE) / _GRID) * _GRID
    costs |= {choice: cost(choice) for choice in [(power - 1, large), (power, large)]}
    power, tau = min(costs, key=costs.__getitem__)
    if costs[power, tau] == math.inf:
        return joint_settings(epsilon, delta, rows)
    g = least_g(power, tau, alone, 0.0)
    return g, eta_of(g, power), tau


def _search(
    holds: Callable[[float], bool], epsilon: float, delta: float, rows: int, low: float = 0.0, error: float = 0.0
) -> float:
    """Return the least noise above ``low`` for which ``holds``: a multiple of 2^-12, up to the relative ``error``."""
    below, above = int(low / _GRID), int(1.25 * low / _GRID) or 2**13
    while not holds(above * _GRID):
        below, above = above, 2 * above
        if above * _GRID > _MOST:
            raise UserError(
                f"no noise up to {_MOST:g} gives epsilon={epsilon!r}, delta={delta!r} with {rows} sketch rows; "
                "give a larger epsilon or delta, or fewer rows"
            )
    while above - below > max(1, error * above):
        middle = (below + above) // 2
        below, above = (below, middle) if holds(middle * _GRID) else (middle, above)
    return above * _GRID
