r"""Experiments: lifts of arms against a control, and whether the arms' counts contradict their shares.

A lift is the effect of an arm by least squares, adjusted for the other columns that are sent without noise. It is
stated absolutely, and relative to the control's mean M with Fieller's interval: all ratios r at which ``D - r M`` is at
most z standard errors from 0, for the difference D. Several arms share the error probability, and so do arms in all
segments (Bonferroni): intervals, p-values and e-values are adjusted. Verdicts (`Experiment.stop`, the guard rail) hold
at every look, even if the intervals hold at one look only. A segment's lift is the difference of its people's means.

Arms are sent without noise. Their counts are tested by a mixture of multinomial distributions with a Dirichlet prior of
1,000 times the stated shares: an exact e-value, which is valid at every look.

The mean numerator and denominator of a ratio are of different people, drawn at random from the same arm. Its lift is
the difference of two arms' ratios, and is not adjusted. Each arm's ratio has Fieller's interval, and MOVER combines two
intervals into that of the difference: at ratios a and b of intervals (l, u) and (m, v) it ends at ``a - b - sqrt((a -
l)^2 + (v - b)^2)`` and ``a - b + sqrt((u - a)^2 + (b - m)^2)``. The relative lift is that of the logarithms.

Sources: Fieller, "Some problems in interval estimation", 1954; Lindon and Malek, "Anytime-valid inference for
multinomial count data", 2022; Zou and Donner, "Construction of confidence limits about effect measures: a general
approach", 2008 (MOVER).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.numbers import many, number, span
from murk.inference.average_effects import combined_half_widths
from murk.inference.confidence_sequences import Looks, evidence
from murk.inference.contrasts import errors_from_zero, weights_of
from murk.inference.estimate import Estimate
from murk.inference.known_columns import CellMeans, KnownEstimate, cells_of
from murk.inference.levels import quantile_of
from murk.inference.units import POINTS
from murk.task.experiment import RatioBlock
from murk.task.features import CategoryFeature, Feature, RealTarget, Target
from murk.task.learning import ContrastBlock
from murk.task.task import Task

Interval = tuple[float, float]

CONCENTRATION: Final = 1_000.0  # sum of the Dirichlet prior's parameters
FEWEST: Final = 100  # least number of people in an arm for an interval of its share of missing targets
ALARM: Final = 1_000.0  # e-value from which the arms' counts contradict the shares
UNLIKELY: Final = 20.0  # e-value of arms' counts that at most 5% of streams with the stated shares ever reach


@dataclass(frozen=True)
class Lift:
    """The difference of an arm from the control; ends of intervals are infinite where unknown."""

    arm: str
    value: float  # in percentage points of a probability, or in the target's units
    interval: Interval
    fixed_interval: Interval  # for one planned look
    relative: float  # in percent of the control's mean; NaN unless that mean is surely positive
    relative_interval: Interval
    p_value: float | None  # p-value of no difference in any arm, valid at every look; None if people may answer again
    e_value: float | None
    verdict: str  # at every look: "higher", "lower", or "open"
    attrition: float | None  # difference of the shares of missing targets, in points; None if every person has one
    attrition_interval: Interval | None
    guardrail: str | None  # "safe", "harmed" or "open"; None without a guard rail


@dataclass(frozen=True)
class SegmentLift:
    """The difference of an arm from the control among the people of a segment; infinite ends where unknown."""

    segment: str  # such as "platform = ios"
    arm: str
    people: tuple[int, int]  # in the arm and in the control
    value: float
    interval: Interval  # simultaneous for all arms and segments


@dataclass(frozen=True)
class MetricLifts:
    """The lifts of all arms on a metric, or on a ratio of two; none before the first release of it."""

    name: str
    unit: str  # "points" of a probability, or the "units" of the metric or ratio
    control_mean: float  # in percent of a probability, or in the metric's units; or the control's ratio
    lifts: tuple[Lift, ...]
    adjusted: bool = True  # for the other known columns; ratios are not


@dataclass(frozen=True)
class Experiment:
    """The state of an experiment at a look."""

    control: str
    unit: str  # of lifts: "points" or "target units"
    level: float  # simultaneous level of the intervals
    people: Mapping[str, int]  # by arm
    unassigned: int  # people whose arm is missing or undeclared
    sample_ratio: float | None  # e-value that the arms' counts contradict their shares; None without shares
    control_mean: float  # in percent of a probability, or in the target's units
    lifts: tuple[Lift, ...]
    segments: tuple[SegmentLift, ...] = ()
    randomized: bool = True  # whether the task states that arms are assigned at random
    metrics: tuple[MetricLifts, ...] = ()  # of the metrics, and then of ratios, simultaneously

    @property
    def mismatch(self) -> bool:
        """Whether the counts of arms contradict their shares."""
        return self.sample_ratio is not None and self.sample_ratio >= ALARM

    @property
    def stop(self) -> str:
        """Reason to stop: "mismatch", "harmed", "effect", "safe", or "" for none."""
        if self.mismatch:
            return "mismatch"
        further = [lift for metric in self.metrics for lift in metric.lifts]
        rails = {lift.guardrail for lift in (*self.lifts, *further)} - {None}
        if "harmed" in rails:
            return "harmed"
        if any(lift.verdict != "open" for lift in self.lifts):
            return "effect"
        return "safe" if rails == {"safe"} else ""

    def words(self) -> list[str]:
        """Return what the experiment shows, in sentences."""
        if self.mismatch:
            why = f"The arms' counts contradict the stated shares (e = {self.sample_ratio:.3g})"
            return [f"{why}: find out why, as people in the arms may differ, before reading anything else."]
        found = []
        for lift in self.lifts:
            low, high = lift.interval
            empty = [arm for arm in (lift.arm, self.control) if not self.people[arm]]
            if empty:
                found.append(f"{lift.arm}: nobody is in {' and '.join(empty)} yet.")
            elif not math.isfinite(low + high):
                found.append(f"{lift.arm}: too few people with a target for an interval.")
            elif low > 0.0 or high < 0.0:
                found.append(self._difference(lift, "the target", self.unit))
            else:
                found.append(f"{lift.arm}: no difference shown; it lies within {span(low, high)} {self.unit}.")
            found += self._checks(lift, "")
        for metric in self.metrics:
            for lift in metric.lifts:
                if lift.interval[0] > 0.0 or lift.interval[1] < 0.0:
                    unit = metric.unit if metric.adjusted else f"{metric.unit} (not adjusted for known columns)"
                    found.append(self._difference(lift, metric.name, unit))
                found += self._checks(lift, f" of {metric.name}")
        return found

    @property
    def count_words(self) -> list[str]:
        """Sentences about the counts of arms: whether they fit the stated shares, and people without a declared arm."""
        found, e = [], self.sample_ratio
        if e is not None and not self.mismatch:
            say = "are unlikely by" if e >= UNLIKELY else "do not contradict"
            found.append(f"The arms' counts {say} the stated shares (e = {e:.3g}; alarm from {ALARM:,.0f}).")
        if self.unassigned:
            found.append(f"{many(self.unassigned, 'person', 'people')} had no declared arm: they count in no lift.")
        return found

    def curves(self) -> dict[str, tuple[float, float, float]]:
        """Return value and interval of each lift, by arm and metric, for a chart over time."""
        of_target = {lift.arm: (lift.value, *lift.interval) for lift in self.lifts}
        return of_target | {
            f"{lift.arm}, {metric.name}": (lift.value, *lift.interval)
            for metric in self.metrics
            for lift in metric.lifts
        }

    def _checks(self, lift: Lift, of_metric: str) -> list[str]:
        """Return sentences about missing targets and the guard rail of a lift."""
        sentences, interval = [], lift.attrition_interval
        if interval is not None and not interval[0] <= 0.0 <= interval[1]:
            more, less = (lift.arm, self.control) if interval[0] > 0.0 else (self.control, lift.arm)
            sentences.append(
                f"More targets{of_metric} are missing in {more} than in {less}, by "
                f"{span(*sorted(map(abs, interval)))} points: people with a target may differ between the arms."
            )
        rails = {
            "safe": f"{lift.arm}: the guard rail{of_metric} holds; the difference is within its margin.",
            "harmed": f"{lift.arm}: the guard rail{of_metric} is broken; the difference exceeds its margin.",
        }
        return [*sentences, rails[lift.guardrail]] if lift.guardrail in rails else sentences

    def _difference(self, lift: Lift, what: str, unit: str) -> str:
        low, high = lift.interval
        higher = low > 0.0
        ends = f"{span(low, high) if higher else span(-high, -low)} {unit}"
        if self.randomized:
            return f"{lift.arm} {'raises' if higher else 'lowers'} {what}, by {ends}."
        what = what[0].upper() + what[1:]
        return (
            f"{what} is {'higher' if higher else 'lower'} in {lift.arm} than in {self.control}, by {ends}. The task "
            "does not state that arms are assigned at random (experiment.assigned): this may not be their effect."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with the words."""
        conclusions = {"mismatch": self.mismatch, "stop": self.stop, "words": self.words()}
        return {**asdict(self), **conclusions, "count_words": self.count_words}


