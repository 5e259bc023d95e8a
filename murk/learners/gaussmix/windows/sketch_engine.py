"""The engine of sketches: what it admits, and what it learns. River-free."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from numpy.typing import NDArray

from murk.errors import UserError
from murk.learners.estimates.estimate import Estimate
from murk.learners.gaussmix.solving.estimates import estimate
from murk.learners.gaussmix.windows.engine import WindowEngine
from murk.learners.gaussmix.windows.sketch_settings import SketchSettings
from murk.learners.gaussmix.windows.sketch_sums import SketchSums, gram, precision
from murk.privacy.gaussmix import GaussMixMechanism
from murk.stream.messages.codec import RejectedError
from murk.stream.messages.releases import SketchRelease

if TYPE_CHECKING:
    from murk.privacy.gaussmix import Sketch

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
            weight = precision(rows=settings.rows, records=records, noise=noise, unit=settings.signal)
        self._add(moment=moment / settings.rows, rows=settings.rows, records=records, noise=noise, weight=weight)

    def estimate(self) -> Estimate:
        """Coefficients in coded units, with what their intervals need."""
        return estimate(self.settings, [self.sums])
