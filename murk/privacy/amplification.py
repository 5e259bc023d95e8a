r"""Privacy amplification by shuffling: how much everybody but the shuffler learns about one person's record.

Each person of a crowd of n answers once, with the same randomizer of pure local epsilon0 and independently of every
other release of the crowd. A shuffler permutes the releases uniformly. Neighbours replace one person's
record. The crowd is (epsilon, delta)-DP at

.. math:: \delta(\epsilon) = E\, \delta_C, \qquad C \sim \mathrm{Bin}(n - 1, q), \qquad
    \delta_c = \max_k\, (a - b\, e^\epsilon)\, P(A = k - 1) - (e^\epsilon - 1)\, P(A \ge k), \qquad
    A \sim \mathrm{Bin}(c, 1/2)

with a = e^epsilon0 / (e^epsilon0 + 1), b = 1 - a, and q = 2 / (e^epsilon0 + 1): the probability that another person's
release is a clone, as likely from either of the two records. This is the privacy blanket of Balle, Bell, Gascon,
Nissim, "The privacy blanket of the shuffle model", CRYPTO 2019 (arXiv 1903.02837), at its worst randomizer
(docs/mathematics.md has the proof). Su, Cheng, Wang, "Decomposition-based optimal bounds for privacy amplification via
shuffling", 2025 (arXiv 2504.07414) show that no decomposition of the randomizer gives a smaller bound.

``people`` is the number of honest people (not of releases), the protected person included: a release whose randomness
an attacker knows hides nobody. Every figure is rounded against the claim: delta and epsilon up, local budgets down.
"""

import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from murk._internal.arrays import Floats
from murk.errors import UserError
from murk.privacy.conversions import pure_delta, pure_epsilon
from murk.privacy.guarantees import ApproxDP, Guarantee, PureDP, check_kind
from murk.privacy.rounding import decimal, float_up, precise, rational, require

_ERROR_CODE = "MURK-PRIVACY-001"

# Up to this number of trials, floats represent a deviation of 40 standard deviations to 1e-8 of a standard deviation.
MAX_TRIALS = 10**12

_ROUNDING = 2.0**-49  # sixteen units of rounding: relative error of sums of a few terms
_LOG_MARGIN = 1e-12  # logarithms of factorials are right to 3e-14
# Relative error of a continued fraction of positive terms, 12 operations each.
_FRACTION_MARGIN = 1e-12
_SMALL = np.array([math.log(math.factorial(n)) - (n * math.log(n) - n if n else 0.0) for n in range(16)])


def _log_factorial_excess(n: Floats) -> Floats:
    """Return log(n!) - n log n + n, by Stirling's series, which lies within 1 / (1188 n^9) of it."""
    large = np.maximum(n, 16.0)
    square = large * large
    series = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / 1680 / square) / square) / square) / large
    return np.where(n < 16, _SMALL[np.minimum(n, 15.0).astype(np.intp)], np.log(2 * np.pi * large) / 2 + series)


def _deviance(count: Floats, mean: Floats) -> tuple[Floats, Floats]:
    """Return x log(x / m) + m - x for a count x and its mean m, and the size of the rounded terms."""
    away = count - mean
    share = np.divide(away, mean, out=np.zeros_like(away), where=mean > 0)
    ratio = np.divide(count, mean, out=np.zeros_like(away), where=mean > 0)
    # log1p(-1) would occur only with the factor 0.
    value = mean * (ratio * np.log1p(np.maximum(share, -1 + 2.0**-53)) - share)
    return value, np.abs(away) + np.abs(value)