def log_ratio_evidence(counts: Sequence[int], shares: Sequence[float]) -> float:
    """Return the log e-value that counts contradict the shares of a multinomial distribution.

    >>> log_ratio_evidence([5_000, 5_000], [0.5, 0.5]) < 0 < log_ratio_evidence([5_300, 4_700], [0.5, 0.5])
    True
    """
    total = CONCENTRATION * sum(shares)
    log_e = math.lgamma(total) - math.lgamma(total + sum(counts))
    for count, share in zip(counts, shares, strict=True):
        prior = CONCENTRATION * share
        log_e += math.lgamma(prior + count) - math.lgamma(prior) - count * math.log(share)
    return log_e


def fieller(difference: float, mean: float, covariance: Floats, z: float) -> Interval:
    """Return the interval of ``difference / mean``, given their covariance (2, 2); infinite if the mean may be zero.

    >>> [round(end, 3) for end in fieller(1.0, 10.0, np.diag([0.25, 0.25]), 1.96)]
    [0.002, 0.2]
    """
    own, both, other = float(covariance[0, 0]), float(covariance[0, 1]), float(covariance[1, 1])
    lead = mean**2 - z**2 * other
    if not lead > 0.0:
        return -math.inf, math.inf
    middle = difference * mean - z**2 * both
    root = math.sqrt(max(middle**2 - lead * (difference**2 - z**2 * own), 0.0))
    return (middle - root) / lead, (middle + root) / lead


