"""Gaussian noise on the position of a category, or of a bounded number, in a simplex."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Floats, Integers
from murk._internal.wiping import copied, empty, track, wiped
from murk.errors import UserError
from murk.privacy.guarantees import Guarantee
from murk.privacy.mechanisms.base import TAIL, WIDTH, Wrapped
from murk.privacy.mechanisms.gaussian import GaussianMechanism
from murk.privacy.mechanisms.lattice import PayloadBound, gaussian_square

if TYPE_CHECKING:
    from murk.privacy.noise import NoiseSource

_ERROR_CODE = "MURK-PRIVACY-001"


@dataclass(frozen=True)
class SimplexGaussian(Wrapped):
    r"""Gaussian noise on a point of the simplex whose k vertices are ``height`` times the unit vectors.

    Two vertices are :math:`\sqrt 2` heights apart, and no two points are farther. So the guarantee allows the height
    :math:`\lfloor \sqrt 2\, \text{steps} \rfloor`, an integer number of lattice steps. A category is a vertex, a
    bounded number a point between the first two, and a missing value the last vertex.

    Parameters
    ----------
    noise
        Gaussian mechanism of dimension k, whose ``steps`` determine the height.

    Examples
    --------
    >>> from murk.privacy import GaussianDP
    >>> round(SimplexGaussian.calibrate(GaussianDP(1.0), vertices=3).variance, 3)
    2.0
    """

    noise: GaussianMechanism  # of dimension k

    @property
    def vertices(self) -> int:
        """Number k of vertices."""
        return self.noise.dimension

    @property
    def height(self) -> int:
        """Length of a vertex in lattice steps."""
        return math.isqrt(2 * self.noise.steps**2)

    @property
    def unit(self) -> float:
        """Factor that decodes a payload."""
        return 1.0 / self.height

    @property
    def variance(self) -> float:
        """Noise variance of each coordinate, 2 / mu^2."""
        return (WIDTH / self.height) * (WIDTH / self.height)

    @property
    def magnitude(self) -> int:
        """Bound on each integer of an honest payload, exceeded with probability below 1e-30."""
        return self.height + TAIL * WIDTH

    @property
    def payload_bound(self) -> PayloadBound:
        """Bound on an honest payload's norm; a longer one is forged."""
        return PayloadBound(((0, self.vertices, gaussian_square(self.vertices, self.height)),))

    def points(self, vectors: npt.ArrayLike) -> Integers:
        """Return the integer points of positions (m, 1): vertices by number, and numbers between 0 and 1 in between."""
        rows = copied(vectors)
        if rows.ndim != 2 or rows.shape[1] != 1:
            raise UserError(f"positions in a simplex need an array of shape (m, 1), got {rows.shape}")
        index = track(np.clip(np.nan_to_num(rows[:, 0]), 0.0, self.vertices - 1.0))
        whole = track(np.floor(index).astype(np.int64))
        part = track(np.rint((index - whole) * self.height).astype(np.int64))
        out = empty((len(rows), self.vertices), np.int64)
        out.fill(0)
        at = np.arange(len(rows))
        out[at, np.minimum(whole + 1, self.vertices - 1)] = part
        out[at, whole] = self.height - part
        return out

    @wiped
    def randomize(self, vectors: npt.ArrayLike, noise: NoiseSource, records: npt.ArrayLike) -> Integers:
        """Randomize m positions (m, 1) into payloads, int64 of shape (m, k)."""
        indices = np.asarray(records, dtype=np.int64)
        points = self.points(vectors)
        if indices.shape != (len(points),):
            raise UserError(f"{len(points)} positions need as many record indices, got shape {indices.shape}")
        return np.asarray(points + noise.gaussian(indices, self.vertices), dtype=np.int64)

    @wiped
    def randomize_means(
        self, vectors: npt.ArrayLike, counts: Integers, noise: NoiseSource, records: npt.ArrayLike
    ) -> Integers:
        """Randomize the mean of each person's positions (m, 1), grouped by person; ``counts`` (n,) are the group sizes.

        The mean is rounded to an integer point of the simplex, in which no two points are farther apart than vertices.
        """
        points, indices = self.points(vectors), np.asarray(records, dtype=np.int64)
        if counts.ndim != 1 or counts.sum() != len(points) or (counts < 1).any() or indices.shape != counts.shape:
            raise UserError(
                f"{len(points)} positions do not fit {len(indices)} people with {counts.tolist()} positions each"
            )
        sums = track(np.add.reduceat(points, np.cumsum(counts) - counts, axis=0))
        means = track(sums // counts[:, None])
        # Rounding down leaves some steps; they go to the largest remainders.
        order = np.argsort(track(means * counts[:, None] - sums), axis=1, kind="stable")
        left = self.height - means.sum(axis=1)
        more = np.take_along_axis(means, order, axis=1) + (np.arange(self.vertices) < left[:, None])
        np.put_along_axis(means, order, track(more), axis=1)
        return np.asarray(means + noise.gaussian(indices, self.vertices), dtype=np.int64)

    def decode(self, payload: npt.ArrayLike) -> Floats:
        """Return unbiased estimates (m, k) of the points, as shares of the vertices that add up to 1."""
        shares = np.multiply(payload, self.unit, dtype=np.float64)
        return np.asarray(shares + (1.0 - shares.sum(axis=1, keepdims=True)) / self.vertices)

    def covariance(self, shares: Floats) -> Floats:
        """Return the covariance of one release's estimate of the indicators, given the categories' shares (k,)."""
        noise = self.variance * (np.eye(self.vertices) - 1.0 / self.vertices)
        return np.asarray(noise + np.diag(shares) - np.outer(shares, shares))

    def holds(self, payload: Integers) -> bool:
        """Return whether no payload (m, k) is longer than a vertex and honest noise can make it."""
        return self.payload_bound.holds_all(payload)

    def to_dict(self) -> dict[str, Any]:
        """Return the public parameters, including derived ones, as plain data."""
        data = {"kind": self.kind, "vertices": self.vertices, "height": self.height, "variance": self.variance}
        return {**data, "guarantee": self.guarantee.to_dict()}

    @classmethod
    def calibrate(cls, guarantee: Guarantee, *, vertices: int) -> SimplexGaussian:
        """Return the mechanism with the least noise that has ``guarantee``."""
        return cls(GaussianMechanism.calibrate(guarantee, dimension=vertices, radius=1.0))
