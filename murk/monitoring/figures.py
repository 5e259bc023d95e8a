"""Figures of a task's learning: pure functions of committed states and public settings."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, Self

from murk._internal.arrays import Floats
from murk._internal.lazy import bounding
from murk.inference.confidence_sequences import Looks, looks_of, why_no_sequence
from murk.inference.contrasts import Contrast, contrasts
from murk.inference.drift import CurvePoint, Drift, merged_curve
from murk.inference.estimate import Estimate
from murk.inference.experiments import Experiment, experiment
from murk.inference.prediction_sets import PredictionSets
from murk.inference.track import Track
from murk.monitoring.metrics.catalogue import STALENESS_BOUNDS
from murk.privacy import ApproxDP, GaussianDP, Guarantee, PureDP, ZeroConcentratedDP
from murk.privacy.central import GaussMixMechanism, GramMechanism, NewtonMechanism
from murk.privacy.central.explain import described
from murk.privacy.mechanisms import Costed
from murk.privacy.mechanisms.costs import really_given
from murk.protocols.device import Device, loaded_state_arithmetic
from murk.protocols.drift import drift_of
from murk.protocols.windows import track_of
from murk.results.diagnosis import diagnose_task
from murk.stream.wire.state import LEVEL, Counters, History, StateMessage
from murk.task.protocols.registry import PROTOCOLS
from murk.task.shuffling import COLLUDING
from murk.task.task import Task

_FORECAST_GROWTH = 1.25  # growth of the releases after which the needed releases are forecast again
# Share of new releases after which intervals for every look are computed again: older ones are valid, but wider.
_SEQUENCE_SHARE = 0.01
_DRIFT_SHARE = 0.02  # share of new releases after which drift is tested again


class Needed(NamedTuple):
    """Forecast of what it takes to learn further coefficients, and the number of releases when it was made."""

    releases: int = 0
    of: Mapping[str, Mapping[str, Any]] = {}
    why: str = ""


_NOTHING_NEEDED = Needed()


class Place(NamedTuple):
    """Committed offset, end offset and owner (if known) of a partition."""

    offset: int
    end: int
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class LevelFigures:
    """A privacy level of the task and the number of releases learned at it."""

    name: str
    words: str
    guarantee: Mapping[str, Any]
    epsilon: float | None  # epsilon of a pure or approximate guarantee, else None
    mu: float | None  # mu of a Gaussian guarantee, or sqrt(2 rho), else None
    right_at_most: float
    learned: int


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    """Figures of a partition; those that the protocol's learner does not provide are None."""

    # number of the partition, and of releases that it has learned
    partition: int
    version: int
    # committed offset, number of further messages, and owner if known
    offset: int
    lag: int
    owner: str | None
    iterate_gap: float | None = None  # Euclidean distance between the newest iterate and the average, in coded units
    step_size: float | None = None  # factor of the next gradient at the default level
    # unbiased estimate of the mean loss of its releases, and its standard error
    unbiased_loss: float | None = None
    unbiased_loss_error: float | None = None
    refused_updates: float | None = None  # releases whose update was not finite or not plausible, and was left out
    records: float | None = None  # records in its releases, if a release contains several


