"""Migration of a ledger in an earlier format when it is opened, in one transaction.

A migration never raises a promised cap and never lowers what anyone has spent. Earlier versions of Murk refuse the
migrated ledger.
"""

from __future__ import annotations

import json
from pathlib import Path
from sqlite3 import Connection

from murk.privacy import Guarantee, guarantee_from_dict
from murk.privacy.mechanisms.privacy_loss import gdp_figure
from murk.producers.ledger import outbox
from murk.producers.ledger.merging import has_windows, merge_accounts
from murk.producers.ledger.names import Id, NameKey, folded_name, read_key
from murk.producers.ledger.outbox import Owner

OLD_FORMATS = (1, 2, 3, 4)
"""Formats up to 4 stored owners in the outbox unencrypted, and several spellings of a name. Formats up to 3 also stored
file digests unhashed, up to 2 also names; `hashing.hash_names` hashes both. Format 1 had no GDP currency or days."""


def upgrade(connection: Connection, path: Path, tables: str, target: int) -> None:
    """Bring a ledger of an earlier format to the current one (``target``), within a transaction.

    ``tables`` are the statements that make the current format's missing tables.

    Raises UserError if releases wait in the outbox and the ledger's key is lost.
    """
    [(version,)] = connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchall()
    if version == 1:
        _add_gdp(connection)
        _add_days(connection)
    key = _key(connection, path)
    _seal_outbox(connection, tables, key)
    if version <= 2:
        _merge_names(connection, key)
    else:
        _note_earlier(connection)
    # Sums reported earlier are unknown.
    connection.execute("INSERT INTO meta VALUES ('reports', 'unknown')")
    if version < 4:
        connection.execute("INSERT INTO meta VALUES ('naming', ?)", ("plain" if version <= 2 else "digests",))
    connection.execute("UPDATE meta SET value = ? WHERE key = 'format'", (target,))


def _key(connection: Connection, path: Path) -> NameKey:
    """Return the ledger's key if the outbox has to be encrypted under it."""
    found = connection.execute("SELECT value FROM meta WHERE key = 'key'").fetchall()
    if not found or not connection.execute("SELECT 1 FROM outbox LIMIT 1").fetchall():
        return NameKey(None)
    return read_key(path, str(found[0][0]))


def _seal_outbox(connection: Connection, tables: str, key: NameKey) -> None:
    rows = connection.execute(
        "SELECT number, task, chain, since, expires, message, home, person, tariff FROM outbox ORDER BY number"
    ).fetchall()
    connection.execute("DROP TABLE outbox")
    for statement in tables.split(";\n"):
        if statement.strip():
            connection.execute(statement)
    owners = outbox.seal([Owner(home, person) for *_, home, person, _ in rows], key)
    connection.executemany(
        "INSERT INTO outbox VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(*row[:6], owner, row[8]) for row, owner in zip(rows, owners, strict=True)],
    )


def _merge_names(connection: Connection, key: NameKey) -> None:
    folded = {name: folded_name(name) for name in _named(connection) if isinstance(name, str)}
    pairs: dict[Id, Id] = {name: now for name, now in folded.items() if name != now}
    if pairs:
        merge_accounts(connection, pairs, key)


def _note_earlier(connection: Connection) -> None:
    """List the accounts of people whose hashed names may be spelled differently next time."""
    named = [(name,) for name in _named(connection) if not isinstance(name, int)]
    connection.executemany("INSERT INTO earlier VALUES (?, NULL)", named)


def _named(connection: Connection) -> set[str | bytes | int]:
    tables = ["debits", "spending", "withdrawals", *["windows"] * has_windows(connection)]
    names = " UNION ".join(f"SELECT person FROM {table}" for table in tables)
    return {name for (name,) in connection.execute(names)}


def _add_gdp(connection: Connection) -> None:
    """Add prices in mu^2, and convert caps that were stated in GDP.

    Format 1 stored a cap of mu as rho = mu^2 / 2 without recording that it was in GDP. If all levels that a cap covers
    state GDP, it becomes mu^2 = 2 rho, which implies it and allows the same releases. Other caps stay in rho until the
    same cap is booked in GDP (`prices.book`).
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
    """Add columns for days and for simulated tasks; earlier values are unknown."""
    for table, column in (("spending", "first"), ("spending", "last"), ("withdrawals", "day"), ("tasks", "simulated")):
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {column} INTEGER")
