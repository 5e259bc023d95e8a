r"""Outer products: an example as the matrix ``v v'`` of a unit vector, whose noise is not multiplied by itself.

Of a record with coded features x, the constant inside, and a target y in [-1, 1] the device releases ``v v'`` of

.. math:: v = (x, y) / \sqrt{|x|^2 + 1}, \qquad v = 0

the second where the target is missing; a label is -1 or +1, and ``|v| = 1``. Its blocks are all that a least-squares
fit asks of a record,

.. math:: v v' = \frac{1}{|x|^2 + 1} \begin{pmatrix} x x' & x y \\ y x' & y^2 \end{pmatrix}
    = \begin{pmatrix} A_i & b_i \\ b_i' & c_i \end{pmatrix},
    \qquad A = E\,A_i,\; b = E\,b_i,\; \theta = A^{-1} b

so that what is fitted is the loss weighted by ``1/(1 + |x|^2)``. Noise enters A and b once: its variance is that of one
release, ``2 / mu^2`` under Gaussian noise (two such matrices are at most sqrt 2 apart), where the product of a noisy
direction with itself has ``16 / mu^4``. Nothing is inverted but a mean, so that any unbiased mechanism will do, with a
pure guarantee too; the price is (p + 1) (p + 2) / 2 numbers instead of p + 2, and the quadratic and squared losses
alone.
"""

# ruff: noqa: F403, F405 -- some sixty places in two arrays, used as bare names by every kernel.

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from murk._jit import inlined, jit, patient
from murk._memory import borrowed, integers_at, numbers_at, rows_at
from murk.learners.core.in_place import LEARNED
from murk.learners.core.scoring.kernels import outer
from murk.learners.core.symmetric import symmetric
from murk.learners.examples.directions import to_direction
from murk.learners.examples.kernels import add_loss, set_level, state_views, step_on
from murk.learners.examples.layout import *
from murk.learners.examples.record import take_words
from murk.privacy.noise.kernels import fast_gaussian, room_for

_HALF = math.sqrt(0.5)


@jit
def to_unit(form: int, boxed: int, bound: float, x: Array, y: float, out: Array) -> None:
    """Write v of coded features, the constant last, (p + 1,); zeros where the target is missing.

    ``bound`` is that of the other features' norm where there is no box.
    """
    p = x.shape[0]
    direction = np.empty(p + 2)
    target = y
    if form == OUTER_LABEL and y == y:
        target = 1.0 if y > 0.5 else -1.0
    to_direction(DIRECTED_REAL, boxed, bound, x, target, direction)
    # |x|^2 / (|x|^2 + 1) = 1 / (1 + a^2), with a = 1/|x| beside the direction.
    shrink = 1.0 / math.sqrt(1.0 + direction[p - 1] * direction[p - 1])
    for j in range(p + 1):
        out[j] = direction[j] * shrink
    direction[:] = 0.0


@jit
def to_units(form: int, boxed: int, bound: float, X: Array, y: Array, out: Array) -> None:
    """:func:`to_unit` of every row."""
    X, out = borrowed(X), borrowed(out)
    for i in range(X.shape[0]):
        to_unit(form, boxed, bound, X[i], y[i], out[i])


@inlined
def times(numbers: Array, theta: Array, out: Array) -> None:
    """Write ``M (theta, -1)`` of a matrix's numbers: ``A theta - b``, and ``b'theta - c`` behind it."""
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
    """Half of ``(theta, -1)' M (theta, -1)``, the loss of a release, of what :func:`times` wrote."""
    p = theta.shape[0]
    found = -pulled[p]
    for j in range(p):
        found += theta[j] * pulled[j]
    return float(0.5 * found)


@jit
def gather(whole: Array, real: Array, theta: Array, gathered: Array, u: Array, weight: float, pulled: Array) -> bool:
    """Add a release's gradient at theta to those of the batch; False for one that no honest release is like."""
    p, square = whole[FEATURES], 0.0
    for j in range(u.shape[0]):
        square += u[j] * u[j]
    if not square <= real[LIMIT] * real[LIMIT]:
        return False
    times(u, theta, pulled)
    total = 0.0
    for j in range(p):
        total += abs(weight * pulled[j])
    if not total * total < math.inf:
        return False
    ridge = _ridge(real, u, p)
    for j in range(p):
        gathered[j] += weight * (pulled[j] + ridge * theta[j])
    real[BATCH_WEIGHT] += weight
    return True


@inlined
def _ridge(real: Array, u: Array, p: int) -> float:
    """An unbiased estimate of ``lambda / (1 + |x|^2)``: the penalty's share of a release, as its loss is weighted."""
    # The constant's own entry stands three numbers before the end.
    return float(real[DIRECTED_RIDGE] * u[u.shape[0] - 3])


