"""Pictures of a result: intervals, and the estimate over the releases."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.extras import missing_extra
from murk._internal.numbers import NOT_LEARNED, number, span
from murk.errors import UserError
from murk.inference.units import odds_ratio
from murk.results.coefficients import Coefficient
from murk.results.text import effect_word, only_effects, title_of
from murk.stream.wire.state import LEVEL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_ERROR_CODE = "MURK-LEARN-001"


BLUE: Final = "#1f6feb"
GREY: Final = "#6e7781"
INK: Final = "#24292f"
_MOST_PANELS = 6
_SHOWN = 6.0  # a curve's axis shows this many half-widths of the narrowest interval to both sides
_WIDEST = 6.0  # intervals wider than this many times the median width are cut, since they would hide the others
_ASIDE: Final = {"textcoords": "offset points", "va": "center", "annotation_clip": False}


def figure(size: tuple[float, float]) -> Figure:
    """Return an empty figure that notebooks display without setup; raise UserError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise missing_extra("the picture needs matplotlib", "demo") from error

    class Picture(Figure):
        """A figure that notebooks show as a PNG."""

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=110)
            return buffer.getvalue()

    return Picture(figsize=size, layout="constrained", facecolor="white")


def lifts(report: Mapping[str, Any]) -> Figure:
    """Draw the lift of each arm of an experiment, with its intervals for every look and, within, for one look."""
    experiment = report["experiment"]
    each = experiment["lifts"]
    picture = figure((7.0, 1.4 + 0.7 * len(each)))
    axes = picture.add_subplot()
    axes.axvline(0.0, color=GREY, linewidth=1.0)
    for index, lift in enumerate(each):
        for key, width in (("interval", 2.0), ("fixed_interval", 6.0)):
            if math.isfinite(sum(lift[key])):
                axes.plot(lift[key], [index, index], color=BLUE, linewidth=width, solid_capstyle="butt")
        axes.plot([lift["value"]], [index], "o", color=INK)
    axes.set_yticks(range(len(each)), [lift["arm"] for lift in each])
    axes.set_ylim(-0.7, len(each) - 0.3)
    axes.set_xlabel(f"lift against {experiment['control']}, {experiment['unit']} (thin: every look; thick: one look)")
    axes.set_title(f"{report['task']}: {report['releases']:,} releases", loc="left", fontsize=10)
    return picture


def forest(report: Mapping[str, Any], chosen: Sequence[Coefficient]) -> Figure:
    """Draw an interval for each coefficient: odds ratios on a log axis, effects per unit, or coded units.

    If no log odds were learned, average effects are drawn.
    Effects in different units are drawn per half of each feature's public range. Wide intervals are cut, with arrows.
    """
    if not chosen:
        raise UserError(f"{report['task']} has no coefficient to draw but the intercept")
    drawn = figure((8.4, 1.2 + 0.42 * len(chosen)))
    axes = drawn.subplots()
    effects = only_effects(report)
    if effects:
        chosen = [_average(each) for each in chosen]
    odds = bool(report["odds_ratios"]) and not effects
    units = all(each.unit is not None for each in chosen)
    alike = odds or effects or len({report["per_unit"][each.name]["factor"] for each in chosen if units}) <= 1
    drawn_per_unit = units and alike
    useful = [point for each in chosen if each.useful and (point := _point(each, drawn_per_unit)) is not None]
    learned = [point for each in chosen if (point := _point(each, drawn_per_unit)) is not None]
    low, high = _reach(useful or learned)
    for row, each in enumerate(chosen):
        _forest_row(axes, -row, each, low, high, odds=odds, units=drawn_per_unit, words=units)
    axes.axvline(1.0 if odds else 0.0, color=INK, linewidth=0.8, zorder=0)
    if odds:
        low, high = odds_ratio(low), odds_ratio(high)
        _odds_ticks(axes, low, high)
    else:
        axes.locator_params(axis="x", nbins=5)
    axes.set_xlim(low, high)
    axes.set_ylim(0.6 - len(chosen), 0.6)
    labels = [each.unit if units and each.unit else each.name for each in chosen]
    axes.set_yticks([-row for row in range(len(chosen))], labels)
    axes.tick_params(axis="y", length=0)
    coded = ", coded, per half of each feature's range" if units else ", coded units"
    of = ("points" if effects else effect_word(report)) + ("" if drawn_per_unit else coded)
    looks = report["interval"].get("looks", {"validity": "fixed-n"})
    always = f"{looks['words']}" if looks["validity"] == "always-valid" else f"{100 * report['interval']['level']:.0f}%"
    axes.set_xlabel(f"{of}, with {always} intervals", color=INK)
    axes.set_title(title_of(report), loc="left", fontsize=11, color=INK)
    axes.grid(axis="x", alpha=0.25)
    _bare(axes, "top", "right", "left")
    return drawn


