r"""Outer products: an example as the matrix ``v v'`` of a unit vector.

For coded features x (constant included) and a target y in [-1, 1] (a label is -1 or +1), the device releases ``v v'``
of ``v = (x, y) / sqrt(|x|^2 + 1)``, or of ``v = 0`` if the target is missing. Its blocks are all that least squares
weighted by ``1/(1 + |x|^2)`` needs:

.. math:: v v' = \frac{1}{|x|^2 + 1} \begin{pmatrix} x x' & x y \\ y x' & y^2 \end{pmatrix}
    = \begin{pmatrix} A_i & b_i \\ b_i' & c_i \end{pmatrix},
    \qquad \theta = (E\,A_i)^{-1} E\,b_i

Noise enters A and b linearly: Gaussian noise has variance ``2 / mu^2`` (two such matrices are at most sqrt 2 apart),
while the product of a noisy direction with itself has ``16 / mu^4``. Any unbiased mechanism works, also for pure
guarantees. A release has (p + 1) (p + 2) / 2 numbers, and only the quadratic and squared losses can be learned.
"""

from __future__ import annotations

import math

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.jit import borrowed, inlined, integers_at, jit, jit_when_worth, numbers_at, rows_at
from murk.privacy.mechanisms.outer_product import write_outer
from murk.privacy.noise.kernels import fast_gaussian, room_for
from murk.protocols.examples import layout as k
from murk.protocols.examples.device_kernels import to_unit
from murk.protocols.examples.kernels import State, add_loss, set_level, state_views, step_on, take_words
from murk.protocols.examples.layout import Array, sizes
from murk.protocols.linear_algebra import symmetric
from murk.protocols.one_record import LEARNED

_HALF = math.sqrt(0.5)


@inlined
def times(numbers: Array, theta: Array, out: Array) -> None:
    """Multiply the matrix M with these entries by ``(theta, -1)``: write ``A theta - b``, then ``b'theta - c``."""
    p = theta.shape[0]
    for i in range(p + 1):
        out[i] = 0.0
    at = 0
    for i in range(p + 1):
        own = theta[i] if i < p else -1.0
        out[i] += numbers[at] * own
        at += 1
        for j in range(i + 1, p + 1):
            entry = numbers[at] * _HALF
            out[i] += entry * (theta[j] if j < p else -1.0)
            out[j] += entry * own
            at += 1


@inlined
def loss_of(theta: Array, pulled: Array) -> float:
    """Return a release's loss, ``(theta, -1)' M (theta, -1) / 2``, from the output of :func:`times`."""
    p = theta.shape[0]
    found = -pulled[p]
    for j in range(p):
        found += theta[j] * pulled[j]
    return float(0.5 * found)


@jit
def gather(whole: Array, real: Array, theta: Array, gathered: Array, u: Array, weight: float, pulled: Array) -> bool:
    """Add a release's gradient at theta to the batch; return False if the release is implausible."""
    p, square = whole[k.FEATURES], 0.0
    for j in range(u.shape[0]):
        square += u[j] * u[j]
    if not square <= real[k.LIMIT] * real[k.LIMIT]:
        return False
    times(u, theta, pulled)
    total = 0.0
    for j in range(p):
        total += abs(weight * pulled[j])
    if not total * total < math.inf:
        return False
    ridge = _ridge(real, u)
    for j in range(p):
        gathered[j] += weight * (pulled[j] + ridge * theta[j])
    real[k.BATCH_WEIGHT] += weight
    return True


@inlined
def _ridge(real: Array, u: Array) -> float:
    """Return an unbiased estimate of ``lambda / (1 + |x|^2)``, a release's share of the penalty."""
    # The constant's own entry is the third number from the end.
    return float(real[k.DIRECTED_RIDGE] * u[u.shape[0] - 3])


