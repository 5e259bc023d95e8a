"""Running sums over released windows: O(d^2) numbers, merged by addition."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Self

import numpy as np

from murk._internal.arrays import Integers, Matrix, Vector
from murk._internal.jit import jit

SIGNAL = 0.1
"""Mean square of a person's residual times feature, over C_X^2 C_Y^2, for which weights balance noise and sampling."""


@dataclass
class WindowSums:
    """Sums over released windows, where w is the weight and n the number of records of a window."""

    columns: int  # d: features, the constant and the target
    moment: Matrix = field(init=False)  # sum w M, (d, d), M the released second moments
    people: float = 0.0  # sum w n
    sampled: float = 0.0  # sum w^2 n
    records: int = 0  # sum n
    releases: int = 0  # number of windows

    # Names of the sums that are floats or counts, in the order of states.
    scalars: ClassVar[tuple[str, ...]]
    counts: ClassVar[tuple[str, ...]] = ("records", "releases")

    def __post_init__(self) -> None:
        self.moment = np.zeros((self.columns, self.columns))

    def merged(self, *others: Self) -> Self:
        """Return the sums over all windows of these and ``others``."""
        total = type(self)(self.columns)
        for each in (self, *others):
            for name, array in each.arrays().items():
                getattr(total, name)[...] += array
            for name in (*self.scalars, *self.counts):
                setattr(total, name, getattr(total, name) + getattr(each, name))
        return total

    def arrays(self) -> dict[str, Matrix]:
        """Return the sums that are arrays, by their names in states."""
        return {"moment": self.moment}

    def counted(self, square: float) -> float:
        """Return the number of people whom a fit uses, by the squares of constants, which are 0 without a target."""
        return min(max(square, float(self.columns)), max(self.people, 1.0))

    def _add_common(self, moment: Matrix, records: int, weight: float) -> None:
        """Add the sums that all kinds of windows have."""
        self.moment += weight * moment
        self.people += weight * records
        self.sampled += weight * weight * records
        self.records += records
        self.releases += 1


@dataclass
class GramSums(WindowSums):
    """Sums over Gram matrices ``M`` of n records, with weight w, and noise variance v on the diagonal of their X'X."""

    noise: float = 0.0  # sum w^2 v

    scalars = ("people", "noise", "sampled")
    counts = ("releases", "records")

    def add(self, moment: Matrix, *, records: int, noise: float, weight: float) -> None:
        """Add one window: its ``M``, n, v and w."""
        self._add_common(moment, records, weight)
        self.noise += weight * weight * noise


def gram_precision(*, records: int, noise: float, square: float) -> float:
    """Return a window's weight, the share of variance due to its people: ``1 / (1 + v / (n SIGNAL C_X^2))``."""
    return 1.0 / (1.0 + noise / (records * SIGNAL * square)) if records else 0.0


@dataclass
class NewtonSums(WindowSums):
    """Sums over Newton steps: those of `GramSums` for the first parts, and sums over the steps.

    ``B = (L, b; b', r)`` is a step's noisy matrix at the model s, v the noise variance on L's diagonal. With S the
    identity above a last row ``(s', 0)``, ``S B S'`` also has ``L s``, ``s'b`` and ``s'L s``: all steps are one
    regression.
    """

    noise: float = 0.0  # sum w^2 v of the first parts
    stepped: float = 0.0  # sum w n
    step_sampled: float = 0.0  # sum w^2 n
    step: Matrix = field(init=False)  # sum w S B S', (d + 1, d + 1)
    step_noise: Matrix = field(init=False)  # sum w^2 v (s, 1) (s, 1)', (d, d)
    low: Vector = field(init=False)  # least coefficients of the models, (p,)
    high: Vector = field(init=False)  # largest coefficients of the models, (p,)

    scalars = ("people", "noise", "sampled", "stepped", "step_sampled")

    def __post_init__(self) -> None:
        super().__post_init__()
        d = self.columns
        self.step, self.step_noise = np.zeros((d + 1, d + 1)), np.zeros((d, d))
        self.low, self.high = np.zeros(d - 1), np.zeros(d - 1)

    def arrays(self) -> dict[str, Matrix]:
        """Return the sums that are arrays, and the extremes of the models."""
        more = {"step": self.step, "step_noise": self.step_noise, "low": self.low, "high": self.high}
        return super().arrays() | more

    def merged(self, *others: Self) -> Self:
        """Return the sums over all windows, and the extremes of all their models."""
        total, with_steps = super().merged(*others), [each for each in (self, *others) if each.stepped]
        for name, extreme in (("low", np.min), ("high", np.max)):
            ends = [getattr(each, name) for each in with_steps]
            getattr(total, name)[...] = extreme(ends, axis=0) if ends else 0.0
        return total

    def add(
        self,
        first: Matrix,
        step: Matrix,
        *,
        model: Vector,
        records: tuple[int, int],
        noise: tuple[float, float],
        weights: tuple[float, float],
    ) -> None:
        """Add one window: its ``A`` and ``B``, s, and n, v and w of both parts."""
        self._add_common(first, records[0], weights[0])
        self.noise += weights[0] ** 2 * noise[0]
        n, v, w = records[1], noise[1], weights[1]
        self.records += n
        if not n:
            return
        d = self.columns
        embedding, extended_model = np.vstack([np.eye(d), np.append(model, 0.0)]), np.append(model, 1.0)
        self.low[...] = np.minimum(self.low, model) if self.stepped else model
        self.high[...] = np.maximum(self.high, model) if self.stepped else model
        self.step += w * (embedding @ step @ embedding.T)
        self.step_noise += w * w * v * np.outer(extended_model, extended_model)
        self.stepped += w * n
        self.step_sampled += w * w * n

    @property
    def first(self) -> GramSums:
        """The sums of the first parts alone."""
        sums = GramSums(self.columns)
        for name in ("moment", *GramSums.scalars, *GramSums.counts):
            setattr(sums, name, getattr(self, name))
        return sums


@jit
def gram(payload: Integers, unit: float, out: Matrix) -> None:
    """Add ``unit^2 M'M`` for the rows of an integer sketch ``(k, d)`` to ``out``, always in the same order."""
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
    """Sums over sketches: second moments ``M`` of k rows from n records, with noise variance v and weight w."""

    noise: float = 0.0  # sum w v, the noise's part of each diagonal entry of moment
    square: float = 0.0  # sum w^2 n^2 / k
    cross: float = 0.0  # sum w^2 n v / k
    floor: float = 0.0  # sum w^2 v^2 / k
    rows: int = 0  # sum k

    scalars = ("noise", "people", "square", "cross", "floor", "sampled")
    counts = ("releases", "rows", "records")

    def add(self, moment: Matrix, *, rows: int, records: int, noise: float, weight: float) -> None:
        """Add one sketch: its ``M``, k, n, v and w."""
        self._add_common(moment, records, weight)
        self.noise += weight * noise
        self.square += weight * weight * records * records / rows
        self.cross += weight * weight * records * noise / rows
        self.floor += weight * weight * noise * noise / rows
        self.rows += rows


def sketch_precision(*, rows: int, records: int, noise: float, unit: float) -> float:
    """Return a sketch's weight by public numbers, ``1 / (1 + n (1 + t)^2 / k)`` with ``t = v / (n m)``.

    Times n, the weight is proportional to the inverse variance of the sketch's estimate of one record's mean square m;
    it is at most k, as the sampling of n records and the k random rows both add to that variance.
    """
    if records == 0:
        return 0.0
    ratio = noise / (records * unit)
    return 1.0 / (1.0 + records * (1.0 + ratio) ** 2 / rows)