def _odds_ticks(axes: Axes, low: float, high: float) -> None:
    """Make the axis logarithmic, with at most about six ticks, labelled by plain numbers."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    axes.set_xscale("log")
    locator: Any = MaxNLocator(6)
    if high / low > 8:
        tens = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        every = math.ceil(len(tens) / 6)
        locator = FixedLocator([by * 10.0**ten for ten in tens[::every] for by in ((1, 3) if len(tens) < 6 else (1,))])
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def curve(
    report: Mapping[str, Any],
    history: Mapping[str, Any] | None,
    chosen: Sequence[Coefficient],
    trusted: Mapping[str, Mapping[str, float]] | None = None,
) -> Figure:
    """Draw the estimate with its interval over the number of releases, a panel for each coefficient.

    ``trusted`` is the fit of a trusted server, in coded units, if there is one.
    """
    if history is None or not history["releases"]:
        raise UserError(
            f"{report['task']} has no history to draw: murk.run keeps a history, a learner in process does not. "
            'plot("forest") needs none'
        )
    chosen = chosen[:_MOST_PANELS]
    odds, per_unit = bool(report["odds_ratios"]), report["per_unit"]
    drawn = figure((8.0, 0.4 + 2.5 * len(chosen)))
    panels = drawn.subplots(len(chosen), squeeze=False, sharex=True)[:, 0]
    for axes, each in zip(panels, chosen, strict=True):
        unit = per_unit.get(each.name)
        factor, shift = (1.0, 0.0) if unit is None else (unit["factor"], unit["shift"])
        releases, value, half = _path(report, history, each)
        target = None if trusted is None else trusted[each.name]["value"] * factor + shift
        shown = value * factor + shift, half * abs(factor)
        draw_curve(axes, releases, *shown, odds=odds, target=target, learned=each.learned)
        axes.set_title(each.unit or each.name, loc="left", fontsize=11, color=INK)
        axes.set_ylabel(effect_word(report) if unit is not None else "coded")
    for axes in panels[1:]:
        axes.get_legend().remove()
    panels[-1].set_xlabel("releases learned from")
    return drawn


def track(report: Mapping[str, Any], names: Sequence[str]) -> Figure:
    """Draw the estimates of windows, and the smoothed path with its band, a panel for each of some coefficients."""
    tracked = report.get("track")
    if tracked is None:
        raise UserError(f"{report['task']} has no track to draw: say track: {{window: ...}} in the task")
    names = names[:_MOST_PANELS]
    drawn = figure((8.0, 0.4 + 2.5 * len(names)))
    panels = drawn.subplots(len(names), squeeze=False, sharex=True)[:, 0]
    begins = np.array(tracked["begins"], dtype="datetime64[D]")
    together = f"{100.0 * tracked['level']:g}% in all windows at once"
    for axes, name in zip(panels, names, strict=True):
        each = tracked["coefficients"][name]
        parts = {
            key: tuple(map(np.array, (each[key]["values"], each[key]["half_widths"]))) for key in ("windows", "path")
        }
        value, half = parts["path"]
        finite = np.isfinite(half)
        axes.fill_between(
            begins, value - half, value + half, where=finite, color=BLUE, alpha=0.18, linewidth=0, label=together
        )
        axes.plot(begins, np.where(finite, value, np.nan), color=BLUE, linewidth=2, label="smoothed path")
        value, half = parts["windows"]
        learned = np.isfinite(half)
        alone: dict[str, Any] = {"fmt": "o", "color": GREY, "markersize": 4, "linewidth": 1, "label": "window alone"}
        axes.errorbar(begins[learned], value[learned], yerr=half[learned], **alone)
        axes.set_title(each["unit"] or name, loc="left", fontsize=11, color=INK)
        axes.set_ylabel(("log odds" if report["odds_ratios"] else effect_word(report)) if each["unit"] else "coded")
        axes.grid(alpha=0.25)
        _bare(axes, "top", "right")
    panels[0].legend(frameon=False, fontsize=9)
    panels[-1].set_xlabel(f"{tracked['window']} of the answers")
    drawn.autofmt_xdate()
    return drawn


def _path(report: Mapping[str, Any], history: Mapping[str, Any], each: Coefficient) -> tuple[Floats, Floats, Floats]:
    """Return the history's numbers of releases, estimates and half-widths, in coded units; its end is the result."""
    columns = (history["releases"], history["values"][each.name], history["half_widths"][each.name])
    releases, values, halves = map(list, columns)
    if report["releases"] > releases[-1] and report["interval"]["level"] == LEVEL:
        # A history has intervals for one planned look.
        low, high = report.get("fixed_intervals", report["confidence_intervals"])[each.name]
        releases.append(report["releases"])
        values.append(report["coefficients"][each.name])
        halves.append((high - low) / 2.0)
    return np.array(releases, dtype=np.float64), np.array(values), np.array(halves)


