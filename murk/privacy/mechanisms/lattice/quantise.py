"""Bounded vectors to integers on a lattice, compiled.

Whatever the vector (NaN, infinite, huge), what is quantised lies within the integer bound, checked in
integers; so no rounding of a float can touch what a mechanism guarantees.
"""

import math

import numpy as np
import numpy.typing as npt

from murk._jit import jit

__all__ = ["Integers", "Vector", "largest_size", "quantise_l1", "quantise_l2", "share_of"]

Vector = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

# Vectors this little beyond the bound got there by rounding: the integer shrink deals with them.
_SLACK = 1.0 + 2.0**-40


@jit
def quantise_l2(v: Vector, spacing: float, steps: int, out: Integers) -> None:
    r"""Quantise a vector so that ``sum(out^2) <= steps^2`` always.

    ``out_i = trunc(v_i / spacing)``. NaN counts as 0; a vector beyond ``steps * spacing`` is first scaled
    down to it, an infinite one to the direction of its infinite coordinates; what rounding leaves over is
    then taken off in integers. A vector of norm at most ``(1 - 2^-40) steps spacing`` changes by less than
    one spacing per coordinate.

    Parameters
    ----------
    v
        The vector, shape (d,).
    spacing
        Width of one lattice step, positive.
    steps
        The bound in lattice steps, with ``1 <= steps`` and ``d steps^2 < 2^63``.
    out
        Receives the integers, shape (d,).

    Examples
    --------
    >>> out = np.empty(2, dtype=np.int64)
    >>> quantise_l2(np.array([0.6, -0.25]), 0.1, 10, out)
    >>> out.tolist()
    [5, -2]
    """
    # Nearly every vector is within the bound: one pass, in which the integers themselves decide.
    bound, total = np.int64(steps) * np.int64(steps), np.int64(0)
    fits = True
    for i in range(v.shape[0]):
        t = v[i] / spacing
        if not abs(t) <= steps:  # NaN, too
            fits = False
            break
        q = np.int64(t)
        out[i] = q
        total += q * q
    if fits and total <= bound:
        return

    largest = largest_size(v)
    square = 0.0
    inside = largest <= steps * spacing and largest < math.inf
    if inside:
        for i in range(v.shape[0]):
            t = v[i] / spacing if v[i] == v[i] else 0.0
            square += t * t
            out[i] = _clamp(int(t), steps)
        inside = square <= steps * _SLACK * steps * _SLACK
    if not inside:
        square = 0.0
        for i in range(v.shape[0]):
            r = share_of(v[i], largest)
            square += r * r
        _project(v, largest, steps / math.sqrt(square), steps, out)
    _shrink_l2(steps, out)


@jit
def quantise_l1(v: Vector, spacing: float, steps: int, out: Integers) -> None:
    r"""Quantise a vector so that ``sum(|out|) <= steps`` always; otherwise as `quantise_l2`.

    Examples
    --------
    >>> out = np.empty(2, dtype=np.int64)
    >>> quantise_l1(np.array([np.inf, 3.0]), 0.1, 10, out)
    >>> out.tolist()
    [10, 0]
    """
    largest = largest_size(v)
    total = 0.0
    inside = largest <= steps * spacing and largest < math.inf
    if inside:
        for i in range(v.shape[0]):
            t = v[i] / spacing if v[i] == v[i] else 0.0
            total += abs(t)
            out[i] = _clamp(int(t), steps)
        inside = total <= steps * _SLACK
    if not inside:
        total = 0.0
        for i in range(v.shape[0]):
            total += abs(share_of(v[i], largest))
        _project(v, largest, steps / total, steps, out)
    _shrink_l1(steps, out)


@jit
def largest_size(v: Vector) -> float:
    """The largest absolute value, NaN left out."""
    largest = 0.0
    for i in range(v.shape[0]):
        if abs(v[i]) > largest:
            largest = abs(v[i])
    return largest


@jit
def share_of(value: float, largest: float) -> float:
    """A coordinate over the largest, in [-1, 1]; infinite ones leave nothing to the others, NaN is 0."""
    if value != value:
        return 0.0
    if largest == math.inf:
        if value == largest:
            return 1.0
        if value == -largest:
            return -1.0
        return 0.0
    return value / largest


@jit
def _project(v: Vector, largest: float, length: float, steps: int, out: Integers) -> None:
    for i in range(v.shape[0]):
        out[i] = _clamp(int(share_of(v[i], largest) * length), steps)


@jit
def _clamp(q: int, steps: int) -> int:
    return min(max(q, -steps), steps)


@jit
def _shrink_l2(steps: int, out: Integers) -> None:
    """Take single steps off the largest coordinate until the norm is within the bound, in integers.

    Seldom more than one: what comes here exceeds the bound by rounding only.
    """
    bound = np.int64(steps) * np.int64(steps)
    total = np.int64(0)
    for i in range(out.shape[0]):
        total += out[i] * out[i]
    while total > bound:
        at = _furthest(out)
        total -= 2 * abs(out[at]) - 1
        out[at] += -1 if out[at] > 0 else 1


@jit
def _shrink_l1(steps: int, out: Integers) -> None:
    total = np.int64(0)
    for i in range(out.shape[0]):
        total += abs(out[i])
    while total > steps:
        at = _furthest(out)
        total -= 1
        out[at] += -1 if out[at] > 0 else 1


@jit
def _furthest(out: Integers) -> int:
    at = 0
    for i in range(1, out.shape[0]):
        if abs(out[i]) > abs(out[at]):
            at = i
    return at
