"""What a log's task may become: itself, or itself with other settings of the log."""

from __future__ import annotations

from murk.errors import UserError
from murk.stream.task.canonical import differences
from murk.stream.task.task import Task


def check_task_change(url: str, standing: bytes | None, offered: bytes) -> Task | None:
    """Decide what announcing a document on a log means, for every implementation alike.

    Returns
    -------
    Task | None
        The offered task, where its document is to be put on the log; None where nothing changes.

    Raises
    ------
    UserError
        When another task is stored in the log, or its number of partitions would change.
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
        # Keys and never values: a document may hold people's covariates.
        keys = [key for key in differences(standing, offered) if not key.startswith("log.")]
        raise UserError(
            f"{url} already carries the task {carried.name!r}, and the task {task.name!r} offered to it "
            f"differs in: {', '.join(keys)}. A log carries one task for life: use another log, "
            "or the task as it was"
        )
    if carried.log.partitions != task.log.partitions:
        raise UserError(
            f"{url} has {carried.log.partitions} partitions and the task {task.name!r} now asks for "
            f"{task.log.partitions}: each partition is a chain with a state of its own, so their number "
            f"stays. Set log.partitions back to {carried.log.partitions}, or use another log"
        )
    return task
