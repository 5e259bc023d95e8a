"""``murk topics``: create and check a task's Kafka topics, and announce the task on a log."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from murk.cli.options import as_json, asking, load_task, log_url, make_public
from murk.cli.output import print_json
from murk.errors import UserError

if TYPE_CHECKING:
    from murk.task import Task

_ERROR_CODE = "MURK-CLI-002"

_ONE_COPY = (
    "one copy of the topics: if its disk is lost, so is what was learned. On three brokers or more create topics with "
    "--replication 3, or reassign their partitions with Kafka's own tools"
)
_STORED = "the task is stored in the log: devices and learners may begin"
_LATER = "is announced by `murk produce`, which sets its public sample aside"


@click.command("topics")
@click.argument("task_paths", metavar="TASK...", type=click.Path(), nargs=-1, required=True)
@log_url(required=True, help="The cluster: kafka://HOST:PORT[/NAME], or a file: sqlite:///PATH.")
@click.option(
    "--simulated",
    is_flag=True,
    help="For simulated releases, which protect nobody; permanent.  [with --check: as the log's task]",
)
@click.option(
    "--replication",
    type=click.IntRange(1),
    metavar="N",
    help="Replicas of each partition.  [default: the brokers' setting]",
)
@click.option("--estimates", is_flag=True, help="Also create a topic for estimates as JSON.")
@click.option("--check", is_flag=True, help="Change nothing; exit with 1 if there is a problem.")
@make_public
@as_json
def command(
    task_paths: tuple[str, ...],
    log_url: str,
    simulated: bool,
    replication: int | None,
    estimates: bool,
    check: bool,
    make_public: int | None,
    as_json: bool,
) -> None:
    """Create the topics of each TASK on a Kafka cluster, correct their settings and report problems.

    It also announces the task, unless its public covariates come from the people themselves: then `murk produce` does.
    A log in a file has no topics, and the task is only announced. With several tasks --json prints a line for each.
    """
    tasks = [load_task(path) for path in task_paths]
    if len({task.name for task in tasks}) < len(tasks):
        raise UserError("several TASK files have the same name: give each task a name of its own")
    if len(tasks) > 1 and log_url.removeprefix("kafka://").partition("/")[2]:
        raise UserError(f"{len(tasks)} tasks need a log each: give the URL of a cluster, kafka://HOST:PORT")
    fit = [
        _set_up(
            task.with_simulated(simulated),
            log_url,
            replication,
            make_public,
            estimates=estimates,
            check=check,
            as_json=as_json,
        )
        for task in tasks
    ]
    sys.exit(0 if all(fit) else 1)


def _set_up(
    task: Task,
    log_url: str,
    replication: int | None,
    make_public: int | None,
    *,
    estimates: bool,
    check: bool,
    as_json: bool,
) -> bool:
    """Set a task's topics up, print what was done, and return whether they fit the task."""
    from murk.populations.file_work import check_public, constant_in_public
    from murk.protocols.device import device_for
    from murk.results.models import retention_cautions
    from murk.results.report import cost_of_forgetting
    from murk.stream import open_log
    from murk.task.task import Disclosure

    on_kafka = log_url.startswith("kafka:")
    if not on_kafka and (replication is not None or estimates or check):
        raise UserError("only a log on Kafka has topics: remove --replication, --estimates and --check")
    simulated = task.simulated
    for caution in constant_in_public(task):
        click.echo(f"{task.name}: caution: {caution}", err=True)
    device_for(task).check_state()
    check_public(task, device_for(task))
    waiting = task.public is not None and task.public.set_aside is not None
    warnings = retention_cautions(task)
    if not on_kafka:
        if waiting:
            raise UserError(f"the task {task.name!r} {_LATER}")
        with open_log(log_url) as log:
            if log.document() is None and (disclosure := Disclosure.of(task)) is not None:
                asking(log_url, simulated=simulated, agreed=make_public)(disclosure)
            log.register_task(task.document())
        if as_json:
            nothing: dict[str, list[str]] = {"created": [], "problems": [], "warnings": warnings}
            print_json({"task": task.name, "log": log_url, **nothing, "announced": True, "simulated": simulated})
        else:
            click.echo("\n".join([*(f"caution: {warning}" for warning in warnings), f"{log_url}: {_STORED}"]))
        return True
    from murk.stream.log.kafka.log import TopicSetup

    with TopicSetup(log_url, task, replication=replication, estimates=estimates) as setup:
        if check and not simulated:
            simulated = setup.follow()
        created = [] if check else setup.create()
        problems = setup.problems()
        announced = setup.announced()
        if not check and not problems and not waiting:
            if not announced and (disclosure := Disclosure.of(task)) is not None:
                asking(setup.url, simulated=simulated, agreed=make_public)(disclosure)
            setup.register_task()
            announced = setup.announced()
        warnings = [*([_ONE_COPY] if setup.topics.copies() == 1 else []), *warnings]
    where = {"task": task.name, "log": setup.url, "created": created, "problems": problems}
    report = {**where, "warnings": warnings, "announced": announced, "simulated": simulated}
    if as_json:
        print_json(report)
    else:
        for topic in created:
            click.echo(f"created {topic}")
        for problem in problems:
            click.echo(problem, err=True)
        if not problems:
            if (cost := cost_of_forgetting(task)) is not None:
                click.echo(cost)
            click.echo(f"{setup.url}: the topics fit the task {task.name!r}")
            for warning in warnings:
                click.echo(f"caution: {warning}")
            if announced:
                click.echo(_STORED)
            elif waiting:
                click.echo(f"the task {_LATER}")
    return not problems
