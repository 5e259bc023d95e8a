r"""Experiments: lifts of arms against a control, and whether the arms' counts contradict their shares.

A lift is the effect of an arm by least squares, adjusted for the other columns that are sent without noise. It is
stated absolutely, and relative to the control's mean M with Fieller's interval: all ratios r at which ``D - r M`` is at
most z standard errors from 0, for the difference D. Several arms share the error probability, and so do arms in all
segments (Bonferroni): intervals, p-values and e-values are adjusted. Verdicts (`Experiment.stop`, the guard rail) hold
at every look, even if the intervals hold at one look only. A segment's lift is the difference of its people's means.

Arms are sent without noise. Their counts are tested by a mixture of multinomial distributions with a Dirichlet prior of
1,000 times the stated shares: an exact e-value, which is valid at every look.

Sources: Fieller, "Some problems in interval estimation", 1954; Lindon and Malek, "Anytime-valid inference for
multinomial count data", 2022.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.numbers import number, span
from murk.inference.average_effects import combined_half_widths
from murk.inference.confidence_sequences import Looks, evidence
from murk.inference.contrasts import errors_from_zero, weights_of
from murk.inference.estimate import Estimate
from murk.inference.levels import quantile_of
from murk.inference.units import POINTS
from murk.task.experiment import GuardrailBlock
from murk.task.features import CategoryFeature, Feature, RealTarget
from murk.task.learning import ContrastBlock
from murk.task.task import Task

Interval = tuple[float, float]

CONCENTRATION: Final = 1_000.0  # sum of the Dirichlet prior's parameters
FEWEST: Final = 100  # least number of people in an arm for an interval of its share of missing targets
ALARM: Final = 1_000.0  # e-value from which the arms' counts contradict the shares


@dataclass(frozen=True)
class Lift:
    """The difference of an arm from the control; ends of intervals are infinite where unknown."""

    arm: str
    value: float  # in percentage points of a probability, or in the target's units
    interval: Interval
    fixed_interval: Interval  # for one planned look
    relative: float  # in percent of the control's mean
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

    @property
    def mismatch(self) -> bool:
        """Whether the counts of arms contradict their shares."""
        return self.sample_ratio is not None and self.sample_ratio >= ALARM

    @property
    def stop(self) -> str:
        """Reason to stop: "mismatch", "harmed", "effect", "safe", or "" for none."""
        if self.mismatch:
            return "mismatch"
        rails = {lift.guardrail for lift in self.lifts}
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
                found.append(self._difference(lift))
            else:
                found.append(f"{lift.arm}: no difference shown; it lies within {span(low, high)} {self.unit}.")
            if (
                lift.attrition_interval is not None
                and not lift.attrition_interval[0] <= 0.0 <= lift.attrition_interval[1]
            ):
                found.append(
                    f"More targets are missing in one of {lift.arm} and {self.control}, by "
                    f"{span(*lift.attrition_interval)} points: people with a target may differ between the arms."
                )
            rails = {
                "safe": "The guard rail holds: the difference is within its margin.",
                "harmed": "The guard rail is broken: the difference exceeds its margin.",
            }
            if lift.guardrail in rails:
                found.append(rails[lift.guardrail])
        return found

    def _difference(self, lift: Lift) -> str:
        ends, higher = f"{span(*lift.interval)} {self.unit}", lift.interval[0] > 0.0
        if self.randomized:
            return f"{lift.arm} {'raises' if higher else 'lowers'} the target, by {ends}."
        return (
            f"The target is {'higher' if higher else 'lower'} in {lift.arm} than in {self.control}, by {ends}. The "
            "task does not state that arms are assigned at random (experiment.assigned): this may not be their effect."
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, with the words."""
        return {**asdict(self), "mismatch": self.mismatch, "stop": self.stop, "words": self.words()}


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
    block, cells, people = task.experiment, getattr(estimate, "cells", None), estimate.people
    if block is None or cells is None or people is None:
        return None
    index, among_known = task.coding.columns.index(block.arm), task.known_columns.index(block.arm)
    counts = np.bincount(cells.values[:, among_known], weights=cells.counts, minlength=len(task.arms) + 1).astype(int)
    real = task.target if isinstance(task.target, RealTarget) else None
    values, covariance, spread = _line(estimate)
    factor, shift = POINTS, 0.0
    if real is not None:
        factor, shift = (real.high - real.low) / 2.0, (real.high + real.low) / 2.0
    elif task.coefficient_scale == "probability":
        factor = shift = POINTS / 2.0  # labels are coded to -1 and +1
    unit = POINTS if real is None else 1.0  # factor of a guard rail's margin
    names = task.coding.names
    mean = people.shares @ people.points
    # The people's mean features, with the arm's coded features replaced by the control's code.
    indices = [names.index(name) for name in task.coding.names_of(index)]
    mean[indices] = -1.0
    if block.control != task.arms[0]:
        mean[indices[task.arms.index(block.control) - 1]] = 1.0
    others = len(task.arms) - 1
    alpha = (1.0 - level) / others
    found = []
    for arm in task.arms:
        if arm == block.control:
            continue
        weights = weights_of(task, names, ContrastBlock(feature=block.arm, category=arm, against=block.control))
        both = np.array([weights, mean])
        pair = both @ values
        known = bool(np.isfinite(spread[np.flatnonzero(weights)]).all())
        matrix = factor**2 * (both @ covariance @ both.T) if known else np.full((2, 2), math.inf)
        halves = partial(_half_widths, estimate, both, factor, matrix)
        lift = _lift(arm, factor * pair, shift, matrix, halves, looks, alpha, others, block.guardrail, unit)
        if task.target.missing_share != 0.0:
            gone = [_absent(cells, among_known, task.arms.index(name)) for name in (arm, block.control)]
            half = _quantile(looks, alpha) * math.hypot(gone[0][1], gone[1][1])
            difference = gone[0][0] - gone[1][0]
            interval = POINTS * (difference - half), POINTS * (difference + half)
            lift = replace(lift, attrition=POINTS * difference, attrition_interval=interval)
        found.append(lift)
    # A person who answers again is in the same arm again, so that counts vary more than those of different people.
    stated = None if block.assigned is None or looks.repeats.most > 1 else block.assigned.shares
    log_e = None if stated is None else log_ratio_evidence(counts[:-1].tolist(), stated)
    return Experiment(
        control=block.control,
        unit="points" if real is None else "target units",
        level=level,
        people=dict(zip(task.arms, counts[:-1].tolist(), strict=True)),
        unassigned=int(counts[-1]) if len(counts) > len(task.arms) else 0,
        sample_ratio=None if log_e is None else math.exp(min(log_e, 700.0)),
        control_mean=shift + factor * float(mean @ values),
        lifts=tuple(found),
        segments=_segments(task, cells, factor if real is not None else POINTS, looks, 1.0 - level),
        randomized=block.assigned is not None,
    )


