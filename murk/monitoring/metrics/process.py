"""Version and resource metrics of learner and monitor processes.

A gateway does not export them, since its computing time depends on the records that it reads.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from murk import __version__
from murk.monitoring.metrics.catalogue import Metric
from murk.monitoring.metrics.exporter import Exporter, Sample

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry


class ProcessMetrics(Exporter):
    """Export the version of a process that works for a task, and prometheus_client's process metrics.

    Examples
    --------
    >>> from murk.monitoring.metrics.exporter import new_registry
    >>> registry = new_registry()
    >>> _ = ProcessMetrics("third-child", registry)
    >>> [family.name for family in registry.collect()][0]
    'murk_build_info'
    """

    side = "process"

    def __init__(self, task: str, registry: CollectorRegistry) -> None:
        from prometheus_client import ProcessCollector

        super().__init__(task, registry)
        ProcessCollector(registry=registry)

    def _values(self) -> Callable[[Metric], Iterable[Sample]]:
        return lambda metric: [Sample((__version__, platform.python_version()), 1.0)]
