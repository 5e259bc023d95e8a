"""A window's Gram matrix in the making: one pass over an organisation's rows in integers, and a single release.

What is kept is (p + 1)^2 integers, whatever the number of rows, in memory only; they are wiped once the matrix has
been released.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from murk._jit import jit
from murk._scratch import empty, numbers_were_used, overwrite_large_numbers, wiped, wiping
from murk._turns import in_turn
from murk.privacy.gaussmix.gram import GramMechanism
from murk.privacy.gaussmix.kernels import bounded
from murk.privacy.gaussmix.window import WindowAccumulator
from murk.privacy.noise import NoiseSource

__all__ = ["Gram", "GramAccumulator"]

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# A product of two coordinates of a row is below 2^43: so many of them stay below 2^61.
_ROWS = 2**18
_LOW = 40
_MASK = np.int64(2**_LOW - 1)


@dataclass(frozen=True, eq=False)
class Gram:
    """A released Gram matrix: public, all of it.

    Parameters
    ----------
    integers
        Shape (d (d + 1) / 2,), int64: the upper triangle, row after row; `GramMechanism.decode` gives them units.
    records
        n, the rows of the window (public: neighbours have the same number).
    simulated
        Whether the noise was simulated, so that it protects nobody.
    """

    integers: Integers = field(repr=False)
    records: int
    simulated: bool


class GramAccumulator(WindowAccumulator):
    """Adds up the outer products of one window's rows, in one pass and O(p^2) memory, in integers throughout.

    So the sum does not depend on how rows came in blocks, or in which order, and nothing is lost in it.

    Parameters
    ----------
    mechanism
        What is released, and of which columns.
    noise
        Where all randomness comes from; None: `SecureNoise`.
    window
        Number of the window, from 0; it matters to simulated noise only, which it tells apart.
    skip
        Numbers of the window's noise to pass over: another matrix of the same window has them.

    Raises
    ------
    UserError
        If the window is not a number that fits.

    Examples
    --------
    >>> from murk.privacy import GaussianDP
    >>> from murk.privacy.noise import SimulatedNoise
    >>> mechanism = GramMechanism.calibrate(GaussianDP(1.0), columns=3, feature_bound=1.5, target_bound=1.0)
    >>> window = GramAccumulator(mechanism, SimulatedNoise(seed=1))
    >>> window.add_block([[0.5, 1.0, -0.2], [-0.5, 1.0, 0.3]])
    >>> gram = window.release()
    >>> gram.records, gram.integers.shape
    (2, (6,))
    """

    __slots__ = ("_high", "_inside", "_low", "_row", "_since", "_skip")

    mechanism: GramMechanism

    def __init__(
        self, mechanism: GramMechanism, noise: NoiseSource | None = None, window: int = 0, *, skip: int = 0
    ) -> None:
        super().__init__(mechanism, noise, window)
        self._skip = skip
        d = mechanism.columns
        self._high, self._low = np.zeros((d, d), dtype=np.int64), np.zeros((d, d), dtype=np.int64)
        self._inside, self._row = np.zeros((1, d)), np.zeros(d, dtype=np.int64)
        self._since = 0

    def _accumulate(self, block: Reals) -> None:
        mechanism, start = self.mechanism, 0
        bounds = mechanism.feature_bound, mechanism.target_bound
        while start < len(block):
            rows = block[start : start + _ROWS - self._since]
            add(
                rows, *bounds, mechanism.feature_step, mechanism.target_steps, mechanism.feature_square,
                self._inside, self._row, self._low,
            )  # fmt: skip
            self._since += len(rows)
            self._records += len(rows)
            start += len(rows)
            if self._since == _ROWS:
                self._carry_over()
        self._inside.fill(0.0)
        self._row.fill(0)

    def _carry_over(self) -> None:
        with wiping():
            self._high += np.right_shift(self._low, _LOW, out=empty(self._low.shape, np.int64))
        self._low &= _MASK
        self._since = 0

    @in_turn
    def release(self) -> Gram:
        """The noisy Gram matrix of all rows so far, once: whatever happens, the accumulator is wiped.

        Raises
        ------
        UserError
            If it was released before.
        """
        self._check()
        try:
            integers = self._noisy()
        finally:
            self._wipe()
        integers.setflags(write=False)
        return Gram(integers, self._records, self.simulated)

    @wiped
    def _noisy(self) -> Integers:
        noise = self._noise.gaussian([self.window], self._skip + self.mechanism.dimension)[0, self._skip :]
        return np.asarray(self._places() + noise)

    def _places(self) -> Integers:
        """Where the sums stand on the noise's lattice: each rounded to the nearest step, exactly."""
        own, other = self.mechanism.ratios
        places, at = empty(self.mechanism.dimension, np.int64), 0
        for i in range(self.mechanism.columns):
            for j in range(i, self.mechanism.columns):
                ratio = own if i == j else other
                total = (int(self._high[i, j]) << _LOW) + int(self._low[i, j])
                places[at] = (2 * total * ratio.numerator + ratio.denominator) // (2 * ratio.denominator)
                at += 1
        del total
        numbers_were_used()
        overwrite_large_numbers()
        return places

    def _secrets(self) -> Iterable[npt.NDArray[Any]]:
        return self._high, self._low, self._inside, self._row


@jit
def add(
    rows: Reals,
    feature_bound: float,
    target_bound: float,
    feature_step: float,
    target_steps: int,
    feature_square: int,
    inside: Reals,
    row: Integers,
    sums: Integers,
) -> None:
    """Add q q' of rows (m, d) to the upper triangle of ``sums`` (d, d), q a row on its grid.

    Parameters
    ----------
    feature_step, target_steps, feature_square
        Of a `GramMechanism`: no q has features of a larger squared norm, or a larger target.
    inside, row
        Room for a row: (1, d) reals, (d,) integers.
    """
    last = rows.shape[1] - 1
    for r in range(rows.shape[0]):
        bounded(rows, r, feature_bound, target_bound, inside, 0)
        square = np.int64(0)
        for c in range(last):
            row[c] = np.int64(np.rint(inside[0, c] / feature_step))
            square += row[c] * row[c]
        target = np.int64(np.rint(inside[0, last] / target_bound * target_steps))
        if abs(target) > target_steps:
            target = np.int64(math.copysign(target_steps, target))
        row[last] = target
        # No float comes to this; the guarantee does not rest on that.
        if square > feature_square:
            row[:] = 0
        for a in range(last + 1):
            if row[a] != 0:
                for b in range(a, last + 1):
                    sums[a, b] += row[a] * row[b]
