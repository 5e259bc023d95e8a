"""Version and resource metrics of learner and monitor processes.

Never of a gateway, whose computing time depends on the records that it reads.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from typing import TYPE_CHECKING

from murk import __version__
from murk.monitoring.metrics.catalogue import METRICS
from murk.monitoring.metrics.exporter import Sample, described, family, register

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client import Metric as Family


class ProcessMetrics:
    """Export the version of a process that works for a task, and prometheus_client's process metrics.

    Examples
    --------
    >>> from murk.monitoring.metrics.exporter import new_registry
    >>> registry = new_registry()
    >>> _ = ProcessMetrics("third-child", registry)
    >>> [family.name for family in registry.collect()][0]
    'murk_build_info'
    """

    def __init__(self, task: str, registry: CollectorRegistry) -> None:
        from prometheus_client import ProcessCollector

        self._task = task
        register(registry, self)
        ProcessCollector(registry=registry)

    def describe(self) -> Iterator[Family]:
        """Return the metrics without values, for the registry."""
        return described("process")

    def collect(self) -> Iterator[Family]:
        """Return the metrics, for the registry."""
        [metric] = [metric for metric in METRICS if metric.side == "process"]
        yield family(metric, self._task, [Sample((__version__, platform.python_version()), 1.0)])
