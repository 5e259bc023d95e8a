"""The interface of learners for workers, whatever the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from murk.stream.wire.columns import columns_of
from murk.stream.wire.state import Estimating

if TYPE_CHECKING:
    from murk.privacy.mechanisms import Costed
    from murk.stream.wire.admission import AdmissionRules


class _Ruled(Protocol):
    @property
    def n_releases(self) -> int: ...
    @property
    def admission(self) -> AdmissionRules: ...


class AdmittingLearner:
    """Base class of learners that admit releases by their protocol's rules, ``admission``."""

    def admit(self: _Ruled, release: Any, ahead: int = 0) -> None:
        """Raise `RejectedError` if a release cannot be learned after ``ahead`` further ones."""
        self.admission.check(release, self.n_releases + ahead)

    def admits(self: _Ruled, releases: Sequence[Any]) -> bool:
        """Return True only if all these releases are certain to be admitted next, in this order."""
        return self.admission.accepts(columns_of(releases), self.n_releases)


class Admitting(Protocol):
    """Interface of what decides which releases are learned."""

    def admit(self, release: Any, ahead: int = 0) -> None:
        """Raise `RejectedError` if a release cannot be learned after ``ahead`` further ones.

        ``ahead`` is the number of releases admitted since the last call of `learn_releases`.
        """

    def admits(self, releases: Sequence[Any]) -> bool:
        """Return True only if all these releases are certain to be admitted next, in this order."""


class StreamLearner(Admitting, Estimating, Protocol):
    """Interface of a deterministic learner: its state is a function of the releases it has learned, in order."""

    @property
    def kind(self) -> str:
        """Kind of releases."""

    @property
    def mechanisms(self) -> Mapping[str, Costed]:
        """Mechanism of each level."""

    @property
    def admission(self) -> AdmissionRules:
        """The rules by which releases are admitted."""

    def learn_releases(self, releases: Sequence[Any]) -> None:
        """Learn admitted releases in order."""

    def published(self) -> tuple[int, list[float]] | None:
        """Return the newest published version and its iterate; None if devices need none."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state exactly."""

    @property
    def publish_every(self) -> int:
        """Largest number of releases to learn between two published iterates; any number if devices need none."""
