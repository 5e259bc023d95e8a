"""Check of changes to a log's task: only the log's settings may change."""

from __future__ import annotations

from murk.errors import UserError
from murk.stream.task.canonical import differences
from murk.stream.task.task import Task


def check_task_change(url: str, standing: bytes | None, offered: bytes) -> Task | None:
    """Return the offered task if its document is to be stored on the log, or None if nothing changes.

    Raises `UserError` if the log carries another task, or its number of partitions would change.
    """
    if standing == offered:
        return None
    task = Task.from_document(offered)
    if standing is None:
        return task
    carried = Task.from_document(standing)
    task = task.with_defaults_of(carried)
    if task == carried:
        return None
    if carried.hash != task.hash:
        # Never values: a document may hold people's covariates.
        keys = [key for key in differences(standing, offered) if not key.startswith("log.")]
        raise UserError(
            f"{url} already carries the task {carried.name!r}, and the task {task.name!r} offered to it "
            f"differs in: {', '.join(keys)}. The task of a log cannot be changed: use another log, or the task as it "
            "was"
        )
    if carried.log.partitions != task.log.partitions:
        raise UserError(
            f"{url} has {carried.log.partitions} partitions and the task {task.name!r} now asks for "
            f"{task.log.partitions}: each partition is a chain with its own state, so their number cannot be changed. "
            f"Set log.partitions back to {carried.log.partitions}, or use another log"
        )
    return task
