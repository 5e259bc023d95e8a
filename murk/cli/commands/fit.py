"""``murk fit``: fit models to a log."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from logging import INFO
from typing import TYPE_CHECKING

import click

from murk.cli.interrupts import between_steps
from murk.cli.logs import logging_options, say, start_logging
from murk.cli.metrics import learner_metrics, metrics_port
from murk.cli.options import as_json, estimates, existing_log
from murk.cli.output import print_json, progress

if TYPE_CHECKING:
    from murk.results.fit import ModelDevice
    from murk.stream.log.interface import Log
    from murk.stream.worker.interface import StreamLearner
    from murk.task import Task

_ERROR_CODE = "MURK-CLI-002"

_PAUSE = 0.05  # seconds between two looks at a log while nothing arrives


@click.command("fit")
@click.argument("model_paths", metavar="MODEL...", nargs=-1, required=True, type=click.Path())
@existing_log
@click.option("--follow", is_flag=True, help="Continue with new releases until stopped.")
@click.option("--replay", is_flag=True, help="Read every release, for the model's history, though states would do.")
@estimates
@metrics_port("Serve this process's health and Prometheus metrics on port N (one model).")
@logging_options
@as_json
def command(
    model_paths: tuple[str, ...],
    log_url: str,
    follow: bool,
    replay: bool,
    estimates: float,
    metrics_port: int | None,
    metrics_host: str,
    verbose: int,
    log_json: bool,
    as_json: bool,
) -> None:
    """Fit further models to the releases on a log, without spending more of anybody's budget.

    Each MODEL is a file that names columns of the log's task, a loss and a solver. Several models in one command get
    simultaneous intervals. The log keeps a model's states under its name, so that a repeated command resumes.
    """
    from collections.abc import Callable

    from murk.cli.estimates import publisher
    from murk.cli.report import print_result
    from murk.errors import UserError
    from murk.results.fit import models_of, open_fittings

    models = models_of(list(model_paths))
    names = [model.name for model in models]
    if metrics_port is not None and len(models) > 1:
        raise UserError("--metrics-port serves one model: fit each with a process of its own")
    start_logging(max(verbose, int(as_json)), log_json)
    start = time.monotonic()

    def published(log: Log, task: Task, device: ModelDevice) -> Callable[[StreamLearner], bytes | None] | None:
        return publisher(log, task, device, estimates, device.task)

    with ExitStack() as stack:
        fittings = open_fittings(stack, models, log_url, estimates=published, replay=replay)
        first = fittings[0]
        refresh = stack.enter_context(learner_metrics(metrics_port, metrics_host, first.device.task, first.pool))
        ends = first.log.ends()
        title = f"{', '.join(names)}: learned"
        with (
            progress(title, None, quiet=as_json or log_json) as tick,
            between_steps() as asked,
            suppress(KeyboardInterrupt),
        ):
            while not asked() and (follow or not all(fitting.has_learned(ends) for fitting in fittings)):
                read = sum(fitting.pool.step() for fitting in fittings)
                refresh()
                if not (as_json or log_json):
                    tick(sum(fitting.n_releases for fitting in fittings), first.pool.trouble or "")
                if not read:
                    time.sleep(_PAUSE)
            if asked():
                say("stopped", INFO)
        reports = [fitting.report(names, live=follow, seconds=time.monotonic() - start) for fitting in fittings]
    if as_json:
        print_json(reports[0] if len(reports) == 1 else {"models": {each["task"]: each for each in reports}})
        return
    for each in reports:
        print_result(each, as_json=False)
