"""How moments are randomized: one Gaussian for all of them, or the paper's two side by side."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt

from murk._scratch import copied, wiped
from murk.errors import UserError
from murk.learners.core.scoring.sums import direction_spread
from murk.learners.moments import kernels
from murk.learners.moments.statistics import Statistics
from murk.privacy.guarantees import ApproxDP, GaussianDP, Guarantee, PureDP
from murk.privacy.mechanisms import (
    BEST,
    CompositeMechanism,
    GaussianMechanism,
    calibrate,
    divided,
)
from murk.privacy.mechanisms.base import WIDTH, Randomizer
from murk.privacy.mechanisms.lattice import DIRECTIONS
from murk.privacy.mechanisms.payload_limits import Reach, gaussian_square
from murk.privacy.mechanisms.privacy_loss import Currency, PrivacyLoss, is_pure
from murk.privacy.noise import NoiseSource

Vectors = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

WHOLE: Final = ("observed", "joint")
"""Releases of all moments by one mechanism, at the scale of the target that suits it."""

# P(|x| > 13 S) < 2 exp(-13^2 / 2) = 4e-37, as for the Gaussian mechanism itself.
_TAIL = 13


@dataclass(frozen=True)
class MomentMechanism:
    r"""Gaussian noise on moments, calibrated to their joint sensitivity D.

    A `GaussianMechanism` bounds the norm of its vectors and takes twice the bound for the sensitivity. Moments
    are nearer to each other than that: with b = sqrt 2 r by 1.22 times, with b small by sqrt 2. So this mechanism
    bounds the *record*: whatever vector it is given, it reads a record off it, brings that within the task's
    bounds, computes its moments again and only then adds noise. Two vectors that it adds noise to are therefore
    never further than D apart, and truncated to lattice steps of width g never further than ``D/g + sqrt d``;

    .. math:: g = D / (2\, \text{steps} - \sqrt d - 2)

    keeps that within the ``2 steps`` that the Gaussian mechanism's guarantee is for (one step is left for the
    rounding of floats).

    Parameters
    ----------
    statistics
        The layout and bounds of the moments.
    noise
        The Gaussian mechanism of the same dimension whose noise and guarantee this is.

    Raises UserError if the budget is too small for the lattice.

    References
    ----------
    Wang, Zhang, Gaboardi, Xu, "Estimating Smooth GLM in Non-interactive Local Differential Privacy Model with
    Public Unlabeled Data", Algorithms 1 to 4 (two releases; here they are one).

    Examples
    --------
    >>> from murk.privacy import ApproxDP
    >>> layout = Statistics(("a", "b"), radius=1.0, constant=False)
    >>> mechanism = calibrated(ApproxDP(10.0, 1e-6), layout)
    >>> round(mechanism.sensitivity, 4), round(mechanism.variance**0.5, 2)
    (2.1213, 1.15)
    """

    statistics: Statistics
    noise: GaussianMechanism
    kind: ClassVar[str] = "gaussian"

    def __post_init__(self) -> None:
        if self.noise.dimension != self.statistics.dimension:
            raise UserError(
                f"moments of {self.statistics.dimension} numbers and a mechanism for {self.noise.dimension}"
            )
        if self._sensitivity_steps < self.noise.steps:
            raise UserError(
                f"{self.noise.guarantee!r} is less than a lattice can express for {self.dimension} moments; give a "
                f"larger budget (a mu of {4e-6 * math.sqrt(self.dimension) + 8e-6:.2g} or more)"
            )

    @property
    def _sensitivity_steps(self) -> float:
        """Lattice steps that the sensitivity may take."""
        return 2.0 * self.noise.steps - math.sqrt(self.dimension) - 2.0

    @property
    def dimension(self) -> int:
        """Numbers in a release."""
        return self.statistics.dimension

    @property
    def spacing(self) -> float:
        """Width of a lattice step."""
        return self.statistics.sensitivity / self._sensitivity_steps

    @property
    def unit(self) -> float:
        """What decoding multiplies by: the spacing."""
        return self.spacing

    @property
    def sensitivity(self) -> float:
        """The largest distance between two records' moments."""
        return self.statistics.sensitivity

    @property
    def variance(self) -> float:
        """Variance of the noise on a coordinate."""
        return (WIDTH * self.spacing) ** 2

    @property
    def guarantee(self) -> GaussianDP:
        """What one release promises."""
        return self.noise.guarantee

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """GDP, zCDP, and what was stated."""
        return self.noise.guarantees

    @property
    def magnitude(self) -> int:
        """No coordinate of an honest payload exceeds it, up to a probability below 1e-30."""
        return math.ceil(self.statistics.norm / self.spacing) + _TAIL * WIDTH

    @property
    def reach(self) -> Reach:
        """How long an honest payload is; a longer one is forged."""
        steps = math.ceil(self.statistics.norm / self.spacing)
        return Reach(((0, self.dimension, gaussian_square(self.dimension, steps)),))

    def cost(self, currency: Currency) -> PrivacyLoss:
        """What one release costs an account, rounded up."""
        return self.noise.cost(currency)

    @wiped
    def randomize(self, vectors: npt.ArrayLike, noise: NoiseSource, records: npt.ArrayLike) -> Integers:
        """Randomize m vectors of moments (m, d) into payloads, int64 of shape (m, d)."""
        rows = copied(vectors)
        indices = np.asarray(records, dtype=np.int64)
        if rows.ndim != 2 or rows.shape[1] != self.dimension or indices.shape != (len(rows),):
            raise UserError(
                f"moments come as (m, {self.dimension}) with m record indices, got {rows.shape} and {indices.shape}"
            )
        layout = self.statistics
        out = np.empty(rows.shape, dtype=np.int64)
        kernels.randomize_block(
            rows, layout.size, layout.reach, layout.constant, layout.root, layout.weight, layout.presence, self.spacing,
            noise.gaussian(indices, self.dimension), out,
        )  # fmt: skip
        return out

    def decode(self, payload: npt.ArrayLike) -> Vectors:
        """Turn payloads (m, d) into unbiased estimates (m, d): spacing times payload."""
        rows = np.asarray(payload)
        if rows.ndim != 2 or rows.shape[1] != self.dimension or rows.dtype.kind not in "iu":
            raise UserError(f"a payload is integers of shape (m, {self.dimension}), got {rows.dtype} {rows.shape}")
        decoded: Vectors = self.spacing * rows.astype(np.float64)
        return decoded

    def to_dict(self) -> dict[str, Any]:
        """The public parameters and what follows from them, as plain data."""
        return {
            "kind": self.kind,
            "dimension": self.dimension,
            "radius": self.statistics.radius,
            "weight": self.statistics.weight,
            "sensitivity": self.sensitivity,
            "steps": self.noise.steps,
            "variance": self.variance,
            "guarantee": self.guarantee.to_dict(),
        }


