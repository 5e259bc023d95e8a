"""Compiled pass over rows: bound each row, mix it into the sketch by normals, add it to the second moment.

Entry (j, row) of the sketching matrix is a standard normal by the ziggurat of 256 layers (Marsaglia, Tsang 2000) with
52-bit abscissae (Doornik 2005), up to the 53 bits of a float. 98.8% of the draws take one word of the row's blocks; the
others continue with blocks of that entry alone. So an entry depends only on the key, the row's index, j and k.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Floats, Words
from murk._internal.jit import jit
from murk.privacy.noise.chacha import WORDS, blocks, single_block

Halves = npt.NDArray[np.uint32]

ROWS = 16
"""Number of rows whose normals are kept at a time."""
_BLOCKS = 4096  # number of blocks computed in one call: 256 KiB of words

_R = 3.6541528853610088
_LAYERS = 256
_BITS = 52


def _tables() -> tuple[Words, Floats, Floats]:
    """Return each ziggurat layer's inner limit in 2^-52 of its width, width in 2^-52, and density at its edge."""
    area = _R * math.exp(-_R * _R / 2) + math.sqrt(math.pi / 2) * math.erfc(_R / math.sqrt(2))
    edge = [0.0] * _LAYERS
    edge[-1] = _R
    for i in range(_LAYERS - 2, 0, -1):
        edge[i] = math.sqrt(-2 * math.log(area / edge[i + 1] + math.exp(-(edge[i + 1] ** 2) / 2)))
    density = [math.exp(-x * x / 2) for x in edge]
    # The lowest layer is as wide as a box of the same area: its tail beyond R is drawn separately.
    edge[0] = area / density[-1]
    inner = [_R, 0.0, *edge[1:-1]]
    inside = [int(x / y * 2**_BITS) for x, y in zip(inner, edge, strict=True)]
    return np.array(inside, dtype=np.uint64), np.array(edge) / 2.0**_BITS, np.array(density)


_INSIDE, _WIDTH, _DENSITY = _tables()
_LAYER, _MAGNITUDE = np.uint64(_LAYERS - 1), np.uint64(2**_BITS - 1)
_SIGN_AT, _MAGNITUDE_AT = np.uint64(8), np.uint64(9)
_ONE, _ELEVEN = np.uint64(1), np.uint64(11)
_UNIT = 2.0**-53
_u32 = np.uint32


