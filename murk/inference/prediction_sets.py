"""Prediction sets: the threshold at which they contain a nominal share of people's targets, from yes-or-no answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from murk._internal.arrays import Floats
from murk._internal.links import logistic
from murk.errors import UserError

_ERROR_CODE = "MURK-LEARN-001"

COVERAGES: Final = (0.5, 0.99)  # the least and largest nominal coverage
SHARES: Final = (0.01, 0.3)  # the least and largest share of people who are asked about prediction sets
CONFIDENCE: Final = 0.95  # probability that coverage reaches its nominal value

_POINTS: Final = 256  # number of the root's positions on a grid
_SLOPES: Final = 12  # number of the curve's slopes on a grid
_CURVED: Final = 0.3  # standard error of the curve's shape, divided by the curve's distance from the nominal coverage
_WIDENED: Final = 1.5  # half the square of the normal 90% quantile, rounded up
_FIRST: Final = 0.4  # quantile of the root to ask about first: a little below its median, as the curve is flat above
_EVERY: Final = 2  # every second position may be asked about
_SEARCHED: Final = 3  # least number of replies before queries try to show a coverage; earlier ones locate the root
_WORTH: Final = 0.5  # least probability of showing the coverage of the largest threshold, for trying to show any
_LEAST: Final = 1e-3  # least share of people whom the curve leaves inside or outside
_ABOVE: Final = 0.2  # part of the error probability for the upper ends of intervals: the lower ends are promised
_FEWEST: Final = 0.02  # least lower bound on the share of people with a target for which there are sets


@dataclass(frozen=True)
class Scale:
    """Positions of thresholds, and the prior of the slope of coverage's log odds over positions."""

    low: float  # position of the smallest threshold
    high: float  # position of the largest threshold
    slope: float  # median slope
    spread: float  # standard deviation of the slope's logarithm
    step: float  # a step between positions that is worth a query
    real: bool  # whether positions are logarithms of half-widths; else log odds of a probability

    def position(self, threshold: float) -> float:
        """Return the position of a threshold."""
        least = min(max(threshold, self.threshold(self.low)), self.threshold(self.high))
        return math.log(least) if self.real else math.log(least / (1.0 - least))

    def threshold(self, position: float) -> float:
        """Return the threshold at a position."""
        return math.exp(position) if self.real else 1.0 / (1.0 + math.exp(-position))

    def moved(self, change: float, threshold: float) -> float:
        """Return how far a threshold moves, in positions, if ``x'b`` changes by ``change`` (root mean square)."""
        # The variance of residuals grows by the square of the change; positions of labels move with the log odds.
        return _WIDENED * (change / self.threshold(self.position(threshold))) ** 2 if self.real else change / 4.0


REAL: Final = Scale(math.log(0.01), math.log(2.0), 3.0, 0.9, 0.1, True)
LABELS: Final = Scale(-7.0, 7.0, 1.5, 1.0, 0.3, False)


@dataclass(frozen=True)
class Reply:
    """The share of yes among the answers at one published threshold."""

    threshold: float  # the threshold
    share: float  # estimate of the share of targets inside
    noise: float  # variance of the estimate from randomization
    people: float  # effective number of people: sampling adds the variance of one yes or no, divided by this number
    moved: float  # how far the prediction has moved since, in positions (root mean square)
    origin: Floats | None = None  # the prediction of the set, (d,)
    reach: float = 0.0  # most by which one forged answer moves the share

    def error(self, coverage: float) -> float:
        """Return the standard error of the share if the share is about ``coverage``."""
        return math.sqrt(self.noise + coverage * (1.0 - coverage) / self.people)


@dataclass(frozen=True)
class Present:
    """The share of people with a target."""

    share: float = 1.0  # estimate
    least: float = 1.0  # lower confidence bound


ALL_PRESENT: Final = Present()


