"""Kernels of a device: the vectors of records that mechanisms randomize."""

from __future__ import annotations

import math

import numpy as np

from murk._internal.jit import borrowed, deferred, inlined, jit
from murk.protocols.examples import layout as k
from murk.protocols.examples.layout import Array


@jit
def to_direction(form: int, boxed: int, bound: float, x: Array, y: float, out: Array) -> None:
    """Write ``(w, a, r, m / sqrt 2)``, as in the module, of coded features, shortened to ``bound`` if not ``boxed``."""
    last = x.shape[0] - 1
    largest, square = 0.0, 0.0
    for j in range(last):
        xj = x[j]
        if xj - xj != 0.0 or y != y:
            xj = 0.0
        elif boxed == 1:
            xj = min(max(xj, -1.0), 1.0)
        out[j] = xj
        largest = max(largest, abs(xj))
    # Two steps, so that no square overflows.
    shrink = bound / largest if boxed == 0 and largest > bound else 1.0
    for j in range(last):
        out[j] *= shrink
        square += out[j] * out[j]
    shrink = bound / math.sqrt(square) if boxed == 0 and square > bound * bound else 1.0
    inverse = 1.0 / math.sqrt(shrink * shrink * square + 1.0)
    if y != y:
        inverse = 0.0
    elif form == k.DIRECTED_LABEL:
        y = 1.0 if y > 0.5 else -1.0
        shrink *= y
    else:
        y = min(max(y, -1.0), 1.0)
    for j in range(last):
        out[j] *= shrink * inverse
    out[last] = inverse
    out[last + 1] = y * inverse if y == y else 0.0
    out[last + 2] = 0.0 if y == y else 1.0


@inlined
def to_vector(form: int, boxed: int, scale: float, x: Array, y: float, out: Array) -> None:
    """Write the vector that a record's mechanism randomizes: a direction, ``y x``, ``(x, y)`` or ``(x, scale y)``.

    The constant of x is last; non-finite features count as 0, and others are clipped to [-1, 1] if ``boxed``. ``y`` is
    0 or 1, or clipped to [-1, 1]. A missing target (NaN) gives zeros.
    """
    last = x.shape[0] - 1
    if form >= k.DIRECTED_LABEL:
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
    elif form == k.REAL:
        out[last] = scale * min(max(y, -1.0), 1.0)
    else:
        label = 1.0 if y > 0.5 else -1.0
        out[last] = label
        if form == k.PRODUCT:
            for j in range(last):
                out[j] *= label


@deferred
def to_vectors(form: int, boxed: int, scale: float, X: Array, y: Array, out: Array) -> None:
    """Apply :func:`to_vector` to every row."""
    for i in range(X.shape[0]):
        to_vector(form, boxed, scale, X[i], y[i], out[i])


@jit
def to_unit(form: int, boxed: int, bound: float, x: Array, y: float, out: Array) -> None:
    """Write v of coded features, (p + 1,); zeros where the target is missing. See `to_direction` for the bounds."""
    p = x.shape[0]
    direction = np.empty(p + 2)
    target = y
    if form == k.OUTER_LABEL and y == y:
        target = 1.0 if y > 0.5 else -1.0
    to_direction(k.DIRECTED_REAL, boxed, bound, x, target, direction)
    # |x|^2 / (|x|^2 + 1) = 1 / (1 + a^2), with a = 1/|x| as released with directions.
    shrink = 1.0 / math.sqrt(1.0 + direction[p - 1] * direction[p - 1])
    for j in range(p + 1):
        out[j] = direction[j] * shrink
    direction[:] = 0.0


@deferred
def to_units(form: int, boxed: int, bound: float, X: Array, y: Array, out: Array) -> None:
    """Apply :func:`to_unit` to every row."""
    X, out = borrowed(X), borrowed(out)
    for i in range(X.shape[0]):
        to_unit(form, boxed, bound, X[i], y[i], out[i])
