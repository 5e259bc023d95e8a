"""Compiled update from (state, released example) to state, shared by all ways of learning; without BLAS and clock."""

from __future__ import annotations

import math

import numpy as np

from murk._internal.jit import borrowed, inlined, integers_at, jit, jit_short, numbers_at, words_at
from murk.privacy.mechanisms import lattice
from murk.privacy.noise.chacha import fresh_words
from murk.privacy.noise.kernels import Purpose, block, fast_gaussian, room_for
from murk.protocols.examples import layout as k
from murk.protocols.examples.device_kernels import to_vector
from murk.protocols.examples.directions import own_variance, quantise_direction, read_direction, ridge_of
from murk.protocols.examples.layout import Array, sizes
from murk.protocols.examples.newton import follow, follow_direction, refresh
from murk.protocols.examples.transforms import SQUARED, slopes, value
from murk.protocols.one_record import LEARNED, NO_WORDS, SPARE, draw_from

_TOSS, _FIRST = np.uint64(Purpose.COIN), np.uint64(0)
_FAIR = np.uint64(2**63)
IMPLAUSIBLE = 8.0  # Gaussian noise exceeds this many standard deviations with probability below 2e-15
State = tuple[Array, Array, Array, Array, Array, Array]  # state vectors from `k.ITERATE` on, and the reference point
STEP_SHARE = 1.0  # noise-aware steps, as a share of the step that is best in the worst case (benchmarks/iwp.py)


@inlined
def loss_at(whole: Array, real: Array, z: float, v: float, target: float) -> float:
    """Return an unbiased estimate of the loss at a score z with noise of variance v."""
    if whole[k.LOSS] == SQUARED:
        miss = z - target
        return float(0.5 * (miss * miss - v - real[k.TARGET_VARIANCE]))
    if whole[k.FORM] == k.PRODUCT:
        return value(whole[k.LOSS], whole[k.TERMS], real[k.WIDTH], z, v)
    keep, z = real[k.KEEP], z * target
    found = keep * value(whole[k.LOSS], whole[k.TERMS], real[k.WIDTH], z, v)
    return float(found + (1.0 - keep) * value(whole[k.LOSS], whole[k.TERMS], real[k.WIDTH], -z, v))


@inlined
def pulls(whole: Array, real: Array, z: float, v: float, target: float) -> tuple[float, float]:
    """Return ``(A, C)`` of the gradient estimate ``A u~ - C D theta``, for ``z = theta'u~``."""
    if whole[k.LOSS] == SQUARED:
        return z - target, 1.0
    if whole[k.FORM] == k.PRODUCT:
        return slopes(whole[k.LOSS], whole[k.TERMS], real[k.WIDTH], z, v)
    keep, z = real[k.KEEP], z * target
    first, second = slopes(whole[k.LOSS], whole[k.TERMS], real[k.WIDTH], z, v)
    other, other_second = slopes(whole[k.LOSS], whole[k.TERMS], real[k.WIDTH], -z, v)
    pull = keep * first - (1.0 - keep) * other
    return target * pull, keep * second + (1.0 - keep) * other_second


@inlined
def add_loss(real: Array, found: float, weight: float) -> None:
    """Add a release's loss to the running mean."""
    if found - found == 0.0:
        real[k.LOSS_WEIGHT] += weight
        real[k.LOSS_SUM] += weight * found
        real[k.LOSS_WEIGHT_SQUARES] += weight * weight
        real[k.LOSS_CROSS] += weight * weight * found
        real[k.LOSS_SQUARES] += weight * weight * found * found


