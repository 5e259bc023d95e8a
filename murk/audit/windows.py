"""Neighbouring windows of a task of summaries, and the distribution of their sketches.

Second moments have the distribution of a Gaussian mechanism, so that only the windows' distance matters. Given noise of
variance s^2 (in units of C^2), the rows of a sketch are independent normals with covariance G + s^2 I, G = Z'Z. Zeroing
out a row x reduces G by x x', so the distributions differ in one direction only, with a ratio of variances of 1 + x'(G
- x x' + s^2 I)^{-1} x. If s depends on the released eigenvalue, its privacy loss is added.
"""

import itertools
import math
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from scipy.optimize import brentq
from scipy.special import chdtr, chdtrc, log_ndtr

from murk._internal.arrays import Floats
from murk.audit.neighbours import Box
from murk.privacy.central import LEAST_SPREAD, GaussMixMechanism, GramMechanism, Neighbours, NewtonMechanism, Sketch
from murk.protocols.summaries.device import WindowDevice
from murk.task.task import Task

_DESIGN = 64
_SCALES = (0.02, 0.1, 0.3, 0.6, 1.0, 1.4, 2.0)
_GRID = np.linspace(-8.5, 8.5, 1201)


@dataclass(frozen=True)
class Windows:
    """Two windows of equal size that differ in one row, as rows (n, p + 1) in units of the data."""

    first: Floats = field(repr=False)
    second: Floats = field(repr=False)
    epsilon: float | None = None  # exact epsilon of their sketches at the claimed delta; None for replaced rows
    place: str = ""  # which row differs, in words, if that matters

    @property
    def pair(self) -> tuple[Floats, Floats]:
        """Both windows."""
        return self.first, self.second

    @property
    def description(self) -> str:
        """The two windows in words."""
        return f"windows of {len(self.first)} records, one record of which is zeroed out or replaced{self.place}"


@dataclass(frozen=True)
class SketchDistribution:
    """Joint distribution of spread and sketch of a window."""

    mechanism: GaussMixMechanism
    gram: Floats

    @classmethod
    def of(cls, mechanism: GaussMixMechanism, rows: Floats) -> Self:
        """Return the distribution for a window of rows."""
        return cls(mechanism, rows.T @ rows / mechanism.bound**2)

    @property
    def centre(self) -> float:
        """Mean of the noisy eigenvalue, in units of C^2."""
        return float(np.linalg.eigvalsh(self.gram)[0]) - self.mechanism.eta * self.mechanism.tau

    def log_density(self, sketch: Sketch) -> float:
        """Return the log density of a sketch, up to a constant that is equal for all windows."""
        rows = self.mechanism.decode(sketch.integers, sketch.spread) / self.mechanism.bound
        covariance = self.gram + sketch.spread**2 * np.eye(len(self.gram))
        _, log_size = np.linalg.slogdet(covariance)
        square = float(np.sum(rows * np.linalg.solve(covariance, rows.T).T))
        return -(square + len(rows) * float(log_size)) / 2.0 + self._of_spread(sketch.spread)

    def _of_spread(self, spread: float) -> float:
        mechanism = self.mechanism
        if not mechanism.releases_eigenvalue:
            return 0.0
        if spread >= mechanism.largest_spread:
            return float(log_ndtr(-self.centre / mechanism.eta))
        if spread <= LEAST_SPREAD * (1 + 1e-9):
            return float(log_ndtr((self.centre - mechanism.g) / mechanism.eta))
        value = (mechanism.g - spread**2 - self.centre) / mechanism.eta
        return -value * value / 2.0


