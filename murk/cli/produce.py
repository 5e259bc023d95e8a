"""``murk produce``: a file's people release to a log that learners elsewhere read."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from murk.cli.options import as_json, population
from murk.cli.output import print_json, progress

if TYPE_CHECKING:
    from murk.stream.log import Log

_POLL = 0.01


@click.command("produce")
@population
@click.option("--patience", type=click.FloatRange(0), default=60.0, show_default=True, metavar="SECONDS",
              help="Stop when no learner reads the log for so long.")  # fmt: skip
@as_json
def command(
    task_path: str, source: str, log_url: str | None, ledger: str | None, person: str | None, level: str,
    seed: int | None, block: int | None, patience: float, as_json: bool,
) -> None:  # fmt: skip
    """Let a file's people privatize and send their records to a log; `murk learn` learns from it.

    Gradients need a fresh model, so the people wait until learners have published one.
    """
    from murk.producers.population import Crowd, Population, open_accounts
    from murk.stream import Task, open_log

    task = Task.load(task_path)
    log_url = log_url or f"sqlite:///{task.name}.db"
    start = time.monotonic()
    with open_log(log_url) as log, open_accounts(log, ledger or f"{task.name}.ledger.db") as accounts:
        people = Population(task, Crowd(Path(source), person, level, seed), log, accounts, block=block)
        with progress(f"{task.name}: produced", people.source.size, quiet=as_json) as tick:
            for step in people.steps():
                tick(step.rows, f"{step.refused:,} refused")
                _wait_for_learners(log, patience)
        found = {
            "task": task.name,
            "people": people.size,
            "records": people.source.size,
            "set_aside": len(people.excluded),
            "releases": people.releases,
            "refusals": people.refused,
            "simulated": people.task.simulated,
            "seconds": time.monotonic() - start,
        }
    if as_json:
        print_json(found)
    else:
        click.echo(f"{task.name}: {found['releases']:,} releases sent, {found['refusals']:,} refused")


def _wait_for_learners(log: Log, patience: float) -> None:
    """Wait until all is learned: a block is 1% of the count, and another one in flight would make it stale."""
    from murk.errors import MurkError

    chains = range(log.partitions)
    ends = [log.end(chain) for chain in chains]
    before, moved = None, time.monotonic()
    while True:
        read = [log.checkpoint(chain).offset for chain in chains]
        if all(offset >= end for offset, end in zip(read, ends, strict=True)):
            return
        now = time.monotonic()
        if read != before:
            before, moved = read, now
        elif now - moved > patience:
            raise MurkError(
                f"no learner has read {log.url} for {patience:g} s: start `murk learn --log {log.url}` "
                "and the same command again; it carries on where it stood"
            )
        time.sleep(_POLL)
