"""River regressor for IWP-SGD."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from river import base

from murk.errors import UserError
from murk.learners.core.estimator import Record, TargetEstimator
from murk.learners.core.options import Averaging, Weighting
from murk.learners.core.values import stated_bounds, target, targets
from murk.learners.estimates.estimate import Estimate
from murk.learners.examples.base import IWPSGD, published
from murk.privacy import ApproxDP, GaussianDP, Guarantee
from murk.privacy.noise import NoiseSource
from murk.stream.task.protocol import Scale


class IWPSGDRegressor(IWPSGD, TargetEstimator, base.MiniBatchRegressor):
    """Least squares by inverse Weierstrass private SGD (IWP-SGD) from examples released once.

    With ``x~ = x + N(0, D)`` and ``y~ = y + noise``, the gradient of ``(theta'x - y)^2 / 2`` has the unbiased estimate
    ``x~ (theta'x~ - y~) - D theta``. The estimate is the average of
    ``theta <- Project(theta - step (gradient + lambda theta))``, polished by one Newton step to the exact minimiser of
    the mean unbiased loss.

    Parameters
    ----------
    budget
        Guarantee of each release: ``ApproxDP``, ``GaussianDP`` or ``ZeroConcentratedDP``; for outer products also
        ``PureDP``.
    target_bound
        Public bound on ``|y|``, to which targets are clipped; required unless noise is simulated or examples are
        released, then 1 by default.
    levels
        Further guarantees by name, for releases made elsewhere.
    release
        ``"outer"``, the default: the outer product of ``(x, y)/sqrt(1 + |x|^2)`` with itself, for the fit weighted by
        ``1/(1 + |x|^2)``. ``"directions"``: ``x/|x|`` and ``y/|x|``, for the fit weighted by ``1/|x|^2``; the default
        for GDP or zCDP of mu > 3 or more than 64 features. ``"joint"``: ``(x, a y)`` with a public factor a.
        ``"separate"``: x and y by a mechanism each, as in the paper.
    split, calibration
        The features' share of a separate release's budget; calibration, ``"analytic"`` or, as published, ``"classic"``.
    features
        Feature names in a fixed order; required unless noise is simulated, then by default the sorted names of the
        first record.
    bound
        Public bound on the features' norm, to which they are projected; by default each feature to [-1, 1].
    regularization, batch
        lambda of the penalty ``lambda/2 ||theta||^2``; number of releases averaged for each step.
    step, averaging
        ``"noise-aware"`` or River's ``InverseScaling``; ``"polyak"``, ``"polynomial-decay"`` or ``None``.
    weighting
        How to weight people by their public noise level: ``"inverse-variance"`` or ``"uniform"``.
    radius
        Radius of the ball to which coefficients, in units of ``target_bound``, are projected; 1.5 by default.
    polish
        Whether a Newton polish with O(p^2) memory gives coefficients and intervals; by default up to 64 coefficients.
        Otherwise coefficients are the average, without intervals.
    intercept
        Whether the constant has a coefficient; otherwise it is 0. The release is the same.
    intervals
        ``"random-scaling"`` for intervals from the path of the unpolished average, which hold the truth too rarely
        before the iterates settle.
    mechanism
        Mechanism for outer products: ``"gaussian"``, ``"laplace"``, ``"l2-ball"`` or ``"privunit"``; by default the
        least noisy one. All other releases have Gaussian noise.
    corrected
        ``False`` learns from releases as if they were the records, like plain SGD: the paper's biased baseline, without
        polish and ``unbiased_loss``.
    inputs
        ``"records"``: ``learn_one`` randomizes raw records. ``"released"``: it takes the output of :meth:`decoded`,
        with targets in units of ``target_bound``.
    seed, noise
        Simulate the noise from a seed (no privacy), or take it from another source, such as ``OpenDPNoise()``.

    Notes
    -----
    For a record without a numeric target, the mechanism randomizes zeros. Such records do not bias fits of outer
    products and directions; in joint and separate releases they pull the constant towards 0.

    References
    ----------
    Dufraiche, Mangold, Perrot, Tommasi. Learning with Locally Private Examples by Inverse Weierstrass Private
    Stochastic Gradient Descent. Appendix E.2 (regression).

    Examples
    --------
    >>> from murk.learners import IWPSGDRegressor
    >>> from murk.privacy import GaussianDP
    >>> model = IWPSGDRegressor(budget=GaussianDP(mu=3.0), seed=1)
    >>> for i in range(20_000):
    ...     x = (i * 7919 % 2003) / 1001.5 - 1
    ...     model.learn_one({"x": x}, 0.25 + 0.5 * x)
    >>> abs(model.coefficients()["x"] - 0.5) < 0.2
    True
    """

    _target = "real"
    target_bound: float | None

    def __init__(
        self,
        *,
        budget: Guarantee,
        target_bound: float | None = None,
        levels: Mapping[str, Guarantee] | None = None,
        release: Literal["outer", "directions", "joint", "separate"] | None = None,
        split: float = 0.5,
        calibration: Literal["analytic", "classic"] = "analytic",
        features: Sequence[Any] | None = None,
        bound: float | None = None,
        regularization: float = 0.0,
        batch: int = 1,
        step: Any = "noise-aware",
        averaging: Averaging = "polyak",
        weighting: Weighting = "inverse-variance",
        radius: float | None = None,
        polish: bool | None = None,
        intercept: bool = True,
        intervals: Literal["random-scaling"] | None = None,
        mechanism: Literal["gaussian", "laplace", "l2-ball", "privunit"] | None = None,
        corrected: bool = True,
        inputs: Literal["records", "released"] = "records",
        seed: int | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        self._keep(locals())
        self.loss = "squared"
        self._bound = stated_bounds("target_bound", target_bound, 1.0, seed=seed, records=inputs == "records")
        if not (math.isfinite(self._bound) and self._bound > 0):
            raise UserError(f"target_bound={target_bound!r}, the public bound on |y|, must be positive and finite")
        self._prepare()

    @classmethod
    def as_published(cls, *, budget: Guarantee, gamma: float = 1e-4, **more: Any) -> Self:
        """Return a learner with the paper's settings: separate releases, constant steps, the last iterate."""
        return cls(budget=budget, **{**published(gamma), "target_bound": 1.0, **more})

    def _scale(self) -> Scale:
        return "slope"

    def _coded_one(self, y: Any) -> float:
        return target(y) / self._bound

    def _coded_many(self, y: Any) -> NDArray[np.float64]:
        return targets(y) / self._bound

    def _released_target(self, x: Record, y: Any) -> float:
        return target(y)

    def _shown(self, target: float) -> float:
        # A joint release scales the target.
        return target / float(self._require().settings.scale)

    def _in_units(self, coded: Estimate) -> Estimate:
        return replace(coded, values=coded.values * self._bound, spread=coded.spread * self._bound)

    def estimate(self) -> Estimate:
        """Return the coefficients with standard errors, in units of the target."""
        return self._in_units(super().estimate())

    def merged(self, others: Sequence[Self]) -> Estimate:
        """Return the joint estimate of this learner and ``others`` with the same settings, each of one chain."""
        return self._in_units(super().merged(others))

    def _means(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._bound * self._linear(rows)

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"budget": GaussianDP(mu=1.0), "seed": 1}
        yield {"budget": GaussianDP(mu=4.0), "target_bound": 10.0, "seed": 1}
        yield {"budget": ApproxDP(epsilon=2.0, delta=1e-5), "release": "separate", "target_bound": 100.0, "seed": 1}
