"""``murk monitor``: serve metrics and a live page."""

from __future__ import annotations

import time
from contextlib import ExitStack
from logging import INFO
from typing import TYPE_CHECKING

import click

from murk.cli.interrupts import stoppable
from murk.cli.logs import logging_options, say, start_logging
from murk.cli.options import begin_on, existing_log, wait_for_task
from murk.cli.output import address_as_json, print_address

if TYPE_CHECKING:
    from murk.monitoring import Monitor
    from murk.stream import Task
    from murk.stream.log.base import Log


@click.command("monitor")
@click.argument("task_path", metavar="TASK", type=click.Path())
@existing_log
@click.option("--port", type=click.IntRange(0, 65535), required=True, metavar="N",
              help="Port to listen on; 0 lets the system choose.")  # fmt: skip
@click.option("--host", default="127.0.0.1", show_default=True, metavar="H",
              help="Address to listen on; 0.0.0.0 for all, as in a container.")  # fmt: skip
@click.option("--allowed-host", "allowed", multiple=True, metavar="NAME",
              help="Host name that the server answers to, such as monitor.example.org or ``*.example.org``. May be "
              "repeated.")  # fmt: skip
@click.option("--interval", type=click.FloatRange(0.05, 3600), default=1.0, show_default=True, metavar="SECONDS",
              help="Least time between reads of the log; longer if reads take over 3% of a core.")  # fmt: skip
@click.option("--reference", metavar="FILE",
              help="True coefficients in coded units: JSON or YAML, or the --json output of another run.")  # fmt: skip
@click.option("--known-within", "within", multiple=True, metavar="[NAME=]E",
              help="Alert once coefficient NAME, or each, has a half-width of at most E at every look, in coded units; "
                   "may be repeated.")  # fmt: skip
@wait_for_task
@logging_options
@address_as_json
def command(
    task_path: str, log_url: str, port: int, host: str, allowed: tuple[str, ...], interval: float,
    reference: str | None, within: tuple[str, ...], wait: bool, verbose: int, log_json: bool, as_json: bool,
) -> None:  # fmt: skip
    """Serve metrics and a live page until interrupted.

    The page is at /, Prometheus metrics at /metrics, health at /healthz, everything as JSON at /api/status. The log is
    only read.
    """
    from murk.learners.core.design import effect_of
    from murk.learners.estimates.units import units
    from murk.learners.problem import problem_for
    from murk.monitoring import Monitor
    from murk.monitoring.metrics.exporter import new_registry
    from murk.monitoring.processes import ProcessMetrics
    from murk.monitoring.reference import check_reference, half_widths_asked, read_reference
    from murk.monitoring.web.routes import monitor_routes
    from murk.monitoring.web.server import Hosts, Server
    from murk.stream import Task, open_log

    start_logging(verbose, log_json)
    # Report invalid names and references before waiting for the log.
    Hosts(host, allowed)
    task = Task.load(task_path)
    truth = None if reference is None else read_reference(reference)
    known = {}
    if truth is not None or within:
        problem = problem_for(task)
        names = problem.estimate([problem.engine()]).names
        known = half_widths_asked([effect_of(text, units(task), "half-width") for text in within], names)
    if truth is not None:
        check_reference(truth, names)
    registry = new_registry()
    ProcessMetrics(task.name, registry)
    try:
        with stoppable(), ExitStack() as stack:

            def watch(log: Log, carried: Task) -> Monitor:
                _compare(task, carried, log_url)
                again, patience = lambda: open_log(log.url, create=False), max(60.0, 10.0 * interval)
                return Monitor(
                    log, carried, registry=registry, reference=truth, known_within=known, reopen=again,
                    patience=patience,
                )  # fmt: skip

            log, carried, monitor = begin_on(log_url, watch, wait=wait, name=task.name)
            stack.callback(log.close)
            stack.callback(monitor.close)
            monitor.poll()
            server = stack.enter_context(Server(monitor_routes(monitor), host, port, allowed=allowed))
            print_address(carried.name, server, f"page at {server.url}/, metrics at {server.url}/metrics", as_json)
            _watch(monitor, interval)
    except KeyboardInterrupt:
        say("stopped", INFO)


def _watch(monitor: Monitor, interval: float) -> None:
    """Poll forever, and report when the log becomes unreachable and returns."""
    healthy, used = True, 0.0
    while True:
        if monitor.healthy != healthy:
            healthy = not healthy
            problem = monitor.snapshot.problem
            say("the log can be read again" if problem is None else f"cannot read the log: {problem}")
        time.sleep(rest(used, interval))
        start = time.thread_time()
        monitor.poll()
        used = time.thread_time() - start


def rest(used: float, interval: float) -> float:
    """Return the seconds until the next poll: 32 times the CPU time of the last one, from ``interval`` to 10.

    >>> rest(0.01, 1.0), rest(0.25, 1.0), rest(10.0, 1.0)
    (1.0, 8.0, 10.0)
    """
    return max(interval, min(32.0 * used, 10.0))


def _compare(task: Task, carried: Task, url: str) -> None:
    from murk.stream.task.task import check_task_change

    # The file does not contain the public covariates.
    expected = task.with_defaults_of(carried).without_public().with_simulated(carried.simulated)
    check_task_change(url, carried.without_public().document(), expected.document())