def experiment(task: Task, estimate: Estimate, looks: Looks, level: float = 0.95) -> Experiment | None:
    """Return the state of a task's experiment; None without one, or before the first release."""
    block, cells = task.experiment, cells_of(estimate)
    if block is None or cells is None or estimate.people is None or not isinstance(estimate, KnownEstimate):
        return None
    among_known, others = task.known_columns.index(block.arm), len(task.arms) - 1
    counts = [0] * (len(task.arms) + 1)
    for values, releases in estimate.people_by_cell.items():
        counts[values[among_known]] += releases
    of_target = _lifts(task, estimate, task.target, looks, level, others)
    # Metrics and ratios share an error probability of their own.
    shared = others * (len(block.metrics) + len(block.ratios))
    further = [
        _lifts(task, of_metric, metric, looks, level, shared)
        for metric, of_metric in zip(block.metrics, estimate.metrics, strict=True)
    ]
    parts = zip((task.target, *block.metrics), (estimate, *estimate.metrics), strict=True)
    by_name = {each.name: (each, cells_of(of_each)) for each, of_each in parts}
    further += [_ratio_lifts(task, ratio, by_name, looks, level, shared) for ratio in block.ratios]
    # People who answer again keep their arm, so that counts vary more than those of different people. In a shuffled
    # task some releases still wait for their crowds.
    counted = block.assigned is not None and looks.repeats.most == 1 and task.shuffle is None
    stated = block.assigned.shares if block.assigned is not None and counted else None
    log_e = None if stated is None else log_ratio_evidence(counts[:-1], stated)
    return Experiment(
        control=block.control,
        unit="points" if of_target.unit == "points" else "target units",
        level=level,
        people=dict(zip(task.arms, counts[:-1], strict=True)),
        unassigned=counts[-1],
        sample_ratio=None if log_e is None else math.exp(min(log_e, 700.0)),
        control_mean=of_target.control_mean,
        lifts=of_target.lifts,
        segments=_segments(task, cells, looks, 1.0 - level),
        randomized=block.assigned is not None,
        metrics=tuple(further),
    )


