"""Advice for a task whose result has no information: changes with clearly smaller forecast half-widths.

No suggested change requires people to trust another party, or devices to read models if they do not now. The forecasts
assume people as the releases describe them, or typical people, with moderate effects.
"""

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final

import numpy as np

from murk._internal.numbers import listed
from murk.errors import UserError
from murk.inference.estimate import Extent
from murk.inference.units import effect_units
from murk.planning.forecast import LARGEST, Forecast, again, as_written, budget_words, dropped_mechanism, forecast
from murk.protocols.population import Effects, Population, coefficients, designs
from murk.results.diagnosis import Advice
from murk.task.features import NumberFeature, RealTarget
from murk.task.protocols.registry import PROTOCOLS
from murk.task.task import Task

CLEARLY: Final = 0.75  # a half-width is clearly smaller if its ratio to the task's own is below this
_MORE_PEOPLE: Final = 4
_MORE_BUDGET: Final = 2.0
_FILLED: Final = 0.5
_SIGMAS: Final = 2.0
_QUICK: Final = {"draws": 2, "more": False, "even_unlearned": False}


def advise(task: Task, people: int, extent: Extent | None = None, sizes: bool = True) -> list[Advice]:
    """Return changes of a task whose forecast is clearly better, the best first.

    ``people`` is the number of people who released, or of an organisation's records. ``extent`` has the features'
    second moments, estimated from releases. ``sizes`` tells whether to try more people and a larger budget, too.
    """
    if task.coding.size > LARGEST or people < 1:
        return []
    population = _population(task, extent)
    try:
        now = forecast(task, population, people, **_QUICK, repeats=again(task, task.repeats.most))
    except UserError:
        return []
    if now.learned and not now.spread:
        return []  # no average effects to compare
    advice = []
    for words, other, their_population, count in _changes(task, population, people, sizes):
        try:
            changed = forecast(other, their_population, count, **_QUICK, repeats=again(other, task.repeats.most))
        except UserError:
            continue
        if math.isfinite(changed.points) and changed.points < CLEARLY * now.points:
            advice.append(_advice(task, words, now, changed))
    return sorted(advice, key=lambda change: change.after)


def _advice(task: Task, words: str, now: Forecast, changed: Forecast) -> Advice:
    """Return advice with half-widths of average effects, in points of a probability or in a real target's units."""
    units = effect_units(task)
    # The widest half-width of an effect over all of a feature's bounds.
    widest = max(changed.effects, key=lambda name: changed.effects[name] / units[name].factor)
    real = task.target if isinstance(task.target, RealTarget) else None
    per_point = 1.0 if real is None else (real.high - real.low) / 100.0
    return Advice(
        words,
        "points" if real is None else f"units of {real.name}",
        per_point * now.points,
        per_point * changed.points,
        units[widest].label,
        now.effects.get(widest, math.inf),
        changed.effects[widest],
    )


def _changes(
    task: Task, population: Population, people: int, sizes: bool
) -> Iterator[tuple[str, Task, Population, int]]:
    """Yield each change in words, with its task, population and number of people."""
    kind = "records" if task.of_organisations else "people"
    for changed in PROTOCOLS[task.protocol].alternatives(task.block, task.target.kind):
        settings = task.block.model_dump(mode="json", by_alias=True) | changed
        with suppress(UserError):
            yield as_written(task.protocol, changed), task.with_protocol(task.protocol, **settings), population, people
    if not task.of_organisations:
        # Do not advise that devices read models if they do not now.
        able = [name for name in PROTOCOLS if not PROTOCOLS[name].of_organisations and name != task.protocol]
        interactive = PROTOCOLS[task.protocol].reads_models(task.block)
        for name in able:
            settings = {} if interactive else PROTOCOLS[name].without_models
            if settings is not None:
                with suppress(UserError):
                    other = task.with_protocol(name, **settings)
                    dropped = dropped_mechanism(task, other)
                    written = f"protocol: {name}{f', {as_written(name, settings)}' if settings else ''}"
                    yield f"{written}{dropped and f' without {dropped}'}", other, population, people
    yield from _tighter(task, population, people)
    if sizes:
        yield f"{_MORE_PEOPLE} times the {kind}", task, population, _MORE_PEOPLE * people
        try:
            more = task.with_budget(_MORE_BUDGET)
        except UserError:
            return
        yield f"a budget of {budget_words(more)}", more, population, people


def _population(task: Task, extent: Extent | None) -> Population:
    """Return a population with the means and variances that releases show; without these, a typical population."""
    typical = designs(task, Effects())[0]
    if task.covariates is not None or extent is None or not extent.known or len(extent.moment) != task.coding.size:
        return typical
    points = typical.points.copy()
    for index in range(task.coding.size - 1):
        column, mean = points[:, index], float(extent.mean[index])
        variance, error = extent.variance(index)
        if variance < _SIGMAS * error:
            continue
        if set(np.unique(column)) <= {-1.0, 1.0}:
            # Use the released share of the category, and change as few rows as possible.
            share = min(max((1.0 + mean) / 2.0, 1.0 / len(column)), 1.0 - 1.0 / len(column))
            rank = np.argsort(np.argsort(column, kind="stable"), kind="stable")
            points[:, index] = np.where(rank >= len(column) - round(share * len(column)), 1.0, -1.0)
        else:
            spread = math.sqrt(variance) / max(float(column.std()), 1e-9)
            points[:, index] = np.clip(mean + spread * (column - column.mean()), -1.0, 1.0)
    theta = coefficients(task, points, typical.shares, Effects())
    return replace(typical, name="released", points=points, theta=theta)


def _tighter(task: Task, population: Population, people: int) -> Iterator[tuple[str, Task, Population, int]]:
    """Yield the task with tighter bounds for features whose values fill little of their bounds, if there are any."""
    if task.covariates is not None:
        return
    document, names = json.loads(task.document()), task.coding.names
    points, theta = population.points.copy(), population.theta.copy()
    tightened = []
    for index, feature in enumerate(task.features):
        if not isinstance(feature, NumberFeature):
            continue
        place = names.index(feature.name)
        low, high = float(points[:, place].min()), float(points[:, place].max())
        middle, half = (low + high) / 2.0, (high - low) / 2.0
        if not 0.0 < half < _FILLED:
            continue
        points[:, place] = (points[:, place] - middle) / half
        # The coefficients of the same line in the new units.
        theta[..., -1] += theta[..., place] * middle
        theta[..., place] *= half
        centre, scale = (feature.low + feature.high) / 2.0, (feature.high - feature.low) / 2.0
        ends = centre + scale * (middle - half), centre + scale * (middle + half)
        kept = {key: value for key, value in document["features"][index].items() if key not in ("typical", "missing")}
        document["features"][index] = kept | {"low": ends[0], "high": ends[1]}
        tightened.append(f"{feature.name} ({ends[0]:.3g} to {ends[1]:.3g})")
    if tightened:
        tight, words = Task.from_document(json.dumps(document).encode()), listed(tightened)
        yield f"tighter public bounds of {words}", tight, replace(population, points=points, theta=theta), people