@inlined
def update(whole: Array, real: Array, state: State) -> bool:
    """Take one step with the gathered gradients; return False if the step was not finite and not taken."""
    theta, average, a, b, gathered, _ = state
    p = theta.shape[0]
    weight, radius = real[k.BATCH_WEIGHT], real[k.RADIUS]
    whole[k.UPDATES] += 1
    count = float(whole[k.UPDATES])
    done = True
    if weight > 0.0:
        real[k.SUM_WEIGHT] += weight
        if whole[k.STEP] == k.NOISE_AWARE:
            step = STEP_SHARE * radius * weight / math.sqrt(2.0 * real[k.SUM_SPREAD])
        else:
            step = real[k.ETA] * count ** (-real[k.ALPHA]) * weight * count / real[k.SUM_WEIGHT]
        real[k.LAST_STEP] = step
        square = 0.0
        for j in range(p):
            gathered[j] = theta[j] - step * (gathered[j] / weight + real[k.RIDGE] * theta[j])
            square += gathered[j] * gathered[j]
        done = square - square == 0.0
        if done:
            shrink = radius / math.sqrt(square) if square > radius * radius else 1.0
            for j in range(p):
                theta[j] = gathered[j] * shrink
    for j in range(p):
        gathered[j] = 0.0
    real[k.BATCH_WEIGHT] = 0.0
    whole[k.IN_BATCH] = 0

    part = 1.0
    if whole[k.AVERAGING] == k.POLYAK:
        part = 1.0 / count
    elif whole[k.AVERAGING] == k.POLYNOMIAL_DECAY:
        part = (real[k.DECAY] + 1.0) / (count + real[k.DECAY])
    square = count * count
    real[k.SUM_SQUARES] += square
    for j in range(p):
        average[j] += part * (theta[j] - average[j])
        b[j] += square * average[j]
        a[j] += square * average[j] * average[j]
    return done


@inlined
def step_on(whole: Array, real: Array, state: State) -> None:
    """Finish a release: take a step if the batch is full, and update the reference point when due."""
    whole[k.IN_BATCH] += 1
    if whole[k.IN_BATCH] >= whole[k.BATCH] and not update(whole, real, state):
        whole[k.REFUSED] += 1
    if whole[k.COUNT] == whole[k.NEXT_REFRESH]:
        refresh(whole, real, state[1], state[5])


@inlined
def apply(whole: Array, real: Array, state: State, u: Array, target: float) -> None:
    """Apply one decoded release, the vector ``u`` and a ``target``, to the state.

    Implausible and non-finite releases are counted and ignored. Weights and steps depend on public noise levels only.
    """
    theta, _, _, _, gathered, reference = state
    p = whole[k.FEATURES]
    last = p - 1
    whole[k.COUNT] += 1
    z, at, square, size, size_at, length = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for j in range(last):
        z += theta[j] * u[j]
        at += reference[j] * u[j]
        square += u[j] * u[j]
        size += theta[j] * theta[j]
        size_at += reference[j] * reference[j]
    length = size + theta[last] * theta[last]
    variance, constant = real[k.VARIANCE], real[k.CONSTANT_VARIANCE]
    known = variance * size + constant * theta[last] * theta[last]
    z += theta[last] * u[last]
    at += reference[last] * u[last]
    directed = whole[k.FORM] >= k.DIRECTED_LABEL
    if directed or whole[k.FORM] == k.PRODUCT:
        square += u[last] * u[last]
    if directed:
        variance = own_variance(p, square, u[p])
        constant = variance
    if whole[k.UNCORRECTED] == 1:
        variance, constant = 0.0, 0.0
    v = variance * size + constant * theta[last] * theta[last]
    v_at = variance * size_at + constant * reference[last] * reference[last]
    weight = 1.0 / real[k.SPREAD] if whole[k.WEIGHTING] == k.INVERSE_VARIANCE else 1.0

    is_plausible = square <= real[k.LIMIT] * real[k.LIMIT] and abs(target) <= real[k.TARGET_LIMIT]
    is_plausible = is_plausible and abs(z) <= real[k.BOUND] * math.sqrt(length) + IMPLAUSIBLE * math.sqrt(known)
    if directed:
        is_plausible = is_plausible and abs(u[p]) <= real[k.TARGET_LIMIT]
    if is_plausible:
        pull, push = pulls(whole, real, z, v, target)
        total = weight * (abs(pull) * math.sqrt(square + 1.0) + abs(push) * real[k.VARIANCE] * math.sqrt(length))
        is_plausible = total * total - total * total == 0.0
    if is_plausible:
        add_loss(real, loss_at(whole, real, at, v_at, target), weight)
        if whole[k.POLISH] == 1 and directed:
            follow_direction(whole, real, reference, u, at, target, weight)
        elif whole[k.POLISH] == 1:
            follow(whole, real, reference, u, at, v_at, target, weight)
        for j in range(last):
            gathered[j] += weight * (pull * u[j] - push * variance * theta[j])
        gathered[last] += weight * (pull * u[last] - push * constant * theta[last])
        if directed and real[k.DIRECTED_RIDGE] != 0.0:
            ridge = weight * ridge_of(whole, real, u[last], target)
            for j in range(p):
                gathered[j] += ridge * theta[j]
        for j in range(whole[k.FREE], p):
            gathered[j] = 0.0
        real[k.BATCH_WEIGHT] += weight
        real[k.SUM_SPREAD] += weight * weight * real[k.SPREAD]
    else:
        whole[k.REFUSED] += 1
    step_on(whole, real, state)