def _scale(target: Target) -> tuple[float, float]:
    """Return factor and shift from a mean of a cell, a share or a coded number, to points or the target's units."""
    if isinstance(target, RealTarget):
        return (target.high - target.low) / 2.0, (target.high + target.low) / 2.0
    return POINTS, 0.0


@dataclass(frozen=True)
class _Difference:
    """The difference of an arm from the control, by least squares."""

    value: float
    control_mean: float
    covariance: Floats  # of the difference and the control's mean, (2, 2)
    estimate: Estimate
    weights: Floats  # of which these two are sums, (2, p)
    factor: float  # from the sums to the difference's unit

    @property
    def ratio(self) -> float:
        """The difference as a share of the control's mean."""
        return self.value / self.control_mean if self.control_mean > 0.0 else math.nan

    def _half_widths(self, level: float) -> Floats:
        if self.estimate.curvature_error is not None and np.isfinite(self.covariance).all():
            return self.factor * combined_half_widths(self.estimate, self.weights, level)
        return np.asarray(quantile_of(level) * np.sqrt(np.maximum(np.diag(self.covariance), 0.0)))

    def interval(self, level: float) -> Interval:
        """Return the interval of the difference."""
        half = float(self._half_widths(level)[0])
        return self.value - half, self.value + half

    def relative(self, level: float) -> Interval:
        """Return the interval of the ratio, by Fieller."""
        halves, z = self._half_widths(level), quantile_of(level)
        # If the mean may be negative, the ratio's sign is unknown.
        if not np.isfinite(halves).all() or not self.control_mean > halves[1]:
            return -math.inf, math.inf
        # Half-widths exceed z standard errors: scale the covariance to them, and keep the correlation.
        wider = halves / (z * np.sqrt(np.maximum(np.diag(self.covariance), 1e-300)))
        return fieller(self.value, self.control_mean, self.covariance * np.outer(wider, wider), z)


_Means = Sequence[tuple[float, float]]  # means of numerator and denominator with their standard errors


@dataclass(frozen=True)
class _RatioDifference:
    """The difference of an arm's ratio of two means from the control's."""

    of_arm: float
    of_control: float
    arm_means: _Means
    control_means: _Means

    @property
    def value(self) -> float:
        """The difference."""
        return self.of_arm - self.of_control

    @property
    def ratio(self) -> float:
        """The difference as a share of the control's ratio."""
        return self.value / self.of_control if self.of_control else math.nan

    def _ends(self, level: float) -> tuple[Interval, Interval]:
        z = quantile_of(level)
        return _ratio_interval(self.arm_means, z), _ratio_interval(self.control_means, z)

    def interval(self, level: float) -> Interval:
        """Return the interval of the difference (MOVER)."""
        return difference_interval(self.of_arm, self.of_control, *self._ends(level))

    def relative(self, level: float) -> Interval:
        """Return the interval of the ratio (MOVER of logarithms)."""
        ends = self._ends(level)
        if not min(low for low, _ in ends) > 0.0:
            return -math.inf, math.inf
        logs = ((math.log(low), math.log(high)) for low, high in ends)
        low, high = difference_interval(math.log(self.of_arm), math.log(self.of_control), *logs)
        return math.expm1(low), math.expm1(high)


