"""A window's sketch in the making: one pass over an organisation's rows, and a single release.

What is kept is k (p + 1) mixtures and (p + 1)^2 moments, whatever the number of rows; no row, and no k x n matrix,
is ever stored. All of it lives in memory only, and is wiped once the sketch has been released.

A window's Gram matrix in the making: one pass over an organisation's rows in integers, and a single release.

What is kept is (p + 1)^2 integers, whatever the number of rows, in memory only; they are wiped once the matrix has
been released.

A window's two Gram matrices in the making: the first is released as soon as it is full, the second at its model.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from murk._jit import jit
from murk._scratch import copied, empty, keep, numbers_were_used, overwrite_large_numbers, wiped, wiping
from murk._turns import in_turn
from murk.errors import MurkError
from murk.privacy.mechanisms.base import WIDTH
from murk.privacy.noise import NoiseSource, Purpose
from murk.privacy.sketches import kernels
from murk.privacy.sketches.gram import GramMechanism
from murk.privacy.sketches.kernels import bounded
from murk.privacy.sketches.mechanism import GaussMixMechanism
from murk.privacy.sketches.newton import EDGE, NewtonMechanism
from murk.privacy.sketches.normals import ROWS, Room
from murk.privacy.sketches.rounding import randomly_rounded
from murk.privacy.sketches.window import WindowAccumulator

__all__ = ["Gram", "GramAccumulator", "Model", "Newton", "NewtonAccumulator", "Sketch", "SketchAccumulator", "at_model"]


# The key of a window: 256 bits. In a simulation they begin the stream whose rest rounds.
_KEY_WORDS = 4
# Of the computed smallest eigenvalue, in units of C^2; half of `bounds.EIGENVALUE_SLACK`. Compensated sums of n
# terms err by 2^-52 n C^2, eigenvalues by a modest multiple of (p + 1) 2^-53 n C^2: n (p + 1) is at most 2^38.
_EIGENVALUE_ERROR = 2.0**-11


@dataclass(frozen=True, eq=False)
class Sketch:
    """A released sketch: public, all of it.

    Parameters
    ----------
    integers
        Shape (k, p + 1), int64; `GaussMixMechanism.decode` gives them their units.
    spread
        Standard deviation of the noise in units of C: a function of public settings and the noisy eigenvalue.
    records
        n, the rows of the window (public: neighbours have the same number).
    simulated
        Whether the randomness was simulated, so that the sketch protects nobody.
    """

    integers: npt.NDArray[np.int64] = field(repr=False)
    spread: float
    records: int
    simulated: bool

    @property
    def rows(self) -> int:
        """k, the number of sketch rows."""
        return int(self.integers.shape[0])


class SketchAccumulator(WindowAccumulator):
    """Mixes the rows of one window into a sketch, in one pass and O(k p + p^2) memory.

    Row i of the window is multiplied by k normals that only the window's key and i determine, so the sums do not
    depend, to the last bit, on how rows came in blocks. With `SecureNoise` the key is fresh from the operating system
    and known to nobody; with `SimulatedNoise` it is a function of the seed and the window, and a run repeats.

    An accumulator holds what nobody outside may see: it cannot be copied, pickled or used in a forked process, and it
    is wiped by `release` and by `wipe`, and when adding rows is interrupted. Threads take turns.

    Parameters
    ----------
    mechanism
        What is released.
    noise
        Where all randomness comes from; None: `SecureNoise`.
    window
        Number of the window, from 0; it matters to simulated noise only, which it tells apart.

    Raises
    ------
    UserError
        If the window is not a number that fits.

    Examples
    --------
    >>> from murk.privacy import ApproxDP
    >>> from murk.privacy.noise import SimulatedNoise
    >>> from murk.privacy.sketches import GaussMixMechanism
    >>> mechanism = GaussMixMechanism.calibrate(
    ...     ApproxDP(1.0, 1e-5), rows=50, columns=3, feature_bound=1.5, target_bound=1.0
    ... )
    >>> window = SketchAccumulator(mechanism, SimulatedNoise(seed=1))
    >>> window.add_block([[0.5, 1.0, -0.2], [-0.5, 1.0, 0.3]])
    >>> sketch = window.release()
    >>> sketch.records, sketch.integers.shape
    (2, (50, 3))
    """

    __slots__ = ("_carry", "_drawn", "_inside", "_key", "_mixtures", "_moments", "_room")

    mechanism: GaussMixMechanism

    def __init__(self, mechanism: GaussMixMechanism, noise: NoiseSource | None = None, window: int = 0) -> None:
        super().__init__(mechanism, noise, window)
        k, d = mechanism.rows, mechanism.columns
        words = self._noise.words([window], _KEY_WORDS, Purpose.COIN)[0]
        self._key = words.astype("<u8").view("<u4").astype(np.uint32)
        self._mixtures = np.zeros((d, k))
        self._moments, self._carry = np.zeros((d, d)), np.zeros((d, d))
        self._room = Room.for_entries(k)
        self._drawn, self._inside = np.zeros((ROWS, k)), np.zeros((ROWS, d))

    def _accumulate(self, block: npt.NDArray[np.float64]) -> None:
        room, mechanism = self._room, self.mechanism
        for start in range(0, len(block), room.rows):
            rows = block[start : start + room.rows]
            room.fill(self._key, self._records, len(rows))
            kernels.accumulate(
                rows,
                mechanism.feature_bound,
                mechanism.target_bound,
                self._key,
                self._records,
                self._mixtures,
                self._moments,
                self._carry,
                room.words,
                room.counter,
                room.spare,
                self._drawn,
                self._inside,
            )
            self._records += len(rows)
        self._inside.fill(0.0)

    @in_turn
    def release(self) -> Sketch:
        """The sketch of all rows so far, once: whatever happens, the accumulator is wiped.

        The smallest eigenvalue, in steps of eta / 2^20, and the mixtures, in steps of std C / 2^20, are made integers
        and get discrete Gaussian noise of width 2^20 (no eigenvalue with ``"mixing"``).

        Raises
        ------
        UserError
            If it was released before.
        MurkError
            If the eigenvalue cannot be computed; the window is lost.
        """
        self._check()
        try:
            return self._release()
        finally:
            self._wipe()

    @wiped
    def _release(self) -> Sketch:
        mechanism, size = self.mechanism, self.mechanism.dimension
        noise = self._noise.gaussian([self.window], 1 + size)[0]
        words = self._noise.words([self.window], _KEY_WORDS + size, Purpose.COIN)[0, _KEY_WORDS:]
        spread = mechanism.spread(self._noisy_eigenvalue(int(noise[0])))
        mixtures = copied(self._mixtures.T).ravel()
        mixtures /= mechanism.spacing(spread)
        integers = (randomly_rounded(mixtures, words) + noise[1:]).reshape(mechanism.rows, mechanism.columns)
        integers.setflags(write=False)
        return Sketch(integers, spread, self._records, self.simulated)

    def _noisy_eigenvalue(self, noise: int) -> float:
        """lambda of the mechanism before it is cut at 0, in units of C^2."""
        mechanism = self.mechanism
        if not mechanism.releases_eigenvalue:
            return 0.0
        half = np.subtract(self._moments, self._carry, out=empty(self._moments.shape))
        half /= mechanism.bound**2
        try:
            smallest = float(keep(np.linalg.eigvalsh(half, UPLO="U"))[0])
        except np.linalg.LinAlgError:
            raise MurkError("the smallest eigenvalue of the window could not be computed; the window is lost") from None
        finally:
            # LAPACK frees its copy of the matrix as it is: one of the same size is put in its place.
            np.linalg.eigvalsh(np.eye(len(half)), UPLO="U")
            numbers_were_used()
        step = mechanism.eta / WIDTH
        lattice = int(np.floor((smallest - _EIGENVALUE_ERROR) / step))
        return (lattice + noise) * step - mechanism.eta * mechanism.tau

    def _secrets(self) -> Iterable[npt.NDArray[Any]]:
        return self._key, self._mixtures, self._moments, self._carry, self._drawn, self._inside

    def _wipe(self) -> None:
        self._room.wipe()
        super()._wipe()


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


Model = Callable[[Gram], Reals]
"""From a released Gram matrix to a model's coefficients, (p,)."""

