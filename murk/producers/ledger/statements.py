"""Account statements: one person's account as data and text, and sums over all people, which identify nobody."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime
from fractions import Fraction
from typing import Any

from murk._internal.sqlite import Database
from murk.privacy import Accountant, Guarantee, PrivacyLoss
from murk.privacy.central.explain import against_a_blank_record, any_two_records, promised
from murk.privacy.guarantees import CENTRAL, figures, guarantee_from_dict, percent
from murk.privacy.mechanisms.costs import really_given
from murk.producers.ledger.costs import (
    CURRENCIES,
    REPEATED,
    Cap,
    CapChange,
    Cost,
    parse_history,
    read_changes,
    read_prices,
)
from murk.producers.ledger.identity import Run
from murk.producers.ledger.names import NameKey
from murk.producers.ledger.spending import Owner, WindowCounts, count_by_owner, count_windows
from murk.task.privacy import MOST_LEVELS
from murk.task.shuffling import COLLUDING, CentralGuarantee
from murk.task.task import known_words
from murk.task.windows import begin_of, each_of, many_of

_COUNTS = ("released", "refused", "queued", "dropped")


@dataclass(frozen=True, slots=True)
class LevelAccount:
    """A person's releases at one level of a task.

    ``queued`` releases wait for the log's confirmation; ``dropped`` ones were deleted without it (expired, or the
    person withdrew). Both may be on the log. ``first`` and ``last`` are days (seconds since 1970; None if unknown);
    ``receipts`` are the releases' numbers in the ledger, which are never sent. ``central`` is the guarantee of a
    shuffled release towards everybody but the shuffler.
    """

    level: str
    guarantee: Guarantee
    mechanism: str
    released: int
    refused: int
    queued: int
    dropped: int
    first: int | None = None
    last: int | None = None
    receipts: tuple[int, ...] = ()
    central: CentralGuarantee | None = None

    @property
    def sent(self) -> int:
        """Number of releases that the log has confirmed."""
        return self.released - self.queued - self.dropped

    def plus(self, other: LevelAccount) -> LevelAccount:
        """Return the sum of two accounts of the same level."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        spent = [each for each in (self, other) if each.released]
        first, last = [each.first for each in spent], [each.last for each in spent if each.last is not None]
        sums["first"] = None if None in first else min((day for day in first if day is not None), default=None)
        receipts = tuple(sorted(self.receipts + other.receipts))
        return replace(self, **sums, last=max(last, default=None), receipts=receipts)

    @property
    def days(self) -> str:
        """The days of the releases, in words; empty if unknown."""
        if self.last is None:
            return ""
        last = day_text(self.last)
        if self.first is None:
            return f", last on {last}"
        return f", on {last}" if self.first == self.last else f", from {day_text(self.first)} to {last}"


@dataclass(frozen=True, slots=True)
class CapStatus:
    """A promised cap (None: no cap) and the amount spent (None if it is unknown in the cap's currency).

    In (epsilon, delta), ``spent`` is the sum of the releases' guarantees; ``joint``, if known, is their joint
    guarantee, which may be smaller. For a cap that renews with a task's ``window``, ``spent`` is the amount in the
    newest window.
    """

    cap: PrivacyLoss | None
    spent: PrivacyLoss | None
    level: str = ""
    joint: Guarantee | None = None
    window: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the cap, the amount spent, and any joint guarantee in plain data."""
        amounts = {"spent": self.spent, "cap": self.cap}
        more: dict[str, Any] = {} if self.joint is None else {"joint": self.joint.to_dict()}
        more |= {"window": self.window} if self.window else {}
        return {name: None if amount is None else amount.to_dict() for name, amount in amounts.items()} | more


@dataclass(frozen=True, slots=True)
class Renewed:
    """The windows of a renewing budget in which a person has released: their number, and the newest one's start."""

    window: str
    windows: int
    newest: date

    def describe(self) -> str:
        """Describe the windows, as in "answers in 3 weeks, the newest from 2026-11-23"."""
        return f"answers in {many_of(self.window, self.windows)}, the newest from {self.newest.isoformat()}"


