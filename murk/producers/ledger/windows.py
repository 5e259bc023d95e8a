"""The ledger's records of organisations' windows: which are open, and how the others ended.

A window's accumulated state is in memory only and lost with its process. The ledger's record lets the next process
report that. It holds the organisation, the window and the (coarse) time it was opened; nothing depends on a record's
value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Any, Literal

from murk._sqlite import Database
from murk.producers.ledger.names import Id, Key, NameKey

Ending = Literal["released", "refused", "left out"]

# Made with the first window. `key` is that of the window's debit: its first row in the file, or its name. `lost` counts
# processes that died during it; `next_row` is the row after its last one (0 without a file).
TABLE = """
CREATE TABLE IF NOT EXISTS windows (
    task INTEGER NOT NULL, source INTEGER NOT NULL, key NOT NULL, person NOT NULL,
    opened INTEGER NOT NULL, state TEXT NOT NULL, lost INTEGER NOT NULL DEFAULT 0,
    records INTEGER NOT NULL DEFAULT 0, next_row INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (task, source, key, person)) WITHOUT ROWID"""


HAS_WINDOWS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'windows'"


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """Numbers of windows by their end, and of their records.

    ``refused`` windows would have exceeded a cap, ``left_out`` ones were too small. ``lost`` counts processes that died
    during a window. Only released windows are debited. ``records`` counts the records of released windows.
    """

    released: int = 0
    refused: int = 0
    left_out: int = 0
    lost: int = 0
    open: int = 0
    records: int = 0
    records_left_out: int = 0


class WindowNotes:
    """Writes records of windows within one transaction of the ledger; made by `Spending.windows`."""

    def __init__(self, connection: Connection, task: int, source: int, names: NameKey) -> None:
        self._connection = connection
        self._names = names
        self._source_values = task, source
        connection.execute(TABLE)

    def state(self, key: Key, person: Key) -> str | None:
        """Return a window's state; None if it is unknown."""
        row = self._connection.execute(
            "SELECT state FROM windows WHERE task = ? AND source = ? AND key = ? AND person = ?",
            (*self._source_values, *self._stored_name(key, person)),
        ).fetchone()
        return None if row is None else str(row[0])

    def begin(self, key: Key, person: Key, opened: int, state: Literal["open", "refused"]) -> None:
        """Record that a window was opened or refused; a lost one is opened again."""
        self._connection.execute(
            """INSERT INTO windows (task, source, key, person, opened, state) VALUES (?, ?, ?, ?, ?, ?)
               ON CONFLICT DO UPDATE SET opened = excluded.opened, state = excluded.state""",
            (*self._source_values, *self._stored_name(key, person), opened, state),
        )

    def end(self, key: Key, person: Key, ending: Ending, records: int, next_row: int) -> None:
        """Record how a window ended."""
        # Another process may have marked it as lost by mistake.
        self._connection.execute(
            """UPDATE windows SET lost = lost - (state = 'lost'), state = ?, records = ?, next_row = ?
               WHERE task = ? AND source = ? AND key = ? AND person = ?""",
            (ending, records, next_row, *self._source_values, *self._stored_name(key, person)),
        )

    def _stored_name(self, key: Key, person: Key) -> tuple[Id | None, Id]:
        name = self._names.person(person)
        return self._names.record(key, name), name


class Windows:
    """Windows of a task whose records come from one file, or from none; made by `Ledger.windows`.

    ``source`` is the stored name of the file (None for none); ``names`` returns the key of organisations' names.
    """

    def __init__(self, file: Database, task: int, source: str | None, names: Callable[[], NameKey]) -> None:
        self._file, self._task, self._source, self._names = file, task, source, names

    def give_up(self, person: Key | None = None) -> int:
        """Mark open windows (of one organisation, or all) as lost with their process, and return their number."""
        if not exist(self._file):
            return 0
        name = self._stored_name(person)
        with self._file.write() as connection:
            return connection.execute(
                f"UPDATE windows SET state = 'lost', lost = lost + 1 WHERE state = 'open' AND {self._where}",
                (*self._source_values, name, name),
            ).rowcount

    def count(self, person: Key) -> int:
        """Return how many windows an organisation has begun."""
        return self._query("SELECT count(*)", person)[0][0] if exist(self._file) else 0

    def done(self, people: Iterable[str]) -> Mapping[str, int]:
        """Return the row after the last window that has ended, for each organisation that has one."""
        if not exist(self._file):
            return {}
        ended = " AND state IN ('released', 'refused', 'left out') GROUP BY person"
        found = dict(self._query("SELECT person, max(next_row)", None, ended))
        called = {person: self._stored_name(person) for person in people}
        return {person: found[name] for person, name in called.items() if name in found}

    def sums(self, person: Key | None = None) -> WindowCounts:
        """Count the windows of an organisation, or all."""
        name = self._stored_name(person)
        return sums(self._file, self._where, (*self._source_values, name, name))

    _where = (
        "task = ? AND source = coalesce((SELECT number FROM sources WHERE digest = ?), CASE WHEN ? THEN 0 END) "
        "AND (? IS NULL OR person = ?)"
    )

    @property
    def _source_values(self) -> tuple[int, str | None, bool]:
        return self._task, self._source, self._source is None

    def _query(self, what: str, person: Key | None, more: str = "") -> list[Any]:
        where = f"{what} FROM windows WHERE {self._where}{more}"
        name = self._stored_name(person)
        return self._file.query(where, (*self._source_values, name, name))

    def _stored_name(self, person: Key | None) -> Id | None:
        return None if person is None else self._names().person(person)


def exist(file: Database) -> bool:
    """Return whether a ledger has ever recorded a window."""
    return bool(file.query(HAS_WINDOWS))


def sums(file: Database, where: str, values: tuple[object, ...]) -> WindowCounts:
    """Count the windows that satisfy a condition."""
    if not exist(file):
        return WindowCounts()
    query = f"SELECT state, count(*), sum(records), sum(lost) FROM windows WHERE {where} GROUP BY state"
    rows = {state: numbers for state, *numbers in file.query(query, values)}
    released, refused, left_out, opened = (
        rows.get(state, (0, 0)) for state in ("released", "refused", "left out", "open")
    )
    lost = sum(numbers[-1] for numbers in rows.values())
    return WindowCounts(released[0], refused[0], left_out[0], lost, opened[0], released[1], left_out[1])
