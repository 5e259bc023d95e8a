"""Compiled update of LDP-SGD: one step from (state, release) to state, shared by every way of learning.

``learn_one``, ``learn_many`` and the worker all call :func:`apply`, so that they agree bit for bit. Kernels take two
arrays, ``real`` and ``whole``, as passing a dozen would cost more than a step. They use no BLAS and no clock: the same
releases give the same state on one build and kind of CPU.

*Delays.* A gradient learned a releases after the iterate at which it was taken has a delay of a. If the product ``h eta
a`` of curvature h, step eta and delay exceeds about 1, the iterate overshoots. So steps are at most ``SAFE / (h a)``, a
the mean recent age and h the estimated curvature (Mishchenko, Bach, Even and Woodworth, "Asynchronous SGD beats
minibatch SGD under arbitrary delays", 2022). Ages are differences of versions, so they depend on the log alone.

h is the regression slope of released gradients on their iterates, ``sum q <d, g> / sum q |d|^2``, d and g centred, q
the inverse variance. It is unbiased, since a release's noise does not depend on the iterate, and a direction that
overshoots dominates the sums. At first h is ``C0 / R``, the largest mean curvature of gradients bounded by C0 across a
ball of radius R. Sums decay: h uses about the newest quarter of the releases, ages the newest tenth.

*Publication.* Which versions (numbers of releases learned) a partition publishes follows from the version alone, so
that a replay publishes the same ones. With ``floor = releases // 64`` the spacing at version v is the largest power of
two not above ``max(1, v // 200, min(floor, v // 100))``: at most 1% of the count, and 0.25% to 0.5% of it once past the
floor. The spacing only changes at versions that both the old and the new one divide. So the version published after v
is exactly one spacing later.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from murk._internal.jit import (
    borrowed,
    deferred,
    inlined,
    integers_at,
    jit,
    jit_helper,
    jit_short,
    numbers_at,
    words_at,
)
from murk.privacy.mechanisms import lattice
from murk.privacy.noise import kernels as draws
from murk.privacy.noise.chacha import fresh_words
from murk.privacy.noise.distributions import LAPLACE_NOISE
from murk.privacy.noise.kernels import Purpose
from murk.protocols.gradients.objectives import BALANCED, HUBER_SCALE, LOGISTIC, SOFTMAX
from murk.protocols.one_record import LEARNED, NO_WORDS, TOO_FEW
from murk.task.learning import MaxStaleness

Array = Any  # kernels take numpy arrays of fixed element types; their annotations would only repeat "array"
Arrays = tuple[Array, Array, Array, Array, Array, Array]

NORM, MALLOWS, CLIP = 0, 1, 2  # how a feature vector is weighted
NOISE_AWARE, INVERSE_SCALING = 0, 1  # how a step is sized
NO_AVERAGE, POLYAK, POLYNOMIAL_DECAY = 0, 1, 2  # how iterates are averaged
UNIFORM, INVERSE_VARIANCE = 0, 1  # how people are weighted

# Places in ``whole``.
OBJECTIVE, WEIGHTS, STEP, AVERAGING, WEIGHTING, FEATURES, DIMENSION, CLASSES, RING, WHITEN = range(10)
SCALING, OUTPUTS, FLOOR, SIMULATED, SEED, KIND, STEPS, THRESHOLD, DRAWS, COUNT = range(10, 20)
NEXT_PUBLISHED, RING_HEAD, RING_LENGTH, DELAYS, AGE, WHOLE_HEADER = range(20, 26)

# Places in ``real``; those from MECHANISM_RADIUS to VARIANCE are of the current level.
HUBER_C, CENTRE, MULTIPLIER, KNOWN_SCALE, OWN_SPREAD, CLIP_AT, RADIUS, SCALE_FLOOR, SCALE_CEILING, ETA = range(10)
ALPHA, DECAY, MECHANISM_RADIUS, SPACING, UNIT, VARIANCE, SUM_PRECISION, SUM_WEIGHT, SUM_SPREAD = range(10, 19)
SUM_SQUARES, BOUND, MEAN_AGE, SLOPE, SLOPE_SQUARES, COUNTED, REAL_HEADER = range(19, 26)

# Noise-aware steps are this share of radius w_i / sqrt(2 sum w_j^2 v_j), the best in the worst case: radii are
# generous, and curved objectives are biased if iterates wander far (benchmarks/accuracy.py).
STEP_SHARE = 0.5
SPARE_WORDS = 4  # additional random words of one record, for rare trials
WORDS_HEADER = 3 + SPARE_WORDS  # index of the first word of the trials
ITERATE, AVERAGE, SCALING_A, SCALING_B, MEAN_AT, MEAN_GRADIENT, ROWS = range(7)  # state vectors, one after another


@jit_helper
def places(whole: Array) -> tuple[int, int, int, int, int, int]:
    """Return where state vectors, x, z, gradient, public matrices (basis, transform) and ring begin in ``real``."""
    p, d = whole[FEATURES], whole[DIMENSION]
    x = REAL_HEADER + ROWS * d
    basis = x + 2 * p + d
    transform = basis + whole[CLASSES] * whole[OUTPUTS]
    ring = transform + whole[WHITEN] * p * p
    return REAL_HEADER, x, x + p, x + 2 * p, basis, ring


@jit_helper
def trials_of(size: int) -> int:
    """Return a number of trials that usually suffices for ``size`` numbers of noise; otherwise the draw continues."""
    return size + size // 25 + 2


@jit_helper
def words_of(trials: int) -> int:
    """Return the number of random words for one release: three for coins, spare ones, and two for each trial."""
    return WORDS_HEADER + 2 * trials


@jit
def whiten(whole: Array, real: Array, x: Array, z: Array) -> None:
    """Write working features ``z = W x``, or x without whitening."""
    p = x.shape[0]
    if whole[WHITEN] == 0:
        z[:] = x
        return
    at = places(whole)[4] + whole[CLASSES] * whole[OUTPUTS]
    for i in range(p):
        total = 0.0
        for j in range(p):
            total += real[at + j] * x[j]
        z[i] = total
        at += p


@jit
def softmax_gradient(whole: Array, real: Array, theta: Array, z: Array, y: float, weight: float, out: Array) -> None:
    """Write ``(p - e_y) (x) z weight``, in contrast coordinates or with one row for each class."""
    p, classes, outputs = whole[FEATURES], whole[CLASSES], whole[OUTPUTS]
    basis = places(whole)[4]
    scores = np.zeros(classes)
    for r in range(outputs):
        score = 0.0
        for j in range(p):
            score += theta[r * p + j] * z[j]
        for k in range(classes):
            scores[k] += real[basis + k * outputs + r] * score
    top = scores[0]
    for k in range(1, classes):
        top = max(top, scores[k])
    total = 0.0
    for k in range(classes):
        scores[k] = math.exp(scores[k] - top)
        total += scores[k]
    for r in range(outputs):
        residual = 0.0
        for k in range(classes):
            miss = scores[k] / total - (1.0 if float(k) == y else 0.0)
            residual += real[basis + k * outputs + r] * miss
        for j in range(p):
            out[r * p + j] = residual * z[j] * weight
    scores[:] = 0.0


@jit
def other_gradient(
    whole: Array, real: Array, theta: Array, z: Array, y: float, fit: float, weight: float, out: Array
) -> None:
    """Write a Huber or softmax gradient minus its public centre; with any objective, a missing target gives zero."""
    p = whole[FEATURES]
    scaled = whole[OBJECTIVE] == HUBER_SCALE
    if y != y or fit != fit:  # a missing target, or a gradient that is not finite, gives zero
        out[:] = 0.0
        if scaled:
            out[p] = -real[MULTIPLIER] * real[CENTRE]
        return
    if whole[OBJECTIVE] == SOFTMAX:
        softmax_gradient(whole, real, theta, z, y, weight, out)
        return
    c = real[HUBER_C]
    sigma = theta[p] * real[MULTIPLIER] if scaled else real[KNOWN_SCALE]
    u = (y - fit) / sigma
    slope = -min(max(u, -c), c) * weight
    for j in range(p):
        out[j] = slope * z[j]
    if scaled:
        fall = -0.5 * min(u * u, c * c)
        half_kappa = real[CENTRE] + 0.25 * c * c
        out[p] = real[MULTIPLIER] * ((fall + half_kappa) * weight - real[CENTRE])


@jit
def shorten(real: Array, out: Array) -> None:
    """Scale a gradient that is longer than ``real[CLIP_AT]`` down to that norm, for ``weights="clip"``."""
    norm = 0.0
    for j in range(out.shape[0]):
        norm += out[j] * out[j]
    norm = math.sqrt(norm)
    if norm > real[CLIP_AT]:
        for j in range(out.shape[0]):
            out[j] *= real[CLIP_AT] / norm


@jit
def weigh(whole: Array, square: float) -> float:
    """Return the weight of a record with ``square = |z|^2``, z being its features after any whitening."""
    if whole[WEIGHTS] == NORM:
        return 1.0 / max(1.0, math.sqrt(square))
    if whole[WEIGHTS] == MALLOWS:
        return min(1.0, 2.0 / square)
    return 1.0


@jit
def by_logit(whole: Array) -> bool:
    """Return whether the gradient is x times a residual that depends on the logit."""
    return bool(whole[OBJECTIVE] == LOGISTIC or whole[OBJECTIVE] == BALANCED)


@jit
def miss(whole: Array, fit: float, y: float) -> float:
    """Return the residual, probability minus outcome; for the balanced loss, divided by the larger of p and 1 - p."""
    if whole[OBJECTIVE] == BALANCED:
        return -math.exp(min(-fit, 0.0)) if y > 0.5 else math.exp(min(fit, 0.0))
    # The exponential of a logit beyond 700 is infinite.
    return 1.0 / (1.0 + math.exp(-min(max(fit, -700.0), 700.0))) - y


@jit
def gradient(whole: Array, real: Array, theta: Array, z: Array, y: float, out: Array) -> None:
    """Write the weighted gradient at ``theta`` minus its public centre; zero for a missing target or if not finite."""
    p = whole[FEATURES]
    square, fit = 0.0, 0.0
    for j in range(p):
        square += z[j] * z[j]
        fit += theta[j] * z[j]
    weight = weigh(whole, square)
    if by_logit(whole) and y == y:
        slope = miss(whole, fit, y) * weight
        for j in range(p):
            out[j] = slope * z[j]
    else:
        other_gradient(whole, real, theta, z, y, fit, weight, out)
    if whole[WEIGHTS] == CLIP:
        shorten(real, out)


# Largest product of curvature, step and mean age. Up to 1/e nothing overshoots; a block taken at one iterate has a mean
# age of half its size, so that its steps add up to 1/2.
SAFE = 0.25

# Ages beyond 1 / _PART of the count weigh more, and the resulting iterates less, as hardly anything was learned.
_PART = 10.0
# Sums of ages are over about the newest tenth of the count, sums for the curvature over the newest quarter.
_AGES, _SLOPES = 10.0, 4.0
_FLATTEST = 0.1  # least curvature h relative to ``C0 / R``: if the iterate hardly moved, the estimate of h is noise


@jit
def age_factor(whole: Array, real: Array) -> float:
    """Return the factor by which delays shorten the next step: at most 1.

    It is the largest safe step, ``SAFE / (h a)``, divided by the mean recent step.
    """
    count = float(whole[COUNT])
    if whole[DELAYS] == 0 or real[MEAN_AGE] <= 0.0 or count == 0.0:
        return 1.0
    least = real[BOUND] / real[RADIUS]
    curvature = (real[SLOPE] + 1.0 / least) / (real[SLOPE_SQUARES] + 1.0 / (least * least))
    most = SAFE / (max(curvature, _FLATTEST * least) * real[MEAN_AGE])
    step = STEP_SHARE * real[RADIUS] * (real[SUM_WEIGHT] / count) / math.sqrt(2.0 * real[SUM_SPREAD])
    return float(min(1.0, most / step))


@jit
def note_age(
    whole: Array, real: Array, at: Array, mean_at: Array, release: Array, mean_gradient: Array, precision: float
) -> float:
    """Add a release's age, gradient and iterate to the sums; return the weight of the resulting iterate."""
    count, age = float(whole[COUNT]), float(whole[AGE])
    counts = 1.0
    if age > 0.0 or real[MEAN_AGE] > 0.0:
        far = max(1.0, _PART * age / count)
        if age > 1.0:
            counts = 1.0 / (far * far)
        real[MEAN_AGE] += (age * far - real[MEAN_AGE]) * min(1.0, _AGES / count)
        squares, slope = 0.0, 0.0
        for j in range(whole[DIMENSION]):
            moved = at[j] - mean_at[j]
            squares += moved * moved
            slope += moved * (release[j] - mean_gradient[j])
        keep = 1.0 - _SLOPES / count if count > _SLOPES else 1.0
        weight = precision * whole[DIMENSION]
        real[SLOPE_SQUARES] = keep * real[SLOPE_SQUARES] + weight * squares
        real[SLOPE] = keep * real[SLOPE] + weight * slope
    real[COUNTED] += counts
    return float(counts / real[COUNTED])


