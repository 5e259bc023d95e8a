"""The running sums of a learner of Gram matrices: O(d^2) numbers, merged by addition."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

SCALARS = ("people", "noise", "sampled")

SIGNAL = 0.1
"""A person's residual times a feature, mean square, over C_X^2 C_Y^2, at which weights balance noise and sampling."""


@dataclass
class GramSums:
    """What is kept of the Gram matrices learned so far.

    With ``M_s`` the noisy matrix of window s, ``n_s`` its records, ``v_s`` the variance of the noise on a diagonal
    entry of its X'X (half of that off the diagonal) and ``w_s`` its weight:

    Attributes
    ----------
    columns
        d: features, the constant and the target.
    moment
        ``sum w M``, ``(d, d)``.
    people, noise, sampled
        ``sum w n``, ``sum w^2 v``, ``sum w^2 n``.
    records, releases
        Totals of n, and of windows.
    """

    columns: int
    moment: Matrix = field(init=False)
    people: float = 0.0
    noise: float = 0.0
    sampled: float = 0.0
    records: int = 0
    releases: int = 0

    def __post_init__(self) -> None:
        self.moment = np.zeros((self.columns, self.columns))

    def add(self, moment: Matrix, *, records: int, noise: float, weight: float) -> None:
        """Add one window: its ``M``, n, v and w."""
        self.moment += weight * moment
        self.people += weight * records
        self.noise += weight * weight * noise
        self.sampled += weight * weight * records
        self.records += records
        self.releases += 1

    def merged(self, *others: GramSums) -> GramSums:
        """The sums of all the windows of these and ``others``."""
        total = GramSums(self.columns)
        for each in (self, *others):
            total.moment += each.moment
            for name in (*SCALARS, "records", "releases"):
                setattr(total, name, getattr(total, name) + getattr(each, name))
        return total


def precision(*, records: int, noise: float, square: float) -> float:
    """Weight of a window by public figures: its people's share of the variance of what it says of them.

    ``1 / (1 + v / (n SIGNAL C_X^2))``: a window counts for its people where they are many, and for less where noise
    drowns them.

    Examples
    --------
    >>> precision(records=100, noise=0.0, square=7.0), precision(records=0, noise=1.0, square=7.0)
    (1.0, 0.0)
    """
    return 1.0 / (1.0 + noise / (records * SIGNAL * square)) if records else 0.0
