"""Forecasts of half-widths before anybody releases, by the estimator of the task's protocol.

The sums of an assumed population's releases are drawn with noise a few times, the protocol's own estimator runs on each
draw, and the forecast is the median of each half-width. So it includes everything that intervals allow for, such as
noise in a curvature, a public sample's sampling error and directions hidden by noise.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.numbers import rounded
from murk.errors import MurkError, UserError
from murk.inference.confidence_sequences import nominal_level, wider_level
from murk.inference.estimate import Estimate
from murk.inference.units import effect_units
from murk.privacy.mechanisms import BEST
from murk.protocols.device import device_for, loaded_state_arithmetic, part
from murk.protocols.population import Population, Records
from murk.results.report import coded_effects
from murk.task.coding import of_interest
from murk.task.privacy import DEFAULT_LEVEL
from murk.task.task import Task
from murk.task.windows import Repeats, effect_of

_ERROR_CODE = "MURK-LEARN-001"

DRAWS: Final = 5  # number of draws of the sums, unless medians need more
WIDEST: Final = 50.0  # points per standard deviation of a feature beyond which an interval is useless
_UNSETTLED = 0.1
# Largest factor by which the number of draws grows, and the relative standard error of medians at which it stops.
_MOST, _KNOWN = 3, 0.025
_MOST_PARTITIONS = 4
_NONE: Final = ("none: ", "no interval: ")  # prefixes of the notes of estimates without intervals


@dataclass(frozen=True)
class Forecast:
    """Half-widths that a protocol is expected to have."""

    people: int  # number of people who release
    halves: Mapping[str, float]  # half-width by coefficient, in coded units; infinite if it will not be learned
    # half-width of the average effect per unit, by feature, as in reports: in percentage points, or in a real target's
    # units; empty where reports have no average effects
    effects: Mapping[str, float] = field(default_factory=dict)
    # half-width per standard deviation, by feature, in points: hundredths of a probability or of the target's range
    spread: Mapping[str, float] = field(default_factory=dict)
    # whether half-widths hardly vary between draws of the noise, as they do only where the asymptotics hold
    settled: bool = True
    why: str = ""  # why no interval is bounded; empty if one is

    @property
    def learned(self) -> bool:
        """Whether any coefficient will be learned."""
        return any(map(math.isfinite, self.halves.values()))

    @property
    def points(self) -> float:
        """Median half-width of the average effect per standard deviation of a feature, in points."""
        return float(np.median(list(self.spread.values()))) if self.spread else math.inf

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "people": self.people,
            "half_widths": dict(self.halves),
            "effects": dict(self.effects),
            "points_per_deviation": dict(self.spread),
            "median_points": self.points,
            "learned": self.learned,
            "settled": self.settled,
            "why": self.why,
        }


def forecast(task: Task, population: Population, people: int, **settings: Any) -> Forecast:
    """Forecast what a task learns from a number of people; ``settings`` are those of `forecasts`."""
    return forecasts(task, population, [people], **settings)[people]


def forecasts(
    task: Task,
    population: Population,
    counts: Sequence[int],
    *,
    levels: Mapping[str, float] | None = None,
    draws: int = DRAWS,
    seed: int = 0,
    level: float = 0.95,
    more: bool = True,
    even_unlearned: bool = True,
    repeats: Repeats | None = None,
) -> dict[int, Forecast]:
    """Forecast what a task learns from several numbers of people, or of an organisation's records.

    ``population`` is the assumed population. Public rows to be set aside are drawn from it; a public file's are used as
    they are. ``levels`` maps a level to its share of people; by default all have the default level. The sums are drawn
    ``draws`` times from ``seed``. With ``more`` there are up to three times as many draws, until the medians of settled
    half-widths have a relative standard error of 2.5%. Numbers count answers; ``repeats`` tells how many of them may be
    of one person, by default as many as the task's caps allow within a window. Without ``even_unlearned`` drawing stops
    if the first draw bounds no interval. Protocols with consecutive models are simulated once: smaller numbers are the
    first people of the largest one. Raises UserError if the protocol cannot learn this task, or has no forecast.
    """
    counts = sorted(set(counts))
    if not counts or counts[0] < 1:
        raise UserError(f"people={counts[0] if counts else None!r}: give how many will release, at least 1")
    shares = {DEFAULT_LEVEL: 1.0} if levels is None else dict(levels)
    by_people = {people: _Draws(people) for people in counts}
    level = wider_level(level, repeats or task.repeats_within)
    drawn = 0
    while drawn < draws or (more and drawn < _MOST * draws and any(each.unsure for each in by_people.values())):
        if drawn == 1 and not even_unlearned and not any(each.learned for each in by_people.values()):
            break
        drawn += 1
        rng = np.random.default_rng([seed, counts[-1] % 2**32, drawn - 1])
        with_rows = _with_rows(task, population, rng)
        for people, step in zip(counts, _steps(with_rows, population.records, counts, shares, rng), strict=True):
            by_people[people].add(with_rows, step, level)
    return {people: each.forecast(task, population) for people, each in by_people.items()}


class _Draws:
    """Half-widths from repeated draws of the releases of a number of people."""

    def __init__(self, people: int) -> None:
        self.people, self.drawn, self.why = people, 0, ""
        self.halves, self.effects = list[Floats](), list[Floats]()
        self.names: tuple[str, ...] = ()

    def add(self, task: Task, step: Callable[[], Estimate], level: float) -> None:
        """Add a draw with the estimate that ``step`` returns; its sums may have no solution."""
        self.drawn += 1
        try:
            with loaded_state_arithmetic():
                estimate = step()
                halves = np.asarray(estimate.half_widths(level), dtype=np.float64)
                effects = _effects(task, estimate, level)
        except UserError:
            raise
        except (MurkError, np.linalg.LinAlgError):
            return
        self.names = estimate.names
        self.halves.append(halves)
        self.effects.append(effects)
        # Notes without these prefixes are about intervals that the noise left unbounded.
        if not np.isfinite(halves).any() and estimate.note.startswith(_NONE):
            self.why = estimate.note.removeprefix(_NONE[0]).removeprefix(_NONE[1])

    @property
    def learned(self) -> bool:
        """Whether any half-width is bounded."""
        return any(np.isfinite(halves).any() for halves in self.halves)

    @property
    def unsure(self) -> bool:
        """Whether medians need further draws."""
        spread = _spread(self.halves, self.drawn)
        # The relative standard error of a median of normal draws.
        return spread is not None and spread <= _UNSETTLED and math.sqrt(math.pi / 2.0 / self.drawn) * spread > _KNOWN

    def _medians(self, known: Sequence[Floats]) -> Floats:
        """Return medians over all draws; those without a solution, or without effects, count as infinite."""
        some = [each for each in known if len(each)]
        if not some:
            return np.empty(0)
        without = self.drawn - len(some)
        medians: Floats = np.median([*some, *([np.full_like(some[0], math.inf)] * without)], axis=0)
        return medians

    def forecast(self, task: Task, population: Population) -> Forecast:
        """Return the medians."""
        if not self.halves:
            return Forecast(self.people, dict.fromkeys(task.coding.names, math.inf), why="the sums determine nothing")
        spread = _spread(self.halves, self.drawn)
        settled = spread is not None and spread <= _UNSETTLED
        halves, effects = self._medians(self.halves), self._medians(self.effects)
        # Without any effects the result is empty, not infinite.
        stated = dict(zip(of_interest(effect_units(task)), effects.tolist(), strict=True)) if len(effects) else {}
        return Forecast(
            self.people,
            dict(zip(self.names, halves.tolist(), strict=True)),
            stated,
            _per_deviation(task, population, stated),
            settled,
            "" if np.isfinite(halves).any() else self.why or "noise hides every direction in most runs",
        )


def _with_rows(task: Task, population: Population, rng: np.random.Generator) -> Task:
    """Return the task with public rows sampled from the population, if it sets any aside."""
    if task.public is None:
        return task
    size = task.public.set_aside if task.covariates is None else int(task.covariates[1].sum())
    if size is None:
        raise UserError("public: {file: ...} was not read yet: resolve the task's public covariates first")
    counts = rng.multinomial(size, population.shares)
    return task.with_public(population.points[counts > 0], counts[counts > 0])


def _steps(
    task: Task, records: Records, counts: Sequence[int], shares: Mapping[str, float], rng: np.random.Generator
) -> Iterable[Callable[[], Estimate]]:
    """Return for each number of people a function that makes its estimate."""
    partitions = min(task.log.partitions, _MOST_PARTITIONS)
    steps: Iterable[Callable[[], Estimate]]
    steps = part(task.protocol, "forecast").estimates(device_for(task), records, counts, shares, partitions, rng)
    return steps


def as_written(protocol: str, settings: Mapping[str, Any]) -> str:
    """Return settings as a task file writes them."""
    words = (f"{key}: {str(value).lower() if isinstance(value, bool) else value}" for key, value in settings.items())
    return f"{protocol}: {{{', '.join(words)}}}"


def budget_words(task: Task, level: str = DEFAULT_LEVEL) -> str:
    """Return a level's guarantee in words, such as ``mu = 1``."""
    ((kind, figures),) = task.privacy.levels[level].to_dict().items()
    return ", ".join(f"{name} = {value:g}" for name, value in figures.items()) or kind


