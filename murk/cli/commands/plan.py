"""``murk plan``: forecast half-widths before anybody releases."""

from __future__ import annotations

import itertools
import math
import shutil
import sys
from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import click

from murk._internal.atomic_files import write_whole
from murk._internal.numbers import NOT_LEARNED, TOO_WIDE
from murk.cli.options import as_json, assumed_rate, numbers_of_people
from murk.cli.output import check_picture, paragraph, print_json, progress, table

if TYPE_CHECKING:
    from murk.planning.forecast import Forecast
    from murk.planning.plan import Cell, Plan
    from murk.protocols.population import Effects
    from murk.task import Task

_ERROR_CODE = "MURK-CLI-002"

_MOST_FEATURES = 6
_LINE = 110


@click.command("plan")
@click.argument("task_path", metavar="TASK", type=click.Path())
@numbers_of_people(type=int)
@click.option(
    "--error",
    "errors",
    multiple=True,
    metavar="[FEATURE=]E",
    help="Find the number of people for half-widths of at most E, in the first table's units.",
)
@click.option(
    "--effect",
    "effects",
    multiple=True,
    metavar="[FEATURE=]X",
    help="Assumed effect per unit of FEATURE: an odds ratio, or the change of a real target; without "
    "FEATURE, per standard deviation of each.",
)
@assumed_rate
@click.option(
    "--public",
    "public",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Public records similar to the people's, used for the design and as public covariates.",
)
@click.option(
    "--protocol",
    "protocols",
    multiple=True,
    metavar="NAME",
    help="Protocol to compare; may be repeated.  [default: all]",
)
@click.option(
    "--picture",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Plot half-widths by number of people (PNG, SVG or PDF).",
)
@as_json
def command(
    task_path: str,
    people: tuple[int, ...],
    errors: tuple[str, ...],
    effects: tuple[str, ...],
    rate: float | None,
    public: Path | None,
    protocols: tuple[str, ...],
    picture: Path | None,
    as_json: bool,
) -> None:
    """Forecast half-widths of TASK for numbers of people, budgets and protocols, before anybody releases.

    The forecast simulates the sums of an assumed population's releases and runs each protocol's estimator on them. It
    reads nobody's record: the population is that of public covariates, or a typical and a hard one within the bounds.
    """
    from murk.cli.report import promises
    from murk.inference.units import effect_units, units
    from murk.planning.plan import FACTORS, PEOPLE, plan, size
    from murk.populations.public_sample import public_covariates
    from murk.protocols.population import Effects, effect_of
    from murk.task import Task

    task = Task.load(task_path)
    if public is not None:
        task = task.with_public(*public_covariates(public, task), file=str(public))
    elif task.public_path is not None:
        task = task.with_public(*public_covariates(task.public_path, task))
    stated = [effect_of(text, units(task)) for text in effects]
    wanted = dict(effect_of(text, effect_units(task), "half-width") for text in errors)
    assumed = Effects(
        next((value for name, value in stated if name is None), None),
        {name: value for name, value in stated if name is not None},
        rate,
    )
    counts = people or PEOPLE
    if picture is not None:
        check_picture(picture)
    if picture is not None and len(set(counts)) == 1:
        counts = (max(counts[0] // 4, 1), counts[0], 4 * counts[0])
    named = protocols or None
    with progress(f"{task.name}: plan", size(task, counts, FACTORS, named), quiet=as_json) as tick:
        planned = plan(task, people=counts, protocols=named, effects=assumed, within=wanted, tick=tick)
    if picture is not None:
        from murk.planning.plan import draw

        write_whole(picture, draw(planned, picture.suffix[1:].lower()))
    if as_json:
        print_json({**planned.to_dict(), **({"promises": promises(task)} if task.shuffle is not None else {})})
        return
    _show(planned, assumed, asked=bool(wanted))
    if picture is not None:
        click.echo(f"{picture}")


def _describe_windows(task: Task) -> str:
    """Return which answers a forecast counts, and how half-widths of several windows with the same people compare."""
    from murk.task.windows import many_of

    window, one, all_ = task.privacy.window, task.repeats_within, task.repeats
    number = max(all_.most // one.most, 1)
    factor = math.sqrt(all_.effect / one.effect / number)
    person = "one" if one.most == 1 else f"up to {one.most:,}"
    return (
        f"Numbers count the answers in {many_of(window, 1)}, of which a person gives {person}. Where the same people "
        f"answer in {many_of(window, number)}, half-widths of all answers together are {factor:.2g} times those here."
    )


def _show(found: Plan, assumed: Effects, *, asked: bool) -> None:
    from murk.cli.report import promises
    from murk.results.report import describe_renewal

    paragraph(_assumptions(found, assumed))
    if found.off:
        paragraph(found.off)
    if found.task.privacy.renews:
        paragraph(f"Promised to a person: {describe_renewal(found.task.privacy)}. {_describe_windows(found.task)}")
    elif (repeats := found.task.repeats).most > 1:
        paragraph(
            f"Numbers count answers, of which one person may give {repeats.most:,}: half-widths allow for it "
            f"({math.sqrt(repeats.effect):.3g} times as wide as of different people)."
        )
    for level, both in promises(found.task).items():
        paragraph(f"Promised for each release at level {level}: two guarantees.")
        for each in both:
            paragraph(f"  {each}", hang="  ")
    click.echo()
    own_table = _own_table(found)
    table(*own_table)
    click.echo()
    table(*_comparison(found))
    for line in _notes(found, len(own_table[1]) - 1):
        paragraph(line, hang="  ")
    for (chosen, why), group in itertools.groupby(found.chosen.items(), key=itemgetter(1)):
        counts = " or ".join(f"{people:,}" for people, _ in group)
        paragraph(f"Of these, {why}." if chosen else f"With {counts} people: {why}.", hang="  ")
    for protocol in found.protocols if asked else ():
        needed = found.needs.get(protocol)
        answer = "not reached with a billion people" if needed is None else f"about {needed:,} people"
        if protocol not in found.needs:
            answer = "it estimates no average effects"
        elif needed is not None:
            answer += " at one planned look; " + (
                "no interval holds at every look"
                if protocol not in found.watched
                else "not reached with a billion people at every look"
                if found.watched[protocol] is None
                else f"about {found.watched[protocol]:,} people until it holds at every look (docs/intervals.md)"
            )
        paragraph(f"For the requested half-widths, at the task's budget, {protocol}: {answer}.")


def _assumptions(found: Plan, assumed: Effects) -> str:
    from murk.planning.outlook import missing_words, rate_words

    of = (
        "the public covariates"
        if found.designs[0].name == "public"
        else "a typical population within the task's bounds (in brackets a hard one: docs/plan.md)"
    )
    size = f" (a standard deviation of a feature changes the target by {found.effect:.2g} points)"
    origin = "given" if assumed.each is not None or assumed.named else "assumed"
    assumptions = ", ".join(filter(None, [rate_words(found.task, assumed), missing_words(found.task)]))
    effects = f"{origin} effects{'' if math.isnan(found.effect) else size}, and " if found.task.features else ""
    return (
        f"{found.task.name}: forecast for {of}, with {effects}"
        f"{assumptions}. A point is a hundredth of a probability, or of a real target's range."
    )


def _own_table(found: Plan) -> tuple[str, list[str], list[list[str]]]:
    """Return the table of the task's own protocol, with each feature in natural units."""
    task = found.task
    columns, labels = _features(found)
    points, rows = _has_effects(found) and task.target.kind != "real", []
    for people in found.people:
        for budget, words in found.budgets.items():
            cells = [found.cell(task.protocol, people, budget, design.name) for design in found.designs]
            row = [f"{people:,} at {words}"]
            for name in columns:
                # The half-width for the first population, then in brackets for the second, the hard one.
                first, *hard = (
                    _half_width(None if cell is None else cell.forecast, name, points=points) for cell in cells
                )
                row.append(f"{first} ({hard[0]})" if hard else first)
            rows.append(row)
    of = "average effects" if task.features else "mean" if task.target.kind == "real" else "shares"
    if not _has_effects(found):
        of = "coefficients in coded units, with features from -1 to 1"
    else:
        of += ", in percentage points" if points else ", in the target's units"
    fitting_rows = _fitting([["people", *labels], *rows])
    return f"Half-widths of 95% intervals by {task.protocol}: {of}", fitting_rows[0], fitting_rows[1:]


def _fitting(rows: list[list[str]]) -> list[list[str]]:
    """Return the first columns that fit on a line, at least two."""
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else _LINE
    ends = list(itertools.accumulate(max(map(len, column)) + 2 for column in zip(*rows, strict=True)))
    fit = max(sum(end <= room + 2 for end in ends), 2)
    return [row[:fit] for row in rows]


def _has_effects(found: Plan) -> bool:
    """Return whether the task's own protocol estimates average effects."""
    forecasts = [
        cell.forecast for cell in found.cells if cell.protocol == found.task.protocol and cell.forecast is not None
    ]
    return bool(found.units) and (
        any(each.effects for each in forecasts) or not any(each.learned for each in forecasts)
    )


def _features(found: Plan) -> tuple[list[str], list[str]]:
    """Return names and labels of the first features."""
    if not _has_effects(found):
        names = list(found.task.coding.names[:-1])[:_MOST_FEATURES]
        return names, names
    names = list(found.units)[:_MOST_FEATURES]
    return names, [found.units[name] for name in names]


def _half_width(forecast: Forecast | None, name: str, *, points: bool) -> str:
    if forecast is None:
        return "-"
    from murk.inference.units import POINTS

    half = forecast.effects.get(name)
    if half is None:
        # In coded units; for classes, the widest of a feature's coefficients.
        halves = (value for key, value in forecast.halves.items() if key.rpartition(":")[2] == name)
        half, points = max(halves, default=math.inf), False
    # An interval wider than all probabilities carries no information, even for a rare category.
    widest = math.inf if points and half > POINTS else forecast.spread.get(name, half)
    return _cell(forecast, min(widest, 1e300), half)


def _comparison(found: Plan) -> tuple[str, list[str], list[list[str]]]:
    first, rows = found.designs[0].name, []
    for people in found.people:
        for budget, words in found.budgets.items():
            cells = [found.cell(protocol, people, budget, first) for protocol in found.protocols]
            rows.append([f"{people:,} at {words}", *map(_compared, cells)])
    each = " per standard deviation of the median feature" if found.task.features else ""
    return f"Half-widths in points{each}", ["people", *found.protocols], rows


def _compared(cell: Cell | None) -> str:
    if cell is None or cell.forecast is None or cell.without_effects:
        return "-"
    return _cell(cell.forecast, cell.points, cell.points)


def _cell(forecast: Forecast, points: float, half: float) -> str:
    """Format a half-width, rounded to two digits, the precision of a forecast; words where nothing is learned."""
    from murk.planning.forecast import WIDEST

    if not math.isfinite(points):
        return NOT_LEARNED
    words = f"{float(f'{half:.2g}'):,.10g}"
    return TOO_WIDE if points > WIDEST else words if forecast.settled else f"~{words}"


def _notes(found: Plan, shown: int) -> Iterator[str]:
    from murk.planning.plan import remarks

    more = (len(found.units) if _has_effects(found) else len(found.task.coding.names) - 1) - shown
    if more > 0:
        yield f"The first table has room for {shown} of {shown + more} coefficients; --json has all."
    if any(cell.forecast is not None and not cell.forecast.settled for cell in found.cells):
        yield (
            "~ marks an order of magnitude: half-widths differ by a tenth or more between draws of the noise, and may "
            "not yet shrink with the root of the number of people."
        )
    yield from remarks(found)
