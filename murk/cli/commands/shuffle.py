"""``murk shuffle``: forward releases in shuffled crowds, which hide from whom each release came."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from dataclasses import asdict
from logging import INFO
from typing import TYPE_CHECKING

import click

from murk.cli.interrupts import between_steps
from murk.cli.logs import logging_options, say
from murk.cli.metrics import MetricsAddress, metrics_port, shuffler_metrics
from murk.cli.options import as_json, idle, patience, store, wait_for_task
from murk.cli.output import print_json, progress

if TYPE_CHECKING:
    from murk.shuffler.shuffler import Totals


@click.command("shuffle")
@click.option(
    "--from",
    "from_url",
    required=True,
    metavar="URL",
    help="The input log, which devices write to: sqlite:///FILE or kafka://HOST:PORT/NAME.",
)
@click.option("--to", "to_url", required=True, metavar="URL", help="The log of releases, which learners read.")
@store(help="File of the releases that wait for their crowd.  [default: FILE.store, or NAME.store]")
@click.option(
    "--replace", is_flag=True, help="Take over from a shuffler whose store is lost; give up what waits there."
)
@idle
@patience(help="How long to wait for a broker that does not answer.")
@wait_for_task
@metrics_port("Serve /metrics and /healthz on port N.")
@logging_options(progress=True)
@as_json
def command(
    from_url: str,
    to_url: str,
    store_path: str | None,
    replace: bool,
    idle: float | None,
    patience: float,
    wait: bool,
    metrics: MetricsAddress,
    as_json: bool,
) -> None:
    """Forward releases from an input log to the log of releases, in crowds of the size that the task asks for.

    Each crowd is in a random order, with new ids and one time. A crowd that is not complete within the task's
    shuffle.patience is dropped. Whoever runs this command knows who released what.
    """
    from murk._internal.numbers import many
    from murk.cli.shuffling import shuffling

    with ExitStack() as stack:
        running = stack.enter_context(
            shuffling(from_url, to_url, store_path, replace=replace, patience=patience, wait=wait)
        )
        task = running.task
        assert task.shuffle is not None
        crowd = task.shuffle.crowd
        update = stack.enter_context(shuffler_metrics(metrics, running))
        start = last = time.monotonic()
        shown_at = 0.0
        with progress(f"{task.name}: released", None, quiet=as_json) as tick, between_steps() as asked:
            with suppress(KeyboardInterrupt):
                while not asked() and (idle is None or time.monotonic() - last <= idle):
                    done = running.step()
                    moment = time.monotonic()
                    if done:
                        last = moment
                    update()
                    if not as_json and moment - shown_at > 0.2:
                        tick(running.totals.released, running.trouble or _words(running.totals, crowd))
                        shown_at = moment
            if asked():
                say("stopped", INFO)
    totals = running.totals
    urls = dict(zip(("from", "to"), running.urls, strict=True))
    report = {"task": task.name, **urls, "store": str(running.store), "crowd": crowd, **asdict(totals)}
    report["seconds"] = time.monotonic() - start
    if as_json:
        print_json(report)
        return
    click.echo(f"{task.name}: {totals.released:,} releases in {many(totals.crowds, 'crowd')}; {_words(totals, crowd)}")
    if totals.duplicates or totals.refused:
        refused = ", ".join(f"{count:,} {reason}" for reason, count in totals.refused.items())
        click.echo(f"removed before counting: {totals.duplicates:,} duplicates{', ' * bool(refused)}{refused}")


def _words(totals: Totals, crowd: int) -> str:
    return f"{totals.waiting:,} wait for a crowd of {crowd:,}, {totals.dropped:,} dropped"
