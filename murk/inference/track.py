r"""Estimates by window, and a smoothed path, with bands that hold over all windows at once.

A release states its window. For k windows with estimates e_w and standard errors s_w, the band

.. math:: e_w \pm z\,s_w, \qquad z = \Phi^{-1}\{(1 + (1 - a)^{1/k}) / 2\},

holds the truths of all windows together with probability 1 - a at least, *however the windows are correlated*: the
estimates are jointly normal, and rectangles of normal vectors have at least the probability of independent ones
(Sidak). So it does not matter who answered in which windows. Within a window answers are of different people; if a
cap allows one person several answers in a window, standard errors are widened as `Repeats` says.

The path at window t is the estimate from the answers of the windows t - h to t + h together. It estimates a quantity of
all people of these windows, with equal weights of answers: for shares and means the mean of the windows' truths, for a
model the fit to all of them. So its band needs no allowance for bias, but does not cover movements within 2 h + 1
windows. Noise is independent from window to window, and a person answers in up to m of these windows, so the variance
is at most the factor (v + m) / (v + 1) of `murk.task.windows` times that of answers of different people.

If the bands at level ``1 - 0.01 / p`` of one of p coefficients have no number in common, the coefficient is reported as
changed. At one look at an unchanging stream this happens with a probability of at most 1%, however often each person
answers.

Source: Sidak, "Rectangular confidence regions for the means of multivariate normal distributions", 1967.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from murk._internal.arrays import Floats
from murk.inference.drift import FALSE_ALARM
from murk.inference.estimate import Estimate
from murk.inference.levels import level_of
from murk.inference.units import Unit
from murk.task.windows import begin_of, many_of


def simultaneous_level(level: float, windows: int) -> float:
    """Return the level of each of some windows' intervals at which all hold together with probability ``level``.

    >>> round(simultaneous_level(0.95, 10), 5)
    0.99488
    """
    return float(level ** (1.0 / max(windows, 1)))


@dataclass(frozen=True)
class Path:
    """Estimates with half-widths of a band over all windows, (k, p); NaN and infinite if a window has no estimate."""

    values: Floats
    half_widths: Floats


@dataclass(frozen=True)
class Track:
    """Estimates of single windows and the smoothed path, in coded units."""

    window: str  # the length of a window, as the task states it
    names: tuple[str, ...]
    numbers: tuple[int, ...]  # numbers of the windows, ascending
    releases: tuple[int, ...]  # number of releases in each window
    level: float
    smooth: int
    alone: Path
    path: Path  # estimates of windows together with their neighbours
    changed: tuple[str, ...] = ()  # coefficients that changed between windows, with at most 1% of false alarms a look

    @property
    def begins(self) -> tuple[str, ...]:
        """The first day of each window."""
        return tuple(begin_of(self.window, number).isoformat() for number in self.numbers)

    def words(self, units: Mapping[str, Unit]) -> str:
        """Return what the bands hold, in a sentence or two, with coefficients named by their units.

        >>> import numpy as np
        >>> none = Path(np.zeros((2, 1)), np.zeros((2, 1)))
        >>> Track("week", ("intercept",), (7, 8), (90, 80), 0.95, 2, none, none).words({}).partition(". ")[0]
        'At one look bands hold each number in all 2 weeks at once with a probability of 95%'
        """
        moved = ""
        if self.changed:
            labels = ", ".join(units[name].label if name in units else name for name in self.changed)
            moved = f" Not the same in all windows, with {FALSE_ALARM:.0%} of false alarms a look: {labels}."
        together = f"in all {many_of(self.window, len(self.numbers))} at once"
        words = f"At one look bands hold each number {together} with a probability of {100.0 * self.level:g}%"
        if not self.smooth:
            return f"{words}.{moved}"
        sides = many_of(self.window, self.smooth)
        return (
            f"{words}. The smoothed path is of the answers of {sides} before to {sides} after together, and so is its "
            f"band: what moves faster shows in single windows only.{moved}"
        )

    def to_dict(self, units: Mapping[str, Unit]) -> dict[str, Any]:
        """Return plain data: lists over windows, for coefficients by name and in their units (coded without one)."""
        return {
            "window": self.window,
            "begins": list(self.begins),
            "releases": list(self.releases),
            "level": self.level,
            "smooth": self.smooth,
            "changed": list(self.changed),
            "words": self.words(units),
            "coefficients": {
                name: {
                    "unit": units[name].label if name in units else None,
                    "windows": _column(self.alone, column, units.get(name)),
                    "path": _column(self.path, column, units.get(name)),
                }
                for column, name in enumerate(self.names)
            },
        }


def _column(path: Path, column: int, unit: Unit | None) -> dict[str, list[float]]:
    factor, shift = (1.0, 0.0) if unit is None else (unit.factor, unit.shift)
    values, halves = path.values[:, column] * factor + shift, path.half_widths[:, column] * abs(factor)
    return {"values": values.tolist(), "half_widths": halves.tolist()}


def track_of(
    window: str,
    smooth: int,
    alone: Mapping[int, Estimate],
    pooled: Mapping[int, Estimate],
    *,
    level: float = 0.95,
    within: int = 1,
    most: int = 1,
    effect: Callable[[int], float] = float,
) -> Track | None:
    """Return the track of the estimates of windows alone, and of those with ``smooth`` neighbours to either side.

    One person may answer up to ``within`` times in a window and ``most`` times in all; ``effect`` returns the factor by
    which such a number of answers widens the variance of a sum. Returns None without a release.
    """
    numbers = sorted(number for number, each in alone.items() if each.n_releases)
    if not numbers:
        return None
    names = alone[numbers[0]].names

    def path(estimates: Mapping[int, Estimate], reach: int, level: float) -> Path:
        quantile = NormalDist().inv_cdf(0.5 + simultaneous_level(level, len(numbers)) / 2.0)
        values, halves = np.full((len(numbers), len(names)), np.nan), np.full((len(numbers), len(names)), np.inf)
        for row, number in enumerate(numbers):
            neighbours = sum(abs(other - number) <= reach for other in numbers)
            answers = min(within * neighbours, max(most, within))
            # Intervals that allow for noise in the curvature grow faster than their quantile.
            halves[row] = estimates[number].half_widths(level_of(quantile * math.sqrt(effect(answers))))
            values[row] = np.where(np.isfinite(halves[row]), estimates[number].values, np.nan)
        return Path(values, halves)

    moved = _contradicted(path(alone, 0, 1.0 - FALSE_ALARM / len(names)))
    return Track(
        window,
        names,
        tuple(numbers),
        tuple(alone[number].n_releases for number in numbers),
        level,
        smooth,
        path(alone, 0, level),
        path(pooled, smooth, level),
        tuple(name for name, moves in zip(names, moved, strict=True) if moves),
    )


def _contradicted(path: Path) -> Sequence[bool]:
    """Return for each coefficient whether no constant lies within its bands in all windows, (p,)."""
    finite = np.isfinite(path.half_widths)
    least = np.where(finite, path.values + path.half_widths, np.inf).min(axis=0)
    most = np.where(finite, path.values - path.half_widths, -np.inf).max(axis=0)
    contradicted: list[bool] = (most > least).tolist()
    return contradicted