@dataclass(frozen=True, slots=True)
class TaskAccount:
    """A person's account with one task.

    ``published`` tells whether the person's features (without the target) are published unprotected, in the task's
    public sample. ``accountant`` composes all releases; ``guarantee`` is their joint guarantee in the strongest kind
    that all of them imply (None without one). ``windows`` counts an organisation's windows; None for a person.
    ``withdrawn_on`` is a day (seconds since 1970; None if unknown). ``from_file`` tells whether records of the task
    came from a file, which another party than the person may hold. For a budget that renews, ``renewed`` tells in how
    many windows the person has released, and the first day of the newest one. ``known`` names the columns that are sent
    as they are; ``archive`` says what the task tells people about an archive of their releases.
    """

    name: str
    hash: str
    levels: tuple[LevelAccount, ...]
    caps: tuple[CapStatus, ...]
    withdrawn: bool
    published: bool
    accountant: Accountant
    guarantee: Guarantee | None
    windows: WindowCounts | None = None
    withdrawn_on: int | None = None
    simulated: bool = False
    from_file: bool = False
    renewed: Renewed | None = None
    known: str = ""
    archive: str = ""


@dataclass(frozen=True, slots=True)
class Account:
    """One person's account: what was promised, spent, sent and refused, by task and (as in `TaskAccount`) in all."""

    tasks: tuple[TaskAccount, ...]
    caps: tuple[CapStatus, ...]
    withdrawn: bool
    accountant: Accountant
    guarantee: Guarantee | None
    withdrawn_on: int | None = None
    raised: tuple[CapChange, ...] = ()  # changes that raised a cap for these tasks, or a cap over all tasks

    @property
    def is_known(self) -> bool:
        """Whether the ledger has any entry for this person."""
        return bool(self.tasks) or self.withdrawn

    def describe(self) -> list[str]:
        """Describe the account in plain words, a sentence or two per line."""
        if not self.is_known:
            words = (
                "Nothing was ever released by this ledger under this name. (Capitals count. Where each row of a file "
                "is a person, give the row and the file (--source). An organisation that no column names is called "
                "'organisation'.)"
            )
            return [words]
        lines = [line for task in self.tasks for line in _task_lines(task)]
        # Without a release, published features still disclose something.
        if len(self.tasks) > 1 and (self.accountant.releases or not any(task.published for task in self.tasks)):
            central = any(task.windows is not None for task in self.tasks)
            lines.append(f"All tasks: {_joint_words(self.accountant, self.guarantee, central=central)}")
        lines += [f"Promised over all tasks: {_cap_words(status)}" for status in self.caps]
        lines += [f"A cap was raised on {day_text(each.day)}, of {each.describe()}." for each in self.raised]
        if self.withdrawn:
            who = "organisation" if any(task.windows is not None for task in self.tasks) else "person"
            lines.append(f"The {who} has withdrawn{_on_day(self.withdrawn_on)}: nothing more is released to any task.")
        return lines


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over everyone in a ledger; they identify nobody and depend on no value.

    ``dropped`` counts releases deleted unconfirmed. ``levels`` maps (task name, level) to releases; ``ranges`` maps
    tasks with a grid of levels to the range of their budgets in words; ``rows`` counts people who are rows of a file.
    """

    people: int
    releases: int
    refused: int
    queued: int
    dropped: int
    withdrawn: int
    levels: Mapping[tuple[str, str], int] = field(default_factory=dict)
    ranges: Mapping[str, str] = field(default_factory=dict)
    files: int = 0
    rows: int = 0
    organisations: int = 0

    @property
    def who(self) -> str:
        """Kind of the accounts: ``"organisation"`` if all are organisations', else ``"person"``."""
        return "organisation" if 0 < self.organisations == self.people else "person"

    @property
    def counted(self) -> str:
        """Number of accounts, in words."""
        more = "organisations" if self.who == "organisation" else "people"
        return f"{self.people:,} {self.who if self.people == 1 else more}"


REPEATS = (
    "A repeated answer costs nothing, as it is the same numbers again. It shows which answers are one person's, and a "
    "new one shows that the record has changed, and when: no noise hides that."
)


