"""Tables and sentences of a report, the dictionary of `murk.results.report`."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from murk._internal.numbers import NOT_LEARNED, listed, many, number, span
from murk.inference import experiments
from murk.inference.estimate import RANDOM_SCALING
from murk.task.coding import INTERCEPT, MIDDLE, is_constant, of_interest, without_features
from murk.task.shuffling import COLLUDING

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


def interval_words(report: Mapping[str, Any]) -> str:
    """Return the title of a column of intervals: their level and, where it applies, that they hold at every look."""
    interval = report["interval"]
    looks = interval.get("looks")
    if looks and looks["validity"] == "always-valid":
        return str(looks["words"])
    # The coverage of random scaling is known to be lower.
    nominal = "nominal " if interval["method"] == RANDOM_SCALING and any_interval(report) else ""
    return f"{nominal}{100 * interval['level']:.3g}% interval"


def effect_word(report: Mapping[str, Any]) -> str:
    """Return the title of a report's effects per unit: "odds ratio", "points" or "effect".

    Without features it is the title of levels: "percent" for shares, "mean" or "quantile".
    """
    if report.get("coefficients") and without_features(report["coefficients"]):
        level = "mean" if INTERCEPT in report["coefficients"] else "quantile"
        return "percent" if report["chances"] else level
    return "odds ratio" if report["odds_ratios"] else "points" if report["chances"] else "effect"


def any_interval(report: Mapping[str, Any]) -> bool:
    """Return whether any interval has a finite end."""
    return any(math.isfinite(end) for interval in report["confidence_intervals"].values() for end in interval)


def only_effects(report: Mapping[str, Any]) -> bool:
    """Return whether average effects were learned, but the log odds of no feature."""
    effects = report.get("average_effects")
    if not (report["odds_ratios"] and effects) or not set(effects) <= set(report["not_learned"]):
        return False
    return any(math.isfinite(sum(each["interval"])) for each in effects.values())


def describe_learned(report: Mapping[str, Any]) -> Iterator[Block]:
    """Yield tables and sentences on a report's coefficients."""
    yield from experiment_table(report)
    if report.get("effects_note"):
        # Average effects may be known although log odds are not.
        yield from average_table(report)
    if not only_effects(report):
        if report.get("effects_note") and not report["chances"]:
            yield Paragraph("")
        yield coefficient_table(report)
    if report.get("effects_note") and report["chances"]:
        yield Paragraph(describe_effects(report))
    yield Paragraph(describe_intervals(report))
    if report.get("model"):
        yield Paragraph(report["model"]["words"])
    if not report.get("effects_note"):
        yield from average_table(report)
    yield from contrast_table(report)
    yield from cell_table(report)
    yield from prediction_table(report)
    yield from track_table(report)
    if report.get("prediction_sets"):
        yield Paragraph(report["prediction_sets"]["words"])
    yield from map(Paragraph, describe_not_learned(report))
    for missing in report.get("missing_values", ()):
        yield Paragraph(missing["words"])
    if report["diagnosis"]:
        yield Paragraph(report["diagnosis"]["words"])
    yield from map(Paragraph, describe_age(report))
    if report.get("forged") is not None and report["forged"]["words"]:
        yield Paragraph(report["forged"]["words"])


def describe_privacy(report: Mapping[str, Any]) -> Iterator[Block]:
    """Yield words on the public sample, the guarantees of one release and of all, and which rows of a person count."""
    if report["public_sample"] is not None:
        yield Paragraph(report["public_sample"]["words"])
    yield Paragraph("")
    for level, promise in report["levels"].items():
        if "central" not in promise:
            yield Paragraph(f"Promised for each release at level {level}: {promise['words']}", "  ")
            continue
        yield Paragraph(f"Promised for each release at level {level}: two guarantees.")
        for words in promises(promise):
            yield Paragraph(f"  {words}", "  ")
    if "grid" in report:
        yield Paragraph(report["grid"]["words"])
    yield Paragraph(report["cap_words"], "  ")
    yield from (Paragraph(report[key]) for key in ("counted_rows", "repeats") if report.get(key))


def promises(level: Mapping[str, Any]) -> list[str]:
    """Return the guarantee of a level in words; for a shuffled task, the local one and then the central one."""
    if "central" not in level:
        return [level["words"]]
    return [f"{COLLUDING}: {level['words']}", level["central"]["words"]]