def probability_above(count: Floats, trials: Floats, odds: tuple[float, float]) -> Floats:
    r"""Return an upper bound on the probability of ``count`` successes, tight to 1e-11 + 1e-14 d (d: see below).

    .. math:: \log P(K = k) = s(n) - s(k) - s(n - k) - d(k, n p) - d(n - k, n (1 - p)),\quad
        s(n) = \log n! - n \log n + n,\quad d(x, m) = x \log(x / m) + m - x

    ``odds`` are the probabilities of success and of failure, each right to 2 units of rounding. The bound is 0 for a
    count below 0 or above ``trials``.

    Reference: Loader, "Fast and accurate computation of binomial probabilities", 2000.
    """
    inside = (count >= 0) & (count <= trials)
    k = np.where(inside, count, 0.0)
    near, rounded = _deviance(k, trials * odds[0])
    far, also_rounded = _deviance(trials - k, trials * odds[1])
    stirling = _log_factorial_excess(trials) - _log_factorial_excess(k) - _log_factorial_excess(trials - k)
    logarithm = stirling - near - far + _LOG_MARGIN + _ROUNDING * (rounded + also_rounded)
    return np.where(inside, np.exp(logarithm), 0.0)


def _geometric(log_ratio: Floats, terms: Floats) -> Floats:
    """Return an upper bound on r + r^2 + ... + r^terms, where r is the exponential of ``log_ratio``."""
    step = np.where(np.abs(log_ratio) < 1e-300, 1e-300, log_ratio)
    return np.where(terms > 0, np.exp(step) * np.expm1(terms * step) / np.expm1(step), 0.0) * (1 + 1e-12)


def mass_above(first: Floats, middle: Floats, last: Floats, trials: float, odds: tuple[float, float]) -> Floats:
    r"""Return an upper bound on the probability of ``first`` to ``last`` successes, with ``middle`` among them.

    Binomial probabilities are log-concave, so on either side of k they lie below a geometric series with the ratio of
    the next one to that at k:

    .. math:: P(K = k + j) \le P(K = k) \left(\frac{(n - k)\, p}{(k + 1)(1 - p)}\right)^{j}, \qquad
        P(K = k - j) \le P(K = k) \left(\frac{k\, (1 - p)}{(n - k + 1)\, p}\right)^{j}
    """
    up, down = last - middle, middle - first
    # The ratio of a series without terms may be 0; use 1 instead.
    above = np.where(up > 0, (trials - middle) * odds[0], 1.0) / np.where(up > 0, (middle + 1) * odds[1], 1.0)
    below = np.where(down > 0, middle * odds[1], 1.0) / np.where(down > 0, (trials - middle + 1) * odds[0], 1.0)
    series = _geometric(np.log(above) + _ROUNDING, up) + _geometric(np.log(below) + _ROUNDING, down)
    return probability_above(middle, np.full_like(middle, trials), odds) * (1 + series) * (1 + 1e-12)


def fair_tail_ratio_below(least: Floats, trials: Floats, depth: int) -> Floats:
    r"""Return a lower bound on P(A >= k) / P(A = k - 1) for fair coins, with k from 1 and at least n / 2.

    An even convergent of a continued fraction of positive terms lies below it:

    .. math:: \frac{P(A \ge k)}{P(A = k - 1)} = \frac{b}{2} \cdot
        \cfrac{1}{\beta_0 + \cfrac{\alpha_1}{\beta_1 + \cfrac{\alpha_2}{\beta_2 + \cdots}}}, \qquad b = n - k + 1

    with :math:`\alpha_i = \frac{(k + i - 1)(n + i)\, i\, (b - i)}{4 (k + 2i - 1)^2}` and
    :math:`\beta_i = i + \frac{i (b - i)}{2 (k + 2i - 1)} + \frac{k + i}{k + 2i + 1}\left(k - \frac{n + 1}{2} + 1 +
    \frac{3i}{2}\right)`. The fraction ends at i = b; ``depth``, an even number, is the number of terms that are used.

    Reference: Didonato, Morris, "Algorithm 708: significant digit computation of the incomplete beta function ratios",
    ACM Transactions on Mathematical Software 18 (1992), at x = 1/2.
    """
    k, n = least, trials
    b = n - k + 1
    excess = k - (n + 1) / 2 + 1

    def denominator(i: int) -> Floats:
        step: Floats = i + i * np.maximum(b - i, 0.0) / (2 * (k + 2 * i - 1)) if i else np.zeros_like(k)
        return step + (k + i) / (k + 2 * i + 1) * (excess + 1.5 * i)

    value = denominator(depth - 1)
    for i in range(depth - 1, 0, -1):
        width = 2 * (k + 2 * i - 1)
        # Ratios first: the product of four counts would be beyond exact integers.
        numerator = ((k + i - 1) / width) * ((n + i) / width) * i * np.maximum(b - i, 0.0)
        value = denominator(i - 1) + numerator / value
    return b / (2 * value) * (1 - _FRACTION_MARGIN)


