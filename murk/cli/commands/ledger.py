"""``murk ledger``: accounts of people and organisations, and withdrawal."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from murk._internal.numbers import many
from murk.cli.options import as_json
from murk.cli.output import paragraph, print_json, table
from murk.errors import UserError

if TYPE_CHECKING:
    from murk.producers import Ledger
    from murk.producers.ledger.names import Key
    from murk.producers.ledger.statements import Account, LevelAccount

_ERROR_CODE = "MURK-CLI-002"


@click.command("ledger")
@click.argument("path", type=click.Path())
@click.option(
    "--person",
    metavar="NAME",
    help="Name of a person or an organisation, a row number (from 1) with --source, or - for a prompt, which "
    "keeps the name out of histories and process lists.",
)
@click.option("--source", metavar="FILE", help="File that contains the row, if each row is a person.")
@click.option("--withdraw", is_flag=True, help="Delete waiting releases and refuse further ones of this person.")
@click.option(
    "--task", metavar="NAME", help="With --withdraw: only from tasks of this name, now and later.  [default: all tasks]"
)
@click.option("--yes", is_flag=True, help="With --withdraw or --close: do not ask for confirmation.")
@click.option("--new", is_flag=True, help="With --withdraw --yes: allow a name that is not in the ledger.")
@click.option(
    "--close", is_flag=True, help="At the end of retention: delete all accounts and the key, and release nothing again."
)
@click.option("--details", is_flag=True, help="With --person: show the full account with all guarantees.")
@as_json
def command(
    path: str,
    person: str | None,
    source: str | None,
    withdraw: bool,
    task: str | None,
    yes: bool,
    new: bool,
    close: bool,
    details: bool,
    as_json: bool,
) -> None:
    """Show the account of a person, or sums over everybody in the ledger PATH.

    Sent releases cannot be taken back, and spent budget is not refunded.
    """
    from murk.cli.account import show_statement
    from murk.producers import Ledger

    if task is not None and not withdraw:
        raise UserError("--task requires --withdraw: it names the task to withdraw from")
    if new and not withdraw:
        raise UserError("--new requires --withdraw: it is for somebody who has not released yet")
    if close and (person is not None or withdraw):
        raise UserError("--close deletes everybody's accounts: give it without --person and --withdraw")
    with Ledger(path, create=False) as ledger:
        if close:
            _close(ledger, agreed=yes)
        if (closed := ledger.closed_on) is not None and person is not None:
            raise UserError(f"the ledger {path} was closed on {_day(closed)}: its accounts are deleted")
        if person is None:
            if withdraw:
                raise UserError("--withdraw requires --person")
            _everybody(ledger, as_json)
            return
        key, digest = _key(_ask_name() if person == "-" else person, source)
        receipt = _withdraw(ledger, key, digest, task, agreed=yes, new=new) if withdraw else None
        account = ledger.account(key, source=digest)
        if not account.is_known:
            raise UserError(account.describe()[0])
        if as_json:
            print_json(_document(account, receipt))
            return
        if receipt is not None:
            click.echo(receipt["words"])
        if details or any(each.windows for each in account.tasks):
            for line in account.describe():
                paragraph(line, "  ")
            return
        show_statement(account)


def _ask_name() -> str:
    if terminal():
        return str(click.prompt("Whose account", hide_input=True, err=True))
    return sys.stdin.readline().rstrip("\r\n")


def _everybody(ledger: Ledger, as_json: bool) -> None:
    totals, names = ledger.totals(), ledger.names
    if as_json:
        print_json(
            {
                **{name: getattr(totals, name) for name in ("people", "releases", "refused", "queued", "withdrawn")},
                "key": None if not names.is_keyed else "found" if names.missing() is None else "missing",
                "levels": [{"task": task, "level": level, "releases": n} for (task, level), n in totals.levels.items()],
                "together": [each.to_dict() for each in ledger.together()],
                "closed_on": _day(ledger.closed_on),
                "caps_raised": [
                    {"date": _day(each.day), "words": each.describe()} for each in ledger.changes() if each.is_raise
                ],
            }
        )
        return
    if ledger.closed_on is not None:
        click.echo(
            f"Closed on {_day(ledger.closed_on)}: all accounts are deleted, and nobody releases with this ledger."
        )
        return
    click.echo(
        f"{totals.counted}, {many(totals.releases, 'release')} paid for, {totals.refused:,} refused, "
        f"{totals.queued:,} waiting in the outbox, {many(totals.withdrawn, 'withdrawal')}"
    )
    rows = [[task, level, f"{count:,}"] for (task, level), count in totals.levels.items() if task not in totals.ranges]
    for name, words in totals.ranges.items():
        counts = [count for (task, _), count in totals.levels.items() if task == name]
        rows.append([name, f"{len(counts)} levels, {words}", f"{sum(counts):,}"])
    table("", ["task", "level", "releases"], rows)
    for line in ledger.describe_together():
        paragraph(line)
    for change in ledger.changes():
        if change.is_raise:
            paragraph(f"A cap was RAISED on {_day(change.day)}, of {change.describe()}")
    if (missing := names.missing()) is not None:
        paragraph(f"The key is missing: {missing}")


def _close(ledger: Ledger, *, agreed: bool) -> None:
    """Delete all accounts, after confirmation."""
    totals = ledger.totals()
    if ledger.closed_on is not None:
        raise UserError(f"the ledger {ledger.path} was closed on {_day(ledger.closed_on)} already")
    if not agreed:
        if not terminal():
            raise UserError("--close asks for confirmation, and there is no terminal to ask at: add --yes")
        waiting = f" {many(totals.queued, 'release')} that wait to be sent are deleted." if totals.queued else ""
        click.confirm(
            f"Delete the accounts of {totals.counted}, and the key?{waiting} Nobody's spending and no withdrawal is "
            "known afterwards: these people must not be asked again as if they had spent nothing. This cannot be "
            "undone.",
            abort=True,
            err=True,
        )
    ledger.close_accounts()


def _withdraw(
    ledger: Ledger, key: Key, source: str | None, task: str | None, *, agreed: bool, new: bool
) -> dict[str, Any]:
    """Withdraw a person, after confirmation, and return the receipt."""
    tasks: list[str | None] = [None] if task is None else [*ledger.tasks_named(task)]
    is_known = ledger.account(key, source=source).is_known
    scope = "every task, now and later" if task is None else f"every task named {task!r}, now and later"
    if agreed and not is_known and not new:
        raise UserError(
            "nobody withdrew: nothing was ever released under this name. Check its spelling; capitals count. "
            "To withdraw somebody who has not released yet, add --new"
        )
    if not agreed:
        if not terminal():
            raise UserError("--withdraw asks for confirmation, and there is no terminal to ask at: add --yes")
        unknown = "" if is_known else "Nothing was ever released under this name; check its spelling. Capitals count. "
        question = f"{unknown}Withdraw from {scope}? Waiting releases are deleted and nothing more is released."
        click.confirm(f"{question} This cannot be undone.", abort=True, err=True)
    purged = sum(ledger.withdraw(key, task_hash=each, source=source) for each in tasks)
    account = ledger.account(key, source=source)
    withdrawn = [account] if task is None else [each for each in account.tasks if each.name == task]
    day = _day(withdrawn[0].withdrawn_on) if withdrawn else None
    words = (
        f"Withdrawn from {scope}{f', on {day}' if day else ''}. {purged} release(s) that waited in the outbox "
        f"{'is' if purged == 1 else 'are'} deleted{_PERHAPS if purged else ''}."
        f"{'' if is_known else ' Nothing was ever released under this name, and capitals count.'}"
    )
    return {"task": task, "date": day, "purged": purged, "known": is_known, "words": words}


_PERHAPS = " (not confirmed by the log; a release that was just being sent may have arrived)"


def terminal() -> bool:
    """Return whether standard input is a terminal."""
    return sys.stdin.isatty()


def _document(account: Account, receipt: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "withdrawn": account.withdrawn,
        "withdrawn_on": _day(account.withdrawn_on),
        "purged": 0 if receipt is None else receipt["purged"],
        "receipt": receipt,
        "guarantee": None if account.guarantee is None else account.guarantee.to_dict(),
        "caps": [cap.to_dict() for cap in account.caps],
        "tasks": [
            {
                "task": task.name,
                "simulated": task.simulated,
                **({"known": task.known} if task.known else {}),
                "withdrawn": task.withdrawn,
                "withdrawn_on": _day(task.withdrawn_on),
                "windows": None if task.windows is None else asdict(task.windows),
                "caps": [{"level": cap.level or None, **cap.to_dict()} for cap in task.caps],
                "levels": [_level(level) for level in task.levels],
            }
            for task in account.tasks
        ],
        "words": account.describe(),
    }


def _level(level: LevelAccount) -> dict[str, Any]:
    return {
        "level": level.level,
        "guarantee": level.guarantee.to_dict(),
        **({"central": level.central.to_dict()} if level.central is not None else {}),
        **{name: getattr(level, name) for name in ("mechanism", "released", "sent", "queued", "refused")},
        "receipts": list(level.receipts),
        "first": _day(level.first),
        "last": _day(level.last),
    }


def _day(day: int | None) -> str | None:
    from murk.producers.ledger.statements import day_text

    return None if day is None else day_text(day)


def _key(person: str, source: str | None) -> tuple[Key, str | None]:
    """Return the key of a person: a name, or a row index and the digest of its file."""
    if source is None:
        return person, None
    from pathlib import Path

    from murk.populations.records.files import survey

    if not person.isdecimal() or int(person) < 1:
        # Do not quote the value: it may be a name entered at the prompt.
        raise UserError("--person is not a row: with --source give the row's number, counted from 1")
    return int(person) - 1, survey(Path(source)).digest
