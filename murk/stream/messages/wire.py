"""Kinds of releases as compiled parsers and writers know them: the fields of their models, their types and bounds.

The bytes of many releases, each checked where it is made.

Releases off a log, as fast as they come: what is plainly right is taken at once, and all else asked of `decode`.

What `decode` says of a message is what holds. A compiled parser, made from the same fields, takes most messages in a
fraction of its time; it may hesitate where `decode` would not, and never takes what that would refuse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Annotated, Any, Literal, Protocol

import msgspec

from murk.stream.messages.block import Block
from murk.stream.messages.codec import WireRules, decode, encode
from murk.stream.messages.releases import KINDS, SCHEMA_VERSION, PackedRelease, Release

LARGEST = 2**62 - 1
"""No coordinate of a release is larger."""

_BOUNDS = ("gt", "ge", "lt", "le")


def struct_of(model: type[Release], widest: int = LARGEST, **only: tuple[str, ...]) -> type[msgspec.Struct]:
    """Return a kind's fields in their order, but for their patterns.

    Parameters
    ----------
    model
        A kind whose payload is a list of integers.
    widest
        The largest size of one of them.
    only
        The texts that some fields may have.
    """
    types = {name: _typed(field.annotation, field.metadata) for name, field in model.model_fields.items()}
    # Looking for the largest of ten numbers takes Python as long as all the rest.
    limit = min(widest, LARGEST)
    types["payload"] = list[Annotated[int, msgspec.Meta(ge=-limit, le=limit)]]
    types.update({name: Literal[texts] for name, texts in only.items()})
    fields = [(model.model_fields[name].alias or name, one) for name, one in types.items()]
    # Releases hold no cycles: the garbage collector need not look at them.
    return msgspec.defstruct(model.__name__, fields, frozen=True, forbid_unknown_fields=True, gc=False)


def _typed(annotation: Any, constraints: Any) -> Any:
    """A field's type in the parser's own words."""
    bounds = {name: getattr(one, name) for one in constraints for name in _BOUNDS if hasattr(one, name)}
    return Annotated[annotation, msgspec.Meta(**bounds)] if bounds else annotation


@cache
def writer(kind: str) -> Callable[..., bytes]:
    """Return what makes the bytes of a release of its fields: those of `encode`, in half its time or less.

    What is not plainly right is left to the kind's own model, which raises its ``pydantic.ValidationError``.

    Examples
    --------
    >>> write = writer("gradient")
    >>> write(
    ...     id="0" * 32,
    ...     task="f" * 64,
    ...     level="default",
    ...     chain=0,
    ...     version=7,
    ...     payload=[12, -7],
    ...     time=0,
    ...     expires=9,
    ...     simulated=False,
    ... )[:27]
    b'{"schema":1,"kind":"gradien'
    """
    model = KINDS[kind]
    if issubclass(model, PackedRelease):
        return lambda **fields: encode(model(**fields))
    struct = struct_of(model)
    to_json, parse = msgspec.json.Encoder().encode, msgspec.json.Decoder(struct).decode
    patterns = {
        name: re.compile(one.pattern)
        for name, field in model.model_fields.items()
        for one in field.metadata
        if getattr(one, "pattern", None)
    }
    own = patterns.pop("id").fullmatch

    # A block's are the same again and again.
    @cache
    def fit(*texts: str) -> bool:
        return all(map(re.Pattern.fullmatch, patterns.values(), texts))

    names = tuple(patterns)

    def write(**fields: Any) -> bytes:
        try:
            data = to_json(struct(schema=SCHEMA_VERSION, kind=kind, **fields))
            # The bytes themselves are held against types and bounds.
            parse(data)
            plain = own(fields["id"]) and fit(*[fields[name] for name in names])
        except (msgspec.MsgspecError, TypeError, ValueError, OverflowError):
            plain = False
        return data if plain else encode(model(**fields))

    return write


class Received(Protocol):
    """What all received releases have; those of a kind have all of its fields."""

    @property
    def kind(self) -> str:
        """The kind."""

    @property
    def id(self) -> str:
        """The id, 32 hexadecimal digits."""

    @property
    def level(self) -> str:
        """One of the task's levels."""

    @property
    def chain(self) -> int:
        """The chain."""

    @property
    def expires(self) -> int:
        """Seconds since 1970."""


