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

from murk.errors import UserError
from murk.stream.log.base import FIRST_CHAIN
from murk.stream.messages.codec import RejectedError, decode_iterate
from murk.stream.messages.releases import IterateMessage
from murk.stream.worker.committed import CommittedLearners
from murk.stream.worker.learner import StreamLearner

if TYPE_CHECKING:
    from murk.stream.log.base import Log
    from murk.stream.task.task import Task

LOOK: Final = 0.2
"""Seconds between two looks of the first chain's worker at what all have learned, at least."""

_SHARE = 50
"""At most one part in so many of a worker's time is spent on looking."""

_HOSTILE = "%s: the newest model is none that learners publish: %s"

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

    def begin_epoch(self, others: Sequence[Any]) -> bool:
        """Make the next model, where it is due, of what this one and the other chains' have learned."""

    def hear(self, first: Any, version: int, flat: Sequence[float]) -> None:
        """Take notice of the first chain's models, and of the newest as it was published."""

    def take_up(self, version: int, flat: Sequence[float]) -> None:
        """Go on with a published model that the first chain's state does not have."""


class Alone:
    """Each chain has models of its own, or none: there is nothing to make for others, or to be told of."""

    publishes = True
    """Whether this chain's worker publishes its learner's model."""

    def step(self) -> None:
        """Before a step learns; may give the learner a new model."""

    def arrived(self) -> None:
        """Messages were read, which may be of models that are not known yet."""

    def renew(self) -> bool:
        """Look whether there are models that the learner has not been told of; tell it."""
        return False


class Making(Alone):
    """What the first chain's worker does: it makes the next model when all chains together have come to it.

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
        self, log: Log, task: Task, learner: SharingLearner, look: float = LOOK,
        clock: Callable[[], float] = monotonic,
    ) -> None:  # fmt: skip
        self._log = log
        self._task = task
        self._learner = learner
        self._begun = False
        self._others = CommittedLearners(log, learner.another)
        self._look, self._clock, self._due = look, clock, clock()

    def step(self) -> None:
        """Make the next model where it is due, and it is time to look."""
        start = self._clock()
        if start < self._due:
            return
        chains = range(self._log.partitions)
        released = sum(map(self._log.end, chains))
        if not self._begun:
            self._take_up(released)
            self._begun = True
        # What is on the log is looked at first: it is more than what was learned, and the states are long.
        if released >= self._learner.next_model_at:
            self._learner.begin_epoch([self._others(chain) for chain in chains if chain != FIRST_CHAIN])
        end = self._clock()
        self._due = end + (max(self._look, _SHARE * (end - start)) if self._look else 0.0)

    def _take_up(self, released: int) -> None:
        message = self._log.model(FIRST_CHAIN)
        if message is None:
            return
        try:
            model = _decoded(message, self._task, self._learner)
            if model.version <= released:
                self._learner.take_up(model.version, model.iterate)
        except (RejectedError, UserError) as error:
            # Somebody else has written there; the next commit puts it right.
            _log.warning(_HOSTILE, self._log.url, error)


class Told(Alone):
    """What the other chains' workers do: where a message may be of a model that they do not know, they look.

    Parameters
    ----------
    log, task
        The log, and its task.
    learner
        The chain's.
    """

    publishes = False

    def __init__(self, log: Log, task: Task, learner: SharingLearner) -> None:
        self._log = log
        self._task = task
        self._learner = learner
        self._first = CommittedLearners(log, learner.another)
        self._newest: bytes | None = None
        self._looked = False

    def arrived(self) -> None:
        """Messages were read, which may be of models that are not known yet."""
        self._looked = False

    def renew(self) -> bool:
        """Look for new models, once after messages were read."""
        if self._looked:
            return False
        self._looked = True
        message = self._log.model(FIRST_CHAIN)
        if message is None or message == self._newest:
            return False
        try:
            model = _decoded(message, self._task, self._learner)
            self._learner.hear(self._first(FIRST_CHAIN), model.version, model.iterate)
        except (RejectedError, UserError) as error:
            # Somebody else has written there, which the first chain's worker puts right.
            _log.warning(_HOSTILE, self._log.url, error)
            return False
        self._newest = message
        return True


def sharing_of(log: Log, task: Task, learner: StreamLearner, chain: int, look: float) -> Alone:
    """What a chain's worker does about models that all chains share."""
    if not isinstance(learner, SharingLearner):
        return Alone()
    return Told(log, task, learner) if chain != FIRST_CHAIN else Making(log, task, learner, look)


def _decoded(message: bytes, task: Task, learner: SharingLearner) -> IterateMessage:
    return decode_iterate(message, task_hash=task.hash, dimension=learner.model_size, chain=FIRST_CHAIN)
