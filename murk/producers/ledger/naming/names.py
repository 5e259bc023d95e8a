"""What a ledger calls people: keyed hashes of their names.

A ledger says who takes part in what, and no noise protects that. So names stand in it as BLAKE2b under a secret `key`
of 32 bytes, in a file of its own: a ledger without it names nobody, and guessing names does not help. What callers call
records is hashed with the person's name, so that equal texts of two people differ. Rows of a file stand as they are:
they say nothing to anyone who has not the file, and anyone who has it has the records. But its digest does, which is a
function of all raw values: whoever knows all records but one can try what the last one may be. So it is hashed, too.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from sqlite3 import Connection
from typing import Any

from murk.errors import UserError
from murk.producers.ledger.merging import EarlierAccounts
from murk.producers.ledger.naming.key import KEY_BYTES, Id, NameKey, give_name, key_path, make_key, read_key
from murk.producers.ledger.schema import LOST, LedgerFile

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
