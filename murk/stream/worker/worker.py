"""The worker: feed one partition of a log to a learner, each release exactly once.

What a partition's learner learns is a function of the partition alone: not of batches, restarts or the time of day. If
partitions share models (see `sharing`), it also depends on the models, and on whether a release is read before its
model is forgotten. A block of messages that are all plainly learnable is judged as a whole; otherwise each message is
judged by itself, with the same outcome.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from logging import Logger
from time import monotonic
from typing import Any, Final, Protocol, Self

import numpy as np

from murk._internal.arrays import Integers, Words
from murk.errors import MurkError, UserError
from murk.stream.log.interface import Checkpoint, DeadLetter, FencedError, Log, Message, check_carries, truncate_time
from murk.stream.wire.admission import check_renewed, check_times, wire_rules
from murk.stream.wire.codec import MAX_STATE, RejectedError, WireRules, decode, encode
from murk.stream.wire.columns import Columns, Layout
from murk.stream.wire.duplicates import DuplicateWindow
from murk.stream.wire.packed import Fetched
from murk.stream.wire.releases import GradientRelease, ModelMessage, Release
from murk.stream.wire.state import Counters, History, HistoryRecorder, StateMessage, first_point
from murk.stream.worker.interface import Admitting, StreamLearner
from murk.stream.worker.recovery import check_last, check_shuffled, open_state, rebuild_window
from murk.stream.worker.sharing import LOOK_AT_ALL, sharing_of
from murk.task.task import Task

_ERROR_CODE = "MURK-LOG-001"

GRADIENT = GradientRelease.model_fields["kind"].default


class StepCounters:
    """Sums of `Counters`, beginning with those of ``start``."""

    def __init__(self, start: Counters) -> None:
        self._learned, self._duplicates = start.learned, start.duplicates
        self._dead, self._levels = Counter(start.dead), Counter(start.levels)
        self._ages, self._age_sum = list(start.staleness), start.staleness_sum

    def learned(self, releases: Sequence[Any], version: int) -> None:
        """Count releases learned in this order by a partition that had learned ``version`` before."""
        if not releases:
            return
        self._learned += len(releases)
        if isinstance(releases, Columns):
            levels, index = releases.levels()
            self._levels.update(dict(zip(levels, np.bincount(index).tolist(), strict=True)))
            kind, versions = releases.kind, releases.column("version")
        else:
            self._levels.update([release.level for release in releases])
            kind, versions = releases[0].kind, np.array([getattr(each, "version", 0) for each in releases])
        # Only gradients have an age; a partition's releases are all of one kind.
        if kind != GRADIENT:
            return
        ages = version + np.arange(len(releases)) - versions
        self._age_sum += int(ages.sum())
        for bits, count in Counter(map(int.bit_length, ages.tolist())).items():
            self._ages += [0] * (bits + 1 - len(self._ages))
            self._ages[bits] += count

    def add(self, counters: Counters) -> None:
        """Add the counters of other messages."""
        self._learned += counters.learned
        self._duplicates += counters.duplicates
        self._dead.update(counters.dead)
        self._levels.update(counters.levels)
        self._age_sum += counters.staleness_sum
        self._ages += [0] * (len(counters.staleness) - len(self._ages))
        for bits, count in enumerate(counters.staleness):
            self._ages[bits] += count

    def duplicate(self) -> None:
        """Count a duplicate."""
        self._duplicates += 1

    def dead(self, reason: str) -> None:
        """Count a dead letter."""
        self._dead[reason] += 1

    def counters(self) -> Counters:
        """Return all sums."""
        return Counters(
            learned=self._learned,
            duplicates=self._duplicates,
            dead=dict(self._dead),
            levels=dict(self._levels),
            staleness=list(self._ages),
            staleness_sum=self._age_sum,
        )


class DeadLetterLog:
    """Log the number of dead letters by reason, at most once in ``seconds``, so that a flood of them floods no log."""

    def __init__(self, log: Logger, where: str, seconds: float = 10.0) -> None:
        self._log, self._description, self._seconds = log, where, seconds
        self._due = 0.0
        self._unreported: Counter[str] = Counter()

    def add(self, reasons: Iterable[str]) -> None:
        """Count reasons, and log the counts if it is time."""
        self._unreported.update(reasons)
        if monotonic() >= self._due:
            self.report()

    def report(self) -> None:
        """Log the counts since the last report."""
        if self._unreported:
            counts = ", ".join(f"{reason} {count}" for reason, count in sorted(self._unreported.items()))
            self._log.info("%s: dead letters: %s", self._description, counts)
            self._unreported.clear()
            self._due = monotonic() + self._seconds


LEARN: Final = 1024  # most releases that are judged and learned at once
_FEW: Final = 32  # messages that are judged one by one where a block is not plainly learnable; so are fewer of them
DEAD_BYTES = 2**16  # number of bytes of a message that a dead letter keeps; a person's release is shorter


@dataclass(frozen=True, slots=True)
class Validated:
    """Releases to learn, the time when the log appended the last of them (0 if none), and dead letters.

    ``read`` is the number of messages that were judged.
    """

    read: int
    admitted: Any  # decoded releases or `Columns`
    appended: int
    dead: Sequence[DeadLetter] = ()


class Seen(Protocol):
    """Interface of what tells a `Validator` which messages are copies, one by one."""

    def seen(self, offset: int, identifier: str, expires: int) -> bool:
        """Add an id at an offset, with the time of its expiry; return whether it is a duplicate."""


class Window(Seen, Protocol):
    """Interface of what tells a `Validator` which messages are copies, many at once."""

    def add_new(self, offsets: Integers, ids: Words, expires: Integers) -> bool:
        """Add ids (m, 2) at offsets and return True if all are new and distinct; otherwise add none, return False."""


class Validator:
    """Decide which messages of one partition its learner learns from; `check_renewed` explains ``renew``."""

    def __init__(
        self, partition: int, rules: WireRules, learner: Admitting, renew: Callable[[], bool] | None = None
    ) -> None:
        self._partition, self._learner, self._renew = partition, learner, renew
        self._admits, self._rules, self._layout = learner.admits, rules, Layout(rules)

    def validate(self, fetched: Fetched, window: Window, tally: StepCounters) -> Validated:
        """Judge the first messages, at least one, and count those that are not to be learned.

        The caller must learn the admitted ones next.
        """
        admits: Any = self._admits
        for releases in self._plain(fetched):
            times = fetched.times[: len(releases)]
            # Last, as it changes the window, whether all are new.
            if self._are_valid(releases, times) and admits(releases) and self._added(releases, fetched, window):
                return Validated(len(releases), releases, int(times[-1]))
        return self.validate_each(messages_of(fetched.rows(0, _FEW)), window, tally)

    def _plain(self, fetched: Fetched) -> Iterator[Columns]:
        """Yield the first messages as columns: as many as can be read, then half as many again and again."""
        if len(fetched) < _FEW:
            return
        releases = self._layout.read_first(fetched.messages)
        while len(releases) >= _FEW:
            yield releases
            releases = releases.part(0, len(releases) // 2)

    def remember(self, fetched: Fetched, window: DuplicateWindow) -> list[int]:
        """Add the ids of valid messages to a window; return the offsets of those that repeat an unexpired release."""
        copies = []
        while len(fetched):
            judged = 0
            for releases in self._plain(fetched):
                if self._are_valid(releases, fetched.times[: len(releases)]) and self._added(releases, fetched, window):
                    judged = len(releases)
                    break
            for offset, appended, value in messages_of(fetched.rows(0, 0 if judged else _FEW)):
                judged += 1
                with suppress(RejectedError):
                    release = self._valid(value, appended)
                    if window.seen(offset, release.id, self._remembered(release, appended)):
                        copies.append(offset)
            fetched = fetched.rows(judged, len(fetched))
        return copies

    def _are_valid(self, releases: Columns, times: Integers) -> bool:
        """Return whether releases are of this partition and came in their time."""
        expires, ahead = releases.column("expires"), self._rules.ahead
        if (releases.column("partition") != self._partition).any() or (times > expires).any():
            return False
        if ahead is not None and (releases.column("time") > times + ahead).any():
            return False
        return not self._rules.is_shuffled or bool((expires <= times + self._rules.lifetime).all())

    def _added(self, releases: Columns, fetched: Fetched, window: Window) -> bool:
        """Add releases, the first ones of what was fetched, to a window if all are new; return whether they are."""
        count, expires = len(releases), releases.column("expires")
        remembered = np.where(expires <= fetched.times[:count] + self._rules.lifetime, expires, 0)
        return window.add_new(fetched.offsets[:count], releases.ids, remembered)

    def _remembered(self, release: Release, appended: int) -> int:
        """Return a release's time of expiry; 0 if it expires too late for a window to remember it until then."""
        return release.expires if release.expires <= appended + self._rules.lifetime else 0

    def _valid(self, value: bytes, appended: int) -> Release:
        """Return a release of this partition that came in its time; raise `RejectedError` otherwise."""
        release = decode(value, self._rules)
        if release.partition != self._partition:
            raise RejectedError("partition", f"of partition {release.partition}, on partition {self._partition}")
        # Times are checked before duplicates. Retention is no shorter than the lifetime of a release of a device whose
        # clock is at most a day ahead: if retention has removed its message, it has no unexpired copy.
        check_times(release, appended, self._rules)
        return release

    def validate_each(self, messages: Sequence[Message], window: Seen, tally: StepCounters) -> Validated:
        """Judge messages one by one, with the outcome of `validate`."""
        partition, seen, admit, renew = self._partition, window.seen, self._learner.admit, self._renew
        admitted: list[Release] = []
        dead: list[DeadLetter] = []
        newest = 0
        for offset, appended, value in messages:
            try:
                release = self._valid(value, appended)
                # Record the id whatever the outcome of the other checks, so that the window is a function of the log.
                if seen(offset, release.id, self._remembered(release, appended)):
                    tally.duplicate()
                    continue
                check_renewed(admit, release, len(admitted), renew)
            except RejectedError as rejected:
                dead.append(DeadLetter(partition, offset, rejected.reason, rejected.detail, value[:DEAD_BYTES]))
                tally.dead(rejected.reason)
                continue
            admitted.append(release)
            newest = appended
        return Validated(len(messages), admitted, newest, dead)


