"""River classifier for LDP-SGD."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from river import base

from murk.errors import UserError
from murk.learners.core.estimator import LabelEstimator, several_labels, two_chances
from murk.learners.core.options import Averaging, InverseScalingStep, Weighting
from murk.learners.estimates.links import class_probabilities, logistic
from murk.learners.gradients.base import LDPSGD
from murk.learners.gradients.losses import Balanced, FullSoftmax, Logistic, Softmax
from murk.learners.gradients.settings import Weights
from murk.privacy import GaussianDP, Guarantee, PureDP
from murk.privacy.noise import NoiseSource
from murk.stream.task.protocol import Scale


class LDPSGDClassifier(LDPSGD, LabelEstimator, base.MiniBatchClassifier):
    """Logistic or softmax regression by locally private SGD, with averaging (LDP-SGD / LDP-ASGD).

    ``theta_i = Project(theta_{i-1} - eta_i g~_i)``, with ``g_i = (p_i - y_i) / max(p_i, 1 - p_i) x_i w(x_i)``
    randomized once at the record's budget. The logistic gradient, without the divisor, has the same solution and needs
    more people. With more than two ``classes``, ``g_i`` is the softmax gradient in contrast coordinates.

    Parameters
    ----------
    budget
        Guarantee of each release: ``PureDP``, ``ApproxDP``, ``GaussianDP`` or ``ZeroConcentratedDP``.
    classes
        The labels; of two labels, the positive one last. Any other label counts as missing: the mechanism randomizes a
        zero gradient.
    objective
        For two classes: ``"balanced"``, or ``"logistic"`` as in the paper. Both estimate the logit's coefficients.
    coordinates
        For more than two classes: ``"contrasts"``, K - 1 rows of coefficients; or ``"classes"``, K rows as in the
        paper, which are determined up to a common shift only and have ``K / (K - 1)`` times the noise.
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
    second_moment
        Public ``E x x'`` of the features and the constant (last), for whitening.
    public
        Public covariates without labels (array, data frame or list of records), for whitening, the Newton polish and
        plug-in intervals.
    box
        Smallest and largest ``||x||^2`` (constant included) that features can have.
    step
        ``"noise-aware"``, or River's ``optim.schedulers.InverseScaling``.
    averaging
        ``"polyak"``, ``"polynomial-decay"`` or ``None``.
    weighting
        How to weight people by their public noise level: ``"inverse-variance"`` or ``"uniform"``.
    intervals
        By default plug-in intervals with ``public``, which allow for half of the targets missing, and none without.
        ``"complete"``: with ``public``, half as wide, valid if no target is missing. ``"random-scaling"``: from the
        path of the average, valid in the limit; before, they hold the truth too rarely.
    radius
        Radius of the ball to which coefficients are projected, and to which noise-aware steps are proportional; by
        default 5.
    start
        Public coefficients to start from, the constant's last, ``(p,)``, or ``(K, p)`` for more than two classes; by
        default zeros.
    seed
        Simulate the noise from this seed, for experiments: no privacy.
    noise
        Another source of noise, such as ``OpenDPNoise()``.

    Notes
    -----
    ``OneVsRestClassifier`` calls ``learn_one`` once for each class, and every call is a release: give ``classes``
    instead. If the model is wrong, different weights estimate different best approximations.

    References
    ----------
    Shi, Xie, Jiang, Kong, He. Non-Asymptotic Analysis of Online Local Private Learning with SGD. Sections 3 and 5
    (logistic regression).

    Examples
    --------
    >>> from murk.learners import LDPSGDClassifier
    >>> from murk.privacy import GaussianDP
    >>> model = LDPSGDClassifier(budget=GaussianDP(mu=2.0), seed=1)
    >>> for i in range(20_000):
    ...     x = (i * 7919 % 2003) / 1001.5 - 1
    ...     model.learn_one({"x": x}, x > 0)
    >>> model.predict_one({"x": 0.7})
    True
    """

    def __init__(
        self,
        *,
        budget: Guarantee,
        classes: Sequence[Any] = (False, True),
        levels: Mapping[str, Guarantee] | None = None,
        mechanism: str | None = None,
        calibration: Literal["analytic", "classic"] = "analytic",
        features: Sequence[Any] | None = None,
        weights: Weights = "norm",
        clip: float | None = None,
        second_moment: ArrayLike | None = None,
        public: Any = None,
        box: tuple[float, float] | None = None,
        step: Any = "noise-aware",
        objective: Literal["balanced", "logistic"] = "balanced",
        coordinates: Literal["contrasts", "classes"] = "contrasts",
        averaging: Averaging = "polyak",
        weighting: Weighting = "inverse-variance",
        intervals: Literal["random-scaling", "complete"] | None = None,
        radius: float | None = None,
        start: ArrayLike | None = None,
        seed: int | None = None,
        noise: NoiseSource | None = None,
    ) -> None:
        self._keep(locals())
        self._codes = several_labels(classes)
        if objective not in ("balanced", "logistic"):
            raise UserError(f'objective={objective!r} is not one of "balanced", "logistic"')
        if coordinates not in ("contrasts", "classes"):
            raise UserError(f'coordinates={coordinates!r} is not one of "contrasts", "classes"')
        self._prepare()

    @classmethod
    def as_published(cls, *, budget: Guarantee, eta: float = 0.2, alpha: float = 0.5, **more: Any) -> Self:
        """Return a learner like the paper's: Mallows weights, steps ``eta i^-alpha``, no projection, K rows."""
        settings: dict[str, Any] = {
            "objective": "logistic",
            "coordinates": "classes",
            "mechanism": "laplace" if isinstance(budget, PureDP) else "gaussian",
            "weights": "mallows",
            "step": InverseScalingStep(eta, alpha),
            "weighting": "uniform",
            "radius": math.inf,
        }
        return cls(budget=budget, **{**settings, **more})

    def _scale(self) -> Scale:
        return "log odds" if len(self.classes) == 2 else "own"

    def _objective(self) -> Logistic | Balanced | Softmax:
        if len(self.classes) > 2:
            kind = FullSoftmax if self.coordinates == "classes" else Softmax
            return kind(len(self.classes))
        return Balanced() if self.objective == "balanced" else Logistic()

    def _default_radius(self, coefficients: int) -> float:
        # On features of unit size the norm is the logit's root mean square: at 5 labels are nearly certain.
        return 5.0

    def _class_labels(self) -> tuple[object, ...]:
        return tuple(self.classes) if len(self.classes) > 2 else ()

    def _chances(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        scores = self._linear(rows)
        if len(self.classes) == 2:
            return two_chances(logistic(scores[:, 0]))
        objective = self._objective()
        assert isinstance(objective, Softmax)
        return class_probabilities(scores, objective.basis)

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"budget": GaussianDP(mu=1.0), "seed": 1}
        yield {"budget": PureDP(epsilon=2.0), "seed": 1}
        # Every label of River's test sets, as classes are public and not learned from records.
        segments = ("brickface", "cement", "foliage", "grass", "path", "sky", "window")
        yield {"budget": GaussianDP(mu=1.0), "seed": 1, "classes": (False, True, *segments)}
