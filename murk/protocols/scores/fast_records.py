"""Answers in place: a kernel draws a record's query, randomizes its answer and adds it to sums, in one memory block.

Sums equal those of `in_process` for a block. If memory or randomness is short, the kernel learns nothing and returns
the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Floats, Integers, Words
from murk._internal.jit import (
    integers_at,
    jit,
    jit_block_when_worth,
    jit_helper,
    jit_when_worth,
    numbers_at,
    rows_at,
    words_at,
)
from murk.privacy.mechanisms import GaussianMechanism
from murk.privacy.mechanisms.lattice import quantise_l2
from murk.privacy.mechanisms.outer_product import OuterGaussian, write_outer
from murk.privacy.noise.chacha import fresh_words
from murk.privacy.noise.kernels import Purpose, block, fast_gaussian, room_for
from murk.protocols.linear_algebra import contrasts
from murk.protocols.one_record import (
    LEARNED,
    NO_WORDS,
    NOT_NOW,
    SPARE,
    TOO_FEW,
    Held,
    KernelMemory,
    draw_from,
    finish_draw,
    trials_for,
    words_for,
)
from murk.protocols.scores.engine import PartitionState
from murk.protocols.scores.kernels import SCORE, class_scores, vectors
from murk.protocols.scores.mechanisms import ScoreMechanisms
from murk.protocols.scores.model import QUERIES, Model, Query
from murk.protocols.scores.settings import Settings
from murk.protocols.scores.sums import Round, Tally

# Indices into ``whole``; the sums from COUNT on are read at once.
(
    FEATURES,
    NUMBERS,
    MATRIX,
    CLASSES,
    BINARY,
    SIMULATED,
    SEED,
    START,
    ROOM,
    SCATTER_BELOW,
    MATRIX_BELOW,
    STEPS,
    ASKED,
    COUNT,
    SCORES,
    SCATTERS,
    CURVATURES,
    WHOLE_HEADER,
) = range(18)
REACH, MATRIX_REACH, EXPONENT, SPACING, UNIT, TARGET, MIDDLE, WIDTH, REAL_HEADER = range(9)  # indices into ``real``

Array = NDArray[Any]

_QUERY, _FIRST = np.uint64(Purpose.QUERY), np.uint64(0)


@jit_helper
def sizes(numbers: int, matrix: int, features: int, classes: int) -> tuple[int, int, int]:
    """Return the length of ``whole``, the start of its words, and the length of ``real``.

    ``whole``: header, sums of scores, scatters and curvatures, noise, payload, words. ``real``: header, origin,
    transform, contrasts of classes (K x (K - 1)), x, a vector, a matrix.
    """
    wide = max(numbers, matrix)
    words = WHOLE_HEADER + numbers + 2 * matrix + 2 * wide
    basis = classes * max(classes - 1, 0)
    real = REAL_HEADER + 2 * numbers + features * features + basis + features + matrix
    return words + words_for(wide) + 1, words, real


@jit_when_worth
def learn_record(address: int, y: float, trials: int) -> int:
    """Learn from the record whose features are in the memory at an address, and wipe them.

    With ``trials`` (those of a score's noise), query and secure noise are drawn here from random words in that
    memory; with 0 both are there already. Returns `LEARNED`, or why nothing was learned: `TOO_FEW` words (they remain
    for the draw to continue), `NO_WORDS`, or `NOT_NOW` if the memory is full.
    """
    header = integers_at(address, WHOLE_HEADER)
    if header[COUNT] >= header[ROOM]:
        return NOT_NOW
    p, d, m, classes = header[FEATURES], header[NUMBERS], header[MATRIX], header[CLASSES]
    size, words_place, reals = sizes(d, m, p, classes)
    whole = integers_at(address, size)
    words_start, wide = address + 8 * words_place, max(d, m)
    words = words_at(words_start, size - words_place)
    noise, payload = whole[words_place - 2 * wide : words_place - wide], whole[words_place - wide : words_place]
    real = numbers_at(address + 8 * size, reals)

    query = whole[ASKED]
    if whole[SIMULATED] == 1:
        seed, record = np.uint64(whole[SEED]), whole[START] + whole[COUNT]
        query = _asked(whole, block(seed, np.uint64(record), _QUERY, _FIRST)[0])
        wanted = d if query == SCORE else m
        fast_gaussian(seed, np.int64(record), words[: room_for(wanted)], noise[:wanted])
    elif trials > 0:
        # The last word is for the query.
        last = 2 * trials + SPARE
        if not fresh_words(words_start, last + 1):
            return NO_WORDS
        query = whole[ASKED] = _asked(whole, words[last])
        if query != SCORE:
            trials = trials_for(m)
            if not fresh_words(words_start, 2 * trials + SPARE):
                return NO_WORDS
        if draw_from(words_start, trials, noise[: d if query == SCORE else m]) != LEARNED:
            return TOO_FEW

    x = reals - m - d - p
    for j in range(x, x + p - 1):
        if real[j] - real[j] != 0.0:
            real[j] = 0.0
    real[TARGET] = _target(real, y)
    answer(address + 8 * size, whole, real, noise, payload, query)
    forget(whole, real, noise, payload, words)
    return LEARNED


@jit_block_when_worth
def learn_rows(address: int, X: Array, y: Array) -> None:
    """Learn rows, with or without the constant, like `learn_record` with simulated noise, in a private memory."""
    header = integers_at(address, WHOLE_HEADER)
    p, d, m, classes = header[FEATURES], header[NUMBERS], header[MATRIX], header[CLASSES]
    size, words_place, reals = sizes(d, m, p, classes)
    whole, wide = integers_at(address, size), max(d, m)
    words = words_at(address + 8 * words_place, size - words_place)
    noise, payload = whole[words_place - 2 * wide : words_place - wide], whole[words_place - wide : words_place]
    real = numbers_at(address + 8 * size, reals)
    x, seed = reals - m - d - p, np.uint64(whole[SEED])
    for i in range(X.shape[0]):
        for j in range(p - 1):
            value = X[i, j]
            real[x + j] = value if value - value == 0.0 else 0.0
        real[TARGET] = _target(real, y[i])
        record = whole[START] + whole[COUNT]
        query = _asked(whole, block(seed, np.uint64(record), _QUERY, _FIRST)[0])
        wanted = d if query == SCORE else m
        fast_gaussian(seed, np.int64(record), words[: room_for(wanted)], noise[:wanted])
        answer(address + 8 * size, whole, real, noise, payload, query)
    forget(whole, real, noise, payload, words)


@jit
def answer(start: int, whole: Array, real: Array, noise: Array, payload: Array, query: int) -> None:
    """Add the noisy answer of the record in the memory, whose ``real`` starts at an address, to the sums."""
    p, d, m, classes = whole[FEATURES], whole[NUMBERS], whole[MATRIX], whole[CLASSES]
    reals, transform = real.shape[0], REAL_HEADER + d
    x = reals - m - d - p
    rows, target = rows_at(start + 8 * x, 1, p), real[TARGET : TARGET + 1]
    origin, turned = real[REAL_HEADER:transform], rows_at(start + 8 * transform, p, p)
    vector_at, sums, size = start + 8 * (x + p), WHOLE_HEADER, d
    if query == SCORE and classes > 0:
        basis = rows_at(start + 8 * (transform + p * p), classes, classes - 1)
        class_scores(rows, target, origin, turned, real[REACH], real[EXPONENT], basis, rows_at(vector_at, 1, d))
    else:
        clipping_norm = real[REACH] if query == SCORE else real[MATRIX_REACH]
        binary, vector = whole[BINARY] == 1, rows_at(vector_at, 1, p)
        vectors(rows, target, origin[:p], turned, clipping_norm, real[EXPONENT], binary, query, vector)
    if query == SCORE:
        quantise_l2(numbers_at(vector_at, d), real[SPACING], whole[STEPS], payload[:d])
    else:
        write_outer(rows_at(vector_at, 1, p), rows_at(start + 8 * (reals - m), 1, m))
        matrix, unit = real[reals - m :], real[UNIT]
        for j in range(m):
            payload[j] = np.int64(np.rint(matrix[j] / unit))
        sums, size = sums + d + (query - 1) * m, m
    total = whole[sums : sums + size]
    for j in range(size):
        total[j] += payload[j] + noise[j]
    whole[COUNT] += 1
    whole[SCORES + query] += 1


@jit
def forget(whole: Array, real: Array, noise: Array, payload: Array, words: Array) -> None:
    """Wipe everything that depends on a record."""
    p, x = whole[FEATURES], real.shape[0] - whole[MATRIX] - whole[NUMBERS] - whole[FEATURES]
    for j in range(x, real.shape[0]):
        real[j] = 0.0
    real[x + p - 1] = 1.0
    real[TARGET] = 0.0
    whole[ASKED] = 0
    for j in range(noise.shape[0]):
        noise[j] = 0
        payload[j] = 0
    for j in range(words.shape[0]):
        words[j] = np.uint64(0)


@jit_helper
def _target(real: Array, y: float) -> Any:
    """Return a target in the model's units; codes of classes are unchanged."""
    return (y - real[MIDDLE]) / real[WIDTH]


@jit_helper
def _asked(whole: Array, word: np.uint64) -> int:
    """Return the query that a random word selects, like `murk.protocols.scores.model.asked`."""
    if word < np.uint64(whole[SCATTER_BELOW]):
        return 1
    return 2 if word < np.uint64(whole[MATRIX_BELOW]) else 0


class LearnKernel(KernelMemory, Held):
    """A partition, and memory in which a kernel adds up at most ``room`` answers of one level to the newest round.

    The kernel holds the interpreter's lock and sums are read in one step, so nobody reads half of an answer. ``seed``
    simulates the noise, which is secure if it is None.
    """

    def __init__(
        self,
        partition: PartitionState,
        level: str,
        pair: ScoreMechanisms,
        settings: Settings,
        room: int,
        seed: int | None,
    ) -> None:
        super().__init__(partition)
        self._level, self._known = level, (0, partition)
        p, d, classes = settings.features, settings.dimension, settings.answers
        m = 0 if pair.matrix is None else pair.matrix.dimension
        wholes, _, reals = sizes(d, m, p, classes)
        self._allocate(wholes, reals)
        model = partition.rounds[-1].model
        score: Any = pair.score
        matrix: Any = pair.matrix
        whole, real, unsigned = self.whole, self.real, self.whole.view(np.uint64)
        whole[FEATURES], whole[NUMBERS], whole[MATRIX], whole[CLASSES] = p, d, m, classes
        whole[BINARY], whole[STEPS] = settings.binary, score.steps
        whole[START], whole[ROOM] = partition.count, room
        unsigned[SCATTER_BELOW], unsigned[MATRIX_BELOW] = model.thresholds[:2]
        if seed is not None:
            whole[SIMULATED], unsigned[SEED] = 1, seed
        real[REACH], real[MATRIX_REACH], real[EXPONENT] = (
            model.clipping_norm,
            model.matrix_clipping_norm,
            model.exponent,
        )
        # Codes of classes keep their middle of 0 and width of 1.
        real[MIDDLE], real[WIDTH] = model.middle, model.width
        real[SPACING], real[UNIT] = score.spacing, matrix.unit if m else 1.0
        public = [model.origin, model.transform.ravel(), contrasts(classes).ravel() if classes else np.zeros(0)]
        real[REAL_HEADER : reals - m - d - p] = np.concatenate(public)
        self._bind()
        self.x[-1] = 1.0

    def _bind(self) -> None:
        p, d, m, classes = (int(self.whole[index]) for index in (FEATURES, NUMBERS, MATRIX, CLASSES))
        _, words, reals = sizes(d, m, p, classes)
        self._open(reals - m - d - p, p)
        self._sizes = {query: m if index else d for index, query in enumerate(QUERIES)}
        wide = max(d, m)
        self.noise = self.whole[words - 2 * wide : words - wide]
        self.words = self.whole[words:].view(np.uint64)
        self._found = self.whole[COUNT : WHOLE_HEADER + d + 2 * m]

    def _forget(self, real: Floats, whole: Integers) -> None:
        super()._forget(real, whole)
        real[TARGET], whole[ASKED] = 0.0, 0
        whole[-len(self.words) - 2 * len(self.noise) :] = 0

    @property
    def count(self) -> int:  # type: ignore[override]
        """Number of answers that are not yet in the partition."""
        return int(self._found[0])

    def joined(self, advance: Callable[[PartitionState, int, tuple[Round, ...]], PartitionState]) -> PartitionState:
        """Return the state with all answers, made by ``advance`` from the old state, the new count and the rounds."""
        found = self._found.tolist()
        count, known = found[0], self._known
        if count == known[0]:
            return known[1]
        partition = self.learned
        newest = partition.rounds[-1]
        for query, tally in self._tallies(found):
            newest = newest.joined(self._level, query, tally)
        partition = advance(partition, partition.count + count, (*partition.rounds[:-1], newest))
        self._known = count, partition
        return partition

    def _tallies(self, found: list[int]) -> Iterator[tuple[Query, Tally]]:
        start = WHOLE_HEADER - COUNT
        for index, (query, size) in enumerate(self._sizes.items()):
            if found[1 + index]:
                yield query, Tally(found[1 + index], found[start : start + size])
            start += size

    def asked(self) -> tuple[Words, int, Integers]:
        """Return the random words that did not suffice for an answer's noise, their trials, and the noise array."""
        size = self._sizes[QUERIES[int(self.whole[ASKED])]]
        trials = trials_for(size)
        return self.words[: 2 * trials + SPARE], trials, self.noise[:size]


class AnswerKernel(LearnKernel):
    """One device's answers: the kernel adds a single answer to empty sums, which are then the release."""

    def __init__(self, model: Model, pair: ScoreMechanisms, settings: Settings, seed: int | None) -> None:
        super().__init__(PartitionState(0, (Round(0, model),)), "", pair, settings, 1, seed)
        self._trials = 0 if seed is not None else trials_for(settings.dimension)

    def give(self, x: Floats, y: float, index: int) -> tuple[list[int], Query] | None:
        """Return a coded record's payload and query; None without randomness. ``index`` selects simulated draws."""
        # Removes the sums of an earlier, interrupted answer.
        self._found[:] = 0
        self.whole[START] = index
        try:
            self.features[:] = x[:-1]
            missing = learn_record(self.address, y, self._trials)
            if missing == TOO_FEW:
                finish_draw(*self.asked())
                missing = learn_record(self.address, y, 0)
        except BaseException:
            self.wipe()
            raise
        if missing:
            self.wipe()
            return None
        query, tally = next(self._tallies(self._found.tolist()))
        return tally.total, query


def record_kernel(pair: ScoreMechanisms, model: Model) -> bool:
    """Return whether the kernel of one record implements both mechanisms of a level, and all queries of a model."""
    gaussian = type(pair.score) is GaussianMechanism and type(pair.matrix) in (OuterGaussian, type(None))
    return gaussian and not model.survey and model.sets is None
