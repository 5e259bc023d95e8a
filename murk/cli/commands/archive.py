"""``murk archive``: copy a log's messages to an archive."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from logging import INFO

import click

from murk.cli.interrupts import between_steps
from murk.cli.logs import logging_options, say
from murk.cli.metrics import MetricsAddress, archiver_metrics, metrics_port
from murk.cli.options import as_json, begin_on, check_partitions, existing_log, partitions, wait_for_task
from murk.cli.output import print_json, progress

_ERROR_CODE = "MURK-CLI-002"

_UNTOLD = (
    "the task does not say that releases are archived, and so neither do consent cards and statements: declare "
    "about.archive in the task before anybody releases (docs/archives.md)"
)
_SHORTEST, _LONGEST = 0.01, 1.0  # bounds of the pause while nothing arrives, in seconds


@click.command("archive")
@existing_log
@click.option("--to", "path", required=True, metavar="PATH", help="The archive: a folder, s3:// or gs://BUCKET/PREFIX.")
@click.option("--follow", is_flag=True, help="Continue with new messages until stopped.")
@partitions(help="Archive this partition; may be repeated.  [default: all]")
@click.option(
    "--every",
    type=click.FloatRange(0, min_open=True),
    default=300.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest time between an arrival and its copy, with --follow.",
)
@wait_for_task
@metrics_port("Serve this archiver's health and Prometheus metrics on port N.")
@logging_options(progress=True)
@as_json
def command(
    log_url: str,
    path: str,
    follow: bool,
    partitions: tuple[int, ...],
    every: float,
    wait: bool,
    metrics: MetricsAddress,
    as_json: bool,
) -> None:
    """Copy a log's messages to an archive, each exactly once, up to the log's present end.

    `murk fit --archive PATH` and `murk.fit(archive=PATH)` fit models to it, also after the log's retention. A command
    that was stopped or killed continues where it was. An archive is kept until somebody deletes it (docs/archives.md).
    """
    from murk._internal.numbers import many
    from murk.protocols.device import device_for
    from murk.stream.archive.archiver import Archiver
    from murk.stream.archive.files import folder_of, shown_url
    from murk.stream.log.interface import Log, UnreachableError
    from murk.task import Task

    folder, cautions = folder_of(path), []
    with ExitStack() as stack:

        def begin(log: Log, task: Task) -> Archiver:
            check_partitions(partitions, task)
            return Archiver(log, task, folder, device_for(task).engine(), partitions or None)

        log, task, archiver = begin_on(log_url, begin, wait=wait)
        stack.enter_context(log)
        if not task.archive_words:
            cautions = [_UNTOLD]
            say(f"murk: caution: {_UNTOLD}")
        refresh = stack.enter_context(archiver_metrics(metrics, task, archiver))
        start = flushed = time.monotonic()
        ends, pause, trouble = log.ends(), _SHORTEST, ""
        with progress(f"{task.name}: archived", None, quiet=as_json) as tick, between_steps() as asked:
            with suppress(KeyboardInterrupt):
                while not asked() and (follow or not archiver.has_archived(ends)):
                    try:
                        read = archiver.step()
                        if time.monotonic() - flushed >= every:
                            archiver.flush()
                            flushed = time.monotonic()
                        refresh("")
                        trouble = ""
                    except UnreachableError as error:
                        if not wait:
                            raise
                        if not trouble:
                            say(f"murk: waiting: {error}", code=error.code)
                        read, trouble = 0, str(error)
                        refresh(trouble)
                    if not as_json:
                        tick(archiver.archived, trouble)
                    pause = _SHORTEST if read else min(_LONGEST, 1.5 * pause)
                    if not read:
                        time.sleep(pause)
            if asked():
                say("stopped", INFO)
        archiver.flush()
        measured = archiver.measure()
    summary = {
        "task": task.name,
        "archive": shown_url(path),
        "archived": archiver.archived,
        "lag": sum(each.lag for each in measured.values()),
        "bytes": sum(each.size for each in measured.values()),
        "seconds": time.monotonic() - start,
        "warnings": cautions,
    }
    if as_json:
        print_json(summary)
        return
    click.echo(
        f"{task.name}: {many(archiver.archived, 'message')} archived to {summary['archive']}, which has "
        f"{summary['bytes']:,} bytes; {summary['lag']:,} not archived yet"
    )
