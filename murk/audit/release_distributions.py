"""Distributions of releases: where a mechanism centres a vector, distances between centres, and likelihood ratios.

Centres are computed by the mechanism itself with zero noise, so they include the rounding and bounding of devices.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from murk._internal.arrays import Floats
from murk.audit.bounds import EpsilonAt, Mu, TestedGuarantee
from murk.errors import UserError
from murk.privacy.guarantees import ApproxDP, GaussianDP, PureDP
from murk.privacy.mechanisms import (
    CompositeMechanism,
    Costed,
    DrawnMechanism,
    KnownMechanism,
    RandomizedResponse,
    SubsetSelection,
    ThresholdMechanism,
    WindowSelection,
)
from murk.privacy.mechanisms.base import WIDTH
from murk.privacy.mechanisms.lattice import GAUSSIAN, L2BALL, LAPLACE, PRIVUNIT
from murk.privacy.mechanisms.outer_product import OuterMechanism, outer
from murk.privacy.mechanisms.privunit import closest_share
from murk.privacy.mechanisms.selection import LEVELS
from murk.privacy.mechanisms.thresholds import THRESHOLDS
from murk.privacy.noise import Purpose
from murk.protocols.examples.cells import CellMechanism

_ERROR_CODE = "MURK-AUDIT-001"

Points = NDArray[Any]

_WORDS = 2**64


class Silence:
    """A source of zero noise and zero words, for inspecting a mechanism."""

    simulated = True

    def gaussian(self, records: Any, size: int) -> NDArray[np.int64]:
        """Return zeros."""
        return np.zeros((len(records), size), dtype=np.int64)

    laplace = gaussian

    def words(self, records: Any, size: int, purpose: Purpose) -> NDArray[np.uint64]:
        """Return zeros."""
        return np.zeros((len(records), size), dtype=np.uint64)


def yardsticks(mechanism: Costed) -> tuple[TestedGuarantee, ...]:
    """Return the guarantees of a mechanism that the audit tests (zCDP follows from them or is equivalent to GDP)."""
    claims: list[TestedGuarantee] = []
    for claim in mechanism.guarantees:
        if isinstance(claim, GaussianDP):
            claims.append(Mu(claim.mu))
        elif isinstance(claim, PureDP):
            claims.append(EpsilonAt(claim.epsilon))
        elif isinstance(claim, ApproxDP):
            claims.append(EpsilonAt(claim.epsilon, claim.delta))
    return tuple(claims)


def distribution_of(mechanism: Any) -> ReleaseDistribution:
    """Return the distribution of a mechanism's releases; raise `UserError` if none is known for its kernel code."""
    if isinstance(mechanism, ThresholdMechanism):
        return _Thresholds(mechanism, mechanism.noise)
    if isinstance(mechanism, DrawnMechanism):
        return _Drawn(mechanism, mechanism.noise)
    if isinstance(mechanism, KnownMechanism):
        return _Known(mechanism, mechanism.noise)
    noise = mechanism
    while not hasattr(noise, "code") and hasattr(noise, "noise"):
        noise = noise.noise
    code = getattr(noise, "code", noise.kind)
    if code not in _DISTRIBUTIONS:
        codes = ", ".join(map(str, _DISTRIBUTIONS))
        raise UserError(
            f"the {mechanism.kind} mechanism cannot be audited: no distribution is known for its kernel code {code!r}, "
            f"only for {codes}: add one to murk/audit/release_distributions.py"
        )
    return _DISTRIBUTIONS[code](mechanism, noise)


