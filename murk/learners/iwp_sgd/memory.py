"""The arrays that a learner of released examples lives in, and named views into them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from murk.learners.in_place import KernelMemory
from murk.learners.iwp_sgd import layout as k
from murk.learners.iwp_sgd.settings import ExampleSettings, fill


class Memory(KernelMemory):
    """State, settings and scratch of one learner.

    Attributes
    ----------
    real, whole
        See :mod:`murk.learners.iwp_sgd.layout`.
    rows
        State vectors, ``(9, p)``.
    triangles
        The two sums of the polish, ``(2, p (p + 1) / 2)``, or ``(2, 0)``.
    noise, words
        Where a record's noise is put before it is learned from, and the words that it and the coin are drawn of.
    """

    def __init__(self, settings: ExampleSettings) -> None:
        numbers = settings.dimension
        self._allocate(*k.sizes(settings.features, numbers, int(settings.polish)))
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
