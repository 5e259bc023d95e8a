"""The key under which a ledger hashes names and file digests, in a file beside the ledger.

The key is made once, with the first name or file: under another one everyone would be new, with nothing spent. While
the ledger's write lock is held it is written as ``LEDGER.key.new``; the ledger commits its fingerprint; then the file
is renamed to ``LEDGER.key``. A key of that name beside a ledger without a fingerprint shows that the ledger is not the
newest.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

from murk._files import write_whole
from murk._sqlite import sync
from murk.errors import MurkError, UserError
from murk.producers.ledger.requests import Key

Id = str | int | bytes
"""Stored name of a person or record: a row, a keyed hash, or (in earlier formats) a text."""

SUFFIX, DRAFT = ".key", ".key.new"
KEPT = (
    "Without it nobody's account can be found, and nothing is released. The key never changes: put back any copy of it"
)
KEY_BYTES = 32
LOST_KEY = "MURK-LEDGER-005"
_HEADER = "murk ledger key 1 "


@dataclass(frozen=True)
class NameKey:
    """Hashes names for storage in a ledger; without a secret it leaves them unchanged."""

    secret: bytes | None = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """Hash that identifies the key and reveals nothing else about it."""
        return self._hash(b"", b"murk ledger key").hex()

    def person(self, name: Key) -> Id:
        """Return a person's stored name."""
        if self.secret is None or not isinstance(name, str):
            return name
        return self._hash(name.encode(), b"murk person")

    def people(self, names: Sequence[Key]) -> Sequence[Id]:
        """Return people's stored names."""
        return names if self.secret is None else [self.person(name) for name in names]

    def record(self, key: Key | None, person: Id) -> Id | None:
        """Return the stored name of a person's record."""
        if isinstance(person, bytes) and isinstance(key, str):
            return self._hash(person + key.encode(), b"murk record")
        return key

    def source(self, digest: str) -> str:
        """Return the stored name of records with a digest."""
        return digest if self.secret is None else self._hash(digest.encode(), b"murk source").hex()

    def _hash(self, data: bytes, purpose: bytes) -> bytes:
        # 128 bits: no two of 10^12 names collide by chance, and without the key nobody can construct a collision.
        return blake2b(data, key=self.secret or b"", digest_size=16, person=purpose).digest()


def key_path(ledger: Path, suffix: str = SUFFIX) -> Path:
    """Return the path of a ledger's key: beside the file itself, with links resolved."""
    real = ledger.resolve()
    return real.with_name(real.name + suffix)


def make_key(ledger: Path) -> NameKey:
    """Write a new key under its draft name; call this only while the ledger's write lock is held."""
    key = NameKey(secrets.token_bytes(KEY_BYTES))
    assert key.secret is not None
    path = key_path(ledger, DRAFT)
    try:
        write_whole(path, f"{_HEADER}{key.secret.hex()}\n", own=True, mode=0o600)
    except OSError as error:
        raise MurkError(
            f"the key of the ledger {ledger} cannot be written ({error.strerror}): its directory must be writable, and "
            "have room. Nothing was released"
        ) from error
    return key


def read_key(ledger: Path, fingerprint: str) -> NameKey:
    """Read a ledger's key.

    Raises UserError if it is missing, damaged, or another ledger's. The message does not quote it.
    """
    path = key_path(ledger)
    wrong = False
    # Another process may rename the draft between two attempts.
    for candidate in (path, key_path(ledger, DRAFT), path):
        try:
            text = candidate.read_text(encoding="ascii")
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not text"
            raise UserError(
                f"the key {candidate} of the ledger {ledger} cannot be read ({why}). {KEPT}", code=LOST_KEY
            ) from None
        key = _parse(text)
        if key is not None and key.fingerprint == fingerprint:
            return key
        wrong = True
    if wrong:
        raise UserError(
            f"{path} is damaged, or the key of another ledger than {ledger}. {KEPT} as {path}", code=LOST_KEY
        )
    raise UserError(f"the ledger {ledger} names people by a key, and {path} is not there. {KEPT} there", code=LOST_KEY)


def _parse(text: str) -> NameKey | None:
    secret = b""
    with suppress(ValueError):
        secret = bytes.fromhex(text.removeprefix(_HEADER).strip())
    return NameKey(secret) if text.startswith(_HEADER) and len(secret) == KEY_BYTES else None


def give_name(ledger: Path, fingerprint: str) -> None:
    """Rename a committed key to its final name, unless another process has or the folder is read-only."""
    path, draft = key_path(ledger), key_path(ledger, DRAFT)
    with suppress(OSError, UserError):
        read_key(ledger, fingerprint)
        if not path.exists():
            os.replace(draft, path)
            sync(path.parent)
