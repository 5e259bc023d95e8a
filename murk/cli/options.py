"""Options that several commands share, and functions that open their logs and ask for consent."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial, wraps
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from murk.cli.logs import say
from murk.errors import UserError

if TYPE_CHECKING:
    from murk.populations.order import Order
    from murk.populations.people import PopulationConfig
    from murk.privacy import Guarantee
    from murk.producers import Policy
    from murk.stream.log.interface import Log
    from murk.task import Task
    from murk.task.task import Disclosure

_ERROR_CODE = "MURK-CLI-002"

_RETRY_SECONDS = 0.5
_PERMANENT = ("MURK-CLI-", "MURK-CONF-", "MURK-KAFKA-002", "MURK-KAFKA-003", "MURK-LOG-008")
"""Codes of errors that retrying cannot fix: settings, URLs, credentials and rights."""
# Code of the error that no shuffler writes to a log. It is temporary: a shuffler that begins ends it.
_NO_SHUFFLER = "MURK-SHUFFLE-002"

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")

as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on standard output.")
log_url = partial(click.option, "--log", "log_url", metavar="URL")
existing_log = log_url(required=True, help="The log: sqlite:///FILE, or kafka://HOST:PORT[/NAME].")


class _LogUrls(click.types.StringParamType):
    """A log's URL. In an environment variable, spaces separate several URLs, and a path may also contain spaces."""

    def split_envvar_value(self, rv: str) -> list[str]:
        return re.split(r"\s+(?=[A-Za-z][A-Za-z0-9+.-]*://)", rv.strip())


existing_logs = click.option(
    "--log",
    "log_urls",
    required=True,
    multiple=True,
    type=_LogUrls(),
    metavar="URL",
    help="The log: sqlite:///FILE, kafka://HOST:PORT/NAME, or kafka://HOST:PORT for all logs of a cluster. May be "
    "repeated.",
)


def listening(default: int | None = None) -> Callable[[F], F]:
    """Return a decorator that adds options for the address of a server; without a default, the port is required."""
    port = click.option(
        "--port",
        type=click.IntRange(0, 65535),
        default=default,
        show_default=default is not None,
        required=default is None,
        metavar="N",
        help="Port to listen on; 0 lets the system choose.",
    )
    host = click.option(
        "--host",
        default="127.0.0.1",
        show_default=True,
        metavar="H",
        help="Address to listen on; 0.0.0.0 for all, as in a container.",
    )
    return lambda function: port(host(function))


estimates = click.option(
    "--estimates",
    type=click.FloatRange(0),
    default=10.0,
    show_default=True,
    metavar="SECONDS",
    help="Least time between published estimates, if the log has a topic for them; 0: never.",
)
numbers_of_people = partial(
    click.option,
    "--people",
    multiple=True,
    metavar="N",
    help="Number of people; may be repeated.  [default: 10,000, 100,000 and 1,000,000]",
)
rate = partial(click.option, "--rate", type=click.FloatRange(0.0, 1.0, min_open=True, max_open=True), metavar="SHARE")
assumed_rate = rate(
    help="Share of positive targets, or relative mean of a real target.  [default: the task's target.rate, else 0.5]"
)
patience = partial(
    click.option, "--patience", type=click.FloatRange(0), default=60.0, show_default=True, metavar="SECONDS"
)
partitions = partial(click.option, "--partition", "partitions", type=click.IntRange(0), multiple=True)
task_names = partial(click.option, "--task", "names", multiple=True, metavar="NAME")
store = partial(click.option, "--store", "store_path", type=click.Path(), metavar="PATH")
idle = click.option(
    "--idle", type=click.FloatRange(0), metavar="SECONDS", help="Stop when nothing has arrived for this long."
)
wait_for_task = click.option("--wait", is_flag=True, help="Wait for a log or task that is missing or unreachable.")
make_public = click.option(
    "--make-public",
    type=click.IntRange(1),
    metavar="N",
    help="Agree without a prompt that the features of at most N people become public (the task's public sample).",
)


_ALTERNATIVES = (
    "nothing was published or started. Alternatives: public: {file: ...} with features that everybody may know, "
    "public: {set_aside: N} with fewer people, or no public sample"
)


