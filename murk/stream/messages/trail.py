"""How a chain's estimate has moved, kept in its state: points at counts that are spread evenly over their logarithm.

At which counts follows from the count alone, and their times are the log's own, so that anyone who replays the log
keeps the same points. Four counts an octave are on the grid: 1, 2, ..., 8, 10, 12, 14, 16, 20, ... Where they come to
be too many, every second one is left out. Of points between two counts of the grid, the newest is kept.
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

LEVEL = 0.95
"""Level of the intervals that are kept."""

MOST_POINTS = 200
FEWEST_POINTS = 16
"""Of a task with so many coefficients that fewer points would fit, none are kept."""

TRAIL_BYTES = 2**18
"""No trail is longer than about this."""

_BESIDE = 4096
"""Bytes of a state beside its learner and its trail, at the most."""

_FIRST, _FIRST_OF = 16, {"sketch": 1, "gram": 1, "newton": 1, "score": 256}
"""Count of the first point: a few people's releases say nothing. Of an organisation's many records, each one does."""

_OCTAVE = 4
_Count = Annotated[int, Field(ge=0)]
_Counts = Annotated[list[_Count], Field(max_length=MOST_POINTS)]


class Estimated(Protocol):
    """Estimate from which a point is made."""

    @property
    def values(self) -> NDArray[np.float64]:
        """Coefficients."""

    def half_widths(self, level: float = 0.95) -> NDArray[np.float64]:
        """Half-widths of their intervals, infinite where nothing is known."""

    @property
    def standard_error(self) -> float:
        """Root of the summed squared standard errors."""


class Estimating(Protocol):
    """Learner of which points are kept."""

    @property
    def n_releases(self) -> int:
        """Number of releases learned."""

    @property
    def coefficients(self) -> int:
        """Number of coefficients of the estimate."""

    def estimate(self) -> Estimated:
        """Return what has been learned, which changes nothing."""

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as plain JSON data."""


class Trail(BaseModel):
    """How the estimate of a chain has moved: at most 200 points, at counts spread evenly over their logarithm.

    Parameters
    ----------
    counts
        Releases that the chain had learned at each point.
    times
        When the log appended the last of them, in seconds since 1970, truncated to the task's granularity; never
        below the one before.
    numbers
        For each point p coefficients, the p half widths of their 95% intervals, and the estimated error, infinite
        where not known: base64 of little-endian float32, whose digits do not show the arithmetic library's last bits.
    """

    model_config = ConfigDict(defer_build=True, strict=True, frozen=True, extra="forbid")

    counts: _Counts = Field(default_factory=list)
    times: _Counts = Field(default_factory=list)
    numbers: str = ""

    def table(self, coefficients: int, where: str) -> NDArray[np.float32]:
        """Return the numbers, ``(points, 2 coefficients + 1)``; ``where`` names the chain for the error.

        Raises
        ------
        MurkError
            When they are not those of so many coefficients and as many points as there are counts.
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
    """Adds points to a chain's trail as its count passes the grid.

    Parameters
    ----------
    start
        Where it stands; one that was begun late, by a version that kept none before, goes on from there.
    coefficients
        How many the estimate has.
    first
        Count of the first point.
    where
        The chain, for errors.

    Examples
    --------
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
        """Leave all points out."""
        self._counts, self._times, self._rows = [], [], []
        self._trail = Trail()

    def next(self, count: int) -> int | None:
        """Return the next count after this one at which there is a point; None where none are kept."""
        if not self._most:
            return None
        place = max(_place(count + 1), _place(self._first))
        while True:
            if place % _stride(place, self._first, self._most) == 0:
                return _count(place)
            place += 1

    def mark(self, learner: Estimating, time: int) -> None:
        """Add a point where the learner's count is one of the grid; ``time`` is when its newest release was."""
        count = learner.n_releases
        if self.next(count - 1) == count:
            self.record(learner, time)

    def record(self, learner: Estimating, time: int) -> None:
        """Add a point at the learner's count, whichever it is, where any are kept and it is beyond the last."""
        count = learner.n_releases
        if not self._most or count <= max(self._counts, default=0):
            return
        if len(json.dumps(learner.state_dict())) + trail_bytes(learner.coefficients) + _BESIDE > MAX_STATE:
            # A learner that took nearly all the room before there were trails has to get by without. That is asked of
            # what it has learned alone, so that anyone who begins between two commits comes to the same.
            self.forget()
            return
        try:
            estimate = learner.estimate()
        except (ArithmeticError, ValueError, MurkError):
            # What cannot be known at this count, and never could be, is a gap in a curve; learning goes on.
            return
        self.add(count, time, estimate)

    def add(self, count: int, time: int, estimate: Estimated) -> None:
        """Add a point, which is the newest."""
        row = np.concatenate([estimate.values, estimate.half_widths(LEVEL), [estimate.standard_error]])
        # What is beyond single precision is not known to anybody's use.
        with np.errstate(over="ignore"):
            self._rows.append(row.astype("<f4"))
        self._counts.append(count)
        # A broker's clock may be set back.
        self._times.append(max([time, *self._times[-1:]]))
        stride = _stride(_place(count), self._first, self._most)
        # The newest of each stretch, which is the one on the grid where that was added.
        kept = {-(-_place(one) // stride): i for i, one in enumerate(self._counts)}.values()
        self._counts, self._times = [self._counts[i] for i in kept], [self._times[i] for i in kept]
        self._rows = [self._rows[i] for i in kept]
        numbers = base64.b64encode(np.concatenate(self._rows).astype("<f4").tobytes()).decode("ascii")
        self._trail = Trail(counts=self._counts, times=self._times, numbers=numbers)


def most_points(coefficients: int) -> int:
    """Return how many points are kept: 200, fewer where each is long, and 0 rather than fewer than 16.

    Examples
    --------
    >>> most_points(10), most_points(500), most_points(5_000)
    (200, 49, 0)
    """
    most = min(MOST_POINTS, TRAIL_BYTES * 3 // 4 // (4 * (2 * coefficients + 1)))
    return most if most >= FEWEST_POINTS else 0


def trail_bytes(coefficients: int) -> int:
    """Return how much of a chain's state its trail takes up at the most."""
    # A count, a time and their commas; base64 of float32.
    return most_points(coefficients) * (19 + 11 + 4 * -(-4 * (2 * coefficients + 1) // 3)) + 64


def first_point(kind: str) -> int:
    """Return the count of the first point, for a kind of release."""
    return _FIRST_OF.get(kind, _FIRST)


def _place(count: int) -> int:
    """Number of the smallest count of the grid that is not below this one."""
    exponent = max(0, count.bit_length() - _OCTAVE.bit_length())
    return _OCTAVE * exponent - (-count >> exponent)


def _count(place: int) -> int:
    """The count of that number."""
    exponent = max(0, place // _OCTAVE - 1)
    return (place - _OCTAVE * exponent) << exponent


def _stride(place: int, first: int, most: int) -> int:
    """Of which multiple a place of the grid must be to be kept, once the chain has come to it or just before."""
    stride = 1
    while -(-place // stride) - (_place(first) - 1) // stride > most:
        stride *= 2
    return stride


def _damaged(where: str) -> MurkError:
    return MurkError(f"the state of {where} is damaged at: trail. Restore the log from a copy")
