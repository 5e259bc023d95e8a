"""Whether the coefficients have changed while they were learned: from the estimate's path alone, with a false alarm.

An estimate ``t_n`` of n releases with covariance ``C_n`` has, as long as coefficients do not change, independent
increments: ``t_n - t_m`` is normal with covariance ``C_m - C_n``, whatever the coefficients are. A change of them by
``b`` after m shifts it by ``(I - C_n C_m^-1) b``. With b normal of covariance ``16 C_m``, the likelihood ratio of
change and no change is, for one coefficient, of which a share ``v = 1 - C_n / C_m`` of what is known came after m,

    log E = 1/2 (z^2 16 v / (1 + 16 v) - log(1 + 16 v)),    z^2 = (t_n - t_m)^2 / (C_m v)

E is a nonnegative martingale in n that begins at 1 (an *e-process*): with probability at most a does it *ever* exceed
1 / a, however often it is looked at (Ville). A mean of several is one, too: of all coefficients together, and of each.
Of the k-th part of a stream it counts for ``1 / (k (k + 1))``, which adds up to 1 over all parts: so an alarm at 1 / a
is false with probability at most a over the whole life of a stream.

Sources: Ville, "Etude critique de la notion de collectif", 1939; Robbins, "Statistical methods related to the law of
the iterated logarithm", 1970; Ramdas, Grunwald, Vovk and Shafer, "Game-theoretic statistics and safe anytime-valid
inference", 2023.

The normal distribution and the covariances are the estimate's own. Where what is known grew less than the releases did,
it is taken to have grown as they did, which makes z smaller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from murk.learners.estimates.curve import CurvePoint
from murk.learners.estimates.estimate import RANDOM_SCALING, Estimate
from murk.stream.messages.trail import LEVEL

if TYPE_CHECKING:
    from murk.learners.problem import Problem

Array = NDArray[np.float64]

FALSE_ALARM: Final = 0.01
"""Probability at most with which a model that does not change is ever said to have changed."""

SMALLEST_SHARE: Final = 0.05
"""A part is compared once it has so much of the releases."""

# Variance of a change that is looked for, in units of that of what was known before: four standard errors.
_SPREAD = 16.0


@dataclass(frozen=True)
class Comparison:
    """What a part of the stream says against all before it.

    Parameters
    ----------
    evidence
        log E.
    number
        k: which part it is of the stream's, from 1.
    since, until
        The part: so many releases were before it, and there are so many with it.
    changes
        By how much the estimate of each coefficient has moved since, in coded units, (p,); NaN where nothing is known.
    each
        log E of each coefficient by itself, (p,).
    """

    evidence: float
    number: int
    since: int
    until: int
    changes: tuple[float, ...]
    each: tuple[float, ...]


@dataclass(frozen=True)
class Drift:
    """Whether the coefficients have changed beyond noise.

    Parameters
    ----------
    p_value
        Probability at most with which a stream whose coefficients do not change ever shows as much.
    compared
        How many parts of the stream were compared with what was before them.
    releases
        Of which the estimate was, when it was compared.
    since, until
        The part that contradicts what was before it most, in releases; None where nothing was compared.
    changes
        By how much the estimates of coefficients have moved since, in coded units, by name: those whose own evidence
        would do, the strongest first. Empty where there is no alarm. The coefficients themselves have changed by more:
        an estimate is a mean of before and after.
    """

    p_value: float = 1.0
    compared: int = 0
    releases: int = 0
    since: int | None = None
    until: int | None = None
    changes: dict[str, float] = field(default_factory=dict)

    @property
    def alarm(self) -> bool:
        """Whether it is to be said that the model has changed."""
        return self.p_value <= FALSE_ALARM

    @property
    def words(self) -> str:
        """In a sentence or two.

        Examples
        --------
        >>> print(Drift(1.0, 6, 190_000, 96_000, 190_000).words)
        No sign that the coefficients have changed, in 6 comparisons of newer with older releases.
        >>> words = Drift(2e-7, 6, 190_000, 96_000, 190_000, {"age": -0.31}).words.split(": ")
        >>> words[0], words[2]
        ('The coefficients have changed', 'age, whose estimate has moved by -0.31 since.')
        >>> words[1]
        'releases 96,001 to 190,000 contradict those before (p = 2e-07). Above all'
        """
        if not self.compared:
            return "Whether the coefficients change cannot be told yet."
        if not self.alarm:
            times = "1 comparison" if self.compared == 1 else f"{self.compared:,} comparisons"
            return f"No sign that the coefficients have changed, in {times} of newer with older releases."
        assert self.since is not None
        most = ", ".join(
            f"{name}, whose estimate has moved by {change:+.2g} since"
            for name, change in list(self.changes.items())[:3]
        )
        return (
            f"The coefficients have changed: releases {self.since + 1:,} to {self.until:,} contradict those before "
            f"(p = {self.p_value:.0e})." + (f" Above all: {most}." if most else "")
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with the words."""
        return {
            "alarm": self.alarm,
            "p_value": self.p_value,
            "false_alarm": FALSE_ALARM,
            "compared": self.compared,
            "since": self.since,
            "until": self.until,
            "changes": dict(self.changes),
            "words": self.words,
        }


