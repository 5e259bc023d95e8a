"""Running sums of released moments, and the second-moment matrix they give together with the public one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from murk.learners.core.covariates import Covariates
from murk.learners.estimates.misfit import UNLIKE
from murk.learners.moments import kernels
from murk.learners.moments.statistics import Statistics

Floats = NDArray[np.float64]

# People whose vectors are shorter than is typical count for more in it.
_SHORTER = 0.7
_FEWEST = 1e-6
"""Where there is no noise to speak of: a smaller share of targets counts as this."""


@dataclass(frozen=True)
class MomentSums:
    """What a learner keeps of its releases: O(p^2) numbers, whatever the number of people. Chains merge by ``+``.

    Parameters
    ----------
    total
        Weighted sum of decoded releases, (d,).
    sums
        See :mod:`murk.learners.moments.kernels`.
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
        Effective numbers of people with a target behind the two, (2,): fewer than released where budgets differ.
    share_noise
        Variance of the noise on the share of people with a target, relative to its square; both moments are divided by
        that share. 0 where it is not released.
    missing
        Share of people without a target; 0 up to what noise makes of none once in 10,000 times.
    """

    matrix: Floats
    cross: Floats
    matrix_noise: Floats
    cross_noise: float
    people: tuple[float, float]
    share_noise: float = 0.0
    missing: float = 0.0

    @classmethod
    def of(cls, sums: MomentSums, layout: Statistics, labels: bool = False) -> Private:
        """Divide the sums by their weights, and by the share of people with a target, who have ``labels`` or numbers.

        If the layout is ``observed``, releases that are directions vary by ``v I + a u u'``, u being the vector's own
        direction. What the second adds to any mean that people's vectors f enter as ``g'f`` is ``a (g'f)^2 / |f|^2``:
        where all are as long as the bound lets them be it is what they differ by themselves, and where they are
        shorter it counts as if there were fewer of them. Of a missing target it is on the share alone.
        """
        weights = sums.sums[kernels.WEIGHTS : kernels.WEIGHTS + 2]
        noise = sums.sums[kernels.NOISE : kernels.NOISE + 2] / weights**2
        people = weights**2 / sums.sums[kernels.SQUARES : kernels.SQUARES + 2]
        mean = sums.total / np.repeat(weights, [layout.cross, layout.size])
        matrix, cross = layout.matrices(mean)
        along = 0.0
        if layout.observed:
            noise, along = np.repeat(noise[0], 2), float(noise[1])
        # Below twice its own noise a share is not told apart from none, and nothing is to be divided by what is.
        own, found = float(noise[0]), layout.share(mean)
        share = min(max(found, 2.0 * math.sqrt(layout.share_variance(own)), _FEWEST), 1.0)
        matrix, cross = matrix / share, cross / share
        if layout.constant:
            matrix[-1, -1] = 1.0
        if along > 0.0:
            square = _square(layout, matrix, cross, labels)
            people = 1.0 / (1.0 / people + along * (1.0 / square - 1.0 / layout.norm**2))
            own += along * (1.0 - share + share * layout.presence**2 / square)
        doubt = layout.share_variance(own)
        return cls(
            matrix, cross, layout.entry_variances(float(noise[0])) / share**2,
            float(noise[1]) / layout.weight**2 / share**2,
            (float(people[0]) * share, float(people[1]) * share), doubt / share**2,
            1.0 - share if 1.0 - found > UNLIKE * math.sqrt(doubt) else 0.0,
        )  # fmt: skip

    @property
    def told(self) -> bool:
        """Whether the share of people with a target is known to within a quarter of it."""
        return self.share_noise < 1.0 / 16.0


def _square(layout: Statistics, matrix: Floats, cross: Floats, labels: bool) -> float:
    """The typical square of the norm of a vector with a target, as far as the means tell it; no more than the bound."""
    features = max(float(np.trace(matrix)), 1.0)
    target = 1.0 if labels else min(float(cross[-1]) ** 2, 1.0)
    square = features**2 - 1.0 + layout.presence**2 + layout.weight**2 * features * target
    return min(_SHORTER * square, layout.norm**2)


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
