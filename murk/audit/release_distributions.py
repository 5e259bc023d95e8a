"""The distributions of releases: where a mechanism puts a vector, how far apart two are, and their likelihood ratio.

Everything is read off the mechanism itself, run with noise that is zero: what the audit knows of a release is what
the device's code does with a record, rounding and bounding included.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from murk.audit.bounds import EpsilonAt, Mu, Yardstick
from murk.learners.core.scoring.mechanism import OuterMechanism, outer
from murk.privacy.guarantees import ApproxDP, GaussianDP, PureDP
from murk.privacy.mechanisms import (
    CompositeMechanism,
    Costed,
    L2BallMechanism,
    PrivUnitMechanism,
    RandomizedResponse,
)
from murk.privacy.mechanisms.base import WIDTH
from murk.privacy.mechanisms.lattice import DIRECTIONS, L2BALL, LAPLACE, PRIVUNIT
from murk.privacy.mechanisms.privunit_calibration import closest_share
from murk.privacy.noise import Purpose

Floats = NDArray[np.float64]
Points = NDArray[Any]

_WORDS = 2**64


class Silence:
    """A source of noise that is zero, and of coins that leave everything as it is: for looking at a mechanism."""

    simulated = True

    def gaussian(self, records: Any, size: int) -> NDArray[np.int64]:
        """Zeros."""
        return np.zeros((len(records), size), dtype=np.int64)

    laplace = gaussian

    def words(self, records: Any, size: int, purpose: Purpose) -> NDArray[np.uint64]:
        """Zeros."""
        return np.zeros((len(records), size), dtype=np.uint64)


def _inner(mechanism: Any) -> Any:
    """What adds the noise, where a mechanism makes a vector of its input first and gives that to another."""
    return mechanism.noise if isinstance(mechanism, OuterMechanism) else mechanism


def _code(mechanism: Any) -> int | None:
    """How the mechanism bounds and randomizes a vector; None where it is not a single mechanism of vectors."""
    return getattr(mechanism, "code", None)


def yardsticks(mechanism: Costed) -> tuple[Yardstick, ...]:
    """The claims of a mechanism that a test can refute (zCDP is implied by them, or implies GDP's)."""
    found: list[Yardstick] = []
    for claim in mechanism.guarantees:
        if isinstance(claim, GaussianDP):
            found.append(Mu(claim.mu))
        elif isinstance(claim, PureDP):
            found.append(EpsilonAt(claim.epsilon))
        elif isinstance(claim, ApproxDP):
            found.append(EpsilonAt(claim.epsilon, claim.delta))
    return tuple(found)


def places(mechanism: Any, vectors: Points) -> Points:
    """Where releases of vectors (m, d) are centred, on the mechanism's lattice; the vectors, for directions."""
    if isinstance(mechanism, OuterMechanism):
        return places(mechanism.noise, outer(vectors, mechanism.features))
    if _code(mechanism) in DIRECTIONS:
        return np.where(np.isnan(vectors), 0.0, vectors)
    found: Points = mechanism.randomize(vectors, Silence(), np.zeros(len(vectors), dtype=np.int64))
    return found


def distances(mechanism: Any, points: Points, other: Points) -> Floats:
    """How far places (..., d), or categories, are from others, in the norm that the mechanism's noise is made for."""
    mechanism = _inner(mechanism)
    gaps = np.abs(np.asarray(points, dtype=np.float64) - other)
    if _code(mechanism) == LAPLACE:
        return np.asarray(gaps.sum(axis=-1) / WIDTH)
    if isinstance(mechanism, RandomizedResponse):
        return np.asarray(gaps > 0, dtype=np.float64)
    if isinstance(mechanism, CompositeMechanism):
        # A label that is turned round counts as the mu of its odds.
        weights = np.array([1 / WIDTH if unit else _label_mu(part) / 2 for part, unit in _coordinates(mechanism)])
        gaps = gaps * weights
        return np.asarray(np.sqrt(np.square(gaps).sum(axis=-1)))
    scale = mechanism.radius if _code(mechanism) in DIRECTIONS else WIDTH
    return np.asarray(np.sqrt(np.square(gaps / scale).sum(axis=-1)))


def exact(mechanism: Any, one: Points, other: Points, yardstick: Yardstick) -> float | None:
    """What the distribution of this pair's releases has by that yardstick; None without a closed form."""
    mechanism = _inner(mechanism)
    apart = float(distances(mechanism, np.asarray(one)[None], other)[0])
    if isinstance(yardstick, EpsilonAt):
        if _code(mechanism) == LAPLACE:
            return apart
        if isinstance(mechanism, RandomizedResponse):
            return _log_odds(mechanism.threshold, mechanism.other) if apart else 0.0
        if _code(mechanism) == L2BALL:
            if not apart:
                return 0.0
            bias = _bias(mechanism)
            near, far = (bias * _share(mechanism, point) for point in (one, other))
            return max(math.log1p(near) - math.log1p(-far), math.log1p(far) - math.log1p(-near))
        if _code(mechanism) == PRIVUNIT:
            # The worst payload lies in the plane of the two vectors.
            plane = _plane(mechanism, one, other)
            return float(np.max(losses(mechanism, plane, one, other)))
        return None
    # A coin beside Gaussian noise has the mu of its odds at one point of its trade-off curve only.
    return None if _labelled(mechanism) else apart


def losses(mechanism: Any, payloads: Points, one: Points, other: Points) -> Floats:
    """Logarithms of the likelihood ratio of two places, for payloads (m, d)."""
    mechanism = _inner(mechanism)
    if _code(mechanism) == LAPLACE:
        return np.asarray((np.abs(payloads - other) - np.abs(payloads - one)).sum(axis=1) / WIDTH, dtype=np.float64)
    if isinstance(mechanism, RandomizedResponse):
        gap = (payloads == one).astype(np.float64) - (payloads == other)
        return np.asarray(gap * _log_odds(mechanism.threshold, mechanism.other))
    if _code(mechanism) == L2BALL:
        return _ball(mechanism, payloads, one) - _ball(mechanism, payloads, other)
    if _code(mechanism) == PRIVUNIT:
        return _closest(mechanism, payloads, one) - _closest(mechanism, payloads, other)
    # In steps of the noise's width: (x - b)^2 - (x - a)^2 = (2 x - a - b)(a - b).
    middle = (2.0 * payloads - one - other) / WIDTH
    shift = (np.asarray(one, dtype=np.float64) - other) / WIDTH
    if isinstance(mechanism, CompositeMechanism):
        for place, (part, unit) in enumerate(_coordinates(mechanism)):
            if not unit:
                middle[:, place] = payloads[:, place]
                shift[place] = (float(one[place]) - float(other[place])) * _log_odds(part.threshold, part.other)
    return np.asarray(middle @ shift / 2.0)


def _coordinates(mechanism: CompositeMechanism) -> list[tuple[Any, bool]]:
    """The part of each coordinate, and whether noise is added to it."""
    return [
        (part, not isinstance(part, RandomizedResponse))
        for part, width in zip(mechanism.parts, mechanism.widths, strict=True)
        for _ in range(width)
    ]


def _labelled(mechanism: Any) -> bool:
    return isinstance(mechanism, CompositeMechanism) and any(not noise for _, noise in _coordinates(mechanism))


def _label_mu(part: RandomizedResponse) -> float:
    return 2.0 * float(ndtri(part.keep))


def _log_odds(favoured: int, other: int) -> float:
    return math.log(favoured) - math.log(other)


def _bias(mechanism: L2BallMechanism) -> float:
    return 2.0 * mechanism.threshold / _WORDS - 1.0


def _share(mechanism: L2BallMechanism | PrivUnitMechanism, vector: Points) -> float:
    return min(1.0, float(np.linalg.norm(vector)) / mechanism.radius)


def _ball(mechanism: L2BallMechanism, payloads: Points, vector: Points) -> Floats:
    """Log density of a direction, against the uniform distribution's: only its side of the vector matters."""
    towards = np.sign(payloads.astype(np.float64) @ np.asarray(vector, dtype=np.float64))
    return np.asarray(np.log1p(_bias(mechanism) * _share(mechanism, vector) * towards))


def _closest(mechanism: PrivUnitMechanism, payloads: Points, vector: Points) -> Floats:
    """Log density of a direction, against the uniform distribution's: by how close to the vector's it is."""
    near, far = mechanism.odds
    values = np.asarray(payloads, dtype=np.float64)
    towards, norm = _direction(vector)
    scores = values @ towards / np.linalg.norm(values, axis=1)
    share = min(1.0, norm / mechanism.radius)
    probabilities = closest_share(
        mechanism.dimension, mechanism.draws, mechanism.closest, np.minimum(np.abs(scores), 1.0)
    )
    # Both sides of a draw are candidates, and the one that points the vector's way is closest if the draw is.
    probabilities = probabilities * np.where(scores > 0, 1 + share, 1 - share) / 2
    return np.asarray(np.log(2 * mechanism.draws * (far + (near - far) * probabilities) / _WORDS))


def _direction(vector: Points) -> tuple[Floats, float]:
    """A vector's direction and norm; the first axis for a vector of zeros, as the mechanism has it."""
    values = np.asarray(vector, dtype=np.float64)
    norm = float(np.linalg.norm(values))
    return (values / norm if norm else np.eye(1, len(values))[0]), norm


def _plane(mechanism: PrivUnitMechanism, one: Points, other: Points) -> Floats:
    """Directions all round the plane of two vectors."""
    first, second = _direction(one)[0], _direction(other)[0]
    across = second - (second @ first) * first
    length = float(np.linalg.norm(across))
    if mechanism.dimension == 1:
        return np.array([first, -first])
    if length < 1e-9:
        across, length = np.roll(first, 1) - (np.roll(first, 1) @ first) * first, 1.0
    angles = np.linspace(0.0, 2 * math.pi, 4001)
    return np.asarray(np.outer(np.cos(angles), first) + np.outer(np.sin(angles), across / length))
