r"""Confidence sequences: intervals that hold at every look at a growing stream, for estimates that are nearly normal.

An estimate with standard error ``s_n`` of the information ``v`` times that at a public size N (`tightest_at`) lies
within

.. math:: \pm z(v)\, s_n, \qquad \frac1K \sum_k \frac{1}{\sqrt{1 + r_k}}
    \exp\Bigl(\frac{z^2}{2} \frac{r_k}{1 + r_k}\Bigr) = \frac1\alpha, \qquad r_k = \frac{c\,v}{S_k},

of the truth at all n together with probability at least ``1 - alpha``. The left side, at ``z = |estimate - truth| /
s_n``, is a mean of normal mixtures of likelihood ratios: a nonnegative martingale that begins at 1 and exceeds ``1 /
alpha`` with probability at most alpha, ever (Ville). A mixture is tightest at ``v = S_k``, with ``c = -2 log alpha +
log(1 - 2 log alpha)``; five of them, over three orders of magnitude, keep the width within 1.78 times that of the fixed
interval from N / 30 to 30 N (1.67 times at N).

N must not depend on the stream. The claim is asymptotic: it needs the estimate times v to be nearly a random walk with
normal steps in v. v is the number of releases over N, whatever their levels of noise: the boundary is so flat that a
change of the information per release hardly matters (docs/intervals.md).

Sources: Robbins, "Statistical methods related to the law of the iterated logarithm", 1970 (normal mixture);
Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, "Time-uniform central limit theory and asymptotic confidence
sequences", Annals of Statistics 52(6), 2024, Theorem 2.2 and appendix B.2 (choice of c).
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
# A normal random walk passes 7 standard errors anywhere within twelve orders of magnitude with probability below 1e-8,
# so that no look needs more.
LARGEST: Final = 7.0
_SCALES: Final = 10.0 ** np.array([-1.5, -0.75, 0.0, 0.75, 1.5])
_ROUNDS: Final = 60


def evidence(z: float | Array, information: float | Array, alpha: float = 0.05) -> Array:
    """Return the log e-value of an estimate ``z`` standard errors from a hypothesis, at ``information`` v.

    ``alpha`` is the error that the mixtures are tuned for; the e-value is valid whatever it is. At any time that was
    chosen by looking at the stream, ``min(1, 1 / E)`` is a p-value, and E's mean is at most 1 under the hypothesis.

    Examples
    --------
    >>> np.exp(evidence(np.array([0.0, 1.96, 4.0]), 1.0)).round(2).tolist()
    [0.42, 1.31, 206.73]
    """
    ratio = _tuning(alpha) * np.asarray(information, dtype=np.float64)[..., None] / _SCALES
    square = np.square(np.asarray(z, dtype=np.float64))[..., None]
    logs = 0.5 * (square * ratio / (1.0 + ratio) - np.log1p(ratio))
    return np.asarray(np.logaddexp.reduce(logs, axis=-1) - math.log(len(_SCALES)))


def critical_values(information: Array, level: float = 0.95) -> Array:
    """Return the numbers z of standard errors to both sides at which intervals hold at every look, at most `LARGEST`.

    Examples
    --------
    >>> (critical_values(np.array([0.01, 1 / 30, 0.1, 1.0, 10.0, 30.0, 100.0])) / 1.96).round(2).tolist()
    [1.93, 1.77, 1.71, 1.67, 1.67, 1.69, 1.74]
    """
    alpha = 1.0 - level
    information = np.asarray(information, dtype=np.float64)
    low, high = np.zeros_like(information), np.full_like(information, LARGEST)
    for _ in range(_ROUNDS):
        middle = (low + high) / 2.0
        inside = evidence(middle, information, alpha) < -math.log(alpha)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return high


def _tuning(alpha: float) -> float:
    return -2.0 * math.log(alpha) + math.log1p(-2.0 * math.log(alpha))


@lru_cache(maxsize=256)
def nominal_level(information: float, level: float) -> float:
    """Return the level of the fixed interval that is as wide as the sequence of this level at ``information``.

    So every interval of an `Estimate` becomes a sequence, whatever it allows for beside noise.

    Examples
    --------
    >>> round(nominal_level(1.0, 0.95), 5)
    0.99897
    """
    return 2.0 * NormalDist().cdf(float(critical_values(np.array(information), level))) - 1.0
