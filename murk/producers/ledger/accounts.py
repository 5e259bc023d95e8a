"""Accounts: what a ledger records of a person, a task and everyone, as data and in plain words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from murk.privacy import Accountant, Guarantee, PrivacyLoss
from murk.privacy.explain import percent
from murk.privacy.guarantees import guarantee_from_dict
from murk.privacy.sketches.explain import CENTRAL, against_a_blank_record, any_two_records, promised
from murk.producers.ledger.transaction import WindowCounts
from murk.stream.task.shuffle import COLLUDING, CentralGuarantee

_PERHAPS = "perhaps after sending"
_COUNTS = ("released", "refused", "queued", "dropped")


@dataclass(frozen=True, slots=True)
class LevelAccount:
    """A person's releases at one level of a task.

    ``queued`` counts paid releases that wait for the log's confirmation, ``dropped`` those deleted without it (expired,
    or the person withdrew); either may be on the log. ``first`` and ``last`` are days (seconds since 1970, truncated;
    None if unknown). ``receipts`` are the numbers by which the ledger identifies the releases; they are never sent.
    ``central`` is the guarantee of a shuffled release towards everybody but the shuffler.
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
        spent = [one for one in (self, other) if one.released]
        first, last = [one.first for one in spent], [one.last for one in spent if one.last is not None]
        sums["first"] = None if None in first else min((day for day in first if day is not None), default=None)
        receipts = tuple(sorted(self.receipts + other.receipts))
        return replace(self, **sums, last=max(last, default=None), receipts=receipts)

    @property
    def days(self) -> str:
        """The days of the releases, in words; empty if unknown."""
        if self.last is None:
            return ""
        if self.first is None:
            return f", last on {day_text(self.last)}"
        if self.first == self.last:
            return f", on {day_text(self.last)}"
        return f", from {day_text(self.first)} to {day_text(self.last)}"


@dataclass(frozen=True, slots=True)
class CapStatus:
    """A promised cap (None: no cap) and the amount spent (None: unknown in its currency)."""

    cap: PrivacyLoss | None
    spent: PrivacyLoss | None
    level: str = ""

    def to_dict(self) -> dict[str, dict[str, dict[str, float]] | None]:
        """Return the cap and the amount spent as guarantees in plain data."""
        amounts = {"spent": self.spent, "cap": self.cap}
        return {name: None if amount is None else amount.to_dict() for name, amount in amounts.items()}


@dataclass(frozen=True, slots=True)
class TaskAccount:
    """A person's account with one task.

    ``published`` is whether the person is in the task's public sample: their features (without the target) are
    published unprotected. ``accountant`` composes all their releases to the task; ``guarantee`` is their total in the
    strongest definition that all of them satisfy (None if there is none). ``windows`` counts an organisation's windows;
    None for a person. ``withdrawn_on`` is the day of the withdrawal (seconds since 1970; None if unknown).
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


@dataclass(frozen=True, slots=True)
class Account:
    """One person's account: what was promised, spent, sent and refused.

    ``tasks`` has an entry for each task that they released to, tried to, withdrew from, or are in the public sample of.
    ``accountant`` and ``guarantee`` are as in `TaskAccount`, over all tasks.
    """

    tasks: tuple[TaskAccount, ...]
    caps: tuple[CapStatus, ...]
    withdrawn: bool
    accountant: Accountant
    guarantee: Guarantee | None
    withdrawn_on: int | None = None

    @property
    def is_known(self) -> bool:
        """Whether the ledger has any entry for this person."""
        return bool(self.tasks) or self.withdrawn

    def describe(self) -> list[str]:
        """Describe the account in plain words, a sentence or two per line."""
        if not self.is_known:
            return [
                "Nothing was ever released by this ledger under this name. (Capitals count. Where each row of a file "
                "is a person, give the row and the file (--source). An organisation that no column names is called "
                "'organisation'.)"
            ]
        lines = [line for task in self.tasks for line in _task_lines(task)]
        # Without a release, published features still disclose something.
        if len(self.tasks) > 1 and (self.accountant.releases or not any(task.published for task in self.tasks)):
            lines.append(f"All tasks: {self.accountant.describe()}")
        lines += [f"Promised over all tasks: {_cap_words(status)}" for status in self.caps]
        if self.withdrawn:
            who = "organisation" if any(task.windows is not None for task in self.tasks) else "person"
            lines.append(f"The {who} has withdrawn{_on_day(self.withdrawn_on)}: nothing more is released to any task.")
        return lines


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over everyone in a ledger; they identify nobody and depend on no value.

    ``dropped`` counts releases deleted unconfirmed; ``levels`` maps (task name, level) to releases; ``files`` counts
    files that people released from, and ``rows`` the people who are rows of a file.
    """

    people: int
    releases: int
    refused: int
    queued: int
    dropped: int
    withdrawn: int
    levels: Mapping[tuple[str, str], int] = field(default_factory=dict)
    files: int = 0
    rows: int = 0
    organisations: int = 0

    @property
    def who(self) -> str:
        """Kind of the accounts: ``"person"``, or ``"organisation"`` if all are organisations'."""
        return "organisation" if 0 < self.organisations == self.people else "person"

    @property
    def counted(self) -> str:
        """Number of accounts, in words."""
        one, more = ("organisation", "organisations") if self.who == "organisation" else ("person", "people")
        return f"{self.people:,} {one if self.people == 1 else more}"


