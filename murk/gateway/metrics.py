"""Metrics of a gateway: sums over releases and requests, which name nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from murk.monitoring.metrics.catalogue import Metric
from murk.monitoring.metrics.exporter import Exporter, Sample
from murk.stream.messages.codec import REASONS

if TYPE_CHECKING:
    from murk.gateway.appending import Appending


class GatewayMetrics(Exporter):
    """Export a gateway's sums since its start to a new ``registry``; ``requests`` counts answered ones by status."""

    side = "gateway"

    def __init__(self, task: str, appending: Appending, requests: Mapping[int, int]) -> None:
        self._appending = appending
        self._requests = requests
        super().__init__(task)

    def _values(self) -> Callable[[Metric], Iterable[Sample]]:
        return lambda metric: _VALUES[metric.name](self._appending, dict(self._requests))


_VALUES: Mapping[str, Callable[[Appending, Mapping[int, int]], Iterable[Sample]]] = {
    "murk_gateway_releases_total": lambda appending, requests: [Sample((), appending.counts.accepted)],
    "murk_gateway_refusals_total": lambda appending, requests: [
        Sample((reason,), appending.counts.refused[reason]) for reason in REASONS
    ],
    "murk_gateway_requests_total": lambda appending, requests: [
        Sample((str(status),), count) for status, count in sorted(requests.items())
    ],
    "murk_gateway_waiting_releases": lambda appending, requests: [Sample((), appending.waiting)],
    "murk_gateway_log_reachable": lambda appending, requests: [Sample((), float(appending.trouble is None))],
}