def _segments(task: Task, cells: Any, factor: float, looks: Looks, alpha: float) -> tuple[SegmentLift, ...]:
    """Return the lifts of all arms in all segments; their intervals share the error probability ``alpha``."""
    block, columns = task.experiment, task.known_columns
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
        means = {arm: _mean(cells, inside & (cells.values[:, place] == task.arms.index(arm))) for arm in task.arms}
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


def _mean(cells: Any, inside: Any) -> tuple[float, float, int]:
    """Return the mean target of people in some cells, its standard error (infinite for few people), and their count."""
    counts = cells.counts[inside]
    people = int(counts.sum())
    if not people:
        return 0.0, math.inf, 0
    # Cells are weighted by their numbers of people with a target.
    weights = counts * np.maximum(1.0 - cells.absent[inside], 0.0)
    if not weights.sum() > 0.0:
        return 0.0, math.inf, people
    shares = weights / weights.sum()
    error = math.sqrt(float(shares**2 @ cells.spread[inside, -1] ** 2))
    return float(shares @ cells.means[inside, -1]), error if people >= cells.fewest else math.inf, people


def _quantile(looks: Looks, alpha: float) -> float:
    return quantile_of(looks.nominal(1.0 - alpha))


def _absent(cells: Any, place: int, arm: int) -> tuple[float, float]:
    """Return the share of missing targets in an arm and its standard error, which is infinite for few people."""
    inside = cells.values[:, place] == arm
    counts = cells.counts[inside]
    if counts.sum() < FEWEST:
        return 0.0, math.inf
    shares = counts / counts.sum()
    return float(shares @ cells.absent[inside]), math.sqrt(float(shares**2 @ cells.absent_errors[inside] ** 2))