def messages_of(fetched: Fetched) -> list[Message]:
    """Return messages one by one."""
    return [*map(Message, fetched.offsets.tolist(), fetched.times.tolist(), fetched.messages.values())]


_STEP_BYTES = 2**26  # largest number of bytes that a step reads
_TRIMS_PER_RETENTION = 200

# Seconds between two checks, while nothing arrives, that the newest model is on the log, doubling up to the latter.
_POLL_INTERVAL, _LONGEST_POLL_INTERVAL = 1.0, 16.0

_log = logging.getLogger(__package__)


@dataclass(frozen=True, slots=True)
class Progress:
    """Numbers of messages of one step, the next offset, and the number of releases learned in all."""

    read: int
    learned: int
    duplicates: int
    dead: int
    offset: int
    version: int


@dataclass(frozen=True, slots=True)
class _Pending:
    state: bytes
    dead: Sequence[DeadLetter]
    model: bytes | None
    estimate: bytes | None
    progress: Progress


class Worker:
    """Feed one partition of a log to a learner, exactly once.

    A step reads a batch, validates it, drops duplicates, lets the learner learn the rest, and commits state, offset,
    dead letters and newest iterate in one atomic write. Iterates that are a function of the log are also published
    within a batch, as often as the learner's ``publish_every`` asks for. A message that cannot be learned becomes a
    dead letter. Starting a worker takes the partition over from any other worker, which is refused at its next commit.
    Raises UserError if the log carries no task or another one, or the learner is not of the task or not new; MurkError
    if the partition's state is not one of this log, or retention has removed unread messages.

    >>> import tempfile
    >>> from murk.protocols.device import device_for
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
    ...     worker = Worker(log, task, device_for(task).engine())
    ...     worker.step()
    ...     [letter.reason for letter in log.dead_letters()]
    Progress(read=1, learned=0, duplicates=0, dead=1, offset=1, version=0)
    ['malformed']

    Parameters
    ----------
    log, task
        The log, and the task that it carries.
    learner
        A new learner of that task, into which the worker loads the partition's state.
    partition
        The partition to read.
    batch
        Largest number of messages of one step; fewer if releases are long.
    estimates
        Called at each step of the first partition with its learner; returns a message about the estimate, or None.
    look
        Least number of seconds between two checks of what all partitions have learned, if they share models.
    clock
        Time in seconds since 1970, which decides only when old messages are deleted.
    adopted
        Returns a partition's state of the task's own learner, from which a model's new learner continues.
    """

    def __init__(
        self,
        log: Log,
        task: Task,
        learner: StreamLearner,
        partition: int = 0,
        *,
        batch: int = 16_384,
        estimates: Callable[[StreamLearner], bytes | None] | None = None,
        look: float = LOOK_AT_ALL,
        clock: Callable[[], float] = time.time,
        adopted: Callable[[int], Checkpoint] | None = None,
    ) -> None:
        if batch < 1:
            raise UserError(f"batch is {batch}: a step must read at least 1 message")
        self.partition = partition
        self._log, self._task, self._learner, self._clock = log, task, learner, clock
        self._trim_due = self._look_due = 0.0
        self._look_pause = _POLL_INTERVAL
        self._estimates = estimates if partition == 0 else None
        self._description = f"partition {partition} of {log.url}"
        self._unreported = DeadLetterLog(_log, self._description)
        # These checks precede taking the partition from its owner.
        check_carries(log, task)
        check_shuffled(log, task)
        self._check_learner()
        rules = wire_rules(task, learner.admission)
        self._sharing = sharing_of(log, task, learner, partition, look)
        self._publishes = self._sharing is None or self._sharing.publishes
        self._validator = Validator(partition, rules, learner, None if self._sharing is None else self._sharing.renew)
        self.batch = max(1, min(batch, _STEP_BYTES // rules.max_bytes))
        self._pending: _Pending | None = None
        self._stopped: str | None = None
        self._ownership = log.acquire(partition)
        try:
            self._resume(adopted)
        except BaseException:
            self._ownership.close()
            raise
        words = "%s: taken over at offset %d, with %d releases learned"
        _log.info(words, self._description, self.offset, learner.n_releases)

    @property
    def counters(self) -> Counters:
        """Numbers of all messages that the partition has ever read."""
        return self._counters

    @property
    def lag(self) -> int:
        """Number of offsets between the next one to read and the end of the log."""
        return self._log.end(self.partition) - self.offset

    def step(self, limit: int | None = None, *, end: int | None = None) -> Progress:
        """Read, learn and commit at most ``limit`` messages, by default a batch; return what was done.

        If ``end``, the partition's end as the caller knows it, is the next offset, nothing is read. A step that could
        not commit, for example because the disk is full, may be called again: it then commits what it has learned.
        Raises ``FencedError`` if another worker has taken the partition over; `MurkError` if the log could not be read
        or written, or retention has removed unread messages.
        """
        if self._stopped is not None:
            raise MurkError(f"this worker on {self._description} {self._stopped}: start a new one")
        if self._pending is None:
            self._trim()
            count = self.batch if limit is None else min(limit, self.batch)
            is_empty = end == self.offset
            fetched = Fetched.empty() if is_empty else self._log.fetch(self.partition, self.offset, count)
            after = None
            if len(fetched):
                self._look_pause = _POLL_INTERVAL
            else:
                self._restore_model()
                if end != self.offset:
                    # Otherwise the marker that ends a crowd's transaction would count as lag for ever.
                    after = self._log.skip(self.partition, self.offset)
            # After an interrupt or error within the update, the learner's state may be invalid.
            self._stopped = "did not get to the end of a step"
            if self._sharing is not None:
                self._sharing.arrived()
            if self._sharing is not None and (whole := self._sharing.step()) is not None:
                self._history.record(whole, truncate_time(int(self._clock()), self._task.granularity))
            self._pending = self._learn_batch(fetched, after)
            self._stopped = None
        if self._pending is None:
            return Progress(0, 0, 0, 0, self.offset, self._learner.n_releases)
        pending = self._pending
        try:
            offset = pending.progress.offset
            self._ownership.commit(pending.state, offset, pending.dead, pending.model, pending.estimate)
        except FencedError:
            self._stopped = "was fenced by another one"
            _log.info("%s: taken over by another worker", self._description)
            raise
        self._pending, done = None, pending.progress
        words = "%s: committed up to offset %d: %d learned, %d duplicates, %d dead letters"
        _log.debug(words, self._description, done.offset, done.learned, done.duplicates, done.dead)
        self._unreported.add(letter.reason for letter in pending.dead)
        return done

    def close(self) -> None:
        """Release the partition; the next worker reads again what was not committed."""
        if self._stopped is None:
            self._unreported.report()
            _log.info("%s: released, %d releases learned", self._description, self._counters.learned)
        self._stopped = "was closed"
        self._ownership.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _check_learner(self) -> None:
        wanted = self._task.release_kind
        if self._learner.kind != wanted:
            raise UserError(
                f"the learner learns from releases of kind {self._learner.kind!r}, and those of the task "
                f"{self._task.name!r} are of kind {wanted!r}: make the learner from the task"
            )
        if self._learner.mechanisms.keys() != self._task.privacy.levels.keys():
            raise UserError(
                f"the learner knows the levels {sorted(self._learner.mechanisms)} and the task {self._task.name!r} "
                f"offers {sorted(self._task.privacy.levels)}: make the learner from the task"
            )
        if self._learner.n_releases:
            raise UserError(
                f"the learner has already learned {self._learner.n_releases} releases: give the worker a new one, into "
                "which it loads the partition's state"
            )

    def _resume(self, adopted: Callable[[int], Checkpoint] | None) -> None:
        checkpoint, adopting = self._ownership.load(), False
        if checkpoint.state is None and adopted is not None:
            of_task = adopted(self.partition)
            adopting = of_task.state is not None
            checkpoint = of_task if adopting else checkpoint
        message = open_state(self._log, self._task, self.partition, checkpoint)
        self.offset = checkpoint.offset
        self._window = rebuild_window(self._log, self._task, self.partition, self._validator.remember, self.offset)
        self._model = self._log.model(self.partition)
        self._model_version = self._published_version = -1
        self._counters, self._adopted = Counters(), self.offset if adopting else 0
        if message is not None:
            check_last(self._log, self._task, message, self._window)
            load: Any = self._learner.adopt if adopting else self._learner.load_state_dict  # type: ignore[attr-defined]
            load(message.learner)
            self._counters, self._adopted = message.counters, self._adopted or message.adopted
        if self._sharing is not None:
            self._sharing.begin()
        history = History() if message is None or adopting else message.history
        first = first_point(self._learner.kind)
        self._history = HistoryRecorder(history, self._learner.coefficients, first, self._description)
        if self._learner.n_releases != self._counters.learned:
            raise MurkError(
                f"the state of {self._description} is damaged: its learner has learned {self._learner.n_releases} "
                f"releases, and {self._counters.learned} were counted. Restore the log from a copy"
            )
        if adopting:
            progress = Progress(0, 0, 0, 0, self.offset, self._learner.n_releases)
            self._pending = _Pending(self._encoded_state(), (), None, None, progress)

    def _learn_batch(self, fetched: Fetched, after: int | None = None) -> _Pending | None:
        learner, before = self._learner, self._learner.n_releases
        dead: list[DeadLetter] = []
        tally = StepCounters(self._counters)
        begin = 0
        while begin < len(fetched):
            part = fetched.rows(begin, min(begin + self._chunk(), len(fetched)))
            validated = self._validator.validate(part, self._window, tally)
            begin += validated.read
            dead += validated.dead
            if len(validated.admitted):
                version = learner.n_releases
                learner.learn_releases(validated.admitted)
                tally.learned(validated.admitted, version)
                self._publish_uncommitted()
                if self._sharing is None:
                    self._history.add_if_due(learner, truncate_time(validated.appended, self._task.granularity))
        learned = learner.n_releases - before
        model = self._newest_model()
        estimate = None if self._estimates is None else self._estimates(learner)
        if not len(fetched) and after in (None, self.offset) and model is None and estimate is None:
            return None
        if len(fetched):
            self.offset = int(fetched.offsets[-1]) + 1
            self._counters = tally.counters()
        elif after is not None:
            self.offset = after
        duplicates = len(fetched) - learned - len(dead)
        progress = Progress(len(fetched), learned, duplicates, len(dead), self.offset, learner.n_releases)
        return _Pending(self._encoded_state(), dead, model, estimate, progress)

    def _encoded_state(self) -> bytes:
        state = StateMessage(
            task=self._task.hash,
            identity=self._log.identity,
            partition=self.partition,
            offset=self.offset,
            last_id=self._window.newest(self.offset),
            counters=self._counters,
            history=self._history.history,
            learner=self._learner.state_dict(),
            adopted=self._adopted,
        )
        encoded = state.encode()
        if len(encoded) > MAX_STATE:
            self._history.forget()
            encoded = state.model_copy(update={"history": History()}).encode()
        return encoded

    def _chunk(self) -> int:
        """Return how many messages to learn at once: up to the next point of the history or the next iterate."""
        count = self._learner.n_releases
        point = self._history.next(count) if self._sharing is None else None
        return min(LEARN, self._learner.publish_every, LEARN if point is None else point - count)

    def _publish_uncommitted(self) -> None:
        published = self._published()
        if published is not None and published[0] - self._published_version >= self._learner.publish_every:
            self._published_version = published[0]
            self._ownership.publish_uncommitted(self._encoded(*published))

    def _newest_model(self) -> bytes | None:
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
        return self._learner.published() if self._publishes else None

    def _encoded(self, version: int, parameters: list[float]) -> bytes:
        return encode(
            ModelMessage(task=self._task.hash, partition=self.partition, version=version, parameters=parameters)
        )

    def _restore_model(self) -> None:
        """Publish the newest model again if another one has replaced it, such as an older one of a fenced worker."""
        now = self._clock()
        if self._publishes and now >= self._look_due:
            self._look_due = now + self._look_pause
            self._look_pause = min(2.0 * self._look_pause, _LONGEST_POLL_INTERVAL)
            stored = self._log.model(self.partition)
            if stored != self._model:
                self._model, self._model_version = stored, -1

    def _trim(self) -> None:
        now = self._clock()
        if now >= self._trim_due:
            retention = self._task.log.retention
            self._trim_due = now + retention / _TRIMS_PER_RETENTION
            self._log.trim(now - retention)
