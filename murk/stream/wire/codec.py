"""Encode, one by one or many quickly, and validate releases: compact JSON with an explicit schema version.

A log is open to anyone who can reach it. `decode` takes any bytes and either returns a release that fits the task or
raises `RejectedError` with one of a few fixed reasons.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeVar, get_args

import msgspec
from pydantic import BaseModel, ValidationError

from murk.errors import MurkError
from murk.stream.wire.releases import KINDS, SCHEMA_VERSION, GradientRelease, ModelMessage, PackedRelease, Release

_ERROR_CODE = "MURK-LOG-001"

MAX_MESSAGE: Final = 1_000_000  # longest message in bytes: a Kafka broker's default limit, less its envelope
MAX_STATE: Final = 8 * 2**20  # longest state of a partition in bytes
KEY = b"estimate"  # key of the newest estimate, on a topic or in a log file
MOST_POINTS = 200
FEWEST_POINTS = 16  # a task with so many coefficients that fewer points would fit has no history
HISTORY_BYTES = 2**18  # approximate upper bound on a history's size


Reason = Literal[
    "too-large",
    "malformed",
    "schema",
    "wrong-task",
    "simulated",
    "dimension",
    "level",
    "magnitude",
    "partition",
    "expired",
    "stale",
    "future",
    "version",
    "query",
    "duplicate",
]
REASONS: Final[tuple[Reason, ...]] = get_args(Reason)
EXCERPT: Final = 60
# Beyond this, parsing would cost the receiver more than making the message costs the sender.
MOST_COLONS: Final = 100

_Message = TypeVar("_Message", bound=BaseModel)


class RejectedError(MurkError):
    """Raised for a message that must not be learned from.

    ``reason`` is one of `REASONS`. ``detail`` may quote the sender's bytes, bounded and escaped to printable ASCII.
    """

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason: Reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


@dataclass(frozen=True, slots=True)
class WireRules:
    """Conditions that a release must satisfy to belong to a task.

    >>> WireRules("f" * 64, simulated=False, lengths=(3,), magnitudes={"default": 2**40}).max_bytes
    578
    """

    task_hash: str
    simulated: bool
    lengths: tuple[int, ...]  # allowed lengths of a payload
    magnitudes: Mapping[str, int]  # largest plausible |payload_j| by level
    partitions: int = 1
    max_bytes: int = 0  # longest message that is parsed; by default that of the longest valid release
    kind: str = GradientRelease.model_fields["kind"].default
    lifetime: int = 2**53  # longest time, in seconds, for which a release is remembered
    is_shuffled: bool = False  # whether releases that expire later are refused, since they could be repeated
    ahead: int | None = None  # most seconds by which a release's time may be after the log's; None: any time

    def __post_init__(self) -> None:
        if not self.lengths or min(self.lengths) < 1:
            raise ValueError(f"lengths {self.lengths}: a payload must have at least one coordinate")
        if self.max_bytes <= 0:
            object.__setattr__(self, "max_bytes", longest_release(self.kind, max(self.lengths)))


def longest_release(kind: str, dimension: int) -> int:
    """Return the largest number of bytes of a release whose payload has ``dimension`` integers.

    >>> longest_release("gradient", 2), longest_release("sketch", 3)
    (556, 544)
    """
    # Base64 has four characters for three bytes. As text, an integer has at most 19 digits and a sign, plus a comma
    # and a space. The other fields take less than 512 bytes.
    if issubclass(KINDS[kind], PackedRelease):
        # Two matrices of d columns have d (d + 1) integers, besides d - 1 floats of at most 24 characters.
        model = 26 * math.isqrt(dimension) if kind == "newton" else 0
        return 512 + 4 * -(-8 * dimension // 3) + model
    return 512 + 22 * dimension


def encode(message: Release | ModelMessage) -> bytes:
    """Return a message as compact JSON with its fields in declared order; floats round-trip exactly."""
    return message.__pydantic_serializer__.to_json(message, by_alias=True)


def decode(data: bytes, rules: WireRules) -> Release:
    """Decode and validate a release.

    Raises `RejectedError` with the first reason that applies, in this order: ``too-large``, ``malformed`` (not a JSON
    object, or a repeated key), ``schema`` (fields, types and ranges), ``wrong-task``, ``simulated``, ``partition``,
    ``level``, ``dimension``, ``magnitude``. No bytes raise any other exception.
    """
    release: Release = _parser(KINDS[rules.kind])(data, rules.max_bytes)
    if release.task != rules.task_hash:
        raise RejectedError("wrong-task", f"made for task {release.task[:12]}, this one is {rules.task_hash[:12]}")
    if release.simulated is not rules.simulated:
        stated, wanted = ("simulated", "real") if release.simulated else ("real", "simulated")
        raise RejectedError("simulated", f"a {stated} release on a log of {wanted} ones")
    if release.partition >= rules.partitions:
        raise RejectedError("partition", f"partition {release.partition} of {rules.partitions}")
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


def parse(data: bytes, kind: str) -> Release:
    """Decode a release of a kind, of any task and length; raise `RejectedError` if it is invalid."""
    release: Release = _parser(KINDS[kind])(data, MAX_MESSAGE)
    return release


def decode_model(data: bytes, *, task_hash: str, dimension: int, partition: int | None = None) -> ModelMessage:
    """Decode a task's published model, or raise `RejectedError`; the device must check that it is plausible."""
    # A float has at most 24 characters plus a comma and a space; the other fields take less than 512 bytes.
    message: ModelMessage = _parser(ModelMessage)(data, 512 + 26 * dimension)
    if message.task != task_hash:
        raise RejectedError("wrong-task", f"made for task {message.task[:12]}, this one is {task_hash[:12]}")
    if partition is not None and message.partition != partition:
        raise RejectedError("partition", f"a model of partition {message.partition}, not of partition {partition}")
    if len(message.parameters) != dimension:
        raise RejectedError("dimension", f"{len(message.parameters)} coordinates, the task has {dimension}")
    return message


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of each kind of message.

    >>> sorted(json_schema())
    ['example', 'gradient', 'gram', 'model', 'moment', 'newton', 'score', 'sketch', 'target']
    """
    kinds: dict[str, type[BaseModel]] = {**KINDS, "model": ModelMessage}
    # As serialized: on the wire every field is written.
    return {kind: model.model_json_schema(by_alias=True, mode="serialization") for kind, model in kinds.items()}


def excerpt(text: str | bytes, limit: int = EXCERPT) -> str:
    """Return the start of untrusted text, bounded and escaped to printable ASCII."""
    if isinstance(text, bytes):
        text = text[: limit + 1].decode("utf-8", "backslashreplace")
    escaped = ascii(text[:limit])[1:-1]
    return escaped if len(text) <= limit and len(escaped) <= limit else escaped[:limit] + "..."


@cache
def _parser(model: type[_Message]) -> Callable[[bytes, int], _Message]:
    validate: Callable[[bytes], _Message] = model.__pydantic_validator__.validate_json
    names, fields = set(model.model_fields), len(model.model_fields)

    def parse(data: bytes, max_bytes: int) -> _Message:
        if len(data) > max_bytes:
            raise RejectedError("too-large", f"{len(data)} bytes, at most {max_bytes} are read")
        # Each key has a colon.
        colons = data.count(b":")
        if colons > MOST_COLONS:
            raise _too_many_colons(data, colons, fields)
        try:
            message = validate(data)
        except ValidationError as error:
            raise _rejected(error) from None
        if len(message.__pydantic_fields_set__) != fields:
            missing = sorted(names - message.__pydantic_fields_set__)
            raise RejectedError("schema", f"{missing[0].rstrip('_')}: missing")
        # The parser keeps the last of equal keys. No valid string contains a colon: with all keys present, there are
        # as many colons as fields exactly when no key is repeated.
        if colons != fields:
            raise RejectedError("malformed", "a key is given twice")
        return message

    return parse


def _too_many_colons(data: bytes, colons: int, fields: int) -> RejectedError:
    """Return why a message with far more colons than fields is refused, without building its content."""
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
    key = excerpt(".".join(str(part) for part in first["loc"]))
    if first["type"] == "missing":
        return RejectedError("schema", f"{key}: missing")
    if first["type"] == "extra_forbidden":
        return RejectedError("schema", f"{key}: unknown key")
    return RejectedError("schema", f"{key}: {excerpt(repr(first['input']))}: {first['type']}")


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


def most_points(coefficients: int) -> int:
    """Return the largest number of points: 200, or fewer for many coefficients; 0 if that is below 16.

    >>> most_points(10), most_points(500), most_points(5_000)
    (200, 49, 0)
    """
    most = min(MOST_POINTS, HISTORY_BYTES * 3 // 4 // (4 * (2 * coefficients + 1)))
    return most if most >= FEWEST_POINTS else 0


def history_bytes(coefficients: int) -> int:
    """Return the largest number of bytes that the history of estimates takes in a partition's state."""
    # A count and a time with their commas, and base64 of float32.
    return most_points(coefficients) * (19 + 11 + 4 * -(-4 * (2 * coefficients + 1) // 3)) + 64


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
