"""What the running sums over sketches and over Gram matrices share: O(d^2) numbers, merged by addition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


@dataclass
class WindowSums:
    """Sums over released windows.

    Attributes
    ----------
    columns
        d: features, the constant and the target.
    moment
        ``sum w M``, ``(d, d)``: what was released of second moments, by weight.
    people, sampled
        ``sum w n``, ``sum w^2 n``, n the records of a window.
    records, releases
        Totals of n, and of windows.
    """

    columns: int
    moment: Matrix = field(init=False)
    people: float = 0.0
    sampled: float = 0.0
    records: int = 0
    releases: int = 0

    scalars: ClassVar[tuple[str, ...]]
    """Names of the sums that are floats, in the order in which states have them."""
    counts: ClassVar[tuple[str, ...]] = ("records", "releases")
    """Names of those that are whole numbers, likewise."""

    def __post_init__(self) -> None:
        self.moment = np.zeros((self.columns, self.columns))

    def merged(self, *others: Self) -> Self:
        """The sums of all the windows of these and ``others``."""
        total = type(self)(self.columns)
        for each in (self, *others):
            for name, array in each.arrays().items():
                getattr(total, name)[...] += array
            for name in (*self.scalars, *self.counts):
                setattr(total, name, getattr(total, name) + getattr(each, name))
        return total

    def arrays(self) -> dict[str, Matrix]:
        """The sums that are arrays, by the names that states have for them."""
        return {"moment": self.moment}

    def counted(self, square: float) -> float:
        """How many of the people a fit is of, by their constants' sum of squares as it was released.

        Records without a target are rows of zeros: they are among the people, and say nothing.
        """
        return min(max(square, float(self.columns)), max(self.people, 1.0))

    def _counted(self, moment: Matrix, records: int, weight: float) -> None:
        """Add what every window adds."""
        self.moment += weight * moment
        self.people += weight * records
        self.sampled += weight * weight * records
        self.records += records
        self.releases += 1