# Module constants, so that they are constants of the compiled code.
_LAPLACE_SHAPE, _LAPLACE_TABLE, _LAPLACE_GUIDE = LAPLACE_NOISE.shape, LAPLACE_NOISE.table, LAPLACE_NOISE.guide
_NO_NOISE = np.zeros((0, 0), dtype=np.int64)  # placeholder for noise in batches, which a single record does not use
_COIN = int(Purpose.COIN)  # purpose of simulated coins, as a constant that the compiler can fold


@jit_helper
def remember(whole: Array, real: Array) -> None:
    """Keep the newest iterate, whose version is published: devices take gradients at it."""
    version = whole[COUNT]
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
    """Return the position of a published version in the ring, or -1. The newest are searched first."""
    size = whole[RING]
    for back in range(1, whole[RING_LENGTH] + 1):
        index = (whole[RING_HEAD] - back + size) % size
        if whole[WHOLE_HEADER + index] == version:
            return int(index)
    return -1


@jit
def follow_whitened(
    whole: Array, real: Array, average: Array, scaling_a: Array, scaling_b: Array, square: float
) -> None:
    """Add the average, in reported coordinates, to the sums of random scaling."""
    p, d = whole[FEATURES], whole[DIMENSION]
    transform = places(whole)[4] + whole[CLASSES] * whole[OUTPUTS]
    for start in range(0, d - d % p, p):
        for i in range(p):
            value = 0.0
            for j in range(p):
                value += real[transform + j * p + i] * average[start + j]
            scaling_b[start + i] += square * value
            scaling_a[start + i] += square * value * value
    if whole[OBJECTIVE] == HUBER_SCALE:
        value = average[p]
        scaling_b[p] += square * value
        scaling_a[p] += square * value * value


