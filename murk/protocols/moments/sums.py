"""Running sums of released moments, second-moment matrices with public rows, and a forged release's influence."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from murk._internal.arrays import Floats
from murk.inference.estimate import surely_missing
from murk.inference.misfit import UNLIKE
from murk.inference.poisoning import Influence, longest
from murk.privacy.mechanisms import CompositeMechanism
from murk.protocols.moments import kernels
from murk.protocols.moments.mechanisms import Level
from murk.protocols.moments.statistics import Statistics
from murk.protocols.rows import Rows

if TYPE_CHECKING:
    from murk.privacy.mechanisms.base import Randomizer


_SHORTER = 0.7  # factor of the squared norm at which a vector is taken as typical, as shorter vectors count for more
_FEWEST = 1e-6  # least share of targets that moments are divided by


@dataclass(frozen=True)
class MomentSums:
    """Sums of a learner's releases: O(p^2) numbers for any number of people."""

    total: Floats  # weighted sum of decoded releases, (d,)
    sums: Floats  # see `kernels`
    count: int  # number of releases

    @classmethod
    def merged(cls, parts: Sequence[MomentSums]) -> MomentSums:
        """Return the sums of several partitions."""
        return cls(
            np.sum([part.total for part in parts], axis=0),
            np.sum([part.sums for part in parts], axis=0),
            sum(part.count for part in parts),
        )


@dataclass(frozen=True)
class Private:
    """Unbiased moments from the releases, with their noise variances."""

    matrix: Floats  # E x x', (p, p)
    cross: Floats  # E x y, (p,), y in coded units
    matrix_noise: Floats  # noise variances of the matrix's entries, (p, p)
    cross_noise: float  # noise variance of an entry of E x y
    people: tuple[float, float]  # effective numbers of people with a target, for the matrix and for E x y
    share_noise: float = 0.0  # noise variance of the share of targets, divided by its square; 0 if not released
    missing: float = 0.0  # lower bound on the share of people without a target; 0 if noise explains it (1 in 10,000)
    centre: float = 0.0  # constant part of a target whose other part was released, in coded units
    target_square: float = 1.0  # bound on E y^2, in coded units

    @classmethod
    def of(cls, sums: MomentSums, layout: Statistics, labels: bool = False) -> Private:
        """Return the sums divided by their weights, and by the share of people with a target.

        In an ``observed`` layout, a released direction has covariance ``v I + a u u'``, with u the direction of its
        vector f. This adds ``a (g'f)^2 / |f|^2`` to the variance of ``g'f``, which is computed as a smaller number of
        people.
        """
        weights = sums.sums[kernels.WEIGHTS : kernels.WEIGHTS + 2]
        noise = sums.sums[kernels.NOISE : kernels.NOISE + 2] / weights**2
        people = weights**2 / sums.sums[kernels.SQUARES : kernels.SQUARES + 2]
        mean = sums.total / np.repeat(weights, [layout.cross, layout.size])
        matrix, cross = layout.matrices(mean)
        along = 0.0
        if layout.observed:
            noise, along = np.repeat(noise[0], 2), float(noise[1])
        # A share below twice its standard error may be zero, and would make quotients arbitrarily large.
        own, observed = float(noise[0]), layout.share(mean)
        share = min(max(observed, 2.0 * math.sqrt(layout.share_variance(own)), _FEWEST), 1.0)
        matrix, cross = matrix / share, cross / share
        if layout.constant:
            matrix[-1, -1] = 1.0
        if along > 0.0:
            square = _square(layout, matrix, cross, labels)
            people = 1.0 / (1.0 / people + along * (1.0 / square - 1.0 / layout.norm**2))
            own += along * (1.0 - share + share * layout.presence**2 / square)
        doubt = layout.share_variance(own)
        error = math.sqrt(doubt)
        missing = surely_missing(1.0 - share, error) if 1.0 - observed > UNLIKE * error else 0.0
        matrix_noise, cross_noise = layout.entry_variances(float(noise[0])), float(noise[1]) / layout.weight**2
        answered = float(people[0]) * share, float(people[1]) * share
        square = share**2
        return cls(matrix, cross, matrix_noise / square, cross_noise / square, answered, doubt / square, missing)

    @property
    def is_share_known(self) -> bool:
        """Whether the standard error of the share of people with a target is below a quarter of it."""
        return self.share_noise < 1.0 / 16.0


def _square(layout: Statistics, matrix: Floats, cross: Floats, labels: bool) -> float:
    """Estimate the squared norm of a typical vector with a target from the means, at most the bound."""
    features = max(float(np.trace(matrix)), 1.0)
    target = 1.0 if labels else min(float(cross[-1]) ** 2, 1.0)
    square = features**2 - 1.0 + layout.presence**2 + layout.weight**2 * features * target
    return min(_SHORTER * square, layout.norm**2)


