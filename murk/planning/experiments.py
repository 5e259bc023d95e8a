"""Plans of experiments: the smallest effect that a number of people detects, and false alarms without effects."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from statistics import NormalDist
from typing import Any, Final

import numpy as np

from murk._internal.arrays import Floats, Integers
from murk.errors import UserError
from murk.inference.confidence_sequences import Looks, critical_values
from murk.inference.estimate import Estimate
from murk.inference.experiments import Interval, experiment
from murk.inference.units import POINTS
from murk.privacy.noise import SimulatedNoise
from murk.protocols.device import device_for, part
from murk.protocols.population import Effects, designs
from murk.task.features import RealTarget
from murk.task.privacy import DEFAULT_LEVEL
from murk.task.task import Task

_ERROR_CODE = "MURK-LEARN-001"

PEOPLE: Final = (10_000, 100_000, 1_000_000)
POWER: Final = 0.8
_LEVEL: Final = 0.95
_FIRST, _GROWTH = 50, 1.2  # first look of an A/A run, and the factor from one look to the next


@dataclass(frozen=True)
class ExperimentPlan:
    """The smallest effects that a number of people detects with a power, in points or in the target's units.

    They are infinite if the smallest arm has too few people for an interval.
    """

    people: int
    planned: float  # at one look at the planned end
    watched: float  # at the same number of people, if anybody may watch and stop the experiment at any time
    without_privacy: float  # at one look at the planned end, if a server saw every target


def arms_of(task: Task) -> tuple[float, ...]:
    """Return the shares of the arms, by default even ones; raise UserError without an experiment."""
    if task.experiment is None:
        raise UserError(
            f"the task {task.name!r} has no experiment: add experiment: {{arm: COLUMN, control: CATEGORY}} with a "
            "known column (docs/known.md)"
        )
    assigned = task.experiment.assigned
    return assigned.shares if assigned is not None else (1.0 / len(task.arms),) * len(task.arms)


def plan_experiment(
    task: Task, people: Sequence[int] = PEOPLE, *, rate: float | None = None, power: float = POWER
) -> tuple[ExperimentPlan, ...]:
    """Return the smallest effects of the smallest arm that numbers of people detect, by the normal approximation."""
    per_person, exact, least = _variances(task, rate)
    both, quantile = _both_arms(task), NormalDist().inv_cdf(power)
    plans = []
    for count in people:
        planned, watched = (
            (z + quantile) * math.sqrt(per_person * both / count) if count >= least else math.inf
            for z in (_fixed(task), _watched(task, count))
        )
        plans.append(
            ExperimentPlan(count, planned, watched, (_fixed(task) + quantile) * math.sqrt(exact * both / count))
        )
    return tuple(plans)


def people_for_effect(
    task: Task, effect: float, *, rate: float | None = None, power: float = POWER, watched: bool = False
) -> int:
    """Return the number of people that detect an effect, in points or the target's units, with a power."""
    (variance, _, least), both = _variances(task, rate), _both_arms(task)
    count = 1_000.0
    # Iterate, since the boundary of a sequence depends on the number of people.
    for _ in range(20):
        z = _watched(task, count) if watched else _fixed(task)
        count = ((z + NormalDist().inv_cdf(power)) / effect) ** 2 * variance * both
    return math.ceil(max(count, least))


def _both_arms(task: Task) -> float:
    """Return the sum of the inverse shares of the control and of the smallest other arm."""
    shares = dict(zip(task.arms, arms_of(task), strict=True))
    assert task.experiment is not None
    control = shares.pop(task.experiment.control)
    return 1.0 / control + 1.0 / min(shares.values())


def _fixed(task: Task) -> float:
    return NormalDist().inv_cdf(1.0 - (1.0 - _LEVEL) / (2.0 * (len(task.arms) - 1)))


def _watched(task: Task, people: float) -> float:
    alpha = (1.0 - _LEVEL) / (len(task.arms) - 1)
    return float(critical_values(np.array(max(people, 1.0) / task.tightest_at), 1.0 - alpha))


def _variances(task: Task, rate: float | None) -> tuple[float, float, float]:
    """Return the variances of a person's released and exact target, and the least number of people.

    Variances are in squared points or units; the number is that of all arms for an interval of the smallest one.
    """
    records = designs(task, Effects(rate=rate))[0].records
    forecast: Any = part(task.protocol, "forecast")
    released, exact, fewest = forecast.residual_variances(device_for(task), records)
    unit = (task.target.high - task.target.low) / 2.0 if isinstance(task.target, RealTarget) else POINTS
    return released * unit**2, exact * unit**2, fewest / min(arms_of(task))


@dataclass(frozen=True)
class FalseAlarms:
    """Shares of runs without an effect in which intervals, of lifts and in percent, excluded zero at one of the looks.

    The target's lifts share an error of 5%, and so do those of all metrics and ratios, those in all segments, the
    target's missing values, and those of all metrics; None without any.
    """

    runs: int
    people: int
    looks: int
    watched: float  # by the target's intervals for every look
    fixed: float  # by the target's intervals for one planned look, applied at every look
    sample_ratio: float  # share of runs in which the counts of arms contradicted their shares
    metrics_watched: float | None  # by intervals for every look of metrics and ratios
    metrics_fixed: float | None  # by their intervals for one planned look, applied at every look
    segments: float | None  # by intervals for every look of lifts in segments
    attrition: float | None  # by intervals for every look of differences of missing values


