"""Options that several commands share, and functions that open their logs."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeVar

import click

from murk.cli.consent import make_public
from murk.cli.logs import say
from murk.errors import MurkError, UserError

if TYPE_CHECKING:
    from murk.privacy import Guarantee
    from murk.stream import Task
    from murk.stream.log.base import Log

_RETRY_SECONDS = 0.5
_PERMANENT = ("MURK-CLI-", "MURK-CONF-", "MURK-KAFKA-002", "MURK-KAFKA-003", "MURK-LOG-008")
"""Codes of errors that retrying cannot fix: settings, URLs, credentials and rights."""
_NO_SHUFFLER = "MURK-SHUFFLE-002"
"""Code of the error that a shuffler ends when it begins."""

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
existing_log = click.option(
    "--log", "log_url", required=True, metavar="URL",
    help="The log: sqlite:///FILE, or kafka://HOST:PORT[/NAME].",
)  # fmt: skip
wait_for_task = click.option("--wait", is_flag=True, help="Wait for the log and its task if they do not exist yet.")


def guarantee(text: str) -> Guarantee:
    """Parse a guarantee with `murk.privacy.guarantee_from_text`, imported lazily."""
    from murk.privacy import guarantee_from_text

    return guarantee_from_text(text)


def population(function: F) -> F:
    """Add the options of a population and its accounts to a command."""
    for option in reversed(
        [
            click.argument("task_path", metavar="TASK", type=click.Path()),
            click.option("--source", required=True, metavar="FILE", help="CSV, JSON lines (also gzipped) or Parquet."),
            click.option("--log", "log_url", metavar="URL", help="sqlite:///FILE or kafka://HOST:PORT.  [default: sqlite:///NAME.db]"),
            click.option(
                "--ledger", metavar="PATH",
                help="Ledger of people's accounts for all tasks.  [default: beside SOURCE; with --seed NAME.ledger.db]",
            ),
            click.option(
                "--lifetime", type=guarantee, metavar="GUARANTEE",
                help="Cap of a person over all tasks in the ledger: gdp:MU, zcdp:RHO, pure:E or approx:E,DELTA.",
            ),
            click.option("--person", metavar="COLUMN", help="Column of people's names.  [default: a row is a person]"),
            click.option(
                "--level", default="default", metavar="LEVEL",
                help="A privacy level of the task, 'lot' (drawn uniformly) or 'column:NAME' (not a feature or target).",
            ),
            click.option("--seed", type=click.IntRange(0, 2**64 - 1), help="Simulate the noise: protects nobody."),
            click.option(
                "--rate", type=click.FloatRange(0.0, 1.0, min_open=True, max_open=True), metavar="SHARE",
                help="Share of positive targets for the forecast.  [default: target.rate of the task, else 0.5]",
            ),
            click.option("--block", type=click.IntRange(1), metavar="N", help="Process at most N records at a time."),
            click.option(
                "--check", is_flag=True,
                help="Check FILE against the task and send nothing.",
            ),
            make_public,
        ]
    ):  # fmt: skip
        function = option(function)
    return function


def open_existing(url: str, *, wait: bool = False, name: str | None = None) -> tuple[Log, Task]:
    """Open a log and read its task; with ``wait``, wait for both.

    ``name`` selects a log of a cluster if the URL has no name. Raises `UserError` if there is no log or no task.
    """
    log, task, _ = begin_on(url, lambda log, task: None, wait=wait, name=name)
    return log, task


def begin_on(
    url: str, make: Callable[[Log, Task], T], *, wait: bool = False, name: str | None = None
) -> tuple[Log, Task, T]:
    """Open a log as `open_existing` does, and call ``make`` on it; with ``wait``, retry both until they succeed."""
    from murk.stream import Task, open_log
    from murk.stream.log.base import UnreachableError

    reported = ""
    while True:
        log: Log | None = None
        why: MurkError = UserError(
            f"{url} carries no task yet: `murk run` or `murk produce` announces one", code="MURK-LOG-003"
        )
        opened = False
        try:
            log = open_log(url, create=False, name=name)
            document = log.document()
            if document is not None:
                task = Task.from_document(document, f"the task on {url}")
                opened = True
                made, kept = make(log, task), log
                log = None
                return kept, task, made
        except (UserError, UnreachableError) as error:
            why = error
            mistake = (
                isinstance(error, UserError)
                and error.code != _NO_SHUFFLER
                and (opened or error.code.startswith(_PERMANENT))
            )
            if not wait or mistake:
                raise
        finally:
            if log is not None:
                log.close()
        if not wait:
            raise UserError(str(why), code=why.code)
        if str(why) != reported:
            reported = str(why)
            say(f"murk: waiting: {reported}", code=why.code)
        sleep(_RETRY_SECONDS)


def patiently(seconds: float, function: Callable[[], T]) -> T:
    """Call a function, retrying for some seconds while it raises `UnreachableError`."""
    from murk.stream.log.base import UnreachableError

    deadline = monotonic() + seconds
    reported = False
    while True:
        try:
            return function()
        except UnreachableError as error:
            if monotonic() > deadline:
                raise
            if not reported:
                say(f"murk: waiting: {error}", code=error.code)
                reported = True
            sleep(_RETRY_SECONDS)
