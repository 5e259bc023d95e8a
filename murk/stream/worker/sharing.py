"""Models that all chains share: the first chain's worker makes them, the others' are told of them.

The first chain's commit holds a model in its state and on the log at once, and nobody reads it before. So a model of a
version is made once: what was not committed, nobody has seen. And any message was made at a model that was on the log
before the message was: a worker that looks once after it has read messages knows all models that they can be of.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, runtime_checkable

from murk.errors import MurkError, UserError
from murk.stream.log.base import FIRST_CHAIN
from murk.stream.messages.codec import RejectedError, decode_iterate
from murk.stream.worker.committed import CommittedLearners
from murk.stream.worker.learner import StreamLearner

if TYPE_CHECKING:
    from murk.stream.log.base import Log
    from murk.stream.task.task import Task

LOOK_AT_ALL: Final = 0.2
"""Seconds between two looks of the first chain's worker at what all have learned, at least."""

_SHARE = 50
"""At most one part in so many of a worker's time is spent on looking, as long as that is no more than `_LONGEST`."""

_LONGEST = 5.0
"""Seconds between two looks at most: that of many chains takes long, since their states are read one by one."""

_AFTER_FAILURE = 30.0
"""Seconds until the next look, after one that failed."""

_log = logging.getLogger(__package__)


@runtime_checkable
class SharingLearner(StreamLearner, Protocol):
    """A learner whose chain's people answer at models that all chains share."""

    @property
    def model_size(self) -> int:
        """Numbers in a model."""

    @property
    def next_model_at(self) -> int:
        """Releases of all chains at which the next model is due."""

    def another(self) -> Self:
        """A learner of the same task that has learned nothing."""

    def begin_epoch(self, others: Sequence[Any]) -> Self | None:
        """Make the next model, where it is due, of what this one and the other chains' have learned; and give that."""

    def hear(self, first: Any) -> None:
        """Take notice of the first chain's models, as it has committed them."""

    def hear_newest(self, version: int, flat: Sequence[float]) -> None:
        """Take notice of the newest model as it was published."""

    def take_up(self, version: int, flat: Sequence[float]) -> None:
        """Go on with a published model that the first chain's state does not have."""


class Alone:
    """Each chain has models of its own, or none: there is nothing to make for others, or to be told of."""

    publishes = True
    """Whether this chain's worker publishes its learner's model."""

    alone = True
    """Whether what this chain has learned is worth a curve by itself."""

    def begin(self) -> None:
        """After the chain's own state was loaded, and before anything is learned."""

    def step(self) -> StreamLearner | None:
        """Before a step learns; may give the learner a new model, and then returns what all chains have learned."""
        return None

    def arrived(self) -> None:
        """Messages were read, which may be of models that are not known yet."""

    def renew(self) -> bool:
        """Look whether there are models that the learner has not been told of; tell it."""
        return False


class Sharing(Alone):
    """What the workers of chains that share models have in common.

    Parameters
    ----------
    log, task
        The log, and its task.
    learner
        The chain's.
    """

    alone = False

    def __init__(self, log: Log, task: Task, learner: SharingLearner) -> None:
        self._log = log
        self._task = task
        self._learner = learner
        self._committed = CommittedLearners(log, task, learner.another)

    def _tell(self, message: bytes | None, tell: Callable[[int, Sequence[float]], None]) -> None:
        """Tell the learner of the newest model, if what is on the log is one, of no more releases than messages."""
        if message is None:
            return
        try:
            model = decode_iterate(
                message, task_hash=self._task.hash, dimension=self._learner.model_size, chain=FIRST_CHAIN
            )
        except RejectedError as error:
            self._refuse(error)
            return
        # For a version that is known the log is not asked: some of it may be away.
        released = model.version if model.version < self._learner.next_model_at else sum(self._log.ends())
        try:
            if model.version > released:
                raise UserError(f"it is of version {model.version}, and {released} messages are on the log")
            tell(model.version, model.iterate)
        except UserError as error:
            self._refuse(error)

    def _refuse(self, error: Exception) -> None:
        """Say that somebody else has written where the newest model stands; the first chain's worker puts it right."""
        _log.warning("%s: the newest model is none that learners publish: %s", self._log.url, error)