class Root:
    r"""Posterior distribution of the root: the position of the threshold with the nominal coverage C.

    The log odds of the coverage F(u) at position u are taken as linear near the root r: ``logit F(u) = logit C + b (u -
    r)``, with r uniform on the scale and b log-normal. A missing target counts as C, so that a reply at u is normal
    around ``C + p (F - C)``, with p the share of targets present. Its variance is that of noise and sampling, plus

    .. math:: \bigl(0.3 p (F - C)\bigr)^2 + \bigl(p b F (1 - F)\, m\bigr)^2

    for curves of other shapes, and for a prediction that has moved by m positions since. Asking near the root's median
    is probabilistic bisection, which converges on curves with jumps, too. The posterior chooses queries only:
    statements on coverage rest on `bounds`.

    Source: Waeber, Frazier, Henderson, "Bisection search with noisy responses", 2013.
    """

    def __init__(self, scale: Scale, coverage: float, replies: Sequence[Reply], present: Present = ALL_PRESENT) -> None:
        self.scale, self.coverage, self.replies, self.present = scale, coverage, replies, present
        self.share = min(max(present.share, _FEWEST), 1.0)
        self.positions = np.linspace(scale.low, scale.high, _POINTS)
        nodes = np.linspace(-3.0, 3.0, _SLOPES)
        self.slopes = scale.slope * np.exp(scale.spread * nodes)
        logs = np.broadcast_to(-0.5 * nodes**2, (_POINTS, _SLOPES)).copy()
        for reply in replies:
            at = self.curve(scale.position(reply.threshold))
            spread, off = self.share * at * (1.0 - at), self.share * (at - coverage)
            variance = reply.noise + spread / reply.people
            variance = variance + (_CURVED * off) ** 2 + (self.slopes * spread * reply.moved) ** 2
            logs -= 0.5 * ((reply.share - coverage - off) ** 2 / variance + np.log(variance))
        weights = np.exp(logs - logs.max())
        self.weights: Floats = weights / weights.sum()

    def curve(self, position: float) -> Floats:
        """Return the coverage at a position, for each root and slope."""
        odds = math.log(self.coverage / (1.0 - self.coverage)) + self.slopes * (position - self.positions[:, None])
        return np.asarray(np.clip(1.0 / (1.0 + np.exp(-odds)), _LEAST, 1.0 - _LEAST))

    def quantile(self, probability: float) -> float:
        """Return the threshold above which the root lies with probability 1 - ``probability``."""
        total = np.cumsum(self.weights.sum(axis=1))
        index = min(int(np.searchsorted(total, probability)), _POINTS - 1)
        return self.scale.threshold(float(self.positions[index]))

    def next_query(self) -> float:
        """Return the threshold to ask about next.

        It has the largest product of two factors. The first is the squared probability that as many new answers as
        there are now would show a coverage of at least C (see `bounds`). The second is the distance, plus a step, below
        the smallest threshold whose answers show such a coverage. If the probability is small even at the largest
        threshold, the next query is near the root's median.
        """
        precision = sum(1.0 / reply.error(self.coverage) ** 2 for reply in self.replies)
        quantile = NormalDist().inv_cdf(1.0 - (1.0 - _ABOVE) * (1.0 - CONFIDENCE) / 2.0)
        asked = self.positions[::_EVERY]
        shown = np.empty(len(asked))
        for index, position in enumerate(asked.tolist()):
            beyond = self.share * (self.curve(position) - self.coverage) * math.sqrt(precision) - quantile
            # The logistic function of 1.7 x is the normal distribution's within 0.01.
            shown[index] = np.sum(self.weights * logistic(1.7 * beyond))
        if shown[-1] < _WORTH or len(self.replies) < _SEARCHED:
            return self.quantile(_FIRST)
        ends = zip(self.replies, bounds(self.coverage, self.replies), strict=True)
        covered = [self.scale.position(reply.threshold) for reply, (low, _) in ends if low >= self.coverage]
        below = min([self.scale.high, *covered]) + self.scale.step - asked
        return self.scale.threshold(float(asked[np.argmax(shown**2 * np.maximum(below, 0.0))]))

    def error(self) -> float:
        """Return the standard error of coverage near the root if all people have targets; infinite without replies."""
        spread = self.coverage * (1.0 - self.coverage)
        moved = [(each.error(self.coverage), self.scale.slope * spread * each.moved) for each in self.replies]
        precision = sum(1.0 / (error**2 + more**2) for error, more in moved)
        return 1.0 / math.sqrt(precision) if precision else math.inf


def bounds(coverage: float, replies: Sequence[Reply]) -> list[tuple[float, float]]:
    """Return intervals of the replies' expectations, which all hold together with probability `CONFIDENCE`.

    The error probability is divided over the replies by precision. Each threshold and model is a function of earlier
    releases alone, so that every reply is unbiased for any curve of coverage.
    """
    errors = [reply.error(coverage) for reply in replies]
    total = sum(1.0 / error**2 for error in errors)
    intervals = []
    for reply, error in zip(replies, errors, strict=True):
        alpha = (1.0 - CONFIDENCE) / (error**2 * total)
        below, above = (NormalDist().inv_cdf(1.0 - part * alpha) for part in (1.0 - _ABOVE, _ABOVE))
        intervals.append((reply.share - below * error, reply.share + above * error))
    return intervals


