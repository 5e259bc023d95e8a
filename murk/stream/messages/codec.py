"""From bytes on a log to checked releases, and back.

A log is open to anyone who can reach it, so `decode` takes any bytes at all and either gives a release that
fits the task or raises `RejectedError` with one of a few fixed reasons. The format is JSON: compact, with an
explicit schema version.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from murk.errors import MurkError
from murk.stream.messages.releases import KINDS, GradientRelease, IterateMessage, PackedRelease, Release

Reason = Literal[
    "too-large",
    "malformed",
    "schema",
    "wrong-task",
    "simulated",
    "dimension",
    "level",
    "magnitude",
    "chain",
    "expired",
    "stale",
    "future",
    "version",
    "duplicate",
]
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)
EXCERPT: Final = 60
# Beyond so many keys, parsing them would cost more than the sender's work of making them.
MOST_COLONS: Final = 100

_Message = TypeVar("_Message", bound=BaseModel)


class RejectedError(MurkError):
    """A message that is not learned from, with a reason from a fixed vocabulary.

    Parameters
    ----------
    reason
        One of `REASONS`: used as a metrics label.
    detail
        What was found, for anyone who reads the dead letters. It may quote the sender's bytes: bounded, and
        escaped to printable ASCII.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason: Reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


@dataclass(frozen=True, slots=True)
class WireRules:
    """What a release must satisfy to be of a given task.

    Parameters
    ----------
    task_hash
        The hash of the task.
    simulated
        Whether the log carries simulated releases; it then carries no others.
    lengths
        The lengths that a payload may have.
    magnitudes
        Level name to the largest plausible ``|payload_j|`` at that level.
    partitions
        The number of chains.
    max_bytes
        The longest message that is parsed at all. By default what the longest valid release takes.
    kind
        The kind of release that the task's protocol has.

    Examples
    --------
    >>> WireRules("f" * 64, simulated=False, lengths=(3,), magnitudes={"default": 2**40}).max_bytes
    578
    """

    task_hash: str
    simulated: bool
    lengths: tuple[int, ...]
    magnitudes: Mapping[str, int]
    partitions: int = 1
    max_bytes: int = 0
    kind: str = GradientRelease.model_fields["kind"].default

    def __post_init__(self) -> None:
        if not self.lengths or min(self.lengths) < 1:
            raise ValueError(f"lengths {self.lengths}; a payload has at least one coordinate")
        if self.max_bytes <= 0:
            object.__setattr__(self, "max_bytes", longest_release(self.kind, max(self.lengths)))


