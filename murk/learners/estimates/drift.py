"""Test of whether the coefficients have changed while they were learned, from the estimate's path alone.

Without a change an estimate ``t_n`` of n releases with covariance ``C_n`` has independent increments: ``t_n - t_m`` is
normal with covariance ``C_m - C_n``, for any coefficients. A change by ``b`` after m shifts it by ``(I - C_n C_m^-1)
b``. With b normal of covariance ``16 C_m``, the likelihood ratio of change and no change is, for one coefficient with a
share ``v = 1 - C_n / C_m`` of the information after m,

    log E = 1/2 (z^2 16 v / (1 + 16 v) - log(1 + 16 v)),    z^2 = (t_n - t_m)^2 / (C_m v)

E is a nonnegative martingale in n that begins at 1 (an *e-process*): with probability at most a it *ever* exceeds 1 /
a, however often it is checked (Ville). A mean of such processes is one, too: here of E for all coefficients together
and of E for each. The k-th part of a stream counts with weight ``1 / (k (k + 1))``, which sums to 1 over all parts: an
alarm at 1 / a is false with probability at most a over the whole life of a stream.

Normality and the covariances are the estimate's own. If the information grew less than the number of releases, the
test takes it to have grown in proportion, which makes z smaller.

Sources: Ville, "Etude critique de la notion de collectif", 1939; Robbins, "Statistical methods related to the law of
the iterated logarithm", 1970; Ramdas, Grunwald, Vovk and Shafer, "Game-theoretic statistics and safe anytime-valid
inference", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from murk.learners.estimates.curve import CurvePoint
from murk.learners.estimates.estimate import RANDOM_SCALING, Estimate
from murk.stream.messages.state import LEVEL

if TYPE_CHECKING:
    from murk.learners.problem import Problem

Array = NDArray[np.float64]

FALSE_ALARM: Final = 0.01  # largest probability of ever reporting a change where there is none

SMALLEST_SHARE: Final = 0.05  # least share of the releases that a part must have to be compared

# Variance of the change tested for, over the variance of the earlier estimate: a change of four standard errors.
_SPREAD = 16.0


@dataclass(frozen=True)
class Comparison:
    """Evidence that the coefficients of a part of the stream differ from those before the part."""

    evidence: float  # log E
    number: int  # k, the number of the part, from 1
    since: int  # number of releases before the part
    until: int  # number of releases up to the end of the part
    changes: tuple[float, ...]  # change of each coefficient's estimate, in coded units, (p,); NaN if unknown
    each: tuple[float, ...]  # log E of each coefficient alone, (p,)


@dataclass(frozen=True)
class Drift:
    """Whether the coefficients have changed beyond noise."""

    p_value: float = 1.0  # largest probability of ever seeing such evidence in an unchanged stream
    compared: int = 0  # number of comparisons
    releases: int = 0  # number of releases of the estimate that was tested
    since: int | None = None  # number of releases before the part that differs most from those before it
    until: int | None = None  # number of releases up to the end of that part
    # Changes of estimates, in coded units, by name of the coefficients with enough evidence of their own, the strongest
    # first; empty without an alarm. The coefficients changed by more, as an estimate averages over before and after.
    changes: dict[str, float] = field(default_factory=dict)

    @property
    def alarm(self) -> bool:
        """Whether a change is reported."""
        return self.p_value <= FALSE_ALARM

    @property
    def words(self) -> str:
        """The conclusion in a sentence or two.

        Examples
        --------
        >>> print(Drift(1.0, 6, 190_000, 96_000, 190_000).words)
        No sign that the coefficients have changed, in 6 comparisons of newer with older releases.
        """
        if not self.compared:
            return "It is too early to tell whether the coefficients change."
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
        """Return plain data, including the words."""
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
    """Return log e-values of changes.

    ``square`` is the squared change over the earlier variance, ``left`` the later variance over the earlier one, and
    ``share`` the share of new releases. For half of the information new, and a change of two earlier standard errors
    or of none:

    >>> log_ratio(np.array([4.0, 0.0]), np.array([0.5, 0.5]), 0.5).round(2).tolist()
    [2.46, -1.1]
    """
    new = np.maximum(1.0 - left, share)
    # If less was learned than by the share of releases, the earlier information is reduced in proportion.
    scale = np.maximum(1.0, left / (1.0 - share)) * new
    spread = _SPREAD * new
    return np.asarray(0.5 * (square / scale * spread / (1.0 + spread) - np.log1p(spread)))


def mean_ratio(ratios: Array) -> float:
    """Return the log of the mean of ratios from their logs."""
    return float(np.logaddexp.reduce(ratios) - math.log(len(ratios)))


def compare(
    change: Array, before: Array, after: Array, number: int, since: int, until: int, share: float
) -> Comparison | None:
    """Compare an estimate with an earlier one, by its change (p,) and both covariances (p, p).

    E is half that of all coefficients together, and half the mean of each one's. ``share`` is the share of releases in
    between. Returns None if nothing was known before.
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
    """Return each coefficient's log e-value and change; minus infinity and NaN where nothing was known before."""
    with np.errstate(divide="ignore", invalid="ignore"):
        left = after / before
        known = np.isfinite(before) & np.isfinite(left)
        left, square = np.where(known, left, 1.0), np.where(known, np.square(change) / before, 0.0)
    ratios = np.where(known, log_ratio(square, left, share), -np.inf)
    return ratios, np.where(known, change, np.nan)


