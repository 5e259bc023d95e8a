"""Distribution of a draw, and the table of its leading part, computed with integers only.

A draw is ``|x| = k J + j`` with ``0 <= j < J`` and ``S = m J``. The table holds binary digits of the distribution
function of ``k``, computed by interval arithmetic on integers, so every digit is proved.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from murk.errors import UserError

_ERROR_CODE = "MURK-PRIVACY-001"

Kind = Literal["gaussian", "laplace"]

LATTICE_WIDTH: int = 2**20
"""Width S (Gaussian standard deviation, Laplace scale) of all noise, in lattice steps."""

# Extra digits, such that the first precision tried leaves only about 2^-60 of the entries undecided.
_GUARD = 64
_GUIDE_BITS = 10
_LARGEST = 2**62
_POWERS: Final = MappingProxyType({"gaussian": 2, "laplace": 1})  # the power of |x| in the exponent of each kind


@dataclass(frozen=True)
class NoiseDistribution:
    """A symmetric distribution on the integers, in the form the sampler needs.

    ``gaussian``: P(x) proportional to exp(-x^2 / 2 S^2); ``laplace``: proportional to exp(-|x| / S).

    ``scale`` is S; ``coarse`` is m, which divides S: k is drawn at width m, then j within ``J = S / m`` by acceptance.
    ``width`` is how many bits of a word choose k (64; less in tests, to force rare cases), and ``levels`` is the number
    of words to which the distribution function of k is known. A draw that they leave undecided needs a :meth:`deeper`
    distribution, so precision is unlimited.
    """

    kind: Kind
    scale: int
    coarse: int
    width: int = 64
    levels: int = 2

    def __post_init__(self) -> None:
        if self.kind not in _POWERS:
            raise UserError(f"no such distribution: {self.kind!r}; use {' or '.join(map(repr, _POWERS))}")
        if self.scale < 1 or self.coarse < 1 or self.scale % self.coarse:
            raise UserError(f"the coarse width {self.coarse} must divide the scale {self.scale}")
        if not 1 <= self.width <= 64 or self.levels < 1:
            raise UserError(f"width must be in 1..64 and levels positive, got {self.width} and {self.levels}")
        if self.step_bits + 1 + self.denominator_bits > 64:
            raise UserError(f"a scale of {self.scale} needs more than the 64 bits of the second word")

    @property
    def quadratic(self) -> bool:
        """Whether the exponent is -x^2 / 2 S^2 rather than -|x| / S."""
        return _POWERS[self.kind] == 2

    @cached_property
    def step(self) -> int:
        """J, the number of values of j."""
        return self.scale // self.coarse

    @cached_property
    def denominator(self) -> int:
        """The denominator of the exponent of acceptance: 2 S^2, or S for Laplace."""
        return 2 * self.scale**2 if self.quadratic else self.scale

    @cached_property
    def step_bits(self) -> int:
        """Number of bits of the second word that determine j."""
        return (self.step - 1).bit_length()

    @cached_property
    def denominator_bits(self) -> int:
        """Number of bits of the second word that determine u1."""
        return (self.denominator - 1).bit_length()

    def deeper(self) -> "NoiseDistribution":
        """Return the same distribution with twice as many words."""
        return NoiseDistribution(self.kind, self.scale, self.coarse, self.width, 2 * self.levels)

    @cached_property
    def table(self) -> npt.NDArray[np.uint64]:
        """Digits of F(k) = P(K <= k) in base 2^width: shape (levels, entries), the last entry all ones."""
        entries = _distribution(self.kind, self.coarse, self.width * self.levels)
        if self.step**2 * (2 * len(entries) + 1) >= _LARGEST:
            raise UserError(f"a scale of {self.scale} at coarse width {self.coarse} overflows; use a larger m")
        mask = (1 << self.width) - 1
        shifts = [self.width * (self.levels - 1 - level) for level in range(self.levels)]
        table = np.array([[entry >> shift & mask for entry in entries] for shift in shifts], dtype=np.uint64)
        table.setflags(write=False)
        return table

    @cached_property
    def digits(self) -> list[list[int]]:
        """The table as Python integers."""
        digits: list[list[int]] = self.table.tolist()
        return digits

    @cached_property
    def guide(self) -> npt.NDArray[np.int64]:
        """For each value of a word's leading bits, the smallest possible k."""
        bits = min(self.width, _GUIDE_BITS)
        starts = np.arange(1 << bits, dtype=np.uint64) << np.uint64(self.width - bits)
        guide: npt.NDArray[np.int64] = np.searchsorted(self.table[0], starts, side="left").astype(np.int64)
        guide.setflags(write=False)
        return guide

    @cached_property
    def shape(self) -> npt.NDArray[np.int64]:
        """The distribution's parameters in the order in which kernels read them."""
        exponent = self.step, self.step_bits, self.denominator, self.denominator_bits
        word = self.width, self.width - min(self.width, _GUIDE_BITS), int(self.quadratic)
        shape = np.array([*exponent, *word], dtype=np.int64)
        shape.setflags(write=False)
        return shape


