"""Costs of releases in the currency of any cap, and caps in truncated concentrated privacy."""

import math
from contextlib import suppress
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import cast

from murk.errors import UserError
from murk.privacy.guarantees import Guarantee, TruncatedCDP
from murk.privacy.mechanisms.base import Costed
from murk.privacy.mechanisms.privacy_loss import (
    DELTA_UNITS,
    TRUNCATED,
    UNITS,
    Currency,
    PrivacyLoss,
    ceil_units,
    omega_of,
)
from murk.privacy.rounding import decimal, rational, require

_ERROR_CODE = "MURK-PRIVACY-001"

_UP, _DOWN = Context(prec=6, rounding=ROUND_CEILING), Context(prec=6, rounding=ROUND_FLOOR)
_APART = Decimal("1e-6")  # relative margin of omega: float functions, which find it, differ by less between machines


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
            caps.append((getattr(cap.to("approx", delta=delta), "epsilon"), omega, cap))  # noqa: B009
    if not caps:
        problem = f"{count} releases by {release.kind!r} have no joint truncated guarantee at delta={delta:g}"
        raise UserError(f"{problem}: give a larger delta, or fewer releases")
    return min(caps)[-1]