def log_ratio(square: Array, left: Array, share: float | Array) -> Array:
    """log E of changes in units of the standard error before: their squares, the variances after, the releases' share.

    Examples
    --------
    Half of what is known is new; a change of the estimate by two standard errors of before, and by none:

    >>> log_ratio(np.array([4.0, 0.0]), np.array([0.5, 0.5]), 0.5).round(2).tolist()
    [2.46, -1.1]
    """
    new = np.maximum(1.0 - left, share)
    # Where less was learned than by the releases' share, what was known before is taken to be that much less, too.
    scale = np.maximum(1.0, left / (1.0 - share)) * new
    spread = _SPREAD * new
    return np.asarray(0.5 * (square / scale * spread / (1.0 + spread) - np.log1p(spread)))


def mean_ratio(ratios: Array) -> float:
    """The log of the mean of what ratios are the logs of."""
    return float(np.logaddexp.reduce(ratios) - math.log(len(ratios)))


def compare(
    change: Array, before: Array, after: Array, number: int, since: int, until: int, share: float
) -> Comparison | None:
    """Compare an estimate with an earlier one, from its change (p,) and both covariances (p, p).

    Half of the evidence is that of all coefficients together, half that of each. ``share`` is that of the releases
    which came between. None where nothing was known before.
    """
    scale = np.sqrt(np.diag(before))
    if not np.all(np.isfinite(before)) or not np.all(np.isfinite(after)) or not np.any(scale > 0.0):
        return None
    each, changes = _by_coefficient(change, np.diag(before), np.diag(after), share)
    values, vectors = np.linalg.eigh(before)
    kept = values > 1e-10 * values[-1]
    whitened = vectors[:, kept] / np.sqrt(values[kept])
    left, rotation = np.linalg.eigh(whitened.T @ after @ whitened)
    together = float(log_ratio(np.square(rotation.T @ (whitened.T @ change)), left, share).sum())
    evidence = float(np.logaddexp(together, mean_ratio(each[np.isfinite(each)])) - math.log(2.0))
    return Comparison(evidence, number, since, until, tuple(changes.tolist()), tuple(each.tolist()))


def _by_coefficient(change: Array, before: Array, after: Array, share: float | Array) -> tuple[Array, Array]:
    """log E of each coefficient, and by how much it moved; minus infinity and NaN where nothing was known before."""
    with np.errstate(divide="ignore", invalid="ignore"):
        left = after / before
        known = np.isfinite(before) & np.isfinite(left)
        left, square = np.where(known, left, 1.0), np.where(known, np.square(change) / before, 0.0)
    ratios = np.where(known, log_ratio(square, left, share), -np.inf)
    return ratios, np.where(known, change, np.nan)


