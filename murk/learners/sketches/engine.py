"""What the engines of sketches and of Gram matrices share.

The engine of released Gram matrices: what it admits, and what it learns. River-free.

The engine of released Newton steps: what it admits, and what it learns. River-free.

The engine of sketches: what it admits, and what it learns. River-free.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from murk._turns import Turns, in_turn
from murk.errors import MurkError, UserError
from murk.learners.core.state import pack, unpack
from murk.learners.estimates.estimate import Estimate
from murk.learners.sketches.estimates import estimate, estimate_grams
from murk.learners.sketches.newton import MOST, estimate_newton
from murk.learners.sketches.settings import GramSettings, NewtonSettings, SketchSettings, WindowSettings
from murk.learners.sketches.sums import (
    GramSums,
    NewtonSums,
    SketchSums,
    WindowSums,
    gram,
    gram_precision,
    sketch_precision,
)
from murk.privacy.sketches import LARGEST_WINDOW, GaussMixMechanism, GramMechanism, NewtonMechanism
from murk.stream.messages.codec import RejectedError
from murk.stream.messages.releases import GramRelease, NewtonRelease, SketchRelease

if TYPE_CHECKING:
    from murk.privacy.sketches import Gram, Newton, Sketch


S = TypeVar("S", bound=WindowSettings)
M = TypeVar("M")
T = TypeVar("T", bound=WindowSums)

# What a state calls the counts of sums.
_NAMES = {"releases": "n_releases"}


class WindowEngine(ABC, Generic[S, M, T]):
    """Running sums over released windows, O(d^2), and the regression that they tell. Threads take turns.

    Parameters
    ----------
    settings
        What is public.
    mechanisms
        Level name to mechanism.
    """

    kind: ClassVar[str]
    released: ClassVar[str]
    """What a release is called in errors."""

    def __init__(self, settings: S, mechanisms: Mapping[str, M]) -> None:
        self._turns = Turns()
        # Never written to, only replaced: anyone who reads it reads one moment, and an interrupt finds the old or the
        # new.
        self.sums = self._nothing(settings)
        self.settings = settings
        self.mechanisms = dict(mechanisms)

    @abstractmethod
    def _nothing(self, settings: S) -> T:
        """Sums over no window."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """Integers in a release."""

    @abstractmethod
    def estimate(self) -> Estimate:
        """Coefficients in coded units, with what their intervals need."""

    @property
    def n_releases(self) -> int:
        """Windows learned."""
        return self.sums.releases

    @property
    def coefficients(self) -> int:
        """Coefficients of the estimate."""
        return len(self.settings.names)

    @property
    def publish_every(self) -> int:
        """Nobody waits for an iterate."""
        return 2**31

    def published(self) -> None:
        """No iterate is published: windows are released without one."""

    def figures(self) -> dict[str, float]:
        """Records in all the windows learned."""
        return {"records": float(self.sums.records)}

    def _mechanism(self, level: str) -> M:
        """The mechanism of a level.

        Raises
        ------
        RejectedError
            If there is none.
        """
        mechanism = self.mechanisms.get(level)
        if mechanism is None:
            raise RejectedError("level", "a level that is not the task's")
        return mechanism

    def _check_payload(self, integers: NDArray[np.int64], records: int, largest: int = LARGEST_WINDOW) -> None:
        """Refuse a payload of another size, or of more records than a window has.

        Raises
        ------
        RejectedError
            With reason ``"dimension"`` or ``"magnitude"``.
        """
        if integers.size != self.dimension:
            raise RejectedError("dimension", f"{integers.size} integers, a {self.released} has {self.dimension}")
        window = self.settings.window
        most = min(largest, LARGEST_WINDOW if window is None else window)
        if records > most:
            raise RejectedError("magnitude", f"{records} records, a window holds {most}")

    def _check_admitted(self, integers: NDArray[np.int64]) -> None:
        if np.size(integers) != self.dimension:
            raise MurkError(f"a {self.released} holds {np.size(integers)} integers, not {self.dimension}")

    @in_turn
    def _add(self, /, **window: Any) -> None:
        """Add a window to the sums, by the arguments of their ``add``."""
        sums: Any = self.sums.merged()
        sums.add(**window)
        self.sums = sums

    def state_dict(self) -> dict[str, Any]:
        """The whole state as plain data, of what was released alone: loaded elsewhere, it goes on bit for bit."""
        sums = self.sums
        return {
            "schema": 1,
            "settings": self.settings.digest,
            "columns": sums.columns,
            **{_NAMES.get(name, name): getattr(sums, name) for name in sums.counts},
            **{name: pack(array.ravel()) for name, array in sums.arrays().items()},
            "sums": pack(np.array([getattr(sums, name) for name in sums.scalars])),
        }

    @in_turn
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state that :meth:`state_dict` gave.

        Raises
        ------
        MurkError
            If the state is malformed or of other settings.
        """
        d, found = self.settings.columns, self._nothing(self.settings)
        try:
            if state["schema"] != 1 or state["columns"] != d:
                raise MurkError(
                    f"a state of schema {state['schema']!r} and {state['columns']!r} columns does not fit a learner "
                    f"of schema 1 and {d}"
                )
            if state["settings"] != self.settings.digest:
                raise MurkError("the state is of a learner with other settings: make one with the same")
            counts = [state[_NAMES.get(name, name)] for name in found.counts]
            if any(isinstance(count, bool) or not isinstance(count, int) or count < 0 for count in counts):
                raise MurkError("the state's counts are no whole numbers")
            for name, array in found.arrays().items():
                array[...] = unpack(state[name], array.size).reshape(array.shape)
            scalars = unpack(state["sums"], len(found.scalars))
        except (KeyError, TypeError, ValueError) as error:
            raise MurkError(f"the state is malformed: {type(error).__name__} at {error}") from error
        if np.any(scalars < 0.0):
            raise MurkError("the state holds a sum that is negative")
        for name, value in zip(found.scalars, scalars.tolist(), strict=True):
            setattr(found, name, value)
        for name, count in zip(found.counts, counts, strict=True):
            setattr(found, name, count)
        self.sums = found


