"""A random direction and one exact coin: pure privacy for vectors of bounded l2 norm."""

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction
from typing import Any, ClassVar, Literal

from murk.errors import UserError
from murk.privacy.guarantees import Guarantee, PureDP
from murk.privacy.mechanisms.base import (
    WIDTH,
    LatticeMechanism,
    checked_integer,
    checked_shape,
)
from murk.privacy.mechanisms.lattice import L2BALL
from murk.privacy.mechanisms.payload_limits import Reach, gaussian_square
from murk.privacy.mechanisms.privacy_loss import (
    UNITS,
    Currency,
    PrivacyLoss,
    epsilon_units,
    odds_claim,
    odds_cost,
    pure_only,
)
from murk.privacy.rounding import decimal, precise

__all__ = ["L2BallMechanism"]

_WORDS = 2**64
# As for Gaussian noise: P(|x| > 13 S) < 4e-37.
_TAIL = 13


@dataclass(frozen=True, slots=True)
class L2BallMechanism(LatticeMechanism):
    r"""A uniform direction, turned towards the vector with probability e^epsilon / (1 + e^epsilon).

    A vector g of norm at most r is first rounded to r g/||g|| or its negative (with probability
    1/2 + ||g||/2r); the release is B u, u uniform on the half of the unit sphere that a coin chooses, and

    .. math:: B = r\, \frac{e^\epsilon + 1}{e^\epsilon - 1}\, \frac{\sqrt\pi}{2}\, d\,
        \frac{\Gamma((d - 1)/2 + 1)}{\Gamma(d/2 + 1)}

    makes it unbiased, with ``E||out||^2 = B^2``. The payload is plus or minus an integer vector drawn from the
    discrete Gaussian, independently of the data: only the coin must be exact, and is
    (``threshold / 2^64``, rounded so that the odds stay at or below e^epsilon).

    Parameters
    ----------
    dimension
        Length d of the vectors.
    radius
        Public bound r of their l2 norm.
    threshold
        The coin's probability in 2^-64: above 2^63 (an even coin) and below 2^64.

    Raises
    ------
    UserError
        If a parameter is out of its range.

    References
    ----------
    Duchi, Jordan, Wainwright, "Minimax optimal procedures for locally private estimation", JASA 2018,
    section 4.2.3.

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
    code: ClassVar[int] = L2BALL

    def __post_init__(self) -> None:
        dimension, radius = checked_shape("L2BallMechanism", self.dimension, self.radius)
        object.__setattr__(self, "dimension", dimension)
        object.__setattr__(self, "radius", radius)
        threshold = checked_integer("L2BallMechanism", "threshold", self.threshold)
        object.__setattr__(self, "threshold", threshold)
        if not _WORDS // 2 < threshold < _WORDS:
            raise UserError(f"L2BallMechanism: threshold={threshold} is not between 2^63 and 2^64, both excluded")

    @property
    def draws(self) -> int:
        """One vector of noise a release."""
        return 1

    @property
    def steps(self) -> int:
        """Nothing is quantised: 0."""
        return 0

    @property
    def spacing(self) -> float:
        """Nothing is quantised; 1 for the sake of the kernels, which do not use it."""
        return 1.0

    @property
    def unit(self) -> float:
        """The norm B of a decoded release."""
        half = self.dimension / 2
        # 2 p - 1 from the integers, so that the release is unbiased for the coin that is really thrown.
        bias = float(Fraction(2 * self.threshold - _WORDS, _WORDS))
        shape = self.dimension * math.exp(math.lgamma(half + 0.5) - math.lgamma(half + 1))
        return self.radius / bias * math.sqrt(math.pi) / 2 * shape

    @property
    def sensitivity(self) -> float:
        """l2 diameter of the bounded vectors."""
        return 2 * self.radius

    @property
    def variance(self) -> float:
        """Mean square of a coordinate of the decoded release, B^2 / d (the vector's own square included)."""
        return self.unit**2 / self.dimension

    @property
    def second_moment(self) -> tuple[float, float]:
        """Mean squares of a decoded release across the vector's direction and along it: both B^2 / d."""
        return self.variance, self.variance

    @property
    def guarantee(self) -> PureDP:
        """epsilon-DP with epsilon = log(p / (1 - p)), rounded up."""
        return odds_claim(self.threshold, _WORDS - self.threshold)

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """The pure guarantee; it implies all others."""
        return (self.guarantee,)

    @property
    def magnitude(self) -> int:
        """No coordinate of an honest payload exceeds it, up to a probability below 1e-30."""
        return _TAIL * WIDTH

    @property
    def reach(self) -> Reach:
        """How long an honest payload is; a longer one is forged."""
        return Reach(((0, self.dimension, gaussian_square(self.dimension, 0)),))

    def cost(self, currency: Currency) -> PrivacyLoss:
        """What one release costs an account, rounded up: epsilon, (epsilon, 0), rho = epsilon^2 / 2, or mu^2."""
        return odds_cost(self.threshold, _WORDS - self.threshold, currency)

    def to_dict(self) -> dict[str, Any]:
        """The public parameters and what follows from them, as plain data (the threshold as text: 64 bits)."""
        return {
            "kind": self.kind,
            "dimension": self.dimension,
            "radius": self.radius,
            "threshold": str(self.threshold),
            "norm": self.unit,
            "variance": self.variance,
            "guarantee": self.guarantee.to_dict(),
        }

    @classmethod
    def calibrate(
        cls, guarantee: Guarantee, *, dimension: int, radius: float, method: Literal["analytic"] = "analytic"
    ) -> "L2BallMechanism":
        r"""The most telling coin with which every release has ``guarantee``.

        An epsilon beyond 44.36 gives the coin of 44.36: a 64-bit word can express no other.

        Parameters
        ----------
        guarantee
            `PureDP` or `ApproxDP` (epsilon), `ZeroConcentratedDP` (epsilon = sqrt(2 rho)) or `GaussianDP`
            (epsilon = log(Phi(mu/2) / Phi(-mu/2)), at most mu).
        dimension, radius
            Length d of the vectors, and the public bound C of their l2 norm.
        method
            Only ``"analytic"``.

        Raises
        ------
        UserError
            For a budget below 1e-12.
        """
        pure_only("l2-ball", method)
        size, bound = checked_shape("L2BallMechanism", dimension, radius)
        units = epsilon_units(guarantee)
        if units == 0:
            raise UserError(f"L2BallMechanism: {guarantee!r} allows no release; give an epsilon of at least 1e-12")
        return cls(size, bound, coin_threshold(units))


def coin_threshold(units: int) -> int:
    """The largest integer t with t / (2^64 - t) <= e^epsilon (less 1e-30, for rounding), and below 2^64."""
    with precise():
        epsilon = decimal(Fraction(units, UNITS))
        exact = _WORDS / (1 + (-epsilon).exp())
        threshold = int((exact - Decimal("1e-30")).to_integral_value(rounding=ROUND_FLOOR))
    return min(threshold, _WORDS - 1)