_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Newton:
    """Two released Gram matrices of a window, and the model that the second was taken at: public, all of it.

    Parameters
    ----------
    integers
        Shape (d (d + 1),), int64: A's upper triangle, row after row, then B's; `NewtonMechanism.decode` gives units.
    model
        s, shape (p,).
    records
        n, the rows of the window (public: neighbours have the same number).
    simulated
        Whether the noise was simulated, so that it protects nobody.
    """

    integers: Integers = field(repr=False)
    model: Reals
    records: int
    simulated: bool


class NewtonAccumulator(WindowAccumulator):
    """Adds up a window's first rows as they are, and all others as they look from the model that the first ones tell.

    Two `GramAccumulator`: once the first is full it is released into noise, at once, and wiped. The model is made of
    what was released, and of nothing else of the rows.

    Parameters
    ----------
    mechanism
        What is released, and of which columns.
    model
        Makes a model's coefficients of the first part's release.
    noise
        Where all randomness comes from; None: `SecureNoise`.
    window
        Number of the window, from 0; it matters to simulated noise only, which it tells apart.

    Raises
    ------
    UserError
        If the window is not a number that fits.

    Examples
    --------
    >>> from murk.privacy import GaussianDP
    >>> from murk.privacy.noise import SimulatedNoise
    >>> mechanism = NewtonMechanism.calibrate(GaussianDP(1.0), columns=3, feature_bound=1.5, first=1)
    >>> window = NewtonAccumulator(mechanism, lambda gram: np.zeros(2), SimulatedNoise(seed=1))
    >>> window.add_block([[0.5, 1.0, -1.0], [-0.5, 1.0, 1.0]])
    >>> made = window.release()
    >>> made.records, made.integers.shape, made.model.tolist()
    (2, (12,), [0.0, 0.0])
    """

    __slots__ = ("_inside", "_make", "_model", "_seen", "_start", "_started", "_step")

    mechanism: NewtonMechanism

    def __init__(
        self, mechanism: NewtonMechanism, model: Model, noise: NoiseSource | None = None, window: int = 0
    ) -> None:
        super().__init__(mechanism, noise, window)
        self._make = model
        self._start = GramAccumulator(mechanism.start, self._noise, window)
        # The first part has the noise's first numbers.
        self._step = GramAccumulator(mechanism.step, self._noise, window, skip=mechanism.start.dimension)
        self._started: Gram | None = None
        self._model = np.zeros(mechanism.columns - 1)
        self._inside, self._seen = np.zeros((1, mechanism.columns)), np.zeros((_BLOCK, mechanism.columns))

    def _accumulate(self, block: Reals) -> None:
        room = self.mechanism.first - self._records
        if room > 0:
            own = block[:room]
            self._start.add_block(own)
            self._records += len(own)
            block = block[room:]
            if self._records == self.mechanism.first:
                self._begin_step()
        for start in range(0, len(block), _BLOCK):
            rows = block[start : start + _BLOCK]
            at_model(rows, self._model, self.mechanism.feature_bound, EDGE, self._inside, self._seen)
            self._step.add_block(self._seen[: len(rows)])
            self._records += len(rows)
        self._inside.fill(0.0)
        self._seen.fill(0.0)

    def _begin_step(self) -> None:
        """Release the first part, and make the model of that alone."""
        self._started = self._start.release()
        model = np.asarray(self._make(self._started), dtype=np.float64)
        if model.shape != self._model.shape or not np.all(np.isfinite(model)):
            raise MurkError(f"a model of {len(self._model)} finite coefficients is needed, got shape {model.shape}")
        self._model = model

    @in_turn
    def release(self) -> Newton:
        """Both Gram matrices of all rows so far, once: whatever happens, the accumulator is wiped.

        Raises
        ------
        UserError
            If it was released before.
        """
        self._check()
        try:
            if self._started is None:
                self._begin_step()
            assert self._started is not None
            integers, model = np.concatenate([self._started.integers, self._step.release().integers]), self._model
        finally:
            self._wipe()
        integers.setflags(write=False)
        return Newton(integers, model, self._records, self.simulated)

    def _wipe(self) -> None:
        self._start.wipe()
        self._step.wipe()
        # Of a window that is left out, nothing is kept of its first part's release either.
        self._started, self._model = None, np.zeros_like(self._model)
        super()._wipe()

    def _secrets(self) -> Iterable[npt.NDArray[Any]]:
        return self._inside, self._seen


