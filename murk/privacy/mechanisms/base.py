"""What the mechanisms have in common: their interface, and the checks and array code that they share."""

import math
import operator
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from murk._scratch import copied, wiped
from murk.errors import UserError
from murk.privacy.guarantees import Guarantee
from murk.privacy.mechanisms.lattice import DIRECTIONS, NOISE_OF, WIDTH
from murk.privacy.mechanisms.privacy_loss import Currency, PrivacyLoss

if TYPE_CHECKING:
    from murk.privacy.mechanisms.payload_limits import Reach
    from murk.privacy.noise import NoiseSource

__all__ = ["WIDTH", "Costed", "Mechanism", "Randomizer"]

Vectors = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


_STEPS_BELOW = 2**31
_NOISE_AT_ONCE = 2**20
_RADII = (1e-100, 1e100)


class Costed(Protocol):
    """What a ledger and a worker know of a mechanism: what it promises, what it costs, how large payloads are."""

    @property
    def kind(self) -> str:
        """Its name, such as ``"gaussian"``."""

    @property
    def guarantee(self) -> Guarantee:
        """What one release promises, rounded up."""

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """Everything that is known of one release, `guarantee` first; an accountant takes its pick."""

    @property
    def magnitude(self) -> int:
        """No coordinate of an honest payload exceeds it, up to a probability below 1e-30."""

    def cost(self, currency: Currency) -> PrivacyLoss:
        """What one release costs an account in ``currency``, rounded up."""


class Randomizer(Costed, Protocol):
    """Randomizes a vector of each person into the integers of their release."""

    @property
    def dimension(self) -> int:
        """Length of the vectors."""

    @property
    def reach(self) -> "Reach":
        """How long an honest payload is; a longer one is forged."""

    def randomize(self, vectors: npt.ArrayLike, noise: "NoiseSource", records: npt.ArrayLike) -> Integers:
        """Randomize m vectors (m, d) into payloads (m, d)."""

    def decode(self, payload: npt.ArrayLike) -> Vectors:
        """Turn payloads (m, d) into unbiased estimates (m, d) of the vectors."""


class Mechanism(Randomizer, Protocol):
    """A frozen public description of how a vector of bounded l2 norm is randomized.

    Anyone who holds it can compute the noise and the guarantee; nothing in it depends on data. It is defined by
    integers (``steps`` or ``threshold``), and what it claims is computed from them.
    """

    kind: ClassVar[str]
    """Its name, as tasks and policies have it."""
    code: ClassVar[int]
    """How vectors are bounded and randomized, one of `murk.privacy.mechanisms.lattice`."""

    @property
    def radius(self) -> float:
        """Public bound of their l2 norm; what lies beyond is projected to it."""

    @property
    def steps(self) -> int:
        """Integer bound of the quantised vector, in the mechanism's own norm; 0 where there is none.

        For `PrivUnitMechanism` how many draws count as closest.
        """

    @property
    def draws(self) -> int:
        """Vectors of noise that one release takes: 1 for all but `PrivUnitMechanism`."""

    @property
    def threshold(self) -> int:
        """The coin's probability in 2^-64; 0 where there is none."""

    @property
    def spacing(self) -> float:
        """Width of a lattice step."""

    @property
    def unit(self) -> float:
        """What decoding multiplies by."""

    @property
    def sensitivity(self) -> float:
        """Diameter of the bounded vectors in the mechanism's own norm."""

    @property
    def variance(self) -> float:
        """Variance of one coordinate of the decoded release."""

    def to_dict(self) -> dict[str, Any]:
        """The public parameters as plain data."""


def checked_shape(owner: str, dimension: object, radius: object) -> tuple[int, float]:
    """A mechanism's dimension and radius, checked."""
    size = checked_integer(owner, "dimension", dimension)
    if size < 1:
        raise UserError(f"{owner}: dimension={dimension!r} is below 1")
    try:
        bound = float(radius)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        bound = math.nan
    if isinstance(radius, bool | str) or not _RADII[0] <= bound <= _RADII[1]:
        raise UserError(
            f"{owner}: radius={radius!r} is not a bound of a norm; it needs a number above 0 "
            f"(from {_RADII[0]:g} to {_RADII[1]:g}); rescale the vectors"
        )
    return size, bound


def checked_integer(owner: str, name: str, value: object) -> int:
    """An integer parameter, checked (numpy's integers are welcome)."""
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise UserError(f"{owner}: {name}={value!r} is not an integer") from None


