"""What a worker asks of a learner, whatever the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from murk.stream.messages.codec import WireRules

if TYPE_CHECKING:
    from murk.privacy.mechanisms import Costed
    from murk.stream.messages.trail import Estimated
    from murk.stream.task.task import Task


class StreamLearner(Protocol):
    """What a worker asks of a learner.

    A learner is deterministic: its state is a function of the releases it has learned, in their order, and
    not of how they were split into calls.
    """

    @property
    def n_releases(self) -> int:
        """Number of releases learned, which is the chain's version."""

    @property
    def kind(self) -> str:
        """Kind of the releases that it learns from."""

    @property
    def mechanisms(self) -> Mapping[str, Costed]:
        """Mechanism of each of the task's levels."""

    @property
    def dimension(self) -> int:
        """Length of a release's payload; a learner that has several kinds of payload names all in ``lengths``."""

    @property
    def coefficients(self) -> int:
        """Number of coefficients of the estimate."""

    def estimate(self) -> Estimated:
        """Return what has been learned, which changes nothing."""

    def admit(self, release: Any, ahead: int) -> None:
        """Raise `RejectedError` when a release cannot be learned as number ``n_releases + ahead``.

        ``ahead`` counts the releases that were admitted since `learn_releases` was last called. A learner may have a
        method ``admits(releases)``, too, which tells whether all of these are plainly admitted next, in this order.
        """

    def learn_releases(self, releases: Sequence[Any]) -> None:
        """Learn admitted releases in order."""

    def published(self) -> tuple[int, list[float]] | None:
        """Return the newest published version and its iterate; None where devices need none."""

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as plain JSON data, from which it can be restored exactly."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state."""

    @property
    def publish_every(self) -> int:
        """Most releases to learn before the newest iterate is to be published; any number where devices need none."""


def wire_rules(task: Task, learner: StreamLearner) -> WireRules:
    """Return what a release must satisfy that a learner of a task is to learn from."""
    return WireRules(
        task_hash=task.hash,
        simulated=task.simulated,
        lengths=payload_lengths(learner),
        magnitudes={level: mechanism.magnitude for level, mechanism in learner.mechanisms.items()},
        partitions=task.log.partitions,
        kind=learner.kind,
    )


def payload_lengths(learner: StreamLearner) -> tuple[int, ...]:
    """Return the lengths that a payload may have which a learner learns from."""
    lengths: tuple[int, ...] = getattr(learner, "lengths", (learner.dimension,))
    return lengths


def admits_of(learner: StreamLearner) -> Callable[[Sequence[Any]], bool]:
    """Return what tells of several releases whether a learner plainly admits all; where it cannot tell, it says no."""
    admits: Callable[[Sequence[Any]], bool] = getattr(learner, "admits", lambda releases: False)
    return admits
