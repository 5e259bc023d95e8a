"""The interface of learners, and base classes of engines whose kernel learns one record in place.

A record's values go into a kernel's memory. For speed, only one method lies between its dictionary and the kernel.
"""

from __future__ import annotations

import copy
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from murk._internal.arrays import Floats, Integers
from murk._internal.lazy import bounding
from murk._internal.locks import ForkSafeLock, held_by_itself, locked
from murk._internal.wiping import empty, wiped
from murk.errors import UserError
from murk.privacy.noise import NoiseSource, SecureNoise
from murk.protocols.one_record import NO_WORDS, SPARE, KernelMemory, finish_draw, take_random
from murk.protocols.options import chosen_noise
from murk.stream.worker.interface import StreamLearner
from murk.task.values import number

if TYPE_CHECKING:
    from murk.stream.wire.columns import Columns

_ERROR_CODE = "MURK-LEARN-001"


class Engine(StreamLearner, Protocol):
    """A learner of one partition's releases, with figures of its progress."""

    def figures(self) -> Mapping[str, float]:
        """Return figures of the learner's progress, by names of `murk.monitoring.figures.PartitionFigures`."""


class RecordLearner(Engine, Protocol):
    """An engine that also randomizes records itself, for estimators in one process."""

    def learn_record(self, values: Sequence[Any], y: float, mechanism: Any, /) -> None:
        """Randomize one record once, with a mechanism or at a level, and learn from the release.

        ``values`` are features without the constant, ``(p - 1,)``; ``y`` is the coded target, NaN if missing.
        """

    def learn_records(self, X: Floats, y: Floats, mechanisms: Sequence[Any], /) -> None:
        """Learn from the rows of ``X``, features without the constant, with one mechanism for all or one per row."""


class IterateLearner(RecordLearner, Protocol):
    """An engine with an iterate and its average."""

    @property
    def iterate(self) -> Floats:
        """A copy of the newest iterate, in working coordinates."""

    @property
    def average(self) -> Floats:
        """A copy of the average, in working coordinates."""

    def use(self, mechanism: Any) -> None:
        """Select the mechanism for the next records that do not bring their own."""


class RecordKernels(Protocol):
    """A protocol's module of kernels."""

    @property
    def learn_record(self) -> Callable[[int, float, int], int]:
        """Kernel that learns from the record in a memory, given its address, the target and the trials for its noise.

        It returns `LEARNED`, `TOO_FEW`, `NO_WORDS` or `NOT_NOW`.
        """


class RecordEngine(ABC):
    """Base class of engines whose kernel learns one record in place if possible."""

    _kernels: RecordKernels  # looked up at each call
    memory: Any  # the kernel's memory, or a `Held` where no kernel adds to what is learned
    current: Any = None  # mechanism of the next records
    _turns: ForkSafeLock
    _record_kernel: bool  # whether the kernel draws the noise of the mechanism in use
    _trials: int  # trials for which it draws words; 0 for simulated noise

    @abstractmethod
    def use(self, mechanism: Any) -> None:
        """Select the mechanism for the next records that do not bring their own."""

    def _hold(self, held: Any, mechanism: Any) -> None:
        """Switch to another memory, for records randomized by ``mechanism``."""
        # If an interrupt arrives in between, the next record sets the mechanism again.
        self.current, self._record_kernel = None, False
        self.memory = held
        self.current, self._record_kernel = mechanism, isinstance(held, KernelMemory)

    def learn_record(self, values: Sequence[Any], y: float, mechanism: Any = None) -> None:
        """Randomize one record once, by default with the current mechanism, and learn from the release.

        ``values`` are coded features without the constant, ``(p - 1,)``; anything but a number counts as 0. ``y`` is
        the coded target, NaN if missing.
        """
        turns = self._turns
        # Like `locked`, inlined to save a call.
        with turns:
            if turns.busy:
                raise held_by_itself()
            try:
                turns.busy = True
                if mechanism is not None and mechanism is not self.current:
                    self.use(mechanism)
                if self._record_kernel:
                    put, address, _ = self.memory.way
                    try:
                        put(*values)
                    except struct.error:
                        put(*map(number, values))
                    missing = self._kernels.learn_record(address, y, self._trials)
                    if missing:
                        self._learn_slowly(y, missing)
                else:
                    self._learn_row(values, y)
            except BaseException:
                self.memory.wipe()
                raise
            finally:
                turns.busy = False

    def _learn_slowly(self, y: float, missing: int) -> None:
        """Learn from the record with secure noise if the kernel lacked random words."""
        memory, trials = self.memory, self._trials
        words = memory.words[: 2 * trials + SPARE]
        if missing == NO_WORDS:
            take_random(words)
        finish_draw(words, trials, memory.noise)
        memory.words[:] = 0
        self._kernels.learn_record(memory.address, y, 0)

    @wiped
    def _learn_row(self, values: Sequence[Any], y: float) -> None:
        """Learn from one record like `learn_record`, if the kernel cannot learn it."""
        row, target = empty((1, len(values) + 1)), empty(1)
        row[0, -1], target[0] = 1.0, y
        for column, value in enumerate(values):
            row[0, column] = number(value)
        self._learn_block(row, target)

    @abstractmethod
    def _learn_block(self, X: Floats, y: Floats) -> None:
        """Learn from rows by the current mechanism; the caller holds ``_turns``."""


