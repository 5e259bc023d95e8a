"""Discrete Gaussian noise on a lattice."""

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Literal

from murk.errors import UserError
from murk.privacy.conversions import classic_scale, gdp_delta
from murk.privacy.guarantees import ApproxDP, GaussianDP, Guarantee, PureDP, ZeroConcentratedDP
from murk.privacy.mechanisms.base import TAIL, WIDTH, AdditiveMechanism, check_steps, checked_shape
from murk.privacy.mechanisms.costs import DELTA_UNITS, UNITS, Currency, PrivacyLoss, budget_of, ceil_units
from murk.privacy.mechanisms.lattice import GAUSSIAN, PayloadBound, gaussian_square
from murk.privacy.rounding import decimal, float_up, gdp_delta_bound, largest_integer, precise

_ERROR_CODE = "MURK-PRIVACY-001"

Method = Literal["analytic", "classic"]

# The discrete Gaussian of width S is a randomised rounding of a continuous one of variance S^2 - 9, to within
# 2^-254 (Peikert 2010, theorem 3.1, smoothing width 3), so it has every guarantee of the continuous one.
_VARIANCE = WIDTH**2 - 9


@dataclass(frozen=True, slots=True)
class GaussianMechanism(AdditiveMechanism):
    r"""The quantised vector plus discrete Gaussian noise of width S = 2^20.

    A vector of l2 norm at most ``radius`` becomes integers of l2 norm at most ``steps``, checked in integers; a lattice
    step is ``radius / steps``. Replacing a record moves them by at most 2 steps, so with

    .. math:: P(x) \propto e^{-x^2 / 2 S^2}, \quad \rho = 2\, \text{steps}^2 / S^2, \quad
        \mu = 2\, \text{steps} / \sqrt{S^2 - 9}

    the release is exactly rho-zCDP and mu-GDP.

    Reference: Canonne, Kamath, Steinke, "The discrete Gaussian for differential privacy", 2020; Balle, Wang 2018
    (analytic calibration).

    Parameters
    ----------
    dimension, radius
        Length d of the vectors, and public bound C of their l2 norm; the l2 sensitivity (diameter) is 2 C.
    steps
        The bound in lattice steps, at least 1, below 2^31, with ``d steps^2 < 2^63``.
    stated
        The (epsilon, delta) guarantee to which the noise was calibrated, if any; the mechanism checks it.

    Examples
    --------
    >>> from murk.privacy import GaussianDP, GaussianMechanism
    >>> mechanism = GaussianMechanism.calibrate(GaussianDP(1.0), dimension=3, radius=1.0)
    >>> round(mechanism.variance, 3)  # (2 C / mu)^2
    4.0
    """

    dimension: int
    radius: float
    steps: int
    stated: ApproxDP | None = None
    kind: ClassVar[str] = "gaussian"
    code: ClassVar[int] = GAUSSIAN

    def __post_init__(self) -> None:
        self._check_fields("steps")
        check_steps("GaussianMechanism", self.steps, self.dimension, f"steps={self.steps}")
        if self.stated is not None:
            if not isinstance(self.stated, ApproxDP):
                raise UserError(f"stated={self.stated!r} must be an ApproxDP guarantee")
            cap = budget_of(self.stated)
            if not _within(self.steps, cap.units, cap.delta_units):
                raise UserError(f"{self.stated!r} does not hold with steps={self.steps}; calibrate to it instead")

    @property
    def spacing(self) -> float:
        """Width of a lattice step, radius / steps."""
        return self.radius / self.steps

    @property
    def sensitivity(self) -> float:
        """l2 diameter of the bounded vectors."""
        return 2 * self.radius

    @property
    def variance(self) -> float:
        """Variance of the noise on a coordinate."""
        return self.scale**2

    @property
    def guarantee(self) -> GaussianDP:
        """mu-GDP with mu = 2 steps / sqrt(S^2 - 9), rounded up."""
        with precise():
            mu = _mu(self.steps)
            return GaussianDP(float_up(mu * (1 + Decimal("1e-50"))))

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """GDP, zCDP and the stated guarantee."""
        rho = ZeroConcentratedDP(float_up(self._rho))
        return (self.guarantee, rho) if self.stated is None else (self.guarantee, rho, self.stated)

    @property
    def magnitude(self) -> int:
        """Bound on a coordinate of an honest payload, exceeded with probability below 1e-30."""
        return self.steps + TAIL * WIDTH

    @property
    def payload_bound(self) -> PayloadBound:
        """Bound on an honest payload's norm; a longer one is forged."""
        return PayloadBound(((0, self.dimension, gaussian_square(self.dimension, self.steps)),))

    @property
    def _rho(self) -> Fraction:
        return Fraction(2 * self.steps**2, WIDTH**2)

    def cost(self, currency: Currency) -> PrivacyLoss:
        """Return the cost of one release, rounded up.

        Raises `UserError` for the currency epsilon, as Gaussian noise has no pure guarantee, and for approx unless the
        mechanism was calibrated to an (epsilon, delta).
        """
        if currency == "rho":
            return PrivacyLoss("rho", ceil_units(self._rho))
        if currency == "gdp":
            return PrivacyLoss("gdp", ceil_units(Fraction(4 * self.steps**2, _VARIANCE)))
        if currency == "epsilon":
            remedy = "give the account a cap in zcdp, gdp or approx, or use the l2-ball or the laplace mechanism"
            raise UserError(f"Gaussian noise has no cost in epsilon alone; {remedy}")
        if currency == "approx":
            if self.stated is None:
                raise UserError(
                    f"a Gaussian mechanism of mu={self.guarantee.mu:.6g} has many (epsilon, delta), none of which is "
                    "stated; state the level as approx: {epsilon: ..., delta: ...}, or cap by gdp or zcdp"
                )
            return budget_of(self.stated)
        raise UserError(f"unknown currency {currency!r}; use one of gdp, rho, epsilon, approx")

    @classmethod
    def calibrate(
        cls, guarantee: Guarantee, *, dimension: int, radius: float, method: Method = "analytic"
    ) -> "GaussianMechanism":
        """Return the mechanism with the least noise whose releases have ``guarantee``.

        The standard deviation is s = 2 C / mu for `GaussianDP` and s = 2 C / sqrt(2 rho) for `ZeroConcentratedDP`. For
        `ApproxDP`, ``"analytic"`` gives the least noise whose exact curve stays within (epsilon, delta); ``"classic"``
        is the textbook's 2 C sqrt(2 log(1.25/delta)) / epsilon, for reproducing papers. Raises `UserError` for
        `PureDP`; for the classic method if its exact curve exceeds (epsilon, delta); for budgets that the lattice
        cannot express.
        """
        if method not in ("analytic", "classic"):
            raise UserError(f"unknown calibration {method!r}; use one of analytic, classic")
        if method == "classic" and not isinstance(guarantee, ApproxDP):
            raise UserError(f"the classic calibration is for ApproxDP only, not for {guarantee!r}; drop method=")
        size, bound = checked_shape("GaussianMechanism", dimension, radius)
        steps = _steps(guarantee, method)
        check_steps("GaussianMechanism", steps, size, repr(guarantee))
        return cls(size, bound, steps, guarantee if isinstance(guarantee, ApproxDP) else None)


