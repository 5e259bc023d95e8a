"""What the running sums over sketches and over Gram matrices share: O(d^2) numbers, merged by addition.

The running sums of a learner of Gram matrices: O(d^2) numbers, merged by addition.

The running sums of a learner of Newton steps: O(d^2) numbers, merged by addition.

The running sums of a learner of sketches: O(d^2) numbers, merged by addition.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from murk._jit import jit

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


def gram_precision(*, records: int, noise: float, square: float) -> float:
    """Weight of a window by public figures: its people's share of the variance of what it says of them.

    ``1 / (1 + v / (n SIGNAL C_X^2))``: a window counts for its people where they are many, and for less where noise
    drowns them.

    Examples
    --------
    >>> gram_precision(records=100, noise=0.0, square=7.0), gram_precision(records=0, noise=1.0, square=7.0)
    (1.0, 0.0)
    """
    return 1.0 / (1.0 + noise / (records * SIGNAL * square)) if records else 0.0


Vector = NDArray[np.float64]


@dataclass
class NewtonSums(WindowSums):
    """What is kept of the windows learned so far: of their first parts what `GramSums` keeps, and of their steps.

    With ``B`` the noisy matrix of a window's step, ``(L, b; b', r)``, s the model it was taken at, n the records in it,
    v the variance of the noise on a diagonal entry of its L and w its weight:

    Attributes
    ----------
    noise
        ``sum w^2 v`` of the first parts.
    step
        ``sum w S B S'``, ``(d + 1, d + 1)``, S the identity over a last row ``(s', 0)``: L, b and r, and ``L s``,
        ``s'b`` and ``s'L s``, from which steps of different models are one regression.
    step_noise
        ``sum w^2 v (s, 1) (s, 1)'``, ``(d, d)``.
    low, high
        The least and the largest coefficients of the models, ``(p,)``.
    stepped, step_sampled
        ``sum w n``, ``sum w^2 n``.
    """

    noise: float = 0.0
    stepped: float = 0.0
    step_sampled: float = 0.0
    step: Matrix = field(init=False)
    step_noise: Matrix = field(init=False)
    low: Vector = field(init=False)
    high: Vector = field(init=False)

    scalars: ClassVar[tuple[str, ...]] = ("people", "noise", "sampled", "stepped", "step_sampled")

    def __post_init__(self) -> None:
        super().__post_init__()
        d = self.columns
        self.step, self.step_noise = np.zeros((d + 1, d + 1)), np.zeros((d, d))
        self.low, self.high = np.zeros(d - 1), np.zeros(d - 1)

    def arrays(self) -> dict[str, Matrix]:
        """The sums that are arrays, and the ends of the models."""
        more = {"step": self.step, "step_noise": self.step_noise, "low": self.low, "high": self.high}
        return super().arrays() | more

    def merged(self, *others: Self) -> Self:
        """The sums of all the windows of these and ``others``, and the ends of all their models."""
        total, known = super().merged(*others), [each for each in (self, *others) if each.stepped]
        for name, least in (("low", np.min), ("high", np.max)):
            ends = [getattr(each, name) for each in known]
            getattr(total, name)[...] = least(ends, axis=0) if ends else 0.0
        return total

    def add(
        self, first: Matrix, step: Matrix, *, model: Vector, records: tuple[int, int], noise: tuple[float, float],
        weights: tuple[float, float],
    ) -> None:  # fmt: skip
        """Add one window: its ``A`` and ``B``, s, and of both parts n, v and w."""
        self._counted(first, records[0], weights[0])
        self.noise += weights[0] ** 2 * noise[0]
        n, v, w = records[1], noise[1], weights[1]
        self.records += n
        if not n:
            return
        d = self.columns
        put, at = np.vstack([np.eye(d), np.append(model, 0.0)]), np.append(model, 1.0)
        self.low[...] = np.minimum(self.low, model) if self.stepped else model
        self.high[...] = np.maximum(self.high, model) if self.stepped else model
        self.step += w * (put @ step @ put.T)
        self.step_noise += w * w * v * np.outer(at, at)
        self.stepped += w * n
        self.step_sampled += w * w * n

    @property
    def first(self) -> GramSums:
        """The sums of the first parts alone."""
        found = GramSums(self.columns)
        found.moment, found.people, found.sampled, found.noise = self.moment, self.people, self.sampled, self.noise
        found.releases, found.records = self.releases, self.records
        return found


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


def sketch_precision(*, rows: int, records: int, noise: float, unit: float) -> float:
    """Weight of a sketch by public figures: the inverse of the variance of what it says of one person's moment.

    ``1 / (1 + n (1 + t)^2 / k)`` with ``t = v / (n m)``: the noise against a person's mean square m in a coordinate.
    A sketch counts for its people while they are few, and for its k rows when they are many, whatever it declares.

    Examples
    --------
    >>> sketch_precision(rows=100, records=100, noise=0.0, unit=1.0)
    0.5
    >>> sketch_precision(rows=100, records=10**12, noise=0.0, unit=1.0) * 10**12 <= 100
    True
    """
    if records == 0:
        return 0.0
    ratio = noise / (records * unit)
    return 1.0 / (1.0 + records * (1.0 + ratio) ** 2 / rows)
