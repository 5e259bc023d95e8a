"""Mechanisms for scores (any bounded vector) and for matrices ``v v'`` with a sensitivity of their own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Floats, Integers
from murk._internal.wiping import copied, empty, track, wiped
from murk.errors import UserError
from murk.privacy.guarantees import ApproxDP, Guarantee, PureDP
from murk.privacy.mechanisms import BEST, GaussianMechanism, L2BallMechanism, PrivUnitMechanism, calibrate, plain_kind
from murk.privacy.mechanisms.base import (
    Costed,
    Mechanism,
    Randomizer,
    RoundedGaussian,
    Wrapped,
    check_room,
    means_of,
)
from murk.privacy.mechanisms.privacy_loss import Currency, PrivacyLoss
from murk.privacy.noise import NoiseSource
from murk.protocols.linear_algebra import matrix_size
from murk.protocols.scores import kernels

_ERROR_CODE = "MURK-LEARN-001"

_SENSITIVITY = math.sqrt(2.0)


@dataclass(frozen=True)
class OuterGaussian(RoundedGaussian):
    r"""Gaussian noise on ``v v'`` of a vector v no longer than 1.

    Two such matrices differ by at most sqrt 2 in Frobenius norm, since ``|v v' - u u'|^2 <= |v|^4 + |u|^4``. The
    mechanism bounds the vector itself, so the sensitivity holds for any input. After rounding to lattice steps of width
    g, it is at most ``sqrt 2 / g + sqrt d`` steps, with one more step for the rounding of floats:

    .. math:: g = \sqrt 2 / (2\, \text{steps} - \sqrt d - 2)

    Raises UserError if the budget is too small for the lattice.
    """

    features: int  # p, the length of v; a release has d = p (p + 1) / 2 numbers, as of `flattened`
    noise: GaussianMechanism  # the Gaussian mechanism of dimension d that adds noise and has this guarantee

    def __post_init__(self) -> None:
        if self.noise.dimension != matrix_size(self.features):
            raise UserError(f"matrices of {self.features} features do not fit noise for {self.noise.dimension} numbers")
        check_room(self.noise, self._sensitivity_steps)

    @classmethod
    def calibrate(cls, guarantee: Guarantee, *, features: int) -> OuterGaussian:
        """Return the mechanism with the least noise that provides ``guarantee``."""
        noise = GaussianMechanism.calibrate(guarantee, dimension=matrix_size(features), radius=_SENSITIVITY / 2.0)
        return cls(features, noise)

    @property
    def sensitivity(self) -> float:
        """Largest distance between two matrices: sqrt 2."""
        return _SENSITIVITY

    @property
    def _steps(self) -> int:
        return math.ceil(1.0 / self.unit + math.sqrt(self.dimension))

    @wiped
    def randomize(self, vectors: npt.ArrayLike, noise: NoiseSource, records: npt.ArrayLike) -> Integers:
        """Randomize ``v v'`` of m vectors v (m, p) into payloads, int64 of shape (m, d)."""
        indices = np.asarray(records, dtype=np.int64)
        rows = _rows(vectors, self.features)
        if indices.shape != (len(rows),):
            raise UserError(f"{len(rows)} vectors need as many record indices, got shape {indices.shape}")
        released = np.empty((len(rows), self.dimension), dtype=np.int64)
        kernels.noisy_outer(rows, self.unit, noise.gaussian(indices, self.dimension), released)
        return released

    @wiped
    def randomize_means(
        self, vectors: npt.ArrayLike, counts: Integers, noise: NoiseSource, records: npt.ArrayLike
    ) -> Integers:
        """Randomize the means of people's ``v v'``, which are no further apart than two of these; see `means_of`."""
        means = means_of(outer(vectors, self.features), counts)
        means /= self.unit
        np.rint(means, out=means)
        released: Integers = np.array(noise.gaussian(np.asarray(records, dtype=np.int64), self.dimension))
        released += track(means.astype(np.int64))
        return released

    def decode(self, payload: npt.ArrayLike) -> Floats:
        """Turn payloads (m, d) into unbiased estimates (m, d)."""
        return np.multiply(payload, self.unit, dtype=np.float64)

    def to_dict(self) -> dict[str, Any]:
        """Return the public parameters, including derived ones, as plain data."""
        return {
            "kind": self.kind,
            "dimension": self.dimension,
            "sensitivity": _SENSITIVITY,
            "steps": self.noise.steps,
            "variance": self.variance,
            "guarantee": self.guarantee.to_dict(),
        }


@dataclass(frozen=True)
class OuterMechanism(Wrapped):
    """Any mechanism for vectors of norm 1, applied to ``v v'``."""

    features: int  # p, the length of v
    noise: Mechanism  # the mechanism of dimension p (p + 1) / 2

    @wiped
    def randomize(self, vectors: npt.ArrayLike, noise: NoiseSource, records: npt.ArrayLike) -> Integers:
        """Randomize ``v v'`` of m vectors v (m, p) into payloads, int64 of shape (m, d)."""
        return self.noise.randomize(outer(vectors, self.features), noise, records)

    @wiped
    def randomize_means(
        self, vectors: npt.ArrayLike, counts: Integers, noise: NoiseSource, records: npt.ArrayLike
    ) -> Integers:
        """Randomize the means of people's ``v v'``; see `means_of`."""
        return self.noise.randomize(means_of(outer(vectors, self.features), counts), noise, records)


_BETTER = 0.99  # as in `calibrate`: rounding must not decide the kind of mechanism


