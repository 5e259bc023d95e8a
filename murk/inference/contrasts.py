"""Contrasts: the effect of one category against another, with a p-value and an e-value that hold at every look.

Coefficients of categories are effects against the first category, so that a contrast is one of them or a difference of
two. Its e-value is `murk.inference.confidence_sequences.evidence` at the number z of standard errors between the
estimate and zero. If intervals are not normal, z is a normal quantile at whose level the interval excludes zero. Under
no difference the e-value has a mean of at most 1 whenever the stream is stopped, and ``min(1, 1 / e)`` is a p-value
(Ville).

Source: Ramdas, Grunwald, Vovk and Shafer, "Game-theoretic statistics and safe anytime-valid inference", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from murk._internal.arrays import Vector
from murk.inference.average_effects import combined_half_widths, marginal_differences
from murk.inference.confidence_sequences import LARGEST, Looks, evidence, why_no_sequence
from murk.inference.estimate import Estimate
from murk.inference.levels import divided_error, level_of, quantile_of
from murk.inference.units import EffectScale, Unit, effect_units, odds_ratio, on_logit_scale, units
from murk.task.features import CategoryFeature, ClassTarget, words_of, words_of_value
from murk.task.learning import ContrastBlock
from murk.task.task import Task

Interval = tuple[float, float]

_FURTHER: Final = 3
_CLOSE: Final = 1e-3


@dataclass(frozen=True)
class Contrast:
    """The estimated effect of a category against another one; ends of intervals are infinite where unknown."""

    name: str  # such as "treatment: b against a"
    scale: EffectScale  # scale of value and interval
    value: float
    interval: Interval
    odds_ratio: float | None  # e^value, if coefficients are log odds
    odds_ratio_interval: Interval | None
    average_effect: float | None  # in percentage points of a probability, or in a real target's units
    average_effect_interval: Interval | None
    p_value: float | None  # p-value of no difference, valid at every look; None if there is no valid one
    e_value: float | None  # evidence for a difference, valid at every look; None if there is no valid one

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def contrasts(
    task: Task, estimate: Estimate, looks: Looks, level: float = 0.95, *, arms: bool = False
) -> tuple[Contrast, ...]:
    """Return a task's contrasts, for each class if there are several; intervals hold at ``level`` for ``looks``.

    With ``arms`` the contrasts of an experiment's arms come first, for displays without lifts. These share the error
    probability (Bonferroni).
    """
    labels, first = [""], task.coding.names[0]
    if isinstance(task.target, ClassTarget):
        labels = [f"{label}:" for label in task.target.classes if f"{label}:{first}" in estimate.names]
    of_arms = _of_arms(task) if arms else ()
    both = [(block, len(of_arms)) for block in of_arms]
    both += [(block, 1) for block in task.contrasts if block not in of_arms]
    each = ((block, label, count) for block, count in both for label in labels)
    return tuple(_contrast(task, estimate, block, label, looks, level, count) for block, label, count in each)


def _of_arms(task: Task) -> tuple[ContrastBlock, ...]:
    """Return the contrasts of an experiment's arms against its control."""
    if task.experiment is None:
        return ()
    control, name = task.experiment.control, task.experiment.arm
    others = (arm for arm in task.arms if arm != control)
    return tuple(ContrastBlock(feature=name, category=arm, against=control) for arm in others)


def _contrast(
    task: Task, estimate: Estimate, block: ContrastBlock, label: str, looks: Looks, level: float, count: int
) -> Contrast:
    """Return one of ``count`` contrasts that share the error probability."""
    level = divided_error(level, count)
    weights, unit, of_effects = _weights_and_units(task, estimate.names, block, label)
    weights = weights[None]
    nominal, by_line = looks.nominal(level), estimate.effects(level) is not None

    def coefficients(at: float) -> Interval:
        return float((weights @ estimate.values)[0]), float(combined_half_widths(estimate, weights, at)[0])

    def effects(at: float) -> Interval | None:
        return _average_effect(task, estimate, weights, at)

    def tested(at: float) -> Interval:
        return (effects(at) if by_line else None) or coefficients(at)

    value, interval = _in_unit(unit, coefficients(nominal))
    average = effects(nominal)
    odds, log_e = on_logit_scale(task), None
    # Estimates from repeated answers of the same people are no martingale.
    if not why_no_sequence(task, estimate) and looks.repeats.most == 1:
        levels = [level, replace(looks, validity="always-valid").nominal(level)]
        log_e = float(evidence(errors_from_zero(tested, levels), looks.information, 1.0 - level)) - math.log(count)
    feature = next(each for each in task.features if each.name == block.feature)
    category, other = (words_of_value(feature, value) for value in (block.category, block.against))
    return Contrast(
        name=f"{label}{words_of(feature)}: {category} against {other}",
        scale="model units" if unit is None else unit.scale,
        value=value,
        interval=interval,
        odds_ratio=odds_ratio(value) if odds else None,
        odds_ratio_interval=(odds_ratio(interval[0]), odds_ratio(interval[1])) if odds else None,
        average_effect=None if average is None else _in_unit(of_effects, average)[0],
        average_effect_interval=None if average is None else _in_unit(of_effects, average)[1],
        p_value=None if log_e is None else math.exp(-max(log_e, 0.0)),
        e_value=None if log_e is None else math.exp(log_e),
    )


