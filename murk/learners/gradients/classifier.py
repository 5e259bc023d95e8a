"""Logistic and softmax regression by locally private SGD, as a River estimator."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from river import base

from murk.errors import UserError
from murk.learners.core.estimator import Record
from murk.learners.core.options import Averaging, InverseScalingStep, Weighting
from murk.learners.core.predictions import LabelEstimator, codes_of, two_chances
from murk.learners.estimates.links import class_probabilities, logistic
from murk.learners.gradients.base import LDPSGD
from murk.learners.gradients.losses import Balanced, FullSoftmax, Logistic, Softmax
from murk.learners.gradients.settings import Weights
from murk.privacy import GaussianDP, Guarantee, PureDP
from murk.privacy.noise import NoiseSource
from murk.stream.task.protocol import Scale


class LDPSGDClassifier(LDPSGD, LabelEstimator, base.MiniBatchClassifier):
    """Logistic or softmax regression by locally private SGD, with averaging (LDP-SGD / LDP-ASGD).

    ``theta_i = Project(theta_{i-1} - eta_i g~_i)`` with ``g_i = (p_i - y_i) / max(p_i, 1 - p_i) x_i w(x_i)``,
    randomized once at the record's budget; the logistic gradient lacks the divisor, which makes no difference to what
    is learned, and takes more people. With more than two ``classes`` the softmax gradient in contrast coordinates.

    Parameters
    ----------
    budget
        Guarantee of each release: ``PureDP``, ``ApproxDP``, ``GaussianDP`` or ``ZeroConcentratedDP``.
    classes
        The labels, the positive one last where there are two. A label outside them counts as missing: its
        release is the mechanism of a zero gradient.
    objective
        Of two classes: ``"balanced"``, or ``"logistic"`` as published. Both have the logit's coefficients.
    coordinates
        Of more than two classes: ``"contrasts"``, K - 1 rows of coefficients, or ``"classes"``, K of them as published.
        The coefficients of K classes are determined up to a common shift, in which the K-th row's noise is lost.
    levels
        Further guarantees by name, for releases made elsewhere at other levels.
    mechanism
        ``"gaussian"``, ``"laplace"``, ``"l2-ball"`` or ``"privunit"``; by default that of least variance: Gaussian
        for GDP and zCDP budgets, mostly PrivUnit for pure and (epsilon, delta) ones.
    calibration
        ``"analytic"``, or ``"classic"`` for the papers' (epsilon, delta) formula.
    features
        Feature names in a fixed order; required where noise is real, and in a simulation by default the sorted names of
        the first record.
    weights
        ``"norm"`` (``1 / max(1, ||x||)``), the paper's ``"mallows"`` (``min(1, 2 / ||x||^2)``), or ``"clip"``:
        gradients are clipped at ``clip`` instead, which biases the estimate (Shi et al., Figure 1).
    clip
        The bound for ``weights="clip"``.
    second_moment
        Public ``E x x'`` of the features and the constant (last), for whitening.
    public
        Public covariates without labels (array, data frame or list of records): for whitening, for the Newton
        polish of the estimate, and for plug-in intervals.
    box
        Smallest and largest ``||x||^2`` (constant included) that features can have, where bounds are known.
    step
        ``"noise-aware"``, or River's ``optim.schedulers.InverseScaling``.
    averaging
        ``"polyak"``, ``"polynomial-decay"`` or ``None``.
    weighting
        Of people, by public noise level: ``"inverse-variance"`` or ``"uniform"``.
    intervals
        ``"random-scaling"`` asks for intervals from the path of the average. They are valid in the limit only, and hold
        the truth less often than they say; by default there are plug-in intervals with ``public``, which allow for half
        of the targets missing, and none without. ``"complete"``: with ``public``, as if all targets were there: half as
        wide, and too narrow where one is missing.
    radius
        The coefficients are projected on this ball, and noise-aware steps are proportional to it: give what
        is known. By default 5.
    start
        Coefficients to start from, the constant's last, ``(p,)``, or ``(K, p)`` of more than two classes; zeros by
        default. They are public.
    seed
        Simulate the noise from this seed. Not private: for experiments.
    noise
        Another source of noise, such as ``OpenDPNoise()``.

    Notes
    -----
    ``OneVsRestClassifier`` calls ``learn_one`` once a class: every call is a release. Give ``classes=`` instead.
    Where the model is wrong, different weights estimate different best approximations.

    References
    ----------
    Shi, Xie, Jiang, Kong, He. Non-Asymptotic Analysis of Online Local Private Learning with SGD. Sections 3
    and 5 (logistic regression).

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
        self.budget = budget
        self.classes = classes
        self.levels = levels
        self.mechanism = mechanism
        self.calibration = calibration
        self.features = features
        self.weights = weights
        self.clip = clip
        self.second_moment = second_moment
        self.public = public
        self.box = box
        self.step = step
        self.objective = objective
        self.coordinates = coordinates
        self.averaging = averaging
        self.weighting = weighting
        self.intervals = intervals
        self.radius = radius
        self.start = start
        self.seed = seed
        self.noise = noise
        self._codes = {label: float(place) for place, label in enumerate(classes)}
        if objective not in ("balanced", "logistic"):
            raise UserError(f'objective={objective!r}; known are "balanced", "logistic"')
        if coordinates not in ("contrasts", "classes"):
            raise UserError(f'coordinates={coordinates!r}; known are "contrasts", "classes"')
        if len(self._codes) != len(classes) or len(classes) < 2:
            raise UserError(f"classes must be at least two distinct labels, got {classes!r}")
        self._prepare()

    @classmethod
    def as_published(cls, *, budget: Guarantee, eta: float = 0.2, alpha: float = 0.5, **more: Any) -> Self:
        """The paper's own settings: Mallows weights, steps ``eta i^-alpha``, no projection, a row a class."""
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

    @property
    def _multiclass(self) -> bool:
        return len(self.classes) > 2

    def _scale(self) -> Scale:
        return "log odds" if len(self.classes) == 2 else "own"

    def _objective(self) -> Logistic | Balanced | Softmax:
        if len(self.classes) > 2:
            kind = FullSoftmax if self.coordinates == "classes" else Softmax
            return kind(len(self.classes))
        return Balanced() if self.objective == "balanced" else Logistic()

    def _default_radius(self, coefficients: int) -> float:
        # On features of unit size a logit's root mean square is the norm: 5 leaves next to nothing to chance.
        return 5.0

    def _class_labels(self) -> tuple[object, ...]:
        return tuple(self.classes) if len(self.classes) > 2 else ()

    def learn_one(self, x: Record, y: Any, budget: Guarantee | None = None) -> None:
        """Randomize the record's gradient once and learn from the result.

        ``budget`` overrides the learner's for this person.
        """
        try:
            code = self._codes.get(y, math.nan)
        except TypeError:  # what cannot be a key is no class
            code = math.nan
        self._learn(x, code, budget)

    def learn_many(self, X: Any, y: Any, budget: Guarantee | Sequence[Guarantee] | None = None) -> None:
        """Learn from the rows of a data frame or an ``(n, d)`` array, as one by one.

        ``budget`` is everybody's, or a sequence with each row's own.
        """
        self._learn_rows(X, codes_of(y, self._codes), budget)

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
        # Every label of River's test sets: classes are public, and not learned from records.
        segments = ("brickface", "cement", "foliage", "grass", "path", "sky", "window")
        yield {"budget": GaussianDP(mu=1.0), "seed": 1, "classes": (False, True, *segments)}