def _task_lines(task: TaskAccount) -> list[str]:
    lines = []
    for level in task.levels:
        if level.mechanism == REPEATED:
            lines.append(f"{task.name}, level {level.level!r}: {level.released} repeated{level.days}. {REPEATS}")
            continue
        state = [f"{level.sent} sent", f"{level.queued} waiting for the log's confirmation"]
        if level.dropped:
            them = "it" if level.dropped == 1 else "them"
            state.append(f"{level.dropped} deleted before the log confirmed {them}, perhaps after sending")
        each = promised(level.guarantee, level.mechanism)
        if level.mechanism in CENTRAL:
            each = _told_apart(level.guarantee) + each
        if level.central:
            each = f"{COLLUDING}: {each} {level.central.describe()}"
        lines.append(
            f"{task.name}, level {level.level!r}: {level.released} released ({', '.join(state)}){level.days}, "
            f"{level.refused} refused. Each release: {each}"
        )
    if task.windows is not None:
        lines.append(_window_words(task.name, task.windows))
    if task.known:
        lines.append(f"{task.name}: {known_words(task.known)}")
    if task.archive:
        lines.append(f"{task.name}: {task.archive}")
    if task.renewed is not None:
        lines.append(f"{task.name}: {task.renewed.describe()}.")
    if task.accountant.releases > 1:
        words = _joint_words(task.accountant, task.guarantee, central=task.windows is not None)
        lines.append(f"{task.name}: {words}")
    for status in task.caps:
        # What was released at another level may exceed the cap of this one.
        of_level = f"Limit for further releases of {task.name} at level {status.level!r}"
        lines.append(f"{of_level if status.level else f'Promised for {task.name}'}: {_cap_words(status)}")
    if task.published:
        lines.append(
            f"{task.name}: this person's features (without the target) are published with the task {task.name!r}, as "
            "part of its public sample. No noise protects them, and nothing else is released."
        )
    if task.withdrawn:
        lines.append(f"{task.name}: withdrawn{_on_day(task.withdrawn_on)}; nothing more is released to it.")
    return lines


def _joint_words(accountant: Accountant, guarantee: Guarantee | None, *, central: bool) -> str:
    """Describe a joint guarantee; ``central``: of an organisation's windows, against windows with a blank record."""
    start = f"{accountant.releases} {'windows' if central else 'releases'} together: "
    if not accountant.releases:
        return accountant.describe()
    if guarantee is None:
        return f"{start}there is no joint guarantee; each release has its own."
    return f"{start}{_told_apart(guarantee)}{against_a_blank_record(guarantee)}" if central else accountant.describe()


def _window_words(name: str, sums: WindowCounts) -> str:
    def windows(count: int) -> str:
        return "1 window was" if count == 1 else f"{count:,} windows were"

    parts = [f"{windows(sums.released)} released as sketches, with {sums.records:,} records in all"]
    if sums.open:
        parts.append(f"{windows(sums.open)} open when last recorded (nothing is debited for that yet)")
    if sums.left_out:
        parts.append(f"{windows(sums.left_out)} left out as too small, with {sums.records_left_out:,} records in all")
    if sums.lost:
        parts.append(f"a window was lost {sums.lost:,} times, when a process died (nothing was debited for that)")
    return f"{name}: {'; '.join(parts)}."


_ADDED = " (the sum of the releases' own, which the cap counts)"


def added(status: CapStatus) -> str:
    """Return a remark that an amount spent is a sum, if the releases' joint guarantee may be smaller; else ""."""
    spent = status.spent
    # A level's cap is for one release, so nothing is summed.
    return "" if status.level or spent is None or spent.currency != "approx" or not spent.units else _ADDED


def _cap_words(status: CapStatus) -> str:
    spent = f"{_spent_words(status)}{added(status)}"
    if status.window:
        return f"at most {status.cap} {each_of(status.window)}; spent {spent} in the newest one"
    return f"at most {status.cap}; spent {spent}"


def _spent_words(status: CapStatus) -> str:
    return "an amount unknown in its currency" if status.spent is None else status.spent.rounded()


def _values(guarantee: Guarantee) -> Iterable[float]:
    return guarantee.to_dict()[guarantee.kind].values()


def describe_together(statuses: Sequence[CapStatus], who: str = "person") -> list[str]:
    """Describe the largest amount that one person (or organisation) has spent over all tasks, a line for each cap."""
    owner = "a person" if who == "person" else "an organisation's account"
    return [f"All tasks together: {_most_words(status, owner, central=who != 'person')}" for status in statuses]


