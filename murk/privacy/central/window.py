"""Base class of the accumulators of a window: rows are added, one summary is released, nothing else remains."""

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np
import numpy.typing as npt

from murk._internal.locks import ForkSafeLock, locked
from murk._internal.wiping import copied, wiped
from murk.errors import UserError
from murk.privacy.noise import NoiseSource, SecureNoise

_ERROR_CODE = "MURK-PRIVACY-001"

Released = TypeVar("Released")


class WindowAccumulator(ABC, Generic[Released]):
    """Accumulates the rows of one window and releases a summary of them, once.

    An accumulator cannot be copied, pickled or used in a forked process. It is wiped by `release`, by `wipe`, and if
    `add_block` is interrupted. It is thread-safe.

    ``mechanism`` has the parameters ``columns`` and ``largest_window``, ``noise`` is the source of all randomness, by
    default `SecureNoise`, and ``window`` the number of the window, from 0, which only simulated noise uses.
    """

    __slots__ = ("_noise", "_pid", "_records", "_released", "_turns", "mechanism", "window")

    def __init__(self, mechanism: Any, noise: NoiseSource | None = None, window: int = 0) -> None:
        if isinstance(window, bool) or not isinstance(window, int) or not 0 <= window < 2**62:
            raise UserError(f"window={window!r} is not a window number; count from 0")
        self.mechanism = mechanism
        self.window = window
        self._noise: NoiseSource = SecureNoise() if noise is None else noise
        self._pid = os.getpid()
        self._turns = ForkSafeLock()
        self._records = 0
        self._released = False

    @property
    def records(self) -> int:
        """Number of rows so far (public)."""
        return self._records

    @property
    def simulated(self) -> bool:
        """Whether anyone who knows the seed can repeat the randomness."""
        return self._noise.simulated

    @property
    def released(self) -> bool:
        """Whether the window was released or wiped."""
        return self._released

    @wiped
    def add_block(self, rows: npt.ArrayLike) -> None:
        """Add rows (m, p + 1), features and then the target; every row counts.

        A row beyond a bound is scaled down to it, and a row with a NaN or an infinite value becomes zeros; how many
        rows were changed is not recorded. Raises `UserError` for a wrong shape, a value that is not a number, or a
        window that is full or released.
        """
        self._add(self._block(rows))

    @locked
    def _add(self, block: npt.NDArray[np.float64]) -> None:
        self._check()
        largest = self.mechanism.largest_window
        if self._records + len(block) > largest:
            raise UserError(f"a window of this mechanism holds at most {largest} rows; release it and begin another")
        try:
            self._accumulate(block)
        except BaseException:
            # Rows that were added but not counted would share their normals with the next rows.
            self._wipe()
            raise

    @locked
    def release(self) -> Released:
        """Release a summary of all rows so far, once; the accumulator is wiped, even on error.

        Raises `UserError` if it was released before, `MurkError` if the summary fails: the window is lost.
        """
        self._check()
        try:
            return self._release()
        finally:
            self._wipe()

    @abstractmethod
    def _release(self) -> Released:
        """Compute the release, with its noise."""

    @abstractmethod
    def _accumulate(self, block: npt.NDArray[np.float64]) -> None:
        """Add and count checked rows."""

    @abstractmethod
    def _secrets(self) -> Iterable[npt.NDArray[Any]]:
        """Return the arrays to wipe."""

    def _block(self, rows: npt.ArrayLike) -> npt.NDArray[np.float64]:
        try:
            block = copied(rows)
        except (TypeError, ValueError):
            # Numpy's own message would quote the value.
            raise UserError("a block of rows must be numbers only, in rows of one length") from None
        if block.ndim != 2 or block.shape[1] != self.mechanism.columns:
            raise UserError(
                f"a block has shape (m, {self.mechanism.columns}), features and then the target; got {block.shape}"
            )
        return block

    @locked
    def wipe(self) -> None:
        """Overwrite everything accumulated; the window is lost."""
        self._wipe()

    def _wipe(self) -> None:
        for array in self._secrets():
            array.fill(0)
        self._released = True

    def _check(self) -> None:
        if self._pid != os.getpid():
            raise UserError("a window belongs to the process that began it: a fork would release one key twice")
        if self._released:
            raise UserError("this window was released or wiped; a window is released once, so begin another one")

    def __repr__(self) -> str:
        state = "wiped" if self.released else f"{self._records} rows"
        return f"<{type(self).__name__} of window {self.window}: {state}>"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        # Also called by `copy.copy` and `copy.deepcopy`.
        raise UserError("an accumulator cannot be copied or stored: two sketches of one key would reveal rows")
