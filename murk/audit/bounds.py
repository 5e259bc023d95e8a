r"""Lower bounds on the privacy loss of a mechanism, from a test that distinguishes two inputs.

A test that says "first" for a share p of the first input's releases and for a share q of the second's shows that

.. math:: \epsilon \ge \log \frac{p - \delta}{q}, \qquad \mu \ge \Phi^{-1}(p) - \Phi^{-1}(q)

because (epsilon, delta)-DP implies p <= e^epsilon q + delta, and under mu-GDP no test is better than that of N(mu, 1)
against N(0, 1). Shares are replaced by exact confidence bounds.
"""

import math
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from scipy.special import bdtrik, betaincinv, ndtr, ndtri

from murk._internal.arrays import Floats, Integers
from murk.errors import UserError

_ERROR_CODE = "MURK-AUDIT-001"

_CUTS = 512
_FURTHEST = 20.0  # largest loss that is considered, beyond the claim, in mu or epsilon


class TestedGuarantee(Protocol):
    """A privacy parameter that a test can bound from below."""

    @property
    def name(self) -> str:
        """Name of the parameter."""

    @property
    def claimed(self) -> float:
        """Claimed value."""

    def least(self, hits: Floats, alarms: Floats) -> Floats:
        """Return the parameter's lower bound, from a test's least hit rates and greatest false-alarm rates."""

    def tests(self, loss: float) -> tuple[Floats, Floats]:
        """Return hit and false-alarm rates of tests between two inputs whose privacy loss is ``loss``."""


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

    def tests(self, loss: float) -> tuple[Floats, Floats]:
        """Return the rates of the threshold tests of N(loss, 1) against N(0, 1)."""
        cuts = np.linspace(-4.0, loss + 4.0, _CUTS)
        return np.asarray(ndtr(loss - cuts)), np.asarray(ndtr(-cuts))


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

    def tests(self, loss: float) -> tuple[Floats, Floats]:
        """Return the rates for an answer that is kept with odds of e^loss, or disclosed with probability delta."""
        kept = 1.0 / (1.0 + math.exp(-loss))
        return np.array([self.delta + (1.0 - self.delta) * kept]), np.array([(1.0 - self.delta) * (1.0 - kept)])


def least_share(successes: Integers, trials: int, failure: float) -> Floats:
    """Return the exact (Clopper-Pearson) lower bound on a probability, wrong with probability ``failure``."""
    return np.where(successes > 0, betaincinv(np.maximum(successes, 1), trials - successes + 1, failure), 0.0)


def greatest_share(successes: Integers, trials: int, failure: float) -> Floats:
    """Return the exact upper confidence bound on a probability."""
    return 1.0 - least_share(trials - successes, trials, failure)


_POWER: Final = 0.95  # probability with which an audit finds the loss


def detectable(claim: TestedGuarantee, draws: int, failure: float) -> float:
    """Return the least privacy loss that an audit of a claim finds with probability 0.95; infinite if none.

    ``draws`` and ``failure`` are those of `lower_bound`. The mechanism is taken to lose privacy like Gaussian noise
    (for mu) or randomized response (for epsilon); losses of other mechanisms may be harder to find.

    >>> round(detectable(Mu(0.5), 20_000, 0.001), 2)
    0.63
    """
    evaluated = draws - draws // 2
    tail = (1.0 - _POWER) / 2.0

    def bound(loss: float) -> float:
        hits, alarms = claim.tests(loss)
        fewest = np.floor(_quantile(tail, evaluated, hits)).astype(np.int64)
        most = np.ceil(_quantile(1.0 - tail, evaluated, alarms)).astype(np.int64)
        least, greatest = least_share(fewest, evaluated, failure / 2), greatest_share(most, evaluated, failure / 2)
        with np.errstate(invalid="ignore", divide="ignore"):
            values = claim.least(least, greatest)
        return float(np.max(np.where(np.isfinite(values), values, -math.inf)))

    low, high = claim.claimed, claim.claimed + _FURTHEST
    if bound(high) <= claim.claimed:
        return math.inf
    while high - low > 1e-4 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if bound(middle) > claim.claimed else (middle, high)
    return high


def _quantile(share: float, trials: int, probability: Floats) -> Floats:
    """Return the quantile of a binomial count; 0 where the count 0 alone has a larger probability."""
    return np.asarray(np.clip(np.nan_to_num(bdtrik(share, trials, probability), nan=0.0), 0.0, trials))


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
        (float(value), float(cut), sign)
        for sign in (1.0, -1.0)
        for value, cut in zip(_values(*chosen_on, cuts, sign, tested_guarantee, failure), cuts, strict=True)
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
