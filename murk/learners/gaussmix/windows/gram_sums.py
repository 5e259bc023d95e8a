"""The running sums of a learner of Gram matrices: O(d^2) numbers, merged by addition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from murk.learners.gaussmix.windows.sums import Matrix, WindowSums

SIGNAL = 0.1
"""A person's residual times a feature, mean square, over C_X^2 C_Y^2, at which weights balance noise and sampling."""


@dataclass
class GramSums(WindowSums):
    """What is kept of the Gram matrices learned so far.

    With ``M_s`` the noisy matrix of window s, ``n_s`` its records, ``v_s`` the variance of the noise on a diagonal
    entry of its X'X (half of that off the diagonal) and ``w_s`` its weight; ``moment`` is ``sum w M``:

    Attributes
    ----------
    noise
        ``sum w^2 v``.
    """

    noise: float = 0.0

    scalars: ClassVar[tuple[str, ...]] = ("people", "noise", "sampled")
    counts: ClassVar[tuple[str, ...]] = ("releases", "records")

    def add(self, moment: Matrix, *, records: int, noise: float, weight: float) -> None:
        """Add one window: its ``M``, n, v and w."""
        self._counted(moment, records, weight)
        self.noise += weight * weight * noise


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