def _in_unit(unit: Unit | None, pair: Interval) -> tuple[float, Interval]:
    """Return a coded contrast and its half-width as a value and its interval, clipped to the unit's possible range."""
    value, half = pair
    ends = value, value - half, value + half
    if unit is not None:
        # The two codes of a category are 2 apart; the weights of contrasts contain this factor already.
        ends = tuple(unit.possible(unit.factor / 2.0 * end) for end in ends)  # type: ignore[assignment]
    return ends[0], (ends[1], ends[2])


def weights_of(task: Task, names: tuple[str, ...], block: ContrastBlock) -> Vector:
    """Return a contrast's weights, (p,): the weighted sum of coefficients is the effect, in coded units of the target.

    >>> from murk import Task
    >>> task = Task.parse('''
    ... name: trial
    ... features: [{name: arm, categories: [a, b, c]}]
    ... target: {name: well, kind: binary, positive: yes, negative: no}
    ... contrasts: [{feature: arm, category: c, against: b}]
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> weights_of(task, task.coding.names, task.contrasts[0]).tolist()
    [-2.0, 2.0, 0.0]
    """
    return _weights_and_units(task, names, block, "")[0]


def _weights_and_units(
    task: Task, names: tuple[str, ...], block: ContrastBlock, label: str
) -> tuple[Vector, Unit | None, Unit | None]:
    """Return a contrast's weights, and the units of its coefficients and of its average effect; None without a unit."""
    index = next(index for index, feature in enumerate(task.features) if feature.name == block.feature)
    feature = task.features[index]
    assert isinstance(feature, CategoryFeature)
    coded = dict(zip(feature.categories[1:], task.coding.names_of(index), strict=False))
    weights = np.zeros(len(names))
    for category, sign in ((block.category, 2.0), (block.against, -2.0)):
        if category in coded:
            weights[names.index(f"{label}{coded[category]}")] += sign
    # Units of one feature's categories differ only in their labels.
    name = f"{label}{next(iter(coded.values()))}"
    return weights, units(task).get(name), effect_units(task).get(name)


def _average_effect(task: Task, estimate: Estimate, weights: Vector, level: float) -> Interval | None:
    """Return the average effect of a contrast and its half-width; None where it is unknown."""
    effect = estimate.combined_effect(weights[0], level)
    if effect is not None:
        return effect
    if task.coefficient_scale == "log odds":
        pair = marginal_differences(estimate, weights, level)
        return None if pair is None else (float(pair[0][0]), float(pair[1][0]))
    if task.coefficient_scale in ("probability", "slope"):
        return float((weights @ estimate.values)[0]), float(combined_half_widths(estimate, weights, level)[0])
    return None


def errors_from_zero(interval: Callable[[float], Interval], levels: Sequence[float]) -> float:
    """Return nearly the largest normal quantile, up to `LARGEST`, at whose level an interval excludes zero; or 0.

    ``interval`` returns an estimate and its half-width at a level. As this takes long for some estimates, it is called
    at ``levels`` and at most three others. Half-widths must grow with the level; nothing else is assumed of them.

    >>> round(errors_from_zero(lambda level: (3.0, quantile_of(level)), [0.95, 0.99]), 3)
    3.0
    """
    cached: dict[float, float] = {}
    size = 0.0
    for level in levels:
        value, cached[quantile_of(level)] = interval(level)
        size = abs(value)
    for _ in range(_FURTHER):
        quantile = _next_quantile(size, cached)
        if quantile is None:
            break
        cached[quantile] = interval(level_of(quantile))[1]
    return max((quantile for quantile, half in cached.items() if _excludes(size, half)), default=0.0)


def _next_quantile(size: float, known: dict[float, float]) -> float | None:
    """Return the next quantile to try, given half-widths by tried quantile; None if it is close to a tried one."""
    inside = max((quantile for quantile, half in known.items() if _excludes(size, half)), default=0.0)
    outside = sorted(quantile for quantile, half in known.items() if not _excludes(size, half) and math.isfinite(half))
    if outside and (inside > 0.0 or len(outside) != 2):
        # The chord from inside to outside: half-widths that grow faster than the quantile lie below it.
        low, high = (inside, known.get(inside, 0.0)), (outside[0], known[outside[0]])
    else:
        # The line through two points on one side: exact for normal intervals, and for those with a bias.
        points = outside or sorted(quantile for quantile, half in known.items() if _excludes(size, half))[-2:]
        if len(points) < 2:
            return None
        low, high = ((quantile, known[quantile]) for quantile in points)
    if not high[1] > low[1]:
        return None
    quantile = min(low[0] + (size - low[1]) * (high[0] - low[0]) / (high[1] - low[1]), LARGEST)
    return quantile if quantile > max(inside, _CLOSE) and all(abs(quantile - each) > _CLOSE for each in known) else None


def _excludes(size: float, half: float) -> bool:
    # At a quantile that was computed from the half-width itself, zero is the interval's end up to rounding.
    return size > 0.0 and size >= half * (1.0 - 1e-9)
