"""Figures of a guarantee in every kind that it implies, and of several releases together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from murk.errors import UserError
from murk.privacy import Accountant, Guarantee
from murk.privacy.explain import number, percent
from murk.privacy.sketches.explain import CENTRAL

DELTA = 1e-5
"""delta at which epsilon is stated."""
WEAK = 0.9
"""Attack accuracy above which the dossier warns."""


def row(guarantee: Guarantee, stated: Guarantee | None = None) -> tuple[str, str, str, str]:
    """Return attack accuracy, mu, epsilon (at delta) and rho of a guarantee; a dash where it implies none.

    Epsilon is that of ``stated``, the guarantee in the task's own terms, where it is given.
    """
    epsilon = _epsilon(guarantee if stated is None else stated)
    return percent(guarantee.max_attack_accuracy), _of(guarantee, "gdp"), epsilon, _of(guarantee, "zcdp")


def strongest(guarantee: Guarantee, mechanism: Any) -> Guarantee:
    """Return the guarantee with the lowest attack accuracy: the task's, or one of its mechanism's.

    If Gaussian noise was calibrated to (epsilon, delta), its own mu bounds attacks more tightly.
    """
    claims: tuple[Guarantee, ...] = (guarantee, *getattr(mechanism, "guarantees", ()))
    return min(claims, key=lambda claim: claim.max_attack_accuracy)


def stated(guarantee: Guarantee) -> str:
    """Format a guarantee as its task states it."""
    return ", ".join(f"{name} = {value:.10g}" for name, value in guarantee.to_dict()[guarantee.kind].items())


def together(mechanism: Any, guarantee: Guarantee, count: int) -> Guarantee | None:
    """Return the joint guarantee of several releases in the strongest possible kind, if any."""
    account = Accountant()
    account.compose(mechanism if hasattr(mechanism, "guarantees") else guarantee, count=count)
    added_delta = count * float(getattr(guarantee, "delta", 0.0))
    for kind, options in (("pure", {}), ("gdp", {}), ("zcdp", {}), ("approx", {"delta": 2 * added_delta})):
        try:
            return account.spent(kind, **options)  # type: ignore[arg-type]
        except UserError:
            continue
    return None


def is_central(mechanisms: Mapping[str, Any]) -> bool:
    """Return whether releases summarise an organisation's window, whose neighbours are a record and a blank one."""
    return any(mechanism.kind in CENTRAL for mechanism in mechanisms.values())


def _of(guarantee: Guarantee, kind: Any) -> str:
    try:
        implied = guarantee.to(kind)
    except UserError:
        return "-"
    [value] = implied.to_dict()[implied.kind].values()
    return number(value)


def _epsilon(guarantee: Guarantee) -> str:
    if guarantee.kind in ("pure", "approx"):
        return stated(guarantee).removeprefix("epsilon = ").replace(", delta = ", " at delta ")
    try:
        implied = guarantee.to("approx", delta=DELTA)
    except UserError:
        return "-"
    return f"{number(getattr(implied, 'epsilon'))} at delta {DELTA:g}"  # noqa: B009