def _most_words(one: CapStatus, owner: str, *, central: bool) -> str:
    spent, told = _spent_words(one), ""
    if one.cap is not None:
        cap = str(one.cap)
        spent += f" of {cap if one.spent is None or ',' in cap else cap.split(' = ')[1]}"
    total = one.joint
    if total is None and one.spent is not None and one.spent.units:
        total = guarantee_from_dict(one.spent.to_dict())
    if central and total is not None:
        told = _told_apart(total)
    if one.joint is not None and one.cap is not None:
        return f"{told}{figures(one.joint)} at most for {owner}; of the cap, {spent}{_ADDED}"
    if one.joint is not None:
        spent = figures(one.joint)
    return f"{told}{spent} at most for {owner}{'; no cap over all tasks (--lifetime)' if one.cap is None else ''}"


def _told_apart(blank: Guarantee) -> str:
    both = percent(any_two_records(blank).max_attack_accuracy)
    return (
        f"any two records are told apart in at most {both}, a record and a blank one in at most "
        f"{percent(blank.max_attack_accuracy)}: "
    )


def day_text(day: int) -> str:
    """Format a day of the ledger as ``2026-11-22``."""
    return datetime.fromtimestamp(day, UTC).date().isoformat()


def _on_day(day: int | None) -> str:
    return "" if day is None else f" on {day_text(day)}"


_ACCOUNTS = "SELECT DISTINCT home, person FROM spending"
_EACH = ", ".join("?" * len(CENTRAL))


def account(file: Database, owner: Owner, key: NameKey) -> Account:
    """Read a person's account; the key decrypts the outbox."""
    home, person = owner
    prices = read_prices(file)
    spent = "SELECT tariff, released, refused, dropped, first, last FROM spending WHERE home = ? AND person = ?"
    rows = file.query(f"{spent} ORDER BY tariff", owner)
    queued = count_by_owner(file.query("SELECT owner, tariff FROM outbox"), key)
    waiting = {tariff: count for (of, tariff), count in queued.items() if of == owner}
    receipts: dict[int, list[int]] = {}
    own_rows = "person = ?" if home == 0 else "source = ? AND key = ? AND task IN (SELECT number FROM tasks)"
    values = (person,) if home == 0 else owner
    for tariff, number in file.query(f"SELECT tariff, number FROM debits WHERE {own_rows} ORDER BY number", values):
        receipts.setdefault(tariff, []).append(number)
    withdrawn = dict(file.query("SELECT task, day FROM withdrawals WHERE home = ? AND person = ?", owner))
    runs = file.query("SELECT task, people, excluded, next_row, counters FROM runs WHERE source = ?", (home,))
    published = {task for task, *row in runs if person in Run.from_row(tuple(row)).excluded}
    of_files = {task for (task,) in file.query("SELECT DISTINCT task FROM runs")}
    order = "task, level, currency, renews DESC"
    promises = [Cap(*row) for row in file.query(f"SELECT {Cap.columns} FROM promises ORDER BY {order}")]
    renewals = "SELECT task, newest, windows, history FROM renewals WHERE home = ? AND person = ?"
    newest = {task: (number, count, parse_history(text)) for task, number, count, text in file.query(renewals, owner)}
    history = {price: released for price, released, *_ in rows if released}
    tasks = []
    found = file.query("SELECT number, name, hash, simulated, window, known, archive FROM tasks ORDER BY number")
    # A withdrawal from a task holds for all tasks of its name.
    left = {name: withdrawn[number] for number, name, *_ in reversed(found) if number in withdrawn and name}
    for number, name, task_hash, simulated, window, known, archive in found:
        of_task = [row for row in rows if prices[row[0]].task == number]
        sums = None if home else count_windows(file, "task = ? AND person = ?", (number, person))
        windows = None if sums == WindowCounts() else sums
        if not of_task and number not in withdrawn and number not in published and windows is None:
            continue
        levels = _levels(
            _level(prices[row[0]], row, waiting.get(row[0], 0), receipts.get(row[0], ())) for row in of_task
        )
        used = {"", *(level.level for level in levels)}
        caps = [promise for promise in promises if promise.task == number and promise.level in used]
        day, is_gone = withdrawn.get(number, left.get(name)), number in withdrawn or name in left
        renewed, current = None, dict[int, int]()
        if number in newest:
            last, count, current = newest[number]
            renewed = Renewed(window, count, begin_of(window, last))
        statuses = (
            *(
                replace(status, window=window)
                for status in _cap_statuses([c for c in caps if c.renews], current, prices)
            ),
            *_cap_statuses([cap for cap in caps if not cap.renews], history, prices),
        )
        states = levels, statuses, is_gone, number in published
        origin = bool(simulated), number in of_files
        total = _compose({row[0]: row[1] for row in of_task if row[1]}, prices)
        tasks.append(TaskAccount(name, task_hash, *states, *total, windows, day, *origin, renewed, known, archive))
    lifetime = _cap_statuses([promise for promise in promises if promise.task == 0], history, prices)
    names = {task.name for task in tasks} | {""}
    raised = tuple(each for each in read_changes(file) if each.is_raise and each.task in names)
    return Account(tuple(tasks), lifetime, 0 in withdrawn, *_compose(history, prices), withdrawn.get(0), raised)


