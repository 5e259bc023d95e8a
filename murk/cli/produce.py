"""``murk produce``: a file's people release to a log that learners elsewhere read."""

from __future__ import annotations

import time
from pathlib import Path

import click

from murk.cli.options import as_json, population
from murk.cli.output import print_json, progress

_POLL = 0.02


@click.command("produce")
@population
@click.option("--patience", type=click.FloatRange(0), default=60.0, show_default=True, metavar="SECONDS",
              help="Stop when no learner publishes a model for so long.")  # fmt: skip
@as_json
def command(
    task_path: str, source: str, log_url: str | None, ledger: str | None, person: str | None, level: str,
    seed: int | None, block: int | None, patience: float, as_json: bool,
) -> None:  # fmt: skip
    """Let a file's people privatize and send their records to a log; `murk learn` learns from it.

    Gradients need a fresh model, so the people wait until learners have published one.
    """
    from murk.errors import MurkError
    from murk.producers import Ledger
    from murk.producers.local import Crowd, Population
    from murk.stream import Task, open_log
    from murk.stream.checkpoint import decode_state

    task = Task.load(task_path)
    log_url = log_url or f"sqlite:///{task.name}.db"
    start = time.monotonic()
    with open_log(log_url) as log, Ledger(ledger or f"{task.name}.ledger.db") as accounts:
        people = Population(task, Crowd(Path(source), person, level, seed), log, accounts, block=block)
        resolved = people.task

        def waiting() -> int:
            """How many releases the slowest chain has not learned."""
            behind = 0
            for chain in range(resolved.log.partitions):
                state = log.checkpoint(chain).state
                learned = 0 if state is None else decode_state(state, log.url).offset
                behind = max(behind, log.end(chain) - learned)
            return behind

        with progress(f"{task.name}: produced", people.source.size, quiet=as_json) as tick:
            for step in people.steps():
                tick(step.rows, f"{step.refused:,} refused")
                deadline = time.monotonic() + patience
                # A block is 1% of the count; another one in flight would make gradients stale.
                while waiting() > 0:
                    if time.monotonic() > deadline:
                        raise MurkError(
                            f"no learner has read {log_url} for {patience:g} s: start `murk learn --log {log_url}` "
                            "and the same command again; it carries on where it stood"
                        )
                    time.sleep(_POLL)
        found = {
            "task": resolved.name,
            "people": people.source.size,
            "set_aside": len(people.excluded),
            "releases": people.releases,
            "refusals": people.refused,
            "simulated": resolved.simulated,
            "seconds": time.monotonic() - start,
        }
    if as_json:
        print_json(found)
    else:
        click.echo(f"{resolved.name}: {found['releases']:,} releases sent, {found['refusals']:,} refused")
