"""The trail of a chain: how its estimate has moved, kept in its state.

Points lie on a grid of four counts per octave: 1, 2, ..., 8, 10, 12, 14, 16, 20, ... Where there are too many, every
second one is dropped. The grid follows from the count alone and times are the log's own, so that a replay gives the
same points.
"""

from __future__ import annotations

import base64
import json
from typing import Annotated, Any, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from murk.errors import MurkError
from murk.stream.log.base import MAX_STATE

LEVEL = 0.95  # level of the intervals in a trail
MOST_POINTS = 200
FEWEST_POINTS = 16  # a task with so many coefficients that fewer points would fit has no trail
TRAIL_BYTES = 2**18  # approximate upper bound of a trail's size
_OVERHEAD = 4096  # upper bound of a state's bytes besides its learner and its trail
_FIRST, _FIRST_BY_KIND = 16, {"sketch": 1, "gram": 1, "newton": 1, "score": 256}
"""Count of the first point. One release of an organisation covers many records; a few people's say nothing."""

_OCTAVE = 4
_Count = Annotated[int, Field(ge=0)]
_Counts = Annotated[list[_Count], Field(max_length=MOST_POINTS)]


class Estimated(Protocol):
    """Estimate from which a point is made."""

    @property
    def values(self) -> NDArray[np.float64]:
        """Coefficients."""

    def half_widths(self, level: float = 0.95) -> NDArray[np.float64]:
        """Half-widths of the intervals, infinite where unknown."""

    @property
    def standard_error(self) -> float:
        """Root of the summed squared standard errors."""


