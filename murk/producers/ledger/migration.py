"""Ledgers of earlier formats become ones of today's when they are opened: in one transaction, or not at all.

A migration never makes a promise looser, and never lowers what somebody has spent. Versions of Murk that know only
the earlier format refuse the file afterwards.
"""

from __future__ import annotations

import json
from sqlite3 import Connection

from murk.privacy import Guarantee, guarantee_from_dict
from murk.privacy.mechanisms.privacy_loss import gdp_figure
from murk.producers.ledger.requests import folded_name

OLD_FORMATS = (1,)


def upgrade(connection: Connection, target: int) -> None:
    """Bring a ledger of an old format to the next that is still written, within a transaction."""
    _add_gdp(connection)
    _merge_spellings(connection)
    _add_days(connection)
    connection.execute("UPDATE meta SET value = ? WHERE key = 'format'", (target,))


def _add_gdp(connection: Connection) -> None:
    """Price releases in mu^2, and keep the caps that were stated in GDP in it.

    Format 1 kept a cap of mu as rho = mu^2 / 2 and did not note what it had been. Where all that a cap is for states
    GDP it becomes mu^2 = 2 rho, which implies it and has room for the same releases. Others stay in rho until the
    same cap is booked in GDP (`murk.producers.ledger.tasks.book`).
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


def _add_days(connection: Connection) -> None:
    """Make room for days, and for which tasks were simulations; of what was before nobody knows."""
    for table, column in (("spending", "first"), ("spending", "last"), ("withdrawals", "day"), ("tasks", "simulated")):
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} INTEGER")


def _merge_spellings(connection: Connection) -> None:
    """Make one account of those of a person whom format 1 knew by several spellings: what was spent adds up.

    Characters that are refused now are taken out, so that nobody is met again who spells a name without them.
    """
    connection.create_function("folded", 1, folded_name)
    tables = ["spending", "debits", "outbox", "withdrawals"]
    windows = bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'windows'").fetchall())
    names = " UNION ".join(f"SELECT person FROM {table}" for table in [*tables, *["windows"] * windows])
    connection.execute("CREATE TEMP TABLE spellings (old TEXT PRIMARY KEY, new TEXT NOT NULL) WITHOUT ROWID")
    connection.execute(
        f"INSERT INTO spellings SELECT person, folded(person) FROM ({names}) "
        "WHERE typeof(person) = 'text' AND folded(person) <> person"
    )
    if windows:
        _merge_windows(connection)
    _merge_debits(connection)
    connection.execute(
        """INSERT INTO spending
           SELECT home, new, tariff, sum(released), sum(refused), sum(dropped)
           FROM spending JOIN spellings ON old = person WHERE true GROUP BY home, new, tariff
           ON CONFLICT DO UPDATE SET released = released + excluded.released, refused = refused + excluded.refused,
                                     dropped = dropped + excluded.dropped"""
    )
    connection.execute(
        "INSERT OR IGNORE INTO withdrawals SELECT home, new, task FROM withdrawals JOIN spellings ON old = person"
    )
    for table in ("spending", "withdrawals"):
        connection.execute(f"DELETE FROM {table} WHERE person IN (SELECT old FROM spellings)")
    connection.execute(
        "UPDATE outbox SET person = (SELECT new FROM spellings WHERE old = person) "
        "WHERE person IN (SELECT old FROM spellings)"
    )
    connection.execute("DROP TABLE spellings")


def _merge_debits(connection: Connection) -> None:
    rows = connection.execute(
        "SELECT task, source, key, person, number, new FROM debits JOIN spellings ON old = person ORDER BY number"
    ).fetchall()
    same = "WHERE task = ? AND source = ? AND key = ? AND person = ?"
    for task, source, key, person, number, new in rows:
        taken = connection.execute(f"SELECT 1 FROM debits {same}", (task, source, key, new)).fetchall()
        # Two spellings may have released the same record: the second is known by its release's number.
        values = (new, number if taken else key, task, source, key, person)
        connection.execute(f"UPDATE debits SET person = ?, key = ? {same}", values)


def _merge_windows(connection: Connection) -> None:
    """Windows and their debits are known by one key: where that is taken, by the next that the organisation has not."""
    rows = connection.execute(
        "SELECT task, source, key, person, new FROM windows JOIN spellings ON old = person ORDER BY 1, 2, opened, 4, 3"
    ).fetchall()
    same = "WHERE task = ? AND source = ? AND key = ? AND person = ?"
    for task, source, key, person, new in rows:
        free, count = key, 0
        taken = f"SELECT 1 FROM windows {same} UNION SELECT 1 FROM debits {same}"
        while connection.execute(taken, (task, source, free, new) * 2).fetchall():
            count += 1
            free = f"window {count}"
        for table in ("windows", "debits"):
            values = (new, free, task, source, key, person)
            connection.execute(f"UPDATE {table} SET person = ?, key = ? {same}", values)
