"""Accumulators of one window: one pass over an organisation's rows, none of which is stored, then a single release."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Floats, Integers, Words
from murk._internal.jit import jit
from murk._internal.wiping import copied, empty, numbers_were_used, overwrite_large_numbers, track, wiped, wiping
from murk.errors import MurkError
from murk.privacy.central import kernels
from murk.privacy.central.gaussian_sketch import GaussMixMechanism
from murk.privacy.central.gram_matrix import GramMechanism
from murk.privacy.central.kernels import ROWS, Room, bounded
from murk.privacy.central.newton_step import EDGE, NewtonMechanism
from murk.privacy.central.window import WindowAccumulator
from murk.privacy.mechanisms.base import WIDTH
from murk.privacy.noise import NoiseSource, Purpose

_ERROR_CODE = "MURK-PRIVACY-001"

ROUNDING_WIDTH = 4.0
"""Standard deviation of the rounding, in lattice steps."""

# The probability beyond nine widths is 2e-19, less than a 53-bit uniform resolves.
_REACH = 36
_ELEVEN = np.uint64(11)


def randomly_rounded(values: Floats, words: Words) -> Integers:
    """Return integers A, P(A) proportional to exp(-(A - value)^2 / 2 w^2), w = `ROUNDING_WIDTH`, from one word each.

    The error of rounding to the nearest integer depends on the data and is not covered by independent noise. Here A
    plus discrete Gaussian noise of width S is, within 2^-250, a discrete Gaussian of variance S^2 + w^2 *about the
    value itself*: a randomised rounding of the value plus continuous noise of variance S^2 + w^2 - 9 > S^2. So the
    integers are a post-processing of the claimed Gaussian noise.

    A uniform of 53 bits decides, and the distribution is cut at nine widths, so A is within 2^-48 of its distribution
    in total variation. In the sum with noise of width S = 2^20 every outcome within 13 S has its probability up to a
    factor 1 +- 2^-58. So one integer adds at most 2^-57 = 7e-18 to the log-likelihood ratio of two values, and the
    40,960 integers of 4096 rows and ten columns add at most 3e-13. Values are below 2^62 in size.

    Reference: Peikert, "An efficient and parallel Gaussian sampler for lattices", 2010, theorem 3.1.
    """
    # All temporaries are in these arrays, which are wiped.
    base, part, other, density = (empty(values.shape) for _ in range(4))
    np.floor(values, out=base)
    np.subtract(values, base, out=part)
    uniform, total, reached = (empty(values.shape) for _ in range(3))
    np.copyto(uniform, np.right_shift(words, _ELEVEN, out=empty(words.shape, np.uint64)))
    uniform *= 2.0**-53
    total.fill(0.0)
    for step in range(-_REACH, _REACH + 2):
        total += _density(np.subtract(step, part, out=other), density)
    uniform *= total
    result, there = empty(values.shape, np.int64), empty(values.shape, np.bool_)
    np.copyto(result, base, casting="unsafe")
    result -= _REACH
    reached.fill(0.0)
    for step in range(-_REACH, _REACH + 1):
        reached += _density(np.subtract(step, part, out=other), density)
        result += np.greater_equal(uniform, reached, out=there)
    return result


def _density(x: Floats, out: Floats) -> Floats:
    np.multiply(x, x, out=out)
    out *= -0.5 / ROUNDING_WIDTH**2
    return np.exp(out, out=out)


# A window's key has 256 bits. With simulated noise, rounding uses the next words of the same stream.
_KEY_WORDS = 4
# Bound on the error of the smallest eigenvalue in units of C^2: half of `sketch_renyi.EIGENVALUE_SLACK`. Compensated
# sums of n terms err by 2^-52 n C^2, eigenvalues by a small multiple of (p + 1) 2^-53 n C^2; n (p + 1) is at most 2^38.
_EIGENVALUE_ERROR = 2.0**-11
# A product of two coordinates of a row is below 2^43, so the sum of this many is below 2^61.
_ROWS = 2**18
_LOW = 40
_MASK = np.int64(2**_LOW - 1)
_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class Sketch:
    """A released sketch, public as a whole.

    Parameters
    ----------
    integers
        Shape (k, p + 1), int64; `GaussMixMechanism.decode` converts them to the units of the rows.
    spread
        Standard deviation of the noise in units of C, a function of public settings and the noisy eigenvalue.
    records, simulated
        Number of rows, which is public; whether the randomness was simulated (then the sketch protects nobody).
    """

    integers: Integers = field(repr=False)
    spread: float
    records: int
    simulated: bool

    @property
    def rows(self) -> int:
        """k, the number of sketch rows."""
        return int(self.integers.shape[0])


class SketchAccumulator(WindowAccumulator[Sketch]):
    """Mixes the rows of one window into a sketch, in one pass and O(k p + p^2) memory.

    Row i is multiplied by k normals that depend only on the window's key and i, so the sums are the same to the last
    bit however rows are grouped into blocks. With `SecureNoise` the key is fresh and known to nobody; with
    `SimulatedNoise` it is a function of the seed and the window.

    `release` rounds the smallest eigenvalue in steps of eta / 2^20 (not with ``"mixing"``) and the mixtures in steps of
    std C / 2^20, and adds discrete Gaussian noise of width 2^20.

    Parameters
    ----------
    mechanism, noise
        Parameters of the release; source of all randomness, by default `SecureNoise`.
    window
        Number of the window, from 0; used by simulated noise only.

    Examples
    --------
    >>> from murk.privacy import ApproxDP
    >>> from murk.privacy.noise import SimulatedNoise
    >>> from murk.privacy.central import GaussMixMechanism
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

    def _accumulate(self, block: Floats) -> None:
        room, bounds = self._room, (self.mechanism.feature_bound, self.mechanism.target_bound)
        sums = self._mixtures, self._moments, self._carry
        for start in range(0, len(block), room.rows):
            rows = block[start : start + room.rows]
            room.fill(self._key, self._records, len(rows))
            words, counter, spare = room.words, room.counter, room.spare
            scratch = self._drawn, self._inside
            kernels.accumulate(rows, *bounds, self._key, self._records, *sums, words, counter, spare, *scratch)
            self._records += len(rows)
        self._inside.fill(0.0)

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
        """Return the mechanism's lambda before truncation at 0, in units of C^2."""
        mechanism = self.mechanism
        if not mechanism.releases_eigenvalue:
            return 0.0
        half = np.subtract(self._moments, self._carry, out=empty(self._moments.shape))
        half /= mechanism.bound**2
        try:
            smallest = float(track(np.linalg.eigvalsh(half, UPLO="U"))[0])
        except np.linalg.LinAlgError:
            raise MurkError("the smallest eigenvalue of the window could not be computed; the window is lost") from None
        finally:
            # LAPACK frees its copy of the matrix without wiping it: overwrite that memory by a call of the same size.
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