def dropped_mechanism(task: Task, other: Task) -> str:
    """Return the mechanism that a task names, as it writes it, if another protocol is compared without it; else ""."""
    named = task.privacy.mechanism
    return "" if named in (None, BEST, other.privacy.mechanism) else f"mechanism: {named}"


def _effects(task: Task, estimate: Estimate, level: float) -> Floats:
    """Return half-widths of average effects of interest; empty where reports have none."""
    units = effect_units(task)
    if not task.features:
        return np.asarray(estimate.half_widths(level) * [unit.factor for unit in units.values()], dtype=np.float64)
    pair = coded_effects(task.coefficient_scale, estimate, level)
    if pair is None:
        return np.zeros(0)
    halves = dict(zip(estimate.names, pair[1].tolist(), strict=True))
    return np.array([units[name].factor * halves[name] for name in of_interest(units)])


def _per_deviation(task: Task, population: Population, effects: Mapping[str, float]) -> dict[str, float]:
    """Return half-widths per standard deviation of a feature, or of a mean or shares, in points."""
    coding, X, shares = task.coding, population.points, population.shares
    spreads = np.sqrt(np.maximum(shares @ X**2 - (shares @ X) ** 2, 0.0))
    if not task.features:
        spreads = np.ones(1)
    # A real target's coded range has the width 2; effects on a probability are in points already.
    points = (50.0 if task.target.kind == "real" else 1.0) * spreads / coding.unit_factors
    # Each class has an effect of every feature, in order.
    indices = {name: index % coding.size for index, name in enumerate(effect_units(task))}
    return {name: half * float(points[indices[name]]) for name, half in effects.items()}


