"""Releases off a log, as fast as they come: what is plainly right is taken at once, and all else asked of `decode`.

What `decode` says of a message is what holds. A compiled parser, made from the same fields, takes most messages in a
fraction of its time; it may hesitate where `decode` would not, and never takes what that would refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Protocol

import msgspec

from murk.stream.messages.codec import WireRules, decode
from murk.stream.messages.releases import KINDS, PackedRelease, Release

_BOUNDS = ("gt", "ge", "lt", "le")
_LARGEST = 2**62 - 1
"""No coordinate of a release is larger."""


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
    parse = _parser(model, widest)

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


def _parser(model: type[Release], widest: int) -> Callable[[bytes], Any]:
    """A compiled parser of a kind's fields with their types and bounds; of patterns it knows nothing."""
    types = {name: _typed(field.annotation, field.metadata) for name, field in model.model_fields.items()}
    # Looking for the largest of ten numbers takes Python as long as all the rest.
    limit = min(widest, _LARGEST)
    types["payload"] = list[Annotated[int, msgspec.Meta(ge=-limit, le=limit)]]
    fields = [(model.model_fields[name].alias or name, one) for name, one in types.items()]
    # Releases hold no cycles: the garbage collector need not look at them.
    struct = msgspec.defstruct(model.__name__, fields, frozen=True, forbid_unknown_fields=True, gc=False)
    return msgspec.json.Decoder(struct).decode


def _typed(annotation: Any, constraints: Any) -> Any:
    """A field's type in the parser's own words."""
    bounds = {name: getattr(one, name) for one in constraints for name in _BOUNDS if hasattr(one, name)}
    return Annotated[annotation, msgspec.Meta(**bounds)] if bounds else annotation
