"""``murk shuffle``: forward releases in shuffled crowds, which hide from whom each release came."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from dataclasses import asdict
from logging import INFO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from murk.cli.interrupts import between_steps
from murk.cli.logs import logging_options, say, start_logging
from murk.cli.options import as_json, begin_on, patiently, wait_for_task
from murk.cli.output import print_json, progress

if TYPE_CHECKING:
    from murk.shuffler.shuffler import Totals
    from murk.stream import Task
    from murk.stream.log.base import Log

_SHORTEST, _LONGEST = 0.005, 0.5
"""Bounds of the pause while nothing arrives, in seconds."""


@click.command("shuffle")
@click.option("--from", "from_url", required=True, metavar="URL",
              help="The intake, which devices write to: sqlite:///FILE or kafka://HOST:PORT/NAME.")  # fmt: skip
@click.option("--to", "to_url", required=True, metavar="URL", help="The log of releases, which learners read.")
@click.option("--store", "store_path", type=click.Path(), metavar="PATH",
              help="File of the releases that wait for their crowd.  [default: FILE.store, or NAME.store]")  # fmt: skip
@click.option("--replace", is_flag=True,
              help="Take over from a shuffler whose store is lost; give up what waits there.")  # fmt: skip
@click.option("--idle", type=click.FloatRange(0), metavar="SECONDS",
              help="Stop when nothing has arrived for this long.")  # fmt: skip
@click.option("--patience", type=click.FloatRange(0), default=60.0, show_default=True, metavar="SECONDS",
              help="How long to wait for a broker that does not answer.")  # fmt: skip
@wait_for_task
@logging_options
@as_json
def command(
    from_url: str, to_url: str, store_path: str | None, replace: bool, idle: float | None, patience: float, wait: bool,
    verbose: int, log_json: bool, as_json: bool,
) -> None:  # fmt: skip
    """Forward releases from an intake to the log of releases, in crowds of the size that the task asks for.

    Each crowd is in a random order, with new ids and one time. What waits longer than the task's shuffle.patience is
    dropped, never released with fewer. Whoever runs this command knows who released what.
    """
    from murk.errors import UserError
    from murk.learners.problem import problem_for
    from murk.shuffler.shuffler import Shuffler
    from murk.shuffler.store import Store
    from murk.stream import open_log
    from murk.stream.log.base import UnreachableError

    # With --json, nothing else shows progress.
    start_logging(max(verbose, int(as_json)), log_json)
    if from_url == to_url:
        raise UserError(f"{from_url} is both --from and --to: devices need an intake of their own")
    with ExitStack() as stack:
        intake, task, _ = begin_on(from_url, lambda log, task: None, wait=wait)
        stack.enter_context(intake)
        if task.shuffle is None:
            raise UserError(f"the task {task.name!r} is not shuffled: add shuffle: {{crowd: 20000}} to its file")
        log = stack.enter_context(open_log(to_url, create=not to_url.startswith("kafka:"), name=task.name))
        place = store_path or _beside(intake, task)
        problem = problem_for(task)

        def begin() -> Shuffler:
            log.register_task(task.document())
            return Shuffler(intake, log, task, problem, Store(place), replace=replace)

        shuffler = patiently(patience, begin)
        replace = False
        stack.callback(lambda: shuffler.close())
        totals = shuffler.totals
        start = last = reached = time.monotonic()
        shown, pause, trouble = 0.0, _SHORTEST, ""
        with progress(f"{task.name}: released", None, quiet=as_json or log_json) as tick, between_steps() as asked:
            with suppress(KeyboardInterrupt):
                while not asked() and (idle is None or time.monotonic() - last <= idle):
                    moment = time.monotonic()
                    try:
                        if trouble:
                            shuffler.close()
                            shuffler = begin()
                        trouble, step = "", shuffler.step()
                        totals, reached = shuffler.totals, time.monotonic()
                    except UnreachableError as error:
                        if time.monotonic() - reached > patience:
                            raise
                        trouble = str(error)
                    if trouble or step.idle:
                        time.sleep(pause)
                        pause = min(_LONGEST, 1.5 * pause)
                    else:
                        last, pause = moment, _SHORTEST
                    if not (as_json or log_json) and moment - shown > 0.2:
                        tick(totals.released, trouble or _words(totals, task))
                        shown = moment
            if asked():
                say("stopped", INFO)
    found = _report(task, intake.url, log.url, place, totals, time.monotonic() - start)
    if as_json:
        print_json(found)
        return
    click.echo(f"{task.name}: {totals.released:,} releases in {totals.crowds:,} crowds; {_words(totals, task)}")
    if totals.duplicates or totals.refused:
        refused = ", ".join(f"{count:,} {reason}" for reason, count in totals.refused.items())
        click.echo(f"removed before counting: {totals.duplicates:,} duplicates{', ' * bool(refused)}{refused}")


def _beside(intake: Log, task: Task) -> Path:
    scheme, _, path = intake.url.partition(":///")
    return Path(f"{path if scheme == 'sqlite' else task.name}.store")


def _words(totals: Totals, task: Task) -> str:
    assert task.shuffle is not None
    return f"{totals.waiting:,} wait for a crowd of {task.shuffle.crowd:,}, {totals.dropped:,} dropped"


def _report(task: Task, source: str, target: str, store: str | Path, totals: Totals, seconds: float) -> dict[str, Any]:
    assert task.shuffle is not None
    places = {"task": task.name, "from": source, "to": target, "store": str(store), "crowd": task.shuffle.crowd}
    return {**places, **asdict(totals), "seconds": seconds}
