"""Base of both GaussMix estimators: the open window of raw records, and its release."""

from __future__ import annotations

import copy
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from murk._scratch import keep, numbers_were_used, wiped
from murk._turns import Turns, in_turn
from murk.errors import MurkError, UserError
from murk.learners.core.estimator import Record, StreamEstimator
from murk.learners.core.options import chosen_noise
from murk.learners.core.values import number
from murk.learners.estimates.estimate import Estimate
from murk.learners.sketches.engine import GramEngine, NewtonEngine, SketchEngine
from murk.learners.sketches.problem import (
    GramProblem,
    NewtonProblem,
    Settings,
    SketchProblem,
    WindowProblem,
    calibrate,
    first_part,
)
from murk.learners.sketches.settings import GramSettings, Kind, NewtonSettings, SketchSettings, Weighting, default_rows
from murk.privacy import ApproxDP, GaussianDP, Guarantee, ZeroConcentratedDP
from murk.privacy.sketches import (
    Analysis,
    GaussMixMechanism,
    GramAccumulator,
    GramMechanism,
    Neighbours,
    NewtonAccumulator,
    NewtonMechanism,
    SketchAccumulator,
)
from murk.privacy.sketches import Method as Mixing

Method = Literal["moments", "newton"] | Mixing
Engine = SketchEngine | GramEngine | NewtonEngine
Mechanism = GaussMixMechanism | GramMechanism | NewtonMechanism
Accumulator = SketchAccumulator | GramAccumulator | NewtonAccumulator
Budget = ApproxDP | GaussianDP | ZeroConcentratedDP

_BLOCK = 4096


