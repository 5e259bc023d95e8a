"""What the ledger tells: a person their own account, everybody else sums that name nobody."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from murk.errors import UserError
from murk.privacy import Accountant, Amount, Guarantee
from murk.privacy.mechanisms.pure import really_given
from murk.producers import windows as window_notes
from murk.producers.account_words import account_lines, day_text
from murk.producers.charges import CURRENCIES, Promise, Tariff
from murk.producers.claims import Key
from murk.producers.runs import Run
from murk.producers.windows import WindowSums
from murk.stream.database import Database

_COUNTS = ("released", "refused", "queued", "dropped")


@dataclass(frozen=True, slots=True)
class LevelAccount:
    """A person's releases at one level of a task.

    Parameters
    ----------
    level, guarantee, mechanism
        The level, what it promises for one release, and how it was randomized.
    released, refused
        Releases that were paid for, and that were refused.
    queued, dropped
        Of those paid for, how many wait in the outbox, and how many were let go of unsent (expired, or the person
        withdrew).
    first, last
        The days of the first and the last release (seconds since 1970, truncated); None where that is not known.
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

    @property
    def sent(self) -> int:
        """Releases that the log has."""
        return self.released - self.queued - self.dropped

    def plus(self, other: LevelAccount) -> LevelAccount:
        """The same level's releases, with others of it."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        spent = [one for one in (self, other) if one.released]
        first, last = [one.first for one in spent], [one.last for one in spent if one.last is not None]
        sums["first"] = None if None in first else min((day for day in first if day is not None), default=None)
        return replace(self, **sums, last=max(last, default=None))

    @property
    def days(self) -> str:
        """When it released, in words; empty where nothing is known."""
        if self.last is None:
            return ""
        if self.first is None:
            return f", last on {day_text(self.last)}"
        if self.first == self.last:
            return f", on {day_text(self.last)}"
        return f", from {day_text(self.first)} to {day_text(self.last)}"


@dataclass(frozen=True, slots=True)
class Standing:
    """A cap that was promised (None: no cap), and how much of it is spent (None where that has no figure)."""

    cap: Amount | None
    spent: Amount | None
    level: str = ""

    def to_dict(self) -> dict[str, dict[str, dict[str, float]] | None]:
        """Plain data: the cap and what is spent, each as a guarantee."""
        return {
            name: None if amount is None else amount.to_dict()
            for name, amount in (("spent", self.spent), ("cap", self.cap))
        }


@dataclass(frozen=True, slots=True)
class TaskAccount:
    """A person's account with one task.

    Parameters
    ----------
    name, hash
        The task.
    levels
        What was released, level by level.
    caps
        What was promised for the task, and what is spent of it.
    withdrawn
        Whether they want no more releases to it.
    published
        Whether they are in the task's public sample: their features (without the target) were published as they
        are, under no guarantee.
    accountant
        What all their releases to the task together promise, in whatever terms are asked for.
    guarantee
        The same in the strongest terms that all of them allow; None without any release, or any such terms.
    windows
        What became of an organisation's windows; None for a person.
    withdrawn_on
        The day of the withdrawal (seconds since 1970); None where there is none, or it is not known.
    """

    name: str
    hash: str
    levels: tuple[LevelAccount, ...]
    caps: tuple[Standing, ...]
    withdrawn: bool
    published: bool
    accountant: Accountant
    guarantee: Guarantee | None
    windows: WindowSums | None = None
    withdrawn_on: int | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """One person's account: what was promised, spent, sent and refused.

    Parameters
    ----------
    tasks
        One entry for each task that they released to, tried to, withdrew from, or are in the public sample of.
    caps
        What was promised over all tasks, and what is spent of it.
    withdrawn
        Whether they want no more releases at all.
    accountant
        What all their releases together promise, in whatever terms are asked for.
    guarantee
        The same in the strongest terms that all of them allow; None without any release, or any such terms.
    """

    tasks: tuple[TaskAccount, ...]
    caps: tuple[Standing, ...]
    withdrawn: bool
    accountant: Accountant
    guarantee: Guarantee | None
    withdrawn_on: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether the ledger has ever heard of this person."""
        return bool(self.tasks) or self.withdrawn

    def describe(self) -> list[str]:
        """Say it in plain words, a sentence or two a line."""
        return account_lines(self)


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over everyone in a ledger; they name nobody and depend on no value.

    Parameters
    ----------
    people
        Number of people with an account.
    releases, refused, queued, dropped
        Releases paid for; refused; waiting in the outbox; let go of unsent.
    withdrawn
        Number of withdrawals.
    levels
        (task name, level) -> releases.
    """

    people: int
    releases: int
    refused: int
    queued: int
    dropped: int
    withdrawn: int
    levels: Mapping[tuple[str, str], int] = field(default_factory=dict)


def account(file: Database, home: int, person: Key) -> Account:
    """Read a person's account."""
    tariffs = {row[0]: Tariff(*row) for row in file.query("SELECT * FROM tariffs")}
    rows = file.query(
        "SELECT tariff, released, refused, dropped, first, last FROM spending "
        "WHERE home = ? AND person = ? ORDER BY tariff",
        (home, person),
    )
    waiting = dict(
        file.query(
            "SELECT tariff, count(*) FROM outbox WHERE home = ? AND person = ? GROUP BY tariff",
            (home, person),
        )
    )
    withdrawn = dict(file.query("SELECT task, day FROM withdrawals WHERE home = ? AND person = ?", (home, person)))
    runs = file.query("SELECT task, people, excluded, next_row, counters FROM runs WHERE source = ?", (home,))
    published = {task for task, *row in runs if person in Run.from_row(tuple(row)).excluded}
    promises = [Promise(*row) for row in file.query("SELECT * FROM promises ORDER BY task, level, currency")]
    history = {tariff: released for tariff, released, *_ in rows if released}
    tasks = []
    for number, name, task_hash in file.query("SELECT number, name, hash FROM tasks ORDER BY number"):
        own = [row for row in rows if tariffs[row[0]].task == number]
        sums = None if home else window_notes.sums(file, "task = ? AND person = ?", (number, person))
        windows = None if sums == WindowSums() else sums
        if not own and number not in withdrawn and number not in published and windows is None:
            continue
        levels = _levels([_level(tariffs[row[0]], row, waiting.get(row[0], 0)) for row in own])
        used = {"", *(level.level for level in levels)}
        caps = [promise for promise in promises if promise.task == number and promise.level in used]
        tasks.append(
            TaskAccount(
                name,
                task_hash,
                levels,
                _standings(caps, history, tariffs),
                number in withdrawn,
                number in published,
                *_together({row[0]: row[1] for row in own if row[1]}, tariffs),
                windows,
                withdrawn.get(number),
            )
        )
    lifetime = [promise for promise in promises if promise.task == 0]
    standings = _standings(lifetime, history, tariffs)
    return Account(tuple(tasks), standings, 0 in withdrawn, *_together(history, tariffs), withdrawn.get(0))


