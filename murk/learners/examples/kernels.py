"""The update: one compiled step from (state, released example) to state, shared by every way of learning.

``learn_one``, ``learn_many`` and the worker end in :func:`apply`, so that they agree bit for bit. No BLAS and no
clock: the same releases give the same state on one build and kind of CPU.
"""

# ruff: noqa: F403, F405 -- some sixty places in two arrays, used as bare names by every kernel.

from __future__ import annotations

import math

import numpy as np

from murk._jit import inlined, jit
from murk._memory import borrowed
from murk.learners.examples.directions import own_variance, quantise_direction, read_direction, ridge_of, to_direction
from murk.learners.examples.layout import *
from murk.learners.examples.polish import follow, follow_direction, refresh
from murk.learners.examples.transforms import SQUARED, slopes, value
from murk.privacy.mechanisms import lattice
from murk.privacy.noise.kernels import fast_gaussian, room_for
from murk.privacy.noise.philox import Purpose, block

_TOSS, _FIRST = np.uint64(Purpose.COIN), np.uint64(0)
_FAIR = np.uint64(2**63)

# Honest Gaussian noise lies this many standard deviations from its mean with a probability below 2e-15.
IMPLAUSIBLE = 8.0

# Noise-aware steps are this share of the worst case's best (measured in benchmarks/iwp.py).
STEP_SHARE = 1.0


@inlined
def to_vector(form: int, boxed: int, scale: float, x: Array, y: float, out: Array) -> None:
    """What a record's mechanism randomizes: ``y x``; ``(x, y)`` with y -1 or +1; or ``(x, scale y)`` with y real.

    ``x`` is coded, the constant last; features that are not finite count as 0, and where the features' set is the
    box they are projected to [-1, 1]. ``y`` is 0 or 1, or real and projected to [-1, 1]. Without a target
    (NaN) all is 0: the mechanism is the same, so nobody can tell. Directions are those of :func:`to_direction`.
    """
    last = x.shape[0] - 1
    if form >= DIRECTED_LABEL:
        to_direction(form, boxed, scale, x, y, out)
        return
    for j in range(last):
        xj = x[j]
        if xj - xj != 0.0 or y != y:
            xj = 0.0
        elif boxed == 1:
            xj = min(max(xj, -1.0), 1.0)
        out[j] = xj
    if y != y:
        out[last] = 0.0
    elif form == REAL:
        out[last] = scale * min(max(y, -1.0), 1.0)
    else:
        label = 1.0 if y > 0.5 else -1.0
        out[last] = label
        if form == PRODUCT:
            for j in range(last):
                out[j] *= label


@inlined
def loss_at(whole: Array, real: Array, z: float, v: float, target: float) -> float:
    """Unbiased estimate of the loss at a score z with noise of variance v."""
    if whole[LOSS] == SQUARED:
        miss = z - target
        return float(0.5 * (miss * miss - v - real[TARGET_VARIANCE]))
    if whole[FORM] == PRODUCT:
        return value(whole[LOSS], whole[TERMS], real[WIDTH], z, v)
    keep, z = real[KEEP], z * target
    found = keep * value(whole[LOSS], whole[TERMS], real[WIDTH], z, v)
    return float(found + (1.0 - keep) * value(whole[LOSS], whole[TERMS], real[WIDTH], -z, v))


@inlined
def pulls(whole: Array, real: Array, z: float, v: float, target: float) -> tuple[float, float]:
    """``(A, C)`` with which the gradient estimate is ``A u~ - C D theta``; z is ``theta'u~``."""
    if whole[LOSS] == SQUARED:
        return z - target, 1.0
    if whole[FORM] == PRODUCT:
        return slopes(whole[LOSS], whole[TERMS], real[WIDTH], z, v)
    keep, z = real[KEEP], z * target
    first, second = slopes(whole[LOSS], whole[TERMS], real[WIDTH], z, v)
    other, other_second = slopes(whole[LOSS], whole[TERMS], real[WIDTH], -z, v)
    pull = keep * first - (1.0 - keep) * other
    return target * pull, keep * second + (1.0 - keep) * other_second


@inlined
def add_loss(real: Array, found: float, weight: float) -> None:
    """Add a release's loss to the running mean."""
    if found - found == 0.0:
        real[LOSS_WEIGHT] += weight
        real[LOSS_SUM] += weight * found
        real[LOSS_WEIGHT_SQUARES] += weight * weight
        real[LOSS_CROSS] += weight * weight * found
        real[LOSS_SQUARES] += weight * weight * found * found


