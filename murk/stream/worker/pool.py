"""The chains that one process learns, as they come and go."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from types import TracebackType
from typing import Generic, Self, TypeVar

from murk.stream.log.base import FencedError, Log, Membership, UnreachableError
from murk.stream.task.task import Task
from murk.stream.worker.learner import StreamLearner
from murk.stream.worker.pulse import Pulse
from murk.stream.worker.worker import Worker

PAUSE = 0.5
"""Seconds between two attempts to reach a log, or to take over a chain that somebody else still holds."""

LOG_INTERVAL = 60.0
"""Seconds between two lines about how far learning is."""

_log = logging.getLogger(__name__)

Learner = TypeVar("Learner", bound=StreamLearner)


class WorkerPool(Generic[Learner]):
    """One process's share of a log's learning: a worker for each chain that is assigned to it.

    When a chain is assigned to another process its worker is released; what it had not committed, the other one
    reads again. A log that cannot be reached is waited for. Everything else that is wrong with a log or a
    state is raised: nothing starts over by itself.

    Parameters
    ----------
    log, task
        The log, which carries the task.
    learner
        Makes a learner that has learned nothing.
    membership
        Says which chains are assigned to this process.
    estimates
        Makes what makes messages about the estimate (see `Worker`), when the first chain is taken over.
    clock
        Seconds, for the pauses between attempts.

    Attributes
    ----------
    learners
        The learner of each chain that is learned here now.
    trouble
        Why nothing can be done at the moment, or None.
    pulse
        What was done here; may be asked from other threads.

    Examples
    --------
    >>> import tempfile
    >>> from murk.learners.problem import problem_for
    >>> from murk.stream import open_log
    >>> task = Task.parse('''
    ... name: third-child
    ... features: [{name: age, low: 21, high: 35}]
    ... target: {name: third_child, kind: binary, positive: yes, negative: no}
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... log: {partitions: 2}
    ... ''')
    >>> with open_log(f"sqlite:///{tempfile.mkdtemp()}/log.db") as log:
    ...     log.register_task(task.document())
    ...     log.append([(0, b"not a release"), (1, b"nor this")])
    ...     with WorkerPool(log, task, problem_for(task).engine, log.join()) as team:
    ...         print(team.step(), sorted(team.learners))
    2 [0, 1]
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
        self.learners: dict[int, Learner] = {}
        self.trouble: str | None = None
        self.pulse = Pulse()
        self._log = log
        self._task = task
        self._make = learner
        self._estimates = estimates
        self._membership = membership
        self._clock = clock
        self._workers: dict[int, Worker] = {}
        self._not_before = 0.0
        self._idle = False
        self._refused: dict[int, float] = {}
        self._log_due, self._last_logged = clock() + LOG_INTERVAL, 0

    def step(self) -> int:
        """Let every chain that is assigned to this process make a step; return the number of messages read.

        Raises
        ------
        FencedError
            When somebody else took a chain that nobody shares.
        MurkError
            When a log or a state is not what it should be.
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
            # What a commit came to is not known: each chain is acquired again, from what was really committed.
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
        """Look how far each chain is behind, which asks the log; what is found is reported by `pulse`."""
        try:
            chains = list(self._workers)
            for chain, end in zip(chains, self._log.ends_of(chains), strict=True):
                self.pulse.measured(chain, end - self._workers[chain].offset)
        except UnreachableError:
            # The next step meets it, too, and says so.
            return

    def close(self, *, for_good: bool = True) -> None:
        """Release all chains, and leave them to others: at once, or only if this process does not come back."""
        self._drop(*self._workers)
        self._membership.close(for_good=for_good)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A process that ends by a fault is restarted by its supervisor, and may fail again: that is not to cause a
        # rebalance each time.
        self.close(for_good=not isinstance(error, Exception))

    def _apply_assignment(self, now: float) -> None:
        """Take over what was assigned to this process, release what was assigned to others."""
        own = self._membership.chains()
        self._drop(*(self._workers.keys() - own))
        for chain in sorted(own - self._workers.keys()):
            if now < self._refused.get(chain, 0.0):
                continue
            learner = self._make()
            estimates = None if chain else self._estimates()
            self._workers[chain] = worker = Worker(self._log, self._task, learner, chain, estimates=estimates)

            self.learners[chain] = learner
            self.pulse.owns(chain, version=learner.n_releases, offset=worker.offset)

    def _ends(self) -> dict[int, int]:
        """Where all chains end, asked for at once: while nothing arrives, none of them is read for that."""
        chains = sorted(self._workers)
        return dict(zip(chains, self._log.ends_of(chains), strict=True)) if self._idle and chains else {}

    def _step(self, chain: int, now: float, end: int | None) -> int:
        try:
            done = self._workers[chain].step(end=end)
        except FencedError:
            self._drop(chain)
            if not self._membership.shared:
                raise
            # Most likely a rebalance gave it to another process, and says so in a moment.
            self._refused[chain] = now + PAUSE
            return 0
        if done.read:
            self.pulse.stepped(
                chain, version=done.version, offset=done.offset,
                learned=done.learned, duplicates=done.duplicates, dead=done.dead,
            )  # fmt: skip
        return done.read

    def _drop(self, *chains: int) -> None:
        for chain in chains:
            self.pulse.dropped(chain)
            self._workers.pop(chain).close()
            self.learners.pop(chain)

    def _log_progress(self, now: float) -> None:
        """Log how far it is, where anything was read since that was last said."""
        vitals = self.pulse.vitals()
        if vitals.read > self._last_logged:
            _log.info(
                "%s: chains %s: %d messages read since the start: %d learned, %d duplicates, %d dead letters",
                self._log.url, sorted(vitals.chains), vitals.read, vitals.learned, vitals.duplicates, vitals.dead,
            )  # fmt: skip
            self._last_logged = vitals.read
        self._log_due = now + LOG_INTERVAL
