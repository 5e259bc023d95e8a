"""Monitors of all tasks of one or several logs, which share a registry of metrics."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from murk._internal.numbers import finite
from murk.errors import UserError
from murk.monitoring.metrics.exporter import Values, families, new_registry
from murk.monitoring.monitor import Monitor
from murk.monitoring.processes import BUILD_INFO
from murk.monitoring.snapshot import VERSION
from murk.stream.log.interface import Log
from murk.stream.log.search import REST, TaskSearch
from murk.task.task import Task

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client import Metric as Family

_ERROR_CODE = "MURK-MONITOR-001"


class TaskMonitors(TaskSearch[Monitor]):
    """Monitor all tasks of some logs, which are only read; their metrics differ in the label ``task``.

    A task whose log can no longer be read keeps its last figures. ``urls`` and ``names`` are as for `TaskSearch`.
    ``make`` makes the monitor of a log and the task that it carries. A task is polled at most every ``interval``
    seconds, and new tasks are searched for five times less often. Raises UserError if prometheus_client is missing.
    """

    def __init__(
        self,
        urls: Sequence[str],
        make: Callable[[Log, Task], Monitor],
        *,
        names: Sequence[str] = (),
        interval: float = 1.0,
    ) -> None:
        self.registry: CollectorRegistry = new_registry()
        from prometheus_client import ProcessCollector

        ProcessCollector(registry=self.registry)
        self.registry.register(self)
        super().__init__(urls, names, interval=interval)
        self._make = make
        self._due: dict[str, float] = {}
        self._gone: set[str] = set()

    @property
    def monitors(self) -> Mapping[str, Monitor]:
        """The monitors by task."""
        return self.running

    def begin(self, log: Log, task: Task) -> Monitor:
        """Return the monitor of a log's task."""
        return self._make(log, task)

    def url_of(self, work: Monitor) -> str:
        """Return the URL of a monitor's log."""
        return work.snapshot.url

    def problem_of(self, work: Monitor) -> str | None:
        """Return why a monitor could not read its log at the last poll."""
        return work.snapshot.problem

    def leaves_out(self, log: Log, task: Task) -> bool:
        """Return whether a log is the input log of a shuffler whose output is monitored: nobody learns from it."""
        return task.name in self.running and task.shuffle is not None and log.crowd_mark() is None

    def mark_listed(self, name: str, *, listed: bool) -> None:
        """Do not poll logs that a cluster no longer has: a reader waits long for topics that were deleted."""
        if listed:
            self._gone.discard(name)
            return
        self._gone.add(name)
        lost = "its topics were deleted, or this user may no longer see them"
        monitor = self.running[name]
        monitor.fail(UserError(f"there is no log at {self.url_of(monitor)} any more: {lost}"))

    def step(self) -> float:
        """Search if due, poll each task that is due, and return the seconds until the next step."""
        self.search_if_due()
        for name, monitor in self.monitors.items():
            start = time.monotonic()
            if start < self._due.get(name, 0.0) or name in self._gone:
                continue
            used = time.thread_time()
            done = monitor.poll()
            pause = rest(time.thread_time() - used, self._interval)
            end = time.monotonic()
            if not done and len(self.monitors) > 1:
                # A log that does not answer must not take the time of the others.
                pause = max(pause, REST * (end - start))
            self._due[name] = end + pause
        due = min([self._next_search, *(due for name, due in self._due.items() if name not in self._gone)])
        return max(0.0, due - time.monotonic())

    def body(self) -> bytes:
        """Return all tasks with their main figures as JSON."""
        summaries = {
            "version": VERSION,
            "now": time.time(),
            "tasks": [_summary(monitor) for monitor in self.monitors.values()],
            "problems": [{"log": url, "problem": problem} for url, problem in self.problems.items()],
        }
        return json.dumps(finite(summaries), allow_nan=False, separators=(",", ":")).encode()

    def describe(self) -> Iterator[Family]:
        """Return the metrics without values, for the registry."""
        yield from families("monitor", {})
        yield from families("process", {})

    def collect(self) -> Iterator[Family]:
        """Return the metrics of all tasks, for the registry."""
        monitors = self.monitors
        unread: dict[str, Values] = {name: {"murk_log_reachable": 0} for name in sorted(self.unread)}
        yield from families("monitor", unread | {name: monitor.values() for name, monitor in monitors.items()})
        yield from families("process", dict.fromkeys(monitors, BUILD_INFO))

    def close(self) -> None:
        """Close all monitors, and the logs that they read."""
        for monitor in self.monitors.values():
            monitor.close()


def rest(used: float, interval: float) -> float:
    """Return the seconds until the next poll: 32 times the last one's CPU time, at least ``interval``, at most 10.

    >>> rest(0.01, 1.0), rest(0.25, 1.0), rest(10.0, 1.0)
    (1.0, 8.0, 10.0)
    """
    return max(interval, min(32.0 * used, 10.0))


def _summary(monitor: Monitor) -> dict[str, Any]:
    snapshot = monitor.snapshot
    task, current = snapshot.task, snapshot.figures
    return {
        "name": task.name,
        "protocol": task.protocol,
        "model": task.fitted_model,
        "simulated": task.simulated,
        "log": snapshot.url,
        "healthy": snapshot.healthy,
        "problem": snapshot.problem,
        "releases": current.releases,
        "rate": snapshot.rate,
        "lag": current.lag,
        "dead_letters": sum(current.dead.values()),
        "estimated_error": current.estimated_error,
        "parameter_error": current.parameter_error,
    }
