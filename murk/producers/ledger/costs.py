"""Prices and promises of a ledger: the costs of a release in each currency, people's caps, and their changes.

Changes of promised caps are kept with their days, so that every raise leaves a trace.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, ClassVar, Final

from murk._internal.sqlite import Database, row_checksum
from murk.errors import MurkError, UserError
from murk.privacy import Currency, PrivacyLoss, cap_of, guarantee_from_dict
from murk.privacy.mechanisms.costs import truncated_cost
from murk.task.shuffling import CentralGuarantee
from murk.task.windows import each_of

if TYPE_CHECKING:
    from murk.privacy import Guarantee
    from murk.privacy.mechanisms import Costed

_ERROR_CODE = "MURK-LEDGER-001"

CURRENCIES: tuple[Currency, ...] = ("gdp", "rho", "epsilon", "approx")
Row = tuple[str, str, str, int | None, int | None, int | None, int | None, int | None]
_SHUFFLED = "shuffled"  # key of the central guarantee among a price's claims
REPEATED = "repeated"  # name in place of a mechanism for repeated answers, which cost nothing
LARGEST = 2**62  # largest amount in a ledger: SQLite's integers end at 2^63


@dataclass(frozen=True)
class Charge:
    """Cost of a release at one level of a task, in each currency in which the mechanism's loss has a valid bound.

    ``guarantees`` are all guarantees of the mechanism, for `Accountant`.
    """

    level: str
    mechanism: str
    guarantee: Guarantee
    costs: Mapping[Currency, PrivacyLoss]
    guarantees: tuple[Guarantee, ...] = ()
    central: CentralGuarantee | None = None

    @classmethod
    def of(cls, level: str, guarantee: Guarantee, mechanism: Costed, central: CentralGuarantee | None = None) -> Charge:
        """Return the charge of a mechanism, with its cost in every currency."""
        costs = {}
        for currency in CURRENCIES:
            with suppress(UserError):
                costs[currency] = mechanism.cost(currency)
        if not costs:
            raise MurkError(f"the mechanism {mechanism.kind!r} has no cost in any currency that a ledger keeps")
        if any(max(cost.units, cost.delta_units) > LARGEST for cost in costs.values()):
            raise UserError(
                f"a release at the level {level!r} costs more than a ledger can count, and protects nothing: "
                "choose a smaller guarantee"
            )
        return cls(level, mechanism.kind, guarantee, costs, mechanism.guarantees, central)

    def repeated(self) -> Charge:
        """Return the charge for repeating an answer of this level, which is zero in every currency."""
        free: dict[Currency, PrivacyLoss] = {currency: PrivacyLoss(currency, 0, 0) for currency in CURRENCIES}
        return Charge(self.level, REPEATED, self.guarantee, free)

    def row(self) -> Row:
        """Return the row for the table ``tariffs``."""
        units = {currency: cost.units for currency, cost in self.costs.items()}
        claims: list[dict[str, Any]] = [each.to_dict() for each in (self.guarantee, *self.guarantees)]
        if self.central is not None:
            claims.append({_SHUFFLED: self.central.to_dict()})
        delta = self.costs["approx"].delta_units if "approx" in self.costs else None
        figures = units.get("rho"), units.get("epsilon"), units.get("approx"), delta, units.get("gdp")
        return self.level, self.mechanism, json.dumps(claims, sort_keys=True), *figures


@dataclass(frozen=True)
class Cost:
    """A charge as stored in the ledger, with its number. Amounts are None in currencies without a valid bound."""

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
        """The columns of `Charge.row`."""
        return self.level, self.mechanism, self.description, self.rho, self.epsilon, self.approx, self.delta, self.gdp

    def cost(self, currency: str) -> tuple[int, int] | None:
        """Return the cost of one release in a currency as (units, delta units); None without a valid bound."""
        if currency == "approx":
            return None if self.approx is None or self.delta is None else (self.approx, self.delta)
        if currency not in CURRENCIES and self.is_free:
            return 0, 0
        if currency not in CURRENCIES:
            return truncated_cost(self.guarantees, currency)
        units: int | None = getattr(self, currency)
        return None if units is None else (units, 0)

    @property
    def is_free(self) -> bool:
        """Whether this is the price of a repeated answer."""
        return self.mechanism == REPEATED

    @cached_property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """The level's guarantee, followed by the mechanism's other guarantees; `Accountant` composes them."""
        return tuple(guarantee_from_dict(claim) for claim in json.loads(self.description) if _SHUFFLED not in claim)

    @property
    def central(self) -> CentralGuarantee | None:
        """The central guarantee of a shuffled release, which assumes a shuffler that hides the order of arrival."""
        shuffled = [claim[_SHUFFLED] for claim in json.loads(self.description) if _SHUFFLED in claim]
        return CentralGuarantee.from_dict(shuffled[0]) if shuffled else None

    @property
    def guarantee(self) -> Guarantee:
        """The level's guarantee for one release."""
        return self.guarantees[0]


