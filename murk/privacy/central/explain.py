"""Guarantees of an organisation's release in words, for neighbours in which one record is blank (all zeros)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from murk.privacy.conversions import zcdp_delta
from murk.privacy.guarantees import (
    CENTRAL,
    ApproxDP,
    GaussianDP,
    Guarantee,
    PureDP,
    TruncatedCDP,
    ZeroConcentratedDP,
    number,
)

if TYPE_CHECKING:
    from murk.privacy.central import GaussMixMechanism, GramMechanism, NewtonMechanism

_ALL = 1.0 - 2.0**-53  # the largest delta below 1, which guarantees nothing


def promised(guarantee: Guarantee, mechanism: str) -> str:
    """Describe the guarantee of a release, for the neighbours of this kind of mechanism."""
    return against_a_blank_record(guarantee) if mechanism in CENTRAL else guarantee.describe()


def described(mechanism: GaussMixMechanism | GramMechanism | NewtonMechanism) -> tuple[str, Guarantee]:
    """Return an organisation's guarantee in words, and the guarantee for any two records (not only a blank one)."""
    replaced = strongest_replace_one(mechanism)
    rows = mechanism.rows_per_person
    pair = "records" if rows == 1 else "people's records"
    return f"{against_a_blank_record(mechanism.stated, rows)} For any two {pair}: {replaced.describe()}", replaced


def strongest_replace_one(mechanism: GaussMixMechanism | GramMechanism | NewtonMechanism) -> Guarantee:
    """Return the guarantee under which any two records of a window are hardest to tell apart.

    If Gaussian noise was calibrated to (epsilon, delta), its own mu bounds attacks more tightly.

    >>> from murk.privacy import GramMechanism
    >>> mechanism = GramMechanism.calibrate(ApproxDP(1.0, 1e-6), columns=3, feature_bound=1.0, target_bound=1.0)
    >>> round(mechanism.replace_one().max_attack_accuracy, 3)
    0.811
    >>> round(strongest_replace_one(mechanism).max_attack_accuracy, 3)
    0.566
    """
    gaussian = (any_two_records(claim) for claim in mechanism.guarantees if isinstance(claim, GaussianDP))
    return min((mechanism.replace_one(), *gaussian), key=lambda claim: claim.max_attack_accuracy)


def any_two_records(guarantee: Guarantee) -> Guarantee:
    """Convert a guarantee against a blank record to one for any two: sqrt 2 mu, 2 rho, or two steps via a blank one."""
    if isinstance(guarantee, GaussianDP):
        # A little more than the root of 2, because floats may round it down.
        return GaussianDP(math.sqrt(2.0) * (1 + 2.0**-40) * guarantee.mu)
    if isinstance(guarantee, ZeroConcentratedDP):
        return ZeroConcentratedDP(2.0 * guarantee.rho)
    if isinstance(guarantee, TruncatedCDP):
        rho, omega, own = guarantee.rho, guarantee.omega, guarantee.delta
        curve = (ApproxDP(k / 8, min(own + zcdp_delta(rho, k / 8, omega), _ALL)) for k in range(25))
        return min((any_two_records(point) for point in curve), key=lambda point: point.max_attack_accuracy)
    assert isinstance(guarantee, PureDP | ApproxDP)
    epsilon, delta = guarantee.epsilon, guarantee.delta if isinstance(guarantee, ApproxDP) else 0.0
    return ApproxDP(2.0 * epsilon, min((1.0 + math.exp(min(epsilon, 700.0))) * delta, _ALL))


def against_a_blank_record(guarantee: Guarantee, rows: int = 1) -> str:
    """Describe a guarantee for a record, or for a person's up to ``rows`` records, against blank ones (all zeros)."""
    whose, it, blank = "each record of the window", "the record", "a blank one"
    if rows > 1:
        whose = f"a person's records of the window together (at most {rows})"
        it, blank = "the person's records", "blank ones"
    if not isinstance(guarantee, ApproxDP):
        figures = ", ".join(f"{name} = {value:.10g}" for name, value in guarantee.to_dict()[guarantee.kind].items())
        return (
            f"For {whose}, {figures}: anyone who knows all other records and sees what is released "
            f"tells {it} from {blank} (all zeros) in at most "
            f"{100 * guarantee.max_attack_accuracy:.2f}% of cases, where guessing has 50%. The organisation that holds "
            "the records is trusted with them."
        )
    epsilon, delta = guarantee.epsilon, guarantee.delta
    factor = f"e^{epsilon:.10g}" + (f" = {number(math.exp(epsilon))}" if epsilon < 12 else "")
    return (
        f"For {whose}, epsilon = {epsilon:.10g} and delta = {delta:.10g}: had {it} been blank "
        f"(all zeros), whatever is seen would have had at most {factor} times the probability plus {delta:.10g}, and "
        "the other way round. The organisation that holds the records is trusted with them."
    )
