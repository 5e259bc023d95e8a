"""The workers of one process, as partitions are assigned to it and taken away, with their progress and health."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import Generic, Self, TypeVar

from murk.errors import MurkError
from murk.stream.log.interface import Checkpoint, FencedError, Log, Membership, UnreachableError
from murk.stream.worker.interface import StreamLearner
from murk.stream.worker.worker import Progress, Worker
from murk.task.task import Task


@dataclass(frozen=True, slots=True)
class PartitionVitals:
    """Progress of a partition in this process."""

    version: int  # number of releases learned in all
    offset: int  # first offset that is not committed
    committed: float | None = None  # when this process last committed it, in seconds since 1970
    lag: int | None = None  # number of uncommitted offsets when last measured


@dataclass(frozen=True, slots=True)
class Vitals:
    """Progress of a process that learns; messages are counted since it started."""

    partitions: Mapping[int, PartitionVitals]
    learned: int
    duplicates: int
    dead: int
    trouble: str | None  # why nothing can be done at the moment
    stepped: float  # when it last made a step, in seconds since 1970

    @property
    def read(self) -> int:
        """Number of messages read since it started."""
        return self.learned + self.duplicates + self.dead


class Pulse:
    """Record a process's progress; readable from any thread. ``clock`` gives seconds since 1970."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._partitions: dict[int, PartitionVitals] = {}
        self._counts = (0, 0, 0)
        self._trouble: str | None = None
        self._stepped = clock()

    def owns(self, partition: int, *, version: int, offset: int) -> None:
        """Record that a partition was taken over."""
        with self._lock:
            self._partitions[partition] = PartitionVitals(version, offset)

    def dropped(self, partition: int) -> None:
        """Record that a partition was released."""
        with self._lock:
            self._partitions.pop(partition, None)

    def stepped(self, partition: int, done: Progress) -> None:
        """Record that a step of a partition was committed."""
        with self._lock:
            before = self._partitions[partition]
            lag = None if before.lag is None else max(0, before.lag - (done.offset - before.offset))
            self._partitions[partition] = PartitionVitals(done.version, done.offset, self._clock(), lag)
            learned, duplicates, dead = self._counts
            self._counts = learned + done.learned, duplicates + done.duplicates, dead + done.dead

    def measured(self, partition: int, lag: int) -> None:
        """Record a partition's lag."""
        with self._lock:
            self._partitions[partition] = replace(self._partitions[partition], lag=max(0, lag))

    def beat(self, trouble: str | None) -> None:
        """Record the end of a step of the process, and the problem that it met (None without one)."""
        with self._lock:
            self._trouble, self._stepped = trouble, self._clock()

    def vitals(self) -> Vitals:
        """Return the current progress."""
        with self._lock:
            learned, duplicates, dead = self._counts
            return Vitals(dict(self._partitions), learned, duplicates, dead, self._trouble, self._stepped)


PAUSE = 0.5  # seconds between two attempts to reach a log or to take over a partition
LOG_INTERVAL = 60.0  # seconds between two log lines about progress
_log = logging.getLogger(__name__)

Learner = TypeVar("Learner", bound=StreamLearner)