class IterateEngine(RecordEngine):
    """Base class of engines whose memory holds an iterate and its average."""

    _layout: Any  # module with the positions COUNT, SIMULATED, SEED, ITERATE and AVERAGE
    _vector: str  # name of a released vector in errors

    def __init__(
        self, settings: Any, mechanisms: Mapping[str, Any], memory: Any, seed: int | None, noise: NoiseSource | None
    ) -> None:
        for level, mechanism in bounding(mechanisms).items():
            if mechanism.dimension != settings.dimension:
                raise UserError(
                    f"level {level!r} randomizes {mechanism.dimension} numbers, {self._vector} has {settings.dimension}"
                )
        self.settings, self.mechanisms, self.memory = settings, mechanisms, memory
        self.dimension: int = settings.dimension
        """Number of integers in a release."""
        self._turns = ForkSafeLock()
        self._noise = chosen_noise(seed, noise)
        self._seeded = seed is not None
        if seed is not None:
            memory.whole[self._layout.SIMULATED] = 1
            memory.whole[self._layout.SEED] = np.array(seed, dtype=np.uint64).view(np.int64)
        # Whether the kernel draws a record's noise.
        self._direct = type(self._noise) is SecureNoise
        self._record_kernel = self._seeded or self._direct
        self._levels = {level: index for index, level in enumerate(self.mechanisms)}
        self._prepared: set[str] = set()

    @locked
    def __getstate__(self) -> dict[str, Any]:
        # Copied in turn, so that no other thread writes to it meanwhile.
        return {**self.__dict__, "memory": copy.copy(self.memory)}

    @property
    def n_releases(self) -> int:
        """Number of releases learned."""
        return int(self.memory.whole[self._layout.COUNT])

    @property
    def iterate(self) -> Floats:
        """A copy of the newest iterate, in working coordinates."""
        return self._row(self._layout.ITERATE)

    @property
    def average(self) -> Floats:
        """A copy of the average, in working coordinates."""
        return self._row(self._layout.AVERAGE)

    @locked
    def _row(self, index: int) -> Floats:
        return np.array(self.memory.rows[index])

    def _level_indices(self, columns: Columns) -> Integers:
        """Return the levels' rows in the tables that kernels read, which are filled at a level's first release."""
        levels, index = columns.levels()
        self._prepare_levels(levels)
        rows: Integers = np.array([self._levels[level] for level in levels], dtype=np.int64)[index]
        return rows

    def _prepare_levels(self, levels: Sequence[str]) -> None:
        for level in {*levels} - self._prepared:
            self._prepare(self._levels[level], self.mechanisms[level])
            self._prepared.add(level)

    @abstractmethod
    def _prepare(self, row: int, mechanism: Any) -> None:
        """Fill a level's row of the tables."""

    def _learn_block(self, X: Floats, y: Floats) -> None:
        self._learn_records(X, y, None)

    @locked
    def learn_records(self, X: Floats, y: Floats, mechanisms: Sequence[Any] | None = None) -> None:
        """Learn from the rows of coded ``X``, (m, p) or without the constant, with one mechanism or one per row."""
        try:
            self._learn_records(X, y, mechanisms)
        except BaseException:
            self.memory.wipe()
            raise

    @abstractmethod
    def _learn_records(self, X: Floats, y: Floats, mechanisms: Sequence[Any] | None) -> None:
        """Learn from rows; the caller holds ``_turns``."""
