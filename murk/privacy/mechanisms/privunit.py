"""One of several random directions, by one exact word: the most telling pure release of a direction."""

import math
from dataclasses import dataclass
from decimal import ROUND_CEILING, Decimal
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
from murk.privacy.mechanisms.lattice import PRIVUNIT
from murk.privacy.mechanisms.payload_limits import NATS, Reach, gaussian_square
from murk.privacy.mechanisms.privacy_loss import (
    UNITS,
    Currency,
    PrivacyLoss,
    epsilon_units,
    odds_claim,
    odds_cost,
    pure_only,
)
from murk.privacy.mechanisms.privunit_calibration import fitted, gain, moments
from murk.privacy.rounding import decimal, precise

__all__ = ["PrivUnitMechanism"]

_WORDS = 2**64
# As for Gaussian noise: P(|x| > 13 S) < 4e-37, for up to 2^20 integers below 1e-30.
_TAIL = 13


@dataclass(frozen=True, slots=True)
class PrivUnitMechanism(LatticeMechanism):
    r"""A random direction, e^epsilon times likelier where it is close to the vector's own.

    PrivUnit (Bhowmick et al. 2018), the best that pure privacy can do for a direction (Asi, Feldman, Talwar 2022),
    draws u uniformly on the sphere with e^epsilon times the density on the cap ``<u, v> >= gamma`` and releases
    ``u / m``. Here the cap is taken by rank, so that its probability is the same for every vector, without any
    rounding: n integer vectors are drawn from the discrete Gaussian; the candidates are they and their negatives; the
    k candidates whose directions are closest to the vector's have ``a`` of the 2^64 values of one random word each,
    and the 2 n - k others ``b`` each,

    .. math:: k a + (2 n - k) b = 2^{64}, \quad a / b \le e^\epsilon .

    **Why it is epsilon-DP.** The candidates are drawn independently of the vector. Given them, each candidate is
    released with a probability of a / 2^64 or b / 2^64, whatever the vector, and so by the ratio of a and b at most
    from one vector to another; averaging over candidates keeps that. Which candidates are closest is decided in
    floats: a wrong decision costs accuracy, never privacy. As n grows (k / 2n being q) this becomes PrivUnit itself;
    ``n = k = 1`` is `L2BallMechanism`.

    A vector g of norm below r is first rounded to r g/||g|| or its negative, with probability 1/2 + ||g||/2r. The
    release is B times the direction of the payload, B = r / m with

    .. math:: m = A \left(p - (1 - p) \frac{k}{2 n - k}\right), \quad p = k a / 2^{64},

    A the mean of the k largest of n independent ``|<u, v>|``: unbiased for directions that are uniform. Those of the
    lattice are, but for rounding by a few steps of 2^-20 of a standard deviation: the bias is below 1e-5 B in each
    coordinate. The work is the same for every vector: n candidates, one pass, one word; nothing is drawn again.

    Parameters
    ----------
    dimension
        Length d of the vectors.
    radius
        Public bound r of their l2 norm.
    draws
        n, integer vectors that are drawn for one release; n d is at most 2^20.
    closest
        k, from 1 to n.
    threshold
        k a: the probability in 2^-64 that one of the closest is released.

    Raises
    ------
    UserError
        If a parameter is out of its range, or the words cannot be shared out evenly.

    References
    ----------
    Bhowmick, Duchi, Freudiger, Kapoor, Rogers, "Protection against reconstruction and its applications in private
    federated learning", 2018; Asi, Feldman, Talwar, "Optimal algorithms for mean estimation under local differential
    privacy", 2022; Isik, Chen, Ozgur, Weissman, No, "Exact optimality of communication-privacy-utility tradeoffs in
    distributed mean estimation", 2023 (the k closest of a random codebook).

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
        dimension, radius = checked_shape("PrivUnitMechanism", self.dimension, self.radius)
        object.__setattr__(self, "dimension", dimension)
        object.__setattr__(self, "radius", radius)
        for name in ("draws", "closest", "threshold"):
            object.__setattr__(self, name, checked_integer("PrivUnitMechanism", name, getattr(self, name)))
        if self.draws < 1 or (self.draws > 1 and self.draws * dimension > 2**20):
            raise UserError(
                f"PrivUnitMechanism: draws={self.draws} of {dimension} numbers each is not between 1 and 2^20 numbers "
                "in all; draw fewer, or use the l2-ball mechanism, which draws one"
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
        """a and b: how many of the 2^64 words each of the closest candidates has, and each of the others."""
        near, far = self._shares
        return near, int(far)

    @property
    def steps(self) -> int:
        """Nothing is quantised; ``closest``, for the sake of the kernels."""
        return self.closest

    @property
    def spacing(self) -> float:
        """Nothing is quantised; 1 for the sake of the kernels, which do not use it."""
        return 1.0

    @property
    def unit(self) -> float:
        """The norm B of a decoded release."""
        # p from the integers, so that the release is unbiased for the word that is really drawn.
        return self.radius / gain(self.dimension, self.draws, self.closest, self.threshold / _WORDS)

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
        r"""Mean squares of a decoded release across the vector's direction (a coordinate), and along it.

        The mean of ``out out'`` is ``across (I - v v') + along v v'`` with v the vector's direction, whatever its norm.
        """
        d, n, k = self.dimension, self.draws, self.closest
        near, share = moments(d, n, k)[1], self.threshold / _WORDS
        along = share * near + (1.0 - share) * (2 * n / d - k * near) / (2 * n - k)
        square = self.unit**2
        return (square * (1.0 - along) / (d - 1) if d > 1 else 0.0), square * along

    @property
    def guarantee(self) -> PureDP:
        """epsilon-DP with epsilon = log(a / b), rounded up."""
        return odds_claim(*self.odds)

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
        # A release is at most 2 n a / 2^64 times as likely to be in a set as one draw is.
        likelier = Fraction(2 * self.draws * self.odds[0], _WORDS)
        return Reach(((0, self.dimension, gaussian_square(self.dimension, 0, NATS + math.ceil(math.log(likelier)))),))

    def cost(self, currency: Currency) -> PrivacyLoss:
        """What one release costs an account, rounded up: epsilon, (epsilon, 0), rho = epsilon^2 / 2, or mu^2."""
        return odds_cost(*self.odds, currency)

    def to_dict(self) -> dict[str, Any]:
        """The public parameters and what follows from them, as plain data (the threshold as text: 64 bits)."""
        return {
            "kind": self.kind,
            "dimension": self.dimension,
            "radius": self.radius,
            "draws": self.draws,
            "closest": self.closest,
            "threshold": str(self.threshold),
            "norm": self.unit,
            "variance": self.variance,
            "guarantee": self.guarantee.to_dict(),
        }

    @classmethod
    def calibrate(
        cls, guarantee: Guarantee, *, dimension: int, radius: float, method: Literal["analytic"] = "analytic"
    ) -> "PrivUnitMechanism":
        r"""As few draws as bring the variance within 3% of PrivUnit's, and the most telling odds with ``guarantee``.

        At most 2^17 integers are drawn for a release: in many dimensions under a large epsilon the variance stays above
        PrivUnit's, and at or below the l2 ball's. An epsilon beyond 44 - log(k) gives the odds of that: a 64-bit word
        can express no other.

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
        pure_only("privunit", method)
        size, bound = checked_shape("PrivUnitMechanism", dimension, radius)
        units = epsilon_units(guarantee)
        if units == 0:
            raise UserError(f"PrivUnitMechanism: {guarantee!r} allows no release; give an epsilon of at least 1e-12")
        draws, closest = fitted(size, units / UNITS)
        return cls(size, bound, draws, closest, shared_threshold(units, draws, closest))


def shared_threshold(units: int, draws: int, closest: int) -> int:
    """The largest threshold whose odds stay at or below e^epsilon; ``closest`` is a power of 2, so that all divides."""
    others = 2 * draws - closest
    with precise():
        epsilon = decimal(Fraction(units, UNITS))
        # b (k e^epsilon + 2 n - k) >= 2^64, and b a multiple of k, which divides 2^64: then k divides the rest.
        exact = _WORDS * (-epsilon).exp() / (closest + others * (-epsilon).exp())
        share = int(((exact + Decimal("1e-28")) / closest).to_integral_value(rounding=ROUND_CEILING)) * closest
    return _WORDS - others * share
