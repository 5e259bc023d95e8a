"""A plan in one line, shown when a run begins."""

from __future__ import annotations

from typing import Final

from murk.errors import UserError
from murk.learners.core.design import Effects, designs
from murk.learners.estimates.units import units
from murk.planning.forecast import WIDEST, budget_words, forecast
from murk.planning.words import features_words, rate_words
from murk.stream.task.privacy import DEFAULT_LEVEL
from murk.stream.task.task import Task

LARGEST: Final = 25
"""Most coefficients for a forecast before a run; halved for few people, and for chains with models of their own."""
MANY: Final = 20_000
"""Number of people from which a run takes so long that another second does not matter."""
SETTLED: Final = 13
"""Most coefficients for which there is more than one draw, to see how much draws differ."""

_NAMED = 3


def outlook(task: Task, people: int, level: str = DEFAULT_LEVEL, rate: float | None = None) -> str | None:
    """Return expected half-widths for a number of people in a sentence, or None if they take too long to forecast.

    The task's public covariates must be resolved. ``level`` is a level's name, or ``lot`` for all levels in equal
    shares; for levels in a column, whose shares are unknown, None is returned. ``rate`` is the share of positive
    targets, by default the task's rate or, if that states none, a half.

    Examples
    --------
    >>> task = Task.parse('''
    ... name: third-child
    ... features: [{name: age, low: 21, high: 35}]
    ... target: {name: third_child, kind: binary, positive: yes, negative: no}
    ... privacy: {guarantee: {gdp: {mu: 1.0}}}
    ... ''')
    >>> outlook(task, 500).partition(". ")[0]
    '500 people at mu = 1: hardly anything can be learned from so few'
    """
    levels, unit_of = task.privacy.levels, units(task)
    shares = dict.fromkeys(levels, 1.0) if level == "lot" else {level: 1.0}
    if people < 1 or not shares.keys() <= levels.keys():
        return None
    # Without covariates gradients have no interval, or one by random scaling, which is slow to simulate.
    if task.protocol == "gradients" and (task.public is None or people < MANY):
        return None
    chains = getattr(task.block, "models", None) == "own" and task.log.partitions > 1
    if (1 + (people < MANY)) * (1 + chains) * task.coding.size > LARGEST:
        return None
    try:
        assumed = Effects(rate=rate)
        population = designs(task, assumed)[0]
        draws = 3 if task.coding.size <= SETTLED else 1
        expected = forecast(task, population, people, levels=shares, draws=draws, more=False, even_unlearned=False)
    except UserError:
        return None
    if not unit_of or (expected.learned and not expected.effects):
        return None
    kind = "records" if task.of_organisations else "people"
    budget = "levels drawn at random" if level == "lot" else budget_words(task, level)
    named = [name for name, points in expected.spread.items() if points <= WIDEST]
    given = ", ".join(filter(None, [rate_words(task, assumed), features_words(task)]))
    if not named:
        return (
            f"{people:,} {kind} at {budget}: hardly anything can be learned from so few. Assumed: {given} (murk plan)"
        )
    unit, factor = ("", 1.0) if task.target.kind == "real" else (" points", 100.0)
    parts = [f"{factor * expected.effects[name]:.2g}{unit} ({unit_of[name].label})" for name in named[:_NAMED]]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    noun = "half-width of the average effect" if len(parts) == 1 else "half-widths of average effects"
    about = "about" if expected.settled and draws > 1 else "roughly"
    loose = "" if expected.settled else "; they differ from run to run"
    return (
        f"{people:,} {kind} at {budget}: {noun} {about} {', '.join(parts)}{more}{loose}. Assumed: {given} (murk plan)"
    )
