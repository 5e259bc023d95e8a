"""A plan in one line, shown when a run begins, and the words for a forecast's assumptions."""

import math
from typing import Final

from murk.errors import UserError
from murk.inference.units import effect_units
from murk.planning.forecast import LARGEST, WIDEST, Forecast, budget_words, forecast
from murk.protocols.population import Effects, designs, rate_of
from murk.task.features import CategoryFeature, RealTarget
from murk.task.privacy import DEFAULT_LEVEL, MOST_LEVELS
from murk.task.task import Task
from murk.task.windows import Repeats

RARE: Final = 0.05  # rate of a rare outcome, for comparison with a rate that was guessed


def rate_words(task: Task, effects: Effects, *, option: bool = True) -> str:
    """Return the assumed rate and its source in words; with ``option``, the command takes ``--rate`` for any target.

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
    or_option = " or --rate" if option and not isinstance(rate.value, tuple) else ""
    sources = {
        "stated": "as stated",
        "task": "as the task states",
        "assumed": f"a guess (state target: {{{key}: ...}}{or_option})",
    }[rate.source]
    if isinstance(rate.value, tuple):
        shares = "equal shares of the classes" if rate.assumed else "classes in their shares"
        return f"{shares}, {sources}"
    if isinstance(task.target, RealTarget):
        return f"the target's mean at {rate.value:.2g} of its range, {sources}"
    return f"{percent(rate.value)} of the targets positive, {sources}"


def percent(share: float) -> str:
    """Format a share as a percentage with two significant digits."""
    return f"{100.0 * share:.2g}%"


def features_words(task: Task) -> str:
    """Return the assumptions about features in words; empty with public rows."""
    if task.public is not None or not task.features:
        return ""
    numbers = [feature for feature in task.features if not isinstance(feature, CategoryFeature)]
    stated = [feature for feature in numbers if feature.typical is not None]
    if len(stated) == len(task.features):
        return "features as the task's typical ranges"
    return f"{'other features' if stated else 'features'} spread over their bounds"


def missing_words(task: Task) -> str:
    """Return the stated shares of missing values in words; those of features are left out if public rows show them."""
    share = task.target.missing_share
    stated = [f"{percent(share)} of the targets missing"] if share else []
    stated += [f"{task.most_rows} rows of each person"] if task.most_rows > 1 else []
    if task.public is None and any(feature.missing_share for feature in task.features):
        stated.append("features with the task's shares of missing values")
    return ", ".join(stated)


def what_if_rare(task: Task, effects: Effects, found: Forecast) -> str:
    """Describe the half-widths for a rare outcome; empty if a rate was stated."""
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


MANY: Final = 20_000  # number of people from which a run takes so long that another second does not matter
SETTLED: Final = 13  # largest number of coefficients for which several draws show how much draws differ
_NAMED = 3


def outlook(
    task: Task, people: int, level: str = DEFAULT_LEVEL, rate: float | None = None, repeats: Repeats | None = None
) -> str | None:
    """Return expected half-widths for a number of people in a sentence, or None if they take too long to forecast.

    ``level`` is a level's name, or ``lot`` for all levels in equal shares; None is returned for levels in a column,
    whose shares are unknown. ``rate`` is the share of positive targets, by default the task's or else a half.
    ``repeats`` tells how often one person answers, by default as often as the task's caps allow. Public covariates
    must be resolved.
    """
    levels, unit_of = task.privacy.levels, effect_units(task)
    shares = dict.fromkeys(levels, 1.0) if level == "lot" else {level: 1.0}
    # All levels of a grid take too long.
    if people < 1 or not shares.keys() <= levels.keys() or len(shares) > MOST_LEVELS + 1:
        return None
    # Without covariates gradients have no interval, or one by random scaling, which is slow to simulate.
    if task.protocol == "gradients" and (task.public is None or people < MANY):
        return None
    partitions = getattr(task.block, "models", None) == "per-partition" and task.log.partitions > 1
    # Fewer for few people, and for partitions with models of their own.
    if (1 + (people < MANY)) * (1 + partitions) * task.coding.size > LARGEST:
        return None
    try:
        assumed = Effects(rate=rate)
        population = designs(task, assumed)[0]
        draws, repeats = 3 if task.coding.size <= SETTLED else 1, repeats or task.repeats
        settings = {"levels": shares, "draws": draws, "more": False, "even_unlearned": False, "repeats": repeats}
        expected = forecast(task, population, people, **settings)
    except UserError:
        return None
    if not unit_of or (expected.learned and not expected.effects):
        return None
    kind = "records" if task.of_organisations else "people" if repeats.most == 1 else "answers"
    budget = "levels drawn at random" if level == "lot" else budget_words(task, level)
    # An interval that contains every possible effect says nothing.
    named = [
        name
        for name, points in expected.spread.items()
        if points <= WIDEST and expected.effects[name] < unit_of[name].high - max(unit_of[name].low, 0.0)
    ]
    given = ", ".join(filter(None, [rate_words(task, assumed), features_words(task), missing_words(task)]))
    begin, end = f"{people:,} {kind} at {budget}", f"Assumed: {given} (murk plan)"
    if not named:
        return f"{begin}: hardly anything can be learned from so few. {end}"
    unit = "" if task.target.kind == "real" else " points"
    parts = [f"{expected.effects[name]:.2g}{unit} ({unit_of[name].label})" for name in named[:_NAMED]]
    more = f" and {len(named) - _NAMED} more" if len(named) > _NAMED else ""
    noun = "half-width" if len(parts) == 1 else "half-widths"
    if task.features:
        noun += " of the average effect" if len(parts) == 1 else " of average effects"
    about = "about" if expected.settled and draws > 1 else "roughly"
    loose = "" if expected.settled else "; they differ from run to run"
    return f"{begin}: {noun} {about} {', '.join(parts)}{more}{loose}. {end}"
