"""Prediction sets: the threshold at which they contain a nominal share of people's targets, from yes-or-no answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter, sub
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from murk._arrays import Floats
from murk.errors import UserError

COVERAGES: Final = (0.5, 0.99)  # the least and largest nominal coverage
SHARES: Final = (0.01, 0.3)  # the least and largest share of people who are asked
CONFIDENCE: Final = 0.95  # probability that coverage reaches its nominal value

_POINTS: Final = 512  # grid of positions of the root
_SLOPES: Final = 24  # grid of the curve's slopes
_CURVED: Final = 0.5  # error of the curve, in units of its distance from the nominal coverage
_STILL: Final = 0.2  # largest movement of a prediction, in positions, that leaves an older reply comparable
_WIDENED: Final = 1.5  # half the square of the normal 90% quantile, rounded up
# Quantiles of the root to ask about: while it is uncertain a little below the median, as the curve is flat above the
# root; then where the served threshold will be.
_FIRST_NEXT, _NEXT = 0.4, 0.7
_LEAST: Final = 1e-3  # least share of people that a curve leaves in or out


@dataclass(frozen=True)
class Wanted:
    """The nominal coverage of prediction sets, and the share of people who are asked about them."""

    coverage: float
    share: float


@dataclass(frozen=True)
class Scale:
    """Positions of thresholds, and prior slopes of the curve of log odds of coverage over positions."""

    low: float  # position of the smallest threshold
    high: float  # position of the largest threshold
    slope: float  # median slope
    spread: float  # standard deviation of the slope's logarithm
    near: float  # shortfall of coverage, in units of 1 - C, from which the curve is followed to the root
    wide: float  # positions between the root's median and its upper limit above which it is uncertain
    real: bool  # whether positions are logarithms of half-widths; else log odds of a probability

    def position(self, threshold: float) -> float:
        """Return the position of a threshold."""
        least = min(max(threshold, self.threshold(self.low)), self.threshold(self.high))
        return math.log(least) if self.real else math.log(least / (1.0 - least))

    def threshold(self, position: float) -> float:
        """Return the threshold at a position."""
        return math.exp(position) if self.real else 1.0 / (1.0 + math.exp(-position))

    def moved(self, change: float, threshold: float) -> float:
        """Return how far a threshold moves, in positions, where ``x'b`` changes by ``change`` (root mean square)."""
        # The variance of residuals grows by the square of the change; log odds move with the classes' own.
        return _WIDENED * (change / self.threshold(self.position(threshold))) ** 2 if self.real else change / 4.0


REAL: Final = Scale(math.log(0.01), math.log(2.0), 4.0, 0.5, 1.0, 0.3, True)
LABELS: Final = Scale(-7.0, 7.0, 2.0, 0.8, 0.25, 0.6, False)


@dataclass(frozen=True)
class Reply:
    """The share of yes among the answers at one published threshold."""

    threshold: float  # the threshold
    share: float  # estimate of the share of targets inside
    noise: float  # variance of the estimate from randomization
    people: float  # variance of a yes or no, divided by this, is the variance from the sampling of people
    moved: float  # how far the prediction has moved since, in positions (root mean square)

    def error(self, coverage: float) -> float:
        """Return the standard error of the share, where it is about ``coverage``."""
        return math.sqrt(self.noise + coverage * (1.0 - coverage) / self.people)


_threshold_of = attrgetter("threshold")


