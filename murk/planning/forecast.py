"""Half widths before anybody has released anything, by the estimator that a task's releases would have.

What so many people of an assumed population would release is added up, noise and all, a few times; each protocol's own
estimator is run on the sums, and of each half width the median is taken. So whatever an interval allows for (noise in
a curvature, a public sample's own chance, directions that noise hides) is in the forecast as it will be in the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from murk.errors import MurkError, UserError
from murk.learners.core.design import Population, Records
from murk.learners.estimates.estimate import Estimate
from murk.learners.estimates.units import units
from murk.learners.problem import plausible, problem_for
from murk.learners.results.report import average_effects
from murk.stream.task.data.coding import is_constant
from murk.stream.task.privacy import DEFAULT_LEVEL
from murk.stream.task.registry import part
from murk.stream.task.task import Task

Array = NDArray[np.float64]

DRAWS: Final = 5
"""Times that sums are drawn, at first."""
WIDEST: Final = 50.0
"""Points per standard deviation of a feature beyond which an interval says nothing."""

_UNSETTLED = 0.1
# Settled half widths are drawn up to so many times more until their medians are known to this relative standard error.
_MOST, _KNOWN = 3, 0.025
_MOST_CHAINS = 4
_NONE: Final = ("none: ", "no interval: ")
"""How notes of estimates begin that have no interval."""


@dataclass(frozen=True)
class Forecast:
    """Half widths that a protocol is expected to have.

    Parameters
    ----------
    people
        Who release.
    halves
        Coefficient to its half width, in coded units; infinite where it is not to be learned.
    effects
        Feature to the half width of its average effect per unit, as reports state it: on a probability, or on a real
        target; empty where reports state none.
    spread
        Feature to that of a standard deviation of it, in points: hundredths of a probability or of the target's range.
    settled
        Whether draws of the noise hardly matter: before that asymptotics do not hold yet, and half widths still vary
        from one run to the next.
    why
        Why no interval has an end; empty where one has.
    """

    people: int
    halves: Mapping[str, float]
    effects: Mapping[str, float] = field(default_factory=dict)
    spread: Mapping[str, float] = field(default_factory=dict)
    settled: bool = True
    why: str = ""

    @property
    def learned(self) -> bool:
        """Whether any coefficient is to be learned."""
        return any(map(math.isfinite, self.halves.values()))

    @property
    def points(self) -> float:
        """Median half width of the average effect of a standard deviation of a feature, in points."""
        return float(np.median(list(self.spread.values()))) if self.spread else math.inf

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
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


def forecast(
    task: Task, population: Population, people: int, *, levels: Mapping[str, float] | None = None, draws: int = DRAWS,
    seed: int = 0, level: float = 0.95, more: bool = True, even_unlearned: bool = True,
) -> Forecast:  # fmt: skip
    """What a task is expected to learn of so many people.

    Parameters
    ----------
    task
        The task; where it sets public rows aside they are drawn from the population, else they are its covariates.
    population
        The people, as they are taken to be.
    people
        How many release; of an organisation, how many records it has.
    levels
        Level to its share of the people; by default all are at the default one.
    draws, seed
        How often sums are drawn, and from what.
    more
        Whether they are drawn up to three times as often where half widths are settled and their median is not known to
        2.5%.
    even_unlearned
        Whether they are drawn again where the first draw told nothing.
    level
        Nominal level of the intervals.

    Raises
    ------
    UserError
        If the protocol cannot learn this task, or has no forecast.
    """
    return forecasts(
        task, population, [people], levels=levels, draws=draws, seed=seed, level=level, more=more,
        even_unlearned=even_unlearned,
    )[people]  # fmt: skip


def forecasts(
    task: Task, population: Population, counts: Sequence[int], *, levels: Mapping[str, float] | None = None,
    draws: int = DRAWS, seed: int = 0, level: float = 0.95, more: bool = True, even_unlearned: bool = True,
) -> dict[int, Forecast]:  # fmt: skip
    """What a task is expected to learn of several numbers of people, each as `forecast` says it.

    Where models follow one another, all are read off one path: the first so many of the people are the same ones.

    Raises
    ------
    UserError
        As `forecast`.
    """
    counts = sorted(set(counts))
    if not counts or counts[0] < 1:
        raise UserError(f"people={counts[0] if counts else None!r}: give how many will release, at least 1")
    shares = {DEFAULT_LEVEL: 1.0} if levels is None else dict(levels)
    found = {people: _Draws(people) for people in counts}
    drawn = 0
    while drawn < draws or (more and drawn < _MOST * draws and any(one.unsure for one in found.values())):
        if drawn == 1 and not even_unlearned and not any(one.learned for one in found.values()):
            break
        drawn += 1
        rng = np.random.default_rng([seed, counts[-1] % 2**32, drawn - 1])
        own = _with_rows(task, population, rng)
        for people, one in _estimates(own, population.records, counts, shares, rng):
            found[people].add(own, one, level)
    return {people: one.forecast(task, population) for people, one in found.items()}


class _Draws:
    """What draws of some people's releases gave."""

    def __init__(self, people: int) -> None:
        self.people = people
        self.drawn = 0
        self.halves: list[Array] = []
        self.effects: list[Array] = []
        self.names: tuple[str, ...] = ()
        self.why = ""

    def add(self, task: Task, one: Estimate | None, level: float) -> None:
        """Add a draw; None where its sums have no solution."""
        self.drawn += 1
        if one is None:
            return
        try:
            with plausible():
                halves = np.asarray(one.half_widths(level), dtype=np.float64)
                effects = _effects(task, one, level)
        except UserError:
            raise
        except (MurkError, np.linalg.LinAlgError):
            return
        self.names = one.names
        self.halves.append(halves)
        self.effects.append(effects)
        # Notes that do not begin so are on intervals, which noise left without an end.
        if not np.isfinite(halves).any() and one.note.startswith(_NONE):
            self.why = one.note.removeprefix(_NONE[0]).removeprefix(_NONE[1])

    @property
    def learned(self) -> bool:
        """Whether any half width has an end."""
        return any(np.isfinite(halves).any() for halves in self.halves)

    @property
    def unsure(self) -> bool:
        """Whether medians are worth further draws."""
        return _unsure(self.halves, self.drawn)

    def forecast(self, task: Task, population: Population) -> Forecast:
        """The medians."""
        if not self.halves:
            return Forecast(self.people, dict.fromkeys(task.coding.names, math.inf), why="the sums determine nothing")
        settled = _settled(self.halves, self.drawn)
        # Draws without a solution are of runs that learn nothing, too: their half widths have no end.
        without = self.drawn - len(self.halves)
        halves, effects = (
            np.median(np.array([*known, *([np.full_like(known[0], math.inf)] * without)]), axis=0)
            for known in (self.halves, self.effects)
        )
        # Where there are no effects at all they are none, and not infinite.
        stated = dict(zip(_stated(task), effects.tolist(), strict=True)) if len(effects) else {}
        return Forecast(
            self.people,
            dict(zip(self.names, halves.tolist(), strict=True)),
            stated,
            _per_deviation(task, population, stated),
            settled,
            "" if np.isfinite(halves).any() else self.why or "noise hides every direction in most runs",
        )