def coefficient_table(report: Mapping[str, Any]) -> Table:
    """Return the table of coefficients with standard errors and intervals: per unit where known, else coded."""
    if report["coefficients"] and without_features(report["coefficients"]):
        return _table_of_means(report)
    odds, rows, interval = report["odds_ratios"], [], interval_words(report)
    if not report["per_unit"]:
        columns = ["coefficient", "coded", "std. error", interval]
        for name, value in report["coefficients"].items():
            cells = [number(value), number(report["standard_errors"][name])]
            rows.append(_learned(report, name, name, [*cells, span(*report["confidence_intervals"][name])]))
        return Table(title_of(report), columns, rows)
    for name in report["coefficients"]:
        unit = report["per_unit"].get(name)
        if unit is None:
            # The residual scale of a robust loss has no unit.
            value, error = report["coefficients"][name], report["standard_errors"][name]
            ends, label = span(*report["confidence_intervals"][name]), f"{name} (coded)"
        else:
            value, error, label = unit["value"], unit["std_error"], labelled(name, unit["unit"])
            ends = span(*unit["odds_ratio_interval" if odds else "interval"])
            label += " (percent)" if unit["scale"] == "percent" else ""
        cells = [number(value), number(error)]
        if odds:
            cells.append("" if unit is None else number(unit["odds_ratio"]))
        rows.append(_learned(report, name, label, [*cells, ends]))
    measures = ["log odds", "std. error", "odds ratio"] if odds else [effect_word(report), "std. error"]
    return Table(title_of(report), ["per", *measures, interval], rows)


def labelled(name: str, unit: str) -> str:
    """Return a coefficient's unit in words: an intercept's with its name before it; a feature's contains the name."""
    return f"{name}: {unit}" if is_constant(name) and unit == MIDDLE else unit