def together(file: Database) -> tuple[CapStatus, ...]:
    """Read the largest amount spent over all tasks; see `Ledger.together`."""
    prices = read_prices(file)
    rows = file.query(
        """SELECT DISTINCT group_concat(tariff || ':' || released) FROM
           (SELECT * FROM spending WHERE released > 0 ORDER BY home, person, tariff) GROUP BY home, person"""
    )
    histories = [_as_drawn(parse_history(text), prices) for (text,) in rows]
    caps = [Cap(*row) for row in file.query(f"SELECT {Cap.columns} FROM promises WHERE task = 0 ORDER BY currency")]
    if caps:
        statuses = [CapStatus(cap.amount, _most(cap, histories, prices)) for cap in caps]
        return tuple(replace(each, joint=_largest(histories, prices)) if added(each) else each for each in statuses)
    if not histories:
        return ()
    most = _most_anywhere(histories, prices)
    status = CapStatus(None, most)
    if most is None or added(status):
        status = replace(status, joint=_largest(histories, prices))
    return () if status == CapStatus(None, None) else (status,)


def _as_drawn(history: Mapping[int, int], prices: Mapping[int, Cost]) -> dict[int, int]:
    """Count a person's repeated answers as new ones, so that nobody else learns how often their record changed."""
    drawn: dict[int, int] = {}
    paid = {(price.task, price.level): price.number for price in prices.values() if not price.is_free}
    for number, count in history.items():
        price = prices[number]
        counted = paid.get((price.task, price.level), number) if price.is_free else number
        drawn[counted] = drawn.get(counted, 0) + count
    return drawn


def _most_anywhere(histories: Sequence[Mapping[int, int]], prices: Mapping[int, Cost]) -> PrivacyLoss | None:
    """Return the largest amount spent, in the first currency in which every release has a cost; None without one."""
    for currency in CURRENCIES:
        most = _most(Cap(0, "", currency, 0, 0), histories, prices)
        if most is not None:
            return most
    return None


def _largest(histories: Sequence[Mapping[int, int]], prices: Mapping[int, Cost]) -> Guarantee | None:
    """Return the weakest of all accounts' joint guarantees; None if an account has none."""
    most = _most_anywhere(histories, prices)
    if most is not None and most.currency != "approx":
        return guarantee_from_dict(most.to_dict())
    joint = [_compose(history, prices)[1] for history in histories]
    stated = [each for each in joint if each is not None]
    return None if len(stated) < len(joint) else max(stated, key=lambda one: (one.max_attack_accuracy, *_values(one)))


def _most(cap: Cap, histories: Sequence[Mapping[int, int]], prices: Mapping[int, Cost]) -> PrivacyLoss | None:
    spent = [cap.spent(history, prices) for history in histories]
    stated = [each for each in spent if each is not None]
    return None if len(stated) < len(spent) else PrivacyLoss(cap.currency, *max(stated, default=(0, 0)))


