"""Memos: each person's last answer to a task that repeats answers while a person's coded record stays the same.

A memo has the payload of the answer, and a keyed fingerprint of the vectors computed from all of the person's records.
Both are encrypted under the ledger's key with a pad of their own. So the file alone shows neither records nor who made
a release on the log. Someone who also has the key can test a guess of the record behind a person's last answer. A memo
is deleted when the person withdraws.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b, shake_256
from typing import Final

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Floats
from murk._internal.wiping import track
from murk.errors import UserError
from murk.producers.ledger.names import LOST_KEY, NameKey

_ERROR_CODE = "MURK-LEDGER-001"

_NONCE: Final = 16
_PRINT: Final = 16
_PURPOSE: Final = b"murk memo"
_DECIMALS: Final = 9  # decimals that a fingerprint uses: further ones depend on the order in which rows are added up


@dataclass(frozen=True)
class Memo:
    """A person's last answer: its level, the fingerprint of what was randomized, and the payload."""

    level: str
    fingerprint: bytes = field(repr=False)
    payload: list[int] = field(repr=False)


def fingerprints(vectors: Sequence[Floats] | Floats, key: NameKey) -> list[bytes]:
    """Return a keyed fingerprint of each person's vector, or vectors, before noise; equal records have equal ones."""
    prints = []
    for vector in vectors:
        rounded = track(np.round(vector, _DECIMALS))
        rounded += 0.0  # no negative zero
        prints.append(blake2b(rounded.tobytes(), key=key.secret or b"", digest_size=_PRINT).digest())
    return prints


def covered(memo: Memo, key: NameKey) -> bytes:
    """Encrypt a memo, without its level."""
    nonce = secrets.token_bytes(_NONCE)
    data = memo.fingerprint + np.array(memo.payload, dtype="<i8").tobytes()
    return nonce + _under_pad(data + _tag(nonce + data, key), nonce, key)


def uncovered(level: str, data: bytes, key: NameKey) -> Memo:
    """Decrypt a memo; raise UserError if it was encrypted under another key."""
    plain = _under_pad(data[_NONCE:], data[:_NONCE], key)
    kept, tag = plain[:-_PRINT], plain[-_PRINT:]
    if tag != _tag(data[:_NONCE] + kept, key):
        raise UserError("answers are kept under another key: put back the ledger's key", code=LOST_KEY)
    return Memo(level, kept[:_PRINT], np.frombuffer(kept[_PRINT:], dtype="<i8").tolist())


def _tag(data: bytes, key: NameKey) -> bytes:
    return blake2b(data, key=key.secret or b"", digest_size=_PRINT, person=_PURPOSE).digest()


def _under_pad(data: bytes, nonce: bytes, key: NameKey) -> bytes:
    pad = np.frombuffer(shake_256(_PURPOSE + (key.secret or b"") + nonce).digest(len(data)), np.uint8)
    joined: NDArray[np.uint8] = np.frombuffer(data, np.uint8) ^ pad
    return joined.tobytes()
