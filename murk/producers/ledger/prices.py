"""What one release costs, in every currency in which it has a valid bound; and adding costs up."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from murk.errors import MurkError, UserError
from murk.privacy import Currency, PrivacyLoss, guarantee_from_dict

if TYPE_CHECKING:
    from murk.privacy import Guarantee
    from murk.privacy.mechanisms import Costed

CURRENCIES: tuple[Currency, ...] = ("gdp", "rho", "epsilon", "approx")
Row = tuple[str, str, str, int | None, int | None, int | None, int | None, int | None]
LARGEST = 2**62
"""No figure beyond it enters a ledger: SQLite's integers end at 2^63."""


@dataclass(frozen=True)
class Charge:
    """What a release at one level of a task costs.

    Parameters
    ----------
    level
        Its name in the task.
    mechanism
        Kind of the mechanism ("gaussian").
    guarantee
        What the level promises for one release, as the task states it.
    costs
        Currency -> `PrivacyLoss`; a currency in which the mechanism has no valid bound is left out.
    guarantees
        All that is known of the mechanism, for `Accountant`; by default the guarantee alone.
    """

    level: str
    mechanism: str
    guarantee: Guarantee
    costs: Mapping[Currency, PrivacyLoss]
    guarantees: tuple[Guarantee, ...] = ()

    @classmethod
    def of(cls, level: str, guarantee: Guarantee, mechanism: Costed) -> Charge:
        """Ask a mechanism for its cost in every currency.

        Examples
        --------
        >>> from murk.privacy import GaussianDP, calibrate, cap_of
        >>> guarantee = GaussianDP(1.0)
        >>> mechanism = calibrate(None, guarantee, dimension=3, radius=1.0)
        >>> Charge.of("default", guarantee, mechanism).costs["gdp"] <= cap_of(guarantee)
        True
        """
        costs = {}
        for currency in CURRENCIES:
            try:
                costs[currency] = mechanism.cost(currency)
            except UserError:
                continue
        if not costs:
            raise MurkError(f"the mechanism {mechanism.kind!r} has no cost in any currency that a ledger keeps")
        if any(max(cost.units, cost.delta_units) > LARGEST for cost in costs.values()):
            raise UserError(
                f"a release at the level {level!r} costs more than a ledger can count, and protects nothing: "
                "choose a smaller guarantee"
            )
        return cls(level, mechanism.kind, guarantee, costs, mechanism.guarantees)

    def row(self) -> Row:
        """Columns of the ledger's table of prices (`tariffs`)."""
        gdp, rho, epsilon, approx = (self.costs.get(currency) for currency in CURRENCIES)
        return (
            self.level,
            self.mechanism,
            json.dumps([one.to_dict() for one in (self.guarantee, *self.guarantees)], sort_keys=True),
            None if rho is None else rho.units,
            None if epsilon is None else epsilon.units,
            None if approx is None else approx.units,
            None if approx is None else approx.delta_units,
            None if gdp is None else gdp.units,
        )


@dataclass(frozen=True)
class Price:
    """A charge as the ledger remembers it, under a number of its own.

    Amounts are pairs (units, delta units); None where the mechanism has no valid bound in a currency.
    """

    number: int
    task: int
    level: str
    mechanism: str
    description: str
    rho: int | None
    epsilon: int | None
    approx: int | None
    delta: int | None
    gdp: int | None

    @property
    def row(self) -> Row:
        """The columns that `Charge.row` gave."""
        return self.level, self.mechanism, self.description, self.rho, self.epsilon, self.approx, self.delta, self.gdp

    def cost(self, currency: Currency) -> tuple[int, int] | None:
        """Units of one release in a currency, and its delta units."""
        if currency == "approx":
            return None if self.approx is None or self.delta is None else (self.approx, self.delta)
        units = {"gdp": self.gdp, "rho": self.rho, "epsilon": self.epsilon}[currency]
        return None if units is None else (units, 0)

    @cached_property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """The level's guarantee, and what else is known of the mechanism; `Accountant` composes it."""
        return tuple(map(guarantee_from_dict, json.loads(self.description)))

    @property
    def guarantee(self) -> Guarantee:
        """What the level promises for one release."""
        return self.guarantees[0]


@dataclass(frozen=True)
class Promise:
    """At most so much for everyone: over all tasks (0), or in one, at one of its levels or ('') at any."""

    task: int
    level: str
    currency: Currency
    units: int
    delta_units: int

    @property
    def amount(self) -> PrivacyLoss:
        """The cap."""
        return PrivacyLoss(self.currency, self.units, self.delta_units)

    def spent(self, history: Mapping[int, int], prices: Mapping[int, Price]) -> tuple[int, int] | None:
        """Add up a person's releases (number of the price -> how many) in this cap's currency.

        A level's own cap counts the person's releases at the other levels of the task, too. None when one
        of them has no figure in this currency: then nobody knows what is left, and nothing is.
        """
        units = delta_units = 0
        for number, count in history.items():
            price = prices[number]
            if self.task in (0, price.task):
                cost = price.cost(self.currency)
                if cost is None:
                    return None
                units += count * cost[0]
                delta_units += count * cost[1]
        return units, delta_units
