"""Path of an estimate, and a test, from the path alone, of whether the coefficients changed while they were learned.

*Path.* A release draws its partition uniformly, so that partitions are merged at equal counts: a point consists of each
partition's newest point at or below one count of the grid. If partitions share models, the first partition's history
has the estimates of all partitions together, and the others have none. For random scaling with n_c releases of
partition c, values are ``sum n_c theta_c / n``, with half-widths from the mean of the partitions' V, if all are known.
For all other methods each coefficient is averaged by inverse variance, or by numbers of releases if its variance is
unknown in all partitions. (The estimate itself, from the sums of all partitions, is slightly more precise.)

*Test.* Without a change an estimate ``t_n`` of n releases with covariance ``C_n`` has independent increments: ``t_n -
t_m`` is normal with covariance ``C_m - C_n``. A change by ``b`` after m shifts it by ``(I - C_n C_m^-1) b``. With b
normal of covariance ``16 C_m``, the likelihood ratio of change and no change is, for one coefficient with a share ``v =
1 - C_n / C_m`` of the information after m,

    log E = 1/2 (z^2 16 v / (1 + 16 v) - log(1 + 16 v)),    z^2 = (t_n - t_m)^2 / (C_m v)

E is a nonnegative martingale in n that begins at 1 (an *e-process*): with probability at most a it *ever* exceeds 1 /
a, however often it is checked (Ville). A mean of such processes is one, too: here of E for all coefficients together
and of E for each. The k-th part of a stream counts with weight ``1 / (k (k + 1))``, which sums to 1 over all parts: an
alarm at 1 / a is false with probability at most a over the whole life of a stream. If the information grew by a smaller
factor than the number of releases, the test assumes that it grew by the same factor, which makes z smaller.

Sources: Ville, "Etude critique de la notion de collectif", 1939; Robbins, "Statistical methods related to the law of
the iterated logarithm", 1970; Ramdas, Grunwald, Vovk and Shafer, "Game-theoretic statistics and safe anytime-valid
inference", 2023.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any, Final, NamedTuple

import numpy as np

from murk._internal.arrays import Floats, Integers
from murk.inference.estimate import RANDOM_SCALING, Estimate, scaling_quantile
from murk.stream.wire.state import LEVEL, History


class CurvePoint(NamedTuple):
    """The estimate from a number of releases, with 95% half-widths, and the time at which the log held the releases."""

    releases: int
    time: int
    values: tuple[float, ...]
    half_widths: tuple[float, ...]
    estimated_error: float


def columns(points: Sequence[CurvePoint], names: Sequence[str]) -> dict[str, Any]:
    """Return points as plain data: a list for each field or, in fields of coefficients, for each coefficient's name."""
    plain = ("releases", "time", "estimated_error")
    data: dict[str, Any] = {key: [getattr(point, key) for point in points] for key in plain}
    for key in ("values", "half_widths"):
        rows = [getattr(point, key) for point in points]
        data[key] = {name: [row[index] for row in rows] for index, name in enumerate(names)}
    return data


def merged_curve(histories: Sequence[History], coefficients: int, method: str) -> tuple[CurvePoint, ...]:
    """Return the points of all partitions' histories, merged by count; raise MurkError if one is damaged."""
    tables = [
        history.table(coefficients, f"partition {partition}").astype(np.float64)
        for partition, history in enumerate(histories)
    ]
    grid = sorted({count for history in histories for count in history.counts})
    newest = np.array([np.searchsorted(history.counts, grid, side="right") - 1 for history in histories])
    points = []
    for at in newest.T:
        begun = [partition for partition, index in enumerate(at) if index >= 0]
        rows = np.array([tables[partition][at[partition]] for partition in begun])
        counts = np.array([histories[partition].counts[at[partition]] for partition in begun])
        values, halves, errors = rows[:, :coefficients], rows[:, coefficients:-1], rows[:, -1]
        if len(begun) == 1:
            value, half, error = values[0], halves[0], float(errors[0])
        else:
            value, half, error = _merged(values, halves, counts.astype(np.float64), method)
        time = max(histories[partition].times[at[partition]] for partition in begun)
        points.append(CurvePoint(int(counts.sum()), time, tuple(value.tolist()), tuple(half.tolist()), error))
    return tuple(points)


def _merged(values: Floats, halves: Floats, counts: Floats, method: str) -> tuple[Floats, Floats, float]:
    shares = (counts / counts.sum())[:, None]
    by_count = (shares * values).sum(axis=0)
    if method == RANDOM_SCALING:
        single, joint = scaling_quantile(LEVEL), scaling_quantile(LEVEL, len(counts))
        spread = np.sqrt((np.square(halves / single) * counts[:, None]).mean(axis=0) / counts.sum())
        return by_count, joint * spread, math.sqrt(6.0 * float(np.sum(np.square(spread))))
    quantile = NormalDist().inv_cdf(0.5 + LEVEL / 2.0)
    # A half-width is 0 for a known coefficient, and infinite for an unknown one.
    with np.errstate(divide="ignore"):
        precisions = np.minimum(np.square(quantile / halves), 1e300 / len(counts))
    total = precisions.sum(axis=0)
    unknown = total == 0.0
    weighted = (precisions * values).sum(axis=0) / np.where(unknown, 1.0, total)
    with np.errstate(divide="ignore"):
        spread = np.sqrt(1.0 / total)
    error = math.sqrt(float(np.sum(np.square(spread))))
    return np.where(unknown, by_count, weighted), quantile * spread, error


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
    # Changes of estimates, in coded units, by name, the strongest evidence first; empty without an alarm. The
    # coefficients themselves changed by more, as an estimate averages over releases before and after the change.
    changes: dict[str, float] = field(default_factory=dict)

    @property
    def alarm(self) -> bool:
        """Whether a change is reported."""
        return self.p_value <= FALSE_ALARM

    @property
    def words(self) -> str:
        """The conclusion in a sentence or two.

        >>> print(Drift(1.0, 6, 190_000, 96_000, 190_000).words)
        No sign that the coefficients have changed, in 6 comparisons of newer with older releases.
        """
        if not self.compared:
            return "It is too early to tell whether the coefficients change."
        if not self.alarm:
            times = "1 comparison" if self.compared == 1 else f"{self.compared:,} comparisons"
            return f"No sign that the coefficients have changed, in {times} of newer with older releases."
        assert self.since is not None
        moved = list(self.changes.items())[:3]
        most = "; ".join(f"{name}, whose estimate has moved by {change:+.2g} since" for name, change in moved)
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


