"""The fold: one compiled step from (state, release) to state, shared by every way of learning.

``learn_one``, ``learn_many`` and the worker end in :func:`apply`, so that they agree bit for bit. Everything
a step touches lies in two arrays, ``real`` and ``whole``, whose layout :mod:`murk.learners.memory` draws
up: handing a dozen arrays to a compiled function costs more than the step itself.

No BLAS and no clock: the same releases give the same state on one build and kind of CPU.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from murk._jit import jit
from murk.learners.objectives import HUBER_SCALE, LOGISTIC, SOFTMAX
from murk.privacy import lattice
from murk.privacy.noise.kernels import draw, simulated_gaussian, simulated_laplace, simulated_words
from murk.privacy.noise.philox import Purpose
from murk.privacy.noise.streaming import DONE
from murk.privacy.noise.tables import GAUSSIAN_LAW, LAPLACE_LAW
from murk.stream.staleness import spacing

# Kernels take numpy arrays of fixed element types; their annotations would only repeat "array".
Array = Any

# The two laws, as constants of the compiled code.
_GAUSSIAN_SHAPE, _GAUSSIAN_TABLE, _GAUSSIAN_GUIDE = GAUSSIAN_LAW.shape, GAUSSIAN_LAW.table, GAUSSIAN_LAW.guide
_LAPLACE_SHAPE, _LAPLACE_TABLE, _LAPLACE_GUIDE = LAPLACE_LAW.shape, LAPLACE_LAW.table, LAPLACE_LAW.guide

# Simulated coins are drawn for this purpose (a constant that the compiler can fold).
_COIN = int(Purpose.COIN)

# How a feature vector is weighted, a step sized, iterates averaged, people weighted.
NORM, MALLOWS, CLIP = 0, 1, 2
NOISE_AWARE, INVERSE_SCALING = 0, 1
NO_AVERAGE, POLYAK, POLYNOMIAL_DECAY = 0, 1, 2
UNIFORM, INVERSE_VARIANCE = 0, 1

# Places in ``whole``.
(
    OBJECTIVE, WEIGHTS, STEP, AVERAGING, WEIGHTING, FEATURES, DIMENSION, CLASSES, RING, WHITEN, SCALING,
    FLOOR, SIMULATED, SEED, KIND, STEPS, THRESHOLD, COUNT, NEXT_PUBLISHED, RING_HEAD, RING_LENGTH,
    WHOLE_HEADER,
) = range(22)  # fmt: skip

# Places in ``real``.
(
    HUBER_C, CENTRE, MULTIPLIER, KNOWN_SCALE, BOUND, CLIP_AT, RADIUS, SCALE_FLOOR, SCALE_CEILING, ETA,
    ALPHA, DECAY, MECHANISM_RADIUS, SPACING, UNIT, VARIANCE,  # the last four: of the current level
    SUM_PRECISION, SUM_WEIGHT, SUM_SPREAD, SUM_SQUARES, REAL_HEADER,
) = range(21)  # fmt: skip

# Noise-aware steps are this share of the worst case's best, radius w_i / sqrt(2 sum w_j^2 v_j). Radii are
# generous, and iterates that wander far make the curved objectives biased: measured in benchmarks/accuracy.py.
STEP_SHARE = 0.5

# State vectors, one after another.
ITERATE, AVERAGE, SCALING_A, SCALING_B, MEAN_AT, MEAN_GRADIENT, ROWS = range(7)


@jit
def places(whole: Array) -> tuple[int, int, int, int, int, int]:
    """Where in ``real`` the state vectors, x, z, the gradient, the public matrices and the ring begin.

    ``real`` is: header, state vectors, x, z, gradient, contrasts (K x (K - 1)), transform (p x p), ring.
    """
    p, d, k = whole[FEATURES], whole[DIMENSION], whole[CLASSES]
    x = REAL_HEADER + ROWS * d
    basis = x + 2 * p + d
    transform = basis + k * (k - 1)
    ring = transform + whole[WHITEN] * p * p
    return REAL_HEADER, x, x + p, x + 2 * p, basis, ring


@jit
def whiten(whole: Array, real: Array, x: Array, z: Array) -> None:
    """Working features ``z = W x``, or x itself where nothing is whitened."""
    p = x.shape[0]
    if whole[WHITEN] == 0:
        for j in range(p):
            z[j] = x[j]
        return
    k = whole[CLASSES]
    at = places(whole)[4] + k * (k - 1)
    for i in range(p):
        total = 0.0
        for j in range(p):
            total += real[at + j] * x[j]
        z[i] = total
        at += p


@jit
def softmax_gradient(whole: Array, real: Array, theta: Array, z: Array, y: float, weight: float, out: Array) -> None:
    """``(p - e_y) (x) z weight`` in contrast coordinates."""
    p, classes = whole[FEATURES], whole[CLASSES]
    basis = places(whole)[4]
    scores = np.zeros(classes)
    for r in range(classes - 1):
        score = 0.0
        for j in range(p):
            score += theta[r * p + j] * z[j]
        for k in range(classes):
            scores[k] += real[basis + k * (classes - 1) + r] * score
    top = scores[0]
    for k in range(1, classes):
        top = max(top, scores[k])
    total = 0.0
    for k in range(classes):
        scores[k] = math.exp(scores[k] - top)
        total += scores[k]
    for r in range(classes - 1):
        residual = 0.0
        for k in range(classes):
            miss = scores[k] / total - (1.0 if float(k) == y else 0.0)
            residual += real[basis + k * (classes - 1) + r] * miss
        for j in range(p):
            out[r * p + j] = residual * z[j] * weight


@jit
def gradient(whole: Array, real: Array, theta: Array, z: Array, y: float, out: Array) -> None:
    """Write the weighted gradient at ``theta``, less its public centre; a NaN target counts as no gradient."""
    p, d = whole[FEATURES], whole[DIMENSION]
    objective = whole[OBJECTIVE]
    scaled = objective == HUBER_SCALE
    square = 0.0
    for j in range(p):
        square += z[j] * z[j]
    weight = 1.0
    if whole[WEIGHTS] == NORM:
        weight = 1.0 / max(1.0, math.sqrt(square))
    elif whole[WEIGHTS] == MALLOWS:
        weight = min(1.0, 2.0 / square)
    if y != y:  # a missing target: the gradient is zero, whatever the record says
        for j in range(d):
            out[j] = 0.0
        if scaled:
            out[p] = -real[MULTIPLIER] * real[CENTRE]
    elif objective == SOFTMAX:
        softmax_gradient(whole, real, theta, z, y, weight, out)
    else:
        fit = 0.0
        for j in range(p):
            fit += theta[j] * z[j]
        if objective == LOGISTIC:
            slope = 1.0 / (1.0 + math.exp(-fit)) - y
        else:
            c = real[HUBER_C]
            sigma = theta[p] * real[MULTIPLIER] if scaled else real[KNOWN_SCALE]
            u = (y - fit) / sigma
            slope = -min(max(u, -c), c)
            if scaled:
                fall = -0.5 * min(u * u, c * c)
                half_kappa = real[CENTRE] + 0.25 * c * c
                out[p] = real[MULTIPLIER] * ((fall + half_kappa) * weight - real[CENTRE])
        slope *= weight
        for j in range(p):
            out[j] = slope * z[j]
    if whole[WEIGHTS] == CLIP:
        norm = 0.0
        for j in range(d):
            norm += out[j] * out[j]
        norm = math.sqrt(norm)
        if norm > real[CLIP_AT]:
            for j in range(d):
                out[j] *= real[CLIP_AT] / norm


@jit
def remember(whole: Array, real: Array) -> None:
    """Keep the newest iterate, where its version is published: gradients taken there will arrive."""
    version = whole[COUNT]
    if version != whole[NEXT_PUBLISHED]:
        return
    whole[NEXT_PUBLISHED] = version + spacing(version, whole[FLOOR])
    size, d, head = whole[RING], whole[DIMENSION], whole[RING_HEAD]
    whole[WHOLE_HEADER + head] = version
    ring = places(whole)[5] + head * d
    for j in range(d):
        real[ring + j] = real[REAL_HEADER + j]
    whole[RING_HEAD] = (head + 1) % size
    whole[RING_LENGTH] = min(whole[RING_LENGTH] + 1, size)


@jit
def find(whole: Array, version: int) -> int:
    """Place of a published version in the ring, or -1. The newest are looked at first."""
    size = whole[RING]
    for back in range(1, whole[RING_LENGTH] + 1):
        place = (whole[RING_HEAD] - back + size) % size
        if whole[WHOLE_HEADER + place] == version:
            return int(place)
    return -1


@jit
def follow(whole: Array, real: Array, count: float) -> None:
    """Add the average to the sums of random scaling, in the coordinates that are reported."""
    p, d = whole[FEATURES], whole[DIMENSION]
    average, a, b = REAL_HEADER + AVERAGE * d, REAL_HEADER + SCALING_A * d, REAL_HEADER + SCALING_B * d
    count_square = count * count
    real[SUM_SQUARES] += count_square
    if whole[WHITEN] == 0:
        for j in range(d):
            value = real[average + j]
            real[b + j] += count_square * value
            real[a + j] += count_square * value * value
        return
    k = whole[CLASSES]
    transform = places(whole)[4] + k * (k - 1)
    for start in range(0, d - d % p, p):
        for i in range(p):
            value = 0.0
            for j in range(p):
                value += real[transform + j * p + i] * real[average + start + j]
            real[b + start + i] += count_square * value
            real[a + start + i] += count_square * value * value
    if whole[OBJECTIVE] == HUBER_SCALE:
        value = real[average + p]
        real[b + p] += count_square * value
        real[a + p] += count_square * value * value


@jit
def apply(whole: Array, real: Array, at: int, release: Array, variance: float) -> None:
    """Fold one decoded release into the state.

    ``release`` is the gradient taken at the iterate that stands at ``at`` in ``real``, plus noise of
    ``variance`` a coordinate. Weights and steps depend on public noise levels only.
    """
    p, d = whole[FEATURES], whole[DIMENSION]
    scaled = whole[OBJECTIVE] == HUBER_SCALE
    if scaled:
        release[p] += real[MULTIPLIER] * real[CENTRE]

    spread = 0.25 * real[BOUND] * real[BOUND] + d * variance
    precision = 1.0 / spread
    weight = precision if whole[WEIGHTING] == INVERSE_VARIANCE else 1.0
    whole[COUNT] += 1
    count = float(whole[COUNT])
    real[SUM_PRECISION] += precision
    real[SUM_WEIGHT] += weight
    real[SUM_SPREAD] += weight * weight * spread
    radius = real[RADIUS]
    if whole[STEP] == NOISE_AWARE:
        step = STEP_SHARE * radius * weight / math.sqrt(2.0 * real[SUM_SPREAD])
    else:
        step = real[ETA] * count ** (-real[ALPHA]) * weight * count / real[SUM_WEIGHT]
    share = precision / real[SUM_PRECISION]

    theta, average = REAL_HEADER + ITERATE * d, REAL_HEADER + AVERAGE * d
    mean_at, mean_gradient = REAL_HEADER + MEAN_AT * d, REAL_HEADER + MEAN_GRADIENT * d
    slopes = p if scaled else d
    square = 0.0
    for j in range(d):
        real[mean_at + j] += share * (real[at + j] - real[mean_at + j])
        real[mean_gradient + j] += share * (release[j] - real[mean_gradient + j])
    for j in range(d):
        real[theta + j] -= step * release[j]
    for j in range(slopes):
        square += real[theta + j] * real[theta + j]
    if square > radius * radius:
        shrink = radius / math.sqrt(square)
        for j in range(slopes):
            real[theta + j] *= shrink
    if scaled:
        real[theta + p] = min(max(real[theta + p], real[SCALE_FLOOR]), real[SCALE_CEILING])

    part = 1.0
    if whole[AVERAGING] == POLYAK:
        part = 1.0 / count
    elif whole[AVERAGING] == POLYNOMIAL_DECAY:
        part = (real[DECAY] + 1.0) / (count + real[DECAY])
    for j in range(d):
        real[average + j] += part * (real[theta + j] - real[average + j])
    if whole[SCALING] == 1:
        follow(whole, real, count)
    remember(whole, real)


@jit
def simulate(whole: Array, record: int, noise: Array, coins: Array) -> None:
    """Draw the noise of one simulated record: a function of the seed and the record's number alone."""
    seed, number = np.uint64(whole[SEED]), np.int64(record)
    if whole[KIND] == lattice.LAPLACE:
        simulated_laplace(seed, number, noise)
    else:
        simulated_gaussian(seed, number, noise)
    if whole[KIND] == lattice.L2BALL:
        simulated_words(seed, number, _COIN, coins)


