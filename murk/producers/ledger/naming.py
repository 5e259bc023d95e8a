"""Keyed names in a ledger, for people and for the digests of their files.

A ledger reveals who takes part in what, and no noise protects that. It therefore stores people's names as BLAKE2b
hashes under a secret key in a separate file. A record's name is hashed together with its person's. Rows of a file are
stored as they are; its digest is hashed, since anyone who knows all records but one could guess the last from it.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from murk.errors import MurkError, UserError
from murk.producers.ledger import outbox
from murk.producers.ledger.key import KEY_BYTES, Id, NameKey, give_name, key_path, make_key, read_key
from murk.producers.ledger.merging import EarlierAccounts, has_windows
from murk.producers.ledger.outbox import Owner
from murk.producers.ledger.schema import LOST, NAMING, LedgerFile

_NAMED = " UNION ".join(
    f"SELECT 1 FROM {table} WHERE home = 0 AND typeof(person) = 'blob'" for table in ("spending", "withdrawals")
)
_FILES = "SELECT 1 FROM sources"
_QUERY = "SELECT value FROM meta WHERE key = 'key'"


class Names:
    """Names of people and files in one open ledger.

    Raises UserError if there is a key beside a ledger that has none: the ledger was replaced by an older copy.
    """

    def __init__(self, file: LedgerFile) -> None:
        self._file = file
        self._key = NameKey(None) if file.is_plain else None
        self._is_new = False
        # Look for the key first: it gets its name after the ledger has its fingerprint.
        named = key_path(file.path).exists()
        fingerprint = self._fingerprint()
        if fingerprint is None and named:
            raise UserError(
                f"the ledger {file.path} knows nothing of the key beside it ({key_path(file.path).name}): an older "
                "copy of the ledger was put in its place, which lacks what people have spent since. Put back the "
                "newest intact copy before anything else is released",
                code=LOST,
            )
        if fingerprint is not None and not named:
            give_name(file.path, fingerprint)

    @property
    def are_plain(self) -> bool:
        """Whether people's names are stored unhashed, as in earlier formats."""
        return self._file.is_plain

    @property
    def has_digests(self) -> bool:
        """Whether file digests are stored unhashed, as in earlier formats."""
        return self._file.has_digests

    @property
    def is_unfinished(self) -> bool:
        """Whether a migration was interrupted: unused parts of the file may hold names that it replaced."""
        return bool(self._file.query("SELECT 1 FROM meta WHERE key = 'names left'"))

    def left(self) -> str:
        """Return what is still stored unhashed, with the remedy; empty if nothing is."""
        again = f"`murk ledger {self._file.path} --migrate`"
        if self.are_plain:
            return f"people's names stand in it as they are: {again} replaces them by keyed hashes"
        if self.has_digests and self._file.query(_FILES):
            return (
                "unkeyed digests of files stand in it, from which anyone who knows all of a file's records but one "
                f"can guess the last: {again} replaces them by keyed hashes"
            )
        if self.is_unfinished:
            return (
                "a migration of it was interrupted, so unused parts of the file may still hold names and digests: "
                f"run {again} again"
            )
        return ""

    @property
    def is_keyed(self) -> bool:
        """Whether there is a key. It is made with the first name or file."""
        return self._fingerprint() is not None

    def missing(self) -> str | None:
        """Return why nobody can be found by name (the key is lost or wrong); None if they can."""
        try:
            self.reading()
        except UserError as error:
            return str(error)
        return None

    def reading(self) -> NameKey:
        """Return the key for lookups; before anyone was named, a random key under which nobody is found."""
        if self._key is not None:
            return self._key
        fingerprint = self._fingerprint()
        if fingerprint is None:
            return NameKey(secrets.token_bytes(KEY_BYTES))
        self._key = read_key(self._file.path, fingerprint)
        return self._key

    def writing(self, connection: Connection) -> NameKey:
        """Return the key within a transaction that stores names, making it for the first one."""
        if self._key is not None:
            return self._key
        fingerprint = _fingerprint_in(connection.execute(_QUERY).fetchall())
        if fingerprint is None:
            named = _NAMED if self.has_digests else f"{_NAMED} UNION {_FILES}"
            if connection.execute(named).fetchone():
                raise UserError(
                    f"the ledger {self._file.path} is damaged: it names people by a key and does not identify the key. "
                    "Put back the newest intact copy before anything else is released",
                    code=LOST,
                )
            key = make_key(self._file.path)
            connection.execute("INSERT INTO meta VALUES ('key', ?)", (key.fingerprint,))
            self._is_new = True
            # Not cached: the transaction may still be rolled back, and the key with it.
            return key
        key = read_key(self._file.path, fingerprint)
        if not self._is_new:
            self._key = key
        return key

    def called(
        self, connection: Connection, people: Sequence[str] | None, *, earlier: bool
    ) -> tuple[NameKey, Mapping[Id, Sequence[Id]]]:
        """Return the key for the people of a block, within a transaction, and the result of `EarlierAccounts.adopt`.

        Rows (None) have no other names.
        """
        if people is None:
            return NameKey(None), {}
        key = self.writing(connection)
        return key, EarlierAccounts(connection, key).adopt(people) if earlier else {}

    def sealing(self, connection: Connection) -> NameKey:
        """Return the key that encrypts the outbox, within a transaction; earlier formats have one without a secret."""
        if self.has_digests and _fingerprint_in(connection.execute(_QUERY).fetchall()) is None:
            return NameKey(None)
        return self.writing(connection)

    def opening(self) -> NameKey:
        """Return the key that decrypts the outbox."""
        return self.reading() if self.is_keyed else NameKey(None)

    def source(self, digest: str, connection: Connection | None = None) -> str:
        """Return the stored name of a digest; within a transaction (``connection``) that may store it."""
        if self.has_digests:
            return digest
        return (self.reading() if connection is None else self.writing(connection)).source(digest)

    def committed(self) -> None:
        """Give a new key its final name, after the transaction."""
        if self._is_new:
            self._is_new = False
            fingerprint = self._fingerprint()
            if fingerprint is not None:
                give_name(self._file.path, fingerprint)

    def _fingerprint(self) -> str | None:
        return _fingerprint_in(self._file.query(_QUERY))


