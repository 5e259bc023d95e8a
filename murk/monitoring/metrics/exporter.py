"""Prometheus metrics of the catalogue; counters are copied from states, so that none is lost or counted twice."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from murk.errors import UserError
from murk.learners.estimates.sets import PredictionSets
from murk.learners.estimates.units import coded_unit, units
from murk.monitoring.metrics.catalogue import METRICS, Metric, Side
from murk.monitoring.snapshot import Snapshot
from murk.stream.messages.codec import REASONS
from murk.stream.messages.state import LEVEL

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client import Metric as Family

LEARNED, DUPLICATE, DEAD = RESULTS = ("learned", "duplicate", "dead")
"""Values of the label ``result`` of ``murk_releases_total``."""


class Sample(NamedTuple):
    """A value with the values of its labels, except the task, in the order of the catalogue."""

    labels: tuple[str, ...]
    value: float


class Histogram(NamedTuple):
    """Non-cumulative counts of a histogram's buckets, the last beyond all bounds, and the sum of values."""

    counts: Sequence[int]
    total: float


def new_registry() -> CollectorRegistry:
    """Return a new registry without the global one's metrics; raise `UserError` if prometheus_client is missing."""
    try:
        from prometheus_client import CollectorRegistry
    except ModuleNotFoundError:
        raise UserError(
            'the monitor needs the package prometheus-client: install it with pip install "murk[monitor]"',
            code="MURK-CLI-003",
        ) from None
    return CollectorRegistry(auto_describe=False)


Values = Callable[[Metric], Iterable[Sample | Histogram]]
"""Function that returns a metric's current values."""


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
        """Return a function that returns a metric's current values."""


def families(side: Side, tasks: Mapping[str, Values]) -> Iterator[Family]:
    """Return the metrics of one side, each with the values of all tasks."""
    return (
        family(metric, {task: values(metric) for task, values in tasks.items()})
        for metric in METRICS
        if metric.side == side
    )


def family(metric: Metric, tasks: Mapping[str, Iterable[Sample | Histogram]]) -> Family:
    """Return a metric for prometheus_client with its values by task, without values that are not finite."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
    from prometheus_client.utils import floatToGoString

    found = ((task, value) for task, values in tasks.items() for value in values)
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        bounds = [floatToGoString(bound) for bound in (*metric.buckets, math.inf)]  # type: ignore[no-untyped-call]
        for task, value in found:
            assert isinstance(value, Histogram)
            histogram.add_metric([task], list(zip(bounds, accumulate(value.counts), strict=True)), value.total)
        return histogram
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    plain = kind(metric.name, metric.help, labels=metric.labels)
    for task, value in found:
        assert isinstance(value, Sample)
        if math.isfinite(value.value):
            plain.add_metric([task, *value.labels], value.value)
    return plain


def bucketed(metric: Metric, weighted: Iterable[tuple[float, int]]) -> Histogram:
    """Count pairs (value, count) into a metric's buckets; a bucket includes its upper bound."""
    counts = [0] * (len(metric.buckets) + 1)
    total = 0.0
    for value, count in weighted:
        counts[sum(bound < value for bound in metric.buckets)] += count
        total += value * count
    return Histogram(counts, total)


def _alone(value: float | None) -> tuple[Sample, ...]:
    return () if value is None else (Sample((), value),)


def _chains(name: str) -> Callable[[Snapshot], Iterable[Sample]]:
    def samples(snapshot: Snapshot) -> Iterable[Sample]:
        found = [(chain.chain, getattr(chain, name)) for chain in snapshot.figures.chains]
        return [Sample((str(chain),), value) for chain, value in found if value is not None]

    return samples


def _promises(name: str) -> Callable[[Snapshot], Iterable[Histogram]]:
    metric = next(metric for metric in METRICS if metric.name == f"murk_release_{name}")

    def samples(snapshot: Snapshot) -> Iterable[Histogram]:
        stated = [(getattr(level, name), level.learned) for level in snapshot.figures.levels]
        pairs = [(value, learned) for value, learned in stated if value is not None]
        return (bucketed(metric, pairs),) if pairs else ()

    return samples


