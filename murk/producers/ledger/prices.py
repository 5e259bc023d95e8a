"""What one release costs, in every currency in which it has a valid bound; and adding costs up.

What a ledger knows of tasks: which log each goes to, what releases cost, what was promised.

What a ledger has noted of nobody in particular: it is read again where somebody else may have changed it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any

from murk.errors import MurkError, UserError
from murk.privacy import Currency, PrivacyLoss, guarantee_from_dict
from murk.producers.ledger.schema import LedgerFile

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


@dataclass(frozen=True)
class Booked:
    """A task as one open ledger knows it: its number, and the price of each level."""

    number: int
    levels: Mapping[str, int]


class Prices(dict[int, Price]):
    """The ledger's prices by number, read as they are needed; they never change."""

    def refresh(self, connection: Connection) -> Prices:
        """Read those that were added since, perhaps by another process."""
        newest = connection.execute("SELECT max(number) FROM tariffs").fetchone()[0]
        if newest is not None and newest not in self:
            for row in connection.execute("SELECT * FROM tariffs"):
                self.setdefault(row[0], Price(*row))
        return self

    def numbers(self, connection: Connection, task: int, charges: Sequence[Charge]) -> dict[str, int]:
        """Find the price of each charge, or add it, by level."""
        known = {(price.task, *price.row): price.number for price in self.refresh(connection).values()}
        levels = {}
        for charge in charges:
            row = (task, *charge.row())
            if row not in known:
                # Not remembered beyond this call: the transaction may still be rolled back.
                added = connection.execute("INSERT INTO tariffs VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
                known[row] = int(added.lastrowid or 0)
            levels[charge.level] = known[row]
        return levels


def bind(file: LedgerFile, log_identity: str, task_hash: str, name: str, simulated: bool | None) -> None:
    """Tie a task to a log; see `Ledger.bind`."""
    query = "SELECT log, name FROM tasks WHERE hash = ?"
    known = file.query(query, (task_hash,))
    if not known:
        with file.write() as connection:
            connection.execute(
                "INSERT INTO tasks (hash, name, log, simulated) VALUES (?, ?, ?, ?) ON CONFLICT (hash) DO NOTHING",
                (task_hash, name, log_identity, simulated),
            )
        known = file.query(query, (task_hash,))
    if known[0][0] != log_identity:
        raise UserError(
            f"the ledger {file.path} has released the task {known[0][1] or task_hash[:12]!r} to another log "
            f"(identity {known[0][0][:8]}; this one's is {log_identity[:8]}), and no record is released "
            "twice. Use that log. (A task of another name asks these people again: what it costs them comes on top, "
            "and --lifetime caps the sum.)"
        )


def book(
    file: LedgerFile,
    prices: Prices,
    task_hash: str,
    charges: Sequence[Charge],
    caps: Sequence[tuple[str, PrivacyLoss]],
    lifetime: PrivacyLoss | None,
) -> Booked:
    """Note costs and promises; see `Ledger.book`."""
    with file.write() as connection:
        row = connection.execute("SELECT number FROM tasks WHERE hash = ?", (task_hash,)).fetchone()
        if row is None:
            raise MurkError("the task is not tied to a log yet: call Ledger.bind first")
        task = int(row[0])
        levels = prices.numbers(connection, task, charges)
        for level, amount in caps:
            _tighten(file, connection, task, level, amount)
        if lifetime is not None:
            _tighten(file, connection, 0, "", lifetime)
    return Booked(task, levels)


def promises(file: LedgerFile, task: int) -> list[Promise]:
    """Read the caps of a task, or (0) those over all tasks."""
    query = "SELECT * FROM promises WHERE task = ? ORDER BY level, currency"
    return [Promise(*row) for row in file.query(query, (task,))]


def loosen(file: LedgerFile, task: int, level: str, cap: PrivacyLoss) -> None:
    """Put a cap in the place of the one that was promised; see `Ledger.loosen`."""
    with file.write() as connection:
        connection.execute("REPLACE INTO promises VALUES (?, ?, ?, ?, ?)", _row(task, level, cap))


def _tighten(file: LedgerFile, connection: Connection, task: int, level: str, cap: PrivacyLoss) -> None:
    query = "SELECT units, delta_units FROM promises WHERE task = ? AND level = ? AND currency = ?"
    before = connection.execute(query, (task, level, cap.currency)).fetchone()
    if cap.currency == "gdp":
        if before is None:
            # The same cap, as ledgers of format 1 kept it; mu^2 / 2 bounds rho, so that it is promised still.
            connection.execute(
                "DELETE FROM promises WHERE task = ? AND level = ? AND currency = 'rho' AND units = ?",
                (task, level, cap.units // 2),
            )
        elif cap.units == before[0] + 1:
            return  # It was rounded down when it was kept in rho.
    if before is not None and (cap.units > before[0] or cap.delta_units > before[1]):
        promised = PrivacyLoss(cap.currency, *before)
        scope = "over all tasks" if task == 0 else f"for this task at the level {level!r}" if level else "for this task"
        raise UserError(
            f"the ledger {file.path} promises people to spend at most {promised} {scope}, and {cap} is asked "
            f"for now: ask for {promised} or less; or, once they have agreed, say so with Ledger.loosen"
        )
    connection.execute("REPLACE INTO promises VALUES (?, ?, ?, ?, ?)", _row(task, level, cap))


def _row(task: int, level: str, cap: PrivacyLoss) -> tuple[int, str, str, int, int]:
    return task, level, cap.currency, cap.units, cap.delta_units


Lacking = Any
"""What `Spending` says of a cap without room; None where all have room."""


class Common:
    """Next number, prices, caps and whether anybody has withdrawn, as one open ledger knows them.

    SQLite tells whether another connection has written since (``PRAGMA data_version``), be it of another process. What
    this one writes it has to say itself: `forget` before, `keep` after the commit.

    Attributes
    ----------
    prices
        Every price in the ledger, by number.
    next
        Number that the next release gets.
    withdrawals
        Whether there are any.
    earlier
        Whether there are accounts of named people from before their names had one spelling each.
    """

    def __init__(self, prices: Prices) -> None:
        self.prices = prices
        self.next = 0
        self.withdrawals = self.earlier = True
        self.recognised: set[tuple[int, int]] = set()
        """(task, source) pairs whose people were found to be recognised, or need not be."""
        self._version: int | None = None
        self._known: int | None = None
        self._terms: dict[int, tuple[Mapping[int, list[Promise]], dict[int, Lacking]]] = {}

    def refresh(self, connection: Connection) -> None:
        """Make sure, within a transaction that writes, that this is what the file says."""
        version = connection.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version:
            return
        self.forget()
        self.next = int(connection.execute("SELECT value FROM meta WHERE key = 'next'").fetchone()[0])
        self.prices.refresh(connection)
        self.withdrawals = connection.execute("SELECT 1 FROM withdrawals LIMIT 1").fetchone() is not None
        self.earlier = connection.execute("SELECT 1 FROM earlier LIMIT 1").fetchone() is not None
        self._terms = {}
        self.recognised = set()
        self._version = self._known = version

    def terms(self, connection: Connection, task: Booked) -> tuple[Mapping[int, list[Promise]], dict[int, Lacking]]:
        """The caps that hold for a release at each price of a task, and a place for what they say of newcomers."""
        found = self._terms.get(task.number)
        if found is None:
            rows = connection.execute("SELECT * FROM promises WHERE task IN (0, ?)", (task.number,))
            caps = [Promise(*row) for row in rows]
            found = (
                {number: [cap for cap in caps if cap.level in ("", level)] for level, number in task.levels.items()},
                {},
            )
            self._terms[task.number] = found
        return found

    def forget(self) -> None:
        """Something is about to be written: until `keep`, or the next look, none of it holds."""
        self._version = None

    def keep(self, following: int) -> None:
        """Releases were written and committed, and nothing else of all this: the next one gets this number."""
        self.next, self._version = following, self._known
