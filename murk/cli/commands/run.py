"""``murk run``: devices, log and learner in one process."""

from __future__ import annotations

import gc
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from murk.cli.commands.learn import COLLECT
from murk.cli.options import PeopleOptions, as_json, population
from murk.cli.output import progress

if TYPE_CHECKING:
    from murk.populations.people import PopulationConfig
    from murk.task import Task


@click.command("run")
@population
@as_json
def command(options: PeopleOptions, as_json: bool) -> None:
    """Learn TASK from a file of people: devices, log and learner in one process.

    People release in a random order, whatever the order of FILE. Every record is privatized on its person's simulated
    device, debited to their account, sent through the log and learned. With `protocol: summaries`, organisations
    release windows of records. The same command resumes a killed run.
    """
    from murk.cli.report import print_check, print_result
    from murk.task import Task

    task = Task.load(options.task_path)
    log_url = options.log_of(task)
    population = options.population(agree=options.asking(log_url))
    if options.check:
        print_check(task, population, as_json)
        return
    report = execute(task, population, log_url, options.ledger_of(task), quiet=as_json, rate=options.rate)
    print_result(report, as_json=as_json)


def execute(
    task: Task,
    population: PopulationConfig,
    log_url: str,
    ledger: str | Path,
    *,
    quiet: bool = False,
    rate: float | None = None,
    history: bool = False,
) -> dict[str, Any]:
    """Run to the end, showing progress, and return the report."""
    from murk.cli.report import brief, say_notice
    from murk.populations.local_run import LocalRun, report_run

    start = monotonic()
    gc.set_threshold(*COLLECT)
    with LocalRun(task, population, log_url, ledger) as run:
        people = run.population
        say_notice(run.task, people, quiet, rate=rate)
        with progress(task.name, people.size, quiet=quiet) as tick:
            shown_at = 0.0
            for step in run.steps():
                if not quiet and monotonic() - shown_at > 0.2:
                    tick(
                        step.rows,
                        brief(run.task, run.estimate(), run.engines, people.repeats())
                        if run.releases
                        else people.words(),
                    )
                    shown_at = monotonic()
            tick(people.size, brief(run.task, run.estimate(), run.engines, people.repeats()))
        return report_run(run, start, history=history)
