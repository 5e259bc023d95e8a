"""Descriptions of a forecast's assumptions, and of its half-widths under other assumptions."""

from __future__ import annotations

import math
from typing import Final

from murk.learners.core.design import Effects, designs, rate_of
from murk.planning.forecast import Forecast, forecast
from murk.stream.task.data.features import CategoryFeature, RealTarget
from murk.stream.task.task import Task

RARE: Final = 0.05
"""Rate of a rare outcome, for comparison with a guessed one."""


def rate_words(task: Task, effects: Effects) -> str:
    """Return the assumed rate and its source in words.

    Examples
    --------
    >>> text = '''
    ... name: readmission
    ... features: [{name: age, low: 20, high: 90}]
    ... target: {name: again, kind: binary, positive: yes, negative: no, rate: 0.06}
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... '''
    >>> rate_words(Task.parse(text), Effects())
    '6% of the targets positive, as the task states'
    >>> rate_words(Task.parse(text.replace(", rate: 0.06", "")), Effects())
    '50% of the targets positive, a guess (state target: {rate: ...} or --rate)'
    """
    rate = rate_of(task, effects)
    key = "typical" if isinstance(task.target, RealTarget) else "rate"
    option = "" if isinstance(rate.value, tuple) else " or --rate"
    known = {
        "stated": "as stated",
        "task": "as the task states",
        "assumed": f"a guess (state target: {{{key}: ...}}{option})",
    }[rate.source]
    if isinstance(rate.value, tuple):
        shares = "equal shares of the classes" if rate.assumed else "classes in their shares"
        return f"{shares}, {known}"
    if isinstance(task.target, RealTarget):
        return f"the target's mean at {rate.value:.2g} of its range, {known}"
    return f"{percent(rate.value)} of the targets positive, {known}"


def percent(share: float) -> str:
    """Return a share as a percentage with two digits.

    Examples
    --------
    >>> percent(0.06), percent(0.5), percent(0.0123)
    ('6%', '50%', '1.2%')
    """
    return f"{100.0 * share:.2g}%"


def features_words(task: Task) -> str:
    """Return the assumptions about features in words; empty with public rows."""
    if task.public is not None:
        return ""
    numbers = [feature for feature in task.features if not isinstance(feature, CategoryFeature)]
    stated = [feature for feature in numbers if feature.typical is not None]
    if len(stated) == len(task.features):
        return "features as the task's typical ranges"
    others = "other features" if stated else "features"
    return f"{others} spread over their bounds"


def what_if_rare(task: Task, effects: Effects, found: Forecast) -> str:
    """Return what half-widths would be for a rare outcome, in words; empty if somebody stated a rate."""
    rate = rate_of(task, effects)
    if not rate.assumed or task.target.kind != "binary" or not found.spread:
        return ""
    rare = Effects(effects.each, effects.named, RARE)
    # Another rate changes only the constants.
    other = forecast(task, designs(task, rare)[0], found.people, draws=1, more=False)
    if not other.learned or not math.isfinite(other.points):
        said = "most coefficients would not be learned"
    else:
        said = f"a half-width of {found.points:.2g} points would be {other.points:.2g}"
    return (
        f"The rate is a guess, and forecasts depend on it: were {percent(RARE)} of the targets positive, with "
        f"{found.people:,} people {said}."
    )
