"""How 0.3.0 recognises what it can read: its own code, as far as that goes, with its words."""

import json
import sqlite3
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

_Count = Annotated[int, Field(ge=0)]
_STRICT = ConfigDict(strict=True, frozen=True, extra="forbid")


class Refused(Exception):
    """0.3.0 leaves the file or the log as it is, and says why."""


class Counters(BaseModel):
    model_config = _STRICT

    learned: _Count = 0
    duplicates: _Count = 0
    dead: dict[str, _Count] = Field(default_factory=dict)
    levels: dict[str, _Count] = Field(default_factory=dict)
    staleness: Annotated[list[_Count], Field(max_length=64)] = Field(default_factory=list)
    staleness_sum: _Count = 0


class StateMessage(BaseModel):
    model_config = _STRICT

    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    kind: Literal["state"] = "state"
    task: str
    identity: str
    chain: _Count
    offset: _Count
    last_id: str | None
    counters: Counters
    learner: dict[str, Any]


def decode_state(message: bytes) -> StateMessage:
    data = json.loads(message)
    schema = data.get("schema") if isinstance(data, dict) else None
    if isinstance(schema, int) and schema != 1:
        raise Refused(f"was written by another version of Murk (schema {schema}, while this one reads schema 1)")
    return StateMessage.model_validate(data)


def check_file(connection: sqlite3.Connection, noun: str) -> None:
    """0.3.0's check of a log or a ledger when it opens it: both of format 1."""
    application = {"log": int.from_bytes(b"MLog"), "ledger": 0x4D75726C}[noun]
    if connection.execute("PRAGMA application_id").fetchone() != (application,):
        raise Refused(f"is a database of something else, not a {noun}")
    [(found,)] = connection.execute("SELECT value FROM meta WHERE key = 'format'").fetchall()
    if found != 1:
        raise Refused(f"was written by another version of Murk (format {found}; this one reads format 1)")
