"""Resume a partition on the log that its state was learned from; on another log releases would count twice or never."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from murk.errors import MurkError, UserError
from murk.stream.log.interface import Checkpoint, Log
from murk.stream.wire.admission import lifetime_of
from murk.stream.wire.duplicates import AHEAD, DuplicateWindow, Unexpired
from murk.stream.wire.packed import Fetched
from murk.stream.wire.state import StateMessage, decode_state
from murk.task.task import Task

_PAGE = 4096  # messages that are read at once


def check_shuffled(log: Log, task: Task) -> None:
    """Raise `UserError` if a task is shuffled, and no shuffler writes to a log."""
    if task.shuffle is not None and log.crowd_mark() is None:
        raise UserError(
            f"no shuffler writes to {log.url}, and the task {task.name!r} is learned from shuffled crowds only: start "
            "`murk shuffle`, and learn from its --to",
            code="MURK-SHUFFLE-002",
        )


def open_state(log: Log, task: Task, partition: int, checkpoint: Checkpoint) -> StateMessage | None:
    """Decode a partition's state (None if nothing was read yet); raise `MurkError` unless the log continues it."""
    where = f"partition {partition} of {log.url}"
    state, offset = checkpoint
    message = None if state is None else decode_state(state, where)
    if message is not None:
        if message.identity != log.identity:
            raise _other_log(where, "its state was learned from a log with another identity")
        if message.task != task.hash:
            raise _other_log(where, "its state is of another task")
        if message.partition != partition:
            raise _other_log(where, f"its state is that of partition {message.partition}")
        if message.offset != offset:
            raise _other_log(where, f"its state ends at offset {message.offset}, and {offset} was committed")
    elif offset and log.model_name is None:
        raise MurkError(
            f"{where} was read up to offset {offset}, but its state is gone: restore it from a copy, or use a new log",
            code="MURK-STATE-001",
        )
    begin, end = log.begin(partition), log.end(partition)
    if begin > offset:
        remedy = "begin with a new log and a longer retention" if log.model_name is None else "rename the model"
        raise MurkError(
            f"{where} has been read up to offset {offset}, but the log now begins at {begin}: retention "
            f"has removed {begin - offset} unread messages, without which the estimate would be wrong. "
            f"Restore the log from a copy, or {remedy}",
            code="MURK-LOG-007",
        )
    if end < offset:
        raise _other_log(where, f"its state has read up to offset {offset}, and the log ends at {end}")
    return message


def rebuild_window(
    log: Log, task: Task, partition: int, remember: Callable[[Fetched, DuplicateWindow], object], offset: int
) -> DuplicateWindow:
    """Rebuild the window for duplicates at an offset; ``remember`` adds the ids of valid messages to it."""
    window = DuplicateWindow(task.duplicates, Unexpired.of(log.identity, task.expiry, task.granularity))
    start = max(log.begin(partition), offset - task.duplicates)
    for last in log.read(partition, offset - 1, 1) if start < offset else []:
        # The last message, and those before it, may have come while the log's clock was ahead.
        start = min(start, log.first_since(partition, last.time - lifetime_of(task.expiry) - 2 * AHEAD))
    while start < offset and len(page := log.fetch(partition, start, min(_PAGE, offset - start))):
        start = int(page.offsets[-1]) + 1
        remember(page.rows(0, int(np.searchsorted(page.offsets, offset))), window)
    return window


def check_last(log: Log, task: Task, message: StateMessage, window: DuplicateWindow) -> None:
    """Raise `MurkError` if the newest release before a state's offset is not the one that the state records."""
    newest = window.newest(message.offset)
    # If retention has removed all messages of the window, there is nothing to compare.
    if newest is None and log.begin(message.partition) > max(0, message.offset - task.duplicates):
        return
    if newest != message.last_id:
        raise _other_log(
            f"partition {message.partition} of {log.url}",
            f"the last release before offset {message.offset} is not the one that its state has learned",
        )


def _other_log(where: str, reason: str) -> MurkError:
    return MurkError(
        f"{where} does not continue what was learned before: {reason}. The log was deleted, recreated or "
        "restored from an older copy. Restore the right log, or begin with a new one",
        code="MURK-LOG-006",
    )