@inlined
def follow_loss(whole: Array, real: Array, z: float, v: float, target: float, weight: float) -> None:
    """Add a release's estimate of the average's loss to the running mean."""
    add_loss(real, loss_at(whole, real, z, v, target), weight)


@inlined
def update(whole: Array, real: Array, theta: Array, average: Array, a: Array, b: Array, gathered: Array) -> bool:
    """Take one step with the gathered gradients; whether it was taken, for one that is not finite is not."""
    p = theta.shape[0]
    weight, radius = real[BATCH_WEIGHT], real[RADIUS]
    whole[UPDATES] += 1
    count = float(whole[UPDATES])
    done = True
    if weight > 0.0:
        real[SUM_WEIGHT] += weight
        if whole[STEP] == NOISE_AWARE:
            step = STEP_SHARE * radius * weight / math.sqrt(2.0 * real[SUM_SPREAD])
        else:
            step = real[ETA] * count ** (-real[ALPHA]) * weight * count / real[SUM_WEIGHT]
        real[LAST_STEP] = step
        square = 0.0
        for j in range(p):
            gathered[j] = theta[j] - step * (gathered[j] / weight + real[RIDGE] * theta[j])
            square += gathered[j] * gathered[j]
        done = square - square == 0.0
        if done:
            shrink = radius / math.sqrt(square) if square > radius * radius else 1.0
            for j in range(p):
                theta[j] = gathered[j] * shrink
    for j in range(p):
        gathered[j] = 0.0
    real[BATCH_WEIGHT] = 0.0
    whole[IN_BATCH] = 0

    part = 1.0
    if whole[AVERAGING] == POLYAK:
        part = 1.0 / count
    elif whole[AVERAGING] == POLYNOMIAL_DECAY:
        part = (real[DECAY] + 1.0) / (count + real[DECAY])
    square = count * count
    real[SUM_SQUARES] += square
    for j in range(p):
        average[j] += part * (theta[j] - average[j])
        b[j] += square * average[j]
        a[j] += square * average[j] * average[j]
    return done


@inlined
def step_on(
    whole: Array, real: Array, theta: Array, average: Array, a: Array, b: Array, gathered: Array, reference: Array
) -> None:
    """What follows each release: a step where the batch is full, and from time to time a new reference point."""
    whole[IN_BATCH] += 1
    if whole[IN_BATCH] >= whole[BATCH] and not update(whole, real, theta, average, a, b, gathered):
        whole[REFUSED] += 1
    if whole[COUNT] == whole[NEXT_REFRESH]:
        refresh(whole, real, average, reference)


@inlined
def apply(
    whole: Array, real: Array, theta: Array, average: Array, a: Array, b: Array, gathered: Array, reference: Array,
    u: Array, target: float,
) -> None:  # fmt: skip
    """Apply one decoded release into the state.

    ``u`` is the released vector, ``target`` what was released beside it. What no honest release does, and what is
    not finite, is refused and counted; weights and steps depend on public noise levels only.
    """
    p = whole[FEATURES]
    last = p - 1
    whole[COUNT] += 1
    z, at, square, size, size_at, length = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(last):
        z += theta[j] * u[j]
        at += reference[j] * u[j]
        square += u[j] * u[j]
        size += theta[j] * theta[j]
        size_at += reference[j] * reference[j]
    length = size + theta[last] * theta[last]
    variance, constant = real[VARIANCE], real[CONSTANT_VARIANCE]
    known = variance * size + constant * theta[last] * theta[last]
    z += theta[last] * u[last]
    at += reference[last] * u[last]
    directed = whole[FORM] >= DIRECTED_LABEL
    if directed or whole[FORM] == PRODUCT:
        square += u[last] * u[last]
    if directed:
        variance = own_variance(p, square, u[p])
        constant = variance
    if whole[UNCORRECTED] == 1:
        variance, constant = 0.0, 0.0
    v = variance * size + constant * theta[last] * theta[last]
    v_at = variance * size_at + constant * reference[last] * reference[last]
    weight = 1.0 / real[SPREAD] if whole[WEIGHTING] == INVERSE_VARIANCE else 1.0

    plausible = square <= real[LIMIT] * real[LIMIT] and abs(target) <= real[TARGET_LIMIT]
    plausible = plausible and abs(z) <= real[BOUND] * math.sqrt(length) + IMPLAUSIBLE * math.sqrt(known)
    if directed:
        plausible = plausible and abs(u[p]) <= real[TARGET_LIMIT]
    if plausible:
        pull, push = pulls(whole, real, z, v, target)
        total = weight * (abs(pull) * math.sqrt(square + 1.0) + abs(push) * real[VARIANCE] * math.sqrt(length))
        plausible = total * total - total * total == 0.0
    if plausible:
        follow_loss(whole, real, at, v_at, target, weight)
        if whole[POLISH] == 1 and directed:
            follow_direction(whole, real, reference, u, at, target, weight)
        elif whole[POLISH] == 1:
            follow(whole, real, reference, u, at, v_at, target, weight)
        for j in range(last):
            gathered[j] += weight * (pull * u[j] - push * variance * theta[j])
        gathered[last] += weight * (pull * u[last] - push * constant * theta[last])
        if directed and real[DIRECTED_RIDGE] != 0.0:
            ridge = weight * ridge_of(whole, real, u[last], target)
            for j in range(p):
                gathered[j] += ridge * theta[j]
        for j in range(whole[FREE], p):
            gathered[j] = 0.0
        real[BATCH_WEIGHT] += weight
        real[SUM_SPREAD] += weight * weight * real[SPREAD]
    else:
        whole[REFUSED] += 1
    step_on(whole, real, theta, average, a, b, gathered, reference)


