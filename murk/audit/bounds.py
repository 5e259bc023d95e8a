r"""Lower bounds of what a mechanism's releases disclose, from a test that tells two inputs apart.

A test that says "first" for a share p of the first input's releases and for a share q of the second's shows that

.. math:: \epsilon \ge \log \frac{p - \delta}{q}, \qquad \mu \ge \Phi^{-1}(p) - \Phi^{-1}(q)

because (epsilon, delta) promises p <= e^epsilon q + delta, and mu-GDP promises that no test is better than one of
N(mu, 1) against N(0, 1). Shares are replaced by exact confidence bounds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri

from murk.errors import UserError

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

_CUTS = 512


class Yardstick(Protocol):
    """A figure of privacy that a test can bound from below."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def claimed(self) -> float:
        """What is claimed of it."""

    def least(self, hits: Floats, alarms: Floats) -> Floats:
        """Its least value where a test has at least these shares of hits and at most these of false alarms."""


@dataclass(frozen=True)
class Mu:
    """mu of Gaussian differential privacy.

    Examples
    --------
    >>> Mu(1.0).least(np.array([0.5]), np.array([0.15865525393145707])).round(6).tolist()
    [1.0]
    """

    claimed: float
    name = "mu"

    def least(self, hits: Floats, alarms: Floats) -> Floats:
        """``Phi^-1(hits) - Phi^-1(alarms)``."""
        found: Floats = ndtri(hits) - ndtri(alarms)
        return found


@dataclass(frozen=True)
class EpsilonAt:
    """epsilon at a given delta; 0 for a pure guarantee.

    Examples
    --------
    >>> EpsilonAt(1.0).least(np.array([0.5]), np.array([0.25])).round(6).tolist()
    [0.693147]
    """

    claimed: float
    delta: float = 0.0

    @property
    def name(self) -> str:
        """``epsilon``, with its delta where there is one."""
        return f"epsilon at delta={self.delta:g}" if self.delta else "epsilon"

    def least(self, hits: Floats, alarms: Floats) -> Floats:
        """``log((hits - delta) / alarms)``."""
        found: Floats = np.log(np.maximum(hits - self.delta, 1e-300) / alarms)
        return found


def least_share(successes: Counts, trials: int, failure: float) -> Floats:
    """The exact (Clopper-Pearson) lower confidence bound of a probability, wrong with at most ``failure``.

    Examples
    --------
    >>> least_share(np.array([0, 10]), 10, 0.05).round(4).tolist()
    [0.0, 0.7411]
    """
    bounds: Floats = np.where(successes > 0, betaincinv(np.maximum(successes, 1), trials - successes + 1, failure), 0.0)
    return bounds


def greatest_share(successes: Counts, trials: int, failure: float) -> Floats:
    """The exact upper confidence bound: one less the lower bound of the failures' share."""
    return 1.0 - least_share(trials - successes, trials, failure)


def lower_bound(first: Floats, second: Floats, yardstick: Yardstick, failure: float) -> float:
    """A lower bound of what releases disclose; wrong with a probability of at most ``failure``.

    Parameters
    ----------
    first, second
        A statistic of independent releases of the first and of the second input, larger where the first is the
        likelier; at best the logarithm of their likelihood ratio. Any statistic gives a valid bound.
    yardstick
        Of which figure.
    failure
        Probability with which the bound may exceed the truth: half for each of the two shares. The test (where to
        cut, and which input it is to notice) is chosen on the first half of the releases and its shares are counted
        on the second, so that choosing costs nothing.

    Returns
    -------
    The bound, at least 0.

    Raises
    ------
    UserError
        For fewer than two releases of an input.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> found = lower_bound(rng.normal(1, 1, 20_000), rng.normal(0, 1, 20_000), Mu(1.0), failure=1e-3)
    >>> 0.9 < found < 1.0
    True
    """
    if min(len(first), len(second)) < 2:
        raise UserError("an audit needs two releases of each input at least: one half to choose on, one to count")
    one, other = len(first) // 2, len(second) // 2
    pooled = np.concatenate([first[:one], second[:other]])
    cuts = np.unique(np.quantile(pooled, np.linspace(0.0, 1.0, _CUTS), method="nearest"))
    _, cut, sign = max(
        (float(value), float(place), sign)
        for sign in (1.0, -1.0)
        for value, place in zip(_values(first[:one], second[:other], cuts, sign, yardstick, failure), cuts, strict=True)
    )
    [found] = _values(first[one:], second[other:], np.array([cut]), sign, yardstick, failure)
    return max(0.0, float(found))


def _values(first: Floats, second: Floats, cuts: Floats, sign: float, yardstick: Yardstick, failure: float) -> Floats:
    """What tests show that notice the first input at or above each cut, or (sign -1) the second at or below it."""
    if sign < 0:
        first, second, cuts = -second, -first, -cuts
    hits, alarms = _above(first, cuts), _above(second, cuts)
    least = least_share(hits, len(first), failure / 2)
    most = greatest_share(alarms, len(second), failure / 2)
    with np.errstate(invalid="ignore"):
        values = yardstick.least(least, most)
    return np.where(np.isfinite(values), values, -math.inf)


def _above(values: Floats, cuts: Floats) -> Counts:
    return (len(values) - np.searchsorted(np.sort(values), cuts, side="left")).astype(np.int64)