def experiment_table(report: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the lifts of an experiment's arms, what they show, and whether the arms' counts fit their shares."""
    experiment = report.get("experiment")
    if not experiment:
        return
    interval, unit = interval_words(report), experiment["unit"]
    columns = ["arm", "people", f"lift, {unit}", interval, "relative", f"{interval}, %", "p", "e"]
    yield Table(f"{report['task']}: lifts against {experiment['control']}", columns, experiments.table(experiment))
    yield from map(Paragraph, experiment["words"])
    if experiment["metrics"]:
        title = f"Metrics: {100 * experiment['level']:.3g}% for all together"
        columns = ["metric", "arm", "lift", "interval", "relative", "interval, %", "p", "e"]
        yield Table(title, columns, experiments.metric_table(experiment))
        if not all(metric["adjusted"] for metric in experiment["metrics"]):
            yield Paragraph("* a ratio of two means, which is not adjusted for known columns")
    if experiment["segments"]:
        title = f"Lifts by segment: {100 * experiment['level']:.3g}% for all together"
        yield Table(
            title, ["segment", "arm", "people", f"lift, {unit}", "interval"], experiments.segment_table(experiment)
        )
    yield from map(Paragraph, experiment["count_words"])
    yield Paragraph("")


_MOST_CELLS: Final = 24


def cell_table(report: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the shares or means of each combination of known columns, unless there are too many for a table."""
    cells = report.get("cells")
    if not cells:
        return
    if report.get("identifying"):
        yield Paragraph(f"{report['identifying'][0].upper()}{report['identifying'][1:]}.")
    if len(cells) > _MOST_CELLS:
        yield Paragraph(f"{len(cells):,} combinations of known columns have people: --json states the mean of each.")
        return
    names = [name for name in cells[0] if name not in ("known", "people")]
    rows = []
    for cell in cells:
        pairs = [text for name in names for text in (number(cell[name]["value"]), span(*cell[name]["interval"]))]
        rows.append([", ".join(cell["known"].values()), f"{cell['people']:,}", *pairs])
    scale = "mean" if "target units" in {unit["scale"] for unit in report["per_unit"].values()} else "percent"
    columns = [text for name in names for text in (f"{name}, {scale}", interval_words(report))]
    yield Paragraph("")
    yield Table("Combinations of known columns", [", ".join(cells[0]["known"]), "people", *columns], rows)


def _learned(report: Mapping[str, Any], name: str, label: str, cells: list[str]) -> list[str]:
    """Return a row of a table; without numbers if the coefficient was not learned, as they are guesses near 0."""
    if name in report["not_learned"]:
        cells = [NOT_LEARNED, *[""] * (len(cells) - 1)]
    return [label, *cells]


def _table_of_means(report: Mapping[str, Any]) -> Table:
    rows = []
    for name, value in report["coefficients"].items():
        each = {"unit": name, "value": value, "interval": report["confidence_intervals"][name]}
        each |= {"std_error": report["standard_errors"][name], **report["per_unit"].get(name, {})}
        cells = [number(each["value"]), number(each["std_error"]), span(*each["interval"])]
        rows.append(_learned(report, name, each["unit"], cells))
    return Table(title_of(report), ["", effect_word(report), "std. error", interval_words(report)], rows)


def title_of(report: Mapping[str, Any]) -> str:
    """Return a report's title: the number of releases, and the quantity that the coefficients explain."""
    learned = f"{report['task']}: {many(report['releases'], 'release')} learned"
    learned += f", of {many(report['records_learned'], 'record')}" if "records_learned" in report else ""
    of = report.get("of")
    if of and only_effects(report):
        of = of.replace("log odds of", "probability of", 1)
    return f"{learned}; {of}" if of else learned


def describe_effects(report: Mapping[str, Any]) -> str:
    """Return the definition of average effects that do not follow from the coefficients; else empty."""
    return f"Average effects are {report['effects_note']}." if report.get("effects_note") else ""


def describe_intervals(report: Mapping[str, Any]) -> str:
    """Return the method of the intervals and their note, or why there are none, in words."""
    method, note = report["interval"]["method"], report["interval"]["note"].rstrip(".")
    effects = only_effects(report)
    if effects or any_interval(report):
        looks = report["interval"].get("looks")
        return f"Intervals{' of average effects' * effects} by {method}: {note}." + (
            f" {looks['meaning']} (docs/intervals.md)." if looks else ""
        )
    return f"No intervals: {note.removeprefix('none: ').removeprefix('no interval: ')}."


def average_table(report: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the average effect of a unit of each feature on the probability, if coefficients are log odds."""
    effects = report.get("average_effects")
    # Of lines through labels, the table of coefficients has the average effects.
    if not effects or report["chances"] or not (report["odds_ratios"] or report.get("effects_note")):
        return
    rows = []
    for effect in effects.values():
        low, high = effect["interval"]
        learned = math.isfinite(low + high)
        points = [number(effect["value"]), span(low, high)] if learned else [NOT_LEARNED, ""]
        rows.append([effect["unit"], *points])
    if not report.get("effects_note"):
        yield Paragraph("")
    columns = ["per", "points", interval_words(report).removeprefix("nominal ")]
    title = "Average marginal effect on the probability, in percentage points"
    if only_effects(report):
        title = f"{title_of(report)}: average marginal effects, in percentage points"
    yield Table(title, columns, rows)
    if report.get("effects_note"):
        yield Paragraph(describe_effects(report))
    else:
        yield from map(Paragraph, describe_disagreement(report))


def contrast_table(report: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the comparisons of categories, if the task asks for any."""
    contrasts = report.get("contrasts")
    if not contrasts:
        return
    rows, odds = [], report["odds_ratios"]
    averaged = odds or (report.get("effects_note") and not report["chances"])
    for each in contrasts:
        value, ends = (each["odds_ratio"], each["odds_ratio_interval"]) if odds else (each["value"], each["interval"])
        learned = math.isfinite(sum(each["interval"]))
        row = [each["name"], *([number(value), span(*ends)] if learned else [NOT_LEARNED, ""])]
        if averaged:
            average, (low, high) = each["average_effect"], each["average_effect_interval"] or (-math.inf, math.inf)
            is_bounded = average is not None and math.isfinite(low + high)
            row += [number(average), span(low, high)] if is_bounded else [NOT_LEARNED, ""]
        row += ["-", "-"] if each["p_value"] is None else [f"{each['p_value']:.2g}", f"{each['e_value']:.3g}"]
        rows.append(row)
    interval = interval_words(report)
    points = ["points", interval] if averaged else []
    tested = any(each["p_value"] is not None for each in contrasts)
    yield Paragraph("")
    title = "Contrasts" + (": p-values and e-values hold at every look" if tested else ", without a valid p-value")
    yield Table(title, ["contrast", effect_word(report), interval, *points, "p", "e"], rows)


def prediction_table(report: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the model's mean or probabilities at the features asked for, if any."""
    if report.get("prediction") is None:
        return
    prediction = report["prediction"]
    at = ", ".join(f"{name} = {value}" for name, value in prediction["at"].items())
    rows = [[name, number(each["value"]), span(*each["interval"])] for name, each in prediction["of"].items()]
    yield Paragraph("")
    yield Table(f"Prediction at {at}", [prediction["target"], "predicted", interval_words(report)], rows)
    if prediction.get("set_words"):
        yield Paragraph(prediction["set_words"])


_MOST_WINDOWS: Final = 12  # number of newest windows that tables show


def track_table(report: Mapping[str, Any]) -> Iterator[Block]:
    """Yield the newest windows' estimates and the smoothed path, if the task has a track."""
    track = report.get("track")
    if track is None:
        return
    rows, count = [], len(track["begins"])
    shown = range(max(0, count - _MOST_WINDOWS), count)
    for name in of_interest([*track["coefficients"]]):
        each = track["coefficients"][name]
        for window in shown:
            row = [each["unit"] or name, track["begins"][window], f"{track['releases'][window]:,}"]
            for kind in ("windows", "path"):
                value, half = each[kind]["values"][window], each[kind]["half_widths"][window]
                learned = math.isfinite(half)
                row += [number(value), span(value - half, value + half)] if learned else [NOT_LEARNED, ""]
            rows.append(row)
    yield Paragraph("")
    bands = [f"band, {100.0 * track['level']:g}%"]
    newest = f", the newest {len(shown)} of {count}" if len(shown) < count else ""
    measure = "log odds" if report["odds_ratios"] else effect_word(report)
    title = f"By window ({measure}{newest})"
    yield Table(title, ["", "begins", "releases", "alone", *bands, "smoothed", *bands], rows)
    yield Paragraph(track["words"])


def describe_contrasts(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield each comparison of categories in a sentence."""
    for block in contrast_table(report):
        if isinstance(block, Table):
            for name, *cells in block.rows:
                named = zip(block.columns[1:], cells, strict=True)
                yield f"{name}: " + ", ".join(f"{column} {cell}" for column, cell in named if cell) + "."


def describe_disagreement(report: Mapping[str, Any]) -> Iterator[str]:
    """Name the features whose odds ratio and average effect disagree on whether there is an effect, and why."""
    apart, unknown = [], []
    for name, effect in report["average_effects"].items():
        unit = report["per_unit"].get(name)
        if unit is None or name in report["not_learned"] or not math.isfinite(sum(unit["interval"])):
            continue
        if not math.isfinite(sum(effect["interval"])):
            unknown.append(name)
        elif _excludes_zero(unit["interval"]) != _excludes_zero(effect["interval"]):
            apart.append(name)
    if apart:
        yield (
            f"Odds ratio and points of {listed(apart)} disagree: one interval includes no effect, the other does "
            "not. Points are averaged over people, and their interval allows for the unknown positions of people on "
            "the curve. Take such an effect as not established."
        )
    if unknown:
        ratios = "the odds ratio is" if len(unknown) == 1 else "the odds ratios are"
        yield (
            f"Points of {listed(unknown)} are not learned although {ratios}: they also depend on where people are on "
            "the curve, which noise still hides."
        )


def _excludes_zero(interval: Sequence[float]) -> bool:
    low, high = interval
    return low > 0.0 or high < 0.0


def describe_age(report: Mapping[str, Any]) -> Iterator[str]:
    """Describe whether people or coefficients have changed, if known, and which releases are forgotten."""
    stream, drift, forget = report.get("stream"), report.get("drift"), report.get("forget")
    if stream is not None:
        yield stream["words"]
    if drift is not None and drift["compared"]:
        yield drift["words"]
    if forget is not None:
        yield forget["words"]


def describe_not_learned(report: Mapping[str, Any]) -> Iterator[str]:
    """Name the coefficients that were not learned, and what it would take to learn them."""
    alike: dict[tuple[str, bool], list[str]] = {}
    # Average effects may have been learned.
    begin = "Log odds not learned" if report["odds_ratios"] and report.get("effects_note") else "Not learned"
    for name, need in report["needed"].items():
        # The forecast is for the first interval with an end, which need not be a useful one.
        forecast = any(need.get(key) for key in ("people", "budgets", "public_rows"))
        alike.setdefault((need["words"], forecast), []).append(name)
    for (words, forecast), names in alike.items():
        bounded = "its interval becomes bounded" if len(names) == 1 else "their intervals become bounded"
        first = f", at which {bounded}; a narrow one takes more" if forecast else ""
        yield f"{begin} at this privacy: {', '.join(names)}. It would take {words}{first}."
    others = [name for name in report["not_learned"] if name not in report["needed"]]
    if others:
        yield f"{begin} at this privacy: {', '.join(others)}."


def as_text(blocks: Iterator[Block]) -> str:
    """Return blocks as plain text, prose wrapped at 110 columns."""
    lines: list[str] = []
    for block in blocks:
        if isinstance(block, Paragraph):
            lines += textwrap.wrap(
                block.text, 110, subsequent_indent=block.hang, break_long_words=False, break_on_hyphens=False
            ) or [""]
            continue
        table = [block.columns, *block.rows]
        widths = [max(len(row[column]) for row in table) for column in range(len(block.columns))]
        lines += [block.title] if block.title else []
        for first, *others in table:
            cells = [cell.rjust(size) for cell, size in zip(others, widths[1:], strict=True)]
            lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return "\n".join(lines)
