"""The running sums of a learner of sketches: O(d^2) numbers, merged by addition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from murk._jit import jit
from murk.learners.gaussmix.windows.sums import Matrix, WindowSums


@jit
def gram(payload: NDArray[np.int64], unit: float, out: Matrix) -> None:
    """``out += unit^2 M'M`` for the rows of an integer sketch ``(k, d)``, in a fixed order: bits must repeat."""
    rows, columns = payload.shape
    for r in range(rows):
        for i in range(columns):
            left = payload[r, i] * unit
            for j in range(i, columns):
                out[i, j] += left * (payload[r, j] * unit)
    for i in range(columns):
        for j in range(i):
            out[i, j] = out[j, i]


@dataclass
class SketchSums(WindowSums):
    """What is kept of the sketches learned so far.

    With ``S_s = M_s'M_s / k_s`` the second moment of sketch s, ``n_s`` its records, ``v_s`` the variance of its noise
    and ``w_s`` its weight; ``moment`` is ``sum w S``:

    Attributes
    ----------
    noise
        ``sum w v``: what the noise adds to each diagonal entry of ``moment``.
    square, cross, floor
        ``sum w^2 n^2 / k``, ``sum w^2 n v / k``, ``sum w^2 v^2 / k``: what the variance of the estimate needs.
    rows
        Total of k.
    """

    noise: float = 0.0
    square: float = 0.0
    cross: float = 0.0
    floor: float = 0.0
    rows: int = 0

    scalars: ClassVar[tuple[str, ...]] = ("noise", "people", "square", "cross", "floor", "sampled")
    counts: ClassVar[tuple[str, ...]] = ("releases", "rows", "records")

    def add(self, moment: Matrix, *, rows: int, records: int, noise: float, weight: float) -> None:
        """Add one sketch: its ``S``, k, n, v and w."""
        self._counted(moment, records, weight)
        self.noise += weight * noise
        self.square += weight * weight * records * records / rows
        self.cross += weight * weight * records * noise / rows
        self.floor += weight * weight * noise * noise / rows
        self.rows += rows


def precision(*, rows: int, records: int, noise: float, unit: float) -> float:
    """Weight of a sketch by public figures: the inverse of the variance of what it says of one person's moment.

    ``1 / (1 + n (1 + t)^2 / k)`` with ``t = v / (n m)``: the noise against a person's mean square m in a coordinate.
    A sketch counts for its people while they are few, and for its k rows when they are many, whatever it declares.

    Examples
    --------
    >>> precision(rows=100, records=100, noise=0.0, unit=1.0)
    0.5
    >>> precision(rows=100, records=10**12, noise=0.0, unit=1.0) * 10**12 <= 100
    True
    """
    if records == 0:
        return 0.0
    ratio = noise / (records * unit)
    return 1.0 / (1.0 + records * (1.0 + ratio) ** 2 / rows)
