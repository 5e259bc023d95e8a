"""Metrics of a gateway: sums over releases and requests, which name nobody."""

from collections.abc import Mapping

from murk.gateway.appending import Appending
from murk.monitoring.metrics.exporter import Exporter, Values
from murk.stream.messages.codec import REASONS


class GatewayMetrics(Exporter):
    """Export a gateway's sums since its start to a new ``registry``; ``requests`` counts answered ones by status."""

    side = "gateway"

    def __init__(self, task: str, appending: Appending, requests: Mapping[int, int]) -> None:
        self._appending, self._requests = appending, requests
        super().__init__(task)

    def _values(self) -> Values:
        counts = self._appending.counts
        return {
            "murk_gateway_releases_total": counts.accepted,
            "murk_gateway_refusals_total": {reason: counts.refused[reason] for reason in REASONS},
            "murk_gateway_requests_total": {str(status): n for status, n in sorted(dict(self._requests).items())},
            "murk_gateway_waiting_releases": self._appending.waiting,
            "murk_gateway_log_reachable": self._appending.trouble is None,
        }