def asking(url: str, source: str | None = None, *, simulated: bool, agreed: int | None) -> Callable[[Disclosure], None]:
    """Return a function that announces a disclosure and asks for consent.

    In a simulation, which protects nobody, no consent is needed. Otherwise the operator agrees at the terminal, or in
    advance by an ``agreed`` of at least the number of people. ``url`` is the log, ``source`` the file of the people of
    whom some are set aside.
    """

    def agree(disclosure: Disclosure) -> None:
        text, number = disclosure.announce(url, source), disclosure.people
        asked = not simulated and (agreed is None or number > agreed)
        remedy = f"pass --make-public {number} to agree. So far {_ALTERNATIVES}"
        if asked and agreed is not None:
            raise UserError(f"{text} Consent was given for only {agreed:,} people: {remedy}")
        if asked and not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UserError(f"{text} There is no terminal to ask at: {remedy}")
        click.echo(text, err=True)
        if asked and not click.confirm("Publish them?", err=True):
            raise UserError(_ALTERNATIVES)

    return agree


def guarantee(text: str) -> Guarantee:
    """Parse a guarantee with `murk.privacy.guarantee_from_text`, imported lazily."""
    from murk.privacy import guarantee_from_text

    return guarantee_from_text(text)


@dataclass(frozen=True)
class PeopleOptions:
    """Options of a population and its accounts."""

    task_path: str
    source: str
    log_url: str | None
    ledger: str | None
    lifetime: Guarantee | None
    person: str | None
    time: str | None
    level: str
    guarantee_column: str | None
    seed: int | None
    order: Order
    rate: float | None
    block: int | None
    check: bool
    make_public: int | None

    @property
    def simulated(self) -> bool:
        """Whether the noise is simulated."""
        return self.seed is not None

    @property
    def policy(self) -> Policy:
        """The policy of every person's device."""
        from murk.producers import Policy

        return Policy(lifetime=self.lifetime, public_sample=True)

    def log_of(self, task: Task) -> str:
        """Return the URL of the log."""
        return self.log_url or f"sqlite:///{task.name}.db"

    def ledger_of(self, task: Task) -> str | Path:
        """Return the path of the ledger."""
        from murk.populations.ledger_places import default_ledger

        return self.ledger or default_ledger(self.source, task.name, simulated=self.simulated)

    def asking(self, url: str) -> Callable[[Disclosure], None]:
        """Return the function by which a log asks for consent; see `asking`."""
        return asking(url, self.source, simulated=self.simulated, agreed=self.make_public)

    def population(self, **more: Any) -> PopulationConfig:
        """Return the population; raise `UserError` if both --level and --guarantee-column are given."""
        from murk.populations.people import PopulationConfig

        level = self.level
        if self.guarantee_column is not None:
            if level != "default":
                raise UserError(
                    f"--level {level} and --guarantee-column {self.guarantee_column}: give one of them; a budget is "
                    "rounded to a level"
                )
            level = f"guarantee:{self.guarantee_column}"
        names = {name: getattr(self, name) for name in ("person", "seed", "block", "policy", "order", "time")}
        return PopulationConfig(Path(self.source), level=level, **names, **more)


def population(function: F) -> F:
    """Add the options of a population and its accounts to a command, whose parameter is ``options``."""

    @wraps(function)
    def populated(*args: Any, **others: Any) -> Any:
        options = PeopleOptions(**{field.name: others.pop(field.name) for field in fields(PeopleOptions)})
        return function(*args, options=options, **others)

    command = cast("F", populated)
    for option in reversed(_POPULATION):
        command = option(command)
    return command


