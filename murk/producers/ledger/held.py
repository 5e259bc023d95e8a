"""Records that a device holds until their window ends: one for each person and window, drawn uniformly.

A record is stored as its coded numbers, with the number of the window's records and the person's name, so that its
length says nothing about them. Whenever a further record of the window arrives, the record that is held afterwards, the
old one or the new one, is encrypted anew under the ledger's key, with a new pad. So the file alone does not show how
many records arrived. The held record is deleted in the transaction that books its release.
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
_SIZE: Final = 4  # bytes that tell the length of the numbers
_NAME: Final = 64  # bytes to a multiple of which a name is filled up
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

    def read(self, person: Id, window: int) -> Held | None:
        """Return the held record of a person and window, if there is one."""
        query = "SELECT window, level, record FROM held WHERE task = ? AND person = ? AND window = ?"
        rows = self._connection.execute(query, (self._task, person, window)).fetchall()
        return next(read_held(iter(rows), self._key), None)

    def put(self, person: Id, record: Held, due: int) -> None:
        """Hold a record, in place of a held one; ``due`` is stored with a window's first record only."""
        self._connection.execute(
            "INSERT INTO held VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET level = excluded.level, record = excluded.record",
            (self._task, person, record.window, record.level, due, self._encrypted(record)),
        )

    def delete(self, person: Id, window: int) -> bool:
        """Delete the held record of a person and window; return whether it was still there."""
        where = "WHERE task = ? AND person = ? AND window = ?"
        deleted = self._connection.execute(f"DELETE FROM held {where}", (self._task, person, window))
        return deleted.rowcount > 0

    def _encrypted(self, record: Held) -> bytes:
        numbers = empty((len(record.x) + 2,))
        numbers[:-2], numbers[-2], numbers[-1] = record.x, record.y, record.count
        name = json.dumps(record.name).encode()
        name = name.ljust(-(-len(name) // _NAME) * _NAME)
        plain = track(np.concatenate([numbers.view(np.uint8), np.frombuffer(name, np.uint8)]))
        # How many numbers there are is public.
        header = secrets.token_bytes(_NONCE) + (8 * len(numbers)).to_bytes(_SIZE, "little")
        return header + (plain ^ _pad(self._key, header, len(plain))).tobytes()


def read_held(rows: Iterator[tuple[int, str, bytes]], key: NameKey) -> Iterator[Held]:
    """Decrypt held records from the columns ``window``, ``level`` and ``record``."""
    for window, level, record in rows:
        header, covered = record[: _NONCE + _SIZE], np.frombuffer(record, np.uint8)[_NONCE + _SIZE :]
        size, plain = int.from_bytes(header[_NONCE:], "little"), track(covered ^ _pad(key, header, len(covered)))
        try:
            person = json.loads(plain[size:].tobytes())
        except ValueError as error:
            raise UserError("records are held under another key: put back the ledger's key", code=LOST_KEY) from error
        numbers = copied(plain[:size].view(np.float64))
        yield Held(person, window, level, numbers[:-2], float(numbers[-2]), int(numbers[-1]))


def _pad(key: NameKey, header: bytes, size: int) -> NDArray[np.uint8]:
    stream = shake_256(_PURPOSE + (key.secret or b"") + header).digest(size)
    return np.frombuffer(stream, np.uint8)
