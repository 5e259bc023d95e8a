"""The outbox: released bytes that the log has not confirmed yet, in the ledger's own file.

A release is randomized once. What stands here is sent as it is, however often, until the log has it, it
expires, or the person withdraws.
"""

from __future__ import annotations

from collections.abc import Sequence
from sqlite3 import Connection
from typing import Any, NamedTuple

from murk._sqlite import Database


class Queued(NamedTuple):
    """A release that waits: number, chain, bytes, the offset at which the log can first have it, expiry."""

    number: int
    chain: int
    message: bytes
    since: int
    expires: int


def read(file: Database, task: int, after: int, limit: int) -> list[Queued]:
    """Read the releases of a task that wait, in the order of their numbers."""
    rows = file.query(
        "SELECT number, chain, message, since, expires FROM outbox "
        "WHERE number > ? AND task = ? ORDER BY number LIMIT ?",
        (after, task, limit),
    )
    return [Queued(*row) for row in rows]


def count(file: Database, task: int | None) -> int:
    """Count the releases that wait."""
    query = "SELECT count(*) FROM outbox WHERE ? IS NULL OR task = ?"
    return int(file.query(query, (task, task))[0][0])


def holds(file: Database, task: int, number: int) -> bool:
    """Whether a release waits."""
    return bool(file.query("SELECT 1 FROM outbox WHERE number = ? AND task = ?", (number, task)))


def remove(connection: Connection, numbers: Sequence[tuple[int, int]]) -> None:
    """Delete confirmed releases, given as ranges of numbers."""
    if numbers:
        connection.executemany("DELETE FROM outbox WHERE number BETWEEN ? AND ?", numbers)


def drop(connection: Connection, where: str, values: tuple[Any, ...]) -> int:
    """Delete releases that will never be sent, note so in their people's accounts, and count them."""
    query = f"SELECT number, home, person, tariff FROM outbox WHERE {where}"
    rows = connection.execute(query, values).fetchall()
    connection.executemany(
        "UPDATE spending SET dropped = dropped + 1 WHERE home = ? AND person = ? AND tariff = ?",
        [row[1:] for row in rows],
    )
    connection.executemany("DELETE FROM outbox WHERE number = ?", [row[:1] for row in rows])
    return len(rows)


def ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Write ascending numbers as ranges (first, last).

    Examples
    --------
    >>> ranges([3, 4, 5, 9])
    [(3, 5), (9, 9)]
    """
    if type(numbers) is range and numbers.step == 1 and numbers:
        return [(numbers.start, numbers.stop - 1)]
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1] = found[-1][0], number
        else:
            found.append((number, number))
    return found
