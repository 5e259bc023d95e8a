"""What a run came to, for people: tables and sentences from the dictionary of `murk.cli.results`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from murk.cli.output import number, paragraph, table

if TYPE_CHECKING:
    from murk.learners.estimate import Estimate
    from murk.producers.populations.file_work import FilePopulation
    from murk.stream import Task


def print_result(found: Mapping[str, Any]) -> None:
    """Print a result for people."""
    from murk.learners.estimate import RANDOM_SCALING
    from murk.learners.units import odds_ratio

    click.echo()
    odds = found["odds_ratios"]
    rows = []
    for name, value in found["coefficients"].items():
        low, high = found["confidence_intervals"][name]
        row = [name, number(value), f"{number(low)} .. {number(high)}"]
        if name in found["not_learned"]:
            # A guess, drawn towards zero, is no answer.
            rows.append([name, "not learned", "", "", "", ""])
            continue
        unit = found["per_unit"].get(name)
        if unit is not None:
            effect, (least, most) = unit["value"], unit["interval"]
            if odds:
                effect, least, most = odds_ratio(effect), odds_ratio(least), odds_ratio(most)
            row += [unit["unit"], number(effect), f"{number(least)} .. {number(most)}"]
        else:
            row += ["", "", ""]
        rows.append(row)
    percent = f"{100 * found['interval']['level']:.0f}%"
    interval = found["interval"]
    if interval["method"] == RANDOM_SCALING and _any_interval(found):
        # Known to cover less than its name: never printed as if it did not.
        percent = f"nominal {percent}"
    effect = "odds ratio" if odds else "probability" if found["chances"] else "effect"
    table(
        f"{found['task']}: {_many(found['releases'], 'release')} learned"
        + (f", of {_many(found['records_learned'], 'record')}" if "records_learned" in found else ""),
        ["coefficient", "coded", f"{percent} interval", "per", effect, f"{percent} interval"],
        rows,
    )
    paragraph(describe_intervals(found))
    print_average_effects(found)
    print_not_learned(found)
    print_windows(found)
    print_labels(found)
    if found["public_sample"] is not None:
        paragraph(found["public_sample"]["words"])
    click.echo()
    for level, promise in found["levels"].items():
        paragraph(f"Promised for each release at level {level}: {promise['words']}", "  ")
    paragraph(found["cap_words"], "  ")
    print_accounts(found)
    if found["simulated"]:
        click.echo("SIMULATED: the noise was drawn from a seed, so nobody's privacy was protected.")
    dead = sum(found["dead_letters"].values())
    reasons = "".join(f", {count:,} {reason}" for reason, count in found["dead_letters"].items())
    refused = f"{found['refusals']:,} refused for want of budget, " if "refusals" in found else ""
    click.echo(f"{refused}{found['duplicates']:,} duplicates, {dead:,} dead letters{reasons}")


def describe_intervals(found: Mapping[str, Any]) -> str:
    """Say how a result's intervals were made and what is known of them; or why there are none."""
    method, note = found["interval"]["method"], found["interval"]["note"].rstrip(".")
    if _any_interval(found):
        return f"Intervals by {method}: {note}."
    return f"No intervals: {note.removeprefix('none: ').removeprefix('no interval: ')}."


def _any_interval(found: Mapping[str, Any]) -> bool:
    return any(math.isfinite(end) for interval in found["confidence_intervals"].values() for end in interval)


def print_average_effects(found: Mapping[str, Any]) -> None:
    """Print what a unit of each feature does to the probability on average, where coefficients are log odds."""
    effects = found["average_effects"]
    if not found["odds_ratios"] or not effects:
        return
    percent = f"{100 * found['interval']['level']:.0f}%"
    rows = []
    for effect in effects.values():
        low, high = (100.0 * end for end in effect["interval"])
        learned = math.isfinite(low + high)
        points = (
            [number(100.0 * effect["value"]), f"{number(low)} .. {number(high)}"] if learned else ["not learned", ""]
        )
        rows.append([effect["unit"], *points])
    click.echo()
    table(
        "Average marginal effect on the probability, in percentage points",
        ["per", "points", f"{percent} interval"],
        rows,
    )


def print_not_learned(found: Mapping[str, Any]) -> None:
    """Say which coefficients were not learned, and what it would take."""
    alike: dict[str, list[str]] = {}
    for name, need in found["needed"].items():
        alike.setdefault(need["words"], []).append(name)
    for words, names in alike.items():
        paragraph(f"Not learned at this privacy: {', '.join(names)}. It would take {words}.")
    others = [name for name in found["not_learned"] if name not in found["needed"]]
    if others:
        paragraph(
            f"Not learned at this privacy: {', '.join(others)}. It would take more records in a window, a larger "
            "budget or fewer features."
        )


def print_windows(found: Mapping[str, Any]) -> None:
    """Say what became of organisations' windows, where there are any."""
    if "windows" not in found:
        return
    rows = found["sketch_rows"]
    parts = [
        f"{_many(found['windows'], 'window')} of {_many(found['organisations'], 'organisation')}: "
        f"{_many(found['records_released'], 'record')} in "
        + ("second moments." if rows is None else f"sketches of {rows:,} rows.")
    ]
    if found["windows_left_out"]:
        few = "fewer than a record has numbers" if rows is None else "fewer than a sketch has rows"
        parts.append(f"{_many(found['records_left_out'], 'record')} at the end left out: {few}.")
    if found["windows_lost"]:
        parts.append(
            f"{_many(found['windows_lost'], 'window')} lost when a process died: nothing was debited for that, and the "
            "rows were read again."
        )
    paragraph(" ".join(parts))
    if found["refusals"]:
        paragraph(f"{_many(found['refusals'], 'window')} refused: {found['refusal']}.")


def print_labels(found: Mapping[str, Any]) -> None:
    """Say how many labels of a simulation are not declared in the task, where there are any."""
    labels = found.get("undeclared_labels")
    if labels and labels["rows"]:
        which = "one value" if labels["values"] == 1 else f"{labels['values']:,} different values"
        paragraph(
            f"{_many(labels['rows'], 'record')} with a target that the task does not declare ({which}), taken for not "
            "positive: with target.negative in the task, other values are refused."
        )


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def say_notice(task: Task, population: FilePopulation, quiet: bool) -> None:
    """Say what happened before, where somebody reads it; and whatever is to be warned of in any case."""
    for warning in population.warnings:
        click.echo(f"{task.name}: caution: {warning}", err=True)
    if population.notice and not quiet:
        click.echo(f"{task.name}: {population.notice}", err=True)


def print_accounts(found: Mapping[str, Any]) -> None:
    """Print what people have spent on all tasks together, and where their accounts lie."""
    if "ledger" in found:
        paragraph(f"Accounts: {found['ledger']}. {' '.join(f'{one}.' for one in found['together_words'])}")


def brief(estimate: Estimate, level: float = 0.95, most: int = 2) -> str:
    """The first coefficients with their half widths, for a progress line."""
    halves = estimate.half_widths(level)
    parts = [
        f"{name} {number(float(value))} ± {number(float(half))}"
        for name, value, half in list(zip(estimate.names, estimate.values, halves, strict=True))[:most]
    ]
    return "  ".join(parts)
