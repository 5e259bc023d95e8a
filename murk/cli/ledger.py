"""``murk ledger``: a person's or organisation's own view of what was promised, spent and sent, and the way out."""

from __future__ import annotations

from dataclasses import asdict

import click

from murk.cli.options import as_json
from murk.cli.output import paragraph, print_json, table
from murk.errors import UserError


@click.command("ledger")
@click.argument("path", type=click.Path())
@click.option(
    "--person",
    metavar="NAME",
    help="Whose account: a name (a person's or an organisation's), or a row (from 1) with --source.",
)
@click.option("--source", metavar="FILE", help="The file that the row is of, where each row is a person.")
@click.option("--withdraw", is_flag=True, help="Unsend what waits and refuse every further release of hers.")
@as_json
def command(path: str, person: str | None, source: str | None, withdraw: bool, as_json: bool) -> None:
    """Show what a person was promised, spent and sent; or sums over everybody in the ledger PATH.

    What was already sent cannot be taken back, and what was spent is not refunded.
    """
    from murk.producers import Ledger

    with Ledger(path, create=False) as ledger:
        if person is None:
            if withdraw:
                raise UserError("--withdraw needs --person: who withdraws?")
            totals = ledger.totals()
            if as_json:
                print_json(
                    {
                        "people": totals.people,
                        "releases": totals.releases,
                        "refused": totals.refused,
                        "queued": totals.queued,
                        "withdrawn": totals.withdrawn,
                        "levels": [
                            {"task": task, "level": level, "releases": count}
                            for (task, level), count in totals.levels.items()
                        ],
                    }
                )
                return
            click.echo(
                f"{totals.people:,} people, {totals.releases:,} releases paid for, {totals.refused:,} refused, "
                f"{totals.queued:,} waiting in the outbox, {totals.withdrawn:,} withdrawn"
            )
            rows = [[task, level, f"{count:,}"] for (task, level), count in totals.levels.items()]
            table("", ["task", "level", "releases"], rows)
            return
        key, digest = _key(person, source)
        purged = ledger.withdraw(key, source=digest) if withdraw else 0
        account = ledger.account(key, source=digest)
        if as_json:
            print_json(
                {
                    "withdrawn": account.withdrawn,
                    "purged": purged,
                    "guarantee": None if account.guarantee is None else account.guarantee.to_dict(),
                    "tasks": [
                        {
                            "task": task.name,
                            "withdrawn": task.withdrawn,
                            "windows": None if task.windows is None else asdict(task.windows),
                            "levels": [
                                {
                                    "level": one.level,
                                    "guarantee": one.guarantee.to_dict(),
                                    "mechanism": one.mechanism,
                                    "released": one.released,
                                    "sent": one.sent,
                                    "queued": one.queued,
                                    "refused": one.refused,
                                }
                                for one in task.levels
                            ],
                        }
                        for task in account.tasks
                    ],
                    "words": account.describe(),
                }
            )
            return
        if withdraw:
            click.echo(f"Withdrawn. {purged} release(s) that waited in the outbox will not be sent.")
        for line in account.describe():
            paragraph(line, "  ")


def _key(person: str, source: str | None) -> tuple[str | int, str | None]:
    """What the ledger knows her by: her name, or her row in a file."""
    if source is None:
        return person, None
    from pathlib import Path

    from murk.producers.reading import survey

    if not person.isdecimal() or int(person) < 1:
        raise UserError(f"--person {person!r} is no row: with --source give the row's number, counted from 1")
    return int(person) - 1, survey(Path(source)).digest
