r"""The inverse transform of Laplace noise, and learning from vectors released with it.

Independent Laplace noise N of scale :math:`b_j` has the characteristic function :math:`\prod_j 1 / (1 + b_j^2 s_j^2)`,
so for a smooth f the transform

.. math:: T f = \prod_j (1 - b_j^2\, \partial_j^2) f, \qquad \mathbb{E}\, T f(u + N) = f(u)

is a finite sum and exact. It needs ``exp(|theta'N|)`` to have a mean only if f grows exponentially. For ``f(theta'u)``,
:math:`w_j = b_j^2 \theta_j^2` and :math:`P_S = \prod_{j \notin S} (1 - w_j\, d^2/dz^2)`, at ``z = theta'u~``:

========  ===================================================================================
loss      P f
gradient  u_i P f' - 2 b_i^2 theta_i P_i f''
Hessian   u_i u_j P f'' - 2 b_j^2 theta_j u_i P_j f''' - 2 b_i^2 theta_i u_j P_i f'''
          + 4 b_i^2 b_j^2 theta_i theta_j P_ij f'''' off the diagonal, - 2 b_i^2 P_i f'' on it
========  ===================================================================================

Quadratic losses have the same corrections as under Gaussian noise of the same variance. Others have not.
"""

from __future__ import annotations

import math

import numpy as np

from murk._internal.jit import borrowed, jit
from murk.protocols.examples import layout as k
from murk.protocols.examples.kernels import add_loss, set_level, state_views, step_on
from murk.protocols.examples.layout import Array
from murk.protocols.examples.transforms import EXPONENTIAL, PROBIT, QUADRATIC, SQUARED, log_derivative, slopes, value

_ROOT_TWO_PI = math.sqrt(2.0 * math.pi)


@jit
def derivatives(loss: int, width: float, z: float, out: Array) -> None:
    """Write a loss's derivatives of orders 0, 1, 2, ... at z; that of the squared loss is ``z^2 / 2``."""
    size = out.shape[0]
    if loss in (QUADRATIC, SQUARED):
        miss = z - 1.0 if loss == QUADRATIC else z
        for m in range(size):
            out[m] = 0.0
        out[0], out[1], out[2] = 0.5 * miss * miss, miss, 1.0
    elif loss == EXPONENTIAL:
        found = math.exp(-z) if z > -700.0 else math.inf
        for m in range(size):
            out[m] = found if m % 2 == 0 else -found
    elif loss == PROBIT:
        out[0], out[1] = value(loss, 0, width, z, 0.0), slopes(loss, 0, width, z, 0.0)[0]
        # Hermite polynomials times the density, by their recurrence.
        before, found = 0.0, math.exp(-0.5 * z * z / width) / (math.sqrt(width) * _ROOT_TWO_PI)
        for m in range(size - 2):
            out[m + 2] = found
            before, found = found, -(z * found + m * before) / width
    else:
        # Taylor coefficients of s = 1 / (1 + exp(-z)) from s' = s - s^2, where s <= 1/2 so that nothing cancels.
        e = math.exp(-abs(z)) if abs(z) < 700.0 else 0.0
        out[1] = e / (1.0 + e)
        for n in range(size - 2):
            total = out[n + 1]
            for i in range(n + 1):
                total -= out[i + 1] * out[n - i + 1]
            out[n + 2] = total / (n + 1)
        factorial = 1.0
        for m in range(2, size):
            factorial *= m - 1
            out[m] *= -factorial if z > 0.0 and m % 2 == 1 else factorial
        out[0], out[1] = log_derivative(0, z), log_derivative(1, z)


@jit
def invert(f: Array, w: Array, one: int, other: int, out: Array) -> None:
    """Apply the transform, without the coordinates ``one`` and ``other``, to a loss's derivatives.

    Each coordinate leaves two fewer of the highest orders correct.
    """
    size = f.shape[0]
    for m in range(size):
        out[m] = f[m]
    for j in range(w.shape[0]):
        if j not in (one, other):
            for m in range(size - 2):
                out[m] -= w[j] * out[m + 2]


@jit
def loss_estimate(loss: int, width: float, z: float, w: Array) -> float:
    """Return the unbiased estimate of a loss at a score z whose noise has the squared scales ``w``."""
    f = np.zeros(2 * w.shape[0] + 3)
    g = np.zeros_like(f)
    derivatives(loss, width, z, f)
    invert(f, w, -1, -1, g)
    return float(g[0])


