"""A plan as a picture: half-widths over numbers of people, with a line per protocol and a panel per budget."""

from __future__ import annotations

import io
import math
from typing import Final

from murk.learners.results.plot import GREY, INK, figure
from murk.planning.plan import Plan

_COLOURS: Final = {
    "scores": "#1f6feb", "moments": "#1a7f37", "gradients": "#bf8700", "examples": "#8250df", "sketch": "#cf222e",
}  # fmt: skip


def draw(found: Plan, form: str = "png") -> bytes:
    """Draw a plan as PNG, SVG or PDF; unbounded intervals have no point.

    Raises UserError if matplotlib is not installed.
    """
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
        axes.set_xscale("log")
        axes.set_xlim(found.people[0] / 1.5, found.people[-1] * 1.5)
        axes.set_yscale("log")
        axes.set_xticks(found.people, [f"{people:,}" for people in found.people], fontsize=8)
        axes.xaxis.set_minor_formatter("")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("{x:g}")
        axes.tick_params(which="both", axis="y", labelsize=8)
        axes.set_title(words, fontsize=10)
        axes.set_xlabel("people")
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
