"""Posterior of a feature's centre and spread, from answers to "is it above a threshold?".

The candidates are a fixed list of distributions: normal ones, and mixtures of two narrower normal ones for features
with few values, many equal values or two modes. An answer of +1 or -1 has the mean ``2 P(x > t) - 1`` under a
candidate. The mean of answers is taken as normal, with the variance of its noise and a slack for the misfit of all
candidates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from murk._internal.arrays import Floats
from murk.protocols.scores.survey.coordinates import UNTOLD

_SLACK: Final = 0.05  # standard deviation of the misfit of the best candidate in an answer's mean
_CENTRES, _SPREADS = np.linspace(-1.0, 1.0, 101), np.geomspace(0.004, 1.2, 48)
_GAPS, _SHARES = np.geomspace(0.03, 1.9, 12), (0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95)
_WIDTHS = (0.05, 0.3)  # widths of a mixture's parts, relative to the gap between them
# Probability that a statement is wrong; if it is right, standard errors of the stated centre, in units of the spread,
# and of the spread's logarithm.
_WRONG, _STATED_CENTRE, _STATED_SPREAD = 0.1, 1.0, 0.7


@dataclass(frozen=True)
class _Shapes:
    """Candidate distributions ``(1 - q) N(a, w^2) + q N(a + gap, w^2)``, each of them (n,)."""

    low: Floats  # a
    gap: Floats  # 0 for a normal distribution
    share: Floats  # q
    width: Floats  # w
    log_prior: Floats

    @property
    def mean(self) -> Floats:
        """The candidates' means."""
        return self.low + self.share * self.gap

    @property
    def log_spread(self) -> Floats:
        """The logarithms of the candidates' standard deviations."""
        return np.asarray(0.5 * np.log(self.width**2 + self.share * (1.0 - self.share) * self.gap**2))


@lru_cache(maxsize=1)
def _shapes() -> _Shapes:
    centres, spreads = (each.ravel() for each in np.meshgrid(_CENTRES, _SPREADS, indexing="ij"))
    zeros = np.zeros(len(centres))
    parts = [np.array([centres, zeros, zeros, spreads, np.full(len(centres), math.log(0.5 / len(centres)))])]
    lumps = math.log(0.5 / (len(_GAPS) * len(_SHARES) * len(_WIDTHS)))
    for gap in _GAPS.tolist():
        positions = np.arange(-1.0, 1.0 - gap + 1e-9, min(gap / 2.0, 0.125))
        grid = np.meshgrid(
            positions, [gap], _SHARES, [width * gap for width in _WIDTHS], [lumps - math.log(len(positions))]
        )
        parts.append(np.array([each.ravel() for each in grid]))
    return _Shapes(*np.concatenate(parts, axis=1))


@lru_cache(maxsize=64)
def _expected(threshold: float) -> Floats:
    """Return each candidate's mean answer at a threshold."""
    from scipy.special import ndtr

    shapes = _shapes()
    above = (shapes.low - threshold) / shapes.width
    return np.asarray(
        2.0 * ((1.0 - shapes.share) * ndtr(above) + shapes.share * ndtr(above + shapes.gap / shapes.width)) - 1.0
    )


@dataclass(frozen=True)
class Reply:
    """The mean answer at one threshold."""

    threshold: float  # coded units
    mean: float
    noise: float  # variance of the mean's noise
    share: float  # factor of people's own variance, ``1 - m^2`` at the mean m

    @property
    def variance(self) -> float:
        """Variance of the mean."""
        return self.noise + self.share * max(1.0 - self.mean**2, 0.0)

    def log_likelihood(self, expected: Floats, slack: float) -> Floats:
        """Return the log density of the mean, as a normal variable, at expected means."""
        variance = self.noise + self.share * (1.0 - expected**2) + slack**2
        return np.asarray(-((self.mean - expected) ** 2) / (2.0 * variance) - 0.5 * np.log(variance))


@dataclass(frozen=True)
class Location:
    """A feature's estimated centre and spread."""

    centre: float  # m
    spread: float  # s, a little below the likely one: too small a spread is harmless, too large a one is not
    centre_error: float  # standard error of m
    log_spread_error: float  # standard error of log s
    extent: float  # root mean square distance of values from the centre: large while a large spread is possible

    @property
    def settled(self) -> bool:
        """Whether further answers would hardly change the coordinates."""
        return self.log_spread_error <= _SETTLED and self.centre_error <= _SETTLED * self.spread


_SETTLED: Final = 0.3  # standard errors of log s, and of m in units of s, at which a survey ends
# Largest spread that counts as zero, and the probability of such a spread above which the spread is `UNTOLD`.
_NARROWEST, _LIKELY = 0.008, 0.05
_SURELY: Final = 2.0  # standard errors that are added to the share of numbers beyond a threshold
CAREFUL: Final = 0.25  # number of its standard errors that is subtracted from log s