def outer_mechanism(kind: str | None, guarantee: Guarantee, features: int) -> OuterGaussian | OuterMechanism:
    """Return a mechanism that releases ``v v'`` of a vector v no longer than 1.

    ``kind`` is ``"gaussian"``, ``"laplace"``, ``"l2-ball"`` or ``"privunit"``; None or ``"best"`` selects the one with
    the least noise in the worst direction. Raises UserError if it is unknown or cannot provide the guarantee.
    """
    if kind in (None, BEST) and isinstance(guarantee, PureDP | ApproxDP):
        pure = ("l2-ball", "privunit") if getattr(guarantee, "epsilon", 0.0) > 0.0 else ()
        kinds = (*pure, "gaussian") if getattr(guarantee, "delta", 0.0) > 0.0 else pure or ("l2-ball",)
        able = [outer_mechanism(each, guarantee, features) for each in kinds]
        best = able[0]
        for other in able[1:]:
            best = other if _worst(other) < _BETTER * _worst(best) else best
        return best
    kind = plain_kind(guarantee) if kind in (None, BEST) else kind
    if kind == "gaussian":
        return OuterGaussian.calibrate(guarantee, features=features)
    return OuterMechanism(features, calibrate(kind, guarantee, dimension=matrix_size(features), radius=1.0))


def _worst(mechanism: OuterGaussian | OuterMechanism) -> float:
    """Return the largest noise variance of a released ``v v'`` over directions, for unit vectors v."""
    if isinstance(mechanism.noise, PrivUnitMechanism | L2BallMechanism):
        across, along = mechanism.noise.second_moment
        return max(across, along - 1.0)
    return mechanism.variance


def noise_of(mechanism: OuterGaussian | OuterMechanism) -> tuple[float, float]:
    """Return the least and largest noise variance of a released ``v v'`` over directions, for any v."""
    if isinstance(mechanism.noise, PrivUnitMechanism | L2BallMechanism):
        # A shorter vector's release has the same mean square along it, of which more is noise.
        across, along = mechanism.noise.second_moment
        return min(across, along - 1.0), max(across, along)
    return mechanism.variance, mechanism.variance


@dataclass(frozen=True)
class ScoreMechanisms:
    """The mechanisms of a privacy level for all queries. Every release is charged at the higher cost."""

    score: Randomizer  # for scores, (p,)
    matrix: Randomizer | None  # for scatters and curvatures, given v, (p,); None if nobody is asked for any
    bit: Randomizer | None = None  # for one number in [-1, 1]; None without prediction sets and surveys

    def mechanism(self, query: str) -> Randomizer:
        """Return the mechanism that randomizes answers to a query."""
        if query == "covered" or query.startswith("above"):
            return self.bit or self.score
        return self.score if query == "score" or self.matrix is None else self.matrix

    @property
    def _all(self) -> dict[str, Randomizer]:
        known = {"score": self.score, "matrix": self.matrix, "bit": self.bit}
        return {name: one for name, one in known.items() if one is not None}

    @property
    def _dearer(self) -> Costed:
        dearest: Randomizer = self.score
        for mechanism in self._all.values():
            if not mechanism.cost("gdp") <= dearest.cost("gdp"):
                dearest = mechanism
        return dearest

    @property
    def kind(self) -> str:
        """Kind of all mechanisms."""
        return self.score.kind

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of one release, whichever query it answers."""
        return self._dearer.guarantee

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """All known guarantees of one release."""
        return self._dearer.guarantees

    @property
    def magnitude(self) -> int:
        """Largest entry of an honest payload."""
        return max(each.magnitude for each in self._all.values())

    def cost(self, currency: Currency) -> PrivacyLoss:
        """Return the cost of one release, rounded up."""
        return self._dearer.cost(currency)

    def to_dict(self) -> dict[str, Any]:
        """Return the public parameters of all mechanisms."""
        return {name: one.to_dict() for name, one in self._all.items()}  # type: ignore[attr-defined]


LevelMechanisms = Mapping[str, ScoreMechanisms]  # mechanisms by privacy level


def score_mechanisms(
    kind: str | None,
    guarantee: Guarantee,
    features: int,
    contrasts: int = 1,
    *,
    matrices: bool = True,
    bits: bool = False,
) -> ScoreMechanisms:
    """Return a level's mechanisms; raise UserError if the kind is unknown or cannot provide the guarantee."""
    score = calibrate(kind, guarantee, dimension=contrasts * features, radius=1.0)
    # The same kind, so that all have the same cost in every currency and the same guarantee.
    bit = calibrate(score.kind, guarantee, dimension=1, radius=1.0) if bits else None
    if not matrices:
        return ScoreMechanisms(score, None, bit)
    if isinstance(score, GaussianMechanism):
        return ScoreMechanisms(score, OuterGaussian.calibrate(guarantee, features=features), bit)
    inner = calibrate(score.kind, guarantee, dimension=matrix_size(features), radius=1.0)
    return ScoreMechanisms(score, OuterMechanism(features, inner), bit)


def outer(vectors: npt.ArrayLike, features: int) -> Floats:
    """Return ``v v'`` of rows v (m, p) as vectors; longer rows are shortened to 1, non-finite values count as 0."""
    rows = _rows(vectors, features)
    out = empty((len(rows), matrix_size(features)))
    kernels.outer(rows, out)
    return out


def _rows(vectors: npt.ArrayLike, features: int) -> Floats:
    rows = copied(vectors)
    if rows.ndim != 2 or rows.shape[1] != features:
        raise UserError(f"vectors must have the shape (m, {features}), got {rows.shape}")
    return rows