def _fingerprint_in(rows: list[Any]) -> str | None:
    return str(rows[0][0]) if rows else None


_TABLES = ("spending", "debits", "withdrawals", "reported")


def hash_names(path: str | Path, *, timeout: float = 5.0) -> bool:
    """Replace stored names and digests by keyed hashes, or finish that; return whether anything was left to do.

    A process that went on writing plain names would give people new accounts with nothing spent, so the file is locked
    exclusively throughout; ``timeout`` is the number of seconds to wait for others to close it. Afterwards it is
    rewritten, since SQLite keeps deleted names in unused pages; until then `Names.is_unfinished` is true.

    Raises UserError if its key is lost, leaving the ledger unchanged. Raises MurkError if another process has it open
    or it cannot be written; the message says if only the rewriting is left to do.
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
    """Rewrite the file and empty its log, so that neither holds deleted names."""
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
        f"({file.path} holds keyed hashes already, but the file could not be rewritten: unused parts of it may still "
        "hold what they replaced. Run --migrate again)"
    )


class Sources:
    """Numbers of the record sources of one open ledger."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._numbers: dict[str, int] = {}

    def number(self, connection: Connection, digest: str | None) -> int:
        """Return the number of a digest, assigning one if it is new; 0 for records that come from no file."""
        if digest is None:
            return 0
        known = self._numbers.get(digest)
        if known is None:
            called = self._names.source(digest, connection)
            row = connection.execute("SELECT number FROM sources WHERE digest = ?", (called,)).fetchone()
            if row is None:
                # Not cached: the transaction may still be rolled back.
                added = connection.execute("INSERT INTO sources (digest) VALUES (?)", (called,))
                return int(added.lastrowid or 0)
            known = self._numbers[digest] = int(row[0])
        return known