@dataclass(frozen=True, slots=True)
class Figures:
    """All figures of a task at one moment."""

    # messages read: learned, duplicates, and dead letters by reason
    releases: int
    duplicates: int
    dead: Mapping[str, int]
    # learned releases by age, one bucket for each of `STALENESS_BOUNDS` and one beyond; and the sum of ages. None if
    # the protocol's releases do not become stale.
    staleness: tuple[int, ...] | None
    staleness_sum: int
    levels: tuple[LevelFigures, ...]
    partitions: tuple[PartitionFigures, ...]
    # coefficients of all partitions together, in coded units; their half-widths for one look and for every look,
    # infinite while unknown
    names: tuple[str, ...]
    values: tuple[float, ...]
    half_widths: tuple[float, ...]
    sequence_half_widths: tuple[float, ...]
    looks: Looks  # the looks for which displayed intervals hold
    # method of the intervals and a note on them
    method: str
    note: str
    estimated_error: float  # root of the summed squared standard errors of the coefficients; infinite while unknown
    parameter_error: float | None  # Euclidean distance from the reference; None without one
    curve: tuple[CurvePoint, ...] = ()  # history of the estimate from the partitions' states
    # unbiased estimate of the mean loss over all partitions, and its standard error; None while unknown
    unbiased_loss: float | None = None
    unbiased_loss_error: float | None = None
    alike: bool | None = None  # whether releases do not contradict the public covariates; None without a check
    needed: Needed = _NOTHING_NEEDED  # what it would take to learn the coefficients not learned so far
    releases_used: int = 0  # releases that the estimate uses, without forgotten ones
    drift: Drift | None = None  # test for a change of the coefficients; None without standard errors
    contrasts: tuple[Contrast, ...] = ()  # comparisons of categories that the task asks for
    sets: PredictionSets | None = None  # prediction sets; None if the task does not ask about them
    sequence_count: int = 0  # number of releases (or records) at which sequences and contrasts were computed
    track: Track | None = None  # estimates by window; None if the task asks for none
    experiment: Experiment | None = None  # lifts of arms; None if the task has no arms, or before the first release

    @property
    def shown_half_widths(self) -> tuple[float, ...]:
        """Half-widths of the displayed intervals."""
        return self.half_widths if self.looks.validity == "fixed-n" else self.sequence_half_widths

    @property
    def shown_contrasts(self) -> tuple[Contrast, ...]:
        """Contrasts that a task states, without those of an experiment's arms, which have lifts."""
        return self.contrasts if self.experiment is None else self.contrasts[len(self.experiment.lifts) :]

    @property
    def lag(self) -> int:
        """Offsets not committed yet, over all partitions."""
        return sum(partition.lag for partition in self.partitions)

    @property
    def mean_staleness(self) -> float | None:
        """Mean age of the learned gradients; None before the first one."""
        counted = sum(self.staleness or ())
        return self.staleness_sum / counted if counted else None

    @property
    def refused_updates(self) -> float | None:
        """Updates left out, over all partitions; None if the learner refuses none."""
        return _sum(partition.refused_updates for partition in self.partitions)

    @property
    def records(self) -> float | None:
        """Records in the learned releases, over all partitions; None if each release contains one."""
        return _sum(partition.records for partition in self.partitions)

    def placed(self, places: Sequence[Place]) -> Self:
        """Return the figures with new offsets and owners."""
        partitions = tuple(
            replace(partition, offset=index.offset, lag=max(0, index.end - index.offset), owner=index.owner)
            for partition, index in zip(self.partitions, places, strict=True)
        )
        return replace(self, partitions=partitions)


