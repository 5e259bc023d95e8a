"""Two Gram matrices of a window, the second at a model that follows from the first: a Newton step, as a mechanism."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from murk.errors import UserError
from murk.privacy.guarantees import Guarantee
from murk.privacy.mechanisms.base import checked_integer
from murk.privacy.mechanisms.privacy_loss import Currency, PrivacyLoss
from murk.privacy.sketches.bounds import Neighbours
from murk.privacy.sketches.gram import GramMechanism
from murk.privacy.sketches.mechanism import LARGEST_WINDOW

__all__ = ["EDGE", "NewtonMechanism", "default_first"]

EDGE = 1.0
"""Log odds beyond which a record counts for less: its residual over sqrt w is then at most e^(EDGE / 2)."""

_EACH, _MOST = 2_500, 10_000


def default_first(features: int) -> int:
    """Records of the first part where nobody chose: 2,500 for each coefficient, 10,000 at most.

    So many tell the model well enough that the second part's step is a small one; more would be missing there.

    Examples
    --------
    >>> default_first(3), default_first(21)
    (7500, 10000)
    """
    return min(_EACH * features, _MOST)


@dataclass(frozen=True)
class NewtonMechanism:
    r"""Two Gram matrices of one window of labelled rows, each with Gaussian noise: a model, and a Newton step from it.

    Rows ``z = (x, y)``, ``||x|| <= C_X`` and y from -1 to 1. The window's first ``first`` rows are released as
    `GramMechanism` releases a window, ``A = sum z z' + noise``. From A, and from nothing else, follows a public vector
    s, a logistic model's coefficients. Every later row is put as

    .. math:: \Bigl( \sqrt{h w}\, x,\ \sqrt{h / w}\, \bigl(\tfrac{1 + y}{2} - q\bigr) \Bigr), \quad
        q = \frac{1}{1 + e^{-x's}}, \quad w = q (1 - q), \quad h = \min(1, e^{1 - |x's|})

    into a second Gram matrix, B, with noise of its own. Its features' block is then the logistic loss's Hessian at s,
    and what stands beside it the gradient. The features are at most ``C_X / 2`` long, as ``w <= 1/4``, and the last
    number is at most ``e^{1/2}``: its square is at most ``h e^{|x's|}``, as ``q^2 / w = q / (1 - q)``. A row of zeros
    remains one. The bounds are enforced in integers, as `GramMechanism` does it: nothing rests on the floats of a row.

    What is promised. Windows that are neighbours have the same number of rows, and differ in one row at one place: it
    is a row of zeros in one of them (``"zero-out"``), or another (``"replace-one"``). So a row is in A or in B by its
    place, in both windows alike. If it is in A, then A is one release of `GramMechanism`, and B, given A, has the same
    distribution for both windows: it is A post-processed with rows that are the same. If it is in B, A has the same
    distribution for both, and given A, whatever it is, s is fixed and B one release. In both cases the pair (A, B)
    discloses what *one* release does: A and B each have the whole guarantee, and together they have it still, for GDP,
    zCDP and (epsilon, delta) alike (parallel composition, the second part chosen by the first's release). It would not
    hold where a row that leaves makes room, as the last row of A's would then be B's; nobody is promised that.

    Parameters
    ----------
    start
        How A is released; its target bound is 1.
    first
        Rows of A, public.

    Raises
    ------
    UserError
        If a parameter is out of its range.

    References
    ----------
    McSherry, "Privacy integrated queries", 2009 (parallel composition); Dwork et al., "Analyze Gauss", 2014.

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
            raise UserError(
                f"NewtonMechanism: first={first}: its first part has 1 to {self.start.largest_window:,} records"
            )
        if self.start.target_bound != 1.0:
            raise UserError(
                f"NewtonMechanism: labels are -1 and +1, so that their bound is 1: {self.start.target_bound}"
            )
        object.__setattr__(self, "first", first)

    @cached_property
    def step(self) -> GramMechanism:
        """How B is released: the same noise, for rows of other bounds."""
        return GramMechanism(
            self.start.columns,
            self.start.feature_bound / 2.0,
            math.exp(EDGE / 2.0),
            self.start.noise,
            self.start.neighbours,
            self.start.asked,
            self.start.rows_per_person,
        )

    @property
    def columns(self) -> int:
        """d = p + 1: features (a constant included) and the label."""
        return self.start.columns

    @property
    def feature_bound(self) -> float:
        """C_X, of rows as they come."""
        return self.start.feature_bound

    @property
    def target_bound(self) -> float:
        """1, of labels."""
        return self.start.target_bound

    @property
    def neighbours(self) -> Neighbours:
        """For which neighbours."""
        return self.start.neighbours

    @property
    def rows_per_person(self) -> int:
        """Most rows of a window that neighbours differ in."""
        return self.start.rows_per_person

    @property
    def dimension(self) -> int:
        """Integers in a release: both upper triangles, A's first."""
        return 2 * self.start.dimension

    @property
    def largest_window(self) -> int:
        """Records that one window may hold."""
        return min(LARGEST_WINDOW, self.first + self.step.largest_window)

    @property
    def magnitude(self) -> int:
        """No integer of an honest release exceeds it, up to a probability below 1e-30."""
        return max(self.start.magnitude, self.step.magnitude)

    def parts(self, records: int) -> tuple[int, int]:
        """How many of so many records are in A, and in B."""
        return min(records, self.first), max(records - self.first, 0)

    def decode(self, integers: npt.ArrayLike) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """A and B, each (d, d), in the units of their rows, from the integers of a release.

        Raises
        ------
        UserError
            If their number is not this mechanism's.
        """
        array = np.asarray(integers)
        if array.size != self.dimension or array.dtype.kind not in "iu":
            raise UserError(
                f"a release of {self.columns} columns has {self.dimension} integers, got {array.dtype} of shape "
                f"{array.shape}"
            )
        first, second = np.split(array.ravel(), 2)
        return self.start.decode(first), self.step.decode(second)

    # What it promises: what each of the two does

    @property
    def stated(self) -> Guarantee:
        """What was asked for; the noise's own mu-GDP where nothing was."""
        return self.start.stated

    @property
    def guarantee(self) -> Guarantee:
        """What one release promises, for the stated neighbours."""
        return self.start.guarantee

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """GDP, zCDP, and what was stated."""
        return self.start.guarantees

    def replace_one(self) -> Guarantee:
        """The guarantee for replaced rows, as `GramMechanism.replace_one` has it."""
        return self.start.replace_one()

    def cost(self, currency: Currency) -> PrivacyLoss:
        """What one release costs an account in ``currency``, rounded up."""
        return self.start.cost(currency)

    def to_dict(self) -> dict[str, Any]:
        """The public parameters and what follows from them, as plain data."""
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
        """The least noise with which a release has ``guarantee``.

        Parameters
        ----------
        guarantee
            `ApproxDP` with delta above 0 (analytic calibration), `GaussianDP` or `ZeroConcentratedDP`.
        columns
            d = p + 1: features (a constant included) and the label, -1 or +1.
        feature_bound
            C_X, public.
        neighbours
            For which neighbours.
        first
            Records of the first part; None: 2,500 for each feature, 10,000 at most.
        rows_per_person
            Most rows of a window that neighbours differ in. Of a person's k rows a may be in
            A and k - a in B: together they cost (a^2 + (k - a)^2) / k^2 <= 1 of the budget in mu^2.

        Raises
        ------
        UserError
            For `PureDP`, which Gaussian noise cannot give, and for budgets that the lattice cannot hold.
        """
        start = GramMechanism.calibrate(
            guarantee, columns=columns, feature_bound=feature_bound, target_bound=1.0, neighbours=neighbours,
            rows_per_person=rows_per_person,
        )  # fmt: skip
        return cls(start, default_first(columns - 1) if first is None else first)
