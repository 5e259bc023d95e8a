"""Replace the plain names and digests of a ledger of an earlier format by keyed hashes.

A ledger reveals who takes part in what, and no noise protects that. It therefore stores people's names as BLAKE2b
hashes under a secret key in a separate file. A record's name is hashed together with its person's. Row numbers are
stored as they are. A file's digest is hashed, since anyone who knows all its records but one could guess the last.
"""

from __future__ import annotations

from pathlib import Path
from sqlite3 import Connection

from murk.errors import MurkError
from murk.producers.ledger import outbox
from murk.producers.ledger.ledger import Names
from murk.producers.ledger.merging import has_windows
from murk.producers.ledger.names import Id, NameKey, make_key
from murk.producers.ledger.outbox import Owner
from murk.producers.ledger.schema import NAMING, LedgerFile

_TABLES = ("spending", "debits", "withdrawals", "reported")


def hash_names(path: str | Path, *, timeout: float = 5.0) -> bool:
    """Replace stored names and digests by keyed hashes, or finish an interrupted run; return whether any work was left.

    The file is locked exclusively, since a process that still writes plain names would give people new accounts with
    nothing spent; ``timeout`` is the number of seconds to wait for others to close it. Afterwards the file is
    rewritten, since SQLite keeps deleted names in unused pages; until then `Names.is_unfinished` is true.

    Raises UserError if the ledger's key is lost, and changes nothing. Raises MurkError if another process has the file
    open or it cannot be written; the message says if only the rewriting is left to do.
    """
    file = LedgerFile(path, create=False, timeout=timeout, alone=True)
    try:
        names = Names(file)
        if not file.has_digests and not names.is_unfinished:
            return False
        if file.has_digests:
            with file.write() as connection:
                _hash(connection, file, names)
            file.look_again()
        Names(file)  # Gives the key its final name.
        _overwrite(file)
        return True
    finally:
        file.close()


def _hash(connection: Connection, file: LedgerFile, names: Names) -> None:
    key = make_key(file.path) if file.is_plain else names.writing(connection)
    outbox.change_owners(connection, key, lambda owner: Owner(owner.home, _person(owner.person, key)))
    if file.is_plain:
        _hash_people(connection, key)
        connection.execute("INSERT INTO meta VALUES ('key', ?)", (key.fingerprint,))
    connection.create_function("source", 1, key.source, deterministic=True)
    connection.execute("UPDATE sources SET digest = source(digest)")
    connection.execute("DELETE FROM meta WHERE key = ?", (NAMING,))
    connection.execute("REPLACE INTO meta VALUES ('names left', 1)")


def _person(person: Id, key: NameKey) -> Id:
    return key.person(person) if isinstance(person, str) else person


def _hash_people(connection: Connection, key: NameKey) -> None:
    connection.create_function("name", 1, key.person, deterministic=True)
    connection.create_function("record", 2, lambda text, person: key.record(text, person), deterministic=True)
    for table in [*_TABLES, *["windows"] * has_windows(connection)]:
        record = ", key = record(key, name(person))" if table in ("debits", "windows") else ""
        connection.execute(f"UPDATE {table} SET person = name(person){record} WHERE typeof(person) = 'text'")


def _overwrite(file: LedgerFile) -> None:
    """Rewrite the file and empty its write-ahead log, so that neither holds deleted names."""
    try:
        file.query("VACUUM")
        busy = not file.empty_log()
    except MurkError as error:
        raise MurkError(f"{error}. {_unfinished_words(file)}") from error
    if busy:
        raise MurkError(f"the ledger {file.path} is in use by another process: stop it. {_unfinished_words(file)}")
    with file.write() as connection:
        connection.execute("DELETE FROM meta WHERE key = 'names left'")


def _unfinished_words(file: LedgerFile) -> str:
    return (
        f"({file.path} holds keyed hashes already, but could not be rewritten: its unused parts may still hold the "
        "names and digests that they replaced. Run --migrate again)"
    )
