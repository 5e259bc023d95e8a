"""``murk dead-letters``: messages that could not be learned."""

from collections import Counter
from itertools import islice

import click

from murk.cli.options import as_json, existing_log, open_existing
from murk.cli.output import print_json, table


@click.command("dead-letters")
@existing_log
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="Number of messages to list.")
@as_json
def command(log_url: str, limit: int, as_json: bool) -> None:
    """List messages that could not be learned, with the reasons."""
    log, task = open_existing(log_url)
    with log:
        reasons = Counter(letter.reason for letter in log.dead_letters())
        shown = list(islice(log.dead_letters(), limit))
    total = sum(reasons.values())
    if as_json:
        keys = ("partition", "offset", "reason", "detail")
        letters = [{key: getattr(each, key) for key in keys} for each in shown]
        print_json({"task": task.name, "total": total, "reasons": dict(reasons), "dead_letters": letters})
        return
    if not total:
        click.echo(f"{task.name}: no dead letters")
        return
    click.echo(f"{task.name}: {total:,} dead letters ({', '.join(f'{n:,} {r}' for r, n in reasons.most_common())})")
    rows = [[f"{each.partition}:{each.offset}", each.reason, each.detail] for each in shown]
    table("", ["place", "reason", "detail"], rows)
    if total > limit:
        click.echo(f"... and {total - limit:,} more (--limit)")
