"""Mechanisms that release ``v v'`` of bounded vectors v: Gaussian noise with the matrix's sensitivity, or any other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray

from murk._internal.arrays import Floats, Integers
from murk._internal.jit import borrowed, deferred_to
from murk._internal.wiping import copied, empty, track, wiped
from murk.errors import UserError
from murk.privacy.guarantees import ApproxDP, Guarantee, PureDP
from murk.privacy.mechanisms import BEST, GaussianMechanism, calibrate, plain_kind
from murk.privacy.mechanisms.base import DirectionMechanism, Mechanism, RoundedGaussian, Wrapped, check_room, means_of

if TYPE_CHECKING:
    from murk.privacy.noise import NoiseSource

_ERROR_CODE = "MURK-LEARN-001"

Array = NDArray[Any]

_SENSITIVITY = math.sqrt(2.0)


def matrix_size(features: int) -> int:
    """Return the number of entries in the upper triangle of a symmetric matrix, with the diagonal."""
    return features * (features + 1) // 2


@cache
def _triangle(p: int) -> tuple[Array, Array, Array]:
    """Return row, column and factor of each entry of an upper triangle."""
    row, column = np.triu_indices(p)
    return row, column, np.where(row == column, 1.0, math.sqrt(2.0))


@wiped
def _outer_early(rows: Array, out: Array) -> None:
    # The same operations as in `write_outer`, in the same order, for all rows at once; `cumsum` adds one by one.
    row, column, factor = _triangle(rows.shape[1])
    v = track(np.where(np.isfinite(rows), rows, 0.0))
    squares = np.abs(v, out=empty(v.shape))
    with np.errstate(all="ignore"):
        largest = track(squares.max(axis=1, initial=1.0, keepdims=True))
        v /= largest
        np.multiply(v, v, out=squares)
        sums = np.cumsum(squares, axis=1, out=empty(v.shape))
        lengths = np.sqrt(sums[:, -1:], out=empty((len(v), 1)))
        np.maximum(lengths, np.divide(1.0, largest, out=largest), out=lengths)
        v /= lengths
        # Indexing would copy through memory that is not wiped.
        left, right = (np.take(v, indices, axis=1, out=empty(out.shape), mode="clip") for indices in (row, column))
        np.multiply(left, right, out=out)
        out *= factor


@deferred_to(_outer_early)
def write_outer(rows: Array, out: Array) -> None:
    """Write ``v v'`` of rows v (m, p), shortened to norm 1, into ``out`` like `flattened`; NaN and infinity are 0."""
    p = rows.shape[1]
    v = np.empty(p)
    for i in range(rows.shape[0]):
        # Scaled before squaring, so that a huge row does not overflow.
        largest, square, at = 1.0, 0.0, 0
        for j in range(p):
            v[j] = rows[i, j] if rows[i, j] - rows[i, j] == 0.0 else 0.0
            largest = max(largest, abs(v[j]))
        for j in range(p):
            v[j] /= largest
            square += v[j] * v[j]
        length = max(math.sqrt(square), 1.0 / largest)
        for j in range(p):
            v[j] /= length
        for j in range(p):
            out[i, at] = v[j] * v[j]
            for k in range(j + 1, p):
                out[i, at + k - j] = v[j] * v[k] * math.sqrt(2.0)
            at += p - j
    v[:] = 0.0


@wiped
def _noisy_outer_early(rows: Array, unit: float, noise: Array, out: Array) -> None:
    # The noise could be computed from these steps, so they are wiped.
    matrices, steps = empty(out.shape), empty(out.shape, np.int64)
    _outer_early(rows, matrices)
    matrices /= unit
    steps[:] = np.rint(matrices, out=matrices)
    np.add(steps, noise, out=out)


@deferred_to(_noisy_outer_early)
def write_noisy_outer(rows: Array, unit: float, noise: Array, out: Array) -> None:
    """Write the numbers of `write_outer`, in steps of ``unit``, plus noise, as integers into ``out``."""
    rows = borrowed(rows)
    matrix = np.empty((1, out.shape[1]))
    for i in range(rows.shape[0]):
        write_outer(rows[i : i + 1], matrix)
        for j in range(out.shape[1]):
            out[i, j] = np.int64(np.rint(matrix[0, j] / unit)) + noise[i, j]
    matrix[:] = 0.0


@dataclass(frozen=True)
class OuterGaussian(RoundedGaussian):
    r"""Gaussian noise on ``v v'`` of a vector v no longer than 1.

    Two such matrices differ by at most sqrt 2 in Frobenius norm, since ``|v v' - u u'|^2 <= |v|^4 + |u|^4``. The
    mechanism bounds the vector itself, so the sensitivity holds for any input. After rounding to lattice steps of width
    g, the sensitivity is at most ``sqrt 2 / g + sqrt d`` steps, plus two steps for the rounding of floats:

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
        write_noisy_outer(rows, self.unit, noise.gaussian(indices, self.dimension), released)
        return released

    @wiped
    def randomize_means(
        self, vectors: npt.ArrayLike, counts: Integers, noise: NoiseSource, records: npt.ArrayLike
    ) -> Integers:
        """Randomize each person's mean of ``v v'`` (`means_of`); two means are no further apart than two matrices."""
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
        pure = ("l2-ball", "privunit") if guarantee.epsilon > 0.0 else ()
        approximate = isinstance(guarantee, ApproxDP) and guarantee.delta > 0.0
        kinds = (*pure, "gaussian") if approximate else pure or ("l2-ball",)
        able = [outer_mechanism(each, guarantee, features) for each in kinds]
        best = able[0]
        for other in able[1:]:
            best = other if _worst(other) < _BETTER * _worst(best) else best
        return best
    kind = plain_kind(guarantee) if kind in (None, BEST) else kind
    if kind == "gaussian":
        return OuterGaussian.calibrate(guarantee, features=features)
    return OuterMechanism(features, calibrate(kind, guarantee, dimension=matrix_size(features), radius=1.0))


def _second_moment(mechanism: OuterGaussian | OuterMechanism) -> tuple[float, float] | None:
    """Return the mean squares of a released direction across the vector and along it; None for additive noise."""
    return mechanism.noise.second_moment if isinstance(mechanism.noise, DirectionMechanism) else None


def _worst(mechanism: OuterGaussian | OuterMechanism) -> float:
    """Return the largest noise variance of a released ``v v'`` over directions, for unit vectors v."""
    if (moments := _second_moment(mechanism)) is not None:
        across, along = moments
        return max(across, along - 1.0)
    return mechanism.variance


def noise_of(mechanism: OuterGaussian | OuterMechanism) -> tuple[float, float]:
    """Return the least and largest noise variance of a released ``v v'`` over directions, for any v."""
    if (moments := _second_moment(mechanism)) is not None:
        # A release has the same mean square along the vector whatever the vector's length, so for a shorter vector more
        # of it is noise.
        across, along = moments
        return min(across, along - 1.0), max(across, along)
    return mechanism.variance, mechanism.variance


def outer(vectors: npt.ArrayLike, features: int) -> Floats:
    """Return ``v v'`` of rows v (m, p) as vectors; longer rows are shortened to 1, non-finite values count as 0."""
    rows = _rows(vectors, features)
    out = empty((len(rows), matrix_size(features)))
    write_outer(rows, out)
    return out


def _rows(vectors: npt.ArrayLike, features: int) -> Floats:
    rows = copied(vectors)
    if rows.ndim != 2 or rows.shape[1] != features:
        raise UserError(f"vectors must have the shape (m, {features}), got {rows.shape}")
    return rows
