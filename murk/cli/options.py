"""Options that several commands share, and what they open."""

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

_LOOK = 0.5
_FOR_GOOD = ("MURK-CLI-", "MURK-CONF-", "MURK-KAFKA-002", "MURK-KAFKA-003", "MURK-LOG-008")
"""Codes of what no waiting mends: settings, addresses, and credentials or rights that a broker refuses."""

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
existing_log = click.option(
    "--log", "log_url", required=True, metavar="URL",
    help="The log: sqlite:///FILE, or kafka://HOST:PORT[/NAME].",
)  # fmt: skip
wait_for_task = click.option("--wait", is_flag=True, help="Wait for the log and its task, if they are not there yet.")


def guarantee(text: str) -> Guarantee:
    """Read a guarantee from the command line, as `murk.privacy.guarantee_from_text` does."""
    from murk.privacy import guarantee_from_text

    return guarantee_from_text(text)


def population(function: F) -> F:
    """Options that say who the people are and where their accounts lie."""
    for option in reversed(
        [
            click.argument("task_path", metavar="TASK", type=click.Path()),
            click.option("--source", required=True, metavar="FILE", help="CSV, JSON lines (also gzipped) or Parquet."),
            click.option("--log", "log_url", metavar="URL", help="sqlite:///FILE or kafka://HOST:PORT.  [default: sqlite:///NAME.db]"),
            click.option(
                "--ledger", metavar="PATH",
                help="People's accounts, for all tasks.  [default: theirs, beside SOURCE; with --seed NAME.ledger.db]",
            ),
            click.option(
                "--lifetime", type=guarantee, metavar="GUARANTEE",
                help="A person's cap over all tasks in the ledger: gdp:MU, zcdp:RHO, pure:E or approx:E,DELTA.",
            ),
            click.option("--person", metavar="COLUMN", help="Column that names people; otherwise each row is one."),
            click.option(
                "--level", default="default", metavar="LEVEL",
                help="A privacy level of the task, 'lot' (drawn uniformly), or 'column:NAME' (no feature or target).",
            ),
            click.option("--seed", type=click.IntRange(0, 2**64 - 1), help="Simulate the noise. Protects nobody."),
            click.option(
                "--rate", type=click.FloatRange(0.0, 1.0, min_open=True, max_open=True), metavar="SHARE",
                help="Share of positive targets that the forecast assumes.  [default: target.rate of the task, or 0.5]",
            ),
            click.option("--block", type=click.IntRange(1), metavar="N", help="At most N records at a time."),
            click.option(
                "--check", is_flag=True,
                help="Read FILE, name the first value that cannot be coded, and send nothing.",
            ),
            make_public,
        ]
    ):  # fmt: skip
        function = option(function)
    return function


def open_existing(url: str, *, wait: bool = False, name: str | None = None) -> tuple[Log, Task]:
    """Open a log that carries a task; ``wait`` for it as long as it takes, if it is not there yet.

    ``name`` says which of a cluster's logs, where the URL does not.

    Raises
    ------
    UserError
        If there is no log, or it carries no task.
    """
    log, task, _ = begin_on(url, lambda log, task: None, wait=wait, name=name)
    return log, task


def begin_on(
    url: str, make: Callable[[Log, Task], T], *, wait: bool = False, name: str | None = None
) -> tuple[Log, Task, T]:
    """Open a log as `open_existing` does, and make of it what a command begins with.

    A log that cannot be reached, or is not set up yet, is waited for, whichever of these calls meets it.
    """
    from murk.stream import Task, open_log
    from murk.stream.log.base import UnreachableError

    said = ""
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
            mistake = isinstance(error, UserError) and (opened or error.code.startswith(_FOR_GOOD))
            if not wait or mistake:
                raise
        finally:
            if log is not None:
                log.close()
        if not wait:
            raise UserError(str(why), code=why.code)
        if str(why) != said:
            said = str(why)
            say(f"murk: waiting: {said}", code=why.code)
        sleep(_LOOK)


def patiently(seconds: float, function: Callable[[], T]) -> T:
    """Call a function, again and again for so long, while the log cannot be reached.

    Raises
    ------
    UnreachableError
        When it still could not be reached then.
    """
    from murk.stream.log.base import UnreachableError

    deadline = monotonic() + seconds
    said = False
    while True:
        try:
            return function()
        except UnreachableError as error:
            if monotonic() > deadline:
                raise
            if not said:
                say(f"murk: waiting: {error}", code=error.code)
                said = True
            sleep(_LOOK)
