"""Metrics of a process that learns or watches: which version it runs, and what it costs.

Not of the people's side: how long a gateway computes depends on what it reads.
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
    """Export the version that a process runs, and what Prometheus's library knows of every process.

    Parameters
    ----------
    task
        Name of the task that the process works for.
    registry
        Where to export.

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
        """The metrics without values, for the registry."""
        return described("process")

    def collect(self) -> Iterator[Family]:
        """The metrics, for the registry."""
        [metric] = [metric for metric in METRICS if metric.side == "process"]
        yield family(metric, self._task, [Sample((__version__, platform.python_version()), 1.0)])