@dataclass(frozen=True)
class ReleaseDistribution:
    """Distribution of releases with Gaussian noise on the lattice, and base class of the others."""

    mechanism: Any  # the mechanism that is given the vectors
    noise: Any  # the inner mechanism, which adds the noise; often the same one

    def centres(self, vectors: Points) -> Points:
        """Return the centres of the releases of vectors (m, d)."""
        centres: Points = self.mechanism.randomize(vectors, Silence(), np.zeros(len(vectors), dtype=np.int64))
        return centres

    def distances(self, points: Points, other: Points) -> Floats:
        """Return the distances of centres (..., d) from ``other``, in the norm to which the noise is calibrated."""
        gaps = np.abs(np.asarray(points, dtype=np.float64) - other)
        return np.asarray(np.sqrt(np.square(gaps / WIDTH).sum(axis=-1)))

    def exact(self, one: Points, other: Points, tested_guarantee: TestedGuarantee) -> float | None:
        """Return the exact privacy parameter of a pair's releases; None without a closed form."""
        distance = float(self.distances(np.asarray(one)[None], other)[0])
        return self._epsilon(one, other, distance) if isinstance(tested_guarantee, EpsilonAt) else self._mu(distance)

    def _epsilon(self, one: Points, other: Points, distance: float) -> float | None:
        return None

    def _mu(self, distance: float) -> float | None:
        return distance

    def losses(self, payloads: Points, one: Points, other: Points) -> Floats:
        """Return the logarithms of the likelihood ratios of two centres, for payloads (m, d)."""
        # In widths of the noise: (x - b)^2 - (x - a)^2 = (2 x - a - b)(a - b).
        middle, shift = self._factors(payloads, one, other)
        return np.asarray(middle @ shift / 2.0)

    def _factors(self, payloads: Points, one: Points, other: Points) -> tuple[Floats, Floats]:
        return (2.0 * payloads - one - other) / WIDTH, (np.asarray(one, dtype=np.float64) - other) / WIDTH


class _Laplace(ReleaseDistribution):
    def distances(self, points: Points, other: Points) -> Floats:
        gaps = np.abs(np.asarray(points, dtype=np.float64) - other)
        return np.asarray(gaps.sum(axis=-1) / WIDTH)

    def _epsilon(self, one: Points, other: Points, distance: float) -> float:
        return distance

    def losses(self, payloads: Points, one: Points, other: Points) -> Floats:
        return np.asarray((np.abs(payloads - other) - np.abs(payloads - one)).sum(axis=1) / WIDTH, dtype=np.float64)


class _Response(ReleaseDistribution):
    def distances(self, points: Points, other: Points) -> Floats:
        return np.asarray(np.asarray(points, dtype=np.float64) != other, dtype=np.float64)

    def _epsilon(self, one: Points, other: Points, distance: float) -> float:
        return _log_odds(self.noise) if distance else 0.0

    def losses(self, payloads: Points, one: Points, other: Points) -> Floats:
        gap = (payloads == one).astype(np.float64) - (payloads == other)
        return np.asarray(gap * _log_odds(self.noise))


class _Cells(ReleaseDistribution):
    """Distribution of released cells; a centre has the true cells' probabilities, as numbers are rounded at random."""

    def centres(self, vectors: Points) -> Points:
        return np.asarray(self.mechanism.cells.shares(np.asarray(vectors, dtype=np.float64)))

    def _log_shares(self, centres: Points) -> Floats:
        return np.asarray(np.log(self.mechanism.other + np.asarray(centres) / self.mechanism.gain))

    def distances(self, points: Points, other: Points) -> Floats:
        return np.asarray(np.abs(self._log_shares(points) - self._log_shares(other)).max(axis=-1))

    def _epsilon(self, one: Points, other: Points, distance: float) -> float:
        return distance

    def _mu(self, distance: float) -> float | None:
        # The mu is that of cells without random rounding, and so known only for the two records that are furthest
        # apart.
        claims = [claim.mu for claim in self.mechanism.guarantees if isinstance(claim, GaussianDP)]
        return claims[0] if claims and distance > (1.0 - 1e-9) * _log_odds(self.mechanism.noise) else None

    def losses(self, payloads: Points, one: Points, other: Points) -> Floats:
        return np.asarray((self._log_shares(one) - self._log_shares(other))[np.asarray(payloads)[:, 0]])


