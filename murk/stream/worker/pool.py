"""The workers of one process, as chains are assigned to it and taken away, with their progress and health."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import Generic, Self, TypeVar

from murk.stream.log.interface import FencedError, Log, Membership, UnreachableError
from murk.stream.worker.interface import StreamLearner
from murk.stream.worker.worker import Progress, Worker
from murk.task.task import Task


@dataclass(frozen=True, slots=True)
class ChainVitals:
    """Progress of a chain in this process."""

    version: int  # number of releases learned in all
    offset: int  # first offset that is not committed
    committed: float | None = None  # when this process last committed it, in seconds since 1970
    lag: int | None = None  # number of uncommitted offsets when last measured


@dataclass(frozen=True, slots=True)
class Vitals:
    """Progress of a process that learns; messages are counted since it started."""

    chains: Mapping[int, ChainVitals]
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
        self._chains: dict[int, ChainVitals] = {}
        self._counts = (0, 0, 0)
        self._trouble: str | None = None
        self._stepped = clock()

    def owns(self, chain: int, *, version: int, offset: int) -> None:
        """Record that a chain was taken over."""
        with self._lock:
            self._chains[chain] = ChainVitals(version, offset)

    def dropped(self, chain: int) -> None:
        """Record that a chain was released."""
        with self._lock:
            self._chains.pop(chain, None)

    def stepped(self, chain: int, done: Progress) -> None:
        """Record that a step of a chain was committed."""
        with self._lock:
            before = self._chains[chain]
            lag = None if before.lag is None else max(0, before.lag - (done.offset - before.offset))
            self._chains[chain] = ChainVitals(done.version, done.offset, self._clock(), lag)
            learned, duplicates, dead = self._counts
            self._counts = learned + done.learned, duplicates + done.duplicates, dead + done.dead

    def measured(self, chain: int, lag: int) -> None:
        """Record a chain's lag."""
        with self._lock:
            self._chains[chain] = replace(self._chains[chain], lag=max(0, lag))

    def beat(self, trouble: str | None) -> None:
        """Record the end of a step of the process, and the problem that it met (None without one)."""
        with self._lock:
            self._trouble, self._stepped = trouble, self._clock()

    def vitals(self) -> Vitals:
        """Return the current progress."""
        with self._lock:
            learned, duplicates, dead = self._counts
            return Vitals(dict(self._chains), learned, duplicates, dead, self._trouble, self._stepped)


PAUSE = 0.5  # seconds between two attempts to reach a log or to take over a chain
LOG_INTERVAL = 60.0  # seconds between two log lines about progress
_log = logging.getLogger(__name__)

Learner = TypeVar("Learner", bound=StreamLearner)


class WorkerPool(Generic[Learner]):
    """A worker for each chain that is assigned to this process.

    If a chain moves to another process, its worker is closed, and the other process reads again what was not committed.
    The pool waits for an unreachable log; all other errors of logs and states are raised. ``learner`` returns a new
    learner, ``membership`` the chains assigned to this process. ``estimates`` is called when the first chain is taken
    over and returns the ``estimates`` of its `Worker`. ``clock`` gives seconds, for pauses between attempts.
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
    ) -> None:
        self.learners: dict[int, Learner] = {}  # by chain
        self.trouble: str | None = None  # why nothing can be done at the moment
        self.pulse = Pulse()  # readable from other threads
        self._log, self._task, self._make, self._estimates = log, task, learner, estimates
        self._membership, self._clock = membership, clock
        self._workers: dict[int, Worker] = {}
        self._not_before, self._idle = 0.0, False
        self._refused: dict[int, float] = {}
        self._log_due, self._last_logged = clock() + LOG_INTERVAL, 0

    def step(self) -> int:
        """Let every assigned chain make a step; return the number of messages read.

        Raises `FencedError` if another process took a chain of a log that is not shared; `MurkError` if a log or a
        state is invalid.
        """
        now = self._clock()
        if now < self._not_before:
            return 0
        try:
            self._apply_assignment(now)
            ends = self._ends()
            read = sum(self._step(chain, now, ends.get(chain)) for chain in list(self._workers))
            self._idle = not read
        except UnreachableError as error:
            if self.trouble is None:
                _log.warning("waiting: %s", error)
            self.trouble = str(error)
            self._not_before = now + PAUSE
            # The outcome of a commit may be unknown: each chain is acquired again, from what was really committed.
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
        """Ask the log how far each chain is behind, for `pulse`."""
        try:
            chains = list(self._workers)
            for chain, end in zip(chains, self._log.ends_of(chains), strict=True):
                self.pulse.measured(chain, end - self._workers[chain].offset)
        except UnreachableError:
            # The next step reports it.
            return

    def close(self, *, for_good: bool = True) -> None:
        """Release all chains: to others now, or (``for_good=False``) only if this process does not come back."""
        self._drop(*self._workers)
        self._membership.close(for_good=for_good)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        # A supervisor restarts a process that fails; even if it fails repeatedly, that should cause no rebalances.
        self.close(for_good=not isinstance(error, Exception))

    def _apply_assignment(self, now: float) -> None:
        assigned = self._membership.chains()
        self._drop(*(self._workers.keys() - assigned))
        for chain in sorted(assigned - self._workers.keys()):
            if now < self._refused.get(chain, 0.0):
                continue
            learner = self._make()
            estimates = None if chain else self._estimates()
            self._workers[chain] = worker = Worker(self._log, self._task, learner, chain, estimates=estimates)
            self.learners[chain] = learner
            self.pulse.owns(chain, version=learner.n_releases, offset=worker.offset)

    def _ends(self) -> dict[int, int]:
        """Return the ends of all chains in one request while nothing arrives, so that steps need not read; else {}."""
        chains = sorted(self._workers)
        return dict(zip(chains, self._log.ends_of(chains), strict=True)) if self._idle and chains else {}

    def _step(self, chain: int, now: float, end: int | None) -> int:
        try:
            done = self._workers[chain].step(end=end)
        except FencedError:
            self._drop(chain)
            if not self._membership.shared:
                raise
            # Most likely a rebalance that has not been reported to this process yet.
            self._refused[chain] = now + PAUSE
            return 0
        if done.read:
            self.pulse.stepped(chain, done)
        return done.read

    def _drop(self, *chains: int) -> None:
        for chain in chains:
            self.pulse.dropped(chain)
            self._workers.pop(chain).close()
            self.learners.pop(chain)

    def _log_progress(self, now: float) -> None:
        vitals = self.pulse.vitals()
        if vitals.read > self._last_logged:
            words = "%s: chains %s: %d messages read since the start: %d learned, %d duplicates, %d dead letters"
            counts = vitals.read, vitals.learned, vitals.duplicates, vitals.dead
            _log.info(words, self._log.url, sorted(vitals.chains), *counts)
            self._last_logged = vitals.read
        self._log_due = now + LOG_INTERVAL
