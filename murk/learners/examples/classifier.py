"""River classifier for IWP-SGD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from river import base

from murk.learners.core.estimator import LabelEstimator, Record, two_chances, two_labels
from murk.learners.core.options import Averaging, Weighting
from murk.learners.examples.base import IWPSGD, published
from murk.learners.examples.losses import probabilities
from murk.learners.examples.protocol import BinaryLoss
from murk.privacy import ApproxDP, GaussianDP, Guarantee, PureDP
from murk.privacy.noise import NoiseSource
from murk.stream.task.protocol import Scale


class IWPSGDClassifier(IWPSGD, LabelEstimator, base.MiniBatchClassifier):
    """Linear classification by inverse Weierstrass private SGD (IWP-SGD) from examples released once.

    For a loss ``f(theta'x y)`` and a noisy example ``u~``, the gradient at the true example has the unbiased estimate
    ``u~ g'(z) - D theta g''(z)``, with ``z = theta'u~`` and g the inverse Weierstrass transform of f. The estimate is
    the average of ``theta <- Project(theta - step (gradient + lambda theta))``, polished by one Newton step.

    Parameters
    ----------
    budget
        Guarantee of each release: ``ApproxDP``, ``GaussianDP`` or ``ZeroConcentratedDP``; for outer products also
        ``PureDP``.
    classes
        The two labels, the positive one last. Any other label counts as missing: the mechanism then randomizes zeros.
    levels
        Further guarantees by name, for releases made elsewhere.
    release
        ``"outer"``: the outer product of the direction of (x, y) with itself, for the fit weighted by
        ``1/(1 + |x|^2)``; the default for the quadratic loss. ``"directions"``: ``y x / |x|`` and ``1 / |x|``, for the
        fit weighted by ``1/|x|^2``; its default for GDP or zCDP of mu > 3 or more than 64 features. ``"joint"``:
        ``y x``; the default for other losses. ``"separate"``: features, and a label in randomized response.
    split, calibration
        The features' share of a separate release's budget; calibration, ``"analytic"`` or, as published, ``"classic"``.
    features
        Feature names in a fixed order; required unless noise is simulated, then by default the sorted names of the
        first record.
    bound
        Public bound on the features' norm, to which they are projected; by default each feature to [-1, 1].
    loss
        ``"quadratic"`` (valid for any noise; fits a line through labels of -1 and +1), ``"probit"`` (exact in a ball
        that shrinks with the noise; logits), ``"exponential"``, or ``"log"`` (truncated).
    truncation
        K of the log loss; by default the best of 1, 2, 3 by the paper's criterion.
    regularization, batch
        lambda of the penalty ``lambda/2 ||theta||^2``; number of releases averaged for each step.
    step, averaging
        ``"noise-aware"`` or River's ``InverseScaling``; ``"polyak"``, ``"polynomial-decay"`` or ``None``.
    weighting
        How to weight people by their public noise level: ``"inverse-variance"`` or ``"uniform"``.
    radius
        Radius of the ball to which coefficients are projected; by default at most 3 (quadratic: 2) and inside the
        loss's valid region at the noisiest level (``"probit"``: ``s ||theta|| < 1.702``).
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
        ``"records"``: ``learn_one`` randomizes raw records. ``"released"``: it takes the output of :meth:`decoded`.
    seed, noise
        Simulate the noise from a seed (no privacy), or take it from another source, such as ``OpenDPNoise()``.

    References
    ----------
    Dufraiche, Mangold, Perrot, Tommasi. Learning with Locally Private Examples by Inverse Weierstrass Private
    Stochastic Gradient Descent. Algorithm 1, equations 6 and 7, section 5.2.

    Examples
    --------
    >>> from murk.learners import IWPSGDClassifier
    >>> from murk.privacy import GaussianDP
    >>> model = IWPSGDClassifier(budget=GaussianDP(mu=3.0), seed=1)
    >>> for i in range(20_000):
    ...     x = (i * 7919 % 2003) / 1001.5 - 1
    ...     model.learn_one({"x": x}, x > 0)
    >>> model.predict_one({"x": 0.7})
    True
    """

    _target = "binary"
    classes: Sequence[Any]
    truncation: int | None

    def __init__(
        self,
        *,
        budget: Guarantee,
        classes: Sequence[Any] = (False, True),
        levels: Mapping[str, Guarantee] | None = None,
        release: Literal["outer", "directions", "joint", "separate"] | None = None,
        split: float = 0.5,
        calibration: Literal["analytic", "classic"] = "analytic",
        features: Sequence[Any] | None = None,
        bound: float | None = None,
        loss: BinaryLoss = "quadratic",
        truncation: int | None = None,
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
        self._codes = two_labels(classes)
        self._prepare()

    @classmethod
    def as_published(cls, *, budget: Guarantee, gamma: float = 1e-4, **more: Any) -> Self:
        """Return a learner with the paper's settings: exponential loss, constant steps, the last iterate.

        Features and label are released separately, with half of epsilon each; batches of 128, lambda = 5.
        ``calibration="classic"`` gives the paper's noise, where valid (epsilon_x up to 8 at delta = 1e-5).
        """
        return cls(budget=budget, **{**published(gamma), "loss": "exponential", **more})

    def _scale(self) -> Scale:
        scales: dict[str, Scale] = {"log": "log odds", "quadratic": "probability"}
        return scales.get(self.loss, "own")

    def _released_target(self, x: Record, y: Any) -> float:
        return float(y) if getattr(x, "directed", False) else 2.0 * self._coded_one(y) - 1.0

    def _shown(self, target: float) -> Any:
        return self.classes[1 if target > 0 else 0]

    def _chances(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        return two_chances(probabilities(self.loss, self._linear(rows)))

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"budget": GaussianDP(mu=1.0), "seed": 1}
        yield {"budget": GaussianDP(mu=1.0), "release": "joint", "intercept": False, "seed": 1}
        yield {"budget": PureDP(epsilon=2.0), "seed": 1}
        yield {"budget": GaussianDP(mu=4.0), "seed": 1}
        yield {"budget": ApproxDP(epsilon=2.0, delta=1e-5), "loss": "quadratic", "release": "separate", "seed": 1}
