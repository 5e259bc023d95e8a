"""Transactions of a ledger, and the deletion of releases that the log has confirmed.

The durable account of what people have spent, and of what waits to be sent.

A debit and the release that it pays for are written in one transaction, before anything is sent: a crash
may lose a report, never a debit. All amounts are integers, rounded against the spender.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from sqlite3 import Connection
from types import TracebackType
from typing import NoReturn, Self

from murk.errors import MurkError, UserError
from murk.privacy import PrivacyLoss
from murk.producers.ledger import outbox, statements
from murk.producers.ledger.accounts import Account, CapStatus, Totals, describe_together
from murk.producers.ledger.aggregates import GroupSums
from murk.producers.ledger.merging import adopt
from murk.producers.ledger.naming import Names, Sources
from murk.producers.ledger.outbox import Owner
from murk.producers.ledger.prices import Booked, Charge, Common, Prices, Promise, bind, book, loosen, promises
from murk.producers.ledger.progress import Run, check_people, read_run
from murk.producers.ledger.recognition import check_named, several_ways, strangers
from murk.producers.ledger.requests import Key, ReleaseRequests, known_by
from murk.producers.ledger.schema import LedgerFile
from murk.producers.ledger.transaction import DAY, Spending
from murk.producers.ledger.windows import Windows
from murk.stream.messages.releases import truncate_time

TIDY_SECONDS = 1.0
"""Deleted releases stand in the write-ahead log for about so long while others are made; emptying it takes the disk
a few milliseconds."""


class Settling:
    """Begins and ends the transactions of one open ledger.

    Parameters
    ----------
    file
        The ledger's file.
    names
        What it calls people; a key that was made gets its name after the commit.
    """

    def __init__(self, file: LedgerFile, names: Names) -> None:
        self._file, self._names = file, names
        self._confirmed: list[tuple[int, int]] = []
        self._left = False
        self._tidied = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether there is anything to delete."""
        return bool(self._confirmed)

    def confirm(self, numbers: Sequence[int]) -> None:
        """Delete releases that the log has.

        The disk is not waited for: what a power failure brings back is looked for on the log again.
        """
        self._confirmed.extend(outbox.ranges(numbers))
        # The log has them whatever happens here. What cannot be deleted now is with the next transaction, which says
        # what is wrong with the disk.
        with suppress(MurkError):
            self.delete_confirmed()
            if time.monotonic() - self._tidied > TIDY_SECONDS:
                self.tidy()

    def delete_confirmed(self) -> None:
        """Delete what was confirmed, where that could not be done yet."""
        if self.is_due:
            with self.write(waits=False):
                pass

    def tidy(self) -> None:
        """Empty the write-ahead log, if anything that was deleted may stand in it; not while others use the file."""
        self._tidied = time.monotonic()
        if self._left and self._file.empty_log():
            self._left = False

    @contextmanager
    def write(self, *, waits: bool = True) -> Iterator[Connection]:
        """Hold a transaction; commit at the end, or leave everything as it was.

        Without ``waits`` the commit does not wait for the disk; that is for what is found out and written again
        after a power failure.
        """
        with self._file.write(waits=waits) as connection:
            deleted = len(self._confirmed)
            outbox.remove(connection, self._confirmed)
            yield connection
        self._names.committed()
        self._left = self._left or bool(deleted)
        # After the commit only: rolled back, the bytes are still there and still to be deleted.
        del self._confirmed[:deleted]