# Noise beyond 12 standard deviations: below 4e-33 for each entry, and e^-72 for the least eigenvalue.
_FAR = 12.0


class GramEngine(WindowEngine[GramSettings, GramMechanism, GramSums]):
    """Running sums over Gram matrices, O(d^2), and the regression that they tell. Threads take turns.

    Parameters
    ----------
    settings
        What is public.
    mechanisms
        Level name to mechanism; all of the settings' columns and bounds.

    Raises
    ------
    UserError
        If a mechanism does not fit the settings.
    """

    kind: ClassVar[str] = "gram"
    released: ClassVar[str] = "Gram matrix"

    def __init__(self, settings: GramSettings, mechanisms: Mapping[str, GramMechanism]) -> None:
        for level, mechanism in mechanisms.items():
            wanted = (settings.columns, settings.feature_bound, settings.target_bound)
            if (mechanism.columns, mechanism.feature_bound, mechanism.target_bound) != wanted:
                raise UserError(f"level {level!r} makes Gram matrices of other columns or bounds than the learner's")
        super().__init__(settings, mechanisms)

    def _nothing(self, settings: GramSettings) -> GramSums:
        return GramSums(settings.columns)

    @property
    def dimension(self) -> int:
        """Integers in a release."""
        return self.settings.dimension

    def admit(self, release: GramRelease, ahead: int = 0) -> None:
        """Refuse a Gram matrix that no honest organisation sends.

        Whatever the records are, no entry exceeds n times the product of its columns' bounds, the trace of X'X is at
        most n C_X^2, and the matrix has no negative eigenvalue; beyond that is noise, of which 12 standard deviations
        are allowed for (of the least eigenvalue, beside the noise's own radius).

        Raises
        ------
        RejectedError
            With reason ``"level"``, ``"dimension"`` or ``"magnitude"``.
        """
        mechanism, integers = self._mechanism(release.level), release.integers
        self._check_payload(integers, release.records, mechanism.largest_window)
        if np.max(np.abs(integers)) > mechanism.magnitude:
            raise RejectedError("magnitude", f"an integer beyond {mechanism.magnitude}")
        check_gram(mechanism.decode(integers), release.records, mechanism, self.settings.largest)

    def learn_releases(self, releases: Sequence[GramRelease]) -> None:
        """Learn from admitted Gram matrices in turn."""
        for release in releases:
            self.learn_gram(release.integers, records=release.records, level=release.level)

    def learn_window(self, gram: Gram) -> None:
        """Learn from what an accumulator released, at the default level."""
        self.learn_gram(gram.integers, records=gram.records)

    def learn_gram(self, integers: NDArray[np.int64], *, records: int, level: str = "default") -> None:
        """Learn from the integers of one Gram matrix and its n records.

        Raises
        ------
        MurkError
            If it was not admitted: it has another size.
        """
        settings, mechanism = self.settings, self.mechanisms[level]
        self._check_admitted(integers)
        noise, weight = mechanism.scale**2, 1.0
        if settings.weighting == "inverse-variance":
            weight = gram_precision(records=records, noise=noise, square=settings.feature_bound**2)
        self._add(moment=mechanism.decode(integers), records=records, noise=noise, weight=weight)

    def estimate(self) -> Estimate:
        """Coefficients in coded units, with what their intervals need."""
        return estimate_grams(self.settings, self.target_weight, [self.sums], self.mechanisms)

    @property
    def target_weight(self) -> float:
        """The target's weight in a release: public bounds alone decide it, so all levels have the same."""
        return next(iter(self.mechanisms.values())).target_weight