# From this local epsilon on, clones are so rare, even in the largest crowd, that shuffling gains nothing.
_NO_CLONES = 60.0
_NO_LOSS = 1e-100  # below this local epsilon, floats underflow
_LARGEST = 1e6  # the largest epsilon of a guarantee
# A crowd is useful if it reduces epsilon by this share; otherwise the local guarantee, without a delta, is better.
_USEFUL = 0.01
# How many groups the numbers of clones within 9 standard deviations, and those below, form: the error is at most 0.5%.
_FINE, _COARSE = 1536, 256
_PRECISION = 1e-9  # relative precision of inversions
_MARGIN = 2e-12  # relative rounding of the inner value's terms, and of the sum over groups
_LEAST_DELTA = 1e-300  # below this, floats underflow; no delta is claimed to be smaller
_MAX_CROWDS = 10_000  # optimal composition takes time in proportion to the number of crowds


def shuffled_delta(local: Any, people: int, epsilon: float) -> float:
    """Return a delta for which a shuffled crowd is (epsilon, delta)-DP.

    It is never below the exact sum, at most 1% above it down to 1e-40, and never above the delta without a shuffler.
    Raises `UserError` if ``local`` has no pure epsilon, or a number is out of range.

    Parameters
    ----------
    local
        The randomizer: its pure epsilon, a `PureDP`, or a mechanism that claims one.
    people
        Honest people in the crowd, the person included: from 1 to 10^12.
    epsilon
        At least 0.

    References
    ----------
    Balle, Bell, Gascon, Nissim 2019.

    Examples
    --------
    >>> from murk.privacy import shuffled_delta
    >>> f"{shuffled_delta(4.0, 10_000, 0.6):.2e}"
    '1.32e-10'
    """
    require("epsilon", epsilon)
    return _delta(_pure_epsilon(local), _count(people), float(epsilon))


def shuffled_epsilon(local: Any, people: int, delta: float) -> float:
    """Return the smallest epsilon, to nine digits, at which `shuffled_delta` of a crowd is at most ``delta``.

    Without a delta shuffling gains nothing: for ``delta`` 0 this is the local epsilon.
    Raises `UserError` if ``local`` has no pure epsilon, or a number is out of range.

    Parameters
    ----------
    local
        The randomizer: its pure epsilon, a `PureDP`, or a mechanism that claims one.
    people
        Honest people in the crowd, the person included: from 1 to 10^12.
    delta
        From 0 to 1, excluded.

    Examples
    --------
    >>> from murk.privacy import shuffled_epsilon
    >>> round(shuffled_epsilon(4.0, 100_000, 1e-6), 3)
    0.118
    """
    require("delta", delta, below=1.0)
    local_epsilon, count = _pure_epsilon(local), _count(people)
    without_shuffler = pure_epsilon(local_epsilon, delta)
    if delta == 0 or without_shuffler == 0:
        return without_shuffler

    def fails(epsilon: float) -> bool:
        return _delta(local_epsilon, count, epsilon) > delta

    return _edge(fails, 0.0, without_shuffler)[1] if fails(0.0) else 0.0