@dataclass(frozen=True, eq=False)
class Gram:
    """A released Gram matrix, public as a whole.

    Parameters
    ----------
    integers
        Shape (d (d + 1) / 2,), int64: the upper triangle, row by row; `GramMechanism.decode` converts them.
    records, simulated
        Number of rows, which is public; whether the noise was simulated (then the matrix protects nobody).
    """

    integers: Integers = field(repr=False)
    records: int
    simulated: bool


class GramAccumulator(WindowAccumulator[Gram]):
    """Sums the outer products of one window's rows exactly, in integers, in one pass and O(p^2) memory.

    Parameters
    ----------
    mechanism, noise
        Parameters of the release; source of all randomness, by default `SecureNoise`.
    window
        Number of the window, from 0; used by simulated noise only.
    skip
        Number of the window's noise values to skip, because another matrix of the same window uses them.

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

    def _accumulate(self, block: Floats) -> None:
        mechanism, start = self.mechanism, 0
        bounds = mechanism.feature_bound, mechanism.target_bound
        grid = mechanism.feature_step, mechanism.target_steps, mechanism.feature_square
        while start < len(block):
            rows = block[start : start + _ROWS - self._since]
            add(rows, bounds, grid, self._inside, self._row, self._low)
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

    @wiped
    def _release(self) -> Gram:
        noise = self._noise.gaussian([self.window], self._skip + self.mechanism.dimension)[0, self._skip :]
        integers = np.asarray(self._lattice_sums() + noise)
        integers.setflags(write=False)
        return Gram(integers, self._records, self.simulated)

    def _lattice_sums(self) -> Integers:
        """Return the sums in steps of the noise's lattice, each rounded exactly to the nearest step."""
        diagonal, off_diagonal = self.mechanism.ratios
        sums, at = empty(self.mechanism.dimension, np.int64), 0
        for i in range(self.mechanism.columns):
            for j in range(i, self.mechanism.columns):
                ratio = diagonal if i == j else off_diagonal
                total = (int(self._high[i, j]) << _LOW) + int(self._low[i, j])
                sums[at] = (2 * total * ratio.numerator + ratio.denominator) // (2 * ratio.denominator)
                at += 1
        del total
        numbers_were_used()
        overwrite_large_numbers()
        return sums

    def _secrets(self) -> Iterable[npt.NDArray[Any]]:
        return self._high, self._low, self._inside, self._row


Model = Callable[[Gram], Floats]
"""Function that computes a model's coefficients (p,) from a released Gram matrix."""


@dataclass(frozen=True, eq=False)
class Newton:
    """Two released Gram matrices of a window, and the model at which the second was computed, public as a whole.

    Parameters
    ----------
    integers
        Shape (d (d + 1),), int64: A's upper triangle, row by row, then B's; `NewtonMechanism.decode` converts them.
    model
        s, shape (p,).
    records, simulated
        Number of rows, which is public; whether the noise was simulated (then the matrices protect nobody).
    """

    integers: Integers = field(repr=False)
    model: Floats
    records: int
    simulated: bool


