"""Coefficients in natural units: the effect of one unit of a feature on the target.

Each quantity has the same unit in tables, frames, JSON and attributes; its scale names the unit. Changes of a
probability are in percentage points, and levels of a share or of a linear probability model in percent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from murk.task.coding import is_constant
from murk.task.features import CategoryFeature, ClassTarget, RealTarget, quantile_name, words_of, words_of_value
from murk.task.protocols.base import Scale
from murk.task.protocols.registry import PROTOCOLS
from murk.task.task import Task

EffectScale = Literal["log odds", "percentage points", "percent", "target units", "model units"]
"""Scale of an effect per unit; ``"model units"`` are those of a loss or link without another scale."""

POINTS: Final = 100.0  # percentage points of a probability of 1


@dataclass(frozen=True, slots=True)
class Unit:
    """Natural unit of a coefficient: its effect is ``factor * coefficient + shift``, clipped to [``low``, ``high``]."""

    label: str  # name of the unit, in words
    factor: float  # effect per unit, divided by the coefficient
    shift: float  # constant that is added for an intercept, else 0
    scale: EffectScale
    low: float = -math.inf  # least and largest possible effect
    high: float = math.inf

    def possible(self, effect: float) -> float:
        """Return an effect clipped to [``low``, ``high``]; an infinite effect, which means unknown, is kept."""
        return min(max(effect, self.low), self.high) if math.isfinite(effect) else effect


Units = Mapping[str, Unit]  # by name of coefficient


def on_logit_scale(task: Task) -> bool:
    """Return whether coefficients are log odds, whose exponentials are odds ratios (unlike a probit's, for example)."""
    return task.coefficient_scale == "log odds"


def fits_probabilities(task: Task) -> bool:
    """Return whether a task fits a line through labels of -1 and +1, so that half an effect changes the probability."""
    return task.coefficient_scale == "probability"


def odds_ratio(effect: float) -> float:
    """Return ``e^effect``; infinite if the effect is infinite (of either sign) or the result would overflow."""
    return math.exp(effect) if -math.inf < effect < 700.0 else math.inf


def units(task: Task) -> dict[str, Unit]:
    """Return the unit of each coefficient that has one, by name.

    The intercept is the fit at the middle of every feature, in a real target's units or, for a linear probability
    model, in percent.
    """
    if not isinstance(task.target, RealTarget):
        return _units(task, task.coefficient_scale, 0.5 if fits_probabilities(task) else 1.0)
    linked = PROTOCOLS[task.protocol].has_link(task.block)
    return _units(task, "own" if linked else "slope", 1.0 / coded_unit(task) if linked else 1.0)


def effect_units(task: Task) -> dict[str, Unit]:
    """Return the units of average effects: those of coefficients, or of effects on probabilities shown beside them."""
    if isinstance(task.target, RealTarget) or fits_probabilities(task):
        return units(task)
    stated = not isinstance(task.target, ClassTarget) or PROTOCOLS[task.protocol].estimates_effects
    return probability_units(task) if stated else {}


def probability_units(task: Task) -> dict[str, Unit]:
    """Return the units of average effects on the probability, or on each class's."""
    return _units(task, "probability", 1.0)


def units_beside(task: Task, scale: Scale) -> dict[str, Unit]:
    """Return the units for a learner whose features a task's `Encoder` codes, with targets in their own units."""
    return _units(task, scale, (0.5 if scale == "probability" else 1.0) / coded_unit(task), of_learner=True)


def coded_unit(task: Task) -> float:
    """Return a real target's unit per coded unit; 1 for labels."""
    return (task.target.high - task.target.low) / 2.0 if isinstance(task.target, RealTarget) else 1.0


def quantile_words(quantile: float) -> str:
    """Return a quantile's name in words.

    >>> quantile_words(0.5), quantile_words(0.9)
    ('median', '90% quantile')
    """
    return "median" if quantile == 0.5 else f"{100.0 * quantile:.10g}% quantile"


def _units(task: Task, scale: Scale, factor: float, *, of_learner: bool = False) -> dict[str, Unit]:
    coding, target = task.coding, task.target
    if isinstance(target, ClassTarget) and scale != "probability":
        # Coefficients of classes are contrasts of log odds, which have no units.
        return {}
    of_change: EffectScale = "model units"
    of_level: EffectScale = "model units"
    low, high, shift = -math.inf, math.inf, 0.0
    if scale == "log odds":
        of_change = of_level = "log odds"
    elif scale == "probability":
        of_change, of_level, factor, low, high = "percentage points", "percent", POINTS * factor, 0.0, POINTS
        shift = POINTS / 2.0
    elif scale == "slope":
        of_change = of_level = "target units"
        if isinstance(target, RealTarget):
            low, high = target.low, target.high
            shift = 0.0 if of_learner else (low + high) / 2.0
    by_name = {}
    # Only a change of category is a difference of two probabilities or means: the average slope of a number, steep
    # where people are, may exceed the target's range in one unit.
    categories = {
        name
        for index, feature in enumerate(task.features)
        if isinstance(feature, CategoryFeature)
        for name in coding.names_of(index)
    }
    for name, label, each in zip(coding.names, coding.unit_labels, coding.unit_factors.tolist(), strict=True):
        if is_constant(name):
            by_name[name] = Unit(label, factor * each, shift, of_level, low, high)
            continue
        most = high - low if name in categories else math.inf
        by_name[name] = Unit(label, factor * each, 0.0, of_change, -most, most)
    if isinstance(target, RealTarget) and target.quantiles is not None:
        (constant,) = by_name
        return {
            quantile_name(each, constant): replace(
                by_name[constant], label=f"{quantile_words(each)} of {words_of(target)}"
            )
            for each in target.quantiles
        }
    if not isinstance(target, ClassTarget):
        return by_name
    return {
        f"{label}:{name}": replace(unit, label=f"{shown}: {unit.label}" if task.features else f"{unit.label} = {shown}")
        for label, shown in [(each, words_of_value(target, each)) for each in target.classes]
        for name, unit in by_name.items()
    }