@jit
def at_model(rows: Reals, model: Reals, feature_bound: float, edge: float, inside: Reals, out: Reals) -> None:
    """Put rows (m, d), scaled down to their bounds, as they look from a model (p,) into the first m of ``out``.

    That is ``sqrt(h w) x`` and ``sqrt(h / w) ((1 + y) / 2 - q)``, as `NewtonMechanism` has it; zeros of a row of zeros.

    Parameters
    ----------
    inside
        Room for a row: (1, d).
    """
    last = rows.shape[1] - 1
    for r in range(rows.shape[0]):
        bounded(rows, r, feature_bound, 1.0, inside, 0)
        score = 0.0
        for c in range(last):
            score += inside[0, c] * model[c]
        # (1 - q) / sqrt w = e^(-t / 2) and q / sqrt w = e^(t / 2), so that nothing overflows, cancels or is divided.
        kept = min(0.0, edge - abs(score)) / 2.0
        root = math.exp(kept - abs(score) / 2.0) / (1.0 + math.exp(-abs(score)))
        for c in range(last):
            out[r, c] = root * inside[0, c]
        below, above = math.exp(kept - score / 2.0), math.exp(kept + score / 2.0)
        out[r, last] = ((1.0 + inside[0, last]) * below - (1.0 - inside[0, last]) * above) / 2.0