def together(file: Database) -> tuple[Standing, ...]:
    """Read the most that anybody has spent on all tasks together; see `Ledger.together`."""
    tariffs = {row[0]: Tariff(*row) for row in file.query("SELECT * FROM tariffs")}
    rows = file.query(
        """SELECT DISTINCT group_concat(tariff || ':' || released) FROM
           (SELECT * FROM spending WHERE released > 0 ORDER BY home, person, tariff) GROUP BY home, person"""
    )
    histories = [
        {int(one): int(count) for one, count in (pair.split(":") for pair in text.split(","))} for (text,) in rows
    ]
    caps = [Promise(*row) for row in file.query("SELECT * FROM promises WHERE task = 0 ORDER BY currency")]
    if caps:
        return tuple(Standing(cap.amount, _most(cap, histories, tariffs)) for cap in caps)
    for currency in CURRENCIES:
        most = _most(Promise(0, "", currency, 0, 0), histories, tariffs)
        if most is not None and histories:
            return (Standing(None, most),)
    return ()


def _most(cap: Promise, histories: Sequence[Mapping[int, int]], tariffs: Mapping[int, Tariff]) -> Amount | None:
    """What is spent by whoever has spent most; None where nobody can say."""
    spent = [cap.spent(history, tariffs) for history in histories]
    known = [one for one in spent if one is not None]
    return None if len(known) < len(spent) else Amount(cap.currency, *max(known, default=(0, 0)))


