"""Exporters of learners, archivers, a file's population or gateway, and of a process's version and resources.

Sums over people change only after at least 20 accounts have changed, so that the difference of two sums is also over at
least 20 people. A gateway does not export its resources, as its computing time depends on the records that it reads.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from murk import __version__
from murk.monitoring.metrics.catalogue import METRICS
from murk.monitoring.metrics.exporter import DEAD, DUPLICATE, LEARNED, Exporter, Values, bucketed
from murk.monitoring.web.routes import health_routes
from murk.monitoring.web.server import Route
from murk.stream.worker.pool import Pulse, Vitals

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from murk.stream.archive.archiver import PartitionArchive
    from murk.task.task import Task

STALLED = 60.0  # seconds without a step after which a learner is unhealthy
SMALLEST_GROUP = 20  # smallest number of people in a sum
BUILD_INFO: Values = {"murk_build_info": {(__version__, platform.python_version()): 1}}
"""Metrics of the version of a process."""
_SPENT = next(metric for metric in METRICS if metric.name == "murk_ledger_spent_ratio")


class LearnerMetrics(Exporter):
    """Export the pulse of a learner of a task to a new registry, the attribute ``registry``."""

    side = "learner"

    def __init__(self, task: str, pulse: Pulse) -> None:
        self._pulse = pulse
        super().__init__(task)

    def _values(self) -> Values:
        vitals = self._pulse.vitals()
        partitions = sorted(vitals.partitions.items())
        return {
            "murk_learner_owned_chains": len(partitions),
            "murk_learner_messages_total": {LEARNED: vitals.learned, DUPLICATE: vitals.duplicates, DEAD: vitals.dead},
            "murk_learner_lag_releases": {str(partition): one.lag for partition, one in partitions},
            "murk_learner_last_commit_timestamp_seconds": {
                str(partition): one.committed for partition, one in partitions
            },
            "murk_learner_log_reachable": vitals.trouble is None,
        }


def unhealthy_reason(vitals: Vitals, now: float) -> str | None:
    """Return why a learner is unhealthy, or None; a learner without partitions is healthy."""
    if vitals.trouble is not None:
        return vitals.trouble
    silent = now - vitals.stepped
    return f"no step for {silent:.0f} s" if silent > STALLED else None


def learner_routes(exported: LearnerMetrics, pulse: Pulse, clock: Callable[[], float] = time.time) -> dict[str, Route]:
    """Return the routes of a learner's metrics and health."""
    return health_routes(exported.registry, lambda: unhealthy_reason(pulse.vitals(), clock()))


class ArchiverMetrics(Exporter):
    """Export the progress of a task's archiver to a new registry, the attribute ``registry``."""

    side = "archiver"
    trouble = ""  # why the log cannot be read at the moment

    def __init__(self, task: Task) -> None:
        self._retention = task.log.retention
        self._progress: Mapping[int, PartitionArchive] = {}
        super().__init__(task.name)

    def update(self, progress: Mapping[int, PartitionArchive]) -> None:
        """Export this progress from now on."""
        self._progress, self.trouble = dict(progress), ""

    def _values(self) -> Values:
        partitions = [(str(partition), each) for partition, each in sorted(self._progress.items())]
        return {
            "murk_archive_lag_releases": {partition: each.lag for partition, each in partitions},
            "murk_archive_bytes": {partition: each.size for partition, each in partitions},
            "murk_archive_oldest_seconds": {partition: each.waiting for partition, each in partitions},
            "murk_archive_retention_seconds": self._retention,
            "murk_archive_log_reachable": not self.trouble,
        }


@dataclass(frozen=True, slots=True)
class PeopleSums:
    """Sums over the people of a task."""

    people: int  # number of accounts
    # refused releases; releases that wait for the log
    refused: int
    pending: int
    spent: Sequence[tuple[float, int]]  # pairs (share of the cap, number of people)


class PeopleMetrics(Exporter):
    """Export sums over at least 20 people to a new registry, the attribute ``registry``."""

    side = "people"
    _sums: PeopleSums | None = None

    def update(self, sums: PeopleSums) -> bool:
        """Export these sums from now on and return True, if they cover enough people."""
        if sums.people < SMALLEST_GROUP:
            return False
        self._sums = sums
        return True

    def _values(self) -> Values:
        sums = self._sums
        if sums is None:
            return {}
        return {
            _SPENT.name: bucketed(_SPENT, sums.spent),
            "murk_ledger_refusals_total": sums.refused,
            "murk_outbox_pending": sums.pending,
        }


class ProcessMetrics(Exporter):
    """Export the version of a process that works for a task, and prometheus_client's process metrics."""

    side = "process"

    def __init__(self, task: str, registry: CollectorRegistry) -> None:
        from prometheus_client import ProcessCollector

        super().__init__(task, registry)
        ProcessCollector(registry=registry)

    def _values(self) -> Values:
        return BUILD_INFO
