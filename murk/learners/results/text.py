"""What was learned, in words: tables and sentences from the dictionary of `murk.learners.results.report`."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from murk.learners.estimates.estimate import RANDOM_SCALING
from murk.learners.estimates.units import odds_ratio
from murk.learners.results.numbers import many, number, span
from murk.learners.results.words import NOT_LEARNED

SIMULATED: Final = "SIMULATED: the noise was drawn from a seed, so nobody's privacy was protected."


@dataclass(frozen=True)
class Table:
    """A table; the first column is left-aligned, the others right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Paragraph:
    """Prose; further lines are indented by ``hang``."""

    text: str
    hang: str = ""


Block = Table | Paragraph


def percent_of(found: Mapping[str, Any]) -> str:
    """The level of a report's intervals: nominal where they are known to cover less than their name."""
    percent = f"{100 * found['interval']['level']:.0f}%"
    return f"nominal {percent}" if found["interval"]["method"] == RANDOM_SCALING and any_interval(found) else percent


def effect_word(found: Mapping[str, Any]) -> str:
    """What an effect per unit is called."""
    return "odds ratio" if found["odds_ratios"] else "probability" if found["chances"] else "effect"


def any_interval(found: Mapping[str, Any]) -> bool:
    """Whether any interval has an end."""
    return any(math.isfinite(end) for interval in found["confidence_intervals"].values() for end in interval)


def describe_learned(found: Mapping[str, Any]) -> Iterator[Block]:
    """Yield what there is to say of a report's coefficients."""
    if found.get("effects_note"):
        # They hold where log odds may say nothing.
        yield from average_table(found)
        yield Paragraph("")
    yield coefficient_table(found)
    yield Paragraph(describe_intervals(found))
    if not found.get("effects_note"):
        yield from average_table(found)
    yield from map(Paragraph, describe_not_learned(found))
    for one in found.get("missing_values", ()):
        yield Paragraph(one["words"])
    if found["diagnosis"]:
        yield Paragraph(found["diagnosis"]["words"])
    yield from map(Paragraph, describe_age(found))
    if found.get("forged") is not None:
        yield Paragraph(found["forged"]["words"])


def describe_privacy(found: Mapping[str, Any]) -> Iterator[Block]:
    """Yield what is public, and what was promised, for each release and in all."""
    if found["public_sample"] is not None:
        yield Paragraph(found["public_sample"]["words"])
    yield Paragraph("")
    for level, promise in found["levels"].items():
        yield Paragraph(f"Promised for each release at level {level}: {promise['words']}", "  ")
    yield Paragraph(found["cap_words"], "  ")


def coefficient_table(found: Mapping[str, Any]) -> Table:
    """The coefficients, coded and per unit, with their intervals."""
    odds, rows = found["odds_ratios"], []
    for name, value in found["coefficients"].items():
        if name in found["not_learned"]:
            # A guess, drawn towards zero, is no answer.
            rows.append([name, NOT_LEARNED, "", "", "", ""])
            continue
        row = [name, number(value), span(*found["confidence_intervals"][name])]
        unit = found["per_unit"].get(name)
        if unit is not None:
            effect, (least, most) = unit["value"], unit["interval"]
            if odds:
                effect, least, most = odds_ratio(effect), odds_ratio(least), odds_ratio(most)
            row += [unit["unit"], number(effect), span(least, most)]
        rows.append([*row, *[""] * (6 - len(row))])
    percent = percent_of(found)
    columns = ["coefficient", "coded", f"{percent} interval", "per", effect_word(found), f"{percent} interval"]
    if not found["per_unit"]:
        columns, rows = columns[:3], [row[:3] for row in rows]
    return Table(title_of(found), columns, rows)


def title_of(found: Mapping[str, Any]) -> str:
    """What it is of, and of how many releases."""
    learned = f"{found['task']}: {many(found['releases'], 'release')} learned"
    return learned + (f", of {many(found['records_learned'], 'record')}" if "records_learned" in found else "")


def describe_intervals(found: Mapping[str, Any]) -> str:
    """Say how a result's intervals were made and what is known of them; or why there are none."""
    method, note = found["interval"]["method"], found["interval"]["note"].rstrip(".")
    if any_interval(found):
        return f"Intervals by {method}: {note}."
    return f"No intervals: {note.removeprefix('none: ').removeprefix('no interval: ')}."


