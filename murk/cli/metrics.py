"""Prometheus metrics of commands: of a population, a learner, a gateway and a shuffler."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from logging import INFO
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click

from murk.cli.logs import say

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from murk.cli.shuffling import Shuffling
    from murk.gateway.server import Gateway
    from murk.monitoring.web.server import Route
    from murk.producers import Ledger
    from murk.stream.archive.archiver import Archiver
    from murk.stream.worker.pool import WorkerPool
    from murk.task import Task

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS = ("--metrics-port", "--metrics-host")
_SECONDS = 2.0
_SHARE = 20  # computing sums may take at most 1 / _SHARE of the time
# Seconds after which a shuffler's step is too long; one that appends a crowd of ten millions takes minutes.
_LONGEST_STEP = 900.0


class MetricsAddress(NamedTuple):
    """Where a command serves its metrics: nowhere if there is no port."""

    host: str
    port: int | None


def metrics_port(description: str) -> Callable[[F], F]:
    """Add --metrics-port, with a help text, and --metrics-host to a command, whose parameter is ``metrics``."""
    port = click.option("--metrics-port", type=click.IntRange(0, 65535), metavar="N", help=description)
    host = click.option(
        "--metrics-host",
        default="127.0.0.1",
        show_default=True,
        metavar="H",
        help="Address that --metrics-port listens on.",
    )

    def decorated(function: F) -> F:
        @wraps(function)
        def addressed(*args: Any, metrics_port: int | None, metrics_host: str, **options: Any) -> Any:
            return function(*args, metrics=MetricsAddress(metrics_host, metrics_port), **options)

        return port(host(cast("F", addressed)))

    return decorated


@contextmanager
def _served(task: Task, what: str, routes: Mapping[str, Route], metrics: MetricsAddress) -> Iterator[None]:
    """Serve metrics at an address; if the network can reach it, for all host names, since metrics are only sums."""
    from murk.monitoring.web.server import ANY, Server, is_own

    assert metrics.port is not None
    allowed = () if is_own(metrics.host) else (ANY,)
    with Server(routes, metrics.host, metrics.port, options=_OPTIONS, allowed=allowed) as server:
        say(f"{task.name}: metrics of {what} at {server.url}/metrics", INFO)
        yield


@contextmanager
def learner_metrics(metrics: MetricsAddress, task: Task, team: WorkerPool[Any]) -> Iterator[Callable[[], None]]:
    """Serve a learner's metrics if a port is given; yield a function that refreshes the lag, for its thread."""
    if metrics.port is None:
        yield lambda: None
        return
    from murk.monitoring.processes import LearnerMetrics, ProcessMetrics, learner_routes

    due = 0.0

    def refresh() -> None:
        nonlocal due
        if time.monotonic() >= due:
            team.measure()
            due = time.monotonic() + _SECONDS

    exported = LearnerMetrics(task.name, team.pulse)
    ProcessMetrics(task.name, exported.registry)
    with _served(task, "this learner", learner_routes(exported, team.pulse), metrics):
        yield refresh


@contextmanager
def people_metrics(metrics: MetricsAddress, task: Task, ledger: Ledger) -> Iterator[Callable[[], None]]:
    """Serve sums over people if a port is given; yield a function by which the ledger's thread refreshes them."""
    if metrics.port is None:
        yield lambda: None
        return
    from murk.monitoring.processes import PeopleMetrics, PeopleSums
    from murk.monitoring.web.routes import health_routes

    exported = PeopleMetrics(task.name)
    sums = ledger.group_sums(task.hash)
    due = 0.0

    def refresh() -> None:
        nonlocal due
        start = time.monotonic()
        if start < due:
            return
        report = sums.report()
        if report is not None:
            exported.update(PeopleSums(report.people, report.refused, report.queued, report.spent))
        end = time.monotonic()
        due = end + max(_SECONDS, _SHARE * (end - start))

    with _served(task, "its people", health_routes(exported.registry, lambda: None), metrics):
        refresh()
        yield refresh


@contextmanager
def archiver_metrics(metrics: MetricsAddress, task: Task, archiver: Archiver) -> Iterator[Callable[[str], None]]:
    """Serve an archiver's metrics if a port is given; yield a function that refreshes them, given a problem or ""."""
    if metrics.port is None:
        yield lambda trouble: None
        return
    from murk.monitoring.processes import ArchiverMetrics
    from murk.monitoring.web.routes import health_routes

    exported = ArchiverMetrics(task)
    due, problem = 0.0, ""

    def refresh(trouble: str) -> None:
        nonlocal due, problem
        problem = trouble
        if trouble:
            exported.trouble = trouble
        elif time.monotonic() >= due:
            exported.update(archiver.measure())
            due = time.monotonic() + _SECONDS

    with _served(task, "this archiver", health_routes(exported.registry, lambda: problem or None), metrics):
        refresh("")
        yield refresh


@contextmanager
def gateway_metrics(
    metrics: MetricsAddress, task: Task, gateway: Gateway, shuffling: Shuffling | None = None
) -> Iterator[Callable[[], None]]:
    """Serve metrics of a gateway, and of a shuffler beside it, if a port is given; yield their refreshing function."""
    if metrics.port is None:
        yield lambda: None
        return
    from murk.monitoring.web.routes import health_routes

    refresh = _shuffler_metrics(shuffling, gateway.registry)

    def trouble() -> str | None:
        return gateway.appending.trouble or (_shuffler_trouble(shuffling) if shuffling is not None else None)

    with _served(task, "this gateway", health_routes(gateway.registry, trouble), metrics):
        yield refresh


@contextmanager
def shuffler_metrics(metrics: MetricsAddress, shuffling: Shuffling) -> Iterator[Callable[[], None]]:
    """Serve a shuffler's metrics and health if a port is given; yield a function that refreshes them."""
    if metrics.port is None:
        yield lambda: None
        return
    from functools import partial

    from murk.monitoring.metrics.exporter import new_registry
    from murk.monitoring.web.routes import health_routes

    registry = new_registry()
    refresh = _shuffler_metrics(shuffling, registry)
    routes = health_routes(registry, partial(_shuffler_trouble, shuffling))
    with _served(shuffling.task, "this shuffler", routes, metrics):
        yield refresh


def _shuffler_metrics(shuffling: Shuffling | None, registry: CollectorRegistry) -> Callable[[], None]:
    """Export a shuffler's metrics, and return a function that refreshes them."""
    if shuffling is None:
        return lambda: None
    from murk.monitoring.metrics.shuffler import CrowdSums, ShufflerMetrics

    exported = ShufflerMetrics(shuffling.task, registry=registry)

    def refresh() -> None:
        totals = shuffling.totals
        sums = CrowdSums(
            totals.released, totals.crowds, totals.waiting, totals.dropped, totals.duplicates, totals.refused
        )
        exported.update(sums, shuffling.trouble)

    refresh()
    return refresh


def _shuffler_trouble(shuffling: Shuffling) -> str | None:
    """Return why a shuffler is unhealthy, or None."""
    silent = time.monotonic() - shuffling.stepped
    return shuffling.trouble or (f"no step for {silent:.0f} s" if silent > _LONGEST_STEP else None)