@jit
def state_views(real: Array, whole: Array) -> tuple[Array, Array, Array, Array, Array, Array, Array, Array]:
    """Views of the state's vectors, of x and of the released vector: indexing ``real`` is slower than a view.

    Where nothing is polished, the point at which losses are estimated is the average itself.
    """
    p, at = whole[FEATURES], REAL_HEADER
    tail = real.shape[0] - p - whole[NUMBERS]
    point = at + (REFERENCE if whole[POLISH] == 1 else AVERAGE) * p
    return (
        real[at : at + p], real[at + p : at + 2 * p], real[at + 2 * p : at + 3 * p], real[at + 3 * p : at + 4 * p],
        real[at + 4 * p : at + 5 * p], real[point : point + p], real[tail : tail + p], real[tail + p :],
    )  # fmt: skip


@jit
def set_level(real: Array, whole: Array, reals: Array, wholes: Array, level: int) -> None:
    """Take over a level's row of public parameters."""
    for j in range(LEVEL_REALS):
        real[UNIT + j] = reals[level, j]
    for j in range(LEVEL_WHOLES):
        whole[STEPS + j] = wholes[level, j]


@inlined
def randomize(real: Array, whole: Array, u: Array, noise: Array, word: np.uint64, payload: Array) -> None:
    """The release of a vector: what the level's mechanism makes of it with this noise and this coin."""
    last = u.shape[0] - 1
    if whole[FORM] >= DIRECTED_LABEL:
        quantise_direction(u, real[SPACING], whole[STEPS], payload)
        for j in range(last + 1):
            payload[j] += noise[j]
        return
    if whole[FORM] == PRODUCT or (whole[FORM] == REAL and whole[TARGET_STEPS] == 0):
        lattice.quantise_l2(u, real[SPACING], whole[STEPS], payload)
        for j in range(last + 1):
            payload[j] += noise[j]
        return
    lattice.quantise_l2(u[:last], real[SPACING], whole[STEPS], payload[:last])
    for j in range(last):
        payload[j] += noise[j]
    if whole[FORM] == REAL:
        lattice.quantise_l2(u[last:], real[TARGET_SPACING], whole[TARGET_STEPS], payload[last:])
        payload[last] += noise[last]
    elif u[last] == 0.0:
        payload[last] = 1 if word < _FAIR else -1
    else:
        kept = word < np.uint64(whole[THRESHOLD])
        payload[last] = 1 if (u[last] > 0.0) == kept else -1


@inlined
def decode(real: Array, whole: Array, payload: Array, u: Array) -> float:
    """Write the released vector; give what was released beside it (0 for a product)."""
    last = u.shape[0] - 1
    if whole[FORM] >= DIRECTED_LABEL:
        return read_direction(whole[FORM], payload, real[UNIT], whole[STEPS], u)
    for j in range(last):
        u[j] = payload[j] * real[UNIT]
    if whole[FORM] == PRODUCT:
        u[last] = payload[last] * real[UNIT]
        return 0.0
    u[last] = 1.0
    return float(payload[last] * real[TARGET_UNIT])