@inlined
def apply(whole: Array, real: Array, state: Arrays, at: Array, release: Array, variance: float) -> None:
    """Apply one decoded release to the state, whose vectors are those of `state_views`.

    ``release`` is the gradient taken at the iterate ``at``, plus noise of ``variance`` in each coordinate. Weights and
    steps depend only on public noise levels and, with ``DELAYS``, on the ages of releases (``whole[AGE]``).
    """
    theta, average, scaling_a, scaling_b, mean_at, mean_gradient = state
    p, d = whole[FEATURES], whole[DIMENSION]
    scaled = whole[OBJECTIVE] == HUBER_SCALE
    if scaled:
        release[p] += real[MULTIPLIER] * real[CENTRE]

    spread = real[OWN_SPREAD] + d * variance
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
    counts = 1.0 / count
    if whole[DELAYS] == 1:
        if whole[AGE] > 0 or real[MEAN_AGE] > 0.0:
            counts = note_age(whole, real, at, mean_at, release, mean_gradient, precision)
            step *= age_factor(whole, real)
        else:
            real[COUNTED] += 1.0
            counts = 1.0 / real[COUNTED]

    slopes = p if scaled else d
    square = 0.0
    for j in range(d):
        mean_at[j] += share * (at[j] - mean_at[j])
        mean_gradient[j] += share * (release[j] - mean_gradient[j])
    for j in range(d):
        theta[j] -= step * release[j]
    for j in range(slopes):
        square += theta[j] * theta[j]
    if square > radius * radius:
        shrink = radius / math.sqrt(square)
        for j in range(slopes):
            theta[j] *= shrink
    if scaled:
        theta[p] = min(max(theta[p], real[SCALE_FLOOR]), real[SCALE_CEILING])

    part = 1.0
    if whole[AVERAGING] == POLYAK:
        part = counts
    elif whole[AVERAGING] == POLYNOMIAL_DECAY:
        part = (real[DECAY] + 1.0) / (count + real[DECAY])
    for j in range(d):
        average[j] += part * (theta[j] - average[j])
    if whole[SCALING] == 1:
        count_square = count * count
        real[SUM_SQUARES] += count_square
        if whole[WHITEN] == 1:
            follow_whitened(whole, real, average, scaling_a, scaling_b, count_square)
        else:
            for j in range(d):
                scaling_b[j] += count_square * average[j]
                scaling_a[j] += count_square * average[j] * average[j]
    if whole[COUNT] == whole[NEXT_PUBLISHED]:
        remember(whole, real)


