"""``murk monitor``: serve metrics and live pages."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from logging import INFO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from murk.cli.interrupts import stoppable
from murk.cli.logs import logging_options, say
from murk.cli.options import existing_logs, listening, task_names, wait_for_task
from murk.cli.output import address_as_json, print_address
from murk.cli.searching import Reports, begin_search
from murk.errors import UserError

if TYPE_CHECKING:
    from murk.monitoring import Monitor
    from murk.stream.log.interface import Log
    from murk.task import Task

_ERROR_CODE = "MURK-CLI-002"


@click.command("monitor")
@click.argument("task_paths", metavar="[TASK]...", type=click.Path(), nargs=-1)
@existing_logs
@task_names(help="Monitor only the task NAME; may be repeated.  [default: all]")
@listening()
@click.option(
    "--allowed-host",
    "allowed",
    multiple=True,
    metavar="NAME",
    help="Host name that the server answers to, such as monitor.example.org or ``*.example.org``. May be repeated.",
)
@click.option(
    "--interval",
    type=click.FloatRange(0.05, 3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="Least time between reads of a task; longer if reads take over 3% of a core.",
)
@click.option(
    "--reference",
    "references",
    multiple=True,
    type=click.Path(),  # colons separate several paths in an environment variable
    metavar="[TASK=]FILE",
    help="True coefficients of TASK, or of each task that has these, in coded units: JSON or YAML, or the "
    "--json output of another run. May be repeated.",
)
@click.option(
    "--known-within",
    "within",
    multiple=True,
    metavar="[NAME=]E",
    help="Alert once coefficient NAME, or each, has a half-width of at most E at every look, in coded units; "
    "may be repeated.",
)
@wait_for_task
@logging_options(progress=False)
@address_as_json
def command(
    task_paths: tuple[str, ...],
    log_urls: tuple[str, ...],
    names: tuple[str, ...],
    port: int,
    host: str,
    allowed: tuple[str, ...],
    interval: float,
    references: tuple[str, ...],
    within: tuple[str, ...],
    wait: bool,
    as_json: bool,
) -> None:
    """Serve metrics and live pages of the tasks on logs until interrupted.

    TASK are files of the tasks to monitor, which must equal the tasks on the logs. Without TASK and --task, all tasks
    are monitored, also those that appear later. The page is at /, Prometheus metrics at /metrics, health at /healthz,
    everything as JSON at /api/status. The logs are only read.
    """
    from murk.monitoring import Monitor
    from murk.monitoring.tasks import TaskMonitors
    from murk.monitoring.web.server import Hosts, Server
    from murk.monitoring.web.task_routes import TaskRoutes
    from murk.stream import open_log
    from murk.task import Task
    from murk.task.task import check_task_change

    # Report invalid names and references before waiting for a log.
    Hosts(host, allowed)
    expected = {task.name: task for task in map(Task.load, task_paths)}
    figures = _Figures(references, within)
    chosen = [*dict.fromkeys((*expected, *names))]
    if expected and not set(names) - expected.keys():
        for task in expected.values():
            figures.of(task)
        figures.check()

    def make(log: Log, carried: Task) -> Monitor:
        if carried.name in expected:
            # The file does not contain the public covariates.
            declared = expected[carried.name].without_public().with_simulated(carried.simulated)
            check_task_change(log.url, carried.without_public().document(), declared.document())
        again, patience = partial(open_log, log.url, create=False), max(60.0, 10.0 * interval)
        return Monitor(log, carried, reopen=again, patience=patience, **figures.of(carried))

    try:
        with stoppable(), ExitStack() as stack:
            tasks = TaskMonitors(log_urls, make, names=chosen, interval=interval)
            stack.callback(tasks.close)
            begin_search(tasks, log_urls, wait=wait)
            try:
                figures.check()
            except UserError as error:
                if not wait:
                    raise
                # The task to which the setting applies may appear later.
                say(f"murk: {error}", code=error.code)
            tasks.step()
            server = stack.enter_context(Server(TaskRoutes(tasks), host, port, allowed=allowed))
            label = ", ".join(tasks.monitors)
            print_address(label, server, f"page at {server.url}/, metrics at {server.url}/metrics", as_json)
            reports = Reports(tasks, log_urls)
            while True:
                pause = tasks.step()
                reports.report()
                time.sleep(pause)
    except KeyboardInterrupt:
        say("stopped", INFO)


class _Figures:
    """References and half-widths for monitors; each of these settings must fit at least one monitored task."""

    def __init__(self, references: Sequence[str], within: Sequence[str]) -> None:
        from murk.monitoring.reference import check_half_width, read_reference
        from murk.protocols.population import effect_of

        self._references: list[tuple[str | None, str, Mapping[str, float]]] = []
        for text in references:
            task, path = _of_task(text)
            self._references.append((task, f"--reference {text}", read_reference(path)))
        self._within = [(f"--known-within {text}", effect_of(text, {}, "half-width")) for text in within]
        for _, (_, half) in self._within:
            check_half_width(half)
        self._errors: dict[str, UserError | None] = {}

    def of(self, task: Task) -> dict[str, Any]:
        """Return the reference and the half-widths that fit a task.

        Raises `UserError` if the reference for this very task does not fit it.
        """
        from murk.monitoring.reference import check_reference, half_widths_asked
        from murk.protocols.device import device_for

        if not self._references and not self._within:
            return {}
        problem = device_for(task)
        names = problem.estimate([problem.engine()]).names
        truth = None
        # A reference for this task replaces one for all tasks.
        for name, text, reference in sorted(self._references, key=lambda each: each[0] is not None):
            if name not in (None, task.name):
                continue
            error = self._misfit(text, task, partial(check_reference, reference, names))
            if error is None:
                truth = reference
            elif name is not None:
                raise error
        asked = [
            pair
            for text, pair in self._within
            if self._misfit(text, task, partial(half_widths_asked, [pair], names)) is None
        ]
        return {"reference": truth, "known_within": half_widths_asked(asked, names)}

    def check(self) -> None:
        """Raise the error of a setting that fits none of the tasks so far."""
        for name, text, _ in self._references:
            if text not in self._errors:
                raise UserError(f"{text}: no task {name!r} is monitored: name one that is")
        for error in self._errors.values():
            if error is not None:
                raise error

    def _misfit(self, text: str, task: Task, check: Callable[[], object]) -> UserError | None:
        """Return why a setting does not fit a task; None if it fits."""
        try:
            check()
        except UserError as error:
            error_of_task = UserError(f"{text} and the task {task.name!r}: {error}")
            self._errors.setdefault(text, error_of_task)
            return error_of_task
        self._errors[text] = None
        return None


def _of_task(text: str) -> tuple[str | None, str]:
    """Return the task, if any, and the path of ``[TASK=]FILE``."""
    named = re.fullmatch(r"([a-z0-9-]{1,64})=(.+)", text)
    return (named[1], named[2]) if named and not Path(text).is_file() else (None, text)