@jit
def add_moments(real: Array, p: int, u: Array, weight: float) -> None:
    """Add a release's numbers and their products to the exact sums."""
    size, at = u.shape[0], k.REAL_HEADER + k.ROWS * p + p * (p + 1)
    square = weight * weight
    for i in range(size):
        real[at + i] += weight * u[i]
    at += size
    for i in range(size):
        own, row = u[i], real[at : at + size - i]
        for j in range(size - i):
            # The product of the numbers comes first, so that a part of them has the same bits in any order.
            row[j] += square * (own * u[i + j])
        at += size - i


@jit
def summarize(whole: Array, real: Array) -> None:
    """Write the matrix and the right-hand side of the Newton step, and the sizes of both, from exact sums."""
    p, size = whole[k.FEATURES], whole[k.NUMBERS]
    aimed, bend = k.REAL_HEADER + k.AIMED * p, k.REAL_HEADER + k.ROWS * p
    means = bend + p * (p + 1)
    square, at, length = means + size, 0, 0.0
    ridge = real[k.DIRECTED_RIDGE] * real[means + size - 3]
    for i in range(p):
        for j in range(i, p):
            factor = 1.0 if i == j else _HALF
            real[bend + j * (j + 1) // 2 + i] = real[means + at] * factor + (ridge if i == j else 0.0)
            length += real[square]
            square += size - at
            at += 1
        real[aimed + i] = real[means + at] * _HALF
        square += size - at
        at += 1
    real[k.MEAT_SQUARES], real[k.BEND_SQUARES] = real[k.POLISH_SQUARES], length


def residual_map(theta: Floats, ridge: float) -> Floats:
    """Return the matrix (p, d) that maps a decoded release to its gradient at theta, penalty included."""
    p = len(theta)
    rows, columns = np.triu_indices(p + 1)
    factors, turned = np.where(rows == columns, 1.0, _HALF), np.append(theta, -1.0)
    out = np.zeros((p + 1, len(rows)))
    numbers = np.arange(len(rows))
    out[rows, numbers] = factors * turned[columns]
    off = rows != columns
    out[columns[off], numbers[off]] = (factors * turned[rows])[off]
    out[:p, -3] += ridge * theta
    return out[:p]


@jit
def follow_outer(whole: Array, real: Array, rho: Array, u: Array, weight: float, pulled: Array) -> float:
    """Add a release's matrix and residual at the reference point to the sums; return its loss there."""
    p = rho.shape[0]
    times(u, rho, pulled)
    found = loss_of(rho, pulled)
    if whole[k.POLISH] == k.NO_STEP:
        return found
    square, ridge = weight * weight, _ridge(real, u)
    real[k.POLISH_WEIGHT] += weight
    real[k.POLISH_SQUARES] += square
    # Public rows need the sums of squared weights times the largest and the smallest noise variance.
    real[k.REAL_HEADER + k.FIRST * p] += square * real[k.VARIANCE]
    real[k.REAL_HEADER + k.FIRST * p + 1] += square * real[k.TARGET_VARIANCE]
    if whole[k.POLISH] == k.EXACT:
        add_moments(real, p, u, weight)
        return found
    aimed, bend = k.REAL_HEADER + k.AIMED * p, k.REAL_HEADER + k.ROWS * p
    meat, at, length = bend + p * (p + 1) // 2, 0, 0.0
    for i in range(p):
        for j in range(i, p):
            entry = u[at] * (1.0 if i == j else _HALF)
            length += u[at] * u[at]
            real[bend + j * (j + 1) // 2 + i] += weight * (entry + (ridge if i == j else 0.0))
            at += 1
        real[aimed + i] += weight * u[at] * _HALF
        at += 1
    for i in range(p):
        pulled[i] += ridge * rho[i]
        start = meat + i * (i + 1) // 2
        for j in range(i + 1):
            real[start + j] += square * pulled[i] * pulled[j]
    real[k.MEAT_SQUARES] += square
    real[k.BEND_SQUARES] += square * length
    return found


@inlined
def learn_matrix(whole: Array, real: Array, state: State, u: Array, pulled: Array) -> None:
    """Learn from the decoded outer product in ``u``."""
    theta, _, _, _, gathered, reference = state
    whole[k.COUNT] += 1
    weight = 1.0 / real[k.SPREAD] if whole[k.WEIGHTING] == k.INVERSE_VARIANCE else 1.0
    if gather(whole, real, theta, gathered, u, weight, pulled):
        add_loss(real, follow_outer(whole, real, reference, u, weight, pulled), weight)
        for j in range(whole[k.FREE], whole[k.FEATURES]):
            gathered[j] = 0.0
        real[k.SUM_SPREAD] += weight * weight * real[k.SPREAD]
    else:
        whole[k.REFUSED] += 1
    if whole[k.POLISH] == k.EXACT and whole[k.COUNT] == whole[k.NEXT_REFRESH]:
        summarize(whole, real)
    step_on(whole, real, state)


@jit
def learn_outer(real: Array, whole: Array, numbers: Array, levels: Array, reals: Array, wholes: Array) -> None:
    """Learn from decoded outer products (m, numbers); with empty ``levels``, all at the current level."""
    whole, real = borrowed(whole), borrowed(real)
    state, _, u = state_views(real, whole)
    pulled = np.zeros(whole[k.FEATURES] + 1)
    for i in range(numbers.shape[0]):
        if levels.shape[0] > 0:
            set_level(real, whole, reals, wholes, levels[i])
        for j in range(numbers.shape[1]):
            u[j] = numbers[i, j]
        learn_matrix(whole, real, state, u, pulled)
    for j in range(u.shape[0]):
        u[j] = 0.0


@jit_when_worth
def learn_record(address: int, y: float, trials: int) -> int:
    """Apply :func:`murk.protocols.examples.kernels.learn_record` to an outer product under Gaussian noise."""
    header = integers_at(address, k.WHOLE_HEADER)
    size, reals = sizes(header[k.FEATURES], header[k.NUMBERS], header[k.POLISH])
    whole, real = integers_at(address, size), numbers_at(address + 8 * size, reals)
    p, numbers = whole[k.FEATURES], whole[k.NUMBERS]
    noise = whole[k.WHOLE_HEADER : k.WHOLE_HEADER + numbers]
    if whole[k.SIMULATED] == 1:
        start = k.WHOLE_HEADER + 2 * numbers
        room = whole[start : start + room_for(numbers)].view(np.uint64)
        fast_gaussian(np.uint64(whole[k.SEED]), np.int64(whole[k.COUNT]), room, noise)
        for j in range(room.shape[0]):
            room[j] = np.uint64(0)
    elif trials > 0:
        found = take_words(whole, address, trials)
        if found != LEARNED:
            return found
    state, x, u = state_views(real, whole)
    v = np.empty(p + 1)
    to_unit(whole[k.FORM], whole[k.BOXED], real[k.TARGET_SCALE], x, y, v)
    # The released vector is at the end of ``real``.
    write_outer(v.reshape((1, p + 1)), rows_at(address + 8 * (size + reals - numbers), 1, numbers))
    unit = real[k.UNIT]
    for j in range(numbers):
        u[j] = unit * np.float64(np.int64(np.rint(u[j] / unit)) + noise[j])
    for j in range(p):
        v[j] = x[j] = 0.0
    v[p], x[p - 1] = 0.0, 1.0
    for j in range(numbers):
        noise[j] = 0
    whole[k.COIN] = 0
    learn_matrix(whole, real, state, u, v)
    for j in range(numbers):
        u[j] = 0.0
    return LEARNED


def matrix_of(numbers: Floats, features: int) -> Floats:
    """Return the matrix of a decoded release, with blocks A, b and c."""
    return symmetric(numbers, features + 1)
