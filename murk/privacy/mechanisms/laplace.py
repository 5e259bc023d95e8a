"""Discrete Laplace noise on a lattice."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Literal

from murk.privacy.guarantees import Guarantee, PureDP
from murk.privacy.mechanisms.base import (
    WIDTH,
    LatticeMechanism,
    check_steps,
    checked_integer,
    checked_shape,
)
from murk.privacy.mechanisms.lattice import LAPLACE
from murk.privacy.mechanisms.payload_limits import Reach, laplace_square
from murk.privacy.mechanisms.privacy_loss import UNITS, Currency, PrivacyLoss, epsilon_cost, epsilon_units, pure_only
from murk.privacy.rounding import float_up

__all__ = ["LaplaceMechanism"]

# P(|x| > 90 S) < e^-90 = 8e-40: below 1e-30 for every coordinate of a payload together.
_TAIL = 90


@dataclass(frozen=True, slots=True)
class LaplaceMechanism(LatticeMechanism):
    r"""Laplace noise on integers: the vector, quantised, plus discrete Laplace noise of scale S = 2^20.

    A vector of l2 norm at most ``radius`` has an l1 norm of at most ``sqrt(d) radius`` and becomes integers
    of l1 norm at most ``steps``, checked in integers. Replacing a record moves them by at most 2 steps, so with

    .. math:: P(x) \propto e^{-|x| / S}, \quad \epsilon = 2\, \text{steps} / S

    the release is epsilon-DP, exactly. `L2BallMechanism` is the better one in all but the smallest dimensions.

    Parameters
    ----------
    dimension
        Length d of the vectors.
    radius
        Public bound C of their l2 norm; the l1 sensitivity (diameter) is 2 sqrt(d) C.
    steps
        The bound in lattice steps, at least 1, below 2^31, with ``d steps^2 < 2^63``.

    Raises
    ------
    UserError
        If a parameter is out of its range.

    References
    ----------
    Dwork, McSherry, Nissim, Smith 2006; Ghosh, Roughgarden, Sundararajan 2012 (on integers).

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
        dimension, radius = checked_shape("LaplaceMechanism", self.dimension, self.radius)
        object.__setattr__(self, "dimension", dimension)
        object.__setattr__(self, "radius", radius)
        object.__setattr__(self, "steps", checked_integer("LaplaceMechanism", "steps", self.steps))
        check_steps("LaplaceMechanism", self.steps, dimension, f"steps={self.steps}")

    @property
    def draws(self) -> int:
        """One vector of noise a release."""
        return 1

    @property
    def threshold(self) -> int:
        """No coin: 0."""
        return 0

    @property
    def spacing(self) -> float:
        """Width of a lattice step, sqrt(d) radius / steps."""
        return math.sqrt(self.dimension) * self.radius / self.steps

    @property
    def unit(self) -> float:
        """What decoding multiplies by: the spacing."""
        return self.spacing

    @property
    def scale(self) -> float:
        """Scale of the noise on a coordinate."""
        return WIDTH * self.spacing

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
        """The pure guarantee; it implies all others."""
        return (self.guarantee,)

    @property
    def magnitude(self) -> int:
        """No coordinate of an honest payload exceeds it, up to a probability below 1e-30."""
        return self.steps + _TAIL * WIDTH

    @property
    def reach(self) -> Reach:
        """How long an honest payload is; a longer one is forged."""
        return Reach(((0, self.dimension, laplace_square(self.dimension, self.steps)),))

    def cost(self, currency: Currency) -> PrivacyLoss:
        """What one release costs an account, rounded up: epsilon, (epsilon, 0), rho = epsilon^2 / 2, or mu^2."""
        return epsilon_cost(self._epsilon, currency)

    def to_dict(self) -> dict[str, Any]:
        """The public parameters and what follows from them, as plain data."""
        return {
            "kind": self.kind,
            "dimension": self.dimension,
            "radius": self.radius,
            "steps": self.steps,
            "scale": self.scale,
            "variance": self.variance,
            "guarantee": self.guarantee.to_dict(),
        }

    @classmethod
    def calibrate(
        cls, guarantee: Guarantee, *, dimension: int, radius: float, method: Literal["analytic"] = "analytic"
    ) -> "LaplaceMechanism":
        r"""The least noise with which every release has ``guarantee``.

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
            For budgets that the lattice cannot hold.
        """
        pure_only("laplace", method)
        size, bound = checked_shape("LaplaceMechanism", dimension, radius)
        steps = epsilon_units(guarantee) * WIDTH // (2 * UNITS)
        check_steps("LaplaceMechanism", steps, size, repr(guarantee))
        return cls(size, bound, steps)
