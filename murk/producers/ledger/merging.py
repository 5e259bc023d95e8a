"""Merging the accounts that a person has under several spellings of their name.

In a ledger with plain names, migration does this. A ledger with keyed hashes cannot read its names, so migration only
lists the accounts in the table ``earlier``. When a caller names a person, their accounts under earlier spellings
(`names.earlier_spellings`) in that table are merged before any release is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from sqlite3 import Connection
from typing import Any

from murk._sqlite import Database
from murk.producers.ledger import outbox
from murk.producers.ledger.names import Id, NameKey, earlier_spellings
from murk.producers.ledger.outbox import Owner
from murk.producers.ledger.windows import HAS_WINDOWS

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

    outbox.change_owners(connection, key, moved)
    connection.execute("DROP TABLE temp.spellings")


class EarlierAccounts:
    """Accounts under earlier spellings in a ledger of keyed hashes, within one transaction."""

    def __init__(self, connection: Connection, key: NameKey) -> None:
        self._connection, self._key = connection, key

    def adopt(self, names: Sequence[str]) -> Mapping[Id, list[Id]]:
        """Merge people's accounts under earlier spellings into their current ones.

        Return the earlier stored names of people whose accounts were ever merged, by their current stored name: the
        names of their records were hashed together with these.
        """
        wanted = {
            self._key.person(spelling): self._key.person(str.__str__(name))
            for name in dict.fromkeys(names)
            for spelling in earlier_spellings(name)
        }
        found = self._find(list(wanted))
        fresh = {old: wanted[old] for old, now in found.items() if now is None and old != wanted[old]}
        if fresh:
            merge_accounts(self._connection, fresh, self._key)
        self._connection.executemany("UPDATE earlier SET now = ? WHERE person = ?", [(n, o) for o, n in fresh.items()])
        own = [(old,) for old, now in found.items() if now is None and old == wanted[old]]
        self._connection.executemany("DELETE FROM earlier WHERE person = ?", own)
        merged: dict[Id, list[Id]] = {}
        for old, now in {**found, **fresh}.items():
            if now is not None:
                merged.setdefault(now, []).append(old)
        return merged

    def _find(self, hashes: Sequence[Id]) -> dict[Id, Id | None]:
        found: dict[Id, Id | None] = {}
        for start in range(0, len(hashes), _CHUNK):
            chunk = hashes[start : start + _CHUNK]
            marks = ",".join("?" * len(chunk))
            found |= dict(self._connection.execute(f"SELECT person, now FROM earlier WHERE person IN ({marks})", chunk))
        return found


def adopt(file: Database, write: Callable[[], AbstractContextManager[Connection]], key: NameKey, name: str) -> None:
    """Merge a person's earlier accounts, if the ledger has any, before their account is read."""
    if file.query("SELECT 1 FROM earlier LIMIT 1"):
        with write() as connection:
            EarlierAccounts(connection, key).adopt([name])


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
    """Move windows and their debits; a key that is taken is replaced by the organisation's next free one."""
    rows = connection.execute(
        "SELECT task, source, key, person, new FROM windows JOIN temp.spellings ON old = person "
        "ORDER BY 1, 2, opened, 4, 3"
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
