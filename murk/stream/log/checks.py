"""Checks of a log before it is written or read."""

from __future__ import annotations

from murk._internal.atomic_files import warn_if_exposed
from murk.errors import UserError
from murk.stream.log.interface import Log, not_an_input_log
from murk.task.task import Task


def check_carries(log: Log, task: Task) -> None:
    """Raise `UserError` if a log carries no task or another one."""
    document = log.document()
    if document is None:
        raise UserError(f"{log.url} carries no task yet: announce {task.name!r} on it first", code="MURK-LOG-003")
    carried = Task.from_document(document)
    if carried.hash != task.hash:
        raise UserError(
            f"{log.url} carries the task {carried.name!r} ({carried.hash[:12]}), not {task.name!r} "
            f"({task.hash[:12]}): use the task as it was announced, or another log",
            code="MURK-TASK-003",
        )


def check_input_log(log: Log, task: Task) -> None:
    """Raise `UserError` if a task is shuffled and the log to which devices would send is one that a shuffler writes."""
    if task.shuffle is None:
        return
    if log.crowd_mark() is not None:
        raise not_an_input_log(log.url)
    warn_of_readers(log)


def warn_of_readers(input_log: Log) -> None:
    """Warn if other users can read an input log in a file, since they would know who sent what."""
    if input_log.exposed():
        warn_if_exposed(input_log.url.removeprefix("sqlite:///"), "who sent what, and when")