def calibrated(
    guarantee: Guarantee, statistics: Statistics, *, release: str = "joint", kind: str | None = None,
    method: str = "analytic",
) -> Randomizer:  # fmt: skip
    """The mechanism with which a release of moments has ``guarantee``.

    Parameters
    ----------
    guarantee
        What one release promises.
    statistics
        The layout and bounds of the moments.
    release
        ``"observed"``, ``"joint"``: one mechanism for all moments. ``"separate"``, as published: ``x x'`` and ``x y``
        by a Gaussian each, with half the budget each and the sensitivities ``2 r^2`` and ``2 b r``.
    kind
        ``"gaussian"``, ``"laplace"``, ``"l2-ball"`` or ``"privunit"`` (not of ``separate``); None or ``"best"`` for the
        one of smallest variance: means of moments need nothing of the noise but that it is unbiased.
    method
        ``"classic"`` for the textbook's Gaussian calibration. For ``separate`` it gives the paper's constants,
        variances ``32 r^4 log(2.5/delta) / eps^2`` and ``32 r^2 log(2.5/delta) / eps^2``.

    Raises UserError if the mechanism cannot give the guarantee; the message says which can.
    """
    if release in WHOLE:
        if kind == "gaussian" or (kind in (None, BEST) and not is_pure(guarantee)):
            half = statistics.sensitivity / 2.0
            found = calibrate("gaussian", guarantee, dimension=statistics.dimension, radius=half, method=method)
            assert isinstance(found, GaussianMechanism)
            own = MomentMechanism(statistics, found)
            return own if kind == "gaussian" or method != "analytic" else _better(own, guarantee)
        return calibrate(kind, guarantee, dimension=statistics.dimension, radius=statistics.norm, method=method)
    if release != "separate":
        raise UserError(f'release={release!r}; one of "observed", "joint", "separate"')
    if kind not in (None, BEST, "gaussian"):
        raise UserError(
            f"two separate releases of moments are Gaussian, not {kind!r}; use release='joint' or 'observed'"
        )
    parts = []
    for part, (size, bound) in zip(
        divided(guarantee, 0.5, label=False),
        [(statistics.cross, statistics.radius**2), (statistics.size, statistics.weight * statistics.radius)],
        strict=True,
    ):
        found = calibrate("gaussian", part, dimension=size, radius=bound, method=method)
        assert isinstance(found, GaussianMechanism)
        parts.append(found)
    return CompositeMechanism(tuple(parts), guarantee if isinstance(guarantee, ApproxDP) else None)