class Making(Sharing):
    """What the first chain's worker does: it makes the next model when all chains together have come to it.

    Where it cannot see what the others have learned it makes none, and its own chain is learned on. Only what people
    may have answered at already, a newer model on the log than its state's, it has to see before it learns.

    Parameters
    ----------
    log, task
        The log, and its task.
    learner
        The first chain's.
    look
        Seconds between two looks at what all have learned, at least; more where looking takes long.
    clock
        Seconds.
    """

    def __init__(
        self, log: Log, task: Task, learner: SharingLearner, look: float = LOOK_AT_ALL,
        clock: Callable[[], float] = monotonic,
    ) -> None:  # fmt: skip
        super().__init__(log, task, learner)
        self._look, self._clock, self._due = look, clock, clock()

    def begin(self) -> None:
        """Go on with the newest model on the log, where the state is an older copy, of before it was made.

        Raises
        ------
        MurkError
            If the log cannot be read.
        """
        self._tell(self._log.model(FIRST_CHAIN), self._learner.take_up)

    def step(self) -> StreamLearner | None:
        """Make the next model where it is due, and it is time to look; return what it is made of."""
        start = self._clock()
        if start < self._due:
            return None
        try:
            whole = self._make()
        except MurkError as error:
            _log.warning("%s: no new model can be made at the moment: %s", self._log.url, error)
            self._due = self._clock() + _AFTER_FAILURE
            return None
        end = self._clock()
        self._due = end + (min(max(self._look, _SHARE * (end - start)), _LONGEST) if self._look else 0.0)
        return whole

    def _make(self) -> StreamLearner | None:
        # What is on the log is looked at first: it is more than what was learned, and the states are long.
        if sum(self._log.ends()) < self._learner.next_model_at:
            return None
        others = {chain: self._committed(chain) for chain in range(self._log.partitions) if chain != FIRST_CHAIN}
        # A model of more releases than were ever on the log would be the last: devices refuse it.
        ends = self._log.ends()
        for chain, other in others.items():
            if other.n_releases > ends[chain]:
                raise MurkError(
                    f"the state of chain {chain} of {self._log.url} says that {other.n_releases} releases were "
                    f"learned, and {ends[chain]} messages were ever on its partition: restore it from a copy",
                    code="MURK-STATE-001",
                )
        return self._learner.begin_epoch(list(others.values()))


class Told(Sharing):
    """What the other chains' workers do: where a message is of a model that they do not know, they look.

    Parameters
    ----------
    log, task
        The log, and its task.
    learner
        The chain's.
    """

    publishes = False

    def __init__(self, log: Log, task: Task, learner: SharingLearner) -> None:
        super().__init__(log, task, learner)
        self._looked = False

    def arrived(self) -> None:
        """Messages were read, which may be of models that are not known yet."""
        self._looked = False

    def renew(self) -> bool:
        """Look for new models, once after messages were read.

        Raises
        ------
        MurkError
            If the log cannot be read: what was answered at models that are only not known is not refused.
        """
        if self._looked:
            return False
        self._looked = True
        # The message first, and then the state that it was written with, or a later one.
        message, checkpoint = self._log.model(FIRST_CHAIN), self._log.checkpoint(FIRST_CHAIN)
        try:
            self._learner.hear(self._committed.decoded(FIRST_CHAIN, checkpoint))
        except MurkError as error:
            _log.warning("%s: the first chain's models cannot be read: %s", self._log.url, error)
        self._tell(message, self._learner.hear_newest)
        return True


def sharing_of(log: Log, task: Task, learner: StreamLearner, chain: int, look: float) -> Alone:
    """What a chain's worker does about models that all chains share."""
    if not isinstance(learner, SharingLearner):
        return Alone()
    return Told(log, task, learner) if chain != FIRST_CHAIN else Making(log, task, learner, look)
