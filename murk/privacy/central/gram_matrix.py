"""The noisy Gram matrix of a window's rows as a mechanism: second moments under a central guarantee."""

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Floats
from murk.errors import UserError
from murk.privacy.central.gaussian_sketch import LARGEST_WINDOW, check_choice
from murk.privacy.central.sketch_renyi import Neighbours
from murk.privacy.conversions import gdp_epsilon
from murk.privacy.guarantees import ApproxDP, GaussianDP, Guarantee, ZeroConcentratedDP
from murk.privacy.mechanisms.base import TAIL, WIDTH, check_room, checked_bound, checked_integer, checked_release
from murk.privacy.mechanisms.costs import Currency, PrivacyLoss
from murk.privacy.mechanisms.gaussian import GaussianMechanism

_ERROR_CODE = "MURK-PRIVACY-001"

LARGEST_COLUMNS = 4096
"""Largest number of columns of a Gram matrix: features (a constant included) and target."""
LARGEST_ROWS_PER_PERSON = 10_000
"""Largest number of rows that one person may have in a window."""
_GRID = 21  # bits of a number on the grid: the feature bound is 2^20 to 2^21 steps
_SLACK = 1 + 2.0**-40
# Square roots of 2, rounded down and up, so that rounding never weakens the guarantee.
_DIGITS = 10**20
_ROOT_BELOW = Fraction(math.isqrt(2 * _DIGITS**2), _DIGITS)
_ROOT_ABOVE = _ROOT_BELOW + Fraction(1, _DIGITS)


