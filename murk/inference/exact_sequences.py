r"""Exact confidence sequences for means of bounded releases, such as randomized responses, from the first one on.

Let S be the sum of n numbers in [0, 1] that each have the mean q given all earlier ones. With shapes r > 0 and the beta
function B,

.. math:: M_n(q) = \frac1K \sum_k \frac{B(q r_k + S,\ (1 - q) r_k + n - S)}{B(q r_k,\ (1 - q) r_k)\ q^S (1 - q)^{n - S}}

is a nonnegative supermartingale that begins at 1: a mean over p, by a beta distribution with mean q, of products of
``(p/q)^z ((1-p)/(1-q))^(1-z)``, whose mean is at most that of ``z p/q + (1-z)(1-p)/(1-q)``, which is 1 (for z of 0 or 1
it is a martingale). So q has ``M_n(q) < 1 / alpha`` at all n together with probability at least ``1 - alpha`` (Ville).
The log of each term is convex in q if S and n - S are 0 or at least 1, so that these q form an interval: with ``psi(y +
S) - psi(y)`` as a sum, its slope is ``sum_j j / ((1-q)((1-q) r + j)) - sum_i i / (q (q r + i))``. ``r_k = S_k N / c``,
with the scales S_k, N and c of `murk.inference.confidence_sequences`, which it equals for large n.

Randomized response that keeps one of two values with probability k has ``q = 1 - k + (2 k - 1) p`` for the share p of
ones, or, if a person draws the value to be kept with probability ``x in [0, 1]``, for the mean of x.

Sources: Howard, Ramdas, McAuliffe and Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences", Annals
of Statistics 49(2), 2021 (beta-binomial mixtures); Waudby-Smith, Wu and Ramdas, "Nonparametric extensions of randomized
response for private confidence sets", 2022 (means of bounded numbers by randomized response).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from murk._internal.arrays import Floats
from murk.errors import UserError
from murk.inference.confidence_sequences import SCALES, tuning
from murk.privacy import RandomizedResponse

_ERROR_CODE = "MURK-LEARN-001"

Inside = NDArray[np.bool_]

_ROUNDS: Final = 60
_GOLDEN: Final = (math.sqrt(5.0) - 1.0) / 2.0


def mean_evidence(
    total: ArrayLike, count: ArrayLike, mean: ArrayLike, tightest_at: float, alpha: float = 0.05
) -> Floats:
    """Return the log e-value ``log M_n`` of a mean of bounded releases, from their sum and number.

    It is tuned for ``tightest_at`` releases and error ``alpha``, and valid for any. Raises UserError unless
    ``tightest_at`` is positive and ``alpha`` between 0 and 1.

    >>> round(float(np.exp(mean_evidence(60, 100, 0.5, 100))), 2)
    1.34
    """
    from scipy.special import betaln, xlog1py, xlogy

    if not 0.0 < tightest_at < math.inf:
        raise UserError(f"tightest_at={tightest_at!r} is not a positive number of releases")
    _error_of(alpha)
    S, n, q = (np.asarray(each, dtype=np.float64)[..., None] for each in (total, count, mean))
    shapes = SCALES * tightest_at / tuning(alpha)
    # At the ends, where a term is 0/0, the limit from inside.
    inside = np.clip(q, 1e-15, 1.0 - 1e-15)
    ones, zeros = inside * shapes, (1.0 - inside) * shapes
    logs = betaln(ones + S, zeros + n - S) - betaln(ones, zeros) - xlogy(S, inside) - xlog1py(n - S, -inside)
    return np.asarray(np.logaddexp.reduce(logs, axis=-1) - math.log(len(SCALES)))


def mean_sequence(total: ArrayLike, count: ArrayLike, tightest_at: float, level: float = 0.95) -> tuple[Floats, Floats]:
    """Return the ends of the intervals of a mean of releases in [0, 1], from their sums and numbers after each look.

    All of them hold together with probability ``level`` at least, for every stream and from the first release on.
    Raises UserError unless ``0 <= total <= count``.

    >>> low, high = mean_sequence([6, 60, 600], [10, 100, 1_000], tightest_at=1_000)
    >>> low.round(2).tolist(), high.round(2).tolist()
    ([0.1, 0.43, 0.55], [0.97, 0.75, 0.65])
    """
    S, n = _sums(total, count)
    alpha = _error_of(level)
    most = -math.log(alpha)
    middle = np.divide(S, n, out=np.full_like(S, 0.5), where=n > 0)
    unknown = _fractional(S, n) | (n == 0)

    def within(mean: Floats) -> Inside:
        return np.asarray((mean_evidence(S, n, mean, tightest_at, alpha) < most) | unknown)

    return _end(within, middle, 0.0), _end(within, middle, 1.0)


def difference_evidence(
    totals: tuple[ArrayLike, ArrayLike],
    counts: tuple[ArrayLike, ArrayLike],
    difference: ArrayLike,
    tightest_at: float,
    alpha: float = 0.05,
) -> Floats:
    """Return the log e-value of a difference of two means: the least ``log M(q + difference) + log M(q)`` over q.

    ``tightest_at`` counts the releases of both samples. The product of their independent supermartingales M is one too.
    Raises UserError if a sum, or the count minus a sum, is strictly between 0 and 1: the minimand is not convex then.

    >>> round(float(np.exp(difference_evidence((340, 260), (600, 600), 0.0, 1_000))), 1)
    366.6
    """
    if any(_fractional(*_sums(total, count)).any() for total, count in zip(totals, counts, strict=True)):
        raise UserError("a sum, or the count minus a sum, is strictly between 0 and 1: begin after more releases")
    away = np.asarray(difference, dtype=np.float64)

    def joint(q: Floats) -> Floats:
        first, other = (
            mean_evidence(total, count, mean, tightest_at / 2.0, alpha)
            for total, count, mean in zip(totals, counts, (q + away, q), strict=True)
        )
        return np.asarray(first + other)

    shape = np.broadcast_shapes(*(np.shape(each) for each in (*totals, *counts, away)))
    low, high = np.broadcast_to(np.maximum(-away, 0.0), shape), np.broadcast_to(np.minimum(1.0 - away, 1.0), shape)
    # Golden sections: the sum is convex.
    for _ in range(_ROUNDS):
        first, second = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        left = joint(first) < joint(second)
        low, high = np.where(left, low, first), np.where(left, second, high)
    return joint((low + high) / 2.0)


def difference_sequence(
    totals: tuple[ArrayLike, ArrayLike], counts: tuple[ArrayLike, ArrayLike], tightest_at: float, level: float = 0.95
) -> tuple[Floats, Floats]:
    """Return the ends of the intervals of the first mean minus the second, from sums and numbers after each look.

    They hold at all looks together with probability ``level`` at least. Raises UserError like `mean_sequence` and
    `difference_evidence`.

    >>> low, high = difference_sequence((340, 260), (600, 600), tightest_at=1_000)
    >>> round(float(low), 3), round(float(high), 3)
    (0.024, 0.241)
    """
    pairs = [_sums(total, count) for total, count in zip(totals, counts, strict=True)]
    (first, many), (other, others) = np.broadcast_arrays(*pairs[0]), np.broadcast_arrays(*pairs[1])
    middle = first / np.maximum(many, 1) - other / np.maximum(others, 1)
    alpha = _error_of(level)
    most = -math.log(alpha)

    def within(away: Floats) -> Inside:
        return np.asarray(difference_evidence((first, other), (many, others), away, tightest_at, alpha) < most)

    return _end(within, middle, -1.0), _end(within, middle, 1.0)


def true_means(response: RandomizedResponse, released: ArrayLike, *, difference: bool = False) -> Floats:
    """Return the means of true values for means of their randomized responses, or differences for differences.

    Raises UserError unless there are two values.

    >>> from murk.privacy import PureDP, RandomizedResponse
    >>> response = RandomizedResponse.calibrate(PureDP(1.0), classes=2)
    >>> true_means(response, mean_sequence(4_000, 10_000, tightest_at=10_000)).round(2).tolist()
    [0.25, 0.32]
    """
    if response.classes != 2:
        raise UserError(f"randomized response has {response.classes} values: give one of two, for a yes or no")
    shift = 0.0 if difference else 1.0 - response.keep
    ends = (np.asarray(released, dtype=np.float64) - shift) / (2.0 * response.keep - 1.0)
    return np.asarray(np.clip(ends, -1.0 if difference else 0.0, 1.0))


def _error_of(level: float) -> float:
    if not 0.0 < level < 1.0:
        raise UserError(f"the level {level!r} is not between 0 and 1")
    return 1.0 - level


def _sums(total: ArrayLike, count: ArrayLike) -> tuple[Floats, Floats]:
    S, n = np.broadcast_arrays(np.asarray(total, dtype=np.float64), np.asarray(count, dtype=np.float64))
    if not ((S >= 0.0) & (n >= S)).all():
        raise UserError("a sum of numbers in [0, 1] must lie between 0 and their count: give the sum, then the count")
    return S, n


def _fractional(S: Floats, n: Floats) -> Inside:
    """Return whether evidence may not be convex, because S or n - S is strictly between 0 and 1."""
    return ((S > 0.0) & (S < 1.0)) | ((n - S > 0.0) & (n - S < 1.0))


def _end(within: Callable[[Floats], Inside], middle: Floats, end: float) -> Floats:
    """Return the boundary of a region between ``middle``, inside it, and ``end``, by bisection from outside."""
    inner, outer = middle, np.full_like(middle, end)
    for _ in range(_ROUNDS):
        between = (inner + outer) / 2.0
        inside = within(between)
        inner, outer = np.where(inside, between, inner), np.where(inside, outer, between)
    return np.where(within(np.full_like(middle, end)), end, outer)
