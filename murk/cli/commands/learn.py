"""``murk learn``: learn from a log."""

from __future__ import annotations

import gc
import time
from contextlib import ExitStack, suppress
from functools import partial
from logging import INFO
from typing import TYPE_CHECKING

import click

from murk.cli.interrupts import between_steps
from murk.cli.logs import logging_options, say
from murk.cli.metrics import MetricsAddress, learner_metrics, metrics_port
from murk.cli.options import (
    as_json,
    begin_on,
    check_partitions,
    estimates,
    existing_log,
    idle,
    partitions,
    patiently,
    wait_for_task,
)
from murk.cli.output import progress

if TYPE_CHECKING:
    from murk.stream.log.interface import Log, Membership
    from murk.task import Task

_ERROR_CODE = "MURK-CLI-002"

_SHORTEST, _LONGEST, _SHARE = 0.005, 0.2, 0.05
"""Bounds in seconds of the pause while nothing arrives, and its share of the time since something last arrived."""
_PATIENCE = 10.0  # seconds for which --wait waits for an unreachable log at the final report, unless it was stopped
MOST_DESCRIPTORS = 65_536  # limit of file descriptors that a learner requests; it needs about ten per partition
COLLECT = (100_000, 20, 100)
"""Thresholds of Python's garbage collector, which would otherwise scan thousands of short-lived messages repeatedly."""


@click.command("learn")
@existing_log
@partitions(
    help="Learn this partition regardless of other learners; may be repeated.  [default: all assigned partitions]"
)
@idle
@click.option(
    "--name",
    metavar="NAME",
    help="Name by which a restarted learner gets its partitions again (Kafka).  [default: the host name and a number]",
)
@estimates
@wait_for_task
@metrics_port("Serve this process's health and Prometheus metrics on port N.")
@logging_options(progress=True)
@as_json
def command(
    log_url: str,
    partitions: tuple[int, ...],
    idle: float | None,
    name: str | None,
    estimates: float,
    wait: bool,
    metrics: MetricsAddress,
    as_json: bool,
) -> None:
    """Learn from the releases on a log, until stopped.

    On Kafka, learners on any number of machines share a log's partitions. On a log in a file, and with --partition, a
    learner takes over the partition from one that started earlier.
    """
    from murk.cli.estimates import publisher
    from murk.cli.report import brief, print_result
    from murk.planning.advice import advise
    from murk.protocols.device import device_for
    from murk.results.report import report_log
    from murk.stream.log.interface import AllPartitions
    from murk.stream.worker.pool import WorkerPool
    from murk.stream.worker.recovery import check_shuffled

    gc.set_threshold(*COLLECT)
    _raise_descriptor_limit()
    with ExitStack() as stack:

        def join(log: Log, task: Task) -> Membership:
            check_shuffled(log, task)
            check_partitions(partitions, task)
            return AllPartitions(partitions) if partitions else log.join(name)

        log, task, membership = begin_on(log_url, join, wait=wait)
        stack.enter_context(log)
        device = device_for(task)
        published = partial(publisher, log, task, device, estimates)
        team = stack.enter_context(WorkerPool(log, task, device.engine, membership, estimates=published))
        refresh = stack.enter_context(learner_metrics(metrics, task, team))

        def now() -> str:
            if team.trouble is not None:
                return team.trouble
            engines = [team.learners[partition] for partition in sorted(team.learners)]
            if not engines:
                return "no partition is assigned to this process: other learners have them all"
            return brief(task, device.estimate(engines), engines)

        start = last = time.monotonic()
        shown_at, learned = 0.0, 0
        with progress(f"{task.name}: learned", None, quiet=as_json) as tick, between_steps() as asked:
            with suppress(KeyboardInterrupt):
                while not asked() and (idle is None or time.monotonic() - last <= idle):
                    read = team.step()
                    refresh()
                    moment = time.monotonic()
                    if read:
                        last = moment
                    else:
                        time.sleep(min(_LONGEST, max(_SHORTEST, _SHARE * (moment - last))))
                    if not as_json and moment - shown_at > 0.2:
                        if team.learners and team.trouble is None:
                            # Otherwise show the previous count, for example while the log is unreachable.
                            learned = sum(engine.n_releases for engine in team.learners.values())
                        tick(learned, now())
                        shown_at = moment
            if asked():
                say("stopped", INFO)
            patience = _PATIENCE if wait and not asked() else 0.0
        seconds = time.monotonic() - start
        report = patiently(patience, lambda: report_log(task, log, seconds=seconds, advise=advise, live=True))
    print_result(report, as_json=as_json)


def _raise_descriptor_limit() -> None:
    """Raise this process's limit of file descriptors, usually 1,024, as far as the system allows."""
    try:
        import resource
    except ImportError:
        return  # not a Unix system
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MOST_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
