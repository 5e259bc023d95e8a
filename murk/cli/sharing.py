"""Metrics of a population's people, for Prometheus, while ``murk produce`` runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from murk.producers import Ledger
    from murk.stream import Task

F = TypeVar("F", bound=Callable[..., Any])

_SECONDS = 2.0
_SHARE = 20
"""At most a twentieth of the time is spent on sums."""


def metrics_port(function: F) -> F:
    """Options that say where the metrics of a population's people are served."""
    function = click.option(
        "--metrics-host", default="127.0.0.1", show_default=True, metavar="H",
        help="Address that --metrics-port listens on.",
    )(function)  # fmt: skip
    return click.option(
        "--metrics-port", type=click.IntRange(0, 65535), metavar="N",
        help="Serve metrics: sums over 20 people or more, for Prometheus.",
    )(function)  # fmt: skip


@contextmanager
def people_metrics(port: int | None, host: str, task: Task, ledger: Ledger) -> Iterator[Callable[[], None]]:
    """Serve ``/metrics`` on a port, and yield what brings them up to date where that is due.

    Without a port nothing is served. To be called in the thread of the ledger.
    """
    if port is None:
        yield lambda: None
        return
    from functools import partial

    from murk.monitoring.people import PeopleMetrics, PeopleSums
    from murk.monitoring.routes import metrics
    from murk.monitoring.server import Route, Server, text

    exported = PeopleMetrics(task.name)
    sums = ledger.group_sums(task.hash)
    due = 0.0

    def refresh() -> None:
        nonlocal due
        start = time.monotonic()
        if start < due:
            return
        found = sums.read()
        if exported.update(PeopleSums(found.people, found.changed, found.refused, found.queued, found.spent)):
            sums.told()
        end = time.monotonic()
        due = end + max(_SECONDS, _SHARE * (end - start))

    routes: dict[str, Route] = {
        "/metrics": partial(metrics, exported.registry),
        "/healthz": lambda headers: text(200, "ok"),
    }
    with Server(routes, host, port) as server:
        click.echo(f"{task.name}: metrics of its people at {server.url}/metrics", err=True)
        refresh()
        yield refresh
