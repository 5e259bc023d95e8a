"""Compiled loops: a record's moments, their randomization, and the sums of releases. No BLAS.

The moments of ``(x, y)`` with p features are the upper triangle of ``x x'`` row by row, off-diagonal entries times
``root``, then ``weight x y``. If the last feature is the constant 1, its entry 1*1 is left out. With a ``presence`` c
above 0, that entry is c for records with a target; records without a target have -c there and 0 everywhere else.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from murk._internal.jit import (
    borrowed,
    deferred,
    integers_at,
    jit,
    jit_helper,
    jit_when_worth,
    numbers_at,
    rows_at,
    words_at,
)
from murk.privacy.noise.chacha import fresh_words
from murk.privacy.noise.kernels import fast_gaussian, room_for
from murk.protocols.linear_algebra import confine
from murk.protocols.one_record import LEARNED, NO_WORDS, SPARE, TOO_FEW, draw_from, words_for

Array = NDArray[Any]
Bounds = tuple[float, bool, bool, float, float, float]  # clipping norm, constant, zero, root, weight and presence


@jit
def moments(x: Array, y: float, root: float, weight: float, presence: float, out: Array) -> None:
    """Write a record's moments into ``out``, with the same work whether or not there is a target."""
    p, at = x.shape[0], 0
    there, target = 1.0, y
    if presence > 0.0 and y != y:
        there, target = 0.0, 0.0
    for i in range(p):
        if at + p < out.shape[0]:
            out[at] = there * x[i] * x[i]
            at += 1
        for j in range(i + 1, p):
            out[at] = there * root * x[i] * x[j]
            at += 1
    for i in range(p):
        out[at + i] = weight * x[i] * target
    if presence > 0.0:
        out[at - 1] = presence * (2.0 * there - 1.0)


@deferred
def moments_of(X: Array, y: Array, bounds: Bounds, out: Array) -> int:
    """Write the moments of rows, and return how many rows are beyond the bound; NaN targets are 0 or missing."""
    clipping_norm, constant, zero, root, weight, presence = bounds
    out = borrowed(out)
    beyond = 0
    x = np.empty(X.shape[1])
    for i in range(X.shape[0]):
        for j in range(x.shape[0]):
            x[j] = X[i, j]
        target = y[i]
        if y[i] == y[i]:
            target = min(max(y[i], -1.0), 1.0)
        elif presence == 0.0:
            target = 0.0
        if confine(x, clipping_norm, constant, zero):
            beyond += 1
            if zero and target == target:
                target = 0.0
        moments(x, target, root, weight, presence, out[i])
    x[:] = 0.0
    return beyond


@jit
def recover(v: Array, root: float, weight: float, constant: bool, x: Array) -> float:
    """Recover a record from its moments v: write its features to ``x``, up to a common sign, and return its target."""
    p = x.shape[0]
    cross = v.shape[0] - p
    k, scale = p - 1, 1.0
    if not constant:
        scale, at = 0.0, 0
        for i in range(p):
            if v[at] > scale:
                k, scale = i, v[at]
            at += p - i
        scale = math.sqrt(scale)
        if not scale > 0.0:
            x[:] = 0.0
            return 0.0
    at, back = 0, 1.0 / (root * scale)
    for i in range(p):
        if i < k:
            x[i] = v[at + k - i] * back
        elif i == k:
            x[i] = scale
        else:
            x[i] = v[_row(k, p) + i - k] * back
        at += p - i
    if constant:
        return float(v[v.shape[0] - 1] / weight)
    inner, square = 0.0, 0.0
    for i in range(p):
        inner += x[i] * v[cross + i]
        square += x[i] * x[i]
    return inner / (weight * square)


@jit
def _row(i: int, p: int) -> int:
    """Return the start of row i of the upper triangle."""
    return i * p - (i * (i - 1)) // 2


@jit
def project(vector: Array, bounds: Bounds, x: Array, v: Array) -> None:
    """Compute a vector's record, confine it to the bounds, and write its features to ``x`` and its moments to ``v``."""
    clipping_norm, constant, _, root, weight, presence = bounds
    target = recover(vector, root, weight, constant, x)
    target = min(max(target, -1.0), 1.0) if target == target else 0.0
    # Vectors whose presence is negative or NaN have no target.
    if presence > 0.0 and not vector[v.shape[0] - x.shape[0] - 1] >= 0.0:
        target = math.nan
    confine(x, clipping_norm, constant, False)
    moments(x, target, root, weight, presence, v)


@deferred
def randomize_block(vectors: Array, size: int, bounds: Bounds, spacing: float, noise: Array, out: Array) -> None:
    """Randomize vectors: compute each one's record, project it into the bounds, and add noise to its moments."""
    vectors = borrowed(vectors)
    x, v = np.empty(size), np.empty(vectors.shape[1])
    steps = 1.0 / spacing
    for i in range(vectors.shape[0]):
        project(vectors[i], bounds, x, v)
        for j in range(v.shape[0]):
            out[i, j] = np.int64(v[j] * steps) + noise[i, j]
    x[:] = 0.0
    v[:] = 0.0


