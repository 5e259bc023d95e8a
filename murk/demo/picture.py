"""The picture of an estimate closing in, with its interval, beside what a trusted server would have found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from murk.errors import UserError

_BLUE, _GREY, _INK = "#1f6feb", "#8b949e", "#24292f"


def draw(
    path: Path, points: Sequence[Mapping[str, Any]], names: Sequence[str], labels: Mapping[str, str],
    scale: Mapping[str, float], trusted: Mapping[str, Mapping[str, float]] | None = None,
) -> Path:  # fmt: skip
    """Draw odds ratios over the number of releases (log axis), one panel a coefficient.

    Parameters
    ----------
    path
        Where the picture goes (``.png`` or ``.svg``).
    points
        As :class:`murk.demo.path.Path95` records them.
    names, labels
        Coefficients to draw and what their unit is.
    scale
        Factor from coded units to the unit of the label.
    trusted
        The trusted server's fit, if it is to be shown.

    Raises
    ------
    UserError
        If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError('the picture needs matplotlib: pip install "murk[demo]"') from error
    figure = Figure(figsize=(10, 3.6 * len(names)), layout="constrained")
    n = np.array([point["n"] for point in points])
    for axes, name in zip(figure.subplots(len(names), squeeze=False)[:, 0], names, strict=True):
        place = points[0]["names"].index(name)
        factor = scale[name]
        value = np.array([point["values"][place] for point in points]) * factor
        half = np.array([point["half_widths"][place] for point in points]) * abs(factor)
        low, high = np.exp(np.clip(value - half, -20, 20)), np.exp(np.clip(value + half, -20, 20))
        axes.fill_between(n, low, high, color=_BLUE, alpha=0.18, linewidth=0, label="95% interval")
        axes.plot(n, np.exp(value), color=_BLUE, linewidth=2, label="learned from private releases")
        axes.axhline(1.0, color=_INK, linewidth=0.8)
        if trusted is not None:
            target = float(np.exp(trusted[name]["value"] * factor))
            axes.axhline(
                target,
                color=_GREY,
                linestyle="--",
                linewidth=1.5,
                label=f"with all raw records: {target:.2f}",
            )
        # The later part decides the window; before that the band fills any.
        late = n >= n[-1] / 25
        least, most = low[late].min(), high[late].max()
        margin = 0.1 * (most - least)
        axes.set_ylim(max(0.0, least - margin), most + margin)
        axes.set_xscale("log")
        axes.set_xlim(n[0], n[-1])
        axes.set_xlabel("releases learned from")
        axes.set_ylabel("odds ratio")
        axes.set_title(labels[name], loc="left", fontsize=11, color=_INK)
        axes.annotate(
            f"{np.exp(value[-1]):.2f}", (n[-1], float(np.exp(value[-1]))), xytext=(6, 0),
            textcoords="offset points", va="center", color=_BLUE, fontweight="bold", annotation_clip=False,
        )  # fmt: skip
        axes.grid(alpha=0.25)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.legend(frameon=False, fontsize=9, loc="upper right")
    figure.savefig(path, dpi=110)
    return path
