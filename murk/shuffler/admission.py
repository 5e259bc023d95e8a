"""The shuffler's rules of admission: a worker's own, with the models that the shuffler has relayed."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from murk.stream.wire.admission import AdmissionRules
from murk.stream.wire.codec import RejectedError


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
    """A protocol's rules, for `Validator`, on releases that nobody has learned yet.

    ``versions`` are the model versions whose answers are taken in, None if releases have no version. Releases that
    expire by the time ``forgotten`` are refused, since it is no longer known whether they came before.
    """

    def __init__(self, rules: AdmissionRules, versions: Set[int] | None, forgotten: int) -> None:
        self.rules, self.versions, self.forgotten = rules, versions, forgotten

    def admit(self, release: Any, ahead: int = 0) -> None:
        """Raise `RejectedError` if a learner would refuse the release, or if devices were never given its model."""
        if self.versions is not None and release.version not in self.versions:
            if release.version > max(self.versions):
                raise RejectedError("future", f"version {release.version}, whose model was not published yet")
            raise RejectedError("version", f"there was no model of version {release.version}, or it was replaced")
        if release.expires <= self.forgotten:
            raise RejectedError("expired", "it may be a duplicate: ids of its time are no longer remembered")
        self.rules.check_payload(release)

    def admits(self, releases: Any) -> bool:
        """Return True only if all these releases are certain to be admitted."""
        if self.versions is not None and not releases.distinct("version") <= self.versions:
            return False
        return bool(releases.column("expires").min() > self.forgotten) and self.rules.payloads_fit(releases)
