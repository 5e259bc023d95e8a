"""The memory of a kernel that learns one record at a time, passed by address, and the random words in it."""

from __future__ import annotations

import os
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np

from murk._internal.arrays import Floats, Integers, Words
from murk._internal.jit import jit, jit_helper, words_at
from murk._internal.wiping import track, wiped
from murk.privacy.noise.distributions import GAUSSIAN_NOISE, NoiseDistribution
from murk.privacy.noise.kernels import DONE, draw_gaussian
from murk.privacy.noise.sources import fill_from

# Results of a kernel: it learned the record, or nothing, because the random words were `TOO_FEW` (they stay in its
# memory for the draw to continue), there were `NO_WORDS`, or its memory is full (`NOT_NOW`).
LEARNED, TOO_FEW, NO_WORDS, NOT_NOW = range(4)

SPARE: Final = 4  # additional random words for one record, which few draws need


@jit_helper
def trials_for(size: int) -> int:
    """Return a number of trials that suffices for ``size`` numbers of noise in at least 99% of draws."""
    return size + size // 16 + 4


@jit_helper
def words_for(size: int) -> int:
    """Return the number of random words for ``size`` numbers of noise: two for each trial, and spare words."""
    return 2 * trials_for(size) + SPARE


@jit
def draw_from(address: int, trials: int, noise: Any) -> int:
    """Fill ``noise`` from the words at an address (two per trial, then spare ones); return `LEARNED` or `TOO_FEW`."""
    pairs, spare = words_at(address, 2 * trials), words_at(address + 16 * trials, SPARE)
    return LEARNED if draw_gaussian(pairs, spare, noise)[0] == DONE else TOO_FEW


@wiped
def finish_draw(words: Words, trials: int, noise: Integers, distribution: NoiseDistribution = GAUSSIAN_NOISE) -> None:
    """Draw ``noise`` from random words (two for each trial, then spare ones) and, as these do not suffice, new ones."""
    words = track(words.copy())
    # Read-only like the operating system's, so that the kernels are compiled for one type only.
    read_only = words.view()
    read_only.setflags(write=False)
    fill_from(read_only, trials, distribution, noise)


@wiped
def take_random(words: Words) -> None:
    """Fill an array with random words from the operating system."""
    words[:] = track(np.frombuffer(os.urandom(8 * len(words)), dtype=np.uint64))


class KernelMemory(ABC):
    """An array of integers and one of floats in a single block of memory, so that a kernel takes one address.

    Unless `_forget` is overridden, all floats from ``x`` on belong to a record.
    """

    whole: Integers  # int64 numbers, first in the block
    real: Floats  # float64 numbers
    x: Floats  # coded features of the next record, with the constant
    features: Floats  # the same without the constant
    # (put, address, place): put(*values) writes the next record's features, several times as fast as numpy; address is
    # that of the memory, and place the features' position in real.
    way: tuple[Callable[..., None], int, int]

    def _allocate(self, wholes: int, reals: int) -> None:
        both = np.zeros(wholes + reals, dtype=np.int64)
        self.whole, self.real = both[:wholes], both[wholes:].view(np.float64)

    def _open(self, x: int, p: int) -> None:
        """Create the views on the p features, the constant last, at index ``x`` of ``real``."""
        self.x = self.real[x : x + p]
        self.features = self.x[:-1]
        pack = struct.Struct(f"{p - 1}d").pack_into
        # With the target array bound by a partial, values are passed on without making a list.
        put = partial(pack, memoryview(self.real).cast("B"), 8 * x)  # type: ignore[arg-type]
        self.way = put, int(self.whole.ctypes.data), x

    @property
    def address(self) -> int:
        """Address of the memory."""
        return self.way[1]

    def wipe(self) -> None:
        """Wipe everything that belongs to one record: features, release, noise and random words."""
        self._forget(self.real, self.whole)

    def _forget(self, real: Floats, whole: Integers) -> None:
        """Wipe what belongs to a record in ``whole`` and ``real``, which are this memory's arrays or copies."""
        x = self.way[2]
        real[x:] = 0.0
        real[x + len(self.x) - 1] = 1.0  # the constant is written once

    @abstractmethod
    def _bind(self) -> None:
        """Create the views into the two arrays."""

    def __getstate__(self) -> Any:
        # Views are recreated over the copied arrays. A copy contains nothing of a record.
        real, whole = self.real.copy(), self.whole.copy()
        self._forget(real, whole)
        return real, whole

    def __setstate__(self, state: Any) -> None:
        real, whole = state
        self._allocate(len(whole), len(real))
        self.real[:], self.whole[:] = real, whole
        self._bind()


class Held:
    """Learned state of an engine while no kernel is in use; stands in for a `KernelMemory`."""

    count = 0  # number of records in a kernel's memory that ``learned`` lacks

    def __init__(self, learned: Any) -> None:
        self.learned = learned  # replaced, never written to

    def wipe(self) -> None:
        """Do nothing, since there is nothing from a record to wipe."""
