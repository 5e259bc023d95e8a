"""The state message, which a worker commits with its offset, the history in it, and the message of an estimate.

A state is JSON with an explicit schema, so that a monitor or another version can read it without running code. Learners
write arrays as base64 of little-endian float64 (`pack`).

The history of a partition is the history of its estimate. Its points lie on a grid of counts, four per octave: 1, 2,
..., 8, 10, 12, 14, 16, 20, ... If there are too many points, every second one is dropped. Replays give the same points.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from murk.errors import MurkError
from murk.stream.wire.codec import MAX_STATE, MOST_POINTS, excerpt, history_bytes, most_points
from murk.stream.wire.releases import Count, Schema, TaskHash

_ERROR_CODE = "MURK-STATE-001"

LEVEL = 0.95  # level of the intervals in a history
_OVERHEAD = 4096  # upper bound on a state's bytes besides its learner and its history
_FIRST, _FIRST_BY_KIND = 16, {"sketch": 1, "gram": 1, "newton": 1, "score": 256}
"""Releases at a history's first point. An organisation's release covers many records; a few people's are only noise."""

_OCTAVE = 4
_Count = Annotated[int, Field(ge=0)]
_Counts = Annotated[list[_Count], Field(max_length=MOST_POINTS)]
_STRICT = ConfigDict(defer_build=True, strict=True, frozen=True, extra="forbid")


class _Estimated(Protocol):
    @property
    def values(self) -> NDArray[np.float64]: ...
    @property
    def standard_error(self) -> float: ...  # root of the summed squared standard errors
    def half_widths(self, level: float = 0.95) -> NDArray[np.float64]: ...  # infinite where unknown


