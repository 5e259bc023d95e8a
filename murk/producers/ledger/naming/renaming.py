"""Ledgers of before, which have people's names in them, get keyed hashes in their place: once, and on request.

It must be alone: a process that goes on writing plain names beside it would give people accounts with nothing spent. So
the file is held by an exclusive lock from before the first look to after the last write, and no other process, of
whatever version, can have it open meanwhile. Versions that know no keys refuse the file afterwards. All is one
transaction; then the file is written anew, since deleted names stay in its unused parts otherwise.
"""

from __future__ import annotations

from pathlib import Path
from sqlite3 import Connection

from murk.errors import MurkError
from murk.producers.ledger.naming.key import make_key
from murk.producers.ledger.naming.names import Names
from murk.producers.ledger.schema import FORMAT, LedgerFile

_TABLES = ("spending", "debits", "outbox", "withdrawals")


def hash_names(path: str | Path, *, timeout: float = 5.0) -> bool:
    """Put keyed hashes in the place of names, or finish that where it was interrupted.

    Parameters
    ----------
    path
        The ledger. No other process may have it open.
    timeout
        Seconds to wait for others to close it.

    Returns
    -------
    bool
        Whether there was anything to do.

    Raises
    ------
    MurkError
        When another process has it open, or it cannot be written; it is then as it was.
    """
    file = LedgerFile(path, create=False, timeout=timeout, alone=True)
    try:
        Names(file)
        if not file.is_plain and not _is_unfinished(file):
            return False
        file.query("PRAGMA secure_delete = ON")
        if file.is_plain:
            with file.write() as connection:
                _hash(connection, file.path)
            # As it is named from now on.
            file.look_again()
        Names(file)
        _overwrite(file)
        return True
    finally:
        file.close()


def _is_unfinished(file: LedgerFile) -> bool:
    return bool(file.query("SELECT 1 FROM meta WHERE key = 'names left'"))


def _hash(connection: Connection, path: Path) -> None:
    key = make_key(path)
    connection.create_function("name", 1, key.person, deterministic=True)
    connection.create_function("record", 2, lambda text, person: key.record(text, person), deterministic=True)
    windows = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'windows'").fetchall()
    for table in [*_TABLES, *["windows"] * bool(windows)]:
        record = ", key = record(key, name(person))" if table in ("debits", "windows") else ""
        connection.execute(f"UPDATE {table} SET person = name(person){record} WHERE typeof(person) = 'text'")
    connection.execute("UPDATE meta SET value = ? WHERE key = 'format'", (FORMAT,))
    connection.execute("INSERT INTO meta VALUES ('key', ?), ('names left', 1)", (key.fingerprint,))


def _overwrite(file: LedgerFile) -> None:
    """Write the file anew, and empty its log: what was deleted from either is in neither afterwards."""
    file.query("VACUUM")
    busy = file.query("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]
    if busy:
        raise MurkError(f"the ledger {file.path} is in use by another process: stop it, and say --migrate again")
    with file.write() as connection:
        connection.execute("DELETE FROM meta WHERE key = 'names left'")