@jit
def simulate_other(whole: Array, seed: np.uint64, record: np.int64, noise: Array, coins: Array) -> None:
    """Draw the noise of one simulated record whose mechanism is not the Gaussian."""
    if whole[KIND] == lattice.LAPLACE:
        draws.simulated_laplace(seed, record, noise)
    else:
        if whole[DRAWS] == 1:
            draws.simulated_gaussian(seed, record, noise)
        draws.simulated_words(seed, record, _COIN, coins)


@jit
def release_other(whole: Array, real: Array, g: Array, noise: Array, payload: Array, coins: Array) -> None:
    """Randomize ``g`` and decode the release, for mechanisms other than the Gaussian."""
    kind = whole[KIND]
    parameters = real[MECHANISM_RADIUS], real[SPACING], whole[STEPS], np.uint64(whole[THRESHOLD])
    lattice.randomize(kind, g, parameters, noise, coins, payload)
    lattice.decode(kind, payload, real[UNIT], g)


@jit
def release_closest(whole: Array, real: Array, g: Array, noise: Array, row: int, payload: Array, coins: Array) -> None:
    """Do the same as `release_other` for a mechanism that takes several draws: a row of ``noise``, unless simulated."""
    drawn = np.empty(whole[DRAWS] * whole[DIMENSION], dtype=np.int64)
    if whole[SIMULATED] == 1:
        draws.simulated_gaussian(np.uint64(whole[SEED]), np.int64(whole[COUNT]), drawn)
    else:
        drawn[:] = noise[row, : drawn.shape[0]]
    release_other(whole, real, g, drawn, payload, coins)
    drawn[:] = 0


