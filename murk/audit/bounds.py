r"""Lower bounds on the privacy loss of a mechanism, from a test that distinguishes two inputs.

A test that says "first" for a share p of the first input's releases and for a share q of the second's shows that

.. math:: \epsilon \ge \log \frac{p - \delta}{q}, \qquad \mu \ge \Phi^{-1}(p) - \Phi^{-1}(q)

because (epsilon, delta)-DP implies p <= e^epsilon q + delta, and under mu-GDP no test is better than that of N(mu, 1)
against N(0, 1). Shares are replaced by exact confidence bounds.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from scipy.special import betaincinv, ndtri

from murk._internal.arrays import Floats, Integers
from murk.errors import UserError

_ERROR_CODE = "MURK-AUDIT-001"

_CUTS = 512


class TestedGuarantee(Protocol):
    """A privacy parameter that a test can bound from below."""

    @property
    def name(self) -> str:
        """Name of the parameter."""

    @property
    def claimed(self) -> float:
        """Claimed value."""

    def least(self, hits: Floats, alarms: Floats) -> Floats:
        """Return the parameter's lower bound, from lower bounds on a test's hits and upper ones on false alarms."""


@dataclass(frozen=True)
class Mu:
    """mu of Gaussian differential privacy.

    >>> Mu(1.0).least(np.array([0.5]), np.array([0.15865525393145707])).round(6).tolist()
    [1.0]
    """

    claimed: float
    name = "mu"

    def least(self, hits: Floats, alarms: Floats) -> Floats:
        """Return ``Phi^-1(hits) - Phi^-1(alarms)``."""
        return np.asarray(ndtri(hits) - ndtri(alarms))


@dataclass(frozen=True)
class EpsilonAt:
    """epsilon at a given delta; delta is 0 for a pure guarantee.

    >>> EpsilonAt(1.0).least(np.array([0.5]), np.array([0.25])).round(6).tolist()
    [0.693147]
    """

    claimed: float
    delta: float = 0.0

    @property
    def name(self) -> str:
        """``epsilon``, with its delta if that is not 0."""
        return f"epsilon at delta={self.delta:g}" if self.delta else "epsilon"

    def least(self, hits: Floats, alarms: Floats) -> Floats:
        """Return ``log((hits - delta) / alarms)``."""
        return np.asarray(np.log(np.maximum(hits - self.delta, 1e-300) / alarms))


def least_share(successes: Integers, trials: int, failure: float) -> Floats:
    """Return the exact (Clopper-Pearson) lower bound on a probability, wrong with probability ``failure``."""
    return np.where(successes > 0, betaincinv(np.maximum(successes, 1), trials - successes + 1, failure), 0.0)


def greatest_share(successes: Integers, trials: int, failure: float) -> Floats:
    """Return the exact upper confidence bound on a probability."""
    return 1.0 - least_share(trials - successes, trials, failure)


def lower_bound(first: Floats, second: Floats, tested_guarantee: TestedGuarantee, failure: float) -> float:
    """Return a lower bound on ``tested_guarantee``, at least 0; wrong with probability at most ``failure``.

    ``first`` and ``second`` are the values of a statistic for independent releases of the two inputs. Every statistic
    gives a valid bound, and the log-likelihood ratio the best. The test (cut and direction) is chosen on the first half
    of the releases and evaluated on the second, so choosing costs nothing. Each of the test's two shares has half of
    ``failure``. Raises `UserError` for fewer than two releases of an input.
    """
    if min(len(first), len(second)) < 2:
        raise UserError("an audit needs at least two releases of each input: half choose a test, half evaluate it")
    half_first, half_second = len(first) // 2, len(second) // 2
    chosen_on = first[:half_first], second[:half_second]
    pooled = np.concatenate(chosen_on)
    cuts = np.unique(np.quantile(pooled, np.linspace(0.0, 1.0, _CUTS), method="nearest"))
    _, cut, sign = max(
        (float(value), float(place), sign)
        for sign in (1.0, -1.0)
        for value, place in zip(_values(*chosen_on, cuts, sign, tested_guarantee, failure), cuts, strict=True)
    )
    [bound] = _values(first[half_first:], second[half_second:], np.array([cut]), sign, tested_guarantee, failure)
    return max(0.0, float(bound))


def _values(
    first: Floats, second: Floats, cuts: Floats, sign: float, tested_guarantee: TestedGuarantee, failure: float
) -> Floats:
    """Evaluate tests that detect the first input at or above each cut, or (sign -1) the second at or below it."""
    if sign < 0:
        first, second, cuts = -second, -first, -cuts
    hits, alarms = _above(first, cuts), _above(second, cuts)
    least = least_share(hits, len(first), failure / 2)
    most = greatest_share(alarms, len(second), failure / 2)
    with np.errstate(invalid="ignore"):
        values = tested_guarantee.least(least, most)
    return np.where(np.isfinite(values), values, -math.inf)


def _above(values: Floats, cuts: Floats) -> Integers:
    return (len(values) - np.searchsorted(np.sort(values), cuts, side="left")).astype(np.int64)