def worst_windows(task: Task, device: WindowDevice, mechanism: GaussMixMechanism) -> Windows:
    """Search for the neighbouring windows whose sketches have the largest privacy loss.

    Candidates are a window of one record, and balanced windows of records at the corners of the box. The balanced
    windows have sizes at which the eigenvalue saves little or all of the noise, and differ in the record that most
    affects the eigenvalue.
    """
    rows = _corners(task, device)
    norms = np.linalg.norm(rows, axis=1)
    longest = rows[int(np.argmax(norms))]
    pairs = [(longest[None, :], np.zeros((1, rows.shape[1])))]
    if mechanism.releases_eigenvalue:
        least = max(float(np.linalg.eigvalsh(rows.T @ rows)[0]), 1e-9) / mechanism.bound**2
        most = (task.of_organisations and task.block.window) or mechanism.largest_window
        for scale in _SCALES:
            times = math.ceil(scale * (mechanism.g + mechanism.eta * mechanism.tau) / least)
            if times * len(rows) <= min(most, 2**16):
                pairs.append(_zeroed(np.tile(rows, (times, 1))))
    delta = mechanism.stated.delta
    epsilon, number = max((_epsilon(mechanism, *pair, delta), number) for number, pair in enumerate(pairs))
    first, second = pairs[number]
    if mechanism.neighbours == "zero-out":
        return Windows(first, second, epsilon)
    # Replace the row by a corner that the other rows hide least and that is least aligned with it.
    distribution = SketchDistribution.of(mechanism, second)
    index = _different_row(first, second)
    noisy = distribution.gram + mechanism.spread(max(distribution.centre, 0.0)) ** 2 * np.eye(rows.shape[1])
    inverse = np.linalg.inv(noisy)
    seen, cross = np.einsum("ij,jk,ik->i", rows, inverse, rows), rows @ inverse @ first[index]
    second = second.copy()
    second[index] = rows[int(np.argmax(seen - np.abs(cross)))]
    return Windows(first, second)


def worst_steps(task: Task, device: WindowDevice, mechanism: NewtonMechanism) -> Windows:
    """Return neighbouring windows that differ in a record of the step, after a first part of blank records."""
    rows = _corners(task, device)
    # Take rows at a model of zeros, where their weights are largest.
    seen = np.column_stack([rows[:, :-1] / 2.0, rows[:, -1] * mechanism.step.target_weight])
    first_record, other = _furthest(rows, seen, mechanism.neighbours)
    blank = np.zeros((mechanism.first, mechanism.columns))
    where = ": the last one, which is in the step"
    return Windows(np.vstack([blank, first_record]), np.vstack([blank, other]), place=where)


def worst_grams(task: Task, device: WindowDevice, mechanism: GramMechanism) -> Windows:
    """Return neighbouring windows with second moments furthest apart: of one row each, as common rows cancel."""
    rows = _corners(task, device)
    even = rows.copy()
    even[:, -1] *= mechanism.target_weight
    return Windows(*_furthest(rows, even, mechanism.neighbours))


def _furthest(rows: Floats, even: Floats, neighbours: Neighbours) -> tuple[Floats, Floats]:
    """Return the two rows (1, d) whose outer products are furthest apart; with "zero-out" the second is zeros.

    ``even`` are the rows in coordinates in which the noise is isotropic.
    """
    squares = np.einsum("ij,ij->i", even, even)
    if neighbours == "zero-out":
        longest = rows[int(np.argmax(squares))]
        return longest[None, :], np.zeros((1, rows.shape[1]))
    apart = squares[:, None] ** 2 + squares[None] ** 2 - 2.0 * (even @ even.T) ** 2
    first, other = np.unravel_index(int(np.argmax(apart)), apart.shape)
    return rows[first][None, :], rows[other][None, :]


def _corners(task: Task, device: WindowDevice) -> Floats:
    """Return rows of records at the corners of the box: all of them, or a sample."""
    box = Box.of(task)
    options = [choices[:-1] for choices in box.choices]
    if math.prod(map(len, options)) <= _DESIGN:
        rows = [list(row) for row in itertools.product(*options)]
    else:
        rng = np.random.default_rng(0)
        count = max(_DESIGN, 4 * (task.coding.size + 1))
        rows = [[choices[rng.integers(len(choices))] for choices in options] for _ in range(count)]
    return device.records(*box.coded(task, rows))


