"""Commands that work on all tasks of one or several logs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from murk._internal.numbers import listed
from murk.cli.logs import say
from murk.cli.options import Mistake, is_mistake, retrying
from murk.errors import UserError

if TYPE_CHECKING:
    from murk.stream.log.search import TaskSearch

_ERROR_CODE = "MURK-CLI-002"


def begin_search(tasks: TaskSearch[Any], urls: Sequence[str], *, wait: bool) -> None:
    """Search until all given logs and chosen tasks (with ``wait``, any task) were found; without, raise an error."""
    retrying(partial(_begin, tasks, urls, wait=wait), wait=wait)


def _begin(tasks: TaskSearch[Any], urls: Sequence[str], *, wait: bool) -> None:
    errors = tasks.search()
    for error, opened in errors.values():
        if isinstance(error, UserError) and is_mistake(error, opened=opened):
            raise Mistake(error)
    missing = tasks.missing()
    absent = f"carries the task {listed(missing, 'or')}"
    if missing and tasks.carried.keys() >= set(urls):
        there = ", ".join(sorted(tasks.carried.values()))
        raise Mistake(UserError(f"no log {absent}; there are {there}", code="MURK-LOG-003"))
    if tasks.running and wait:
        return
    for url, (error, _) in errors.items():
        # A damaged log among a cluster's is only reported.
        if url in urls or missing or not tasks.running:
            raise error
    if missing:
        remedy = f"`murk topics` announces one on {', '.join(urls)}"
        raise UserError(f"no log that this user may see {absent}: {remedy}", code="MURK-LOG-003")
    if not tasks.running:
        raise UserError(f"no log of {', '.join(urls)} has a task", code="MURK-LOG-003")


class Reports:
    """Report on standard error which logs cannot be used, from the start or later, and which can be used again."""

    def __init__(self, tasks: TaskSearch[Any], urls: Sequence[str]) -> None:
        self._tasks, self._urls = tasks, urls
        self._before: dict[str, str] = {}

    def report(self) -> None:
        """Report what has changed."""
        tasks, before, now = self._tasks, self._before, self._tasks.trouble()
        for name in before.keys() | now.keys():
            # The problem also ends if a damaged log is deleted from its cluster: that log cannot be read.
            if name not in now:
                if name in {*tasks.running, *tasks.carried, *self._urls}:
                    say(f"{name}: the log can be used now")
            elif name not in before or (name in tasks.problems and now[name] != before[name]):
                say(f"{name}: cannot use the log: {now[name]}")
        self._before = now
