"""Engines that learn from released windows: Gram matrices, Newton steps and sketches. Does not import River."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np

from murk._internal.arrays import Floats, Integers
from murk._internal.locks import ForkSafeLock, locked
from murk.errors import MurkError, UserError
from murk.inference.estimate import Estimate
from murk.privacy.central import LARGEST_WINDOW, GaussMixMechanism, GramMechanism, NewtonMechanism
from murk.protocols.averages import NeverPublished
from murk.protocols.summaries.estimate import estimate, estimate_grams
from murk.protocols.summaries.newton_fit import MOST, estimate_newton
from murk.protocols.summaries.settings import GramSettings, NewtonSettings, SketchSettings, WindowSettings
from murk.protocols.summaries.sums import GramSums, NewtonSums, SketchSums, WindowSums, gram
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import GramRelease, NewtonRelease, SketchRelease
from murk.stream.wire.state import check_header, pack, reading, unpack

_ERROR_CODE = "MURK-LEARN-001"

S = TypeVar("S", bound=WindowSettings)
M = TypeVar("M")
T = TypeVar("T", bound=WindowSums)
_NAMES = {"releases": "n_releases"}  # names of counts in a state, where they differ from those of attributes

# Standard deviations that noise exceeds with probability below 4e-33 in an entry, and e^-72 in the least eigenvalue.
_FAR = 12.0
_TAIL = 70.0  # an honest sketch is refused with probability at most e^-70 = 4e-31


class WindowEngine(NeverPublished, ABC, Generic[S, M, T]):
    """Running sums over released windows, O(d^2), and their regression; raise UserError if a mechanism does not fit."""

    kind: ClassVar[str]
    released: ClassVar[str]  # name of a release in errors
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

    def _mechanism(self, level: str) -> M:
        mechanism = self.mechanisms.get(level)
        if mechanism is None:
            raise RejectedError("level", f"level {level!r} is not one of the task's")
        return mechanism

    def _check_payload(self, integers: Integers, records: int, largest: int = LARGEST_WINDOW) -> None:
        """Raise RejectedError if a payload has a different size, or more records than a window."""
        if integers.size != self.dimension:
            raise RejectedError("dimension", f"{integers.size} integers, but a {self.released} has {self.dimension}")
        window = self.settings.window
        most = min(largest, LARGEST_WINDOW if window is None else window)
        if records > most:
            raise RejectedError("magnitude", f"{records} records, but a window has at most {most}")

    def _check_integers(self, integers: Integers, magnitude: int) -> None:
        if np.max(np.abs(integers)) > magnitude:
            raise RejectedError("magnitude", f"an integer beyond {magnitude}")

    def learn_releases(self, releases: Sequence[Any]) -> None:
        """Learn from admitted releases in turn."""
        for release in releases:
            self.learn_window(release, release.level)

    def learn_window(self, window: Any, level: str = "default") -> None:
        """Learn from a level's release, as a message or from an accumulator; raise MurkError if its size is wrong."""
        if np.size(window.integers) != self.dimension:
            raise MurkError(f"a {self.released} holds {np.size(window.integers)} integers, not {self.dimension}")
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
    released = "Gram matrix"
    sums_class = GramSums
    shared = ("columns", "feature_bound", "target_bound")

    def admit(self, release: GramRelease, ahead: int = 0) -> None:
        """Raise RejectedError for a Gram matrix that no honest organisation sends.

        No entry exceeds n times the product of its columns' bounds, the trace of X'X is at most n C_X^2, and no
        eigenvalue is negative, each up to 12 standard deviations of the noise (and the least one up to its radius).
        """
        mechanism, integers = self._mechanism(release.level), release.integers
        self._check_payload(integers, release.records, mechanism.largest_window)
        self._check_integers(integers, mechanism.magnitude)
        check_gram(mechanism.decode(integers), release.records, mechanism, self.settings.largest)

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


