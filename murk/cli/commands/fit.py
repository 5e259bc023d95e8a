"""``murk fit``: fit models to a log."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from logging import INFO
from typing import TYPE_CHECKING, Any

import click

from murk.cli.interrupts import between_steps
from murk.cli.logs import logging_options, say
from murk.cli.metrics import MetricsAddress, learner_metrics, metrics_port
from murk.cli.options import as_json, estimates, log_url
from murk.cli.output import print_json, progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from murk.results.models import ModelDevice
    from murk.stream.log.interface import Log
    from murk.stream.worker.interface import StreamLearner
    from murk.task import Task

_ERROR_CODE = "MURK-CLI-002"

_PAUSE = 0.05  # seconds between two looks at a log while nothing arrives


@click.command("fit")
@click.argument("model_paths", metavar="MODEL...", nargs=-1, required=True, type=click.Path())
@log_url(help="The log: sqlite:///FILE, or kafka://HOST:PORT[/NAME].")
@click.option(
    "--archive", "archive", metavar="PATH", help="Instead of --log: an archive of it, which murk archive makes."
)
@click.option(
    "--processes",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="N",
    help="Number of processes that read an archive.",
)
@click.option("--follow", is_flag=True, help="Continue with new releases until stopped.")
@click.option(
    "--replay",
    is_flag=True,
    help="Read every release, which gives the model a history, instead of the states of murk learn.",
)
@estimates
@metrics_port("Serve this process's health and Prometheus metrics on port N (one model).")
@logging_options(progress=True)
@as_json
def command(
    model_paths: tuple[str, ...],
    log_url: str | None,
    archive: str | None,
    processes: int,
    follow: bool,
    replay: bool,
    estimates: float,
    metrics: MetricsAddress,
    as_json: bool,
) -> None:
    """Fit further models to the releases on a log, without spending more of anybody's budget.

    Each MODEL is a file that names columns of the log's task, a loss and a solver. Several models in one command get
    simultaneous intervals. The log keeps a model's states under its name, so that a repeated command resumes.
    """
    from collections.abc import Callable

    from murk.cli.estimates import publisher
    from murk.errors import UserError
    from murk.results.fit import open_fittings
    from murk.results.models import models_of

    models = models_of(list(model_paths))
    names = [model.name for model in models]
    if metrics.port is not None and len(models) > 1:
        raise UserError("--metrics-port serves one model: fit each with a process of its own")
    if (log_url is None) == (archive is None):
        raise UserError("give either --log or --archive")
    if archive is None and processes > 1:
        raise UserError("--processes reads an archive: give --archive, or start more processes on the same log")
    if archive is not None and (follow or replay or metrics.port is not None):
        raise UserError("--follow, --replay and --metrics-port need a log: an archive is read whole, as it is now")
    start = time.monotonic()
    if archive is not None:
        from murk.results import archives

        with archives.processes(processes) as apart:
            fitted = archives.fit_archive(models, archive, level=0.95, map=apart)
            found = [{**report, "seconds": time.monotonic() - start} for _, report in fitted]
        _print(found, as_json=as_json)
        return
    assert log_url is not None

    def published(log: Log, task: Task, device: ModelDevice) -> Callable[[StreamLearner], bytes | None] | None:
        return publisher(log, task, device, estimates, device.task)

    with ExitStack() as stack:
        fittings = open_fittings(stack, models, log_url, estimates=published, replay=replay)
        first = fittings[0]
        if first.pool is None and metrics.port is not None:
            raise UserError(f"--metrics-port: {first.name} is the task's own model, whose metrics `murk learn` serves")
        refresh: Callable[[], None] = lambda: None  # noqa: E731
        if first.pool is not None:
            refresh = stack.enter_context(learner_metrics(metrics, first.device.task, first.pool))
        ends = first.log.ends()
        title = f"{', '.join(names)}: learned"
        with (
            progress(title, None, quiet=as_json) as tick,
            between_steps() as asked,
            suppress(KeyboardInterrupt),
        ):
            while not asked() and (follow or not all(fitting.has_learned(ends) for fitting in fittings)):
                read = sum(fitting.step() for fitting in fittings)
                refresh()
                if not as_json:
                    tick(sum(fitting.n_releases for fitting in fittings), first.trouble)
                if not read:
                    time.sleep(_PAUSE)
            if asked():
                say("stopped", INFO)
        reports = [fitting.report(names, live=follow, seconds=time.monotonic() - start) for fitting in fittings]
    _print(reports, as_json=as_json)


def _print(reports: Sequence[dict[str, Any]], *, as_json: bool) -> None:
    from murk.cli.report import print_result

    if as_json:
        print_json(reports[0] if len(reports) == 1 else {"models": {each["task"]: each for each in reports}})
        return
    for each in reports:
        print_result(each, as_json=False)
