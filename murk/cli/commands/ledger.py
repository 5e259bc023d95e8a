"""``murk ledger``: a person's or organisation's own view of what was promised, spent and sent, and the way out."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from murk.cli.options import as_json
from murk.cli.output import paragraph, print_json, table
from murk.errors import UserError

if TYPE_CHECKING:
    from murk.producers import Ledger
    from murk.producers.ledger.accounts import Account, LevelAccount, TaskAccount
    from murk.producers.ledger.requests import Key


@click.command("ledger")
@click.argument("path", type=click.Path())
@click.option(
    "--person",
    metavar="NAME",
    help="Whose account: a name (a person's or an organisation's), a row (from 1) with --source, or - to be asked, so "
    "that the name is in no history or list of processes.",
)
@click.option("--source", metavar="FILE", help="The file that the row is of, where each row is a person.")
@click.option(
    "--withdraw", is_flag=True, help="Delete releases that wait and refuse every further release of this person."
)
@click.option(
    "--task", metavar="NAME", help="With --withdraw: from this task alone.  [default: from every task, for good]"
)
@click.option("--yes", is_flag=True, help="With --withdraw: do not ask.")
@click.option("--new", is_flag=True, help="With --withdraw --yes: also for a name that the ledger has never seen.")
@click.option("--details", is_flag=True, help="With --person: in full, with the guarantee's terms.")
@click.option(
    "--migrate",
    is_flag=True,
    help="Put keyed hashes in the place of names and files' digests, in a ledger of an earlier version; for good.",
)
@as_json
def command(
    path: str,
    person: str | None,
    source: str | None,
    withdraw: bool,
    task: str | None,
    yes: bool,
    new: bool,
    details: bool,
    migrate: bool,
    as_json: bool,
) -> None:
    """Show what a person was promised, spent and sent; or sums over everybody in the ledger PATH.

    What was already sent cannot be taken back, and what was spent is not refunded.
    """
    from murk.cli.statement import show_statement
    from murk.producers import Ledger

    if task is not None and not withdraw:
        raise UserError("--task goes with --withdraw: it names the task that a person withdraws from")
    if new and not withdraw:
        raise UserError("--new goes with --withdraw: it is for somebody who has not released yet")
    if migrate:
        if person is not None or withdraw:
            raise UserError("--migrate is about everybody in the ledger: leave --person and --withdraw out")
        _migrate(path, as_json)
        return
    with Ledger(path, create=False) as ledger:
        if person is None:
            if withdraw:
                raise UserError("--withdraw needs --person: who withdraws?")
            _everybody(ledger, as_json)
            return
        key, digest = _key(_asked() if person == "-" else person, source)
        receipt = _withdraw(ledger, key, digest, task, agreed=yes, new=new) if withdraw else None
        account = ledger.account(key, source=digest)
        if not account.is_known:
            raise UserError(account.describe()[0])
        if as_json:
            print_json(_document(account, receipt))
            return
        if receipt is not None:
            click.echo(receipt["words"])
        if details or any(one.windows for one in account.tasks):
            for line in account.describe():
                paragraph(line, "  ")
            return
        show_statement(account)


def _asked() -> str:
    """Ask for a name at the terminal, or read it from a line of standard input."""
    if terminal():
        return str(click.prompt("Whose account", hide_input=True, err=True))
    return sys.stdin.readline().rstrip("\r\n")


def _migrate(path: str, as_json: bool) -> None:
    from pathlib import Path

    from murk.producers.ledger.key import key_path
    from murk.producers.ledger.naming import hash_names

    done, key = hash_names(path), str(key_path(Path(path)))
    if as_json:
        print_json({"migrated": done, "names": "keyed", "key": key})
    elif done:
        paragraph(
            f"People, and the files that they released from, stand in {path} under keyed hashes now, and names and "
            f"digests of files nowhere in it. The key is {key}: keep a "
            "copy of it apart from the ledger's own copies, which name nobody without it and are of no use either. "
            "Earlier versions of Murk refuse the ledger from now on. Copies from before have the names still"
        )
    else:
        click.echo(f"nothing to do: people and files stand in {path} under keyed hashes already")


def _everybody(ledger: Ledger, as_json: bool) -> None:
    totals, together, names = ledger.totals(), ledger.together(), ledger.names
    if as_json:
        print_json(
            {
                "people": totals.people,
                "releases": totals.releases,
                "refused": totals.refused,
                "queued": totals.queued,
                "withdrawn": totals.withdrawn,
                "names": "plain" if names.are_plain else "unfinished" if names.is_unfinished else "keyed",
                "digests": "plain" if names.has_digests else "unfinished" if names.is_unfinished else "keyed",
                "key": None if not names.is_keyed else "found" if names.missing() is None else "missing",
                "levels": [
                    {"task": task, "level": level, "releases": count} for (task, level), count in totals.levels.items()
                ],
                "together": [one.to_dict() for one in together],
            }
        )
        return
    click.echo(
        f"{totals.counted}, {totals.releases:,} release{'s' * (totals.releases != 1)} paid for, "
        f"{totals.refused:,} refused, {totals.queued:,} waiting in the outbox, {totals.withdrawn:,} "
        f"withdrawal{'s' * (totals.withdrawn != 1)}"
    )
    rows = [[task, level, f"{count:,}"] for (task, level), count in totals.levels.items()]
    table("", ["task", "level", "releases"], rows)
    for line in ledger.describe_together():
        paragraph(line)
    missing = names.missing()
    if missing is not None:
        paragraph(f"The key is missing: {missing}")
    left = names.left()
    if left:
        paragraph(f"Caution: {left}")


def _withdraw(
    ledger: Ledger, key: Key, source: str | None, task: str | None, *, agreed: bool, new: bool
) -> dict[str, Any]:
    """Withdraw a person, after asking; the receipt."""
    tasks: list[str | None] = [None] if task is None else [*ledger.tasks_named(task)]
    known = ledger.account(key, source=source).is_known
    scope = "every task, now and later" if task is None else f"the task {task!r}"
    if agreed and not known and not new:
        raise UserError(
            "nobody withdrew: nothing was ever released under this name. Is it spelt as it was given? Capitals count. "
            "For somebody who has not released yet say --new, too"
        )
    if not agreed:
        if not terminal():
            raise UserError("--withdraw asks first, and there is no terminal to ask at: say --yes")
        unknown = (
            "" if known else "Nothing was ever released under this name; is it spelt as it was given? Capitals count. "
        )
        click.confirm(
            f"{unknown}Withdraw from {scope}? What waits is deleted, and nothing more is released. This cannot be "
            "taken back.",
            abort=True,
            err=True,
        )
    purged = sum(ledger.withdraw(key, task_hash=one, source=source) for one in tasks)
    day = _withdrawn_on(ledger.account(key, source=source), task)
    return {
        "task": task,
        "date": day,
        "purged": purged,
        "known": known,
        "words": f"Withdrawn from {scope}{f', on {day}' if day else ''}. {purged} release(s) that waited in the outbox "
        f"{'is' if purged == 1 else 'are'} deleted{_PERHAPS if purged else ''}."
        f"{'' if known else ' Nothing was ever released under this name, and capitals count.'}",
    }


_PERHAPS = " (the log had not confirmed that; if it was just being sent, it may be there)"


def terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty()


def _withdrawn_on(account: Account, task: str | None) -> str | None:
    if task is None:
        return _day(account.withdrawn_on)
    return next((_day(one.withdrawn_on) for one in account.tasks if one.name == task), None)


def _document(account: Account, receipt: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "withdrawn": account.withdrawn,
        "withdrawn_on": _day(account.withdrawn_on),
        "purged": 0 if receipt is None else receipt["purged"],
        "receipt": receipt,
        "guarantee": None if account.guarantee is None else account.guarantee.to_dict(),
        "caps": [one.to_dict() for one in account.caps],
        "tasks": [_task(task) for task in account.tasks],
        "words": account.describe(),
    }


def _task(task: TaskAccount) -> dict[str, Any]:
    return {
        "task": task.name,
        "simulated": task.simulated,
        "withdrawn": task.withdrawn,
        "withdrawn_on": _day(task.withdrawn_on),
        "windows": None if task.windows is None else asdict(task.windows),
        "caps": [{"level": one.level or None, **one.to_dict()} for one in task.caps],
        "levels": [_level(one) for one in task.levels],
    }


def _level(one: LevelAccount) -> dict[str, Any]:
    return {
        "level": one.level,
        "guarantee": one.guarantee.to_dict(),
        "mechanism": one.mechanism,
        "released": one.released,
        "sent": one.sent,
        "queued": one.queued,
        "refused": one.refused,
        "receipts": list(one.receipts),
        "first": _day(one.first),
        "last": _day(one.last),
    }


def _day(day: int | None) -> str | None:
    from murk.producers.ledger.accounts import day_text

    return None if day is None else day_text(day)


def _key(person: str, source: str | None) -> tuple[Key, str | None]:
    """What the ledger knows a person by: a name, or a row in a file."""
    if source is None:
        return person, None
    from pathlib import Path

    from murk.producers.populations.records.files import survey

    if not person.isdecimal() or int(person) < 1:
        # Not what was given: it may be a name that was typed where nobody was to see it.
        raise UserError("--person is no row: with --source give the row's number, counted from 1")
    return int(person) - 1, survey(Path(source)).digest