@jit
def expand(
    whole: Array, real: Array, theta: Array, u: Array, target: float, f: Array, g: Array, h: Array, out: Array
) -> None:
    """Evaluate a release at theta.

    Writes the derivatives f, their transform g, and rows of ``out``: w, the noise variances times theta, ``P_i f''``,
    ``P_i f'''`` and the gradient.
    """
    p = theta.shape[0]
    z = -target if whole[k.LOSS] == SQUARED else 0.0
    for j in range(p):
        z += theta[j] * u[j]
        variance = real[k.CONSTANT_VARIANCE] if j == p - 1 else real[k.VARIANCE]
        if whole[k.UNCORRECTED] == 1:
            variance = 0.0
        out[1, j] = variance * theta[j]
        out[0, j] = 0.5 * out[1, j] * theta[j]
    derivatives(whole[k.LOSS], real[k.WIDTH], z, f)
    invert(f, out[0], -1, -1, g)
    for i in range(p):
        invert(f, out[0], i, i, h)
        out[2, i], out[3, i] = h[2], h[3]
        out[4, i] = u[i] * g[1] - out[1, i] * h[2]


@jit
def follow_laplace(real: Array, rho: Array, u: Array, f: Array, g: Array, h: Array, rows: Array, weight: float) -> None:
    """Add a release's gradient and Hessian at the reference point, from :func:`expand`, to the sums."""
    p, length = rho.shape[0], 0.0
    hessian = np.zeros((p, p))
    for i in range(p):
        variance = real[k.CONSTANT_VARIANCE] if i == p - 1 else real[k.VARIANCE]
        for j in range(i + 1):
            found = u[i] * u[j] * g[2] - u[i] * rows[1, j] * rows[3, j] - u[j] * rows[1, i] * rows[3, i]
            if i == j:
                found -= variance * rows[2, i]
            elif f.shape[0] > 5:
                invert(f, rows[0], i, j, h)
                found += rows[1, i] * rows[1, j] * h[4]
            hessian[i, j] = hessian[j, i] = found
            length += found * found * (1.0 if i == j else 2.0)
    if not length < 1e120:
        return
    square, ridge = weight * weight, real[k.RIDGE]
    aimed, bend = k.REAL_HEADER + k.AIMED * p, k.REAL_HEADER + k.ROWS * p
    meat, at = bend + p * (p + 1) // 2, 0
    for i in range(p):
        along = 0.0
        for j in range(p):
            along += hessian[i, j] * rho[j]
        real[aimed + i] += weight * (along - rows[4, i])
        for j in range(i + 1):
            real[bend + at] += weight * hessian[i, j]
            real[meat + at] += square * (rows[4, i] + ridge * rho[i]) * (rows[4, j] + ridge * rho[j])
            at += 1
    real[k.POLISH_WEIGHT] += weight
    real[k.POLISH_SQUARES] += square
    real[k.MEAT_SQUARES] += square
    real[k.BEND_SQUARES] += square * length


@jit
def learn_laplace(real: Array, whole: Array, numbers: Array, levels: Array, reals: Array, wholes: Array) -> None:
    """Learn from decoded vectors (m, numbers); with empty ``levels``, all at the current level.

    With a real target the last of p numbers is the target times its scale, in place of the constant. A product may have
    one more number, a target.
    """
    whole, real = borrowed(whole), borrowed(real)
    state, _, u = state_views(real, whole)
    theta, _, _, _, gathered, reference = state
    p = whole[k.FEATURES]
    # A quadratic loss has no derivatives beyond these.
    size = 5 if whole[k.LOSS] in (QUADRATIC, SQUARED) else 2 * p + 3
    f, g, h, rows = np.zeros(size), np.zeros(size), np.zeros(size), np.zeros((5, p))
    for i in range(numbers.shape[0]):
        if levels.shape[0] > 0:
            set_level(real, whole, reals, wholes, levels[i])
        for j in range(p):
            u[j] = numbers[i, j]
        target = numbers[i, p] if numbers.shape[1] > p else 0.0
        if whole[k.FORM] == k.REAL:
            target, u[p - 1] = u[p - 1] / real[k.TARGET_SCALE], 1.0
        whole[k.COUNT] += 1
        weight = 1.0 / real[k.SPREAD] if whole[k.WEIGHTING] == k.INVERSE_VARIANCE else 1.0
        square, total = 0.0, 0.0
        for j in range(p if whole[k.FORM] == k.PRODUCT else p - 1):
            square += u[j] * u[j]
        expand(whole, real, theta, u, target, f, g, h, rows)
        for j in range(p):
            total += abs(weight * rows[4, j])
        is_plausible = square <= real[k.LIMIT] * real[k.LIMIT] and abs(target) <= real[k.TARGET_LIMIT]
        if is_plausible and total * total < math.inf:
            for j in range(whole[k.FREE]):
                gathered[j] += weight * rows[4, j]
            real[k.BATCH_WEIGHT] += weight
            real[k.SUM_SPREAD] += weight * weight * real[k.SPREAD]
            expand(whole, real, reference, u, target, f, g, h, rows)
            add_loss(real, g[0] - 0.5 * real[k.TARGET_VARIANCE], weight)
            if whole[k.POLISH] == 1:
                follow_laplace(real, reference, u, f, g, h, rows, weight)
        else:
            whole[k.REFUSED] += 1
        step_on(whole, real, state)
    for j in range(u.shape[0]):
        u[j] = 0.0