def tasks_named(file: Database, name: str) -> list[str]:
    """Read the hashes of the tasks of a name; see `Ledger.tasks_named`."""
    known = file.query("SELECT name, hash FROM tasks ORDER BY number")
    found = [task_hash for one, task_hash in known if one == name]
    if not found:
        names = ", ".join(dict.fromkeys(one for one, _ in known)) or "none"
        raise UserError(f"the ledger {file.path} knows no task of the name {name!r}: it knows {names}")
    return found


def withdrawn(file: Database, source: str, task_name: str) -> frozenset[Key]:
    """Read who of a file's rows have withdrawn, from everything or from a task of a name."""
    rows = file.query(
        """SELECT person FROM withdrawals JOIN sources ON sources.number = home
           WHERE digest = ? AND (task = 0 OR task IN (SELECT number FROM tasks WHERE name = ?))""",
        (source, task_name),
    )
    return frozenset(person for (person,) in rows)


def has_released(file: Database, source: str, task_name: str) -> bool:
    """Whether a file's people have released to a task of a name already."""
    rows = file.query(
        """SELECT 1 FROM runs JOIN sources ON sources.number = source JOIN tasks ON tasks.number = runs.task
           WHERE digest = ? AND name = ? AND next_row > 0""",
        (source, task_name),
    )
    return bool(rows)


def totals(file: Database) -> Totals:
    """Read sums over everyone."""
    releases, refused, dropped = file.query(
        "SELECT coalesce(sum(released), 0), coalesce(sum(refused), 0), coalesce(sum(dropped), 0) FROM spending"
    )[0]
    by_level = file.query(
        """SELECT tasks.name, tariffs.level, sum(released) FROM spending
           JOIN tariffs ON tariffs.number = spending.tariff JOIN tasks ON tasks.number = tariffs.task
           GROUP BY tasks.name, tariffs.level ORDER BY min(tasks.number), tariffs.level"""
    )
    return Totals(
        people=file.query("SELECT count(*) FROM (SELECT DISTINCT home, person FROM spending)")[0][0],
        releases=releases,
        refused=refused,
        queued=file.query("SELECT count(*) FROM outbox")[0][0],
        dropped=dropped,
        withdrawn=file.query("SELECT count(*) FROM withdrawals")[0][0],
        levels={(name, level): count for name, level, count in by_level},
    )


def _level(tariff: Tariff, row: Sequence[int], waiting: int) -> LevelAccount:
    _, released, refused, dropped, first, last = row
    return LevelAccount(
        tariff.level,
        really_given(tariff.guarantee, tariff.claims),
        tariff.mechanism,
        released,
        refused,
        waiting,
        dropped,
        first,
        last,
    )


def _levels(accounts: Sequence[LevelAccount]) -> tuple[LevelAccount, ...]:
    """One account a level, though versions of Murk have priced it differently in the last digit."""
    found: dict[tuple[str, Guarantee, str], LevelAccount] = {}
    for one in accounts:
        key = one.level, one.guarantee, one.mechanism
        found[key] = found[key].plus(one) if key in found else one
    return tuple(found.values())


def _standings(
    promises: Sequence[Promise], history: Mapping[int, int], tariffs: Mapping[int, Tariff]
) -> tuple[Standing, ...]:
    found = []
    for promise in promises:
        spent = promise.spent(history, tariffs)
        amount = None if spent is None else Amount(promise.amount.currency, *spent)
        found.append(Standing(promise.amount, amount, promise.level))
    return tuple(found)


def _together(history: Mapping[int, int], tariffs: Mapping[int, Tariff]) -> tuple[Accountant, Guarantee | None]:
    """Compose releases, and state them in the strongest terms that all of them allow."""
    accountant = Accountant()
    own = 0.0
    for number, count in history.items():
        accountant.compose(tariffs[number], count)
        own += count * getattr(tariffs[number].guarantee, "delta", 0.0)
    if not history:
        return accountant, None
    attempts: tuple[Callable[[], Guarantee], ...] = (
        lambda: accountant.spent("pure"),
        lambda: accountant.spent("gdp"),
        lambda: accountant.spent("zcdp"),
        # At twice the releases' own delta there is some left for what has none.
        lambda: accountant.spent("approx", delta=2 * own),
    )
    for attempt in attempts:
        try:
            return accountant, attempt()
        except UserError:
            continue
    return accountant, None
