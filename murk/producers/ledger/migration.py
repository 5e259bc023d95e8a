"""Migration of a ledger in an earlier format when it is opened, and merging of a person's accounts.

A migration is one transaction; it never raises a promised cap and never lowers what anyone has spent. It merges the
accounts of a person whose name was spelled in several ways. A ledger with keyed hashes cannot read its names, so its
accounts are only listed in the table ``earlier``, and merged when a caller names the person, before any decision.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from murk._sqlite import make_tables
from murk.privacy import Guarantee, guarantee_from_dict
from murk.privacy.mechanisms.privacy_loss import gdp_figure
from murk.producers.ledger.names import Id, NameKey, earlier_spellings, folded_name, read_key
from murk.producers.ledger.transaction import HAS_WINDOWS, Owner, change_owners, seal

_CHUNK = 250
_SAME = "WHERE task = ? AND source = ? AND key = ? AND person = ?"


def merge_accounts(connection: Connection, pairs: Mapping[Id, Id], key: NameKey) -> None:
    """Move the account of each key of ``pairs`` to that of its value, within a transaction."""
    connection.execute("CREATE TEMP TABLE spellings (old PRIMARY KEY, new NOT NULL) WITHOUT ROWID")
    connection.executemany("INSERT INTO temp.spellings VALUES (?, ?)", pairs.items())
    if has_windows(connection):
        _merge_windows(connection)
    _merge_debits(connection)
    # An unknown day may have been the first.
    connection.execute(
        """INSERT INTO spending
           SELECT 0, new, tariff, sum(released), sum(refused), sum(dropped),
                  CASE WHEN sum(released AND first IS NULL) THEN NULL ELSE min(first) END, max(last)
           FROM spending JOIN temp.spellings ON old = person WHERE home = 0 GROUP BY new, tariff
           ON CONFLICT DO UPDATE SET
               released = released + excluded.released, refused = refused + excluded.refused,
               dropped = dropped + excluded.dropped, last = coalesce(max(last, excluded.last), excluded.last, last),
               first = CASE WHEN NOT released THEN excluded.first WHEN NOT excluded.released THEN first
                            ELSE min(first, excluded.first) END"""
    )
    connection.execute(
        """INSERT INTO withdrawals SELECT 0, new, task, min(day) FROM withdrawals JOIN temp.spellings ON old = person
           WHERE home = 0 GROUP BY new, task ON CONFLICT DO NOTHING"""
    )
    for table in ("spending", "withdrawals", "reported"):
        connection.execute(f"DELETE FROM {table} WHERE home = 0 AND person IN (SELECT old FROM temp.spellings)")

    def moved(owner: Owner) -> Owner | None:
        return Owner(0, pairs[owner.person]) if owner.home == 0 and owner.person in pairs else None

    change_owners(connection, key, moved)
    connection.execute("DROP TABLE temp.spellings")


def adopt(connection: Connection, key: NameKey, names: Sequence[str]) -> Mapping[Id, list[Id]]:
    """Merge people's accounts under earlier spellings into their current ones, in a ledger of keyed hashes.

    Return the earlier stored names, with which names of records were hashed, of all accounts ever merged, by current
    stored name.
    """
    wanted = {
        key.person(spelling): key.person(str.__str__(name))
        for name in dict.fromkeys(names)
        for spelling in earlier_spellings(name)
    }
    hashes, found = list(wanted), dict[Id, Id | None]()
    for start in range(0, len(hashes), _CHUNK):
        chunk = hashes[start : start + _CHUNK]
        marks = ",".join("?" * len(chunk))
        found |= dict(connection.execute(f"SELECT person, now FROM earlier WHERE person IN ({marks})", chunk))
    fresh = {old: wanted[old] for old, now in found.items() if now is None and old != wanted[old]}
    if fresh:
        merge_accounts(connection, fresh, key)
    connection.executemany("UPDATE earlier SET now = ? WHERE person = ?", [(n, o) for o, n in fresh.items()])
    own = [(old,) for old, now in found.items() if now is None and old == wanted[old]]
    connection.executemany("DELETE FROM earlier WHERE person = ?", own)
    merged: dict[Id, list[Id]] = {}
    for old, now in {**found, **fresh}.items():
        if now is not None:
            merged.setdefault(now, []).append(old)
    return merged


def has_windows(connection: Connection) -> bool:
    """Return whether a ledger has ever recorded an organisation's window."""
    return bool(connection.execute(HAS_WINDOWS).fetchall())


