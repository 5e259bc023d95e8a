"""What the ledger tells of accounts, in plain words."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from murk.privacy.gaussmix.words import against_a_blank_record, promised

if TYPE_CHECKING:
    from murk.producers.accounts import Account, Standing, TaskAccount
    from murk.producers.windows import WindowSums


def account_lines(account: Account) -> list[str]:
    """A person's account, a sentence or two a line."""
    if not account.is_known:
        return [
            "Nothing was ever released under this name. (Where the rows of a file are people, a person is a row "
            "together with the file, --source; an organisation without a column of its own is 'organisation'.)"
        ]
    lines = []
    for task in account.tasks:
        lines += _task_lines(task)
    # Nothing released is not nothing disclosed where features were published.
    if len(account.tasks) > 1 and (account.accountant.releases or not any(task.published for task in account.tasks)):
        lines.append(f"All tasks: {account.accountant.describe()}")
    lines += [f"Promised over all tasks: {_words(standing)}" for standing in account.caps]
    if account.withdrawn:
        lines.append(f"The person has withdrawn{_on(account.withdrawn_on)}: nothing more is released to any task.")
    return lines


def _task_lines(task: TaskAccount) -> list[str]:
    lines = []
    for one in task.levels:
        state = [f"{one.sent} sent", f"{one.queued} waiting", f"{one.dropped} let go of unsent"]
        lines.append(
            f"{task.name}, level {one.level!r}: {one.released} released ({', '.join(state)}){one.days}, "
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
            f"{task.name}: this person's features (without the target) were published with the task {task.name!r}, as "
            "part of its public sample. No noise protects them, and nothing else is released."
        )
    if task.withdrawn:
        lines.append(f"{task.name}: withdrawn{_on(task.withdrawn_on)}; nothing more is released to it.")
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


def describe_together(standings: Sequence[Standing]) -> list[str]:
    """Say what the person who has spent most has spent on all tasks together, a line for each cap."""
    lines = []
    for one in standings:
        spent = "an amount that has no figure in its terms" if one.spent is None else one.spent.rounded()
        if one.cap is None:
            lines.append(f"All tasks together: {spent} at most for a person; no cap over all tasks (--lifetime)")
        else:
            cap = str(one.cap) if one.spent is None or one.cap.currency == "approx" else str(one.cap).split(" = ")[1]
            lines.append(f"All tasks together: {spent} of {cap} at most for a person")
    return lines


def day_text(day: int) -> str:
    """A day of the ledger, as ``2026-11-22``."""
    return datetime.fromtimestamp(day, UTC).date().isoformat()


def _on(day: int | None) -> str:
    return "" if day is None else f" on {day_text(day)}"