def _with_rows(task: Task, population: Population, rng: np.random.Generator) -> Task:
    """The task with public rows that are a sample of the population, as many as it has."""
    if task.public is None:
        return task
    size = task.public.set_aside if task.covariates is None else int(task.covariates[1].sum())
    if size is None:
        raise UserError("public: {file: ...} was not read yet: resolve the task's public covariates first")
    counts = rng.multinomial(size, population.shares)
    return task.with_public(population.points[counts > 0], counts[counts > 0])


def _estimates(
    task: Task, records: Records, counts: Sequence[int], shares: Mapping[str, float], rng: np.random.Generator
) -> Iterator[tuple[int, Estimate | None]]:
    """Each number of people with its estimate; None where its sums have no solution."""
    problem = problem_for(task)
    chains = min(task.log.partitions, _MOST_CHAINS)
    steps = part(task.protocol, "forecast").estimates(problem, records, counts, shares, chains, rng)
    for people, step in zip(counts, steps, strict=True):
        try:
            with plausible():
                one: Estimate | None = step()
        except UserError:
            raise
        except (MurkError, np.linalg.LinAlgError):
            one = None
        yield people, one


def as_written(protocol: str, settings: Mapping[str, Any]) -> str:
    """Return settings as a task file writes them."""
    return f"{protocol}: {{{', '.join(f'{key}: {value}' for key, value in settings.items())}}}"


def budget_words(task: Task, level: str = DEFAULT_LEVEL) -> str:
    """A level's guarantee, as in ``mu = 1``."""
    ((kind, figures),) = task.privacy.levels[level].to_dict().items()
    return ", ".join(f"{name} = {value:g}" for name, value in figures.items()) or kind


def _stated(task: Task) -> list[str]:
    return [name for name in units(task) if not is_constant(name)]


def _effects(task: Task, one: Estimate, level: float) -> Array:
    """Half widths of average effects, in the order of `_stated`; empty where reports state none."""
    found = average_effects(task.coefficient_scale, units(task), one, level)
    if found is None:
        return np.zeros(0)
    return np.array([(found[name]["interval"][1] - found[name]["interval"][0]) / 2.0 for name in _stated(task)])


def _per_deviation(task: Task, population: Population, effects: Mapping[str, float]) -> dict[str, float]:
    """Half widths per standard deviation of a feature, in points."""
    coding, X, shares = task.coding, population.points, population.shares
    spreads = np.sqrt(np.maximum(shares @ X**2 - (shares @ X) ** 2, 0.0))
    # A real target's factors are in its own units, of which its coded range is 2.
    points = (50.0 if task.target.kind == "real" else 100.0) * spreads / coding.unit_factors
    # Of classes each has an effect of every feature, in their order.
    places = {name: place % coding.size for place, name in enumerate(units(task))}
    return {name: half * float(points[places[name]]) for name, half in effects.items()}


def _settled(halves: Sequence[Array], draws: int) -> bool:
    """Whether half widths hardly differ from draw to draw, and none has an end in some and not in others."""
    spread = _spread(halves, draws)
    return spread is not None and spread <= _UNSETTLED


def _unsure(halves: Sequence[Array], draws: int) -> bool:
    """Whether half widths hardly differ, and more than what is wanted of their medians."""
    spread = _spread(halves, draws)
    # A median's standard error, of normal draws.
    return spread is not None and spread <= _UNSETTLED and math.sqrt(math.pi / 2.0 / draws) * spread > _KNOWN


def _spread(halves: Sequence[Array], draws: int) -> float | None:
    """The largest relative standard deviation; None where draws disagree on which half widths have an end."""
    found = np.array(halves)
    ended = np.isfinite(found)
    if len(found) < draws or np.any(ended.any(axis=0) != ended.all(axis=0)):
        return None
    known = found[:, ended.all(axis=0)]
    if len(known) < 2 or not known.size:
        return 0.0
    return float(np.max(known.std(axis=0, ddof=1) / known.mean(axis=0)))
