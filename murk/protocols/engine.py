"""The interface of learners, whatever the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from murk.stream.worker.interface import StreamLearner


class Engine(StreamLearner, Protocol):
    """A learner of one partition's releases, with figures of its progress."""

    def figures(self) -> Mapping[str, float]:
        """Return figures of the learner's progress, by names of `murk.monitoring.figures.PartitionFigures`."""
