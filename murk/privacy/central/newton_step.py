"""Two noisy Gram matrices of a window as a mechanism: the second is a Newton step from the model of the first."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Floats
from murk.errors import UserError
from murk.privacy.central.gaussian_sketch import LARGEST_WINDOW
from murk.privacy.central.gram_matrix import GramMechanism
from murk.privacy.central.sketch_renyi import Neighbours
from murk.privacy.guarantees import Guarantee
from murk.privacy.mechanisms.base import checked_integer, checked_release
from murk.privacy.mechanisms.costs import Currency, PrivacyLoss

_ERROR_CODE = "MURK-PRIVACY-001"

EDGE = 1.0
"""Log odds beyond which a record counts less: its residual over sqrt w is then at most e^(EDGE / 2)."""
_EACH, _MOST = 2_500, 10_000


def default_first(features: int) -> int:
    """Return the first part's default number of records: 2,500 per coefficient, at most 10,000."""
    return min(_EACH * features, _MOST)


@dataclass(frozen=True)
class NewtonMechanism:
    r"""Two Gram matrices of one window of labelled rows, each with Gaussian noise: a model, and a Newton step from it.

    Rows ``z = (x, y)``, ``||x|| <= C_X`` and y from -1 to 1. The window's first ``first`` rows are released as by
    `GramMechanism`, ``A = sum z z' + noise``. From A alone follows a public vector s, a logistic model's coefficients.
    Every later row enters as

    .. math:: \Bigl( \sqrt{h w}\, x,\ \sqrt{h / w}\, \bigl(\tfrac{1 + y}{2} - q\bigr) \Bigr), \quad
        q = \frac{1}{1 + e^{-x's}}, \quad w = q (1 - q), \quad h = \min(1, e^{1 - |x's|})

    into a second Gram matrix, B, with its own noise. B's block of features is the logistic loss's Hessian at s; its
    last column is the gradient. The features are at most ``C_X / 2`` long, as ``w <= 1/4``, and the last number at most
    ``e^{1/2}``: its square is at most ``h e^{|x's|}``, as ``q^2 / w = q / (1 - q)``. A row of zeros stays zero. The
    bounds are enforced in integers.

    **Guarantee.** Neighbouring windows have the same number of rows and differ in one row at one position. That row is
    zero in one of them (``"zero-out"``), or both rows are arbitrary (``"replace-one"``). If the row is in A, then A is
    one release of `GramMechanism`, and B only post-processes A, with equal rows. If the row is in B, then A has the
    same distribution for both windows, and given A the vector s is fixed and B is one release. So the pair (A, B)
    discloses what *one* release does, for GDP, zCDP and (epsilon, delta) alike (parallel composition, where the first
    release chooses the second part). Neighbours in which a row is removed, so that a later one moves from B to A, are
    not covered.

    Reference: McSherry, "Privacy integrated queries", 2009 (parallel composition); Dwork et al., "Analyze Gauss", 2014.

    Parameters
    ----------
    start, first
        Mechanism of A, with a target bound of 1; number of rows of A, which is public.

    Examples
    --------
    >>> from murk.privacy import GaussianDP
    >>> mechanism = NewtonMechanism.calibrate(GaussianDP(1.0), columns=3, feature_bound=1.5, first=5000)
    >>> mechanism.guarantee, mechanism.dimension
    (GaussianDP(mu=1.0), 12)
    >>> round(mechanism.start.scale, 2), round(mechanism.step.scale, 2)
    (3.38, 0.84)
    """

    start: GramMechanism
    first: int
    kind: ClassVar[str] = "newton"

    def __post_init__(self) -> None:
        first = checked_integer("NewtonMechanism", "first", self.first)
        if not 1 <= first <= self.start.largest_window:
            raise UserError(f"NewtonMechanism: first={first} is not from 1 to {self.start.largest_window:,} records")
        if self.start.target_bound != 1.0:
            bound = self.start.target_bound
            raise UserError(f"NewtonMechanism: labels are -1 and +1, so target_bound must be 1, got {bound}")
        object.__setattr__(self, "first", first)

    @cached_property
    def step(self) -> GramMechanism:
        """Mechanism of the second Gram matrix, B: the same noise, for rows with other bounds."""
        return replace(self.start, feature_bound=self.feature_bound / 2.0, target_bound=math.exp(EDGE / 2.0))

    @property
    def columns(self) -> int:
        """Number of columns: features (a constant included) and the label."""
        return self.start.columns

    @property
    def feature_bound(self) -> float:
        """C_X, the bound of the rows as added."""
        return self.start.feature_bound

    @property
    def target_bound(self) -> float:
        """Bound on the labels, 1."""
        return self.start.target_bound

    @property
    def neighbours(self) -> Neighbours:
        """Neighbours for which the guarantee holds."""
        return self.start.neighbours

    @property
    def rows_per_person(self) -> int:
        """Largest number of rows in which neighbours differ."""
        return self.start.rows_per_person

    @property
    def dimension(self) -> int:
        """Number of integers in a release: the upper triangle of the Gram matrix A, then that of B."""
        return 2 * self.start.dimension

    @property
    def largest_window(self) -> int:
        """Largest number of records in a window."""
        return min(LARGEST_WINDOW, self.first + self.step.largest_window)

    @property
    def magnitude(self) -> int:
        """Bound on each integer of an honest release; it is exceeded with probability below 1e-30."""
        return max(self.start.magnitude, self.step.magnitude)

    def parts(self, records: int) -> tuple[int, int]:
        """Return how many records of a window are in A and in B."""
        return min(records, self.first), max(records - self.first, 0)

    def decode(self, integers: npt.ArrayLike) -> tuple[Floats, Floats]:
        """Decode a release to A and B, each (d, d), in their rows' units; raise `UserError` for another size."""
        array = checked_release(integers, self.dimension, f"a release of {self.columns} columns")
        first, second = np.split(array.ravel(), 2)
        return self.start.decode(first), self.step.decode(second)

    @property
    def stated(self) -> Guarantee:
        """The guarantee to which the mechanism was calibrated; by default the mu-GDP of its noise."""
        return self.start.stated

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of one release, for the stated neighbours."""
        return self.start.guarantee

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """GDP, zCDP and the stated guarantee."""
        return self.start.guarantees

    def replace_one(self) -> Guarantee:
        """Return the guarantee for replaced rows."""
        return self.start.replace_one()

    def cost(self, currency: Currency) -> PrivacyLoss:
        """Return the cost of one release to an account, rounded up."""
        return self.start.cost(currency)

    def to_dict(self) -> dict[str, Any]:
        """Return the public and derived parameters as plain data."""
        return {**self.start.to_dict(), "kind": self.kind, "first": self.first, "step_scale": self.step.scale}

    @classmethod
    def calibrate(
        cls,
        guarantee: Guarantee,
        *,
        columns: int,
        feature_bound: float,
        first: int | None = None,
        neighbours: Neighbours = "zero-out",
        rows_per_person: int = 1,
    ) -> "NewtonMechanism":
        """Return the mechanism with the least noise whose releases have ``guarantee``.

        The guarantee is `ApproxDP` with delta above 0 (analytic calibration), `GaussianDP` or `ZeroConcentratedDP`.
        ``first`` defaults to 2,500 per feature, at most 10,000. If a person has a of their k = ``rows_per_person`` rows
        in A and k - a in B, these rows together cost (a^2 + (k - a)^2) / k^2 <= 1 of the budget in mu^2. Raises
        `UserError` for `PureDP`, which Gaussian noise cannot give, and for budgets that the lattice cannot hold.
        """
        bounds = {"feature_bound": feature_bound, "target_bound": 1.0}
        start = GramMechanism.calibrate(
            guarantee, columns=columns, **bounds, neighbours=neighbours, rows_per_person=rows_per_person
        )
        return cls(start, default_first(columns - 1) if first is None else first)