def _merge_debits(connection: Connection) -> None:
    rows = connection.execute(
        "SELECT task, source, key, person, number, new FROM debits JOIN temp.spellings ON old = person ORDER BY number"
    ).fetchall()
    for task, source, key, person, number, new in rows:
        taken = connection.execute(f"SELECT 1 FROM debits {_SAME}", (task, source, key, new)).fetchall()
        # Two spellings may have released the same record; the second is stored under its release's number.
        values: tuple[Any, ...] = (new, number if taken else key, task, source, key, person)
        connection.execute(f"UPDATE debits SET person = ?, key = ? {_SAME}", values)


def _merge_windows(connection: Connection) -> None:
    """Move windows and their debits to their organisation's current name; rename keys that it uses already."""
    rows = connection.execute(
        "SELECT task, source, key, person, new FROM windows JOIN spellings ON old = person ORDER BY 1, 2, opened, 4, 3"
    ).fetchall()
    for task, source, key, person, new in rows:
        free, count = key, 0
        taken = f"SELECT 1 FROM windows {_SAME} UNION SELECT 1 FROM debits {_SAME}"
        while connection.execute(taken, (task, source, free, new) * 2).fetchall():
            count += 1
            free = f"window {count}"
        for table in ("windows", "debits"):
            values = (new, free, task, source, key, person)
            connection.execute(f"UPDATE {table} SET person = ?, key = ? {_SAME}", values)


# Formats up to 4 stored owners in the outbox unencrypted, and several spellings of a name. Formats up to 3 also stored
# file digests unhashed, up to 2 also names; `hash_names` hashes both. Format 1 had no GDP currency or days.
OLD_FORMATS = (1, 2, 3, 4)


def upgrade(connection: Connection, path: Path, tables: str, target: int) -> None:
    """Upgrade a ledger to the format ``target``, within a transaction; ``tables`` creates missing tables."""
    [(version,)] = connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchall()
    if version == 1:
        _add_gdp(connection)
        for column in ("spending ADD first", "spending ADD last", "withdrawals ADD day", "tasks ADD simulated"):
            connection.execute(f"ALTER TABLE {column} INTEGER")
    key = _key(connection, path)
    _seal_outbox(connection, tables, key)
    names = _named(connection)
    if version <= 2:
        folded = {name: folded_name(name) for name in names if isinstance(name, str)}
        pairs: dict[Id, Id] = {name: now for name, now in folded.items() if name != now}
        if pairs:
            merge_accounts(connection, pairs, key)
    else:
        # Hashed names are merged when a caller spells one differently.
        hashed = [(name,) for name in names if not isinstance(name, int)]
        connection.executemany("INSERT INTO earlier VALUES (?, NULL)", hashed)
    # Sums reported earlier are unknown.
    connection.execute("INSERT INTO meta VALUES ('reports', 'unknown')")
    if version < 4:
        connection.execute("INSERT INTO meta VALUES ('naming', ?)", ("plain" if version <= 2 else "digests",))
    connection.execute("UPDATE meta SET value = ? WHERE key = 'format'", (target,))


def _key(connection: Connection, path: Path) -> NameKey:
    found = connection.execute("SELECT value FROM meta WHERE key = 'key'").fetchall()
    if not found or not connection.execute("SELECT 1 FROM outbox LIMIT 1").fetchall():
        return NameKey(None)
    return read_key(path, str(found[0][0]))


def _seal_outbox(connection: Connection, tables: str, key: NameKey) -> None:
    rows = connection.execute(
        "SELECT number, task, chain, since, expires, message, home, person, tariff FROM outbox ORDER BY number"
    ).fetchall()
    connection.execute("DROP TABLE outbox")
    make_tables(connection, tables)
    owners = seal([Owner(home, person) for *_, home, person, _ in rows], key)
    connection.executemany(
        "INSERT INTO outbox VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        [(*row[:6], owner, row[8]) for row, owner in zip(rows, owners, strict=True)],
    )


def _named(connection: Connection) -> set[str | bytes | int]:
    tables = ["debits", "spending", "withdrawals", *["windows"] * has_windows(connection)]
    names = " UNION ".join(f"SELECT person FROM {table}" for table in tables)
    return {name for (name,) in connection.execute(names)}


def _add_gdp(connection: Connection) -> None:
    """Add prices in mu^2, and convert caps that were stated in GDP.

    Format 1 stored a cap of mu as rho = mu^2 / 2 without recording that it was in GDP. If all levels that a cap covers
    state GDP, it becomes mu^2 = 2 rho, which implies it and allows the same releases. Other caps stay in rho until the
    same cap is booked in GDP (`prices.tighten`).
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
            change = "SET currency = 'gdp', units = 2 * units WHERE task = ? AND level = ? AND currency = 'rho'"
            connection.execute(f"UPDATE promises {change}", (task, level))
