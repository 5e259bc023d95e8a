"""What the ledger tells: a person her own account, everybody else sums that name nobody."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from murk.errors import UserError
from murk.privacy import Accountant, Amount, Guarantee
from murk.privacy.gaussmix.words import against_a_blank_record, promised
from murk.producers import windows as window_notes
from murk.producers.charges import Promise, Tariff
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
        Of those paid for, how many wait in the outbox, and how many were let go of unsent (expired, or she
        withdrew).
    """

    level: str
    guarantee: Guarantee
    mechanism: str
    released: int
    refused: int
    queued: int
    dropped: int

    @property
    def sent(self) -> int:
        """Releases that the log has."""
        return self.released - self.queued - self.dropped

    def plus(self, other: LevelAccount) -> LevelAccount:
        """The same level's releases, with others of it."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in _COUNTS}
        return replace(self, **sums)


@dataclass(frozen=True, slots=True)
class Standing:
    """A cap that was promised, and how much of it is spent (None where that has no figure)."""

    cap: Amount
    spent: Amount | None
    level: str = ""


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
        Whether she wants no more releases to it.
    published
        Whether she is in the task's public sample: her features (without the target) were published as they
        are, under no guarantee.
    accountant
        What all her releases to the task together promise, in whatever terms are asked for.
    guarantee
        The same in the strongest terms that all of them allow; None without any release, or any such terms.
    windows
        What became of an organisation's windows; None for a person.
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


@dataclass(frozen=True, slots=True)
class Account:
    """One person's account: what was promised, spent, sent and refused.

    Parameters
    ----------
    tasks
        One entry for each task that she released to, tried to, withdrew from, or is in the public sample of.
    caps
        What was promised over all tasks, and what is spent of it.
    withdrawn
        Whether she wants no more releases at all.
    accountant
        What all her releases together promise, in whatever terms are asked for.
    guarantee
        The same in the strongest terms that all of them allow; None without any release, or any such terms.
    """

    tasks: tuple[TaskAccount, ...]
    caps: tuple[Standing, ...]
    withdrawn: bool
    accountant: Accountant
    guarantee: Guarantee | None

    def describe(self) -> list[str]:
        """Say it in plain words, a sentence or two a line."""
        if not self.tasks and not self.withdrawn:
            return [
                "Nothing was ever released under this name. (Where the rows of a file are people, a person is her row "
                "together with the file, --source; an organisation without a column of its own is 'organisation'.)"
            ]
        lines = []
        for task in self.tasks:
            lines += _task_lines(task)
        # Nothing released is not nothing disclosed where features were published.
        if len(self.tasks) > 1 and (self.accountant.releases or not any(task.published for task in self.tasks)):
            lines.append(f"All tasks: {self.accountant.describe()}")
        lines += [f"Promised over all tasks: {_words(standing)}" for standing in self.caps]
        if self.withdrawn:
            lines.append("She has withdrawn: nothing more is released to any task.")
        return lines


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
        "SELECT tariff, released, refused, dropped FROM spending WHERE home = ? AND person = ? ORDER BY tariff",
        (home, person),
    )
    waiting = dict(
        file.query(
            "SELECT tariff, count(*) FROM outbox WHERE home = ? AND person = ? GROUP BY tariff",
            (home, person),
        )
    )
    left = file.query("SELECT task FROM withdrawals WHERE home = ? AND person = ?", (home, person))
    withdrawn = {task for (task,) in left}
    runs = file.query("SELECT task, people, excluded, next_row, counters FROM runs WHERE source = ?", (home,))
    published = {task for task, *row in runs if person in Run.from_row(tuple(row)).excluded}
    promises = [Promise(*row) for row in file.query("SELECT * FROM promises ORDER BY task, level, currency")]
    history = {tariff: released for tariff, released, _, _ in rows if released}
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
            )
        )
    lifetime = [promise for promise in promises if promise.task == 0]
    standings = _standings(lifetime, history, tariffs)
    return Account(tuple(tasks), standings, 0 in withdrawn, *_together(history, tariffs))


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


def _level(tariff: Tariff, row: tuple[int, int, int, int], waiting: int) -> LevelAccount:
    _, released, refused, dropped = row
    return LevelAccount(tariff.level, tariff.guarantee, tariff.mechanism, released, refused, waiting, dropped)


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


def _task_lines(task: TaskAccount) -> list[str]:
    lines = []
    for one in task.levels:
        state = [f"{one.sent} sent", f"{one.queued} waiting", f"{one.dropped} let go of unsent"]
        lines.append(
            f"{task.name}, level {one.level!r}: {one.released} released ({', '.join(state)}), "
            f"{one.refused} refused. Each release: {promised(one.guarantee, one.mechanism)}"
        )
    if task.windows is not None:
        lines.append(_window_words(task.name, task.windows))
    if task.accountant.releases > 1:
        lines.append(f"{task.name}: {_all_words(task)}")
    for standing in task.caps:
        scope = f"{task.name}, level {standing.level!r}" if standing.level else task.name
        lines.append(f"Promised for {scope}: {_words(standing)}")
    if task.published:
        lines.append(
            f"{task.name}: her features (without the target) were published with the task {task.name!r}, as part "
            "of its public sample. No noise protects them, and she releases nothing to it."
        )
    if task.withdrawn:
        lines.append(f"{task.name}: she has withdrawn; nothing more is released to it.")
    return lines


def _all_words(task: TaskAccount) -> str:
    """What all releases to a task promise together."""
    if task.windows is None or task.guarantee is None:
        return task.accountant.describe()
    return f"{task.accountant.releases} windows together: {against_a_blank_record(task.guarantee)}"


def _window_words(name: str, sums: WindowSums) -> str:
    parts = [f"{_windows(sums.released)} released as sketches, with {sums.records:,} records in all"]
    if sums.open:
        parts.append(f"{_windows(sums.open)} open when last heard of (nothing is debited for that yet)")
    if sums.left_out:
        parts.append(f"{_windows(sums.left_out)} left out as too small, with {sums.records_left_out:,} records in all")
    if sums.lost:
        parts.append(f"a window was lost {sums.lost:,} times, when a process died (nothing was debited for that)")
    return f"{name}: {'; '.join(parts)}."


def _windows(count: int) -> str:
    return "1 window was" if count == 1 else f"{count:,} windows were"


def _words(standing: Standing) -> str:
    spent = "an amount that has no figure in it" if standing.spent is None else standing.spent.rounded()
    return f"at most {standing.cap}; spent {spent}"
