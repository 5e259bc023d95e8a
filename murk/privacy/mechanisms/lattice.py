"""Compiled array code of the mechanisms: vectors to integers on a lattice, to payloads, and back.

A mechanism's code says how it bounds and randomizes a vector; mechanisms that differ only in calibration share one. For
every vector (NaN, infinite, huge), the quantised vector is within the integer bound, checked in integers, so no
rounding of a float affects a guarantee.

By bounds of an honest payload's norm a receiver detects forged payloads. A payload is a bounded integer vector plus
noise of width S = 2^20. Bounds of single coordinates would allow a forged payload with every coordinate at its bound;
the norm bounds them together. An honest payload exceeds the squares below with probability at most e^-t, t = `NATS`, as
for eight standard deviations of a normal. They are computed in integers, so all receivers decide alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import mul
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Integers, Vector, Words
from murk._internal.jit import borrowed, deferred, deferred_to, jit
from murk._internal.wiping import empty, track, wiped

GAUSSIAN: Final = 0
"""Quantised with a bounded l2 norm, plus Gaussian noise."""
LAPLACE: Final = 1
"""Quantised with a bounded l1 norm, plus Laplace noise."""
L2BALL: Final = 2
"""A vector of Gaussian noise or its negative, chosen by one coin."""
PRIVUNIT: Final = 3
"""One of several vectors of Gaussian noise and their negatives, chosen by one word."""
DIRECTIONS: Final = (L2BALL, PRIVUNIT)
"""Codes whose payloads represent a direction alone; they use coins."""
NOISE_OF: Final[Mapping[int, str]] = MappingProxyType(
    {GAUSSIAN: "gaussian", LAPLACE: "laplace", L2BALL: "gaussian", PRIVUNIT: "gaussian"}
)
"""The distribution of `murk.privacy.noise.distributions.NOISE_DISTRIBUTIONS` that each code draws."""
WIDTH: Final = 2**20
"""Width of all noise in lattice steps; equal to `murk.privacy.noise.LATTICE_WIDTH`, without loading the sampler."""
Parameters = tuple[float, float, int, np.uint64]
"""A mechanism's radius, spacing, steps and threshold."""

# A vector that exceeds the bound by no more than this factor does so by rounding, and only its integers are shrunk.
_SLACK = 1.0 + 2.0**-40
_UNIT = 2.0**-53
_ELEVEN = np.uint64(11)
_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@jit
def quantise_l2(v: Vector, spacing: float, steps: int, out: Integers) -> None:
    """Quantise a vector (d,) into ``out`` (d,) so that always ``sum(out^2) <= steps^2``.

    ``out_i = trunc(v_i / spacing)``. NaN counts as 0. A vector beyond ``steps * spacing`` is first scaled down to it,
    an infinite one to the direction of its infinite coordinates; any excess left by rounding is removed in integers. A
    vector of norm at most ``(1 - 2^-40) steps spacing`` changes by less than one spacing per coordinate. ``spacing`` is
    positive, ``1 <= steps`` and ``d steps^2 < 2^63``.

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
    """Quantise a vector so that always ``sum(|out|) <= steps``; otherwise like `quantise_l2`."""
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
    """Return the largest absolute value, ignoring NaN."""
    largest = 0.0
    for i in range(v.shape[0]):
        largest = max(largest, abs(v[i]))
    return largest


@jit
def share_of(value: float, largest: float) -> float:
    """Return a coordinate divided by the largest one, in [-1, 1]; 0 for NaN, and for finite divided by infinite."""
    if value != value:
        return 0.0
    if largest == math.inf:
        return math.copysign(1.0, value) if abs(value) == largest else 0.0
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
    """Shorten the largest coordinate by single steps until the norm is within the bound, in integers.

    One step is usually enough, as only rounding exceeds the bound here.
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


