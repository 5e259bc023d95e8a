"""Encode many releases quickly, and recognise repeated ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np

from murk._internal.arrays import Integers, Words
from murk.stream.wire.codec import encode
from murk.stream.wire.releases import KINDS, SCHEMA_VERSION, PackedRelease, Release

if TYPE_CHECKING:
    from murk.stream.wire.duplicates import Unexpired

LARGEST = 2**62 - 1  # largest coordinate of a release
_BOUNDS = ("gt", "ge", "lt", "le")


def struct_of(model: type[Release]) -> type[msgspec.Struct]:
    """Return a msgspec struct with a release model's fields, but without the regular expressions of texts."""
    types: dict[str, Any] = {}
    for name, about in model.model_fields.items():
        bounds = {key: getattr(bound, key) for bound in about.metadata for key in _BOUNDS if hasattr(bound, key)}
        types[name] = Annotated[about.annotation, msgspec.Meta(**bounds)] if bounds else about.annotation
    types["payload"] = list[Annotated[int, msgspec.Meta(ge=-LARGEST, le=LARGEST)]]
    fields = [(model.model_fields[name].alias or name, kind) for name, kind in types.items()]
    # Releases have no reference cycles, so the garbage collector can skip them.
    return msgspec.defstruct(model.__name__, fields, frozen=True, forbid_unknown_fields=True, gc=False)


@cache
def writer(kind: str) -> Callable[..., bytes]:
    """Return a function that encodes a release from its fields, to the same bytes as `encode` but faster."""
    model = KINDS[kind]
    if issubclass(model, PackedRelease):
        return lambda **fields: encode(model(**fields))
    shape = struct_of(model)
    to_json, parse = msgspec.json.Encoder().encode, msgspec.json.Decoder(shape).decode
    patterns = {
        name: re.compile(constraint.pattern)
        for name, field in model.model_fields.items()
        for constraint in field.metadata
        if getattr(constraint, "pattern", None)
    }
    id_matches = patterns.pop("id").fullmatch

    # The releases of a block share these texts.
    @cache
    def others_match(*texts: str) -> bool:
        return all(map(re.Pattern.fullmatch, patterns.values(), texts))

    names = tuple(patterns)

    def write(**fields: Any) -> bytes:
        try:
            data = to_json(shape(schema=SCHEMA_VERSION, kind=kind, **fields))
            # Parsing checks types and bounds.
            parse(data)
            plain = id_matches(fields["id"]) and others_match(*[fields[name] for name in names])
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError):
            plain = False
        return data if plain else encode(model(**fields))

    return write


class DuplicateWindow:
    """Ids at the previous ``size`` offsets of a partition, and ids of ``unexpired`` releases before these offsets.

    A release at offset ``o`` is a duplicate if a valid message with the same id is at an offset ``o' < o``, whether or
    not that message was learned, and ``o' >= o - size`` or that release has not expired. A window rebuilt from all such
    offsets gives the same answers. Memory is at most ``2 * size`` ids, and what `Unexpired` needs for the others.

    >>> window = DuplicateWindow(2)
    >>> [window.seen(offset, id) for offset, id in [(0, "0a"), (1, "0b"), (2, "0a"), (5, "0a")]]
    [False, False, True, False]
    """

    __slots__ = ("_block", "_expires", "_last", "_newer", "_older", "_unexpired", "size")

    def __init__(self, size: int, unexpired: Unexpired | None = None) -> None:
        if size < 1:
            raise ValueError(f"the window for duplicates must have at least 1 offset, not {size}")
        self.size, self._unexpired = size, unexpired
        self._last: tuple[int, str] | None = None
        self._block = 0
        # Two dictionaries take turns for ``size`` offsets each. Keyed by bytes, not by int: the hash of an int is
        # predictable, and senders could choose ids that collide.
        self._newer: dict[bytes, int] = {}
        self._older: dict[bytes, int] = {}
        # Times of expiry, in the order of the newer ids.
        self._expires: list[int] = []

    def seen(self, offset: int, identifier: str, expires: int = 0) -> bool:
        """Add a hexadecimal id at an offset, with the time of its expiry; return whether it is a duplicate.

        Offsets must grow from call to call. With the expiry 0 an id is remembered within the window alone.
        """
        self._turn_to(offset)
        key = bytes.fromhex(identifier)
        before = self._newer.get(key, self._older.get(key))
        if key not in self._newer:
            self._expires.append(expires)
        self._newer[key] = offset
        self._last = (offset, identifier)
        if before is not None and offset - before <= self.size:
            return True
        if self._unexpired is None or not len(self._unexpired):
            return False
        return bool(self._unexpired.has(_words(key), np.array([expires]))[0])

    def add_new(self, offsets: Integers, ids: Words, expires: Integers) -> bool:
        """Add ids (m, 2) at offsets and return True if all are new and distinct; otherwise add none, return False."""
        first, last = int(offsets[0]), int(offsets[-1])
        if first // self.size != last // self.size:
            return False
        self._turn_to(first)
        keys: list[bytes] = ids.astype(">u8").view("V16").ravel().tolist()
        newer = self._newer
        if len(set(keys)) < len(keys) or not (newer.keys().isdisjoint(keys) and self._older.keys().isdisjoint(keys)):
            return False
        if self._unexpired and self._unexpired.has(ids, expires).any():
            return False
        newer.update(zip(keys, offsets.tolist(), strict=True))
        self._expires += expires.tolist()
        self._last = (last, keys[-1].hex())
        return True

    def _turn_to(self, offset: int) -> None:
        block = offset // self.size
        if block == self._block:
            return
        expires = np.array(self._expires, np.int64)
        if self._unexpired is not None and expires.any():
            self._unexpired.add(_words(b"".join(self._newer))[expires > 0], expires[expires > 0])
        self._older = self._newer if block == self._block + 1 else {}
        self._newer, self._expires = {}, []
        self._block = block

    def newest(self, offset: int) -> str | None:
        """Return the id of the newest message within reach of an offset, or None."""
        if self._last is None or offset - self._last[0] > self.size:
            return None
        return self._last[1]

    def __len__(self) -> int:
        return len(self._newer) + len(self._older)


def _words(ids: bytes) -> Words:
    """Return ids of 16 bytes as their halves (m, 2)."""
    return np.frombuffer(ids, ">u8").astype(np.uint64).reshape(-1, 2)
