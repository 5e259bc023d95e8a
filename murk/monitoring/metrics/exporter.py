"""Prometheus metrics of the catalogue; counters are copied from states, so that none is lost or counted twice."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple

from murk._internal.extras import missing_extra
from murk.errors import UserError
from murk.inference.prediction_sets import PredictionSets
from murk.inference.units import POINTS, coded_unit, units
from murk.monitoring.metrics.catalogue import METRICS, Metric, Side
from murk.monitoring.snapshot import Snapshot
from murk.stream.wire.codec import REASONS
from murk.stream.wire.state import LEVEL

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


def _partitions(name: str) -> Callable[[Snapshot], Value]:
    return lambda s: {str(partition.partition): getattr(partition, name) for partition in s.figures.partitions}


def _promises(name: str) -> Callable[[Snapshot], Value]:
    metric = next(metric for metric in METRICS if metric.name == f"murk_release_{name}")

    def value(s: Snapshot) -> Value:
        stated = [(getattr(level, name), level.learned) for level in s.figures.levels]
        pairs = [(value, learned) for value, learned in stated if value is not None]
        return bucketed(metric, pairs) if pairs else None

    return value


def _by_result(s: Snapshot) -> Value:
    figures = s.figures
    return dict(zip(RESULTS, (figures.releases, figures.duplicates, sum(figures.dead.values())), strict=True))


def _ages(s: Snapshot) -> Value:
    ages = s.figures.staleness
    return None if ages is None else Histogram(ages, s.figures.staleness_sum)


def _by_name(s: Snapshot, values: Sequence[float], *level: str) -> Value:
    return {(name, *level): value for name, value in zip(s.figures.names, values, strict=True)}


def _means(s: Snapshot, values: Sequence[float], *, shifted: bool = False) -> Value:
    """Return a mean or shares in the target's own units (or, not ``shifted``, their half-widths) by label."""
    if s.task.features:
        return None
    in_units = zip(units(s.task).values(), values, strict=True)
    # By Prometheus' convention, metrics have shares from 0 to 1.
    percent = POINTS if s.task.target.kind != "real" else 1.0
    return {unit.label: (unit.factor * value + unit.shift * shifted) / percent for unit, value in in_units}


_MOST_WINDOWS: Final = 12  # number of newest windows that are exported; each window is a series for each coefficient


def _by_window(s: Snapshot, kind: Literal["values", "half_widths"]) -> Value:
    track = s.figures.track
    if track is None:
        return None
    newest = range(max(0, len(track.numbers) - _MOST_WINDOWS), len(track.numbers))
    return {
        (name, track.begins[row], of): float(getattr(path, kind)[row, column])
        for of, path in (("window", track.alone), ("path", track.path))
        for row in newest
        for column, name in enumerate(track.names)
    }


def _effects(s: Snapshot) -> Value:
    """Return the average effects of contrasts that have an interval, with its ends."""
    percent = POINTS if s.task.target.kind != "real" else 1.0
    effects = ((each.name, each.average_effect, each.average_effect_interval) for each in s.figures.contrasts)
    return {
        (name, end): number / percent
        for name, effect, interval in effects
        if effect is not None and interval is not None and math.isfinite(sum(interval))
        for end, number in zip(("low", "estimate", "high"), (interval[0], effect, interval[1]), strict=True)
    }


def _known_sets(s: Snapshot) -> PredictionSets | None:
    sets = s.figures.sets
    return sets if sets is not None and sets.known else None


VALUES: Mapping[str, Callable[[Snapshot], Value]] = {
    "murk_releases_total": _by_result,
    # Export all reasons from the start: if a counter appears with its first event, Prometheus does not see that event.
    "murk_dead_letters_total": lambda s: dict.fromkeys(REASONS, 0) | dict(s.figures.dead),
    "murk_duplicates_total": lambda s: s.figures.duplicates,
    "murk_lag_releases": _partitions("lag"),
    "murk_model_version": _partitions("version"),
    "murk_staleness_releases": _ages,
    "murk_parameter": lambda s: _by_name(s, s.figures.values),
    "murk_parameter_half_width": lambda s: _by_name(s, s.figures.half_widths, f"{LEVEL:g}"),
    "murk_parameter_sequence_half_width": lambda s: _by_name(s, s.figures.sequence_half_widths, f"{LEVEL:g}"),
    "murk_parameter_known_within": lambda s: s.known_within,
    "murk_contrast_e_value": lambda s: {each.name: each.e_value for each in s.figures.contrasts},
    "murk_contrast_effect": _effects,
    "murk_prediction_coverage": lambda s: sets.ends() if (sets := _known_sets(s)) else None,
    "murk_prediction_threshold": lambda s: coded_unit(s.task) * sets.threshold if (sets := _known_sets(s)) else None,
    "murk_prediction_answers": lambda s: s.figures.sets.answers if s.figures.sets else None,
    "murk_mean": lambda s: _means(s, s.figures.values, shifted=True),
    "murk_mean_half_width": lambda s: _means(s, s.figures.shown_half_widths),
    "murk_window_parameter": lambda s: _by_window(s, "values"),
    "murk_window_half_width": lambda s: _by_window(s, "half_widths"),
    "murk_parameter_error": lambda s: s.figures.parameter_error,
    "murk_estimated_error": lambda s: s.figures.estimated_error,
    "murk_estimate_releases": lambda s: s.figures.releases_used,
    "murk_drift_p_value": lambda s: s.figures.drift.p_value if s.figures.drift else None,
    "murk_parameter_change": lambda s: s.figures.drift.changes if s.figures.drift else None,
    "murk_public_covariates_alike": lambda s: s.figures.alike,
    "murk_iterate_gap": _partitions("iterate_gap"),
    "murk_step_size": _partitions("step_size"),
    "murk_unbiased_loss": lambda s: s.figures.unbiased_loss,
    "murk_unbiased_loss_error": lambda s: s.figures.unbiased_loss_error,
    "murk_refused_updates_total": _partitions("refused_updates"),
    "murk_release_epsilon": _promises("epsilon"),
    "murk_release_mu": _promises("mu"),
    "murk_last_release_timestamp_seconds": lambda s: s.grown,
    "murk_log_reachable": lambda s: s.healthy,
}
"""Values of the monitor's metrics, by name."""
