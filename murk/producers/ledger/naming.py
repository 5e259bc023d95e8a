"""What a ledger calls people: keyed hashes of their names.

A ledger says who takes part in what, and no noise protects that. So names stand in it as BLAKE2b under a secret `key`
of 32 bytes, in a file of its own: a ledger without it names nobody, and guessing names does not help. What callers call
records is hashed with the person's name, so that equal texts of two people differ. Rows of a file stand as they are:
they say nothing to anyone who has not the file, and anyone who has it has the records. But its digest does, which is a
function of all raw values: whoever knows all records but one can try what the last one may be. So it is hashed, too.

Ledgers of before, with people's names or digests of files, get keyed hashes in their place: once, and on request.

It must be alone: a process that goes on writing plain names beside it would give people accounts with nothing spent. So
the file is held by an exclusive lock from before the first look to after the last write, and no other process, of
whatever version, can have it open meanwhile. Versions that know no keys refuse the file afterwards. All is one
transaction; then the file is written anew, since deleted names stay in its unused parts otherwise. Until that is done
the ledger says that it is not (`Names.is_unfinished`).

Files and frames of records, by the numbers that a ledger gives them.
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
from murk.producers.ledger.merging import EarlierAccounts
from murk.producers.ledger.outbox import Owner
from murk.producers.ledger.schema import LOST, NAMING, LedgerFile

_NAMED = " UNION ".join(
    f"SELECT 1 FROM {table} WHERE home = 0 AND typeof(person) = 'blob'" for table in ("spending", "withdrawals")
)
_FILES = "SELECT 1 FROM sources"
_QUERY = "SELECT value FROM meta WHERE key = 'key'"


class Names:
    """How one open ledger calls people.

    Parameters
    ----------
    file
        The ledger's file.

    Raises
    ------
    UserError
        When there is a key beside a ledger that knows of none: an older copy was put in the ledger's place.
    """

    def __init__(self, file: LedgerFile) -> None:
        self._file = file
        self._key = NameKey(None) if file.is_plain else None
        self._made = False
        # In this order: a key gets its name after the ledger has its fingerprint.
        named = key_path(file.path).exists()
        fingerprint = self._fingerprint()
        if fingerprint is None and named:
            raise UserError(
                f"the ledger {file.path} knows nothing of the key beside it ({key_path(file.path).name}): an older "
                "copy of the ledger was put in its place. What people have spent since stands in the newer one alone: "
                "put back the newest intact copy before anything else is released",
                code=LOST,
            )
        if fingerprint is not None and not named:
            give_name(file.path, fingerprint)

    @property
    def are_plain(self) -> bool:
        """Whether people stand in it under their own names, as in ledgers of before."""
        return self._file.is_plain

    @property
    def has_digests(self) -> bool:
        """Whether files stand in it under their own digests, as in ledgers of before."""
        return self._file.has_digests

    @property
    def is_unfinished(self) -> bool:
        """Whether a migration was interrupted: unused parts of the file may hold what it has replaced."""
        return bool(self._file.query("SELECT 1 FROM meta WHERE key = 'names left'"))

    def left(self) -> str:
        """What stands in it that should not, with the remedy; empty where nothing does."""
        again = f"`murk ledger {self._file.path} --migrate`"
        if self.are_plain:
            return f"people's names stand in it as they are: {again} puts keyed hashes in their place"
        if self.has_digests and self._file.query(_FILES):
            return (
                "unkeyed digests of files stand in it, from which whoever knows all of a file's records but one can "
                f"guess the last: {again} puts keyed hashes in their place"
            )
        if self.is_unfinished:
            return (
                "a migration of it was interrupted, so names and digests may stand in unused parts of the file still: "
                f"say {again} again"
            )
        return ""

    @property
    def is_keyed(self) -> bool:
        """Whether it has a key: it has none while nobody was named, and no file."""
        return self._fingerprint() is not None

    def missing(self) -> str | None:
        """Say why nobody can be found by name (the key is lost, or another's); None where they can."""
        try:
            self.reading()
        except UserError as error:
            return str(error)
        return None

    def reading(self) -> NameKey:
        """The key, to look people up with; where nobody was ever named, one under which nobody is."""
        if self._key is not None:
            return self._key
        fingerprint = self._fingerprint()
        if fingerprint is None:
            return NameKey(secrets.token_bytes(KEY_BYTES))
        self._key = read_key(self._file.path, fingerprint)
        return self._key

    def writing(self, connection: Connection) -> NameKey:
        """The key, within a transaction that is about to name people; made if they are the first."""
        if self._key is not None:
            return self._key
        fingerprint = _read(connection.execute(_QUERY).fetchall())
        if fingerprint is None:
            named = _NAMED if self.has_digests else f"{_NAMED} UNION {_FILES}"
            if connection.execute(named).fetchone():
                raise UserError(
                    f"the ledger {self._file.path} is damaged: it names people by a key, and says not which. Put back "
                    "the newest intact copy before anything else is released",
                    code=LOST,
                )
            key = make_key(self._file.path)
            connection.execute("INSERT INTO meta VALUES ('key', ?)", (key.fingerprint,))
            self._made = True
            # Not remembered here: the transaction may still be rolled back, and the key with it.
            return key
        found = read_key(self._file.path, fingerprint)
        if not self._made:
            self._key = found
        return found

    def called(
        self, connection: Connection, people: Sequence[str] | None, *, earlier: bool
    ) -> tuple[NameKey, Mapping[Id, Sequence[Id]]]:
        """The key for the people of a block, within a transaction, and what `EarlierAccounts.adopt` gives of them.

        Rows (None) have no other names, and people no earlier ones where the ledger has no such accounts.
        """
        if people is None:
            return NameKey(None), {}
        key = self.writing(connection)
        return key, EarlierAccounts(connection, key).adopt(people) if earlier else {}

    def sealing(self, connection: Connection) -> NameKey:
        """The key under which the outbox is enciphered, within a transaction; without one in a ledger of before."""
        if self.has_digests and _read(connection.execute(_QUERY).fetchall()) is None:
            return NameKey(None)
        return self.writing(connection)

    def opening(self) -> NameKey:
        """The key to read the outbox with."""
        return self.reading() if self.is_keyed else NameKey(None)

    def source(self, digest: str, connection: Connection | None = None) -> str:
        """What records are called, by their digest; within a transaction (``connection``) that may note them."""
        if self.has_digests:
            return digest
        return (self.reading() if connection is None else self.writing(connection)).source(digest)

    def committed(self) -> None:
        """Give a key that was made its name, after the transaction."""
        if self._made:
            self._made = False
            fingerprint = self._fingerprint()
            if fingerprint is not None:
                give_name(self._file.path, fingerprint)

    def _fingerprint(self) -> str | None:
        return _read(self._file.query(_QUERY))


def _read(rows: list[Any]) -> str | None:
    return str(rows[0][0]) if rows else None


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


class Sources:
    """Numbers of the records that people of one open ledger release from.

    Parameters
    ----------
    names
        What it calls them.
    """

    def __init__(self, names: Names) -> None:
        self._names = names
        self._numbers: dict[str, int] = {}

    def number(self, connection: Connection, digest: str | None) -> int:
        """Number of records by their digest, given to them if they are new; 0 for those that come from no file."""
        if digest is None:
            return 0
        known = self._numbers.get(digest)
        if known is None:
            called = self._names.source(digest, connection)
            row = connection.execute("SELECT number FROM sources WHERE digest = ?", (called,)).fetchone()
            if row is None:
                # Not remembered here: the transaction may still be rolled back.
                added = connection.execute("INSERT INTO sources (digest) VALUES (?)", (called,))
                return int(added.lastrowid or 0)
            known = self._numbers[digest] = int(row[0])
        return known