def log_ratio(square: Floats, left: Floats, share: float | Floats) -> Floats:
    """Return the log e-values, log E, of changes of an estimate.

    ``square`` is the squared change divided by the earlier variance, ``left`` the later variance divided by the
    earlier one, and ``share`` the share of new releases. With half of the information new, for a change of two earlier
    standard errors and for no change:

    >>> log_ratio(np.array([4.0, 0.0]), np.array([0.5, 0.5]), 0.5).round(2).tolist()
    [2.46, -1.1]
    """
    new = np.maximum(1.0 - left, share)
    # If the information grew by less than the number of releases, assume that it grew by as much: z is smaller then.
    scale = np.maximum(1.0, left / (1.0 - share)) * new
    spread = _SPREAD * new
    return np.asarray(0.5 * (square / scale * spread / (1.0 + spread) - np.log1p(spread)))


def compare(
    change: Floats, before: Floats, after: Floats, number: int, since: int, until: int, share: float
) -> Comparison | None:
    """Compare an estimate with an earlier one, by its change (p,) and both covariances (p, p), or None if unknown.

    The evidence is the mean of E for all coefficients together and of the mean of E for single coefficients. ``share``
    is the share of new releases.
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
    finite = each[np.isfinite(each)]
    apart = np.logaddexp.reduce(finite) - math.log(len(finite))
    evidence = float(np.logaddexp(together, apart) - math.log(2.0))
    return Comparison(evidence, number, since, until, tuple(changes.tolist()), tuple(each.tolist()))


def _by_coefficient(change: Floats, before: Floats, after: Floats, share: float | Floats) -> tuple[Floats, Floats]:
    """Return each coefficient's log e-value and change; minus infinity and NaN without an earlier estimate."""
    with np.errstate(divide="ignore", invalid="ignore"):
        left = after / before
        finite = np.isfinite(before) & np.isfinite(left)
        left, square = np.where(finite, left, 1.0), np.where(finite, np.square(change) / before, 0.0)
    ratios = np.where(finite, log_ratio(square, left, share), -np.inf)
    return ratios, np.where(finite, change, np.nan)


def concluded(names: Sequence[str], releases: int, comparisons: Sequence[Comparison], views: int = 1) -> Drift:
    """Combine comparisons of parts, corrected for the number of parts and of comparisons of each part (``views``)."""
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
    """Return the penalty of a log e-value, by the comparison's number and its ``views``."""
    return math.log(views * comparison.number * (comparison.number + 1))


def drift_of_curve(estimate: Estimate, curve: Sequence[CurvePoint]) -> Drift | None:
    """Test whether the coefficients have changed, from the estimate's path.

    At each doubling of the number of releases a new comparison of later with earlier releases begins, made at every
    later point for each coefficient separately. Returns None without standard errors, and for random scaling, whose
    errors come from the path itself.
    """
    if estimate.method == RANDOM_SCALING or not np.any(np.isfinite(estimate.spread)):
        return None
    points = [point for point in curve if point.releases < estimate.n_releases]
    counts = np.array([*(point.releases for point in points), estimate.n_releases])
    values = np.array([*(point.values for point in points), estimate.values])
    halves = np.array([*(point.half_widths for point in points), estimate.half_widths(LEVEL)])
    variances = np.square(halves / NormalDist().inv_cdf(0.5 + LEVEL / 2.0))
    # The first counts at or above each power of two, without the last count.
    exponents = [int(count).bit_length() for count in counts[:-1].tolist()]
    starts = [index for index, each in enumerate(exponents) if index == 0 or each > exponents[index - 1]]
    compared = [_strongest(counts, values, variances, start, number) for number, start in enumerate(starts, start=1)]
    return concluded(estimate.names, estimate.n_releases, [each for each in compared if each is not None])


def _strongest(counts: Integers, values: Floats, variances: Floats, start: int, number: int) -> Comparison | None:
    """Compare releases after the path's point ``start`` with earlier ones, up to the later point with most evidence."""
    shares = 1.0 - counts[start] / counts
    later = np.flatnonzero(shares >= SMALLEST_SHARE)
    finite = np.isfinite(variances[start])
    if not len(later) or not np.any(finite):
        return None
    moved = values[later] - values[start]
    each, changes = _by_coefficient(moved, variances[start], variances[later], shares[later, None])
    # Coefficients that are no longer known give no evidence.
    evidence = np.logaddexp.reduce(each[:, finite], axis=1) - math.log(int(finite.sum()))
    best = int(np.argmax(evidence))
    since, until = int(counts[start]), int(counts[later[best]])
    changed, alone = (tuple(rows[best].tolist()) for rows in (changes, each))
    return Comparison(float(evidence[best]), number, since, until, changed, alone)