class Root:
    r"""The posterior distribution of the position of the threshold with the nominal coverage C.

    Log odds of coverage are taken as linear near the root r: ``logit F(u) = logit C + b (u - r)``, with r uniform on
    the scale and b log-normal. A reply y at u is normal around F(u), with the variances of noise and sampling, and with

    .. math:: \bigl(\tfrac12 (F - C)\bigr)^2 + \bigl(b F (1 - F)\, m\bigr)^2

    for curves that are not so away from the root, and for a prediction that has moved by m positions since. Asking near
    the median is probabilistic bisection, which converges on curves with jumps, too.

    Source: Waeber, Frazier, Henderson, "Bisection search with noisy responses", 2013.
    """

    def __init__(self, scale: Scale, coverage: float, replies: Sequence[Reply]) -> None:
        self.scale, self.coverage, self.replies = scale, coverage, replies
        self.positions = np.linspace(scale.low, scale.high, _POINTS)
        nodes = np.linspace(-3.0, 3.0, _SLOPES)
        self.slopes = scale.slope * np.exp(scale.spread * nodes)
        logs = np.broadcast_to(-0.5 * nodes**2, (_POINTS, _SLOPES)).copy()
        for reply in replies:
            at = self.curve(scale.position(reply.threshold))
            spread = at * (1.0 - at)
            variance = reply.noise + spread / reply.people
            variance = variance + (_CURVED * (at - coverage)) ** 2 + (self.slopes * spread * reply.moved) ** 2
            logs -= 0.5 * ((reply.share - at) ** 2 / variance + np.log(variance))
        weights = np.exp(logs - logs.max())
        self.weights: Floats = weights / weights.sum()

    def curve(self, position: float) -> Floats:
        """Return the coverage at a position, for each root and slope."""
        odds = math.log(self.coverage / (1.0 - self.coverage)) + self.slopes * (position - self.positions[:, None])
        return np.asarray(np.clip(1.0 / (1.0 + np.exp(-odds)), _LEAST, 1.0 - _LEAST))

    def quantile(self, probability: float) -> float:
        """Return the threshold above which the root lies with probability 1 - ``probability``."""
        total = np.cumsum(self.weights.sum(axis=1))
        place = min(int(np.searchsorted(total, probability)), _POINTS - 1)
        return self.scale.threshold(float(self.positions[place]))

    def next_question(self) -> float:
        """Return the threshold to ask about next."""
        ends = (self.scale.position(self.quantile(each)) for each in (CONFIDENCE, 0.5))
        return self.quantile(_FIRST_NEXT if sub(*ends) > self.scale.wide else _NEXT)

    def error(self) -> float:
        """Return the standard error of the coverage near the root; infinite without replies."""
        spread = self.coverage * (1.0 - self.coverage)
        precision = sum(
            1.0 / (each.error(self.coverage) ** 2 + (self.scale.slope * spread * each.moved) ** 2)
            for each in self.replies
        )
        return 1.0 / math.sqrt(precision) if precision else math.inf

    def served(self) -> float:
        """Return the smallest threshold that is safe: the root is below it with probability `CONFIDENCE`.

        Coverage may jump between two thresholds that were asked about, above all of labels, of which there are few.
        Where the lower one's was too far below C, the higher one is safe, and nothing between.
        """
        threshold = self.quantile(CONFIDENCE)
        known = [reply for reply in self.replies if reply.moved <= _STILL]
        below = max((each for each in known if each.threshold <= threshold), default=None, key=_threshold_of)
        above = min((each.threshold for each in known if each.threshold >= threshold), default=threshold)
        least = self.coverage - self.scale.near * (1.0 - self.coverage)
        if below is None or below.share + below.error(self.coverage) < least:
            return above
        return threshold

    def covered(self, threshold: float, level: float) -> tuple[float, float, float]:
        """Return the mean of the coverage at a threshold, and its interval at ``level``."""
        values, weights = self.curve(self.scale.position(threshold)).ravel(), self.weights.ravel()
        order = np.argsort(values)
        places = np.searchsorted(np.cumsum(weights[order]), [(1.0 - level) / 2.0, (1.0 + level) / 2.0])
        low, high = values[order[np.minimum(places, len(order) - 1)]]
        return float(values @ weights), float(low), float(high)


