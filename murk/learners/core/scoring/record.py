"""One record's answer in place: a kernel asks, randomizes and adds to the sums, all in memory at one address.

Its sums equal those of `murk.learners.core.scoring.local` for a block. If the memory is full or randomness is missing,
the kernel learns nothing and returns the reason.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk._jit import awaited, jit, patient, within
from murk._memory import integers_at, numbers_at, rows_at, words_at
from murk.learners.core.in_place import LEARNED, NO_WORDS, NOT_NOW, SPARE, TOO_FEW, draw_from, trials_for, words_for
from murk.learners.core.scoring.kernels import SCORE, class_scores, outer, vectors
from murk.privacy.mechanisms.lattice import quantise_l2
from murk.privacy.noise.chacha import fresh_words
from murk.privacy.noise.kernels import fast_gaussian, room_for
from murk.privacy.noise.philox import Purpose, block

# Indices into ``whole``; the sums from COUNT on are read at once.
(
    FEATURES, NUMBERS, MATRIX, CLASSES, BINARY, SIMULATED, SEED, START, ROOM, SCATTER_BELOW, MATRIX_BELOW, STEPS, ASKED,
    COUNT, SCORES, SCATTERS, CURVATURES, WHOLE_HEADER,
) = range(18)  # fmt: skip
# Indices into ``real``.
REACH, MATRIX_REACH, EXPONENT, SPACING, UNIT, TARGET, REAL_HEADER = range(7)

Array = NDArray[Any]

_QUESTION, _FIRST = np.uint64(Purpose.QUESTION), np.uint64(0)


@within
def sizes(numbers: int, matrix: int, features: int, classes: int) -> tuple[int, int, int]:
    """Return the length of ``whole``, the start of its words, and the length of ``real``.

    ``whole`` is: header, sums of scores, of scatters and of curvatures, noise, payload, words. ``real`` is: header,
    origin, transform, contrasts of classes (K x (K - 1)), x, a vector, a matrix.
    """
    wide = max(numbers, matrix)
    words = WHOLE_HEADER + numbers + 2 * matrix + 2 * wide
    basis = classes * max(classes - 1, 0)
    real = REAL_HEADER + 2 * numbers + features * features + basis + features + matrix
    return words + words_for(wide) + 1, words, real


@patient
def learn_record(address: int, y: float, trials: int) -> int:
    """Learn from the record whose features are in the memory at an address, and wipe them.

    With ``trials`` (those of a score's noise), question and secure noise are drawn here from random words in that
    memory; with 0 both are there already. Returns `LEARNED`, or why nothing was learned: `TOO_FEW` words, which remain
    for the draw to continue, `NO_WORDS`, or `NOT_NOW` if the memory is full.
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

    question = whole[ASKED]
    if whole[SIMULATED] == 1:
        seed, record = np.uint64(whole[SEED]), whole[START] + whole[COUNT]
        question = _asked(whole, block(seed, np.uint64(record), _QUESTION, _FIRST)[0])
        wanted = d if question == SCORE else m
        fast_gaussian(seed, np.int64(record), words[: room_for(wanted)], noise[:wanted])
    elif trials > 0:
        # The last word is for the question.
        last = 2 * trials + SPARE
        if not fresh_words(words_start, last + 1):
            return NO_WORDS
        question = whole[ASKED] = _asked(whole, words[last])
        if question != SCORE:
            trials = trials_for(m)
            if not fresh_words(words_start, 2 * trials + SPARE):
                return NO_WORDS
        if draw_from(words_start, trials, noise[: d if question == SCORE else m]) != LEARNED:
            return TOO_FEW

    x = reals - m - d - p
    for j in range(x, x + p - 1):
        if real[j] - real[j] != 0.0:
            real[j] = 0.0
    real[TARGET] = y
    answer(address + 8 * size, whole, real, noise, payload, question)
    forget(whole, real, noise, payload, words)
    return LEARNED


@awaited
def learn_rows(address: int, X: Array, y: Array) -> None:
    """Learn from the rows of ``X``, with or without the constant, like :func:`learn_record` with simulated noise.

    The memory at the address must be private and have room for all rows.
    """
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
        real[TARGET] = y[i]
        record = whole[START] + whole[COUNT]
        question = _asked(whole, block(seed, np.uint64(record), _QUESTION, _FIRST)[0])
        wanted = d if question == SCORE else m
        fast_gaussian(seed, np.int64(record), words[: room_for(wanted)], noise[:wanted])
        answer(address + 8 * size, whole, real, noise, payload, question)
    forget(whole, real, noise, payload, words)


@jit
def answer(start: int, whole: Array, real: Array, noise: Array, payload: Array, question: int) -> None:
    """Add the noisy answer of the record in the memory to the sums.

    ``start`` is the address of ``real``.
    """
    p, d, m, classes = whole[FEATURES], whole[NUMBERS], whole[MATRIX], whole[CLASSES]
    reals, transform = real.shape[0], REAL_HEADER + d
    x = reals - m - d - p
    rows, target = rows_at(start + 8 * x, 1, p), real[TARGET : TARGET + 1]
    origin, turned = real[REAL_HEADER:transform], rows_at(start + 8 * transform, p, p)
    vector_at, sums, size = start + 8 * (x + p), WHOLE_HEADER, d
    if question == SCORE:
        if classes > 0:
            basis = rows_at(start + 8 * (transform + p * p), classes, classes - 1)
            class_scores(rows, target, origin, turned, real[REACH], real[EXPONENT], basis, rows_at(vector_at, 1, d))
        else:
            vectors(
                rows, target, origin, turned, real[REACH], real[EXPONENT], whole[BINARY] == 1, question,
                rows_at(vector_at, 1, p),
            )  # fmt: skip
        quantise_l2(numbers_at(vector_at, d), real[SPACING], whole[STEPS], payload[:d])
    else:
        vectors(
            rows, target, origin[:p], turned, real[MATRIX_REACH], real[EXPONENT], whole[BINARY] == 1, question,
            rows_at(vector_at, 1, p),
        )  # fmt: skip
        outer(rows_at(vector_at, 1, p), rows_at(start + 8 * (reals - m), 1, m))
        matrix, unit = real[reals - m :], real[UNIT]
        for j in range(m):
            payload[j] = np.int64(np.rint(matrix[j] / unit))
        sums, size = sums + d + (question - 1) * m, m
    total = whole[sums : sums + size]
    for j in range(size):
        total[j] += payload[j] + noise[j]
    whole[COUNT] += 1
    whole[SCORES + question] += 1


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


@within
def _asked(whole: Array, word: np.uint64) -> int:
    """Return the question that a random word selects, like `murk.learners.core.scoring.model.asked`."""
    if word < np.uint64(whole[SCATTER_BELOW]):
        return 1
    return 2 if word < np.uint64(whole[MATRIX_BELOW]) else 0
