"""Options that several commands share, and what they open."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from murk.errors import UserError

if TYPE_CHECKING:
    from murk.stream import Task
    from murk.stream.log import Log

F = TypeVar("F", bound=Callable[..., Any])

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
existing_log = click.option(
    "--log", "log_url", required=True, metavar="URL", help="The log, e.g. sqlite:///third-child.db."
)


def population(function: F) -> F:
    """Options that say who the people are and where their accounts lie."""
    for option in reversed(
        [
            click.argument("task_path", metavar="TASK", type=click.Path()),
            click.option("--source", required=True, metavar="FILE", help="CSV or JSON lines, also gzipped."),
            click.option("--log", "log_url", metavar="URL", help="The log.  [default: sqlite:///NAME.db]"),
            click.option("--ledger", metavar="PATH", help="People's accounts.  [default: NAME.ledger.db]"),
            click.option("--person", metavar="COLUMN", help="Column that names people; otherwise each row is one."),
            click.option(
                "--level", default="default", metavar="LEVEL",
                help="A level of the task's menu, 'lot' (drawn uniformly), or 'column:NAME'.",
            ),
            click.option("--seed", type=click.IntRange(0, 2**64 - 1), help="Simulate the noise. Protects nobody."),
            click.option("--block", type=click.IntRange(1), metavar="N", help="At most N records at a time."),
        ]
    ):  # fmt: skip
        function = option(function)
    return function


def open_existing(url: str) -> tuple[Log, Task]:
    """Open a log that carries a task.

    Raises
    ------
    UserError
        If there is no log, or it carries no task.
    """
    from murk.stream import Task, open_log

    log = open_log(url, create=False)
    document = log.document()
    if document is None:
        log.close()
        raise UserError(f"{url} carries no task yet: `murk run` or `murk produce` announces one")
    return log, Task.from_document(document, f"the task on {url}")