def check_gram(moment: Floats, records: int, mechanism: GramMechanism, largest: float) -> None:
    """Raise RejectedError for a matrix (d, d) that these records and the mechanism's noise cannot give."""
    d = mechanism.columns
    p = d - 1
    # Checks are in coordinates in which the noise is isotropic.
    weights = np.ones(d)
    weights[-1] = mechanism.target_weight
    even, noise = moment * np.outer(weights, weights), mechanism.scale
    bounds = np.full(d, math.sqrt(min(largest, mechanism.feature_bound**2)))
    bounds[-1] = mechanism.target_bound * mechanism.target_weight
    # Rounding to the grid and the lattice adds less than a thousandth.
    most = 1.001 * (records * np.outer(bounds, bounds) + _FAR * noise)
    if np.any(np.abs(even) > most):
        row, column = np.unravel_index(np.argmax(np.abs(even) - most), most.shape)
        raise RejectedError("magnitude", f"entry ({row}, {column}) exceeds its bound {most[row, column]:,.4g}")
    trace, room = float(np.trace(even[:p, :p])), records * mechanism.feature_bound**2
    if trace > 1.001 * (room + _FAR * math.sqrt(p) * noise):
        raise RejectedError("magnitude", "rows longer than their records and noise can make them")
    if float(np.linalg.eigvalsh(even)[0]) < -1.001 * noise * (2.0 * math.sqrt(d) + _FAR):
        raise RejectedError("magnitude", "an eigenvalue that is more negative than the noise allows")


class NewtonEngine(WindowEngine[NewtonSettings, NewtonMechanism, NewtonSums]):
    """A `WindowEngine` of Newton steps, with a logistic model."""

    kind = "newton"
    released = "Newton step"
    sums_class = NewtonSums
    shared = ("columns", "feature_bound", "target_bound", "first")

    def admit(self, release: NewtonRelease, ahead: int = 0) -> None:
        """Raise RejectedError for a dishonest Newton step: as in `GramEngine.admit`, or a coefficient beyond `MOST`."""
        mechanism, integers = self._mechanism(release.level), release.integers
        self._check_payload(integers, release.records, mechanism.largest_window)
        if len(release.model) != self.settings.features:
            raise RejectedError(
                "dimension", f"a model of {len(release.model)} coefficients, the task's has {self.settings.features}"
            )
        if max(map(abs, release.model)) > MOST:
            raise RejectedError("magnitude", f"a coefficient of the model beyond {MOST:g}")
        self._check_integers(integers, mechanism.magnitude)
        first, step = mechanism.decode(integers)
        own, others = mechanism.parts(release.records)
        check_gram(first, own, mechanism.start, self.settings.largest)
        # The logistic weight is at most 1/4.
        check_gram(step, others, mechanism.step, self.settings.largest / 4.0)

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
    released = "sketch"
    sums_class = SketchSums
    shared = ("rows", "columns", "feature_bound", "target_bound")

    def admit(self, release: SketchRelease, ahead: int = 0) -> None:
        """Raise RejectedError for a sketch that no honest organisation sends.

        A column's mean square exceeds ``(n b^2 + v) (1 + 2 sqrt(t/k) + 2 t/k)``, b the bound on its entries, or falls
        below ``v (1 - 2 sqrt(t/k))``, with probability below ``e^-t`` for any records (Laurent and Massart 2000).
        """
        settings, mechanism, integers = self.settings, self._mechanism(release.level), release.integers
        if release.rows != settings.rows:
            raise RejectedError("dimension", f"a sketch of {release.rows} rows, but the task's have {settings.rows}")
        self._check_payload(integers, release.records)
        if not math.isfinite(release.spread):
            raise RejectedError("magnitude", "the spread is not finite")
        try:
            unit = mechanism.spacing(release.spread)
        except UserError:
            raise RejectedError("magnitude", f"spread {release.spread:g} is outside the mechanism's range") from None
        if not mechanism.releases_eigenvalue and release.spread != mechanism.largest_spread:
            raise RejectedError("magnitude", f"a spread of {release.spread:g}, which is not the mechanism's")
        self._check_integers(integers, mechanism.magnitude)
        table = integers.reshape(settings.rows, -1) * unit
        self._check_squares(np.mean(table * table, axis=0), release.records, mechanism.noise_variance(release.spread))

    def _check_squares(self, squares: Floats, records: int, noise: float) -> None:
        settings = self.settings
        share = _TAIL / settings.rows
        above, below = 1.0 + 2.0 * math.sqrt(share) + 2.0 * share, 1.0 - 2.0 * math.sqrt(share)
        single = np.full(settings.columns, settings.single_bound**2)
        single[-1] = settings.target_bound**2
        # The lattice rounds by less than its step, a millionth of the noise.
        most = (records * single + noise) * above * (1.0 + 1e-3)
        if np.any(squares > most):
            column = int(np.argmax(squares - most))
            raise RejectedError("magnitude", f"mean square of column {column} exceeds its bound {most[column]:,.4g}")
        if float(squares.sum()) > (records * settings.square + settings.columns * noise) * above * (1.0 + 1e-3):
            raise RejectedError("magnitude", "rows longer than their records and noise can make them")
        if np.any(squares < noise * below * (1.0 - 1e-3)):
            raise RejectedError("magnitude", "a column smaller than its noise allows")

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
