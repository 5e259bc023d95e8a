"""River estimators for LDP-SGD."""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from river import base

from murk._internal.arrays import Floats
from murk._internal.links import class_probabilities, logistic
from murk.errors import UserError
from murk.inference.estimate import Estimate
from murk.inference.target_range import ANY
from murk.learners._docstrings import documented
from murk.learners._warnings import BeyondBounds
from murk.learners.base import (
    LabelEstimator,
    SGDEstimator,
    TargetEstimator,
    published,
    several_labels,
    step_setting,
    two_chances,
)
from murk.learners.public_sample import PublicSample
from murk.privacy import GaussianDP, Guarantee, PureDP
from murk.privacy.mechanisms import Mechanism, calibrate
from murk.protocols.gradients.device import SCALE_MULTIPLIER
from murk.protocols.gradients.engine import SGDEngine
from murk.protocols.gradients.estimate import estimate
from murk.protocols.gradients.objectives import Balanced, FullSoftmax, Huber, Logistic, Softmax
from murk.protocols.gradients.settings import Settings, Weights
from murk.protocols.options import Averaging, InverseScalingStep, Weighting, check_choices
from murk.protocols.rows import Rows
from murk.task.protocols.base import Scale
from murk.task.protocols.gradients import PROTOCOL

_ERROR_CODE = "MURK-LEARN-001"

_SETTINGS = ("weights", "clip", "averaging", "weighting", "intervals", "missing_share")


