"""Newton step from released examples, and solving with a matrix known only up to noise.

At a reference point rho, each release gives unbiased estimates ``g_i`` of the gradient and ``H_i`` of the Hessian. With
weights ``q_i`` by public noise levels, Q their sum, ``A = sum q_i H_i / Q`` and ``r_i = g_i + lambda rho``, the
polished estimate and its covariance are

    theta^ = (A + lambda I)^-1 sum q_i (H_i rho - g_i) / Q
    cov    = (A + lambda I)^-1 [sum q_i^2 r_i r_i' / Q^2] (A + lambda I)^-1

For quadratic losses this is the exact minimiser of the mean unbiased loss. For others it is one Newton step from rho,
which is moved to the estimate (or the average, where A is too noisy) each time the number of releases grows by 1/16.

Eigenvalues of A that are within their noise are raised to a floor, so that no coefficient is the quotient of two
errors. For the part of coefficient j in these (*hidden*) directions H, only the bound ``|P_H e_j| |theta|`` is known,
which widens the interval or removes it.
"""

from __future__ import annotations

import math

import numpy as np

from murk._internal.jit import jit
from murk.protocols.examples import layout as k
from murk.protocols.examples.directions import own_variance, ridge_of
from murk.protocols.examples.layout import Array, triangle
from murk.protocols.examples.transforms import SQUARED, bends, slopes

_SWEEPS = 60


@jit
def eigen(matrix: Array, values: Array, vectors: Array) -> None:
    """Write eigenvalues and eigenvectors (columns) of a symmetric matrix by Jacobi rotations, alike in all builds."""
    p = matrix.shape[0]
    for i in range(p):
        for j in range(p):
            vectors[i, j] = 1.0 if i == j else 0.0
    for _ in range(_SWEEPS):
        off, size = 0.0, 0.0
        for i in range(p):
            for j in range(p):
                size += matrix[i, j] * matrix[i, j]
                if i != j:
                    off += matrix[i, j] * matrix[i, j]
        if not off > 1e-30 * size:
            break
        for i in range(p):
            for j in range(i + 1, p):
                if matrix[i, j] == 0.0:
                    continue
                angle = 0.5 * (matrix[j, j] - matrix[i, i]) / matrix[i, j]
                t = 1.0 / (abs(angle) + math.sqrt(1.0 + angle * angle))
                if angle < 0.0:
                    t = -t
                c = 1.0 / math.sqrt(1.0 + t * t)
                s = c * t
                for m in range(p):
                    one, other = matrix[m, i], matrix[m, j]
                    matrix[m, i], matrix[m, j] = c * one - s * other, s * one + c * other
                for m in range(p):
                    one, other = matrix[i, m], matrix[j, m]
                    matrix[i, m], matrix[j, m] = c * one - s * other, s * one + c * other
                for m in range(p):
                    one, other = vectors[m, i], vectors[m, j]
                    vectors[m, i], vectors[m, j] = c * one - s * other, s * one + c * other
    for i in range(p):
        values[i] = matrix[i, i]