@jit
def state_views(real: Array, whole: Array) -> Arrays:
    """Return views of the state's vectors, which are faster than indexing ``real``."""
    d = whole[DIMENSION]
    state = real[REAL_HEADER : REAL_HEADER + 6 * d]
    iterates, scaling, means = state[: 2 * d], state[2 * d : 4 * d], state[4 * d :]
    return iterates[:d], iterates[d:], scaling[:d], scaling[d:], means[:d], means[d:]


@jit
def record_views(real: Array, whole: Array) -> Arrays:
    """Return views of x, z = W x, the gradient, its noise, the payload and the random words of a record."""
    p, d = whole[FEATURES], whole[DIMENSION]
    _, x, z, g, _, _ = places(whole)
    noise = WHOLE_HEADER + whole[RING]
    if whole[WHITEN] == 0:
        z = x
    return (
        real[x : x + p],
        real[z : z + p],
        real[g : g + d],
        whole[noise : noise + d],
        whole[noise + d : noise + 2 * d],
        whole[noise + 2 * d :].view(np.uint64),
    )


@jit
def forget(x: Array, z: Array, noise: Array, payload: Array) -> None:
    """Wipe the record and its noise, which must not get into copies of the learner."""
    x[:-1] = 0.0
    z[:-1] = 0.0
    z[-1] = 1.0
    noise[:] = 0
    payload[:] = 0