def _lifts(task: Task, estimate: Estimate, target: Target, looks: Looks, level: float, count: int) -> MetricLifts:
    """Return the lifts of all arms on the target or a metric, adjusted for the other known columns.

    They are among ``count`` lifts that share the error probability.
    """
    block, cells, people = task.experiment, cells_of(estimate), estimate.people
    assert block is not None
    real = isinstance(target, RealTarget)
    unit, alpha = "units" if real else "points", (1.0 - level) / count
    if cells is None or people is None:
        return MetricLifts(target.name, unit, math.nan, ())
    index, among_known = task.coding.columns.index(block.arm), task.known_columns.index(block.arm)
    factor, shift = _scale(target)
    if isinstance(estimate, KnownEstimate) and estimate.line is not None:
        values, covariance, spread = estimate.line, estimate.line_covariance, estimate.line_spread
    else:
        values, covariance, spread = estimate.values, estimate.covariance, estimate.spread
        factor, shift = (factor, shift) if real else (POINTS / 2.0, POINTS / 2.0)  # of labels coded to -1 and +1
    assert covariance is not None
    assert spread is not None
    names = task.coding.names
    mean = people.shares @ people.points
    # The people's mean features, with the arm's coded features replaced by the control's code.
    indices = [names.index(name) for name in task.coding.names_of(index)]
    mean[indices] = -1.0
    if block.control != task.arms[0]:
        mean[indices[task.arms.index(block.control) - 1]] = 1.0
    control_mean, lifts = shift + factor * float(mean @ values), []
    for arm in task.arms:
        if arm == block.control:
            continue
        weights = weights_of(task, names, ContrastBlock(feature=block.arm, category=arm, against=block.control))
        is_learned = bool(np.isfinite(spread[np.flatnonzero(weights)]).all())
        both = np.array([weights, mean])
        matrix = factor**2 * (both @ covariance @ both.T) if is_learned else np.full((2, 2), math.inf)
        difference = _Difference(factor * float(weights @ values), control_mean, matrix, estimate, both, factor)
        lift = _lift(arm, difference, looks, alpha, count, _rail_of(task, target.name, unit))
        # A shuffler withholds whole combinations, so that arms would be compared over different ones.
        if target.missing_share != 0.0 and task.shuffle is None:
            gone = [_absent(cells, among_known, task.arms.index(name)) for name in (arm, block.control)]
            half = _quantile(looks, alpha) * math.hypot(gone[0][1], gone[1][1])
            more = gone[0][0] - gone[1][0]
            interval = POINTS * (more - half), POINTS * (more + half)
            lift = replace(lift, attrition=POINTS * more, attrition_interval=interval)
        lifts.append(lift)
    return MetricLifts(target.name, unit, control_mean, tuple(lifts))


def _ratio_lifts(
    task: Task, ratio: RatioBlock, parts: Mapping[str, tuple[Target, Any]], looks: Looks, level: float, count: int
) -> MetricLifts:
    """Return the lifts of all arms on a ratio of two means, among ``count`` ones that share the error.

    ``parts`` are the target and metrics with their cells' means. The means are of different people in different arms,
    and so independent.
    """
    block, both = task.experiment, (parts[ratio.numerator], parts[ratio.denominator])
    assert block is not None
    if any(cells is None for _, cells in both):
        return MetricLifts(ratio.name, "units", math.nan, (), adjusted=False)
    among_known = task.known_columns.index(block.arm)
    means: dict[str, list[tuple[float, float]]] = {arm: [] for arm in task.arms}
    for target, cells in both:
        factor, shift = _scale(target) if isinstance(target, RealTarget) else (1.0, 0.0)
        for number_of_arm, arm in enumerate(task.arms):
            mean, error, _ = cells.mean(cells.values[:, among_known] == number_of_arm)
            means[arm].append((shift + factor * mean, factor * error))
    ratios = {arm: above[0] / below[0] if below[0] > 0.0 else math.nan for arm, (above, below) in means.items()}
    base, lifts = ratios[block.control], []
    for arm in task.arms:
        if arm != block.control:
            difference = _RatioDifference(ratios[arm], base, means[arm], means[block.control])
            lifts.append(
                _lift(arm, difference, looks, (1.0 - level) / count, count, _rail_of(task, ratio.name, "units"))
            )
    return MetricLifts(ratio.name, "units", base, tuple(lifts), adjusted=False)


