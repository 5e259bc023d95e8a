"""One record at a time: its values are put into a kernel's memory, and the kernel takes one address.

A record is learned in two microseconds, in which Python makes a handful of objects. So between a dictionary and the
kernel there is nothing but one method, with the lock and the ``try`` that every way in needs. River-free.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from murk._jit import jit, within
from murk._memory import words_at
from murk._scratch import empty, keep, wiped
from murk._turns import Turns, occupied
from murk.learners.core.values import number
from murk.privacy.noise.distributions import GAUSSIAN_NOISE, NoiseDistribution
from murk.privacy.noise.kernels import draw_gaussian
from murk.privacy.noise.sources import fill_from
from murk.privacy.noise.streaming import DONE

# What became of a record that a kernel was to learn: it did, or was missing so much that it learned nothing. `TOO_FEW`
# random words stand in its memory, for the draw to go on from; `NO_WORDS` at all came; or Python's turn has come first.
LEARNED, TOO_FEW, NO_WORDS, NOT_NOW = range(4)

SPARE: Final = 4
"""Words of one record that a rare trial needs beyond its own."""


@within
def trials_for(size: int) -> int:
    """Trials that suffice for so many numbers of noise, but once in a hundred times or less."""
    return size + size // 16 + 4


@within
def words_for(size: int) -> int:
    """Words of so many numbers: two a trial, then the spare ones."""
    return 2 * trials_for(size) + SPARE


@jit
def draw_from(address: int, trials: int, noise: Any) -> int:
    """Fill ``noise`` with Gaussian noise of the words at an address, two a trial and then spare ones, if they suffice.

    Returns `LEARNED` or `TOO_FEW`.
    """
    pairs, spare = words_at(address, 2 * trials), words_at(address + 16 * trials, SPARE)
    return LEARNED if draw_gaussian(pairs, spare, noise)[0] == DONE else TOO_FEW


@wiped
def finish_draw(
    words: NDArray[np.uint64],
    trials: int,
    noise: NDArray[np.int64],
    distribution: NoiseDistribution = GAUSSIAN_NOISE,
) -> None:
    """Fill ``noise`` from words (two a trial, then spare ones) that did not suffice, and then from new ones."""
    words = keep(words.copy())
    # Like the operating system's own, so that the kernels are compiled for one type only.
    own = words.view()
    own.setflags(write=False)
    fill_from(own, trials, 0, distribution, noise)


@wiped
def take_random(words: NDArray[np.uint64]) -> None:
    """Fill an array with words of the operating system's randomness."""
    words[:] = keep(np.frombuffer(os.urandom(8 * len(words)), dtype=np.uint64))


class KernelMemory:
    """Two packed arrays in one piece, so that a kernel takes their address.

    Attributes
    ----------
    whole, real
        Its int64 and its float64 numbers, the first before the second.
    x, features
        Where the coded features of the next record are put: with the constant, and without.
    way
        ``(put, address, place)``: ``put(*values)`` makes numbers the features of the next record, several times as
        fast as numpy would; ``address`` is where the memory lies, ``place`` where in ``real`` the features are.
    """

    whole: NDArray[np.int64]
    real: NDArray[np.float64]
    x: NDArray[np.float64]
    features: NDArray[np.float64]
    way: tuple[Callable[..., None], int, int]

    def _allocate(self, wholes: int, reals: int) -> None:
        both = np.zeros(wholes + reals, dtype=np.int64)
        self.whole, self.real = both[:wholes], both[wholes:].view(np.float64)

    def _open(self, x: int, p: int) -> None:
        """Have p features, the constant last, at a place of ``real``."""
        self.x = self.real[x : x + p]
        self.features = self.x[:-1]
        pack = struct.Struct(f"{p - 1}d").pack_into
        # With where they go in front of them, values are passed on without a list in between.
        put = partial(pack, memoryview(self.real).cast("B"), 8 * x)  # type: ignore[arg-type]
        self.way = put, int(self.whole.ctypes.data), x

    @property
    def address(self) -> int:
        """Where it lies."""
        return self.way[1]

    def wipe(self) -> None:
        """Wipe what is of one record: its features, what is released of them, its noise and words."""
        self._forget(self.real, self.whole)

    def _forget(self, real: NDArray[np.float64], whole: NDArray[np.int64]) -> None:
        """Wipe it in these arrays, which are a copy of this memory's or its own."""
        raise NotImplementedError

    def _bind(self) -> None:
        """Make the views of the arrays."""
        raise NotImplementedError

    def __getstate__(self) -> Any:
        # Views would be copied one by one; they are created again over the copied arrays instead. Whatever is going on
        # or went wrong, a copy has nothing of a record.
        real, whole = self.real.copy(), self.whole.copy()
        self._forget(real, whole)
        return real, whole

    def __setstate__(self, state: Any) -> None:
        real, whole = state
        self._allocate(len(whole), len(real))
        self.real[:], self.whole[:] = real, whole
        self._bind()


