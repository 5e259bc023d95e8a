"""Mechanisms of moments: one for all of them, or the paper's two."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from murk import privacy
from murk._internal.arrays import Floats, Integers
from murk._internal.wiping import copied, empty, wiped
from murk.errors import UserError
from murk.privacy.guarantees import ApproxDP, Guarantee, PureDP
from murk.privacy.mechanisms import BEST, GaussianMechanism, calibrate
from murk.privacy.mechanisms.base import DirectionMechanism, Randomizer, RoundedGaussian, check_room, direction_spread
from murk.privacy.mechanisms.costs import is_pure
from murk.privacy.noise import NoiseSource
from murk.protocols.moments import kernels
from murk.protocols.moments.statistics import Statistics

_ERROR_CODE = "MURK-LEARN-001"

WHOLE: Final = ("observed", "joint")  # Releases of all moments by one mechanism


@dataclass(frozen=True)
class MomentMechanism(RoundedGaussian):
    """Gaussian noise on moments, calibrated to their joint sensitivity D.

    Calibrating noise to twice the bound on the vectors' norm, instead of D, would take 1.22 times the noise for
    ``b = sqrt 2 r``, and sqrt 2 times for small b. So this mechanism computes a *record* from any vector, projects it
    into the task's bounds and computes its moments again. Two such vectors are at most D apart, and at most ``D/g +
    sqrt d`` lattice steps of width g when truncated; ``g = D / (2 steps - sqrt d - 2)`` keeps this distance within the
    ``2 steps`` of the guarantee of ``noise`` (one step is left for rounding). Raises UserError if the budget is too
    small for the lattice. Source: Wang, Zhang, Gaboardi, Xu (docs/public-glm.md), Algorithms 1 to 4.
    """

    statistics: Statistics
    noise: GaussianMechanism

    def __post_init__(self) -> None:
        if self.noise.dimension != self.statistics.dimension:
            raise UserError(
                f"moments have {self.statistics.dimension} numbers, but the noise is for {self.noise.dimension}"
            )
        check_room(self.noise, self._sensitivity_steps, "moments")

    @property
    def sensitivity(self) -> float:
        """Largest distance between two records' moments."""
        return self.statistics.sensitivity

    @property
    def _steps(self) -> int:
        return math.ceil(self.statistics.norm / self.unit)

    @wiped
    def randomize(self, vectors: npt.ArrayLike, noise: NoiseSource, records: npt.ArrayLike) -> Integers:
        """Randomize m vectors of moments (m, d) into payloads, int64 of shape (m, d)."""
        rows = copied(vectors)
        indices = np.asarray(records, dtype=np.int64)
        if rows.ndim != 2 or rows.shape[1] != self.dimension or indices.shape != (len(rows),):
            raise UserError(
                f"moments of shape (m, {self.dimension}) need m record indices, got {rows.shape} and {indices.shape}"
            )
        layout, out = self.statistics, np.empty(rows.shape, dtype=np.int64)
        drawn = noise.gaussian(indices, self.dimension)
        kernels.randomize_block(rows, layout.size, layout.bounds, self.unit, drawn, out)
        return out

    @wiped
    def randomize_means(
        self, vectors: npt.ArrayLike, counts: Integers, noise: NoiseSource, records: npt.ArrayLike
    ) -> Integers:
        """Randomize the mean of each person's vectors; ``vectors`` has ``counts[i]`` rows of person i after i - 1's.

        Means of records' moments are in the convex hull of these, in which no two points are farther apart than two
        records' moments: the sensitivity is that of one record.
        """
        rows = copied(vectors)
        indices = np.asarray(records, dtype=np.int64)
        if rows.ndim != 2 or rows.shape[1] != self.dimension or indices.shape != counts.shape:
            raise UserError(
                f"moments of shape (m, {self.dimension}) need an index for each person, got {rows.shape} and "
                f"{indices.shape}"
            )
        if counts.ndim != 1 or counts.sum() != len(rows) or (counts < 1).any():
            raise UserError(
                f"counts={counts.tolist()} must be at least 1 each and sum to the {len(rows)} vectors of moments"
            )
        layout, means = self.statistics, empty((len(counts), self.dimension), np.int64)
        kernels.average_block(rows, counts, layout.size, layout.bounds, self.unit, means)
        return np.asarray(means + noise.gaussian(indices, self.dimension), dtype=np.int64)

    def decode(self, payload: npt.ArrayLike) -> Floats:
        """Decode payloads (m, d) into unbiased estimates (m, d): unit times payload."""
        rows = np.asarray(payload)
        if rows.ndim != 2 or rows.shape[1] != self.dimension or rows.dtype.kind not in "iu":
            raise UserError(f"payloads must be integers of shape (m, {self.dimension}), got {rows.dtype} {rows.shape}")
        return np.asarray(self.unit * rows.astype(np.float64))

    def to_dict(self) -> dict[str, Any]:
        """Return the public and derived parameters as plain data."""
        layout = {"radius": self.statistics.radius, "weight": self.statistics.weight, "sensitivity": self.sensitivity}
        noise = {"steps": self.noise.steps, "variance": self.variance, "guarantee": self.guarantee.to_dict()}
        return {"kind": self.kind, "dimension": self.dimension} | layout | noise


