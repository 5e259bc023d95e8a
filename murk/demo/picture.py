"""The picture of an estimate closing in, with its interval, beside what a trusted server would have found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError

_BLUE, _GREY, _INK = "#1f6feb", "#8b949e", "#24292f"


# Half widths of the narrowest interval that the window shows to both sides.
_SHOWN = 6.0


def window(value: NDArray[np.float64], half: NDArray[np.float64], target: float | None = None) -> tuple[float, float]:
    """The range of odds ratios to show: some times the narrowest interval, however wide those before it were.

    Parameters
    ----------
    value, half
        Log odds ratios and the half widths of their intervals, infinite where nothing was learned.
    target
        Another one to be seen.

    Examples
    --------
    >>> low, high = window(np.array([3.0, 0.1]), np.array([8.0, 0.05]))
    >>> round(low, 2), round(high, 2)
    (0.82, 1.49)
    """
    # Where nothing was learned at all: three times the odds to both sides, and nothing around the estimate.
    room = _SHOWN * min(float(np.min(half)), 1.1 / _SHOWN)
    seen = float(value[-1]) if target is None else target
    return float(np.exp(min(value[-1], seen) - room)), float(np.exp(max(value[-1], seen) + room))


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
        raise UserError('the picture needs matplotlib: pip install "murk[demo]"', code="MURK-CLI-003") from error
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
        axes.set_ylim(*window(value, half, None if trusted is None else trusted[name]["value"] * factor))
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