_CHECKS: Final = tuple(field.name for field in fields(FalseAlarms))[3:]


def false_alarms(
    task: Task,
    X: Floats,
    y: Floats,
    *,
    people: Integers | None = None,
    runs: int = 100,
    seed: int = 1,
    tick: Callable[[int, str], None] | None = None,
) -> FalseAlarms:
    """Assign arms at random to people, randomize their coded records (m, p), (m,), and look again and again.

    The arms have no effect by construction, and everything else is as in the records: rates, drifts and amounts.
    ``people`` (m,) has the number of each record's owner, counted from 0; by default each record has an owner of its
    own. All records of a person have one arm. They answer once, by a record drawn at random and in a random order, or
    as often as the task allows, in the order of the records.
    """
    if people is None:
        people = np.arange(len(y))
    most, number = task.repeats.most, int(people.max(initial=-1)) + 1
    answers = int(np.minimum(np.bincount(people), most).sum())
    shares, device = arms_of(task), device_for(task.with_simulated(True))
    assert task.experiment is not None
    index = task.coding.columns.index(task.experiment.arm)
    first = task.coding.names.index(task.coding.names_of(index)[0])
    codes = _codes(task, index)
    looks = [_FIRST]
    while looks[-1] < answers:
        looks.append(min(max(math.ceil(looks[-1] * _GROWTH), looks[-1] + 1), answers))
    alarms = Counter[str]()
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        chosen = np.arange(len(y)) if answers == len(y) else _answered(people, most, rng)
        rows = X[chosen]
        rows[:, first : first + codes.shape[1]] = codes[rng.choice(len(shares), size=number, p=shares)[people[chosen]]]
        payloads = device.mechanisms[DEFAULT_LEVEL].randomize(  # type: ignore[attr-defined]
            device.vectors(rows, y[chosen]),  # type: ignore[attr-defined]
            SimulatedNoise(int(rng.integers(2**63))),
            np.arange(answers),
        )
        alarms.update(_alarms(task, device, payloads, looks))
        if tick is not None:
            tick(run + 1, "")
    checked = {"watched", "fixed", "sample_ratio"}
    checked |= {"metrics_watched", "metrics_fixed"} if task.metrics else set()
    checked |= {"segments"} if task.experiment.segments else set()
    if any(each.missing_share != 0.0 for each in (task.target, *task.metrics)) and task.shuffle is None:
        checked.add("attrition")
    alarmed = {name: alarms[name] / runs if name in checked else None for name in _CHECKS}
    return FalseAlarms(runs, number, len(looks), **alarmed)  # type: ignore[arg-type]


def _answered(people: Integers, most: int, rng: np.random.Generator) -> Integers:
    """Return the records by which people answer: one of each in a random order, or ``most`` of each in their order."""
    order = rng.permutation(len(people))
    by_person = order[np.argsort(people[order], kind="stable")]
    owners = people[by_person]
    turns = np.arange(len(people)) - np.searchsorted(owners, owners)
    chosen = by_person[turns < most]
    return rng.permutation(chosen) if most == 1 else np.sort(chosen)


def _codes(task: Task, place: int) -> Floats:
    """Return the codes of each arm, (arms, coded features)."""
    name = task.coding.columns[place]
    width = len(task.coding.names_of(place))
    at = task.coding.names.index(task.coding.names_of(place)[0])
    return np.array([task.coding.encode_record({name: arm}, target=False).x[at : at + width] for arm in task.arms])


def _alarms(task: Task, device: Any, payloads: Any, looks: Sequence[int]) -> set[str]:
    """Return the fields of `FalseAlarms` for which there was an alarm at one of the looks."""
    engine, start, alarms = device.engine(), 0, set[str]()
    for look in looks:
        engine.add(payloads[start:look], DEFAULT_LEVEL)
        start = look
        estimate: Estimate = engine.estimate()
        state = experiment(task, estimate, Looks("always-valid", task.tightest_at, look, repeats=task.repeats))
        if state is None:
            continue
        of_metrics = [lift for metric in state.metrics for lift in metric.lifts]
        intervals: dict[str, list[Interval | None]] = {"segments": [each.interval for each in state.segments]}
        for prefix, lifts in (("", state.lifts), ("metrics_", of_metrics)):
            intervals[f"{prefix}watched"] = [ends for lift in lifts for ends in (lift.interval, lift.relative_interval)]
            intervals[f"{prefix}fixed"] = [lift.fixed_interval for lift in lifts]
        intervals["attrition"] = [lift.attrition_interval for lift in (*state.lifts, *of_metrics)]
        alarms |= {name for name, of in intervals.items() if any(ends and not ends[0] <= 0.0 <= ends[1] for ends in of)}
        alarms |= {"sample_ratio"} if state.mismatch else set()
    return alarms
