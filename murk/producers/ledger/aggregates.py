"""Sums over the people of a task for reports to others; all exporters share one baseline, stored in the ledger."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction

from murk._sqlite import Database
from murk.producers.ledger import outbox
from murk.producers.ledger.names import NameKey
from murk.producers.ledger.prices import Price, Promise, parse_history, read_prices

SMALLEST_GROUP = 20
"""Figures that depend on people leave a device only as sums over at least this many of them."""

# A person's account with a task: releases by price, and the numbers of refused, deleted and waiting releases.
_ACCOUNTS = """
    SELECT a.home, a.person, history, refused, coalesce(waiting, 0),
           history || '|' || refused || '|' || dropped || '|' || coalesce(waiting, 0)
    FROM (SELECT home, person, group_concat(tariff || ':' || released) AS history,
                 sum(refused) AS refused, sum(dropped) AS dropped
          FROM (SELECT spending.* FROM spending JOIN tariffs ON number = tariff WHERE task = ?
                ORDER BY home, person, tariff)
          GROUP BY home, person) AS a
    LEFT JOIN {waiting} AS b ON b.home = a.home AND b.person = a.person"""

_CHANGED = """
    FROM {now} AS a LEFT JOIN (SELECT home, person, state FROM reported WHERE task = ?) AS b USING (home, person)
    WHERE a.state IS NOT b.state"""


@dataclass(frozen=True, slots=True)
class PeopleTotals:
    """Sums over the people of a task that may be reported to others.

    ``people`` counts accounts, ``queued`` releases in the outbox. ``spent`` has pairs (share, number of people), where
    a person's share is the largest one that they have spent of any of their caps for the task.
    """

    people: int
    refused: int
    queued: int
    spent: tuple[tuple[float, int], ...]


class GroupSums:
    """Sums over the people of a task that may be reported to others, repeatedly.

    They cover at least `SMALLEST_GROUP` people and change only when at least that many accounts have changed, so the
    difference of two reports is a sum over that many people, too. The ledger stores the accounts of the last report, so
    this also holds for several exporters. Current accounts are copied to SQLite's temporary storage; memory does not
    grow with the number of people. Made by `Ledger.group_sums`; ``opening`` returns the key that decrypts the outbox.
    """

    def __init__(self, file: Database, task: int, opening: Callable[[], NameKey]) -> None:
        self._file, self._task, self._opening = file, task, opening
        self._now, self._waiting = f"temp.now_{task}", f"temp.waiting_{task}"
        columns = "home, person, history, refused, queued, state, PRIMARY KEY (home, person)"
        file.query(f"CREATE TABLE IF NOT EXISTS {self._now} ({columns}) WITHOUT ROWID")
        file.query(f"CREATE TABLE IF NOT EXISTS {self._waiting} (home, person, waiting, PRIMARY KEY (home, person))")

    def report(self) -> PeopleTotals | None:
        """Return new sums if they may be reported, else those reported last; None before the first report."""
        last = self._last()
        self._take()
        changed = self._file.query(f"SELECT count(*) {_CHANGED.format(now=self._now)}", (self._task,))[0][0]
        people, refused, queued = self._file.query(
            f"SELECT count(*), coalesce(sum(refused), 0), coalesce(sum(queued), 0) FROM {self._now}"
        )[0]
        before = 0 if last is None else last[0]
        if last is None and self._file.query("SELECT 1 FROM meta WHERE key = 'reports'"):
            # The reports of earlier versions are unknown; assume that they covered the current accounts.
            self._note(before, None)
        elif min(people, changed) >= SMALLEST_GROUP:
            self._note(before, PeopleTotals(people, refused, queued, self._shares()))
        # Read again: another exporter may have reported in between.
        reported = self._last()
        return None if reported is None else reported[1]

    def _last(self) -> tuple[int, PeopleTotals | None] | None:
        """Return the last report's number and its sums (None if unknown); None before the first report."""
        rows = self._file.query("SELECT round, sums FROM reports WHERE task = ?", (self._task,))
        if not rows:
            return None
        if rows[0][1] is None:
            return rows[0][0], None
        sums = json.loads(rows[0][1])
        return rows[0][0], PeopleTotals(**{**sums, "spent": tuple(map(tuple, sums["spent"]))})

    def _take(self) -> None:
        rows = self._file.query("SELECT owner, tariff FROM outbox WHERE task = ?", (self._task,))
        waiting = outbox.waiting(rows, self._opening() if rows else NameKey(None))
        counts: dict[outbox.Owner, int] = {}
        for (owner, _), count in waiting.items():
            counts[owner] = counts.get(owner, 0) + count
        self._file.query(f"DELETE FROM {self._waiting}")
        for owner, count in counts.items():
            self._file.query(f"INSERT INTO {self._waiting} VALUES (?, ?, ?)", (*owner, count))
        self._file.query(f"DELETE FROM {self._now}")
        # A single statement reads one state of the file, even while other processes write.
        self._file.query(f"INSERT INTO {self._now} {_ACCOUNTS.format(waiting=self._waiting)}", (self._task,))

    def _note(self, before: int, sums: PeopleTotals | None) -> None:
        """Store the reported sums, unless another exporter has reported since."""
        text = None if sums is None else json.dumps(asdict(sums))
        with self._file.write() as connection:
            rows = connection.execute("SELECT round FROM reports WHERE task = ?", (self._task,)).fetchall()
            if (rows[0][0] if rows else 0) != before:
                return
            connection.execute(
                f"REPLACE INTO reported SELECT ?, home, person, a.state {_CHANGED.format(now=self._now)}",
                (self._task, self._task),
            )
            connection.execute("REPLACE INTO reports VALUES (?, ?, ?)", (self._task, before + 1, text))

    def _shares(self) -> tuple[tuple[float, int], ...]:
        prices = read_prices(self._file)
        caps = [Promise(*row) for row in self._file.query("SELECT * FROM promises WHERE task = ?", (self._task,))]
        shares: dict[float, int] = {}
        for history, count in self._file.query(f"SELECT history, count(*) FROM {self._now} GROUP BY history"):
            share = _share(parse_history(history), caps, prices)
            shares[share] = shares.get(share, 0) + count
        return tuple(sorted(shares.items()))


def _share(released: Mapping[int, int], caps: Sequence[Promise], prices: Mapping[int, Price]) -> float:
    history = {price: count for price, count in released.items() if count}
    levels = {"", *(prices[price].level for price in released)}
    largest = Fraction(0)
    for cap in caps:
        spent = cap.spent(history, prices) if cap.level in levels else (0, 0)
        if spent is None:
            return 1.0  # The remainder is unknown and counts as 0.
        for amount, most in zip(spent, (cap.units, cap.delta_units), strict=True):
            if amount:
                largest = max(largest, Fraction(amount, most) if most else Fraction(1))
    return float(largest)