@jit
def state_views(real: Array, whole: Array) -> tuple[State, Array, Array]:
    """Return views of the state's vectors (the reference may be the average), of x and of the release."""
    p, at = whole[k.FEATURES], k.REAL_HEADER
    tail = real.shape[0] - p - whole[k.NUMBERS]
    point = at + (k.AVERAGE if whole[k.POLISH] == k.NO_STEP else k.REFERENCE) * p
    state = (
        real[at : at + p],
        real[at + p : at + 2 * p],
        real[at + 2 * p : at + 3 * p],
        real[at + 3 * p : at + 4 * p],
        real[at + 4 * p : at + 5 * p],
        real[point : point + p],
    )
    return state, real[tail : tail + p], real[tail + p :]


@jit
def set_level(real: Array, whole: Array, reals: Array, wholes: Array, level: int) -> None:
    """Write the public parameters of a level into the learner's arrays."""
    for j in range(k.LEVEL_REALS):
        real[k.UNIT + j] = reals[level, j]
    for j in range(k.LEVEL_WHOLES):
        whole[k.STEPS + j] = wholes[level, j]


@inlined
def randomize(real: Array, whole: Array, u: Array, noise: Array, word: np.uint64, payload: Array) -> None:
    """Write the payload of a vector: the level's mechanism applied with this noise and coin."""
    last = u.shape[0] - 1
    if whole[k.FORM] >= k.DIRECTED_LABEL:
        quantise_direction(u, real[k.SPACING], whole[k.STEPS], payload)
        for j in range(last + 1):
            payload[j] += noise[j]
        return
    if whole[k.FORM] == k.PRODUCT or (whole[k.FORM] == k.REAL and whole[k.TARGET_STEPS] == 0):
        lattice.quantise_l2(u, real[k.SPACING], whole[k.STEPS], payload)
        for j in range(last + 1):
            payload[j] += noise[j]
        return
    lattice.quantise_l2(u[:last], real[k.SPACING], whole[k.STEPS], payload[:last])
    for j in range(last):
        payload[j] += noise[j]
    if whole[k.FORM] == k.REAL:
        lattice.quantise_l2(u[last:], real[k.TARGET_SPACING], whole[k.TARGET_STEPS], payload[last:])
        payload[last] += noise[last]
    elif u[last] == 0.0:
        payload[last] = 1 if word < _FAIR else -1
    else:
        kept = word < np.uint64(whole[k.THRESHOLD])
        payload[last] = 1 if (u[last] > 0.0) == kept else -1


@inlined
def decode(real: Array, whole: Array, payload: Array, u: Array) -> float:
    """Write the released vector; return the number released with it (0 for a product)."""
    last = u.shape[0] - 1
    if whole[k.FORM] >= k.DIRECTED_LABEL:
        return read_direction(whole[k.FORM], payload, real[k.UNIT], whole[k.STEPS], u)
    for j in range(last):
        u[j] = payload[j] * real[k.UNIT]
    if whole[k.FORM] == k.PRODUCT:
        u[last] = payload[last] * real[k.UNIT]
        return 0.0
    u[last] = 1.0
    return float(payload[last] * real[k.TARGET_UNIT])


