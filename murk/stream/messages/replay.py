"""Releases of a partition, read again by whoever wants to learn from them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from murk.stream.messages.codec import RejectedError, parse
from murk.stream.messages.duplicates import DuplicateWindow
from murk.stream.messages.releases import Release
from murk.stream.task.task import Task


class Replay:
    """Tell which messages of a partition are releases to learn, in order; ``document`` is that of the log's task."""

    def __init__(self, document: bytes, partition: int) -> None:
        self._task = Task.from_document(document)
        self._partition = partition
        self._window = DuplicateWindow(self._task.duplicates)

    def admitted(self, messages: Iterable[tuple[int, int, bytes]]) -> Iterator[Release]:
        """Return the releases among messages (offset, time of appending, bytes), whose offsets grow."""
        for offset, appended, value in messages:
            try:
                release = self._release(value)
            except RejectedError:
                continue
            # Recorded whatever the outcome, as by a worker.
            repeated = self._window.seen(offset, release.id)
            if release.chain == self._partition and appended <= release.expires and not repeated:
                yield release

    def _release(self, value: bytes) -> Any:
        task = self._task
        release = parse(value, task.release_kind)
        if release.task != task.hash or release.simulated is not task.simulated:
            raise RejectedError("wrong-task", "a release of another task")
        if release.level not in task.privacy.levels:
            raise RejectedError("level", f"level {release.level!r} is not one of the task's")
        return release