def _ratio_interval(means: Sequence[tuple[float, float]], z: float) -> Interval:
    """Return Fieller's interval of a ratio of two independent means, given with their standard errors."""
    (above, above_error), (below, below_error) = means
    if not (math.isfinite(above_error + below_error) and below > 0.0):
        return -math.inf, math.inf
    return fieller(above, below, np.diag([above_error**2, below_error**2]), z)


def difference_interval(one: float, other: float, of_one: Interval, of_other: Interval) -> Interval:
    """Return the interval of a difference of independent estimates from the intervals of each (MOVER).

    >>> [round(end, 3) for end in difference_interval(3.0, 1.0, (2.0, 5.0), (0.5, 2.0))]
    [0.586, 4.062]
    """
    value = one - other
    if not math.isfinite(value):
        return -math.inf, math.inf
    low = math.hypot(one - of_one[0], of_other[1] - other)
    return value - low, value + math.hypot(of_one[1] - one, other - of_other[0])


def _segments(task: Task, cells: CellMeans, looks: Looks, alpha: float) -> tuple[SegmentLift, ...]:
    """Return the lifts of all arms in all segments, whose intervals share the error probability."""
    block, columns, factor = task.experiment, task.known_columns, _scale(task.target)[0]
    assert block is not None
    place, found = columns.index(block.arm), []
    features = {feature.name: feature for feature in task.features}
    parts = [
        (name, columns.index(name), value, category)
        for name in block.segments
        for value, category in enumerate(_categories(features[name]))
    ]
    arms = [arm for arm in task.arms if arm != block.control]
    half = _quantile(looks, alpha / max(len(parts) * len(arms), 1))
    for name, column, value, category in parts:
        inside = cells.values[:, column] == value
        means = {arm: cells.mean(inside & (cells.values[:, place] == task.arms.index(arm))) for arm in task.arms}
        base, base_error, base_people = means[block.control]
        for arm in arms:
            mean, error, people = means[arm]
            difference, reach = factor * (mean - base), half * factor * math.hypot(error, base_error)
            interval = difference - reach, difference + reach
            found.append(SegmentLift(f"{name} = {category}", arm, (people, base_people), difference, interval))
    return tuple(found)


def _categories(feature: Feature) -> Sequence[str]:
    assert isinstance(feature, CategoryFeature)
    return feature.categories


def _quantile(looks: Looks, alpha: float) -> float:
    return quantile_of(looks.nominal(1.0 - alpha))


def _watched(looks: Looks, alpha: float) -> float:
    """Return the level of an interval that holds at every look."""
    return replace(looks, validity="always-valid").nominal(1.0 - alpha)


def _absent(cells: CellMeans, place: int, arm: int) -> tuple[float, float]:
    """Return the share of missing targets in an arm and its standard error, which is infinite for few people."""
    inside = cells.values[:, place] == arm
    counts = cells.counts[inside]
    if counts.sum() < FEWEST:
        return 0.0, math.inf
    shares = counts / counts.sum()
    share = float(shares @ cells.absent[inside])
    # Combinations differ, and an arm's composition is by chance.
    between = float(shares @ (cells.absent[inside] - share) ** 2) / float(counts.sum())
    return share, math.sqrt(float(shares**2 @ cells.absent_errors[inside] ** 2) + between)


def _rail_of(task: Task, name: str, unit: str) -> tuple[float, str] | None:
    """Return margin and worse direction of the guard rail, if it is about this target, metric or ratio."""
    guardrail = None if task.experiment is None else task.experiment.guardrail
    if guardrail is None or name != (guardrail.metric or task.target.name):
        return None
    return guardrail.margin * (POINTS if unit == "points" else 1.0), guardrail.worse


