"""Copy a log's messages to an archive, each exactly once even if the archiver is stopped and started again."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from murk._internal.arrays import Integers
from murk.errors import MurkError, UserError
from murk.stream.archive import files
from murk.stream.archive.files import Archived, Extent, Folder, Manifest
from murk.stream.log.interface import FIRST_PARTITION, REMOVED, Log, check_carries
from murk.stream.wire.admission import lifetime_of, wire_rules
from murk.stream.wire.duplicates import DuplicateWindow
from murk.stream.wire.packed import Fetched, Packed
from murk.stream.wire.state import decode_state
from murk.stream.worker.interface import StreamLearner
from murk.stream.worker.recovery import check_shuffled, rebuild_window
from murk.stream.worker.sharing import SharingLearner
from murk.stream.worker.worker import Validator
from murk.task.fields import SLACK
from murk.task.task import Task

_ERROR_CODE = "MURK-ARCHIVE-001"

_BATCH: Final = 16_384  # largest number of messages read at once
_TIMES = re.compile(rb'"(time|expires)"\s*:\s*(\d{1,16})[,}]')
_log = logging.getLogger(__package__)


@dataclass
class _Tail:
    """A partition's newest, incomplete file: the messages read so far, and how many of these the archive has."""

    begin: int  # first offset of the file
    end: int  # next offset to read
    stored: int  # end offset of the file that the archive has
    window: DuplicateWindow
    parts: list[Archived] = field(default_factory=list)
    size: int = 0  # bytes of the messages read

    @property
    def extent(self) -> Extent:
        return Extent(self.begin, self.end)


@dataclass(frozen=True, slots=True)
class PartitionArchive:
    """Progress of a partition's archive."""

    lag: int  # messages on the log that the archive lacks
    size: int  # bytes of its files
    waiting: float  # seconds since the log appended the oldest message that the archive lacks; 0 if it lacks none


