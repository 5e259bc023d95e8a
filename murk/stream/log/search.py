"""Search for the tasks that one or several logs carry, which may appear later, and begin to work on each."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from typing import Generic, TypeVar

from murk.errors import MurkError, UserError
from murk.stream.log.interface import NO_LOG, Log
from murk.stream.log.open import find_logs, name_in, open_log
from murk.task.task import Task

_ERROR_CODE = "MURK-MONITOR-001"

_INTERVALS = 5  # intervals between two searches for new tasks
REST = 4.0  # rest after a search, as a multiple of the time that it took

T = TypeVar("T")


def one_line(error: Exception) -> str:
    """Return why a log cannot be read, in one line."""
    if not isinstance(error, MurkError):
        # The text of an unexpected error may quote a record.
        return f"the log could not be read ({type(error).__name__})"
    return " ".join(str(error).split()) or "the log could not be read"


class TaskSearch(ABC, Generic[T]):
    """Base class for work on all tasks of some logs, found when they appear.

    ``urls`` are logs: a file, a log of a cluster, or a cluster for all its logs. ``names`` are the only tasks to work
    on, by default all. Only `search` and `step` read logs, in one thread; everything else may be called from any
    thread. A log that cannot be read does not stop the work on others.
    """

    def __init__(self, urls: Sequence[str], names: Sequence[str] = (), *, interval: float = 1.0) -> None:
        # Replaced as a whole, since other threads read them.
        self.running: Mapping[str, T] = {}
        # Why nothing runs, by a log's URL or the name of a chosen task that no log carries.
        self.problems: Mapping[str, str] = {}
        self.unread: Set[str] = frozenset()  # names of tasks, as far as known, whose logs cannot be read
        self._urls, self._names, self._interval = tuple(urls), tuple(names), interval
        self._task_of: dict[str, str] = {}  # names of the tasks that were read, by URL
        self._given: dict[str, str] = {}  # URL of a log that need not be opened again -> given URL that named it
        self._next_search = 0.0

    @abstractmethod
    def begin(self, log: Log, task: Task) -> T:
        """Begin to work on a task; the log is then this work's to close, unless an error is raised."""

    @abstractmethod
    def url_of(self, work: T) -> str:
        """Return the URL of the log of some work."""

    @abstractmethod
    def problem_of(self, work: T) -> str | None:
        """Return why a log cannot be used at the moment."""

    @abstractmethod
    def leaves_out(self, log: Log, task: Task) -> bool:
        """Return whether a log of a cluster, whose URL was not given, is left out."""

    def mark_listed(self, name: str, *, listed: bool) -> None:
        """Note whether the cluster still lists the log of a running task."""

    def find(self, given: str) -> list[str]:
        """Return the URLs of the logs at a given URL; see `find_logs`."""
        return find_logs(given, self._names)

    def search(self) -> dict[str, tuple[Exception, bool]]:
        """Begin new tasks; return, by URL, each error and whether it occurred after the log was opened."""
        errors: dict[str, tuple[Exception, bool]] = {}
        start = time.monotonic()
        for given in self._urls:
            urls: list[str] = []
            try:
                urls = self.find(given)
            except Exception as error:  # noqa: BLE001 - the others must survive any error
                errors[given] = error, False
                if not (isinstance(error, UserError) and error.code == NO_LOG):
                    continue
            for url in [url for url, origin in self._given.items() if origin == given]:
                carried = self._task_of[url]
                if carried in self.running and self.url_of(self.running[carried]) == url:
                    self.mark_listed(carried, listed=url in urls)
            for url in urls:
                if url not in self._given and (failed := self._begin(url, given, urls)):
                    errors[url] = failed
        # A file's name says nothing about its task.
        named = {name for url in errors if (name := self._task_of.get(url) or name_in(url))}
        absent = [name for name in self.missing() if name not in named]
        self.problems = {
            **{url: one_line(error) for url, (error, _) in errors.items() if url not in self._given},
            **dict.fromkeys(absent, "no log that this user may see carries this task: `murk topics` announces one"),
        }
        self.unread = named.intersection(self._names or named).union(absent)
        end = time.monotonic()
        self._next_search = end + max(_INTERVALS * self._interval, REST * (end - start))
        return errors

    def search_if_due(self) -> None:
        """Search if the last search was long enough ago."""
        if time.monotonic() >= self._next_search:
            self.search()

    def missing(self) -> list[str]:
        """Return the chosen tasks that no log carries."""
        return [name for name in self._names if name not in self.running]

    @property
    def carried(self) -> Mapping[str, str]:
        """Names of the tasks that logs carry, whether something runs for them or not, by URL."""
        return {url: self._task_of[url] for url in self._given}

    def trouble(self) -> dict[str, str]:
        """Return why tasks, by name, and other logs, by URL, cannot be used (see ``problems``)."""
        problems = {name: self.problem_of(work) for name, work in self.running.items()}
        return {name: problem for name, problem in problems.items() if problem is not None} | dict(self.problems)

    def health(self) -> tuple[bool, str]:
        """Return whether any task can be worked on, and a line for each that cannot."""
        trouble, running = self.trouble(), self.running
        if len(running) == 1 and trouble.keys() == running.keys():
            return False, next(iter(trouble.values()))
        lines = [f"{name}: {problem}" for name, problem in trouble.items()]
        if running.keys() <= trouble.keys():
            return False, "\n".join(lines)
        return True, "\n".join(["ok, except:", *lines]) if lines else "ok"

    def _begin(self, url: str, given: str, listed: Sequence[str]) -> tuple[Exception, bool] | None:
        log: Log | None = None
        opened = False
        try:
            log = open_log(url, create=False)
            task = log.registered_task()
            self._task_of[url] = task.name
            if url != given and self.leaves_out(log, task):
                return None
            own = f"{url.rpartition('/')[0]}/{task.name}"
            if url not in (given, own) and own in listed:
                # Whoever may make a log in a cluster could otherwise take a task's place.
                raise UserError(
                    f"{url} carries a task {task.name!r}, whose log is {own}: give one of them another name"
                )
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
        if task.name in self.running:
            other = self.url_of(self.running[task.name])
            remedy = "give each a process of its own, or one task another name"
            raise UserError(f"{url} carries a task {task.name!r}, as {other} does: {remedy}")
        self.running = dict(sorted({**self.running, task.name: self.begin(log, task)}.items()))
