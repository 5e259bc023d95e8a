"""Health and metrics of a learner process."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from email.message import Message
from functools import partial
from typing import TYPE_CHECKING

from murk.monitoring.metrics.catalogue import Metric
from murk.monitoring.metrics.exporter import DEAD, DUPLICATE, LEARNED, Exporter, Sample
from murk.monitoring.web.routes import metrics
from murk.monitoring.web.server import Response, Route, text
from murk.stream.worker.pool import ChainVitals, Pulse, Vitals

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

STALLED = 60.0
"""Seconds without a step after which a learner is unhealthy."""


class LearnerMetrics(Exporter):
    """Export the pulse of a learner of a task; by default to a new registry, the attribute ``registry``.

    Examples
    --------
    >>> pulse = Pulse()
    >>> pulse.owns(1, version=10, offset=12)
    >>> metrics = LearnerMetrics("third-child", pulse)
    >>> metrics.registry.get_sample_value("murk_learner_owned_chains", {"task": "third-child"})
    1.0
    """

    side = "learner"

    def __init__(self, task: str, pulse: Pulse, *, registry: CollectorRegistry | None = None) -> None:
        self._pulse = pulse
        super().__init__(task, registry)

    def _values(self) -> Callable[[Metric], Iterable[Sample]]:
        vitals = self._pulse.vitals()
        return lambda metric: _VALUES[metric.name](vitals)


def unhealthy_reason(vitals: Vitals, now: float) -> str | None:
    """Return why a learner is unhealthy, or None; a learner without chains is healthy."""
    if vitals.trouble is not None:
        return vitals.trouble
    silent = now - vitals.stepped
    return f"no step for {silent:.0f} s" if silent > STALLED else None


def learner_routes(exported: LearnerMetrics, pulse: Pulse, clock: Callable[[], float] = time.time) -> dict[str, Route]:
    """Return ``/metrics``, and ``/healthz``, which answers 503 with the reason while the learner is unhealthy."""

    def healthz(headers: Message) -> Response:
        reason = unhealthy_reason(pulse.vitals(), clock())
        return text(200, "ok") if reason is None else text(503, reason)

    return {"/metrics": partial(metrics, exported.registry), "/healthz": healthz}


def _by_result(vitals: Vitals) -> Iterable[Sample]:
    counts = {LEARNED: vitals.learned, DUPLICATE: vitals.duplicates, DEAD: vitals.dead}
    return [Sample((result,), count) for result, count in counts.items()]


def _chains(value: Callable[[ChainVitals], float | None]) -> Callable[[Vitals], Iterable[Sample]]:
    def samples(vitals: Vitals) -> Iterable[Sample]:
        found = ((chain, value(one)) for chain, one in sorted(vitals.chains.items()))
        return [Sample((str(chain),), one) for chain, one in found if one is not None]

    return samples


_VALUES: Mapping[str, Callable[[Vitals], Iterable[Sample]]] = {
    "murk_learner_owned_chains": lambda vitals: [Sample((), float(len(vitals.chains)))],
    "murk_learner_messages_total": _by_result,
    "murk_learner_lag_releases": _chains(lambda chain: chain.lag),
    "murk_learner_last_commit_timestamp_seconds": _chains(lambda chain: chain.committed),
    "murk_learner_log_reachable": lambda vitals: [Sample((), float(vitals.trouble is None))],
}
