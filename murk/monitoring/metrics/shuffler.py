"""Metrics of a shuffler, which reveal no more about arrival times than the log of releases does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from murk.monitoring.metrics.exporter import Exporter, Values
from murk.stream.wire.codec import REASONS

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from murk.task.task import Task

PARTS = 10  # number of parts of a crowd; the number of waiting releases is rounded down to whole parts


@dataclass(frozen=True, slots=True)
class CrowdSums:
    """Counts of a shuffler's crowds and releases since its store was created, and of waiting releases."""

    released: int
    crowds: int
    waiting: int  # releases whose crowds are not complete
    dropped: int  # releases whose crowds were not complete in time
    duplicates: int
    refused: Mapping[str, int]  # by reason


class ShufflerMetrics(Exporter):
    """Export a shuffler's sums; by default to a new registry, the attribute ``registry``.

    The difference of two scrapes must not reveal when a release arrived. So sums change only when a crowd is forwarded,
    which the log shows anyway, and at multiples of the task's granularity. Waiting releases are also rounded down to
    tenths of a crowd, and not divided by level, since a level that few people choose has few arrivals.
    """

    side = "shuffler"

    def __init__(
        self, task: Task, *, registry: CollectorRegistry | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        assert task.shuffle is not None
        self._crowd, self._granularity, self._clock = task.shuffle.crowd, task.granularity, clock
        self._part = max(1, self._crowd // PARTS)
        self._sums: CrowdSums | None = None
        self._period, self._trouble = 0, ""
        super().__init__(task.name, registry)

    def update(self, sums: CrowdSums, trouble: str) -> None:
        """Export these sums as soon as they are due, and ``trouble``: why the shuffler cannot work, or empty."""
        self._trouble = trouble
        period = int(self._clock()) // self._granularity
        if self._sums is None:
            # Otherwise two starts within one period would reveal what arrived between them.
            self._sums, self._period = replace(sums, waiting=0, duplicates=0, refused={}), period
        elif sums.crowds != self._sums.crowds or period != self._period:
            self._sums, self._period = sums, period

    def _values(self) -> Values:
        sums = self._sums
        if sums is None:
            return {}
        return {
            "murk_shuffler_crowd_releases": self._crowd,
            "murk_shuffler_waiting_releases": sums.waiting - sums.waiting % self._part,
            "murk_shuffler_releases_total": sums.released,
            "murk_shuffler_crowds_total": sums.crowds,
            "murk_shuffler_dropped_releases_total": sums.dropped,
            "murk_shuffler_duplicates_total": sums.duplicates,
            "murk_shuffler_refusals_total": {reason: sums.refused.get(reason, 0) for reason in REASONS},
            "murk_shuffler_log_reachable": not self._trouble,
        }