def draw_curve(
    axes: Axes,
    releases: Floats,
    value: Floats,
    half: Floats,
    *,
    odds: bool,
    target: float | None = None,
    learned: bool = True,
) -> None:
    """Draw one estimate with its interval over the number of releases on a log axis.

    ``half`` has half-widths, infinite if nothing was learned. With ``odds``, values are log odds ratios, drawn as odds
    ratios. ``target`` is the estimate from all raw records. Values without an interval are guesses. They are not drawn
    if other values have an interval, or if the last value is not ``learned``.
    """
    scaled = _odds if odds else _plain
    # For methods without intervals every estimate is drawn.
    guesses = ~np.isfinite(half) & (np.isfinite(half).any() or not learned)
    look: dict[str, Any] = {"color": BLUE, "alpha": 0.18, "linewidth": 0, "label": "95% interval"}
    axes.fill_between(releases, scaled(value - half), scaled(value + half), where=~guesses, **look)
    line = np.where(guesses, np.nan, scaled(value))
    axes.plot(releases, line, color=BLUE, linewidth=2, label="learned from private releases")
    axes.axhline(1.0 if odds else 0.0, color=INK, linewidth=0.8)
    if target is not None:
        true_value = float(scaled(np.array(target)))
        axes.axhline(
            true_value, color=GREY, linestyle="--", linewidth=1.5, label=f"with all raw records: {number(true_value)}"
        )
    axes.set_ylim(*scaled(np.array(window(value, half, target, least=1.1 if odds else 0.0))))
    axes.set_xscale("log")
    if releases[-1] > releases[0]:
        axes.set_xlim(releases[0], releases[-1])
    aside: dict[str, Any] = {"xytext": (6, 0), **_ASIDE}
    if learned:
        last = float(scaled(value[-1:])[0])
        # At least three significant digits.
        shown_last = number(last) if abs(last) >= 0.1 else f"{last:.3g}"
        axes.annotate(shown_last, (releases[-1], last), color=BLUE, fontweight="bold", **aside)
    else:
        axes.annotate(NOT_LEARNED, (1.0, 0.5), xycoords="axes fraction", color=GREY, style="italic", **aside)
    axes.grid(alpha=0.25)
    _bare(axes, "top", "right")
    axes.legend(frameon=False, fontsize=9, loc="upper right")


