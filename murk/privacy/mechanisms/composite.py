"""Several independent mechanisms combined in one release."""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import accumulate
from operator import add
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Floats, Integers
from murk._internal.wiping import copied, track, wiped
from murk.errors import UserError
from murk.privacy.guarantees import ApproxDP, GaussianDP, Guarantee, PureDP, ZeroConcentratedDP
from murk.privacy.mechanisms.base import checked_block, checked_indices, plain
from murk.privacy.mechanisms.costs import DELTA_UNITS, UNITS, Currency, PrivacyLoss, budget_of
from murk.privacy.mechanisms.gaussian import GaussianMechanism
from murk.privacy.mechanisms.lattice import PayloadBound, gaussian_square
from murk.privacy.mechanisms.randomized_response import RandomizedResponse
from murk.privacy.rounding import decimal, float_down, gdp_delta_bound, precise, rational

if TYPE_CHECKING:
    from murk.privacy.accounting import Accountant
    from murk.privacy.noise import NoiseSource

_ERROR_CODE = "MURK-PRIVACY-001"

_FAIR = np.uint64(2**63)

Part = GaussianMechanism | RandomizedResponse


@dataclass(frozen=True, slots=True)
class CompositeMechanism:
    r"""Randomizes the parts of one vector independently, each by its own mechanism.

    A `GaussianMechanism` randomizes as many coordinates as its dimension. A `RandomizedResponse` of two categories
    randomizes one coordinate, a label -1 or +1, which it keeps or flips. A label that is 0 or NaN is missing: a fair
    coin is released instead. Its odds lie between those of the labels, so the guarantee holds.

    The parts' guarantees add up: (epsilon, delta) by :math:`(\sum \epsilon_i, \sum \delta_i)`, mu by :math:`\sqrt{\sum
    \mu_i^2}`, rho by :math:`\sum \rho_i`.

    Reference: Dufraiche, Mangold, Perrot, Tommasi, "Learning with Locally Private Examples by Inverse Weierstrass
    Private SGD", equation 1 (Gaussian features and a label in randomized response).

    Parameters
    ----------
    parts
        The mechanisms, in the order of their coordinates.
    stated
        An (epsilon, delta) guarantee of the whole, tighter than the sum of the parts' guarantees; it is checked. None
        for that sum.

    Examples
    --------
    >>> from murk.privacy import ApproxDP, CompositeMechanism, GaussianMechanism, PureDP, RandomizedResponse
    >>> features = GaussianMechanism.calibrate(ApproxDP(1.0, 1e-6), dimension=3, radius=1.0)
    >>> both = CompositeMechanism((features, RandomizedResponse.calibrate(PureDP(0.5), classes=2)))
    >>> both.dimension, both.guarantee
    (4, ApproxDP(epsilon=1.5, delta=1e-06))
    """

    parts: tuple[Part, ...]
    stated: ApproxDP | None = None
    kind: ClassVar[str] = "composite"

    def __post_init__(self) -> None:
        parts = tuple(self.parts)
        object.__setattr__(self, "parts", parts)
        for part in parts:
            if not isinstance(part, GaussianMechanism | RandomizedResponse):
                raise UserError(
                    f"a part is a GaussianMechanism or a RandomizedResponse of 2 categories, got {type(part).__name__}"
                )
            if isinstance(part, RandomizedResponse) and part.classes != 2:
                raise UserError(f"a label has 2 categories, got a RandomizedResponse of {part.classes}")
        if not parts:
            raise UserError("CompositeMechanism needs at least one part")
        if self.stated is not None and not self._holds(self.stated):
            raise UserError(
                f"{self.stated!r} does not follow from the parts of this mechanism; give each part a smaller budget"
            )

    def _holds(self, stated: ApproxDP) -> bool:
        if not isinstance(stated, ApproxDP):
            raise UserError(f"stated={stated!r} must be an ApproxDP guarantee")
        added = self._added()
        if added is not None and added <= budget_of(stated):
            return True
        together = self._account().spent("gdp")
        if not isinstance(together, GaussianDP):
            return False
        # Check the guarantee in an account's units, rounded down; every other rounding is against the claim.
        cap = budget_of(stated)
        with precise():
            delta = gdp_delta_bound(rational(together.mu), Fraction(cap.units, UNITS))
            return delta <= decimal(Fraction(cap.delta_units, DELTA_UNITS))

    def _account(self) -> "Accountant":
        from murk.privacy.accounting import Accountant

        return reduce(Accountant.compose, self.parts, Accountant())

    def _added(self) -> PrivacyLoss | None:
        """Return the sum of the parts' costs in (epsilon, delta) if every Gaussian part states one."""
        if any(isinstance(part, GaussianMechanism) and part.stated is None for part in self.parts):
            return None
        return reduce(add, (part.cost("approx") for part in self.parts))

    @property
    def widths(self) -> tuple[int, ...]:
        """Number of coordinates of each part."""
        return tuple(part.dimension if isinstance(part, GaussianMechanism) else 1 for part in self.parts)

    @property
    def dimension(self) -> int:
        """Length of the vectors: the sum of the parts'."""
        return sum(self.widths)

    @property
    def variances(self) -> Floats:
        """Variance of the noise on each decoded coordinate (D,); 0 for a label, whose noise is not additive."""
        return self._each(lambda part: part.variance, 0.0)

    @property
    def units(self) -> Floats:
        """Factor that decodes each coordinate (D,); 1 for a label."""
        return self._each(lambda part: part.unit, 1.0)

    @property
    def magnitudes(self) -> Integers:
        """Bound on each coordinate of an honest payload, (D,), exceeded with probability below 1e-30; 1 for a label."""
        return self._each(lambda part: part.magnitude, 1).astype(np.int64)

    def _each(self, gaussian: Any, label: float) -> Floats:
        values = [gaussian(part) if isinstance(part, GaussianMechanism) else label for part in self.parts]
        return np.repeat(np.array(values, dtype=np.float64), self.widths)

    @property
    def magnitude(self) -> int:
        """Bound on a coordinate of an honest payload, exceeded with probability below 1e-30."""
        return int(self.magnitudes.max())

    @property
    def payload_bound(self) -> PayloadBound:
        """Bounds of the norms of an honest payload's Gaussian parts; a longer payload is forged."""
        ends = zip(self.parts, accumulate(self.widths), strict=True)
        gaussian = ((part, end) for part, end in ends if isinstance(part, GaussianMechanism))
        return PayloadBound(
            tuple((end - p.dimension, end, gaussian_square(p.dimension, p.steps)) for p, end in gaussian)
        )

    @property
    def guarantee(self) -> Guarantee:
        """mu-GDP if all parts are Gaussian; else the stated or summed (epsilon, delta), or mu-GDP without either."""
        return self.guarantees[0]

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """GDP, zCDP and (epsilon, delta), each if the parts imply it."""
        account = self._account()
        curves = (account.spent("gdp"), account.spent("zcdp"))
        added = self._added()
        point = self.stated
        if point is None and added is not None and added.delta_units < DELTA_UNITS:
            point = ApproxDP(added.units / UNITS, added.delta_units / DELTA_UNITS)
        if point is None:
            return curves
        if all(isinstance(part, GaussianMechanism) for part in self.parts):
            return (*curves, point)
        return (point, *curves)

    @wiped
    def randomize(self, vectors: npt.ArrayLike, noise: "NoiseSource", records: npt.ArrayLike) -> Integers:
        """Randomize vectors (m, D) into int64 payloads (m, D), labels being -1 or +1.

        Each Gaussian part is projected to its radius; of a label, only the sign counts. All Gaussian parts share one
        draw of ``noise``, so simulated parts never have equal noise. ``records`` (m,) are the records' indices, for
        simulated noise. Raises `UserError` if the shapes do not fit.
        """
        from murk.privacy.mechanisms import lattice
        from murk.privacy.noise import Purpose

        rows = checked_block(self, vectors, np.float64)
        indices = checked_indices(records, len(rows))
        labels = sum(isinstance(part, RandomizedResponse) for part in self.parts)
        integers = noise.gaussian(indices, self.dimension - labels)
        words = noise.words(indices, labels, Purpose.COIN) if labels else np.zeros((len(rows), 0), dtype=np.uint64)
        out = np.empty(rows.shape, dtype=np.int64)
        at = drawn = tossed = 0
        for part, width in zip(self.parts, self.widths, strict=True):
            if isinstance(part, RandomizedResponse):
                out[:, at] = _labels(part, rows[:, at], words[:, tossed])
                tossed += 1
            else:
                released = np.empty((len(rows), width), dtype=np.int64)
                lattice.randomize_block(
                    part.code,
                    copied(rows[:, at : at + width]),
                    (part.radius, part.spacing, part.steps, np.uint64(0)),
                    copied(integers[:, drawn : drawn + width], np.int64),
                    np.zeros((len(rows), 0), dtype=np.uint64),
                    released,
                )
                out[:, at : at + width] = released
                drawn += width
            at += width
        return out

    def decode(self, payload: npt.ArrayLike) -> Floats:
        """Decode payloads (m, D): unbiased estimates of the Gaussian parts, labels as released."""
        decoded: Floats = checked_block(self, payload, np.int64) * self.units
        return decoded

    def cost(self, currency: Currency) -> PrivacyLoss:
        """Return the cost of one release, rounded up: the sum of the parts' costs.

        Raises `UserError` if a part has no cost in this currency.
        """
        if currency == "approx" and self.stated is not None:
            return budget_of(self.stated)
        return reduce(add, (part.cost(currency) for part in self.parts))

    def to_dict(self) -> dict[str, Any]:
        """Return the public and derived parameters as plain data."""
        parts = [part.to_dict() for part in self.parts]
        return {"kind": self.kind, "parts": parts, **plain(self, "stated", "guarantee")}


