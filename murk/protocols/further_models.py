"""The part of a log's releases that a model uses, and an engine that learns from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from murk._internal.arrays import Integers
from murk.errors import MurkError
from murk.inference.estimate import Estimate
from murk.privacy.mechanisms import Costed
from murk.protocols.averages import NeverPublished
from murk.stream.wire.admission import AdmissionRules
from murk.stream.wire.columns import columns_of
from murk.task.models import Model
from murk.task.task import Task

_ERROR_CODE = "MURK-LEARN-001"


@dataclass(frozen=True)
class EntrySelection:
    """A selection of a release's entries, by index and sign."""

    places: Integers
    signs: Integers

    @classmethod
    def of(cls, places: Sequence[int], signs: Sequence[int] | None = None) -> EntrySelection:
        """Return the selection of the numbers at these indices, by default with unchanged signs."""
        both = np.array(places, dtype=np.int64), np.ones(len(places), dtype=np.int64)
        return cls(both[0], both[1] if signs is None else np.array(signs, dtype=np.int64))

    def __call__(self, releases: Sequence[Any]) -> Any:
        """Return releases reduced to the selected numbers."""
        return columns_of(releases).select(self.places, self.signs)


def all_numbers(releases: Sequence[Any]) -> Sequence[Any]:
    """Return releases whole."""
    return releases


@dataclass(frozen=True)
class FurtherModel:
    """A model as a task of its own, the device of that task, and the part of a release that the model learns from.

    The device's mechanisms are the log's, restricted to the part: noise and units are the release's own.
    """

    task: Task
    device: Any
    take: Callable[[Sequence[Any]], Sequence[Any]]
    note: str = ""  # addition to the note of intervals
    of_state: bool = False  # whether a state of the task's own learner holds all that the model learns
    is_own: bool = False  # whether this is the task's own model


def own_model(model: Model, task: Task, whole: Any, reason: str) -> FurtherModel:
    """Return the task's own model if the model's file states a name only; otherwise raise UserError with a reason."""
    if model != type(model)(name=model.name):
        raise model.refuse(
            "name",
            f"{reason}: leave out everything but the name for that model, or release examples or moments "
            "(docs/models.md)",
        )
    return FurtherModel(task, whole, all_numbers, of_state=True, is_own=True)


class FurtherModelEngine(NeverPublished):
    """Learner of a part of a log's releases: the task's learner ``whole`` admits them, and ``own`` learns the part."""

    def __init__(self, whole: Any, own: Any, take: Callable[[Sequence[Any]], Sequence[Any]], digest: str) -> None:
        self.own = own
        self._whole, self._take, self._digest = whole, take, digest
        self.kind: str = whole.kind
        self.mechanisms: Mapping[str, Costed] = whole.mechanisms
        self.dimension: int = whole.dimension
        self.admission: AdmissionRules = whole.admission

    @property
    def n_releases(self) -> int:
        """Number of releases learned."""
        return int(self.own.n_releases)

    @property
    def coefficients(self) -> int:
        """Number of coefficients."""
        return int(self.own.coefficients)

    def estimate(self) -> Estimate:
        """Return the coefficients in coded units, with standard errors."""
        return cast("Estimate", self.own.estimate())

    def figures(self) -> Mapping[str, float]:
        """Return figures of progress."""
        return cast("Mapping[str, float]", self.own.figures())

    def learn_releases(self, releases: Sequence[Any]) -> None:
        """Learn admitted releases in order."""
        if releases:
            self.own.learn_releases(self._take(releases))

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as plain data."""
        return {**self.own.state_dict(), "model": self._digest}

    def adopt(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of the task's own learner, as if the model had learned the same releases."""
        self._whole.load_state_dict(state)
        self.own.adopt(self._whole)

    @property
    def joins(self) -> bool:
        """Whether learners of parts of a partition can be joined, in the order of the parts."""
        return bool(getattr(self.own, "joins", False))

    def begin_part(self) -> None:
        """Drop the figures that depend on the order of releases, before a part of a partition is learned."""
        if hasattr(self.own, "begin_part"):
            self.own.begin_part()

    def join(self, later: FurtherModelEngine) -> None:
        """Add what another learner has learned from a later part of the partition."""
        self.own.join(later.own)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state from `state_dict`; raise MurkError if it is malformed or another model's of the same name."""
        if state.get("model") != self._digest:
            raise MurkError(
                "the state under this model's name was learned with other columns or settings than the model now has: "
                "give the changed model another name"
            )
        self.own.load_state_dict(state)
