"""What happens, on standard error: as lines for people, or as JSON lines for machines."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

LIBRARY = "kafka"
"""The client library's loggers. At INFO they name users, and at DEBUG they repeat all that is sent, passwords among
it: neither is ever shown."""


def logging_options(function: F) -> F:
    """Options that say what is logged to standard error, and how."""
    function = click.option(
        "--log-json", is_flag=True, help="Log to standard error as JSON, one object a line (implies --verbose)."
    )(function)
    return click.option(
        "-v", "--verbose", count=True,
        help="Log what happens to standard error; twice: every step, and what troubles the Kafka client.",
    )(function)  # fmt: skip


def start_logging(verbose: int, log_json: bool) -> None:
    """Send what Murk's modules log to standard error, from now to the end of the process.

    Parameters
    ----------
    verbose
        0: what goes wrong. 1: also who owns what, what is waited for, how far it is. 2: also each step, and what
        troubles the Kafka client.
    log_json
        Objects with ``time``, ``level``, ``logger`` and ``message`` instead of lines for people.
    """
    verbose = max(verbose, int(log_json))
    handler = _Stderr()
    handler.setFormatter(_Json() if log_json else _Line())
    for name, levels in (
        ("murk", (logging.WARNING, logging.INFO, logging.DEBUG)),
        (LIBRARY, (logging.CRITICAL, logging.CRITICAL, logging.WARNING)),
    ):
        logger = logging.getLogger(name)
        for before in [one for one in logger.handlers if isinstance(one, _Stderr)]:
            logger.removeHandler(before)
        logger.addHandler(handler)
        logger.setLevel(levels[min(verbose, 2)])
    # So that a warning is an object, too, where every line is one.
    logging.captureWarnings(log_json)
    if log_json:
        logging.getLogger("py.warnings").addHandler(handler)


def say(words: str, level: int = logging.WARNING, *, code: str | None = None) -> None:
    """Tell the user something on standard error: as a line of the log where that is read by machines.

    ``code`` is an error's: in brackets at the end of the line, or the object's ``code``.
    """
    if any(isinstance(one.formatter, _Json) for one in logging.getLogger("murk").handlers):
        logging.getLogger(__name__).log(level, words, extra={} if code is None else {"code": code})
    else:
        click.echo(words if code is None else f"{words} [{code}]", err=True)


class _Stderr(logging.Handler):
    """Writes to standard error as it is at that moment."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            click.echo(self.format(record), err=True)
        except Exception:  # noqa: BLE001 - whoever cannot be told anything is not to be stopped by it
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's
        """Do nothing: the library's own prints a traceback, and the values of what it could not format."""


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(" ", "seconds").removesuffix("+00:00")
        level = "" if record.levelno == logging.INFO else f" {record.levelname.lower()}:"
        # In one line, and without the traceback, whose last line may quote what it failed on.
        return f"{moment}Z{level} {' '.join(record.getMessage().split())}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        return json.dumps(
            {
                "time": moment.replace("+00:00", "Z"),
                "level": record.levelname.lower(),
                "logger": record.name,
                "message": record.getMessage(),
                **({"code": record.code} if hasattr(record, "code") else {}),
            }
        )