def _spread(halves: Sequence[Floats], draws: int) -> float | None:
    """Return the largest relative standard deviation of a half-width; None if one is unbounded in some draws."""
    widths = np.array(halves)
    bounded = np.isfinite(widths)
    if len(widths) < draws or np.any(bounded.any(axis=0) != bounded.all(axis=0)):
        return None
    finite = widths[:, bounded.all(axis=0)]
    if len(finite) < 2 or not finite.size:
        return 0.0
    return float(np.max(finite.std(axis=0, ddof=1) / finite.mean(axis=0)))


def again(task: Task, answers: int) -> Repeats:
    """Return the `Repeats` of a task if one person gives up to this number of answers."""
    same = task.privacy.repeats_answers
    return Repeats(answers, effect_of(answers, list(task.privacy.levels.values()), same=same), same=same)


LARGEST: Final = 25  # largest number of coefficients for which a run or a report waits for forecasts
FEWEST: Final = 1_000  # bounds of the search for a number of people
MOST: Final = 2**30


def people_for(
    task: Task, population: Population, within: Mapping[str | None, float], *, watched: bool = False, answers: int = 1
) -> int | None:
    """Return the number of people needed for these half-widths of average effects per unit; None beyond a billion.

    Half-widths are of 95% intervals for one planned look or, if ``watched``, for every look. One person may give up to
    ``answers`` of the answers. The search bisects powers of two; between the last two, half-widths are assumed to
    shrink with the root of the number. Raises UserError like `check_half_widths`.
    """
    names = check_half_widths(task, within)

    def excess(people: int) -> float:
        """Return the largest ratio of a half-width to the wanted one."""
        level = nominal_level(people / task.tightest_at, 0.95) if watched else 0.95
        effects = forecast(task, population, people, draws=1, level=level, repeats=again(task, answers)).effects
        wanted = {name: within.get(name, within.get(None, math.inf)) for name in names}
        return max((effects[name] / wanted[name] for name in effects if math.isfinite(wanted[name])), default=math.inf)

    try:
        low, high = int(math.log2(FEWEST)), int(math.log2(MOST))
        if excess(2**high) > 1.0:
            return None
        while high > low:
            middle = (low + high) // 2
            low, high = (low, middle) if excess(2**middle) <= 1.0 else (middle + 1, high)
    except UserError:
        return None
    if 2**high <= FEWEST:
        return FEWEST
    over = excess(2**high)
    return rounded(max(2**high * over**2, 2 ** (high - 1)))


def check_half_widths(task: Task, within: Mapping[str | None, float]) -> list[str]:
    """Return the names of the coefficients that have half-widths.

    Raises UserError for a wanted half-width that is not above 0, or of a feature that the task does not have.
    """
    names = of_interest(effect_units(task))
    for name, value in within.items():
        if name is not None and name not in names:
            names_listed = ", ".join(names) or "none, as log odds of classes have no units"
            raise UserError(
                f"no half-width of {name!r} can be requested; features with an average effect: {names_listed}"
            )
        if not value > 0.0:
            raise UserError(f"a half-width must be above 0, got {value:g}")
    return names
