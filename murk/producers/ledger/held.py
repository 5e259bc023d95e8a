"""Records that a device holds until their window ends: one for each person and window, drawn uniformly.

A record is stored as its coded numbers, so that its length discloses nothing, encrypted under the ledger's key with a
pad of its own. It is deleted in the transaction that books its release.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import shake_256
from sqlite3 import Connection
from typing import Final

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Floats
from murk._internal.wiping import copied, empty, track
from murk.errors import UserError
from murk.producers.ledger.names import LOST_KEY, Id, NameKey

_ERROR_CODE = "MURK-LEDGER-001"

_NONCE: Final = 16
_PURPOSE: Final = b"murk held"


@dataclass(frozen=True)
class Held:
    """A person's held record of a window: its coded features and target, and the level at which it is released.

    ``count`` is the number of the person's records in the window, from which this one was drawn.
    """

    name: str = field(repr=False)
    window: int
    level: str
    x: Floats = field(repr=False)
    y: float = field(repr=False)
    count: int = 1


class HeldRecords:
    """Held records within one transaction of the ledger; made by `Spending.held`."""

    def __init__(self, connection: Connection, task: int, key: NameKey) -> None:
        self._connection, self._task, self._key = connection, task, key

    def count(self, person: Id, window: int) -> int:
        """Return how many records a person has had in a window; one of them is held."""
        query = "SELECT count FROM held WHERE task = ? AND person = ? AND window = ?"
        row = self._connection.execute(query, (self._task, person, window)).fetchone()
        return 0 if row is None else int(row[0])

    def put(self, person: Id, record: Held, count: int, due: int) -> None:
        """Hold a record in place of the held one, if any; ``due`` is stored with the window's first record only."""
        numbers = empty((len(record.x) + 1,))
        numbers[:-1], numbers[-1] = record.x, record.y
        name, values = json.dumps(record.name).encode(), self._cover(track(numbers.view(np.uint8)))
        row = self._task, person, record.window, record.level, count, due
        self._connection.execute(
            "INSERT INTO held VALUES (?, ?, ?, ?, ?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET name = excluded.name, record = excluded.record",
            (*row, self._cover(np.frombuffer(name, np.uint8)), values),
        )

    def counted(self, person: Id, window: int, count: int, level: str) -> None:
        """Store the number of a person's records in a window, and the level given last."""
        change = "UPDATE held SET count = ?, level = ? WHERE task = ? AND person = ? AND window = ?"
        self._connection.execute(change, (count, level, self._task, person, window))

    def delete(self, person: Id, window: int) -> bool:
        """Delete the held record of a person and window; return whether it was still there."""
        where = "WHERE task = ? AND person = ? AND window = ?"
        deleted = self._connection.execute(f"DELETE FROM held {where}", (self._task, person, window))
        return deleted.rowcount > 0

    def _cover(self, data: NDArray[np.uint8]) -> bytes:
        nonce = secrets.token_bytes(_NONCE)
        return nonce + (data ^ _pad(self._key, nonce, len(data))).tobytes()


def read_held(rows: Iterator[tuple[int, str, int, bytes, bytes]], key: NameKey) -> Iterator[Held]:
    """Decrypt held records from the columns ``window``, ``level``, ``count``, ``name`` and ``record``."""
    for window, level, count, name, record in rows:
        numbers = copied(_uncover(record, key).view(np.float64))
        try:
            person = json.loads(_uncover(name, key).tobytes())
        except ValueError as error:
            raise UserError("records are held under another key: put back the ledger's key", code=LOST_KEY) from error
        yield Held(person, window, level, numbers[:-1], float(numbers[-1]), count)


def _uncover(covered: bytes, key: NameKey) -> NDArray[np.uint8]:
    data = np.frombuffer(covered, np.uint8)
    return track(data[_NONCE:] ^ _pad(key, covered[:_NONCE], len(data) - _NONCE))


def _pad(key: NameKey, nonce: bytes, size: int) -> NDArray[np.uint8]:
    stream = shake_256(_PURPOSE + (key.secret or b"") + nonce).digest(size)
    return np.frombuffer(stream, np.uint8)
