"""Progress through a file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from murk._sqlite import Database
from murk.errors import UserError
from murk.producers.ledger.recognition import check_recognised, is_capped


@dataclass(frozen=True)
class Run:
    """Progress of one task through one file.

    ``people`` is "row" or "column NAME"; ``excluded`` are the rows that release nothing, ascending. ``counters`` are
    sums over the rows before ``next_row`` ("released", "refused", "clamped", ...); they stay on the device.
    """

    people: str
    excluded: tuple[int, ...] = field(default=(), repr=False)
    next_row: int = 0
    counters: Mapping[str, int] = field(default_factory=dict, repr=False)

    def row(self) -> tuple[str, bytes, int, str]:
        """Return the row for the table ``runs``."""
        excluded = np.array(sorted(self.excluded), dtype="<i8").tobytes()
        return self.people, excluded, self.next_row, json.dumps(dict(self.counters))

    @classmethod
    def from_row(cls, row: tuple[Any, ...]) -> Run:
        """Read the columns of `row`."""
        people, excluded, next_row, counters = row
        return cls(people, tuple(np.frombuffer(excluded, dtype="<i8").tolist()), next_row, json.loads(counters))


def read_run(file: Database, task_hash: str, source: str) -> Run | None:
    """Read the progress through a file; None if it has not begun."""
    rows = file.query(
        """SELECT people, excluded, next_row, counters FROM runs
           JOIN sources ON sources.number = runs.source JOIN tasks ON tasks.number = runs.task
           WHERE tasks.hash = ? AND sources.digest = ?""",
        (task_hash, source),
    )
    return Run.from_row(rows[0]) if rows else None


def check_people(file: Database, task: int, source: str, people: str, *, begun: bool) -> None:
    """Raise a UserError if some of these people may have released before under names that cannot be compared.

    That is so if another file's people released to the task and rows name people in either file; and, when the work
    through the file begins under a cap over all tasks, if others were named differently.
    """
    if not begun and is_capped(file.query, task):
        check_recognised(file.query, file.path, "these records", source, people)
    others = file.query(
        """SELECT 1 FROM runs JOIN sources ON sources.number = source
           WHERE task = ? AND digest <> ? AND next_row > 0 AND 'row' IN (people, ?)""",
        (task, source, people),
    )
    if others:
        raise UserError(
            "people of another file have released to this task. Where each row is a person, nobody can be recognised "
            "in two files, and people could release twice. Give that file, or name people by a column (--person)"
        )
