"""Privacy loss in integer units, caps rounded down and costs up, so that a ledger compares without rounding.

Truncated currencies are of caps in truncated concentrated privacy."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Literal, Protocol, cast, get_args

from murk.errors import UserError
from murk.privacy.guarantees import (
    ApproxDP,
    GaussianDP,
    Guarantee,
    PureDP,
    TruncatedCDP,
    ZeroConcentratedDP,
    number,
    order,
)
from murk.privacy.rounding import decimal, float_up, log_odds_bounds, precise, pure_mu_bound, rational, require

_ERROR_CODE = "MURK-PRIVACY-001"

Currency = Literal["gdp", "rho", "epsilon", "approx"]
TRUNCATED = "tcdp:"  # prefix of a truncated currency's name, before its omega

UNITS = 10**12
"""Number of units in a mu^2, a rho or an epsilon of 1."""
DELTA_UNITS = 10**15
"""Number of units in a delta of 1."""


@dataclass(frozen=True, slots=True)
class PrivacyLoss:
    """An amount of privacy loss, as a cap or as a cost.

    Amounts of one currency add and compare by ``<=`` (with a delta: in both figures).

    Parameters
    ----------
    currency
        ``"gdp"`` (mu^2; pure counts with mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon))), ``"rho"`` (zero-concentrated; GDP
        counts as mu^2 / 2, pure as epsilon^2 / 2), ``"epsilon"`` (pure, by addition), ``"approx"`` ((epsilon, delta),
        by addition) or ``"tcdp:8.0"`` ((rho, delta) of `TruncatedCDP` with omega = 8, by addition).
    units, delta_units
        mu^2, rho or epsilon in 1e-12; delta in 1e-15, which is 0 unless the currency has a delta.

    Examples
    --------
    >>> from murk.privacy import PrivacyLoss
    >>> half = PrivacyLoss("rho", 500_000_000_000)
    >>> print(half + half)
    rho = 1
    >>> half + half <= half
    False
    """

    currency: str
    units: int
    delta_units: int = 0

    def __post_init__(self) -> None:
        if self.currency not in get_args(Currency) and omega_of(self.currency) is None:
            currencies = ", ".join((*get_args(Currency), f"{TRUNCATED}OMEGA"))
            raise UserError(f"unknown currency {self.currency!r}; use one of {currencies}")
        for name in ("units", "delta_units"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise UserError(f"an amount's {name} is a non-negative integer, got {value!r}")
        if self.delta_units and self.currency != "approx" and omega_of(self.currency) is None:
            raise UserError(f"an amount in {self.currency} has no delta, got {self.delta_units} units of it")

    def _check_currency(self, other: PrivacyLoss) -> None:
        if self.currency != other.currency:
            raise UserError(
                f"amounts in {other.currency} and {self.currency} cannot be compared or added; "
                "ask the mechanism for its cost in the account's currency"
            )

    def __add__(self, other: PrivacyLoss) -> PrivacyLoss:
        if not isinstance(other, PrivacyLoss):
            return NotImplemented
        self._check_currency(other)
        return PrivacyLoss(self.currency, self.units + other.units, self.delta_units + other.delta_units)

    def __mul__(self, count: int) -> PrivacyLoss:
        if not isinstance(count, int):
            return NotImplemented
        return PrivacyLoss(self.currency, self.units * count, self.delta_units * count)

    def __floordiv__(self, cost: PrivacyLoss) -> int:
        """Return how many releases of this cost a cap of this amount allows."""
        if not isinstance(cost, PrivacyLoss):
            return NotImplemented
        self._check_currency(cost)
        pairs = (self.units, cost.units), (self.delta_units, cost.delta_units)
        return min((amount // each for amount, each in pairs if each), default=sys.maxsize)

    def __le__(self, other: PrivacyLoss) -> bool:
        if not isinstance(other, PrivacyLoss):
            return NotImplemented
        self._check_currency(other)
        return self.units <= other.units and self.delta_units <= other.delta_units

    def __str__(self) -> str:
        """Return the parameters with all digits: ``mu = 1``, ``epsilon = 1, delta = 1e-06``."""
        return self._written("{:.15g}".format, lambda omega: repr(omega).removesuffix(".0"))

    def rounded(self) -> str:
        """Return the parameters with four digits, rounded up (omega: down)."""
        return self._written(number, order)

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return rounded parameters as plain data, like a guarantee's: ``{"gdp": {"mu": 1.0}}``."""
        kind = {"rho": "zcdp", "epsilon": "pure"}.get(self.currency, self.currency)
        return {kind if omega_of(self.currency) is None else TruncatedCDP.kind: self._figures()}

    def _figures(self) -> dict[str, float]:
        loss = self.units / UNITS
        if self.currency == "gdp":
            return {"mu": math.sqrt(loss)}
        if self.currency == "approx":
            return {"epsilon": loss, "delta": self.delta_units / DELTA_UNITS}
        if (omega := omega_of(self.currency)) is not None:
            return {"rho": loss, "omega": omega, "delta": self.delta_units / DELTA_UNITS}
        return {self.currency: loss}

    def _written(self, write: Callable[[float], str], write_omega: Callable[[float], str]) -> str:
        figures = self._figures().items()
        return ", ".join(f"{name} = {(write_omega if name == 'omega' else write)(value)}" for name, value in figures)


