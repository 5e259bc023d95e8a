"""``murk produce``: release the records of a file to a log."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic, sleep

import click

from murk.cli.logs import logging_options
from murk.cli.metrics import MetricsAddress, metrics_port, people_metrics
from murk.cli.options import PeopleOptions, as_json, patience, patiently, population
from murk.cli.output import paragraph, print_json, progress

_PAUSE = 0.5


@click.command("produce")
@population
@click.option(
    "--fast-start",
    is_flag=True,
    help="Release more people at the first models of gradients (half of max_staleness), so that few wait.",
)
@patience(help="Stop when no learner has read the log for this long.")
@metrics_port("Serve Prometheus metrics, sums over at least 20 people, on port N.")
@logging_options(progress=False)
@as_json
def command(options: PeopleOptions, fast_start: bool, patience: float, metrics: MetricsAddress, as_json: bool) -> None:
    """Privatize the records of a file's people and send them, in a random order, to a log: `murk learn` learns from it.

    For gradients and scores, people wait until learners have published a recent model. With `protocol: summaries`,
    organisations release windows of records.
    """
    from murk.cli.report import print_accounts, print_check, print_labels, print_windows, say_notice
    from murk.populations.local_run import counted_rows, spent_together
    from murk.populations.people import check_task, open_accounts, population_of, wait_for_models
    from murk.protocols.device import interactive_of
    from murk.stream import open_log
    from murk.stream.log.interface import UnreachableError
    from murk.task import Task

    task = Task.load(options.task_path)
    crowd = options.population(fast_start=fast_start)
    if options.check:
        print_check(task, crowd, as_json)
        return
    log_url, path, simulated = options.log_of(task), options.ledger_of(task), options.simulated
    check_task(task, crowd.policy)
    start = monotonic()
    # On Kafka, `murk topics` creates the log.
    create = not log_url.startswith("kafka:")
    with (
        open_log(log_url, create=create, name=task.name) as log,
        patiently(patience, lambda: open_accounts(log, path, simulated=simulated)) as accounts,
    ):
        agree = options.asking(log.url)
        people = patiently(patience, lambda: population_of(task, replace(crowd, agree=agree), log, accounts))
        say_notice(people.task, people, as_json, rate=options.rate)
        before = people.releases
        with (
            progress(f"{task.name}: produced", people.size, quiet=as_json) as tick,
            people_metrics(metrics, people.task, accounts) as refresh,
        ):
            last, interactive = monotonic(), interactive_of(people.device)
            while True:
                try:
                    for step in people.steps():
                        refresh()
                        tick(step.rows, people.words())
                        if interactive is not None:
                            wait_for_models(log, interactive, patience, idle=accounts.tidy)
                        last = monotonic()
                    break
                except UnreachableError as error:
                    # Privatized releases wait in the outbox and are sent first when the log is back.
                    if monotonic() - last > patience:
                        raise
                    refresh()
                    tick(people.next_position, f"waiting: {error}")
                    sleep(_PAUSE)
        report = {
            "task": task.name,
            **people.figures(),
            "releases": people.releases,
            "simulated": people.task.simulated,
            "counted_rows": counted_rows(people),
            "seconds": monotonic() - start,
            **spent_together(accounts),
        }
    if as_json:
        print_json(report)
        return
    sent = f"{people.releases:,} releases sent"
    if before:
        sent = f"{people.releases - before:,} releases now, {before:,} before"
    click.echo(f"{task.name}: {sent}, {report['refusals']:,} refused")
    if report["counted_rows"]:
        paragraph(report["counted_rows"])
    print_windows(report)
    print_labels(report)
    print_accounts(report)
