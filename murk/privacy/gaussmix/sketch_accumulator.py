"""A window's sketch in the making: one pass over an organisation's rows, and a single release.

What is kept is k (p + 1) mixtures and (p + 1)^2 moments, whatever the number of rows; no row, and no k x n matrix,
is ever stored. All of it lives in memory only, and is wiped once the sketch has been released.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from murk._scratch import copied, empty, keep, numbers_were_used, wiped
from murk._turns import in_turn
from murk.errors import MurkError
from murk.privacy.gaussmix import kernels
from murk.privacy.gaussmix.mechanism import GaussMixMechanism
from murk.privacy.gaussmix.normals import ROWS, Room
from murk.privacy.gaussmix.rounding import randomly_rounded
from murk.privacy.gaussmix.window import WindowAccumulator
from murk.privacy.mechanisms.base import WIDTH
from murk.privacy.noise import NoiseSource, Purpose

__all__ = ["Sketch", "SketchAccumulator"]

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
    >>> from murk.privacy.gaussmix import GaussMixMechanism
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
