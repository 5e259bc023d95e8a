"""Interface of the mechanisms, and the checks and array code that they share."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Floats, Integers
from murk._internal.wiping import copied, track, wiped
from murk.errors import UserError
from murk.privacy.guarantees import Guarantee
from murk.privacy.mechanisms import lattice
from murk.privacy.mechanisms.costs import Costed, Currency, PrivacyLoss
from murk.privacy.mechanisms.lattice import DIRECTIONS, NOISE_OF, PayloadBound, gaussian_square
from murk.privacy.mechanisms.lattice import WIDTH as WIDTH

if TYPE_CHECKING:
    from murk.privacy.noise import NoiseSource

_ERROR_CODE = "MURK-PRIVACY-001"


TAIL = 13
"""Bound of Gaussian noise in widths: P(|x| > 13 S) < 4e-37, below 1e-30 for all coordinates of a payload together."""
_STEPS_BELOW = 2**31
_NOISE_AT_ONCE = 2**20
_BOUNDS = (1e-100, 1e100)


class Randomizer(Costed, Protocol):
    """Randomizes each person's vector into the integers of their release."""

    @property
    def dimension(self) -> int:
        """Length of the vectors."""

    @property
    def payload_bound(self) -> PayloadBound:
        """Bound on an honest payload's norm; a longer one is forged."""

    def randomize(self, vectors: npt.ArrayLike, noise: NoiseSource, records: npt.ArrayLike) -> Integers:
        """Randomize m vectors (m, d) into payloads (m, d)."""

    def decode(self, payload: npt.ArrayLike) -> Floats:
        """Decode payloads (m, d) into unbiased estimates (m, d) of the vectors."""


class Mechanism(Randomizer, Protocol):
    """A frozen public description of how a vector of bounded l2 norm is randomized.

    It determines noise and guarantee and does not depend on data. It is defined by integers (``steps`` or
    ``threshold``), from which its guarantees are computed.
    """

    kind: ClassVar[str]
    """Name in tasks and policies."""
    code: ClassVar[int]
    """How vectors are bounded and randomized: a code of `murk.privacy.mechanisms.lattice`."""

    @property
    def radius(self) -> float:
        """Public bound on the vectors' l2 norm; vectors beyond it are projected."""

    @property
    def steps(self) -> int:
        """Integer bound of the quantised vector in the mechanism's norm; 0 if nothing is quantised.

        For `PrivUnitMechanism`, the number of draws that count as closest.
        """

    @property
    def draws(self) -> int:
        """Noise vectors per release: 1 for all but `PrivUnitMechanism`."""

    @property
    def threshold(self) -> int:
        """Probability of the mechanism's coin, in units of 2^-64; 0 without a coin."""

    @property
    def spacing(self) -> float:
        """Width of a lattice step."""

    @property
    def unit(self) -> float:
        """Factor that decodes a payload."""

    @property
    def sensitivity(self) -> float:
        """Diameter of the bounded vectors in the mechanism's norm."""

    @property
    def variance(self) -> float:
        """Variance of one coordinate of the decoded release."""

    def to_dict(self) -> dict[str, Any]:
        """Return the public parameters as plain data."""


def checked_shape(owner: str, dimension: object, radius: object) -> tuple[int, float]:
    """Return a mechanism's dimension and radius, checked."""
    size = checked_integer(owner, "dimension", dimension)
    if size < 1:
        raise UserError(f"{owner}: dimension={dimension!r} is below 1")
    return size, checked_bound(owner, "radius", radius, "; rescale the vectors")


def checked_bound(owner: str, name: str, value: object, advice: str = "") -> float:
    """Return the bound on a norm, checked."""
    try:
        bound = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        bound = math.nan
    if isinstance(value, bool | str) or not _BOUNDS[0] <= bound <= _BOUNDS[1]:
        raise UserError(
            f"{owner}: {name}={value!r} is not a bound on a norm; it needs a number above 0 "
            f"(from {_BOUNDS[0]:g} to {_BOUNDS[1]:g}){advice}"
        )
    return bound


