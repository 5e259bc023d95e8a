"""What an organisation and a learner must agree on to speak of the same release, derived from a task.

River-free: an organisation's producer imports this and nothing heavier.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from murk._scratch import keep
from murk.errors import UserError
from murk.learners.estimates.estimate import Estimate
from murk.learners.sketches.engine import GramEngine, NewtonEngine, SketchEngine
from murk.learners.sketches.estimates import estimate, estimate_grams
from murk.learners.sketches.newton import estimate_newton, first_model
from murk.learners.sketches.protocol import GRAM, NEWTON, SketchBlock
from murk.learners.sketches.settings import GramSettings, NewtonSettings, SketchSettings, check_message, default_rows
from murk.privacy.sketches import GaussMixMechanism, GramMechanism, NewtonMechanism
from murk.privacy.sketches.gram import LARGEST_COLUMNS
from murk.privacy.sketches.newton import default_first
from murk.stream.messages.releases import GramRelease, NewtonRelease, Release, SketchRelease
from murk.stream.task.task import Task

if TYPE_CHECKING:
    from murk.privacy.noise import NoiseSource
    from murk.privacy.sketches import Gram, GramAccumulator, Newton, NewtonAccumulator, Sketch, SketchAccumulator


class WindowProblem(ABC):
    """What organisations release of a window of records, with how much noise, and what is learned from it."""

    settings: Any
    mechanisms: Any

    kind: ClassVar[str]
    interactive: ClassVar[bool] = False

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Integers in a release."""

    @property
    @abstractmethod
    def fewest(self) -> int:
        """Records below which a window at the end of a source is left out."""

    @property
    @abstractmethod
    def rows(self) -> int | None:
        """Rows of a mixture; None where nothing is mixed."""

    @abstractmethod
    def check_state(self) -> None:
        """Refuse a task whose releases no log would take, before anything is set up.

        Raises
        ------
        UserError
            Saying what would fit.
        """

    @abstractmethod
    def accumulator(self, level: str, noise: NoiseSource | None, window: int) -> Any:
        """What a window's rows are put into, at a level."""

    @abstractmethod
    def release(self, made: Any, **fields: Any) -> Release:
        """The message of what an accumulator released, with the fields that every release has."""

    @abstractmethod
    def engine(self) -> Any:
        """A learner of this task's releases that has learned none."""

    @abstractmethod
    def estimate(self, engines: Sequence[Any]) -> Estimate:
        """The estimate of several chains, merged by sum."""

    def records(self, X: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
        """The rows ``(m, p + 1)`` of coded records.

        A binary target, coded 0 and 1, becomes -1 and +1. A record whose target is missing becomes the zero row:
        it is counted, and says nothing.

        Parameters
        ----------
        X
            ``(m, p)`` coded features, the constant last.
        y
            ``(m,)`` coded targets, NaN where missing.
        """
        targets = np.asarray(y, dtype=np.float64)
        if self.settings.kind == "binary":
            targets = keep(2.0 * targets - 1.0)
        rows = keep(np.column_stack([np.asarray(X, dtype=np.float64), targets]))
        rows[~np.isfinite(targets)] = 0.0
        return rows


@dataclass(frozen=True)
class SketchProblem(WindowProblem):
    """The mixtures of a task.

    Attributes
    ----------
    settings
        Public settings of the learner.
    mechanisms
        Level name to mechanism.
    """

    settings: SketchSettings
    mechanisms: dict[str, GaussMixMechanism]

    kind: ClassVar[str] = "sketch"

    @property
    def dimension(self) -> int:
        """Integers in a release: ``rows * columns``."""
        return self.settings.dimension

    @property
    def fewest(self) -> int:
        """As many as a sketch has rows: more rows than records are work without gain."""
        return self.settings.rows

    @property
    def rows(self) -> int:
        """Rows of a mixture."""
        return self.settings.rows

    def check_state(self) -> None:
        """Refuse a task whose sketches no log would take, naming the largest number of rows that fits."""
        check_message(self.settings.rows, self.settings.columns)

    def accumulator(self, level: str, noise: NoiseSource | None, window: int) -> SketchAccumulator:
        """What mixes a window's rows."""
        from murk.privacy.sketches import SketchAccumulator

        return SketchAccumulator(self.mechanisms[level], noise, window)

    def release(self, made: Sketch, **fields: Any) -> SketchRelease:
        """The message of a sketch."""
        packed = SketchRelease.packed(made.integers)
        return SketchRelease(payload=packed, rows=made.rows, records=made.records, spread=made.spread, **fields)

    def engine(self) -> SketchEngine:
        """A learner of sketches."""
        return SketchEngine(self.settings, self.mechanisms)

    def estimate(self, engines: Sequence[SketchEngine]) -> Estimate:
        """From the sums of their sketches."""
        return estimate(self.settings, [engine.sums for engine in engines])


@dataclass(frozen=True)
class GramProblem(WindowProblem):
    """The second moments of a task's windows.

    Attributes
    ----------
    settings
        Public settings of the learner.
    mechanisms
        Level name to mechanism.
    """

    settings: GramSettings
    mechanisms: dict[str, GramMechanism]

    kind: ClassVar[str] = GRAM
    rows: ClassVar[None] = None

    @property
    def dimension(self) -> int:
        """Integers in a release: the upper triangle of a matrix."""
        return self.settings.dimension

    @property
    def fewest(self) -> int:
        """As many as a record has numbers: fewer say nothing of that many."""
        return self.settings.columns

    def check_state(self) -> None:
        """Refuse a task whose matrices no log would take, naming the most features that fit."""
        self.settings.check_message()

    def accumulator(self, level: str, noise: NoiseSource | None, window: int) -> GramAccumulator:
        """What adds up a window's rows."""
        from murk.privacy.sketches import GramAccumulator

        return GramAccumulator(self.mechanisms[level], noise, window)

    def release(self, made: Gram, **fields: Any) -> GramRelease:
        """The message of a Gram matrix."""
        return GramRelease(payload=GramRelease.packed(made.integers), records=made.records, **fields)

    def engine(self) -> GramEngine:
        """A learner of Gram matrices."""
        return GramEngine(self.settings, self.mechanisms)

    def estimate(self, engines: Sequence[GramEngine]) -> Estimate:
        """From the sums of their matrices."""
        sums = [engine.sums for engine in engines]
        return estimate_grams(self.settings, engines[0].target_weight, sums, self.mechanisms)


@dataclass(frozen=True)
class NewtonProblem(WindowProblem):
    """The Newton steps of a task's windows.

    Attributes
    ----------
    settings
        Public settings of the learner.
    mechanisms
        Level name to mechanism.
    """

    settings: NewtonSettings
    mechanisms: dict[str, NewtonMechanism]

    kind: ClassVar[str] = NEWTON
    rows: ClassVar[None] = None

    @property
    def dimension(self) -> int:
        """Integers in a release: the upper triangles of two matrices."""
        return self.settings.dimension

    @property
    def first_part(self) -> GramProblem:
        """The release of a window's first part, as if it were alone."""
        return GramProblem(self.settings, {level: made.start for level, made in self.mechanisms.items()})

    @property
    def fewest(self) -> int:
        """As many as a record has numbers: fewer say nothing of that many."""
        return self.settings.columns

    def check_state(self) -> None:
        """Refuse a task whose matrices no log would take, naming the most features that fit."""
        self.settings.check_message()

    def accumulator(self, level: str, noise: NoiseSource | None, window: int) -> NewtonAccumulator:
        """What adds up a window's rows."""
        return newton_accumulator(self.settings, self.mechanisms[level], noise, window)

    def release(self, made: Newton, **fields: Any) -> NewtonRelease:
        """The message of a Newton step."""
        packed = NewtonRelease.packed(made.integers)
        return NewtonRelease(payload=packed, records=made.records, model=made.model.tolist(), **fields)

    def engine(self) -> NewtonEngine:
        """A learner of Newton steps."""
        return NewtonEngine(self.settings, self.mechanisms)

    def estimate(self, engines: Sequence[NewtonEngine]) -> Estimate:
        """From the sums of their matrices."""
        return estimate_newton(self.settings, engines[0].target_weights, [engine.sums for engine in engines])


def newton_accumulator(
    settings: NewtonSettings, mechanism: NewtonMechanism, noise: NoiseSource | None, window: int
) -> NewtonAccumulator:
    """What adds up a window's rows, with the model that its first part's release tells by these settings."""
    from murk.privacy.sketches import NewtonAccumulator

    return NewtonAccumulator(mechanism, partial(first_model, settings, mechanism), noise, window)


def problem_for(task: Task) -> SketchProblem | GramProblem | NewtonProblem:
    """The problem of a resolved task to which organisations release.

    Raises
    ------
    UserError
        If a level's guarantee cannot be given, or the rows are too few.
    """
    block = task.block
    if block is None:
        raise UserError(f"the task {task.name!r} has protocol: {task.protocol}, not sketch")
    if block.method == "newton":
        return _of_newton(task, block)
    return _of_moments(task, block) if block.method == "moments" else _of_mixtures(task, block)


def _of_newton(task: Task, block: SketchBlock) -> NewtonProblem:
    coding, first = task.coding, block.first
    if first is None:
        first = default_first(coding.size)
        if block.window is not None:
            first = max(min(first, block.window // 2), 1)
    settings = NewtonSettings(
        names=tuple(coding.names),
        feature_bound=math.sqrt(coding.largest_square) if block.feature_bound is None else block.feature_bound,
        largest=1.0,
        kind="binary",
        window=block.window,
        first=first,
    )
    _check_columns(settings)
    mechanisms = {
        level: NewtonMechanism.calibrate(
            guarantee,
            columns=settings.columns,
            feature_bound=settings.feature_bound,
            first=first,
            neighbours=block.neighbours,
            rows_per_person=block.most_rows,
        )
        for level, guarantee in task.privacy.levels.items()
    }
    return NewtonProblem(settings, mechanisms)


def _of_moments(task: Task, block: SketchBlock) -> GramProblem:
    coding, binary = task.coding, task.target.kind == "binary"
    settings = GramSettings(
        names=tuple(coding.names),
        feature_bound=math.sqrt(coding.largest_square) if block.feature_bound is None else block.feature_bound,
        target_bound=1.0 if block.target_bound is None else block.target_bound,
        largest=1.0,
        kind="binary" if binary else "real",
        reach=block.range if binary else None,
        window=block.window,
    )
    _check_columns(settings)
    mechanisms = {
        level: GramMechanism.calibrate(
            guarantee,
            columns=settings.columns,
            feature_bound=settings.feature_bound,
            target_bound=settings.target_bound,
            neighbours=block.neighbours,
            rows_per_person=block.most_rows,
        )
        for level, guarantee in task.privacy.levels.items()
    }
    return GramProblem(settings, mechanisms)


def _check_columns(settings: GramSettings) -> None:
    """Refuse matrices that no mechanism releases: what is wrong is the number of features, not a mechanism's."""
    if settings.columns > LARGEST_COLUMNS:
        settings.check_message()


def _of_mixtures(task: Task, block: SketchBlock) -> SketchProblem:
    assert block.method != "moments"
    assert block.method != "newton"
    coding = task.coding
    columns = coding.size + 1
    binary = task.target.kind == "binary"
    rows = block.rows
    if rows is None:
        # More rows than records are work without gain.
        rows = max(min(default_rows(columns), block.window or default_rows(columns)), 2 * columns)
    settings = SketchSettings(
        names=tuple(coding.names),
        rows=rows,
        feature_bound=math.sqrt(coding.largest_square) if block.feature_bound is None else block.feature_bound,
        target_bound=1.0 if block.target_bound is None else block.target_bound,
        # Coded features lie in [-1, 1].
        largest=1.0,
        kind="binary" if binary else "real",
        reach=block.range if binary else None,
        window=block.window,
    )
    mechanisms = {
        level: GaussMixMechanism.calibrate(
            guarantee,
            rows=settings.rows,
            columns=settings.columns,
            feature_bound=settings.feature_bound,
            target_bound=settings.target_bound,
            method=block.method,
            neighbours=block.neighbours,
            analysis=block.analysis,
        )
        for level, guarantee in task.privacy.levels.items()
    }
    return SketchProblem(settings, mechanisms)
