"""The outbox, organisations' windows, and the transaction of one block of releases: who may release, what is written.

If a process dies, the accumulated state of its window is lost. The ledger's note of the window, which does not depend
on any record's value, lets the next process report the loss.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from sqlite3 import Connection
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

from murk._internal.sqlite import Database, row_checksum
from murk.errors import MurkError, UserError
from murk.privacy import PrivacyLoss, cap_of
from murk.producers.ledger.costs import BookedTask, Cap, Costs, history_text, parse_history
from murk.producers.ledger.names import Id, Key, NameKey, ReleaseRequests

if TYPE_CHECKING:
    from murk.producers.ledger.held import HeldRecords
    from murk.producers.ledger.memos import Memo

_ERROR_CODE = "MURK-LEDGER-001"

Ending = Literal["released", "refused", "left out"]

# The table is made with the first window. `key` is that of the window's debit: the window's first row in the file, or
# its name. `lost` counts processes that died during the window; `next_row` is the row after its last one (0 without a
# file).
TABLE = """
CREATE TABLE IF NOT EXISTS windows (
    task INTEGER NOT NULL, source INTEGER NOT NULL, key NOT NULL, person NOT NULL,
    opened INTEGER NOT NULL, state TEXT NOT NULL, lost INTEGER NOT NULL DEFAULT 0,
    records INTEGER NOT NULL DEFAULT 0, next_row INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (task, source, key, person)) WITHOUT ROWID"""

HAS_WINDOWS = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'windows'"


@dataclass(frozen=True, slots=True)
class WindowCounts:
    """Numbers of windows by how they ended, and of their records; ``lost`` counts processes that died in a window."""

    released: int = 0
    refused: int = 0
    left_out: int = 0
    lost: int = 0
    open: int = 0
    records: int = 0
    records_left_out: int = 0


class WindowNotes:
    """Writes the states of windows within one transaction of the ledger; made by `Spending.windows`."""

    _where = "WHERE task = ? AND source = ? AND key = ? AND person = ?"

    def __init__(self, connection: Connection, task: int, source: int, names: NameKey) -> None:
        self._connection, self._names, self._task, self._source = connection, names, task, source
        connection.execute(TABLE)

    def state(self, key: Key, person: Key) -> str | None:
        """Return a window's state; None if it is unknown."""
        query = f"SELECT state FROM windows {self._where}"
        row = self._connection.execute(query, self._identity(key, person)).fetchone()
        return None if row is None else str(row[0])

    def released(self, person: Key) -> int:
        """Return how many windows of an organisation were released to the task, from any file."""
        query = "SELECT count(*) FROM windows WHERE task = ? AND person = ? AND state = 'released'"
        return int(self._connection.execute(query, (self._task, self._names.person(person))).fetchone()[0])

    def begin(self, key: Key, person: Key, opened: int, state: Literal["open", "refused"]) -> None:
        """Record that a window was opened or refused; a lost window is opened again."""
        self._connection.execute(
            """INSERT INTO windows (task, source, key, person, opened, state) VALUES (?, ?, ?, ?, ?, ?)
               ON CONFLICT DO UPDATE SET opened = excluded.opened, state = excluded.state""",
            (*self._identity(key, person), opened, state),
        )

    def end(self, key: Key, person: Key, ending: Ending, records: int, next_row: int) -> None:
        """Record how a window ended."""
        # Another process may have marked it as lost by mistake.
        change = (
            f"UPDATE windows SET lost = lost - (state = 'lost'), state = ?, records = ?, next_row = ? {self._where}"
        )
        self._connection.execute(change, (ending, records, next_row, *self._identity(key, person)))

    def _identity(self, key: Key, person: Key) -> tuple[int, int, Id | None, Id]:
        name = self._names.person(person)
        return self._task, self._source, self._names.record(key, name), name


