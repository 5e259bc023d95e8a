"""Compiled pass over rows: bound each row, mix it into the sketch, add it to the second moment."""

import math

from murk._jit import jit
from murk.privacy.sketches.normals import ROWS, Halves, Reals, Words, normals

__all__ = ["accumulate", "bounded", "mix"]

# Do not scale rows that exceed the bound by rounding only: the mechanism's own bound is larger by 2^-40.
_SLACK = 1 + 2.0**-42


@jit
def accumulate(
    rows: Reals,
    feature_bound: float,
    target_bound: float,
    key: Halves,
    first: int,
    mixtures: Reals,
    moments: Reals,
    carry: Reals,
    words: Words,
    counter: Halves,
    spare: Words,
    drawn: Reals,
    inside: Reals,
) -> None:
    """Add m rows (m, d) whose indices in the window begin at ``first``.

    ``mixtures`` (d, k) is the transposed sketch so far; ``moments`` and ``carry`` (d, d) are the upper half of the
    second moment and its compensation. ``words``, ``counter`` and ``spare`` belong to a `normals.Room` filled for these
    rows; ``drawn`` (ROWS, k) and ``inside`` (ROWS, d) are scratch space.
    """
    for start in range(0, rows.shape[0], ROWS):
        count = min(ROWS, rows.shape[0] - start)
        for r in range(count):
            bounded(rows, start + r, feature_bound, target_bound, inside, r)
            _add_moments(inside, r, moments, carry)
        normals(key, first + start, start, words, counter, spare, drawn[:count])
        mix(drawn[:count], inside[:count], mixtures)


# Rows are passed as an array and an index: a view of a row would cost as much as adding it.
@jit
def bounded(
    rows: Reals,
    i: int,
    feature_bound: float,
    target_bound: float,
    out: Reals,
    at: int,
) -> None:
    """Copy row i to ``out[at]`` with features and target scaled down to their bounds; zeros if not finite."""
    last = rows.shape[1] - 1
    largest, square = 0.0, 0.0
    finite = abs(rows[i, last]) < math.inf
    for c in range(last):
        size = abs(rows[i, c])
        largest = max(largest, size)
        finite = finite and size < math.inf
        square += size * size
    if not finite:
        for c in range(last + 1):
            out[at, c] = 0.0
        return
    for c in range(last + 1):
        out[at, c] = rows[i, c]
    if math.sqrt(square) > feature_bound * _SLACK:
        # Divide by the largest value first, since the norm itself may be infinite.
        square = 0.0
        for c in range(last):
            square += (rows[i, c] / largest) * (rows[i, c] / largest)
        factor = feature_bound / math.sqrt(square)
        for c in range(last):
            out[at, c] = rows[i, c] / largest * factor
    if abs(rows[i, last]) > target_bound * _SLACK:
        out[at, last] = math.copysign(target_bound, rows[i, last])


@jit
def mix(drawn: Reals, rows: Reals, mixtures: Reals) -> None:
    """Add to ``mixtures`` (d, k) the outer products of m rows (m, d) and their normals (m, k), in order.

    Four rows share one read and write of a sum but are added one by one, so grouping does not change the result.
    """
    m, k = drawn.shape
    whole = m - m % 4
    for r in range(0, whole, 4):
        s0, s1, s2, s3 = drawn[r], drawn[r + 1], drawn[r + 2], drawn[r + 3]
        for c in range(rows.shape[1]):
            z0, z1, z2, z3 = rows[r, c], rows[r + 1, c], rows[r + 2, c], rows[r + 3, c]
            column = mixtures[c]
            for j in range(k):
                column[j] = (((column[j] + z0 * s0[j]) + z1 * s1[j]) + z2 * s2[j]) + z3 * s3[j]
    for r in range(whole, m):
        s0 = drawn[r]
        for c in range(rows.shape[1]):
            z0 = rows[r, c]
            column = mixtures[c]
            for j in range(k):
                column[j] += z0 * s0[j]


@jit
def _add_moments(rows: Reals, i: int, moments: Reals, carry: Reals) -> None:
    """Add z z' of row i to the upper half by compensated summation (Kahan 1965), whose error does not grow with n."""
    for a in range(rows.shape[1]):
        for b in range(a, rows.shape[1]):
            term = rows[i, a] * rows[i, b] - carry[a, b]
            total = moments[a, b] + term
            carry[a, b] = (total - moments[a, b]) - term
            moments[a, b] = total