class Archiver:
    """Copy partitions of a log to a folder.
    `step` reads a batch of each partition and writes complete files; `flush` writes the incomplete ones too. An archive
    is a function of the log: two archivers write the same files, and an archiver that was killed at any point continues
    with the files that it finds. Append times are truncated to the task's granularity, except where this would change
    a worker's decision on the message's expiry.

    Raises UserError if the log carries another task, or the folder has another log's archive; MurkError if retention
    has removed messages that the archive lacks.

    Parameters
    ----------
    log, task
        The log, and the task that it carries.
    folder
        The folder of the archive.
    learner
        A new learner of the task, which tells what a valid release is. If the task's partitions share models, the
        models are archived too.
    partitions
        Numbers of the partitions to copy; by default all.
    rows, size
        For a new archive: offsets of a file, and bytes of messages at which a file ends earlier.
    clock
        Time in seconds since 1970, for the age of messages that the archive lacks.
    """

    def __init__(
        self,
        log: Log,
        task: Task,
        folder: Folder,
        learner: StreamLearner,
        partitions: Sequence[int] | None = None,
        *,
        rows: int = files.ROWS,
        size: int = files.BYTES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        check_carries(log, task)
        check_shuffled(log, task)
        self._log, self._task, self._folder, self._clock = log, task, folder, clock
        self._learner = learner if isinstance(learner, SharingLearner) and hasattr(learner, "shared_models") else None
        self._state: bytes | None = None
        manifest = Manifest(log.identity, task.hash, task.document().decode(), rows, size, task.log.partitions)
        folder.sweep("")
        stored = Manifest.read(folder)
        if stored is None:
            folder.write(files.TASK, manifest.encode())
        elif (stored.identity, stored.task) != (manifest.identity, manifest.task):
            raise UserError(
                f"{folder.url} is the archive of another log or task: give {log.url} an archive of its own",
                code=files.OTHER,
            )
        elif stored.document != manifest.document:
            # The log's retention has changed, or it has more partitions.
            manifest = replace(stored, document=manifest.document)
            folder.write(files.TASK, manifest.encode())
        else:
            manifest = stored
        self._manifest = manifest
        rules = wire_rules(task, learner.admission)
        self._validators = [Validator(partition, rules, learner) for partition in range(task.log.partitions)]
        chosen = range(task.log.partitions) if partitions is None else sorted(set(partitions))
        self._tails = {partition: self._resume(partition) for partition in chosen}
        self._sizes = {
            partition: sum(folder.size(each.name(partition)) for each in files.extents(folder, partition))
            for partition in chosen
        }
        self.archived = 0  # messages read since the start

    def _resume(self, partition: int) -> _Tail:
        self._folder.sweep(f"partition={partition}")
        extents = files.extents(self._folder, partition)
        if not extents:
            # A partition that was added later is archived from its first message, or refused if it was removed.
            begin = self._log.begin(partition) if partition < self._manifest.partitions else 0
            return self._tail(partition, Extent(begin, begin))
        last = extents[-1]
        tail = self._tail(partition, last)
        if last.end % self._manifest.rows:
            archived = files.decode(self._folder, partition, last, self._manifest)
            tail.parts, tail.size = [archived], len(archived.messages.messages.data)
        if not last.end % self._manifest.rows or tail.size >= self._manifest.size:
            tail.begin, tail.parts, tail.size = last.end, [], 0
        for name in files.shorter(self._folder, partition, last):
            self._folder.delete(name)
        return tail

    def _tail(self, partition: int, file: Extent) -> _Tail:
        window = rebuild_window(self._log, self._task, partition, self._validators[partition].remember, file.end)
        return _Tail(file.begin, file.end, file.end, window)

    def step(self) -> int:
        """Read a batch of each partition and write complete files; return the number of messages read."""
        read = sum(self._read(partition, tail) for partition, tail in self._tails.items())
        self.archived += read
        return read

    def flush(self) -> None:
        """Write the incomplete files too, so that the archive has all messages read."""
        self._archive_models()
        for partition, tail in self._tails.items():
            if tail.end > tail.stored and tail.parts:
                self._write(partition, tail)

    def has_archived(self, ends: Sequence[int]) -> bool:
        """Return whether every partition was read up to its offset in ``ends``."""
        return all(tail.end >= ends[partition] for partition, tail in self._tails.items())

    def measure(self) -> dict[int, PartitionArchive]:
        """Return the progress of each partition."""
        now, progress = self._clock(), {}
        for (partition, tail), end in zip(self._tails.items(), self._log.ends_of(list(self._tails)), strict=True):
            oldest = self._log.read(partition, tail.stored, 1) if tail.stored < end else []
            waiting = max(0.0, now - oldest[0].time) if oldest else 0.0
            progress[partition] = PartitionArchive(max(0, end - tail.stored), self._sizes[partition], waiting)
        return progress

    def _read(self, partition: int, tail: _Tail) -> int:
        try:
            fetched = self._log.fetch(partition, tail.end, _BATCH)
        except MurkError as error:
            if error.code != REMOVED:
                raise
            raise MurkError(
                f"the archive {self._folder.url} ends at offset {tail.end} of partition {partition}, and {error}: a "
                "model would be wrong without these messages. Restore the log from a copy, or begin another archive",
                code=REMOVED,
            ) from error
        if not len(fetched):
            tail.end = max(tail.end, self._log.skip(partition, tail.end))
            return 0
        # Between reading and writing the messages: the models that these releases name are then on the log.
        self._archive_models()
        copies = self._validators[partition].remember(fetched, tail.window)
        self._add(partition, tail, self._truncated(fetched), np.array(copies, np.int64))
        return len(fetched)

    def _add(self, partition: int, tail: _Tail, fetched: Fetched, copies: Integers) -> None:
        start = 0
        while start < len(fetched):
            boundary = tail.begin - tail.begin % self._manifest.rows + self._manifest.rows
            stop = int(np.searchsorted(fetched.offsets, boundary))
            sizes = np.cumsum(fetched.messages.sizes[start:stop])
            full = int(np.searchsorted(sizes, self._manifest.size - tail.size)) + 1
            is_full = full <= stop - start
            stop = start + full if is_full else stop
            part = fetched.rows(start, stop)
            if len(part):
                first, last = np.searchsorted(copies, [part.offsets[0], part.offsets[-1] + 1])
                tail.parts.append(Archived(part, copies[first:last]))
                tail.size += len(part.messages.data)
                tail.end = int(part.offsets[-1]) + 1
            start = stop
            beyond = start < len(fetched) and int(fetched.offsets[start]) >= boundary
            if is_full or beyond or tail.end == boundary:
                tail.end = tail.end if is_full else boundary
                self._write(partition, tail)
                tail.begin, tail.parts, tail.size = tail.end, [], 0

    def _write(self, partition: int, tail: _Tail) -> None:
        before = Extent(tail.begin, tail.stored)
        name = tail.extent.name(partition)
        content = files.encode(partition, tail.parts, self._manifest)
        self._folder.write(name, content)
        self._sizes[partition] += len(content)
        if before.end > before.begin and before != tail.extent:
            self._sizes[partition] -= self._folder.size(before.name(partition))
            self._folder.delete(before.name(partition))
        tail.stored = tail.end
        _log.debug("%s: wrote %s", self._folder.url, name)

    def _archive_models(self) -> None:
        if self._learner is None:
            return
        state = self._log.checkpoint(FIRST_PARTITION).state
        if state is not None and state != self._state:
            message = decode_state(state, f"partition {FIRST_PARTITION} of {self._log.url}")
            self._learner.load_state_dict(message.learner)
            files.add_models(self._folder, self._learner.shared_models())
            self._state = state

    def _truncated(self, fetched: Fetched) -> Fetched:
        """Return messages with truncated times; a time that decides on the message's expiry stays exact."""
        granularity, lifetime = self._task.granularity, lifetime_of(self._task.expiry)
        exact, truncated = fetched.times, fetched.times - fetched.times % granularity
        begins, expires = _times(fetched.messages)

        def verdicts(times: Integers) -> Integers:
            ahead = begins > times + SLACK
            return np.stack([times > expires, expires > times + lifetime, ahead])

        is_same = (verdicts(exact) == verdicts(truncated)).all(axis=0) & (expires >= 0)
        return Fetched(fetched.offsets, np.where(is_same, truncated, exact), fetched.messages)


def _times(packed: Packed) -> tuple[Integers, Integers]:
    """Return each message's ``time`` and ``expires``; -1 for both if one of these fields is missing."""
    numbers = np.full((2, len(packed)), -1, np.int64)
    for index, value in enumerate(packed.values()):
        matched = {name: int(number) for name, number in _TIMES.findall(value)}
        # With JSON escapes a message may spell these fields differently.
        if len(matched) == 2 and b"\\" not in value:
            numbers[:, index] = matched[b"time"], matched[b"expires"]
    return numbers[0], numbers[1]