class Windows:
    """A task's windows with records from one file, ``source`` (None: no file); ``names`` returns the key of names."""

    def __init__(self, file: Database, task: int, source: str | None, names: Callable[[], NameKey]) -> None:
        self._file, self._task, self._source, self._names = file, task, source, names

    _where = (
        "task = ? AND source = coalesce((SELECT number FROM sources WHERE digest = ?), CASE WHEN ? THEN 0 END) "
        "AND (? IS NULL OR person = ?)"
    )

    def give_up(self, person: Key | None = None) -> int:
        """Mark open windows (of one organisation, or all) as lost with their process, and return their number."""
        if not _windows_exist(self._file):
            return 0
        change = f"UPDATE windows SET state = 'lost', lost = lost + 1 WHERE state = 'open' AND {self._where}"
        values = self._values(person)  # before the transaction, as it reads the key
        with self._file.write() as connection:
            return connection.execute(change, values).rowcount

    def count(self, person: Key) -> int:
        """Return how many windows an organisation has begun."""
        query = f"SELECT count(*) FROM windows WHERE {self._where}"
        return int(self._file.query(query, self._values(person))[0][0]) if _windows_exist(self._file) else 0

    def done(self, people: Iterable[str]) -> Mapping[str, int]:
        """Return, for each organisation with an ended window, the row after the last one."""
        if not _windows_exist(self._file):
            return {}
        query = f"""SELECT person, max(next_row) FROM windows
                    WHERE state IN ('released', 'refused', 'left out') AND {self._where} GROUP BY person"""
        ended = dict(self._file.query(query, self._values(None)))
        called = {person: self._names().person(person) for person in people}
        return {person: ended[name] for person, name in called.items() if name in ended}

    def sums(self, person: Key | None = None) -> WindowCounts:
        """Count the windows of an organisation, or of all organisations."""
        return count_windows(self._file, self._where, self._values(person))

    def _values(self, person: Key | None) -> tuple[object, ...]:
        name = None if person is None else self._names().person(person)
        return self._task, self._source, self._source is None, name, name


def _windows_exist(file: Database) -> bool:
    """Return whether a ledger has ever recorded a window."""
    return bool(file.query(HAS_WINDOWS))


def count_windows(file: Database, where: str, values: tuple[object, ...]) -> WindowCounts:
    """Count the windows that satisfy a condition."""
    if not _windows_exist(file):
        return WindowCounts()
    query = f"SELECT state, count(*), sum(records), sum(lost) FROM windows WHERE {where} GROUP BY state"
    rows = {state: numbers for state, *numbers in file.query(query, values)}
    states = "released", "refused", "left out", "open"
    released, refused, left_out, opened = (rows.get(state, (0, 0)) for state in states)
    lost = sum(numbers[-1] for numbers in rows.values())
    return WindowCounts(released[0], refused[0], left_out[0], lost, opened[0], released[1], left_out[1])


_PLAIN, _SEALED = b"\0", b"\1"
_NONCE: Final = 16
_PAYLOAD: Final = 26
_HOME_BYTES: Final = 8


class Queued(NamedTuple):
    """A release in the outbox; ``since`` is the first offset at which the log can have it."""

    number: int
    partition: int
    message: bytes
    since: int
    expires: int


def queued_checksum(number: int, task: int, partition: int, since: int, expires: int, message: bytes) -> int:
    """Return the checksum of a release in the outbox."""
    return row_checksum("outbox", number, task, partition, since, expires, message)


class Owner(NamedTuple):
    """The account that paid for a release: the file whose rows are people (0: people with a name), and the person."""

    home: int
    person: Id


def seal(owners: Sequence[Owner], key: NameKey) -> list[bytes]:
    """Encrypt owners, each with its own pad (BLAKE2b of a nonce under the key); without a secret, store them plain."""
    if key.secret is None:
        return [_PLAIN + json.dumps(owner).encode() for owner in owners]
    drawn = secrets.token_bytes(_NONCE * len(owners))
    nonces = [drawn[start : start + _NONCE] for start in range(0, len(drawn), _NONCE)]
    return [
        _SEALED + nonce + _under_pad(_payload(owner), nonce, key.secret)
        for owner, nonce in zip(owners, nonces, strict=True)
    ]