@dataclass(frozen=True)
class Cap:
    """A cap for every person: over all tasks (``task`` 0) or in one task, and at one ``level`` or at any ('').

    With ``renews`` the cap holds in each window of the task.
    """

    task: int
    level: str
    currency: str
    units: int
    delta_units: int
    renews: int = 0
    columns: ClassVar[str] = "task, level, currency, units, delta_units, renews"

    @property
    def amount(self) -> PrivacyLoss:
        """The cap as a privacy loss."""
        return PrivacyLoss(self.currency, self.units, self.delta_units)

    def spent(self, history: Mapping[int, int], prices: Mapping[int, Cost]) -> tuple[int, int] | None:
        """Return the cost of a person's releases (price number -> count) in the cap's currency: (units, delta units).

        A level's cap also counts releases at the task's other levels. None if a release has no cost in this currency:
        the remainder is then unknown and counts as 0.
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


@dataclass(frozen=True)
class BookedTask:
    """A task whose costs are recorded: its number in the ledger, and the number of each level's `Cost`.

    ``repeats`` are the numbers of the costs of repeated answers; empty if the task draws each answer anew.
    """

    number: int
    levels: Mapping[str, int]
    repeats: Mapping[str, int]


PRICE_COLUMNS: Final = "task, level, mechanism, claims, rho, epsilon, approx, delta, gdp"
_PRICES: Final = f"SELECT number, {PRICE_COLUMNS} FROM tariffs"


class Costs(dict[int, Cost]):
    """The ledger's prices by number. They never change, so they are cached."""

    def refresh(self, connection: Connection) -> Costs:
        """Read prices added since the last call, perhaps by another process."""
        newest = connection.execute("SELECT max(number) FROM tariffs").fetchone()[0]
        if newest is not None and newest not in self:
            for row in connection.execute(_PRICES):
                self.setdefault(row[0], Cost(*row))
        return self

    def numbers(self, connection: Connection, task: int, charges: Sequence[Charge]) -> list[int]:
        """Return the price number of each charge, adding new prices; call it once in a transaction."""
        stored = {(price.task, *price.row): price.number for price in self.refresh(connection).values()}
        numbers = []
        for charge in charges:
            row = (task, *charge.row())
            if row not in stored:
                # Prices are not cached beyond this call: the transaction may still be rolled back.
                values = *row, row_checksum("tariffs", *row)
                added = connection.execute("INSERT INTO tariffs VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
                stored[row] = int(added.lastrowid or 0)
            numbers.append(stored[row])
        return numbers


def read_prices(file: Database) -> dict[int, Cost]:
    """Read all prices by number."""
    return {row[0]: Cost(*row) for row in file.query(_PRICES)}


def parse_history(text: str) -> dict[int, int]:
    """Parse a person's releases, stored as "PRICE:COUNT,..." with the numbers of prices."""
    return {int(price): int(count) for price, count in (pair.split(":") for pair in text.split(","))}


def history_text(history: Mapping[int, int]) -> str:
    """Return releases as `parse_history` reads them."""
    return ",".join(f"{price}:{count}" for price, count in sorted(history.items()))


def check_tighter(
    ledger: Path, connection: Connection, task: int, level: str, cap: PrivacyLoss, *, renews: bool = False
) -> Cap:
    """Return a cap of a task (0: all tasks) at a level ('': any); raise a UserError if it exceeds the promised one."""
    query = "SELECT units, delta_units FROM promises WHERE task = ? AND level = ? AND currency = ? AND renews = ?"
    before = connection.execute(query, (task, level, cap.currency, renews)).fetchone()
    if before is not None and (cap.units > before[0] or cap.delta_units > before[1]):
        promised = PrivacyLoss(cap.currency, *before)
        scope = "over all tasks" if task == 0 else f"for this task at the level {level!r}" if level else "for this task"
        raise UserError(
            f"the ledger {ledger} promises each person a cap of {promised} {scope}, and {cap} was requested: "
            f"request {promised} or less, or call {_loosen(cap, level, of_task=task != 0)} once the people have agreed"
        )
    return Cap(task, level, cap.currency, cap.units, cap.delta_units, renews)


def _loosen(cap: PrivacyLoss, level: str, *, of_task: bool) -> str:
    """Return the call that raises a promised cap to this one."""
    guarantee = guarantee_from_dict(cap.to_dict())
    amount = f"cap_of({guarantee!r})" if cap_of(guarantee) == cap else repr(cap)
    scope = (", task_hash=task.hash" if of_task else "") + (f", level={level!r}" if level else "")
    return f"Ledger.loosen({amount}{scope})"


_SCOPE = "task = ? AND level = ? AND currency = ? AND renews = ?"


@dataclass(frozen=True, slots=True)
class CapChange:
    """A change of a promised cap, from ``before`` to ``after`` (None: no cap), on a day (seconds since 1970)."""

    day: int
    task: str  # the task's name; empty for the cap over all tasks
    level: str
    window: str  # the window with which the cap renews, or empty
    before: PrivacyLoss | None
    after: PrivacyLoss | None

    @property
    def is_raise(self) -> bool:
        """Whether the new cap promises less protection than the one before."""
        before, after = self.before, self.after
        if before is None or after is None:
            return before is not None
        return after.units > before.units or after.delta_units > before.delta_units

    @property
    def scope(self) -> str:
        """The tasks, the level and the window to which the cap applies, in words."""
        where = f"the task {self.task!r}" if self.task else "all tasks"
        at = f", level {self.level!r}" if self.level else ""
        return f"{where}{at}{f', {each_of(self.window)}' if self.window else ''}"

    def describe(self) -> str:
        """Describe the change, as in ``the cap over all tasks: gdp mu = 2, then mu = 9``."""
        before, after = (f"at most {each}" if each is not None else "no cap" for each in (self.before, self.after))
        return f"{self.scope}: {before}, then {after}"


def set_cap(connection: Connection, cap: Cap, day: int) -> None:
    """Promise a cap in place of the earlier one of the same scope, and record the change if they differ."""
    scope = cap.task, cap.level, cap.currency, cap.renews
    before = connection.execute(f"SELECT units, delta_units FROM promises WHERE {_SCOPE}", scope).fetchone()
    if before == (cap.units, cap.delta_units):
        return
    row = (cap.task, cap.level, cap.currency, cap.units, cap.delta_units, int(cap.renews))
    check = row_checksum("promises", *row)
    connection.execute(f'REPLACE INTO promises ({Cap.columns}, "check") VALUES (?, ?, ?, ?, ?, ?, ?)', (*row, check))
    _record(connection, day, scope, before, (cap.units, cap.delta_units))


def remove_cap(connection: Connection, cap: Cap, day: int) -> bool:
    """Remove a promised cap and record the removal; return whether the cap was promised."""
    scope = cap.task, cap.level, cap.currency, cap.renews
    amount = cap.units, cap.delta_units
    where = f"{_SCOPE} AND units = ? AND delta_units = ?"
    if not connection.execute(f"DELETE FROM promises WHERE {where}", (*scope, *amount)).rowcount:
        return False
    _record(connection, day, scope, amount, None)
    return True


def read_changes(file: Database) -> tuple[CapChange, ...]:
    """Read all changes of caps after the first promises, the earliest first."""
    rows = file.query(
        """SELECT day, coalesce(tasks.name, ''), level, CASE WHEN renews THEN tasks.window ELSE '' END, currency,
                  units_before, delta_before, units, delta_units
           FROM changes LEFT JOIN tasks ON tasks.number = changes.task ORDER BY changes.number"""
    )
    return tuple(
        CapChange(day, task, level, window, _amount(currency, *before), _amount(currency, *after))
        for day, task, level, window, currency, *amounts in rows
        for before, after in [(amounts[:2], amounts[2:])]
    )


def _amount(currency: str, units: int | None, delta: int | None) -> PrivacyLoss | None:
    return None if units is None else PrivacyLoss(currency, units, delta or 0)


def _record(connection: Connection, day: int, scope: tuple[Any, ...], before: Any, after: Any) -> None:
    nothing = (None, None)
    row = (day, *scope, *(before or nothing), *(after or nothing))
    connection.execute("INSERT INTO changes VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