def _labels(part: RandomizedResponse, values: Floats, words: npt.NDArray[np.uint64]) -> Integers:
    """Keep or flip each label by one random word; replace a missing one by a fair coin."""
    truth = track(np.where(values > 0, 1, -1))
    kept = words < np.uint64(part.threshold)
    answers = track(np.where(kept, truth, -truth))
    missing = ~((values > 0) | (values < 0))
    return np.where(missing, np.where(words < _FAIR, 1, -1), answers).astype(np.int64)


def divided(guarantee: Guarantee, share: float, *, label: bool) -> tuple[Guarantee, Guarantee]:
    """Divide a guarantee between two parts of one release, so that the parts together cost no more than the whole.

    The first part gets ``share``, in (0, 1), of epsilon, of rho or of mu^2. Of (epsilon, delta), all of delta goes to
    the first part if the second part is a label (randomized response is pure), else half to each part. Raises
    `UserError` for `PureDP` (the first part has Gaussian noise), and for a share outside (0, 1).

    >>> from murk.privacy import ApproxDP
    >>> from murk.privacy.mechanisms import divided
    >>> divided(ApproxDP(2.0, 1e-6), 0.5, label=True)
    (ApproxDP(epsilon=1.0, delta=1e-06), PureDP(epsilon=1.0))
    """
    if not 0.0 < share < 1.0:
        raise UserError(f"split={share!r} is not between 0 and 1; 0.5 gives features and target equal shares")
    part = rational(share)
    cap = budget_of(guarantee)
    if isinstance(guarantee, PureDP) or (cap.currency == "approx" and cap.delta_units == 0):
        raise UserError(f"a release with Gaussian noise cannot have {guarantee!r}; use approx (delta > 0), gdp or zcdp")
    if isinstance(guarantee, ApproxDP):
        units = int(cap.units * part)
        first, second, delta = units / UNITS, (cap.units - units) / UNITS, cap.delta_units
        if label:
            return ApproxDP(first, delta / DELTA_UNITS), PureDP(second)
        half = delta // 2 / DELTA_UNITS
        return ApproxDP(first, half), ApproxDP(second, half)
    if isinstance(guarantee, ZeroConcentratedDP):
        rho = rational(guarantee.rho)
        return ZeroConcentratedDP(float_down(rho * part)), ZeroConcentratedDP(float_down(rho * (1 - part)))
    if isinstance(guarantee, GaussianDP):
        square = rational(guarantee.mu) ** 2
        return GaussianDP(_root_down(square * part)), GaussianDP(_root_down(square * (1 - part)))
    raise UserError(f"not a guarantee: {guarantee!r}; use ApproxDP, GaussianDP or ZeroConcentratedDP")


def _root_down(square: Fraction) -> float:
    """Return the largest float whose square is at most ``square``, or the float below that."""
    root = math.sqrt(square)
    while rational(root) ** 2 > square:
        root = math.nextafter(root, 0.0)
    return root
