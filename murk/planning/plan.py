"""A plan: forecasts over people, budgets and protocols, people needed, a recommendation and a picture."""

import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np

from murk._internal.numbers import listed
from murk.errors import UserError
from murk.inference.average_effects import mean_slope
from murk.inference.confidence_sequences import fixed_only
from murk.inference.estimate import People
from murk.inference.units import effect_units
from murk.planning import forecast as forecasting
from murk.planning.choice import EQUAL, recommend
from murk.planning.forecast import Forecast, as_written, budget_words, dropped_mechanism
from murk.planning.outlook import what_if_rare
from murk.protocols.device import part
from murk.protocols.population import Effects, Population, designs, rate_of
from murk.results.plot import GREY, INK, figure
from murk.task.coding import of_interest
from murk.task.errors import nearest
from murk.task.protocols.registry import PROTOCOLS
from murk.task.task import Task

_ERROR_CODE = "MURK-LEARN-001"

PEOPLE: Final = (10_000, 100_000, 1_000_000)
FACTORS: Final = (0.5, 1.0, 2.0)
BEYOND: Final = 10**12  # largest number of people, more than exist
TOO_FEW: Final = "too few people to learn anything at this privacy level"
"""Reason for no interval if more people would give one."""

_DRAWS: Final = 3  # draws for each cell, fewer than for a single forecast: a table has two digits

Tick = Callable[[int, str], None]


@dataclass(frozen=True)
class Cell:
    """One forecast of a plan, or why there is none."""

    # settings of the forecast; ``budget`` is a factor of the task's own, ``design`` the name of the assumed population
    protocol: str
    people: int
    budget: float
    design: str
    forecast: Forecast | None  # the forecast; None if the protocol cannot learn the task
    refused: str = ""  # why the protocol cannot learn the task; else empty

    @property
    def points(self) -> float:
        """Median half-width of the average effect per standard deviation of a feature, in points."""
        return math.inf if self.forecast is None else self.forecast.points

    @property
    def without_effects(self) -> bool:
        """Whether coefficients have intervals, but no average effects."""
        return self.forecast is not None and self.forecast.learned and not self.forecast.effects

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {**vars(self), "forecast": None if self.forecast is None else self.forecast.to_dict()}


@dataclass(frozen=True)
class Plan:
    """Forecasts of a task by several protocols, with a recommendation."""

    task: Task  # the task
    designs: tuple[Population, ...]  # the assumed populations; protocols are compared on the first
    cells: tuple[Cell, ...]  # all forecasts
    budgets: Mapping[float, str]  # guarantee in words, by factor of the task's budget
    effect: float  # assumed average effect per standard deviation of the median feature, in points
    # by number of people: protocol chosen at the task's own budget (empty if nothing is learned), and the reason
    chosen: Mapping[int, tuple[str, str]]
    # by protocol: number of people needed for the wanted half-widths; None if no number suffices. Protocols without
    # average effects are missing.
    needs: Mapping[str, int | None] = field(default_factory=dict)
    # the same for intervals that hold at every look; protocols without such intervals are missing, too
    watched: Mapping[str, int | None] = field(default_factory=dict)
    effects: Effects = field(default_factory=Effects)  # assumptions about the target
    off: str = ""  # how half-widths would differ at another rate, if the rate was guessed; else empty

    def cell(self, protocol: str, people: int, budget: float, design: str) -> Cell | None:
        """Return one forecast."""
        wanted = protocol, people, budget, design
        return next(
            (cell for cell in self.cells if (cell.protocol, cell.people, cell.budget, cell.design) == wanted), None
        )

    @property
    def units(self) -> dict[str, str]:
        """Units of average effects in words, by feature; without features, units of means; empty for contrasts."""
        of_effects = effect_units(self.task)
        return {name: of_effects[name].label for name in of_interest(of_effects)}

    @property
    def people(self) -> list[int]:
        """Numbers of people, in order."""
        return sorted({cell.people for cell in self.cells})

    @property
    def protocols(self) -> list[str]:
        """Protocols, the task's own first."""
        return list(dict.fromkeys(cell.protocol for cell in self.cells))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        names, rate = self.task.coding.names, rate_of(self.task, self.effects)
        return {
            "task": self.task.name,
            "protocol": self.task.protocol,
            "designs": [
                {
                    "name": design.name,
                    "rows": len(design.points),
                    "coefficients": dict(zip(names, design.theta.tolist(), strict=True))
                    if design.theta.ndim == 1
                    else design.theta.tolist(),
                }
                for design in self.designs
            ],
            "budgets": {f"{factor:g}": words for factor, words in self.budgets.items()},
            "assumed": {
                "effect": self.effects.each,
                "effects": dict(self.effects.named),
                "rate": rate.value,
                "rate_source": rate.source,
                "missing_targets": self.task.target.missing_share or 0.0,
            },
            "effect_points": self.effect,
            "units": self.units,
            "forecasts": [cell.to_dict() for cell in self.cells],
            "chosen": {
                str(people): {"protocol": name or None, "reason": why} for people, (name, why) in self.chosen.items()
            },
            "people_needed": dict(self.needs),
            "people_needed_at_every_look": dict(self.watched),
            "tightest_at": self.task.tightest_at,
            "notes": [*filter(None, [self.off]), *remarks(self)],
        }


