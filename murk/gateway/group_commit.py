"""Group commit: releases that arrive together are checked and appended in one durable write, in random order."""

import asyncio
import logging
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeVar

import numpy as np

from murk.errors import MurkError, unexpected
from murk.gateway.admission import Admission
from murk.stream.log.interface import Log
from murk.task.task import Task

GROUP = 1024  # largest number of releases appended at once; the last request may exceed it
WAITING = 16_384  # largest number of releases that wait; clients of further requests are asked to retry
WAITING_BYTES = 32 * 2**20  # the same in bytes
REPLACED = "MURK-LOG-006", "MURK-FILE-006"  # codes of errors for a log or file that was deleted or created again
UNKNOWN = "partition"  # reason for which a whole request is to be sent to another gateway
REMEMBERED = 65_536  # least number of newest accepted releases whose bytes are recognised
LOOK, CHECK = 0.25, 2.0
"""Seconds between two looks at the newest models, and between two requests that show whether the log is there."""

T = TypeVar("T")

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Submission:
    """Releases of one request, and their outcomes."""

    releases: Sequence[bytes]
    waiter: asyncio.Future[None]
    # for each release a reason of refusal, or None if it is durable; None as a whole if the log was unreachable
    outcomes: list[str | None] | None = None


class Accepted:
    """Recognise the newest ``size`` to ``2 size`` accepted releases by a digest of their bytes.

    >>> accepted = Accepted(1)
    >>> accepted.add([b"one", b"two", b"three"])
    >>> [digest in accepted for digest in (b"one", b"two", b"three")]
    [False, False, True]
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._newer, self._older = set[bytes](), set[bytes]()

    def add(self, digests: Iterable[bytes]) -> None:
        """Store the digests of accepted releases."""
        for digest in digests:
            self._newer.add(digest)
            if len(self._newer) >= self._size:
                self._older, self._newer = self._newer, set()

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._newer or digest in self._older


@dataclass
class Counts:
    """Sums since the start, for metrics."""

    accepted: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    appended: int = 0  # number of releases written, without repeated ones, which are not written again
    levels: Counter[str] = field(default_factory=Counter)  # the same by level
    groups: int = 0  # durable writes


def shuffled(items: Sequence[T]) -> list[T]:
    """Return items in an order drawn from the operating system's randomness.

    >>> sorted(shuffled(["a", "b", "c"]))
    ['a', 'b', 'c']
    """
    keys = np.frombuffer(os.urandom(8 * len(items)), dtype=np.uint64)
    return [items[index] for index in np.argsort(keys, kind="stable").tolist()]


class GroupCommit:
    """Append releases to a log that belongs to one thread, for requests in another.

    `step` and `close` are called by the log's thread, `submit` and the attributes are for any thread. ``answer`` is
    called in the log's thread with requests whose outcome is known; releases expire by ``clock``, seconds since 1970.
    """

    def __init__(
        self,
        log: Log,
        task: Task,
        answer: Callable[[Sequence[Submission]], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.admission = Admission(log, task)
        self.counts = Counts()
        self.models: dict[int, bytes] = {}  # the newest model for devices of each partition that has one
        self.trouble: str | None = None  # why the last use of the log failed
        self.replaced: MurkError | None = None  # why the log is another one; then nothing is appended
        self.misplaced = False  # whether a shuffler writes to the log of a shuffled task; then nothing is appended
        self.closed = False  # whether no further releases are taken
        self._log, self._answer, self._clock = log, answer, clock
        self._is_shuffled = task.shuffle is not None
        self._partitions = range(task.log.partitions) if self.admission.interactive else range(0)
        self._is_checked = True  # whether `check_unchanged` has passed since the last append
        self._accepted = Accepted(REMEMBERED)
        self._waiting: deque[Submission] = deque()
        self._number = self._bytes = 0
        self._arrived = threading.Condition()
        self._due = self._check_due = 0.0
        self._look()

    def submit(self, submission: Submission) -> bool:
        """Queue a request's releases and return True; return False if the queue is full or closed."""
        size = sum(map(len, submission.releases))
        with self._arrived:
            full = self._number + len(submission.releases) > WAITING or self._bytes + size > WAITING_BYTES
            if full or self.closed:
                return False
            self._waiting.append(submission)
            self._number += len(submission.releases)
            self._bytes += size
            self._arrived.notify()
            return True

    @property
    def waiting(self) -> int:
        """Number of releases that wait."""
        return self._number

    def step(self) -> int:
        """Wait for releases for at most `LOOK` seconds, append them durably, and return the number of requests."""
        group = self._take()
        if group:
            try:
                if not (self.misplaced or self.replaced):
                    self._append(group)
                    self.trouble = None
            except Exception as error:  # noqa: BLE001 - one request must not end the process
                self._report(error)
            self._answer(group)
        if time.monotonic() >= self._due:
            self._look()
        return len(group)

    def close(self) -> None:
        """Take no further releases, and append those that wait."""
        with self._arrived:
            self.closed = True
            self._arrived.notify()
        while self._waiting:
            try:
                self.step()
            except Exception as error:  # noqa: BLE001 - those that wait must be answered
                self._report(error)

    def _take(self) -> list[Submission]:
        group: list[Submission] = []
        with self._arrived:
            if not self._waiting and not self.closed:
                self._arrived.wait(LOOK)
            number = 0
            while self._waiting and number < GROUP:
                submission = self._waiting.popleft()
                group.append(submission)
                number += len(submission.releases)
                self._bytes -= sum(map(len, submission.releases))
            self._number -= number
        return group

    def _append(self, group: Sequence[Submission]) -> None:
        now, admission, accepted = int(self._clock()), self.admission, self._accepted
        digests = [[blake2b(data, digest_size=16).digest() for data in each.releases] for each in group]
        # Bytes that came before, or come twice in the group, are appended once.
        fresh = {
            digest: data
            for one, names in zip(group, digests, strict=True)
            for data, digest in zip(one.releases, names, strict=True)
            if digest not in accepted
        }
        admission.begin()
        admitted: dict[bytes, tuple[int, bytes]] = {}
        reasons: dict[bytes, str] = {}
        levels: list[str] = []
        for (digest, data), judgement in zip(fresh.items(), admission.judged(list(fresh.values()), now), strict=True):
            if isinstance(judgement, str):
                reasons[digest] = judgement
            else:
                admitted[digest] = judgement.partition, data
                levels.append(judgement.level)
        if admitted:
            # Releases that devices send again must not fill a log that may not be the task's.
            if not self._is_checked:
                self._log.check_unchanged()
            self._is_checked = False
            # The order of arrival would disclose who sent which release.
            self._log.append(shuffled(list(admitted.values())))
            # Topics that were deleted and created again may carry another task: nothing there is acknowledged.
            self._log.check_unchanged()
            self._is_checked = True
            accepted.add(admitted)
            self.counts.appended += len(admitted)
            self.counts.levels.update(levels)
            self.counts.groups += 1
        for submission, names in zip(group, digests, strict=True):
            outcomes = submission.outcomes = [reasons.get(digest) for digest in names]
            # A request with an unknown partition is answered as a whole, and sent again as a whole.
            again = UNKNOWN in outcomes
            self.counts.accepted += 0 if again else outcomes.count(None)
            self.counts.refused.update(each for each in outcomes if each and (not again or each == UNKNOWN))

    def _look(self) -> None:
        """Read the newest models, and check from time to time that the log can be reached."""
        now = time.monotonic()
        self._due = now + LOOK
        try:
            models = {partition: self.admission.model(partition) for partition in self._partitions}
            self.models = {partition: model for partition, model in models.items() if model is not None}
            if now >= self._check_due:
                self._check_due = now + CHECK
                # On Kafka models are cached, and this is not.
                self._log.begin(0)
                self._log.check_unchanged()
                if self._is_shuffled and self._log.crowd_mark() is not None:
                    self.closed = self.misplaced = True
                self.trouble = None
        except (MurkError, OSError) as error:
            self._report(error)

    def _report(self, error: Exception) -> None:
        words = f"the log failed: {type(error).__name__}" if isinstance(error, OSError) else unexpected(error)
        if isinstance(error, MurkError):
            words = str(error)
            if error.code in REPLACED:
                self.closed, self.replaced = True, error
        if words != self.trouble:
            _log.warning("%s", words)
        self.trouble = words
