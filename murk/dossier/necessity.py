"""The section on necessity: what is learned from the people at hand, with half and with twice the budget."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from murk._internal.numbers import TOO_WIDE, many
from murk.dossier.content import Block, Table
from murk.dossier.example import with_sample
from murk.dossier.facts import Facts
from murk.dossier.prose import claims
from murk.errors import UserError
from murk.planning.forecast import WIDEST, Forecast
from murk.planning.plan import Plan, Tick, plan
from murk.task import Task

_MOST = 40  # rows of the table


@dataclass(frozen=True)
class Necessity:
    """Forecast for the people at hand; ``why_not`` says why there is none."""

    people: int
    origin: str  # source of the number of people
    plan: Plan | None
    why_not: str = ""

    @property
    def forecast(self) -> Forecast | None:
        """The forecast at the task's own budget, for the first assumed population."""
        if self.plan is None:
            return None
        cell = self.plan.cell(self.plan.task.protocol, self.people, 1.0, self.plan.designs[0].name)
        return None if cell is None else cell.forecast

    @property
    def too_few(self) -> bool:
        """Whether the people at hand are too few to learn anything."""
        forecast = self.forecast
        return forecast is not None and (not forecast.learned or (bool(forecast.spread) and forecast.points > WIDEST))

    @property
    def number(self) -> str:
        """The number of people, in words."""
        return f"{self.people:,}"


def necessity_of(task: Task, people: int, origin: str, tick: Tick | None = None) -> Necessity:
    """Forecast what the task learns from a number of people (records, of an organisation)."""
    try:
        return Necessity(people, origin, plan(with_sample(task), people=[people], protocols=[task.protocol], tick=tick))
    except UserError as error:
        return Necessity(people, origin, None, str(error))


def necessity(facts: Facts, found: Necessity | None) -> Iterator[Block]:
    """Yield the section on necessity."""
    forecast = found.forecast if found is not None else None
    accounts = facts.accounts
    refused = many(accounts.refused, "request") if accounts is not None and accounts.refused else ""
    yield from claims(
        "necessity",
        facts,
        found=found,
        forecast=forecast,
        records="records" if facts.task.of_organisations else "people",
    )
    if found is not None and found.plan is not None and forecast is not None:
        yield from _table(found, found.plan, forecast)
    yield from claims("necessity-groups", facts, found=found, hardest=_hardest(found), refused=refused)


def _table(found: Necessity, planned: Plan, forecast: Forecast) -> Iterator[Block]:
    of_effects, design = bool(forecast.effects), planned.designs[0].name
    names = list(forecast.effects or forecast.halves)[:_MOST]
    rows = []
    for name in names:
        cells = []
        for budget in planned.budgets:
            cell = planned.cell(planned.task.protocol, found.people, budget, design)
            each = cell.forecast if cell is not None else None
            halves = {} if each is None else each.effects if of_effects else each.halves
            half = halves.get(name, math.inf)
            cells.append(f"{half:.2g}" if math.isfinite(half) else "nothing is learned" if each is not None else "-")
        rows.append((planned.units.get(name, name), *cells))
    quantity = "average effect" if of_effects else "coefficient, with features from -1 to 1"
    yield Table((f"half-width of the {quantity}", *planned.budgets.values()), tuple(rows), ("forecast",))


def _hardest(found: Necessity | None) -> str:
    """Name the least and the most precise effect of a category, with half-widths; empty without two categories."""
    forecast = found.forecast if found is not None else None
    if found is None or found.plan is None or forecast is None or not forecast.spread:
        return ""
    groups = [name for name in forecast.spread if found.plan.units.get(name, "").find(" against ") >= 0]
    if len(groups) < 2:
        return ""
    ranked = sorted(groups, key=lambda name: forecast.effects.get(name, math.inf))
    best, worst = ranked[0], ranked[-1]
    return f"{found.plan.units[worst]} ({_half(forecast, worst)}, and {found.plan.units[best]} {_half(forecast, best)})"


def _half(forecast: Forecast, name: str) -> str:
    half = forecast.effects.get(name, math.inf)
    return f"±{half:.2g}" if math.isfinite(half) else TOO_WIDE