def figures(
    task: Task,
    device: Device,
    messages: Sequence[StateMessage | None],
    places: Sequence[Place],
    reference: Mapping[str, float] | None = None,
    before: Figures | None = None,
) -> Figures:
    """Compute all figures from a state message (or None) and a `Place` for each partition.

    Slow parts are taken from ``before``, the figures of earlier states, while few releases are new. Raises `MurkError`
    for a state of a learner with other settings.
    """
    engines = []
    for message in messages:
        engine = device.engine()
        if message is not None:
            engine.load_state_dict(message.learner)
        engines.append(engine)
    counters = [Counters() if message is None else message.counters for message in messages]
    histories = [History() if message is None else message.history for message in messages]
    with loaded_state_arithmetic():
        estimate = device.estimate(engines)
        partitions = tuple(
            PartitionFigures(i, each.n_releases, 0, 0, None, **each.figures()) for i, each in enumerate(engines)
        )
        curve = merged_curve(histories, len(estimate.names), estimate.method)
        records = _sum(partition.records for partition in partitions)
        looks = looks_of(task, estimate, estimate.releases_used if records is None else int(records), live=True)
        halves = tuple(map(float, estimate.half_widths(looks.fixed(LEVEL))))
        kept = before if before is not None and _keeps(before, looks, halves, estimate.alike) else None
        sequence = _sequence(task, estimate, looks) if kept is None else kept.sequence_half_widths
        nominal, shown = (
            (looks.fixed(LEVEL), halves) if looks.validity == "fixed-n" else (looks.nominal(LEVEL), sequence)
        )
        needed = _needed(task, estimate, shown, nominal, looks, None if before is None else before.needed)
        compared = kept.contrasts if kept is not None else ()
        if kept is None and estimate.n_releases:
            compared = contrasts(task, estimate, looks, LEVEL, arms=True)
        arms = experiment(task, estimate, looks, LEVEL) if estimate.n_releases else None
        drift = None
        if looks.repeats.most == 1:
            drift = _drift(device, engines, estimate, curve, None if before is None else before.drift)
        track = None if kept is None else kept.track
        if track is None:
            track = track_of(task, device, engines, LEVEL)
    loss, loss_error = _unbiased_loss(partitions)
    dead, learned = Counter[str](), Counter[str]()
    for each in counters:
        dead.update(each.dead)
        learned.update(each.levels)
    levels = task.privacy.levels
    # Of a grid, the default, lowest and highest levels, and those of learned releases.
    shown_levels = bounding(levels).keys() | learned.keys()
    return Figures(
        releases=sum(each.learned for each in counters),
        duplicates=sum(each.duplicates for each in counters),
        dead=dict(sorted(dead.items())),
        staleness=_ages(counters) if PROTOCOLS[task.protocol].reads_staleness else None,
        staleness_sum=sum(each.staleness_sum for each in counters),
        levels=tuple(
            _level(name, levels[name], device.mechanisms[name], learned[name], task)
            for name in levels
            if name in shown_levels
        ),
        partitions=partitions,
        names=estimate.names,
        values=tuple(map(float, estimate.values)),
        half_widths=halves,
        sequence_half_widths=sequence,
        looks=looks,
        method=estimate.method,
        note=estimate.note,
        estimated_error=estimate.standard_error,
        parameter_error=None if reference is None else distance(estimate.names, estimate.values, reference),
        curve=curve,
        unbiased_loss=loss,
        unbiased_loss_error=loss_error,
        alike=estimate.alike,
        needed=needed,
        releases_used=estimate.releases_used,
        drift=drift,
        contrasts=compared,
        sets=estimate.sets,
        track=track,
        experiment=arms,
        sequence_count=looks.count if kept is None else kept.sequence_count,
    ).placed(places)


def _keeps(before: Figures, looks: Looks, halves: Sequence[float], alike: bool | None) -> bool:
    """Return whether sequences of ``before`` can be reused: releases hardly grew, and intervals are no wider."""
    return (
        0 <= looks.count - before.sequence_count < _SEQUENCE_SHARE * before.sequence_count
        and looks.validity == before.looks.validity
        and alike == before.alike
        and all(now <= then for now, then in zip(halves, before.half_widths, strict=True))
    )


def _sequence(task: Task, found: Estimate, looks: Looks) -> tuple[float, ...]:
    """Return half-widths of confidence sequences; infinite where there are none."""
    if why_no_sequence(task, found):
        return (math.inf,) * len(found.names)
    return tuple(map(float, found.half_widths(replace(looks, validity="always-valid").nominal(LEVEL))))


