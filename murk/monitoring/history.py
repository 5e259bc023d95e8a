"""How the figures have moved: first as the states have it, and since the monitor started as it was seen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from murk.monitoring.figures import Figures, distance

MOST_POINTS = 600
FEWEST_POINTS = 20
MOST_NUMBERS = 200_000


class Point(NamedTuple):
    """What the curves show at one moment; what only a monitor sees is None before one did."""

    releases: int
    time: float
    values: tuple[float, ...]
    half_widths: tuple[float, ...]
    estimated_error: float
    parameter_error: float | None
    rate: float | None
    dead: int | None
    lag: int | None
    unbiased_loss: float | None
    unbiased_loss_error: float | None


class History:
    """What was seen, in the order of releases, thinned so that it stays evenly spread over the logarithm of releases.

    At most 600 points, and fewer where each holds very many coefficients.

    Examples
    --------
    >>> from murk.monitoring.history import History
    >>> History(coefficients=3).most
    600
    """

    def __init__(self, coefficients: int) -> None:
        self.most = min(MOST_POINTS, max(FEWEST_POINTS, MOST_NUMBERS // (2 * coefficients)))
        self._points: list[Point] = []

    @property
    def points(self) -> tuple[Point, ...]:
        """What was seen, oldest first."""
        return tuple(self._points)

    def whole(self, figures: Figures, reference: Mapping[str, float] | None = None) -> tuple[Point, ...]:
        """All points, oldest first: those of the states for as long as nothing was seen, then what was."""
        begin = self._points[0].releases if self._points else math.inf
        before = [
            Point(
                point.releases, point.time, point.values, point.half_widths, point.estimated_error,
                None if reference is None else distance(figures.names, point.values, reference),
                None, None, None, None, None,
            )
            for point in figures.curve if point.releases < begin
        ]  # fmt: skip
        return (*before, *self._points)

    def add(self, figures: Figures, time: float, rate: float) -> None:
        """Note how things stand.

        While no release is learned, the point at which they stopped stays, and one after it moves on in time.
        """
        point = Point(
            figures.releases, time, figures.values, figures.half_widths, figures.estimated_error,
            figures.parameter_error, rate, sum(figures.dead.values()), figures.lag, figures.unbiased_loss,
            figures.unbiased_loss_error,
        )  # fmt: skip
        points = self._points
        if points and point.releases < points[-1].releases:
            # Another log stands where the first one was: its curve is another one.
            points.clear()
        if len(points) > 1 and point.releases == points[-1].releases == points[-2].releases:
            points[-1] = point
            return
        points.append(point)
        if len(points) > self.most:
            del points[self._crowded()]

    def _crowded(self) -> int:
        """Place of the point whose neighbours are closest together; never the first or the last."""
        at = [math.log1p(point.releases) for point in self._points]
        return min(range(1, len(at) - 1), key=lambda place: at[place + 1] - at[place - 1])
