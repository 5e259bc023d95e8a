"""Coefficients in natural units: the effect of one unit of a feature on the target."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from murk.stream.task.data.coding import is_constant
from murk.stream.task.data.features import ClassTarget, RealTarget
from murk.stream.task.protocol import Scale
from murk.stream.task.registry import PROTOCOLS
from murk.stream.task.task import Task


@dataclass(frozen=True, slots=True)
class Unit:
    """Natural unit of a coefficient: ``factor * coefficient + shift`` is its effect."""

    label: str  # name of the unit, in words
    factor: float  # effect per unit, divided by the coefficient
    shift: float  # constant that is added for an intercept, else 0


Units = Mapping[str, Unit]  # by name of coefficient


def on_logit_scale(task: Task) -> bool:
    """Return whether coefficients are log odds, whose exponentials are odds ratios (unlike a probit's, for example)."""
    return task.coefficient_scale == "log odds"


def fits_probabilities(task: Task) -> bool:
    """Return whether a task fits a line through labels of -1 and +1, so that half an effect changes the probability."""
    return task.coefficient_scale == "probability"


def effect_name(task: Task) -> Literal["odds ratio", "chance", "effect"]:
    """Return the name of an effect per unit or, for log odds, the name of its exponential."""
    return "odds ratio" if on_logit_scale(task) else "chance" if fits_probabilities(task) else "effect"


def odds_ratio(effect: float) -> float:
    """Return ``e^effect``; infinite if the effect is infinite (of either sign) or the result would overflow."""
    return math.exp(effect) if -math.inf < effect < 700.0 else math.inf


def units(task: Task) -> dict[str, Unit]:
    """Return the unit of each coefficient that has one, by name.

    The intercept is the fit at the middle of every feature: in a real target's units, or the probability of a line.
    """
    return _units(task, task.coefficient_scale, *_in_units(task))


def effect_units(task: Task) -> dict[str, Unit]:
    """Return the units of average effects: those of coefficients, or of chances beside log odds of classes."""
    return units(task) or (class_effect_units(task) if PROTOCOLS[task.protocol].estimates_effects else {})


def class_effect_units(task: Task) -> dict[str, Unit]:
    """Return the units of average effects on each class's probability, beside log odds."""
    return _units(task, "probability", 1.0, 0.0)


def units_beside(task: Task, scale: Scale) -> dict[str, Unit]:
    """Return the units for a learner of features that a task's `Encoder` codes, and of targets in their own units."""
    factor, shift = (0.5, 0.5) if scale == "probability" else (1.0, 0.0)
    return _units(task, scale, factor / coded_unit(task), shift)


def coded_unit(task: Task) -> float:
    """Return a real target's unit per coded unit; 1 for labels."""
    return (task.target.high - task.target.low) / 2.0 if isinstance(task.target, RealTarget) else 1.0


def _units(task: Task, scale: Scale, factor: float, shift: float) -> dict[str, Unit]:
    coding = task.coding
    factors = (factor * coding.unit_factors).tolist()
    rows = zip(coding.names, coding.unit_labels, factors, strict=True)
    by_name = {name: Unit(label, each, shift if is_constant(name) else 0.0) for name, label, each in rows}
    if not isinstance(task.target, ClassTarget):
        return by_name
    if scale != "probability":
        # Coefficients of classes are contrasts of log odds, which have no units.
        return {}
    return {
        f"{label}:{name}": replace(unit, label=f"{label}: {unit.label}" if task.features else f"{unit.label} = {label}")
        for label in task.target.classes
        for name, unit in by_name.items()
    }


def _in_units(task: Task) -> tuple[float, float]:
    """Return the factor from coded coefficients to the target's units, and the shift of an intercept."""
    if isinstance(task.target, RealTarget):
        half, middle = (task.target.high - task.target.low) / 2.0, (task.target.high + task.target.low) / 2.0
        linked = PROTOCOLS[task.protocol].has_link(task.block)
        return (1.0 / half, 0.0) if linked else (1.0, middle)
    if fits_probabilities(task):
        return 0.5, 0.5
    return 1.0, 0.0
