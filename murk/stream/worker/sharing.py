"""Models that all partitions share: the first partition's worker makes them, and the others read them from the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, Self, TypeVar, runtime_checkable

from murk.errors import MurkError
from murk.stream.log.interface import FIRST_PARTITION
from murk.stream.log.shared_models import SharedModels, accept_newest, check_count, committed_state
from murk.stream.worker.interface import StreamLearner

if TYPE_CHECKING:
    from murk.stream.log.interface import Checkpoint, Log
    from murk.task.task import Task

_ERROR_CODE = "MURK-LOG-001"


Learner = TypeVar("Learner", bound=StreamLearner)


class CommittedLearners(Generic[Learner]):
    """Load the learners of partitions at their last commit, made by ``make``; a state is decoded only if it changed."""

    def __init__(self, log: Log, task: Task, make: Callable[[], Learner]) -> None:
        self._log, self._task, self._make = log, task, make
        self._known: dict[int, tuple[bytes | None, Learner]] = {}

    def __call__(self, partition: int) -> Learner:
        """Return a partition's learner at its last commit, only to be read; see `decoded`."""
        return self.decoded(partition, self._log.checkpoint(partition))

    def decoded(self, partition: int, checkpoint: Checkpoint) -> Learner:
        """Return a partition's learner at a checkpoint, only to be read; raise `MurkError` if the state is damaged."""
        state = checkpoint.state
        cached = self._known.get(partition)
        if cached is None or cached[0] != state:
            learner = self._make()
            if state is not None:
                message = committed_state(self._log, self._task, partition, checkpoint)
                learner.load_state_dict(message.learner)
                check_count(self._log, message, learner.n_releases)
            self._known[partition] = cached = state, learner
        return cached[1]


LOOK_AT_ALL: Final = 0.2  # least seconds between two looks of the first partition's worker at all partitions' states
_LONGEST = 5.0  # longest pause in seconds between two looks
_SHARE = 50  # the pause between two looks is this multiple of the duration of a look, within these bounds
_AFTER_FAILURE = 30.0  # seconds between a failed look and the next one
_log = logging.getLogger(__package__)


@runtime_checkable
class SharingLearner(StreamLearner, Protocol):
    """A learner whose partition shares models with all partitions."""

    @property
    def admission(self) -> Any:
        """The rules by which releases are admitted, which are `SharingRules`."""

    def another(self) -> Self:
        """Return a new learner of the same task."""

    def begin_round(self, others: Sequence[Any]) -> Self | None:
        """Make the next model from what all partitions have learned and return their joint learner; None if not due."""

    def take_up(self, version: int, flat: Sequence[float]) -> None:
        """Continue with a published model that is not in the first partition's state."""


class Sharing:
    """Base class for the handling of shared models by a partition's worker."""

    publishes = True  # whether this partition's worker publishes its learner's model

    def begin(self) -> None:
        """Prepare after the partition's state was loaded, before anything is learned."""

    def step(self) -> StreamLearner | None:
        """Prepare a step; if this gives the learner a new model, return the learner of all partitions."""
        return None

    def arrived(self) -> None:
        """Note that messages were read, since their releases may name unknown models."""

    def renew(self) -> bool:
        """Read new models from the log into the learner; return False if the log was not read."""
        return False


class Making(Sharing):
    """Sharing by the first partition's worker, which makes the next model once all together have learned enough.

    If it cannot read the other partitions' states, it makes no model and continues to learn. When it begins, it takes
    up a model on the log that is newer than its state, since people may have answered this model already. ``look`` is
    the least number of seconds between two checks of what all partitions have learned.
    """

    def __init__(
        self,
        log: Log,
        task: Task,
        learner: SharingLearner,
        look: float = LOOK_AT_ALL,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._log, self._task, self._learner = log, task, learner
        self._committed = CommittedLearners(log, task, learner.another)
        self._look, self._clock, self._due = look, clock, clock()

    def begin(self) -> None:
        """Continue with the newest model on the log, if the state is an older copy."""
        learner = self._learner
        accept_newest(self._log, self._task, learner.admission, self._log.model(FIRST_PARTITION), learner.take_up)

    def step(self) -> StreamLearner | None:
        """Make the next model if it is due, checking at intervals; return the learner of all partitions."""
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
        # Ends are an upper bound on what was learned, and cheaper than the states.
        if sum(self._log.ends()) < self._learner.admission.next_model_at:
            return None
        others = {
            partition: self._committed(partition)
            for partition in range(self._log.partitions)
            if partition != FIRST_PARTITION
        }
        # Devices refuse a model that has learned more releases than were ever on the log.
        ends = self._log.ends()
        for partition, other in others.items():
            if other.n_releases > ends[partition]:
                raise MurkError(
                    f"the state of partition {partition} of {self._log.url} says that {other.n_releases} releases were "
                    f"learned, but only {ends[partition]} messages were ever on its partition: restore it from a copy",
                    code="MURK-STATE-001",
                )
        return self._learner.begin_round(list(others.values()))


class Told(Sharing):
    """Sharing by the workers of all other partitions: they read new models when a release names an unknown one."""

    publishes = False

    def __init__(self, log: Log, task: Task, learner: SharingLearner) -> None:
        self._models = SharedModels(log, task, learner.admission)

    def arrived(self) -> None:
        """Allow another look, since messages were read."""
        self._models.arrived()

    def renew(self) -> bool:
        """Read new models from the log, at most once after each read of messages; raise `MurkError` if that fails."""
        return self._models.renew()


def sharing_of(log: Log, task: Task, learner: StreamLearner, partition: int, look: float) -> Sharing | None:
    """Return the handling of shared models for a partition's worker; None if partitions share no models."""
    if not isinstance(learner, SharingLearner):
        return None
    return Told(log, task, learner) if partition != FIRST_PARTITION else Making(log, task, learner, look)
