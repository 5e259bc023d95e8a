"""One of several random directions, chosen by one exact word: the most accurate pure release of a direction."""

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from typing import Any, ClassVar, Literal

from murk.errors import UserError
from murk.privacy.guarantees import Guarantee
from murk.privacy.mechanisms.base import DirectionMechanism, checked_shape, plain
from murk.privacy.mechanisms.lattice import PRIVUNIT
from murk.privacy.mechanisms.payload_limits import NATS, Reach, gaussian_square
from murk.privacy.mechanisms.privacy_loss import UNITS, OddsMechanism, epsilon_units, pure_only
from murk.privacy.mechanisms.privunit_calibration import fitted, gain, moments
from murk.privacy.rounding import decimal, precise

__all__ = ["PrivUnitMechanism"]

_WORDS = 2**64


@dataclass(frozen=True, slots=True)
class PrivUnitMechanism(DirectionMechanism, OddsMechanism):
    r"""A random direction, e^epsilon times likelier where it is close to the vector's own.

    PrivUnit (Bhowmick et al. 2018), optimal among pure mechanisms for a direction (Asi, Feldman, Talwar 2022), draws u
    on the sphere with e^epsilon times the density on the cap ``<u, v> >= gamma`` and releases ``u / m``. Here the cap
    is defined by rank, so its probability is the same for every vector, without rounding. Draw n integer vectors from
    the discrete Gaussian; the candidates are they and their negatives. The k candidates with directions closest to the
    vector's have ``a`` of the 2^64 values of one random word each, and the 2 n - k others ``b`` each,

    .. math:: k a + (2 n - k) b = 2^{64}, \quad a / b \le e^\epsilon .

    **Why it is epsilon-DP.** The candidates are drawn independently of the vector. Given them, each is released with
    probability a / 2^64 or b / 2^64, so these differ by at most the ratio a / b between two vectors; averaging over
    candidates keeps that. Which candidates are closest is decided in floats: an error there costs accuracy, not
    privacy. As n grows with k / 2n = q this becomes PrivUnit; ``n = k = 1`` is `L2BallMechanism`.

    A vector g of norm below r is first rounded to r g/||g|| or its negative, with probability 1/2 + ||g||/2r. The
    release is B times the direction of the payload, B = r / m with

    .. math:: m = A \left(p - (1 - p) \frac{k}{2 n - k}\right), \quad p = k a / 2^{64},

    A the mean of the k largest of n independent ``|<u, v>|``. That is unbiased for uniform directions; those of the
    lattice are uniform up to rounding of 2^-20 of a standard deviation, a bias below 1e-5 B per coordinate. The work is
    the same for every vector.

    Reference: Bhowmick, Duchi, Freudiger, Kapoor, Rogers, "Protection against reconstruction and its applications in
    private federated learning", 2018; Asi, Feldman, Talwar, "Optimal algorithms for mean estimation under local
    differential privacy", 2022; Isik, Chen, Ozgur, Weissman, No, "Exact optimality of communication-privacy-utility
    tradeoffs in distributed mean estimation", 2023 (the k closest of a random codebook).

    Parameters
    ----------
    dimension
        Length d of the vectors.
    radius
        Public bound r of their l2 norm.
    draws
        n, integer vectors per release; n d is at most 2^20.
    closest
        k, from 1 to n.
    threshold
        k a: the probability in 2^-64 that one of the closest is released.

    Examples
    --------
    >>> from murk.privacy import PrivUnitMechanism, PureDP
    >>> mechanism = PrivUnitMechanism.calibrate(PureDP(4.0), dimension=11, radius=1.0)
    >>> mechanism.guarantee
    PureDP(epsilon=4.0)
    >>> mechanism.draws, mechanism.closest, round(mechanism.variance, 3)
    (54, 8, 0.477)
    """

    dimension: int
    radius: float
    draws: int
    closest: int
    threshold: int
    kind: ClassVar[str] = "privunit"
    code: ClassVar[int] = PRIVUNIT

    def __post_init__(self) -> None:
        self._check_fields("draws", "closest", "threshold")
        if self.draws < 1 or (self.draws > 1 and self.draws * self.dimension > 2**20):
            raise UserError(
                f"PrivUnitMechanism: draws={self.draws} of {self.dimension} numbers each is not between 1 and 2^20 "
                "numbers in all; draw fewer, or use the l2-ball mechanism, which draws one"
            )
        if not 1 <= self.closest <= self.draws:
            raise UserError(f"PrivUnitMechanism: closest={self.closest} is not between 1 and draws={self.draws}")
        near, far = self._shares
        if near * self.closest != self.threshold or not far.denominator == 1 <= far < near:
            raise UserError(
                f"PrivUnitMechanism: threshold={self.threshold} does not give each of the closest ({self.closest}) "
                f"the same number of the 2^64 words, and each of the others ({2 * self.draws - self.closest}) a "
                "smaller one; use PrivUnitMechanism.calibrate"
            )

    @property
    def _shares(self) -> tuple[int, Fraction]:
        """Words of each of the closest, and of each of the others."""
        return self.threshold // self.closest, Fraction(_WORDS - self.threshold, 2 * self.draws - self.closest)

    @property
    def odds(self) -> tuple[int, int]:
        """a and b: the number of the 2^64 words of each of the closest candidates and of each of the others."""
        near, far = self._shares
        return near, int(far)

    @property
    def steps(self) -> int:
        """``closest``, which kernels read here; nothing is quantised."""
        return self.closest

    @property
    def unit(self) -> float:
        """The norm B of a decoded release."""
        # p is computed from the integers, so that the release is unbiased for the actual word.
        return self.radius / gain(self.dimension, self.draws, self.closest, self.threshold / _WORDS)

    @property
    def second_moment(self) -> tuple[float, float]:
        """Mean squares of a decoded release across the vector's direction (per coordinate) and along it.

        The mean of ``out out'`` is ``across (I - v v') + along v v'`` with v the vector's direction, for every norm.
        """
        d, n, k = self.dimension, self.draws, self.closest
        near, share = moments(d, n, k)[1], self.threshold / _WORDS
        along = share * near + (1.0 - share) * (2 * n / d - k * near) / (2 * n - k)
        square = self.unit**2
        return (square * (1.0 - along) / (d - 1) if d > 1 else 0.0), square * along

    @property
    def reach(self) -> Reach:
        """Bound on an honest payload's norm; a longer one is forged."""
        # A release is at most 2 n a / 2^64 times as likely to be in a set as one draw is.
        likelier = Fraction(2 * self.draws * self.odds[0], _WORDS)
        return Reach(((0, self.dimension, gaussian_square(self.dimension, 0, NATS + math.ceil(math.log(likelier)))),))

    def to_dict(self) -> dict[str, Any]:
        """Return the public parameters and derived figures as plain data."""
        return plain(self, "dimension", "radius", "draws", "closest", "threshold", "norm", "variance", "guarantee")

    @classmethod
    def calibrate(
        cls, guarantee: Guarantee, *, dimension: int, radius: float, method: Literal["analytic"] = "analytic"
    ) -> "PrivUnitMechanism":
        """Return the mechanism with the largest odds that have ``guarantee`` and few draws.

        There are as few draws as bring the variance within 3% of PrivUnit's.

        At most 2^17 integers are drawn per release: in many dimensions under a large epsilon the variance stays above
        PrivUnit's, and at most the l2 ball's. `ZeroConcentratedDP` becomes epsilon = sqrt(2 rho), `GaussianDP` epsilon
        = log(Phi(mu/2) / Phi(-mu/2)), at most mu. 64-bit words express an epsilon of at most 44 - log(k).

        Raises `UserError` for a budget below 1e-12.
        """
        pure_only("privunit", method)
        size, bound = checked_shape("PrivUnitMechanism", dimension, radius)
        units = epsilon_units(guarantee)
        if units == 0:
            raise UserError(f"PrivUnitMechanism: {guarantee!r} allows no release; give an epsilon of at least 1e-12")
        draws, closest = fitted(size, units / UNITS)
        return cls(size, bound, draws, closest, shared_threshold(units, draws, closest))


def shared_threshold(units: int, draws: int, closest: int) -> int:
    """Return the largest threshold whose odds are at most e^epsilon; ``closest`` is a power of 2."""
    others = 2 * draws - closest
    with precise():
        epsilon = decimal(Fraction(units, UNITS))
        # b (k e^epsilon + 2 n - k) >= 2^64, with b a multiple of k. Then k, which divides 2^64, divides the threshold.
        exact = _WORDS * (-epsilon).exp() / (closest + others * (-epsilon).exp())
        share = int(((exact + Decimal("1e-28")) / closest).to_integral_value(rounding=ROUND_CEILING)) * closest
    return _WORDS - others * share