def longest_release(kind: str, dimension: int) -> int:
    """Return how many bytes a release of a kind with so many integers takes at the most.

    Examples
    --------
    >>> longest_release("gradient", 2), longest_release("sketch", 3)
    (556, 544)
    """
    # Base64 has four characters for three bytes; as text, an integer has 19 digits and a sign at most, a comma and
    # a space. The other fields take less than 512.
    if issubclass(KINDS[kind], PackedRelease):
        # Of two matrices of d columns there are d (d + 1) integers, beside d - 1 floats of 24 characters at most.
        model = 26 * math.isqrt(dimension) if kind == "newton" else 0
        return 512 + 4 * -(-8 * dimension // 3) + model
    return 512 + 22 * dimension


def encode(release: Release) -> bytes:
    """Return the bytes of a release: compact JSON with its fields in their declared order.

    Examples
    --------
    >>> release = GradientRelease(
    ...     id="0" * 32,
    ...     task="f" * 64,
    ...     level="default",
    ...     chain=0,
    ...     version=7,
    ...     payload=[12, -7],
    ...     time=86_400,
    ...     expires=172_800,
    ... )
    >>> encode(release)[:27]
    b'{"schema":1,"kind":"gradien'
    """
    return _bytes(release)


def decode(data: bytes, rules: WireRules) -> Release:
    """Return the release that some bytes hold, if they hold one that fits the rules.

    Raises
    ------
    RejectedError
        With the first reason that applies, in this order: ``too-large``, ``malformed`` (not a JSON object,
        or a key given twice), ``schema`` (fields, types and ranges), ``wrong-task``, ``simulated``,
        ``chain``, ``level``, ``dimension``, ``magnitude``. No other exception, whatever the bytes.
    """
    release: Release = _parser(KINDS[rules.kind])(data, rules.max_bytes)
    if release.task != rules.task_hash:
        raise RejectedError("wrong-task", f"made for task {release.task[:12]}, this one is {rules.task_hash[:12]}")
    if release.simulated is not rules.simulated:
        found, wanted = ("simulated", "real") if release.simulated else ("real", "simulated")
        raise RejectedError("simulated", f"a {found} release on a log of {wanted} ones")
    if release.chain >= rules.partitions:
        raise RejectedError("chain", f"chain {release.chain} of {rules.partitions}")
    magnitude = rules.magnitudes.get(release.level)
    if magnitude is None:
        raise RejectedError("level", f"level {release.level!r} is not one of the task's")
    payload = release.integers
    if len(payload) not in rules.lengths:
        wanted = " or ".join(map(str, rules.lengths))
        raise RejectedError("dimension", f"{len(payload)} coordinates, the task has {wanted}")
    if max(payload) > magnitude or min(payload) < -magnitude:
        raise RejectedError("magnitude", f"a coordinate beyond {magnitude}, which honest noise does not reach")
    return release


def encode_iterate(message: IterateMessage) -> bytes:
    """Return the bytes of a published iterate: compact JSON; its floats come back bit for bit."""
    return _bytes(message)


def decode_iterate(data: bytes, *, task_hash: str, dimension: int, chain: int | None = None) -> IterateMessage:
    """Return the published iterate that some bytes hold, if it is one of the task's.

    Whether a device wants to compute at it (radius, floor of the scale) is the problem's to check.

    Raises
    ------
    RejectedError
        With reason ``too-large``, ``malformed``, ``schema`` (fields, types, a coordinate that is not
        finite), ``wrong-task``, ``chain`` or ``dimension``.
    """
    # A float takes at most 24 characters, and the other fields less than 512.
    message: IterateMessage = _parser(IterateMessage)(data, 512 + 26 * dimension)
    if message.task != task_hash:
        raise RejectedError("wrong-task", f"made for task {message.task[:12]}, this one is {task_hash[:12]}")
    if chain is not None and message.chain != chain:
        raise RejectedError("chain", f"an iterate of chain {message.chain} where chain {chain}'s belongs")
    if len(message.iterate) != dimension:
        raise RejectedError("dimension", f"{len(message.iterate)} coordinates, the task has {dimension}")
    return message


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of every kind of message, by kind.

    Examples
    --------
    >>> sorted(json_schema())
    ['example', 'gradient', 'gram', 'iterate', 'moment', 'newton', 'score', 'sketch']
    """
    kinds: dict[str, type[BaseModel]] = {**KINDS, "iterate": IterateMessage}
    # As serialized, since the wire has no defaults: every field is always written.
    return {kind: model.model_json_schema(by_alias=True, mode="serialization") for kind, model in kinds.items()}


def excerpt(text: str | bytes, limit: int = EXCERPT) -> str:
    """Return the start of foreign text, bounded and escaped to printable ASCII."""
    if isinstance(text, bytes):
        text = text[: limit + 1].decode("utf-8", "backslashreplace")
    shown = ascii(text[:limit])[1:-1]
    return shown if len(text) <= limit and len(shown) <= limit else shown[:limit] + "..."


def _bytes(message: BaseModel) -> bytes:
    return message.__pydantic_serializer__.to_json(message, by_alias=True)


@cache
def _parser(model: type[_Message]) -> Callable[[bytes, int], _Message]:
    # Looked up once: doing so for every message would take a few per cent of the time of decoding it.
    validate: Callable[[bytes], _Message] = model.__pydantic_validator__.validate_json
    names = set(model.model_fields)
    fields = len(names)

    def parse(data: bytes, max_bytes: int) -> _Message:
        if len(data) > max_bytes:
            raise RejectedError("too-large", f"{len(data)} bytes, at most {max_bytes} are read")
        # Each pair of a key and a value has a colon.
        colons = data.count(b":")
        if colons > MOST_COLONS:
            raise _crowded(data, colons, fields)
        try:
            message = validate(data)
        except ValidationError as error:
            raise _rejected(error) from None
        if len(message.__pydantic_fields_set__) != fields:
            missing = sorted(names - message.__pydantic_fields_set__)
            raise RejectedError("schema", f"{missing[0].rstrip('_')}: missing")
        # The parser keeps the last of equal keys. No valid string holds a colon, so that with every key there
        # the colons are as many as the fields exactly when no key is given twice.
        if colons != fields:
            raise RejectedError("malformed", "a key is given twice")
        return message

    return parse


def _crowded(data: bytes, colons: int, fields: int) -> RejectedError:
    """Why a message with far more colons than fields is refused: JSON is told from other bytes, and nothing is kept."""
    import msgspec

    try:
        msgspec.json.decode(data, type=msgspec.Raw)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        return RejectedError("malformed", excerpt(str(error), 2 * EXCERPT))
    if data.lstrip()[:1] != b"{":
        return RejectedError("malformed", "not a JSON object")
    return RejectedError("schema", f"{colons} colons, where {fields} fields have one each")


def _rejected(error: ValidationError) -> RejectedError:
    first = error.errors(include_url=False, include_context=False)[0]
    if first["type"] == "json_invalid":
        return RejectedError("malformed", excerpt(first["msg"], 2 * EXCERPT))
    if not first["loc"]:
        return RejectedError("malformed", "not a JSON object")
    place = excerpt(".".join(str(part) for part in first["loc"]))
    if first["type"] == "missing":
        return RejectedError("schema", f"{place}: missing")
    if first["type"] == "extra_forbidden":
        return RejectedError("schema", f"{place}: unknown key")
    return RejectedError("schema", f"{place}: {excerpt(repr(first['input']))}: {first['type']}")