def location_of(replies: list[Reply], stated: tuple[float, float] | None = None) -> Location:
    """Return the posterior centre and spread of a number, given in coded units of [-1, 1].

    ``stated`` are a publicly stated centre and spread, if any: a prior, which clear answers outweigh.

    >>> from math import erf, sqrt
    >>> exact = lambda t: erf((0.5 - t) / 0.1 / sqrt(2.0))
    >>> found = location_of([Reply(t / 20, exact(t / 20), 1e-4, 1e-4) for t in range(-19, 20)])
    >>> round(found.centre, 2), 0.07 < found.spread < 0.12
    (0.5, True)
    """
    shapes, weights = _shapes(), _posterior(replies, stated)
    centre, centre_error = _moments(weights, shapes.mean)
    log_spread, log_error = _moments(weights, shapes.log_spread)
    square = float(np.sum(weights * np.exp(2.0 * shapes.log_spread)))
    extent = math.sqrt(square + centre_error**2)
    spread = math.exp(log_spread - CAREFUL * log_error)
    if float(np.sum(weights[shapes.log_spread < math.log(_NARROWEST)])) > _LIKELY:
        log_error = max(log_error, UNTOLD)
    return Location(centre, spread, centre_error, log_error, extent)


def share_beyond(
    replies: list[Reply], low: float, high: float, stated: tuple[float, float] | None = None
) -> tuple[float, float]:
    """Return the posterior share of numbers below ``low`` or above ``high``, and an upper bound on it.

    The posterior share assumes the candidate shapes. The bound holds for every shape: beyond an end there are at most
    as many numbers as beyond the last threshold before it, and two standard errors are added to their share. An end at
    or beyond the range of [-1, 1] has nothing beyond it.
    """
    share, most = np.zeros(len(_shapes().mean)), 0.0
    if high < 1.0:
        share += (1.0 + _expected(high)) / 2.0
        most += _most_above([(each.threshold, each.mean, each.variance) for each in replies], high)
    if low > -1.0:
        share += (1.0 - _expected(low)) / 2.0
        most += _most_above([(-each.threshold, -each.mean, each.variance) for each in replies], -low)
    return _moments(_posterior(replies, stated), share)[0], min(most, 1.0)


def _most_above(answers: list[tuple[float, float, float]], end: float) -> float:
    """Return the largest likely share above an end, from thresholds, mean answers and their variances."""
    inside = [each for each in answers if each[0] <= end]
    nearest = max((threshold for threshold, *_ in inside), default=-1.0)
    means, variances = np.array([each[1:] for each in inside if each[0] == nearest]).reshape(-1, 2).T
    if not len(means):
        return 1.0
    weights = 1.0 / variances
    mean, error = float(weights @ means / weights.sum()), math.sqrt(1.0 / float(weights.sum()))
    return min(max((1.0 + mean) / 2.0, 0.0) + _SURELY * error / 2.0, 1.0)


def _posterior(replies: list[Reply], stated: tuple[float, float] | None) -> Floats:
    """Return the posterior weights of the candidates."""
    shapes = _shapes()
    log_weights = shapes.log_prior.copy() if stated is None else _informed(shapes, *stated)
    for reply in replies:
        log_weights += reply.log_likelihood(_expected(reply.threshold), _SLACK)
    weights = np.exp(log_weights - log_weights.max())
    return np.asarray(weights / weights.sum())


def _informed(shapes: _Shapes, centre: float, spread: float) -> Floats:
    """Return the log prior of the candidates given a stated centre and spread, which may be wrong."""
    prior = np.exp(shapes.log_prior)
    far = ((shapes.mean - centre) / (_STATED_CENTRE * spread)) ** 2
    likely = prior * np.exp(-(far + ((shapes.log_spread - math.log(spread)) / _STATED_SPREAD) ** 2) / 2.0)
    # A statement that is far from all candidates has no effect.
    right = (1.0 - _WRONG) / max(float(np.sum(likely)), 1e-12)
    return np.asarray(np.log(_WRONG * prior + right * likely))


def share_of(replies: list[Reply]) -> tuple[float, float]:
    """Return the posterior mean ``2 q - 1`` of a category coded to -1 and +1, and its standard error."""
    log_weights = np.zeros(len(_CENTRES))
    for reply in replies:
        log_weights += reply.log_likelihood(_CENTRES, _SLACK)
    weights = np.exp(log_weights - log_weights.max())
    return _moments(weights / weights.sum(), _CENTRES)


def _moments(weights: Floats, values: Floats) -> tuple[float, float]:
    # Sums instead of matrix products, whose order differs between linear algebra libraries.
    mean = float(np.sum(weights * values))
    return mean, math.sqrt(max(float(np.sum(weights * values**2)) - mean * mean, 0.0))
