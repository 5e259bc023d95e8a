"""How far the work through a file has come."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from sys import byteorder
from typing import Any

from murk._sqlite import Database
from murk.errors import UserError


@dataclass(frozen=True)
class Run:
    """Where the work through one file for one task stands.

    Parameters
    ----------
    people
        How its people are named: "row", or "column NAME".
    excluded
        Rows that release nothing, ascending.
    next_row
        The first row that has not been worked on.
    counters
        Sums over the rows before it ("released", "refused", "clamped", ...). They stay on the device: those
        that depend on values may be reported only where they are over at least 20 people.
    """

    people: str
    excluded: tuple[int, ...] = field(default=(), repr=False)
    next_row: int = 0
    counters: Mapping[str, int] = field(default_factory=dict, repr=False)

    def row(self) -> tuple[str, bytes, int, str]:
        """Columns of the ledger's table of runs."""
        return self.people, _pack(self.excluded), self.next_row, json.dumps(dict(self.counters))

    @classmethod
    def from_row(cls, row: tuple[Any, ...]) -> Run:
        """Read the columns that `row` gave."""
        people, excluded, next_row, counters = row
        return cls(people, _unpack(excluded), next_row, json.loads(counters))


def read_run(file: Database, task_hash: str, source: str) -> Run | None:
    """Read how far the work through a file has come; None when it has not begun."""
    rows = file.query(
        """SELECT people, excluded, next_row, counters FROM runs
           JOIN sources ON sources.number = runs.source JOIN tasks ON tasks.number = runs.task
           WHERE tasks.hash = ? AND sources.digest = ?""",
        (task_hash, source),
    )
    return Run.from_row(rows[0]) if rows else None


def check_people(file: Database, task: int, source: str, people: str, *, begun: bool) -> None:
    """Make sure that nobody whose row in a file is their name is met again in another file.

    Raises
    ------
    UserError
        When people have released to the task from another file, and rows name the people of either; or they are to
        begin to, are promised a cap over all tasks, and have done so to another task.
    """
    capped = "SELECT 1 FROM tasks, promises WHERE tasks.number = ? AND simulated IS NOT 1 AND promises.task = 0"
    if not begun and file.query(capped, (task,)) and strangers(file, source, people):
        raise unrecognised(file.path, "these records")
    others = file.query(
        """SELECT 1 FROM runs JOIN sources ON sources.number = source
           WHERE task = ? AND digest <> ? AND next_row > 0 AND 'row' IN (people, ?)""",
        (task, source, people),
    )
    if others:
        raise UserError(
            "people have released to this task from another file, and where rows name people, those of two files "
            "cannot be distinguished: they would release twice. Give that file; or name people by a column (--person)"
        )


def strangers(file: Database, source: str, people: str) -> bool:
    """Whether people have released, to any real task, whom nobody can recognise among those of some records.

    Where the rows of records are people, or were, they are recognised in the very same records alone, called the same.
    """
    called = "people = 'row' OR people LIKE 'column %'"
    found = file.query(
        f"""SELECT 1 FROM (SELECT ? AS now), runs JOIN sources ON sources.number = source
            JOIN tasks ON tasks.number = task
            WHERE simulated IS NOT 1 AND next_row > 0 AND ({called}) AND (now = 'row' OR now LIKE 'column %')
            AND 'row' IN (people, now) AND (people, digest) <> (now, ?) LIMIT 1""",
        (people, source),
    )
    return bool(found)


def unrecognised(ledger: Path, records: str) -> UserError:
    """The refusal of records whose people may be `strangers`, under a cap over all tasks."""
    return UserError(
        f"people have released by the ledger {ledger} already, and nobody can tell whether {records} are of the same: "
        "where each row is a person, they are recognised only in the very same records (sorted, corrected or converted "
        "ones are others), and not under names. So the cap over all tasks would begin at nothing for them. Give the "
        "records as they were; to name people by a column (--person), do so from the first task on, by a --ledger of "
        "its own, as for other people"
    )


def _pack(rows: tuple[int, ...]) -> bytes:
    numbers = array("q", sorted(rows))
    if byteorder == "big":
        numbers.byteswap()
    return numbers.tobytes()


def _unpack(data: bytes) -> tuple[int, ...]:
    numbers = array("q")
    numbers.frombytes(data)
    if byteorder == "big":
        numbers.byteswap()
    return tuple(numbers)