@dataclass(frozen=True)
class Design:
    """The second-moment matrix of least squares."""

    matrix: Floats  # E x x'
    share: float  # weight of the private releases in the matrix
    doubtful: bool  # whether an eigenvalue is smaller than the largest one of pure noise


def private_share(private: Private, public: Rows | None, covariance: str) -> float:
    """Return the weight of private releases in the second-moment matrix.

    ``"private"``: 1. ``"pooled"``: by numbers of people (the paper's Remark 11). ``"both"``: by inverse variance.
    """
    if public is None or covariance == "private":
        return 1.0
    people, m = private.people[0], public.people
    if covariance == "pooled":
        m = m if public.total is None else public.total
        return people / (people + m)
    spread = public.spread
    noisy = float(np.mean(private.matrix_noise)) + spread / people
    known = spread / m
    return known / (known + noisy) if known > 0.0 else 0.0


def noise_floor(private: Private) -> float:
    """Return the largest eigenvalue of pure noise: ``2 sqrt p`` times an entry's standard deviation."""
    return 2.0 * float(np.sqrt(len(private.matrix) * np.mean(private.matrix_noise)))


def design_of(private: Private, public: Rows | None, covariance: str, repair: bool = True) -> Design:
    """Return the second-moment matrix; ``repair`` raises its eigenvalues to at least the largest one of pure noise."""
    share = private_share(private, public, covariance)
    matrix = share * private.matrix
    if public is not None and share < 1.0:
        matrix = matrix + (1.0 - share) * public.second_moment
    floor = share * noise_floor(private)
    values, vectors = np.linalg.eigh(matrix)
    # Raised, so that a constant feature does not lead to a division of noise by zero.
    if values[0] <= 1e-9 * float(values[-1]):
        floor = max(noise_floor(private), 1e-12 * float(values[-1]))
    doubtful = bool(values[0] < floor)
    if doubtful and repair:
        matrix = (vectors * np.maximum(values, floor)) @ vectors.T
    return Design((matrix + matrix.T) / 2.0, share, doubtful)


def _seen(private: Private) -> tuple[Floats, Floats]:
    """Return the least eigenvalue of each feature's moments with the constant, (p - 1,), and its noise's deviation."""
    means, squares = private.matrix[:-1, -1], np.diag(private.matrix)[:-1]
    least = (squares + 1.0) / 2.0 - np.hypot((squares - 1.0) / 2.0, means)
    # The eigenvector: ``x_j - m 1``, of length 1.
    share = 1.0 / (1.0 + (means / (1.0 - least)) ** 2)
    noise = np.diag(private.matrix_noise)[:-1] * share**2
    noise += 4.0 * private.matrix_noise[:-1, -1] * share * (1.0 - share)
    return least, np.sqrt(noise)


def distances_from_noise(private: Private) -> Floats:
    """Return how far each coefficient's feature exceeds the noise, (p,), in standard deviations.

    Coefficients are shown only if all features do, and the intercept depends on all of them.
    """
    least, noise = _seen(private)
    above = (least - noise_floor(private)) / np.where(noise > 0.0, noise, 1.0)
    distances = np.where(noise > 0.0, above, np.inf)
    return np.append(distances, np.min(distances, initial=np.inf))


def influence_of(
    sums: MomentSums, layout: Statistics, mechanisms: Mapping[str, Randomizer], *, by_rows: bool = False
) -> Influence | None:
    """Return a bound on a forged release's influence, None without releases; ``by_rows`` if the matrix is public."""
    if not sums.count:
        return None
    noise = sums.sums[kernels.NOISE : kernels.NOISE + 2].copy()
    if layout.observed:
        noise[1] = noise[0]
    if not np.all(noise > 0.0):
        return Influence(math.inf)
    roots, moved, turned = np.sqrt(noise).tolist(), 0.0, 0.0
    for mechanism in mechanisms.values():
        level = Level.of(mechanism, layout)
        parts = mechanism.parts if isinstance(mechanism, CompositeMechanism) else (mechanism, mechanism)
        lengths = longest(parts[0]), longest(parts[1])  # of `x x'` and of `x y`
        shifts = [w * length / root for w, length, root in zip(level.weights, lengths, roots, strict=True)]
        # The two parts of a joint release share one bound on the length; separate releases have a bound each.
        together = sum(shifts) if isinstance(mechanism, CompositeMechanism) else max(shifts)
        moved, turned = max(moved, together), max(turned, level.weights[0] * lengths[0])
    # Off-diagonal entries occur twice in a matrix.
    turned *= math.sqrt(2.0) / layout.root
    private = Private.of(sums, layout)
    weights = sums.sums[kernels.WEIGHTS : kernels.WEIGHTS + 2]
    share = layout.share(sums.total / np.repeat(weights, [layout.cross, layout.size]))
    least = float(np.linalg.eigvalsh(private.matrix)[0]) * float(sums.sums[kernels.WEIGHTS]) * max(share, 1e-6)
    bend = 0.0 if by_rows else turned / least if least > 0.0 else math.inf
    return Influence(moved, bend)
