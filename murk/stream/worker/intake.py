"""What becomes of a chain's messages: each is learned, or a duplicate, or a dead letter.

What is said of one message at a time holds. Most blocks hold nothing but releases to learn, and of these all that has
to be known is asked at once, which takes a fraction of the time; any doubt, and each message is judged by itself.
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

DEAD_BYTES = 2**16
"""A dead letter keeps this much of a message's beginning: more than what a person sends has."""

_OF_MODELS = "future", "version"
"""Reasons to refuse a release of a model that is not known."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What may be learned of some messages, and what may not.

    Parameters
    ----------
    admitted
        Releases to learn, in order.
    appended
        When the log appended the last of them; 0 where there is none.
    dead
        Dead letters.
    """

    admitted: Sequence[Received]
    appended: int
    dead: Sequence[DeadLetter] = ()


class Intake:
    """Judges a chain's messages before its learner learns from them.

    Parameters
    ----------
    chain
        The chain, which is also the partition.
    rules
        What a release must satisfy.
    learner
        The chain's.
    renew
        Tells the learner what it may not know of the models that messages are of; and whether there was anything.
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
        """Judge messages, and count those that are not to be learned; all that are must be learned next."""
        return self._judge_block(messages, window) or self._judge_each(messages, window, tally)

    def _judge_block(self, messages: Sequence[Message], window: DuplicateWindow) -> Judged | None:
        """Judge messages all of which may plainly be learned; of others nothing is noted."""
        offsets, times, values = zip(*messages, strict=True)
        releases = self._receive_block(values)
        if releases is None:
            return None
        chains, expiry = {release.chain for release in releases}, min([release.expires for release in releases])
        if chains != {self._chain} or max(times) > expiry or not self._admits(releases):
            return None
        # Last of all, for then it is certain what becomes of them.
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
                # Whatever becomes of it, its id is taken: only so is the window a function of the log.
                duplicate = seen(offset, release.id)
                if release.chain != chain:
                    raise RejectedError("chain", f"of chain {release.chain}, on partition {chain}")
                # Before duplicates: where retention is no shorter than expiry, what it has removed from the
                # window cannot change what becomes of a message.
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
            # It may be of a model that the learner was not told of.
            if rejected.reason not in _OF_MODELS or not self._renew():
                raise
            self._learner.admit(release, ahead)
