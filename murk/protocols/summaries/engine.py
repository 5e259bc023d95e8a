"""Engines that learn from released windows: Gram matrices, Newton steps and sketches. Does not import River."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.locks import ForkSafeLock, locked
from murk.errors import MurkError, UserError
from murk.inference.estimate import Estimate
from murk.privacy.central import GaussMixMechanism, GramMechanism, NewtonMechanism
from murk.protocols.averages import NeverPublished
from murk.protocols.summaries.admission import GramRules, NewtonRules, SketchRules, WindowRules
from murk.protocols.summaries.estimate import estimate, estimate_grams
from murk.protocols.summaries.newton_fit import estimate_newton
from murk.protocols.summaries.settings import GramSettings, NewtonSettings, SketchSettings, WindowSettings
from murk.protocols.summaries.sums import GramSums, NewtonSums, SketchSums, WindowSums, gram
from murk.stream.wire.state import check_header, pack, reading, unpack

_ERROR_CODE = "MURK-LEARN-001"

S = TypeVar("S", bound=WindowSettings)
M = TypeVar("M")
T = TypeVar("T", bound=WindowSums)
_NAMES = {"releases": "n_releases"}  # names of counts in a state, where they differ from those of attributes


class WindowEngine(NeverPublished, ABC, Generic[S, M, T]):
    """Running sums over released windows, O(d^2), and their regression; raise UserError if a mechanism does not fit."""

    kind: ClassVar[str]
    rules: ClassVar[type[WindowRules]]
    sums_class: ClassVar[type[WindowSums]]
    shared: ClassVar[tuple[str, ...]]  # attributes that settings and mechanisms must agree on

    def __init__(self, settings: S, mechanisms: Mapping[str, M]) -> None:
        for level, mechanism in mechanisms.items():
            differing = [name for name in self.shared if getattr(mechanism, name) != getattr(settings, name)]
            if differing:
                raise UserError(
                    f"level {level!r}: its mechanism has other columns or bounds than the learner's "
                    f"({', '.join(differing)})"
                )
        self._turns = ForkSafeLock()
        self.settings = settings
        self.mechanisms: dict[str, M] = dict(mechanisms)
        self.admission = self.rules(settings, self.mechanisms)
        # Replaced, never written to: a reader sees consistent sums, and an interrupt leaves the old or the new ones.
        self.sums: T = self._empty_sums()

    def _empty_sums(self) -> T:
        sums: Any = self.sums_class(self.settings.columns)
        return sums  # type: ignore[no-any-return]

    @property
    def dimension(self) -> int:
        """Number of integers in a release."""
        return self.settings.dimension

    def estimate(self, *others: Self) -> Estimate:
        """Return coefficients in coded units with their intervals, from the windows of this and other partitions."""
        return self._fit([engine.sums for engine in (self, *others)])

    @abstractmethod
    def _fit(self, sums: Sequence[T]) -> Estimate:
        """Return the joint estimate from the sums of several partitions."""

    @property
    def n_releases(self) -> int:
        """Number of windows learned."""
        return self.sums.releases

    @property
    def coefficients(self) -> int:
        """Number of coefficients of the estimate."""
        return len(self.settings.names)

    def figures(self) -> dict[str, float]:
        """Return the number of records in all windows learned."""
        return {"records": float(self.sums.records)}

    def learn_releases(self, releases: Sequence[Any]) -> None:
        """Learn from admitted releases in turn."""
        for release in releases:
            self.learn_window(release, release.level)

    def learn_window(self, window: Any, level: str = "default") -> None:
        """Learn from a level's release, as a message or from an accumulator; raise MurkError if its size is wrong."""
        if np.size(window.integers) != self.dimension:
            raise MurkError(f"a {self.rules.released} holds {np.size(window.integers)} integers, not {self.dimension}")
        self._learn(window, self.mechanisms[level])

    joins = True

    @locked
    def join(self, later: Self) -> None:
        """Add the sums of another learner of the same model."""
        self.sums = self.sums.merged(later.sums)

    @abstractmethod
    def _learn(self, window: Any, mechanism: M) -> None:
        """Learn from a window of the right size, released by a mechanism."""

    @locked
    def _add(self, /, **window: Any) -> None:
        """Add a window to the sums; the arguments are those of the ``add`` of `WindowSums`' subclass."""
        sums: Any = self.sums.merged()
        sums.add(**window)
        self.sums = sums

    def state_dict(self) -> dict[str, Any]:
        """Return the state as plain data, from releases alone; a learner that loads it continues bit for bit."""
        sums = self.sums
        return {
            "schema": 1,
            "settings": self.settings.digest,
            "columns": sums.columns,
            **{_NAMES.get(name, name): getattr(sums, name) for name in sums.counts},
            **{name: pack(array.ravel()) for name, array in sums.arrays().items()},
            "sums": pack(np.array([getattr(sums, name) for name in sums.scalars])),
        }

    @locked
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state from :meth:`state_dict`, or raise MurkError if it is malformed or for other settings."""
        d, sums = self.settings.columns, self._empty_sums()
        with reading():
            check_header(state, self.settings.digest, "columns", d)
            counts = [state[_NAMES.get(name, name)] for name in sums.counts]
            if any(isinstance(count, bool) or not isinstance(count, int) or count < 0 for count in counts):
                raise MurkError("the state's counts are not whole numbers from 0")
            for name, array in sums.arrays().items():
                array[...] = unpack(state[name], array.size).reshape(array.shape)
            scalars = unpack(state["sums"], len(sums.scalars))
        if np.any(scalars < 0.0):
            raise MurkError("the state holds a negative sum")
        for name, value in zip((*sums.scalars, *sums.counts), (*scalars.tolist(), *counts), strict=True):
            setattr(sums, name, value)
        self.sums = sums


class GramEngine(WindowEngine[GramSettings, GramMechanism, GramSums]):
    """A `WindowEngine` of Gram matrices."""

    kind = "gram"
    rules = GramRules
    sums_class = GramSums
    shared = ("columns", "feature_bound", "target_bound")

    def _learn(self, window: Any, mechanism: GramMechanism) -> None:
        weight = self.settings.weight(mechanism, window.records)
        moment = mechanism.decode(window.integers)
        self._add(moment=moment, records=window.records, noise=mechanism.scale**2, weight=weight)

    def _fit(self, sums: Sequence[GramSums]) -> Estimate:
        return estimate_grams(self.settings, self.target_weight, sums, self.mechanisms)

    @property
    def target_weight(self) -> float:
        """The target's weight in a release; the public bounds determine it, so it is the same at all levels."""
        return next(iter(self.mechanisms.values())).target_weight