class Room(NamedTuple):
    """Scratch space for words while rows are mixed; its content reveals the normals.

    ``counters`` (3, m) and ``words`` (8, m) hold the blocks of `rows` rows, ``offsets`` (m,) the row of each block;
    ``counter`` (3, 1) and ``spare`` (8, 1) hold one more block.
    """

    counters: Halves
    offsets: Halves
    words: Words
    counter: Halves
    spare: Words

    @classmethod
    def for_entries(cls, k: int) -> "Room":
        """Return space for rows of k normals each."""
        per_row = -(-k // WORDS)
        rows = max(4, _BLOCKS // per_row)
        counters = np.zeros((3, rows * per_row), dtype=np.uint32)
        counters[0] = np.tile(np.arange(per_row, dtype=np.uint32), rows)
        return cls(
            counters,
            np.repeat(np.arange(rows, dtype=np.uint32), per_row),
            np.zeros((WORDS, rows * per_row), dtype=np.uint64),
            np.zeros((3, 1), dtype=np.uint32),
            np.zeros((WORDS, 1), dtype=np.uint64),
        )

    @property
    def rows(self) -> int:
        """Number of rows whose random words fit into the scratch space."""
        return int(self.offsets[-1]) + 1

    def fill(self, key: Halves, first: int, count: int) -> None:
        """Compute the words of rows ``first`` .. ``first + count - 1``."""
        used = count * (self.offsets.shape[0] // self.rows)
        np.add(self.offsets[:used], _u32(first), out=self.counters[1, :used])
        blocks(key, self.counters, used, self.words)

    def wipe(self) -> None:
        """Overwrite everything that reveals normals."""
        for array in (self.words, self.counter, self.spare):
            array.fill(0)


@jit
def normals(key: Halves, first: int, at: int, words: Words, counter: Halves, spare: Words, out: Floats) -> None:
    """Fill ``out`` (m, k) with the normals of rows ``first``, ``first + 1``, ...

    ``words`` begins with those of row ``first - at``; ``counter`` and ``spare`` are for further words (`Room`).
    """
    m, k = out.shape
    per_row = -(-k // WORDS)
    for r in range(m):
        for w in range(WORDS):
            start = w * per_row
            for j in range(start, min(start + per_row, k)):
                word = words[w, (at + r) * per_row + j - start]
                layer = np.int64(word & _LAYER)
                magnitude = (word >> _MAGNITUDE_AT) & _MAGNITUDE
                if magnitude < _INSIDE[layer]:
                    x = np.float64(np.int64(magnitude)) * _WIDTH[layer]
                    out[r, j] = -x if (word >> _SIGN_AT) & _ONE else x
                else:
                    out[r, j] = _finish_normal(key, first + r, j, word, counter, spare)


@jit
def _finish_normal(key: Halves, row: int, j: int, word: np.uint64, counter: Halves, spare: Words) -> float:
    """Return the normal of an entry whose first word does not decide it, with further words of the entry."""
    counter[0, 0], counter[1, 0], counter[2, 0] = _u32(j), _u32(row), _u32(0)
    used = WORDS
    while True:
        layer = np.int64(word & _LAYER)
        magnitude = (word >> _MAGNITUDE_AT) & _MAGNITUDE
        x = np.float64(np.int64(magnitude)) * _WIDTH[layer]
        sign = -1.0 if (word >> _SIGN_AT) & _ONE else 1.0
        if magnitude < _INSIDE[layer]:
            return float(sign * x)
        if used > WORDS - 3:
            # The third counter numbers these blocks; 0 stands for the row's own words.
            counter[2, 0] = _u32(counter[2, 0] + _u32(1))
            single_block(key, counter, spare)
            used = 0
        u = np.float64(np.int64(spare[used, 0] >> _ELEVEN)) * _UNIT
        if layer > 0:
            used += 1
            if _DENSITY[layer] + u * (_DENSITY[layer - 1] - _DENSITY[layer]) < math.exp(-0.5 * x * x):
                return float(sign * x)
        else:
            v = np.float64(np.int64(spare[used + 1, 0] >> _ELEVEN)) * _UNIT
            used += 2
            beyond = -math.log1p(-u) / _R
            if -2.0 * math.log1p(-v) > beyond * beyond:
                return sign * (_R + beyond)
            # A draw that has entered the tail stays there: use the same word with new uniforms.
            continue
        word = spare[used, 0]
        used += 1


# Do not scale rows that exceed the bound by rounding only: the mechanism's own bound is larger by 2^-40.
_SLACK = 1 + 2.0**-42


@jit
def accumulate(
    rows: Floats,
    feature_bound: float,
    target_bound: float,
    key: Halves,
    first: int,
    mixtures: Floats,
    moments: Floats,
    carry: Floats,
    words: Words,
    counter: Halves,
    spare: Words,
    drawn: Floats,
    inside: Floats,
) -> None:
    """Add m rows (m, d) whose indices in the window begin at ``first``.

    ``mixtures`` (d, k) is the transposed sketch so far; ``moments`` and ``carry`` (d, d) are the upper half of the
    second moment and its compensation. ``words``, ``counter`` and ``spare`` belong to a `Room` filled for these rows;
    ``drawn`` (ROWS, k) and ``inside`` (ROWS, d) are scratch space.
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
def bounded(rows: Floats, i: int, feature_bound: float, target_bound: float, out: Floats, at: int) -> None:
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
def mix(drawn: Floats, rows: Floats, mixtures: Floats) -> None:
    """Add the outer products of m rows (m, d) and normals (m, k) to ``mixtures`` (d, k), always row by row."""
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
def _add_moments(rows: Floats, i: int, moments: Floats, carry: Floats) -> None:
    """Add z z' of row i to the upper half by compensated summation (Kahan 1965), whose error does not grow with n."""
    for a in range(rows.shape[1]):
        for b in range(a, rows.shape[1]):
            term = rows[i, a] * rows[i, b] - carry[a, b]
            total = moments[a, b] + term
            carry[a, b] = (total - moments[a, b]) - term
            moments[a, b] = total
