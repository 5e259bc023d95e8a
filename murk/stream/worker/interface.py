"""The interface of learners for workers, whatever the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from murk._internal.lazy import map_levels
from murk.stream.wire.codec import WireRules
from murk.stream.wire.duplicates import lifetime_of
from murk.stream.wire.state import Estimating

if TYPE_CHECKING:
    from murk.privacy.mechanisms import Costed
    from murk.task.task import Task

DAY: Final = 86_400


class StreamLearner(Estimating, Protocol):
    """Interface of a deterministic learner: its state is a function of the releases it has learned, in order."""

    @property
    def kind(self) -> str:
        """Kind of releases."""

    @property
    def mechanisms(self) -> Mapping[str, Costed]:
        """Mechanism of each level."""

    @property
    def dimension(self) -> int:
        """Length of a payload; learners with several lengths are `SeveralLengths`."""

    def admit(self, release: Any, ahead: int) -> None:
        """Raise `RejectedError` if a release cannot be learned after ``ahead`` further ones.

        ``ahead`` is the number of releases admitted since the last call of `learn_releases`; see also `BatchAdmitting`.
        """

    def learn_releases(self, releases: Sequence[Any]) -> None:
        """Learn admitted releases in order."""

    def published(self) -> tuple[int, list[float]] | None:
        """Return the newest published version and its iterate; None if devices need none."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state exactly."""

    @property
    def publish_every(self) -> int:
        """Largest number of releases to learn between two published iterates; any number if devices need none."""


@runtime_checkable
class SeveralLengths(Protocol):
    """Interface of learners whose payloads have several lengths."""

    @property
    def lengths(self) -> tuple[int, ...]:
        """Lengths of payloads."""


@runtime_checkable
class BatchAdmitting(Protocol):
    """Interface of learners that judge many releases at once."""

    def admits(self, releases: Sequence[Any]) -> bool:
        """Return True only if all these releases are certain to be admitted next, in this order."""


@runtime_checkable
class PayloadChecking(Protocol):
    """Interface of learners that can judge payloads regardless of the releases' versions."""

    def check_payload(self, release: Any) -> None:
        """Raise `RejectedError` for a forged release, whatever its version."""

    def payloads_fit(self, releases: Sequence[Any]) -> bool:
        """Return True only if `check_payload` is certain to pass all these releases."""


def wire_rules(task: Task, learner: StreamLearner) -> WireRules:
    """Return what a release must satisfy for a task's learner."""
    lengths = payload_lengths(learner)
    magnitudes = map_levels(attrgetter("magnitude"), learner.mechanisms)
    partitions, lifetime = task.log.partitions, lifetime_of(task.expiry)
    return WireRules(
        task.hash,
        task.simulated,
        lengths,
        magnitudes,
        partitions,
        kind=learner.kind,
        lifetime=lifetime,
        is_shuffled=task.shuffle is not None,
        # A device's clock may be ahead by as much.
        ahead=None if task.track is None else DAY,
    )


def payload_lengths(learner: StreamLearner) -> tuple[int, ...]:
    """Return the payload lengths that a learner accepts."""
    return learner.lengths if isinstance(learner, SeveralLengths) else (learner.dimension,)


def payload_checks_of(learner: StreamLearner) -> tuple[Callable[[Any], None], Callable[[Any], bool]]:
    """Return variants of ``admit`` and ``admits`` that check releases regardless of their versions."""
    if isinstance(learner, PayloadChecking):
        return learner.check_payload, learner.payloads_fit
    return lambda release: learner.admit(release, 0), admits_of(learner)


def admits_of(learner: StreamLearner) -> Callable[[Sequence[Any]], bool]:
    """Return a function that tells whether a learner certainly admits all of some releases."""
    return learner.admits if isinstance(learner, BatchAdmitting) else lambda releases: False