def unseal(sealed: bytes, key: NameKey) -> Owner:
    """Decrypt an owner; raise a ValueError if it was encrypted under another key."""
    if sealed[:1] == _PLAIN:
        return Owner(*json.loads(sealed[1:]))
    if key.secret is None or len(sealed) != 1 + _NONCE + _PAYLOAD:
        raise ValueError("sealed under another key")
    nonce, hidden = sealed[1 : 1 + _NONCE], sealed[1 + _NONCE :]
    data = _under_pad(hidden, nonce, key.secret)
    home, kind, person = int.from_bytes(data[:_HOME_BYTES], "big"), data[_HOME_BYTES], data[_HOME_BYTES + 1 :]
    if kind == 0 and not any(person[:-8]):
        return Owner(home, int.from_bytes(person, "big"))
    if kind == 1 and not any(person[16:]):
        return Owner(home, person[:16])
    raise ValueError("sealed under another key")


def count_by_owner(rows: Iterable[tuple[bytes, int]], key: NameKey) -> Counter[tuple[Owner, int]]:
    """Count releases by owner and price, from the columns ``owner`` and ``tariff``."""
    return Counter((unseal(owner, key), tariff) for owner, tariff in rows)


def drop_unconfirmed(
    connection: Connection, key: NameKey, where: str, values: tuple[Any, ...], owner: Owner | None = None
) -> int:
    """Delete unconfirmed releases (of one owner, or all), count them in their accounts, and return their number."""
    rows = connection.execute(f"SELECT number, owner, tariff FROM outbox WHERE {where}", values).fetchall()
    opened = [(number, unseal(sealed, key), tariff) for number, sealed, tariff in rows]
    chosen = [row for row in opened if owner in (None, row[1])]
    connection.executemany(
        "UPDATE spending SET dropped = dropped + 1 WHERE home = ? AND person = ? AND tariff = ?",
        [(*of, tariff) for _, of, tariff in chosen],
    )
    connection.executemany("DELETE FROM outbox WHERE number = ?", [(number,) for number, *_ in chosen])
    return len(chosen)


