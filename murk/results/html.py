"""A result in a notebook: a table, or cards on a narrow page, in the page's own colours; it loads nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from murk._internal.numbers import NOT_LEARNED, number, span
from murk.results import text
from murk.results.coefficients import Coefficient
from murk.task.coding import is_constant

Report = Mapping[str, Any]

_WIDTH, _HEIGHT = 170.0, 20.0


def result_html(report: Report, coefficients: Sequence[Coefficient], beneath: str = "") -> str:
    """Return a report as HTML, with further HTML ``beneath`` it."""
    mark = '<span class="murk-mark">simulated: nobody was protected</span>' if report["simulated"] else ""
    name, _, learned = text.title_of(report).partition(": ")
    head = f'<div class="murk-head"><b>{escape(name)}</b><span class="murk-soft">{escape(learned)}</span>{mark}</div>'
    notes = "".join(f"<li>{escape(words)}</li>" for words in _notes(report))
    diagnosis = report["diagnosis"]
    why = f'<p class="murk-why">{escape(diagnosis["words"])}</p>' if diagnosis else ""
    # Colours are the page's own, or visible on light and dark pages. Selectors take precedence over the notebook's.
    style = (files("murk.results") / "result.css").read_text(encoding="utf-8")
    return (
        f'<div class="murk-result"><style>\n{style}</style>{head}{_table(report, coefficients)}{why}<ul>{notes}</ul>'
        f"{_promise(report)}{beneath}</div>"
    )


def folded(title: str, inner: str) -> str:
    """Return HTML whose content ``inner`` is shown after a click on its title."""
    return f"<details><summary>{escape(title)}</summary>{inner}</details>"


def _notes(report: Report) -> list[str]:
    public, simulated = report["public_sample"], report["simulated"]
    sets = report.get("prediction_sets")
    notes = [
        text.describe_effects(report),
        text.describe_intervals(report),
        *text.describe_contrasts(report),
        sets and sets["words"],
        *text.describe_age(report),
        public and public["words"],
        simulated and text.SIMULATED,
    ]
    return [words for words in notes if words]


def _promise(report: Report) -> str:
    levels = "".join(
        f"<p><b>{escape(level)}</b>: {escape(words)}</p>"
        for level, each in report["levels"].items()
        for words in text.promises(each)
    )
    grid = f"<p>{escape(report['grid']['words'])}</p>" if "grid" in report else ""
    counted = "".join(f"<p>{escape(report[key])}</p>" for key in ("counted_rows", "repeats") if report.get(key))
    promised = folded("What each release promises", f"{levels}{grid}<p>{escape(report['cap_words'])}</p>{counted}")
    forged = report.get("forged")
    return (
        promised
        if forged is None or not forged["words"]
        else promised + folded("Forged releases", f"<p>{escape(forged['words'])}</p>")
    )


def _table(report: Report, coefficients: Sequence[Coefficient]) -> str:
    only_effects = text.only_effects(report)
    units = any(each.unit is not None for each in coefficients) and not only_effects
    beside = not report["chances"] and bool(report["odds_ratios"] or report.get("effects_note"))
    averages = beside and any(each.average_effect is not None for each in coefficients)
    limit = axis_limit([each for each in coefficients if not is_constant(each.name)])
    percent = f"<small>{text.interval_words(report)}</small>"
    columns = [("", "coefficient")]
    if units:
        columns.append(("murk-number", f"{text.effect_word(report)}{percent}"))
    if averages:
        columns.append(("murk-number", f"average effect, points{percent}"))
    if limit:
        columns.append(("", f"drawn, coded<small>&minus;{number(limit, 2)} to {number(limit, 2)}</small>"))
    columns.append(("", "log odds") if only_effects else ("murk-number", f"coded{percent}"))
    head = "".join(f'<th class="{kind}" scope="col">{title}</th>' for kind, title in columns)
    rows = "".join(_row(each, units, averages, limit, text.effect_word(report), len(columns)) for each in coefficients)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _row(each: Coefficient, units: bool, averages: bool, limit: float, effect: str, columns: int) -> str:
    """Return a row with optional cells: natural units, average effects, an interval drawn from -limit to limit."""
    label = f"{each.unit or ''}{' (percent)' if each.scale == 'percent' else ''}"
    unit = f"<small>{escape(label)}</small>" if label else ""
    cells = [f'<th scope="row">{escape(each.name)}{unit}</th>']
    if not each.learned:
        needed = f": it would take {escape(each.needed)}" if each.needed else " at this privacy"
        has_effect = each.average_effect is not None
        if has_effect:
            cells.append('<td class="murk-number"></td>' * units)
            cells.append(_cell("average effect, points", each.average_effect, each.average_effect_interval))
        cells.append(
            f'<td class="murk-said" colspan="{columns - 1 - has_effect * (1 + units)}"><i>{NOT_LEARNED}</i>'
            f'<span class="murk-soft">{needed}</span></td>'
        )
    else:
        if units:
            if each.odds_ratio is None:
                cells.append(_cell(effect, each.effect, each.effect_interval))
            else:
                cells.append(_cell(effect, each.odds_ratio, each.odds_ratio_interval))
        if averages:
            cells.append(_cell("average effect, points", each.average_effect, each.average_effect_interval))
        if limit:
            cells.append(f"<td>{_bar(each, limit) if not is_constant(each.name) else ''}</td>")
        cells.append(_cell("coded", each.value, each.interval))
    return f"<tr>{''.join(cells)}</tr>"


def _cell(of: str, value: float | None, interval: tuple[float, float] | None) -> str:
    if value is None or interval is None:
        return '<td class="murk-number"></td>'
    ends = span(*interval) if all(map(math.isfinite, interval)) else "no interval"
    return f'<td class="murk-number" data-of="{of}"><span>{number(value)}<small>{ends}</small></span></td>'


def axis_limit(shown: Sequence[Coefficient]) -> float:
    """Return the axis' end on both sides of zero, which fits estimates and most intervals; 0 without intervals."""
    drawn = [(each.value, *each.interval) for each in shown if each.value is not None and each.interval is not None]
    reaches = sorted(max(abs(low), abs(high)) for _, low, high in drawn if math.isfinite(low + high))
    if not reaches:
        return 0.0
    most = 4.0 * reaches[len(reaches) // 2]
    estimates = max(abs(value) for value, _, _ in drawn)
    return 1.05 * max(min(reaches[-1], most), estimates) or 1.0


def _bar(each: Coefficient, limit: float) -> str:
    """Draw an interval with its estimate and the zero line; an end beyond the axis has no cap."""
    assert each.value is not None
    assert each.interval is not None

    def at(value: float) -> float:
        return round((min(max(value / limit, -1.0), 1.0) + 1.0) * _WIDTH / 2.0, 1)

    middle = _HEIGHT / 2.0
    low, high = each.interval
    zero = _WIDTH / 2.0
    parts = [f'<line x1="{zero}" y1="0" x2="{zero}" y2="{_HEIGHT}" stroke="currentColor" stroke-opacity=".35"/>']
    if math.isfinite(low + high):
        parts.append(
            f'<line x1="{at(low)}" y1="{middle}" x2="{at(high)}" y2="{middle}" stroke="#2f81f7" stroke-width="3" '
            'stroke-opacity=".65"/>'
        )
        parts += [
            f'<line x1="{at(end)}" y1="{middle - 4}" x2="{at(end)}" y2="{middle + 4}" stroke="#2f81f7" '
            'stroke-width="2"/>'
            for end in each.interval
            if abs(end) <= limit
        ]
    parts.append(f'<circle cx="{at(each.value)}" cy="{middle}" r="4" fill="#2f81f7"/>')
    return (
        f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" role="img" aria-label="{escape(each.name)}: '
        f'{number(each.value)}, {span(low, high)}">{"".join(parts)}</svg>'
    )
