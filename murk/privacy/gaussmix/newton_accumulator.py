"""A window's two Gram matrices in the making: the first is released as soon as it is full, the second at its model."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from murk._jit import jit
from murk._turns import in_turn
from murk.errors import MurkError
from murk.privacy.gaussmix.gram_accumulator import Gram, GramAccumulator
from murk.privacy.gaussmix.kernels import bounded
from murk.privacy.gaussmix.newton import EDGE, NewtonMechanism
from murk.privacy.gaussmix.window import WindowAccumulator
from murk.privacy.noise import NoiseSource

__all__ = ["Model", "Newton", "NewtonAccumulator", "at_model"]

Reals = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
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
