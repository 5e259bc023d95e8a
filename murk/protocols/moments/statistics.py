"""Second moments of a record, and the largest distance between two records' moments.

For ``||x|| <= r`` and a target scaled to ``|y| <= b`` the vector is ``(x_i^2, sqrt 2 x_i x_j for i < j, x_i y)``; with
sqrt 2, distances of vectors are those of matrices. The largest one is ``sqrt 2 (r^2 + b^2 / 2)`` if ``b^2 <= 2 r^2``,
else ``2 r b`` (maximise ``2 r^4 (1 - t^2) + 2 b^2 r^2 (1 + t)`` over the cosine t of the angle between two features).

With ``observed``, one more number is r if there is a target; else it is -r and all others are 0. Such a record is at
most ``sqrt(r^4 - 1 + b^2 r^2 + 4 r^2)`` from one with a target: no more than the sensitivity at b = sqrt 2 r, the
default, where presence needs no additional noise. Without features (r = 1) the number is sqrt 1.5 instead of r.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass, field

import numpy as np

from murk._internal.arrays import Floats
from murk._internal.wiping import copied, empty, track
from murk.errors import UserError
from murk.protocols.moments import kernels
from murk.protocols.stated import StatedCoordinates

_ERROR_CODE = "MURK-LEARN-001"

PEOPLE = 1_000_000  # Default number of people
FAILURE = 0.05  # Default probability that any of them is beyond the bound


def normal_norm_bound(
    second_moment: Floats, people: int = PEOPLE, failure: float = FAILURE, *, published: bool = False
) -> float:
    """Return a norm that any of n normal vectors with covariance S exceeds with probability at most ``failure``.

    Its square is ``tr S + 2 sqrt(tr(S^2) t) + 2 ||S|| t``, ``t = log(n / failure)`` (Hsu, Kakade and Zhang 2012);
    ``published``: the paper's larger ``5 ||S|| p t`` (Algorithm 1).

    >>> round(normal_norm_bound(np.eye(4), 1000), 2), round(normal_norm_bound(np.eye(4), 1000, published=True), 2)
    (6.03, 14.07)
    """
    t = math.log(people / failure)
    values = np.linalg.eigvalsh(second_moment)
    largest = float(values[-1])
    if published:
        return math.sqrt(5.0 * largest * len(values) * t)
    return math.sqrt(float(values.sum()) + 2.0 * math.sqrt(float(values @ values) * t) + 2.0 * largest * t)


def sensitivity(r: float, b: float) -> float:
    """Return the largest distance between two records' moments, ``||x|| <= r``, ``|y| <= b``.

    >>> round(sensitivity(1.0, 1.0), 4), sensitivity(1.0, 2.0)
    (2.1213, 4.0)
    """
    return math.sqrt(2.0) * (r * r + b * b / 2.0) if b * b <= 2.0 * r * r else 2.0 * r * b


def balanced(r: float) -> float:
    """Return the target's scale ``sqrt 2 r``: ``x y`` is as noisy as if released alone, ``x x'`` at most twice so."""
    return math.sqrt(2.0) * r


@dataclass(frozen=True)
class Statistics:
    """Layout of the entries of a release."""

    names: tuple[str, ...]  # coded features in their fixed order, the constant last if there is one
    radius: float  # r, the bound on ||x||_2, the constant included
    weight: float = 1.0  # b, the factor of a coded target in [-1, 1]
    constant: bool = True  # whether the last feature is the constant 1, whose entry 1*1 is public and not released
    root: float = math.sqrt(2.0)  # factor of off-diagonal entries: sqrt 2, or 1 as published
    zero: bool = False  # whether records beyond the bound become zero moments instead of being scaled down
    # Values, in their own units, of a coded feature of 1 and of coded targets of 1 and 0: partitions merge if equal.
    units: tuple[float, ...] = ()
    # The two fields below are hidden from the repr, as `digest` hashes the repr.
    # Whether presence of the target is released in place of 1*1; all other moments are 0 without a target.
    observed: bool = field(default=False, repr=False)
    # Coordinates of releases, if the task states any; a record beyond the radius then counts as one without a target.
    coordinates: StatedCoordinates | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        least = 1.0 if self.constant else 0.0
        if not (math.isfinite(self.radius) and self.radius > least):
            raise UserError(f"the bound on ||x|| must be finite and above {least:g}, got {self.radius!r}")
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise UserError(f"the target's scale must be positive and finite, got {self.weight!r}")
        if self.observed and not self.constant:
            raise UserError("without the constant the share of targets cannot be released: use release='joint'")
        if self.coordinates is not None and not self.observed:
            raise UserError("stated coordinates need release='observed', as records beyond the radius are left out")

    @property
    def size(self) -> int:
        """Number p of coded features, the constant included."""
        return len(self.names)

    @property
    def cross(self) -> int:
        """Index of ``x y``: the number of entries of ``x x'``, presence included."""
        return self.size * (self.size + 1) // 2 - (self.constant and not self.observed)

    @property
    def dimension(self) -> int:
        """Number of integers in a release."""
        return self.cross + self.size

    @property
    def clipping_norm(self) -> float:
        """Bound on the norm of the features without the constant."""
        return math.sqrt(self.radius**2 - self.constant)

    @property
    def bounds(self) -> kernels.Bounds:
        """Arguments of kernels: clipping norm, constant, zero, root, weight and presence."""
        return self.clipping_norm, self.constant, self.zero, self.root, self.weight, self.presence

    @property
    def gain(self) -> float:
        """Factor from coded features to the units of released moments."""
        return self.units[0] if self.units else 1.0

    @property
    def sensitivity(self) -> float:
        """Largest distance between two records' vectors."""
        both = sensitivity(self.radius, self.weight)
        return max(both, math.sqrt(self._square + 4.0 * self.presence**2)) if self.observed else both

    @property
    def presence(self) -> float:
        """The number released if there is a target, and its negative if there is none; 0 if not observed."""
        return self.radius if self.observed else 0.0

    @property
    def _square(self) -> float:
        return self.radius**4 - self.constant + (self.weight * self.radius) ** 2

    @property
    def norm(self) -> float:
        """Bound on a vector's norm."""
        return math.sqrt(self._square + self.presence**2)

    @property
    def digest(self) -> str:
        """Fingerprint of the layout, for any loss: states load, and partitions merge, only if they have the same."""
        text = repr(self) + " observed" * self.observed
        text += "" if self.coordinates is None else repr(self.coordinates)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def vectors(self, X: Floats, y: Floats) -> Floats:
        """Return moments (m, dimension) of coded records ``X`` (m, p) and ``y`` (m,) in [-1, 1].

        Non-finite features count as 0. Records beyond the bound are projected or, in stated ``coordinates``, count as
        records without a target. A NaN target counts as missing if ``observed``, else as 0.

        >>> Statistics(("a", "1"), radius=2.0).vectors(np.array([[0.5, 1.0]]), np.array([1.0])).round(3).tolist()
        [[0.25, 0.707, 0.5, 1.0]]
        """
        out = empty((len(X), self.dimension))
        rows, targets = copied(X), copied(y)
        if self.coordinates is not None:
            rows = self.coordinates.rows(X)
            # Shortening features would bias a line; leaving people out does not, if all people have the same line.
            with np.errstate(over="ignore"):
                squares = np.square(rows[:, : len(self.coordinates.centres)]).sum(axis=1)
            targets = track(np.where(squares > self.clipping_norm**2, np.nan, targets))
        kernels.moments_of(rows, targets, self.bounds, out)
        return out

    def matrices(self, vector: Floats) -> tuple[Floats, Floats]:
        """Return ``(E x x', E x y)``, (p, p) and (p,), from the mean of released vectors.

        If ``observed``, records without a target count as zeros, and the constant's own entry is the :meth:`share`.
        """
        p = self.size
        pairs = p * (p + 1) // 2 - self.constant
        upper = np.append(vector[:pairs], [self.share(vector)] * self.constant)
        matrix = np.zeros((p, p))
        matrix[np.triu_indices(p)] = upper
        matrix /= np.where(np.eye(p, dtype=bool), 1.0, self.root)
        matrix = matrix + matrix.T - np.diag(np.diag(matrix))
        return matrix, vector[self.cross :] / self.weight

    def share(self, vector: Floats) -> float:
        """Return the share of records with a target, from the mean of released vectors; 1 if not observed."""
        return (1.0 + float(vector[self.cross - 1]) / self.presence) / 2.0 if self.observed else 1.0

    def share_variance(self, variance: float) -> float:
        """Return the variance of :meth:`share` for released numbers of variance ``variance``."""
        return variance / (2.0 * self.presence) ** 2 if self.observed else 0.0

    def entry_variances(self, variance: float) -> Floats:
        """Return variances of the entries of ``E x x'``, (p, p), for released numbers of variance ``variance``."""
        p = self.size
        table = np.full((p, p), variance / self.root**2)
        np.fill_diagonal(table, variance)
        if self.constant:
            table[-1, -1] = 0.0
        return table