def _task_lines(task: TaskAccount) -> list[str]:
    lines = []
    for one in task.levels:
        state = [f"{one.sent} sent", f"{one.queued} waiting for the log's confirmation"]
        if one.dropped:
            them = "it" if one.dropped == 1 else "them"
            state.append(f"{one.dropped} deleted before the log confirmed {them}, {_PERHAPS}")
        lines.append(
            f"{task.name}, level {one.level!r}: {one.released} released ({', '.join(state)}){one.days}, "
            f"{one.refused} refused. Each release: "
            f"{f'{COLLUDING}: ' if one.central else ''}"
            f"{_told_apart(one.guarantee) if one.mechanism in CENTRAL else ''}{promised(one.guarantee, one.mechanism)}"
            f"{f' {one.central.describe()}' if one.central else ''}"
        )
    if task.windows is not None:
        lines.append(_window_words(task.name, task.windows))
    if task.accountant.releases > 1:
        lines.append(f"{task.name}: {_all_words(task)}")
    for status in task.caps:
        scope = f"{task.name}, level {status.level!r}" if status.level else task.name
        lines.append(f"Promised for {scope}: {_cap_words(status)}")
    if task.published:
        lines.append(
            f"{task.name}: this person's features (without the target) are published with the task {task.name!r}, as "
            "part of its public sample. No noise protects them, and nothing else is released."
        )
    if task.withdrawn:
        lines.append(f"{task.name}: withdrawn{_on_day(task.withdrawn_on)}; nothing more is released to it.")
    return lines


def _all_words(task: TaskAccount) -> str:
    if task.windows is None or task.guarantee is None:
        return task.accountant.describe()
    words = f"{_told_apart(task.guarantee)}{against_a_blank_record(task.guarantee)}"
    return f"{task.accountant.releases} windows together: {words}"


def _window_words(name: str, sums: WindowCounts) -> str:
    parts = [f"{_windows(sums.released)} released as sketches, with {sums.records:,} records in all"]
    if sums.open:
        parts.append(f"{_windows(sums.open)} open when last recorded (nothing is debited for that yet)")
    if sums.left_out:
        parts.append(f"{_windows(sums.left_out)} left out as too small, with {sums.records_left_out:,} records in all")
    if sums.lost:
        parts.append(f"a window was lost {sums.lost:,} times, when a process died (nothing was debited for that)")
    return f"{name}: {'; '.join(parts)}."


def _windows(count: int) -> str:
    return "1 window was" if count == 1 else f"{count:,} windows were"


def _cap_words(status: CapStatus) -> str:
    return f"at most {status.cap}; spent {_spent_words(status)}"


def _spent_words(status: CapStatus) -> str:
    return "an amount unknown in its currency" if status.spent is None else status.spent.rounded()


def describe_together(statuses: Sequence[CapStatus], who: str = "person") -> list[str]:
    """Describe the largest amount that one person (or organisation) has spent over all tasks, a line for each cap."""
    lines = []
    for one in statuses:
        spent = _spent_words(one)
        if one.cap is None:
            lines.append(f"All tasks together: {_most_words(one, who, spent)}; no cap over all tasks (--lifetime)")
        else:
            cap = str(one.cap) if one.spent is None or one.cap.currency == "approx" else str(one.cap).split(" = ")[1]
            lines.append(f"All tasks together: {_most_words(one, who, f'{spent} of {cap}')}")
    return lines


def _most_words(one: CapStatus, who: str, spent: str) -> str:
    if who == "person":
        return f"{spent} at most for a person"
    told = "" if one.spent is None or not one.spent.units else _told_apart(guarantee_from_dict(one.spent.to_dict()))
    return f"{told}{spent} at most for an organisation's account"


def _told_apart(blank: Guarantee) -> str:
    """State how often records of an organisation are told apart, beginning with any two records."""
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
