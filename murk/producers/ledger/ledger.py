"""Accounts of what people have spent, with the outbox of releases that wait to be sent."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from sqlite3 import Connection
from typing import TYPE_CHECKING, NoReturn, Self

from murk.errors import MurkError, UserError
from murk.privacy import PrivacyLoss
from murk.producers.ledger.costs import (
    BookedTask,
    Cap,
    CapChange,
    Charge,
    Costs,
    check_tighter,
    read_changes,
    remove_cap,
    set_cap,
)
from murk.producers.ledger.identity import Run, check_named, check_people, read_run, several_ways, strangers
from murk.producers.ledger.names import (
    KEY_BYTES,
    Key,
    NameKey,
    ReleaseRequests,
    delete_key,
    give_name,
    key_path,
    known_by,
    make_key,
    read_key,
)
from murk.producers.ledger.schema import LOST, LedgerFile
from murk.producers.ledger.spending import (
    DAY,
    Common,
    Owner,
    Queued,
    Spending,
    Windows,
    drop_unconfirmed,
    ranges,
)
from murk.stream.log.interface import truncate_time
from murk.task.windows import NONE

if TYPE_CHECKING:
    from murk.producers.ledger.held import Held
    from murk.producers.ledger.statements import Account, CapStatus, GroupSums, Totals

# `held` and `statements` are imported by the methods that need them: a device that releases needs neither.
_ERROR_CODE = "MURK-LEDGER-001"

TIDY_SECONDS = 1.0  # longest time that deleted releases stay in the write-ahead log while others are made
# Tables about people and their files.
_OF_PEOPLE = (
    "outbox",
    "held",
    "memos",
    "debits",
    "spending",
    "renewals",
    "withdrawals",
    "reported",
    "reports",
    "runs",
    "sources",
)
# Query: whether any name or file is stored.
_NAMED = " UNION ".join(
    [*(f"SELECT 1 FROM {table} WHERE home = 0" for table in ("spending", "withdrawals")), "SELECT 1 FROM sources"]
)


def _today() -> int:
    return truncate_time(time.time(), DAY)


class Names:
    """Stored names of people and files in one open ledger; raises `UserError` if the ledger is older than its key."""

    def __init__(self, file: LedgerFile) -> None:
        self._file = file
        self._key: NameKey | None = None
        self._is_new = False
        self._sources: dict[str, int] = {}
        if file.closed_on is not None:
            delete_key(file.path)
            return
        # Look for the key first: it gets its final name only after the ledger has stored its fingerprint.
        named = key_path(file.path).exists()
        fingerprint = self._fingerprint()
        if fingerprint is None and named:
            raise UserError(
                f"the ledger {file.path} has no record of the key beside it ({key_path(file.path).name}): it is an "
                "older copy, in which later spending is missing. Put back the newest intact copy of the ledger before "
                "anything else is released",
                code=LOST,
            )
        if fingerprint is not None and not named:
            give_name(file.path, fingerprint)

    @property
    def is_keyed(self) -> bool:
        """Whether the ledger has a key, which is made when the first name or file is stored."""
        return self._fingerprint() is not None

    def missing(self) -> str | None:
        """Return why people cannot be looked up by name (the key is lost or wrong), or None."""
        try:
            self.reading()
            return None
        except UserError as error:
            return str(error)

    def reading(self) -> NameKey:
        """Return the key for lookups; before the first name is stored, a random key that matches nobody."""
        if self._key is None:
            fingerprint = self._fingerprint()
            if fingerprint is None:
                return NameKey(secrets.token_bytes(KEY_BYTES))
            self._key = read_key(self._file.path, fingerprint)
        return self._key

    def writing(self, connection: Connection) -> NameKey:
        """Return the key, within a transaction that stores names; make one if there is none."""
        if self._key is not None:
            return self._key
        fingerprint = self._fingerprint(connection)
        if fingerprint is None:
            if connection.execute(_NAMED).fetchone():
                raise UserError(
                    f"the ledger {self._file.path} is damaged: it holds hashed names and does not record by which key. "
                    "Put back its newest intact copy before anything else is released",
                    code=LOST,
                )
            key = make_key(self._file.path)
            connection.execute("INSERT INTO meta VALUES ('key', ?)", (key.fingerprint,))
            self._is_new = True
            # The key is not cached: the transaction may still be rolled back, and the key with it.
            return key
        key = read_key(self._file.path, fingerprint)
        if not self._is_new:
            self._key = key
        return key

    def called(self, connection: Connection, people: Sequence[str] | None) -> NameKey:
        """Return the key for storing names of a block's ``people`` (None if each row is a person)."""
        return NameKey(None) if people is None else self.writing(connection)

    def opening(self) -> NameKey:
        """Return the key that decrypts the outbox."""
        return self.reading() if self.is_keyed else NameKey(None)

    def source(self, digest: str, connection: Connection | None = None) -> str:
        """Return the stored name of a digest; pass the ``connection`` of a transaction that may store it."""
        return (self.reading() if connection is None else self.writing(connection)).source(digest)

    def source_number(self, connection: Connection, digest: str | None) -> int:
        """Return the number of a digest, assigning one if it is new; 0 for records that come from no file."""
        if digest is None:
            return 0
        if digest not in self._sources:
            called = self.source(digest, connection)
            row = connection.execute("SELECT number FROM sources WHERE digest = ?", (called,)).fetchone()
            if row is None:
                # The number is not cached: the transaction may still be rolled back.
                return int(connection.execute("INSERT INTO sources (digest) VALUES (?)", (called,)).lastrowid or 0)
            self._sources[digest] = int(row[0])
        return self._sources[digest]

    def committed(self) -> None:
        """Give a new key its final name; call this after the transaction has committed."""
        if self._is_new:
            self._is_new = False
            if fingerprint := self._fingerprint():
                give_name(self._file.path, fingerprint)

    def _fingerprint(self, connection: Connection | None = None) -> str | None:
        query = "SELECT value FROM meta WHERE key = 'key'"
        rows = self._file.query(query) if connection is None else connection.execute(query).fetchall()
        return str(rows[0][0]) if rows else None


