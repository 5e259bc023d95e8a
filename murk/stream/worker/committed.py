"""Learners of other chains, as last committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from murk.errors import MurkError
from murk.stream.messages.state import decode_state
from murk.stream.worker.learner import StreamLearner

if TYPE_CHECKING:
    from murk.stream.log.base import Checkpoint, Log
    from murk.stream.task.task import Task

Learner = TypeVar("Learner", bound=StreamLearner)


class CommittedLearners(Generic[Learner]):
    """Load chains' learners as last committed; a state is decoded again only if it has changed.

    ``make`` returns a new learner.
    """

    def __init__(self, log: Log, task: Task, make: Callable[[], Learner]) -> None:
        self._log = log
        self._task = task
        self._make = make
        self._known: dict[int, tuple[bytes | None, Learner]] = {}

    def __call__(self, chain: int) -> Learner:
        """Return a chain's learner, which must not learn.

        Raises `MurkError` if the chain's state is damaged or not this log's, or the log cannot be read.
        """
        return self.decoded(chain, self._log.checkpoint(chain))

    def decoded(self, chain: int, checkpoint: Checkpoint) -> Learner:
        """Return a chain's learner at a checkpoint; it must not learn.

        Raises `MurkError` if the chain's state is damaged or not this log's.
        """
        state, offset = checkpoint
        known = self._known.get(chain)
        if known is None or known[0] != state:
            learner = self._make()
            if state is not None:
                message = decode_state(state, f"chain {chain} of {self._log.url}")
                learner.load_state_dict(message.learner)
                stored = message.task, message.identity, message.chain, message.offset, message.counters.learned
                expected = self._task.hash, self._log.identity, chain, offset, learner.n_releases
                if stored != expected or message.counters.read > offset:
                    raise MurkError(
                        f"the state of chain {chain} of {self._log.url} was not committed there by its learner: "
                        "restore it from a copy",
                        code="MURK-STATE-001",
                    )
            self._known[chain] = known = state, learner
        return known[1]