@jit
def learn_records(
    real: Array,
    whole: Array,
    X: Array,
    y: Array,
    levels: Array,
    reals: Array,
    wholes: Array,
    noise: Array,
    words: Array,
) -> None:
    """Learn from the rows of ``X`` in turn or, without any, from the record stored in ``real`` and ``whole``.

    ``noise`` and ``words`` have one row per record, unless noise is simulated. ``X`` may lack the constant. ``levels``
    are indices into ``reals`` and ``wholes`` (if empty: the current level). The state depends only on releases.
    """
    whole, real = borrowed(whole), borrowed(real)
    p, size = whole[k.FEATURES], whole[k.NUMBERS]
    state, x, u = state_views(real, whole)
    own_noise = whole[k.WHOLE_HEADER : k.WHOLE_HEADER + size]
    payload = whole[k.WHOLE_HEADER + size : k.WHOLE_HEADER + 2 * size]
    word = np.uint64(whole[k.COIN])
    simulated, seed = whole[k.SIMULATED] == 1, np.uint64(whole[k.SEED])
    label = whole[k.FORM] == k.LABEL
    drawn = own_noise[: p - 1] if label else own_noise
    room_start = k.WHOLE_HEADER + 2 * size
    room = whole[room_start : room_start + room_for(drawn.shape[0])].view(np.uint64)
    record_kernel = X.shape[0] == 0
    for i in range(1 if record_kernel else X.shape[0]):
        target = real[k.TARGET]
        if not record_kernel:
            target = y[i]
            for j in range(X.shape[1]):
                x[j] = X[i, j]
        if levels.shape[0] > 0:
            set_level(real, whole, reals, wholes, levels[i])
        if simulated:
            fast_gaussian(seed, np.int64(whole[k.COUNT]), room, drawn)
            if label:
                word = block(seed, np.uint64(whole[k.COUNT]), _TOSS, _FIRST)[0]
        elif not record_kernel:
            for j in range(noise.shape[1]):
                own_noise[j] = noise[i, j]
            word = words[i]
        to_vector(whole[k.FORM], whole[k.BOXED], real[k.TARGET_SCALE], x, target, u)
        randomize(real, whole, u, own_noise, word, payload)
        released = decode(real, whole, payload, u)
        apply(whole, real, state, u, released)
    # Wiped, as a copy of the learner must not hold the last record or its noise.
    for j in range(p - 1):
        x[j] = 0.0
    for j in range(size):
        u[j] = 0.0
        own_noise[j] = 0
        payload[j] = 0
    for j in range(room.shape[0]):
        room[j] = np.uint64(0)
    real[k.TARGET] = 0.0
    whole[k.COIN] = 0


@jit
def learn_releases(real: Array, whole: Array, payloads: Array, levels: Array, reals: Array, wholes: Array) -> None:
    """Learn from released examples in turn."""
    whole, real, payloads = borrowed(whole), borrowed(real), borrowed(payloads)
    state, _, u = state_views(real, whole)
    for i in range(payloads.shape[0]):
        set_level(real, whole, reals, wholes, levels[i])
        released = decode(real, whole, payloads[i], u)
        apply(whole, real, state, u, released)
    for j in range(u.shape[0]):
        u[j] = 0.0


@jit
def learn_decoded(real: Array, whole: Array, vectors: Array, targets: Array) -> None:
    """Learn from decoded releases (m, p) at the current level; targets are 0 for products."""
    whole, real = borrowed(whole), borrowed(real)
    state, _, u = state_views(real, whole)
    for i in range(vectors.shape[0]):
        for j in range(vectors.shape[1]):
            u[j] = vectors[i, j]
        apply(whole, real, state, u, targets[i])
    for j in range(u.shape[0]):
        u[j] = 0.0


_NO_ROWS, _NO_TARGETS = np.zeros((0, k.LEVEL_REALS)), np.zeros(0)
_NO_WORDS = np.zeros(0, dtype=np.uint64)
_NO_LEVELS, _NO_WHOLES = np.zeros(0, dtype=np.int64), np.zeros((0, k.LEVEL_WHOLES), dtype=np.int64)


@jit
def take_words(whole: Array, address: int, trials: int) -> int:
    """Draw one record's noise, and its coin's word, from fresh words; return `LEARNED`, `NO_WORDS` or `TOO_FEW`."""
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


@jit_short
def learn_record(address: int, y: float, trials: int) -> int:
    """Learn from the record whose features are in the memory at ``address``, and wipe them.

    Secure noise is drawn from random words for ``trials`` trials; with 0, noise and coin are in the memory already.
    Returns `LEARNED`. If nothing was learned, returns `TOO_FEW` (the draw continues from the words) or `NO_WORDS`.
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
