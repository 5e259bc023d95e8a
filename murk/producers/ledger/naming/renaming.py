"""Ledgers of before, with people's names or digests of files, get keyed hashes in their place: once, and on request.

It must be alone: a process that goes on writing plain names beside it would give people accounts with nothing spent. So
the file is held by an exclusive lock from before the first look to after the last write, and no other process, of
whatever version, can have it open meanwhile. Versions that know no keys refuse the file afterwards. All is one
transaction; then the file is written anew, since deleted names stay in its unused parts otherwise. Until that is done
the ledger says that it is not (`Names.is_unfinished`).
"""

from __future__ import annotations

from pathlib import Path
from sqlite3 import Connection

from murk.errors import MurkError
from murk.producers.ledger import outbox
from murk.producers.ledger.naming.key import NameKey, make_key
from murk.producers.ledger.naming.names import Names
from murk.producers.ledger.outbox import Owner
from murk.producers.ledger.schema import NAMING, LedgerFile

_TABLES = ("spending", "debits", "withdrawals", "reported")


def hash_names(path: str | Path, *, timeout: float = 5.0) -> bool:
    """Put keyed hashes in the place of names and digests, or finish that where it was interrupted.

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
    UserError
        When it has a key already, and that is lost; it is then as it was.
    MurkError
        When another process has it open, or it cannot be written. It is then as it was, or has keyed hashes and is to
        be written anew still, as the message says, and the ledger from then on.
    """
    file = LedgerFile(path, create=False, timeout=timeout, alone=True)
    try:
        names = Names(file)
        if not file.has_digests and not names.is_unfinished:
            return False
        if file.has_digests:
            with file.write() as connection:
                _hash(connection, file, names)
            # As it is named from now on.
            file.look_again()
        # The key gets its name.
        Names(file)
        _overwrite(file)
        return True
    finally:
        file.close()


def _hash(connection: Connection, file: LedgerFile, names: Names) -> None:
    key = make_key(file.path) if file.is_plain else names.writing(connection)
    _seal(connection, key)
    if file.is_plain:
        _hash_people(connection, key)
        connection.execute("INSERT INTO meta VALUES ('key', ?)", (key.fingerprint,))
    connection.create_function("source", 1, key.source, deterministic=True)
    connection.execute("UPDATE sources SET digest = source(digest)")
    connection.execute("DELETE FROM meta WHERE key = ?", (NAMING,))
    connection.execute("REPLACE INTO meta VALUES ('names left', 1)")


def _hash_people(connection: Connection, key: NameKey) -> None:
    connection.create_function("name", 1, key.person, deterministic=True)
    connection.create_function("record", 2, lambda text, person: key.record(text, person), deterministic=True)
    windows = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'windows'").fetchall()
    for table in [*_TABLES, *["windows"] * bool(windows)]:
        record = ", key = record(key, name(person))" if table in ("debits", "windows") else ""
        connection.execute(f"UPDATE {table} SET person = name(person){record} WHERE typeof(person) = 'text'")


def _seal(connection: Connection, key: NameKey) -> None:
    """Encipher whose the releases are that wait."""
    rows = connection.execute("SELECT number, owner FROM outbox").fetchall()
    owners = [outbox.unseal(owner, key) for _, owner in rows]
    sealed = outbox.seal(
        [
            Owner(home, key.person(person)) if isinstance(person, str) else Owner(home, person)
            for home, person in owners
        ],
        key,
    )
    connection.executemany(
        "UPDATE outbox SET owner = ? WHERE number = ?",
        [(owner, number) for (number, _), owner in zip(rows, sealed, strict=True)],
    )


def _overwrite(file: LedgerFile) -> None:
    """Write the file anew, and empty its log: what was deleted from either is in neither afterwards."""
    try:
        file.query("VACUUM")
        busy = not file.empty_log()
    except MurkError as error:
        raise MurkError(f"{error}. {_left(file)}") from error
    if busy:
        raise MurkError(f"the ledger {file.path} is in use by another process: stop it. {_left(file)}")
    with file.write() as connection:
        connection.execute("DELETE FROM meta WHERE key = 'names left'")


def _left(file: LedgerFile) -> str:
    return (
        f"(Keyed hashes stand in {file.path} already, but the file could not be written anew: what they replaced may "
        "stand in unused parts of it still. Say --migrate again)"
    )
