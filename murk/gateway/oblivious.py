"""Oblivious HTTP (RFC 9458): requests and answers that a relay forwards and cannot read."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from murk._internal.atomic_files import warn_if_exposed, write_whole
from murk._internal.extras import missing_extra
from murk.errors import UserError
from murk.stream.wire.duplicates import Unexpired

if TYPE_CHECKING:
    from pyhpke import CipherSuite

_ERROR_CODE = "MURK-LOG-001"

KEYS, REQUEST, RESPONSE = "application/ohttp-keys", "message/ohttp-req", "message/ohttp-res"
"""Media types of a key configuration, and of encapsulated requests and responses."""

PROBLEM: Final = b'{"type":"https://iana.org/assignments/http-problem-types#ohttp-key","title":"unknown or wrong key"}'
"""Body of the answer to a request that no key opens, as application/problem+json."""

_KEM, _KDF = 0x0020, 0x0001  # DHKEM(X25519, HKDF-SHA256) and HKDF-SHA256
_AEADS: Final = {0x0001: 16, 0x0003: 32}  # lengths of the keys of AES-128-GCM and ChaCha20Poly1305
_NONCE, _ENCAPSULATED, _HEADER = 12, 32, 7  # bytes
_PERIODS: Final = 16  # number of periods for which requests are remembered
_FIRST_LINE: Final = "murk ohttp key 1 "


class UnopenedError(Exception):
    """A request that cannot be opened; ``key`` says whether the reason is the client's key configuration."""

    def __init__(self, *, key: bool) -> None:
        super().__init__()
        self.key = key