def plan(
    task: Task,
    *,
    people: Sequence[int] = PEOPLE,
    budgets: Sequence[float] = FACTORS,
    protocols: Sequence[str] | None = None,
    effects: Effects | None = None,
    within: Mapping[str | None, float] | None = None,
    draws: int = _DRAWS,
    tick: Tick | None = None,
) -> Plan:
    """Forecast what a task would learn, by its own protocol and by others.

    Public covariates must be resolved, or a number of people to set aside. ``budgets`` are factors of the task's own,
    ``protocols`` those to compare, by default all, and ``effects`` assumptions about the target. ``within`` maps
    features (None: all) to the wanted half-width of their average effect per unit. ``draws`` is the number of draws for
    forecasts of the task itself, one more than for others. ``tick`` is called with the number of forecasts made and the
    current protocol and population.
    Raises UserError for fewer people than 1, an unknown protocol, or an effect of an unknown feature.
    """
    for count in people:
        if not 1 <= count <= BEYOND:
            raise UserError(f"people={count!r}: give how many will release, at least 1 and at most 10^12")
    for name in protocols or ():
        if name not in PROTOCOLS:
            raise UserError(f"{name!r} is not a protocol; {nearest(name, PROTOCOLS)}")
    forecasting.check_half_widths(task, within or {})
    answers = task.repeats_within.most
    names = list(dict.fromkeys([task.protocol, *(protocols if protocols is not None else comparable(task))]))
    compared = designs(task, effects or Effects())
    cells: list[Cell] = []
    for name in names:
        # All populations for the task's own protocol, only the first one for the others.
        for design in compared if name == task.protocol else compared[:1]:
            made: list[Cell] = []
            # The largest budget first: smaller ones learn no more.
            for factor in sorted(budgets if design is compared[0] else _own_budget(budgets), reverse=True):
                own = _variant(task, name, factor)
                # Other budgets and protocols than the task's own need one draw less.
                repeats = draws if (name, factor) == (task.protocol, 1.0) else max(draws - 1, 1)
                made += _cells(own, name, people, factor, design, repeats, made, answers=answers)
                if tick is not None:
                    tick(len(cells) + len(made), f"{name}, {design.name} people")
            cells += sorted(made, key=lambda one: (people.index(one.people), budgets.index(one.budget)))
    words = {}
    for factor in budgets:
        variant = _variant(task, task.protocol, factor)
        words[factor] = f"{factor:g} times the budget" if isinstance(variant, str) else budget_words(variant)
    chosen = {
        count: choose(
            task, [cell for cell in cells if (cell.people, cell.budget, cell.design) == (count, 1.0, compared[0].name)]
        )
        for count in people
        if 1.0 in budgets
    }
    for count, (name, why) in chosen.items():
        if name == task.protocol or not task.of_organisations:
            chosen[count] = name, why + _by_alternative(task, cells, count, compared[0], draws)
    if not all(name for name, _ in chosen.values()):
        least = _why_no_interval([_variant(task, name, 1.0) for name in names], compared[0])
        chosen = {count: (name, why if name else least) for count, (name, why) in chosen.items()}
    needs, watched = {}, {}
    if within:
        for name in names:
            own = _variant(task, name, 1.0)
            if any(cell.without_effects for cell in cells if cell.protocol == name):
                continue
            needs[name] = (
                None if isinstance(own, str) else forecasting.people_for(own, compared[0], within, answers=answers)
            )
            if needs[name] is not None and not isinstance(own, str) and not fixed_only(own):
                watched[name] = forecasting.people_for(own, compared[0], within, watched=True, answers=answers)
    assumed, reference = effects or Effects(), (task.protocol, 1.0, compared[0].name)
    usable = [
        cell.forecast
        for cell in cells
        if (cell.protocol, cell.budget, cell.design) == reference and cell.forecast and math.isfinite(cell.points)
    ]
    off = what_if_rare(task, assumed, max(usable, key=lambda one: one.people)) if usable else ""
    return Plan(task, compared, tuple(cells), words, _effect(compared[0]), chosen, needs, watched, assumed, off)