class Held:
    """What an engine has learned, while no kernel adds to it.

    Attributes
    ----------
    learned
        What that is; never written to, only replaced.
    count
        How many records a kernel has learned since.
    """

    count = 0

    def __init__(self, learned: Any) -> None:
        self.learned = learned

    def wipe(self) -> None:
        """There is nothing of a record."""


class RecordEngine:
    """An engine whose kernel learns one record in place, where it can.

    Attributes
    ----------
    memory
        The kernel's; or, where what is learned is replaced and not written to, a `Held` without any.
    current
        What randomizes the next records where nothing is given with them.
    """

    _kernels: Any
    """The module with ``learn_record(address, y, trials)``. Who replaces it there replaces it here."""

    memory: Any
    current: Any = None
    _turns: Turns
    _in_place: bool
    """Whether the kernel draws the noise of the mechanism in use."""
    _trials: int
    """For how many trials it draws words; 0 where noise is simulated."""

    def use(self, mechanism: Any) -> None:
        """Randomize the next records by ``mechanism``, where none is given with them."""
        raise NotImplementedError

    def _hold(self, held: Any, mechanism: Any) -> None:
        """Have another memory, for records that are randomized by ``mechanism``."""
        # With nothing in use the next record makes sure of what there is, whenever an interrupt arrives.
        self.current, self._in_place = None, False
        self.memory = held
        self.current, self._in_place = mechanism, isinstance(held, KernelMemory)

    def learn_record(self, values: Sequence[Any], y: float, mechanism: Any = None) -> None:
        """Randomize one record once, and learn from the release.

        Parameters
        ----------
        values
            Coded features without the constant, ``(p - 1,)``; what is no number counts as 0.
        y
            The coded target; NaN where it is missing.
        mechanism
            What randomizes it; by default what is in use.
        """
        turns = self._turns
        # As `in_turn` has it: another call would take as long as several numbers of a release.
        with turns:
            if turns.busy:
                raise occupied()
            try:
                turns.busy = True
                if mechanism is not None and mechanism is not self.current:
                    self.use(mechanism)
                if self._in_place:
                    put, address, _ = self.memory.way
                    try:
                        put(*values)
                    except struct.error:
                        put(*map(number, values))
                    missing = self._kernels.learn_record(address, y, self._trials)
                    if missing:
                        self._learn_slowly(y, missing)
                else:
                    self._learn_row(values, y)
            except BaseException:
                self.memory.wipe()
                raise
            finally:
                turns.busy = False

    def _learn_slowly(self, y: float, missing: int) -> None:
        """Learn with secure noise where the words that the kernel drew do not suffice, or where it drew none."""
        memory, trials = self.memory, self._trials
        words = memory.words[: 2 * trials + SPARE]
        if missing == NO_WORDS:
            take_random(words)
        finish_draw(words, trials, memory.noise)
        memory.words[:] = 0
        self._kernels.learn_record(memory.address, y, 0)

    @wiped
    def _learn_row(self, values: Sequence[Any], y: float) -> None:
        """Learn from one record, as `learn_record` takes it, where the kernel cannot."""
        row, target = empty((1, len(values) + 1)), empty(1)
        row[0, -1], target[0] = 1.0, y
        for place, value in enumerate(values):
            row[0, place] = number(value)
        self._learn_block(row, target)

    def _learn_block(self, X: NDArray[np.float64], y: NDArray[np.float64]) -> None:
        """Learn from rows by what is in use, in the turn of whoever calls it."""
        raise NotImplementedError