def _better(own: MomentMechanism, guarantee: Guarantee) -> Randomizer:
    """The mechanism of smaller variance for (epsilon, delta): Gaussian noise, or the best pure one."""
    if not isinstance(guarantee, ApproxDP) or guarantee.epsilon == 0:
        return own
    statistics = own.statistics
    pure = calibrate(BEST, PureDP(guarantee.epsilon), dimension=statistics.dimension, radius=statistics.norm)
    return pure if _noise(pure, statistics) < 0.99 * own.variance else own


def _noise(mechanism: Any, statistics: Statistics) -> float:
    """What one release of a mechanism counts as varying by, in a coordinate.

    Of a direction (PrivUnit, l2 ball) the mean square of a coordinate. Joint releases count that along the direction
    itself, which is mostly the signal: under an epsilon of 10 Gaussian noise is then taken that is the larger. A task
    has what it was begun with.
    """
    if statistics.observed:
        return float(mechanism.variance)
    return float(max(getattr(mechanism, "second_moment", (mechanism.variance,))))


@dataclass(frozen=True)
class Level:
    """What the update needs of a mechanism, all public.

    Parameters
    ----------
    ball
        Whether a release is a direction (l2 ball, PrivUnit).
    units
        What decoding multiplies each coordinate by.
    weights
        Of a release in the means of ``x x'`` and of ``x y``: ``1 / (noise variance + spread of the moments)``. If the
        layout is ``observed`` they are one: all means are divided by the same share of targets.
    variances
        Of the noise on their coordinates; for directions the mean square of a release in the worst one, as people's
        moments point much the same way. If the layout is ``observed``: of the noise across a vector's direction, and
        how much more the mean square is along it, whatever the vector's length; 0 for noise that has no direction.
    """

    ball: bool
    units: Vectors
    weights: tuple[float, float]
    variances: tuple[float, float]

    @classmethod
    def of(cls, mechanism: Any, statistics: Statistics) -> Level:
        """Read it off a mechanism that :func:`calibrated` made."""
        d, cross = statistics.dimension, statistics.cross
        ball = getattr(mechanism, "code", None) in DIRECTIONS
        if isinstance(mechanism, CompositeMechanism):
            units, noise = mechanism.units, mechanism.variances
        else:
            units, noise = np.full(d, mechanism.unit), np.full(d, _noise(mechanism, statistics))
        if statistics.observed:
            across, along = direction_spread(mechanism)
            weight = 1.0 / (float(noise[0]) + statistics.norm**2 / d)
            return cls(ball, units, (weight, weight), (across, along or 0.0))
        # What moments vary by even without noise, at most: a share of the squared norm for each coordinate.
        spreads = (statistics.radius**4 / cross, (statistics.weight * statistics.radius) ** 2 / statistics.size)
        variances = (float(noise[0]), float(noise[cross]))
        weights = (1.0 / (variances[0] + spreads[0]), 1.0 / (variances[1] + spreads[1]))
        return cls(ball, units, weights, variances)