def comparable(task: Task) -> list[str]:
    """Return the protocols that may learn a task.

    Protocols of a target alone need a task without features; only the task's own protocol sends known columns as they
    are.
    """
    if task.known_columns:
        return [task.protocol]
    return [name for name in PROTOCOLS if not task.features or not PROTOCOLS[name].target_alone]


def size(task: Task, people: Sequence[int], budgets: Sequence[float], protocols: Sequence[str] | None) -> int:
    """Return the number of forecasts of a plan."""
    others = {*(comparable(task) if protocols is None else protocols)} - {task.protocol}
    hard = 0 if task.covariates is not None else len(_own_budget(budgets))
    return len(set(people)) * (len(set(budgets)) * (1 + len(others)) + hard)


def _own_budget(budgets: Sequence[float]) -> set[float]:
    """Return the task's own budget, or all budgets without it."""
    return {1.0} if 1.0 in budgets else set(budgets)


def _variant(task: Task, protocol: str, factor: float) -> Task | str:
    """Return the task with another protocol and budget, or why that is impossible."""
    try:
        of_protocol = task if protocol == task.protocol else task.with_protocol(protocol)
        return of_protocol if factor == 1.0 else of_protocol.with_budget(factor)
    except UserError as error:
        return str(error)


def _cells(
    own: Task | str,
    name: str,
    people: Sequence[int],
    factor: float,
    design: Population,
    draws: int,
    larger: Sequence[Cell] = (),
    answers: int = 1,
) -> list[Cell]:
    """Return forecasts of a protocol at one budget, given those at larger budgets.

    One person may give up to ``answers`` of the answers; this is an argument since tasks at other budgets lack caps.
    """
    counts = list(dict.fromkeys(people))
    if isinstance(own, str):
        return [Cell(name, count, factor, design.name, None, own) for count in counts]
    # Fewer people at a smaller budget learn no more.
    hopeless = {
        each.people: each.forecast for each in larger if each.forecast is not None and not each.forecast.learned
    }
    made: dict[int, Forecast] = {}
    for count in counts:
        above = [known for most, known in hopeless.items() if most >= count]
        if above:
            made[count] = replace(above[0], people=count)
    try:
        if left := [count for count in counts if count not in made]:
            made |= forecasting.forecasts(
                own,
                design,
                left,
                draws=draws,
                more=False,
                even_unlearned=False,
                repeats=forecasting.again(own, answers),
            )
    except UserError as error:
        return [Cell(name, count, factor, design.name, None, str(error)) for count in counts]
    return [Cell(name, count, factor, design.name, made[count]) for count in counts]