class _Windows(ReleaseDistribution):
    """Distribution of windows; a centre has all outcomes' probabilities, as numbers are rounded to levels at random."""

    def centres(self, vectors: Points) -> Points:
        positions = np.asarray(vectors, dtype=np.float64)[:, 0]
        shares = np.zeros((len(positions), len(self.mechanism.chances)))
        for row, position in zip(shares, positions, strict=True):
            if position > 1.0:
                row[LEVELS if self.mechanism.missing else LEVELS // 2] = 1.0
                continue
            level = min(int(position * (LEVELS - 1)), LEVELS - 2)
            row[level + 1] = position * (LEVELS - 1) - level
            row[level] = 1.0 - row[level + 1]
        return np.asarray(shares @ self.mechanism.chances)

    def distances(self, points: Points, other: Points) -> Floats:
        return np.asarray(np.abs(np.log(points) - np.log(other)).max(axis=-1))

    def _epsilon(self, one: Points, other: Points, distance: float) -> float:
        return distance

    def _mu(self, distance: float) -> float | None:
        # The claimed mu is for values without a common window, and the two furthest values may have one.
        return None

    def losses(self, payloads: Points, one: Points, other: Points) -> Floats:
        return np.asarray((np.log(one) - np.log(other))[np.asarray(payloads)[:, 0]])


class _Subsets(ReleaseDistribution):
    """Distribution of subsets; centres have a 1 for the true category."""

    def centres(self, vectors: Points) -> Points:
        return np.eye(self.mechanism.categories)[np.asarray(vectors)[:, 0].astype(np.int64)]

    @property
    def _odds(self) -> float:
        return math.log(self.mechanism.odds[0]) - math.log(self.mechanism.odds[1])

    def distances(self, points: Points, other: Points) -> Floats:
        return np.asarray(self._odds * np.abs(np.asarray(points) - other).max(axis=-1))

    def _epsilon(self, one: Points, other: Points, distance: float) -> float:
        return distance

    def _mu(self, distance: float) -> float | None:
        claims = [claim.mu for claim in self.mechanism.guarantees if isinstance(claim, GaussianDP)]
        return claims[0] if claims and distance else None

    def losses(self, payloads: Points, one: Points, other: Points) -> Floats:
        return np.asarray(self._odds * (np.asarray(payloads) @ (np.asarray(one) - other)))


class _Thresholds(ReleaseDistribution):
    """Distribution of answers at random thresholds; centres are those of the answers at all thresholds."""

    @cached_property
    def _answers(self) -> ReleaseDistribution:
        return distribution_of(self.noise)

    def centres(self, vectors: Points) -> Points:
        positions = np.asarray(vectors, dtype=np.float64)[:, 0]
        answers = [self.mechanism.categories(positions, np.array(each)) for each in range(THRESHOLDS)]
        return np.hstack([self._answers.centres(each[:, None]) for each in answers])

    def _by_threshold(self, centres: Points) -> Points:
        centres = np.asarray(centres)
        return centres.reshape(*centres.shape[:-1], THRESHOLDS, -1)

    def distances(self, points: Points, other: Points) -> Floats:
        each = [
            self._answers.distances(self._by_threshold(points)[..., index, :], self._by_threshold(other)[..., index, :])
            for index in range(THRESHOLDS)
        ]
        return np.asarray(np.max(each, axis=0))

    def exact(self, one: Points, other: Points, tested_guarantee: TestedGuarantee) -> float | None:
        first, second = self._by_threshold(one), self._by_threshold(other)
        exact = [self._answers.exact(*pair, tested_guarantee) for pair in zip(first, second, strict=True)]
        # For two values whose answers differ at some thresholds only, the guarantee is stronger and not computed.
        if any(each is None or each != exact[0] for each in exact):
            return None
        return exact[0]

    def losses(self, payloads: Points, one: Points, other: Points) -> Floats:
        first, second = self._by_threshold(one), self._by_threshold(other)
        losses = np.zeros(len(payloads))
        for index in np.unique(payloads[:, 0]):
            asked = payloads[:, 0] == index
            losses[asked] = self._answers.losses(payloads[asked, 1:], first[index], second[index])
        return losses


class _Known(ReleaseDistribution):
    """Distribution of a target released with a known cell; records of different cells have no claim (distance -1)."""

    @cached_property
    def _target(self) -> ReleaseDistribution:
        return distribution_of(self.noise)

    def centres(self, vectors: Points) -> Points:
        rows = np.asarray(vectors, dtype=np.float64)
        return np.column_stack([rows[:, 0].astype(np.int64), self._target.centres(rows[:, 1:])])

    def distances(self, points: Points, other: Points) -> Floats:
        points, other = np.asarray(points), np.asarray(other)
        apart = self._target.distances(points[..., 1:], other[..., 1:])
        return np.where(points[..., 0] == other[..., 0], apart, -1.0)

    def exact(self, one: Points, other: Points, tested_guarantee: TestedGuarantee) -> float | None:
        return self._target.exact(np.asarray(one)[1:], np.asarray(other)[1:], tested_guarantee)

    def losses(self, payloads: Points, one: Points, other: Points) -> Floats:
        return self._target.losses(payloads[:, 1:], np.asarray(one)[1:], np.asarray(other)[1:])


class _Drawn(ReleaseDistribution):
    """Distribution of one of several values, drawn evenly; centres are those of all values, one after the other."""

    @cached_property
    def _parts(self) -> list[ReleaseDistribution]:
        return [distribution_of(part) for part in self.mechanism.parts]

    def centres(self, vectors: Points) -> Points:
        rows = np.asarray(vectors, dtype=np.float64)
        columns = map(self.mechanism.columns, range(len(self._parts)))
        return np.hstack([part.centres(rows[:, each]) for part, each in zip(self._parts, columns, strict=True)])

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        widths = [part.centres(np.zeros((1, 1 + self.mechanism.width))).shape[1] for part in self._parts]
        return np.cumsum(widths, dtype=np.int64)[:-1]

    def _split(self, centres: Points) -> list[Points]:
        return np.split(np.asarray(centres), self._ends, axis=-1)

    def distances(self, points: Points, other: Points) -> Floats:
        pairs = zip(self._parts, self._split(points), self._split(other), strict=True)
        return np.asarray(np.mean([part.distances(first, second) for part, first, second in pairs], axis=0))

    def exact(self, one: Points, other: Points, tested_guarantee: TestedGuarantee) -> float | None:
        pairs = zip(self._parts, self._split(one), self._split(other), strict=True)
        exact = [part.exact(first, second, tested_guarantee) for part, first, second in pairs]
        # The release shows which part was drawn. So its epsilon is the largest of the parts' epsilons; its mu has no
        # closed form.
        if any(each is None for each in exact):
            return None
        if isinstance(tested_guarantee, EpsilonAt) and not tested_guarantee.delta:
            return max(each for each in exact if each is not None)
        return exact[0] if len(set(exact)) == 1 else None

    def losses(self, payloads: Points, one: Points, other: Points) -> Floats:
        losses, centres = np.zeros(len(payloads)), (self._split(one), self._split(other))
        for number, part in enumerate(self._parts):
            of_part = payloads[:, 0] == number
            if of_part.any():
                released = payloads[of_part, 1 : 1 + self.mechanism.parts[number].dimension]
                losses[of_part] = part.losses(released, centres[0][number], centres[1][number])
        return losses


class _Composite(ReleaseDistribution):
    @cached_property
    def _labels(self) -> dict[int, RandomizedResponse]:
        """Randomized response of each coordinate that is a label."""
        parts, widths = self.noise.parts, self.noise.widths
        coordinates = [part for part, width in zip(parts, widths, strict=True) for _ in range(width)]
        return {index: part for index, part in enumerate(coordinates) if part.kind == RandomizedResponse.kind}

    def distances(self, points: Points, other: Points) -> Floats:
        weights = np.full(self.noise.dimension, 1 / WIDTH)
        for index, response in self._labels.items():
            # A flipped label counts as the mu of its odds.
            weights[index] = 2.0 * float(ndtri(response.keep)) / 2
        gaps = np.abs(np.asarray(points, dtype=np.float64) - other) * weights
        return np.asarray(np.sqrt(np.square(gaps).sum(axis=-1)))

    def _mu(self, distance: float) -> float | None:
        # Randomized response has the mu of its odds at only one point of its trade-off curve.
        return None if self._labels else distance

    def _factors(self, payloads: Points, one: Points, other: Points) -> tuple[Floats, Floats]:
        middle, shift = super()._factors(payloads, one, other)
        for index, response in self._labels.items():
            middle[:, index] = payloads[:, index]
            shift[index] = (float(one[index]) - float(other[index])) * _log_odds(response)
        return middle, shift


class _Direction(ReleaseDistribution, ABC):
    """Base class of the distributions of directions, whose centres are the vectors themselves."""

    def centres(self, vectors: Points) -> Points:
        if isinstance(self.mechanism, OuterMechanism):
            vectors = outer(vectors, self.mechanism.features)
        elif self.mechanism is not self.noise:
            raise UserError(f"cannot audit {type(self.mechanism).__name__} with {type(self.noise).__name__} inside")
        return np.where(np.isnan(vectors), 0.0, vectors)

    def distances(self, points: Points, other: Points) -> Floats:
        gaps = np.abs(np.asarray(points, dtype=np.float64) - other)
        return np.asarray(np.sqrt(np.square(gaps / self.noise.radius).sum(axis=-1)))

    def losses(self, payloads: Points, one: Points, other: Points) -> Floats:
        return self._log_density(payloads, one) - self._log_density(payloads, other)

    @abstractmethod
    def _log_density(self, payloads: Points, vector: Points) -> Floats:
        """Return the log density of directions relative to the uniform distribution."""


class _L2Ball(_Direction):
    def _bias(self, vector: Points) -> float:
        share = min(1.0, float(np.linalg.norm(vector)) / self.noise.radius)
        return float((2.0 * self.noise.threshold / _WORDS - 1.0) * share)

    def _epsilon(self, one: Points, other: Points, distance: float) -> float:
        if not distance:
            return 0.0
        near, far = self._bias(one), self._bias(other)
        return max(math.log1p(near) - math.log1p(-far), math.log1p(far) - math.log1p(-near))

    def _log_density(self, payloads: Points, vector: Points) -> Floats:
        # Only the side of the vector matters.
        towards = np.sign(payloads.astype(np.float64) @ np.asarray(vector, dtype=np.float64))
        return np.asarray(np.log1p(self._bias(vector) * towards))


class _PrivUnit(_Direction):
    def _epsilon(self, one: Points, other: Points, distance: float) -> float:
        # The worst payload lies in the plane of the two vectors.
        return float(np.max(self.losses(self._plane(one, other), one, other)))

    def _log_density(self, payloads: Points, vector: Points) -> Floats:
        mechanism = self.noise
        near, far = mechanism.odds
        values = np.asarray(payloads, dtype=np.float64)
        towards, norm = _direction(vector)
        scores = values @ towards / np.linalg.norm(values, axis=1)
        share = min(1.0, norm / mechanism.radius)
        shape = mechanism.dimension, mechanism.draws, mechanism.closest
        probabilities = closest_share(*shape, np.minimum(np.abs(scores), 1.0))
        # Both sides of a draw are candidates; if the draw is among the closest, so is the side nearer to the vector.
        probabilities = probabilities * np.where(scores > 0, 1 + share, 1 - share) / 2
        return np.asarray(np.log(2 * mechanism.draws * (far + (near - far) * probabilities) / _WORDS))

    def _plane(self, one: Points, other: Points) -> Floats:
        """Return directions all around the plane of two vectors."""
        first, second = _direction(one)[0], _direction(other)[0]
        across = second - (second @ first) * first
        length = float(np.linalg.norm(across))
        if self.noise.dimension == 1:
            return np.array([first, -first])
        if length < 1e-9:
            across, length = np.roll(first, 1) - (np.roll(first, 1) @ first) * first, 1.0
        angles = np.linspace(0.0, 2 * math.pi, 4001)
        return np.asarray(np.outer(np.cos(angles), first) + np.outer(np.sin(angles), across / length))


_DISTRIBUTIONS: Final[Mapping[int | str, type[ReleaseDistribution]]] = {
    GAUSSIAN: ReleaseDistribution,
    LAPLACE: _Laplace,
    L2BALL: _L2Ball,
    PRIVUNIT: _PrivUnit,
    RandomizedResponse.kind: _Response,
    CompositeMechanism.kind: _Composite,
    CellMechanism.code: _Cells,
    SubsetSelection.kind: _Subsets,
    WindowSelection.kind: _Windows,
}
"""Distributions by kernel code, or by kind for mechanisms without one."""


def _log_odds(response: RandomizedResponse) -> float:
    return math.log(response.threshold) - math.log(response.other)


def _direction(vector: Points) -> tuple[Floats, float]:
    """Return a vector's direction and norm; for a vector of zeros the first axis, as in the mechanism."""
    values = np.asarray(vector, dtype=np.float64)
    norm = float(np.linalg.norm(values))
    return (values / norm if norm else np.eye(1, len(values))[0]), norm