@dataclass(frozen=True)
class Opened:
    """A decrypted request, with the key of its answer."""

    message: bytes
    encapsulated: bytes = field(repr=False)
    _secret: bytes = field(repr=False)
    _aead: int

    def seal(self, message: bytes, nonce: bytes | None = None) -> bytes:
        """Encrypt the answer (RFC 9458, section 4.4); ``nonce`` is random by default, and given by tests only."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        size = _AEADS[self._aead]
        nonce = nonce or secrets.token_bytes(size)
        salt = self.encapsulated + nonce
        key = HKDF(SHA256(), size, salt, b"key").derive(self._secret)
        cipher = AESGCM(key) if self._aead == 1 else ChaCha20Poly1305(key)
        return nonce + cipher.encrypt(HKDF(SHA256(), _NONCE, salt, b"nonce").derive(self._secret), message, None)


class ObliviousKeys:
    """A gateway's keys for requests through relays: pairs of an identifier and an X25519 secret.

    The first is announced, as ``configuration`` in the format `KEYS` (RFC 9458, section 3); the others still open
    requests. Raises UserError if pyhpke is not installed, or two keys have one identifier.
    """

    kind = KEYS

    def __init__(self, pairs: Sequence[tuple[int, bytes]]) -> None:
        try:
            from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
            from pyhpke import AEADId, CipherSuite, KDFId, KEMId, KEMKey
        except ModuleNotFoundError as error:
            raise missing_extra("requests through a relay need pyhpke", "ohttp") from error
        keys = {identifier: X25519PrivateKey.from_private_bytes(secret) for identifier, secret in pairs}
        if len(keys) < len(pairs):
            raise UserError("two keys for Oblivious HTTP have the same identifier: name each file once, or replace one")
        self._keys: dict[int, Any] = {
            identifier: KEMKey.from_pyca_cryptography_key(key) for identifier, key in keys.items()
        }
        self._suites: dict[int, CipherSuite] = {
            aead: CipherSuite.new(KEMId.DHKEM_X25519_HKDF_SHA256, KDFId.HKDF_SHA256, AEADId(aead)) for aead in _AEADS
        }
        identifier = pairs[0][0]
        suites = b"".join(_numbers(_KDF, aead) for aead in _AEADS)
        public = keys[identifier].public_key().public_bytes_raw()
        announced = bytes((identifier,)) + _numbers(_KEM) + public + _numbers(len(suites)) + suites
        self.configuration = _numbers(len(announced)) + announced

    @classmethod
    def load(cls, paths: Sequence[str]) -> ObliviousKeys:
        """Read keys from files; for a missing file, write a new key, which only its owner can read."""
        secrets_by_path = {path: _read(path) for path in paths if Path(path).exists()}
        for path in paths:
            if path not in secrets_by_path:
                secrets_by_path[path] = _make_key(path, {identifier for identifier, _ in secrets_by_path.values()})
        return cls([secrets_by_path[path] for path in paths])

    def open(self, message: bytes) -> Opened:
        """Decrypt a request (RFC 9458, section 4.3); raise `UnopenedError` if that is impossible."""
        header, rest = message[:_HEADER], message[_HEADER:]
        if len(rest) < _ENCAPSULATED + 16:
            raise UnopenedError(key=False)
        key, kem, kdf, aead = header[0], *(int.from_bytes(header[index : index + 2]) for index in (1, 3, 5))
        if key not in self._keys or kem != _KEM or kdf != _KDF or aead not in _AEADS:
            raise UnopenedError(key=True)
        encapsulated = rest[:_ENCAPSULATED]
        try:
            context = self._suites[aead].create_recipient_context(
                encapsulated, self._keys[key], info=b"message/bhttp request\0" + header
            )
            plain = context.open(rest[_ENCAPSULATED:])
        except Exception:  # noqa: BLE001 - whatever the library cannot open was not encrypted for this key
            raise UnopenedError(key=True) from None
        return Opened(plain, encapsulated, context.export(b"message/bhttp response", _AEADS[aead]), aead)


class Repeated:
    """Recognise the requests of the last ``seconds``, in about 11 bytes of memory for each.

    A relay could keep an encrypted request and send it again, and it would be carried out twice.

    >>> now = [0.0]
    >>> repeated = Repeated(60, lambda: now[0])
    >>> [repeated.seen(request) for request in (b"one", b"two", b"one")]
    [False, False, True]
    >>> now[0] = 59.0
    >>> repeated.seen(b"one")
    True
    """

    def __init__(self, seconds: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._period = -(-seconds // _PERIODS)
        key = np.frombuffer(secrets.token_bytes(16), np.uint64)
        self._known = Unexpired(key, self._period, (_PERIODS + 1) * self._period)
        self._clock, self._begin = clock, clock()

    def seen(self, encapsulated: bytes) -> bool:
        """Add a request, by its encapsulated key; return whether it came before."""
        name = np.frombuffer(blake2b(encapsulated, digest_size=16).digest(), np.uint64).reshape(1, 2)
        newest = int((self._clock() - self._begin) / self._period) + _PERIODS + 1
        # Requests are stored by period, so that an old period is forgotten at once.
        ends = self._period * np.arange(max(_PERIODS + 1, newest - _PERIODS), newest + 1)
        if self._known.has(name.repeat(len(ends), axis=0), ends).any():
            return True
        self._known.add(name, ends[-1:])
        return False


def _numbers(*numbers: int) -> bytes:
    return b"".join(number.to_bytes(2) for number in numbers)


def _make_key(path: str, taken: set[int]) -> tuple[int, bytes]:
    identifier = secrets.choice([number for number in range(256) if number not in taken])
    secret = secrets.token_bytes(32)
    try:
        write_whole(Path(path), f"{_FIRST_LINE}{identifier} {secret.hex()}\n", new=True, own=True, mode=0o600)
    except OSError as error:
        raise UserError(
            f"--ohttp-key {path}: the key cannot be written ({error.strerror}): its directory must exist and be "
            "writable, and have room"
        ) from None
    return identifier, secret


def _read(path: str) -> tuple[int, bytes]:
    try:
        warn_if_exposed(path, "the secret that opens requests")
        text = Path(path).read_text(encoding="ascii")
        number, secret = text.removeprefix(_FIRST_LINE).split()
        if text == f"{_FIRST_LINE}{number} {secret}\n" and len(secret) == 64 and 0 <= int(number) < 256:
            return int(number), bytes.fromhex(secret)
    except OSError as error:
        raise UserError(f"--ohttp-key {path}: cannot be read ({error.strerror})") from None
    except ValueError:
        pass
    raise UserError(f"--ohttp-key {path}: this is no key of Oblivious HTTP: name another file, or restore this one")
