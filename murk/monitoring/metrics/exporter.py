"""Prometheus metrics of the catalogue; counters are copied from states, so that none is lost or counted twice."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from murk.errors import UserError
from murk.monitoring.metrics.catalogue import METRICS, Metric, Side

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client import Metric as Family

_ERROR_CODE = "MURK-MONITOR-001"

LEARNED, DUPLICATE, DEAD = RESULTS = ("learned", "duplicate", "dead")
"""Values of the label ``result`` of ``murk_releases_total``."""


class Histogram(NamedTuple):
    """Non-cumulative counts of a histogram's buckets, the last beyond all bounds, and the sum of values."""

    counts: Sequence[int]
    total: float


Value = float | Histogram | Mapping[Any, float | None] | None
"""Value of a metric: one for each label or tuple of labels (without the task), if it has any; None is not exported."""
Values = Mapping[str, Value]  # current values of metrics by name


def new_registry() -> CollectorRegistry:
    """Return a new registry without the global one's metrics; raise `UserError` if prometheus_client is missing."""
    try:
        from prometheus_client import CollectorRegistry
    except ModuleNotFoundError:
        from murk._internal.extras import missing_extra

        raise missing_extra("the monitor needs prometheus-client", "monitor") from None
    return CollectorRegistry(auto_describe=False)


class Exporter(ABC):
    """Base class for collectors of a task's metrics of one ``side``; by default in a registry of their own."""

    side: ClassVar[Side]

    def __init__(self, task: str, registry: CollectorRegistry | None = None) -> None:
        self.registry = new_registry() if registry is None else registry
        self._task_name = task
        try:
            self.registry.register(self)
        except ValueError:
            remedy = "give each monitor a registry of its own"
            raise UserError(f"the registry already exports these metrics: {remedy}") from None

    def describe(self) -> Iterator[Family]:
        """Return the metrics without values, for the registry."""
        return families(self.side, {})

    def collect(self) -> Iterator[Family]:
        """Return the metrics, for the registry."""
        return families(self.side, {self._task_name: self._values()})

    @abstractmethod
    def _values(self) -> Values:
        """Return the metrics' current values."""


def families(side: Side, tasks: Mapping[str, Values]) -> Iterator[Family]:
    """Return the metrics of one side, each with the values of all tasks."""
    return (
        family(metric, {task: values.get(metric.name) for task, values in tasks.items()})
        for metric in METRICS
        if metric.side == side
    )


def family(metric: Metric, tasks: Mapping[str, Value]) -> Family:
    """Return a metric for prometheus_client with its values by task, without values that are not finite."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.utils import floatToGoString

    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        bounds = [floatToGoString(bound) for bound in (*metric.buckets, math.inf)]  # type: ignore[no-untyped-call]
        for task, value in tasks.items():
            if isinstance(value, Histogram):
                histogram.add_metric([task], list(zip(bounds, accumulate(value.counts), strict=True)), value.total)
        return histogram
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    plain = kind(metric.name, metric.help, labels=metric.labels)
    for task, value in tasks.items():
        assert not isinstance(value, Histogram)
        for labels, number in value.items() if isinstance(value, Mapping) else [((), value)]:
            if number is not None and math.isfinite(number):
                plain.add_metric([task, *([labels] if isinstance(labels, str) else labels)], number)
    return plain


def bucketed(metric: Metric, weighted: Iterable[tuple[float, int]]) -> Histogram:
    """Count pairs (value, count) into a metric's buckets; a bucket includes its upper bound."""
    counts = [0] * (len(metric.buckets) + 1)
    total = 0.0
    for value, count in weighted:
        counts[sum(bound < value for bound in metric.buckets)] += count
        total += value * count
    return Histogram(counts, total)
