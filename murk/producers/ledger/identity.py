"""Whether a ledger recognises people, or would give them new accounts with nothing spent.

A cap over all tasks holds for a person only under one name, so a ledger with such a cap allows only one way of naming
people: by a column, by the rows of one file, or by an application.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any

import numpy as np

from murk._internal.sqlite import Database
from murk.errors import UserError
from murk.privacy.guarantees import CENTRAL

if TYPE_CHECKING:
    from murk.producers.ledger.costs import BookedTask
    from murk.producers.ledger.spending import Common

_ERROR_CODE = "MURK-LEDGER-001"

Query = Callable[[str, tuple[Any, ...]], Sequence[Any]]

APPLICATION, APPLICATION_ORGANISATIONS = "application", "organisations of an application"
"""How people and organisations are named if their records come from no file."""
_EACH = ", ".join("?" * len(CENTRAL))


def is_capped(query: Query, task: int) -> bool:
    """Return whether a promised cap over all tasks holds for this task."""
    capped = "SELECT 1 FROM tasks, promises WHERE tasks.number = ? AND simulated IS NOT 1 AND promises.task = 0"
    return bool(query(capped, (task,)))


def strangers(query: Query, source: str | None, people: str) -> list[str]:
    """Return the ways in which people of real tasks were named that cannot be compared with ``people``.

    Rows of the same file, columns of the same name, and names given by applications can each be compared. People and
    organisations have different accounts and are not compared.
    """
    alike = [naming for naming in _namings(query) if _is_organisation(naming[0]) == _is_organisation(people)]
    others = [named for named, digest in alike if named != people or (people == "row" and digest != source)]
    return list(dict.fromkeys(others))


def check_named(connection: Connection, ledger: Path, task: BookedTask, source: int, common: Common) -> None:
    """Refuse people to whom a cap over all tasks is promised if people were named in another way before."""

    def query(sql: str, values: tuple[Any, ...]) -> list[Any]:
        return connection.execute(sql, values).fetchall()

    if is_capped(query, task.number):
        of = "SELECT people, digest FROM runs JOIN sources ON sources.number = source WHERE task = ? AND source = ?"
        rows = query(of, (task.number, source))
        if not rows:
            tariff = next(iter(task.levels.values()))
            [(mechanism,)] = query("SELECT mechanism FROM tariffs WHERE number = ?", (tariff,))
            rows = [(_naming_of(mechanism), None)]
        check_recognised(query, ledger, "these records", rows[0][1], rows[0][0])
    common.recognised.add((task.number, source))


def check_recognised(query: Query, ledger: Path, records: str, source: str | None, people: str) -> None:
    """Raise a UserError for people who may have spent a cap over all tasks under names that cannot be compared."""
    if before := strangers(query, source, people):
        raise unrecognised(ledger, records, people, before)


def unrecognised(ledger: Path, records: str, people: str, before: Sequence[str]) -> UserError:
    """Return the error for people who may have spent a cap over all tasks."""
    words = describe(ledger, records, people, before)
    return UserError(f"{words} So they could spend the cap over all tasks again. {remedy(people, before)}")


def describe(ledger: Path, records: str, people: str, before: Sequence[str]) -> str:
    """Return why people are not recognised, in words."""
    who = "organisations" if _is_organisation(people) else "people"
    earlier = " and ".join(dict.fromkeys(map(_words, before)))
    why = "names of different kinds cannot be compared"
    if "row" in (people, *before):
        why = (
            "where each row is a person, people are recognised only in exactly the same records (not in sorted, "
            "corrected or converted ones), and not by names"
        )
    return (
        f"{who} named by {earlier} have released already (ledger {ledger}), and it is unknown whether {records}, "
        f"named by {_words(people)}, are of the same {who}: {why}."
    )


def remedy(people: str, before: Sequence[str]) -> str:
    """Return the remedy for people who are not recognised."""
    other = "Other people need a ledger of their own (--ledger)"
    if "row" in (people, *before):
        again = "Give the records as they were; to name people by a column (--person), do so from the first task on"
        return f"{again}. {other}"
    return f"Name them by {_words(before[0])}, as before; a column with the very same names may be renamed. {other}"


def several_ways(query: Query) -> list[str]:
    """Return cautions that people of real tasks were named in several ways, so one may have several accounts."""
    lines = []
    for organisations in (False, True):
        namings = [naming for naming in _namings(query) if _is_organisation(naming[0]) == organisations]
        rows = {digest for named, digest in namings if named == "row"}
        ways = {named: _words(named) for named, _ in namings}
        if len(rows) > 1:
            ways["row"] = f"their rows in {len(rows)} files"
        if len(ways) + max(0, len(rows) - 1) > 1:
            named = " and ".join(ways.values())
            who = "organisations" if organisations else "people"
            lines.append(
                f"Caution: {who} were named by {named}, so one may have several accounts, which are not added up"
            )
    return lines


def _namings(query: Query) -> list[tuple[str, str | None]]:
    runs = query(
        """SELECT DISTINCT people, digest FROM runs JOIN sources ON sources.number = source
           JOIN tasks ON tasks.number = task WHERE simulated IS NOT 1 AND next_row > 0 ORDER BY people""",
        (),
    )
    # Runs of organisations record no progress by rows; their debits show that they have released.
    organisations = query(
        f"""SELECT DISTINCT people, digest FROM runs JOIN sources ON sources.number = source
            JOIN tasks ON tasks.number = task WHERE simulated IS NOT 1
            AND EXISTS (SELECT 1 FROM tariffs WHERE tariffs.task = runs.task AND mechanism IN ({_EACH}))
            AND EXISTS (SELECT 1 FROM debits WHERE debits.task = runs.task AND debits.source = runs.source)""",
        CENTRAL,
    )
    namings = [*runs, *organisations]
    first = "SELECT mechanism FROM debits JOIN tariffs ON tariffs.number = tariff WHERE debits.task = ? AND source = 0"
    for task in query("SELECT number FROM tasks WHERE simulated IS NOT 1", ()):
        namings += [(_naming_of(mechanism), None) for (mechanism,) in query(f"{first} LIMIT 1", task)]
    return namings


def _naming_of(mechanism: str) -> str:
    return APPLICATION_ORGANISATIONS if mechanism in CENTRAL else APPLICATION


def _is_organisation(people: str) -> bool:
    return people == "one organisation" or people.startswith("organisations ")


def _words(people: str) -> str:
    if people == "row":
        return "their rows"
    if people in (APPLICATION, APPLICATION_ORGANISATIONS):
        return "an application"
    if people == "one organisation":
        return "their file as one organisation"
    return f"the column {people.removeprefix('organisations of ').removeprefix('column ')!r}"


@dataclass(frozen=True)
class Run:
    """Progress of one task through one file, with ``people`` "row" or "column NAME" and rows ``excluded``, ascending.

    ``next_row`` is the number of rows done, in the order of release; ``counters`` are sums over these rows ("released",
    "clamped", ...) and stay on the device.
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
    """Return the progress through a file; None before its first block."""
    rows = file.query(
        """SELECT people, excluded, next_row, counters FROM runs
           JOIN sources ON sources.number = runs.source JOIN tasks ON tasks.number = runs.task
           WHERE tasks.hash = ? AND sources.digest = ?""",
        (task_hash, source),
    )
    return Run.from_row(rows[0]) if rows else None


def check_people(file: Database, task: int, source: str, people: str, *, begun: bool) -> None:
    """Raise a UserError if some of these people may have released before under names that cannot be compared.

    There are two such cases: people of another file released to the task, and in one of the two files each row is a
    person; or the work begins under a cap over all tasks, and people were named in another way before.
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
            "in two files, and people could release twice. Give the earlier file, or name people by a column (--person)"
        )