@deferred
def average_block(vectors: Array, counts: Array, size: int, bounds: Bounds, spacing: float, out: Array) -> None:
    """Write each person's mean of projected moments in lattice steps; ``counts`` (n,) are their numbers of vectors."""
    vectors = borrowed(vectors)
    x, v, mean = np.empty(size), np.empty(vectors.shape[1]), np.empty(vectors.shape[1])
    steps, i = 1.0 / spacing, 0
    for person in range(counts.shape[0]):
        mean[:] = 0.0
        for _ in range(counts[person]):
            project(vectors[i], bounds, x, v)
            for j in range(v.shape[0]):
                mean[j] += v[j]
            i += 1
        for j in range(v.shape[0]):
            out[person, j] = np.int64(mean[j] / counts[person] * steps)
    x[:] = 0.0
    v[:] = 0.0
    mean[:] = 0.0


# Indices into ``sums``: weights, squared weights times noise variances, and squared weights, for x x' then x y.
WEIGHTS, NOISE, SQUARES = 0, 2, 4
SUMS = 6


@jit
def add_release(sums: Array, weights: Array, variances: Array) -> None:
    """Add a release's weights and noise variances to the sums."""
    for part in range(2):
        q = weights[part]
        sums[WEIGHTS + part] += q
        sums[NOISE + part] += q * q * variances[part]
        sums[SQUARES + part] += q * q


@jit
def fold(
    total: Array, sums: Array, cross: int, payloads: Array, levels: Array, table: tuple[Array, Array, Array, Array]
) -> None:
    """Add decoded releases to the running sums in turn, each part weighted by its level's public noise.

    ``table`` has by level: whether a release is a direction, whose unit is its norm; units; weights; noise variances.
    """
    balls, units, weights, variances = table
    for i in range(payloads.shape[0]):
        level = levels[i]
        factor = 1.0
        if balls[level]:
            square = 0.0
            for j in range(payloads.shape[1]):
                square += np.float64(payloads[i, j]) * np.float64(payloads[i, j])
            factor = 1.0 / math.sqrt(square) if square > 0.0 else 0.0
        first, second = factor * weights[level, 0], factor * weights[level, 1]
        for j in range(cross):
            total[j] += first * (units[level, j] * payloads[i, j])
        for j in range(cross, total.shape[0]):
            total[j] += second * (units[level, j] * payloads[i, j])
        add_release(sums, weights[level], variances[level])


FEATURES, NUMBERS, CONSTANT, ZERO, SIMULATED, SEED, WHOLE_HEADER = range(7)  # indices into ``whole``
# Indices into ``real``. The part from COUNT to the sums and totals after the header is read at once.
GAIN, REACH, ROOT, WEIGHT, PRESENCE, SPACING, FIRST_WEIGHT, SECOND_WEIGHT, FIRST_VARIANCE = range(9)
SECOND_VARIANCE, TARGET, COUNT, REAL_HEADER = range(9, 13)


@jit_helper
def sizes(numbers: int, features: int) -> tuple[int, int, int]:
    """Return the lengths of ``whole`` and ``real`` (header, sums, totals, x with constant, moments), and x's index."""
    x = REAL_HEADER + SUMS + numbers
    return WHOLE_HEADER + 2 * numbers + words_for(numbers), x + features + 1 + numbers, x


@jit_when_worth
def learn_record(address: int, y: float, trials: int) -> int:
    """Learn from the record whose features are in the memory at ``address``, and wipe them.

    Secure noise is drawn from words for ``trials`` trials; with 0 it is in the memory. Returns `LEARNED`, `TOO_FEW`
    (the draw continues from the words) or `NO_WORDS`.
    """
    header = integers_at(address, WHOLE_HEADER)
    p, d = header[FEATURES], header[NUMBERS]
    size, reals, x = sizes(d, p)
    whole, real = integers_at(address, size), numbers_at(address + 8 * size, reals)
    noise, payload = whole[WHOLE_HEADER : WHOLE_HEADER + d], whole[WHOLE_HEADER + d : WHOLE_HEADER + 2 * d]
    words_place = WHOLE_HEADER + 2 * d
    words_start, words = address + 8 * words_place, words_at(address + 8 * words_place, size - words_place)
    if whole[SIMULATED] == 1:
        fast_gaussian(np.uint64(whole[SEED]), np.int64(real[COUNT]), words[: room_for(d)], noise)
    elif trials > 0:
        if not fresh_words(words_start, 2 * trials + SPARE):
            return NO_WORDS
        if draw_from(words_start, trials, noise) != LEARNED:
            return TOO_FEW

    constant = whole[CONSTANT] == 1
    slopes = p - 1 if constant else p
    for j in range(x, x + slopes):
        real[j] = real[j] * real[GAIN] if real[j] - real[j] == 0.0 else 0.0
    real[TARGET] = y
    start = address + 8 * size
    moments = rows_at(start + 8 * (x + p + 1), 1, d)
    bounds = (real[REACH], constant, whole[ZERO] == 1, real[ROOT], real[WEIGHT], real[PRESENCE])
    moments_of(rows_at(start + 8 * x, 1, p), real[TARGET : TARGET + 1], bounds, moments)
    randomize_block(moments, p, bounds, real[SPACING], noise.reshape((1, d)), payload.reshape((1, d)))
    total = real[REAL_HEADER + SUMS : x]
    unit, cross = real[SPACING], d - p
    for j in range(d):
        total[j] += real[FIRST_WEIGHT if j < cross else SECOND_WEIGHT] * (unit * payload[j])
    add_release(real[REAL_HEADER : REAL_HEADER + SUMS], real[FIRST_WEIGHT:FIRST_VARIANCE], real[FIRST_VARIANCE:TARGET])
    real[COUNT] += 1.0

    real[x:] = 0.0
    real[x + slopes] = 1.0
    real[TARGET] = 0.0
    whole[WHOLE_HEADER:] = 0
    return LEARNED
