"""A random direction whose sign is decided by one exact coin: pure privacy for vectors of bounded l2 norm."""

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import ClassVar, Literal

from murk.errors import UserError
from murk.privacy.guarantees import Guarantee
from murk.privacy.mechanisms.base import DirectionMechanism, checked_shape
from murk.privacy.mechanisms.costs import UNITS, OddsMechanism, epsilon_units, pure_only
from murk.privacy.mechanisms.lattice import L2BALL, PayloadBound, gaussian_square
from murk.privacy.rounding import decimal, precise

_ERROR_CODE = "MURK-PRIVACY-001"

_WORDS = 2**64


@dataclass(frozen=True, slots=True)
class L2BallMechanism(DirectionMechanism, OddsMechanism):
    r"""A uniform direction, turned towards the vector with probability e^epsilon / (1 + e^epsilon).

    A vector g of norm at most r is first rounded to r g/||g|| or its negative (with probability 1/2 + ||g||/2r). The
    release is B u, u uniform on the half of the unit sphere that a coin chooses, and

    .. math:: B = r\, \frac{e^\epsilon + 1}{e^\epsilon - 1}\, \frac{\sqrt\pi}{2}\, d\,
        \frac{\Gamma((d - 1)/2 + 1)}{\Gamma(d/2 + 1)}

    makes it unbiased, with ``E||out||^2 = B^2``. The payload is plus or minus an integer vector of discrete Gaussian
    noise that does not depend on the data. Only the coin must be exact (``threshold / 2^64``, rounded so that the odds
    stay at or below e^epsilon).

    Reference: Duchi, Jordan, Wainwright, "Minimax optimal procedures for locally private estimation", JASA 2018,
    section 4.2.3.

    Parameters
    ----------
    dimension, radius
        Length d of the vectors, and public bound r of their l2 norm.
    threshold
        Probability of the coin, in units of 2^-64: above 2^63 (an even coin) and below 2^64.

    Examples
    --------
    >>> from murk.privacy import L2BallMechanism, PureDP
    >>> mechanism = L2BallMechanism.calibrate(PureDP(1.0), dimension=10, radius=1.0)
    >>> mechanism.guarantee
    PureDP(epsilon=1.0)
    >>> round(mechanism.unit, 3)
    8.365
    """

    dimension: int
    radius: float
    threshold: int
    kind: ClassVar[str] = "l2-ball"
    draws: ClassVar[int] = 1
    steps: ClassVar[int] = 0
    code: ClassVar[int] = L2BALL

    def __post_init__(self) -> None:
        self._check_fields("threshold")
        if not _WORDS // 2 < self.threshold < _WORDS:
            raise UserError(f"L2BallMechanism: threshold={self.threshold} is not between 2^63 and 2^64, both excluded")

    @property
    def unit(self) -> float:
        """The norm B of a decoded release."""
        half = self.dimension / 2
        # 2 p - 1 is computed from the integers, so that the release is unbiased for the actual coin.
        bias = float(Fraction(2 * self.threshold - _WORDS, _WORDS))
        shape = self.dimension * math.exp(math.lgamma(half + 0.5) - math.lgamma(half + 1))
        return self.radius / bias * math.sqrt(math.pi) / 2 * shape

    @property
    def second_moment(self) -> tuple[float, float]:
        """Mean squares of a decoded release across the vector's direction and along it: both B^2 / d."""
        return self.variance, self.variance

    @property
    def odds(self) -> tuple[int, int]:
        """Probability p of the coin, and 1 - p, in units of 2^-64."""
        return self.threshold, _WORDS - self.threshold

    @property
    def payload_bound(self) -> PayloadBound:
        """Bound on an honest payload's norm; a longer one is forged."""
        return PayloadBound(((0, self.dimension, gaussian_square(self.dimension, 0)),))

    @classmethod
    def calibrate(
        cls, guarantee: Guarantee, *, dimension: int, radius: float, method: Literal["analytic"] = "analytic"
    ) -> "L2BallMechanism":
        """Return the mechanism with the least variance whose releases have ``guarantee``.

        `ZeroConcentratedDP` becomes epsilon = sqrt(2 rho), `GaussianDP` log(Phi(mu/2) / Phi(-mu/2)), at most mu. 64-bit
        words express an epsilon of at most 44.36. Raises `UserError` for a budget below 1e-12.
        """
        pure_only("l2-ball", method)
        size, bound = checked_shape("L2BallMechanism", dimension, radius)
        units = epsilon_units(guarantee)
        if units == 0:
            raise UserError(f"L2BallMechanism: {guarantee!r} allows no release; give an epsilon of at least 1e-12")
        return cls(size, bound, coin_threshold(units))


def coin_threshold(units: int) -> int:
    """Return the largest t < 2^64 with t / (2^64 - t) <= e^epsilon (less 1e-30, for rounding)."""
    with precise():
        epsilon = decimal(Fraction(units, UNITS))
        exact = _WORDS / (1 + (-epsilon).exp())
        threshold = int((exact - Decimal("1e-30")).to_integral_value(rounding=ROUND_FLOOR))
    return min(threshold, _WORDS - 1)