def average_table(found: Mapping[str, Any]) -> Iterator[Block]:
    """Yield what a unit of each feature does to the probability on average, where coefficients are log odds."""
    effects = found["average_effects"]
    # Of a single line through labels the table of coefficients has them.
    if not effects or not (found["odds_ratios"] or found.get("effects_note")):
        return
    rows = []
    for effect in effects.values():
        low, high = effect["interval"]
        learned = math.isfinite(low + high)
        points = [number(100.0 * effect["value"]), span(low, high, 100.0)] if learned else [NOT_LEARNED, ""]
        rows.append([effect["unit"], *points])
    percent = f"{100 * found['interval']['level']:.0f}%"
    if not found.get("effects_note"):
        yield Paragraph("")
    yield Table(
        "Average marginal effect on the probability, in percentage points",
        ["per", "points", f"{percent} interval"],
        rows,
    )
    if found.get("effects_note"):
        yield Paragraph(f"Average effects are {found['effects_note']}.")
    else:
        yield from map(Paragraph, describe_disagreement(found))


def describe_disagreement(found: Mapping[str, Any]) -> Iterator[str]:
    """Say which features' odds ratio and average effect disagree on whether there is an effect, and why they may."""
    apart, unknown = [], []
    for name, effect in found["average_effects"].items():
        unit = found["per_unit"].get(name)
        if unit is None or name in found["not_learned"] or not math.isfinite(sum(unit["interval"])):
            continue
        if not math.isfinite(sum(effect["interval"])):
            unknown.append(name)
        elif _excludes_zero(unit["interval"]) != _excludes_zero(effect["interval"]):
            apart.append(name)
    if apart:
        yield (
            f"Odds ratio and points of {', '.join(apart)} disagree: one interval includes no effect, the other does "
            "not. Points are averaged over people, and their interval allows for what is not known of where people are "
            "on the curve. Take such an effect as not established."
        )
    if unknown:
        yield (
            f"Points of {', '.join(unknown)} are not learned although the odds ratio is: they also depend on where "
            "people are on the curve, which noise still hides."
        )


def _excludes_zero(interval: Sequence[float]) -> bool:
    low, high = interval
    return low > 0.0 or high < 0.0


def describe_age(found: Mapping[str, Any]) -> Iterator[str]:
    """Say whether the model has changed, where that can be told, and what is forgotten."""
    drift, forget = found.get("drift"), found.get("forget")
    if drift is not None and drift["compared"]:
        yield drift["words"]
    if forget is not None:
        yield forget["words"]


def describe_not_learned(found: Mapping[str, Any]) -> Iterator[str]:
    """Say which coefficients were not learned, and what it would take."""
    alike: dict[str, list[str]] = {}
    for name, need in found["needed"].items():
        # What is forecast is the end of "not learned", and not of all questions.
        told = any(need.get(key) for key in ("people", "budgets", "public_rows"))
        first = ", where its interval first has an end; a narrow one takes more" if told else ""
        alike.setdefault(need["words"] + first, []).append(name)
    for words, names in alike.items():
        yield f"Not learned at this privacy: {', '.join(names)}. It would take {words}."
    others = [name for name in found["not_learned"] if name not in found["needed"]]
    if others:
        yield f"Not learned at this privacy: {', '.join(others)}."


def as_text(blocks: Iterator[Block], width: int = 110) -> str:
    """Lay blocks out as plain text, prose wrapped at ``width``.

    Examples
    --------
    >>> print(as_text(iter([Table("Two", ["name", "value"], [["a", "1.5"], ["bc", "-10"]]), Paragraph("So be it.")])))
    Two
    name  value
    a       1.5
    bc      -10
    So be it.
    """
    lines: list[str] = []
    for block in blocks:
        if isinstance(block, Paragraph):
            lines += textwrap.wrap(
                block.text, width, subsequent_indent=block.hang, break_long_words=False, break_on_hyphens=False
            ) or [""]
            continue
        table = [block.columns, *block.rows]
        widths = [max(len(row[place]) for row in table) for place in range(len(block.columns))]
        lines += [block.title] if block.title else []
        for first, *others in table:
            cells = [cell.rjust(size) for cell, size in zip(others, widths[1:], strict=True)]
            lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)