@jit
def follow_outer(whole: Array, real: Array, rho: Array, u: Array, weight: float, pulled: Array) -> float:
    """Add a release's matrix, and its residual at the reference point, to the sums; return its loss there."""
    p = rho.shape[0]
    times(u, rho, pulled)
    found = loss_of(rho, pulled)
    if whole[POLISH] == 0:
        return found
    square, ridge, aimed, bend = weight * weight, _ridge(real, u, p), REAL_HEADER + AIMED * p, REAL_HEADER + ROWS * p
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
    real[POLISH_WEIGHT] += weight
    real[POLISH_SQUARES] += square
    real[MEAT_SQUARES] += square
    real[BEND_SQUARES] += square * length
    # What public rows need: the sums of squared weights times the largest and the smallest noise.
    real[REAL_HEADER + FIRST * p] += square * real[VARIANCE]
    real[REAL_HEADER + FIRST * p + 1] += square * real[TARGET_VARIANCE]
    return found


@inlined
def learn_matrix(
    whole: Array, real: Array, theta: Array, average: Array, a: Array, b: Array, gathered: Array, reference: Array,
    u: Array, pulled: Array,
) -> None:  # fmt: skip
    """Learn from the decoded outer product that stands in ``u``."""
    whole[COUNT] += 1
    weight = 1.0 / real[SPREAD] if whole[WEIGHTING] == INVERSE_VARIANCE else 1.0
    if gather(whole, real, theta, gathered, u, weight, pulled):
        add_loss(real, follow_outer(whole, real, reference, u, weight, pulled), weight)
        for j in range(whole[FREE], whole[FEATURES]):
            gathered[j] = 0.0
        real[SUM_SPREAD] += weight * weight * real[SPREAD]
    else:
        whole[REFUSED] += 1
    step_on(whole, real, theta, average, a, b, gathered, reference)


@jit
def learn_outer(real: Array, whole: Array, numbers: Array, levels: Array, reals: Array, wholes: Array) -> None:
    """Learn from decoded outer products (m, numbers); where ``levels`` is empty all are at the current level."""
    whole, real = borrowed(whole), borrowed(real)
    theta, average, a, b, gathered, reference, _, u = state_views(real, whole)
    pulled = np.zeros(whole[FEATURES] + 1)
    for i in range(numbers.shape[0]):
        if levels.shape[0] > 0:
            set_level(real, whole, reals, wholes, levels[i])
        for j in range(numbers.shape[1]):
            u[j] = numbers[i, j]
        learn_matrix(whole, real, theta, average, a, b, gathered, reference, u, pulled)
    for j in range(u.shape[0]):
        u[j] = 0.0


@patient
def learn_record(address: int, y: float, trials: int) -> int:
    """:func:`murk.learners.examples.record.learn_record` of an outer product under Gaussian noise."""
    header = integers_at(address, WHOLE_HEADER)
    size, reals = sizes(header[FEATURES], header[NUMBERS], header[POLISH])
    whole, real = integers_at(address, size), numbers_at(address + 8 * size, reals)
    p, numbers = whole[FEATURES], whole[NUMBERS]
    noise = whole[WHOLE_HEADER : WHOLE_HEADER + numbers]
    if whole[SIMULATED] == 1:
        start = WHOLE_HEADER + 2 * numbers
        room = whole[start : start + room_for(numbers)].view(np.uint64)
        fast_gaussian(np.uint64(whole[SEED]), np.int64(whole[COUNT]), room, noise)
        for j in range(room.shape[0]):
            room[j] = np.uint64(0)
    elif trials > 0:
        found = take_words(whole, address, trials)
        if found != LEARNED:
            return found
    theta, average, a, b, gathered, reference, x, u = state_views(real, whole)
    v = np.empty(p + 1)
    to_unit(whole[FORM], whole[BOXED], real[TARGET_SCALE], x, y, v)
    # The released vector is the last that there is in ``real``.
    outer(v.reshape((1, p + 1)), rows_at(address + 8 * (size + reals - numbers), 1, numbers))
    unit = real[UNIT]
    for j in range(numbers):
        u[j] = unit * np.float64(np.int64(np.rint(u[j] / unit)) + noise[j])
    for j in range(p):
        v[j] = x[j] = 0.0
    v[p], x[p - 1] = 0.0, 1.0
    for j in range(numbers):
        noise[j] = 0
    whole[COIN] = 0
    learn_matrix(whole, real, theta, average, a, b, gathered, reference, u, v)
    for j in range(numbers):
        u[j] = 0.0
    return LEARNED


def matrix_of(numbers: NDArray[np.float64], features: int) -> NDArray[np.float64]:
    """The matrix of a decoded release: A, b and c as blocks."""
    return symmetric(numbers, features + 1)