def choose(task: Task, cells: Sequence[Cell]) -> tuple[str, str]:
    """Return the protocol with the best forecast, or an empty name, and why. Only sketches are replaced by sketches."""
    points = {cell.protocol: cell.points for cell in cells}
    try:
        choice = recommend(task, cells[0].people, organisation=task.of_organisations, half_widths=points)
    except UserError:
        possible = next((cell.protocol for cell in cells if cell.without_effects), None)
        if possible is None:
            return "", TOO_FEW
        # Half-widths without units, as of several classes, cannot be compared: choose the first protocol.
        return possible, f"{possible}: coefficients have intervals, but no average effect to compare"
    reason = choice.reason
    if choice.expected.get(task.protocol) is not None:
        bias = getattr(part(task.protocol, "forecast"), "bias", lambda task: "")(task)
        reason += bias and f"; without {bias}"
    if not task.of_organisations and math.isfinite(points.get("summaries", math.inf)):
        reason += f"; if an organisation is trusted with the records: sketch {points['summaries']:.2g} points"
    return choice.protocol, reason


def _by_alternative(task: Task, cells: Sequence[Cell], people: int, design: Population, draws: int) -> str:
    """Describe other settings of the compared protocols that have a clearly better forecast."""
    words = ""
    here = [cell for cell in cells if (cell.people, cell.budget, cell.design) == (people, 1.0, design.name)]
    # If people release, compare other protocols than the task's, too.
    names = [task.protocol] if task.of_organisations else dict.fromkeys(each.protocol for each in here)
    for name in names if task.features else ():
        points_here = [each.points for each in here if name == each.protocol or not task.of_organisations]
        try:
            block = (task if name == task.protocol else task.with_protocol(name)).block
            for changed in PROTOCOLS[name].alternatives(block, task.target.kind):
                other = task.with_protocol(name, **(block.model_dump(mode="json", by_alias=True) | changed))
                [found] = _cells(other, name, [people], 1.0, design, draws, answers=task.repeats_within.most)
                if EQUAL * found.points < min(points_here):
                    words += f"; with {as_written(name, changed)} {found.points:.2g} points"
        except UserError:
            continue
    return words


def _why_no_interval(tasks: Sequence[Task | str], population: Population) -> str:
    """Return why no protocol has an interval: too few people, or no number of people suffices."""
    for candidate in tasks:
        with suppress(UserError):
            if not isinstance(candidate, str) and forecasting.forecast(candidate, population, BEYOND, draws=1).learned:
                return TOO_FEW
    return "no interval by any of these protocols, however many people release"


def why_not(cell: Cell) -> str:
    """Return why a forecast has no half-width to compare."""
    if cell.forecast is None:
        return cell.refused
    if cell.forecast.why:
        return cell.forecast.why
    if cell.forecast.effects:
        return "most coefficients would not be learned"
    return "coefficients have intervals, and there is no average effect to compare"