def check_gram(moment: NDArray[np.float64], records: int, mechanism: GramMechanism, largest: float) -> None:
    """Refuse a matrix (d, d) that no so many records make, with the mechanism's noise.

    Parameters
    ----------
    largest
        Largest square of a single feature.

    Raises
    ------
    RejectedError
        With reason ``"magnitude"``.
    """
    d = mechanism.columns
    p = d - 1
    # In coordinates in which the noise is isotropic.
    weights = np.ones(d)
    weights[-1] = mechanism.target_weight
    even, noise = moment * np.outer(weights, weights), mechanism.scale
    bounds = np.full(d, math.sqrt(min(largest, mechanism.feature_bound**2)))
    bounds[-1] = mechanism.target_bound * mechanism.target_weight
    # The grid and the lattice round by less than a thousandth of what stands beside them.
    if np.any(np.abs(even) > 1.001 * (records * np.outer(bounds, bounds) + _FAR * noise)):
        raise RejectedError("magnitude", "an entry larger than its records and noise can make it")
    trace, room = float(np.trace(even[:p, :p])), records * mechanism.feature_bound**2
    if trace > 1.001 * (room + _FAR * math.sqrt(p) * noise):
        raise RejectedError("magnitude", "rows longer than their records and noise can make them")
    if float(np.linalg.eigvalsh(even)[0]) < -1.001 * noise * (2.0 * math.sqrt(d) + _FAR):
        raise RejectedError("magnitude", "a direction of less than nothing, beyond its noise")