def at_least_present(coverage: float, replies: Sequence[Reply]) -> float:
    """Return a lower bound on the share of targets present, from the replies: missing targets count as C."""
    ends = bounds(coverage, replies)
    shares = [max((coverage - high) / coverage, (low - coverage) / (1.0 - coverage)) for low, high in ends]
    return max(0.0, *shares) if shares else 0.0


class PredictionSets:
    r"""Sets that contain a person's target with at least the nominal coverage C.

    The set of a real target is ``x'b +- t``, clipped to the target's bounds. The set of a target with classes has all
    classes with a probability of at least 1 - t. Coverage is marginal: the share of new people, drawn like those who
    answered, whose target is in their set. With probability 95% over the releases, coverage is within the stated
    interval, whose low end is at least C.

    Sets use the newest published prediction and threshold whose answers show a coverage of at least C. If no answers
    show it, sets contain everything. A missing target counts as C, so that a mean answer ``C + p (F - C)`` is at most
    the coverage F if it is at least C.

    ``root`` has the replies, ``origin`` is the newest published prediction b (d,), in coded units, ``basis`` (K, c)
    maps contrasts to the classes' log odds (None for a real target), and ``answers`` is the number of answers.
    """

    whole = False  # whether sets contain everything, as no threshold is known to suffice
    _fewest = 1.0  # lower confidence bound on the share of people with a target
    reach = 0.0  # most by which one forged answer raises the coverage that is stated

    def __init__(self, root: Root, origin: Floats, basis: Floats | None, answers: int) -> None:
        self.coverage, self.origin, self.basis, self.answers = root.coverage, origin, basis, answers
        self._error, self._fewest = root.error(), root.present.least
        self._threshold, self.covered, self.interval, self.whole = 2.0 if basis is None else 1.0, 1.0, [1.0, 1.0], True
        for reply, ends in zip(root.replies, bounds(self.coverage, root.replies), strict=True):
            if ends[0] < self.coverage or self._fewest < _FEWEST:
                continue
            self.origin = origin if reply.origin is None else reply.origin
            self._threshold, self.whole = reply.threshold, False
            self.covered, high = (
                min(self.coverage + (value - self.coverage) / share, 1.0)
                for value, share in ((reply.share, root.present.share), (ends[1], self._fewest))
            )
            self.interval = [min(ends[0], 1.0), high]
            self.reach = reply.reach / self._fewest

    @property
    def known(self) -> bool:
        """Whether enough people have answered: the standard error of coverage is at most (1 - C) / 2.

        The standard error of coverage is that of the answers, divided by a lower bound on the share of people with a
        target.
        """
        return self._fewest >= _FEWEST and self._error / self._fewest <= (1.0 - self.coverage) / 2.0

    @property
    def threshold(self) -> float:
        """The threshold t, in coded units; raise UserError if too few people have answered."""
        if not self.known:
            raise UserError(self.why_unknown())
        return self._threshold

    def why_unknown(self) -> str:
        """Return why there are no sets yet, and the remedy."""
        within = (1.0 - self.coverage) / 2.0
        if self._error <= within and self._fewest < _FEWEST:
            return (
                f"{self.answers:,} answers do not tell the coverage of prediction sets, as it is not known that "
                "anybody has a target: send the targets, or learn from more people"
            )
        wanted = (self._error / (within * max(self._fewest, _FEWEST))) ** 2
        more = f", about {wanted:.1f} times as many at these budgets" if math.isfinite(wanted) else ""
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
        # The same expression as on devices: (1 - t) / probability is at most 1.
        with np.errstate(divide="ignore", invalid="ignore"):
            inside = chances.sum(axis=1, keepdims=True) / chances * (1.0 - self.threshold) <= 1.0
        return np.asarray(inside | self.whole)

    def ends(self) -> dict[str, float]:
        """Return the estimated coverage, and the ends of its interval."""
        return {"low": self.interval[0], "estimate": self.covered, "high": self.interval[1]}

    def to_dict(self, unit: float = 1.0) -> dict[str, Any]:
        """Return plain data; ``unit`` is a coded unit's length in the target's units."""
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
        if self.whole:
            everything = "the target's whole range" if self.basis is None else "all labels"
            return (
                f"Prediction sets of {self.coverage:.0%} coverage are {everything}: {self.answers:,} answers do not "
                "show yet that smaller ones suffice. More people, or a larger share of them, would tell."
            )
        low, high = self.interval
        real = self.basis is None
        set_words = "the prediction, plus or minus" if real else "all labels with a probability of at least"
        cutoff = threshold if real else 1.0 - threshold
        return (
            f"Prediction sets of {self.coverage:.0%} coverage are {set_words} {cutoff:.3g}. By {self.answers:,} "
            f"answers they contain the target of {self.covered:.1%} of people ({low:.1%} to {high:.1%})."
        )