@jit
def learn_record(real: Array, whole: Array, y: float, coins: Array) -> None:
    """Learn from the record whose features stand in ``real``, with the noise that stands in ``whole``.

    Simulated noise is drawn here. The release is randomized and decoded before the state sees it: what
    is learned from is what would have left the device.
    """
    p, d = whole[FEATURES], whole[DIMENSION]
    theta_at, x_at, z_at, g_at, _, _ = places(whole)
    x, z, g = real[x_at : x_at + p], real[z_at : z_at + p], real[g_at : g_at + d]
    theta = real[theta_at : theta_at + d]
    noise_at = WHOLE_HEADER + whole[RING]
    noise, payload = whole[noise_at : noise_at + d], whole[noise_at + d : noise_at + 2 * d]
    if whole[SIMULATED] == 1:
        simulate(whole, whole[COUNT], noise, coins)
    whiten(whole, real, x, z)
    gradient(whole, real, theta, z, y, g)
    kind = whole[KIND]
    lattice.randomize(
        kind, g, real[MECHANISM_RADIUS], real[SPACING], whole[STEPS], np.uint64(whole[THRESHOLD]), noise,
        coins, payload,
    )  # fmt: skip
    lattice.decode(kind, payload, real[UNIT], g)
    apply(whole, real, theta_at, g, real[VARIANCE])


