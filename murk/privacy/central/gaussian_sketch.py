"""The Gaussian sketch as a mechanism: frozen public parameters, guarantee and cost."""

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar, get_args

import numpy as np
import numpy.typing as npt

from murk._internal.arrays import Floats
from murk.errors import UserError
from murk.privacy.central import sketch_tight as tight
from murk.privacy.central.sketch_renyi import (
    Analysis,
    Method,
    Neighbours,
    joint_settings,
    noise_on_eigenvalue,
    smallest_threshold,
    total,
    truncated,
)
from murk.privacy.guarantees import ApproxDP, Guarantee, nearest
from murk.privacy.mechanisms.base import TAIL, WIDTH, checked_bound, checked_integer, checked_release, plain
from murk.privacy.mechanisms.costs import DELTA_UNITS, UNITS, Currency, PrivacyLoss, cap_of
from murk.privacy.rounding import decimal, float_down, float_up, precise, rational

_ERROR_CODE = "MURK-PRIVACY-001"

LARGEST_WINDOW = 2**32
"""Largest number of records in a window; less for more than 64 columns (`GaussMixMechanism.largest_window`)."""
LEAST_SPREAD = 2.0**-8
"""Least standard deviation of the noise in units of C: it hides floating-point rounding where no noise is needed."""

_ENTRIES = 2**26
# Factor by which C exceeds the square root, because rows of exactly that norm may exceed it by rounding.
_SLACK = 1 + 2.0**-40


