"""Logging to standard error, as text or as JSON lines."""

import json
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import Any, TypeVar, cast

import click

F = TypeVar("F", bound=Callable[..., Any])

LIBRARY = "kafka"
"""Logger of the Kafka client; it names users at INFO and logs passwords at DEBUG, so neither level is ever shown."""


def logging_options(*, progress: bool) -> Callable[[F], F]:
    """Return a decorator that adds logging options to a command and starts its log.

    ``progress`` says that with --json the log shows progress, as nothing else does.
    """

    def decorated(function: F) -> F:
        @wraps(function)
        def logged(*args: Any, verbose: int, log_json: bool, **options: Any) -> Any:
            # A collector of logs reads standard output, too, and takes it for JSON.
            options |= {"as_json": True} if log_json and "as_json" in options else {}
            start_logging(max(verbose, int(progress and options["as_json"])), log_json)
            return function(*args, **options)

        command = click.option(
            "--log-json",
            is_flag=True,
            help="Log JSON to standard error, one object per line (implies --verbose, and --json).",
        )(cast("F", logged))
        return click.option(
            "-v",
            "--verbose",
            count=True,
            help="Log progress to standard error; twice: also every step and Kafka client warnings.",
        )(command)

    return decorated


def start_logging(verbose: int, log_json: bool) -> None:
    """Send Murk's log to standard error.

    With ``log_json`` its lines are objects with ``time``, ``level``, ``logger`` and ``message``. ``verbose`` is 0 for
    warnings, 1 also for ownership, waiting and progress, 2 also for each step and Kafka client warnings.
    """
    verbose = max(verbose, int(log_json))
    handler = _Stderr()
    handler.setFormatter(_Json() if log_json else _Line())
    for name, levels in (
        ("murk", (logging.WARNING, logging.INFO, logging.DEBUG)),
        (LIBRARY, (logging.CRITICAL, logging.CRITICAL, logging.WARNING)),
    ):
        logger = logging.getLogger(name)
        for previous in [each for each in logger.handlers if isinstance(each, _Stderr)]:
            logger.removeHandler(previous)
        logger.addHandler(handler)
        logger.setLevel(levels[min(verbose, 2)])
    # Python's warnings as JSON, too.
    logging.captureWarnings(log_json)
    if log_json:
        logging.getLogger("py.warnings").addHandler(handler)


def say(words: str, level: int = logging.WARNING, *, code: str | None = None) -> None:
    """Write a message and an error code to standard error, as a log record if the log is JSON."""
    if any(isinstance(handler.formatter, _Json) for handler in logging.getLogger("murk").handlers):
        logging.getLogger(__name__).log(level, words, extra={} if code is None else {"code": code})
    else:
        click.echo(words if code is None else f"{words} [{code}]", err=True)


class _Stderr(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        try:
            click.echo(self.format(record), err=True)
        except Exception:  # noqa: BLE001 - a failing log must not stop the command
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's
        """Do nothing: the default prints a traceback and the arguments."""


class _Line(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(" ", "seconds").removesuffix("+00:00")
        level = "" if record.levelno == logging.INFO else f" {record.levelname.lower()}:"
        # Without the traceback, whose last line may quote a value.
        return f"{moment}Z{level} {' '.join(record.getMessage().split())}"


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        entry = {
            "time": moment.replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        return json.dumps(entry | ({"code": record.code} if hasattr(record, "code") else {}))