def window(value: Floats, half: Floats, target: float | None = None, *, least: float = 0.0) -> tuple[float, float]:
    """Return the range to show: several times the narrowest interval, so that early wide intervals are cut.

    The range contains the last value and ``target``. If ``least`` is given, the range extends beyond these by exactly
    ``least`` where nothing was learned, and by at most ``least`` elsewhere.

    >>> low, high = window(np.array([3.0, 0.1]), np.array([8.0, 0.05]))
    >>> round(low, 2), round(high, 2)
    (-0.2, 0.4)
    """
    narrowest = float(np.min(half))
    room = _SHOWN * narrowest if math.isfinite(narrowest) else least or 2.0 * float(np.max(np.abs(value))) or 1.0
    room = min(room, least) if least else room
    seen = float(value[-1]) if target is None else target
    return float(min(value[-1], seen) - room), float(max(value[-1], seen) + room)


def _forest_row(
    axes: Axes, row: int, each: Coefficient, low: float, high: float, *, odds: bool, units: bool, words: bool
) -> None:
    """Draw one interval, and write its numbers next to it: per unit if ``words``."""
    point, labelled = _point(each, units), _point(each, words)
    aside: dict[str, Any] = {"xytext": (10, 0), "fontsize": 9, **_ASIDE}
    right = (1.0, row)
    if point is None or labelled is None:
        axes.annotate(NOT_LEARNED, right, xycoords=("axes fraction", "data"), color=GREY, style="italic", **aside)
        return
    value, (least, most) = point
    scaled = odds_ratio if odds else float
    if math.isfinite(least + most):
        ends = [scaled(min(max(end, low), high)) for end in (least, most)]
        axes.plot(ends, [row, row], color=BLUE, linewidth=2.5, alpha=0.6, solid_capstyle="butt")
        for end in (least, most):
            edge, mark = (low, "<") if end < low else (high, ">") if end > high else (end, "|")
            axes.plot(scaled(edge), row, mark, color=BLUE, markersize=7)
    if low <= value <= high:
        axes.plot(scaled(value), row, "o", color=BLUE, markersize=6)
    value, (least, most) = labelled
    numbers = f"{number(scaled(value))}  ({span(scaled(least), scaled(most))})"
    axes.annotate(
        numbers + ("" if each.useful else ", too wide"), right, xycoords=("axes fraction", "data"), color=INK, **aside
    )


def _average(each: Coefficient) -> Coefficient:
    """Return a coefficient with its average effect as its effect per unit, if known."""
    if each.average_effect is None:
        return each
    return replace(each, effect=each.average_effect, effect_interval=each.average_effect_interval, useful=True)


def _point(each: Coefficient, units: bool) -> tuple[float, tuple[float, float]] | None:
    """Return an estimate and its interval, per unit or coded; None if it was not learned."""
    value, interval = (each.effect, each.effect_interval) if units else (each.value, each.interval)
    return None if value is None or interval is None else (value, interval)


def _reach(points: list[tuple[float, tuple[float, float]]]) -> tuple[float, float]:
    """Return the range to show: zero, all estimates, and intervals up to a width that would hide others."""
    halves = sorted(most - value for value, (_, most) in points if math.isfinite(most))
    widest = _WIDEST * halves[len(halves) // 2] if halves else 0.0
    low = min([0.0, *(value - min(most - value, widest) for value, (_, most) in points)])
    high = max([0.0, *(value + min(most - value, widest) for value, (_, most) in points)])
    room = 0.06 * (high - low) or 1.0
    return low - room, high + room


def _odds(value: Floats) -> Floats:
    return np.asarray(np.exp(np.clip(value, -20.0, 20.0)))


def _plain(value: Floats) -> Floats:
    # Pictures cannot show infinity.
    return np.clip(value, -1e30, 1e30)


def _bare(axes: Axes, *sides: str) -> None:
    for side in sides:
        axes.spines[side].set_visible(False)
