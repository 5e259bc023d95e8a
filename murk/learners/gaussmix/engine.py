"""The fold of sketches as an object: admit, learn, tell and take its state. River-free."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from murk._turns import Turns, in_turn
from murk.errors import MurkError, UserError
from murk.learners.gaussmix.estimates import estimate
from murk.learners.gaussmix.settings import SketchSettings
from murk.learners.gaussmix.sums import SCALARS, Sums, gram, precision
from murk.learners.inference import Estimate
from murk.learners.state import pack, unpack
from murk.privacy.gaussmix import LARGEST_WINDOW, GaussMixMechanism
from murk.stream.codec import Rejected
from murk.stream.releases import SketchRelease

if TYPE_CHECKING:
    from murk.privacy.gaussmix import Sketch

_TAIL = 70.0  # e^-70 = 4e-31: an honest sketch is refused about never.
_COUNTS = ("rows", "records", "sketches")


class SketchEngine:
    """Running sums over sketches, O(d^2), and the regression that they tell. Threads take turns.

    Parameters
    ----------
    settings
        What is public.
    mechanisms
        The menu: level name to mechanism; all of the settings' rows, columns and bounds.

    Raises
    ------
    UserError
        If a mechanism does not fit the settings.
    """

    kind = "sketch"

    def __init__(self, settings: SketchSettings, mechanisms: Mapping[str, GaussMixMechanism]) -> None:
        for level, mechanism in mechanisms.items():
            wanted = (settings.rows, settings.columns, settings.feature_bound, settings.target_bound)
            if (mechanism.rows, mechanism.columns, mechanism.feature_bound, mechanism.target_bound) != wanted:
                raise UserError(f"level {level!r} makes sketches of other rows, columns or bounds than the learner's")
        self._turns = Turns()
        # Never written to, only replaced: whoever reads it reads one moment, and an interrupt finds the old or the new.
        self.sums = Sums(settings.columns)
        self.settings = settings
        self.mechanisms = dict(mechanisms)

    @property
    def n_releases(self) -> int:
        """Sketches learned."""
        return self.sums.sketches

    @property
    def dimension(self) -> int:
        """Integers in a release: ``rows * columns``."""
        return self.settings.rows * self.settings.columns

    @property
    def stride(self) -> int:
        """Nobody waits for an iterate."""
        return 2**31

    def published(self) -> None:
        """No iterate is published: records are sketched without one."""

    def admit(self, release: SketchRelease, ahead: int = 0) -> None:
        """Refuse a sketch that no honest organisation sends.

        Whatever the records are, a column's mean square exceeds ``(n b^2 + v) (1 + 2 sqrt(t/k) + 2 t/k)``, b the
        bound of its entries, or falls below ``v (1 - 2 sqrt(t/k))``, with probability below ``e^-t`` (Laurent and
        Massart 2000), here 4e-31.

        Raises
        ------
        Rejected
            With reason ``"level"``, ``"dimension"`` or ``"magnitude"``.
        """
        settings = self.settings
        mechanism = self.mechanisms.get(release.level)
        if mechanism is None:
            raise Rejected("level", "a level that is not on the menu")
        if release.rows != settings.rows:
            raise Rejected("dimension", f"a sketch of {release.rows} rows, the task's have {settings.rows}")
        integers = release.integers
        if integers.size != self.dimension:
            raise Rejected("dimension", f"{integers.size} integers, a sketch has {self.dimension}")
        most = LARGEST_WINDOW if settings.window is None else settings.window
        if release.records > most:
            raise Rejected("magnitude", f"{release.records} records, a window holds {most}")
        if not math.isfinite(release.spread):
            raise Rejected("magnitude", "a spread that is no number")
        try:
            unit = mechanism.spacing(release.spread)
        except UserError:
            raise Rejected("magnitude", f"a spread of {release.spread:g}, outside the mechanism's range") from None
        if not mechanism.releases_eigenvalue and release.spread != mechanism.largest_spread:
            raise Rejected("magnitude", f"a spread of {release.spread:g}, the mechanism has one alone")
        if np.max(np.abs(integers)) > mechanism.magnitude:
            raise Rejected("magnitude", f"an integer beyond {mechanism.magnitude}")
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
            raise Rejected("magnitude", "a column larger than its records and noise can make it")
        if float(squares.sum()) > (records * settings.square + settings.columns * noise) * above * (1.0 + 1e-3):
            raise Rejected("magnitude", "rows longer than their records and noise can make them")
        if np.any(squares < noise * below * (1.0 - 1e-3)):
            raise Rejected("magnitude", "a column smaller than its noise")

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
        if np.size(integers) != self.dimension:
            raise MurkError(f"a sketch holds {np.size(integers)} integers, not {self.dimension}")
        noise = mechanism.noise_variance(spread)
        moment = np.zeros((settings.columns, settings.columns))
        table = np.ascontiguousarray(integers, dtype=np.int64).reshape(settings.rows, settings.columns)
        gram(table, mechanism.spacing(spread), moment)
        weight = 1.0
        if settings.weighting == "inverse-variance":
            weight = precision(rows=settings.rows, records=records, noise=noise, unit=settings.signal)
        self._add(moment / settings.rows, records, noise, weight)

    @in_turn
    def _add(self, moment: NDArray[np.float64], records: int, noise: float, weight: float) -> None:
        sums = self.sums.merged()
        sums.add(moment, rows=self.settings.rows, records=records, noise=noise, weight=weight)
        self.sums = sums

    @property
    def coefficients(self) -> int:
        """Coefficients of the estimate."""
        return len(self.settings.names)

    def estimate(self) -> Estimate:
        """Coefficients in coded units, with what their intervals need."""
        return estimate(self.settings, [self.sums])

    def figures(self) -> dict[str, float]:
        """Records in all the sketches learned."""
        return {"records": float(self.sums.records)}

    def state_dict(self) -> dict[str, Any]:
        """The whole state as plain data, of released sketches alone: loaded elsewhere, it goes on bit for bit."""
        sums = self.sums
        return {
            "schema": 1,
            "settings": self.settings.digest,
            "columns": sums.columns,
            "n_releases": sums.sketches,
            "rows": sums.rows,
            "records": sums.records,
            "moment": pack(sums.moment.ravel()),
            "sums": pack(np.array([getattr(sums, name) for name in SCALARS])),
        }

    @in_turn
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over a state that :meth:`state_dict` gave.

        Raises
        ------
        MurkError
            If the state is malformed or of other settings.
        """
        d = self.settings.columns
        try:
            if state["schema"] != 1 or state["columns"] != d:
                raise MurkError(
                    f"a state of schema {state['schema']!r} and {state['columns']!r} columns does not fit a learner "
                    f"of schema 1 and {d}"
                )
            if state["settings"] != self.settings.digest:
                raise MurkError("the state is of a learner with other settings: make one with the same")
            counts = [state[name] for name in ("rows", "records", "n_releases")]
            if any(isinstance(count, bool) or not isinstance(count, int) or count < 0 for count in counts):
                raise MurkError("the state's counts are no whole numbers")
            moment = unpack(state["moment"], d * d).reshape(d, d)
            scalars = unpack(state["sums"], len(SCALARS))
        except (KeyError, TypeError, ValueError) as error:
            raise MurkError(f"the state is malformed: {type(error).__name__} at {error}") from error
        if np.any(scalars < 0.0):
            raise MurkError("the state holds a sum that is negative")
        found = Sums(d)
        found.moment = moment
        for name, value in zip(SCALARS, scalars, strict=True):
            setattr(found, name, float(value))
        for name, count in zip(_COUNTS, counts, strict=True):
            setattr(found, name, count)
        self.sums = found