class Ledger:
    """Accounts of any number of people in one SQLite file, with the outbox of what they released.

    A release is paid in integer units of `PrivacyLoss` and must fit every cap that was promised: over all tasks,
    for its task, and for its level, each in its own currency. All caps are looked at before any is drawn on,
    and one block of releases is one transaction (``synchronous=FULL``).

    An old copy put in the place of the file cannot be distinguished from it, nor can a file without the ``-wal`` that a
    crash left beside it; everything else that is not the ledger that was last written (damaged, foreign,
    emptied, of another version or identity) is refused. Opening reads the whole file once.

    One object serves one thread of one process; any number of processes may open the same file.

    Parameters
    ----------
    path
        The file.
    identity
        Accept only the ledger with this identity, e.g. the one noted beside the log at its first use; a
        missing file is then refused and not made.
    create
        Make the file where there is none.
    timeout
        Seconds to wait for another process that writes.

    Raises
    ------
    UserError
        When the file is not the ledger that is meant.
    MurkError
        When it cannot be opened or made.

    Examples
    --------
    >>> import tempfile
    >>> with Ledger(tempfile.mkdtemp() + "/ledger.db") as ledger:
    ...     print(ledger.totals().releases)
    0
    """

    def __init__(
        self,
        path: str | Path,
        *,
        identity: str | None = None,
        create: bool = True,
        timeout: float = 30.0,
    ) -> None:
        self._file = LedgerFile(path, create=create, timeout=timeout, identity=identity)
        try:
            self.names = Names(self._file)
            """What it calls people."""
        except BaseException:
            self._file.close()
            raise
        self._prices = Prices()
        self._common = Common(self._prices)
        self._tasks: dict[str, Booked] = {}
        self._sources = Sources(self.names)
        self._settling = Settling(self._file, self.names)
        self.identity = self._file.identity
        """Random name that the ledger was given when it was made."""
        self.check_thread = self._file.check_owner
        """Refuses any other thread or process than the one that opened the file, which is not looked at."""

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    @property
    def next_number(self) -> int:
        """Number that the next release will get; numbers grow and are never used twice."""
        return int(self._file.query("SELECT value FROM meta WHERE key = 'next'")[0][0])

    def bind(self, log_identity: str, task_hash: str, *, name: str = "", simulated: bool | None = None) -> None:
        """Tie a task to the log that its releases go to: recorded at first use, checked ever after.

        Raises
        ------
        UserError
            When the task's releases went to another log before.
        """
        bind(self._file, log_identity, task_hash, name, simulated)

    def book(
        self,
        task_hash: str,
        charges: Sequence[Charge],
        *,
        caps: Sequence[tuple[str, PrivacyLoss]] = (),
        lifetime: PrivacyLoss | None = None,
    ) -> None:
        """Note what releases of a bound task cost, and what is promised to everyone.

        Parameters
        ----------
        task_hash
            A task tied to its log by `bind`.
        charges
            What a release costs, for each level that may be chosen.
        caps
            (level, amount): at most so much of this task for a person who asks for that level ('' for any).
            Caps in several currencies all hold.
        lifetime
            At most so much for a person over all tasks.

        Raises
        ------
        UserError
            When a cap is larger than the one that was promised before: a promise is only ever tightened.
        """
        self._common.forget()
        self._tasks[task_hash] = book(self._file, self._prices, task_hash, charges, caps, lifetime)

    def loosen(self, cap: PrivacyLoss, *, task_hash: str | None = None, level: str = "") -> None:
        """Replace a cap by a larger one, after those whom it was promised to have agreed.

        Parameters
        ----------
        cap
            The new cap; it takes the place of the one in the same currency.
        task_hash, level
            The task and level it is for; by default the cap over all tasks.
        """
        self._common.forget()
        loosen(self._file, self._number(task_hash) or 0, level, cap)

    def promises(self, task_hash: str | None = None) -> list[Promise]:
        """Return the caps that hold for a task, or (None) for all tasks together."""
        return promises(self._file, self._number(task_hash) or 0)

    @contextmanager
    def spending(self, task_hash: str, requests: ReleaseRequests) -> Iterator[Spending]:
        """Decide who may release, and write debits, releases and progress in one transaction.

        The caller randomizes for those who may, and only for those, inside of the ``with`` block, and hands
        over the bytes with ``Spending.freeze``. If anything fails there, nothing was debited.

        Parameters
        ----------
        task_hash
            A task noted by `book`.
        requests
            Who asks, for which record, at which level.

        Yields
        ------
        Spending
            ``granted``, ``known`` and ``refusals`` are filled in.

        Raises
        ------
        UserError
            For a level that was not booked, or a name that cannot be one.
        MurkError
            When the ledger cannot be written; nothing was debited and nothing may be sent.
        """
        booked = self._booked(task_hash)
        requests = requests.checked()
        common = self._common
        with self._settling.write() as connection:
            common.refresh(connection)
            common.forget()
            source = self._sources.number(connection, requests.source)
            check_named(connection, self.path, booked, source, common)
            names, merged = self.names.called(connection, requests.people, earlier=common.earlier)
            spend = Spending(
                connection, task=booked, source=source, requests=requests, common=common, names=names,
                sealing=self.names.sealing(connection), merged=merged,
            )  # fmt: skip
            spend.decide()
            yield spend
            spend.write()
        common.keep(spend.numbers.stop)

    def pending(self, task_hash: str | None = None) -> int:
        """Count the releases that wait in the outbox, of one task or of all."""
        self.delete_confirmed()
        return outbox.count(self._file, self._number(task_hash))

    def queued(self, task_hash: str, after: int = 0, limit: int = 1000) -> list[outbox.Queued]:
        """Read what waits in the outbox in the order of its numbers, from beyond a number on."""
        return outbox.read(self._file, self._booked(task_hash).number, after, limit)

    def is_queued(self, task_hash: str, number: int) -> bool:
        """Whether the release with this number still waits to be confirmed by the log."""
        self.delete_confirmed()
        return outbox.holds(self._file, self._booked(task_hash).number, number)

    def confirm(self, numbers: Sequence[int]) -> None:
        """Delete releases that the log has; a crash before costs a look at the log before anything is sent again."""
        self._settling.confirm(numbers)

    def delete_confirmed(self) -> None:
        """Delete the bytes of confirmed releases, where the disk prevented it before."""
        self._settling.delete_confirmed()

    def tidy(self) -> None:
        """Remove what was deleted from the write-ahead log, too; to be called before a longer wait."""
        self._settling.tidy()

    def expire(self, task_hash: str, now: float, *, through: int | None = None) -> int:
        """Delete what waits beyond its expiry (up to a number) and is not on the log, and count it; the debits stay."""
        with self._settling.write() as connection:
            where = "task = ? AND expires <= ? AND (? IS NULL OR number <= ?)"
            values = self._booked(task_hash).number, int(now), through, through
            return outbox.drop(connection, self.names.sealing(connection), where, values)

    def withdraw(
        self, person: Key, *, task_hash: str | None = None, source: str | None = None, now: float | None = None
    ) -> int:
        """Release nothing more of a person, and delete what waits; what was spent stays spent.

        Parameters
        ----------
        person
            Their name; or their row, where the rows of a file are people.
        task_hash
            The task they withdraw from, and all tasks of its name, now and later; None for every task.
        source
            Digest of the file when ``person`` is a row.
        now
            When that is, in seconds since 1970; noted to the day. By default the clock says.

        Returns
        -------
        int
            Number of releases that were deleted: not confirmed by the log, which may have what was just being sent.
        """
        task = self._number(task_hash)
        person = known_by(person, source)
        with self._settling.write() as connection:
            self._common.forget()
            home = self._sources.number(connection, source)
            named = [str(person)] if source is None else None
            known = self.names.called(connection, named, earlier=True)[0].person(person)
            connection.execute(
                "INSERT INTO withdrawals VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (home, known, task or 0, truncate_time(time.time() if now is None else now, DAY)),
            )
            key, owner = self.names.sealing(connection), Owner(home, known)
            return outbox.drop(connection, key, "? IS NULL OR task = ?", (task, task), owner)

    def account(self, person: Key, *, source: str | None = None) -> Account:
        """Return a person's own view: what was promised, spent, sent and refused, task by task.

        Parameters
        ----------
        person
            Their name; or their row, where the rows of a file are people.
        source
            Digest of the file when ``person`` is a row.
        """
        person = known_by(person, source)
        self.delete_confirmed()
        if source is None:
            names = self.names.reading()
            adopt(self._file, self._settling.write, names, str(person))
            return statements.account(self._file, Owner(0, names.person(person)), self.names.opening())
        rows = self._file.query("SELECT number FROM sources WHERE digest = ?", (self.names.source(source),))
        return statements.account(self._file, Owner(int(rows[0][0]) if rows else -1, person), self.names.opening())

    def withdrawn(self, source: str, *, task_name: str) -> frozenset[int]:
        """Return the rows of a file whose people have withdrawn, from every task or from one of this name."""
        return statements.withdrawn(self._file, self.names.source(source), task_name)

    def has_released(self, source: str, *, task_name: str) -> bool:
        """Whether people of a file have released to a task of this name, whatever its public sample was."""
        return statements.has_released(self._file, self.names.source(source), task_name)

    def tasks_named(self, name: str) -> list[str]:
        """Return the hashes of the tasks of a name that this ledger knows; where it knows none, a UserError."""
        return statements.tasks_named(self._file, name)

    def together(self) -> tuple[CapStatus, ...]:
        """Return the most that anybody has spent on all tasks together, beside each cap over all tasks (if any)."""
        return statements.together(self._file)

    def describe_together(self) -> list[str]:
        """Say what `together` says, and whether it may be of less than a person."""
        return [*describe_together(self.together(), self.totals().who), *several_ways(self._file.query)]

    def totals(self) -> Totals:
        """Return sums over everyone in the ledger; they name nobody."""
        self.delete_confirmed()
        return statements.totals(self._file)

    def group_sums(self, task_hash: str) -> GroupSums:
        """Return the sums over the people of a task that may be reported to others."""
        return GroupSums(self._file, self._known(task_hash), self.names.opening)

    def windows(self, task_hash: str, source: str | None = None) -> Windows:
        """Return what is noted of organisations' windows, of the file with a digest or of records from no file."""
        called = None if source is None else self.names.source(source)
        return Windows(self._file, self._known(task_hash), called, self.names.reading)

    def begin_run(self, task_hash: str, source: str, *, people: str = "row", excluded: Sequence[int] = ()) -> Run:
        """Take up the work through a file where it stands, or note its beginning.

        Parameters
        ----------
        task_hash
            A booked task.
        source
            Digest of the file.
        people
            How its people are named: "row", or "column NAME".
        excluded
            Rows that release nothing (a public sample); used at the beginning, remembered later.

        Raises
        ------
        UserError
            When the file's people were named in another way before, or another file's may be the same people.
        """
        task = self._booked(task_hash).number
        begun = self.run(task_hash, source) is not None
        check_people(self._file, task, self.names.source(source), people, begun=begun)
        if not begun:
            with self._settling.write() as connection:
                row = (task, self._sources.number(connection, source), *Run(people, tuple(excluded)).row())
                connection.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", row)
        run = self.run(task_hash, source)
        if run is None or run.people != people:
            raise UserError(
                f"the people of this file were named by {run and run.people} when the work through it began, "
                f"and are by {people} now: their accounts would begin again. Name them as before"
            )
        return run

    def strangers(self, source: str, people: str) -> list[str]:
        """Return how others were named who have released to a real task and are not recognised among some people."""
        return strangers(self._file.query, self.names.source(source), people)

    def run(self, task_hash: str, source: str) -> Run | None:
        """How far the work through a file has come; None when it has not begun."""
        return read_run(self._file, task_hash, self.names.source(source))

    def close(self) -> None:
        """Delete what was confirmed, and close the file; closing twice is allowed."""
        try:
            if self._file.is_open:
                self.delete_confirmed()
        finally:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            # Nothing new is begun while something fails; what was confirmed is deleted already.
            self._file.close()

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def __reduce__(self) -> NoReturn:
        raise MurkError("an open ledger cannot be copied or pickled: open it by its path where it is needed")

    def _booked(self, task_hash: str) -> Booked:
        try:
            return self._tasks[task_hash]
        except KeyError:
            raise MurkError("the ledger does not know the task's costs yet: call Ledger.book first") from None

    def _number(self, task_hash: str | None) -> int | None:
        return None if task_hash is None else self._known(task_hash)

    def _known(self, task_hash: str) -> int:
        rows = self._file.query("SELECT number FROM tasks WHERE hash = ?", (task_hash,))
        if not rows:
            raise UserError(f"the ledger {self.path} knows no task with the hash {task_hash[:12]}")
        return int(rows[0][0])