class NewtonEngine(WindowEngine[NewtonSettings, NewtonMechanism, NewtonSums]):
    """Running sums over Newton steps, O(d^2), and the logistic model that they tell. Threads take turns.

    Parameters
    ----------
    settings
        What is public.
    mechanisms
        Level name to mechanism; all of the settings' columns, bounds and first part.

    Raises
    ------
    UserError
        If a mechanism does not fit the settings.
    """

    kind: ClassVar[str] = "newton"
    released: ClassVar[str] = "Newton step"

    def __init__(self, settings: NewtonSettings, mechanisms: Mapping[str, NewtonMechanism]) -> None:
        for level, mechanism in mechanisms.items():
            wanted = (settings.columns, settings.feature_bound, settings.target_bound, settings.first)
            if (mechanism.columns, mechanism.feature_bound, mechanism.target_bound, mechanism.first) != wanted:
                raise UserError(f"level {level!r} makes Newton steps of other columns or bounds than the learner's")
        super().__init__(settings, mechanisms)

    def _nothing(self, settings: NewtonSettings) -> NewtonSums:
        return NewtonSums(settings.columns)

    @property
    def dimension(self) -> int:
        """Integers in a release."""
        return self.settings.dimension

    def admit(self, release: NewtonRelease, ahead: int = 0) -> None:
        """Refuse a Newton step that no honest organisation sends.

        Each matrix is checked as those of `GramEngine` are; no coefficient of an honest model is beyond `MOST`.

        Raises
        ------
        RejectedError
            With reason ``"level"``, ``"dimension"`` or ``"magnitude"``.
        """
        mechanism, integers = self._mechanism(release.level), release.integers
        self._check_payload(integers, release.records, mechanism.largest_window)
        if len(release.model) != self.settings.features:
            raise RejectedError(
                "dimension", f"a model of {len(release.model)} coefficients, it has {self.settings.features}"
            )
        if max(map(abs, release.model)) > MOST:
            raise RejectedError("magnitude", f"a coefficient of the model beyond {MOST:g}")
        if np.max(np.abs(integers)) > mechanism.magnitude:
            raise RejectedError("magnitude", f"an integer beyond {mechanism.magnitude}")
        first, step = mechanism.decode(integers)
        own, others = mechanism.parts(release.records)
        check_gram(first, own, mechanism.start, self.settings.largest)
        # Where w is 1/4 at most.
        check_gram(step, others, mechanism.step, self.settings.largest / 4.0)

    def learn_releases(self, releases: Sequence[NewtonRelease]) -> None:
        """Learn from admitted Newton steps in turn."""
        for release in releases:
            model = np.array(release.model)
            self.learn_newton(release.integers, model=model, records=release.records, level=release.level)

    def learn_window(self, newton: Newton) -> None:
        """Learn from what an accumulator released, at the default level."""
        self.learn_newton(newton.integers, model=newton.model, records=newton.records)

    def learn_newton(
        self, integers: NDArray[np.int64], *, model: NDArray[np.float64], records: int, level: str = "default"
    ) -> None:
        """Learn from the integers of one window, the model of its step and its n records.

        Raises
        ------
        MurkError
            If it was not admitted: it has another size.
        """
        mechanism = self.mechanisms[level]
        self._check_admitted(integers)
        if model.shape != (self.settings.features,):
            raise MurkError(f"a model has {self.settings.features} coefficients, got shape {model.shape}")
        first, step = mechanism.decode(integers)
        self.learn_matrices(first, step, model=model, records=records, mechanism=mechanism)

    def learn_matrices(
        self, first: NDArray[np.float64], step: NDArray[np.float64], *, model: NDArray[np.float64], records: int,
        mechanism: NewtonMechanism, windows: int = 1,
    ) -> None:  # fmt: skip
        """Learn from a window's two matrices in the units of its rows; or the sums of those of windows of one model."""
        own, others = mechanism.parts(records)
        self._add(
            first=first, step=step, model=model, records=(windows * own, windows * others),
            noise=(windows * mechanism.start.scale**2, windows * mechanism.step.scale**2),
            weights=(self._weight(own, mechanism.start), self._weight(others, mechanism.step)),
        )  # fmt: skip

    def _weight(self, records: int, part: GramMechanism) -> float:
        if self.settings.weighting == "uniform":
            return 1.0
        return gram_precision(records=records, noise=part.scale**2, square=part.feature_bound**2)

    def estimate(self) -> Estimate:
        """Coefficients in coded units, with what their intervals need."""
        return estimate_newton(self.settings, self.target_weights, [self.sums])

    @property
    def target_weights(self) -> tuple[float, float]:
        """The targets' weights in the two matrices: public bounds alone decide them, so all levels have the same."""
        mechanism = next(iter(self.mechanisms.values()))
        return mechanism.start.target_weight, mechanism.step.target_weight


_TAIL = 70.0  # e^-70 = 4e-31: an honest sketch is refused about never.


