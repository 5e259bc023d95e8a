"""The shuffler's rules of admission: a worker's own, with the models that the shuffler has relayed."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from murk.privacy.mechanisms import Costed
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.columns import Columns, distinct
from murk.stream.worker.interface import StreamLearner, payload_checks_of, payload_lengths


class Models(Protocol):
    """The part of an interactive device that decides which models devices take."""

    @property
    def model_size(self) -> int:
        """Length of a model."""

    @property
    def initial(self) -> NDArray[np.float64]:
        """The model of version 0."""

    def is_published(self, version: int) -> bool:
        """Return whether models of this version are published."""

    def check_model(self, theta: NDArray[np.float64]) -> None:
        """Raise `UserError` for a model that no honest learner publishes."""


class Admission:
    """A learner's checks for `Validator`, without learning.

    ``versions`` are the model versions whose answers are taken in, None if releases have no version. Releases that
    expire by the time ``forgotten`` are refused, since it is no longer known whether they came before.
    """

    publish_every = 2**62

    def __init__(self, learner: StreamLearner, versions: Set[int] | None, forgotten: int) -> None:
        self.versions, self.forgotten = versions, forgotten
        self.kind: str = learner.kind
        self.dimension: int = learner.dimension
        self.lengths = payload_lengths(learner)
        self.mechanisms: Mapping[str, Costed] = learner.mechanisms
        self._check, self._fit = payload_checks_of(learner)

    def admit(self, release: Any, ahead: int) -> None:
        """Raise `RejectedError` if a learner would refuse the release, or if devices were never given its model."""
        if self.versions is not None and release.version not in self.versions:
            if release.version > max(self.versions):
                raise RejectedError("future", f"version {release.version}, whose model was not published yet")
            raise RejectedError("version", f"there was no model of version {release.version}, or it was replaced")
        if release.expires <= self.forgotten:
            raise RejectedError("expired", "it may be a duplicate: ids of its time are no longer remembered")
        self._check(release)

    def admits(self, releases: Columns) -> bool:
        """Return True only if all these releases are certain to be admitted."""
        if self.versions is not None and not distinct(releases.column("version")) <= self.versions:
            return False
        return bool(releases.column("expires").min() > self.forgotten) and self._fit(releases)
