"""Sums over the people of a task, and how many people's accounts they would tell something new about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from murk._sqlite import Database
from murk.producers.ledger.prices import Price, Promise

# A person's account with a task: what was released at which level, what was refused, deleted, and waits.
_ACCOUNTS = """
    SELECT home, person, group_concat(tariff || ':' || released) AS history, sum(refused) AS refused,
           sum(dropped) AS dropped, coalesce(max(waiting), 0) AS queued
    FROM (SELECT spending.* FROM spending JOIN tariffs ON number = tariff WHERE task = ?
          ORDER BY home, person, tariff)
    LEFT JOIN (SELECT home AS h, person AS p, count(*) AS waiting FROM outbox WHERE task = ? GROUP BY home, person)
    ON h = home AND p = person
    GROUP BY home, person"""

_TABLE = """(home, person, history, refused, dropped, queued, PRIMARY KEY (home, person))"""


@dataclass(frozen=True, slots=True)
class PeopleTotals:
    """Sums over the people of a task; whether they may be reported to others is for `SMALLEST_GROUP` to say.

    Parameters
    ----------
    people
        How many have an account.
    changed
        How many accounts differ from what they were when sums were last reported (or when this began).
    refused, queued
        Releases that were refused; releases that wait in the outbox.
    spent
        (share, number of people) pairs: the largest share that a person has spent of any cap that the task has
        for them.
    """

    people: int
    changed: int
    refused: int
    queued: int
    spent: tuple[tuple[float, int], ...]


class GroupSums:
    """Take sums over the people of a task, again and again, and remember what was reported.

    Made by `Ledger.group_sums`. What was reported is a copy of the accounts in SQLite's temporary storage: memory does
    not grow with the number of people.

    Parameters
    ----------
    file, task
        The ledger's file, and the task's number in it.
    delete_confirmed
        Deletes the bytes of confirmed releases, so that they are not counted as waiting.
    """

    def __init__(self, file: Database, task: int, delete_confirmed: Callable[[], None]) -> None:
        self._file, self._task, self._delete_confirmed = file, task, delete_confirmed
        self._now, self._told = f"temp.now_{task}", f"temp.told_{task}"
        for table in (self._now, self._told):
            file.query(f"CREATE TABLE IF NOT EXISTS {table} {_TABLE}")
        self._take()
        # A process that was started again reports nothing new of what another one may have reported.
        self.told()

    def read(self) -> PeopleTotals:
        """Take the sums as they are now."""
        self._take()
        people, refused, queued = self._file.query(
            f"SELECT count(*), coalesce(sum(refused), 0), coalesce(sum(queued), 0) FROM {self._now}"
        )[0]
        changed = self._file.query(
            f"""SELECT count(*) FROM {self._now} AS a LEFT JOIN {self._told} AS b USING (home, person)
                WHERE (a.history, a.refused, a.dropped, a.queued)
                    IS NOT (b.history, b.refused, b.dropped, b.queued)"""
        )[0][0]
        prices = {row[0]: Price(*row) for row in self._file.query("SELECT * FROM tariffs")}
        caps = [Promise(*row) for row in self._file.query("SELECT * FROM promises WHERE task = ?", (self._task,))]
        shares: dict[float, int] = {}
        for history, count in self._file.query(f"SELECT history, count(*) FROM {self._now} GROUP BY history"):
            released = {int(price): int(many) for price, many in (pair.split(":") for pair in history.split(","))}
            share = _share(released, caps, prices)
            shares[share] = shares.get(share, 0) + count
        return PeopleTotals(people, changed, refused, queued, tuple(sorted(shares.items())))

    def told(self) -> None:
        """Note that the sums read last were reported to others."""
        self._file.query(f"DELETE FROM {self._told}")
        self._file.query(f"INSERT INTO {self._told} SELECT * FROM {self._now}")

    def _take(self) -> None:
        self._delete_confirmed()
        self._file.query(f"DELETE FROM {self._now}")
        # One statement sees one state of the file, whatever other processes write meanwhile.
        self._file.query(f"INSERT INTO {self._now} {_ACCOUNTS}", (self._task, self._task))


def _share(released: Mapping[int, int], caps: Sequence[Promise], prices: Mapping[int, Price]) -> float:
    """The largest share spent of any cap that a person with this history has."""
    history = {price: count for price, count in released.items() if count}
    levels = {"", *(prices[price].level for price in released)}
    largest = Fraction(0)
    for cap in caps:
        spent = cap.spent(history, prices) if cap.level in levels else (0, 0)
        if spent is None:
            return 1.0  # Nobody knows what is left, so nothing is.
        for amount, most in zip(spent, (cap.units, cap.delta_units), strict=True):
            if amount:
                largest = max(largest, Fraction(amount, most) if most else Fraction(1))
    return float(largest)
