"""The worker: takes releases off one partition of a log and feeds them to a learner, each exactly once.

What a chain learns is a function of its partition of the log alone: neither where batches end, nor when the
worker was killed and started again, nor the time of day plays any part. Where chains share models (see `sharing`) it
is one of the models, too, at which its people answered; and whether an answer comes too late for its model, which is
forgotten some day, is judged when it is read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from murk.errors import MurkError, UserError
from murk.stream.log.base import MAX_STATE, DeadLetter, FencedError, Log, Message
from murk.stream.messages.codec import encode_iterate
from murk.stream.messages.releases import IterateMessage, truncate_time
from murk.stream.messages.state import Counters, StateMessage
from murk.stream.messages.trail import Trail, TrailRecorder, first_point
from murk.stream.messages.wire import Received
from murk.stream.task.task import Task
from murk.stream.worker.counters import DeadLetterLog, Tally
from murk.stream.worker.intake import Intake
from murk.stream.worker.learner import StreamLearner, wire_rules
from murk.stream.worker.recovery import check_carries, check_last, open_state, rebuild_window
from murk.stream.worker.sharing import LOOK_AT_ALL, sharing_of

_STEP_BYTES = 2**26
"""No step reads more than so many bytes, whatever the batch."""

_TRIMS_PER_RETENTION = 200

_LOOK, _LONGEST_LOOK = 1.0, 16.0
"""Seconds between two looks, while nothing arrives, at whether the newest model is still on the log; each doubles
them, up to the latter."""

# Releases given to the learner at once. Thousands of them kept alive would be walked through by Python's
# garbage collector again and again, which takes as long as learning them; these die young.
_LEARN = 256

_log = logging.getLogger(__package__)


@dataclass(frozen=True, slots=True)
class Progress:
    """What one step did: ``read = learned + duplicates + dead``, and where the chain stands after it.

    Parameters
    ----------
    read, learned, duplicates, dead
        Numbers of messages of this step.
    offset
        First offset that was not read.
    version
        Number of releases that the chain has learned in all.
    """

    read: int
    learned: int
    duplicates: int
    dead: int
    offset: int
    version: int


@dataclass(frozen=True, slots=True)
class _Pending:
    """A step that is learned and not yet committed."""

    state: bytes
    dead: Sequence[DeadLetter]
    model: bytes | None
    estimate: bytes | None
    progress: Progress


class Worker:
    """Feed one chain of a log to a learner, exactly once.

    A step reads a batch, decodes and checks it, drops duplicates, lets the learner admit and learn the rest,
    and commits state, offset, dead letters and the newest iterate in one atomic write. Within a batch, iterates
    are published as often as the learner's ``publish_every`` asks for, where they are a function of the log, whatever
    becomes of the commit. Whatever is on the log, the stream goes on: what cannot be learned becomes a dead letter with
    a reason.

    Starting a worker takes the chain over from any other: that one is refused at its next commit.

    Parameters
    ----------
    log
        The log, which carries the task.
    task
        The task.
    learner
        A learner of that task that has learned nothing; the worker loads the chain's state into it.
    chain
        The chain, which is also the partition read.
    batch
        Most messages of one step; fewer where releases are so long that they would fill the memory.
    estimates
        Asked at each step of the first chain for the message about the estimate, from its learner; None: none is due.
    look
        Seconds between two looks of the first chain's worker at what all chains have learned, where it makes their
        models, at the least.
    clock
        Time in seconds since 1970. It decides when old messages are deleted, and nothing else.

    Raises
    ------
    UserError
        When the log carries no task or another one, or the learner is not of the task or not new.
    MurkError
        When the chain's state is not one of this log, or retention has removed unread messages.

    See Also
    --------
    open_log : opens the log.

    Examples
    --------
    A stranger's bytes become a dead letter, and the stream goes on:

    >>> import tempfile
    >>> from murk.learners.problem import problem_for
    >>> from murk.stream import open_log
    >>> task = Task.parse('''
    ... name: third-child
    ... features: [{name: age, low: 21, high: 35}]
    ... target: {name: third_child, kind: binary, positive: yes, negative: no}
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> with open_log(f"sqlite:///{tempfile.mkdtemp()}/log.db") as log:
    ...     log.register_task(task.document())
    ...     log.append([(0, b"not a release")])
    ...     worker = Worker(log, task, problem_for(task).engine())
    ...     worker.step()
    ...     [letter.reason for letter in log.dead_letters()]
    Progress(read=1, learned=0, duplicates=0, dead=1, offset=1, version=0)
    ['malformed']
    """

    def __init__(
        self,
        log: Log,
        task: Task,
        learner: StreamLearner,
        chain: int = 0,
        *,
        batch: int = 16_384,
        estimates: Callable[[StreamLearner], bytes | None] | None = None,
        look: float = LOOK_AT_ALL,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if batch < 1:
            raise UserError(f"a step must read at least 1 message, not {batch}")
        self.chain = chain
        self._log = log
        self._task = task
        self._learner = learner
        self._clock = clock
        self._trim_due = self._look_due = 0.0
        self._look_pause = _LOOK
        self._estimates = estimates if chain == 0 else None
        self._description = f"chain {chain} of {log.url}"
        self._unreported = DeadLetterLog(_log, self._description)
        # Before the chain is taken from anyone who may own it rightly.
        check_carries(log, task)
        self._check_learner()
        rules = wire_rules(task, learner)
        self._sharing = sharing_of(log, task, learner, chain, look)
        self._intake = Intake(chain, rules, learner, self._sharing.renew)
        self.batch = max(1, min(batch, _STEP_BYTES // rules.max_bytes))
        self._pending: _Pending | None = None
        self._stopped: str | None = None
        self._ownership = log.acquire(chain)
        try:
            self._resume()
        except BaseException:
            self._ownership.close()
            raise
        _log.info(
            "%s: taken over at offset %d, with %d releases learned", self._description, self.offset, learner.n_releases
        )

    @property
    def counters(self) -> Counters:
        """What became of all messages that the chain has read, in this process and before."""
        return self._counters

    @property
    def lag(self) -> int:
        """Number of offsets between the next one to read and the end of the log."""
        return self._log.end(self.chain) - self.offset

    def step(self, limit: int | None = None, *, end: int | None = None) -> Progress:
        """Read, learn and commit at most ``limit`` messages (at most a batch, which is the default).

        ``end`` is where the partition ends, for whoever has asked for several partitions at once: at an end that was
        read up to nothing is read.

        A step that could not commit, because of a full disk for instance, raises and may be called again:
        it then commits what it has already learned, and learns nothing twice.

        Returns
        -------
        Progress
            What was done; ``read`` is 0 when nothing new was on the log.

        Raises
        ------
        FencedError
            When another worker has taken the chain over.
        MurkError
            When the log could not be read or written, or retention has removed unread messages.
        """
        if self._stopped is not None:
            raise MurkError(f"this worker on {self._description} {self._stopped}: start a new one")
        if self._pending is None:
            self._trim()
            count = self.batch if limit is None else min(limit, self.batch)
            messages = [] if end == self.offset else self._log.read(self.chain, self.offset, count)
            if messages:
                self._look_pause = _LOOK
            else:
                self._restore_model()
            # An interrupt or an error within the update leaves the learner between two states, fit for nothing.
            self._stopped = "did not get to the end of a step"
            self._sharing.arrived()
            whole = self._sharing.step()
            if whole is not None:
                self._trail.record(whole, truncate_time(int(self._clock()), self._task.granularity))
            self._pending = self._learn_batch(messages)
            self._stopped = None
        if self._pending is None:
            return Progress(0, 0, 0, 0, self.offset, self._learner.n_releases)
        pending = self._pending
        try:
            offset = pending.progress.offset
            self._ownership.commit(pending.state, offset, pending.dead, pending.model, pending.estimate)
        except FencedError:
            self._stopped = "was fenced by another one"
            _log.info("%s: another one has taken it over", self._description)
            raise
        self._pending = None
        self._log_progress(pending)
        return pending.progress

    def close(self) -> None:
        """Release the chain; what was not committed is read again by the next worker."""
        if self._stopped is None:
            self._unreported.report()
            _log.info("%s: released, %d releases learned", self._description, self._counters.learned)
        self._stopped = "was closed"
        self._ownership.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_learner(self) -> None:
        wanted = self._task.release_kind
        if self._learner.kind != wanted:
            raise UserError(
                f"the learner learns from releases of the kind {self._learner.kind!r}, and those of the task "
                f"{self._task.name!r} are of the kind {wanted!r}: make the learner from the task"
            )
        if self._learner.mechanisms.keys() != self._task.privacy.levels.keys():
            raise UserError(
                f"the learner knows the levels {sorted(self._learner.mechanisms)} and the task "
                f"{self._task.name!r} offers {sorted(self._task.privacy.levels)}: make the learner "
                "from the task"
            )
        if self._learner.n_releases:
            raise UserError(
                f"the learner has already learned {self._learner.n_releases} releases: a worker needs a "
                "new one, into which it loads the chain's own state"
            )

    def _resume(self) -> None:
        checkpoint = self._ownership.load()
        message = open_state(self._log, self._task, self.chain, checkpoint)
        self.offset = checkpoint.offset
        self._window = rebuild_window(self._log, self._task, self.chain, self._intake.receive, self.offset)
        self._model = self._log.model(self.chain)
        self._model_version = self._published_version = -1
        self._counters = Counters()
        if message is not None:
            check_last(self._log, self._task, message, self._window)
            self._learner.load_state_dict(message.learner)
            self._counters = message.counters
        self._sharing.begin()
        self._trail = TrailRecorder(
            Trail() if message is None else message.trail, self._learner.coefficients, first_point(self._learner.kind),
            self._description,
        )  # fmt: skip
        if self._learner.n_releases != self._counters.learned:
            raise MurkError(
                f"the state of {self._description} is damaged: its learner has learned "
                f"{self._learner.n_releases} releases, and {self._counters.learned} were counted. "
                "Restore the log from a copy"
            )

    def _learn_batch(self, messages: Sequence[Message]) -> _Pending | None:
        learner, chain, before = self._learner, self.chain, self._learner.n_releases
        dead: list[DeadLetter] = []
        tally = Tally(self._counters)
        at = 0
        while at < len(messages):
            part = messages[at : at + self._chunk()]
            at += len(part)
            judged = self._intake.judge(part, self._window, tally)
            dead += judged.dead
            if judged.admitted:
                self._learn(judged.admitted, tally)
                self._publish_uncommitted()
                self._mark(judged.appended)
        learned = learner.n_releases - before
        model = self._newest_model()
        estimate = None if self._estimates is None else self._estimates(learner)
        if not messages and model is None and estimate is None:
            return None
        if messages:
            self.offset = messages[-1].offset + 1
            self._counters = tally.counters()
        state = StateMessage(
            task=self._task.hash,
            identity=self._log.identity,
            chain=chain,
            offset=self.offset,
            last_id=self._window.newest(self.offset),
            counters=self._counters,
            trail=self._trail.trail,
            learner=learner.state_dict(),
        )
        duplicates = len(messages) - learned - len(dead)
        progress = Progress(len(messages), learned, duplicates, len(dead), self.offset, learner.n_releases)
        encoded = state.encode()
        if len(encoded) > MAX_STATE:
            self._trail.forget()
            encoded = state.model_copy(update={"trail": Trail()}).encode()
        return _Pending(encoded, dead, model, estimate, progress)

    def _chunk(self) -> int:
        """How many messages to judge and learn at once: not beyond the next count at which something is to be noted."""
        count = self._learner.n_releases
        at = self._trail.next(count) if self._sharing.alone else None
        return min(_LEARN, self._learner.publish_every, _LEARN if at is None else at - count)

    def _mark(self, appended: int) -> None:
        """Add a point to the trail where the count is one of its grid; ``appended`` is when its release was."""
        if self._sharing.alone:
            self._trail.mark(self._learner, truncate_time(appended, self._task.granularity))

    def _learn(self, admitted: Sequence[Received], tally: Tally) -> None:
        version = self._learner.n_releases
        self._learner.learn_releases(admitted)
        tally.learned(admitted, version)

    def _publish_uncommitted(self) -> None:
        """Let the newest iterate out between commits, where devices may use it before the next one."""
        published = self._published()
        if published is not None and published[0] - self._published_version >= self._learner.publish_every:
            self._published_version = published[0]
            self._ownership.publish_uncommitted(self._encoded(*published))

    def _newest_model(self) -> bytes | None:
        """Return the newest published iterate where the log does not have it yet."""
        published = self._published()
        if published is None or published[0] == self._model_version:
            return None
        self._model_version = self._published_version = published[0]
        message = self._encoded(*published)
        if message == self._model:
            return None
        self._model = message
        return message

    def _published(self) -> tuple[int, list[float]] | None:
        return self._learner.published() if self._sharing.publishes else None

    def _encoded(self, version: int, iterate: list[float]) -> bytes:
        return encode_iterate(IterateMessage(task=self._task.hash, chain=self.chain, version=version, iterate=iterate))

    def _log_progress(self, pending: _Pending) -> None:
        done = pending.progress
        _log.debug(
            "%s: committed up to offset %d: %d learned, %d duplicates, %d dead letters",
            self._description, done.offset, done.learned, done.duplicates, done.dead,
        )  # fmt: skip
        self._unreported.add(letter.reason for letter in pending.dead)

    def _restore_model(self) -> None:
        """See whether another model stands where the newest should, and if so put it there again.

        A worker that slept through losing the chain may have had an older one on its way; or somebody has
        written there who should not have.
        """
        now = self._clock()
        if self._sharing.publishes and now >= self._look_due:
            self._look_due = now + self._look_pause
            self._look_pause = min(2.0 * self._look_pause, _LONGEST_LOOK)
            found = self._log.model(self.chain)
            if found != self._model:
                self._model, self._model_version = found, -1

    def _trim(self) -> None:
        now = self._clock()
        if now >= self._trim_due:
            retention = self._task.log.retention
            self._trim_due = now + retention / _TRIMS_PER_RETENTION
            self._log.trim(now - retention)
