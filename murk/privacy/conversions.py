"""Conversions between kinds of guarantee.

Results are rounded against the claim, to about the last bit of a float: guarantees up, budgets (``gdp_mu``,
``gdp_to_pure``) down. A float means its shortest decimal: 0.1 is 1/10. Epsilon, mu and rho are at least 0; delta is
between 0 and 1, both excluded. A parameter out of range raises `UserError`.
"""

import math
import sys
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

from murk.errors import UserError
from murk.privacy.rounding import (
    decimal,
    float_down,
    float_up,
    gdp_delta_bound,
    log_odds_bounds,
    precise,
    rational,
    require,
    smallest_float,
)

_ERROR_CODE = "MURK-PRIVACY-001"

# Bound on the rounding error of a few 60-digit operations, relative to the size of each term (or to 1).
_MARGIN = Decimal("1e-45")


def _require_omega(omega: float) -> None:
    if not omega > 1:
        raise UserError(f"omega={omega!r} is out of range: it must be above 1")


def _best_order(rho: float, value: float, omega: float, *, epsilon_known: bool) -> float:
    """Return the Renyi order, minus 1, of least delta at epsilon ``value``, or of least epsilon at delta ``value``."""

    def cost(log_excess: float) -> float:
        excess = math.exp(log_excess)
        order = 1 + excess
        shape = math.log(excess) - math.log(order)
        if epsilon_known:
            return excess * (rho * order - value) - math.log(excess) + order * shape
        return rho * order + shape - (math.log(value) + math.log(order)) / excess

    # Every order gives a valid result, so the search need not be exact: a grid, then golden-section search.
    most = math.inf if omega == math.inf else float_down(rational(omega) - 1)
    grid = [min(-30 + 0.5 * k, math.log(most)) for k in range(181)]
    best = min(range(len(grid)), key=lambda k: cost(grid[k]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        inner, outer = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, outer) if cost(inner) < cost(outer) else (inner, high)
    return min(math.exp((low + high) / 2), most)


@lru_cache(maxsize=4096)
def zcdp_epsilon(rho: float, delta: float, omega: float = math.inf) -> float:
    r"""Return an epsilon for which every rho-zCDP release is (epsilon, delta)-DP, by the best Renyi conversion.

    .. math:: \epsilon = \min_{\alpha > 1} \rho\alpha + \log\frac{\alpha - 1}{\alpha}
        - \frac{\log\delta + \log\alpha}{\alpha - 1}

    With ``omega``, only orders up to omega are used (truncated concentrated privacy). For a Gaussian release the exact
    curve, `gdp_epsilon` at mu = sqrt(2 rho), gives a smaller epsilon.

    Reference: Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", 2020, proposition 12.

    >>> round(zcdp_epsilon(0.5, 1e-5), 3)
    4.728
    """
    require("rho", rho)
    require("delta", delta, positive=True, below=1.0)
    _require_omega(omega)
    if rho == 0:
        return 0.0
    excess = _best_order(rho, delta, omega, epsilon_known=False)
    with precise():
        step = decimal(rational(excess))
        order = 1 + step
        share = decimal(rational(delta))
        shape = (step / order).ln()
        epsilon = decimal(rational(rho)) * order + shape - (share * order).ln() / step
        # Rounding: 1e-58 relative in each of the three terms.
        margin = (abs(epsilon) + abs(shape) + 1 / step + 1) * _MARGIN
        return max(float_up(epsilon + margin), 0.0)


@lru_cache(maxsize=4096)
def zcdp_delta(rho: float, epsilon: float, omega: float = math.inf) -> float:
    r"""Return a delta for which every rho-zCDP release is (epsilon, delta)-DP, by the best Renyi conversion.

    .. math:: \delta = \min_{\alpha > 1} \frac{e^{(\alpha-1)(\alpha\rho - \epsilon)}}{\alpha - 1}
        \left(1 - \frac1\alpha\right)^{\alpha}

    With ``omega``, only orders up to omega are used. Reference: Canonne, Kamath, Steinke 2020, proposition 12.

    >>> f"{zcdp_delta(0.5, 4.728):.1e}"
    '1.0e-05'
    """
    require("rho", rho)
    require("epsilon", epsilon)
    _require_omega(omega)
    if rho == 0:
        return 0.0
    excess = _best_order(rho, epsilon, omega, epsilon_known=True)
    with precise():
        step = decimal(rational(excess))
        order = 1 + step
        exponent = step * (decimal(rational(rho)) * order - decimal(rational(epsilon)))
        log_delta = exponent + order * (step / order).ln() - step.ln()
        margin = (abs(exponent) + order + abs(log_delta)) * _MARGIN
        if log_delta + margin >= 0:
            return 1.0
        return max(float_up((log_delta + margin).exp()), math.ulp(0.0))


@lru_cache(maxsize=4096)
def gdp_delta(mu: float, epsilon: float) -> float:
    r"""Return the smallest delta for which every mu-GDP release is (epsilon, delta)-DP.

    .. math:: \delta(\epsilon) = \Phi(-\epsilon/\mu + \mu/2) - e^{\epsilon}\, \Phi(-\epsilon/\mu - \mu/2)

    Reference: Dong, Roth, Su, "Gaussian differential privacy", JRSS B 84 (2022), corollary 2.13; Balle, Wang 2018,
    theorem 8.

    >>> [round(gdp_delta(1.0, epsilon), 4) for epsilon in (1.0, 2.0, 3.0)]
    [0.1269, 0.0209, 0.0015]
    """
    require("mu", mu)
    require("epsilon", epsilon)
    if mu == 0:
        return 0.0
    # At least the smallest positive float, since the curve never reaches 0.
    return max(float_up(min(gdp_delta_bound(rational(mu), rational(epsilon)), Decimal(1))), math.ulp(0.0))


@lru_cache(maxsize=4096)
def gdp_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon for which every mu-GDP release is (epsilon, delta)-DP.

    It is 0 if delta alone suffices, and infinite if no float is large enough.

    >>> round(gdp_epsilon(1.0, 1e-5), 3)
    4.377
    """
    require("mu", mu)
    require("delta", delta, positive=True, below=1.0)
    if mu == 0:
        return 0.0
    exact_mu, exact_delta = rational(mu), rational(delta)

    def holds(epsilon: Fraction) -> bool:
        return gdp_delta_bound(exact_mu, epsilon) <= exact_delta

    if holds(Fraction(0)):
        return 0.0
    # delta(epsilon) <= Phi(-z) <= exp(-z^2 / 2) at epsilon = mu^2 / 2 + mu z; doubled for rounding.
    high = mu * mu + 2 * mu * math.sqrt(-2 * math.log(delta)) + math.ulp(0.0)
    if high == math.inf:
        high = sys.float_info.max
        if not holds(rational(high)):
            return math.inf
    return smallest_float(holds, 0.0, high)


@lru_cache(maxsize=4096)
def gdp_mu(epsilon: float, delta: float) -> float:
    """Return the largest mu for which every mu-GDP release is (epsilon, delta)-DP: the analytic calibration.

    Reference: Balle, Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018.

    >>> round(gdp_mu(1.0, 1e-5), 4)
    0.2681
    """
    require("epsilon", epsilon)
    require("delta", delta, positive=True, below=1.0)
    exact_epsilon, exact_delta = rational(epsilon), rational(delta)

    def exceeds(mu: Fraction) -> bool:
        return gdp_delta_bound(mu, exact_epsilon) > exact_delta

    high = 1.0
    while not exceeds(rational(high)):
        high *= 2
    return math.nextafter(smallest_float(exceeds, 0.0, high), 0.0)


@lru_cache(maxsize=4096)
def pure_to_gdp(epsilon: float) -> float:
    r"""Return the smallest mu for which every epsilon-DP release is mu-GDP.

    .. math:: \mu = 2\, \Phi^{-1}\!\left(e^{\epsilon} / (1 + e^{\epsilon})\right)

    Randomized response is the worst epsilon-DP release; its trade-off function touches that of N(0, 1) against
    N(mu, 1) at equal error rates. Reference: Dong, Roth, Su 2022.

    >>> round(pure_to_gdp(1.0), 4)
    1.232
    """
    require("epsilon", epsilon)
    if epsilon == 0:
        return 0.0
    exact = rational(epsilon)

    def holds(mu: Fraction) -> bool:
        return log_odds_bounds(mu)[0] >= exact

    # The log odds are at least about 2 phi(0) mu near 0 and mu^2 / 8 far out: twice the smaller inverse is enough.
    return smallest_float(holds, 0.0, 2 * min(1.2534 * epsilon, math.sqrt(8) * math.sqrt(epsilon)) + math.ulp(0.0))


@lru_cache(maxsize=4096)
def gdp_to_pure(mu: float) -> float:
    r"""Return the largest epsilon for which every epsilon-DP release is mu-GDP.

    .. math:: \epsilon = \log\left(\Phi(\mu/2) / \Phi(-\mu/2)\right)

    Use it to calibrate a pure mechanism to a GDP budget. A GDP release implies no pure guarantee.

    >>> round(gdp_to_pure(1.0), 4)
    0.807
    """
    require("mu", mu)
    if mu == 0:
        return 0.0
    return max(float_down(log_odds_bounds(rational(mu))[0]), 0.0)


def pure_delta(epsilon: float, at: float) -> float:
    r"""Return the smallest delta for which every epsilon-DP release is (at, delta)-DP.

    .. math:: \delta = \max\left(0, (e^{\epsilon} - e^{at}) / (1 + e^{\epsilon})\right)

    Randomized response is the worst case: Kairouz, Oh, Viswanath, "The composition theorem for differential privacy",
    2015.

    >>> pure_delta(1.0, 1.0)
    0.0
    >>> round(pure_delta(1.0, 0.0), 4)  # total variation distance tanh(1/2)
    0.4621
    """
    require("epsilon", epsilon)
    require("at", at)
    if at >= epsilon:
        return 0.0
    with precise():
        # Numerator and denominator are divided by e^epsilon, which may be too large.
        gap = (decimal(rational(at) - rational(epsilon))).exp()
        delta = (1 - gap) / (1 + (-decimal(rational(epsilon))).exp())
        return float_up(min(delta + _MARGIN, Decimal(1)))


def pure_epsilon(epsilon: float, delta: float) -> float:
    r"""Return the smallest epsilon' for which every epsilon-DP release is (epsilon', delta)-DP; delta may be 0.

    .. math:: e^{\epsilon'} = e^{\epsilon} - \delta\,(1 + e^{\epsilon})

    >>> pure_epsilon(1.0, 0.0)
    1.0
    >>> round(pure_epsilon(1.0, 0.01), 4)
    0.9862
    """
    require("epsilon", epsilon)
    require("delta", delta, below=1.0)
    if delta == 0:
        return float(epsilon)
    with precise():
        exact, share = decimal(rational(epsilon)), decimal(rational(delta))
        # e^(epsilon' - epsilon) = 1 - delta - delta e^-epsilon.
        left = 1 - share - share * (-exact).exp() + Decimal("1e-50")
        if left <= 0:
            return 0.0
        return min(max(float_up(exact + left.ln() + _MARGIN), 0.0), float(epsilon))


def classic_scale(sensitivity: float, epsilon: float, delta: float) -> float:
    r"""Return the textbook formula's standard deviation of Gaussian noise, for l2 sensitivity D and epsilon > 0.

    .. math:: s = D \sqrt{2 \log(1.25 / \delta)} / \epsilon

    The formula is proved for epsilon <= 1 only. At delta = 1e-5 the noise is too small, and the guarantee false, from
    an epsilon between 8 and 9 on. Use it to reproduce a paper, and `gdp_mu` otherwise.

    Reference: Dwork, Roth, "The algorithmic foundations of differential privacy", 2014, theorem A.1.

    >>> round(classic_scale(2.0, 1.0, 1e-5), 3)
    9.69
    """
    require("sensitivity", sensitivity)
    require("epsilon", epsilon, positive=True)
    require("delta", delta, positive=True, below=1.0)
    return sensitivity * math.sqrt(2 * (math.log(1.25) - math.log(delta))) / epsilon
