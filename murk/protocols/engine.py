"""The interface of learners, whatever the protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from murk._internal.arrays import Floats
from murk.stream.worker.interface import StreamLearner


class Engine(StreamLearner, Protocol):
    """A learner of one partition's releases, with figures of its progress."""

    def figures(self) -> Mapping[str, float]:
        """Return figures of the learner's progress, by names of `murk.monitoring.figures.PartitionFigures`."""


class RecordLearner(Engine, Protocol):
    """An engine that also randomizes records itself, for estimators in one process."""

    def learn_record(self, values: Sequence[Any], y: float, mechanism: Any, /) -> None:
        """Randomize one record once, with a mechanism or at a level, and learn from the release.

        ``values`` are features without the constant, ``(p - 1,)``; ``y`` is the coded target, NaN if missing.
        """

    def learn_records(self, X: Floats, y: Floats, mechanisms: Sequence[Any], /) -> None:
        """Learn from the rows of ``X``, features without the constant, with one mechanism for all or one per row."""


class IterateLearner(RecordLearner, Protocol):
    """An engine with an iterate and its average."""

    @property
    def iterate(self) -> Floats:
        """A copy of the newest iterate, in working coordinates."""

    @property
    def average(self) -> Floats:
        """A copy of the average, in working coordinates."""

    def use(self, mechanism: Any) -> None:
        """Select the mechanism for the next records that do not bring their own."""