class GaussMix(StreamEstimator):
    """Base class of both estimators: the open window of raw records, its release, and copies without raw records."""

    budget: Budget
    levels: Mapping[str, Budget] | None
    feature_bound: float | None
    rows: int | None
    window: int | None
    windows: int
    method: Method | None
    analysis: Analysis
    neighbours: Neighbours
    debiased: bool
    weighting: Weighting
    intercept: bool

    def _prepare(self) -> None:
        self._turns = Turns()
        self._window: Accumulator | None = None
        self._released = 0
        self._fit: tuple[Any, NDArray[np.float64]] | None = None
        if isinstance(self.windows, bool) or not isinstance(self.windows, int) or self.windows < 1:
            raise UserError(f"windows={self.windows!r}: give the largest number of windows to release, 1 or more")
        if self.window is not None and (not isinstance(self.window, int) or self.window < 1):
            raise UserError(f"window={self.window!r}: give the number of records in a window, 1 or more, or None")
        if not isinstance(self.intercept, bool):
            raise UserError(f"intercept={self.intercept!r} is neither True nor False")
        self._release_method()
        super()._prepare()

    def _release_method(self) -> Method:
        """Return the method: as given, or second moments unless an argument of mixtures is given."""
        mixing = {"rows": self.rows is not None, "analysis": self.analysis != "tight", "debiased": not self.debiased}
        given = [name for name, is_given in mixing.items() if is_given]
        if self.method is None:
            return "linear-mixing" if given else "moments"
        if self.method not in ("moments", "newton", "linear-mixing", "mixing"):
            raise UserError(f'method={self.method!r} is not one of "moments", "newton", "linear-mixing", "mixing"')
        if self.method in ("moments", "newton") and given:
            raise UserError(
                f'{given[0]}= is for mixtures, but method="{self.method}" mixes no records: leave {given[0]}= out'
            )
        if self.method == "newton" and self._kind() == "real":
            raise UserError('method="newton" is for the logistic loss, but the target is real: give method="moments"')
        if self.method == "newton" and self._reach() is not None:
            raise UserError('range= is for the quadratic surrogate, which method="newton" does not use: leave it out')
        return self.method

    @abstractmethod
    def _kind(self) -> Kind:
        """Return the kind of the target."""

    def _reach(self) -> float | None:
        return None

    def _target_bound(self) -> float:
        return 1.0

    def _expected(self) -> tuple[float | None, float | None]:
        return self.feature_bound or 1.0, getattr(self, "_bound", None)

    def _begin(self, names: tuple[Any, ...]) -> Engine:
        coded = self._coded_names(names)[: None if self.intercept else -1]
        columns = len(coded) + 1
        shared: dict[str, Any] = {
            "names": coded,
            # By default features are coded to [-1, 1].
            "feature_bound": math.sqrt(len(coded)) if self.feature_bound is None else float(self.feature_bound),
            "target_bound": self._target_bound(),
            "kind": self._kind(),
            "reach": self._reach(),
            "surrogate": getattr(self, "surrogate", "minimax"),
            "weighting": self.weighting,
            "constant": self.intercept,
        }
        problems: dict[str, Any] = {"newton": NewtonProblem, "moments": GramProblem}
        if self._release_method() == "newton":
            first = first_part(getattr(self, "first", None), len(coded), self.window)
            self._settings: Settings = NewtonSettings(first=first, **shared)
        elif self._release_method() == "moments":
            self._settings = GramSettings(**shared)
        else:
            rows = default_rows(columns) if self.rows is None else self.rows
            self._settings = SketchSettings(rows=rows, debiased=self.debiased, **shared)
        self._problem: WindowProblem = problems.get(self._release_method(), SketchProblem)(
            self._settings, self._level_mechanisms()
        )
        self._names = names
        self._watch()
        engine: Engine = self._problem.engine()
        self._engine = engine
        return engine

    def _mechanism_for(self, guarantee: Guarantee) -> Mechanism:
        mixing = {"method": self._release_method(), "analysis": self.analysis}
        return calibrate(self._settings, guarantee, neighbours=self.neighbours, mixing=mixing)

    def _open(self) -> Accumulator:
        """Return the open window, or a new one if the last window was released or lost in an interrupt."""
        if self._window is None or self._window.released:
            if self._released >= self.windows:
                raise UserError(
                    f"windows={self.windows}: this number of windows was released, each with the whole budget. If no "
                    "person is in two windows, or people may spend the budget more often, give a larger windows="
                )
            source = chosen_noise(self.seed, self.noise)
            self._window = self._problem.accumulator("default", source, self._released)
        return self._window

    def learn_one(self, x: Record, y: Any) -> None:
        """Add a record to the open window; release and learn when it is full.

        Raises UserError if ``windows`` windows were released already.
        """
        self._put(x, self._coded_one(y))

    def learn_many(self, X: Any, y: Any) -> None:
        """Learn the rows of a data frame or an ``(n, d)`` array, like :meth:`learn_one` for each."""
        self._put_rows(X, self._coded_many(y))

    @wiped
    def _put(self, x: Record, y: float) -> None:
        if self._engine is None:
            self._get_engine(tuple(sorted(x)))
        values = [x.get(name) for name in self._names]
        numbers_were_used()
        self._add(keep(np.array([[*map(number, values), *([1.0] if self.intercept else []), y]])))
        if self._first_records is not None:
            self._surveyed([(values, y)], x)

    @wiped
    def _put_rows(self, X: Any, y: NDArray[np.float64]) -> None:
        if self._engine is None:
            self._get_engine(self._columns(X))
        rows = self._with_constant(self._rows_of(X, y))
        for start in range(0, len(rows), _BLOCK):
            block = slice(start, start + _BLOCK)
            self._add(keep(np.column_stack([rows[block], y[block]])))
        if self._first_records is not None:
            self._survey_rows(X, y)

    def _with_constant(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return features and the constant, if any; non-finite features count as 0, as in ``learn_one``."""
        rows = keep(np.where(np.isfinite(rows), rows, 0.0))
        return keep(np.column_stack([rows, np.ones(len(rows))])) if self.intercept else rows

    @in_turn
    def _add(self, rows: NDArray[np.float64]) -> None:
        """Put coded rows into the window, releasing it whenever it is full."""
        # A missing target gives a row of zeros, so that the count of records stays public.
        rows[~np.isfinite(rows[:, -1])] = 0.0
        while len(rows):
            window = self._open()
            room = len(rows) if self.window is None else self.window - window.records
            window.add_block(rows[:room])
            rows = rows[room:]
            if window.records == self.window:
                self._release()

    @in_turn
    def release(self) -> None:
        """Release the records since the last release, forget them, and learn from the release.

        Spends ``budget`` for each person in the window. Raises UserError if there is no record since the last release.
        """
        self._release()

    def _release(self) -> None:
        engine, window = self._require(), self._window
        if window is None or window.released or not window.records:
            raise UserError("there is no record since the last release: learn some first")
        # The window is counted and dropped first: a release that fails must not be repeated on the same records.
        self._released, self._window = self._released + 1, None
        engine.learn_window(window.release())

    @property
    def pending(self) -> int:
        """Number of records that are in no release yet: a copy, a pickle or a crash loses them."""
        window = self._window
        return 0 if window is None or window.released else window.records

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism that releases windows, with its noise, bounds and guarantees."""
        mechanism: Mechanism = self._require().mechanisms["default"]
        return mechanism

    def merged(self, others: Sequence[Self]) -> Estimate:
        """Return the joint estimate of this learner and ``others`` with the same settings."""
        engines = self._engines(others)
        return self._problem.estimate(engines)

    @in_turn
    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain data (JSON), from releases alone: pending records are not in it."""
        return {**super().state_dict(), "released": self._released}

    @in_turn
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state of a learner with the same settings; pending records are dropped.

        Raises MurkError if the state is malformed or belongs to other features.
        """
        released = state.get("released")
        if isinstance(released, bool) or not isinstance(released, int) or released < 0:
            raise MurkError("the state is malformed: it needs a count of released windows")
        super().load_state_dict(state)
        # Windows that were released here have spent their budget, whatever the state says.
        self._released, self._window = max(self._released, released), None

    @in_turn
    def __getstate__(self) -> dict[str, Any]:
        # The open window is never copied, as it holds raw records. The engine is copied with the count of windows.
        return {**self.__dict__, "_window": None, "_engine": copy.copy(self._engine)}

    def _values(self) -> NDArray[np.float64]:
        sums, known = self._require().sums, self._fit
        if known is None or known[0] is not sums:
            self._fit = known = sums, self._require().estimate().values
        return known[1]

    def _linear(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return scores of rows of features without the constant."""
        scores: NDArray[np.float64] = self._with_constant(rows) @ self._values()
        return scores
