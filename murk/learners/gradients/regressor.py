"""River regressor for LDP-SGD."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from river import base

from murk.learners.core.estimator import TargetEstimator
from murk.learners.core.options import Averaging, InverseScalingStep, Weighting
from murk.learners.gradients.base import LDPSGD
from murk.learners.gradients.losses import Huber
from murk.learners.gradients.problem import SCALE_MULTIPLIER
from murk.learners.gradients.settings import Weights
from murk.privacy import GaussianDP, Guarantee, PureDP
from murk.privacy.noise import NoiseSource
from murk.stream.task.protocol import Scale


class LDPSGDRegressor(LDPSGD, TargetEstimator, base.MiniBatchRegressor):
    """Huber regression by locally private SGD, with averaging (LDP-SGD / LDP-ASGD).

    ``theta_i = Project(theta_{i-1} - eta_i g~_i)``, where ``g~_i`` is the record's bounded gradient, ``||g_i|| <= C0``
    for every record and iterate, randomized once at the record's budget. The estimate is the average of the iterates.

    Parameters
    ----------
    budget
        Guarantee of each release: ``PureDP``, ``ApproxDP``, ``GaussianDP`` or ``ZeroConcentratedDP``.
    levels
        Further guarantees by name, for releases made elsewhere.
    mechanism
        ``"gaussian"``, ``"laplace"``, ``"l2-ball"`` or ``"privunit"``; by default the one of least variance: Gaussian
        for GDP and zCDP budgets, mostly PrivUnit for pure and (epsilon, delta) budgets.
    calibration
        ``"analytic"``, or ``"classic"`` for the papers' (epsilon, delta) formula.
    features
        Feature names in a fixed order; required unless noise is simulated, then by default the sorted names of the
        first record.
    weights
        ``"norm"`` (``1 / max(1, ||x||)``), the paper's ``"mallows"`` (``min(1, 2 / ||x||^2)``), or ``"clip"``, which
        clips gradients and biases the estimate (Shi et al., Figure 1).
    clip
        Bound on gradients with ``weights="clip"``.
    c
        Huber's constant.
    scale
        ``"estimate"``, or the known residual scale.
    scale_multiplier
        Unit of the scale's coordinate, which raises it above the noise; 1 in the paper.
    scale_start, scale_floor
        First value of the estimated scale, and its public lower bound.
    second_moment
        Public ``E x x'`` of the features and the constant (last), for whitening.
    public
        Public covariates without targets (array, data frame or list of records), for whitening.
    box
        Smallest and largest ``||x||^2`` (constant included) that features can have.
    step
        ``"noise-aware"``, or River's ``optim.schedulers.InverseScaling``.
    averaging
        ``"polyak"``, ``"polynomial-decay"`` or ``None``.
    weighting
        How to weight people by their public noise level: ``"inverse-variance"`` or ``"uniform"``.
    intervals
        ``"random-scaling"`` for intervals from the path of the average, which are valid in the limit and hold the truth
        too rarely before; by default none.
    radius
        Radius of the ball to which coefficients are projected, and to which noise-aware steps are proportional; by
        default ``5 sqrt(p / 6)`` for p coefficients.
    start
        Public coefficients to start from, the constant's last, ``(p,)``; by default zeros.
    seed
        Simulate the noise from this seed, for experiments: no privacy.
    noise
        Another source of noise, such as ``OpenDPNoise()``.

    Notes
    -----
    Each call of ``learn_one`` is one release of one person: wrappers that call it several times for a record (bagging)
    spend the budget several times. Scalers that learn from raw data leak: give public bounds instead.

    References
    ----------
    Shi, Xie, Jiang, Kong, He. Non-Asymptotic Analysis of Online Local Private Learning with SGD. Sections 3
    (algorithm), 5 (Huber loss).

    Examples
    --------
    >>> from murk.learners import LDPSGDRegressor
    >>> from murk.privacy import GaussianDP
    >>> model = LDPSGDRegressor(budget=GaussianDP(mu=2.0), seed=1)
    >>> for i in range(20_000):
    ...     x = (i * 7919 % 2003) / 1001.5 - 1
    ...     model.learn_one({"x": x}, 0.25 + 0.5 * x)
    >>> abs(model.coefficients()["x"] - 0.5) < 0.1
    True
    """

    def __init__(
        self,
        *,
        budget: Guarantee,
        levels: Mapping[str, Guarantee] | None = None,
        mechanism: str | None = None,
        calibration: Literal["analytic", "classic"] = "analytic",
        features: Sequence[Any] | None = None,
        weights: Weights = "norm",
        clip: float | None = None,
        c: float = 0.5,
        scale: float | Literal["estimate"] = "estimate",
        scale_multiplier: float = SCALE_MULTIPLIER,
        scale_start: float = 1.0,
        scale_floor: float = 0.01,
        second_moment: ArrayLike | None = None,
        public: Any = None,
        box: tuple[float, float] | None = None,
        step: Any = "noise-aware",
        averaging: Averaging = "polyak",
        weighting: Weighting = "inverse-variance",
        intervals: Literal["random-scaling"] | None = None,
        radius: float | None = None,
        start: ArrayLike | None = None,
        seed: int | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        self._keep(locals())
        self._prepare()

    @classmethod
    def as_published(cls, *, budget: Guarantee, eta: float = 0.2, alpha: float = 0.5, **more: Any) -> Self:
        """Return a learner like the paper's: Mallows weights, c = 1.345, steps ``eta i^-alpha``, no projection.

        Pure budgets get the Laplace mechanism, as in the paper's Example 1.
        """
        settings: dict[str, Any] = {
            "mechanism": "laplace" if isinstance(budget, PureDP) else "gaussian",
            "weights": "mallows",
            "c": 1.345,
            "scale_multiplier": 1.0,
            "step": InverseScalingStep(eta, alpha),
            "weighting": "uniform",
            "radius": math.inf,
        }
        return cls(budget=budget, **{**settings, **more})

    def _objective(self) -> Huber:
        if self.scale == "estimate":
            return Huber(self.c, None, self.scale_multiplier)
        return Huber(self.c, float(self.scale))

    def _default_radius(self, coefficients: int) -> float:
        # Leaves room for coefficients of 2 on features of unit size.
        return 5.0 * math.sqrt(coefficients / 6.0)

    def _extra_settings(self) -> dict[str, float]:
        return {"scale_start": self.scale_start, "scale_floor": self.scale_floor}

    def _scale(self) -> Scale:
        return "slope"

    def _means(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._linear(rows)[:, 0]

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"budget": GaussianDP(mu=1.0), "seed": 1}
        yield {"budget": PureDP(epsilon=2.0), "scale": 1.0, "seed": 1}
