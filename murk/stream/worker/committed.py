"""Learners of other chains, as they were last committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar

from murk.stream.messages.state import decode_state
from murk.stream.worker.learner import StreamLearner

if TYPE_CHECKING:
    from murk.stream.log.base import Log

Learner = TypeVar("Learner", bound=StreamLearner)


class CommittedLearners(Generic[Learner]):
    """Gives a chain's learner as it was last committed; its state is decoded again only where it has moved.

    Parameters
    ----------
    log
        The log.
    make
        Makes a learner that has learned nothing.
    """

    def __init__(self, log: Log, make: Callable[[], Learner]) -> None:
        self._log = log
        self._make = make
        self._known: dict[int, tuple[bytes | None, Learner]] = {}

    def __call__(self, chain: int) -> Learner:
        """A chain's learner; not to be learned with.

        Raises
        ------
        MurkError
            If the chain's state is damaged, or the log cannot be read.
        """
        state = self._log.checkpoint(chain).state
        known = self._known.get(chain)
        if known is None or known[0] != state:
            learner = self._make()
            if state is not None:
                learner.load_state_dict(decode_state(state, f"chain {chain} of {self._log.url}").learner)
            self._known[chain] = known = state, learner
        return known[1]