@dataclass(kw_only=True, eq=False, repr=False)
class LDPSGD(SGDEstimator[SGDEngine]):
    """Base class of both LDP-SGD estimators.

    Parameters
    ----------
    weights
        ``"norm"`` (``1 / max(1, ||x||)``), the paper's ``"mallows"`` (``min(1, 2 / ||x||^2)``), or ``"clip"``, which
        clips gradients and biases the estimate (Shi et al., Figure 1).
    clip
        Bound on gradients with ``weights="clip"``.
    second_moment
        Public ``E x x'`` of the features and the constant (last), for whitening.
    box
        Smallest and largest ``||x||^2`` (constant included) that features can have.
    missing_share
        Public upper bound on the share of missing targets, for plug-in intervals; 0 if none is missing, by default 0.5.
    """

    mechanism: str | None = None
    calibration: Literal["analytic", "classic"] = "analytic"
    weights: Weights = "norm"
    clip: float | None = None
    scale_start: float = field(init=False, default=1.0)
    scale_floor: float = field(init=False, default=0.01)
    second_moment: ArrayLike | None = None
    public: Any = None
    box: tuple[float, float] | None = None
    step: Any = "noise-aware"
    averaging: Averaging = "polyak"
    weighting: Weighting = "inverse-variance"
    intervals: Literal["random-scaling", "complete"] | None = None
    missing_share: float | None = None
    radius: float | None = None
    start: ArrayLike | None = None

    @abstractmethod
    def _objective(self) -> Logistic | Balanced | Softmax | Huber:
        """Return the objective."""

    @abstractmethod
    def _default_radius(self, coefficients: int) -> float:
        """Return the default radius for a number of coefficients."""

    def _prepare(self) -> None:
        self._squares()
        if isinstance(self.public, Iterator):
            # Clones read the argument again.
            self.public = PublicSample.read(self.public, self.features, most=sys.maxsize)
        super()._prepare()

    def _squares(self) -> tuple[float, float]:
        box: Any = self.box
        if box is None:
            return 0.0, math.inf
        valid = isinstance(box, tuple | list) and len(box) == 2 and all(isinstance(end, int | float) for end in box)
        if not valid or not 0.0 <= box[0] <= box[1]:
            raise UserError(
                f"box={box!r}: give the smallest and largest ||x||^2 that coded features can have, with 1 for the "
                "constant, as in box=(1.0, 3.0). Bounds of single features go into a task: Encoder(task) codes by them"
            )
        return float(box[0]), float(box[1])

    def _begin(self, names: tuple[Any, ...]) -> SGDEngine:
        coded = self._coded_names(names)
        covariates = None
        if self.public is not None:
            covariates = Rows.of_features(PublicSample.read(self.public, names, most=sys.maxsize).rows)
        moment = self.second_moment
        if moment is None and covariates is not None:
            moment = covariates.second_moment
        small, large = self._squares()
        settings = Settings(
            objective=self._objective(),
            names=coded,
            step=step_setting(self.step),
            radius=self._default_radius(len(coded)) if self.radius is None else self.radius,
            second_moment=None if moment is None else np.asarray(moment, dtype=np.float64),
            smallest_square=small,
            largest_square=large,
            start=None if self.start is None else self._coded_start(np.array(self.start, dtype=np.float64)),
            scale_start=self.scale_start,
            scale_floor=self.scale_floor,
            **{name: getattr(self, name) for name in _SETTINGS},
        )
        self._settings = settings
        labels = tuple(self._stated_classes() or ())
        more: dict[str, Any] = {"covariates": covariates, "classes": labels if len(labels) > 2 else ()}
        engine = SGDEngine(settings, self._level_mechanisms(), seed=self.seed, noise=self.noise, **more)
        self._start(names, engine)
        return engine

    def _coded_start(self, start: Floats) -> Floats:
        """Return the coefficients ``start`` for coded targets."""
        return start

    def _mechanism_for(self, guarantee: Guarantee) -> Mechanism:
        size, radius = self._settings.dimension, self._settings.bound
        return calibrate(self.mechanism, guarantee, dimension=size, radius=radius, method=self.calibration)

    def merged(self, others: Sequence[Self]) -> Estimate:
        """Return the joint estimate of this learner and ``others`` with the same settings, each of one partition."""
        first, *more = self._engines(others)
        memories = [engine.snapshot() for engine in (first, *more)]
        coded = estimate(first.settings, memories, first.covariates, first.classes, first.mechanisms)
        joint: Estimate = self._in_units(coded)
        return joint

    def _working(self) -> Floats:
        engine = self._require()
        rows = engine.average[: engine.dimension - engine.settings.scaled]
        table: Floats = rows.reshape(-1, engine.settings.features)
        transform = engine.settings.transform
        return table if transform is None else table @ transform

    def _linear(self, rows: Floats) -> Floats:
        """Return scores of rows of features without the constant."""
        return np.asarray(np.column_stack([rows, np.ones(len(rows))]) @ self._working().T)


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class LDPSGDClassifier(LDPSGD, LabelEstimator, base.MiniBatchClassifier):
    """Logistic or softmax regression by locally private SGD, with averaging (LDP-SGD / LDP-ASGD).

    ``theta_i = Project(theta_{i-1} - eta_i g~_i)``, with ``g_i = (p_i - y_i) / max(p_i, 1 - p_i) x_i w(x_i)``
    randomized once at the record's guarantee. The logistic gradient, without the divisor, has the same solution and
    needs more people. With more than two ``classes``, ``g_i`` is the softmax gradient in contrast coordinates.

    Parameters
    ----------
    classes
        The labels; of two labels, the positive one last. Any other label counts as missing: a zero gradient.
    objective
        For two classes: ``"balanced"``, or ``"logistic"`` as in the paper. Both estimate the logit's coefficients.
    coordinates
        For more than two classes: ``"contrasts"``, K - 1 rows of coefficients; or the paper's ``"classes"``, K rows
        with more noise.
    public
        Public covariates without labels (array, frame or list of records), for whitening and plug-in intervals.
    intervals
        By default plug-in intervals with ``public``, and none without. ``"complete"``: the same for no missing target,
        ``missing_share=0``. ``"random-scaling"``: intervals from the path of the average, valid in the limit; with few
        releases they contain the true coefficients too rarely.
    radius
        Radius of the ball of coefficients, to which noise-aware steps are proportional; by default 5.
    start
        Public coefficients to start from, ``(p,)``, or ``(K, p)`` for more classes, the constant's last; default zeros.

    Notes
    -----
    ``OneVsRestClassifier`` calls ``learn_one`` once for each class, and every call is a release: give ``classes``
    instead. If the model is wrong, different weights estimate different best approximations.

    References
    ----------
    Shi, Xie, Jiang, Kong, He. Non-Asymptotic Analysis of Online Local Private Learning with SGD. Sections 3, 5.

    Examples
    --------
    >>> from murk.learners import LDPSGDClassifier
    >>> from murk.privacy import GaussianDP
    >>> model = LDPSGDClassifier(guarantee=GaussianDP(mu=2.0), seed=1)
    >>> for i in range(20_000):
    ...     x = (i * 7919 % 2003) / 1001.5 - 1
    ...     model.learn_one({"x": x}, x > 0)
    >>> model.predict_one({"x": 0.7})
    True
    """

    objective: Literal["balanced", "logistic"] = "balanced"
    coordinates: Literal["contrasts", "classes"] = "contrasts"

    def __post_init__(self) -> None:
        self._codes = several_labels(self.classes)
        check_choices(self, objective=("balanced", "logistic"), coordinates=("contrasts", "classes"))
        self._prepare()

    @classmethod
    def as_published(cls, *, guarantee: Guarantee, eta: float = 0.2, alpha: float = 0.5, **more: Any) -> Self:
        """Return a learner as published: Mallows weights, steps ``eta i^-alpha``, no projection, K rows."""
        settings = published(PROTOCOL, "classes", guarantee) | published(PROTOCOL, "binary", guarantee)
        settings |= {"step": InverseScalingStep(eta, alpha), "radius": math.inf}
        return cls(guarantee=guarantee, **{**settings, **more})

    def _scale(self) -> Scale:
        return "log odds" if len(self.classes) == 2 else "own"

    def _objective(self) -> Logistic | Balanced | Softmax:
        if len(self.classes) > 2:
            kind = FullSoftmax if self.coordinates == "classes" else Softmax
            return kind(len(self.classes))
        return Balanced() if self.objective == "balanced" else Logistic()

    def _default_radius(self, coefficients: int) -> float:
        # With features of unit size the norm is the logit's root mean square; at 5 the labels are nearly certain.
        return 5.0

    def _chances(self, rows: Floats) -> Floats:
        scores = self._linear(rows)
        if len(self.classes) == 2:
            return two_chances(logistic(scores[:, 0]))
        objective = self._objective()
        assert isinstance(objective, Softmax)
        return class_probabilities(scores, objective.basis)

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"guarantee": GaussianDP(mu=1.0), "seed": 1}
        yield {"guarantee": PureDP(epsilon=2.0), "seed": 1}
        # Every label of River's test data sets, as classes are public and not learned from records.
        segments = ("brickface", "cement", "foliage", "grass", "path", "sky", "window")
        yield {"guarantee": GaussianDP(mu=1.0), "seed": 1, "classes": (False, True, *segments)}


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class LDPSGDRegressor(LDPSGD, TargetEstimator, base.MiniBatchRegressor):
    """Huber regression by locally private SGD, with averaging (LDP-SGD / LDP-ASGD).

    ``theta_i = Project(theta_{i-1} - eta_i g~_i)``, where ``g~_i`` is the record's bounded gradient, ``||g_i|| <= C0``
    for every record and iterate, randomized once at the record's guarantee. The estimate is the average of iterates.

    Parameters
    ----------
    target_bounds
        Public bounds (low, high) of the target, to which it is clipped before it is coded to [-1, 1]. By default
        targets are neither clipped nor coded, and should be within about [-1, 1].
    c
        Huber's constant.
    scale
        ``"estimate"``, or the known residual scale, in the target's units.
    scale_multiplier
        Factor of the scale's coordinate, which raises it above the noise; 1 in the paper.
    scale_start, scale_floor
        First value of the estimated scale of coded targets, and its public lower bound.
    public
        Public covariates without targets (array, data frame or list of records), for whitening, the Newton step and
        plug-in intervals of the coefficients. With a known scale these intervals allow for any unimodal residuals.
    intervals
        By default plug-in intervals with ``public``; none without it, or with a known scale and ``c`` below 0.1.
        ``"complete"``: the same for no missing target, ``missing_share=0``. ``"random-scaling"``: intervals from the
        path of the average, valid in the limit; with few releases they contain the true coefficients too rarely.
    radius
        Radius of the ball of coefficients for coded targets, to which noise-aware steps are proportional; by default
        ``5 sqrt(p / 6)``.
    start
        Public coefficients to start from, the constant's last, ``(p,)``; by default zeros.

    Notes
    -----
    Each call of ``learn_one`` is one release of one person: wrappers that call it several times for a record (bagging)
    spend the guarantee several times. Scalers that learn from raw data leak: give public bounds instead.

    References
    ----------
    Shi, Xie, Jiang, Kong, He. Non-Asymptotic Analysis of Online Local Private Learning with SGD. Sections 3, 5.

    Examples
    --------
    >>> from murk.learners import LDPSGDRegressor
    >>> from murk.privacy import GaussianDP
    >>> model = LDPSGDRegressor(guarantee=GaussianDP(mu=2.0), seed=1)
    >>> for i in range(20_000):
    ...     x = (i * 7919 % 2003) / 1001.5 - 1
    ...     model.learn_one({"x": x}, 0.25 + 0.5 * x)
    >>> abs(model.coefficients()["x"] - 0.5) < 0.1
    True
    """

    c: float = 0.5
    scale: float | Literal["estimate"] = "estimate"
    scale_multiplier: float = SCALE_MULTIPLIER
    scale_start: float = 1.0
    scale_floor: float = 0.01

    def __post_init__(self) -> None:
        if self.target_bounds is not None:
            self._set_range()
        else:
            self._range = ANY
            # Without a projection, as published, coefficients and targets may have any size.
            if self.seed is not None and self.radius != math.inf:
                words = "-2 and 2, but this learner expects about -1 to 1: give public target_bounds=(low, high)"
                self._beyond = BeyondBounds(-2.0, 2.0, words, share=0.5)
        self._prepare()

    @classmethod
    def as_published(cls, *, guarantee: Guarantee, eta: float = 0.2, alpha: float = 0.5, **more: Any) -> Self:
        """Return a learner as published: Mallows weights, c = 1.345, steps ``eta i^-alpha``, no projection."""
        settings = published(PROTOCOL, "real", guarantee)
        del settings["objective"]
        settings |= {"c": settings.pop("huber_c"), "step": InverseScalingStep(eta, alpha), "radius": math.inf}
        return cls(guarantee=guarantee, **{**settings, **more})

    def _objective(self) -> Huber:
        if self.scale == "estimate":
            return Huber(self.c, None, self.scale_multiplier)
        return Huber(self.c, float(self.scale) / self._range.unit)

    def _expected(self) -> tuple[float | None, float | None]:
        return 1.0, None if self.target_bounds is None else 1.0

    def _coded_start(self, start: Floats) -> Floats:
        coded = start / self._range.unit
        coded[-1] -= self._range.middle / self._range.unit
        return coded

    def _default_radius(self, coefficients: int) -> float:
        # Leaves room for coefficients of 2 on features of unit size.
        return 5.0 * math.sqrt(coefficients / 6.0)

    def _means(self, rows: Floats) -> Floats:
        return self._range.middle + self._range.unit * self._linear(rows)[:, 0]

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"guarantee": GaussianDP(mu=1.0), "seed": 1}
        yield {"guarantee": PureDP(epsilon=2.0), "scale": 1.0, "seed": 1}
        yield {"guarantee": PureDP(epsilon=2.0), "target_bounds": (0.0, 100.0), "seed": 1}