def totals(file: Database) -> Totals:
    """Return sums over all people in the ledger."""

    def count(what: str, *values: object) -> int:
        return int(file.query(f"SELECT {what}", values)[0][0])

    [sums] = file.query("SELECT total(released), total(refused), total(dropped) FROM spending")
    by_level = file.query(
        """SELECT tasks.name, tariffs.level, sum(released) FROM spending
           JOIN tariffs ON tariffs.number = spending.tariff JOIN tasks ON tasks.number = tariffs.task
           GROUP BY tasks.name, tariffs.level ORDER BY min(tasks.number), tariffs.level"""
    )
    of_organisations = f"JOIN tariffs ON number = tariff WHERE mechanism IN ({_EACH})"
    return Totals(
        **dict(zip(("releases", "refused", "dropped"), map(int, sums), strict=True)),
        people=count(f"count(*) FROM ({_ACCOUNTS})"),
        queued=count("count(*) FROM outbox"),
        withdrawn=count("count(*) FROM withdrawals"),
        levels={(name, level): number for name, level, number in by_level},
        ranges=dict(_ranges(file, [name for name, _, _ in by_level])),
        files=count("count(DISTINCT source) FROM runs"),
        rows=count(f"count(*) FROM ({_ACCOUNTS} WHERE home > 0)"),
        organisations=count(f"count(*) FROM ({_ACCOUNTS} {of_organisations})", *CENTRAL),
    )


