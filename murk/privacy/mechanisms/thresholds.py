"""Randomized answers to whether a number exceeds a public threshold, which each device draws at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Floats, Integers
from murk._internal.wiping import copied, empty, track, wiped
from murk.errors import UserError
from murk.privacy.mechanisms.base import Wrapped
from murk.privacy.mechanisms.lattice import PayloadBound
from murk.privacy.mechanisms.selection import SubsetSelection
from murk.privacy.mechanisms.simplex import SimplexGaussian

if TYPE_CHECKING:
    from murk.privacy.noise import NoiseSource

_ERROR_CODE = "MURK-PRIVACY-001"

THRESHOLDS: Final = 64
"""Number of thresholds, at j / 64 of the range for j from 0."""
_SHIFT: Final = 58  # right shift of a 64-bit word that leaves its first six bits


@dataclass(frozen=True)
class ThresholdMechanism(Wrapped):
    """Release one of 64 thresholds, drawn evenly, and a randomized answer to whether a number exceeds it.

    The threshold does not depend on the number, so the guarantee is that of the answer. The first integer of a release
    is the threshold's index, the others are the answer. Its categories are a number at or below the threshold, a number
    above it and, if there are three, a missing number.

    Parameters
    ----------
    noise
        Mechanism of the answer, of two or three categories.

    Examples
    --------
    >>> from murk.privacy import PureDP
    >>> asked = ThresholdMechanism(SubsetSelection.calibrate(PureDP(1.0), categories=3))
    >>> asked.dimension, asked.guarantee
    (4, PureDP(epsilon=1.0))
    """

    noise: SubsetSelection | SimplexGaussian  # type: ignore[assignment]

    @property
    def dimension(self) -> int:
        """Number of integers in a release."""
        return 1 + self.noise.dimension

    @property
    def magnitude(self) -> int:
        """Bound on each integer of an honest payload."""
        return max(THRESHOLDS - 1, self.noise.magnitude)

    @property
    def payload_bound(self) -> PayloadBound:
        """Bound on the norm of an honest answer."""
        return self.noise.payload_bound.shifted(1)

    def categories(self, places: Floats, thresholds: Integers) -> Floats:
        """Return the true answers' categories (m,) for positions (m,), between 0 and 1, or 2 for a missing number."""
        above = track(places > track(thresholds / THRESHOLDS)).astype(np.float64)
        track(above)[track(places > 1.0)] = 2.0
        return above

    def holds(self, payload: Integers) -> bool:
        """Return whether every payload (m, d) has one of the thresholds and a possible answer."""
        rows = np.asarray(payload)
        known = (rows[:, 0] >= 0) & (rows[:, 0] < THRESHOLDS)
        return bool(known.all()) and self.noise.holds(rows[:, 1:])

    @wiped
    def randomize(self, vectors: npt.ArrayLike, noise: NoiseSource, records: npt.ArrayLike) -> Integers:
        """Randomize m positions (m, 1), between 0 and 1, or 2 for a missing number, into payloads (m, d)."""
        from murk.privacy.noise import Purpose

        rows, indices = copied(vectors), np.asarray(records, dtype=np.int64)
        if rows.ndim != 2 or rows.shape[1] != 1 or indices.shape != (len(rows),):
            raise UserError(f"thresholds take an array of shape (m, 1) and as many record indices, got {rows.shape}")
        drawn = noise.words(indices, 1, Purpose.QUERY)[:, 0] >> np.uint64(_SHIFT)
        thresholds = drawn.astype(np.int64)
        answers = empty((len(rows), 1))
        answers[:, 0] = track(self.categories(rows[:, 0], thresholds))
        return np.column_stack([thresholds, self.noise.randomize(answers, noise, indices)])

    def decode(self, payload: npt.ArrayLike) -> Floats:
        """Return unbiased estimates (m, k) of the answers' indicators from payloads (m, d)."""
        return self.noise.decode(np.asarray(payload)[:, 1:])

    def to_dict(self) -> dict[str, Any]:
        """Return the public and derived parameters as plain data."""
        return {**self.noise.to_dict(), "thresholds": THRESHOLDS}