class Estimating(Protocol):
    """A learner whose estimates a trail records."""

    @property
    def n_releases(self) -> int:
        """Number of releases learned."""

    @property
    def coefficients(self) -> int:
        """Number of coefficients of the estimate."""

    def estimate(self) -> Estimated:
        """Return what has been learned, without changing it."""

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as plain JSON data."""


class Trail(BaseModel):
    """At most 200 points of a chain's estimate, at counts spread evenly over their logarithm.

    Parameters
    ----------
    counts
        Releases that the chain had learned at each point.
    times
        When the log appended the newest of them, in seconds since 1970, truncated to the task's granularity; never
        decreasing.
    numbers
        For each point p coefficients, the p half-widths of their 95% intervals, and the standard error, infinite where
        unknown: base64 of little-endian float32.
    """

    model_config = ConfigDict(defer_build=True, strict=True, frozen=True, extra="forbid")

    counts: _Counts = Field(default_factory=list)
    times: _Counts = Field(default_factory=list)
    numbers: str = ""

    def table(self, coefficients: int, where: str) -> NDArray[np.float32]:
        """Decode ``numbers`` as an array (points, 2 coefficients + 1); ``where`` names the chain in errors.

        Raises `MurkError` when the trail is damaged.
        """
        try:
            numbers = np.frombuffer(base64.b64decode(self.numbers, validate=True), dtype="<f4")
            table = numbers.reshape(len(self.counts), 2 * coefficients + 1)
        except ValueError as error:
            raise _damaged(where) from error
        if len(self.times) != len(self.counts) or sorted(set(self.counts)) != self.counts:
            raise _damaged(where)
        return table.astype(np.float32)


class TrailRecorder:
    """Add points to a chain's trail as its count passes the grid.

    >>> recorder = TrailRecorder(Trail(), coefficients=2, first=16, where="a chain")
    >>> [recorder.next(count) for count in (0, 16, 31, 32, 1_000_000)]
    [16, 20, 32, 40, 1048576]
    """

    def __init__(self, start: Trail, coefficients: int, first: int, where: str) -> None:
        self._first = first
        self._most = most_points(coefficients)
        self._counts, self._times = list(start.counts), list(start.times)
        self._rows = list(start.table(coefficients, where))
        self._trail = start

    @property
    def trail(self) -> Trail:
        """All points."""
        return self._trail

    def forget(self) -> None:
        """Drop all points."""
        self._counts, self._times, self._rows = [], [], []
        self._trail = Trail()

    def next(self, count: int) -> int | None:
        """Return the next grid count above ``count``; None where the task has no trail."""
        if not self._most:
            return None
        index = max(_grid_index(count + 1), _grid_index(self._first))
        while index % _stride(index, self._first, self._most):
            index += 1
        return _grid_count(index)

    def mark(self, learner: Estimating, time: int) -> None:
        """Add a point if the learner's count is on the grid; ``time`` is when its newest release was appended."""
        count = learner.n_releases
        if self.next(count - 1) == count:
            self.record(learner, time)

    def record(self, learner: Estimating, time: int) -> None:
        """Add a point at the learner's count, if it is beyond the last one and the task has a trail."""
        count = learner.n_releases
        if not self._most or count <= max(self._counts, default=0):
            return
        if len(json.dumps(learner.state_dict())) + trail_bytes(learner.coefficients) + _OVERHEAD > MAX_STATE:
            # This depends on the learner's state alone, so that a replay decides the same.
            self.forget()
            return
        try:
            estimate = learner.estimate()
        except (ArithmeticError, ValueError, MurkError):
            # No estimate at this count: the curve has a gap, and learning goes on.
            return
        self.add(count, time, estimate)

    def add(self, count: int, time: int, estimate: Estimated) -> None:
        """Append a point."""
        row = np.concatenate([estimate.values, estimate.half_widths(LEVEL), [estimate.standard_error]])
        with np.errstate(over="ignore"):
            self._rows.append(row.astype("<f4"))
        self._counts.append(count)
        # A broker's clock may be set back.
        self._times.append(max([time, *self._times[-1:]]))
        stride = _stride(_grid_index(count), self._first, self._most)
        # The newest point of each stretch, which is the one on the grid if that was added.
        kept = {-(-_grid_index(known) // stride): i for i, known in enumerate(self._counts)}.values()
        self._counts, self._times = [self._counts[i] for i in kept], [self._times[i] for i in kept]
        self._rows = [self._rows[i] for i in kept]
        numbers = base64.b64encode(np.concatenate(self._rows).astype("<f4").tobytes()).decode("ascii")
        self._trail = Trail(counts=self._counts, times=self._times, numbers=numbers)


def most_points(coefficients: int) -> int:
    """Return the largest number of points: 200, fewer where points are long, and 0 rather than fewer than 16.

    >>> most_points(10), most_points(500), most_points(5_000)
    (200, 49, 0)
    """
    most = min(MOST_POINTS, TRAIL_BYTES * 3 // 4 // (4 * (2 * coefficients + 1)))
    return most if most >= FEWEST_POINTS else 0


def trail_bytes(coefficients: int) -> int:
    """Return the largest size of a trail in a chain's state."""
    # A count and a time with their commas, and base64 of float32.
    return most_points(coefficients) * (19 + 11 + 4 * -(-4 * (2 * coefficients + 1) // 3)) + 64


def first_point(kind: str) -> int:
    """Return the count of the first point for a kind of release."""
    return _FIRST_BY_KIND.get(kind, _FIRST)


def _grid_index(count: int) -> int:
    """Return the index of the smallest grid count that is at least ``count``."""
    exponent = max(0, count.bit_length() - _OCTAVE.bit_length())
    return _OCTAVE * exponent - (-count >> exponent)


def _grid_count(index: int) -> int:
    exponent = max(0, index // _OCTAVE - 1)
    return (index - _OCTAVE * exponent) << exponent


def _stride(index: int, first: int, most: int) -> int:
    """Return the divisor of the grid indices that are kept when the chain has reached ``index``."""
    stride = 1
    while -(-index // stride) - (_grid_index(first) - 1) // stride > most:
        stride *= 2
    return stride


def _damaged(where: str) -> MurkError:
    return MurkError(f"the state of {where} is damaged at: trail. Restore the log from a copy")
