"""Draw the panels of an experiment as one picture."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from murk.results.plot import BLUE, GREY, INK, figure
from reproductions.experiment import Panel, Series

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, distinguishable without colour vision, after Murk's blue.
_COLOURS: Final = (BLUE, "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6e5494", INK, GREY)
_ACROSS = 3
_MANY = 8
# A legend under its panel: columns, inches for each row, and points between axes and legend.
_COLUMNS, _ROW, _DOWN = 2, 0.18, 40


def draw(title: str, panels: Sequence[Panel]) -> bytes:
    """Return panels as a PNG picture.

    Raises
    ------
    UserError
        If matplotlib is not installed.
    """
    drawn = _drawn(title, panels)
    buffer = io.BytesIO()
    drawn.savefig(buffer, format="png", dpi=100)
    return _small(buffer.getvalue())


def _drawn(title: str, panels: Sequence[Panel]) -> Figure:
    """Return the figure; legends are outside the axes, so that they hide no line."""
    # Four panels are two by two; of many panels, four of a kind share a row.
    many = len(panels) > _MANY and len(panels) % 4 == 0
    across = 4 if many else 2 if len(panels) == 4 else min(_ACROSS, len(panels))
    down = math.ceil(len(panels) / across)
    wide, high = (3.6, 3.0) if many else (5.2, 4.0)
    shared = _shared(panels)
    longest = 0 if shared else max(len(panel.series) for panel in panels)
    high += _ROW * math.ceil(longest / _COLUMNS)
    drawn = figure((wide * across, 0.5 + high * down))
    grid = drawn.subplots(down, across, squeeze=False).ravel()
    for axes, panel in zip(grid, panels, strict=False):
        _panel(axes, panel, legend=not shared)
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    drawn.suptitle(title, x=0.01, ha="left", fontsize=12, color=INK)
    if shared:
        drawn.legend(*grid[0].get_legend_handles_labels(), loc="outside lower left", ncols=4, frameon=False, fontsize=9)
    return drawn


def _small(picture: bytes) -> bytes:
    """Reduce a picture to 256 colours: shades of each line's colour.

    A palette by frequency could merge the colours of two lines.
    """
    from matplotlib.colors import to_rgb
    from PIL import Image

    steps = 256 // len(_COLOURS)
    palette = [
        round(255 * (1.0 + step / (steps - 1) * (part - 1.0)))
        for colour in _COLOURS
        for step in range(steps)
        for part in to_rgb(colour)
    ]
    colours, buffer = Image.new("P", (1, 1)), io.BytesIO()
    colours.putpalette(palette)
    with Image.open(io.BytesIO(picture)) as whole:
        drawn = whole.convert("RGB").quantize(palette=colours, dither=Image.Dither.NONE)
        drawn.save(buffer, format="png", optimize=True)
    return buffer.getvalue()


def _shared(panels: Sequence[Panel]) -> bool:
    """Return whether all panels have the same lines and can share one legend."""
    names = [[series.name for series in panel.series if series.style != "box"] for panel in panels]
    return len(names) > 1 and bool(names[0]) and all(each == names[0] for each in names)


def _panel(axes: Axes, panel: Panel, legend: bool) -> None:
    from matplotlib.transforms import ScaledTranslation

    boxes = [series for series in panel.series if series.style == "box"]
    if boxes:
        axes.boxplot([list(box.y) for box in boxes], showfliers=False, medianprops={"color": BLUE})
        axes.set_xticks(range(1, len(boxes) + 1), [box.name for box in boxes], rotation=20, ha="right", fontsize=8)
    for number, series in enumerate(series for series in panel.series if series.style != "box"):
        _line(axes, series, _COLOURS[(number if series.colour is None else series.colour) % len(_COLOURS)])
    if panel.line_at is not None:
        axes.axhline(panel.line_at, color=INK, linewidth=0.8, linestyle=":")
    if panel.log_x:
        axes.set_xscale("log")
    elif not boxes:
        axes.locator_params(axis="x", nbins=5)
        axes.xaxis.set_major_formatter(lambda value, place: f"{value:,.10g}")
    if panel.log_y:
        axes.set_yscale("log")
    axes.set_xlabel(panel.x, color=INK)
    axes.set_ylabel(panel.y, color=INK)
    axes.set_title(panel.title, loc="left", fontsize=10, color=INK)
    axes.grid(alpha=0.25)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if legend and len(panel.series) > len(boxes):
        under = axes.transAxes + ScaledTranslation(0.0, -_DOWN / 72.0, axes.figure.dpi_scale_trans)
        axes.legend(frameon=False, fontsize=8, ncols=_COLUMNS, loc="upper left", bbox_to_anchor=(0.0, 0.0),
                    bbox_transform=under, borderaxespad=0.0)  # fmt: skip


def _line(axes: Axes, line: Series, colour: str) -> None:
    if line.style == "points":
        axes.plot(line.x, line.y, "o", color=colour, label=line.name, markersize=4)
    else:
        axes.plot(line.x, line.y, "--" if line.style == "dashed" else "-", color=colour, label=line.name, linewidth=1.4)
    if len(line.low):
        axes.fill_between(line.x, line.low, line.high, color=colour, alpha=0.15, linewidth=0)
