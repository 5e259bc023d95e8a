"""A person's account on one screen: what was sent, what it can disclose, and how to withdraw. It names nobody."""

import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial

import click

from murk._internal.numbers import many
from murk.cli.output import heading
from murk.privacy import Guarantee
from murk.privacy.guarantees import figures, percent
from murk.producers.ledger.statements import Account, CapStatus, LevelAccount, TaskAccount, added, day_text
from murk.task.shuffling import COLLUDING
from murk.task.windows import each_of

_LABEL, _WIDEST, _MOST = 14, 100, 6
_COMMAND = "murk ledger LEDGER --person NAME"  # without the path, which may contain a person's name


def show_statement(account: Account) -> None:
    """Print the account of a person, not of an organisation."""
    width = min(_WIDEST, shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDEST)
    today = datetime.now(UTC).date().isoformat()
    click.echo(f"Your account on {today} (UTC). Nothing on this page says who you are.")
    for title, lines in _sections(account):
        click.echo()
        heading(title)
        for label, text in lines:
            first, others = f"  {label:<{_LABEL}}", " " * (_LABEL + 2)
            fill = partial(textwrap.fill, break_long_words=False, break_on_hyphens=False)
            click.echo(fill(text, width, initial_indent=first, subsequent_indent=others))


def _sections(account: Account) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    for task in account.tasks:
        title = f"{task.name}, a simulation: its noise can be recomputed and protects nobody"
        yield title if task.simulated else task.name, list(_task(task))
    real = [task for task in account.tasks if not task.simulated]
    if account.caps or len(account.tasks) > 1:
        lines = []
        if account.guarantee is not None and len(real) == len(account.tasks) > 1:
            lines.append(("Kept private", _private(account.guarantee, "all answers together")))
        yield "All tasks", lines + [("Budget", _budget([cap])) for cap in account.caps]
    if account.raised:
        yield "Budgets raised", [(day_text(each.day), f"{each.describe()}.") for each in account.raised]
    yield "Your way out", list(_way_out(account))


def _task(task: TaskAccount) -> Iterator[tuple[str, str]]:
    if task.published:
        features = "Your features, without the target, are published with this task without noise."
        yield "Published", f"{features} Nothing else of yours is released to it."
    if task.known:
        yield "Sent as it is", f"{task.known}, without noise and under no guarantee."
    for level in task.levels:
        if level.released or level.refused:
            yield (
                "Sent",
                _sent(
                    level,
                    "whoever holds the file of records" if task.from_file else "the device that holds this ledger",
                ),
            )
    if task.renewed is not None:
        yield "Windows", f"{task.renewed.describe()}.".capitalize()
    if task.accountant.releases and not task.simulated:
        other = f"any other with the same {task.known}" if task.known else "any other"
        answers = "it" if task.accountant.releases == 1 else "all these answers together"
        none = "These releases have no joint guarantee of one kind: --details shows the guarantee of each."
        central = next((level.central for level in task.levels if level.released and level.central is not None), None)
        if central is None:
            yield "Kept private", none if task.guarantee is None else _private(task.guarantee, answers, other)
        elif task.guarantee is not None:
            yield "Kept private", f"{COLLUDING}: {_private(task.guarantee, answers)}"
            # Such a task takes one answer of each person.
            yield "", f"{central.condition}: {_private(central.guarantee, answers)}"
    caps = [cap for cap in task.caps if cap.cap is not None]
    if caps and task.levels:
        yield "Budget", _budget(caps)
    numbers = sorted(number for level in task.levels for number in level.receipts)
    if numbers:
        yield "Receipt", _receipt(numbers, shuffled=any(level.central for level in task.levels))
    if task.withdrawn:
        yield "Withdrawn", f"{_on(task.withdrawn_on)}You no longer take part in this task."


def _sent(one: LevelAccount, who: str) -> str:
    unsure = one.queued or one.dropped
    nothing = "Nothing that the log has confirmed" if unsure else "Nothing yet"
    count = many(one.sent, "answer") if one.sent else nothing
    parts = [f"{count}, randomized by {who} before it was sent{one.days}"]
    if one.queued:
        parts.append(f"{one.queued} more waiting for the log to confirm {_them(one.queued)}")
    if one.dropped:
        parts.append(f"{one.dropped} deleted before the log confirmed {_them(one.dropped)}, which may have been sent")
    if one.refused:
        parts.append(f"{one.refused} refused, beyond your budget or after your withdrawal")
    return f"{'; '.join(parts)} (level {one.level!r})."


def _them(count: int) -> str:
    return "it" if count == 1 else "them"


def _private(guarantee: Guarantee, what: str, other: str = "any other") -> str:
    return (
        f"From {what}, an attacker with any knowledge and computing power tells your record from {other} in at most "
        f"{percent(guarantee.max_attack_accuracy)} of cases; guessing gives 50%. ({figures(guarantee)})"
    )


def _budget(caps: Sequence[CapStatus]) -> str:
    parts = []
    for status in caps:
        spent = "an amount that this unit cannot express" if status.spent is None else status.spent.rounded()
        at = f" at level {status.level!r}" if status.level else ""
        each = f" {each_of(status.window)} (in the newest one)" if status.window else ""
        parts.append(f"{spent} spent{added(status)} of at most {status.cap}{each}{at}")
    return f"{'; '.join(parts)}. Spent budget is not refunded, and nothing is released beyond the cap."


def _receipt(numbers: Sequence[int], *, shuffled: bool) -> str:
    first_numbers = ", ".join(map(str, numbers[:_MOST]))
    more = f" and {len(numbers) - _MOST:,} more" if len(numbers) > _MOST else ""
    recognition = "somebody who has this ledger or your file may recognise it by its position in the log"
    who = "the shuffler may recognise it when it comes" if shuffled else recognition
    return (
        f"No. {first_numbers}{more} in this ledger. What was sent carries no number or name, but {who}. It says no "
        "more about your record than stated above."
    )


def _way_out(account: Account) -> Iterator[tuple[str, str]]:
    if account.withdrawn:
        yield "Withdrawn", f"{_on(account.withdrawn_on)}Nothing more is released to any task."
    else:
        effect = "deletes waiting answers and stops further ones (--task NAME: for one task)"
        yield "To stop", f"`{_COMMAND} --withdraw` {effect}."
    sent = "What was sent cannot be taken back, or removed from a result that was learned from it."
    yield "What stays", f"{sent} It will never say more about you than stated above."


def _on(day: int | None) -> str:
    return "" if day is None else f"On {day_text(day)}. "