def floor_units(value: float, scale: int = UNITS) -> int:
    """Convert a float to integer units, rounded down; 0.1 means 1/10."""
    return int(rational(value) * scale // 1)


def ceil_units(value: Fraction, scale: int = UNITS) -> int:
    """Convert an exact value to integer units, rounded up."""
    return -int(-value * scale // 1)


def gdp_units(epsilon: Fraction | Decimal) -> int:
    """Return mu^2 of a pure release in integer units, rounded up."""
    with precise():
        return int((pure_mu_bound(epsilon) ** 2 * UNITS).to_integral_value(rounding=ROUND_CEILING))


def cap_of(guarantee: Guarantee) -> PrivacyLoss:
    """Convert a guarantee to the cap of an account, rounded down.

    GDP becomes ``gdp``, zCDP ``rho``, pure ``epsilon``, (epsilon, delta) ``approx``, truncated CDP ``tcdp:OMEGA``. A
    release calibrated to a guarantee fits under its cap. Raises `UserError` if Murk does not know the guarantee.

    Examples
    --------
    >>> from murk.privacy import GaussianDP, cap_of
    >>> cap_of(GaussianDP(0.5))
    PrivacyLoss(currency='gdp', units=250000000000, delta_units=0)
    """
    if isinstance(guarantee, GaussianDP):
        return PrivacyLoss("gdp", int(rational(guarantee.mu) ** 2 * UNITS // 1))
    if isinstance(guarantee, ZeroConcentratedDP):
        return PrivacyLoss("rho", floor_units(guarantee.rho))
    if isinstance(guarantee, PureDP):
        return PrivacyLoss("epsilon", floor_units(guarantee.epsilon))
    if isinstance(guarantee, ApproxDP):
        return PrivacyLoss("approx", floor_units(guarantee.epsilon), floor_units(guarantee.delta, DELTA_UNITS))
    if isinstance(guarantee, TruncatedCDP):
        currency = f"{TRUNCATED}{guarantee.omega!r}"
        return PrivacyLoss(currency, floor_units(guarantee.rho), floor_units(guarantee.delta, DELTA_UNITS))
    raise UserError(f"not a guarantee: {guarantee!r}; use PureDP, ApproxDP, GaussianDP or ZeroConcentratedDP")


def budget_of(guarantee: Guarantee) -> PrivacyLoss:
    """Return `cap_of` a guarantee to which a release can be calibrated; raise `UserError` for a `TruncatedCDP`."""
    if isinstance(guarantee, TruncatedCDP):
        raise UserError(
            f"{guarantee!r} can only be a cap of several releases: give each release another kind of guarantee"
        )
    return cap_of(guarantee)


def omega_of(currency: str) -> float | None:
    """Return omega of a truncated currency, None of any other; each omega has one spelling."""
    with suppress(ValueError, UserError):
        omega = TruncatedCDP(0.0, float(currency.removeprefix(TRUNCATED))).omega
        return omega if currency == f"{TRUNCATED}{omega!r}" else None
    return None


def epsilon_units(guarantee: Guarantee) -> int:
    """Return the largest epsilon, in units, of a pure guarantee that implies ``guarantee`` and fits under its cap.

    Pure and (epsilon, delta): epsilon. zCDP: sqrt(2 rho). GDP: log(Phi(mu/2) / Phi(-mu/2)), and at most mu, so that it
    also fits under rho = mu^2 / 2 (which matters above mu = 4.6).
    """
    cap = budget_of(guarantee)
    if cap.currency == "gdp":
        with precise():
            root = decimal(Fraction(cap.units, UNITS)).sqrt() * (1 - Decimal("1e-50"))
            odds = log_odds_bounds(Fraction(root))[0] if root else Decimal(0)
            fitting = int((odds * UNITS).to_integral_value(rounding=ROUND_FLOOR))
        return min(math.isqrt(2 * (cap.units // 2) * UNITS), fitting)
    return math.isqrt(2 * cap.units * UNITS) if cap.currency == "rho" else cap.units


def epsilon_cost(epsilon: Fraction | Decimal, currency: Currency) -> PrivacyLoss:
    """Return the cost of a pure release from its epsilon, which is exact or a tight upper bound."""
    exact = Fraction(epsilon)
    if currency == "gdp":
        return PrivacyLoss("gdp", gdp_units(epsilon))
    if currency == "rho":
        return PrivacyLoss("rho", ceil_units(exact * exact / 2))
    if currency in ("epsilon", "approx"):
        return PrivacyLoss(currency, ceil_units(exact))
    raise UserError(f"unknown currency {currency!r}; use one of gdp, rho, epsilon, approx")


def really_given(guarantee: Guarantee, claims: Iterable[Guarantee]) -> Guarantee:
    """Return an (epsilon, delta) with delta 0 if one of the mechanism's ``claims`` implies that; others unchanged."""
    if not isinstance(guarantee, ApproxDP):
        return guarantee
    pure = PureDP(guarantee.epsilon)
    return pure if any(isinstance(claim, PureDP) and claim.implies(pure) for claim in claims) else guarantee


def is_pure(guarantee: Guarantee) -> bool:
    """Return whether a guarantee has delta 0, which no Gaussian noise can provide."""
    return isinstance(guarantee, PureDP) or (isinstance(guarantee, ApproxDP) and guarantee.delta == 0)


def pure_only(kind: str, method: str) -> None:
    """Raise `UserError` for a calibration method that is for Gaussian noise only."""
    if method != "analytic":
        raise UserError(
            f"method={method!r} is for the gaussian mechanism and (epsilon, delta) only; the {kind} mechanism "
            "has one calibration"
        )


def log_odds(favoured: int, other: int) -> Decimal:
    """Return an upper bound on log(favoured / other), 1e-55 above it; call within `precise`.

    Calibrated integers stay at least 1e-49 below their epsilon, so the bound stays below it, too.
    """
    return (Decimal(favoured) / Decimal(other)).ln() + Decimal("1e-55")


class OddsMechanism(ABC):
    """Base class of the pure mechanisms that choose one of several outcomes with bounded odds."""

    __slots__ = ()

    @property
    @abstractmethod
    def odds(self) -> tuple[int, int]:
        """Numerator and denominator of the largest odds between two inputs."""

    @property
    def guarantee(self) -> PureDP:
        """epsilon-DP, epsilon the logarithm of the odds, rounded up."""
        with precise():
            return PureDP(float_up(log_odds(*self.odds)))

    @property
    def _mu(self) -> Decimal | None:
        """Upper bound on the mu of one release, if it may be below that of its epsilon."""
        return None

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """The pure guarantee, which implies all others, and a mu that may be below that of its epsilon."""
        return (self.guarantee, *(() if self._mu is None else (GaussianDP(float_up(self._mu)),)))

    def cost(self, currency: Currency) -> PrivacyLoss:
        """Return the cost of one release, rounded up: epsilon, (epsilon, 0), rho or mu^2."""
        with precise():
            epsilon = log_odds(*self.odds)
        cost = epsilon_cost(epsilon, currency)
        if self._mu is None or currency not in ("gdp", "rho"):
            return cost
        square = Fraction(self._mu) ** 2 / (1 if currency == "gdp" else 2)
        return PrivacyLoss(currency, min(cost.units, ceil_units(square)))


_UP, _DOWN = Context(prec=6, rounding=ROUND_CEILING), Context(prec=6, rounding=ROUND_FLOOR)
_APART = Decimal("1e-6")  # relative margin of omega: float functions, which find it, differ by less between machines


class Costed(Protocol):
    """Part of a mechanism that ledgers and workers use: guarantee, cost and bounds of payloads."""

    @property
    def kind(self) -> str:
        """Name, such as ``"gaussian"``."""

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of one release, rounded up."""

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """All known guarantees of one release, `guarantee` first; an accountant chooses among them."""

    @property
    def magnitude(self) -> int:
        """Bound on each coordinate of an honest payload, exceeded with probability below 1e-30."""

    def cost(self, currency: Currency) -> PrivacyLoss:
        """Return the cost of one release to an account in ``currency``, rounded up."""


@lru_cache(maxsize=4096)
def truncated_cost(claims: tuple[Guarantee, ...], currency: str) -> tuple[int, int] | None:
    """Return the least (rho, delta) for orders up to a truncated currency's omega, in units, rounded up.

    None if no claim bounds all orders up to omega. For a rho that bounds all orders, delta is 0; otherwise rho and
    delta are those of the truncated guarantee with the least omega that suffices.
    """
    costs: list[tuple[float, int, int]] = []
    for claim in claims:
        if isinstance(claim, TruncatedCDP):
            costs.append((claim.omega, ceil_units(rational(claim.rho)), ceil_units(rational(claim.delta), DELTA_UNITS)))
            continue
        with suppress(UserError):
            costs.append((math.inf, ceil_units(rational(claim.to("zcdp").rho)), 0))
    omega = omega_of(currency)
    assert omega is not None
    least = min((cost for cost in costs if cost[0] >= omega), default=None)
    return None if least is None else least[1:]


def cost_in(release: Costed, currency: str) -> PrivacyLoss:
    """Return the cost of a mechanism's release in a cap's currency, rounded up.

    In a truncated currency, mechanisms with a rho have a cost, and so have Gaussian sketches whose Renyi divergence is
    bounded for all orders up to omega. Raises `UserError`, with the reason, for others.

    >>> from murk.privacy import GaussianDP, TruncatedCDP, calibrate, cap_of
    >>> noise = calibrate("gaussian", GaussianDP(0.5), dimension=3, radius=1.0)
    >>> cost_in(noise, cap_of(TruncatedCDP(1.0, 8.0)).currency).rounded()
    'rho = 0.125, omega = 8, delta = 0'
    """
    if omega_of(currency) is None:
        return release.cost(cast(Currency, currency))
    cost = truncated_cost(release.guarantees, currency)
    if cost is not None:
        return PrivacyLoss(currency, *cost)
    reason = "it has only an (epsilon, delta) guarantee, which bounds no Renyi divergence; give a cap in approx instead"
    if omegas := [claim.omega for claim in release.guarantees if isinstance(claim, TruncatedCDP)]:
        reason = f"its Renyi divergence is bounded for orders up to {max(omegas)!r} only; give the cap no larger omega"
    raise UserError(f"a release by {release.kind!r} has no cost in {currency}: {reason}")


def truncated_cap(release: Costed, count: int, *, delta: float) -> TruncatedCDP:
    """Return the cap that allows ``count`` releases and converts to the least epsilon at ``delta``.

    If release i has rho_i and delta_i for orders up to omega, a ledger keeps sum rho_i <= rho and sum delta_i <= delta.
    So the releases together are a `TruncatedCDP`, even if each is chosen in view of earlier ones. The cap has six
    digits, rounded so that it allows ``count`` releases on every machine; for a count above 50,000, it may allow a few
    more. Raises `UserError` if the mechanism has no such cost, no delta is left, or an argument is out of range.

    Reference: Feldman, Zrnic, "Individual privacy accounting via a Renyi filter", 2021; Whitehouse, Ramdas, Rogers, Wu,
    "Fully adaptive composition in differential privacy", 2023.

    >>> from murk.privacy import ApproxDP, GaussMixMechanism
    >>> window = GaussMixMechanism.calibrate(
    ...     ApproxDP(1.0, 1e-6), rows=100, columns=4, feature_bound=1.0, target_bound=1.0, method="mixing"
    ... )
    >>> cap = truncated_cap(window, 16, delta=1e-6)
    >>> round(cap.rho, 4), round(cap.omega, 3), round(cap.to("approx", delta=1e-6).epsilon, 2)
    (0.2731, 7.177, 3.73)
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise UserError(f"count={count!r} is not a positive integer")
    require("delta", delta, positive=True, below=1.0)
    found = [claim.omega for claim in release.guarantees if isinstance(claim, TruncatedCDP)]
    least = (float(_DOWN.create_decimal(Decimal(each) * (1 - _APART))) for each in found)
    omegas = [omega for omega in least if omega > 1]
    caps: list[tuple[float, float, TruncatedCDP]] = []
    for omega in omegas or [2.0**power for power in range(2, 11)]:
        total = cost_in(release, f"{TRUNCATED}{omega!r}") * count
        shares = Fraction(total.units, UNITS), Fraction(total.delta_units, DELTA_UNITS)
        rho, own = (float(_UP.create_decimal(decimal(share) * (1 + _APART))) for share in shares)
        with suppress(UserError):
            cap = TruncatedCDP(rho, omega, own)
            implied = cap.to("approx", delta=delta)
            assert isinstance(implied, ApproxDP)
            caps.append((implied.epsilon, omega, cap))
    if not caps:
        problem = f"{count} releases by {release.kind!r} have no joint truncated guarantee at delta={delta:g}"
        raise UserError(f"{problem}: give a larger delta, or fewer releases")
    return min(caps)[-1]