@jit
def learn_records(
    real: Array, whole: Array, X: Array, y: Array, levels: Array, reals: Array, wholes: Array, noise: Array,
    words: Array,
) -> None:  # fmt: skip
    """Learn from the rows of ``X`` in turn; ``noise`` and ``words`` have a row each unless simulated.

    Without rows, learn from the one record whose features, target and noise stand in ``real`` and ``whole``. The
    constant may be left out of ``X``. ``levels`` numbers each row's level, whose parameters stand in ``reals`` and
    ``wholes``; where it is empty all rows are at the current level. A release is randomized and decoded before the
    state sees it: what is learned from is what would have left the device.
    """
    whole, real = borrowed(whole), borrowed(real)
    p, size = whole[FEATURES], whole[NUMBERS]
    theta, average, a, b, gathered, reference, x, u = state_views(real, whole)
    own_noise = whole[WHOLE_HEADER : WHOLE_HEADER + size]
    payload = whole[WHOLE_HEADER + size : WHOLE_HEADER + 2 * size]
    word = np.uint64(whole[COIN])
    simulated, seed = whole[SIMULATED] == 1, np.uint64(whole[SEED])
    label = whole[FORM] == LABEL
    drawn = own_noise[: p - 1] if label else own_noise
    room_start = WHOLE_HEADER + 2 * size
    room = whole[room_start : room_start + room_for(drawn.shape[0])].view(np.uint64)
    in_place = X.shape[0] == 0
    for i in range(1 if in_place else X.shape[0]):
        target = real[TARGET]
        if not in_place:
            target = y[i]
            for j in range(X.shape[1]):
                x[j] = X[i, j]
        if levels.shape[0] > 0:
            set_level(real, whole, reals, wholes, levels[i])
        if simulated:
            fast_gaussian(seed, np.int64(whole[COUNT]), room, drawn)
            if label:
                word = block(seed, np.uint64(whole[COUNT]), _TOSS, _FIRST)[0]
        elif not in_place:
            for j in range(noise.shape[1]):
                own_noise[j] = noise[i, j]
            word = words[i]
        to_vector(whole[FORM], whole[BOXED], real[TARGET_SCALE], x, target, u)
        randomize(real, whole, u, own_noise, word, payload)
        released = decode(real, whole, payload, u)
        apply(whole, real, theta, average, a, b, gathered, reference, u, released)
    # What was raw, and the noise that hid it: a copy of the learner must not hold the last record.
    for j in range(p - 1):
        x[j] = 0.0
    for j in range(size):
        u[j] = 0.0
        own_noise[j] = 0
        payload[j] = 0
    for j in range(room.shape[0]):
        room[j] = np.uint64(0)
    real[TARGET] = 0.0
    whole[COIN] = 0


@jit
def learn_releases(real: Array, whole: Array, payloads: Array, levels: Array, reals: Array, wholes: Array) -> None:
    """Learn from released examples in turn."""
    whole, real, payloads = borrowed(whole), borrowed(real), borrowed(payloads)
    theta, average, a, b, gathered, reference, _, u = state_views(real, whole)
    for i in range(payloads.shape[0]):
        set_level(real, whole, reals, wholes, levels[i])
        released = decode(real, whole, payloads[i], u)
        apply(whole, real, theta, average, a, b, gathered, reference, u, released)
    for j in range(u.shape[0]):
        u[j] = 0.0


@jit
def learn_decoded(real: Array, whole: Array, vectors: Array, targets: Array) -> None:
    """Learn from decoded releases (m, p) at the current level; targets are 0 for products."""
    whole, real = borrowed(whole), borrowed(real)
    theta, average, a, b, gathered, reference, _, u = state_views(real, whole)
    for i in range(vectors.shape[0]):
        for j in range(vectors.shape[1]):
            u[j] = vectors[i, j]
        apply(whole, real, theta, average, a, b, gathered, reference, u, targets[i])
    for j in range(u.shape[0]):
        u[j] = 0.0


@jit
def to_vectors(form: int, boxed: int, scale: float, X: Array, y: Array, out: Array) -> None:
    """:func:`to_vector` of every row."""
    for i in range(X.shape[0]):
        to_vector(form, boxed, scale, X[i], y[i], out[i])
