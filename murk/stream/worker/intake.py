"""Decide what becomes of a chain's messages: learned, duplicate or dead letter.

A block of messages that are all plainly learnable is judged at once; otherwise each message is judged by itself, with
the same outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from murk.stream.log.base import DeadLetter, Message
from murk.stream.messages.codec import RejectedError, WireRules
from murk.stream.messages.wire import Received, block_receiver, receiver
from murk.stream.worker.counters import Tally
from murk.stream.worker.dedup import DuplicateWindow
from murk.stream.worker.learner import StreamLearner, admits_of

DEAD_BYTES = 2**16  # number of bytes of a message that a dead letter keeps; a person's release is shorter
_UNKNOWN_MODEL = "future", "version"  # reasons to refuse a release whose model is unknown


@dataclass(frozen=True, slots=True)
class Judged:
    """Releases to learn, when the log appended the last of them (0 if none), and dead letters."""

    admitted: Sequence[Received]
    appended: int
    dead: Sequence[DeadLetter] = ()


class Intake:
    """Judge a chain's messages before its learner learns from them.

    ``renew`` informs the learner of new models, and returns whether it looked for any.
    """

    def __init__(
        self, chain: int, rules: WireRules, learner: StreamLearner, renew: Callable[[], bool] = lambda: False
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
        chain, receive, seen, admit = self._chain, self.receive, window.seen, self._admit
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
                if appended > release.expires:
                    raise RejectedError("expired", f"appended {appended - release.expires} s after its expiry")
                if duplicate:
                    tally.duplicate()
                    continue
                admit(release, len(admitted))
            except RejectedError as rejected:
                dead.append(DeadLetter(chain, offset, rejected.reason, rejected.detail, value[:DEAD_BYTES]))
                tally.dead(rejected.reason)
                continue
            admitted.append(release)
            newest = appended
        return Judged(admitted, newest, dead)

    def _admit(self, release: Received, ahead: int) -> None:
        try:
            self._learner.admit(release, ahead)
        except RejectedError as rejected:
            # The learner may not know the release's model yet.
            if rejected.reason not in _UNKNOWN_MODEL or not self._renew():
                raise
            self._learner.admit(release, ahead)
