"""What a ledger knows of tasks: which log each goes to, what releases cost, what was promised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from sqlite3 import Connection

from murk.errors import MurkError, UserError
from murk.privacy import PrivacyLoss
from murk.producers.ledger.prices import Charge, Price, Promise
from murk.producers.ledger.schema import LedgerFile


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
