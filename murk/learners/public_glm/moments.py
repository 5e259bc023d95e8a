"""Running sums of released moments, and the second-moment matrix they give together with the public one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from murk.learners.public_glm import kernels
from murk.learners.public_glm.fitting.statistics import Statistics
from murk.learners.public_glm.public import Covariates

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MomentSums:
    """What a learner keeps of its releases: O(p^2) numbers, whatever the number of people. Chains merge by ``+``.

    Parameters
    ----------
    total
        Weighted sum of decoded releases, (d,).
    sums
        See :mod:`murk.learners.public_glm.kernels`.
    count
        Number of releases.
    """

    total: Floats
    sums: Floats
    count: int

    @classmethod
    def merged(cls, parts: Sequence[MomentSums]) -> MomentSums:
        """The sums of all releases of several chains."""
        return cls(
            np.sum([part.total for part in parts], axis=0),
            np.sum([part.sums for part in parts], axis=0),
            sum(part.count for part in parts),
        )


@dataclass(frozen=True)
class Private:
    """Moments as the releases tell them: unbiased, and with noise of a known size.

    Parameters
    ----------
    matrix, cross
        ``E x x'`` (p, p), ``E x y`` (p,), y in coded units.
    matrix_noise
        Variances of the noise on the matrix' entries, (p, p).
    cross_noise
        Variance of the noise on an entry of ``E x y``.
    people
        Effective numbers of people behind the two, (2,): fewer than released where budgets differ.
    """

    matrix: Floats
    cross: Floats
    matrix_noise: Floats
    cross_noise: float
    people: tuple[float, float]

    @classmethod
    def of(cls, sums: MomentSums, layout: Statistics) -> Private:
        """Divide the sums by their weights."""
        weights = sums.sums[kernels.WEIGHTS : kernels.WEIGHTS + 2]
        noise = sums.sums[kernels.NOISE : kernels.NOISE + 2] / weights**2
        people = weights**2 / sums.sums[kernels.SQUARES : kernels.SQUARES + 2]
        mean = sums.total / np.repeat(weights, [layout.cross, layout.size])
        matrix, cross = layout.matrices(mean)
        return cls(
            matrix, cross, layout.entry_variances(float(noise[0])), float(noise[1]) / layout.weight**2,
            (float(people[0]), float(people[1])),
        )  # fmt: skip


@dataclass(frozen=True)
class Design:
    """The second-moment matrix that least squares uses.

    Parameters
    ----------
    matrix
        ``E x x'``, positive definite.
    share
        The private releases' share in it; the public covariates have the rest.
    doubtful
        Whether an eigenvalue lies below the noise's own largest one: it was set to that, or left as it is.
    """

    matrix: Floats
    share: float
    doubtful: bool


def private_share(private: Private, public: Covariates | None, covariance: str) -> float:
    """The share of the private releases in the second-moment matrix.

    ``"private"``: 1. ``"pooled"``: by numbers of people, the paper's Remark 11. ``"both"``: by inverse variance, the
    noise of the releases included, which is never worse.
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


def design_of(private: Private, public: Covariates | None, covariance: str, repair: bool = True) -> Design:
    """The second-moment matrix, positive definite unless ``repair`` is False, as published.

    Noise can make an eigenvalue small or negative. Where one lies below the noise's own largest eigenvalue
    (``2 sqrt p`` times an entry's standard deviation, times the private share), nothing is known of it but that it is
    positive: it is set to that. Of the ways to fix the matrix this had the smallest error (benchmarks/glm.py).
    """
    share = private_share(private, public, covariance)
    matrix = share * private.matrix
    if public is not None and share < 1.0:
        matrix = matrix + (1.0 - share) * public.second_moment
    size = len(matrix)
    floor = share * 2.0 * float(np.sqrt(size * np.mean(private.matrix_noise)))
    values, vectors = np.linalg.eigh(matrix)
    # A feature that never varies, in public or at all, must not divide noise by nothing.
    if values[0] <= 1e-9 * float(values[-1]):
        floor = max(2.0 * float(np.sqrt(size * np.mean(private.matrix_noise))), 1e-12 * float(values[-1]))
    doubtful = bool(values[0] < floor)
    if doubtful and repair:
        matrix = (vectors * np.maximum(values, floor)) @ vectors.T
    return Design((matrix + matrix.T) / 2.0, share, doubtful)
