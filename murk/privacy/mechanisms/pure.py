"""What the mechanisms with a pure guarantee have in common: how each budget and currency becomes an epsilon."""

import math
from collections.abc import Iterable
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction

from murk.errors import UserError
from murk.privacy.guarantees import ApproxDP, Guarantee, PureDP
from murk.privacy.mechanisms.privacy_loss import UNITS, Currency, PrivacyLoss, cap_of, ceil_units, gdp_units
from murk.privacy.rounding import decimal, float_up, log_odds_bounds, precise

__all__ = [
    "epsilon_cost",
    "epsilon_units",
    "is_pure",
    "log_odds",
    "odds_claim",
    "odds_cost",
    "pure_only",
    "really_given",
]


def epsilon_units(guarantee: Guarantee) -> int:
    """The largest epsilon, in units, whose pure guarantee implies ``guarantee`` and fits under its cap.

    Pure and (epsilon, delta): epsilon. zCDP: sqrt(2 rho). GDP: log(Phi(mu/2) / Phi(-mu/2)), and at most mu, so that
    it fits under rho = mu^2 / 2, too (that matters above mu = 4.6).
    """
    cap = cap_of(guarantee)
    if cap.currency == "gdp":
        with precise():
            root = decimal(Fraction(cap.units, UNITS)).sqrt() * (1 - Decimal("1e-50"))
            odds = log_odds_bounds(Fraction(root))[0] if root else Decimal(0)
            fitting = int((odds * UNITS).to_integral_value(rounding=ROUND_FLOOR))
        return min(math.isqrt(2 * (cap.units // 2) * UNITS), fitting)
    return math.isqrt(2 * cap.units * UNITS) if cap.currency == "rho" else cap.units


def epsilon_cost(epsilon: Fraction | Decimal, currency: Currency) -> PrivacyLoss:
    """The cost of a pure release whose epsilon is known exactly, or by an upper bound of many digits."""
    exact = Fraction(epsilon)
    if currency == "gdp":
        return PrivacyLoss("gdp", gdp_units(epsilon))
    if currency == "rho":
        return PrivacyLoss("rho", ceil_units(exact * exact / 2))
    if currency in ("epsilon", "approx"):
        return PrivacyLoss(currency, ceil_units(exact))
    raise UserError(f"unknown currency {currency!r}; one of gdp, rho, epsilon, approx")


def really_given(guarantee: Guarantee, claims: Iterable[Guarantee]) -> Guarantee:
    """A level's guarantee as its mechanism gives it: without its delta, where a pure mechanism needs none.

    Examples
    --------
    >>> from murk.privacy import ApproxDP, PureDP
    >>> really_given(ApproxDP(1.0, 1e-6), [PureDP(1.0)])
    PureDP(epsilon=1.0)
    """
    if not isinstance(guarantee, ApproxDP):
        return guarantee
    pure = PureDP(guarantee.epsilon)
    return pure if any(isinstance(claim, PureDP) and claim.implies(pure) for claim in claims) else guarantee


def is_pure(guarantee: Guarantee) -> bool:
    """Whether no Gaussian noise can give it."""
    return isinstance(guarantee, PureDP) or (isinstance(guarantee, ApproxDP) and guarantee.delta == 0)


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


def odds_cost(favoured: int, other: int, currency: Currency) -> PrivacyLoss:
    """What such a choice costs an account."""
    with precise():
        epsilon = log_odds(favoured, other)
    return epsilon_cost(epsilon, currency)