class PredictionSets:
    r"""Sets that contain a person's target with at least the nominal coverage C.

    The set of a real target is ``x'b +- t``, cut to the target's bounds; that of classes all classes with a probability
    of at least 1 - t. Coverage is marginal: the share of new people, drawn like those who answered, whose target is in
    their set. It is at least C with probability 95% over the releases, unless coverage jumps as a function of t.

    Parameters
    ----------
    root
        The posterior distribution of the threshold with coverage C.
    origin
        The published prediction b (d,) for which the threshold holds, in coded units.
    basis
        The classes' log odds from contrasts (K, c); None for a real target.
    answers
        Number of answers about sets.
    """

    def __init__(self, root: Root, origin: Floats, basis: Floats | None, answers: int) -> None:
        self.coverage, self.origin, self.basis, self.answers = root.coverage, origin, basis, answers
        self._error, self._threshold = root.error(), root.served()
        self.covered, *self.interval = root.covered(self._threshold, CONFIDENCE)

    @property
    def known(self) -> bool:
        """Whether enough people have answered: the standard error of coverage is at most (1 - C) / 2."""
        return self._error <= (1.0 - self.coverage) / 2.0

    @property
    def threshold(self) -> float:
        """The threshold t, in coded units; raise UserError if too few people have answered."""
        if not self.known:
            raise UserError(self.why_unknown())
        return self._threshold

    def why_unknown(self) -> str:
        """Return why there are no sets yet, and the remedy."""
        wanted = (2.0 * self._error / (1.0 - self.coverage)) ** 2
        more = f", about {wanted:.1f} times as many at these budgets" if math.isfinite(wanted) else ""
        within = (1.0 - self.coverage) / 2.0
        return (
            f"{self.answers:,} answers do not tell the coverage of prediction sets within {within:.1%} yet: learn from"
            f" more people{more}, or ask a larger share of them"
        )

    def intervals(self, rows: Floats) -> Floats:
        """Return the intervals of a coded real target for coded rows with the constant (m, p), (m, 2)."""
        centre = np.clip(rows @ self.origin, -1.0, 1.0)
        return np.clip(np.column_stack([centre - self.threshold, centre + self.threshold]), -1.0, 1.0)

    def members(self, rows: Floats) -> NDArray[np.bool_]:
        """Return which classes are in the sets of coded rows with the constant (m, p), (m, K)."""
        assert self.basis is not None
        odds = rows @ self.origin.reshape(-1, rows.shape[1]).T @ self.basis.T
        chances = np.exp(odds - odds.max(axis=1, keepdims=True))
        # As devices compare them: 1 over the probability, times 1 - t, is at most 1.
        return np.asarray(chances.sum(axis=1, keepdims=True) / chances * (1.0 - self.threshold) <= 1.0)

    def ends(self) -> dict[str, float]:
        """Return the estimated coverage, and the ends of its interval."""
        return {"low": self.interval[0], "estimate": self.covered, "high": self.interval[1]}

    def to_dict(self, unit: float = 1.0) -> dict[str, Any]:
        """Return plain data; ``unit`` is the target's unit of one coded unit."""
        threshold = unit * self._threshold if self.known else None
        return {
            "coverage": self.coverage,
            "threshold": threshold,
            "estimated": self.covered if self.known else None,
            "interval": list(self.interval) if self.known else None,
            "confidence": CONFIDENCE,
            "answers": self.answers,
            "words": self._words(threshold),
        }

    def _words(self, threshold: float | None) -> str:
        if threshold is None:
            return f"Prediction sets: {self.why_unknown()}."
        low, high = self.interval
        real = self.basis is None
        what = "the prediction, plus or minus" if real else "all labels with a probability of at least"
        shown = threshold if real else 1.0 - threshold
        return (
            f"Prediction sets of {self.coverage:.0%} coverage are {what} {shown:.3g}. By {self.answers:,} answers they "
            f"contain the target of {self.covered:.1%} of people ({low:.1%} to {high:.1%})."
        )