def _zeroed(rows: Floats) -> tuple[Floats, Floats]:
    """Return a window, and a copy in which the record that most affects the least eigenvalue is zero."""
    _, vectors = np.linalg.eigh(rows.T @ rows)
    index = int(np.argmax(np.abs(rows @ vectors[:, 0])))
    second = rows.copy()
    second[index] = 0.0
    return rows, second


def _epsilon(mechanism: GaussMixMechanism, first: Floats, second: Floats, delta: float) -> float:
    """Return the exact epsilon at delta of a window against one with a row zeroed out, by quadrature."""
    first_law, other = SketchDistribution.of(mechanism, first), SketchDistribution.of(mechanism, second)
    row = first[_different_row(first, second)] / mechanism.bound

    def threshold(spread: float) -> float:
        seen = float(row @ np.linalg.solve(other.gram + spread**2 * np.eye(len(row)), row))
        return (1 + seen) / seen

    # Pieces of the spread's distribution: the probabilities under both windows, and the sketch's ``g`` in `_delta`.
    if mechanism.releases_eigenvalue:
        eta, g = mechanism.eta, mechanism.g
        edges = np.unique(np.clip(np.concatenate([first_law.centre + eta * _GRID, other.centre + eta * _GRID]), 0.0, g))
        middles = (edges[1:] + edges[:-1]) / 2
        thresholds = np.array([threshold(mechanism.spread(u)) for u in (0.0, *middles, g)])
        shares = [_masses(distribution.centre, eta, edges) for distribution in (first_law, other)]
    else:
        thresholds, shares = np.array([threshold(mechanism.spread(0.0))]), [np.ones(1), np.ones(1)]
    kept = (shares[0] > 1e-18) & (shares[1] > 1e-18)
    (p, q), g_here = (share[kept] for share in shares), thresholds[kept]
    lost = max(1.0 - float(p.sum()), 1.0 - float(q.sum()), 0.0)
    gain, k = np.log(p) - np.log(q), mechanism.rows

    def excess(epsilon: float) -> float:
        there = float(np.sum(p * _delta(epsilon - gain, g_here, k)))
        back = float(np.sum(q * _delta_back(epsilon + gain, g_here, k)))
        return max(there, back) + lost - delta

    if excess(0.0) <= 0.0:
        return 0.0
    return float(brentq(excess, 0.0, 4 * mechanism.stated.epsilon + 50.0, xtol=1e-9))


def _different_row(first: Floats, second: Floats) -> int:
    return int(np.argmax(np.any(first != second, axis=1)))


def _masses(centre: float, eta: float, edges: Floats) -> Floats:
    """Return probabilities of a normal eigenvalue below the first edge, between edges, and above the last."""
    tails = np.exp(log_ndtr((centre - edges) / eta))
    heads = np.exp(log_ndtr((edges - centre) / eta))
    between = np.where(edges[:-1] > centre, tails[:-1] - tails[1:], heads[1:] - heads[:-1])
    return np.concatenate([heads[:1], between, tails[-1:]])


def _delta(epsilon: Floats, g: Floats, k: int) -> Floats:
    """Return the delta at which k rows of N(0, g) and N(0, g - 1) are indistinguishable at epsilon, of any sign."""
    cut = np.maximum(0.0, (epsilon - k / 2 * np.log1p(-1 / g)) * 2 * g * (g - 1))
    delta: Floats = chdtrc(k, cut / g) - np.exp(epsilon) * chdtrc(k, cut / (g - 1))
    return np.maximum(delta, 0.0)


def _delta_back(epsilon: Floats, g: Floats, k: int) -> Floats:
    """Return the delta at which k rows of N(0, g - 1) and N(0, g) are indistinguishable at epsilon."""
    cut = np.maximum(0.0, (-epsilon - k / 2 * np.log1p(-1 / g)) * 2 * g * (g - 1))
    delta: Floats = chdtr(k, cut / (g - 1)) - np.exp(epsilon) * chdtr(k, cut / g)
    return np.maximum(delta, 0.0)
