"""Noise sources that say what they are told: for tests that go through the exact distribution, not through draws."""

import numpy as np


class Scripted:
    """Returns the given noise and words, whatever is asked for."""

    simulated = True

    def __init__(self, noise=None, words=None):
        self.noise, self._words = noise, words

    def _integers(self, records, size):
        m = len(records)
        if self.noise is None:
            return np.zeros((m, size), dtype=np.int64)
        return np.broadcast_to(np.asarray(self.noise, dtype=np.int64), (m, size)).copy()

    gaussian = laplace = _integers

    def words(self, records, size, purpose):
        return np.broadcast_to(np.asarray(self._words, dtype=np.uint64), (len(records), size)).copy()


class Louder:
    """Another source's noise times a factor: the wrong-parameter twin."""

    simulated = True

    def __init__(self, source, factor):
        self.source, self.factor = source, factor

    def gaussian(self, records, size):
        return np.rint(self.source.gaussian(records, size) * self.factor).astype(np.int64)

    def laplace(self, records, size):
        return np.rint(self.source.laplace(records, size) * self.factor).astype(np.int64)

    def words(self, records, size, purpose):
        return self.source.words(records, size, purpose)
