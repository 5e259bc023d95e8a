"""Bounds of binomial probabilities that hold for every number of trials, for arrays at once.

Float64 throughout, each bound moved outwards by a margin well above the rounding error of its operations. The only
assumption is that numpy's exp, log and their kin are right to 4 units in the last place.
"""

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# Up to this number of trials, floats represent a deviation of 40 standard deviations to 1e-8 of a standard deviation.
MAX_TRIALS = 10**12

# Sixteen units of rounding, for sums of a few terms that are rounded relative to their own size.
_ROUNDING = 2.0**-49
# Logarithms of factorials are right to 3e-14.
_LOG_MARGIN = 1e-12
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
    r"""Return an upper bound, tight to 1e-11 and 1e-14 a unit of deviation, of the probability of ``count`` successes.

    .. math:: \log P(K = k) = s(n) - s(k) - s(n - k) - d(k, n p) - d(n - k, n (1 - p)),\quad
        s(n) = \log n! - n \log n + n,\quad d(x, m) = x \log(x / m) + m - x

    ``odds`` are the probabilities of success and of failure, each right to 2 units of rounding. 0 where there are fewer
    than 0 or more than ``trials`` successes.

    Reference: Loader, "Fast and accurate computation of binomial probabilities", 2000.

    Examples
    --------
    >>> probability_above(np.array([2.0]), np.array([4.0]), (0.5, 0.5)).round(6)
    array([0.375])
    """
    inside = (count >= 0) & (count <= trials)
    k = np.where(inside, count, 0.0)
    near, rounded = _deviance(k, trials * odds[0])
    far, also_rounded = _deviance(trials - k, trials * odds[1])
    stirling = _log_factorial_excess(trials) - _log_factorial_excess(k) - _log_factorial_excess(trials - k)
    logarithm = stirling - near - far + _LOG_MARGIN + _ROUNDING * (rounded + also_rounded)
    return np.where(inside, np.exp(logarithm), 0.0)


def _geometric(log_ratio: Floats, terms: Floats) -> Floats:
    """Return r + r^2 + ... + r^terms, from above; r is the exponential of ``log_ratio``."""
    step = np.where(np.abs(log_ratio) < 1e-300, 1e-300, log_ratio)
    return np.where(terms > 0, np.exp(step) * np.expm1(terms * step) / np.expm1(step), 0.0) * (1 + 1e-12)


def mass_above(first: Floats, middle: Floats, last: Floats, trials: float, odds: tuple[float, float]) -> Floats:
    r"""Return an upper bound on the probability of ``first`` to ``last`` successes, with ``middle`` among them.

    Binomial probabilities are log-concave, so on either side of k they lie below a geometric series with the ratio of
    the next one to that at k:

    .. math:: P(K = k + j) \le P(K = k) \left(\frac{(n - k)\, p}{(k + 1)(1 - p)}\right)^{j}, \qquad
        P(K = k - j) \le P(K = k) \left(\frac{k\, (1 - p)}{(n - k + 1)\, p}\right)^{j}

    Examples
    --------
    >>> whole = mass_above(np.array([0.0]), np.array([2.0]), np.array([4.0]), 4.0, (0.5, 0.5))
    >>> bool(whole[0] >= 1)
    True
    """
    up, down = last - middle, middle - first
    # Where a series has no terms its ratio may be 0; use 1.
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
    \frac{3i}{2}\right)`. It ends at i = b; ``depth``, an even number, is how many terms are used.

    Reference: Didonato, Morris, "Algorithm 708: significant digit computation of the incomplete beta function ratios",
    ACM Transactions on Mathematical Software 18 (1992), at x = 1/2.

    Examples
    --------
    >>> fair_tail_ratio_below(np.array([3.0]), np.array([4.0]), 8).round(6)  # (4 + 1) / 6
    array([0.833333])
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