def _rail(interval: Interval, margin: float, worse: str) -> str:
    """Return whether an interval lies on one side of a margin."""
    low, high = interval
    worst, best = (low, high) if worse == "lower" else (-high, -low)
    return "safe" if worst > -margin else "harmed" if best < -margin else "open"


def _lift(
    arm: str,
    difference: _Difference | _RatioDifference,
    looks: Looks,
    alpha: float,
    count: int,
    rail: tuple[float, str] | None,
) -> Lift:
    """Return a lift with its intervals, one of ``count`` that share the error probability; ``alpha`` is its part."""
    value, interval = difference.value, difference.interval
    nominal, watched = looks.nominal(1.0 - alpha), _watched(looks, alpha)

    def towards_zero(level: float) -> tuple[float, float]:
        low, high = interval(level)
        return value, value - low if value > 0.0 else high - value

    log_e = None
    # Estimates from repeated answers of the same people are no martingale.
    if looks.repeats.most == 1:
        size = errors_from_zero(towards_zero, [1.0 - alpha, watched])
        log_e = float(evidence(size, looks.information, alpha)) - math.log(count)
    low, high = interval(watched)
    ends = difference.relative(nominal)
    return Lift(
        arm=arm,
        value=value,
        interval=interval(nominal),
        fixed_interval=interval(looks.fixed(1.0 - alpha)),
        relative=POINTS * difference.ratio if math.isfinite(sum(ends)) else math.nan,
        relative_interval=(POINTS * ends[0], POINTS * ends[1]),
        p_value=None if log_e is None else math.exp(-max(log_e, 0.0)),
        e_value=None if log_e is None else math.exp(log_e),
        verdict="higher" if low > 0.0 else "lower" if high < 0.0 else "open",
        attrition=None,
        attrition_interval=None,
        guardrail=None if rail is None else _rail((low, high), *rail),
    )


def segment_table(found: Mapping[str, Any]) -> list[list[str]]:
    """Return the rows of a table of lifts in segments: segment, arm, people of the arm, lift, interval."""
    return [
        [
            each["segment"],
            each["arm"],
            f"{each['people'][0]:,}",
            *(
                [number(each["value"]), span(*each["interval"])]
                if math.isfinite(sum(each["interval"]))
                else ["", "too few people"]
            ),
        ]
        for each in found["segments"]
    ]


def table(found: Mapping[str, Any]) -> list[list[str]]:
    """Return the rows of a table of lifts: arm, people, lift, interval, relative lift, interval, p and e."""
    control = found["control"]
    label = control if control == "control" else f"{control} (control)"
    rows = [[label, f"{found['people'][control]:,}", *[""] * 6]]
    return rows + [[lift["arm"], f"{found['people'][lift['arm']]:,}", *_columns(lift)] for lift in found["lifts"]]


def metric_table(found: Mapping[str, Any]) -> list[list[str]]:
    """Return the rows of a table of metrics' lifts: metric, arm, lift, interval, relative lift, interval, p and e."""
    return [
        [f"{metric['name']}, {metric['unit']}{'' if metric['adjusted'] else '*'}", lift["arm"], *_columns(lift)]
        for metric in found["metrics"]
        for lift in metric["lifts"]
    ]


def _columns(lift: Mapping[str, Any]) -> list[str]:
    tested = ["-", "-"] if lift["p_value"] is None else [f"{lift['p_value']:.2g}", f"{lift['e_value']:.3g}"]
    if not math.isfinite(sum(lift["interval"])):
        return ["", "too few people", "", "", *tested]
    absolute = [number(lift["value"]), span(*lift["interval"])]
    relative = [
        f"{number(lift['relative'])}%" if math.isfinite(lift["relative"]) else "-",
        span(*lift["relative_interval"]),
    ]
    return [*absolute, *relative, *tested]
