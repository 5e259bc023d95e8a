"""Conversion of zero-concentrated guarantees to (epsilon, delta), by the best Renyi order."""

import math
from decimal import Decimal
from functools import lru_cache

from murk.privacy.rounding import decimal, float_up, precise, rational, require

__all__ = ["zcdp_delta", "zcdp_epsilon"]

# Bound on the rounding error of a few 60-digit operations, relative to the size of each term.
_MARGIN = Decimal("1e-45")


def _best_order(rho: float, value: float, *, epsilon_known: bool) -> float:
    """Return the Renyi order, less 1, with the least delta at epsilon = ``value``, or the least epsilon at delta.

    Every order gives a valid figure, so the search need not be exact: a grid, then golden-section search.
    """

    def cost(log_excess: float) -> float:
        excess = math.exp(log_excess)
        order = 1 + excess
        shape = math.log(excess) - math.log(order)
        if epsilon_known:
            return excess * (rho * order - value) - math.log(excess) + order * shape
        return rho * order + shape - (math.log(value) + math.log(order)) / excess

    grid = [-30 + 0.5 * k for k in range(181)]
    best = min(range(len(grid)), key=lambda k: cost(grid[k]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        inner, outer = high - ratio * (high - low), low + ratio * (high - low)
        if cost(inner) < cost(outer):
            high = outer
        else:
            low = inner
    return math.exp((low + high) / 2)


@lru_cache(maxsize=4096)
def zcdp_epsilon(rho: float, delta: float) -> float:
    r"""Return an epsilon for which every rho-zCDP release is (epsilon, delta)-DP, by the best Renyi conversion.

    .. math:: \epsilon = \min_{\alpha > 1} \rho\alpha + \log\frac{\alpha - 1}{\alpha}
        - \frac{\log\delta + \log\alpha}{\alpha - 1}

    If the release is Gaussian, its exact curve (`gdp_epsilon` at mu = sqrt(2 rho)) is smaller.

    Reference: Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", 2020, proposition 12.

    Examples
    --------
    >>> round(zcdp_epsilon(0.5, 1e-5), 3)
    4.728
    """
    require("rho", rho)
    require("delta", delta, positive=True, below=1.0)
    if rho == 0:
        return 0.0
    excess = _best_order(rho, delta, epsilon_known=False)
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
def zcdp_delta(rho: float, epsilon: float) -> float:
    r"""Return a delta for which every rho-zCDP release is (epsilon, delta)-DP, by the best Renyi conversion.

    .. math:: \delta = \min_{\alpha > 1} \frac{e^{(\alpha-1)(\alpha\rho - \epsilon)}}{\alpha - 1}
        \left(1 - \frac1\alpha\right)^{\alpha}

    Reference: Canonne, Kamath, Steinke 2020, proposition 12.

    Examples
    --------
    >>> f"{zcdp_delta(0.5, 4.728):.1e}"
    '1.0e-05'
    """
    require("rho", rho)
    require("epsilon", epsilon)
    if rho == 0:
        return 0.0
    excess = _best_order(rho, epsilon, epsilon_known=True)
    with precise():
        step = decimal(rational(excess))
        order = 1 + step
        exponent = step * (decimal(rational(rho)) * order - decimal(rational(epsilon)))
        log_delta = exponent + order * (step / order).ln() - step.ln()
        margin = (abs(exponent) + order + abs(log_delta)) * _MARGIN
        if log_delta + margin >= 0:
            return 1.0
        return max(float_up((log_delta + margin).exp()), math.ulp(0.0))