_POPULATION = (
    click.argument("task_path", metavar="TASK", type=click.Path()),
    click.option("--source", required=True, metavar="FILE", help="CSV, JSON lines (also gzipped) or Parquet."),
    log_url(help="sqlite:///FILE or kafka://HOST:PORT.  [default: sqlite:///NAME.db]"),
    click.option(
        "--ledger",
        metavar="PATH",
        help="Ledger of accounts for all tasks.  [default: beside SOURCE; with --seed NAME.ledger.db]",
    ),
    click.option(
        "--lifetime",
        type=guarantee,
        metavar="GUARANTEE",
        help="Cap of a person over all tasks in the ledger: gdp:MU, zcdp:RHO, pure:E, approx:E,DELTA or "
        "tcdp:RHO,OMEGA,DELTA.",
    ),
    click.option("--person", metavar="COLUMN", help="Column of people's names.  [default: a row is a person]"),
    click.option(
        "--time",
        metavar="COLUMN",
        help="Column of rows' dates or times (UTC), if the task has windows (privacy.window).  [default: now]",
    ),
    click.option(
        "--level",
        default="default",
        metavar="LEVEL",
        help="A privacy level of the task, 'lot' (drawn uniformly) or 'column:NAME' (no feature or target).",
    ),
    click.option(
        "--guarantee-column",
        metavar="COLUMN",
        help="Instead of --level: column of people's own budgets (no feature or target), rounded down to the "
        "task's grid.",
    ),
    click.option("--seed", type=click.IntRange(0, 2**64 - 1), help="Simulate the noise: protects nobody."),
    click.option(
        "--order",
        type=click.Choice(["random", "file"]),
        default="random",
        show_default=True,
        help="Order of release. 'file' keeps the order of FILE, to simulate people who change (only with --seed).",
    ),
    rate(help="Share of positive targets for the forecast.  [default: target.rate of the task, else 0.5]"),
    click.option("--block", type=click.IntRange(1), metavar="N", help="Process at most N records at a time."),
    click.option("--check", is_flag=True, help="Check FILE against the task and send nothing."),
    make_public,
)


def check_partitions(partitions: tuple[int, ...], task: Task) -> None:
    """Raise `UserError` for a --partition that a task's log does not have."""
    for partition in partitions:
        if partition >= task.log.partitions:
            raise UserError(f"--partition {partition}: {task.name!r} has the partitions 0 to {task.log.partitions - 1}")


def load_task(path: str) -> Task:
    """Load a task file, with the public file that it names."""
    from murk.populations.public_sample import public_covariates
    from murk.task import Task

    task = Task.load(path)
    return task if task.public_path is None else task.with_public(*public_covariates(task.public_path, task))


def open_existing(url: str) -> tuple[Log, Task]:
    """Open a log and read its task, or raise `UserError`."""
    return begin_on(url, lambda log, task: None)[:2]


def begin_on(
    url: str, make: Callable[[Log, Task], T], *, wait: bool = False, name: str | None = None
) -> tuple[Log, Task, T]:
    """Open a log, ``name`` if its URL has none, and call ``make`` on it; with ``wait``, retry until it succeeds."""
    from murk.stream import open_log

    def begin() -> tuple[Log, Task, T]:
        log: Log | None = None
        opened = False
        try:
            log = open_log(url, create=False, name=name)
            task = log.registered_task()
            opened = True
            made, kept, log = make(log, task), log, None
            return kept, task, made
        except UserError as error:
            raise Mistake(error) if is_mistake(error, opened=opened) else error from None
        finally:
            if log is not None:
                log.close()

    return retrying(begin, wait=wait)


class Mistake(Exception):
    """Carries a `UserError` that waiting cannot fix."""

    def __init__(self, error: UserError) -> None:
        super().__init__(error)
        self.error = error


def is_mistake(error: Exception, *, opened: bool) -> bool:
    """Return whether waiting cannot fix an error that occurred before or after a log was opened."""
    return isinstance(error, UserError) and error.code != _NO_SHUFFLER and (opened or error.code.startswith(_PERMANENT))


def retrying(attempt: Callable[[], T], *, wait: bool) -> T:
    """Call a function; with ``wait``, until it succeeds or raises a `Mistake`, whose error is then raised."""
    from murk.stream.log.interface import UnreachableError

    reported = ""
    while True:
        try:
            return attempt()
        except Mistake as mistake:
            raise mistake.error from None
        except (UserError, UnreachableError) as error:
            if not wait:
                raise
            if str(error) != reported:
                reported = str(error)
                say(f"murk: waiting: {reported}", code=error.code)
        sleep(_RETRY_SECONDS)


def patiently(seconds: float, function: Callable[[], T]) -> T:
    """Call a function, retrying for some seconds while it raises `UnreachableError`."""
    from murk.stream.log.interface import UnreachableError

    deadline, reported = monotonic() + seconds, False
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