def checked_integer(owner: str, name: str, value: object) -> int:
    """Return an integer parameter, checked; numpy's integers are allowed."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise UserError(f"{owner}: {name}={value!r} is not an integer") from None


def check_steps(owner: str, steps: int, dimension: int, budget: str) -> None:
    """Check that a bound in lattice steps fits the integers of a release; messages name ``budget``."""
    largest = min(_STEPS_BELOW - 1, math.isqrt((2**63 - 1) // dimension))
    if steps < 1:
        raise UserError(
            f"{owner}: {budget} is less than one lattice step can express; give a larger budget "
            f"(about 2e-6 in mu or epsilon is the least)"
        )
    if steps > largest:
        raise UserError(
            f"{owner}: {budget} is so large that the integers of a release in dimension {dimension} would "
            f"overflow; give a smaller budget (about {2 * largest / WIDTH:.4g} in mu or epsilon is the most)"
        )


class LatticeMechanism:
    """Base class of mechanisms whose noise is drawn on a lattice of integers."""

    __slots__ = ()

    def _check_fields(self: Any, *integers: str) -> None:
        """Check dimension, radius and the named integers, and store them with the declared types."""
        owner = type(self).__name__
        dimension, radius = checked_shape(owner, self.dimension, self.radius)
        object.__setattr__(self, "dimension", dimension)
        object.__setattr__(self, "radius", radius)
        for name in integers:
            object.__setattr__(self, name, checked_integer(owner, name, getattr(self, name)))

    def randomize(self: Mechanism, vectors: npt.ArrayLike, noise: NoiseSource, records: npt.ArrayLike) -> Integers:
        """Randomize vectors (m, d) into int64 payloads (m, d).

        A vector beyond the radius is projected onto it; NaN counts as 0. ``records`` (m,) are the records' indices, for
        simulated noise. Raises `UserError` if the shapes do not fit.
        """
        return randomize_block(self, vectors, noise, records)

    def decode(self: Mechanism, payload: npt.ArrayLike) -> Floats:
        """Decode payloads (m, d) into unbiased estimates (m, d): the unit times the payload, or its direction."""
        return decode_block(self, payload)

    def to_dict(self: Any) -> dict[str, Any]:
        """Return the public and derived parameters as plain data."""
        size = "norm" if self.code in DIRECTIONS else "scale"
        return plain(self, *(field.name for field in fields(self)), size, "variance", "guarantee")


class AdditiveMechanism(LatticeMechanism):
    """Base class for mechanisms that add noise to the quantised vector."""

    __slots__ = ()

    draws: ClassVar[int] = 1
    threshold: ClassVar[int] = 0

    @property
    def unit(self: Mechanism) -> float:
        """Factor that decodes a payload: the spacing."""
        return self.spacing

    @property
    def scale(self: Mechanism) -> float:
        """Scale of the noise on a coordinate: for Gaussian noise its standard deviation."""
        return WIDTH * self.spacing


class DirectionMechanism(LatticeMechanism):
    """Base class of the mechanisms that release a random direction."""

    __slots__ = ()
    # Kernels ignore it, because directions are not quantised.
    spacing: ClassVar[float] = 1.0

    @property
    @abstractmethod
    def second_moment(self) -> tuple[float, float]:
        """Mean squares of a decoded release's coordinate across the unit vector and along it."""

    @property
    def norm(self: Mechanism) -> float:
        """Norm B of a decoded release."""
        return self.unit

    @property
    def sensitivity(self: Mechanism) -> float:
        """l2 diameter of the bounded vectors."""
        return 2 * self.radius

    @property
    def variance(self: Mechanism) -> float:
        """Mean square of a coordinate of the decoded release, B^2 / d; the vector's own square is part of it."""
        return self.unit**2 / self.dimension

    @property
    def magnitude(self) -> int:
        """Bound on each coordinate of an honest payload, exceeded with probability below 1e-30."""
        return TAIL * WIDTH


def plain(mechanism: Any, *names: str) -> dict[str, Any]:
    """Return a mechanism's kind and attributes as plain data; thresholds, which have 64 bits, are text."""
    data = {name: getattr(mechanism, name) for name in ("kind", *names)}
    plain = {name: value.to_dict() for name, value in data.items() if isinstance(value, Guarantee)}
    return data | plain | ({"threshold": str(data["threshold"])} if "threshold" in data else {})


@cache
def _noise_tools() -> tuple[Any, Any]:
    """Import the functions that draw noise on first use, since reading guarantees does not need them."""
    from murk.privacy.noise import Purpose
    from murk.privacy.noise.sources import draw_noise

    return draw_noise, Purpose.COIN


