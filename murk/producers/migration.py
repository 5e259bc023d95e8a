"""Ledgers of earlier formats become ones of today's when they are opened: in one transaction, or not at all.

A migration never makes a promise looser, and never lowers what somebody has spent. Versions of Murk that know only
the earlier format refuse the file afterwards.
"""

from __future__ import annotations

import json
from sqlite3 import Connection

from murk.privacy import Guarantee, guarantee_from_dict
from murk.privacy.mechanisms.amounts import gdp_figure

OLD_FORMATS = (1,)


def read_format(connection: Connection) -> object:
    """The format that a ledger says it has; None where it says none."""
    rows = connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchall()
    return rows[0][0] if rows else None


def upgrade(connection: Connection, target: int) -> None:
    """Bring a ledger to the present format, within a transaction."""
    # Another process may have been quicker.
    if read_format(connection) == target:
        return
    _add_gdp(connection)
    connection.execute("UPDATE meta SET value = ? WHERE key = 'format'", (target,))


def _add_gdp(connection: Connection) -> None:
    """Price releases in mu^2, and keep the caps that were stated in GDP in it.

    Format 1 kept a cap of mu as rho = mu^2 / 2 and did not note what it had been. Where all that a cap is for states
    GDP it becomes mu^2 = 2 rho, which implies it and has room for the same releases. Others stay in rho until the
    same cap is booked in GDP (`booking`).
    """
    connection.execute("ALTER TABLE tariffs ADD COLUMN gdp INTEGER CHECK (gdp >= 0)")
    stated: list[tuple[int, str, bool]] = []
    for number, task, level, text in connection.execute("SELECT number, task, level, claims FROM tariffs").fetchall():
        claims: list[Guarantee] = [guarantee_from_dict(claim) for claim in json.loads(text)]
        stated.append((task, level, claims[0].kind == "gdp"))
        connection.execute("UPDATE tariffs SET gdp = ? WHERE number = ?", (gdp_figure(claims), number))
    for task, level in connection.execute("SELECT task, level FROM promises WHERE currency = 'rho'").fetchall():
        covered = [gdp for own, name, gdp in stated if task in (0, own) and level in ("", name)]
        if covered and all(covered):
            connection.execute(
                "UPDATE promises SET currency = 'gdp', units = 2 * units "
                "WHERE task = ? AND level = ? AND currency = 'rho'",
                (task, level),
            )
