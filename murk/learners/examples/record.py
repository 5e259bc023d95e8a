"""Memory of a learner of released examples, and the kernel that learns one record in the memory at an address."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from murk._jit import brief, jit
from murk._memory import integers_at, numbers_at, words_at
from murk.learners.core.in_place import LEARNED, NO_WORDS, SPARE, KernelMemory, draw_from
from murk.learners.examples import layout as k
from murk.learners.examples.kernels import learn_records
from murk.learners.examples.layout import Array, sizes
from murk.learners.examples.settings import ExampleSettings, fill
from murk.privacy.noise.chacha import fresh_words

_NO_ROWS, _NO_TARGETS = np.zeros((0, k.LEVEL_REALS)), np.zeros(0)
_NO_WORDS = np.zeros(0, dtype=np.uint64)
_NO_LEVELS, _NO_WHOLES = np.zeros(0, dtype=np.int64), np.zeros((0, k.LEVEL_WHOLES), dtype=np.int64)


@jit
def take_words(whole: Array, address: int, trials: int) -> int:
    """Draw one record's noise, and the word of its coin, from fresh random words in the memory at ``address``.

    Returns `LEARNED`, or the code of what is missing.
    """
    numbers, last = whole[k.NUMBERS], 2 * trials + SPARE
    words_start = address + 8 * (k.WHOLE_HEADER + 2 * numbers)
    if not fresh_words(words_start, last + 1):
        return NO_WORDS
    words = words_at(words_start, last + 1)
    whole[k.COIN] = np.int64(words[last])
    size = whole[k.FEATURES] - 1 if whole[k.FORM] == k.LABEL else numbers
    status = draw_from(words_start, trials, whole[k.WHOLE_HEADER : k.WHOLE_HEADER + size])
    if status == LEARNED:
        for j in range(last + 1):
            words[j] = np.uint64(0)
    return status


@brief
def learn_record(address: int, y: float, trials: int) -> int:
    """Learn from the record whose features are in the memory at ``address``, and wipe them.

    Secure noise is drawn from words for ``trials`` trials; with 0 trials, noise and coin are already in the memory.
    Returns `LEARNED`; or, with nothing learned, `TOO_FEW` if the words did not suffice and the draw must continue from
    them, or `NO_WORDS`.
    """
    header = integers_at(address, k.WHOLE_HEADER)
    size, reals = sizes(header[k.FEATURES], header[k.NUMBERS], header[k.POLISH])
    whole, real = integers_at(address, size), numbers_at(address + 8 * size, reals)
    if trials > 0:
        status = take_words(whole, address, trials)
        if status != LEARNED:
            return status
    real[k.TARGET] = y
    learn_records(real, whole, _NO_ROWS, _NO_TARGETS, _NO_LEVELS, _NO_ROWS, _NO_WHOLES, _NO_WHOLES, _NO_WORDS)
    return LEARNED


class Memory(KernelMemory):
    """State, settings and work space of one learner, with views into its two arrays (see `layout`).

    ``rows`` are the state vectors, ``(9, p)``; ``triangles`` the two sums of the polish, ``(2, p (p + 1) / 2)`` or
    ``(2, 0)``; ``noise`` and ``words`` hold a record's noise and the words from which noise and coin are drawn.
    """

    def __init__(self, settings: ExampleSettings) -> None:
        numbers = settings.dimension
        self._allocate(*sizes(settings.features, numbers, int(settings.polish)))
        fill(self.real, self.whole, settings)
        self._bind()
        self.x[-1] = 1.0

    def _bind(self) -> None:
        whole, real = self.whole, self.real
        p, numbers = int(whole[k.FEATURES]), int(whole[k.NUMBERS])
        rows, tail = k.REAL_HEADER + k.ROWS * p, len(real) - p - numbers
        self._open(tail, p)
        self.rows = real[k.REAL_HEADER : rows].reshape(k.ROWS, p)
        self.triangles = real[rows:tail].reshape(2, -1)
        self.noise = whole[k.WHOLE_HEADER : k.WHOLE_HEADER + (p - 1 if whole[k.FORM] == k.LABEL else numbers)]
        self.words = whole[k.WHOLE_HEADER + 2 * numbers :].view(np.uint64)

    def _forget(self, real: NDArray[np.float64], whole: NDArray[np.int64]) -> None:
        x = self.way[2]
        real[x:] = 0.0
        real[x + len(self.x) - 1] = 1.0
        real[k.TARGET] = 0.0
        whole[k.WHOLE_HEADER :] = 0
        whole[k.COIN] = 0
