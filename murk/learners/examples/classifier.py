"""Linear classification from examples released once, as a River estimator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from river import base

from murk.errors import UserError
from murk.learners.core.estimator import Record
from murk.learners.core.options import Averaging, InverseScalingStep, Weighting
from murk.learners.core.predictions import LabelEstimator, code_of, codes_of, two_chances, two_labels
from murk.learners.examples.base import IWPSGD
from murk.learners.examples.losses import probabilities
from murk.learners.examples.protocol import BinaryLoss
from murk.privacy import ApproxDP, GaussianDP, Guarantee, PureDP
from murk.privacy.noise import NoiseSource
from murk.stream.task.protocol import Scale


class IWPSGDClassifier(IWPSGD, LabelEstimator, base.MiniBatchClassifier):
    """Linear classification by inverse Weierstrass private SGD (IWP-SGD), from examples that are released once.

    A person releases their example with Gaussian noise, whatever will be learned from it. With ``l = f(theta'x y)``, an
    unbiased estimate of the loss's gradient at the true example is ``u~ g'(z) - D theta g''(z)``, where
    ``z = theta'u~`` and g is f with the noise's smoothing taken back (its inverse Weierstrass transform).
    What is learned is the average of ``theta <- Project(theta - step (gradient + lambda theta))``, polished by one
    Newton step with the mean Hessian, which has an unbiased estimate as well.

    Parameters
    ----------
    budget
        Guarantee of each release: ``ApproxDP``, ``GaussianDP`` or ``ZeroConcentratedDP``; of outer products ``PureDP``,
        too.
    classes
        The two labels, the positive one last. Any other label counts as missing: the release is the mechanism of
        a zero vector.
    levels
        Further guarantees by name, for releases made elsewhere at other levels.
    release
        ``"outer"``, by default for the quadratic loss: the outer product with itself of the direction of features,
        constant and label, in one release by any mechanism; what is learned is the fit weighted by
        ``1/(1 + |x|^2)``. ``"directions"``, by default for it under Gaussian noise of mu > 3 or with more than 64
        features: the product of label and features over its length, and 1 over that length, in one Gaussian release;
        what is learned is the fit weighted by ``1/|x|^2``.
        ``"joint"``, by default for the other losses: the product itself (constant included). ``"separate"``: Gaussian
        features and a label in randomized response, as published.
    split
        The features' share of the budget in a separate release.
    calibration
        ``"analytic"``, or ``"classic"`` for the paper's formula, where it holds.
    features
        Feature names in a fixed order; required where noise is real, and in a simulation by default the sorted names of
        the first record.
    bound
        Public bound of the features' norm; longer ones are projected to it. By default every feature is
        projected to [-1, 1].
    loss
        ``"quadratic"`` (valid whatever the noise; coefficients are those of a line through labels of -1 and +1),
        ``"probit"`` (exact in a ball that shrinks with the noise; logits), ``"exponential"``, or ``"log"`` (truncated).
    truncation
        K of the log loss; by default the best of 1, 2, 3 by the paper's criterion.
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
        The coefficients are projected on this ball. By default inside the region in which the loss's estimate is
        valid at the noisiest level (``"probit"``: ``s ||theta|| < 1.702``), and no more than 3 (quadratic: 2).
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
        :meth:`decoded` gave.
    seed
        Simulate the noise from this seed. Not private: for experiments.
    noise
        Another source of noise, such as ``OpenDPNoise()``.

    Notes
    -----
    Each call of ``learn_one`` is one release of one person.

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
        self.budget = budget
        self.classes = classes
        self.levels = levels
        self.release = release
        self.split = split
        self.calibration = calibration
        self.features = features
        self.bound = bound
        self.loss = loss
        self.truncation = truncation
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
        self._codes = two_labels(classes)
        self._prepare()

    @classmethod
    def as_published(cls, *, budget: Guarantee, gamma: float = 1e-4, **more: Any) -> Self:
        """The paper's own release and settings: exponential loss, constant steps, the last iterate.

        Features with Gaussian noise and the label in randomized response, half of epsilon each; batches of 128,
        lambda = 5. Give ``calibration="classic"`` for its printed noise, where that holds (epsilon_x up to 8 at
        delta = 1e-5).
        """
        settings: dict[str, Any] = {
            "release": "separate",
            "loss": "exponential",
            "step": InverseScalingStep(gamma, 0.0),
            "averaging": None,
            "weighting": "uniform",
            "regularization": 5.0,
            "batch": 128,
            "polish": False,
        }
        return cls(budget=budget, **{**settings, **more})

    def _scale(self) -> Scale:
        scales: dict[str, Scale] = {"log": "log odds", "quadratic": "probability"}
        return scales.get(self.loss, "own")

    def learn_one(self, x: Record, y: Any, budget: Guarantee | None = None) -> None:
        """Randomize the record once and learn from the result; or learn from a released one.

        ``budget`` overrides the learner's for this person. One with more noise than the levels that the learner knows
        may be beyond the loss's valid region, and is then refused before the record is read.
        """
        if self.inputs == "released":
            directed = getattr(x, "directed", False)
            self._learn_released(x, float(y) if directed else 2.0 * code_of(y, self._codes) - 1.0, budget)
        else:
            try:
                code = self._codes.get(y, math.nan)
            except TypeError:  # what cannot be a key is no class
                code = math.nan
            self._learn(x, code, budget)

    def learn_many(self, X: Any, y: Any, budget: Guarantee | Sequence[Guarantee] | None = None) -> None:
        """Learn from the rows of a data frame or an ``(n, d)`` array of raw records, as one by one.

        ``budget`` is everybody's, or a sequence with each row's own.
        """
        if self.inputs == "released":
            raise UserError("learn_many takes raw records; give released examples to learn_one or learn_release")
        self._learn_rows(X, codes_of(y, self._codes), budget)

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
