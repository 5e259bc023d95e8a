"""The key under which a ledger hashes people's names and digests of files; it lies in a file beside the ledger.

The key never changes, and is never made a second time: under another one everybody would be somebody new, with
nothing spent. It is made with the first name or file, while the ledger's write lock is held, in this order: the key is
written as ``LEDGER.key.new``; the ledger's commit, with the key's fingerprint; then the name ``LEDGER.key``. So a key
under that name beside a ledger that knows of none says that the ledger is not the newest.
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
"""What a person or record is called in the file: a row, a keyed hash, or (in ledgers of before) a text."""

SUFFIX, DRAFT = ".key", ".key.new"
KEPT = (
    "Without it nobody's account can be found, and nothing is released. The key never changes: put back any copy of it"
)
KEY_BYTES = 32
LOST_KEY = "MURK-LEDGER-005"
_HEADER = "murk ledger key 1 "


@dataclass(frozen=True)
class NameKey:
    """Turns names into what a ledger calls them; without a secret it leaves them as they are.

    Examples
    --------
    >>> key = NameKey(bytes(32))
    >>> key.person("ann").hex(), key.person(7), NameKey(None).person("ann")
    ('0aeedfc26a8ecf32c013415218d6c098', 7, 'ann')
    """

    secret: bytes | None = field(repr=False)

    @property
    def fingerprint(self) -> str:
        """What tells this key from others, and nothing else about it."""
        return self._hash(b"", b"murk ledger key").hex()

    def person(self, name: Key) -> Id:
        """What a person is called."""
        if self.secret is None or not isinstance(name, str):
            return name
        return self._hash(name.encode(), b"murk person")

    def people(self, names: Sequence[Key]) -> Sequence[Id]:
        """What people are called."""
        return names if self.secret is None else [self.person(name) for name in names]

    def record(self, key: Key | None, person: Id) -> Id | None:
        """What a person's record is called."""
        if isinstance(person, bytes) and isinstance(key, str):
            return self._hash(person + key.encode(), b"murk record")
        return key

    def source(self, digest: str) -> str:
        """What records are called, by their digest."""
        return digest if self.secret is None else self._hash(digest.encode(), b"murk source").hex()

    def _hash(self, data: bytes, purpose: bytes) -> bytes:
        # 128 bits: nobody who has not the key can aim at another's account, and no two of 10^12 names meet by chance.
        return blake2b(data, key=self.secret or b"", digest_size=16, person=purpose).digest()


def key_path(ledger: Path, suffix: str = SUFFIX) -> Path:
    """Where a ledger's key lies: beside the file itself, whatever link it is reached by."""
    real = ledger.resolve()
    return real.with_name(real.name + suffix)


def make_key(ledger: Path) -> NameKey:
    """Make a key and put it on disk, not under its name yet; only while the ledger's write lock is held."""
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

    Raises
    ------
    UserError
        When it is gone, damaged, or another ledger's. The message says nothing of its content.
    """
    path = key_path(ledger)
    wrong = False
    # A process that has just made it may give it its name between two looks.
    for place in (path, key_path(ledger, DRAFT), path):
        try:
            text = place.read_text(encoding="ascii")
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise UserError(
                f"the key {place} of the ledger {ledger} cannot be read ({why}). {KEPT}", code=LOST_KEY
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
    """Give a committed key its name; another process may be quicker, and a folder may be read-only."""
    path, draft = key_path(ledger), key_path(ledger, DRAFT)
    with suppress(OSError, UserError):
        read_key(ledger, fingerprint)
        if not path.exists():
            os.replace(draft, path)
            sync(path.parent)
