r"""Quantiles of a target from people's answers at random thresholds, with intervals for every distribution.

With F the distribution function of people with a target, and pi their share, an answer at threshold t estimates without
bias

.. math:: D(t) = (1 - q)\,P(y \le t) - q\,P(y > t) = \pi\,(F(t) - q),

whose sign tells on which side of t the q-quantile lies, whatever pi is. A candidate between two thresholds is rejected
from below if the answers at it and above show D < 0, and from above if those below it show D > 0. Because F rises, both
tests may pool runs of thresholds; each candidate has its own tests of a few runs, with Bonferroni's correction. The
interval runs from the first to the last candidate that is not rejected, so that only the tests of the true candidate
need to have their nominal level. Variances are those at D = 0, the largest over pi.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Final

import numpy as np

from murk._internal.arrays import Floats
from murk.inference.estimate import Estimate, surely_missing
from murk.inference.levels import quantile_of
from murk.privacy.mechanisms.simplex import SimplexGaussian
from murk.privacy.mechanisms.thresholds import THRESHOLDS
from murk.protocols.univariate.estimate import Totals, combined, missing_note
from murk.protocols.univariate.settings import Settings
from murk.protocols.univariate.statistics import Statistics, Thresholds

METHOD: Final = "tests at thresholds"
RUNS: Final = (1, 3, 9, 27)  # lengths of the runs of thresholds that each test pools
# Factor of critical values at which four confidence sequences hold together, for levels from 90% on.
_FOUR_SEQUENCES: Final = 1.274
_FEWEST: Final = (
    10.0  # squared largest contributions that the variance of a run exceeds, so that its sum is near normal
)
_LEVEL: Final = 0.95  # level at which the note of an estimate states that it has no interval
_LEAST: Final = 1e-6  # least share of targets present that sums are divided by
_GRID: Final = 2.0 * np.arange(THRESHOLDS + 1) / THRESHOLDS - 1.0  # thresholds and the upper bound, in coded units


@lru_cache(maxsize=256)
def critical_value(level: float) -> float:
    """Return the number of standard errors from which a test at one end rejects, for intervals at ``level``.

    >>> round(critical_value(0.95), 2)
    2.5
    """
    single = quantile_of(level)
    return max(NormalDist().inv_cdf(1.0 - (1.0 - level) / 2.0 / len(RUNS)), _FOUR_SEQUENCES * single)


@dataclass(frozen=True, kw_only=True)
class QuantileEstimate(Estimate):
    """Quantiles, with intervals of candidates that no test rejects."""

    # For each quantile the largest standard errors by which a test rejects each candidate: the lower bound, what lies
    # between two thresholds, and what lies above the last; (q, t + 1).
    from_below: Floats
    from_above: Floats

    def ends(self, level: float = 0.95) -> tuple[Floats, Floats]:
        """Return the ends of the intervals; the bounds of the range where no test rejects the first or last one."""
        if not self.n_releases:
            return np.full(len(self.names), -math.inf), np.full(len(self.names), math.inf)
        critical = critical_value(level)
        # Candidate j lies between the thresholds j - 1 and j; the first one is the lower bound itself.
        first = np.argmax(self.from_below <= critical, axis=1)
        last = THRESHOLDS - np.argmax(self.from_above[:, ::-1] <= critical, axis=1)
        low, high = _GRID[np.maximum(first - 1, 0)], _GRID[last]
        nothing = (first == 0) & (last == THRESHOLDS)
        low, high = np.minimum(low, self.values), np.maximum(high, self.values)
        return np.where(nothing, -math.inf, low), np.where(nothing, math.inf, high)

    def half_widths(self, level: float = 0.95) -> Floats:
        """Return the larger distance from the estimate to an end of its interval."""
        super().half_widths(level)  # checks the level
        low, high = self.ends(level)
        return np.maximum(high - self.values, self.values - low)


def quantiles_of(
    settings: Settings, totals: Totals, statistics: Mapping[str, Statistics], partitions: int
) -> QuantileEstimate:
    """Return quantiles of people with a target in [-1, 1]."""
    names, count = settings.names, sum(number for number, _ in totals.values())
    unknown = np.full(len(names), math.inf)
    whole = combined(totals, statistics)
    if whole is None:
        none = np.zeros((len(names), THRESHOLDS + 1))
        return QuantileEstimate(
            names,
            np.zeros(len(names)),
            METHOD,
            unknown,
            "no release yet",
            partitions,
            0,
            from_below=none,
            from_above=none,
        )
    counts: dict[str, Floats] = {}
    below, above, weights = np.zeros(THRESHOLDS), np.zeros(THRESHOLDS), np.zeros(THRESHOLDS)
    for level, (number, sums) in totals.items():
        each = _thresholds(statistics[level])
        if number:
            counts[level], shares = each.shares(np.array(sums, dtype=np.float64))
            below += shares[:, 0] / each.variance
            above += shares[:, 1] / each.variance
            weights += counts[level] / each.variance
    absent, error = 0.0, 0.0
    if settings.missing:
        absent, error = float(whole.values[-1]), math.sqrt(max(float(whole.covariance[-1, -1]), 0.0))
    # Of people with a target; thresholds without answers have no weight.
    rate = np.divide(below, weights, out=np.zeros(THRESHOLDS), where=weights > 0.0) / max(1.0 - absent, _LEAST)
    distribution = np.append(np.clip(_rising(rate, weights), 0.0, 1.0), 1.0)
    tests = [_tests(q, (1.0 - q) * below - q * above, counts, statistics) for q in settings.quantiles]
    missing = surely_missing(absent, error)
    whose = "rows" if settings.rows > 1 else "people"
    note = f"of {whose} with a target" if settings.missing else "the task states that every person has a target"
    note += "; for every distribution, to the grid of 1/64 of the range; up to a bound of it where no test rejects"
    from_below, from_above = (np.array([each[side] for each in tests]) for side in range(2))
    if max(from_below.max(), from_above.max()) <= critical_value(_LEVEL):
        note = "none: so far noise hides on which side of a quantile any threshold lies"
    elif missing:
        note += missing_note(settings, missing)
    return QuantileEstimate(
        names,
        np.array([_quantile(distribution, q) for q in settings.quantiles]),
        METHOD,
        unknown,
        note,
        partitions,
        count,
        absent=missing,
        from_below=from_below,
        from_above=from_above,
    )


def _thresholds(statistics: Statistics) -> Thresholds:
    assert isinstance(statistics, Thresholds)
    return statistics


def _tests(
    q: float, sums: Floats, counts: Mapping[str, Floats], statistics: Mapping[str, Statistics]
) -> tuple[Floats, Floats]:
    """Return the largest number of standard errors by which runs of answers, after and before a candidate, reject it.

    ``sums`` are those of D at each threshold, weighted by inverse variance.
    """
    variance, largest = np.zeros(THRESHOLDS), 0.0
    for level, numbers in counts.items():
        each = _thresholds(statistics[level])
        of_one, extreme = null_variance(q, each)
        variance += numbers * of_one / each.variance**2
        largest = max(largest, extreme / each.variance)
    total, spread = (np.concatenate([[0.0], np.cumsum(values)]) for values in (sums, variance))
    indices = np.arange(THRESHOLDS + 1)
    from_below, from_above = np.full(THRESHOLDS + 1, -math.inf), np.full(THRESHOLDS + 1, -math.inf)
    for length in RUNS:
        after, before = np.minimum(indices + length, THRESHOLDS), np.maximum(indices - length, 0)
        # All thresholds of a run are on the candidate's side of the range.
        for ratios, start, stop, sign in ((from_below, indices, after, -1.0), (from_above, before, indices, 1.0)):
            squares = spread[stop] - spread[start]
            enough = squares > _FEWEST * largest**2
            z = sign * (total[stop] - total[start]) / np.sqrt(np.where(enough, squares, 1.0))
            np.maximum(ratios, np.where(enough, z, -math.inf), out=ratios)
    return from_below, from_above


def null_variance(q: float, statistics: Thresholds) -> tuple[float, float]:
    """Return the largest variance of D from one release where its mean is 0, and a release's largest honest part of D.

    The variance is linear in the share of missing targets, so that it is largest if none or all are missing.
    """
    mechanism = statistics.inner.mechanism
    k = statistics.mechanism.dimension - 1
    weights = np.zeros(k)
    weights[:2] = 1.0 - q, -q
    at = [np.append([q, 1.0 - q], np.zeros(k - 2))] + [np.eye(k)[2]] * (k == 3)
    variance = max(float(weights @ mechanism.covariance(shares) @ weights) for shares in at)
    # Gaussian noise is normal in itself; a subset's indicators are as far apart as its gain makes them.
    return variance, max(q, 1.0 - q) * (1.0 if isinstance(mechanism, SimplexGaussian) else 1.0 / mechanism.gain)


def _rising(values: Floats, weights: Floats) -> Floats:
    """Return the weighted least-squares fit that does not fall (pool adjacent violators); weights may be 0."""
    blocks: list[tuple[float, float, int]] = []
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and (blocks[-1][1] == 0.0 or blocks[-2][1] == 0.0 or blocks[-2][0] >= blocks[-1][0]):
            (a, u, i), (b, v, j) = blocks[-2:]
            blocks[-2:] = [((u * a + v * b) / (u + v) if u + v else a, u + v, i + j)]
    return np.repeat([value for value, _, _ in blocks], [size for _, _, size in blocks])


def _quantile(distribution: Floats, q: float) -> float:
    """Return the q-quantile of a distribution function on the grid, linear between thresholds."""
    index = int(np.argmax(distribution >= q))
    if not index:
        return float(_GRID[0])
    low, high = distribution[index - 1], distribution[index]
    return float(_GRID[index - 1] + (q - low) / (high - low) * (_GRID[index] - _GRID[index - 1]))
