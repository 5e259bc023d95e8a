"""HTTP messages in binary (RFC 9292): requests are decoded strictly, answers are encoded at known length."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

PADDING = 1_024
"""Messages are padded to a multiple of this number of bytes, so that all messages of a small task have one length."""

_METHOD: Final = re.compile(rb"[A-Z]{1,16}")
_PATH: Final = re.compile(rb"/[\x21-\x7e]*")
_NAME: Final = re.compile(rb":?[!#$%&'*+\-.^_`|~0-9a-z]+")
_VALUE: Final = re.compile(rb"(?:[^\x00-\x20\x7f](?:[^\x00\r\n]*[^\x00-\x20\x7f])?)?")
_KNOWN, _INDETERMINATE = 0, 2  # length of a request
# Fields of a connection, which a binary message must not have.
_CONNECTION: Final = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))
# Fields of control data are refused, too, and `expect`, as no interim response 100 can be sent.
_REFUSED: Final = _CONNECTION | {b":method", b":scheme", b":authority", b":path", b":status", b"expect"}
_CHUNKS: Final = 1_024  # largest number of parts of a content of indeterminate length


class InvalidMessageError(Exception):
    """The message does not follow RFC 9292, or exceeds a limit; its status is the one to answer with."""

    def __init__(self, status: int = 400) -> None:
        super().__init__(status)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """A decoded request."""

    method: str
    target: bytes
    fields: tuple[tuple[bytes, bytes], ...]
    content: bytes


def decode_request(message: bytes, most_head: int, most_content: int) -> Request:
    """Decode a request of known or indeterminate length.

    ``most_head`` bounds the bytes of control data and fields, and those of trailers, ``most_content`` the content's.
    Raises `InvalidMessageError` for anything but one request and its padding.

    Source: RFC 9292, sections 3 and 4.

    >>> decode_request(bytes.fromhex("00034745540568747470730b6578616d706c652e636f6d012f"), 100, 0)
    Request(method='GET', target=b'/', fields=(), content=b'')
    """
    reader = _Reader(message)
    framing = reader.integer()
    if framing not in (_KNOWN, _INDETERMINATE):
        raise InvalidMessageError
    has_lengths = framing == _KNOWN
    method, scheme, _, target = (reader.text(most_head) for _ in range(4))
    if not (_METHOD.fullmatch(method) and scheme in (b"http", b"https") and _PATH.fullmatch(target)):
        raise InvalidMessageError
    fields = _fields(reader, most_head - reader.place, known=has_lengths)
    content = _section(reader, most_content) if has_lengths else _chunks(reader, most_content)
    trailers = _fields(reader, most_head, known=has_lengths)
    if any(name.startswith(b":") for name, _ in trailers) or reader.rest().strip(b"\0"):
        raise InvalidMessageError
    return Request(method.decode("ascii"), target, tuple(fields), content)


def encode_response(status: int, fields: Mapping[str, str], content: bytes, least: int = 0) -> bytes:
    """Encode a final response at known length, padded to a multiple of `PADDING` and to at least ``least`` bytes.

    Source: RFC 9292, section 3.

    >>> encode_response(200, {"A": "b"}, b"c").hex().rstrip("0")
    '0140c804016101620163'
    """
    named = ((name.lower().encode(), value.encode("latin-1")) for name, value in fields.items())
    lines = b"".join(_prefixed(name) + _prefixed(value) for name, value in named if name not in _CONNECTION)
    message = b"\x01" + _integer(status) + _prefixed(lines) + _prefixed(content)
    return message + bytes(-max(len(message), least) % PADDING + max(least - len(message), 0))


class _Reader:
    """Read a message's parts; a missing one raises `InvalidMessageError`."""

    def __init__(self, message: bytes) -> None:
        self._message = message
        self.place = 0

    @property
    def ended(self) -> bool:
        return self.place == len(self._message)

    def rest(self) -> bytes:
        return self._message[self.place :]

    def take(self, number: int) -> bytes:
        part = self._message[self.place : self.place + number]
        if len(part) < number:
            raise InvalidMessageError
        self.place += number
        return part

    def integer(self) -> int:
        """Read an integer of 1, 2, 4 or 8 bytes, as its first two bits say (RFC 9000, section 16)."""
        first = self.take(1)
        more = self.take((1 << (first[0] >> 6)) - 1)
        return int.from_bytes(bytes((first[0] & 0x3F,)) + more)

    def text(self, most: int) -> bytes:
        """Read a length, and then that many bytes."""
        number = self.integer()
        if number > most:
            raise InvalidMessageError(413)
        return self.take(number)


def _section(reader: _Reader, most: int) -> bytes:
    """Read a part of known length; a message may end before parts that are empty."""
    return b"" if reader.ended else reader.text(most)


def _chunks(reader: _Reader, most: int) -> bytes:
    """Read content of indeterminate length, which an empty chunk ends."""
    parts: list[bytes] = []
    while chunk := _section(reader, most):
        # Each chunk takes time in which nobody else is answered.
        if len(parts) == _CHUNKS:
            raise InvalidMessageError(413)
        most -= len(chunk)
        parts.append(chunk)
        if reader.ended:
            raise InvalidMessageError
    return b"".join(parts)


def _fields(reader: _Reader, most: int, *, known: bool) -> list[tuple[bytes, bytes]]:
    """Read a section of fields; one of indeterminate length ends with an empty name."""
    lines = _Reader(_section(reader, most)) if known else reader
    begin, fields = lines.place, list[tuple[bytes, bytes]]()
    while not lines.ended:
        name = lines.text(most)
        if not (name or known):
            return fields
        value = lines.text(most)
        late = name.startswith(b":") and fields and not fields[-1][0].startswith(b":")
        if late or name in _REFUSED or not (_NAME.fullmatch(name) and _VALUE.fullmatch(value)):
            raise InvalidMessageError
        if lines.place - begin > most:
            raise InvalidMessageError(413)
        fields.append((name, value))
    if fields and not known:
        raise InvalidMessageError
    return fields


def _integer(number: int) -> bytes:
    for power in range(3):
        if number < 1 << (8 << power) - 2:
            return (number | power << (8 << power) - 2).to_bytes(1 << power)
    return (number | 3 << 62).to_bytes(8)


def _prefixed(data: bytes) -> bytes:
    return _integer(len(data)) + data