class NewtonEngine(WindowEngine[NewtonSettings, NewtonMechanism, NewtonSums]):
    """A `WindowEngine` of Newton steps, with a logistic model."""

    kind = "newton"
    rules = NewtonRules
    sums_class = NewtonSums
    shared = ("columns", "feature_bound", "target_bound", "first")

    def _learn(self, window: Any, mechanism: NewtonMechanism) -> None:
        model = np.array(window.model)
        if model.shape != (self.settings.features,):
            raise MurkError(f"a model has {self.settings.features} coefficients, got shape {model.shape}")
        first, step = mechanism.decode(window.integers)
        self.learn_matrices(first, step, model=model, records=window.records, mechanism=mechanism)

    def learn_matrices(
        self, first: Floats, step: Floats, *, model: Floats, records: int, mechanism: NewtonMechanism, windows: int = 1
    ) -> None:
        """Learn from a window's two matrices in units of its rows, or from their sums over windows with one model."""
        own, others = mechanism.parts(records)
        weights = self.settings.weight(mechanism.start, own), self.settings.weight(mechanism.step, others)
        noise, counts = mechanism.start.scale**2, (windows * own, windows * others)
        noises = windows * noise, windows * mechanism.step.scale**2
        self._add(first=first, step=step, model=model, records=counts, noise=noises, weights=weights)

    def _fit(self, sums: Sequence[NewtonSums]) -> Estimate:
        return estimate_newton(self.settings, self.target_weights, sums)

    @property
    def target_weights(self) -> tuple[float, float]:
        """The target's weights in the two matrices; the public bounds determine them, as in `GramEngine`."""
        mechanism = next(iter(self.mechanisms.values()))
        return mechanism.start.target_weight, mechanism.step.target_weight


class SketchEngine(WindowEngine[SketchSettings, GaussMixMechanism, SketchSums]):
    """A `WindowEngine` of sketches."""

    kind = "sketch"
    rules = SketchRules
    sums_class = SketchSums
    shared = ("rows", "columns", "feature_bound", "target_bound")

    def _learn(self, window: Any, mechanism: GaussMixMechanism) -> None:
        settings, records = self.settings, window.records
        noise = mechanism.noise_variance(window.spread)
        moment = np.zeros((settings.columns, settings.columns))
        table = np.ascontiguousarray(window.integers, dtype=np.int64).reshape(settings.rows, settings.columns)
        gram(table, mechanism.spacing(window.spread), moment)
        weight = settings.weight(records, noise)
        self._add(moment=moment / settings.rows, rows=settings.rows, records=records, noise=noise, weight=weight)

    def _fit(self, sums: Sequence[SketchSums]) -> Estimate:
        return estimate(self.settings, sums)