def _by_result(s: Snapshot) -> Iterable[Sample]:
    found = s.figures
    counts = (found.releases, found.duplicates, sum(found.dead.values()))
    return [Sample((result,), count) for result, count in zip(RESULTS, counts, strict=True)]


def _ages(s: Snapshot) -> Iterable[Histogram]:
    ages = s.figures.staleness
    return () if ages is None else (Histogram(ages, s.figures.staleness_sum),)


def _by_name(s: Snapshot, values: Sequence[float], *level: str) -> Iterable[Sample]:
    return [Sample((name, *level), value) for name, value in zip(s.figures.names, values, strict=True)]


def _means(s: Snapshot, values: Sequence[float], *, shifted: bool = False) -> Iterable[Sample]:
    """Return a mean or shares in the target's own units, or half-widths of them, named by what they are."""
    known = {} if s.task.features else units(s.task)
    return [
        Sample((unit.label,), unit.factor * value + unit.shift * shifted)
        for unit, value in zip(known.values(), values if known else (), strict=True)
    ]


def _known_sets(s: Snapshot) -> list[PredictionSets]:
    sets = s.figures.sets
    return [] if sets is None or not sets.known else [sets]


VALUES: Mapping[str, Callable[[Snapshot], Iterable[Sample | Histogram]]] = {
    "murk_releases_total": _by_result,
    # All reasons from the start: Prometheus misses the first event of a counter that appears with it.
    "murk_dead_letters_total": lambda s: [
        Sample((reason,), s.figures.dead.get(reason, 0)) for reason in dict.fromkeys((*REASONS, *s.figures.dead))
    ],
    "murk_duplicates_total": lambda s: _alone(s.figures.duplicates),
    "murk_lag_releases": _chains("lag"),
    "murk_model_version": _chains("version"),
    "murk_staleness_releases": _ages,
    "murk_parameter": lambda s: _by_name(s, s.figures.values),
    "murk_parameter_half_width": lambda s: _by_name(s, s.figures.half_widths, f"{LEVEL:g}"),
    "murk_parameter_sequence_half_width": lambda s: _by_name(s, s.figures.sequence_half_widths, f"{LEVEL:g}"),
    "murk_parameter_known_within": lambda s: [Sample((name,), half) for name, half in s.known_within.items()],
    "murk_contrast_e_value": lambda s: [
        Sample((each.name,), each.e_value) for each in s.figures.contrasts if each.e_value is not None
    ],
    "murk_prediction_coverage": lambda s: [
        Sample((end,), value) for sets in _known_sets(s) for end, value in sets.ends().items()
    ],
    "murk_prediction_threshold": lambda s: [Sample((), coded_unit(s.task) * sets.threshold) for sets in _known_sets(s)],
    "murk_prediction_answers": lambda s: _alone(None if s.figures.sets is None else s.figures.sets.answers),
    "murk_mean": lambda s: _means(s, s.figures.values, shifted=True),
    "murk_mean_half_width": lambda s: _means(s, s.figures.shown_half_widths),
    "murk_parameter_error": lambda s: _alone(s.figures.parameter_error),
    "murk_estimated_error": lambda s: _alone(s.figures.estimated_error),
    "murk_estimate_releases": lambda s: _alone(s.figures.releases_used),
    "murk_drift_p_value": lambda s: _alone(None if s.figures.drift is None else s.figures.drift.p_value),
    "murk_parameter_change": lambda s: (
        [] if s.figures.drift is None else [Sample((name,), change) for name, change in s.figures.drift.changes.items()]
    ),
    "murk_public_covariates_alike": lambda s: _alone(None if s.figures.alike is None else float(s.figures.alike)),
    "murk_iterate_gap": _chains("iterate_gap"),
    "murk_step_size": _chains("step_size"),
    "murk_unbiased_loss": lambda s: _alone(s.figures.unbiased_loss),
    "murk_unbiased_loss_error": lambda s: _alone(s.figures.unbiased_loss_error),
    "murk_refused_updates_total": _chains("refused_updates"),
    "murk_release_epsilon": _promises("epsilon"),
    "murk_release_mu": _promises("mu"),
    "murk_last_release_timestamp_seconds": lambda s: _alone(s.grown),
    "murk_log_reachable": lambda s: _alone(float(s.healthy)),
}
"""Values of the monitor's metrics, by name."""