def receiver(rules: WireRules) -> Callable[[bytes], Received]:
    """Return `decode` for one task's rules, in a third of its time: as true to them, and with the same errors.

    Examples
    --------
    >>> receive = receiver(WireRules("f" * 64, simulated=False, lengths=(3,), magnitudes={"default": 2**40}))
    >>> receive(b"{}")
    Traceback (most recent call last):
    murk.stream.messages.codec.RejectedError: schema: id: missing
    """
    model = KINDS[rules.kind]
    if issubclass(model, PackedRelease):
        # An organisation's releases are few and long, and need no parser of their own.
        return lambda data: decode(data, rules)
    magnitudes, lengths, longest = dict(rules.magnitudes), frozenset(rules.lengths), rules.max_bytes
    task, simulated, partitions, fields = rules.task_hash, rules.simulated, rules.partitions, len(model.model_fields)
    widest = max(magnitudes.values(), default=0)
    parse: Callable[[bytes], Any] = msgspec.json.Decoder(struct_of(model, widest)).decode

    def receive(data: bytes) -> Received:
        # As many colons as fields: no key is given twice (see `decode`).
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
                and release.chain < partitions
                and len(payload) in lengths
                and magnitude is not None
                and (magnitude == widest or -magnitude <= min(payload) <= max(payload) <= magnitude)
            ):
                received: Received = release
                return received
        return decode(data, rules)

    return receive


def block_receiver(rules: WireRules) -> Callable[[Sequence[bytes]], Block | None]:
    """Return what reads many messages at once: all of them, as `receiver` would, where all are plainly right.

    It gives None where any may not be, or there are none: then each is read by itself.

    Examples
    --------
    >>> read = block_receiver(WireRules("f" * 64, simulated=False, lengths=(3,), magnitudes={"default": 2**40}))
    >>> read([b"{}"]) is None
    True
    """
    model = KINDS[rules.kind]
    if issubclass(model, PackedRelease) or not rules.magnitudes:
        return lambda values: None
    magnitudes, lengths, longest = dict(rules.magnitudes), frozenset(rules.lengths), rules.max_bytes
    simulated, partitions, fields = {rules.simulated}, rules.partitions, len(model.model_fields)
    narrowest, widest = min(magnitudes.values()), max(magnitudes.values())
    own = struct_of(model, widest, task=(rules.task_hash,), level=tuple(magnitudes))
    parse: Callable[[bytes], list[Any]] = msgspec.json.Decoder(list[own]).decode  # type: ignore[valid-type]

    def read(values: Sequence[bytes]) -> Block | None:
        if not (all(values) and max(map(len, values), default=longest + 1) <= longest):
            return None
        joined = b",".join(values)
        # As many colons as fields: no key is given twice, and no text holds one. So each message, beginning and ending
        # as an object does, is one: what is between two is then the end of an object and the beginning of another.
        if joined.count(b":") != fields * len(values) or {(data[0], data[-1]) for data in values} != {_BRACES}:
            return None
        try:
            found = Block(parse(b"[%b]" % joined))
            ids = "".join([release.id for release in found])
            canonical = bytes.fromhex(ids).hex() == ids
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        plain = (
            canonical
            and len(found) == len(values)
            and {len(release.id) for release in found} == {32}
            and {release.simulated for release in found} == simulated
            and max([release.chain for release in found]) < partitions
            and lengths.issuperset(map(len, found.payloads))
            and (narrowest == widest or _within(narrowest, found.payloads) or all(
                _within(magnitudes[release.level], [release.payload]) for release in found
            ))
        )  # fmt: skip
        return found if plain else None

    return read


_BRACES = (ord("{"), ord("}"))


def _within(bound: int, payloads: Sequence[Sequence[int]]) -> bool:
    """Whether no number of some payloads is larger."""
    return max(map(max, payloads)) <= bound and min(map(min, payloads)) >= -bound
