"""Memory of the kernel that answers for one record: the current model, and sums of answers not yet in a chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk.learners.core.coordinates import contrasts
from murk.learners.core.in_place import SPARE, TOO_FEW, Held, KernelMemory, finish_draw, trials_for
from murk.learners.core.scoring import record as k
from murk.learners.core.scoring.engine import Chain
from murk.learners.core.scoring.mechanism import OuterGaussian, ScoreMechanisms
from murk.learners.core.scoring.model import QUESTIONS, Model, Question
from murk.learners.core.scoring.settings import Settings
from murk.learners.core.scoring.sums import Epoch, Tally
from murk.privacy.mechanisms import GaussianMechanism

Advance = Callable[[Chain, int, tuple[Epoch, ...]], Chain]


class Answers(KernelMemory, Held):
    """A chain, and memory in which a kernel adds up at most ``room`` answers of one level to the newest epoch.

    The kernel holds the interpreter's lock and sums are read in one step, so nobody reads half of an answer. ``seed``
    is the seed of simulated noise, or None for secure noise.
    """

    def __init__(
        self, chain: Chain, level: str, pair: ScoreMechanisms, settings: Settings, room: int, seed: int | None
    ) -> None:
        super().__init__(chain)
        self._level, self._known = level, (0, chain)
        p, d, classes = settings.features, settings.dimension, len(settings.labels)
        m = 0 if pair.matrix is None else pair.matrix.dimension
        wholes, _, reals = k.sizes(d, m, p, classes)
        self._allocate(wholes, reals)
        model = chain.epochs[-1].model
        score: Any = pair.score
        matrix: Any = pair.matrix
        whole, real, unsigned = self.whole, self.real, self.whole.view(np.uint64)
        whole[k.FEATURES], whole[k.NUMBERS], whole[k.MATRIX], whole[k.CLASSES] = p, d, m, classes
        whole[k.BINARY], whole[k.STEPS] = settings.binary, score.steps
        whole[k.START], whole[k.ROOM] = chain.count, room
        unsigned[k.SCATTER_BELOW], unsigned[k.MATRIX_BELOW] = model.thresholds
        if seed is not None:
            whole[k.SIMULATED], unsigned[k.SEED] = 1, seed
        real[k.REACH], real[k.MATRIX_REACH], real[k.EXPONENT] = model.reach, model.matrix_reach, model.exponent
        real[k.SPACING], real[k.UNIT] = score.spacing, matrix.unit if m else 1.0
        public = [model.origin, model.transform.ravel(), contrasts(classes).ravel() if classes else np.zeros(0)]
        real[k.REAL_HEADER : reals - m - d - p] = np.concatenate(public)
        self._bind()
        self.x[-1] = 1.0

    def _bind(self) -> None:
        p, d, m, classes = (int(self.whole[place]) for place in (k.FEATURES, k.NUMBERS, k.MATRIX, k.CLASSES))
        _, words, reals = k.sizes(d, m, p, classes)
        self._open(reals - m - d - p, p)
        self._sizes = {question: m if place else d for place, question in enumerate(QUESTIONS)}
        wide = max(d, m)
        self.noise = self.whole[words - 2 * wide : words - wide]
        self.words = self.whole[words:].view(np.uint64)
        self._found = self.whole[k.COUNT : k.WHOLE_HEADER + d + 2 * m]

    def _forget(self, real: NDArray[np.float64], whole: NDArray[np.int64]) -> None:
        x = self.way[2]
        real[x:] = 0.0
        real[x + len(self.x) - 1] = 1.0
        real[k.TARGET], whole[k.ASKED] = 0.0, 0
        whole[-len(self.words) - 2 * len(self.noise) :] = 0

    @property
    def count(self) -> int:  # type: ignore[override]
        """Number of answers that are not yet in the chain."""
        return int(self._found[0])

    def joined(self, advance: Advance) -> Chain:
        """Return the chain with all answers; ``advance`` makes it from the old chain, the new count and epochs."""
        found = self._found.tolist()
        count, known = found[0], self._known
        if count == known[0]:
            return known[1]
        chain = self.learned
        newest = chain.epochs[-1]
        for question, tally in self._tallies(found):
            newest = newest.joined(self._level, question, tally)
        chain = advance(chain, chain.count + count, (*chain.epochs[:-1], newest))
        self._known = count, chain
        return chain

    def _tallies(self, found: list[int]) -> Iterator[tuple[Question, Tally]]:
        start = k.WHOLE_HEADER - k.COUNT
        for index, (question, size) in enumerate(self._sizes.items()):
            if found[1 + index]:
                yield question, Tally(found[1 + index], found[start : start + size])
            start += size

    def asked(self) -> tuple[NDArray[np.uint64], int, NDArray[np.int64]]:
        """Return the random words that were too few for an answer's noise, their trials and the noise's array."""
        size = self._sizes[QUESTIONS[int(self.whole[k.ASKED])]]
        trials = trials_for(size)
        return self.words[: 2 * trials + SPARE], trials, self.noise[:size]


class OneAnswer(Answers):
    """Compiled answers of a device, one at a time: the kernel's sum of a single answer is its release."""

    def __init__(self, model: Model, pair: ScoreMechanisms, settings: Settings, seed: int | None) -> None:
        super().__init__(Chain(0, (Epoch(0, model),)), "", pair, settings, 1, seed)
        self._trials = 0 if seed is not None else trials_for(settings.dimension)

    def give(self, x: NDArray[np.float64], y: float, index: int) -> tuple[list[int], Question] | None:
        """Return the payload of one coded record's release and its question; None if randomness is missing.

        ``x`` (p,) has the constant last, ``y`` is NaN if missing, and ``index`` selects a simulation's draws.
        """
        # Removes the sums of an earlier, interrupted answer.
        self._found[:] = 0
        self.whole[k.START] = index
        try:
            self.features[:] = x[:-1]
            missing = k.learn_record(self.address, y, self._trials)
            if missing == TOO_FEW:
                finish_draw(*self.asked())
                missing = k.learn_record(self.address, y, 0)
        except BaseException:
            self.wipe()
            raise
        if missing:
            self.wipe()
            return None
        question, tally = next(self._tallies(self._found.tolist()))
        return tally.total, question


def in_place(pair: ScoreMechanisms) -> bool:
    """Return whether the kernel of one record implements both mechanisms of a level."""
    return type(pair.score) is GaussianMechanism and type(pair.matrix) in (OuterGaussian, type(None))
