"""River estimators for public-data GLM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
from river import base

from murk._internal.arrays import Floats
from murk._internal.wiping import empty
from murk.errors import UserError
from murk.inference.estimate import Estimate
from murk.inference.linear_probability import LineEstimate
from murk.learners._docstrings import documented
from murk.learners.base import (
    LabelEstimator,
    PersonEstimator,
    TargetEstimator,
    published,
    two_chances,
    two_labels,
)
from murk.learners.public_sample import PublicSample
from murk.privacy import GaussianDP, Guarantee, PureDP
from murk.privacy.mechanisms.base import Randomizer
from murk.protocols.mean_functions import LINKS, LOSSES, Curve, ResponseRange, curve_of
from murk.protocols.moments.device import check_size
from murk.protocols.moments.engine import BLOCK, MomentEngine, merged
from murk.protocols.moments.mechanisms import WHOLE, calibrated
from murk.protocols.moments.model import MomentModel
from murk.protocols.moments.solve import NoRootError
from murk.protocols.moments.statistics import Statistics, balanced, normal_norm_bound
from murk.protocols.options import check_choices, chosen_noise
from murk.task.protocols import moments
from murk.task.protocols.base import Scale

_ERROR_CODE = "MURK-LEARN-001"

_CHOICES = {
    "release": ("observed", "joint", "separate", None),
    "design": ("bounded", "gaussian"),
    "covariance": ("both", "private", "pooled"),
    "solver": ("stein", "score"),
    "outliers": ("clip", "zero"),
}


@dataclass(kw_only=True, eq=False, repr=False)
class PublicMoments(PersonEstimator[MomentEngine]):
    """Base class of the public-data GLM estimators.

    Parameters
    ----------
    public
        Public covariates without targets: an array, a data frame, an iterable of mappings (a generator is used up) or a
        CSV file's path. Of more than 20,000 rows only second moments are kept. Without public covariates, ``x'w`` is
        assumed normal.
    radius
        Public bound on the features' l2 norm without the constant; by default ``sqrt(k)``, for k features in [-1, 1].
    outliers
        Treatment of records beyond the bound: ``"clip"`` scales them to it, ``"zero"`` releases a record of zeros.
    design, people, failure
        ``"bounded"``: the bound is ``radius``. ``"gaussian"``: the bound is computed so that ``people`` normal vectors
        with the public covariance are all within it, except with probability ``failure``.
    release
        ``"observed"``: ``x x'``, ``x y`` and whether the target is present, by one mechanism. ``"joint"``: without
        presence; a missing target counts as the middle of its range. ``"separate"``: ``x x'`` and ``x y`` by a
        mechanism each. By default ``"observed"``, or ``"joint"`` without an intercept.
    target_weight
        Factor of the coded target; by default ``sqrt 2`` times the bound on ``||x||``, best for ``x y``.
    covariance
        Second moments to use: ``"private"`` ones alone, or public ones as well, weighted by inverse variance
        (``"both"``) or by numbers of people (``"pooled"``).
    solver
        ``"stein"``, the paper's; or ``"score"``, ``mean x f(x'w) = E x y`` over public covariates, consistent for any
        features.
    repair
        Whether to raise eigenvalues of ``x x'`` to at least their noise; ``False`` in the paper.
    """

    public: Any = None
    mechanism: str | None = None
    calibration: Literal["analytic", "classic"] = "analytic"
    radius: float | None = None
    outliers: Literal["clip", "zero"] = "clip"
    design: Literal["bounded", "gaussian"] = "bounded"
    people: int = 1_000_000
    failure: float = 0.05
    release: Literal["observed", "joint", "separate"] | None = None
    target_weight: float | None = None
    covariance: Literal["both", "private", "pooled"] = "both"
    solver: Literal["stein", "score"] = "stein"
    repair: bool = True
    intercept: bool = True

    _curve: Curve = field(init=False)  # mean function
    _response: ResponseRange = field(init=False)  # meaning of coded targets

    def _prepare(self) -> None:
        """Check the arguments and initialize."""
        check_choices(self, **_CHOICES)
        if self.design == "gaussian" and (self.public is None or self.radius is not None):
            raise UserError(
                "design='gaussian' computes the bound on features from public covariates: give public=, and no radius="
            )
        if self.solver == "score" and self.public is None:
            raise UserError("solver='score' solves the model's equations over public covariates: give public=")
        self._released = self.release or ("observed" if self.intercept else "joint")
        self._sample, self.public = PublicSample.of_argument(self.public, self.features)
        super()._prepare()

    def _expected(self) -> tuple[float | None, float | None]:
        # With a normal design, the bound follows from the public covariates.
        features = None if self.design == "gaussian" else self.radius or 1.0
        return features, 1.0 if isinstance(self, TargetEstimator) else None

    def _begin(self, names: tuple[Any, ...]) -> MomentEngine:
        noise, coded = chosen_noise(self.seed, self.noise), self._coded_names(names)
        sample = None if self._sample is None else self._sample.select(names)
        k = len(names)
        curve = self._curve
        clipping_norm = math.sqrt(k) if self.radius is None else self.radius
        if self.design == "gaussian" and sample is not None:
            moment = sample.moment[:-1, :-1]
            clipping_norm = normal_norm_bound(moment, self.people, self.failure, published=self._released == "separate")
        if not (math.isfinite(clipping_norm) and clipping_norm > 0):
            raise UserError(f"radius={clipping_norm!r}, the bound on the features' norm, must be positive and finite")
        # Scale features so that the bound on their squared norm is 1 for each feature, as for the constant.
        self._gain = math.sqrt(k) / clipping_norm
        whole = self._released in WHOLE
        bound = math.sqrt(k + self.intercept)
        weight = self.target_weight
        if weight is None:
            weight = balanced(bound) if whole else 1.0
        units = self._gain, self._response.half, self._response.middle
        root, zero, observed = math.sqrt(2.0) if whole else 1.0, self.outliers == "zero", self._released == "observed"
        feature_names = coded if self.intercept else coded[:-1]
        self._layout = Statistics(feature_names, bound, weight, self.intercept, root, zero, units, observed)
        check_size(self._layout)
        public = None if sample is None else sample.coded(clipping_norm, self._gain, self.intercept)
        model = MomentModel(curve, self._response, public, self.covariance, self.solver, self.repair)
        engine = MomentEngine(self._layout, model, self._level_mechanisms(), noise=noise)
        self._fix(names, engine)
        return engine

    def _mechanism_for(self, guarantee: Guarantee) -> Randomizer:
        return calibrated(guarantee, self._layout, release=self._released, kind=self.mechanism, method=self.calibration)

    def _person_mechanism(self, guarantee: Guarantee) -> Any:
        return self._calibrated(guarantee)

    def _learn_matrix(self, engine: Any, X: Floats, y: Floats, own: list[Any]) -> None:
        # Coded in blocks that fit into the processor's cache.
        for start in range(0, len(X), BLOCK):
            block = slice(start, start + BLOCK)
            engine.learn_records(self._coded(X[block]), y[block], own if len(own) == 1 else own[block])

    def _coded(self, rows: Floats) -> Floats:
        coded = empty((len(rows), len(self._names) + self.intercept))
        coded[:, len(self._names) :] = 1.0
        np.multiply(rows, self._gain, out=coded[:, : len(self._names)])
        return coded

    def _in_own_units(self, coded: Estimate) -> Estimate:
        scale = np.full(len(coded.names), self._gain)
        if self.intercept:
            scale[-1] = 1.0
        if isinstance(coded, LineEstimate):
            return coded.scaled(scale)
        return replace(coded, values=coded.values * scale, spread=coded.spread * scale)

    def estimate(self) -> Estimate:
        """Return the coefficients with standard errors; the note states if there is no root (see ``NoRootError``)."""
        return self._in_own_units(self._require().estimate())

    def coefficients(self) -> dict[str, float]:
        """Return coefficients by feature name, the constant's as ``"intercept"``.

        Raises NoRootError, with the least-squares direction, if no factor turns it into the curve's coefficients. Then
        :meth:`estimate` scales the direction as if all ``x'w`` were near 0, and predictions use the line.
        """
        engine = self._require()
        if (missing := engine.fitted().missing) is not None:
            raise NoRootError(str(missing), self.direction())
        estimate = self.estimate()
        return dict(zip(estimate.names, map(float, estimate.values), strict=True))

    def direction(self) -> dict[str, float]:
        """Return the least-squares slopes by feature, of which coefficients are a multiple."""
        slopes = self._require().fitted().direction[: len(self._names)] * self._gain
        return dict(zip(self._layout.names, map(float, slopes), strict=False))

    def merged(self, others: Sequence[Self]) -> Estimate:
        """Return the joint estimate of this learner and ``others`` with the same features, from their added sums."""
        for other in others:
            if not isinstance(other, PublicMoments):
                raise UserError(f"learners of moments merge with each other only, not with a {type(other).__name__}")
        return self._in_own_units(merged([self._require(), *(other._require() for other in others)]))  # noqa: SLF001

    def _responses(self, rows: Floats) -> Floats:
        """Return mean responses of rows; from the least-squares line if there is no root."""
        engine = self._require()
        fitted, X = engine.fitted(), self._coded(rows)
        if fitted.missing is not None:
            return np.asarray(X @ fitted.direction)
        return np.asarray(engine.model.curve.mean(X @ fitted.values))


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class PublicGLMClassifier(PublicMoments, LabelEstimator, base.MiniBatchClassifier):
    """Logistic, Poisson or boosting GLM of a binary target, from moments released once.

    Each person releases their second moments ``x x'`` and ``x y`` once, with noise and without seeing a model. From
    these follow least-squares slopes u. Coefficients are ``c u``: over the public covariates, c and the intercept a
    solve ``mean f(a + c x'u) = mean y`` and ``c mean f'(a + c x'u) = 1``.

    Parameters
    ----------
    loss
        ``"logistic"``, ``"poisson"`` (``P(y = 1) = exp(x'w)``) or ``"boosting"`` (``z/2 + sqrt(1 + z^2/4)``).
    classes
        The two labels, the positive one last.
    intercept
        Whether there is an intercept. Otherwise labels count as 0 and 1, as in the paper, and for most data these
        equations have no solution.

    Notes
    -----
    The estimate is consistent for normal features and otherwise biased (docs/public-glm.md). `ScoreClassifier` with
    ``interactive=False`` is consistent for any features if the public ones are like the people's.

    References
    ----------
    Wang, Zhang, Gaboardi, Xu. Estimating Smooth GLM in Non-interactive Local Differential Privacy Model with Public
    Unlabeled Data. Algorithms 1 and 2.

    Examples
    --------
    >>> import numpy as np
    >>> from murk.learners import PublicGLMClassifier
    >>> from murk.privacy import GaussianDP
    >>> rng = np.random.default_rng(1)
    >>> X = np.clip(rng.normal(size=(60_000, 2)) / 2, -1, 1)
    >>> y = rng.random(60_000) < 1 / (1 + np.exp(-(X[:, 0] - 0.5)))
    >>> model = PublicGLMClassifier(guarantee=GaussianDP(mu=2.0), public=X[:2_000], features=["a", "b"], seed=1)
    >>> model.learn_many(X[2_000:], y[2_000:])
    >>> {name: round(value, 1) + 0.0 for name, value in model.coefficients().items()}
    {'a': 1.0, 'b': 0.0, 'intercept': -0.5}
    """

    loss: Literal["logistic", "poisson", "boosting"] = "logistic"

    def __post_init__(self) -> None:
        # Without a constant, labels are 0 and 1 as in the paper.
        self._codes = two_labels(self.classes, (-1.0 if self.intercept else 0.0, 1.0))
        self._curve = curve_of(self.loss, LOSSES, "loss")
        self._response = ResponseRange(0.0, 1.0) if self.intercept else ResponseRange(-1.0, 1.0)
        self._prepare()

    @classmethod
    def as_published(cls, *, guarantee: Guarantee, **more: Any) -> Self:
        """Return a learner with the paper's settings: separate Gaussian releases without an intercept.

        Give ``radius=`` (the paper's r) or ``design="gaussian"``. The classic calibration must be valid for half of an
        ``ApproxDP`` guarantee: epsilon up to 17 at delta = 1e-6.
        """
        return cls(guarantee=guarantee, **{**published(moments.PROTOCOL, "binary", guarantee), **more})

    def _scale(self) -> Scale:
        return "slope" if not self._names else "log odds" if self.loss == "logistic" else "own"

    def _chances(self, rows: Floats) -> Floats:
        return two_chances(np.clip(self._responses(rows), 0.0, 1.0))

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"guarantee": GaussianDP(mu=1.0), "seed": 1}
        yield {"guarantee": PureDP(epsilon=2.0), "loss": "boosting", "seed": 1}


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class PublicGLMRegressor(PublicMoments, TargetEstimator, base.MiniBatchRegressor):
    """Regression ``y = f(x'w) + e`` of a bounded target, from moments released once.

    Each person releases their second moments once, with noise and without seeing a model. Coefficients follow as for
    `PublicGLMClassifier`, with the link's mean function f. The identity, least squares, needs no public covariates;
    ``"exp"`` is Poisson regression of bounded counts.

    Parameters
    ----------
    link
        ``"identity"``, ``"sigmoid"``, ``"cubic"`` (``z^3/3``), ``"softplus"`` (``log(1 + e^z)``; the paper's
        ``log(1 + e^-z)`` reverses all signs) or ``"exp"``.
    intercept
        Whether there is an intercept. Otherwise the target is divided by its largest bound instead of centred.

    Notes
    -----
    ``link="identity"`` and ``solver="score"`` are consistent for any features. All other estimates are consistent for
    normal features only; for other features they have a bias that more people do not remove.

    References
    ----------
    Wang, Zhang, Gaboardi, Xu. Estimating Smooth GLM in Non-interactive Local Differential Privacy Model with Public
    Unlabeled Data. Algorithms 3 and 4.

    Examples
    --------
    >>> from murk.learners import PublicGLMRegressor
    >>> from murk.privacy import GaussianDP
    >>> model = PublicGLMRegressor(guarantee=GaussianDP(mu=2.0), features=["x"], seed=1)
    >>> for i in range(20_000):
    ...     x = (i * 7919 % 2003) / 1001.5 - 1
    ...     model.learn_one({"x": x}, 0.25 + 0.5 * x)
    >>> abs(model.coefficients()["x"] - 0.5) < 0.1
    True
    """

    link: Literal["identity", "sigmoid", "cubic", "softplus", "exp"] = "identity"

    def __post_init__(self) -> None:
        own = self._set_range(intercept=self.intercept)
        self._response = ResponseRange(own.low, own.high) if self.intercept else ResponseRange(-own.unit, own.unit)
        self._curve = curve_of(self.link, LINKS, "link")
        self._prepare()

    @classmethod
    def as_published(
        cls,
        *,
        guarantee: Guarantee,
        link: Literal["identity", "sigmoid", "cubic", "softplus", "exp"],
        radius: float | None = None,
        lipschitz: float,
        error: float,
        **more: Any,
    ) -> Self:
        """Return a learner with the paper's settings: separate Gaussian releases without an intercept.

        ``link`` and ``radius`` are the paper's f and r, ``lipschitz`` its L, a bound on ``|f'|``, ``error`` its C, a
        bound on ``|y - f(x'w)|``: with ``||w|| <= 1`` the target is within ``L r + |f(0)| + C``. The classic
        calibration needs a small enough ``ApproxDP``: epsilon up to 17 at delta = 1e-6. Raises UserError without
        ``radius`` and ``target_bounds``; ``design="gaussian"``, which takes no ``radius``, needs ``target_bounds``.
        """
        start = float(curve_of(link, LINKS, "link").mean(np.zeros(1))[0])
        if radius is None and "target_bounds" not in more:
            raise UserError("as_published bounds the target by lipschitz * radius: give radius= or target_bounds=")
        size = lipschitz * (radius or 0.0) + abs(start) + error
        settings = published(moments.PROTOCOL, "real", guarantee) | {"target_bounds": (-size, size)} | more
        return cls(guarantee=guarantee, link=link, radius=radius, **settings)

    def _scale(self) -> Scale:
        return "slope" if self.link == "identity" else "own"

    def _means(self, rows: Floats) -> Floats:
        return np.clip(self._responses(rows), self._range.low, self._range.high)

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"guarantee": GaussianDP(mu=1.0), "seed": 1}
        yield {"guarantee": PureDP(epsilon=2.0), "link": "softplus", "seed": 1}