def _line(estimate: Estimate) -> tuple[Floats, Floats, Floats]:
    """Return the linear model of the target: coefficients, covariance and standard errors."""
    line = getattr(estimate, "line", None)
    if line is not None:
        return line, getattr(estimate, "line_covariance"), getattr(estimate, "line_spread")  # noqa: B009
    assert estimate.covariance is not None
    return estimate.values, estimate.covariance, estimate.spread


def _half_widths(estimate: Estimate, both: Floats, factor: float, covariance: Floats, level: float) -> Floats:
    """Return half-widths at a level of a lift and of the control's mean, which are sums with weights ``both``."""
    if estimate.curvature_error is not None and np.isfinite(covariance).all():
        return factor * combined_half_widths(estimate, both, level)
    return np.asarray(quantile_of(level) * np.sqrt(np.maximum(np.diag(covariance), 0.0)))


def _lift(
    arm: str,
    pair: Floats,
    shift: float,
    covariance: Floats,
    halves: Callable[[float], Floats],
    looks: Looks,
    alpha: float,
    others: int,
    guardrail: GuardrailBlock | None,
    unit: float,
) -> Lift:
    value, mean = float(pair[0]), shift + float(pair[1])
    nominal, fixed = looks.nominal(1.0 - alpha), float(halves(looks.fixed(1.0 - alpha))[0])
    both, z = halves(nominal), quantile_of(nominal)
    half = float(both[0])
    interval = value - half, value + half
    relative = -math.inf, math.inf
    if np.isfinite(both).all():
        # Noise in the curvature makes half-widths exceed z standard errors: variances grow, the correlation stays.
        errors = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
        wider = both / (z * errors)
        relative = fieller(value, mean, covariance * np.outer(wider, wider), z)
    watched = replace(looks, validity="always-valid").nominal(1.0 - alpha)
    log_e = None
    # Estimates from repeated answers of the same people are no martingale.
    if looks.repeats.most == 1:
        size = errors_from_zero(lambda level: (value, float(halves(level)[0])), [1.0 - alpha, watched])
        log_e = float(evidence(size, looks.information, alpha)) - math.log(others)
    beyond = float(halves(watched)[0])
    low, high = value - beyond, value + beyond
    rail = None
    if guardrail is not None:
        margin = guardrail.margin * unit
        worst, best = (low, high) if guardrail.worse == "lower" else (-high, -low)
        rail = "safe" if worst > -margin else "harmed" if best < -margin else "open"
    return Lift(
        arm=arm,
        value=value,
        interval=interval,
        fixed_interval=(value - fixed, value + fixed),
        relative=POINTS * value / mean if mean else math.nan,
        relative_interval=(POINTS * relative[0], POINTS * relative[1]),
        p_value=None if log_e is None else math.exp(-max(log_e, 0.0)),
        e_value=None if log_e is None else math.exp(log_e),
        verdict="higher" if low > 0.0 else "lower" if high < 0.0 else "open",
        attrition=None,
        attrition_interval=None,
        guardrail=rail,
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
    rows = [[f"{found['control']} (control)", f"{found['people'][found['control']]:,}", *[""] * 6]]
    for lift in found["lifts"]:
        tested = ["-", "-"] if lift["p_value"] is None else [f"{lift['p_value']:.2g}", f"{lift['e_value']:.3g}"]
        known = math.isfinite(sum(lift["interval"]))
        absolute = [number(lift["value"]), span(*lift["interval"])] if known else ["", "too few people"]
        relative = [f"{number(lift['relative'])}%", span(*lift["relative_interval"])] if known else ["", ""]
        rows.append([lift["arm"], f"{found['people'][lift['arm']]:,}", *absolute, *relative, *tested])
    return rows
