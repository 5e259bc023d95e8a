"""``murk produce``: release the records of a file to a log."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

import click

from murk.cli.logs import logging_options, start_logging
from murk.cli.metrics import metrics_port, people_metrics
from murk.cli.options import as_json, asking, level_or_column, patience, patiently, population
from murk.cli.output import paragraph, print_json, progress

if TYPE_CHECKING:
    from murk.populations.order import Order
    from murk.privacy import Guarantee

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
@logging_options
@as_json
def command(
    task_path: str,
    source: str,
    log_url: str | None,
    ledger: str | None,
    person: str | None,
    time: str | None,
    level: str,
    guarantee_column: str | None,
    seed: int | None,
    order: Order,
    rate: float | None,
    block: int | None,
    check: bool,
    make_public: int | None,
    lifetime: Guarantee | None,
    fast_start: bool,
    patience: float,
    metrics_port: int | None,
    metrics_host: str,
    verbose: int,
    log_json: bool,
    as_json: bool,
) -> None:
    """Privatize the records of a file's people and send them, in a random order, to a log: `murk learn` learns from it.

    For gradients and scores, people wait until learners have published a recent model. With `protocol: summaries`,
    organisations release windows of records.
    """
    from murk.cli.report import print_accounts, print_check, print_labels, print_windows, say_notice
    from murk.populations.ledger_places import default_ledger
    from murk.populations.local_run import counted_rows, spent_together
    from murk.populations.people import PopulationConfig, check_task, open_accounts, population_of, wait_for_models
    from murk.producers import Policy
    from murk.protocols.device import interactive_of
    from murk.stream import open_log
    from murk.stream.log.interface import UnreachableError
    from murk.task import Task

    start_logging(verbose, log_json)
    task = Task.load(task_path)
    policy = Policy(lifetime=lifetime, public_sample=True)
    crowd = PopulationConfig(
        Path(source),
        person,
        level_or_column(level, guarantee_column),
        seed,
        block,
        policy,
        order=order,
        time=time,
        fast_start=fast_start,
    )
    if check:
        print_check(task, crowd, as_json)
        return
    log_url = log_url or f"sqlite:///{task.name}.db"
    check_task(task, policy)
    start = monotonic()
    path = ledger or default_ledger(source, task.name, simulated=seed is not None)
    # On Kafka, `murk topics` creates the log.
    create = not log_url.startswith("kafka:")
    with (
        open_log(log_url, create=create, name=task.name) as log,
        patiently(patience, lambda: open_accounts(log, path, simulated=seed is not None)) as accounts,
    ):
        agree = asking(log.url, source, simulated=seed is not None, agreed=make_public)
        people = patiently(patience, lambda: population_of(task, replace(crowd, agree=agree), log, accounts))
        say_notice(people.task, people, as_json, rate=rate)
        before = people.releases
        with (
            progress(f"{task.name}: produced", people.size, quiet=as_json or log_json) as tick,
            people_metrics(metrics_port, metrics_host, people.task, accounts) as refresh,
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