@jit
def randomize(kind: int, v: Vector, parameters: Parameters, noise: Integers, coins: Words, out: Integers) -> None:
    """Randomize one vector into the payload of its release.

    A vector ``v`` (d,) beyond the bound is projected onto it; NaN counts as 0. By ``kind``, ``out`` (d,) is

    - `GAUSSIAN`, `LAPLACE`: the quantised vector, in ``steps`` of width ``spacing``, plus ``noise`` (d,);
    - `L2BALL` (Duchi, Jordan, Wainwright 2018, section 4.2.3): a sign times the Gaussian ``noise`` (d,), whose
      direction is uniform; only the sign depends on the vector, by a coin of probability ``threshold / 2^64``;
    - `PRIVUNIT`: one of n vectors of Gaussian ``noise`` (n d,) or their negatives; only the choice depends on the
      vector, by one exact word, with ``threshold`` for the ``steps`` closest vectors together.

    The last two bound the l2 norm by ``radius``; ``coins`` (3,) are their words for rounding, coin and zero vector.
    """
    radius, spacing, steps, threshold = parameters
    if kind == L2BALL:
        _ball(v, radius, threshold, noise, coins, out)
        return
    if kind == PRIVUNIT:
        _unit(v, radius, steps, threshold, noise, coins, out)
        return
    if kind == GAUSSIAN:
        quantise_l2(v, spacing, steps, out)
    else:
        quantise_l1(v, spacing, steps, out)
    for i in range(out.shape[0]):
        out[i] += noise[i]


@jit
def _ball(v: Vector, radius: float, threshold: np.uint64, noise: Integers, coins: Words, out: Integers) -> None:
    largest = largest_size(v)
    inner, square = 0.0, 0.0
    empty = True
    for i in range(v.shape[0]):
        out[i] = noise[i]
        empty = empty and noise[i] == 0
    if empty:
        # A payload of zeros has no direction: use a fixed one.
        out[0] = 1
    if largest > 0.0:
        for i in range(v.shape[0]):
            r = share_of(v[i], largest)
            inner += r * out[i]
            square += r * r
    if inner == 0.0:
        positive = (coins[2] >> np.uint64(63)) == np.uint64(1)
    else:
        share = 1.0
        if largest < radius:
            share = min(1.0, largest * math.sqrt(square) / radius)
        # Rounding to the sphere: with the vector with probability (1 + share) / 2.
        towards = np.float64(coins[0] >> _ELEVEN) * _UNIT < 0.5 + 0.5 * share
        positive = (inner > 0.0) == towards
    # The one step that the guarantee rests on: an exact coin decides between the sign and its opposite.
    if positive != (coins[1] < np.uint64(threshold)):
        for i in range(out.shape[0]):
            out[i] = -out[i]