def shuffled_guarantee(
    local: Any, people: int, *, delta: float | None = None, epsilon: float | None = None
) -> ApproxDP:
    """Return the guarantee of each person of a shuffled crowd, towards everybody but the shuffler.

    It is never worse than the local guarantee. If the crowd reduces epsilon by less than a hundredth at the given
    delta, the local guarantee is returned, with delta 0. Raises `UserError` if ``local`` has no pure epsilon, a number
    is out of range, or not exactly one of delta and epsilon is given.

    Parameters
    ----------
    local
        The randomizer: its pure epsilon, a `PureDP`, or a mechanism that claims one.
    people
        Honest people in the crowd, the person included: from 1 to 10^12.
    delta, epsilon
        Exactly one of the two; the other is computed from it.

    Examples
    --------
    >>> from murk.privacy import PureDP, shuffled_guarantee
    >>> shuffled_guarantee(PureDP(6.0), 1_000, delta=1e-6)
    ApproxDP(epsilon=6.0, delta=0.0)
    >>> shuffled_guarantee(PureDP(4.0), 20_000, delta=1e-6).epsilon < 0.29
    True
    """
    check_kind("approx", delta, epsilon)
    local_epsilon = _pure_epsilon(local)
    if epsilon is None:
        assert delta is not None
        reached = shuffled_epsilon(local_epsilon, people, delta)
        useful = reached < (1 - _USEFUL) * local_epsilon
        return ApproxDP(reached, delta) if useful else ApproxDP(local_epsilon, 0.0)
    reached = shuffled_delta(local_epsilon, people, epsilon)
    return _approx(epsilon, reached) if epsilon < local_epsilon else ApproxDP(local_epsilon, 0.0)


def largest_local_epsilon(people: int, epsilon: float, delta: float) -> float:
    """Return the largest local epsilon, to nine digits, at which `shuffled_delta` of a crowd is at most ``delta``.

    At least ``epsilon``, for which no shuffler is needed. Raises `UserError` if a number is out of range.

    Parameters
    ----------
    people
        Honest people in the crowd, the person included: from 1 to 10^12.
    epsilon, delta
        Guarantee towards everybody but the shuffler: epsilon at least 0; delta from 0 to 1, excluded.

    Examples
    --------
    >>> from murk.privacy import largest_local_epsilon
    >>> round(largest_local_epsilon(20_000, 0.5, 1e-6), 2)
    5.01
    """
    count = _count(people)
    require("epsilon", epsilon, below=_LARGEST)
    require("delta", delta, below=1.0)
    if delta == 0:
        return float(epsilon)

    def holds(local_epsilon: float) -> bool:
        return _delta(local_epsilon, count, float(epsilon)) <= delta

    high = max(2.0 * epsilon, 1.0)
    while holds(high):
        high *= 2
    return min(_edge(holds, float(epsilon), high)[0], _LARGEST)