class Ledger:
    """Accounts of any number of people in one SQLite file, with the outbox of their releases.

    A release is paid in integer units of `PrivacyLoss`, rounded up, and must fit every promised cap: over all tasks,
    for its task and for its level, each in its own currency. A block of releases and its debits are written in one
    transaction (``synchronous=FULL``) before anything is sent: a crash may lose a report, never a debit. One object
    serves one thread; any number of processes may open the file.

    Opening reads the whole file once. It raises a UserError for a file that is damaged, foreign, empty, older than
    ``LEDGER.last`` beside it, or of another version or identity. An older copy of the whole folder cannot be detected.
    Raises MurkError if the file cannot be opened or made.

    >>> import tempfile
    >>> with Ledger(tempfile.mkdtemp() + "/ledger.db") as ledger:
    ...     ledger.totals().releases
    0

    Parameters
    ----------
    path, identity
        The file, and the identity that it must have, if given; a missing file is then refused, not made.
    create, timeout
        Whether a missing file is made, and seconds to wait for another process's transaction.
    """

    def __init__(
        self, path: str | Path, *, identity: str | None = None, create: bool = True, timeout: float = 30
    ) -> None:
        self._file = LedgerFile(path, create=create, timeout=timeout, identity=identity)
        try:
            self.names = Names(self._file)
        except BaseException:
            self._file.close()
            raise
        self._prices = Costs()
        self._common = Common(self._prices)
        self._tasks: dict[str, BookedTask] = {}
        # Confirmed releases to delete, as ranges; whether the write-ahead log may hold deleted ones; when it was
        # emptied.
        self._confirmed: list[tuple[int, int]] = []
        self._left, self._tidied = False, time.monotonic()
        self.identity = self._file.identity
        """Random identifier, drawn when the ledger was made."""
        self.check_thread = self._file.check_owner
        """Raises a MurkError in any thread or process but the one that opened the ledger; does not read the file."""

    @property
    def path(self) -> Path:
        """The file."""
        return self._file.path

    @property
    def next_number(self) -> int:
        """Number of the next release. Numbers grow and are never reused."""
        return int(self._file.query("SELECT value FROM meta WHERE key = 'next'")[0][0])

    def bind(
        self,
        log_identity: str,
        task_hash: str,
        *,
        name: str = "",
        simulated: bool | None = None,
        window: str = NONE,
        known: str = "",
        archive: str = "",
    ) -> None:
        """Bind a task to the log that its releases go to; raise a UserError if they went to another log.

        ``known`` names the columns that are sent as they are; ``archive`` says what people are told about an archive.
        """
        if self.closed_on is not None:
            raise self._file.was_closed()
        query = "SELECT log, name FROM tasks WHERE hash = ?"
        bound = self._file.query(query, (task_hash,))
        if not bound:
            with self._file.write() as connection:
                connection.execute(
                    "INSERT INTO tasks (hash, name, log, simulated, window, known, archive) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?) "
                    "ON CONFLICT (hash) DO NOTHING",
                    (task_hash, name, log_identity, simulated, window, known, archive),
                )
            bound = self._file.query(query, (task_hash,))
        if bound[0][0] != log_identity:
            raise UserError(
                f"people of the ledger {self.path} release to the task {bound[0][1] or task_hash[:12]!r} on another "
                f"log (identity {bound[0][0][:8]}, not {log_identity[:8]}), and no record is released twice. Use that "
                "log. (A task of another name may ask these people again, at additional cost; --lifetime caps the sum.)"
            )

    def book(
        self,
        task_hash: str,
        charges: Sequence[Charge],
        *,
        caps: Sequence[tuple[str, PrivacyLoss]] = (),
        renewing: Sequence[tuple[str, PrivacyLoss]] = (),
        lifetime: PrivacyLoss | None = None,
        repeats: bool = False,
    ) -> None:
        """Record the costs of a bound task's releases at each level, and the caps promised to everyone.

        ``caps`` are (level, amount) pairs, with '' for any level; all of them hold. Those in ``renewing`` hold in each
        window of the task. ``lifetime`` is a cap over all tasks. With ``repeats``, unchanged answers are repeated at no
        cost. Raises UserError if a cap is larger than the one promised before.
        """
        self._common.forget()
        with self._file.write() as connection:
            row = connection.execute("SELECT number FROM tasks WHERE hash = ?", (task_hash,)).fetchone()
            if row is None:
                raise MurkError("the task is not tied to a log yet: call Ledger.bind first")
            task = int(row[0])
            repeated = [each.repeated() for each in charges] if repeats else []
            numbers = self._prices.numbers(connection, task, [*charges, *repeated])
            promised = [(task, level, amount, False) for level, amount in caps]
            promised += [(task, level, amount, True) for level, amount in renewing]
            promised += [(0, "", lifetime, False)] if lifetime is not None else []
            for scope, level, amount, renews in promised:
                set_cap(connection, check_tighter(self.path, connection, scope, level, amount, renews=renews), _today())
        # Another producer may have booked other levels of a grid.
        before, names = self._tasks.get(task_hash, BookedTask(task, {}, {})), [each.level for each in charges]
        levels = {**before.levels, **dict(zip(names, numbers, strict=False))}
        free = dict(zip(names, numbers[len(names) :], strict=False))
        self._tasks[task_hash] = BookedTask(task, levels, {**before.repeats, **free})

    def loosen(
        self,
        cap: PrivacyLoss,
        *,
        task_hash: str | None = None,
        level: str = "",
        renews: bool = False,
        instead_of: PrivacyLoss | None = None,
    ) -> None:
        """Raise a cap in its currency, with its owners' consent; without a task, the cap over all tasks.

        With ``renews`` the cap holds in each window of the task. The ledger records the day and both caps (`changes`).

        ``instead_of`` is a promised cap of another currency, or in tcdp of another omega; the new cap replaces it in
        the same transaction. Raises UserError, and changes nothing, if ``instead_of`` is not promised in the same
        scope.
        """
        self._common.forget()
        scope, today = (self._optional_number(task_hash) or 0, level), _today()
        with self._file.write() as connection:
            if instead_of is not None:
                same = Cap(*scope, instead_of.currency, instead_of.units, instead_of.delta_units, renews)
                if not remove_cap(connection, same, today):
                    raise UserError(
                        f"the ledger {self.path} promises no cap of {instead_of} in this scope: give one of "
                        "Ledger.promises"
                    )
            set_cap(connection, Cap(*scope, cap.currency, cap.units, cap.delta_units, renews), today)

    def changes(self) -> tuple[CapChange, ...]:
        """Return all changes of promised caps, the earliest first; a cap's first promise counts as a change, too."""
        return read_changes(self._file)

    @property
    def closed_on(self) -> int | None:
        """Day on which `close_accounts` was called (seconds since 1970), or None."""
        return self._file.closed_on

    def close_accounts(self) -> None:
        """Delete all accounts and the key of names, for good; afterwards nobody can release with this ledger.

        Tasks, costs, caps and their changes stay. Nobody's spending is known afterwards, so further tasks with another
        ledger give these people full budgets again. If a crash comes between the two deletions, the next opening
        deletes the key.
        """
        self._common.forget()
        with self._file.write() as connection:
            for table in _OF_PEOPLE:
                connection.execute(f"DELETE FROM {table}")
                # This also stops a process that has the ledger open now.
                connection.execute(
                    f"CREATE TRIGGER closed_{table} BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'closed'); END"
                )
            connection.execute("DELETE FROM meta WHERE key = 'key'")
            connection.execute("INSERT INTO meta VALUES ('closed', ?)", (_today(),))
        self._confirmed.clear()
        self.names = Names(self._file)
        self._file.empty_log()

    def promises(self, task_hash: str | None = None) -> list[Cap]:
        """Return the caps of a task, or the caps over all tasks (None)."""
        query = f"SELECT {Cap.columns} FROM promises WHERE task = ? ORDER BY level, currency, renews"
        return [Cap(*row) for row in self._file.query(query, (self._optional_number(task_hash) or 0,))]

    @contextmanager
    def spending(self, task_hash: str, requests: ReleaseRequests) -> Iterator[Spending]:
        """Decide which requests are granted, and write debits, releases and progress in one transaction.

        Inside the ``with`` block the caller randomizes for ``granted`` only and passes the bytes to ``freeze``. Raises
        UserError for an unknown level or an invalid name, MurkError if the ledger cannot be written. After any error
        nothing was debited, and nothing may be sent.
        """
        booked = self._booked(task_hash)
        requests = requests.checked()
        common = self._common
        with self._write() as connection:
            common.refresh(connection)
            common.forget()
            source = self.names.source_number(connection, requests.source)
            if (booked.number, source) not in common.recognised:
                check_named(connection, self.path, booked, source, common)
            names, sealing = self.names.called(connection, requests.people), self.names.writing(connection)
            spend = Spending(connection, booked, source, requests, common, names=names, sealing=sealing)
            spend.decide()
            yield spend
            spend.write()
        self._left |= spend.held_before
        common.keep(spend.numbers.stop)
        if spend.granted:
            self._file.note_last(spend.numbers.stop)

    def pending(self, task_hash: str | None = None) -> int:
        """Count the releases in the outbox, of one task or of all."""
        self.delete_confirmed()
        task, query = self._optional_number(task_hash), "SELECT count(*) FROM outbox WHERE ? IS NULL OR task = ?"
        return int(self._file.query(query, (task, task))[0][0])

    def queued(self, task_hash: str, after: int = 0, limit: int = 1000) -> list[Queued]:
        """Read releases from the outbox in ascending order of their numbers, beginning after ``after``."""
        columns = ", ".join(Queued._fields)
        query = f"SELECT {columns} FROM outbox WHERE number > ? AND task = ? ORDER BY number LIMIT ?"
        return [Queued(*row) for row in self._file.query(query, (after, self._booked(task_hash).number, limit))]

    def held(self, task_hash: str, now: float) -> list[Held]:
        """Return the held records that are due at ``now``: those of the earliest windows first, then by due time.

        A person's due time is drawn anew for each window, so that it does not link their answers.
        """
        query = "SELECT window, level, record FROM held WHERE task = ? AND due <= ? ORDER BY window, due"
        rows = self._file.query(query, (self._booked(task_hash).number, int(now)))
        from murk.producers.ledger.held import read_held

        return list(read_held(iter(rows), self.names.reading())) if rows else []

    def next_due(self, task_hash: str) -> int | None:
        """Return when the next held record is due, in seconds since 1970; None if none is held."""
        due = self._file.query("SELECT min(due) FROM held WHERE task = ?", (self._booked(task_hash).number,))[0][0]
        return None if due is None else int(due)

    def is_queued(self, task_hash: str, number: int) -> bool:
        """Return whether a release still waits for the log's confirmation."""
        self.delete_confirmed()
        query = "SELECT 1 FROM outbox WHERE number = ? AND task = ?"
        return bool(self._file.query(query, (number, self._booked(task_hash).number)))

    def confirm(self, numbers: Sequence[int]) -> None:
        """Delete releases that are on the log; if that fails, the next transaction does it, and reports the error."""
        self._confirmed.extend(ranges(numbers))
        with suppress(MurkError):
            self.delete_confirmed()
            if time.monotonic() - self._tidied > TIDY_SECONDS:
                self.tidy()

    def delete_confirmed(self) -> None:
        """Delete confirmed releases whose deletion failed before."""
        if self._confirmed:
            # If a power failure restores releases, the log is searched for them again.
            with self._write(waits=False):
                pass

    def tidy(self) -> None:
        """Empty the write-ahead log if it may hold deleted releases and no other process uses the file."""
        self._tidied = time.monotonic()
        if self._left and self._file.empty_log():
            self._left = False

    @contextmanager
    def _write(self, *, waits: bool = True) -> Iterator[Connection]:
        """Run the block in a transaction, which also deletes confirmed releases: commit at its end, or roll back."""
        with self._file.write(waits=waits) as connection:
            if deleted := len(self._confirmed):
                connection.executemany("DELETE FROM outbox WHERE number BETWEEN ? AND ?", self._confirmed)
            yield connection
        self.names.committed()
        # Only after the commit: a rollback restores the bytes.
        if deleted:
            self._left = True
            del self._confirmed[:deleted]

    def expire(self, task_hash: str, now: float, *, through: int | None = None) -> int:
        """Delete expired releases (up to a number) that were not confirmed, and return how many. Debits stay."""
        with self._write() as connection:
            where = "task = ? AND expires <= ? AND (? IS NULL OR number <= ?)"
            values = self._booked(task_hash).number, int(now), through, through
            return drop_unconfirmed(connection, self.names.writing(connection), where, values)

    def withdraw(
        self, person: Key, *, task_hash: str | None = None, source: str | None = None, now: float | None = None
    ) -> int:
        """Stop all further releases of a person, delete their releases in the outbox, and return how many were deleted.

        Held records and kept answers are deleted, too. What was spent stays spent, and the log may have some of the
        deleted releases. A withdrawal from a task holds for all tasks of its name. ``person`` is a name, or a row of
        the file with the digest ``source``; ``now`` is recorded to the day.
        """
        task = self._optional_number(task_hash)
        person = known_by(person, source)
        with self._write() as connection:
            self._common.forget()
            home = self.names.source_number(connection, source)
            named = [str(person)] if source is None else None
            stored_name = self.names.called(connection, named).person(person)
            connection.execute(
                "INSERT INTO withdrawals VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
                (home, stored_name, task or 0, truncate_time(time.time() if now is None else now, DAY)),
            )
            if source is None:
                where = "person = ? AND (? IS NULL OR task IN (SELECT number FROM tasks WHERE name = (%s)))"
                of_task = "SELECT name FROM tasks WHERE number = ?"
                for table in ("held", "memos"):
                    connection.execute(f"DELETE FROM {table} WHERE {where % of_task}", (stored_name, task, task))
            key, owner = self.names.writing(connection), Owner(home, stored_name)
            dropped = drop_unconfirmed(connection, key, "? IS NULL OR task = ?", (task, task), owner)
            # The withdrawal takes a number, which shows whether a copy of the ledger knows of it.
            ((following,),) = connection.execute("UPDATE meta SET value = value + 1 WHERE key = 'next' RETURNING value")
        self._file.note_last(int(following))
        self._left = True
        self.tidy()
        return dropped

    def account(self, person: Key, *, source: str | None = None) -> Account:
        """Return an account: what was promised, spent, sent and refused. ``person`` is a name, or a row of a file."""
        from murk.producers.ledger import statements

        person = known_by(person, source)
        self.delete_confirmed()
        if source is None:
            return statements.account(self._file, Owner(0, self.names.reading().person(person)), self.names.opening())
        rows = self._file.query("SELECT number FROM sources WHERE digest = ?", (self.names.source(source),))
        return statements.account(self._file, Owner(int(rows[0][0]) if rows else -1, person), self.names.opening())

    def withdrawn(self, source: str, *, task_name: str) -> frozenset[int]:
        """Return the rows of a file whose people have withdrawn from all tasks, or from tasks of this name."""
        query = """SELECT person FROM withdrawals JOIN sources ON sources.number = home
                   WHERE digest = ? AND (task = 0 OR task IN (SELECT number FROM tasks WHERE name = ?))"""
        return frozenset(person for (person,) in self._file.query(query, (self.names.source(source), task_name)))

    def has_released(self, source: str, *, task_name: str) -> bool:
        """Return whether people of a file have released to any task of this name, whatever its public sample was."""
        query = """SELECT 1 FROM runs JOIN sources ON sources.number = source JOIN tasks ON tasks.number = runs.task
                   WHERE digest = ? AND name = ? AND next_row > 0"""
        return bool(self._file.query(query, (self.names.source(source), task_name)))

    def knows(self, task_hash: str) -> bool:
        """Return whether work on a task has begun with this ledger."""
        return bool(self._file.query("SELECT 1 FROM tasks WHERE hash = ?", (task_hash,)))

    def tasks_named(self, name: str) -> list[str]:
        """Return the hashes of all tasks of a name, or raise a UserError if there are none."""
        tasks = self._file.query("SELECT name, hash FROM tasks ORDER BY number")
        hashes = [task_hash for other, task_hash in tasks if other == name]
        if not hashes:
            names = ", ".join(dict.fromkeys(other for other, _ in tasks)) or "none"
            raise UserError(f"the ledger {self.path} knows no task of the name {name!r}: it knows {names}")
        return hashes

    def together(self) -> tuple[CapStatus, ...]:
        """Return the largest amount that anyone has spent over all tasks, with each cap over all tasks."""
        from murk.producers.ledger import statements

        return statements.together(self._file)

    def describe_together(self) -> list[str]:
        """Describe `together` in sentences, with a caution if one person may have several accounts."""
        from murk.producers.ledger.statements import describe_together

        return [*describe_together(self.together(), self.totals().who), *several_ways(self._file.query)]

    def totals(self) -> Totals:
        """Return sums over all people in the ledger; they identify nobody."""
        from murk.producers.ledger import statements

        self.delete_confirmed()
        return statements.totals(self._file)

    def group_sums(self, task_hash: str) -> GroupSums:
        """Return the totals over the people of a task that may be reported to others."""
        from murk.producers.ledger.statements import GroupSums

        return GroupSums(self._file, self._task_number(task_hash), self.names.opening)

    def windows(self, task_hash: str, source: str | None = None) -> Windows:
        """Return the windows of organisations with records of one file, by its digest, or with records from no file."""
        digest = None if source is None else self.names.source(source)
        return Windows(self._file, self._task_number(task_hash), digest, self.names.reading)

    def begin_run(self, task_hash: str, source: str, *, people: str = "row", excluded: Sequence[int] = ()) -> Run:
        """Begin work on a file with a booked task, or return the progress made so far.

        ``people`` as in ``Run``; ``excluded`` are rows that release nothing (a public sample). Raises UserError if the
        file's people were named in another way before, or may have released from another file.
        """
        task = self._booked(task_hash).number
        begun = self.run(task_hash, source) is not None
        check_people(self._file, task, self.names.source(source), people, begun=begun)
        if not begun:
            with self._write() as connection:
                row = (task, self.names.source_number(connection, source), *Run(people, tuple(excluded)).row())
                connection.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING", row)
        run = self.run(task_hash, source)
        if run is None or run.people != people:
            raise UserError(
                f"the people of this file were named by {run and run.people} when work on it began. Named by "
                f"{people}, they would get new accounts with nothing spent: name them as before"
            )
        return run

    def strangers(self, source: str, people: str) -> list[str]:
        """Return the ways in which people of real tasks were named that cannot be compared with ``people``."""
        return strangers(self._file.query, self.names.source(source), people)

    def order_key(self, task_hash: str, source: str) -> bytes:
        """Return the key of the order in which the rows of a begun file release to a task.

        The order's key is derived from the ledger's random key: it lasts as long as that key, and is not stored.
        """
        return self.names.opening().order(task_hash, source)

    def run(self, task_hash: str, source: str) -> Run | None:
        """Return the progress through a file; None if it has not begun."""
        return read_run(self._file, task_hash, self.names.source(source))

    def close(self) -> None:
        """Delete confirmed releases and close the file. Closing twice is allowed."""
        try:
            if self._file.is_open:
                self.delete_confirmed()
        finally:
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is None:
            self.close()
        else:
            # Do not begin a transaction while an error propagates.
            self._file.close()

    def __repr__(self) -> str:
        return f"Ledger({str(self.path)!r})"

    def __reduce__(self) -> NoReturn:
        raise MurkError("an open ledger cannot be copied or pickled: open it by its path where it is needed")

    def _booked(self, task_hash: str) -> BookedTask:
        try:
            return self._tasks[task_hash]
        except KeyError:
            raise MurkError("the ledger does not know the task's costs yet: call Ledger.book first") from None

    def _optional_number(self, task_hash: str | None) -> int | None:
        return None if task_hash is None else self._task_number(task_hash)

    def _task_number(self, task_hash: str) -> int:
        rows = self._file.query("SELECT number FROM tasks WHERE hash = ?", (task_hash,))
        if not rows:
            raise UserError(f"the ledger {self.path} knows no task with the hash {task_hash[:12]}")
        return int(rows[0][0])