@jit
def floored(real: Array, p: int, size: int, least: float, out: Array) -> bool:
    """Solve ``A theta = aimed`` for the first ``size`` of p coefficients, eigenvalues floored at ``least``."""
    aimed, bend, total = k.REAL_HEADER + k.AIMED * p, k.REAL_HEADER + k.ROWS * p, real[k.POLISH_WEIGHT]
    if not (least > 0.0 and least < math.inf):
        return False
    matrix, values, vectors = np.zeros((size, size)), np.zeros(size), np.zeros((size, size))
    for i in range(size):
        for j in range(i + 1):
            matrix[i, j] = matrix[j, i] = real[bend + i * (i + 1) // 2 + j] / total
    eigen(matrix, values, vectors)
    for j in range(size):
        out[j] = 0.0
    for m in range(size):
        along = 0.0
        for j in range(size):
            along += vectors[j, m] * real[aimed + j] / total
        along /= max(values[m], least)
        for j in range(size):
            out[j] += vectors[j, m] * along
    return True


_GROWTH = 16

# A is inverted if its smallest eigenvalue exceeds this share of its noise: below, intervals hold the truth too rarely
# (benchmarks/iwp.py).
TRUST = 0.7


@jit
def factors(
    whole: Array, real: Array, z: float, v: float, target: float
) -> tuple[float, float, float, float, float, float]:
    """Return ``(A, C)`` of the gradient ``A u~ - C D theta``, and four factors of the Hessian, for ``z = theta'u~``."""
    if whole[k.LOSS] == SQUARED:
        return z - target, 1.0, 1.0, 1.0, 0.0, 0.0
    loss, terms, width = whole[k.LOSS], whole[k.TERMS], real[k.WIDTH]
    if whole[k.FORM] == k.PRODUCT:
        pull, push = slopes(loss, terms, width, z, v)
        outer, inner, cross, last = bends(loss, terms, width, z, v)
        return pull, push, outer, inner, cross, last
    keep, turn, z = real[k.KEEP], 1.0 - real[k.KEEP], z * target
    pull, push = slopes(loss, terms, width, z, v)
    other_pull, other_push = slopes(loss, terms, width, -z, v)
    outer, inner, cross, last = bends(loss, terms, width, z, v)
    other_outer, other_inner, other_cross, other_last = bends(loss, terms, width, -z, v)
    return (
        target * (keep * pull - turn * other_pull),
        keep * push + turn * other_push,
        keep * outer + turn * other_outer,
        keep * inner + turn * other_inner,
        target * (keep * cross - turn * other_cross),
        keep * last + turn * other_last,
    )


@jit
def follow(whole: Array, real: Array, rho: Array, u: Array, z: float, v: float, target: float, weight: float) -> None:
    """Add a release's gradient and Hessian at the reference point to the sums."""
    p = rho.shape[0]
    size = triangle(p)
    pull, push, outer, inner, cross, fourth = factors(whole, real, z, v, target)
    if not abs(pull) + abs(push) + abs(outer) + abs(inner) + abs(cross) + abs(fourth) < 1e60:
        return
    at = k.REAL_HEADER + k.AIMED * p
    aimed = real[at : at + p]
    at = k.REAL_HEADER + k.ROWS * p
    bend, meat = real[at : at + size], real[at + size : at + 2 * size]
    square, ridge = weight * weight, real[k.RIDGE]
    # With d = D rho: H rho = (outer z - cross v) u~ + (fourth v - cross z - inner) d, as u~'rho = z and d'rho = v.
    along, beside = outer * z - cross * v, fourth * v - cross * z - inner
    uu, ud, dd, trace, squares = 0.0, 0.0, 0.0, 0.0, 0.0
    # Unsigned, so that numba does not check for negative indices.
    index = np.uintp(0)
    for i in range(p):
        own = real[k.CONSTANT_VARIANCE] if i == p - 1 else real[k.VARIANCE]
        ui, di = u[i], own * rho[i]
        aimed[i] += weight * ((along - pull) * ui + (beside + push) * di)
        uu, ud, dd = uu + ui * ui, ud + ui * di, dd + di * di
        own_bend = outer * ui * ui - 2.0 * cross * ui * di + fourth * di * di
        trace += own * own_bend
        squares += own * own
        first, second = weight * (outer * ui - cross * di), weight * real[k.VARIANCE] * (fourth * di - cross * ui)
        residual = square * (pull * ui - push * di + ridge * rho[i])
        by_u, by_rho = residual * pull, residual * (ridge - push * real[k.VARIANCE])
        for j in range(i):
            bend[index] += first * u[j] + second * rho[j]
            meat[index] += by_u * u[j] + by_rho * rho[j]
            index += np.uintp(1)
        bend[index] += weight * (own_bend - inner * own)
        meat[index] += residual * (pull * ui - push * di + ridge * rho[i])
        index += np.uintp(1)
    length = outer * outer * uu * uu + 2.0 * cross * cross * (uu * dd + ud * ud) + fourth * fourth * dd * dd
    length += 2.0 * outer * fourth * ud * ud - 4.0 * cross * ud * (outer * uu + fourth * dd)
    real[k.POLISH_WEIGHT] += weight
    real[k.POLISH_SQUARES] += square
    real[k.MEAT_SQUARES] += square
    real[k.BEND_SQUARES] += square * (length - 2.0 * inner * trace + inner * inner * squares)


@jit
def follow_direction(whole: Array, real: Array, rho: Array, u: Array, z: float, target: float, weight: float) -> None:
    """Apply :func:`follow` to a direction, whose loss is ``(rho'u - t)^2 / 2``: half of the sums are zero."""
    p, pull = rho.shape[0], z - target
    if not abs(pull) < 1e60:
        return
    size, at = triangle(p), k.REAL_HEADER + k.ROWS * p
    bend, meat = real[at : at + size], real[at + size : at + 2 * size]
    at = k.REAL_HEADER + k.AIMED * p
    aimed, means, squared = real[at : at + p], real[at + p : at + 2 * p], real[at + 2 * p : at + 3 * p]
    square, own_ridge, uu = weight * weight, ridge_of(whole, real, u[p - 1], target), 0.0
    ridge, known = real[k.RIDGE] + own_ridge, z - pull
    for j in range(p):
        uu += u[j] * u[j]
        aimed[j] += weight * (known * u[j])
        means[j] += weight * u[j]
        squared[j] += square * u[j] * u[j]
    variance = own_variance(p, uu, u[p])
    by_rho, trace, squares = ridge - variance, 0.0, 0.0
    index = np.uintp(0)
    for i in range(p):
        ui = u[i]
        trace += variance * (ui * ui)
        squares += variance * variance
        first, left = weight * ui, pull * ui - variance * rho[i] + ridge * rho[i]
        residual = square * left
        to_u, to_rho = residual * pull, residual * by_rho
        for j in range(i):
            bend[index] += first * u[j]
            meat[index] += to_u * u[j] + to_rho * rho[j]
            index += np.uintp(1)
        bend[index] += weight * (ui * ui - variance)
        bend[index] += weight * own_ridge
        meat[index] += residual * left
        index += np.uintp(1)
    real[k.POLISH_WEIGHT] += weight
    real[k.POLISH_SQUARES] += square
    real[k.MEAT_SQUARES] += square
    real[k.BEND_SQUARES] += square * (uu * uu - 2.0 * trace + squares)


@jit
def solution_of(real: Array, p: int, size: int, least: float, out: Array) -> bool:
    """Solve ``(A + lambda I) theta = aimed`` for ``size`` coefficients, unless a pivot is not above ``least``."""
    aimed = k.REAL_HEADER + k.AIMED * p
    bend = k.REAL_HEADER + k.ROWS * p
    total, ridge = real[k.POLISH_WEIGHT], real[k.RIDGE]
    root = np.zeros((size, size))
    for i in range(size):
        for j in range(i + 1):
            entry = real[bend + triangle(i) + j] / total + (ridge if i == j else 0.0)
            for m in range(j):
                entry -= root[i, m] * root[j, m]
            if i == j:
                if not entry > least:
                    return False
                root[i, i] = math.sqrt(entry)
            else:
                root[i, j] = entry / root[j, j]
    for i in range(size):
        entry = real[aimed + i] / total
        for m in range(i):
            entry -= root[i, m] * out[m]
        out[i] = entry / root[i, i]
    for i in range(size - 1, -1, -1):
        entry = out[i]
        for m in range(i + 1, size):
            entry -= root[m, i] * out[m]
        out[i] = entry / root[i, i]
    return True


@jit
def uncertainty(real: Array, p: int) -> float:
    """Return approximately how far noise moves A's eigenvalues: ``2 sqrt(p)`` times the error of one entry."""
    if not real[k.POLISH_WEIGHT] > 0.0:
        return math.inf
    return float(2.0 * math.sqrt(real[k.BEND_SQUARES] / p) / real[k.POLISH_WEIGHT])


@jit
def to_estimate(whole: Array, real: Array, average: Array, reference: Array, radius: float) -> None:
    """Move the reference point to the polished estimate, or to the average, projected onto the ball of ``radius``."""
    p = whole[k.FEATURES]
    found, least = np.zeros(p), TRUST * uncertainty(real, p)
    done = real[k.POLISH_WEIGHT] > 0.0 and solution_of(real, p, whole[k.FREE], least, found)
    whole[k.IDENTIFIED] = 1 if done else 0
    if not done and whole[k.FORM] >= k.DIRECTED_LABEL and real[k.POLISH_WEIGHT] > 0.0:
        done = floored(real, p, whole[k.FREE], least, found)
    square = 0.0
    for j in range(p):
        if not done:
            found[j] = average[j]
        square += found[j] * found[j]
    shrink = radius / math.sqrt(square) if square > radius * radius else 1.0
    for j in range(p):
        reference[j] = found[j] * shrink


@jit
def refresh(whole: Array, real: Array, average: Array, reference: Array) -> None:
    """Move the reference point, and discount residuals at earlier ones."""
    p = whole[k.FEATURES]
    whole[k.NEXT_REFRESH] += max(whole[k.COUNT] // _GROWTH, 1)
    to_estimate(whole, real, average, reference, real[k.RADIUS])
    # Residuals at earlier reference points are discounted, as they say little about residuals at the newest.
    fade = 1.0 - 1.0 / (_GROWTH + 1.0)
    meat = k.REAL_HEADER + k.ROWS * p + triangle(p)
    for j in range(triangle(p)):
        real[meat + j] *= fade
    real[k.MEAT_SQUARES] *= fade