class NewtonAccumulator(WindowAccumulator[Newton]):
    """Sums the outer products of a window's first rows, and then of its later rows, which are transformed at a model.

    Each part is in a `GramAccumulator`. As soon as the first part is full, it is released with noise and wiped; the
    model is computed from that release alone.

    Parameters
    ----------
    mechanism, noise
        Parameters of the release; source of all randomness, by default `SecureNoise`.
    model
        Function that computes a model's coefficients from the first part's release.
    window
        Number of the window, from 0; used by simulated noise only.

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
        # The first part uses the first of the window's noise values.
        self._step = GramAccumulator(mechanism.step, self._noise, window, skip=mechanism.start.dimension)
        self._started: Gram | None = None
        self._model = np.zeros(mechanism.columns - 1)
        self._inside, self._seen = np.zeros((1, mechanism.columns)), np.zeros((_BLOCK, mechanism.columns))

    def _accumulate(self, block: Floats) -> None:
        room = self.mechanism.first - self._records
        if room > 0:
            head = block[:room]
            self._start.add_block(head)
            self._records += len(head)
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
        """Release the first part and compute the model from that release alone."""
        self._started = self._start.release()
        model = np.asarray(self._make(self._started), dtype=np.float64)
        if model.shape != self._model.shape or not np.all(np.isfinite(model)):
            raise MurkError(f"a model of {len(self._model)} finite coefficients is needed, got shape {model.shape}")
        self._model = model

    def _release(self) -> Newton:
        if self._started is None:
            self._begin_step()
        assert self._started is not None
        integers = np.concatenate([self._started.integers, self._step.release().integers])
        integers.setflags(write=False)
        return Newton(integers, self._model, self._records, self.simulated)

    def _wipe(self) -> None:
        self._start.wipe()
        self._step.wipe()
        # If a window is discarded, so is its first part's release.
        self._started, self._model = None, np.zeros_like(self._model)
        super()._wipe()

    def _secrets(self) -> Iterable[npt.NDArray[Any]]:
        return self._inside, self._seen


@jit
def add(
    rows: Floats, bounds: tuple[float, float], grid: tuple[float, int, int], kept: Floats, row: Integers, sums: Integers
) -> None:
    """Add q q' of each of the rows (m, d) to the upper triangle of ``sums`` (d, d), where q is the row on its grid.

    ``grid`` holds the width of the features' step, the bound on the target and the bound on the features' squared norm,
    both in steps; no q exceeds them (`GramMechanism`). ``kept`` (1, d) and ``row`` (d,) are scratch space.
    """
    feature_step, target_steps, feature_square = grid
    last = rows.shape[1] - 1
    for r in range(rows.shape[0]):
        bounded(rows, r, bounds[0], bounds[1], kept, 0)
        square = np.int64(0)
        for c in range(last):
            row[c] = np.int64(np.rint(kept[0, c] / feature_step))
            square += row[c] * row[c]
        target = np.int64(np.rint(kept[0, last] / bounds[1] * target_steps))
        if abs(target) > target_steps:
            target = np.int64(math.copysign(target_steps, target))
        row[last] = target
        # Rounding cannot cause this, but the guarantee does not rely on that.
        if square > feature_square:
            row[:] = 0
        for a in range(last + 1):
            if row[a] != 0:
                for b in range(a, last + 1):
                    sums[a, b] += row[a] * row[b]


@jit
def at_model(rows: Floats, model: Floats, feature_bound: float, edge: float, inside: Floats, out: Floats) -> None:
    """Transform rows (m, d), scaled down to their bounds, at a model (p,) into the first m rows of ``out``.

    A row becomes ``sqrt(h w) x`` and ``sqrt(h / w) ((1 + y) / 2 - q)`` (`NewtonMechanism`); ``inside`` (1, d) is
    scratch space.
    """
    last = rows.shape[1] - 1
    for r in range(rows.shape[0]):
        bounded(rows, r, feature_bound, 1.0, inside, 0)
        score = 0.0
        for c in range(last):
            score += inside[0, c] * model[c]
        # Use (1 - q) / sqrt w = e^(-t / 2) and q / sqrt w = e^(t / 2), so that nothing overflows or cancels.
        kept = min(0.0, edge - abs(score)) / 2.0
        root = math.exp(kept - abs(score) / 2.0) / (1.0 + math.exp(-abs(score)))
        for c in range(last):
            out[r, c] = root * inside[0, c]
        below, above = math.exp(kept - score / 2.0), math.exp(kept + score / 2.0)
        out[r, last] = ((1.0 + inside[0, last]) * below - (1.0 - inside[0, last]) * above) / 2.0
