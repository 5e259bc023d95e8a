"""The path of an estimate, of releases and public settings only: points stored beside the log, and their plot."""

import json
import os
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from murk._internal.atomic_files import open_own, write_whole
from murk.populations.local_run import LocalRun
from murk.results.plot import INK, draw_curve, figure

_GROWTH = 1.05
_FIRST = 100


class Path95:
    """Records the estimate with its 95% interval each time releases grow by 5%; keeps an interrupted run's points."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = False
        self.points: list[dict[str, Any]] = []
        if path.exists():
            for line in path.read_text().splitlines():
                try:
                    self.points.append(json.loads(line))
                except ValueError:
                    # An interrupted process may leave a partial last line.
                    break
            write_whole(path, "".join(json.dumps(point) + "\n" for point in self.points), own=True)

    def __call__(self, run: LocalRun, last: bool) -> None:
        """Record a point if one is due, or if it is the last."""
        n = run.releases
        if self.points and n < self.points[-1]["n"] and not self._seen:
            # The points belong to an earlier log.
            self.points.clear()
            self._path.unlink()
        self._seen = True
        newest = self.points[-1]["n"] if self.points else 0
        if n <= newest or (not last and n < max(_FIRST, newest * _GROWTH)):
            return
        estimate = run.estimate()
        point = {
            "n": n,
            "names": list(estimate.names),
            "values": estimate.values.tolist(),
            "half_widths": estimate.half_widths(0.95).tolist(),
        }
        self.points.append(point)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        with os.fdopen(open_own(self._path, flags), "a", encoding="utf-8") as handle:
            handle.write(json.dumps(point) + "\n")


def draw(
    path: Path,
    points: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    labels: Mapping[str, str],
    scale: Mapping[str, float],
    trusted: Mapping[str, Mapping[str, float]] | None = None,
) -> Path:
    """Draw odds ratios over releases (log axis) to a PNG file, one panel per coefficient; needs matplotlib.

    ``points`` are those of `Path95`. ``labels`` describe each coefficient's unit, ``scale`` converts coded units to it,
    and ``trusted`` is the trusted server's fit, if any. Raises UserError if matplotlib is not installed.
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
