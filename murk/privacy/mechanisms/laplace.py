"""Discrete Laplace noise on a lattice."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, Literal

from murk.privacy.guarantees import Guarantee, PureDP
from murk.privacy.mechanisms.base import WIDTH, AdditiveMechanism, check_steps, checked_shape
from murk.privacy.mechanisms.costs import UNITS, Currency, PrivacyLoss, epsilon_cost, epsilon_units, pure_only
from murk.privacy.mechanisms.lattice import LAPLACE, PayloadBound, laplace_square
from murk.privacy.rounding import float_up

_TAIL = 90  # P(|x| > 90 S) < e^-90 = 8e-40: below 1e-30 for every coordinate of a payload together


@dataclass(frozen=True, slots=True)
class LaplaceMechanism(AdditiveMechanism):
    r"""The quantised vector plus discrete Laplace noise of scale S = 2^20.

    A vector of l2 norm at most ``radius`` has an l1 norm of at most ``sqrt(d) radius`` and becomes integers of l1 norm
    at most ``steps``, checked in integers. Replacing a record moves them by at most 2 steps, so with

    .. math:: P(x) \propto e^{-|x| / S}, \quad \epsilon = 2\, \text{steps} / S

    the release is exactly epsilon-DP. `L2BallMechanism` is better in all but the smallest dimensions.

    Reference: Dwork, McSherry, Nissim, Smith 2006; Ghosh, Roughgarden, Sundararajan 2012 (on integers).

    Parameters
    ----------
    dimension, radius
        Length d of the vectors, and public bound C of their l2 norm; the l1 sensitivity (diameter) is 2 sqrt(d) C.
    steps
        The bound in lattice steps, at least 1, below 2^31, with ``d steps^2 < 2^63``.

    Examples
    --------
    >>> from murk.privacy import LaplaceMechanism, PureDP
    >>> mechanism = LaplaceMechanism.calibrate(PureDP(1.0), dimension=4, radius=1.0)
    >>> mechanism.variance  # 2 (2 sqrt(d) C / epsilon)^2
    32.0
    """

    dimension: int
    radius: float
    steps: int
    kind: ClassVar[str] = "laplace"
    code: ClassVar[int] = LAPLACE

    def __post_init__(self) -> None:
        self._check_fields("steps")
        check_steps("LaplaceMechanism", self.steps, self.dimension, f"steps={self.steps}")

    @property
    def spacing(self) -> float:
        """Width of a lattice step, sqrt(d) radius / steps."""
        return math.sqrt(self.dimension) * self.radius / self.steps

    @property
    def sensitivity(self) -> float:
        """l1 diameter of the bounded vectors."""
        return 2 * math.sqrt(self.dimension) * self.radius

    @property
    def variance(self) -> float:
        """Variance of the noise on a coordinate, 2 scale^2."""
        return 2 * self.scale**2

    @property
    def _epsilon(self) -> Fraction:
        return Fraction(2 * self.steps, WIDTH)

    @property
    def guarantee(self) -> PureDP:
        """epsilon-DP with epsilon = 2 steps / S, rounded up."""
        return PureDP(float_up(self._epsilon))

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """The pure guarantee, which implies all others."""
        return (self.guarantee,)

    @property
    def magnitude(self) -> int:
        """Bound on a coordinate of an honest payload, exceeded with probability below 1e-30."""
        return self.steps + _TAIL * WIDTH

    @property
    def payload_bound(self) -> PayloadBound:
        """Bound on an honest payload's norm; a longer one is forged."""
        return PayloadBound(((0, self.dimension, laplace_square(self.dimension, self.steps)),))

    def cost(self, currency: Currency) -> PrivacyLoss:
        """Return the cost of one release, rounded up: epsilon, (epsilon, 0), rho = epsilon^2 / 2, or mu^2."""
        return epsilon_cost(self._epsilon, currency)

    @classmethod
    def calibrate(
        cls, guarantee: Guarantee, *, dimension: int, radius: float, method: Literal["analytic"] = "analytic"
    ) -> "LaplaceMechanism":
        """Return the mechanism with the least noise whose releases have ``guarantee``.

        `ZeroConcentratedDP` becomes epsilon = sqrt(2 rho), `GaussianDP` log(Phi(mu/2) / Phi(-mu/2)), at most mu.
        """
        pure_only("laplace", method)
        size, bound = checked_shape("LaplaceMechanism", dimension, radius)
        steps = epsilon_units(guarantee) * WIDTH // (2 * UNITS)
        check_steps("LaplaceMechanism", steps, size, repr(guarantee))
        return cls(size, bound, steps)