@dataclass(frozen=True, slots=True)
class GaussMixMechanism:
    r"""A Gaussian sketch of a window of rows: k random mixtures of all rows, plus noise.

    .. math:: M = S Z + \text{std}\, C\, \Xi, \quad S\ k \times n,\ \Xi\ k \times (p+1)\ \text{standard normal}, \quad
        \text{std}^2 = \max(g - \lambda, 0)

    Rows z = (x, y) have ||x|| <= C_X and \|y\| <= C_Y (others are scaled down), so ||z|| <= C. With ``"mixing"``, or if
    g <= tau, lambda = 0. Else it is a noisy lower bound on the least eigenvalue of Z'Z, released as ``spread``:

    .. math:: \lambda = \max(\lambda_{\min}(Z'Z) / C^2 - \eta (\tau - z), 0), \quad z \sim N(0, 1)

    The guarantee is central: the accumulating party sees the rows, everybody else sees M. **Neighbours** are two
    windows of the same public number of rows that differ in one row. With ``"zero-out"`` that row is zero in one
    window; with ``"replace-one"`` both rows are arbitrary. The guarantee is claimed for real-valued normals S, drawn as
    64-bit floats from a cryptographic stream. The noise on mixtures and eigenvalue has an exact distribution on
    integers; the random rounding of the mixtures is within 2^-48 of its exact distribution in total variation.

    Reference: Lev, Srinivasan, Shenfeld, Ligett, Sekhari, Wilson, "The Gaussian mixing mechanism", algorithms 1 and 2
    (which print the noise for g <= tau as g C; it is sqrt(g) C).

    Parameters
    ----------
    rows, columns
        k, at least ``columns``; p + 1: features (a constant included) and the target.
    feature_bound, target_bound
        C_X and C_Y, public.
    g
        Lower bound on the noisy second moment's smallest eigenvalue in C^2, above 1 (``"tight"``: above 2^-16).
    eta, tau
        Noise and safety margin of the released eigenvalue (as above); 0 for ``"mixing"``.
    method
        ``"linear-mixing"`` or ``"mixing"``.
    stated, neighbours
        The (epsilon, delta) guarantee, which is checked, and the neighbours for which it holds.
    analysis
        ``"published"``: the paper's lemma 1 and theorem 1. ``"joint"``: the Renyi divergences of eigenvalue and sketch
        add, so that about half the eigenvalue makes noise unnecessary. ``"tight"``: the least noise, exact for
        ``"mixing"``, integrated over the eigenvalue's noise for ``"linear-mixing"``.

    Examples
    --------
    >>> from murk.privacy import ApproxDP
    >>> mechanism = GaussMixMechanism.calibrate(
    ...     ApproxDP(1.0, 1e-5), rows=100, columns=4, feature_bound=1.0, target_bound=1.0
    ... )
    >>> round(mechanism.g, 2), round(mechanism.eta, 3), round(mechanism.tau, 3)
    (85.33, 8.533, 5.022)
    """

    rows: int
    columns: int
    feature_bound: float
    target_bound: float
    g: float
    eta: float
    tau: float
    method: Method
    stated: ApproxDP
    neighbours: Neighbours = "zero-out"
    analysis: Analysis = "published"
    kind: ClassVar[str] = "gaussmix"
    rows_per_person: ClassVar[int] = 1

    def __post_init__(self) -> None:
        for name, size in zip(("rows", "columns"), _shape(self.rows, self.columns), strict=True):
            object.__setattr__(self, name, size)
        for name in ("feature_bound", "target_bound"):
            object.__setattr__(self, name, checked_bound("GaussMixMechanism", name, getattr(self, name)))
        for name, least in (("g", LEAST_SPREAD**2 if self.analysis == "tight" else 1.0), ("eta", 0.0), ("tau", 0.0)):
            value = getattr(self, name)
            if isinstance(value, bool | str) or not least <= float(value) <= 1e9:
                raise UserError(f"GaussMixMechanism: {name}={value!r} is not a number from {least:g} to 1e9")
            object.__setattr__(self, name, float(value))
        _check_choices(self.method, self.neighbours, self.analysis)
        _check_guarantee(self.stated)
        self._check_stated()

    def _check_stated(self) -> None:
        if self.method == "mixing" and (self.eta or self.tau):
            raise UserError(f"GaussMixMechanism: eta={self.eta!r}, tau={self.tau!r}: both are 0 for method='mixing'")
        if self.method == "linear-mixing" and not (self.eta and self.tau):
            raise UserError("GaussMixMechanism: eta=0 or tau=0 would release the eigenvalue itself; use calibrate()")
        with precise():
            epsilon = self._epsilon(self.neighbours)
            if epsilon > decimal(Fraction(cap_of(self.stated).units, UNITS)):
                raise UserError(
                    f"{self.stated!r} does not hold for {self.neighbours} neighbours with {self.rows} sketch rows, "
                    f"g={self.g!r}, eta={self.eta!r}, tau={self.tau!r} (epsilon is {float(epsilon):.6g}); use "
                    "calibrate()"
                )

    def _epsilon(self, neighbours: Neighbours) -> Decimal:
        """Return a valid epsilon for these neighbours, not rounded, at the stated delta in an account's whole units."""
        delta = Fraction(cap_of(self.stated).delta_units, DELTA_UNITS)
        settings = (rational(self.g), rational(self.eta), rational(self.tau))
        if self.analysis != "tight":
            return total(settings, self.rows, delta, self.method, neighbours, self.analysis)
        claimed = decimal(Fraction(cap_of(self.stated).units, UNITS))
        return tight.total(settings, self.rows, delta, self.releases_eigenvalue, neighbours, claimed)

    @property
    def bound(self) -> float:
        """C, the bound on a row's norm: sqrt(C_X^2 + C_Y^2), increased by a share of 1e-12 for rounding."""
        return math.hypot(self.feature_bound, self.target_bound) * _SLACK

    @property
    def releases_eigenvalue(self) -> bool:
        """Whether the noise depends on the data through the noisy eigenvalue."""
        return self.method == "linear-mixing" and self.g > self.tau

    @property
    def dimension(self) -> int:
        """Number of integers in a release: k (p + 1)."""
        return self.rows * self.columns

    @property
    def largest_window(self) -> int:
        """Largest number of records in a window for which the eigenvalue's rounding errors are accounted for."""
        return min(LARGEST_WINDOW, 2**38 // self.columns)

    @property
    def guarantee(self) -> ApproxDP:
        """The stated (epsilon, delta), for the stated neighbours."""
        return self.stated

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """The stated guarantee, and truncated concentrated ones for composition; no GDP or zCDP guarantee holds."""
        settings = self.g, self.eta, self.tau, self.rows, self.stated.delta, self.releases_eigenvalue, self.neighbours
        return (self.stated, *truncated(*settings))

    @property
    def largest_spread(self) -> float:
        """Largest standard deviation of the noise in units of C, sqrt(g); the least is ``LEAST_SPREAD``."""
        return _upwards(max(self.g, LEAST_SPREAD**2))

    @property
    def magnitude(self) -> int:
        """Bound on each integer of an honest sketch, exceeded with probability below 1e-30."""
        return math.ceil(TAIL * math.isqrt(LARGEST_WINDOW) * WIDTH / LEAST_SPREAD) + TAIL * WIDTH + 64

    def spread(self, eigenvalue: float) -> float:
        """Return the noise's standard deviation in units of C for a noisy eigenvalue in units of C^2, rounded up."""
        return _upwards(max(self.g - max(eigenvalue, 0.0), LEAST_SPREAD**2))

    def spacing(self, spread: float) -> float:
        """Return a lattice step's width, 2^-20 of the noise's; raise `UserError` if no sketch has this spread."""
        if not LEAST_SPREAD <= spread <= self.largest_spread:
            raise UserError(
                f"spread={spread!r}: a sketch with g={self.g!r} has noise between {LEAST_SPREAD!r} and "
                f"{self.largest_spread!r} times C; this one was not made with this mechanism"
            )
        return spread * self.bound / WIDTH

    def decode(self, integers: npt.ArrayLike, spread: float) -> Floats:
        """Decode a release to a sketch M (k, p + 1) in the rows' units; raise `UserError` if it does not fit."""
        expected = f"a sketch of {self.rows} rows and {self.columns} columns"
        array = checked_release(integers, self.dimension, expected)
        return np.asarray(array.reshape(self.rows, self.columns) * self.spacing(spread))

    def noise_variance(self, spread: float) -> float:
        """Return the noise variance of an entry of M: M'M / k, less this on the diagonal, estimates Z'Z."""
        return (spread * self.bound) ** 2

    def replace_one(self) -> ApproxDP:
        """Return the guarantee for replaced rows: at the same delta an epsilon well below twice the stated one.

        phi(a; k, g) becomes phi(a; k, g) + phi(a; k, -g) (see ``sketch_renyi.phi``); the eigenvalue's part stays the
        same.

        >>> mechanism = GaussMixMechanism.calibrate(
        ...     ApproxDP(1.0, 1e-5), rows=100, columns=4, feature_bound=1.0, target_bound=1.0
        ... )
        >>> round(mechanism.replace_one().epsilon, 3)
        1.094
        """
        if self.neighbours == "replace-one":
            return self.stated
        with precise():
            return ApproxDP(float_up(self._epsilon("replace-one")), self.stated.delta)

    def cost(self, currency: Currency) -> PrivacyLoss:
        """Return the cost of one sketch to an account; raise `UserError` for any currency but ``"approx"``."""
        if currency != "approx":
            raise UserError(
                f"a Gaussian sketch has no cost in {currency}: its Renyi divergence is finite up to an order only, so "
                "it has no GDP or zCDP guarantee; give the account a cap in approx: {epsilon: ..., delta: ...} or "
                "tcdp: {rho: ..., omega: ..., delta: ...}"
            )
        return cap_of(self.stated)

    def to_dict(self) -> dict[str, Any]:
        """Return the public parameters as plain data."""
        sizes, noise = ("rows", "columns", "feature_bound", "target_bound"), ("g", "eta", "tau")
        return plain(self, *sizes, *noise, "method", "neighbours", "analysis", "stated")

    @classmethod
    def calibrate(
        cls,
        guarantee: Guarantee,
        *,
        rows: int,
        columns: int,
        feature_bound: float,
        target_bound: float,
        method: Method = "linear-mixing",
        neighbours: Neighbours = "zero-out",
        analysis: Analysis = "published",
    ) -> "GaussMixMechanism":
        """Return the mechanism with the least noise whose sketches have ``guarantee``, an `ApproxDP`.

        Raises `UserError` for another kind of guarantee, for fewer rows than columns, or if no noise up to 1e9 C^2
        suffices.
        """
        k, width = _shape(rows, columns)
        _check_choices(method, neighbours, analysis)
        checked = _check_guarantee(guarantee)
        # An account counts in whole units, so the guarantee is rounded down to them.
        cap = cap_of(checked)
        epsilon = float_down(Fraction(cap.units, UNITS))
        delta = float_down(Fraction(cap.delta_units, DELTA_UNITS))
        if method == "mixing":
            eta = tau = 0.0
            if analysis == "tight":
                g = (tight.mixing_noise if neighbours == "zero-out" else tight.replaced_noise)(epsilon, delta, k)
            else:
                g = smallest_threshold(epsilon, delta, k, method, neighbours)
        elif analysis == "joint" or (analysis == "tight" and neighbours == "replace-one"):
            g, eta, tau = joint_settings(epsilon, delta, k, neighbours)
        elif analysis == "tight":
            g, eta, tau = tight.settings(epsilon, delta, k)
        else:
            g = smallest_threshold(epsilon, delta, k, method, neighbours)
            eta = noise_on_eigenvalue(g, k)
            with precise():
                tau = float_up((2 * (3 / decimal(rational(delta))).ln()).sqrt() * (1 + Decimal("1e-20")))
        return cls(k, width, feature_bound, target_bound, g, eta, tau, method, checked, neighbours, analysis)


def _upwards(square: float) -> float:
    """Return the square root, no lower than the exact one."""
    return math.sqrt(square) * _SLACK


def _shape(rows: object, columns: object) -> tuple[int, int]:
    k = checked_integer("GaussMixMechanism", "rows", rows)
    width = checked_integer("GaussMixMechanism", "columns", columns)
    if width < 2:
        raise UserError(f"GaussMixMechanism: columns={width} leaves no feature besides the target; it needs at least 2")
    if k < width:
        raise UserError(
            f"a sketch of rows={k} cannot determine {width - 1} coefficients (columns={width}, the target included): "
            f"set rows to at least {width}, better ten times that"
        )
    if k * width > _ENTRIES:
        raise UserError(f"a sketch of {k} x {width} entries is too large; rows * columns is at most {_ENTRIES}")
    return k, width


def check_choice(name: str, value: object, kinds: Any) -> None:
    """Raise `UserError` if the value is not one of a literal type's values."""
    choices = get_args(kinds)
    if value not in choices:
        raise UserError(f"unknown {name} {value!r}{nearest(value, choices)}; use one of {', '.join(choices)}")


def _check_choices(method: str, neighbours: str, analysis: str) -> None:
    check_choice("method", method, Method)
    check_choice("neighbours", neighbours, Neighbours)
    check_choice("analysis", analysis, Analysis)


def _check_guarantee(guarantee: object) -> ApproxDP:
    if not isinstance(guarantee, ApproxDP) or guarantee.delta == 0 or guarantee.epsilon == 0:
        raise UserError(
            f"a Gaussian sketch cannot give {guarantee!r}: its Renyi divergence is finite up to an order only, so "
            "state the level as approx: {epsilon: ..., delta: ...}, both above 0"
        )
    if cap_of(guarantee).delta_units == 0:
        raise UserError(f"a Gaussian sketch cannot give {guarantee!r}: delta must be at least 1e-15")
    return guarantee