def smallest_crowd(local: Any, epsilon: float, delta: float) -> int:
    """Return the smallest number of honest people whose shuffled crowd is (epsilon, delta)-DP.

    Exact within 1% if delta is at least 1e-40; 1 if the local guarantee is enough. Every larger crowd has the
    guarantee, too. Raises `UserError` if ``local`` has no pure epsilon, a number is out of range, or 10^12 people are
    too few.

    Parameters
    ----------
    local
        The randomizer: its pure epsilon, a `PureDP`, or a mechanism that claims one.
    epsilon, delta
        Guarantee towards everybody but the shuffler: epsilon at least 0; delta from 0 to 1, excluded.

    Examples
    --------
    >>> from murk.privacy import smallest_crowd
    >>> smallest_crowd(1.0, 1.0, 1e-6)
    1
    >>> 7_000 < smallest_crowd(4.0, 0.5, 1e-6) < 7_100
    True
    """
    local_epsilon = _pure_epsilon(local)
    require("epsilon", epsilon)
    require("delta", delta, below=1.0)

    def holds(people: int) -> bool:
        return _delta(local_epsilon, people, float(epsilon)) <= delta

    high = 1
    while not holds(high):
        if high == MAX_TRIALS:
            raise UserError(
                f"no crowd of up to {MAX_TRIALS:.0e} people brings local epsilon={local_epsilon:g} to "
                f"epsilon={epsilon:g}, delta={delta:g}; give a larger epsilon or delta, or use a smaller local epsilon"
            )
        high = min(4 * high, MAX_TRIALS)
    low = high // 4
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def across_crowds(crowds: Iterable[Guarantee], *, delta: float | None = None) -> ApproxDP:
    r"""Return the joint guarantee of one person's releases in several crowds.

    .. math:: \epsilon = \sum_i \epsilon_i, \qquad \delta = \sum_i \delta_i

    If ``delta`` exceeds that sum, the optimal composition of k equal guarantees may give a smaller epsilon (unequal
    guarantees count as the largest epsilon and delta among them):

    .. math:: 1 - (1 - \delta_1)^k \Bigl(1 - \sum_l \binom{k}{l} a^{k - l} b^l\,
        \bigl(1 - e^{\epsilon - (k - 2l) \epsilon_1}\bigr)_+\Bigr) \le \delta, \qquad
        a = \frac{e^{\epsilon_1}}{1 + e^{\epsilon_1}}, \quad b = 1 - a

    A crowd may be formed in view of earlier crowds' releases if its guarantee is fixed in advance. Crowds
    without this person cost nothing. Raises `UserError` if ``crowds`` is empty, a guarantee is neither `PureDP` nor
    `ApproxDP`, or the deltas add up to more than ``delta``.

    Reference: Kairouz, Oh, Viswanath, "The composition theorem for differential privacy", 2015, theorem 3.3.

    Parameters
    ----------
    crowds, delta
        The guarantee of each crowd, as `shuffled_guarantee` returns it; delta of the answer, by default their sum.

    Examples
    --------
    >>> from murk.privacy import ApproxDP, across_crowds
    >>> across_crowds([ApproxDP(0.25, 1e-7), ApproxDP(0.5, 2e-7)])
    ApproxDP(epsilon=0.75, delta=3e-07)
    >>> round(across_crowds([ApproxDP(0.1, 1e-9)] * 100, delta=1e-6).epsilon, 2)
    4.79
    """
    pairs = [_pair(crowd) for crowd in crowds]
    if not pairs:
        raise UserError("crowds: at least one guarantee is required; there are none")
    epsilon = sum((pair[0] for pair in pairs), Fraction(0))
    delta_sum = sum((pair[1] for pair in pairs), Fraction(0))
    if delta_sum >= 1:
        raise UserError("these crowds have no joint guarantee: their deltas add up to 1 or more; use smaller deltas")
    if delta is None:
        return ApproxDP(float_up(epsilon), float_up(delta_sum))
    require("delta", delta, below=1.0)
    if rational(delta) < delta_sum:
        raise UserError(
            f"delta={delta:g} is below the sum of the crowds' own deltas; give {float_up(delta_sum):g} or more"
        )
    best = float_up(epsilon)
    if len(pairs) <= _MAX_CROWDS:
        largest = max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)
        best = min(best, _repeated(*largest, len(pairs), rational(delta)))
    return ApproxDP(best, delta)


def _pure_epsilon(local: Any) -> float:
    if local is None or isinstance(local, bool | str):
        raise UserError(f"local={local!r} is not a pure epsilon, a PureDP or a mechanism; give one such as PureDP(4.0)")
    if isinstance(local, int | float | np.number):
        return PureDP(float(local)).epsilon
    claims = (local,) if isinstance(local, Guarantee) else getattr(local, "guarantees", ())
    claims = claims if isinstance(claims, tuple) else ()
    for claim in claims:
        if isinstance(claim, PureDP) or (isinstance(claim, ApproxDP) and claim.delta == 0):
            return claim.epsilon
    if claims:
        raise UserError(
            f"{local!r} has no pure epsilon, which shuffling needs: a rare outcome of Gaussian noise, or one of "
            "probability delta, may identify a person in any crowd; use a pure mechanism (`privunit`, `l2-ball`, "
            "`laplace`, randomized response) or give its PureDP"
        )
    raise UserError(
        f"cannot shuffle {type(local).__name__}: it is neither a guarantee nor a mechanism with `guarantees`; "
        "give the randomizer's PureDP"
    )