class WorkerPool(Generic[Learner]):
    """A worker for each partition that is assigned to this process.

    If a partition moves to another process, its worker is closed, and the other process reads again what was not
    committed. The pool waits for an unreachable log; all other errors of logs and states are raised. ``learner``
    returns a new learner, ``membership`` the partitions assigned to this process. ``estimates`` is called when the
    first partition is taken over, and returns the argument ``estimates`` of its `Worker`; ``adopted`` is passed to
    every `Worker`. ``clock`` gives seconds, for pauses between attempts.
    """

    def __init__(
        self,
        log: Log,
        task: Task,
        learner: Callable[[], Learner],
        membership: Membership,
        *,
        estimates: Callable[[], Callable[[StreamLearner], bytes | None] | None] = lambda: None,
        clock: Callable[[], float] = monotonic,
        adopted: Callable[[int], Checkpoint] | None = None,
    ) -> None:
        self.learners: dict[int, Learner] = {}  # by partition
        self.trouble: str | None = None  # why nothing can be done at the moment
        self.pulse = Pulse()  # readable from other threads
        self._log, self._task, self._make, self._estimates = log, task, learner, estimates
        self._membership, self._clock, self._adopted = membership, clock, adopted
        self._workers: dict[int, Worker] = {}
        self._not_before, self._idle = 0.0, False
        self._refused: dict[int, float] = {}
        self._log_due, self._last_logged = clock() + LOG_INTERVAL, 0

    def step(self) -> int:
        """Let every assigned partition make a step; return the number of messages read.

        Raises `FencedError` if another process took a partition of a log that is not shared; `MurkError` if a log or a
        state is invalid.
        """
        now = self._clock()
        if now < self._not_before:
            return 0
        try:
            self._apply_assignment(now)
            ends = self._ends()
            read = sum(self._step(partition, now, ends.get(partition)) for partition in list(self._workers))
            self._idle = not read
        except UnreachableError as error:
            if self.trouble is None:
                _log.warning("waiting: %s", error)
            self.trouble = str(error)
            self._not_before = now + PAUSE
            # The outcome of a commit may be unknown: each partition is acquired again, from what was really committed.
            self._drop(*self._workers)
            self.pulse.beat(self.trouble)
            return 0
        if self.trouble is not None:
            _log.warning("%s can be reached again", self._log.url)
            self.trouble = None
        self.pulse.beat(None)
        if now >= self._log_due:
            self._log_progress(now)
        return read

    def measure(self) -> None:
        """Ask the log how far each partition is behind, for `pulse`."""
        try:
            partitions = list(self._workers)
            for partition, end in zip(partitions, self._log.ends_of(partitions), strict=True):
                self.pulse.measured(partition, end - self._workers[partition].offset)
        except UnreachableError:
            # The next step reports the error.
            return

    def close(self, *, for_good: bool = True) -> None:
        """Release all partitions: to others now, or (``for_good=False``) only if this process does not come back."""
        self._drop(*self._workers)
        self._membership.close(for_good=for_good)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        # A supervisor restarts a process that fails; even if it fails repeatedly, that should cause no rebalances.
        self.close(for_good=not isinstance(error, Exception))

    def _apply_assignment(self, now: float) -> None:
        assigned = self._membership.partitions()
        if max(assigned, default=0) >= self._task.log.partitions:
            raise MurkError(
                f"{self._log.url} has been given more partitions than the {self._task.log.partitions} that this "
                "process knows: restart it",
                code="MURK-LOG-010",
            )
        self._drop(*(self._workers.keys() - assigned))
        for partition in sorted(assigned - self._workers.keys()):
            if now < self._refused.get(partition, 0.0):
                continue
            learner = self._make()
            estimates = None if partition else self._estimates()
            self._workers[partition] = worker = Worker(
                self._log, self._task, learner, partition, estimates=estimates, adopted=self._adopted
            )
            self.learners[partition] = learner
            self.pulse.owns(partition, version=learner.n_releases, offset=worker.offset)

    def _ends(self) -> dict[int, int]:
        """Return the end of each partition, read in one request, if nothing arrived lately; else {}, so steps read."""
        partitions = sorted(self._workers)
        return dict(zip(partitions, self._log.ends_of(partitions), strict=True)) if self._idle and partitions else {}

    def _step(self, partition: int, now: float, end: int | None) -> int:
        try:
            done = self._workers[partition].step(end=end)
        except FencedError:
            self._drop(partition)
            if not self._membership.shared:
                raise
            # Most likely a rebalance that has not been reported to this process yet.
            self._refused[partition] = now + PAUSE
            return 0
        if done.read:
            self.pulse.stepped(partition, done)
        return done.read

    def _drop(self, *partitions: int) -> None:
        for partition in partitions:
            self.pulse.dropped(partition)
            self._workers.pop(partition).close()
            self.learners.pop(partition)

    def _log_progress(self, now: float) -> None:
        vitals = self.pulse.vitals()
        if vitals.read > self._last_logged:
            words = "%s: partitions %s: %d messages read since the start: %d learned, %d duplicates, %d dead letters"
            counts = vitals.read, vitals.learned, vitals.duplicates, vitals.dead
            _log.info(words, self._log.url, sorted(vitals.partitions), *counts)
            self._last_logged = vitals.read
        self._log_due = now + LOG_INTERVAL