@jit
def _unit(
    v: Vector, radius: float, closest: int, threshold: np.uint64, noise: Integers, coins: Words, out: Integers
) -> None:
    # Do the same work for every vector: a zero vector becomes the first axis or its negative, with equal probabilities.
    d, k = out.shape[0], np.int64(closest)
    n = np.int64(noise.shape[0] // d)
    largest = largest_size(v)
    towards, scores = np.empty(d), np.empty(n)
    square, share = 0.0, 1.0
    for j in range(d):
        towards[j] = share_of(v[j], largest) if largest > 0.0 else (1.0 if j == 0 else 0.0)
        square += towards[j] * towards[j]
    if largest < radius:
        share = min(1.0, largest * math.sqrt(square) / radius)
    turn = 1.0 if np.float64(coins[0] >> _ELEVEN) * _UNIT < 0.5 + 0.5 * share else -1.0
    for i in range(n):
        inner, length = 0.0, 0.0
        for j in range(d):
            x = np.float64(noise[i * d + j])
            inner += towards[j] * x
            length += x * x
        if length == 0.0:
            # A draw of zeros has no direction: use the first axis.
            inner, length = towards[0], 1.0
        scores[i] = turn * inner / math.sqrt(length)
    # Work in place: a copy that numpy makes for itself is not wiped.
    sizes = np.abs(scores)
    sizes.sort()
    bound, ties = sizes[n - k], k
    for i in range(n):
        if abs(scores[i]) > bound:
            ties -= 1
    # The one step that the guarantee rests on: each of the k candidates that are closest has threshold / k of the
    # 2^64 words, and each of the others its share of the rest, whatever the vector.
    word, limit = coins[1], np.uint64(threshold)
    near = word < limit
    if near:
        index = np.int64(word // (limit // np.uint64(k)))
    else:
        index = np.int64((word - limit) // ((_ALL - limit) // np.uint64(2 * n - k) + _ONE))
    start, sign = np.int64(0), np.int64(1)
    for i in range(n):
        size = abs(scores[i])
        member = size > bound
        if size == bound and ties > 0:
            member = True
            ties -= 1
        # Each draw gives two candidates, its two sides. If the draw is a member, its side towards the vector is among
        # the closest candidates and the other side is not; if it is no member, neither side is.
        side = np.int64(1) if scores[i] >= 0.0 else np.int64(-1)
        if index == 0 and (member or not near):
            start, sign = i * d, side if near else -side
        elif index == 1 and not (member or near):
            start, sign = i * d, side
        index -= np.int64(1) if member else np.int64(0 if near else 2)
    for j in range(d):
        out[j] = sign * noise[start + j]
    empty = True
    for j in range(d):
        empty = empty and out[j] == 0
    if empty:
        out[0] = sign
    # Freed arrays are not wiped, so overwrite what depends on the record.
    for j in range(d):
        towards[j] = 0.0
    for i in range(n):
        scores[i] = sizes[i] = 0.0


@jit
def is_direction(kind: int) -> bool:
    """Return whether payloads of this kind represent a direction without a length."""
    return kind in DIRECTIONS


@jit
def decode(kind: int, payload: Integers, unit: float, out: Vector) -> None:
    """Decode a payload into the unbiased estimate of its vector.

    ``unit * payload`` for `GAUSSIAN` and `LAPLACE` (unit: the spacing); ``unit * payload / ||payload||`` for `L2BALL`
    and `PRIVUNIT` (unit: the radius B of the release), and zero for a payload of zeros.
    """
    factor = unit
    if is_direction(kind):
        square = 0.0
        for i in range(payload.shape[0]):
            square += np.float64(payload[i]) * np.float64(payload[i])
        factor = unit / math.sqrt(square) if square > 0.0 else 0.0
    for i in range(payload.shape[0]):
        out[i] = factor * payload[i]


@wiped
def _randomize_early(
    code: int, vectors: Vector, parameters: Parameters, noise: Integers, coins: Words, out: Integers
) -> None:
    _, spacing, steps, _ = parameters
    # Vectors without noise are stored only in memory that is wiped.
    quantised, fits = _quantised(vectors, spacing, steps) if code == GAUSSIAN else (None, None)
    row = empty(out.shape[1], np.int64)
    for i in range(vectors.shape[0]):
        if quantised is not None and fits is not None and fits[i]:
            np.add(quantised[i], noise[i], out=out[i])
            continue
        with np.errstate(all="ignore"):
            randomize(code, vectors[i], parameters, noise[i], coins[i], row)
        out[i] = row


def _quantised(vectors: Vector, spacing: float, steps: int) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """Return the result of `quantise_l2` for each vector within the bound, and which vectors these are."""
    with np.errstate(invalid="ignore", over="ignore"):
        t = np.divide(vectors, spacing, out=empty(vectors.shape))
        near = np.less_equal(np.abs(t, out=empty(t.shape)), steps)
    fits = near.all(axis=1)
    t[~fits] = 0.0
    integers = empty(t.shape, np.int64)
    np.copyto(integers, t, casting="unsafe")
    squares = np.multiply(integers, integers, out=empty(t.shape, np.int64))
    fits &= track(squares.sum(axis=1)) <= steps * steps
    return integers, fits


@deferred_to(_randomize_early)
def randomize_block(
    code: int, vectors: Vector, parameters: Parameters, noise: Integers, coins: Words, out: Integers
) -> None:
    """Apply `randomize` to every row."""
    vectors, noise, coins, out = borrowed(vectors), borrowed(noise), borrowed(coins), borrowed(out)
    for i in range(vectors.shape[0]):
        randomize(code, vectors[i], parameters, noise[i], coins[i], out[i])


@deferred
def decode_block(code: int, payload: Integers, unit: float, out: Vector) -> None:
    """Apply `decode` to every row."""
    for i in range(payload.shape[0]):
        decode(code, payload[i], unit, out[i])


NATS = 32
"""t = 8^2 / 2."""
FALSE_ALARM = math.exp(-NATS)
"""Bound of the probability that an honest payload is refused, 1.3e-14."""
_SURELY = 1.0 - 1e-6
"""A payload whose norm in floats is below this share of the bound certainly does not exceed the bound."""
FORGED = "a payload longer than its vector and honest noise can make it"
"""Reason given for a payload that is too long."""


def gaussian_square(dimension: int, steps: int, nats: int = NATS) -> int:
    r"""Return the largest squared norm of a payload with discrete Gaussian noise.

    .. math:: d S^2 + c^2 + 2 S \sqrt{t\,(d S^2 + 2 c^2)} + 2 t S^2

    for d = ``dimension``, a vector of norm at most c = ``steps`` (0: noise alone) and t = ``nats``. The mean is d S^2 +
    c^2. Discrete Gaussian noise is sub-Gaussian of variance S^2, so the square's moment generating function, and
    Chernoff's bound, is at most that of a non-central chi-square.

    Reference: Birge, "An alternative point of view on Lepski's method", 2001, lemma 8.1; Canonne, Kamath, Steinke, "The
    discrete Gaussian for differential privacy", 2020, lemma 9 (sub-Gaussian).
    """
    noise, vector = dimension * WIDTH**2, steps**2
    deviation = 2 * _root_up(nats * WIDTH**2 * (noise + 2 * vector))
    return noise + vector + deviation + 2 * nats * WIDTH**2


def laplace_square(dimension: int, steps: int, nats: int = NATS) -> int:
    r"""Return the largest squared norm of a payload with discrete Laplace noise.

    .. math:: \left(c + S\,(d + \sqrt{2 d t} + t) + d\right)^2

    The l2 norm is at most the l1 norm. The vector's l1 norm is at most c = ``steps``; the noise's l1 norm is a sum of d
    exponentials, each rounded up by less than one step.

    Reference: Boucheron, Lugosi, Massart, "Concentration inequalities", 2013, section 2.4 (gamma variables).
    """
    noise = WIDTH * (dimension + nats) + _root_up(2 * dimension * nats * WIDTH**2)
    return (steps + noise + dimension) ** 2


def _root_up(square: int) -> int:
    root = math.isqrt(square)
    return root if root * root == square else root + 1


@dataclass(frozen=True, slots=True)
class PayloadBound:
    """Bounds of the squared norms of an honest payload, part by part.

    >>> payload_bound = PayloadBound(((0, 2, 25),))
    >>> payload_bound.holds([3, -4]), payload_bound.holds([3, 5]), payload_bound.holds([2**61, 2**61])
    (True, False, False)
    """

    parts: tuple[tuple[int, int, int], ...]  # start, stop and largest squared norm of each range of coordinates

    def shifted(self, places: int) -> PayloadBound:
        """Return the bounds of payloads with ``places`` further numbers, without a bound, before these."""
        return PayloadBound(tuple((places + start, places + stop, square) for start, stop, square in self.parts))

    def holds(self, payload: Sequence[int]) -> bool:
        """Return whether a payload of Python integers, which do not overflow, is within the bounds."""
        for start, stop, square in self.parts:
            part = payload if stop - start == len(payload) else payload[start:stop]
            # Floats are faster and err by less than the margin; integers decide close cases.
            if math.hypot(*part) > _SURELY * math.sqrt(square) and sum(map(mul, part, part)) > square:
                return False
        return True

    def holds_all(self, payloads: npt.NDArray[np.int64]) -> bool:
        """Return whether all rows (m, d) are within the bounds."""
        rows = payloads.astype("f8")
        doubtful = False
        for start, stop, square in self.parts:
            part = rows[:, start:stop]
            doubtful = doubtful | ((part * part).sum(axis=1) > square * (1.0 - 1e-6))
        return all(self.holds(row) for row in payloads[doubtful].tolist()) if self.parts else True
