"""The running sums of a learner of sketches: O(d^2) numbers, merged by addition."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from murk._jit import jit

Matrix = NDArray[np.float64]

SCALARS = ("noise", "people", "square", "cross", "floor", "sampled")


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
class Sums:
    """What is kept of the sketches learned so far.

    With ``S_s = M_s'M_s / k_s`` the second moment of sketch s, ``n_s`` its records, ``v_s`` the variance of its noise
    and ``w_s`` its weight:

    Attributes
    ----------
    columns
        d: features, the constant and the target.
    moment
        ``sum w S``, ``(d, d)``.
    noise
        ``sum w v``: what the noise adds to each diagonal entry of ``moment``.
    people
        ``sum w n``.
    square, cross, floor
        ``sum w^2 n^2 / k``, ``sum w^2 n v / k``, ``sum w^2 v^2 / k``: what the variance of the estimate needs.
    sampled
        ``sum w^2 n``.
    rows, records, sketches
        Totals of k, of n, and of sketches.
    """

    columns: int
    moment: Matrix = field(init=False)
    noise: float = 0.0
    people: float = 0.0
    square: float = 0.0
    cross: float = 0.0
    floor: float = 0.0
    sampled: float = 0.0
    rows: int = 0
    records: int = 0
    sketches: int = 0

    def __post_init__(self) -> None:
        self.moment = np.zeros((self.columns, self.columns))

    def add(self, moment: Matrix, *, rows: int, records: int, noise: float, weight: float) -> None:
        """Add one sketch: its ``S``, k, n, v and w."""
        self.moment += weight * moment
        self.noise += weight * noise
        self.people += weight * records
        self.square += weight * weight * records * records / rows
        self.cross += weight * weight * records * noise / rows
        self.floor += weight * weight * noise * noise / rows
        self.sampled += weight * weight * records
        self.rows += rows
        self.records += records
        self.sketches += 1

    def merged(self, *others: Sums) -> Sums:
        """The sums of all the sketches of these and ``others``."""
        total = Sums(self.columns)
        for each in (self, *others):
            total.moment += each.moment
            for name in (*SCALARS, "rows", "records", "sketches"):
                setattr(total, name, getattr(total, name) + getattr(each, name))
        return total


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