def calibrated(
    guarantee: Guarantee,
    statistics: Statistics,
    *,
    release: str = "joint",
    kind: str | None = None,
    method: str = "analytic",
) -> Randomizer:
    """Return the mechanism with which a release of moments has ``guarantee``.

    ``"observed"`` and ``"joint"`` releases have one mechanism for all moments. ``"separate"`` ones are the paper's:
    Gaussian noise on ``x x'`` and on ``x y``, each with half the budget, for the sensitivities ``2 r^2`` and ``2 b r``.
    ``kind`` None or ``"best"`` selects the kind with the least variance. ``method="classic"`` is the textbook's
    calibration, with which separate releases have the paper's variances, ``32 log(2.5/delta) / eps^2`` times r^4 and
    r^2. Raises UserError if the mechanism cannot give the guarantee.
    """
    if release in WHOLE:
        if kind == "gaussian" or (kind in (None, BEST) and not is_pure(guarantee)):
            half = statistics.sensitivity / 2.0
            noise = calibrate("gaussian", guarantee, dimension=statistics.dimension, radius=half, method=method)
            assert isinstance(noise, GaussianMechanism)
            gaussian = MomentMechanism(statistics, noise)
            return gaussian if kind == "gaussian" or method != "analytic" else _better(gaussian, guarantee)
        return calibrate(kind, guarantee, dimension=statistics.dimension, radius=statistics.norm, method=method)
    if release != "separate":
        raise UserError(f'release={release!r} is not one of "observed", "joint", "separate"')
    if kind not in (None, BEST, "gaussian"):
        raise UserError(
            f"two separate releases of moments need Gaussian noise, not {kind!r}; use release='joint' or 'observed'"
        )
    sizes, bounds = (statistics.cross, statistics.size), (statistics.radius**2, statistics.weight * statistics.radius)
    parts: Any = tuple(
        calibrate("gaussian", part, dimension=size, radius=bound, method=method)
        for part, size, bound in zip(
            privacy.mechanisms.divided(guarantee, 0.5, label=False), sizes, bounds, strict=True
        )
    )
    return privacy.CompositeMechanism(parts, guarantee if isinstance(guarantee, ApproxDP) else None)


def _better(own: MomentMechanism, guarantee: Guarantee) -> Randomizer:
    """Return Gaussian noise, or the best pure mechanism with the same epsilon if its variance is smaller."""
    if not isinstance(guarantee, ApproxDP) or guarantee.epsilon == 0:
        return own
    statistics = own.statistics
    pure = calibrate(BEST, PureDP(guarantee.epsilon), dimension=statistics.dimension, radius=statistics.norm)
    return pure if _noise(pure, statistics) < 0.99 * own.variance else own


def _noise(mechanism: Any, statistics: Statistics) -> float:
    """Return the variance of a coordinate, to compare mechanisms; for directions of joint releases its mean square."""
    if statistics.observed:
        return float(mechanism.variance)
    return float(max(mechanism.second_moment) if isinstance(mechanism, DirectionMechanism) else mechanism.variance)


@dataclass(frozen=True)
class Level:
    """Public facts of a mechanism that the update needs.

    ``weights`` and ``variances`` are for the means of ``x x'`` and of ``x y``; weights are
    ``1 / (noise variance + spread of the moments)``. The noise variance of directions is their mean square in the worst
    coordinate. In an ``observed`` layout all means are divided by the same share of targets. So both weights are equal,
    and ``variances`` are the noise variance across a vector's direction and its excess along that direction (0 for
    mechanisms without directions).
    """

    ball: bool  # whether a release is a direction (l2 ball, PrivUnit)
    units: Floats
    weights: tuple[float, float]
    variances: tuple[float, float]

    @classmethod
    def of(cls, mechanism: Any, statistics: Statistics) -> Level:
        """Return the level of a mechanism from :func:`calibrated`."""
        d, cross = statistics.dimension, statistics.cross
        ball = isinstance(mechanism, DirectionMechanism)
        if isinstance(mechanism, privacy.CompositeMechanism):
            units, noise = mechanism.units, mechanism.variances
        else:
            units, noise = np.full(d, mechanism.unit), np.full(d, _noise(mechanism, statistics))
        if statistics.observed:
            across, along = direction_spread(mechanism)
            weight = 1.0 / (float(noise[0]) + statistics.norm**2 / d)
            return cls(ball, units, (weight, weight), (across, along or 0.0))
        # Largest variance without noise: for each coordinate, its share of the squared norm.
        spreads = (statistics.radius**4 / cross, (statistics.weight * statistics.radius) ** 2 / statistics.size)
        variances = (float(noise[0]), float(noise[cross]))
        weights = (1.0 / (variances[0] + spreads[0]), 1.0 / (variances[1] + spreads[1]))
        return cls(ball, units, weights, variances)