def ranges(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Return ascending numbers as ranges (first, last): 3, 4, 5, 9 as [(3, 5), (9, 9)]."""
    if type(numbers) is range and numbers.step == 1 and numbers:
        return [(numbers.start, numbers.stop - 1)]
    merged: list[tuple[int, int]] = []
    for number in numbers:
        if merged and number == merged[-1][1] + 1:
            merged[-1] = merged[-1][0], number
        else:
            merged.append((number, number))
    return merged


def _payload(owner: Owner) -> bytes:
    home, person = owner
    if isinstance(person, int):
        return home.to_bytes(_HOME_BYTES, "big") + b"\0" + person.to_bytes(_PAYLOAD - _HOME_BYTES - 1, "big")
    if not isinstance(person, bytes):
        raise TypeError("in a ledger with a key, a person must be the bytes of a hash or the number of a row")
    return home.to_bytes(_HOME_BYTES, "big") + b"\1" + person.ljust(_PAYLOAD - _HOME_BYTES - 1, b"\0")


def _under_pad(data: bytes, nonce: bytes, secret: bytes) -> bytes:
    pad = blake2b(nonce, key=secret, digest_size=_PAYLOAD, person=b"murk outbox").digest()
    return (int.from_bytes(data, "big") ^ int.from_bytes(pad, "big")).to_bytes(_PAYLOAD, "big")


DAY = 86_400  # times in the ledger are truncated to days (UTC), or to a task's coarser granularity
CHUNK = 256  # largest number of names in one query (old versions of SQLite allow 999 values)


@dataclass(frozen=True)
class Refusal:
    """A record that was not released, and why; it stays on the device.

    ``scope`` is the cap that would be exceeded ("lifetime", "task", "level", or "once" if the task takes one release),
    "late" for a window before the person's newest one, or "withdrawn". ``renews`` says that the cap holds in each
    window. ``needed`` is the cost, and ``left`` the cap's remainder, in the cap's currency; None if unknown.
    """

    person: Key
    key: Key | None
    level: str
    scope: str
    needed: PrivacyLoss | None = None
    left: PrivacyLoss | None = None
    renews: bool = False

    @property
    def reason(self) -> str:
        """The reason in plain words, without the person's name."""
        if self.scope == "withdrawn":
            return "the person has withdrawn"
        if self.scope == "late":
            return "the person has released in a later window, after which earlier windows are not answered"
        window = " in this window" if self.renews else ""
        if self.scope == "once":
            return f"the task takes one release of each person{window}, and this one has released before"
        cap = {
            "lifetime": "the cap over all tasks",
            "task": "the cap for this task",
            "level": f"the cap of one release at the level {self.level!r}",
        }[self.scope] + window
        if self.needed is None:
            return f"{cap} is kept in a currency in which the mechanism of this release has no valid bound"
        if self.left is None:
            return f"{cap} is kept in a currency in which an earlier release has no known cost: nothing is left"
        return f"{cap} has {self.left} left, and this release needs {self.needed}"


# The fields `scope`, `needed`, `left` and `renews` of a `Refusal`.
Lacking = tuple[str, PrivacyLoss | None, PrivacyLoss | None, bool]
Terms = tuple[Mapping[int, list[Cap]], dict[int, Lacking | None]]


@dataclass(slots=True)
class Renewal:
    """A person's newest window in a task, the number of windows so far, and the releases in the newest, by price."""

    newest: int
    windows: int
    history: dict[int, int]


class Common:
    """Cache of the ledger's shared state: next number, prices, caps, and whether anyone has withdrawn.

    SQLite's ``PRAGMA data_version`` shows whether another connection has written. This connection calls `forget` before
    it writes, and `keep` after the commit.
    """

    def __init__(self, prices: Costs) -> None:
        self.prices, self.next = prices, 0
        self.withdrawals = True
        self.recognised: set[tuple[int, int]] = set()
        """Pairs (task, source) whose people have passed `identity.check_named`."""
        self._version: int | None = None
        self._known: int | None = None
        self._terms: dict[int, Terms] = {}

    def refresh(self, connection: Connection) -> None:
        """Bring the cache up to date, within a writing transaction."""
        version = connection.execute("PRAGMA data_version").fetchone()[0]
        if version == self._version:
            return
        self.forget()
        self.next = int(connection.execute("SELECT value FROM meta WHERE key = 'next'").fetchone()[0])
        self.prices.refresh(connection)
        self.withdrawals = connection.execute("SELECT 1 FROM withdrawals LIMIT 1").fetchone() is not None
        self._terms = {}
        self.recognised = set()
        self._version = self._known = version

    def terms(self, connection: Connection, task: BookedTask) -> Terms:
        """Return a task's caps by price number, and cached decisions about people without earlier releases."""
        if task.number not in self._terms:
            rows = connection.execute(f"SELECT {Cap.columns} FROM promises WHERE task IN (0, ?)", (task.number,))
            caps = [Cap(*row) for row in rows]
            numbers = [*task.levels.items(), *self.free(task).items()]
            applying = {number: [cap for cap in caps if cap.level in ("", level)] for level, number in numbers}
            self._terms[task.number] = applying, {}
        return self._terms[task.number]

    def free(self, task: BookedTask) -> dict[str, int]:
        """Return the price numbers of repeated answers by level, including prices that other processes have booked."""
        if not task.repeats:
            return {}
        return {
            price.level: price.number for price in self.prices.values() if price.task == task.number and price.is_free
        }

    def forget(self) -> None:
        """Invalidate the cache before a write, until `keep` or `refresh`."""
        self._version = None

    def keep(self, following: int) -> None:
        """Validate the cache again after a commit that wrote only releases; ``following`` is the next number."""
        self.next, self._version = following, self._known


class Spending:
    """Decisions of `Ledger.spending` about one block, and what will be written.

    ``granted`` are the ascending positions, in the block, of records that may be released, and ``levels`` their levels.
    ``known`` maps positions of records released before to their releases' numbers, ``refusals`` positions to reasons.
    If the task repeats answers, ``memos`` maps positions to their people's last answers; at the positions
    ``only_repeats`` a cap over all windows is spent, so that only the last answer may be repeated.
    """

    def __init__(
        self,
        connection: Connection,
        task: BookedTask,
        source: int,
        requests: ReleaseRequests,
        common: Common,
        *,
        names: NameKey,
        sealing: NameKey,
    ) -> None:
        self.held_before = False  # whether held records were used, which may have been replaced or deleted
        self._connection, self._source, self._requests = connection, source, requests
        self._names, self._sealing = names, sealing
        self._booked, self._task = task, task.number
        self._common, self._prices = common, common.prices
        self._repeats = common.free(task)
        self._home = source if requests.people is None else 0
        # Without names, every row is a person, and its key is the person's name.
        self._own_names = cast(Sequence[Key], requests.keys if requests.people is None else requests.people)
        # From here on, names are stored ones (hashes); only refusals, which stay on the device, hold people's own
        # names.
        self._people: Sequence[Id] = self._own_names if requests.people is None else names.people(self._own_names)
        self._keys: Sequence[Id | None] = requests.keys
        if source == 0:
            self._keys = [names.record(key, person) for key, person in zip(requests.keys, self._people, strict=True)]
        self._first = common.next
        self._paid: list[int] = []
        self._messages: Sequence[bytes] | None = None
        self._addresses: Sequence[tuple[int, int]] = ()
        self._order: Sequence[int] = ()
        self._expires: int
        self._day: int | None = None
        self._progress: tuple[int, str] | None = None
        self.granted: list[int] = []
        self.levels: list[str] = []
        self.known: dict[int, int] = {}
        self.refusals: dict[int, Refusal] = {}
        self._renewed: dict[Id, Renewal] = {}
        self.memos: dict[int, Memo] = {}
        self.only_repeats: set[int] = set()
        self._new_memos: list[tuple[Id, Memo]] = []

    @property
    def numbers(self) -> range:
        """Numbers of the releases, in the order of ``granted``."""
        return range(self._first, self._first + len(self.granted))

    @property
    def messages(self) -> list[tuple[int, bytes]]:
        """The releases as (partition, bytes) pairs, in the order in which they are sent."""
        messages = self._messages or ()
        return [(self._addresses[at][0], messages[at]) for at in self._order]

    @property
    def windows(self) -> WindowNotes:
        """Records of organisations' windows, written in the same transaction."""
        return WindowNotes(self._connection, self._task, self._source, self._names)

    @property
    def held(self) -> HeldRecords:
        """Records held until their window ends, written in the same transaction."""
        # Imported here, as devices that hold nothing do not need it.
        from murk.producers.ledger.held import HeldRecords

        self.held_before = True
        return HeldRecords(self._connection, self._task, self._sealing)

    @property
    def people(self) -> Sequence[Id]:
        """Stored names of the people of all records."""
        return self._people

    @property
    def person(self) -> Id:
        """Stored name of the person of the first record."""
        return self._people[0]

    @property
    def key(self) -> NameKey:
        """The key that encrypts people's held records and memos in the ledger."""
        return self._sealing

    def repeat(self, place: int, memo: Memo) -> None:
        """Let the release at index ``place`` of ``granted`` repeat an answer, at no cost."""
        number, person = self._repeats[memo.level], self._people[self.granted[place]]
        self._paid[place], self.levels[place] = number, memo.level
        self._renewed[person].history = {number: 1}

    def keep_answer(self, place: int, memo: Memo) -> None:
        """Store the answer of the release at index ``place`` of ``granted``, to repeat it, if its person has a name."""
        if self._requests.people is None:
            return
        self._new_memos.append((self._people[self.granted[place]], memo))

    def cancel(self) -> None:
        """Write neither debits nor refusals; the caller only asks whether a release would be granted."""
        self.granted, self.levels, self._paid, self.refusals, self._renewed = [], [], [], {}, {}

    def decide(self) -> None:
        """Divide the block into granted, known and refused records; each decision counts the block's earlier grants."""
        known_records, history, withdrawn = self._known_records(), self._released(), self._withdrawn_people()
        caps, fresh = self._common.terms(self._connection, self._booked)
        windows, newest = self._requests.windows, self._newest()
        if windows is None and any(cap.renews for each in caps.values() for cap in each):
            raise MurkError("the budget of this task renews in each window: a request to release must give its window")
        wanted = [self._price_of(level) for level in self._requests.levels]
        for number in set(wanted) - fresh.keys():
            fresh[number] = self._lacking(caps[number], {}, {}, number)
        keep, memos = self._requests.keep_levels, self._memos()
        own_keys = self._source == 0
        for index, (key, person, asked) in enumerate(zip(self._keys, self._people, wanted, strict=True)):
            record = (key, person) if own_keys else key
            if record in known_records and key is not None:
                self.known[index] = known_records[record]
                continue
            past, number = history.get(person), asked
            if keep and past:
                levels = {self._prices[each].level for each in past if self._prices[each].task == self._task}
                if levels and self._prices[number].level not in levels:
                    number = self._price_of(min(levels))
            if person in withdrawn:
                self._refuse(index, number, ("withdrawn", None, None, False))
                continue
            current: dict[int, int] = {}
            renewal = newest.get(person)
            if windows is not None and renewal is not None and windows[index] <= renewal.newest:
                if windows[index] < renewal.newest:
                    self._refuse(index, number, ("late", None, None, False))
                    continue
                current = renewal.history
            lacking = fresh[number] if past is None else self._lacking(caps[number], past, current, number)
            memo = memos.get(person)
            if lacking is not None and not lacking[3] and memo is not None and memo.level in self._repeats:
                # A person without budget repeats their last answer, whatever their record is now: otherwise their
                # silence would disclose that the record has changed.
                number = self._repeats[memo.level]
                lacking = self._lacking(caps[number], past or {}, current, number)
                self.only_repeats.add(index)
            if lacking is not None:
                # A reason with amounts would disclose whether the previous answer was a new one.
                answered = bool(self._repeats) and bool(current)
                self._refuse(index, number, ("once", None, None, True) if answered else lacking)
                continue
            if memo is not None:
                self.memos[index] = memo
            if self._booked.repeats and person in self._renewed:
                raise MurkError("a block of a task that repeats answers holds each person once")
            if past is None:
                past = history[person] = {}
            past[number] = past.get(number, 0) + 1
            if windows is not None:
                count = 1 if renewal is None else renewal.windows + (windows[index] > renewal.newest)
                history_now = {**current, number: current.get(number, 0) + 1}
                newest[person] = self._renewed[person] = Renewal(windows[index], count, history_now)
            known_records[record] = self._first + len(self.granted)
            self.granted.append(index)
            self._paid.append(number)
        self.levels = [self._prices[number].level for number in self._paid]

    def freeze(
        self,
        messages: Sequence[bytes],
        partitions: Sequence[int],
        since: Sequence[int],
        expires: int,
        day: int | None = None,
        order: Sequence[int] | None = None,
    ) -> None:
        """Set the bytes to be sent, in the order of ``granted``.

        ``since`` is the present end offset of each release's partition: the log cannot have the release before that
        offset. ``expires`` is when to give up sending (seconds since 1970), ``day`` the recorded day. Messages are sent
        in ``order`` (positions in ``granted``), not in the order of debits; so after the log's confirmation nothing
        links messages to people.
        """
        if not len(messages) == len(partitions) == len(since) == len(self.granted):
            raise ValueError("each granted release needs one message, one partition and one offset")
        if order is None:
            order = range(len(messages))
        elif len(order) != len(messages) or set(order) != set(range(len(messages))):
            raise ValueError("`order` must list each granted release once")
        self._messages, self._order = messages, order
        self._addresses = list(zip(map(int, partitions), map(int, since), strict=True))
        self._expires, self._day = int(expires), day

    def progress(self, next_row: int, more: Mapping[str, int]) -> None:
        """Record the progress through the requests' file (see `Ledger.begin_run`), and add ``more`` to its counters."""
        key = self._task, self._source
        query = "SELECT next_row, counters FROM runs WHERE task = ? AND source = ?"
        row = self._connection.execute(query, key).fetchone()
        if row is None:
            raise MurkError("work on this file has not begun: call Ledger.begin_run first")
        counters = json.loads(row[1])
        for name, number in more.items():
            counters[name] = counters.get(name, 0) + number
        # Two processes may work through one file at once: neither sets the other back.
        self._progress = max(next_row, row[0]), json.dumps(counters)

    def write(self) -> None:
        """Write debits, releases, refusals and progress; raise a MurkError if granted releases were not made."""
        run, people, keys = self._connection.executemany, self._people, self._keys
        if self.granted:
            if self._messages is None:
                raise MurkError("releases were granted and not made: nothing was debited")
            home, task, source, expires = self._home, self._task, self._source, self._expires
            numbers = self.numbers
            rows = list(zip(numbers, self.granted, self._paid, strict=True))
            owners = seal([Owner(home, people[self.granted[at]]) for at in self._order], self._sealing)
            outbox = [
                (*row, owner, self._paid[at], queued_checksum(*row))
                for number, at, owner in zip(numbers, self._order, owners, strict=True)
                for row in [(number, task, *self._addresses[at], expires, self._messages[at])]
            ]
            # A record without a key is stored under its release's number.
            debits = [
                (task, source, number if keys[index] is None else keys[index], people[index], price, number)
                for number, index, price in rows
            ]
            run("INSERT INTO outbox VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", outbox)
            run("INSERT INTO debits VALUES (?, ?, ?, ?, ?, ?)", debits)
            run(
                # If an earlier release's day is unknown, the first day is, too.
                "INSERT INTO spending VALUES (?, ?, ?, 1, 0, 0, ?, ?) "
                "ON CONFLICT (home, person, tariff) DO UPDATE SET released = released + 1, "
                "first = CASE WHEN released THEN min(first, excluded.first) ELSE excluded.first END, "
                "last = coalesce(max(last, excluded.last), excluded.last, last)",
                [(home, people[index], price, self._day, self._day) for _, index, price in rows],
            )
            renewed = self._renewed.items()
            run(
                "REPLACE INTO renewals VALUES (?, ?, ?, ?, ?, ?)",
                [(task, home, who, one.newest, one.windows, history_text(one.history)) for who, one in renewed],
            )
            self._connection.execute("UPDATE meta SET value = ? WHERE key = 'next'", (numbers.stop,))
        if self._new_memos:
            from murk.producers.ledger.memos import covered

            memos = [(self._task, who, memo.level, covered(memo, self._sealing)) for who, memo in self._new_memos]
            run("REPLACE INTO memos VALUES (?, ?, ?, ?)", memos)
            self.held_before = True
        if self.refusals:
            run(
                "INSERT INTO spending VALUES (?, ?, ?, 0, 1, 0, NULL, NULL) "
                "ON CONFLICT (home, person, tariff) DO UPDATE SET refused = refused + 1",
                [(self._home, people[at], self._price_of(refusal.level)) for at, refusal in self.refusals.items()],
            )
        if self._progress is not None:
            self._connection.execute(
                "UPDATE runs SET next_row = ?, counters = ? WHERE task = ? AND source = ?",
                (*self._progress, self._task, self._source),
            )

    def _known_records(self) -> dict[Any, int]:
        query = "SELECT key, person, number FROM debits WHERE task = ? AND source = ? AND key IN ({})"
        keys = [key for key in self._keys if key is not None]
        if not keys:
            return {}
        rows = self._chunks(query, (self._task, self._source), keys)
        if self._source == 0:
            return {(key, person): number for key, person, number in rows}
        return {key: number for key, _, number in rows}

    def _released(self) -> dict[Id, dict[int, int]]:
        query = "SELECT person, tariff, released FROM spending WHERE home = ? AND person IN ({})"
        history: dict[Id, dict[int, int]] = {}
        for person, price, released in self._chunks(query, (self._home,), self._people):
            if released:
                history.setdefault(person, {})[price] = released
        return history

    def _newest(self) -> dict[Id, Renewal]:
        if self._requests.windows is None:
            return {}
        query = "SELECT person, newest, windows, history FROM renewals WHERE task = ? AND home = ? AND person IN ({})"
        rows = self._chunks(query, (self._task, self._home), self._people)
        return {person: Renewal(newest, windows, parse_history(text)) for person, newest, windows, text in rows}

    def _memos(self) -> dict[Id, Memo]:
        if not self._booked.repeats or self._requests.people is None:
            return {}
        # Imported here, as most tasks repeat nothing.
        from murk.producers.ledger.memos import uncovered

        query = "SELECT person, level, memo FROM memos WHERE task = ? AND person IN ({})"
        rows = self._chunks(query, (self._task,), self._people)
        return {person: uncovered(level, memo, self._sealing) for person, level, memo in rows}

    def _withdrawn_people(self) -> set[Id]:
        if not self._common.withdrawals:
            return set()
        # A withdrawal from a task holds for its name: a changed task keeps it.
        named = "SELECT number FROM tasks WHERE name = (SELECT name FROM tasks WHERE number = ? AND name <> '')"
        query = f"SELECT person FROM withdrawals WHERE home = ? AND (task IN (0, ?) OR task IN ({named}))"
        values = self._home, self._task, self._task
        return {person for (person,) in self._chunks(query + " AND person IN ({})", values, self._people)}

    def _chunks(self, query: str, values: tuple[Any, ...], names: Sequence[Id]) -> Iterator[Any]:
        if len(names) == 1:
            yield from self._connection.execute(query.format("?"), (*values, names[0]))
            return
        distinct = list(dict.fromkeys(names))
        for start in range(0, len(distinct), CHUNK):
            chunk = distinct[start : start + CHUNK]
            # Pad to a power of two by repeating a name, so that a few prepared statements serve every length.
            chunk += chunk[-1:] * ((1 << (len(chunk) - 1).bit_length()) - len(chunk))
            marks = ",".join("?" * len(chunk))
            yield from self._connection.execute(query.format(marks), (*values, *chunk))

    def _lacking(
        self, caps: Sequence[Cap], past: Mapping[int, int], current: Mapping[int, int], number: int
    ) -> Lacking | None:
        """Return the cap that a release would exceed after those in ``past`` (in its window: ``current``), or None."""
        for cap in caps:
            cost = self._prices[number].cost(cap.currency)
            spent = cap.spent(current if cap.renews else past, self._prices)
            if cost is not None and spent is not None:
                left = cap.units - spent[0], cap.delta_units - spent[1]
                if cost[0] <= left[0] and cost[1] <= left[1]:
                    continue
            scope = "lifetime" if cap.task == 0 else "level" if cap.level else "task"
            needed = None if cost is None else PrivacyLoss(cap.currency, *cost)
            if cost is None or spent is None:
                return scope, needed, None, bool(cap.renews)
            rest = PrivacyLoss(cap.currency, max(0, left[0]), max(0, left[1]))
            return scope, needed, rest, bool(cap.renews)
        for cap in caps:
            before = current if cap.renews else past
            if not cap.level or all(self._prices[each].task != self._task for each in before):
                continue
            # "One release" also limits the number: a release at a tiny level may leave budget for a second one.
            if cap.amount == cap_of(self._prices[number].guarantee):
                return "once", None, None, bool(cap.renews)
        return None

    def _refuse(self, index: int, number: int, why: Lacking) -> None:
        level = self._prices[number].level
        self.refusals[index] = Refusal(self._own_names[index], self._requests.keys[index], level, *why)

    def _price_of(self, level: str) -> int:
        try:
            return self._booked.levels[level]
        except KeyError:
            levels = ", ".join(sorted(self._booked.levels))
            raise UserError(f"the level {level!r} cannot be chosen here: choose one of {levels}") from None
