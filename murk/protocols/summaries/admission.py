"""Which summaries of windows are admitted: those that honest records and the mechanism's noise can give."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from murk._internal.arrays import Floats, Integers
from murk.errors import UserError
from murk.privacy.central import LARGEST_WINDOW, GramMechanism
from murk.protocols.summaries.settings import MOST, WindowSettings
from murk.stream.wire.admission import AdmissionRules
from murk.stream.wire.codec import RejectedError
from murk.stream.wire.releases import GramRelease, NewtonRelease, SketchRelease

# Standard deviations that noise exceeds with probability below 4e-33 in an entry, and e^-72 in the least eigenvalue.
_FAR = 12.0
_TAIL = 70.0  # an honest sketch is refused with probability at most e^-70 = 4e-31


class WindowRules(AdmissionRules):
    """Base class of the rules for released windows."""

    released: ClassVar[str]  # name of a release in errors

    def __init__(self, settings: WindowSettings, mechanisms: Mapping[str, Any]) -> None:
        super().__init__(mechanisms, (settings.dimension,))
        self._settings: Any = settings

    def _mechanism(self, level: str) -> Any:
        mechanism = self.mechanisms.get(level)
        if mechanism is None:
            raise RejectedError("level", f"level {level!r} is not one of the task's")
        return mechanism

    def _check_size(self, integers: Integers, records: int, largest: int = LARGEST_WINDOW) -> None:
        """Raise RejectedError if a payload has a different size, or more records than a window."""
        (size,) = self.lengths
        if integers.size != size:
            raise RejectedError("dimension", f"{integers.size} integers, but a {self.released} has {size}")
        window = self._settings.window
        most = min(largest, LARGEST_WINDOW if window is None else window)
        if records > most:
            raise RejectedError("magnitude", f"{records} records, but a window has at most {most}")

    def _check_integers(self, integers: Integers, magnitude: int) -> None:
        if np.max(np.abs(integers)) > magnitude:
            raise RejectedError("magnitude", f"an integer beyond {magnitude}")


class GramRules(WindowRules):
    """Admit Gram matrices that honest records and noise can give."""

    kind = "gram"
    released = "Gram matrix"

    def check_payload(self, release: GramRelease) -> None:
        """Raise RejectedError for a Gram matrix that no honest organisation sends.

        No entry exceeds n times the product of its columns' bounds, the trace of X'X is at most n C_X^2, and no
        eigenvalue is negative, each up to 12 standard deviations of the noise (and the least one up to its radius).
        """
        mechanism, integers = self._mechanism(release.level), release.integers
        self._check_size(integers, release.records, mechanism.largest_window)
        self._check_integers(integers, mechanism.magnitude)
        check_gram(mechanism.decode(integers), release.records, mechanism, self._settings.largest)


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


class NewtonRules(WindowRules):
    """Admit Newton steps that honest records and noise can give."""

    kind = "newton"
    released = "Newton step"

    def check_payload(self, release: NewtonRelease) -> None:
        """Raise RejectedError for a dishonest Newton step, as `GramRules` do, or for a coefficient beyond `MOST`."""
        mechanism, integers = self._mechanism(release.level), release.integers
        self._check_size(integers, release.records, mechanism.largest_window)
        if len(release.model) != self._settings.features:
            raise RejectedError(
                "dimension", f"a model of {len(release.model)} coefficients, the task's has {self._settings.features}"
            )
        if max(map(abs, release.model)) > MOST:
            raise RejectedError("magnitude", f"a coefficient of the model beyond {MOST:g}")
        self._check_integers(integers, mechanism.magnitude)
        first, step = mechanism.decode(integers)
        own, others = mechanism.parts(release.records)
        check_gram(first, own, mechanism.start, self._settings.largest)
        # The logistic weight is at most 1/4.
        check_gram(step, others, mechanism.step, self._settings.largest / 4.0)


class SketchRules(WindowRules):
    """Admit sketches that honest records and noise can give."""

    kind = "sketch"
    released = "sketch"

    def check_payload(self, release: SketchRelease) -> None:
        """Raise RejectedError for a sketch that no honest organisation sends.

        A column's mean square exceeds ``(n b^2 + v) (1 + 2 sqrt(t/k) + 2 t/k)``, b the bound on its entries, or falls
        below ``v (1 - 2 sqrt(t/k))``, with probability below ``e^-t`` for any records (Laurent and Massart 2000).
        """
        settings, mechanism, integers = self._settings, self._mechanism(release.level), release.integers
        if release.rows != settings.rows:
            raise RejectedError("dimension", f"a sketch of {release.rows} rows, but the task's have {settings.rows}")
        self._check_size(integers, release.records)
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
        settings = self._settings
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