def _needed(
    task: Task, found: Estimate, halves: Sequence[float], nominal: float, looks: Looks, before: Needed | None
) -> Needed:
    """Forecast what it would take to learn further coefficients, or reuse the previous forecast."""
    if not found.forecasts or not found.n_releases:
        return _NOTHING_NEEDED
    unknown = {name for name, half in zip(found.names, halves, strict=True) if not math.isfinite(half)}
    if before is not None and unknown == before.of.keys() and found.n_releases < _FORECAST_GROWTH * before.releases:
        return before
    needs = {name: need.to_dict() for name, need in (found.needs(nominal) if unknown else {}).items()}
    report = {
        "confidence_intervals": found.intervals(nominal),
        "interval": {"level": LEVEL, "nominal_level": nominal, "looks": looks.to_dict(LEVEL)},
        "not_learned": list(needs),
        "needed": needs,
        "releases": found.n_releases,
        "levels": {name: {"guarantee": each.to_dict()} for name, each in bounding(task.privacy.levels).items()},
    }
    why = diagnose_task(task, report, found)
    return Needed(found.n_releases, needs, why["words"] if why else "")


def _drift(
    device: Device, engines: Sequence[Any], found: Estimate, curve: Sequence[CurvePoint], before: Drift | None
) -> Drift | None:
    added = 0 if before is None else found.n_releases - before.releases
    if before is not None and before.compared and 0 <= added < _DRIFT_SHARE * found.releases_used:
        return before
    return drift_of(device, engines, found, curve)


def _ages(counters: Sequence[Counters]) -> tuple[int, ...]:
    ages = [0] * (len(STALENESS_BOUNDS) + 1)
    for each in counters:
        for bits, count in enumerate(each.staleness):
            ages[min(bits, len(STALENESS_BOUNDS))] += count
    return tuple(ages)


@lru_cache(maxsize=1024)
def _in_words(guarantee: Guarantee) -> tuple[str, float]:
    """Return a guarantee in words and an attacker's largest share of right guesses, which are slow to compute."""
    return guarantee.describe(), guarantee.max_attack_accuracy


def _level(name: str, guarantee: Guarantee, mechanism: Costed, learned: int, task: Task) -> LevelFigures:
    central = None if task.shuffle is None else task.shuffle.promised(guarantee)
    guarantee = really_given(guarantee, mechanism.guarantees)
    epsilon = guarantee.epsilon if isinstance(guarantee, PureDP | ApproxDP) else None
    mu = guarantee.mu if isinstance(guarantee, GaussianDP) else None
    if isinstance(guarantee, ZeroConcentratedDP):
        mu = math.sqrt(2.0 * guarantee.rho)
    words, right = _in_words(guarantee)
    if isinstance(mechanism, GaussMixMechanism | GramMechanism | NewtonMechanism):
        # The guarantee compares a record with a blank one; the accuracy compares two records.
        words, pair = described(mechanism)
        right = pair.max_attack_accuracy
    if central is not None:
        words = f"{COLLUDING}: {words}. {central.describe()}"
    if task.known_columns:
        words += f" {task.known_words}"
    return LevelFigures(name, words, guarantee.to_dict(), epsilon, mu, right, learned)


def _unbiased_loss(partitions: Sequence[PartitionFigures]) -> tuple[float | None, float | None]:
    """Return the mean loss over partitions, weighted by releases, and its standard error."""
    parts = [
        (partition, partition.unbiased_loss)
        for partition in partitions
        if partition.version and partition.unbiased_loss is not None
    ]
    total = sum(partition.version for partition, _ in parts)
    if not total:
        return None, None
    loss = sum(partition.version * loss for partition, loss in parts) / total
    # The error of a single release is unknown, not zero.
    errors = [partition.unbiased_loss_error or math.inf for partition, _ in parts]
    error = math.hypot(*(partition.version * one for (partition, _), one in zip(parts, errors, strict=True))) / total
    return loss, error if math.isfinite(error) else None


def _sum(values: Iterable[float | None]) -> float | None:
    stated = [value for value in values if value is not None]
    return sum(stated) if stated else None


def distance(names: Sequence[str], values: Sequence[float] | Floats, reference: Mapping[str, float]) -> float:
    """Return the Euclidean distance of coefficients from the reference."""
    return math.dist(values, [reference[name] for name in names])
