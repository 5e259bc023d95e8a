"""Read an archive as a log whose messages cannot change; states of models are kept in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from murk._internal.arrays import Integers
from murk.errors import UserError
from murk.stream.archive import files
from murk.stream.archive.files import Archived, Extent, Folder, Manifest
from murk.stream.log.interface import (
    Checkpoint,
    CrowdMark,
    DeadLetter,
    Log,
    Message,
    Ownership,
    check_partition,
    check_range,
)
from murk.stream.wire.packed import Fetched
from murk.task.task import Task

_ERROR_CODE = "MURK-ARCHIVE-001"

_HELD = 2  # number of decoded files kept in memory


class ArchiveLog(Log):
    """An archive as a log, for the task's own learner or the model ``name``; raise UserError if there is no archive."""

    def __init__(self, folder: Folder, name: str | None = None) -> None:
        manifest = Manifest.read(folder)
        if manifest is None:
            raise UserError(
                f"there is no archive at {folder.url}: `murk archive --log URL --to {folder.url}` writes one",
                code="MURK-ARCHIVE-003",
            )
        self.url, self.model_name = folder.url, name
        self._folder, self._manifest = folder, manifest
        self._extents: dict[int, list[Extent]] = {}
        self._files: dict[tuple[int, Extent], Archived] = {}
        self._states: dict[int, Checkpoint] = {}

    @property
    def identity(self) -> str:
        return self._manifest.identity

    @cached_property
    def task(self) -> Task:
        """The task of the archived log."""
        return Task.from_document(self._manifest.document.encode(), f"the task of the archive {self.url}")

    def document(self) -> bytes:
        return self._manifest.document.encode()

    def registered_task(self) -> Task:
        return self.task

    def shared_models(self) -> dict[str, Any] | None:
        """Return the models that partitions share, as `Archiver` has stored them."""
        return files.read_models(self._folder)

    def crowd_mark(self) -> CrowdMark | None:
        # If the task is shuffled, the archived log is one that a shuffler writes to.
        return None if self.task.shuffle is None else CrowdMark("", 0)

    def extents(self, partition: int) -> Sequence[Extent]:
        """Return the offsets of a partition's files, in order."""
        check_partition(self, partition)
        if partition not in self._extents:
            self._extents[partition] = files.extents(self._folder, partition)
        return self._extents[partition]

    def begin(self, partition: int) -> int:
        extents = self.extents(partition)
        return extents[0].begin if extents else 0

    def end(self, partition: int) -> int:
        extents = self.extents(partition)
        return extents[-1].end if extents else 0

    def read(self, partition: int, offset: int, limit: int) -> list[Message]:
        fetched = self.fetch(partition, offset, limit)
        rows = zip(fetched.offsets.tolist(), fetched.times.tolist(), fetched.messages.values(), strict=True)
        return [Message(*row) for row in rows]

    def fetch(self, partition: int, offset: int, limit: int) -> Fetched:
        check_range(self, partition, offset)
        for extent in self.extents(partition):
            if offset < extent.end:
                whole = self._decoded(partition, extent).messages
                start = int(np.searchsorted(whole.offsets, offset))
                # A file may end with offsets that have no message.
                if start < len(whole):
                    return whole.rows(start, min(len(whole), start + limit))
        return Fetched.empty()

    def copies(self, partition: int, offset: int) -> Integers:
        """Return which offsets of the file that has this one have messages that repeat an unexpired release."""
        at = next(extent for extent in self.extents(partition) if extent.begin <= offset < extent.end)
        return self._decoded(partition, at).copies

    def first_since(self, partition: int, time: float) -> int:
        # An archived time may be truncated.
        return super().first_since(partition, time - self.task.granularity)

    def _decoded(self, partition: int, extent: Extent) -> Archived:
        key = partition, extent
        whole = self._files.get(key)
        if whole is None:
            whole = files.decode(self._folder, partition, extent, self._manifest)
            # Threads may read parts of one archive at once.
            for oldest in list(self._files)[: 1 - _HELD]:
                self._files.pop(oldest, None)
            self._files[key] = whole
        return whole

    def checkpoint(self, partition: int) -> Checkpoint:
        return self._states.get(partition, Checkpoint(None, 0))

    def keep(self, partition: int, checkpoint: Checkpoint) -> None:
        """Keep a partition's state for `checkpoint`, in memory alone."""
        self._states[partition] = checkpoint

    def model(self, partition: int) -> bytes | None:
        return None

    def dead_letters(self, partition: int | None = None) -> Iterator[DeadLetter]:
        return iter(())

    def close(self) -> None:
        self._files.clear()

    def prepare(self, document: bytes) -> None:
        raise self._read_only()

    def register_task(self, document: bytes) -> None:
        raise self._read_only()

    def append(self, batch: Sequence[tuple[int, bytes]]) -> None:
        raise self._read_only()

    def publish(self, partition: int, message: bytes) -> None:
        raise self._read_only()

    def acquire(self, partition: int) -> Ownership:
        raise self._read_only()

    def trim(self, before: float) -> int:
        return 0

    def _read_only(self) -> UserError:
        return UserError(f"{self.url} is an archive, which only `murk archive` writes: give a log (--log)")
