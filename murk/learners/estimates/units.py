"""Coefficients in natural units: what one unit of a feature does to the target, as people read it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from murk.stream.task.data.coding import is_constant
from murk.stream.task.data.features import ClassTarget, RealTarget
from murk.stream.task.protocol import Scale
from murk.stream.task.registry import PROTOCOLS
from murk.stream.task.task import Task


@dataclass(frozen=True, slots=True)
class Unit:
    """How a coded coefficient is read: ``factor * coefficient + shift`` is its effect.

    Parameters
    ----------
    label
        What a unit of the feature is, in words.
    factor, shift
        The effect per unit, and what an intercept lacks.
    """

    label: str
    factor: float
    shift: float


def on_logit_scale(task: Task) -> bool:
    """Whether a task's coefficients are log odds, so that their exponentials are odds ratios.

    A binary target alone does not make them so: a probit's are not, nor are those of quadratic and exponential losses.
    """
    return task.coefficient_scale == "log odds"


def fits_probabilities(task: Task) -> bool:
    """Whether a task fits a line through labels of -1 and +1, so that half an effect changes the probability."""
    return task.coefficient_scale == "probability"


def effect_name(task: Task) -> Literal["odds ratio", "chance", "effect"]:
    """What an effect per unit is called; of log odds, its exponential."""
    return "odds ratio" if on_logit_scale(task) else "chance" if fits_probabilities(task) else "effect"


def odds_ratio(effect: float) -> float:
    """``e^effect``; infinite where the effect is unknown (of either sign), or that is beyond a float."""
    return math.exp(effect) if -math.inf < effect < 700.0 else math.inf


def units(task: Task) -> dict[str, Unit]:
    """The unit of each coefficient that has one, by name.

    The intercept is the fit at the middle of every feature: of a real target in its own units, unless a link stands
    between; of a line through labels as a probability.

    Examples
    --------
    >>> task = Task.parse('''
    ... name: third-child
    ... features: [{name: age, low: 21, high: 35}]
    ... target: {name: third_child, kind: binary, positive: yes, negative: no}
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> round(units(task)["age"].factor, 4)  # coded, 14 years are 2
    0.1429
    """
    return _units(task, task.coefficient_scale, *_in_units(task))


def units_beside(task: Task, scale: Scale) -> dict[str, Unit]:
    """The units of a learner whose features a task's `Encoder` codes, and whose target is as it is.

    Parameters
    ----------
    task
        The one whose public bounds features are coded by.
    scale
        What the learner's coefficients are of, whatever those of the task would be.
    """
    half = (task.target.high - task.target.low) / 2.0 if isinstance(task.target, RealTarget) else 1.0
    factor, shift = (0.5, 0.5) if scale == "probability" else (1.0, 0.0)
    return _units(task, scale, factor / half, shift)


def _units(task: Task, scale: Scale, factor: float, shift: float) -> dict[str, Unit]:
    coding = task.coding
    factors = (factor * coding.unit_factors).tolist()
    found = {
        name: Unit(label, own, shift if is_constant(name) else 0.0)
        for name, label, own in zip(coding.names, coding.unit_labels, factors, strict=True)
    }
    if not isinstance(task.target, ClassTarget):
        return found
    if scale != "probability":
        # Coefficients of classes are contrasts of log odds, which have no units.
        return {}
    return {
        f"{label}:{name}": replace(unit, label=f"{label}: {unit.label}")
        for label in task.target.classes
        for name, unit in found.items()
    }


def _in_units(task: Task) -> tuple[float, float]:
    """What effects per unit, in the target's units as coded, are to be multiplied by; and what an intercept lacks."""
    if isinstance(task.target, RealTarget):
        half, middle = (task.target.high - task.target.low) / 2.0, (task.target.high + task.target.low) / 2.0
        linked = PROTOCOLS[task.protocol].has_link(task.block)
        return (1.0 / half, 0.0) if linked else (1.0, middle)
    if fits_probabilities(task):
        return 0.5, 0.5
    return 1.0, 0.0
