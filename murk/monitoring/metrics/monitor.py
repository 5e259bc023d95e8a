"""Values of the monitor's metrics, from a snapshot."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from murk.inference.prediction_sets import PredictionSets
from murk.inference.units import POINTS, coded_unit, units
from murk.monitoring.metrics.catalogue import METRICS
from murk.monitoring.metrics.exporter import RESULTS, Histogram, Value, bucketed
from murk.monitoring.snapshot import Snapshot
from murk.stream.wire.codec import REASONS
from murk.stream.wire.state import LEVEL


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