def _mu(steps: int) -> Decimal:
    return 2 * steps / Decimal(_VARIANCE).sqrt()


# Cached, since every new mechanism checks this, and learners, tasks and reports create equal mechanisms many times.
@lru_cache(maxsize=4096)
def _within(steps: int, epsilon_units: int, delta_units: int) -> bool:
    """Return whether the exact curve of ``steps`` stays within (epsilon, delta)."""
    with precise():
        mu = _mu(steps) * (1 + Decimal("1e-50"))
        return gdp_delta_bound(mu, Fraction(epsilon_units, UNITS)) <= decimal(Fraction(delta_units, DELTA_UNITS))


def _steps(guarantee: Guarantee, method: Method) -> int:
    cap = budget_of(guarantee)
    if isinstance(guarantee, PureDP):
        raise UserError(
            f"Gaussian noise cannot give {guarantee!r}: rare outcomes change the odds by more than any e^epsilon; "
            "use the l2-ball or the laplace mechanism, or ask for gdp, zcdp or approx"
        )
    if isinstance(guarantee, ApproxDP):
        if cap.delta_units == 0:
            raise UserError(
                f"Gaussian noise cannot give {guarantee!r}: it needs a delta of at least 1e-15; "
                "use the l2-ball or the laplace mechanism for delta = 0"
            )
        if method == "classic":
            return _classic_steps(guarantee, cap)
        return _analytic_steps(cap.units, cap.delta_units)
    # 2 steps^2 / S^2 <= rho, in integer units. A GDP release must also fit under a cap of rho = mu^2 / 2.
    rho = cap.units // 2 if cap.currency == "gdp" else cap.units
    steps = math.isqrt(rho * WIDTH**2 // (2 * UNITS))
    if cap.currency == "gdp":
        # 4 steps^2 / (S^2 - 9) <= mu^2; the 9 accounts for the lattice.
        steps = min(steps, math.isqrt(cap.units * _VARIANCE // (4 * UNITS)))
    return steps


@lru_cache(maxsize=1024)
def _analytic_steps(epsilon_units: int, delta_units: int) -> int:
    return largest_integer(lambda steps: steps == 0 or _within(steps, epsilon_units, delta_units), 2**31)


def _classic_steps(guarantee: ApproxDP, cap: PrivacyLoss) -> int:
    if guarantee.epsilon == 0:
        raise UserError(f"the classic calibration needs epsilon > 0, got {guarantee!r}; use method='analytic'")
    with precise():
        epsilon = decimal(Fraction(cap.units, UNITS))
        ratio = Decimal("1.25") / decimal(Fraction(cap.delta_units, DELTA_UNITS))
        exact = WIDTH * epsilon / (2 * (2 * ratio.ln()).sqrt())
        steps = int((exact * (1 - Decimal("1e-50"))).to_integral_value(rounding=ROUND_FLOOR))
    # The formula is proved up to epsilon = 1; beyond, check its result by the exact curve of the noise.
    if not _within(steps, cap.units, cap.delta_units):
        spread = 1 / classic_scale(1.0, guarantee.epsilon, guarantee.delta)
        true = gdp_delta(spread, guarantee.epsilon)
        raise UserError(
            f"the classic calibration does not hold for {guarantee!r}: its noise has delta = {true:.3g} at epsilon = "
            f"{guarantee.epsilon:g}, more than the guarantee allows; use method='analytic'"
        )
    return steps