@jit
def learn_record_secure(real: Array, whole: Array, y: float, trials: int, words: Array, coins: Array) -> bool:
    """Learn from one record with noise drawn from random words, or tell that they did not suffice.

    ``words`` are two a trial, then spare ones, then three for coins; in the second case nothing was learned.
    """
    d = whole[DIMENSION]
    noise_at = WHOLE_HEADER + whole[RING]
    noise = whole[noise_at : noise_at + d]
    pairs, spare = words[: 2 * trials], words[2 * trials : -3]
    if whole[KIND] == lattice.LAPLACE:
        status = draw(_LAPLACE_SHAPE, _LAPLACE_TABLE, _LAPLACE_GUIDE, pairs, spare, noise)[0]
    else:
        status = draw(_GAUSSIAN_SHAPE, _GAUSSIAN_TABLE, _GAUSSIAN_GUIDE, pairs, spare, noise)[0]
    if status != DONE:
        return False
    for j in range(3):
        coins[j] = words[words.shape[0] - 3 + j]
    learn_record(real, whole, y, coins)
    return True


@jit
def learn_records(
    real: Array, whole: Array, X: Array, y: Array, levels: Array, reals: Array, wholes: Array, noise: Array,
    coins: Array,
) -> None:  # fmt: skip
    """Learn from the rows of ``X`` in turn; ``noise`` and ``coins`` have a row each unless simulated.

    ``levels`` numbers each row's mechanism, whose parameters stand in ``reals`` and ``wholes``; where it is
    empty all rows are at the current level.
    """
    p, d = whole[FEATURES], whole[DIMENSION]
    x_at = places(whole)[1]
    noise_at = WHOLE_HEADER + whole[RING]
    simulated = whole[SIMULATED] == 1
    for i in range(X.shape[0]):
        for j in range(p):
            real[x_at + j] = X[i, j]
        if levels.shape[0] > 0:
            for j in range(4):
                real[MECHANISM_RADIUS + j] = reals[levels[i], j]
            for j in range(3):
                whole[KIND + j] = wholes[levels[i], j]
        if simulated:
            learn_record(real, whole, y[i], coins[0])
        else:
            for j in range(d):
                whole[noise_at + j] = noise[i, j]
            learn_record(real, whole, y[i], coins[i])


@jit
def learn_releases(
    real: Array, whole: Array, payloads: Array, versions: Array, levels: Array, kinds: Array, units: Array,
    variances: Array,
) -> int:  # fmt: skip
    """Learn from released gradients in turn; return how many were learned before a version was unknown."""
    d = whole[DIMENSION]
    _, _, _, g_at, _, ring_at = places(whole)
    g = real[g_at : g_at + d]
    for i in range(payloads.shape[0]):
        place = find(whole, versions[i])
        if place < 0:
            return i
        level = levels[i]
        lattice.decode(kinds[level], payloads[i], units[level], g)
        apply(whole, real, ring_at + place * d, g, variances[level])
    return int(payloads.shape[0])


@jit
def gradients(real: Array, whole: Array, theta: Array, X: Array, y: Array, out: Array) -> None:
    """Bounded gradients of the rows of ``X``, all at ``theta``: what devices compute before they randomize."""
    z_at = places(whole)[2]
    z = real[z_at : z_at + whole[FEATURES]]
    for i in range(X.shape[0]):
        whiten(whole, real, X[i], z)
        gradient(whole, real, theta, z, y[i], out[i])
