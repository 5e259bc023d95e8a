"""Release the columns that the receiver knows as they are, in one number, and the private values randomized."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Floats, Integers
from murk._internal.wiping import track, wiped
from murk.errors import UserError
from murk.privacy.mechanisms.base import Wrapped
from murk.privacy.mechanisms.lattice import PayloadBound

if TYPE_CHECKING:
    from murk.privacy.noise import NoiseSource

_ERROR_CODE = "MURK-PRIVACY-001"


@dataclass(frozen=True)
class KnownMechanism(Wrapped):
    """Release the number of a record's cell as it is, and its target, or products of private values, randomized.

    A cell is a combination of values of the known columns. The guarantee covers the private values: it compares two
    records of the same cell. Records of different cells can be told apart by anybody. The first integer of a release is
    the cell.

    Parameters
    ----------
    noise
        Mechanism of the target, or of the products of the target and private features.
    cells
        Number of cells.

    Examples
    --------
    >>> from murk.privacy import PureDP, SubsetSelection
    >>> known = KnownMechanism(SubsetSelection.calibrate(PureDP(1.0), categories=2), cells=6)
    >>> known.dimension, known.guarantee, known.holds(np.array([[5, 0, 1]])), known.holds(np.array([[6, 0, 1]]))
    (3, PureDP(epsilon=1.0), True, False)
    """

    noise: Any  # mechanism of the target alone, or of matrices of private features and target
    cells: int

    @property
    def dimension(self) -> int:
        """Number of integers in a release."""
        return 1 + int(self.noise.dimension)

    @property
    def magnitude(self) -> int:
        """Bound on each integer of an honest payload."""
        return max(self.cells - 1, int(self.noise.magnitude))

    @property
    def payload_bound(self) -> PayloadBound:
        """Bound on the norm of an honest release's private integers."""
        bound: PayloadBound = self.noise.payload_bound
        return bound.shifted(1)

    def holds(self, payload: Integers) -> bool:
        """Return whether every payload (m, d) has a cell of the task and possible private integers."""
        rows = np.asarray(payload)
        is_cell = (rows[:, 0] >= 0) & (rows[:, 0] < self.cells)
        holds = getattr(self.noise, "holds", self.noise.payload_bound.holds_all)
        return bool(is_cell.all() and holds(rows[:, 1:]))

    @wiped
    def randomize(self, vectors: npt.ArrayLike, noise: NoiseSource, records: npt.ArrayLike) -> Integers:
        """Randomize m cells, each followed by the private mechanism's input (m, 1 + k), into payloads (m, d)."""
        rows = np.asarray(vectors, dtype=np.float64)
        if rows.ndim != 2 or rows.shape[1] < 2:
            raise UserError(f"known cells and private values need an array of shape (m, 1 + k), got {rows.shape}")
        cells = track(np.clip(np.nan_to_num(rows[:, 0]), 0.0, self.cells - 1.0).astype(np.int64))
        return np.column_stack([cells, track(self.noise.randomize(rows[:, 1:], noise, records))])

    def decode(self, payload: npt.ArrayLike) -> Floats:
        """Return unbiased estimates of the private numbers from payloads (m, d)."""
        return np.asarray(self.noise.decode(np.asarray(payload)[:, 1:]))

    def to_dict(self) -> dict[str, Any]:
        """Return the public and derived parameters as plain data."""
        return {**self.noise.to_dict(), "cells": self.cells}