@inlined
def learn_row(whole: Array, real: Array, state: Arrays, record: Arrays, noise: Array, row: int, target: float) -> None:
    """Learn from the record of these `record_views`; several draws of noise are in a row of ``noise``."""
    theta, (x, z, g, own_noise, payload, own_coins) = state[0], record
    p, d = whole[FEATURES], whole[DIMENSION]
    for j in range(p):
        if x[j] - x[j] != 0.0:
            x[j] = 0.0
    if whole[WHITEN] == 1:
        whiten(whole, real, x, z)
    # The usual cases of `gradient` and lattice.randomize are inlined here: calls would double the time of a step.
    if by_logit(whole) and whole[WEIGHTS] != CLIP and target == target:
        square, fit = 0.0, 0.0
        for j in range(p):
            square += z[j] * z[j]
            fit += theta[j] * z[j]
        slope = miss(whole, fit, target) * weigh(whole, square)
        for j in range(p):
            g[j] = slope * z[j]
    else:
        gradient(whole, real, theta, z, target, g)
    if whole[KIND] == lattice.GAUSSIAN:
        lattice.quantise_l2(g, real[SPACING], whole[STEPS], payload)
        unit = real[UNIT]
        for j in range(d):
            g[j] = (payload[j] + own_noise[j]) * unit
    elif whole[DRAWS] > 1:
        release_closest(whole, real, g, noise, row, payload, own_coins)
    else:
        release_other(whole, real, g, own_noise, payload, own_coins)
    apply(whole, real, state, theta, g, real[VARIANCE])


@jit
def learn_records(
    real: Array, whole: Array, X: Array, y: Array, levels: Array, reals: Array, kinds: Array, noise: Array, coins: Array
) -> None:
    """Learn from the rows of ``X`` in turn; without a seed ``noise`` and ``coins`` have a row for each of them.

    The constant may be left out of ``X``; a feature that is not finite counts as 0. ``levels`` are indices into
    ``reals`` and ``kinds`` (if empty: the current level). The state depends only on releases.
    """
    whole, real, noise = borrowed(whole), borrowed(real), borrowed(noise)
    d = whole[DIMENSION]
    state, record = state_views(real, whole), record_views(real, whole)
    x, z, _, own_noise, payload, words = record
    own_coins, room = words[:3], words[WORDS_HEADER : WORDS_HEADER + draws.room_for(d)]
    simulated, seed = whole[SIMULATED] == 1, np.uint64(whole[SEED])
    for i in range(X.shape[0]):
        for j in range(X.shape[1]):
            x[j] = X[i, j]
        if levels.shape[0] > 0:
            for j in range(4):
                real[MECHANISM_RADIUS + j] = reals[levels[i], j]
            for j in range(4):
                whole[KIND + j] = kinds[levels[i], j]
        if not simulated:
            for j in range(d):
                own_noise[j] = noise[i, j]
            for j in range(3):
                own_coins[j] = coins[i, j]
        elif whole[KIND] == lattice.GAUSSIAN:
            draws.fast_gaussian(seed, np.int64(whole[COUNT]), room, own_noise)
        else:
            simulate_other(whole, seed, np.int64(whole[COUNT]), own_noise, own_coins)
        learn_row(whole, real, state, record, noise, i, y[i])
    forget(x, z, own_noise, payload)
    words[:] = 0


@jit_short
def learn_record(address: int, y: float, trials: int) -> int:
    """Learn from the one record whose features are in the memory at an address, and wipe it.

    Secure noise is drawn from words for ``trials`` trials; with 0, noise and coins are in the memory. Returns
    `LEARNED`; or, if nothing was learned, `NO_WORDS` or `TOO_FEW`, after which the draw continues from the words.
    """
    header = integers_at(address, WHOLE_HEADER)
    p, d = header[FEATURES], header[DIMENSION]
    noise_at = WHOLE_HEADER + header[RING]
    words_start, room = address + 8 * (noise_at + 2 * d), words_of(trials_of(d))
    size = noise_at + 2 * d + room
    whole, words = integers_at(address, size), words_at(words_start, room)
    noise, payload = integers_at(address + 8 * noise_at, d), integers_at(address + 8 * (noise_at + d), d)
    start = address + 8 * size
    _, x_at, z_at, g_at, _, ring_at = places(whole)
    real = numbers_at(start, ring_at + whole[RING] * d)
    # Views at addresses are faster than slices.
    at, row = start + 8 * REAL_HEADER, 8 * d
    state = (
        numbers_at(at, d),
        numbers_at(at + row, d),
        numbers_at(at + 2 * row, d),
        numbers_at(at + 3 * row, d),
        numbers_at(at + 4 * row, d),
        numbers_at(at + 5 * row, d),
    )
    x, z = numbers_at(start + 8 * x_at, p), numbers_at(start + 8 * (z_at if whole[WHITEN] == 1 else x_at), p)
    record = x, z, numbers_at(start + 8 * g_at, d), noise, payload, words
    if whole[SIMULATED] == 1:
        seed = np.uint64(whole[SEED])
        if whole[KIND] == lattice.GAUSSIAN:
            own_words = words[WORDS_HEADER : WORDS_HEADER + draws.room_for(d)]
            draws.fast_gaussian(seed, np.int64(whole[COUNT]), own_words, noise)
        else:
            simulate_other(whole, seed, np.int64(whole[COUNT]), noise, words[:3])
    elif trials > 0:
        # No coins are drawn where none are used, to save time.
        unused = 0 if whole[KIND] in lattice.DIRECTIONS else 3
        if not fresh_words(words_start + 8 * unused, words_of(trials) - unused):
            return NO_WORDS
        pairs, spare = words_at(words_start + 8 * WORDS_HEADER, 2 * trials), words_at(words_start + 24, SPARE_WORDS)
        if whole[KIND] == lattice.LAPLACE:
            status = draws.draw(_LAPLACE_SHAPE, _LAPLACE_TABLE, _LAPLACE_GUIDE, pairs, spare, noise)[0]
        else:
            status = draws.draw_gaussian(pairs, spare, noise)[0]
        if status != draws.DONE:
            return TOO_FEW
    learn_row(whole, real, state, record, _NO_NOISE, 0, y)
    forget(x, z, noise, payload)
    words[:] = 0
    return LEARNED


