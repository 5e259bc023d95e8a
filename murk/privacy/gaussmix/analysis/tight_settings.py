"""The least noise with which a sketch has a guarantee by the tight analysis."""

import math
from collections.abc import Callable
from decimal import Decimal
from functools import lru_cache

from murk.errors import UserError
from murk.privacy.gaussmix.analysis.bounds import quantile
from murk.privacy.gaussmix.analysis.renyi import joint_settings
from murk.privacy.gaussmix.analysis.tight import SHARE, linear_epsilon, mixing_delta, replaced
from murk.privacy.rounding import decimal, precise, rational

__all__ = ["mixing_noise", "replaced_noise", "settings"]

# Settings are multiples of this: what two machines compute differs in the last bit, what they calibrate does not.
_GRID = 2.0**-12
_MOST = 1e9
_TAU = 3.0


@lru_cache(maxsize=1024)
def mixing_noise(epsilon: float, delta: float, rows: int) -> float:
    """The least noise, a multiple of 2^-12, with which mixing is (epsilon, delta)-DP for zero-out neighbours.

    Raises
    ------
    UserError
        If no noise up to 1e9 C^2 is enough.
    """
    with precise():
        target, part = decimal(rational(epsilon)), decimal(rational(delta))

        def holds(noise: float) -> bool:
            with precise():
                return mixing_delta(Decimal(noise), rows, target) <= part

        return _search(holds, epsilon, delta, rows)


@lru_cache(maxsize=1024)
def replaced_noise(epsilon: float, delta: float, rows: int) -> float:
    """The same for replaced rows.

    Raises
    ------
    UserError
        As `mixing_noise`.
    """

    def holds(noise: float) -> bool:
        with precise():
            return replaced(Decimal(noise), rows, decimal(rational(delta))) <= decimal(rational(epsilon))

    return _search(holds, epsilon, delta, rows)


@lru_cache(maxsize=1024)
def settings(epsilon: float, delta: float, rows: int) -> tuple[float, float, float]:
    """Settings (g, eta, tau) of linear mixing for zero-out neighbours: little noise, whatever the eigenvalue is.

    eta is g / sqrt(k) times a power of sqrt 2 and tau is 3, or what is exceeded with a tenth of delta: whichever makes
    4 g + eta tau least: three times the noise of a window without any eigenvalue, and the one that needs no noise.
    Where mixing needs no more than tau, no eigenvalue is released.

    Raises
    ------
    UserError
        As `mixing_noise`.
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
                found = linear_epsilon(rational(eta_of(g, power)), rational(tau), rational(g), rows, exact, "zero-out")
                return found <= decimal(target)

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
    """The least noise above ``low`` that holds: a multiple of 2^-12, to a relative error."""
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
