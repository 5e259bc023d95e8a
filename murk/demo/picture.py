"""Plot of an estimate and its interval over the number of releases, with the trusted server's fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from murk._files import write_whole
from murk.learners.results.plot import INK, draw_curve, figure


def draw(
    path: Path, points: Sequence[Mapping[str, Any]], names: Sequence[str], labels: Mapping[str, str],
    scale: Mapping[str, float], trusted: Mapping[str, Mapping[str, float]] | None = None,
) -> Path:  # fmt: skip
    """Draw odds ratios over the number of releases (log axis) to a PNG file, one panel per coefficient.

    ``points`` are those of `murk.demo.path.Path95`. ``labels`` describe each coefficient's unit, and ``scale`` converts
    coded units to it. ``trusted`` is the trusted server's fit, if it is to be shown.

    Raises UserError if matplotlib is not installed.
    """
    drawn = figure((10.0, 3.6 * len(names)))
    n = np.array([point["n"] for point in points], dtype=np.float64)
    for axes, name in zip(drawn.subplots(len(names), squeeze=False)[:, 0], names, strict=True):
        index, factor = points[0]["names"].index(name), scale[name]
        value = np.array([point["values"][index] for point in points]) * factor
        half = np.array([point["half_widths"][index] for point in points]) * abs(factor)
        draw_curve(axes, n, value, half, odds=True, target=None if trusted is None else trusted[name]["value"] * factor)
        axes.set_xlabel("releases learned from")
        axes.set_ylabel("odds ratio")
        axes.set_title(labels[name], loc="left", fontsize=11, color=INK)
    buffer = BytesIO()
    drawn.savefig(buffer, format="png", dpi=110)
    write_whole(path, buffer.getvalue(), own=True)
    return path