@wiped
def randomize_block(
    mechanism: Mechanism, vectors: npt.ArrayLike, noise: NoiseSource, records: npt.ArrayLike
) -> Integers:
    """Randomize m vectors with any lattice mechanism."""
    draw_noise, coin = _noise_tools()
    rows = checked_block(mechanism, vectors, np.float64)
    indices = checked_indices(records, len(rows))
    out = np.empty(rows.shape, dtype=np.int64)
    # Many draws per release would fill the memory, so records are randomized in blocks.
    code, size = mechanism.code, mechanism.draws * mechanism.dimension
    block = len(rows) if mechanism.draws == 1 else max(1, _NOISE_AT_ONCE // size)
    for start in range(0, len(rows), max(block, 1)):
        part = slice(start, start + block)
        integers = draw_noise(noise, NOISE_OF[code], indices[part], size)
        coins = np.empty((len(integers), 0), dtype=np.uint64)
        if code in DIRECTIONS:
            coins = noise.words(indices[part], 3, coin)
        parameters = mechanism.radius, mechanism.spacing, mechanism.steps, np.uint64(mechanism.threshold)
        lattice.randomize_block(code, rows[part], parameters, integers, coins, out[part])
    return out


def means_of(vectors: Floats, counts: Integers) -> Floats:
    """Return the means of consecutive rows (m, d), of ``counts`` (n,) rows each."""
    means = track(np.add.reduceat(vectors, np.cumsum(counts) - counts, axis=0))
    means /= counts[:, None]
    return means


def randomize_means(
    mechanism: Any, vectors: npt.ArrayLike, counts: Integers, noise: NoiseSource, records: npt.ArrayLike
) -> Integers:
    """Randomize the mean of each person's vectors, with any lattice mechanism or one with a method for means.

    ``vectors`` (m, d) are grouped by person, and ``counts`` (n,) are the group sizes. A vector beyond the radius is
    projected onto it first, so that the mean is within it: its sensitivity is that of one vector. A non-finite number
    counts as 0, and so does a vector whose norm overflows.
    """
    if hasattr(mechanism, "randomize_means"):
        released: Integers = mechanism.randomize_means(vectors, counts, noise, records)
        return released
    rows = checked_block(mechanism, vectors, np.float64)
    rows[~np.isfinite(rows)] = 0.0
    with np.errstate(over="ignore"):
        scale = track(np.einsum("ij,ij->i", rows, rows))
    np.sqrt(scale, out=scale)
    np.maximum(scale, mechanism.radius, out=scale)
    np.divide(mechanism.radius, scale, out=scale)
    rows *= scale[:, None]
    return randomize_block(mechanism, means_of(rows, counts), noise, records)


def decode_block(mechanism: Mechanism, payload: npt.ArrayLike) -> Floats:
    """Decode m payloads of any lattice mechanism."""
    rows = checked_block(mechanism, payload, np.int64)
    out = np.empty(rows.shape, dtype=np.float64)
    lattice.decode_block(mechanism.code, rows, mechanism.unit, out)
    return out


def checked_indices(records: npt.ArrayLike, count: int) -> Integers:
    """Return record indices as an array; raise `UserError` unless there is one for each vector."""
    indices = np.asarray(records, dtype=np.int64)
    if indices.shape != (count,):
        raise UserError(f"{count} vectors need {count} record indices, got shape {indices.shape}")
    return indices


def checked_block(mechanism: Any, values: npt.ArrayLike, dtype: type) -> npt.NDArray[Any]:
    """Return vectors or payloads as an array (m, d); raise `UserError` if they do not fit a mechanism."""
    rows = values if isinstance(values, np.ndarray) else track(np.array(values))
    if rows.ndim != 2 or rows.shape[1] != mechanism.dimension:
        raise UserError(
            f"the {mechanism.kind} mechanism takes an array of shape (m, {mechanism.dimension}), got {rows.shape}"
        )
    if dtype is np.int64 and rows.dtype.kind not in "iu":
        raise UserError(f"a payload is made of integers, got {rows.dtype}")
    return copied(rows, dtype)


class Wrapped:
    """Base class that delegates whatever a subclass does not override to an inner mechanism, ``noise``."""

    noise: Mechanism

    @property
    def kind(self) -> str:
        """Kind of the inner mechanism."""
        return self.noise.kind

    @property
    def dimension(self) -> int:
        """Number of integers in a release."""
        return self.noise.dimension

    @property
    def unit(self) -> float:
        """Factor that decodes a payload."""
        return self.noise.unit

    @property
    def variance(self) -> float:
        """Variance of each coordinate of a decoded release."""
        return self.noise.variance

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of one release."""
        return self.noise.guarantee

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """All known guarantees of one release."""
        return self.noise.guarantees

    @property
    def magnitude(self) -> int:
        """Bound on each integer of an honest payload, exceeded with probability below 1e-30."""
        return self.noise.magnitude

    @property
    def payload_bound(self) -> PayloadBound:
        """Bound on an honest payload's norm; a longer one is forged."""
        return self.noise.payload_bound

    def cost(self, currency: Currency) -> PrivacyLoss:
        """Return the cost of one release to an account, rounded up."""
        return self.noise.cost(currency)

    def decode(self, payload: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Decode payloads (m, d) into unbiased estimates (m, d)."""
        return self.noise.decode(payload)

    def to_dict(self) -> dict[str, Any]:
        """Return the public and derived parameters as plain data."""
        return self.noise.to_dict()


class RoundedGaussian(Wrapped, ABC):
    """Base class of Gaussian noise on d numbers of a record, rounded to steps of width ``unit``.

    The guarantee of ``noise`` allows a distance of ``2 steps``; rounding uses ``sqrt d`` of it, and float errors up to
    two.
    """

    @property
    @abstractmethod
    def sensitivity(self) -> float:
        """Largest distance between two records' numbers."""

    @property
    @abstractmethod
    def _steps(self) -> int:
        """Bound on the norm of a record's numbers in lattice steps."""

    @property
    def _sensitivity_steps(self) -> float:
        return 2.0 * self.noise.steps - math.sqrt(self.dimension) - 2.0

    @property
    def unit(self) -> float:
        """Width of a lattice step, which decodes a payload."""
        return self.sensitivity / self._sensitivity_steps

    @property
    def variance(self) -> float:
        """Noise variance of each number."""
        return (WIDTH * self.unit) ** 2

    @property
    def magnitude(self) -> int:
        """Bound on each integer of an honest payload, exceeded with probability below 1e-30."""
        return self._steps + TAIL * WIDTH

    @property
    def payload_bound(self) -> PayloadBound:
        """Bound on an honest payload's norm; a longer one is forged."""
        return PayloadBound(((0, self.dimension, gaussian_square(self.dimension, self._steps)),))


def checked_release(integers: npt.ArrayLike, size: int, what: str) -> npt.NDArray[Any]:
    """Return a release as an array of ``size`` integers; raise `UserError`, which names ``what``, if it is not one."""
    array = np.asarray(integers)
    if array.size != size or array.dtype.kind not in "iu":
        raise UserError(f"{what} has {size} integers, got {array.dtype} of shape {array.shape}")
    return array


def check_room(noise: Mechanism, room: float, numbers: str = "numbers") -> None:
    """Raise UserError if rounding takes more than half of the noise's sensitivity; ``room`` are the remaining steps."""
    if room < noise.steps:
        raise UserError(
            f"{noise.guarantee!r} is less than a lattice can express for {noise.dimension} {numbers}; give a larger "
            f"budget (a mu of {4e-6 * math.sqrt(noise.dimension) + 8e-6:.2g} or more)"
        )


def is_directional(mechanism: Any) -> bool:
    """Return whether a payload encodes a direction alone."""
    return isinstance(of_vectors(mechanism), DirectionMechanism)


def of_vectors(mechanism: Any) -> Any:
    """Return a mechanism's inner mechanism (`Wrapped.noise`) if there is one, else the mechanism itself."""
    return mechanism.noise if isinstance(mechanism, Wrapped) else mechanism


def direction_spread(mechanism: Any) -> tuple[float, float | None]:
    """Return a coordinate's noise variance, and its excess along the input (None if the noise ignores the input)."""
    if not is_directional(mechanism):
        return mechanism.variance, None
    across, along = of_vectors(mechanism).second_moment
    if mechanism.dimension == 1:
        # A sign of fixed size B and mean m has the variance B^2 - m^2, that of a sign of size 1 plus B^2 - 1.
        return along - 1.0, None
    return across, max(0.0, along - across)