def concluded(names: Sequence[str], releases: int, comparisons: Sequence[Comparison], views: int = 1) -> Drift:
    """Return the conclusion from comparisons of several parts, each of which may have been made in ``views`` ways."""
    if not comparisons:
        return Drift(releases=releases)
    worst = max(comparisons, key=lambda each: each.evidence - _price(each, views))
    p_value = math.exp(min(0.0, _price(worst, views) - worst.evidence))
    drift = Drift(p_value, len(comparisons), releases, worst.since, worst.until)
    if not drift.alarm:
        return drift
    price = _price(worst, views) + math.log(2.0 * len(names))
    order = sorted(range(len(names)), key=lambda index: -worst.each[index])
    sure = {names[index]: worst.changes[index] for index in order if worst.each[index] >= price - math.log(FALSE_ALARM)}
    return replace(drift, changes=sure)


def _price(comparison: Comparison, views: int) -> float:
    """Return the correction of a log e-value for the comparison's number and its ``views``, to be subtracted."""
    return math.log(views * comparison.number * (comparison.number + 1))


def drift_of_curve(estimate: Estimate, curve: Sequence[CurvePoint]) -> Drift | None:
    """Test whether the coefficients have changed, from the estimate's path.

    At each doubling of the releases a new comparison of all later releases with the earlier ones begins. It is made at
    every later point, for each coefficient alone. Returns None for an estimate without standard errors, and for random
    scaling, whose errors come from the path itself.
    """
    if estimate.method == RANDOM_SCALING or not np.any(np.isfinite(estimate.spread)):
        return None
    points = [point for point in curve if point.releases < estimate.n_releases]
    counts = np.array([*(point.releases for point in points), estimate.n_releases])
    values = np.array([*(point.values for point in points), estimate.values])
    halves = np.array([*(point.half_widths for point in points), estimate.half_widths(LEVEL)])
    variances = np.square(halves / NormalDist().inv_cdf(0.5 + LEVEL / 2.0))
    comparisons = []
    for number, start in enumerate(_doublings(counts), start=1):
        comparison = _strongest(counts, values, variances, start, number)
        if comparison is not None:
            comparisons.append(comparison)
    return concluded(estimate.names, estimate.n_releases, comparisons)


def _doublings(counts: NDArray[np.int64]) -> list[int]:
    """Return the indices of the first counts at or above each power of two, without the last count."""
    exponents = [int(count).bit_length() for count in counts[:-1].tolist()]
    return [index for index, each in enumerate(exponents) if index == 0 or each > exponents[index - 1]]


def _strongest(
    counts: NDArray[np.int64], values: Array, variances: Array, start: int, number: int
) -> Comparison | None:
    """Return the comparison of the releases after a point, at the later point with the most evidence."""
    shares = 1.0 - counts[start] / counts
    later = np.flatnonzero(shares >= SMALLEST_SHARE)
    known = np.isfinite(variances[start])
    if not len(later) or not np.any(known):
        return None
    each, changes = _by_coefficient(
        values[later] - values[start], variances[start], variances[later], shares[later, None]
    )
    # Coefficients that are no longer known give no evidence.
    evidence = np.logaddexp.reduce(each[:, known], axis=1) - math.log(int(known.sum()))
    best = int(np.argmax(evidence))
    return Comparison(
        float(evidence[best]), number, int(counts[start]), int(counts[later[best]]),
        tuple(changes[best].tolist()), tuple(each[best].tolist()),
    )  # fmt: skip


class _Compared(Protocol):
    """A problem with a drift test of its own, which uses more than the estimate's path."""

    def drift(self, engines: Sequence[Any]) -> Drift:
        """Test whether the coefficients have changed."""


def drift_of(problem: Problem, engines: Sequence[Any], estimate: Estimate, curve: Sequence[CurvePoint]) -> Drift | None:
    """Test whether the coefficients have changed, by the problem's own comparison, or else from the estimate's path.

    Returns None if the protocol's estimates have no standard errors.
    """
    if hasattr(problem, "drift"):
        return cast("_Compared", problem).drift(engines)
    return drift_of_curve(estimate, curve)
