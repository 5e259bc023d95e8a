"""History of the figures: from the partitions' states before the monitor started, then from its own polls."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from murk.inference.confidence_sequences import sequence_half_widths
from murk.inference.drift import CurvePoint
from murk.monitoring.figures import Figures, distance

MOST_POINTS, FEWEST_POINTS, MOST_NUMBERS = 600, 20, 200_000
MOST_SPANS, SPAN_SECONDS = 600, 10.0


def _sequences(figures: Figures, points: Sequence[CurvePoint]) -> list[tuple[float, ...]]:
    """Return half-widths of confidence sequences at earlier points, from the fixed intervals that states record."""
    if not points:
        return []
    # An organisation's release has many records.
    each = figures.looks.count / max(figures.releases_used, 1)
    counts = each * np.array([point.releases for point in points], dtype=np.float64)
    # Half-widths in states do not allow for people who answer several times.
    halves = math.sqrt(figures.looks.repeats.effect) * np.array([point.half_widths for point in points])
    if not np.isfinite(figures.sequence_half_widths).any():
        halves = np.full_like(halves, np.inf)
    counts_now, halves_now = np.array([float(figures.sequence_count)]), np.array([figures.half_widths])
    now = sequence_half_widths(halves_now, counts_now, figures.looks.tightest_at)[0]
    # States do not record how near to the noise an estimate was, which widens intervals above 95%; it was no farther.
    known = np.isfinite(figures.sequence_half_widths) & np.isfinite(now) & (now > 0.0)
    excess = np.ones(len(now))
    excess[known] = np.maximum(1.0, np.array(figures.sequence_half_widths)[known] / now[known])
    return list(map(tuple, (excess * sequence_half_widths(halves, counts, figures.looks.tightest_at)).tolist()))


class Point(NamedTuple):
    """A point of the curves; values that only a monitor observes are None before it started."""

    releases: int
    time: float
    values: tuple[float, ...]
    half_widths: tuple[float, ...]
    sequence_half_widths: tuple[float, ...]
    estimated_error: float
    parameter_error: float | None
    rate: float | None = None
    dead: int | None = None
    lag: int | None = None
    unbiased_loss: float | None = None
    unbiased_loss_error: float | None = None
    lifts: Mapping[str, tuple[float, float, float]] | None = None  # of an experiment's arms: value, ends of interval


class Knot(NamedTuple):
    """End of a time span, with the releases learned until then and the largest lag within the span."""

    time: float
    releases: int
    lag: int


class Pace:
    """Mean speed and largest lag over at most 600 equal time spans: of ten seconds, later of joined neighbours."""

    def __init__(self) -> None:
        self._knots: list[Knot] = []
        self._seconds = SPAN_SECONDS

    def add(self, time: float, releases: int, lag: int) -> None:
        """Add an observation; if it is of another log, start over."""
        knots = self._knots
        if knots and (releases < knots[-1].releases or time < knots[-1].time):
            knots.clear()
            self._seconds = SPAN_SECONDS
        if len(knots) > 1 and time - knots[-2].time <= self._seconds:
            knots[-1] = Knot(time, releases, max(lag, knots[-1].lag))
            return
        knots.append(Knot(time, releases, lag))
        if len(knots) > MOST_SPANS:
            first, *rest = knots
            pairs = zip(rest[::2], rest[1::2], strict=True)
            self._knots = [first, *(later._replace(lag=max(earlier.lag, later.lag)) for earlier, later in pairs)]
            self._seconds = 2.0 * (self._knots[-1].time - first.time) / MOST_SPANS

    def columns(self) -> dict[str, list[float | int | None]]:
        """Return the end of each span in seconds since 1970, its releases per second and its largest lag.

        A last span shorter than half a span is omitted, since its mean is imprecise.
        """
        knots = self._knots
        if len(knots) > 2 and knots[-1].time - knots[-2].time < self._seconds / 2.0:
            knots = knots[:-1]
        rates: list[float | int | None] = [None] * min(1, len(knots))
        for start, end in itertools.pairwise(knots):
            seconds = end.time - start.time
            rates.append((end.releases - start.releases) / seconds if seconds > 0.0 else None)
        return {"time": [knot.time for knot in knots], "rate": rates, "lag": [knot.lag for knot in knots]}


class History:
    """Observed points, at most 600 or fewer for many coefficients, evenly spread over the logarithm of releases."""

    def __init__(self, coefficients: int) -> None:
        self.most = min(MOST_POINTS, max(FEWEST_POINTS, MOST_NUMBERS // (2 * coefficients)))
        self._points: list[Point] = []

    @property
    def points(self) -> tuple[Point, ...]:
        """Observed points, oldest first."""
        return tuple(self._points)

    def whole(self, figures: Figures, reference: Mapping[str, float] | None = None) -> tuple[Point, ...]:
        """Return all points, oldest first: those from the states, then those that the monitor observed."""
        begin = self._points[0].releases if self._points else math.inf
        earlier = [point for point in figures.curve if point.releases < begin]
        before = []
        for point, sequence in zip(earlier, _sequences(figures, earlier), strict=True):
            error = None if reference is None else distance(figures.names, point.values, reference)
            before.append(Point(**point._asdict(), sequence_half_widths=sequence, parameter_error=error))
        return (*before, *self._points)

    def add(self, figures: Figures, time: float, rate: float) -> None:
        """Add a point; replace the last one if the last two have the same number of releases."""
        point = Point(
            figures.releases,
            time,
            figures.values,
            figures.half_widths,
            figures.sequence_half_widths,
            figures.estimated_error,
            figures.parameter_error,
            rate,
            sum(figures.dead.values()),
            figures.lag,
            figures.unbiased_loss,
            figures.unbiased_loss_error,
            None if figures.experiment is None else figures.experiment.curves(),
        )
        points = self._points
        if points and point.releases < points[-1].releases:
            # The log was replaced.
            points.clear()
        if len(points) > 1 and point.releases == points[-1].releases == points[-2].releases:
            points[-1] = point
            return
        points.append(point)
        if len(points) > self.most:
            # Drop the point whose neighbours are closest, never the first or the last.
            at = [math.log1p(point.releases) for point in points]
            del points[min(range(1, len(at) - 1), key=lambda index: at[index + 1] - at[index - 1])]
