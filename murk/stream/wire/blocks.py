"""Encode and decode many releases quickly, extract the columns of a block only once, and recognise repeated releases.

`decode` remains the authority: a compiled parser never accepts a message that `decode` refuses, and leaves to `decode`
every message that it does not accept.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from operator import attrgetter
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np

from murk._internal.arrays import Integers
from murk._internal.lazy import LazyLevels
from murk.errors import MurkError
from murk.stream.wire.codec import WireRules, decode, encode
from murk.stream.wire.releases import KINDS, SCHEMA_VERSION, PackedRelease, Release

if TYPE_CHECKING:
    from murk.stream.wire.duplicates import Unexpired

_ERROR_CODE = "MURK-LOG-001"


class Block(list[Any]):
    """Releases of one kind, in order; immutable.

    >>> from collections import namedtuple
    >>> release = namedtuple("release", "level payload")
    >>> block = Block([release("open", [1, 2]), release("default", [3, 4]), release("open", [5, 6])])
    >>> block.rows(2).tolist()
    [[1, 2], [3, 4], [5, 6]]
    >>> {level: rows.tolist() for level, rows in block.split("level").items()}
    {'open': [[1, 2], [5, 6]], 'default': [[3, 4]]}
    """

    _split: tuple[tuple[str, ...], dict[Any, Integers]] = ((), {})

    @cached_property
    def levels(self) -> list[str]:
        """The level of each release."""
        return [release.level for release in self]

    @cached_property
    def payloads(self) -> list[list[int]]:
        """The payload of each release."""
        return [release.payload for release in self]

    @cached_property
    def _rows(self) -> Integers:
        return rows_of(self.payloads, len(self.payloads[0]))

    def rows(self, size: int) -> Integers:
        """Return the payloads as rows (m, size); raise `MurkError` if one has another length."""
        if self._rows.shape[1] != size:
            raise _wrong_length(size)
        return self._rows

    def part(self, places: Integers, signs: Integers) -> Block:
        """Return the releases with selected entries of their payloads, reordered and with given signs."""
        part = Block(self)
        part._rows = np.ascontiguousarray(self._rows[:, places] * signs)
        return part

    def split(self, *names: str) -> dict[Any, Integers]:
        """Group the rows by the value of a field, or by the values of several, in order of first appearance."""
        split_by, parts = self._split
        if split_by != names:
            keys: list[Any] = self.levels if names == ("level",) else list(map(attrgetter(*names), self))
            if keys and keys.count(keys[0]) == len(keys):
                parts = {keys[0]: self._rows}
            else:
                groups: dict[Any, list[list[int]]] = {}
                for key, payload in zip(keys, self.payloads, strict=True):
                    groups.setdefault(key, []).append(payload)
                parts = {key: rows_of(payloads, len(payloads[0])) for key, payloads in groups.items()}
            self._split = names, parts
        return parts


def block_of(releases: Any) -> Block:
    """Return releases as a block, if they are neither a block nor `Columns`."""
    block: Block = releases if hasattr(releases, "split") else Block(releases)
    return block


def rows_of(payloads: Sequence[Sequence[int]], size: int) -> Integers:
    """Return payloads as rows (m, size), faster than `numpy.array`; raise `MurkError` if one does not fit."""
    pack = _row(size).pack
    try:
        packed = bytearray().join([pack(*payload) for payload in payloads])
    except struct.error:
        raise _wrong_length(size) from None
    return np.frombuffer(packed, dtype=np.int64).reshape(len(payloads), size)


@lru_cache(maxsize=16)
def _row(size: int) -> struct.Struct:
    return struct.Struct(f"{size}q")


def _wrong_length(size: int) -> MurkError:
    return MurkError(f"the payload of a release does not have the expected {size} integers")


LARGEST = 2**62 - 1  # largest coordinate of a release
_BOUNDS = ("gt", "ge", "lt", "le")
_BRACES = (ord("{"), ord("}"))


def struct_of(model: type[Release], widest: int = LARGEST, **only: tuple[str, ...]) -> type[msgspec.Struct]:
    """Return a msgspec struct of a release model, with payloads up to ``widest``, without regular expressions."""
    types: dict[str, Any] = {}
    for name, about in model.model_fields.items():
        bounds = {key: getattr(bound, key) for bound in about.metadata for key in _BOUNDS if hasattr(bound, key)}
        types[name] = Annotated[about.annotation, msgspec.Meta(**bounds)] if bounds else about.annotation
    limit = min(widest, LARGEST)
    types["payload"] = list[Annotated[int, msgspec.Meta(ge=-limit, le=limit)]]
    types.update({name: Literal[texts] for name, texts in only.items()})
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


def rewriter(kind: str) -> Callable[..., bytes]:
    """Return a function that encodes a received release with some fields replaced, to the bytes of `encode`."""
    names = [field.alias or name for name, field in KINDS[kind].model_fields.items()]
    names = [name for name in names if name not in ("schema", "kind")]
    to_json, replace, write = msgspec.json.Encoder().encode, msgspec.structs.replace, writer(kind)

    def rewrite(release: Any, **fields: Any) -> bytes:
        if isinstance(release, msgspec.Struct):
            # Parsed, so that its other fields are valid.
            return to_json(replace(release, **fields))
        return write(**{name: getattr(release, name) for name in names} | fields)

    return rewrite


def receiver(rules: WireRules) -> Callable[[bytes], Release]:
    """Return a faster `decode` for one task's rules, with the same errors; its results have the fields of `Release`.

    >>> receive = receiver(WireRules("f" * 64, simulated=False, lengths=(3,), magnitudes={"default": 2**40}))
    >>> receive(b"{}")
    Traceback (most recent call last):
    murk.stream.wire.codec.RejectedError: schema: id: missing
    """
    model = KINDS[rules.kind]
    if issubclass(model, PackedRelease):
        # An organisation's releases are few and long: parsing is not the bottleneck.
        return lambda data: decode(data, rules)
    (magnitudes, _, widest), lengths, longest = _magnitudes(rules), frozenset(rules.lengths), rules.max_bytes
    task, simulated, partitions, fields = rules.task_hash, rules.simulated, rules.partitions, len(model.model_fields)
    parse: Callable[[bytes], Any] = msgspec.json.Decoder(struct_of(model, widest)).decode

    def receive(data: bytes) -> Release:
        # As many colons as fields: no key is repeated (see `decode`).
        if len(data) <= longest and data.count(b":") == fields:
            try:
                release = parse(data)
                identifier = release.id
                canonical = len(identifier) == 32 and bytes.fromhex(identifier).hex() == identifier
            except (msgspec.MsgspecError, ValueError, RecursionError):
                return decode(data, rules)
            payload, magnitude = release.payload, magnitudes.get(release.level)
            if (
                canonical
                and release.task == task
                and release.simulated is simulated
                and release.partition < partitions
                and len(payload) in lengths
                and magnitude is not None
                and (magnitude == widest or -magnitude <= min(payload) <= max(payload) <= magnitude)
            ):
                parsed: Release = release
                return parsed
        return decode(data, rules)

    return receive


def block_receiver(rules: WireRules) -> Callable[[Sequence[bytes]], Block | None]:
    """Return a function that decodes many messages at once, or returns None if any may be invalid (see `receiver`)."""
    model = KINDS[rules.kind]
    if issubclass(model, PackedRelease) or not rules.magnitudes:
        return lambda values: None
    (magnitudes, narrowest, widest), lengths, longest = _magnitudes(rules), frozenset(rules.lengths), rules.max_bytes
    simulated, partitions, fields = {rules.simulated}, rules.partitions, len(model.model_fields)
    shape = struct_of(model, widest, task=(rules.task_hash,), level=tuple(magnitudes))
    parse: Callable[[bytes], list[Any]] = msgspec.json.Decoder(list[shape]).decode  # type: ignore[valid-type]

    def read(values: Sequence[bytes]) -> Block | None:
        if not (all(values) and max(map(len, values), default=longest + 1) <= longest):
            return None
        joined = b",".join(values)
        # As many colons as fields: no key is repeated, and no text contains a colon. So each message, which begins and
        # ends with a brace, is one object: a comma between two messages cannot be inside an object.
        if joined.count(b":") != fields * len(values) or {(data[0], data[-1]) for data in values} != {_BRACES}:
            return None
        try:
            block = Block(parse(b"[%b]" % joined))
            ids = "".join([release.id for release in block])
            canonical = bytes.fromhex(ids).hex() == ids
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        plain = (
            canonical
            and len(block) == len(values)
            and {len(release.id) for release in block} == {32}
            and {release.simulated for release in block} == simulated
            and max([release.partition for release in block]) < partitions
            and lengths.issuperset(map(len, block.payloads))
            and (
                narrowest == widest
                or _within(narrowest, block.payloads)
                or all(_within(magnitudes[release.level], [release.payload]) for release in block)
            )
        )
        return block if plain else None

    return read


def _magnitudes(rules: WireRules) -> tuple[Mapping[str, int], int, int]:
    """Return the largest plausible coordinate by level, and the smallest and largest of these numbers."""
    if isinstance(rules.magnitudes, LazyLevels):
        # Known only once a level's mechanism is made, at its first release.
        return rules.magnitudes, 0, LARGEST
    magnitudes = dict(rules.magnitudes)
    return magnitudes, min(magnitudes.values(), default=0), max(magnitudes.values(), default=0)


def _within(bound: int, payloads: Sequence[Sequence[int]]) -> bool:
    return max(map(max, payloads)) <= bound and min(map(min, payloads)) >= -bound


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
        return self._unexpired is not None and bool(self._unexpired.has([key], [expires])[0])

    def add_new(self, offsets: Sequence[int], identifiers: Sequence[str], expires: Sequence[int] = ()) -> bool:
        """Add ids at offsets and return True if all are new and distinct; otherwise add none and return False."""
        if offsets[0] // self.size != offsets[-1] // self.size:
            return False
        self._turn_to(offsets[0])
        keys = [*map(bytes.fromhex, identifiers)]
        newer, expires = self._newer, expires or [0] * len(keys)
        if len(set(keys)) < len(keys) or not (newer.keys().isdisjoint(keys) and self._older.keys().isdisjoint(keys)):
            return False
        if self._unexpired and self._unexpired.has(keys, expires).any():
            return False
        newer.update(zip(keys, offsets, strict=True))
        self._expires += expires
        self._last = (offsets[-1], identifiers[-1])
        return True

    def _turn_to(self, offset: int) -> None:
        block = offset // self.size
        if block == self._block:
            return
        unexpired = [(key, end) for key, end in zip(self._newer, self._expires, strict=True) if end]
        if self._unexpired is not None and unexpired:
            self._unexpired.add(*zip(*unexpired, strict=True))
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