class Estimating(Protocol):
    """A learner whose estimates a history records."""

    @property
    def n_releases(self) -> int:
        """Number of releases learned."""

    @property
    def coefficients(self) -> int:
        """Number of coefficients of the estimate."""

    def estimate(self) -> _Estimated:
        """Return the estimate, without changing the learner."""

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state as plain JSON data."""


class History(BaseModel):
    """History of a partition's estimate: at most 200 points, at counts that are evenly spread on a logarithmic scale.

    - ``counts``: Releases that the partition had learned at each point.
    - ``times``: When the log appended the newest release of each point, in seconds since 1970, truncated to the task's
      granularity; never decreasing.
    - ``numbers``: For each point p coefficients, the p half-widths of their 95% intervals, and the standard error,
      infinite where unknown: base64 of little-endian float32.
    """

    model_config = _STRICT

    counts: _Counts = Field(default_factory=list)
    times: _Counts = Field(default_factory=list)
    numbers: str = ""

    def table(self, coefficients: int, where: str) -> NDArray[np.float32]:
        """Decode ``numbers`` as an array (points, 2 coefficients + 1); raise `MurkError` if the history is damaged."""
        try:
            numbers = np.frombuffer(base64.b64decode(self.numbers, validate=True), dtype="<f4")
            table = numbers.reshape(len(self.counts), 2 * coefficients + 1)
        except ValueError as error:
            raise _damaged(where) from error
        if len(self.times) != len(self.counts) or sorted(set(self.counts)) != self.counts:
            raise _damaged(where)
        return table.astype(np.float32)


class HistoryRecorder:
    """Adds points to a partition's history whenever its number of releases reaches the grid.

    >>> recorder = HistoryRecorder(History(), coefficients=2, first=16, where="a partition")
    >>> [recorder.next(count) for count in (0, 16, 31, 32, 1_000_000)]
    [16, 20, 32, 40, 1048576]
    """

    def __init__(self, start: History, coefficients: int, first: int, where: str) -> None:
        self._first = first
        self._most = most_points(coefficients)
        self._points = [*zip(start.counts, start.times, start.table(coefficients, where), strict=True)]
        self.history = start

    def forget(self) -> None:
        """Drop all points."""
        self._points, self.history = [], History()

    def next(self, count: int) -> int | None:
        """Return the next grid count above ``count``; None where the task has no history."""
        if not self._most:
            return None
        index = max(_grid_index(count + 1), _grid_index(self._first))
        while index % _stride(index, self._first, self._most):
            index += 1
        exponent = max(0, index // _OCTAVE - 1)
        return (index - _OCTAVE * exponent) << exponent

    def add_if_due(self, learner: Estimating, time: int) -> None:
        """Add a point if the learner's number of releases is on the grid; ``time`` is the newest one's append time."""
        count = learner.n_releases
        if self.next(count - 1) == count:
            self.record(learner, time)

    def record(self, learner: Estimating, time: int) -> None:
        """Add a point at the learner's number of releases, if that has grown and the task has a history."""
        count = learner.n_releases
        if not self._most or count <= max(self.history.counts, default=0):
            return
        if len(json.dumps(learner.state_dict())) + history_bytes(learner.coefficients) + _OVERHEAD > MAX_STATE:
            # This depends on the learner's state alone, so that a replay decides the same.
            self.forget()
            return
        try:
            estimate = learner.estimate()
        except (ArithmeticError, ValueError, MurkError):
            # No estimate at this count: the curve has a gap, and learning goes on.
            return
        self.add(count, time, estimate)

    def add(self, count: int, time: int, estimate: _Estimated) -> None:
        """Append a point."""
        row = np.concatenate([estimate.values, estimate.half_widths(LEVEL), [estimate.standard_error]])
        # A broker's clock may be set back.
        time = max([time, *self.history.times[-1:]])
        with np.errstate(over="ignore"):
            self._points.append((count, time, row.astype("<f4")))
        stride = _stride(_grid_index(count), self._first, self._most)
        # Keep the newest point of each interval of the grid, which lies on the grid if such a point was added.
        self._points = [*{-(-_grid_index(point[0]) // stride): point for point in self._points}.values()]
        counts, times, rows = zip(*self._points, strict=True)
        numbers = base64.b64encode(np.concatenate(rows).astype("<f4").tobytes()).decode("ascii")
        self.history = History(counts=list(counts), times=list(times), numbers=numbers)


def first_point(kind: str) -> int:
    """Return the number of releases at a history's first point, by kind of release."""
    return _FIRST_BY_KIND.get(kind, _FIRST)


def _grid_index(count: int) -> int:
    """Return the index of the smallest grid count that is at least ``count``."""
    exponent = max(0, count.bit_length() - _OCTAVE.bit_length())
    return _OCTAVE * exponent - (-count >> exponent)


def _stride(index: int, first: int, most: int) -> int:
    """Return the step between the grid indices that are kept once the partition has reached ``index``."""
    stride = 1
    while -(-index // stride) - (_grid_index(first) - 1) // stride > most:
        stride *= 2
    return stride


def _damaged(where: str) -> MurkError:
    return MurkError(f"the state of {where} is damaged (invalid: history): restore the log from a copy")


SCHEMA = 1
_KEYS = 5


class Counters(BaseModel):
    """Numbers of messages that a partition has read: read = learned + duplicates + dead letters.

    - ``learned``, ``duplicates``: Number of releases learned, and of duplicates dropped.
    - ``dead``: Dead letters by reason.
    - ``levels``: Learned releases by level.
    - ``staleness``, ``staleness_sum``: Learned gradients by age, and the sum of ages: entry b counts those whose age
      (releases that the partition had learned since their model) has b bits: 0, 1, 2-3, 4-7, ...
    """

    model_config = _STRICT

    learned: _Count = 0
    duplicates: _Count = 0
    dead: dict[str, _Count] = Field(default_factory=dict)
    levels: dict[str, _Count] = Field(default_factory=dict)
    staleness: Annotated[list[_Count], Field(max_length=64)] = Field(default_factory=list)
    staleness_sum: _Count = 0

    @property
    def read(self) -> int:
        """Number of all messages that the partition has ever read."""
        return self.learned + self.duplicates + sum(self.dead.values())


class StateMessage(BaseModel):
    """A partition's committed state.

    - ``task``, ``identity``: Hash of the task, and identity of the log.
    - ``partition``: The partition.
    - ``offset``: First offset of the partition that is not in the state.
    - ``last_id``: Id of the newest valid release within the window for duplicates before `offset`, or None.
    - ``counters``: Numbers of messages read, by outcome.
    - ``history``: History of the estimate.
    - ``learner``: The learner's own state, plain JSON data.
    - ``adopted``: Offset at which a further model continued from the task's own learner, if it did.
    """

    model_config = _STRICT

    schema_: Annotated[Literal[1], Field(alias="schema")] = 1
    kind: Literal["state"] = "state"
    task: str
    identity: str
    partition: _Count
    offset: _Count
    last_id: str | None
    counters: Counters
    history: History = Field(default_factory=History)
    learner: dict[str, Any]
    adopted: _Count = 0  # not written if it is 0

    def encode(self) -> bytes:
        """Return JSON bytes; floats round-trip exactly. `MurkError` for values that JSON lacks, such as NaN."""
        try:
            # Pydantic's own JSON would silently write NaN and infinity as null.
            content = self.model_dump(by_alias=True, exclude=None if self.adopted else {"adopted"})
            text = json.dumps(content, allow_nan=False, sort_keys=True, separators=(",", ":"))
        except (TypeError, ValueError) as error:
            raise MurkError(f"the learner's state of partition {self.partition} is not plain JSON: {error}") from error
        return text.encode()


def decode_state(message: bytes, where: str) -> StateMessage:
    """Decode a state message of ``where``; raise `MurkError` when it is damaged, or was written by another version."""
    try:
        data = json.loads(message)
    except (ValueError, RecursionError) as error:
        raise MurkError(f"the state of {where} is not JSON: restore the log from a copy") from error
    schema = data.get("schema") if isinstance(data, dict) else None
    if isinstance(schema, int) and schema != SCHEMA:
        raise MurkError(
            f"the state of {where} was written by another version of Murk (schema {schema}, while this one "
            f"reads schema {SCHEMA}): use the version that wrote it, or start a new log",
            code="MURK-STATE-002",
        )
    try:
        return StateMessage.model_validate(data)
    except ValidationError as error:
        # The writer chose the keys: they are untrusted text.
        keys = sorted({excerpt(".".join(map(str, item["loc"])) or "(all)") for item in error.errors()})[:_KEYS]
        raise MurkError(
            f"the state of {where} is damaged (invalid: {', '.join(keys)}): restore the log from a copy"
        ) from error


def pack(array: NDArray[np.float64]) -> str:
    """Return base64 of an array's little-endian float64 bytes: plain data, exact."""
    return base64.b64encode(np.ascontiguousarray(array, dtype="<f8").tobytes()).decode("ascii")


def unpack(text: str, size: int) -> NDArray[np.float64]:
    """Return the array that :func:`pack` wrote, of ``size`` finite numbers; raise MurkError for anything else."""
    try:
        array = np.frombuffer(base64.b64decode(text, validate=True), dtype="<f8")
    except (ValueError, TypeError) as error:
        raise MurkError("the state holds an array that is not base64 of float64 numbers") from error
    if array.size != size or not np.all(np.isfinite(array)):
        raise MurkError(f"the state holds an array of {array.size} numbers where {size} finite ones belong")
    return array.astype(np.float64)


def count_of(value: object, name: str) -> int:
    """Return a count of a state, or raise MurkError if it is not a whole number from 0 within the kernels' 64 bits."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**62:
        raise MurkError(f"the state's {name} is not a whole number from 0 to 2^62")
    return value


@contextmanager
def reading() -> Iterator[None]:
    """Convert errors in reading a state (a key is missing, or a value has another type) into a MurkError."""
    try:
        yield
    except MurkError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise MurkError(f"the state is malformed: {type(error).__name__} at {error}") from error


def whole_sums(values: Sequence[Any], size: int | None) -> list[int]:
    """Return exact sums of a state; raise MurkError unless they are ``size`` whole numbers."""
    if len(values) != size:
        raise MurkError("the state holds sums of another task")
    if not all(type(value) is int and abs(value) < 2**127 for value in values):
        raise MurkError("the state holds sums that are not whole numbers")
    return list(values)


def check_header(state: Mapping[str, Any], digest: str, key: str, size: int) -> None:
    """Raise MurkError unless a state has schema 1, this size under this key, and settings of this digest."""
    if state["schema"] != 1 or state[key] != size:
        raise MurkError(
            f"a state of schema {state['schema']!r} and {key} {state[key]!r} does not fit schema 1 and {key} {size}"
        )
    if state["settings"] != digest:
        raise MurkError("the state is of a learner with other settings: load it into one with the same settings")


_PLAIN = ConfigDict(defer_build=True, strict=True, frozen=True, extra="forbid", populate_by_name=True)


class Effect(BaseModel):
    """A coefficient per unit of its feature.

    - ``unit``: Unit of the feature, in words.
    - ``scale``: Scale of the effect; the exponential of log odds is an odds ratio.
    - ``value``: Effect per unit.
    - ``low``, ``high``: Confidence interval; null where unknown.
    """

    model_config = _PLAIN

    unit: str
    scale: Literal["log odds", "percentage points", "percent", "target units", "model units"]
    value: FiniteFloat
    low: FiniteFloat | None
    high: FiniteFloat | None


class CoefficientEstimate(BaseModel):
    """One coefficient.

    - ``value``: The coefficient, in coded units.
    - ``low``, ``high``: Confidence interval, in coded units; null where unknown.
    - ``learned``: Whether the coefficient was learned; otherwise noise hides it.
    - ``effect``: The coefficient per unit of its feature; null where it has no unit.
    """

    model_config = _PLAIN

    value: FiniteFloat
    low: FiniteFloat | None
    high: FiniteFloat | None
    learned: bool
    effect: Effect | None


class EstimateMessage(BaseModel):
    """The newest estimate of a task, from all its partitions.

    - ``task``, ``name``: Hash and name of the task.
    - ``simulated``: Whether the noise was simulated; then nobody's privacy was protected.
    - ``releases``: Number of releases learned; it only grows.
    - ``level``, ``method``, ``note``: Nominal level of the intervals, their origin, and a note on their coverage,
      which ends with the looks at which the intervals hold (docs/intervals.md).
    - ``standard_error``: Root of the coefficients' summed squared standard errors; null where one is unknown.
    - ``coefficients``: Coefficients by name.
    """

    model_config = _PLAIN

    schema_: Schema = 1
    kind: Literal["estimate"] = "estimate"
    task: TaskHash
    name: str
    simulated: bool
    releases: Count
    level: Annotated[FiniteFloat, Field(gt=0, lt=1)]
    method: str
    note: str
    standard_error: FiniteFloat | None
    coefficients: dict[str, CoefficientEstimate]

    def encode(self) -> bytes:
        """Return the message as JSON bytes."""
        return json.dumps(self.model_dump(by_alias=True), allow_nan=False, separators=(",", ":")).encode()