def check_steps(owner: str, steps: int, dimension: int, budget: str) -> None:
    """Check that a bound in lattice steps fits the integers of a release; ``budget`` is what to name."""
    if steps < 1:
        raise UserError(
            f"{owner}: {budget} is less than one lattice step can express; give a larger budget "
            f"(about 2e-6 in mu or epsilon is the least)"
        )
    if steps >= _STEPS_BELOW or dimension * steps * steps >= 2**63:
        largest = min(_STEPS_BELOW - 1, math.isqrt((2**63 - 1) // dimension))
        raise UserError(
            f"{owner}: {budget} is so large that the integers of a release in dimension {dimension} would "
            f"overflow; give a smaller budget (about {2 * largest / WIDTH:.4g} in mu or epsilon is the most)"
        )


class LatticeMechanism:
    """What every mechanism does with vectors that draws its noise on the lattice."""

    __slots__ = ()

    def randomize(self: Mechanism, vectors: npt.ArrayLike, noise: "NoiseSource", records: npt.ArrayLike) -> Integers:
        """Randomize m vectors.

        Parameters
        ----------
        vectors
            Shape (m, d). What is beyond the radius is projected on it; NaN counts as 0.
        noise
            Where the noise comes from.
        records
            Shape (m,): the records' indices, for simulated noise.

        Returns
        -------
        Payloads, int64 of shape (m, d).

        Raises
        ------
        UserError
            If the shapes do not fit.
        """
        return randomize_block(self, vectors, noise, records)

    def decode(self: Mechanism, payload: npt.ArrayLike) -> Vectors:
        """Turn payloads (m, d) into unbiased estimates (m, d): the unit times the payload, or times its direction."""
        return decode_block(self, payload)


@cache
def _tools() -> tuple[Any, Any, Any]:
    """What randomizing takes, looked up once: to import it within a function takes as long as to quantise a vector."""
    from murk.privacy.mechanisms import lattice
    from murk.privacy.noise import Purpose
    from murk.privacy.noise.sources import draw_noise

    return lattice, draw_noise, Purpose.COIN


@wiped
def randomize_block(
    mechanism: Mechanism, vectors: npt.ArrayLike, noise: "NoiseSource", records: npt.ArrayLike
) -> Integers:
    """Randomize m vectors by any lattice mechanism."""
    lattice, draw_noise, coin = _tools()
    rows = _block(mechanism, vectors, np.float64)
    indices = np.asarray(records, dtype=np.int64)
    if indices.shape != (len(rows),):
        raise UserError(f"{len(rows)} vectors need {len(rows)} record indices, got shape {indices.shape}")
    out = np.empty(rows.shape, dtype=np.int64)
    # Many draws a release would fill the memory: some records at a time.
    code, size = mechanism.code, mechanism.draws * mechanism.dimension
    block = len(rows) if mechanism.draws == 1 else max(1, _NOISE_AT_ONCE // size)
    for start in range(0, len(rows), max(block, 1)):
        part = slice(start, start + block)
        integers = draw_noise(noise, NOISE_OF[code], indices[part], size)
        if code in DIRECTIONS:
            coins = noise.words(indices[part], 3, coin)
        else:
            coins = np.empty((len(integers), 0), dtype=np.uint64)
        lattice.randomize_block(
            code,
            rows[part],
            mechanism.radius,
            mechanism.spacing,
            mechanism.steps,
            np.uint64(mechanism.threshold),
            integers,
            coins,
            out[part],
        )
    return out


def decode_block(mechanism: Mechanism, payload: npt.ArrayLike) -> Vectors:
    """Decode m payloads of any lattice mechanism."""
    from murk.privacy.mechanisms import lattice

    rows = _block(mechanism, payload, np.int64)
    out = np.empty(rows.shape, dtype=np.float64)
    lattice.decode_block(mechanism.code, rows, mechanism.unit, out)
    return out


def _block(mechanism: Mechanism, values: npt.ArrayLike, dtype: type) -> npt.NDArray[Any]:
    rows = np.asarray(values)
    if rows.ndim != 2 or rows.shape[1] != mechanism.dimension:
        raise UserError(
            f"the {mechanism.kind} mechanism takes an array of shape (m, {mechanism.dimension}), got {rows.shape}"
        )
    if dtype is np.int64 and rows.dtype.kind not in "iu":
        raise UserError(f"a payload is made of integers, got {rows.dtype}")
    return copied(rows, dtype)