def _count(people: int) -> int:
    if isinstance(people, bool) or not isinstance(people, int | np.integer):
        raise UserError(f"people={people!r} is not a whole number; give the number of honest people in the crowd")
    if not 1 <= people <= MAX_TRIALS:
        raise UserError(f"people={people} is out of range: a crowd has from 1 to {MAX_TRIALS:.0e} honest people")
    return int(people)


def _approx(epsilon: float, delta: float) -> ApproxDP:
    if delta >= 1:
        raise UserError(f"at epsilon={epsilon:g} this crowd has no guarantee (delta is 1); give a larger epsilon")
    return ApproxDP(epsilon, delta)


def _edge(holds: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Bisect from ``low``, where ``holds`` is true, and ``high``, where it is not, until they agree to nine digits."""
    for _ in range(200):
        if high - low <= _PRECISION * high:
            break
        middle = low + (high - low) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low, high


def _clone_odds(local_epsilon: float) -> tuple[float, float]:
    """Return a lower bound on the probability that another person's release is a clone, and its complement."""
    clone, other = 2 / (math.exp(local_epsilon) + 1), math.tanh(local_epsilon / 2)
    # The smaller probability is rounded by at most 1e-14 of itself. Fewer clones give a larger delta.
    if clone <= 0.5:
        clone *= 1 - 3e-14
        return clone, 1 - clone
    other *= 1 + 3e-14
    return 1 - other, other


@lru_cache(maxsize=16)
def _groups(local_epsilon: float, people: int) -> tuple[Floats, Floats]:
    """Divide the numbers of clones into groups; return each group's smallest number, and a bound on its probability.

    Each number within 9 standard deviations is a group of its own, if there are not too many.
    """
    others = people - 1
    odds = _clone_odds(local_epsilon)
    mean, deviation = others * odds[0], math.sqrt(others * odds[0] * odds[1])
    # Tiny deltas come from the rare crowds with few clones.
    lowest = max(0, math.floor(mean - 40 * deviation - 200))
    low = max(lowest, math.floor(mean - 9 * deviation))
    high = min(others, math.ceil(mean + 9 * deviation + 30))
    coarse = np.arange(lowest, low, max(1, math.ceil((low - lowest) / _COARSE)))
    fine = np.arange(low, high, max(1, math.ceil((high - low) / _FINE)))
    first = np.unique(np.concatenate(([0], coarse, fine, [high])))
    last = np.append(first[1:] - 1, others)
    middle = (first + last) // 2
    # The outermost groups are long: their probability is nearly all at the inner end.
    middle[0], middle[-1] = last[0], first[-1]
    begins, inner, ends = (numbers.astype(np.float64) for numbers in (first, middle, last))
    mass = mass_above(begins, inner, ends, float(others), odds)
    begins.setflags(write=False)
    mass.setflags(write=False)
    return begins, mass


@lru_cache(maxsize=1024)
def _delta(local_epsilon: float, people: int, epsilon: float) -> float:
    without_shuffler = pure_delta(local_epsilon, epsilon)
    if without_shuffler == 0 or people == 1 or not _NO_LOSS < local_epsilon < _NO_CLONES:
        return without_shuffler
    clones, mass = _groups(local_epsilon, people)
    # A further clone never makes the two inputs easier to tell apart: delta does not increase in the number of clones,
    # so each group counts as its smallest number.
    inner = np.minimum(_delta_of_clones(local_epsilon, epsilon, clones), without_shuffler)
    total = float(np.dot(mass, inner)) * (1 + _MARGIN) + _LEAST_DELTA
    return min(total, without_shuffler)


def _delta_of_clones(local_epsilon: float, epsilon: float, clones: Floats) -> Floats:
    r"""Return an upper bound on the hockey-stick divergence at each number c of clones.

    The divergence is that of A + D from A + 1 - D, A ~ Bin(c, 1/2), D ~ Bern(a): the sum over k of (P - e^epsilon Q)+.
    Its terms are positive from k = floor((c + 1) t) + 1 on, t = (e^(epsilon0 + epsilon) - 1) / ((e^epsilon0 -
    1)(e^epsilon + 1)).
    """
    growth = math.expm1(epsilon)
    gap = -math.expm1(-float(rational(local_epsilon) - rational(epsilon))) / (1 + math.exp(-local_epsilon))
    turn = (1 + math.tanh(epsilon / 2) / math.tanh(local_epsilon / 2)) / 2
    start = np.floor((clones + 1) * turn) + 1
    # Any other start gives a smaller sum: the largest of three starts makes up for rounding of the start.
    least = np.clip(np.stack((start - 1, start, start + 1)), 1, clones + 1)
    coins = np.broadcast_to(clones, least.shape)
    before = probability_above(least - 1, coins, (0.5, 0.5))
    ratio = fair_tail_ratio_below(least, coins, _depth(coins, turn))
    by_ratio = before * (gap - growth * ratio + _MARGIN * (gap + growth * ratio))
    # Near the mean the continued fraction converges slowly: there, by symmetry, the upper tail is half of what lies
    # outside of the interval from k's mirror image to k.
    between = (2 * least - coins - 1) * probability_above(np.floor(coins / 2), coins, (0.5, 0.5))
    by_half = before * gap * (1 + _MARGIN) - growth * np.maximum(1 - between, 0.0) / 2 * (1 - _MARGIN)
    best: Floats = np.maximum(np.minimum(by_ratio, by_half).max(axis=0), 0.0)
    return best


def _depth(coins: Floats, turn: float) -> int:
    """Return an even number of terms of the continued fraction: more terms near the mean, where it converges slowly."""
    deviations = (2 * turn - 1) * math.sqrt(float(coins.mean()) + 1)
    return 2 * math.ceil(min(max(25 / max(deviations, 1e-9) ** 2 + 4, 8), 64))


def _pair(crowd: Any) -> tuple[Fraction, Fraction]:
    if isinstance(crowd, PureDP):
        return rational(crowd.epsilon), Fraction(0)
    if isinstance(crowd, ApproxDP):
        return rational(crowd.epsilon), rational(crowd.delta)
    raise UserError(
        f"{crowd!r} is not the guarantee of a shuffled crowd, which is an ApproxDP or a PureDP; compose others with an "
        "Accountant"
    )


def _repeated(epsilon: Fraction, own_delta: Fraction, count: int, delta: Fraction) -> float:
    """Return the smallest epsilon of ``count`` releases of (epsilon, own_delta) at ``delta``; infinite if none."""
    with precise():
        none = (1 - decimal(own_delta)) ** count
        # ``left`` is the delta that remains for the dominating randomized responses. Their delta at x is W - e^x V,
        # with W and V the probabilities of the outcomes with odds above e^x: for each number of outcomes, find the
        # least x that fits.
        room = (decimal(delta) - (1 - none)) / none - Decimal("1e-45")
        if room <= 0:
            return math.inf
        odds = (-decimal(epsilon)).exp()
        weight = (1 / (1 + odds)) ** count
        mirror = weight * odds**count
        likely, unlikely, worst = Decimal(0), Decimal(0), Decimal(0)
        for k in range(count // 2 + 1):
            likely, unlikely = likely + weight, unlikely + mirror
            if likely > room:
                worst = max(worst, ((likely - room) / unlikely).ln() + Decimal("1e-45"))
            weight, mirror = weight * odds * (count - k) / (k + 1), mirror / odds * (count - k) / (k + 1)
        return float_up(worst)
