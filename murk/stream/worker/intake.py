"""Decide what becomes of a chain's messages (learned, duplicate or dead letter), and count it.

A block of messages that are all plainly learnable is judged as a whole; otherwise each message is judged by itself,
with the same outcome.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from logging import Logger
from time import monotonic
from typing import Any

from murk.stream.log.base import DeadLetter, Message
from murk.stream.messages.codec import RejectedError, WireRules
from murk.stream.messages.releases import GradientRelease
from murk.stream.messages.state import Counters
from murk.stream.messages.wire import DuplicateWindow, Received, block_of, block_receiver, receiver
from murk.stream.worker.learner import StreamLearner, admits_of

GRADIENT = GradientRelease.model_fields["kind"].default


class Tally:
    """Sum up `Counters`, from ``start``."""

    def __init__(self, start: Counters) -> None:
        self._learned = start.learned
        self._duplicates = start.duplicates
        self._dead = Counter(start.dead)
        self._levels = Counter(start.levels)
        self._ages = list(start.staleness)
        self._age_sum = start.staleness_sum

    def learned(self, releases: Sequence[Any], version: int) -> None:
        """Count releases learned in this order by a chain that had learned ``version`` before."""
        if not releases:
            return
        self._learned += len(releases)
        self._levels.update(block_of(releases).levels)
        # Only gradients have an age; a chain's releases are all of one kind.
        if releases[0].kind != GRADIENT:
            return
        ages = [now - release.version for now, release in enumerate(releases, version)]
        self._age_sum += sum(ages)
        for bits, count in Counter(map(int.bit_length, ages)).items():
            self._ages += [0] * (bits + 1 - len(self._ages))
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
    """Log the number of dead letters by reason, at most once in ``seconds``.

    A flood of dead letters does not flood the logger.
    """

    def __init__(self, log: Logger, where: str, seconds: float = 10.0) -> None:
        self._log = log
        self._description = where
        self._seconds = seconds
        self._due = 0.0
        self._unreported: Counter[str] = Counter()

    def add(self, reasons: Iterable[str]) -> None:
        """Count reasons, and log the counts if it is time."""
        self._unreported.update(reasons)
        if monotonic() >= self._due:
            self.report()

    def report(self) -> None:
        """Log what was counted since the last report."""
        if self._unreported:
            counts = ", ".join(f"{reason} {count}" for reason, count in sorted(self._unreported.items()))
            self._log.info("%s: dead letters: %s", self._description, counts)
            self._unreported.clear()
            self._due = monotonic() + self._seconds


DEAD_BYTES = 2**16  # number of bytes of a message that a dead letter keeps; a person's release is shorter
_UNKNOWN_MODEL = "future", "version"  # reasons to refuse a release whose model is unknown


def check_expiry(release: Received, appended: int) -> None:
    """Raise `RejectedError` if the log appended a release (at a time in seconds since 1970) after its expiry."""
    if appended > release.expires:
        raise RejectedError("expired", f"appended {appended - release.expires} s after its expiry")


def admit(learner: StreamLearner, release: Received, ahead: int, renew: Callable[[], bool] | None) -> None:
    """Raise `RejectedError` if a learner cannot learn a release as number ``n_releases + ahead``.

    ``renew`` informs the learner of new models, if it does not know the release's, and returns whether it looked.
    """
    try:
        learner.admit(release, ahead)
    except RejectedError as rejected:
        # The learner may not know the release's model yet.
        if rejected.reason not in _UNKNOWN_MODEL or renew is None or not renew():
            raise
        learner.admit(release, ahead)


@dataclass(frozen=True, slots=True)
class Judged:
    """Releases to learn, the time when the log appended the last of them (0 if none), and dead letters."""

    admitted: Sequence[Received]
    appended: int
    dead: Sequence[DeadLetter] = ()


class Intake:
    """Decide which of a chain's messages its learner learns from.

    If chains share models, ``renew`` reads new models from the log into the learner; it returns False if it did not
    read the log.
    """

    def __init__(
        self, chain: int, rules: WireRules, learner: StreamLearner, renew: Callable[[], bool] | None = None
    ) -> None:
        self._chain = chain
        self._renew = renew
        self._learner = learner
        self._admits = admits_of(learner)
        self.receive = receiver(rules)
        self._receive_block = block_receiver(rules)

    def judge(self, messages: Sequence[Message], window: DuplicateWindow, tally: Tally) -> Judged:
        """Judge messages and count those that are not to be learned; the caller must learn the admitted ones next."""
        return self._judge_block(messages, window) or self._judge_each(messages, window, tally)

    def _judge_block(self, messages: Sequence[Message], window: DuplicateWindow) -> Judged | None:
        """Judge messages that may all be learned; return None, without side effects, if that is not certain."""
        offsets, times, values = zip(*messages, strict=True)
        releases = self._receive_block(values)
        if releases is None:
            return None
        chains, expiry = {release.chain for release in releases}, min([release.expires for release in releases])
        if chains != {self._chain} or max(times) > expiry or not self._admits(releases):
            return None
        # Last, since it changes the window.
        if not window.add_new(offsets, [release.id for release in releases]):
            return None
        return Judged(releases, times[-1])

    def _judge_each(self, messages: Sequence[Message], window: DuplicateWindow, tally: Tally) -> Judged:
        chain, receive, seen, learner, renew = self._chain, self.receive, window.seen, self._learner, self._renew
        admitted: list[Received] = []
        dead: list[DeadLetter] = []
        newest = 0
        for offset, appended, value in messages:
            try:
                release = receive(value)
                # Recorded whatever the outcome, so that the window is a function of the log.
                duplicate = seen(offset, release.id)
                if release.chain != chain:
                    raise RejectedError("chain", f"of chain {release.chain}, on partition {chain}")
                # Before duplicates: retention is no shorter than expiry, so messages that it has removed from the
                # window cannot change the outcome.
                check_expiry(release, appended)
                if duplicate:
                    tally.duplicate()
                    continue
                admit(learner, release, len(admitted), renew)
            except RejectedError as rejected:
                dead.append(DeadLetter(chain, offset, rejected.reason, rejected.detail, value[:DEAD_BYTES]))
                tally.dead(rejected.reason)
                continue
            admitted.append(release)
            newest = appended
        return Judged(admitted, newest, dead)