@dataclass(frozen=True, slots=True)
class GramMechanism:
    r"""The Gram matrix of a window's rows with Gaussian noise: X'X, X'y and y'y in one symmetric matrix.

    .. math:: M = \sum_i q_i q_i' + \sigma W, \quad W_{jj} \sim N(0, 1), \quad W_{jl} = W_{lj} \sim N(0, 1/2)

    A row z = (x, y) with ``||x|| <= C_X`` and ``|y| <= C_Y`` (others are scaled down) is rounded to integers q on a
    grid. The target is scaled to the bound C_X / sqrt 2, which balances the noise on X'y with that on X'X. The
    Frobenius norm of ``q q'`` is ``|q|^2 <= B``, an integer. In the coordinates (diagonal, sqrt 2 times the upper
    triangle), in which the noise is isotropic, windows that differ in one row are at most B apart if that row is zero
    in one of them (``"zero-out"``), and at most sqrt 2 B if both rows are arbitrary (``"replace-one"``), as ``|q q' - r
    r'|^2 = |q|^4 + |r|^4 - 2 (q'r)^2``. Windows that differ in all of a person's up to k rows are at most k times as
    far apart: the noise is k times as large, and the guarantee is for the person.

    Everything up to the noise is integer arithmetic. Rounding the sum to the noise's lattice adds at most the square
    root of the number of coordinates. The noise's sensitivity includes this, so the guarantee is exact.

    Reference: Dwork, Talwar, Thakurta, Zhang, "Analyze Gauss", 2014; Wang, "Revisiting differentially private linear
    regression", 2018 (AdaSSP also releases the least eigenvalue; here the learner accounts for the noise instead).

    Parameters
    ----------
    columns
        d = p + 1: features (a constant included) and the target.
    feature_bound, target_bound
        C_X and C_Y, public.
    noise
        Gaussian mechanism of d (d + 1) / 2 coordinates that defines noise and guarantee.
    neighbours, rows_per_person
        ``"zero-out"`` or ``"replace-one"``; k, the largest number of rows in which neighbours differ.
    asked
        The guarantee to which the mechanism was calibrated; it is checked. By default it is the noise's guarantee.

    Examples
    --------
    >>> from murk.privacy import GaussianDP
    >>> mechanism = GramMechanism.calibrate(GaussianDP(1.0), columns=3, feature_bound=1.0, target_bound=1.0)
    >>> round(mechanism.scale, 2)  # C_X^2 (1 + 1/2) / mu, on a diagonal entry of X'X
    1.5
    """

    columns: int
    feature_bound: float
    target_bound: float
    noise: GaussianMechanism
    neighbours: Neighbours = "zero-out"
    asked: Guarantee | None = None
    rows_per_person: int = 1
    kind: ClassVar[str] = "gram"

    def __post_init__(self) -> None:
        size = _columns(self.columns)
        object.__setattr__(self, "columns", size)
        for name in ("feature_bound", "target_bound"):
            object.__setattr__(self, name, checked_bound("GramMechanism", name, getattr(self, name)))
        check_choice("neighbours", self.neighbours, Neighbours)
        most = checked_integer("GramMechanism", "rows_per_person", self.rows_per_person)
        if not 1 <= most <= LARGEST_ROWS_PER_PERSON:
            raise UserError(f"GramMechanism: rows_per_person={most} is not from 1 to {LARGEST_ROWS_PER_PERSON:,}")
        if self.noise.dimension != self.dimension:
            raise UserError(f"a Gram matrix of {size} columns has {self.dimension} numbers, not {self.noise.dimension}")
        if self.asked is not None and not any(claim.implies(self.asked) for claim in self.noise.guarantees):
            raise UserError(f"{self.asked!r} does not hold with steps={self.noise.steps}; use calibrate()")
        check_room(self.noise, self.room)

    @property
    def dimension(self) -> int:
        """Number of integers in a release: the upper triangle, row by row."""
        return self.columns * (self.columns + 1) // 2

    @property
    def room(self) -> int:
        """Largest distance of neighbours' sums before rounding, in steps: the noise's sensitivity minus rounding."""
        return 2 * self.noise.steps - math.isqrt(self.dimension) - 1

    @property
    def feature_step(self) -> float:
        """Width of a step of the features' grid: a power of two, so that -1, 0 and 1 are on it."""
        return math.ldexp(1.0, math.frexp(self.feature_bound)[1] - _GRID)

    @property
    def target_steps(self) -> int:
        """The target's bound in steps: the features' bound over sqrt 2."""
        return round(self.feature_bound / self.feature_step / math.sqrt(2.0))

    @property
    def feature_square(self) -> int:
        """Bound on the features' squared norm in steps, rounding to the grid included."""
        rounded = self.feature_bound * _SLACK / self.feature_step + math.sqrt(self.columns - 1) / 2
        return math.ceil(rounded * rounded * _SLACK)

    @property
    def square(self) -> int:
        """B, the bound on a row's squared norm in steps."""
        return self.feature_square + self.target_steps**2

    @property
    def largest_window(self) -> int:
        """Largest number of records in a window for which every integer of a release fits 62 bits."""
        return min(LARGEST_WINDOW, 2**61 // (2 * self.room))

    @property
    def ratios(self) -> tuple[Fraction, Fraction]:
        """Numbers of lattice steps per unit of a sum: on the diagonal, and off it (sqrt 2 times as many)."""
        step = Fraction(self.room, self.rows_per_person * self.square)
        if self.neighbours == "replace-one":
            return step / _ROOT_ABOVE, step
        return step, step * _ROOT_BELOW

    @property
    def units(self) -> Floats:
        """Factors (d, d) that convert a release to the units of the rows."""
        steps = np.full(self.columns, self.feature_step)
        steps[-1] = self.target_bound / self.target_steps
        diagonal, off_diagonal = self.ratios
        units = np.outer(steps, steps) / float(off_diagonal)
        np.fill_diagonal(units, steps * steps / float(diagonal))
        return units

    @property
    def scale(self) -> float:
        """Standard deviation of the noise on a diagonal entry of X'X; off the diagonal, divide it by sqrt 2."""
        return WIDTH * self.feature_step**2 / float(self.ratios[0])

    @property
    def target_weight(self) -> float:
        """Factor that puts a target in units in which the noise is isotropic."""
        return self.feature_step * self.target_steps / self.target_bound

    @property
    def magnitude(self) -> int:
        """Bound on each integer of an honest release, exceeded with probability below 1e-30."""
        return self.largest_window * self.room + TAIL * WIDTH + 64

    def decode(self, integers: npt.ArrayLike) -> Floats:
        """Decode a release to the noisy Gram matrix (d, d) in the rows' units; raise `UserError` for another size."""
        array = checked_release(integers, self.dimension, f"a Gram matrix of {self.columns} columns")
        matrix = np.zeros((self.columns, self.columns))
        matrix[np.triu_indices(self.columns)] = array.ravel()
        matrix += np.triu(matrix, 1).T
        return matrix * self.units

    @property
    def stated(self) -> Guarantee:
        """The guarantee to which the mechanism was calibrated; by default the mu-GDP of its noise."""
        return self.noise.guarantee if self.asked is None else self.asked

    @property
    def guarantee(self) -> Guarantee:
        """Guarantee of one release, for the stated neighbours."""
        return self.stated

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """GDP, zCDP and the stated guarantee."""
        return self.noise.guarantees

    def replace_one(self) -> Guarantee:
        """Return the guarantee for replaced rows: sqrt 2 times mu, or an epsilon at the same delta if one was stated.

        >>> mechanism = GramMechanism.calibrate(GaussianDP(1.0), columns=3, feature_bound=1.0, target_bound=1.0)
        >>> round(mechanism.replace_one().mu, 4)
        1.4142
        """
        if self.neighbours == "replace-one":
            return self.stated
        more = float(_ROOT_ABOVE) * _SLACK
        if isinstance(self.stated, ApproxDP):
            return ApproxDP(gdp_epsilon(more * self.noise.guarantee.mu, self.stated.delta), self.stated.delta)
        if isinstance(self.stated, ZeroConcentratedDP):
            return ZeroConcentratedDP(more * more * self.stated.rho)
        stated = self.stated if isinstance(self.stated, GaussianDP) else self.noise.guarantee
        return GaussianDP(more * stated.mu)

    def cost(self, currency: Currency) -> PrivacyLoss:
        """Return the cost of one release to an account, rounded up."""
        return self.noise.cost(currency)

    def to_dict(self) -> dict[str, Any]:
        """Return the public and derived parameters as plain data."""
        names = ("kind", "columns", "feature_bound", "target_bound", "neighbours")
        figures = {"steps": self.noise.steps, "scale": self.scale, "stated": self.stated.to_dict()}
        several = {"rows_per_person": self.rows_per_person} if self.rows_per_person > 1 else {}
        return {name: getattr(self, name) for name in names} | figures | several

    @classmethod
    def calibrate(
        cls,
        guarantee: Guarantee,
        *,
        columns: int,
        feature_bound: float,
        target_bound: float,
        neighbours: Neighbours = "zero-out",
        rows_per_person: int = 1,
    ) -> "GramMechanism":
        """Return the mechanism with the least noise whose releases have ``guarantee``.

        The guarantee is `ApproxDP` with delta above 0 (analytic calibration), `GaussianDP` or `ZeroConcentratedDP`.
        Raises `UserError` for `PureDP`, which Gaussian noise cannot give, and for budgets that the lattice cannot hold.
        """
        size = _columns(columns)
        noise = GaussianMechanism.calibrate(guarantee, dimension=size * (size + 1) // 2, radius=1.0)
        return cls(size, feature_bound, target_bound, noise, neighbours, guarantee, rows_per_person)


def _columns(columns: object) -> int:
    size = checked_integer("GramMechanism", "columns", columns)
    if not 2 <= size <= LARGEST_COLUMNS:
        bounds = f"from 2 (a feature and the target) to {LARGEST_COLUMNS}"
        raise UserError(f"GramMechanism: columns={size} is not {bounds}; give it fewer features")
    return size
