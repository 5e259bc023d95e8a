"""The outbox: released bytes that the log has not confirmed, stored in the ledger's file.

A release is randomized once and sent unchanged, however often, until the log confirms it, it expires, or the person
withdraws. Its `Owner` is stored encrypted under the ledger's key, and deleted with the release: a copy of the file does
not reveal it, and with the key a person's releases can be deleted.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from sqlite3 import Connection
from typing import Any, Final, NamedTuple

from murk._sqlite import Database
from murk.producers.ledger.names import Id, NameKey

_PLAIN, _SEALED = b"\0", b"\1"
_NONCE: Final = 16
_PAYLOAD: Final = 26
_HOME: Final = 8


class Queued(NamedTuple):
    """A release in the outbox; ``since`` is the first offset at which the log can have it."""

    number: int
    chain: int
    message: bytes
    since: int
    expires: int


class Owner(NamedTuple):
    """The account that paid: the file whose rows are people (0 for people with a name), and the person."""

    home: int
    person: Id


def seal(owners: Sequence[Owner], key: NameKey) -> list[bytes]:
    """Encrypt owners, each with its own pad (BLAKE2b of a random nonce under the key), all to one length.

    Without a secret (ledgers of earlier formats, which store plain names) they are not encrypted.
    """
    if key.secret is None:
        return [_PLAIN + json.dumps(owner).encode() for owner in owners]
    nonces = secrets.token_bytes(_NONCE * len(owners))
    sealed = []
    for index, owner in enumerate(owners):
        nonce = nonces[_NONCE * index : _NONCE * (index + 1)]
        sealed.append(_SEALED + nonce + _under_pad(_payload(owner), nonce, key.secret))
    return sealed


def unseal(sealed: bytes, key: NameKey) -> Owner:
    """Decrypt an owner; raise a ValueError if it was encrypted under another key."""
    if sealed[:1] == _PLAIN:
        return Owner(*json.loads(sealed[1:]))
    if key.secret is None or len(sealed) != 1 + _NONCE + _PAYLOAD:
        raise ValueError("sealed under another key")
    nonce, hidden = sealed[1 : 1 + _NONCE], sealed[1 + _NONCE :]
    data = _under_pad(hidden, nonce, key.secret)
    home, kind, person = int.from_bytes(data[:_HOME], "big"), data[_HOME], data[_HOME + 1 :]
    if kind == 0 and not any(person[:-8]):
        return Owner(home, int.from_bytes(person, "big"))
    if kind == 1 and not any(person[16:]):
        return Owner(home, person[:16])
    raise ValueError("sealed under another key")


def read(file: Database, task: int, after: int, limit: int) -> list[Queued]:
    """Read releases of a task in ascending order of their numbers."""
    rows = file.query(
        "SELECT number, chain, message, since, expires FROM outbox "
        "WHERE number > ? AND task = ? ORDER BY number LIMIT ?",
        (after, task, limit),
    )
    return [Queued(*row) for row in rows]


def count(file: Database, task: int | None) -> int:
    """Count the releases of a task, or all."""
    query = "SELECT count(*) FROM outbox WHERE ? IS NULL OR task = ?"
    return int(file.query(query, (task, task))[0][0])


def holds(file: Database, task: int, number: int) -> bool:
    """Return whether the outbox holds a release."""
    return bool(file.query("SELECT 1 FROM outbox WHERE number = ? AND task = ?", (number, task)))


def waiting(rows: Iterable[tuple[bytes, int]], key: NameKey) -> Counter[tuple[Owner, int]]:
    """Count releases by owner and price, given the columns ``owner`` and ``tariff``."""
    return Counter((unseal(owner, key), tariff) for owner, tariff in rows)


def remove(connection: Connection, numbers: Sequence[tuple[int, int]]) -> None:
    """Delete confirmed releases, given as ranges of numbers."""
    if numbers:
        connection.executemany("DELETE FROM outbox WHERE number BETWEEN ? AND ?", numbers)


def drop(connection: Connection, key: NameKey, where: str, values: tuple[Any, ...], owner: Owner | None = None) -> int:
    """Delete unconfirmed releases (of one owner, or all), count them in their accounts, and return their number."""
    rows = connection.execute(f"SELECT number, owner, tariff FROM outbox WHERE {where}", values).fetchall()
    opened = [(number, unseal(sealed, key), tariff) for number, sealed, tariff in rows]
    chosen = [row for row in opened if owner in (None, row[1])]
    connection.executemany(
        "UPDATE spending SET dropped = dropped + 1 WHERE home = ? AND person = ? AND tariff = ?",
        [(*of, tariff) for _, of, tariff in chosen],
    )
    connection.executemany("DELETE FROM outbox WHERE number = ?", [(number,) for number, *_ in chosen])
    return len(chosen)


def change_owners(connection: Connection, key: NameKey, change: Callable[[Owner], Owner | None]) -> None:
    """Encrypt the changed owners of releases under the key; ``change`` returns None for those that stay."""
    rows = connection.execute("SELECT number, owner FROM outbox").fetchall()
    opened = [(number, change(unseal(owner, key))) for number, owner in rows]
    changed = [(number, owner) for number, owner in opened if owner is not None]
    sealed = seal([owner for _, owner in changed], key)
    numbered = [(owner, number) for (number, _), owner in zip(changed, sealed, strict=True)]
    connection.executemany("UPDATE outbox SET owner = ? WHERE number = ?", numbered)


def ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return ascending numbers as ranges (first, last).

    Examples
    --------
    >>> ranges([3, 4, 5, 9])
    [(3, 5), (9, 9)]
    """
    if type(numbers) is range and numbers.step == 1 and numbers:
        return [(numbers.start, numbers.stop - 1)]
    merged: list[tuple[int, int]] = []
    for number in numbers:
        if merged and number == merged[-1][1] + 1:
            merged[-1] = merged[-1][0], number
        else:
            merged.append((number, number))
    return merged


def _payload(owner: Owner) -> bytes:
    home, person = owner
    if isinstance(person, int):
        return home.to_bytes(_HOME, "big") + b"\0" + person.to_bytes(_PAYLOAD - _HOME - 1, "big")
    if not isinstance(person, bytes):
        raise TypeError("a ledger with a key calls people by hashes, and rows by numbers")
    return home.to_bytes(_HOME, "big") + b"\1" + person.ljust(_PAYLOAD - _HOME - 1, b"\0")


def _under_pad(data: bytes, nonce: bytes, secret: bytes) -> bytes:
    pad = blake2b(nonce, key=secret, digest_size=_PAYLOAD, person=b"murk outbox").digest()
    return (int.from_bytes(data, "big") ^ int.from_bytes(pad, "big")).to_bytes(_PAYLOAD, "big")
