"""What the mechanisms with a pure guarantee have in common: how each budget and currency becomes an epsilon."""

import math
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction

from murk.errors import UserError
from murk.privacy.conversions import gdp_to_pure
from murk.privacy.exact import float_up, precise
from murk.privacy.guarantees import GaussianDP, Guarantee, PureDP
from murk.privacy.mechanisms.amounts import UNITS, Amount, Currency, cap_of, floor_units

__all__ = ["epsilon_cost", "epsilon_units", "log_odds", "odds_claim", "odds_units", "pure_only"]


def epsilon_units(guarantee: Guarantee) -> int:
    """The largest epsilon, in units, whose pure guarantee implies ``guarantee`` and fits under its cap.

    Pure and (epsilon, delta): epsilon. zCDP: sqrt(2 rho). GDP: log(Phi(mu/2) / Phi(-mu/2)), and at most
    mu, since an account in rho is charged epsilon^2 / 2 (that matters above mu = 4.6).
    """
    cap = cap_of(guarantee)
    if cap.currency != "rho":
        return cap.units
    units = math.isqrt(2 * cap.units * UNITS)
    if isinstance(guarantee, GaussianDP):
        units = min(units, floor_units(gdp_to_pure(guarantee.mu)))
    return units


def epsilon_cost(units: int, exact: Fraction | None, currency: Currency) -> Amount:
    """The cost of a pure release: ``units`` of epsilon, known exactly or not."""
    if currency == "epsilon":
        return Amount("epsilon", units)
    if currency == "approx":
        return Amount("approx", units)
    if currency == "rho":
        epsilon = Fraction(units, UNITS) if exact is None else exact
        return Amount("rho", -int(-epsilon * epsilon * UNITS / 2 // 1))
    raise UserError(f"unknown currency {currency!r}; one of rho, epsilon, approx")


def pure_only(kind: str, method: str) -> None:
    """Refuse the calibration methods that are for Gaussian noise."""
    if method != "analytic":
        raise UserError(
            f"method={method!r} is for the gaussian mechanism and (epsilon, delta) only; the {kind} mechanism "
            "has one calibration"
        )


def log_odds(favoured: int, other: int) -> Decimal:
    """An upper bound of log(favoured / other), above it by 1e-55 (in a `precise` context).

    The integers that calibration chooses leave at least 1e-49 below the epsilon they were chosen for, so the
    bound stays below it too.
    """
    return (Decimal(favoured) / Decimal(other)).ln() + Decimal("1e-55")


def odds_claim(favoured: int, other: int) -> PureDP:
    """The pure guarantee of a choice whose odds are at most favoured : other."""
    with precise():
        return PureDP(float_up(log_odds(favoured, other)))


def odds_units(favoured: int, other: int) -> int:
    """The same in integer units, rounded up."""
    with precise():
        return int((log_odds(favoured, other) * UNITS).to_integral_value(rounding=ROUND_CEILING))