@jit
def learn_releases(
    real: Array, whole: Array, rows: Array, versions: Array, levels: Array, kinds: Array, units: Array, variances: Array
) -> int:
    """Learn from released gradients in turn; return how many were learned before an unknown version."""
    whole, real, rows = borrowed(whole), borrowed(real), borrowed(rows)
    d = whole[DIMENSION]
    state = state_views(real, whole)
    _, _, _, g_at, _, ring_at = places(whole)
    g = real[g_at : g_at + d]
    for i in range(rows.shape[0]):
        index = find(whole, versions[i])
        if index < 0:
            return i
        level = levels[i]
        lattice.decode(kinds[level], rows[i], units[level], g)
        at = real[ring_at + index * d : ring_at + (index + 1) * d]
        whole[AGE] = whole[COUNT] - versions[i]
        apply(whole, real, state, at, g, variances[level])
        whole[AGE] = 0
    return int(rows.shape[0])


@deferred
def gradients(real: Array, whole: Array, theta: Array, X: Array, y: Array, out: Array) -> None:
    """Compute bounded gradients of rows at ``theta``. Nothing else is written, as threads may share a device."""
    z = np.zeros(whole[FEATURES])
    for i in range(X.shape[0]):
        whiten(whole, real, X[i], z)
        gradient(whole, real, theta, z, y[i], out[i])
    z[:] = 0.0


@jit_helper
def spacing(version: int, floor: int) -> int:
    """Return the distance from a published version to the next one.

    >>> [spacing(version, 1) for version in (0, 399, 400, 1_000_000)]
    [1, 1, 2, 4096]
    """
    widest = max(1, version // 200, min(floor, version // 100))
    power = 1
    while 2 * power <= widest:
        power *= 2
    return power


@jit_helper
def is_published(version: int, floor: int) -> bool:
    """Return whether the iterate of a version is published."""
    return version % spacing(version, floor) == 0


@jit_helper
def newest_published(version: int, floor: int) -> int:
    """Return the largest published version that is not above the given one."""
    return version - version % spacing(version, floor)


def ring_size(max_staleness: MaxStaleness) -> int:
    """Return the largest number of published versions in ``[n - limit(n), n]``, for any count n.

    ``limit(n)``, the largest admitted delay, is constant at first; then ``[0, releases]`` has the most versions, since
    gaps never shrink. Later it is s n, s the share; gaps are wider than a 400th of ``(1 - s) n``, so there are at most
    ``400 s / (1 - s) + 1``.

    >>> ring_size(MaxStaleness())
    101
    """
    early, version = 0, 0
    while version <= max_staleness.releases:
        early += 1
        version += spacing(version, max_staleness.floor)
    share = max_staleness.share_ppm
    late = -(-400 * share // (1_000_000 - share)) + 1
    return max(early, late)