def remarks(found: Plan) -> Iterator[str]:
    """Yield notes on a plan: protocols without any half-width, and too few people."""
    first, own, privacy = found.designs[0].name, found.task.protocol, found.task.privacy
    if privacy.grid is not None:
        yield (
            f"Everybody is assumed to have the budget of privacy.guarantee ({budget_words(found.task)}); people choose "
            f"on the grid of {privacy.range_words}. For the least that can be learned, state the smallest budget."
        )
    others = [variant for name in found.protocols if isinstance(variant := _variant(found.task, name, 1.0), Task)]
    if dropped := [other.protocol for other in others if dropped_mechanism(found.task, other)]:
        own_of, used = ("its own default mechanism", "it") if len(dropped) == 1 else (
            "their own default mechanisms", "one of them")  # fmt: skip
        yield (
            f"{listed(dropped)}: compared with {own_of}. To use {used}, remove mechanism: {privacy.mechanism} from the "
            "task, too."
        )
    of_protocol: list[str] = []
    # A protocol without a forecast has no remarks.
    with suppress(UserError):
        of_protocol += getattr(part(own, "forecast"), "remarks", lambda task: ())(found.task)
    yield from of_protocol
    cells = [cell for cell in found.cells if cell.design == first]
    for protocol in found.protocols:
        # Give the reason for the largest number of people at the largest budget.
        without = [cell for cell in cells if cell.protocol == protocol]
        if without and not any(math.isfinite(each.points) for each in without):
            reason = f"{protocol}: {why_not(max(without, key=lambda one: (one.people, one.budget)))}."
            if reason not in of_protocol:
                yield reason
        elif refused := next((each.refused for each in without if each.budget == 1.0 and each.refused), ""):
            yield f"{protocol}: {refused}."
    wide = [
        cell.people
        for cell in cells
        if (cell.budget, cell.protocol) == (1.0, own)
        and not (cell.refused or cell.without_effects)
        and cell.points > found.effect
    ]
    # Remark on the number of people only if more of them would give intervals.
    any_finite = any(math.isfinite(cell.points) for cell in cells if cell.protocol == own)
    if wide and (any_finite or _why_no_interval([found.task], found.designs[0]) == TOO_FEW):
        yield (
            f"By {own} at the task's budget, {max(wide):,} people are too few to distinguish an effect of the assumed "
            f"size ({found.effect:.2g} points) from none."
        )


def _effect(population: Population) -> float:
    """Return the average effect per standard deviation of the median feature, in points."""
    X, shares, theta = population.points, population.shares, population.theta
    if theta.ndim > 1 or len(theta) == 1:
        return math.nan
    spreads = np.sqrt(np.maximum(shares @ X**2 - (shares @ X) ** 2, 0.0))[:-1]
    slope, scale = 1.0, 50.0
    if population.kind == "binary":
        slope, scale = mean_slope(theta, People(X, shares, sampled=True))[0], 100.0
    return float(np.median(scale * slope * np.abs(theta[:-1]) * spreads))


_COLOURS: Final = {
    "scores": "#1f6feb",
    "moments": "#1a7f37",
    "gradients": "#bf8700",
    "examples": "#8250df",
    "summaries": "#cf222e",
}


def draw(found: Plan, form: str = "png") -> bytes:
    """Draw a plan as PNG, SVG or PDF, without unbounded intervals; raise UserError if matplotlib is not installed."""
    drawn = figure((3.6 * len(found.budgets) + 1.2, 3.8))
    panels = drawn.subplots(1, len(found.budgets), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (budget, words) in zip(panels, found.budgets.items(), strict=True):
        for protocol in found.protocols:
            line = [
                (people, cell.points)
                for people in found.people
                if (cell := found.cell(protocol, people, budget, found.designs[0].name)) and math.isfinite(cell.points)
            ]
            if line:
                axes.plot(*zip(*line, strict=True), marker="o", color=_COLOURS.get(protocol, GREY), label=protocol)
        if axes.get_lines() and math.isfinite(found.effect):
            axes.axhline(found.effect, color=INK, linewidth=0.8, linestyle="--", label="an effect as assumed")
        if not axes.get_lines():
            text = "no half-width\nof an average effect"
            axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color=GREY)
        axes.set(xscale="log", yscale="log", xlim=(found.people[0] / 1.5, found.people[-1] * 1.5), xlabel="people")
        axes.set_xticks(found.people, [f"{people:,}" for people in found.people], fontsize=8)
        axes.xaxis.set_minor_formatter("")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.tick_params(which="both", axis="y", labelsize=8)
        axes.set_title(words, fontsize=10)
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("half-width, points per standard deviation")
    handles = {
        label: handle for axes in panels for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if handles:
        drawn.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=len(handles), frameon=False)
    buffer = io.BytesIO()
    drawn.savefig(buffer, format=form, dpi=150)
    return buffer.getvalue()