class SketchEngine(WindowEngine[SketchSettings, GaussMixMechanism, SketchSums]):
    """Running sums over sketches, O(d^2), and the regression that they tell. Threads take turns.

    Parameters
    ----------
    settings
        What is public.
    mechanisms
        Level name to mechanism; all of the settings' rows, columns and bounds.

    Raises
    ------
    UserError
        If a mechanism does not fit the settings.
    """

    kind: ClassVar[str] = "sketch"
    released: ClassVar[str] = "sketch"

    def __init__(self, settings: SketchSettings, mechanisms: Mapping[str, GaussMixMechanism]) -> None:
        for level, mechanism in mechanisms.items():
            wanted = (settings.rows, settings.columns, settings.feature_bound, settings.target_bound)
            if (mechanism.rows, mechanism.columns, mechanism.feature_bound, mechanism.target_bound) != wanted:
                raise UserError(f"level {level!r} makes sketches of other rows, columns or bounds than the learner's")
        super().__init__(settings, mechanisms)

    def _nothing(self, settings: SketchSettings) -> SketchSums:
        return SketchSums(settings.columns)

    @property
    def dimension(self) -> int:
        """Integers in a release: ``rows * columns``."""
        return self.settings.dimension

    def admit(self, release: SketchRelease, ahead: int = 0) -> None:
        """Refuse a sketch that no honest organisation sends.

        Whatever the records are, a column's mean square exceeds ``(n b^2 + v) (1 + 2 sqrt(t/k) + 2 t/k)``, b the
        bound of its entries, or falls below ``v (1 - 2 sqrt(t/k))``, with probability below ``e^-t`` (Laurent and
        Massart 2000), here 4e-31.

        Raises
        ------
        RejectedError
            With reason ``"level"``, ``"dimension"`` or ``"magnitude"``.
        """
        settings, mechanism, integers = self.settings, self._mechanism(release.level), release.integers
        if release.rows != settings.rows:
            raise RejectedError("dimension", f"a sketch of {release.rows} rows, the task's have {settings.rows}")
        self._check_payload(integers, release.records)
        if not math.isfinite(release.spread):
            raise RejectedError("magnitude", "a spread that is no number")
        try:
            unit = mechanism.spacing(release.spread)
        except UserError:
            raise RejectedError("magnitude", f"a spread of {release.spread:g}, outside the mechanism's range") from None
        if not mechanism.releases_eigenvalue and release.spread != mechanism.largest_spread:
            raise RejectedError("magnitude", f"a spread of {release.spread:g}, the mechanism has one alone")
        if np.max(np.abs(integers)) > mechanism.magnitude:
            raise RejectedError("magnitude", f"an integer beyond {mechanism.magnitude}")
        table = integers.reshape(settings.rows, -1) * unit
        self._check_squares(np.mean(table * table, axis=0), release.records, mechanism.noise_variance(release.spread))

    def _check_squares(self, squares: NDArray[np.float64], records: int, noise: float) -> None:
        settings = self.settings
        share = _TAIL / settings.rows
        above, below = 1.0 + 2.0 * math.sqrt(share) + 2.0 * share, 1.0 - 2.0 * math.sqrt(share)
        single = np.full(settings.columns, min(settings.largest, settings.feature_bound**2))
        single[-1] = settings.target_bound**2
        # The lattice rounds by less than its step, a millionth of the noise.
        if np.any(squares > (records * single + noise) * above * (1.0 + 1e-3)):
            raise RejectedError("magnitude", "a column larger than its records and noise can make it")
        if float(squares.sum()) > (records * settings.square + settings.columns * noise) * above * (1.0 + 1e-3):
            raise RejectedError("magnitude", "rows longer than their records and noise can make them")
        if np.any(squares < noise * below * (1.0 - 1e-3)):
            raise RejectedError("magnitude", "a column smaller than its noise")

    def learn_releases(self, releases: Sequence[SketchRelease]) -> None:
        """Learn from admitted sketches in turn."""
        for release in releases:
            self.learn_sketch(release.integers, records=release.records, spread=release.spread, level=release.level)

    def learn_window(self, sketch: Sketch) -> None:
        """Learn from what an accumulator released, at the default level."""
        self.learn_sketch(sketch.integers, records=sketch.records, spread=sketch.spread)

    def learn_sketch(self, integers: NDArray[np.int64], *, records: int, spread: float, level: str = "default") -> None:
        """Learn from the integers of one sketch, its n records and its spread.

        Raises
        ------
        MurkError
            If it was not admitted: it has another size.
        """
        settings, mechanism = self.settings, self.mechanisms[level]
        self._check_admitted(integers)
        noise = mechanism.noise_variance(spread)
        moment = np.zeros((settings.columns, settings.columns))
        table = np.ascontiguousarray(integers, dtype=np.int64).reshape(settings.rows, settings.columns)
        gram(table, mechanism.spacing(spread), moment)
        weight = 1.0
        if settings.weighting == "inverse-variance":
            weight = sketch_precision(rows=settings.rows, records=records, noise=noise, unit=settings.signal)
        self._add(moment=moment / settings.rows, rows=settings.rows, records=records, noise=noise, weight=weight)

    def estimate(self) -> Estimate:
        """Coefficients in coded units, with what their intervals need."""
        return estimate(self.settings, [self.sums])
