"""Changes of promised caps, with their days, so that every raise leaves a trace."""

from __future__ import annotations

from dataclasses import dataclass
from sqlite3 import Connection
from typing import Any

from murk._internal.sqlite import Database, row_checksum
from murk.privacy import PrivacyLoss
from murk.producers.ledger.costs import Cap
from murk.task.windows import each_of

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