def _ranges(file: Database, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield each task with many levels, and the range of the budgets at which its people released."""
    many = [name for name, count in Counter(names).items() if count > MOST_LEVELS + 1]
    if not many:
        return
    used = file.query(
        """SELECT DISTINCT tasks.name, tariff FROM spending
           JOIN tariffs ON tariffs.number = spending.tariff JOIN tasks ON tasks.number = tariffs.task"""
    )
    prices = read_prices(file)
    for name in many:
        budgets: dict[str, list[float]] = {}
        for number in (number for own, number in used if own == name):
            guarantee = prices[number].guarantee
            parameter, budget = next(iter(guarantee.to_dict()[guarantee.kind].items()))
            budgets.setdefault(parameter, []).append(budget)
        yield name, "; ".join(f"{key} = {min(each):g} to {max(each):g}" for key, each in sorted(budgets.items()))


def _level(price: Cost, row: Sequence[int], waiting: int, receipts: Sequence[int]) -> LevelAccount:
    _, released, refused, dropped, first, last = row
    guarantee, counts = really_given(price.guarantee, price.guarantees), (released, refused, waiting, dropped)
    return LevelAccount(price.level, guarantee, price.mechanism, *counts, first, last, tuple(receipts), price.central)


def _levels(accounts: Iterable[LevelAccount]) -> tuple[LevelAccount, ...]:
    merged: dict[tuple[object, ...], LevelAccount] = {}
    for account in accounts:
        key = account.level, account.guarantee, account.mechanism, account.central
        merged[key] = merged[key].plus(account) if key in merged else account
    return tuple(merged.values())


def _cap_statuses(
    promises: Sequence[Cap], history: Mapping[int, int], prices: Mapping[int, Cost]
) -> tuple[CapStatus, ...]:
    spent = [promise.spent(history, prices) for promise in promises]
    return tuple(
        CapStatus(promise.amount, None if units is None else PrivacyLoss(promise.currency, *units), promise.level)
        for promise, units in zip(promises, spent, strict=True)
    )


def _compose(history: Mapping[int, int], prices: Mapping[int, Cost]) -> tuple[Accountant, Guarantee | None]:
    """Compose releases; return also their joint guarantee in the strongest kind that all of them imply, or None."""
    accountant = Accountant()
    for number, count in history.items():
        # A repeated answer discloses nothing new, except that it is repeated.
        if not prices[number].is_free:
            accountant.compose(prices[number], count)
    return accountant, accountant.strongest() if history else None


SMALLEST_GROUP = 20  # figures that depend on people leave a device only as sums over at least this many of them

# A person's account with a task: releases by price, and the numbers of refused, deleted and waiting releases.
_STATES = """
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
    """Totals over a task's people, which may be reported to others.

    ``people`` counts accounts, ``queued`` releases in the outbox. ``spent`` has pairs (share, number of people); a
    person's share is the largest part that they have spent of any of their caps for the task.
    """

    people: int
    refused: int
    queued: int
    spent: tuple[tuple[float, int], ...]


class GroupSums:
    """Totals over a task's people, which may be reported to others repeatedly; made by `Ledger.group_sums`.

    The totals cover at least `SMALLEST_GROUP` people and change only after at least that many accounts have changed, so
    the difference of two reports is a sum over that many people, too. The ledger stores the accounts of the last
    report, so this also holds for several exporters. Current accounts are in SQLite's temporary storage, so memory does
    not grow with the number of people. ``opening`` returns the key that decrypts the outbox.
    """

    def __init__(self, file: Database, task: int, opening: Callable[[], NameKey]) -> None:
        self._file, self._task, self._opening = file, task, opening
        self._now, self._waiting = f"temp.now_{task}", f"temp.waiting_{task}"
        columns = "home, person, history, refused, queued, state, PRIMARY KEY (home, person)"
        file.query(f"CREATE TABLE IF NOT EXISTS {self._now} ({columns}) WITHOUT ROWID")
        file.query(f"CREATE TABLE IF NOT EXISTS {self._waiting} (home, person, waiting, PRIMARY KEY (home, person))")

    def report(self) -> PeopleTotals | None:
        """Return new totals if they may be reported, else the last reported ones; None before the first report."""
        last = self._last()
        self._take()
        changed = self._file.query(f"SELECT count(*) {_CHANGED.format(now=self._now)}", (self._task,))[0][0]
        people, refused, queued = self._file.query(
            f"SELECT count(*), coalesce(sum(refused), 0), coalesce(sum(queued), 0) FROM {self._now}"
        )[0]
        before = 0 if last is None else last[0]
        if min(people, changed) >= SMALLEST_GROUP:
            self._note(before, PeopleTotals(people, refused, queued, self._shares()))
        # Read again: another exporter may have reported in between.
        reported = self._last()
        return None if reported is None else reported[1]

    def _last(self) -> tuple[int, PeopleTotals | None] | None:
        """Return the last report as its number and its sums, or None before the first one; unreadable sums are None."""
        rows = self._file.query("SELECT round, sums FROM reports WHERE task = ?", (self._task,))
        if not rows:
            return None
        if rows[0][1] is None:
            return rows[0][0], None
        sums = json.loads(rows[0][1])
        return rows[0][0], PeopleTotals(**{**sums, "spent": tuple(map(tuple, sums["spent"]))})

    def _take(self) -> None:
        rows = self._file.query("SELECT owner, tariff FROM outbox WHERE task = ?", (self._task,))
        counts: Counter[Owner] = Counter()
        for (owner, _), count in count_by_owner(rows, self._opening() if rows else NameKey(None)).items():
            counts[owner] += count
        self._file.query(f"DELETE FROM {self._waiting}")
        for owner, count in counts.items():
            self._file.query(f"INSERT INTO {self._waiting} VALUES (?, ?, ?)", (*owner, count))
        self._file.query(f"DELETE FROM {self._now}")
        # A single statement reads one state of the file, even while other processes write.
        self._file.query(f"INSERT INTO {self._now} {_STATES.format(waiting=self._waiting)}", (self._task,))

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
        query = f"SELECT {Cap.columns} FROM promises WHERE task = ?"
        caps = [Cap(*row) for row in self._file.query(query, (self._task,))]
        shares: dict[float, int] = {}
        for history, count in self._file.query(f"SELECT history, count(*) FROM {self._now} GROUP BY history"):
            share = _share(parse_history(history), caps, prices)
            shares[share] = shares.get(share, 0) + count
        return tuple(sorted(shares.items()))


def _share(released: Mapping[int, int], caps: Sequence[Cap], prices: Mapping[int, Cost]) -> float:
    history = _as_drawn({price: count for price, count in released.items() if count}, prices)
    levels = {"", *(prices[price].level for price in released)}
    largest = Fraction(0)
    for cap in caps:
        if cap.renews:
            # The amount spent of a renewing cap begins at 0 in each window.
            continue
        spent = cap.spent(history, prices) if cap.level in levels else (0, 0)
        if spent is None:
            return 1.0  # The remainder is unknown and counts as 0.
        for amount, most in zip(spent, (cap.units, cap.delta_units), strict=True):
            if amount:
                largest = max(largest, Fraction(amount, most) if most else Fraction(1))
    return float(min(largest, Fraction(1)))
