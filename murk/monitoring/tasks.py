"""Monitors of all tasks of one or several logs, which share a registry of metrics."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from murk._internal.numbers import finite
from murk.errors import UserError
from murk.monitoring.metrics.exporter import Values, families, new_registry
from murk.monitoring.monitor import Monitor, one_line
from murk.monitoring.processes import BUILD_INFO
from murk.monitoring.snapshot import VERSION
from murk.stream.log.interface import NO_LOG, Log
from murk.stream.log.open import find_logs, name_in, open_log
from murk.task.task import Task

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client import Metric as Family

_ERROR_CODE = "MURK-MONITOR-001"

_INTERVALS = 5  # intervals between two searches for new tasks
_REST = 4.0  # rest after a search or a failed poll, as a multiple of the time that it took


class TaskMonitors:
    """Monitor all tasks of some logs, found when they appear; their metrics differ in the label ``task``.

    Only `search` and `step` read logs, in one thread; everything else may be called from any thread. A task whose log
    can no longer be read keeps its last figures and does not stop the others. ``urls`` are logs, which are only read: a
    file, a log of a cluster, or a cluster for all its logs. ``make`` makes the monitor of a log and the task that it
    carries. ``names`` are the only tasks to monitor, by default all. A task is polled at most every ``interval``
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
        # Replaced as a whole, since other threads read them.
        self.monitors: Mapping[str, Monitor] = {}
        # Why there is no monitor, by a log's URL or the name of a chosen task that no log carries.
        self.problems: Mapping[str, str] = {}
        self._urls, self._make, self._names, self._interval = tuple(urls), make, tuple(names), interval
        self._unread: Set[str] = frozenset()  # names of tasks, as far as known, whose logs cannot be read
        self._task_of: dict[str, str] = {}  # names of the tasks that were read, by URL
        self._given: dict[str, str] = {}  # URL of a log that need not be opened again -> given URL that named it
        self._due: dict[str, float] = {}
        self._gone: set[str] = set()
        self._next_search = 0.0

    def search(self) -> dict[str, tuple[Exception, bool]]:
        """Begin to monitor new tasks; return, by URL, each error and whether it occurred after the log was opened."""
        errors: dict[str, tuple[Exception, bool]] = {}
        start = time.monotonic()
        for given in self._urls:
            urls: list[str] = []
            try:
                urls = find_logs(given, self._names)
            except Exception as error:  # noqa: BLE001 - the others must survive any error
                errors[given] = error, False
                if not (isinstance(error, UserError) and error.code == NO_LOG):
                    continue
            self._leave_out(given, urls)
            for url in urls:
                if url not in self._given and (failed := self._begin(url, given)):
                    errors[url] = failed
        # A file's name says nothing about its task.
        named = {name for url in errors if (name := self._task_of.get(url) or name_in(url))}
        absent = [name for name in self.missing() if name not in named]
        self.problems = {
            **{url: one_line(error) for url, (error, _) in errors.items() if url not in self._given},
            **dict.fromkeys(absent, "no log that this user may see carries this task: `murk topics` announces one"),
        }
        self._unread = named.intersection(self._names or named).union(absent)
        end = time.monotonic()
        self._next_search = end + max(_INTERVALS * self._interval, _REST * (end - start))
        return errors

    def _leave_out(self, given: str, found: Sequence[str]) -> None:
        """Do not poll logs that a cluster no longer has: a reader waits long for topics that were deleted."""
        for url in [url for url, origin in self._given.items() if origin == given]:
            if (name := self._task_of[url]) in self.monitors:
                if url in found:
                    self._gone.discard(name)
                else:
                    self._gone.add(name)
                    lost = "its topics were deleted, or this user may no longer see them"
                    self.monitors[name].fail(UserError(f"there is no log at {url} any more: {lost}"))

    def missing(self) -> list[str]:
        """Return the chosen tasks that no log carries."""
        return [name for name in self._names if name not in self.monitors]

    @property
    def carried(self) -> Mapping[str, str]:
        """Names of the tasks that logs carry, whether they are monitored or not, by URL."""
        return {url: self._task_of[url] for url in self._given}

    def step(self) -> float:
        """Search if due, poll each task that is due, and return the seconds until the next step."""
        if time.monotonic() >= self._next_search:
            self.search()
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
                pause = max(pause, _REST * (end - start))
            self._due[name] = end + pause
        due = min([self._next_search, *(due for name, due in self._due.items() if name not in self._gone)])
        return max(0.0, due - time.monotonic())

    def trouble(self) -> dict[str, str]:
        """Return why tasks, by name, and logs without a monitor, by URL, cannot be read (see ``problems``)."""
        problems = {name: monitor.snapshot.problem for name, monitor in self.monitors.items()}
        return {name: problem for name, problem in problems.items() if problem is not None} | dict(self.problems)

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
        unread: dict[str, Values] = {name: {"murk_log_reachable": 0} for name in sorted(self._unread)}
        yield from families("monitor", unread | {name: monitor.values() for name, monitor in monitors.items()})
        yield from families("process", dict.fromkeys(monitors, BUILD_INFO))

    def close(self) -> None:
        """Close all monitors, and the logs that they read."""
        for monitor in self.monitors.values():
            monitor.close()

    def _begin(self, url: str, given: str) -> tuple[Exception, bool] | None:
        log: Log | None = None
        opened = False
        try:
            log = open_log(url, create=False)
            if (document := log.document()) is None:
                remedy = "`murk topics`, `murk run` or `murk produce` announces one"
                raise UserError(f"{url} carries no task yet: {remedy}", code="MURK-LOG-003")
            task = Task.from_document(document, f"the task on {url}")
            self._task_of[url] = task.name
            if url != given and task.name in self.monitors and task.shuffle is not None and log.crowd_mark() is None:
                # The input log of a shuffler, which nobody learns from.
                return None
            opened = True
            if not self._names or task.name in self._names:
                self._add(url, log, task)
                log = None
            self._given[url] = given
        except Exception as error:  # noqa: BLE001 - the others must survive any error
            return error, opened
        finally:
            if log is not None:
                log.close()
        return None

    def _add(self, url: str, log: Log, task: Task) -> None:
        if task.name in self.monitors:
            other = self.monitors[task.name].snapshot.url
            remedy = "give each a monitor of its own, or one task another name"
            raise UserError(f"{url} carries a task {task.name!r}, as {other} does: {remedy}")
        made = {**self.monitors, task.name: self._make(log, task)}
        self.monitors = dict(sorted(made.items()))


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