@lru_cache(maxsize=64)
def _distribution(kind: Kind, coarse: int, bits: int) -> tuple[int, ...]:
    """Return floor(2^bits F(k)) for k = 0, 1, ... up to the first entry that is 2^bits - 1."""
    precision = bits + _GUARD
    while (entries := _try_distribution(kind, coarse, bits, precision)) is None:
        precision += _GUARD
    return entries


def _try_distribution(kind: Kind, coarse: int, bits: int, precision: int) -> tuple[int, ...] | None:
    """Compute the entries; return None if this precision leaves a digit undecided."""
    one = 1 << precision
    low, high = _weights(kind, coarse, bits, precision)
    # The tail beyond the last weight: ratios of successive weights decrease, so a geometric
    # series with the last ratio bounds it.
    beyond = -(-high[-1] * high[-1] // (low[-2] - high[-1]))
    tails_low, tails_high = [0], [beyond]
    for below, above in zip(reversed(low), reversed(high), strict=True):
        tails_low.append(tails_low[-1] + below)
        tails_high.append(tails_high[-1] + above)
    total_low, total_high = tails_low.pop(), tails_high.pop()
    entries: list[int] = []
    last = (1 << bits) - 1
    for tail_low, tail_high in zip(reversed(tails_low), reversed(tails_high), strict=True):
        # F = 1 - tail / total, outward at both ends.
        smallest = one + (-tail_high * one) // total_low
        largest = one - tail_low * one // total_high
        entry = smallest >> (precision - bits)
        # F < 1 always: where the upper end touches 1 its digits are all ones.
        if entry != min(largest >> (precision - bits), last):
            return None
        entries.append(entry)
        if entry == last:
            return tuple(entries)
    return None


def _weights(kind: Kind, coarse: int, bits: int, precision: int) -> tuple[list[int], list[int]]:
    """Return bounds on 2^precision times the weights of k, down to 2^-(bits + 32)."""
    quadratic = _POWERS[kind] == 2
    exponent = Fraction(1, 2 * coarse**2) if quadratic else Fraction(1, coarse)
    low, high = exponential(exponent, precision)
    # Successive ratios: q, q^3, q^5, ... for the Gaussian, constant for Laplace.
    grow_low, grow_high = 1 << precision, 1 << precision
    if quadratic:
        grow_low, grow_high = low * low >> precision, -(-high * high >> precision)
    weights_low, weights_high = [1 << precision], [1 << precision]
    least = 1 << (precision - bits - 32)
    while weights_high[-1] > least:
        weights_low.append(weights_low[-1] * low >> precision)
        weights_high.append(-(-weights_high[-1] * high >> precision))
        low, high = low * grow_low >> precision, -(-high * grow_high >> precision)
    return weights_low, weights_high


def exponential(exponent: Fraction, precision: int) -> tuple[int, int]:
    """Return integers that enclose ``2^precision exp(-exponent)``, for ``0 < exponent <= 1``.

    The alternating series with each term rounded outward; the remainder is less than its first term.
    """
    top, bottom = exponent.numerator, exponent.denominator
    term_low = term_high = low = high = 1 << precision
    count = 0
    while term_high > 1:
        count += 1
        term_low = term_low * top // (bottom * count)
        term_high = -(-term_high * top // (bottom * count))
        if count % 2:
            low, high = low - term_high, high - term_low
        else:
            low, high = low + term_low, high + term_high
    return low - 1, high + 1


# m = 32 and 16 make acceptance 0.988 and 0.969; four words are 256 bits, which leave a draw undecided
# with a probability below 2^-240.
GAUSSIAN_NOISE = NoiseDistribution("gaussian", LATTICE_WIDTH, 32, levels=4)
LAPLACE_NOISE = NoiseDistribution("laplace", LATTICE_WIDTH, 16, levels=4)

NOISE_DISTRIBUTIONS: Final[Mapping[str, NoiseDistribution]] = MappingProxyType(
    {each.kind: each for each in (GAUSSIAN_NOISE, LAPLACE_NOISE)}
)
"""The distributions in use, by kind.

A `NoiseSource` has a method for each; `murk.privacy.mechanisms.lattice.NOISE_OF` says which one a mechanism draws.
"""
