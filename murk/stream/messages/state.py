"""The state message, which a worker commits together with its offset.

It is JSON with an explicit schema, so that a monitor or another version can read it without running code.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from murk.errors import MurkError
from murk.stream.messages.codec import excerpt
from murk.stream.messages.trail import Trail

SCHEMA = 2
_WITHOUT_TRAIL = 1  # schema of states without a trail, which are still read
_KEYS = 5

_Count = Annotated[int, Field(ge=0)]
_STRICT = ConfigDict(defer_build=True, strict=True, frozen=True, extra="forbid")


class Counters(BaseModel):
    """Numbers of messages that a chain has read: read = learned + duplicates + dead letters.

    Parameters
    ----------
    learned, duplicates
        Number of releases learned, and of duplicates dropped.
    dead
        Dead letters by reason.
    levels
        Learned releases by level.
    staleness, staleness_sum
        Learned gradients by age, and the sum of ages: entry b counts those whose age (releases that the chain had
        learned since their model) has b bits: 0, 1, 2-3, 4-7, ...
    """

    model_config = _STRICT

    learned: _Count = 0
    duplicates: _Count = 0
    dead: dict[str, _Count] = Field(default_factory=dict)
    levels: dict[str, _Count] = Field(default_factory=dict)
    staleness: Annotated[list[_Count], Field(max_length=64)] = Field(default_factory=list)
    staleness_sum: _Count = 0

    @property
    def read(self) -> int:
        """Number of messages read since the chain's first."""
        return self.learned + self.duplicates + sum(self.dead.values())


class StateMessage(BaseModel):
    """A chain's committed state.

    Parameters
    ----------
    task, identity
        Hash of the task, and identity of the log.
    chain
        The chain.
    offset
        First offset of the chain's partition that is not in the state.
    last_id
        Id of the newest valid release within the window for duplicates before `offset`, or None.
    counters
        Numbers of messages read, by outcome.
    trail
        How the estimate has moved.
    learner
        The learner's own state, plain JSON data.
    """

    model_config = _STRICT

    schema_: Annotated[Literal[2], Field(alias="schema")] = 2
    kind: Literal["state"] = "state"
    task: str
    identity: str
    chain: _Count
    offset: _Count
    last_id: str | None
    counters: Counters
    trail: Trail = Field(default_factory=Trail)
    learner: dict[str, Any]

    def encode(self) -> bytes:
        """Return the message as JSON bytes; floats round-trip exactly.

        Raises `MurkError` when the learner's state is not valid JSON data, such as infinity or NaN.
        """
        try:
            # Pydantic's own JSON would silently write NaN and infinity as null.
            text = json.dumps(self.model_dump(by_alias=True), allow_nan=False, sort_keys=True, separators=(",", ":"))
        except (TypeError, ValueError) as error:
            raise MurkError(f"the learner's state of chain {self.chain} is not plain JSON: {error}") from error
        return text.encode()


def decode_state(message: bytes, where: str) -> StateMessage:
    """Decode a state message; ``where`` names its origin in errors.

    Raises `MurkError` when it is damaged, or was written by another version.
    """
    try:
        data = json.loads(message)
    except (ValueError, RecursionError) as error:
        raise MurkError(f"the state of {where} is not JSON: restore the log from a copy") from error
    schema = data.get("schema") if isinstance(data, dict) else None
    if schema == _WITHOUT_TRAIL and "trail" not in data:
        data["schema"] = schema = SCHEMA
    if isinstance(schema, int) and schema != SCHEMA:
        raise MurkError(
            f"the state of {where} was written by another version of Murk (schema {schema}, while this one "
            f"reads schemas {_WITHOUT_TRAIL} and {SCHEMA}): use the version that wrote it, or start a new log",
            code="MURK-STATE-002",
        )
    try:
        return StateMessage.model_validate(data)
    except ValidationError as error:
        # The writer chose the keys: they are untrusted text.
        keys = sorted({excerpt(".".join(map(str, item["loc"])) or "(all)") for item in error.errors()})[:_KEYS]
        raise MurkError(
            f"the state of {where} is damaged at: {', '.join(keys)}. Restore the log from a copy"
        ) from error
