"""Releases of a partition, read again by whoever wants to learn from them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from murk.stream.messages.codec import RejectedError, parse
from murk.stream.messages.releases import Release
from murk.stream.messages.wire import DuplicateWindow


@dataclass(frozen=True)
class Replay:
    """Tell which messages of a partition are releases of a task that a learner learns, in order."""

    kind: str
    task: str  # hash
    simulated: bool
    levels: Collection[str]
    partition: int
    window: DuplicateWindow = field(repr=False)

    def admitted(self, messages: Iterable[tuple[int, int, bytes]]) -> Iterator[Release]:
        """Return the releases among messages (offset, time of appending, bytes), whose offsets grow."""
        for offset, appended, value in messages:
            try:
                release = self._release(value)
            except RejectedError:
                continue
            # Recorded whatever the outcome, as by a worker.
            repeated = self.window.seen(offset, release.id)
            if release.chain == self.partition and appended <= release.expires and not repeated:
                yield release

    def _release(self, value: bytes) -> Release:
        release = parse(value, self.kind)
        if release.task != self.task or release.simulated is not self.simulated:
            raise RejectedError("wrong-task", "a release of another task")
        if release.level not in self.levels:
            raise RejectedError("level", f"level {release.level!r} is not one of the task's")
        return release
