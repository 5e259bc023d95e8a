"""Least squares from examples released once, as a River estimator."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from river import base

from murk.errors import UserError
from murk.learners.core.estimator import Record
from murk.learners.core.options import Averaging, InverseScalingStep, Weighting
from murk.learners.core.predictions import TargetEstimator
from murk.learners.core.values import stated_bounds, target, targets
from murk.learners.estimates.estimate import Estimate
from murk.learners.examples.base import IWPSGD
from murk.privacy import ApproxDP, GaussianDP, Guarantee
from murk.privacy.noise import NoiseSource
from murk.stream.task.protocol import Scale


class IWPSGDRegressor(IWPSGD, TargetEstimator, base.MiniBatchRegressor):
    """Least squares by inverse Weierstrass private SGD (IWP-SGD), from examples that are released once.

    From ``x~ = x + N(0, D)`` and ``y~ = y + noise`` the gradient of ``(theta'x - y)^2 / 2`` has the unbiased estimate
    ``x~ (theta'x~ - y~) - D theta``. What is learned is the average of
    ``theta <- Project(theta - step (gradient + lambda theta))``, polished by one Newton step, which here gives the
    exact minimiser of the mean unbiased loss.

    Parameters
    ----------
    budget
        Guarantee of each release: ``ApproxDP``, ``GaussianDP`` or ``ZeroConcentratedDP``; of outer products ``PureDP``,
        too.
    target_bound
        Public bound of ``|y|``; a target beyond it is projected to it. Required where noise is real and records are
        read; else 1 by default.
    release
        ``"outer"``, the default: one release, by any mechanism, of the outer product of ``(x, y)/sqrt(1 + |x|^2)``
        with itself, which tells the fit weighted by ``1/(1 + |x|^2)``. ``"directions"``, the default under Gaussian
        noise of mu > 3 or with more than 64 features: one Gaussian release of ``x/|x|`` and ``y/|x|``, which tells the
        fit weighted by ``1/|x|^2``.
        ``"joint"``: one of ``(x, a y)``, with a public factor a that balances the two.
        ``"separate"``: one of x and one of y, as published.
    split
        The features' share of the budget in a separate release.
    levels
        Further guarantees by name, for releases made elsewhere at other levels.
    calibration
        ``"analytic"``, or ``"classic"`` for the paper's formula, where it holds.
    features
        Feature names in a fixed order; required where noise is real, and in a simulation by default the sorted names of
        the first record.
    bound
        Public bound of the features' norm; longer vectors are scaled down to it. By default every feature is clamped
        to [-1, 1].
    regularization
        lambda of the penalty ``lambda/2 ||theta||^2``.
    batch
        Releases averaged for each step.
    step
        ``"noise-aware"``, or River's ``optim.schedulers.InverseScaling``.
    averaging
        ``"polyak"``, ``"polynomial-decay"`` or ``None``.
    weighting
        Of people, by public noise level: ``"inverse-variance"`` or ``"uniform"``.
    radius
        The coefficients, in units of ``target_bound``, are projected on this ball; 1.5 by default.
    polish
        Whether coefficients and intervals come from the Newton polish, with O(p^2) memory; by default up to 64
        coefficients. Otherwise coefficients are the average, without intervals.
    intercept
        Whether there is a constant to learn; without it its coefficient is 0. The release is the same.
    intervals
        ``"random-scaling"`` asks for intervals from the path of the average, where nothing is polished. They hold the
        truth far less often than they say before the iterates have settled.
    mechanism
        Of outer products: ``"gaussian"``, ``"laplace"``, ``"l2-ball"`` or ``"privunit"``; by default the one of least
        noise. All other releases are Gaussian.
    corrected
        Whether the noise's effect is taken back. ``False`` takes releases for the records themselves, as plain SGD
        would: the paper's baseline "SGD - noisy data", which is biased and for comparisons only. It has no polish and
        no ``unbiased_loss``.
    inputs
        ``"records"``: ``learn_one`` takes raw records and randomizes them. ``"released"``: it takes examples that
        :meth:`decoded` gave, whose targets are in units of ``target_bound``.
    seed
        Simulate the noise from this seed. Not private: for experiments.
    noise
        Another source of noise, such as ``OpenDPNoise()``.

    Notes
    -----
    A record without a target (missing, or no number) is released as the mechanism of a zero vector. In outer products
    and directions that tells nothing; in a joint or separate release it pulls the constant alone, towards 0.

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
        self.budget = budget
        self.target_bound = target_bound
        self.levels = levels
        self.release = release
        self.split = split
        self.calibration = calibration
        self.features = features
        self.bound = bound
        self.regularization = regularization
        self.batch = batch
        self.step = step
        self.averaging = averaging
        self.weighting = weighting
        self.radius = radius
        self.polish = polish
        self.intercept = intercept
        self.intervals = intervals
        self.mechanism = mechanism
        self.corrected = corrected
        self.inputs = inputs
        self.seed = seed
        self.noise = noise
        self.loss = "squared"
        self._bound = stated_bounds("target_bound", target_bound, 1.0, seed=seed, records=inputs == "records")
        if not (math.isfinite(self._bound) and self._bound > 0):
            raise UserError(f"target_bound={target_bound!r}, the public bound of |y|, must be positive and finite")
        self._prepare()

    @classmethod
    def as_published(cls, *, budget: Guarantee, gamma: float = 1e-4, **more: Any) -> Self:
        """The paper's own release and settings: features and target apart, constant steps, the last iterate."""
        settings: dict[str, Any] = {
            "target_bound": 1.0,
            "release": "separate",
            "step": InverseScalingStep(gamma, 0.0),
            "averaging": None,
            "weighting": "uniform",
            "regularization": 5.0,
            "batch": 128,
            "polish": False,
        }
        return cls(budget=budget, **{**settings, **more})

    def _scale(self) -> Scale:
        return "slope"

    def learn_one(self, x: Record, y: Any, budget: Guarantee | None = None) -> None:
        """Randomize the record once and learn from the result; or learn from a released one.

        ``budget`` overrides the learner's for this person.
        """
        if self.inputs == "released":
            self._learn_released(x, target(y), budget)
        else:
            self._learn(x, target(y) / self._bound, budget)

    def learn_many(self, X: Any, y: Any, budget: Guarantee | Sequence[Guarantee] | None = None) -> None:
        """Learn from the rows of a data frame or an ``(n, d)`` array of raw records, as one by one.

        ``budget`` is everybody's, or a sequence with each row's own.
        """
        if self.inputs == "released":
            raise UserError("learn_many takes raw records; give released examples to learn_one or learn_release")
        self._learn_rows(X, targets(y) / self._bound, budget)

    def _shown(self, target: float) -> float:
        # A joint release holds the target times its factor.
        return target / float(self._require().settings.scale)

    def _in_units(self, found: Estimate) -> Estimate:
        unit = self._bound
        return dataclasses.replace(found, values=found.values * unit, spread=found.spread * unit)

    def estimate(self) -> Estimate:
        """Coefficients with what their intervals need, in units of the target."""
        return self._in_units(super().estimate())

    def merged(self, others: Sequence[Self]) -> Estimate:
        """Estimate from this learner and ``others`` of the same settings, each having learned its own chain."""
        return self._in_units(super().merged(others))

    def _means(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._bound * self._linear(rows)

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"budget": GaussianDP(mu=1.0), "seed": 1}
        yield {"budget": GaussianDP(mu=4.0), "target_bound": 10.0, "seed": 1}
        yield {"budget": ApproxDP(epsilon=2.0, delta=1e-5), "release": "separate", "target_bound": 100.0, "seed": 1}