def concluded(names: Sequence[str], releases: int, found: Sequence[Comparison], views: int = 1) -> Drift:
    """What comparisons of several parts say together, of which each may have been made in so many ways."""
    if not found:
        return Drift(releases=releases)
    worst = max(found, key=lambda one: one.evidence - _price(one, views))
    p_value = math.exp(min(0.0, _price(worst, views) - worst.evidence))
    drift = Drift(p_value, len(found), releases, worst.since, worst.until)
    if not drift.alarm:
        return drift
    price = _price(worst, views) + math.log(2.0 * len(names))
    order = sorted(range(len(names)), key=lambda place: -worst.each[place])
    sure = {names[place]: worst.changes[place] for place in order if worst.each[place] >= price - math.log(FALSE_ALARM)}
    return Drift(p_value, len(found), releases, worst.since, worst.until, sure)


def _price(one: Comparison, views: int) -> float:
    """What its number, and the ways to look at it, cost of log E."""
    return math.log(views * one.number * (one.number + 1))


def drift_of_curve(estimate: Estimate, curve: Sequence[CurvePoint]) -> Drift | None:
    """Whether an estimate has changed, from the points that its chains keep of its path: of sums, or of a mean.

    At each doubling of the releases a new comparison begins, of all that comes after with what there was. Each is made
    at every later point, and of each coefficient by itself. None where the estimate comes without standard errors: they
    cannot be had from the path that is to be judged by them (random scaling).
    """
    if estimate.method == RANDOM_SCALING or not np.any(np.isfinite(estimate.spread)):
        return None
    points = [point for point in curve if point.releases < estimate.n_releases]
    counts = np.array([*(point.releases for point in points), estimate.n_releases])
    values = np.array([*(point.values for point in points), estimate.values])
    halves = np.array([*(point.half_widths for point in points), estimate.half_widths(LEVEL)])
    variances = np.square(halves / NormalDist().inv_cdf(0.5 + LEVEL / 2.0))
    found = []
    for number, place in enumerate(_doublings(counts), start=1):
        at = _strongest(counts, values, variances, place, number)
        if at is not None:
            found.append(at)
    return concluded(estimate.names, estimate.n_releases, found)


def _doublings(counts: NDArray[np.int64]) -> list[int]:
    """Places of the first counts at or above each power of two, but the last count."""
    exponents = [int(count).bit_length() for count in counts[:-1].tolist()]
    return [place for place, one in enumerate(exponents) if place == 0 or one > exponents[place - 1]]


def _strongest(
    counts: NDArray[np.int64], values: Array, variances: Array, place: int, number: int
) -> Comparison | None:
    """The comparison of what came after a place, at the later point at which it says most."""
    shares = 1.0 - counts[place] / counts
    later = np.flatnonzero(shares >= SMALLEST_SHARE)
    known = np.isfinite(variances[place])
    if not len(later) or not np.any(known):
        return None
    each, changes = _by_coefficient(
        values[later] - values[place], variances[place], variances[later], shares[later, None]
    )
    # What is not known any more says nothing.
    evidence = np.logaddexp.reduce(each[:, known], axis=1) - math.log(int(known.sum()))
    best = int(np.argmax(evidence))
    return Comparison(
        float(evidence[best]), number, int(counts[place]), int(counts[later[best]]),
        tuple(changes[best].tolist()), tuple(each[best].tolist()),
    )  # fmt: skip


class _Compared(Protocol):
    """A problem that knows more of its releases than the path of the estimate."""

    def drift(self, engines: Sequence[Any]) -> Drift:
        """Whether the coefficients have changed."""


def drift_of(problem: Problem, engines: Sequence[Any], estimate: Estimate, curve: Sequence[CurvePoint]) -> Drift | None:
    """Whether what was learned has changed: by its problem's own comparison, or else from the estimate's path.

    None where the protocol's estimates come without standard errors.
    """
    if hasattr(problem, "drift"):
        return cast("_Compared", problem).drift(engines)
    return drift_of_curve(estimate, curve)
