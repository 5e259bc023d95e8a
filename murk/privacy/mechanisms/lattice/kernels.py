"""Vectors to payloads of a release, and back: the array code of the mechanisms, compiled, one kernel for everybody.

Which code it is, is a number of `murk.privacy.mechanisms.kernel_codes`.
"""

import math

import numpy as np
import numpy.typing as npt

from murk._jit import deferred, deferred_to, jit
from murk._memory import borrowed
from murk._scratch import empty, keep, wiped
from murk.privacy.mechanisms.kernel_codes import DIRECTIONS, GAUSSIAN, L2BALL, PRIVUNIT
from murk.privacy.mechanisms.lattice.quantise import Integers, Vector, largest_size, quantise_l1, quantise_l2, share_of

Words = npt.NDArray[np.uint64]

_UNIT = 2.0**-53
_ELEVEN = np.uint64(11)
_ONE = np.uint64(1)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@jit
def randomize(
    kind: int,
    v: Vector,
    radius: float,
    spacing: float,
    steps: int,
    threshold: np.uint64,
    noise: Integers,
    coins: Words,
    out: Integers,
) -> None:
    r"""Randomize one vector into the payload of its release.

    For `GAUSSIAN` and `LAPLACE`: the quantised vector plus the noise. For `L2BALL` (Duchi, Jordan,
    Wainwright 2018, section 4.2.3): a sign times the noise vector, whose direction is uniform whatever the
    vector; only the sign depends on it, and only through a coin of probability ``threshold / 2^64``. For `PRIVUNIT`:
    one of several noise vectors and their negatives; only which one depends on the vector, through one exact word.

    Parameters
    ----------
    kind
        `GAUSSIAN`, `LAPLACE`, `L2BALL` or `PRIVUNIT`.
    v
        The vector, shape (d,); anything beyond the bound is projected to it, NaN counts as 0.
    radius
        Bound of the vector's l2 norm; used by `L2BALL` and `PRIVUNIT`.
    spacing
        Width of one lattice step, positive; not used by `L2BALL` and `PRIVUNIT`.
    steps
        The bound of the quantised vector's norm in lattice steps; for `PRIVUNIT` how many draws count as closest; not
        used by `L2BALL`.
    threshold
        Of the coin, for `L2BALL`, and of the closest together, for `PRIVUNIT`; a uint64.
    noise
        Shape (d,): Laplace noise for `LAPLACE`, else Gaussian; for `PRIVUNIT` (n d,), n draws one after another.
    coins
        Shape (3,): words for the rounding, the coin and the zero vector; read by `L2BALL` and `PRIVUNIT` only.
    out
        Receives the payload, shape (d,).
    """
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
        # Has no direction; a fixed one serves (in one dimension it is as good as any).
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
    # The same work whatever the vector: a zero vector is the first axis or its negative, with even probabilities.
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
            # Zeros have no direction; the first axis serves.
            inner, length = towards[0], 1.0
        scores[i] = turn * inner / math.sqrt(length)
    # In place: a copy that numpy makes for itself is not wiped.
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
        place = np.int64(word // (limit // np.uint64(k)))
    else:
        place = np.int64((word - limit) // ((_ALL - limit) // np.uint64(2 * n - k) + _ONE))
    start, sign = np.int64(0), np.int64(1)
    for i in range(n):
        size = abs(scores[i])
        member = size > bound
        if size == bound and ties > 0:
            member = True
            ties -= 1
        # Of a draw that is among the closest, the side that points the vector's way is; of another, neither.
        side = np.int64(1) if scores[i] >= 0.0 else np.int64(-1)
        if place == 0 and (member or not near):
            start, sign = i * d, side if near else -side
        elif place == 1 and not (member or near):
            start, sign = i * d, side
        place -= np.int64(1) if member else np.int64(0 if near else 2)
    for j in range(d):
        out[j] = sign * noise[start + j]
    empty = True
    for j in range(d):
        empty = empty and out[j] == 0
    if empty:
        out[0] = sign
    # A freed array is not wiped: nothing of the record stays behind.
    for j in range(d):
        towards[j] = 0.0
    for i in range(n):
        scores[i] = sizes[i] = 0.0


@jit
def is_direction(kind: int) -> bool:
    """Whether a payload of that kind stands for its direction alone."""
    return kind in DIRECTIONS


@jit
def decode(kind: int, payload: Integers, unit: float, out: Vector) -> None:
    r"""Turn a payload into the unbiased estimate of the vector that it stands for.

    ``unit * payload`` for `GAUSSIAN` and `LAPLACE` (unit: the spacing); ``unit * payload / ||payload||`` for
    `L2BALL` and `PRIVUNIT` (unit: the radius B of the release), and zero for a payload of zeros.

    Examples
    --------
    >>> out = np.empty(2)
    >>> decode(L2BALL, np.array([3, -4]), 10.0, out)
    >>> out.tolist()
    [6.0, -8.0]
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
    code: int,
    vectors: Vector,
    radius: float,
    spacing: float,
    steps: int,
    threshold: np.uint64,
    noise: Integers,
    coins: Words,
    out: Integers,
) -> None:
    # Without noise they stand in memory that is wiped, and nowhere else.
    steps_of, fits = _quantised(vectors, spacing, steps) if code == GAUSSIAN else (None, None)
    row = empty(out.shape[1], np.int64)
    for i in range(vectors.shape[0]):
        if steps_of is not None and fits is not None and fits[i]:
            np.add(steps_of[i], noise[i], out=out[i])
            continue
        with np.errstate(all="ignore"):
            randomize(code, vectors[i], radius, spacing, steps, threshold, noise[i], coins[i], row)
        out[i] = row


def _quantised(vectors: Vector, spacing: float, steps: int) -> tuple[Integers, npt.NDArray[np.bool_]]:
    """What `quantise_l2` gives of vectors within the bound, and which of them are."""
    with np.errstate(invalid="ignore", over="ignore"):
        t = np.divide(vectors, spacing, out=empty(vectors.shape))
        near = np.less_equal(np.abs(t, out=empty(t.shape)), steps)
    fits = near.all(axis=1)
    t[~fits] = 0.0
    found = empty(t.shape, np.int64)
    np.copyto(found, t, casting="unsafe")
    squares = np.multiply(found, found, out=empty(t.shape, np.int64))
    fits &= keep(squares.sum(axis=1)) <= steps * steps
    return found, fits


@deferred_to(_randomize_early)
def randomize_block(
    code: int,
    vectors: Vector,
    radius: float,
    spacing: float,
    steps: int,
    threshold: np.uint64,
    noise: Integers,
    coins: Words,
    out: Integers,
) -> None:
    """`randomize` for every row."""
    vectors, noise, coins, out = borrowed(vectors), borrowed(noise), borrowed(coins), borrowed(out)
    for i in range(vectors.shape[0]):
        randomize(code, vectors[i], radius, spacing, steps, threshold, noise[i], coins[i], out[i])


@deferred
def decode_block(code: int, payload: Integers, unit: float, out: Vector) -> None:
    """`decode` for every row."""
    for i in range(payload.shape[0]):
        decode(code, payload[i], unit, out[i])
