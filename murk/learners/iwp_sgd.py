"""River estimators for IWP-SGD."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np
from river import base

from murk._internal.arrays import Floats
from murk._internal.links import class_probabilities
from murk.errors import UserError
from murk.inference.estimate import Estimate
from murk.learners._docstrings import documented
from murk.learners.base import (
    LabelEstimator,
    Record,
    SGDEstimator,
    TargetEstimator,
    published,
    several_labels,
    step_setting,
    two_chances,
)
from murk.learners.evaluation import Example
from murk.privacy import ApproxDP, GaussianDP, Guarantee, PureDP
from murk.protocols.examples import cells_engine as cell_engine
from murk.protocols.examples import layout as k
from murk.protocols.examples.cells import Cells
from murk.protocols.examples.directions import own_variance, parts
from murk.protocols.examples.engine import IWPEngine, engine_of
from murk.protocols.examples.estimate import estimate
from murk.protocols.examples.losses import Noise, probabilities
from murk.protocols.examples.outer import matrix_of
from murk.protocols.examples.settings import POLISHED, ExampleMechanism, ExampleSettings, released, settle
from murk.protocols.linear_algebra import contrasts
from murk.protocols.options import Averaging, InverseScalingStep, Weighting, check_choices
from murk.stream.wire.releases import ExampleRelease
from murk.task.protocols.base import Scale
from murk.task.protocols.examples import PROTOCOL, BinaryLoss
from murk.task.values import number, target

_ERROR_CODE = "MURK-LEARN-001"

# Arguments that are passed on as settings of the same name.
_SETTINGS = (
    *("split", "loss", "radius", "calibration", "regularization", "batch"),
    *("averaging", "weighting", "intercept", "intervals", "corrected"),
)


@dataclass(kw_only=True, eq=False, repr=False)
class IWPSGD(SGDEstimator[Any]):
    """Base class of the IWP-SGD estimators.

    Parameters
    ----------
    guarantee
        Guarantee of each release: ``ApproxDP``, ``GaussianDP`` or ``ZeroConcentratedDP``; for outer products, cells and
        Laplace noise also ``PureDP``.
    grid
        Number of evenly spaced values in [-1, 1] to which cells round each feature and a real target; by default 2.
    split, calibration
        The features' share of a separate release's guarantee; calibration, ``"analytic"`` or, as published,
        ``"classic"``.
    bound
        Public bound on the features' norm, to which they are projected; by default each feature is clipped to [-1, 1].
    regularization, batch
        lambda of the penalty ``lambda/2 ||theta||^2``; number of releases averaged for each step.
    newton
        Whether a Newton step with O(p^2) memory gives coefficients and intervals; by default up to 64 coefficients.
        Otherwise coefficients are the average, without intervals.
    intercept
        Whether the constant has a coefficient; otherwise it is 0. The release is the same.
    intervals
        ``"random-scaling"`` for intervals from the path of the average before the Newton step. Until the iterates
        settle, these contain the true coefficients too rarely.
    mechanism
        Mechanism for outer products: ``"gaussian"``, ``"laplace"``, ``"l2-ball"`` or ``"privunit"``; by default the
        least noisy one. A joint release has Gaussian noise, or ``"laplace"``, which needs more people; all others have
        Gaussian noise.
    inputs
        ``"records"``: ``learn_one`` randomizes raw records. ``"released"``: it takes the output of :meth:`decoded`,
        in which real targets are coded.
    corrected
        ``False`` learns from releases as if they were the records, like plain SGD: the paper's biased baseline, without
        Newton step and ``unbiased_loss``.
    """

    release: Literal["outer", "directions", "joint", "separate", "cells"] | None = None
    mechanism: Literal["gaussian", "laplace", "l2-ball", "privunit"] | None = None
    grid: int | None = None
    split: float = 0.5
    calibration: Literal["analytic", "classic"] = "analytic"
    bound: float | None = None
    loss: Any = field(init=False)
    regularization: float = 0.0
    batch: int = 1
    step: Any = "noise-aware"
    averaging: Averaging = "polyak"
    weighting: Weighting = "inverse-variance"
    radius: float | None = None
    newton: bool | None = None
    intercept: bool = True
    intervals: Literal["random-scaling"] | None = None
    inputs: Literal["records", "released"] = "records"
    corrected: bool = True
    truncation: int | None = field(init=False, default=None)

    _target: Literal["binary", "real", "classes"] = field(init=False)
    _target_unit = 1.0
    _labels: tuple[str, ...] = field(init=False, default=())  # the classes, if there are more than two

    def _prepare(self) -> None:
        """Check the arguments and initialize."""
        check_choices(self, inputs=("records", "released"))
        if self.release == "cells" and self.inputs == "released":
            raise UserError(
                "release='cells' has no released examples: give releases to learn_release, or inputs='records'"
            )
        if self.grid is not None and (self.release != "cells" or self.grid not in range(2, 513)):
            raise UserError(f"grid={self.grid!r} needs release='cells', and is a whole number from 2 to 512")
        for name in ("intercept", "corrected"):
            if not isinstance(getattr(self, name), bool):
                raise UserError(f"{name}={getattr(self, name)!r} is neither True nor False")
        if self.bound is not None and not (math.isfinite(self.bound) and self.bound > 0):
            raise UserError(f"bound={self.bound!r}, the public bound on ||x||, must be positive and finite")
        # Check early whatever does not depend on the features.
        if isinstance(self.guarantee, Guarantee):
            self._made_settings(("feature", "intercept")).mechanism(self.guarantee)
        super()._prepare()

    def _made_settings(self, coded: tuple[str, ...]) -> ExampleSettings:
        stated = (self.guarantee, *(self.levels or {}).values())
        guarantees = [each for each in stated if isinstance(each, Guarantee)]
        real, labels = self._target == "real", self._labels
        release = released(self.release, self.loss, guarantees, len(coded) - 1)
        return ExampleSettings(
            target=self._target,
            names=coded,
            square=float(len(coded)) if self.bound is None else self.bound**2 + 1.0,
            boxed=self.bound is None,
            release=release,
            truncation=self.truncation,
            step=step_setting(self.step),
            newton=(len(coded) <= POLISHED or release in ("outer", "cells")) if self.newton is None else self.newton,
            unit=self._target_unit,
            kind=self.mechanism,
            cells=Cells.of_numbers(len(coded) - 1, self.grid, real=real, labels=len(labels))
            if release == "cells"
            else None,
            labels=labels,
            **{name: getattr(self, name) for name in _SETTINGS},
        )

    def _expected(self) -> tuple[float | None, float | None]:
        return self.bound or 1.0, 1.0 if self._target == "real" else None

    def _begin(self, names: tuple[Any, ...]) -> Any:
        self._settings = self._made_settings(self._coded_names(names))
        mechanisms = self._level_mechanisms()
        engine = engine_of(settle(self._settings, mechanisms), mechanisms, seed=self.seed, noise=self.noise)
        self._start(names, engine)
        return engine

    def _mechanism_for(self, guarantee: Guarantee) -> ExampleMechanism:
        return self._settings.mechanism(guarantee)

    def learn_one(self, x: Record, y: Any, guarantee: Guarantee | None = None) -> None:
        """Randomize the record once and learn from the release; or learn from a released example.

        ``guarantee`` replaces the learner's own. A guarantee whose noise is too large for the loss is refused.
        """
        if self.inputs == "released":
            self._learn_released(x, self._released_target(x, y), guarantee)
        else:
            self._learn(x, self._coded_one(y), guarantee)

    def learn_many(self, X: Any, y: Any, guarantee: Guarantee | Sequence[Guarantee] | None = None) -> None:
        """Learn from rows of raw records, (n, d), with one ``guarantee`` for all rows or one for each."""
        if self.inputs == "released":
            raise UserError("learn_many takes raw records; give released examples to learn_one or learn_release")
        super().learn_many(X, y, guarantee)

    @abstractmethod
    def _released_target(self, x: Record, y: Any) -> float:
        """Return the target of a released example as a number."""

    def _learn_released(self, x: Record, y: float, guarantee: Guarantee | None) -> None:
        """Learn from a decoded example."""
        engine = self._engine
        if engine is None:
            engine = self._get_engine(tuple(sorted(name for name in x if name != "intercept")))
        mechanism = self._default if guarantee is None else self._calibrated(guarantee)
        if isinstance(x, Example):
            self._check_released(x, engine.settings.noise(mechanism))
        if engine.settings.outer:
            numbers = x.matrix if isinstance(x, Example) else None
            if numbers is None or len(numbers) != engine.dimension:
                raise UserError("x is not an outer product of this learner's features, as `decoded` returns it")
            engine.learn_decoded(numbers[None, :], np.zeros(1), mechanism)
            return
        vector = np.array([*(number(x.get(name)) for name in self._names), 1.0])
        product, directed = self._settings.form == k.PRODUCT, self._settings.directed
        if product or directed:
            vector[-1] = number(x.get("intercept"))
        if directed:
            vector = np.append(vector, x.missing if isinstance(x, Example) else 0.0)
        engine.learn_decoded(vector[None, :], np.array([0.0 if product else y]), mechanism)

    def _check_released(self, x: Example, assumed: Noise) -> None:
        """Raise UserError for an example whose kind of release or noise differs from what the learner assumes."""
        settings = self._settings
        if (x.product, x.directed, x.matrix is not None) != (
            settings.form == k.PRODUCT or settings.outer,
            settings.directed,
            settings.outer,
        ):
            raise UserError("x is a different kind of release from this learner's: give the learner the same `release`")
        if x.directed:
            # Its noise is a function of the direction's length and of the number of its features.
            names = set(x) - {"intercept"}
            if names != set(self._names):
                raise UserError(
                    f"x is a direction of the features {', '.join(sorted(map(str, names)))}: give the learner "
                    "exactly these"
                )
        elif not np.allclose(astuple(x.noise), astuple(assumed), rtol=1e-9, atol=0.0):
            raise UserError(
                f"x was released with other noise ({x.noise}) than this learner assumes ({assumed}): give it the "
                "guarantee, features and target of the release, or learn the release itself (`learn_release`)"
            )

    def decoded(self, release: ExampleRelease) -> tuple[Example, Any]:
        """Decode a release to ``(x, y)``, for River's evaluation and for learners with ``inputs="released"``.

        ``x`` has the noisy features and ``y`` the label or noisy target. Three forms differ. For a joint release with a
        label, ``x`` is the noisy ``y x``, with the constant as ``"intercept"``, and ``y`` is always the second class.
        For a direction, they are u and t of ``murk.protocols.examples.directions``. For an outer product, ``x`` is the
        noisy product of features and target, and ``x.matrix`` the whole matrix.
        """
        engine: IWPEngine = self._require()
        if engine.settings.cells:
            raise UserError(
                "cells are not examples that can be decoded: see unbiased_loss, or fit models (docs/models.md)"
            )
        mechanism = engine.mechanisms[release.level]
        values = mechanism.decode(np.array([release.payload], dtype=np.int64))
        if engine.settings.outer:
            p = engine.settings.features
            x = Example(zip((*self._names, "intercept"), matrix_of(values[0], p)[:p, p].tolist(), strict=True))
            x.noise, x.matrix, x.product = engine.settings.noise(mechanism), values[0], True
            return x, self._shown(1.0)
        form, directed, target = engine.settings.form, engine.settings.directed, float(values[0, -1])
        if directed:
            values, targets = parts(form, values)
            target = float(targets[0])
        x = Example(zip(self._names, values[0].tolist(), strict=False))
        x.noise, x.product, x.directed = engine.settings.noise(mechanism), form == k.PRODUCT, directed
        if form == k.PRODUCT:
            x["intercept"] = float(values[0, -1])
        if directed:
            x.missing, p = float(values[0, -1]), engine.settings.features
            x["intercept"] = float(values[0, -2])
            variance = own_variance(p, float(np.square(values[0, :p]).sum()), x.missing)
            x.noise = replace(x.noise, variance=variance, constant_variance=variance)
            return x, target
        return x, self._shown(1.0 if form == k.PRODUCT else target)

    @abstractmethod
    def _shown(self, target: float) -> Any:
        """Convert a decoded target to the form that River's evaluation expects."""

    @property
    def unbiased_loss(self) -> float:
        """Running mean of the unbiased losses, each at ``predict_one``'s coefficients before its release is learned.

        For a real target it is in squared units of the target; before the first release it is NaN.
        """
        return math.nan if self._engine is None else self._target_unit**2 * float(self._engine.unbiased_loss[0])

    @property
    def unbiased_loss_error(self) -> float:
        """Standard error of :attr:`unbiased_loss`."""
        return math.nan if self._engine is None else self._target_unit**2 * float(self._engine.unbiased_loss[1])

    @property
    def refused_updates(self) -> int:
        """Number of releases ignored as implausible or because the step was not finite."""
        return 0 if self._engine is None else int(self._engine.refused_updates)

    def linear_coefficients(self) -> tuple[dict[Any, float], float]:
        """Return the coefficients by feature, and the constant, that ``predict_one`` uses, for coded targets."""
        if self._labels:
            raise UserError("several classes have no single coefficient vector: see coefficients() and unbiased_loss")
        if self._engine is None:
            return {}, 0.0
        *slopes, constant = self._engine.reference.tolist()
        return dict(zip(self._names, slopes, strict=True)), constant

    def merged(self, others: Sequence[Self]) -> Estimate:
        """Return the joint estimate of this learner and ``others`` with the same settings, each of one partition."""
        engines = [engine.snapshot() for engine in self._engines(others)]
        joint = cell_engine.estimate if self._settings.cells else estimate
        found: Estimate = self._in_units(joint(engines))
        return found

    def _linear(self, rows: Floats) -> Floats:
        """Return scores of rows of features without the constant: (m,), or (m, c) for c contrasts of classes."""
        theta = self._require().reference
        return np.asarray(
            np.column_stack([rows, np.ones(len(rows))])
            @ (theta.reshape(-1, rows.shape[1] + 1).T if self._labels else theta)
        )


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class IWPSGDClassifier(IWPSGD, LabelEstimator, base.MiniBatchClassifier):
    """Linear classification by inverse Weierstrass private SGD (IWP-SGD) from examples released once.

    For a loss ``f(theta'x y)`` and a noisy example ``u~``, the gradient at the true example has the unbiased estimate
    ``u~ g'(z) - D theta g''(z)``, with ``z = theta'u~`` and g the inverse Weierstrass transform of f. The estimate is
    the average of ``theta <- Project(theta - step (gradient + lambda theta))``, polished by one Newton step.

    Parameters
    ----------
    classes
        The two labels, the positive one last; or more, with ``release="cells"`` and ``loss="log"``, whose coefficients
        ``"class:feature"`` add up to 0. Any other label counts as missing: the mechanism then randomizes zeros.
    release
        ``"outer"``: the outer product of the direction of (x, y) with itself, for the fit weighted by
        ``1/(1 + |x|^2)``; the quadratic loss' default. ``"directions"``: ``y x / |x|`` and ``1 / |x|``, for the fit
        weighted by ``1/|x|^2``; the quadratic loss' default for GDP or zCDP of mu > 3 or more than 64 features.
        ``"joint"``: ``y x``; the default for other losses. ``"separate"``: features, and the label by randomized
        response. ``"cells"``: the combination of all values by randomized response; for every loss, and features of few
        values.
    loss
        ``"quadratic"`` (valid for any noise; fits a line through labels of -1 and +1), ``"probit"`` (exact within a
        ball that is smaller for more noise; gives logits), ``"exponential"``, or ``"log"`` (a truncated series, but
        exact with cells; for more than two classes the loss of softmax).
    truncation
        K of the log loss; by default the best of 1, 2, 3 by the paper's criterion.
    radius
        Radius of the ball to which coefficients are projected; by default at most 3 (quadratic: 2) and inside the
        loss's valid region at the noisiest level (``"probit"``: ``s ||theta|| < 1.702`` under Gaussian noise).

    References
    ----------
    Dufraiche, Mangold, Perrot, Tommasi. Learning with Locally Private Examples by Inverse Weierstrass Private
    Stochastic Gradient Descent. Algorithm 1, equations 6 and 7, section 5.2.

    Examples
    --------
    >>> from murk.learners import IWPSGDClassifier
    >>> from murk.privacy import GaussianDP
    >>> model = IWPSGDClassifier(guarantee=GaussianDP(mu=3.0), seed=1)
    >>> for i in range(20_000):
    ...     x = (i * 7919 % 2003) / 1001.5 - 1
    ...     model.learn_one({"x": x}, x > 0)
    >>> model.predict_one({"x": 0.7})
    True
    """

    loss: BinaryLoss = "quadratic"
    truncation: int | None = None

    def __post_init__(self) -> None:
        self._codes = several_labels(self.classes)
        self._labels = tuple(map(str, self.classes)) if len(self.classes) > 2 else ()
        self._target = "classes" if self._labels else "binary"
        self._prepare()

    @classmethod
    def as_published(cls, *, guarantee: Guarantee, gamma: float = 1e-4, **more: Any) -> Self:
        """Return a learner with the paper's settings: exponential loss, constant steps, the last iterate.

        Features and label are released separately, with half of epsilon each; batches of 128, lambda = 5.
        ``calibration="classic"`` gives the paper's noise, where valid (epsilon_x up to 8 at delta = 1e-5).
        """
        settings = published(PROTOCOL, "binary", guarantee) | {"step": InverseScalingStep(gamma, 0.0)}
        return cls(guarantee=guarantee, **{**settings, **more})

    def _scale(self) -> Scale:
        scales: dict[str, Scale] = {"log": "log odds", "quadratic": "probability"}
        return "own" if self._labels else scales.get(self.loss, "own")

    def _released_target(self, x: Record, y: Any) -> float:
        return float(y) if isinstance(x, Example) and x.directed else 2.0 * self._coded_one(y) - 1.0

    def _shown(self, target: float) -> Any:
        return self.classes[1 if target > 0 else 0]

    def _chances(self, rows: Floats) -> Floats:
        if self._labels:
            return class_probabilities(self._linear(rows), contrasts(len(self._labels)))
        return two_chances(probabilities(self.loss, self._linear(rows)))

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"guarantee": GaussianDP(mu=1.0), "seed": 1}
        yield {"guarantee": GaussianDP(mu=1.0), "release": "joint", "intercept": False, "seed": 1}
        yield {"guarantee": PureDP(epsilon=2.0), "seed": 1}
        yield {"guarantee": PureDP(epsilon=4.0), "release": "cells", "loss": "log", "seed": 1}
        yield {"guarantee": PureDP(epsilon=8.0), "release": "joint", "mechanism": "laplace", "loss": "log", "seed": 1}
        several = (False, True, "unknown")
        yield {"guarantee": PureDP(epsilon=4.0), "classes": several, "release": "cells", "loss": "log", "seed": 1}
        yield {"guarantee": GaussianDP(mu=4.0), "seed": 1}
        yield {"guarantee": ApproxDP(epsilon=2.0, delta=1e-5), "loss": "quadratic", "release": "separate", "seed": 1}


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class IWPSGDRegressor(IWPSGD, TargetEstimator, base.MiniBatchRegressor):
    """Least squares by inverse Weierstrass private SGD (IWP-SGD) from examples released once.

    With ``x~ = x + N(0, D)`` and ``y~ = y + noise``, the gradient of ``(theta'x - y)^2 / 2`` has the unbiased estimate
    ``x~ (theta'x~ - y~) - D theta``. The estimate is the average of
    ``theta <- Project(theta - step (gradient + lambda theta))``, polished by one Newton step to the exact minimiser of
    the mean unbiased loss.

    Parameters
    ----------
    target_bound
        Short for ``target_bounds=(-target_bound, target_bound)``.
    release
        ``"outer"``, the default: the outer product of ``(x, y)/sqrt(1 + |x|^2)`` with itself, for the fit weighted by
        ``1/(1 + |x|^2)``. ``"directions"``: ``x/|x|`` and ``y/|x|``, for the fit weighted by ``1/|x|^2``; the default
        for GDP or zCDP of mu > 3 or more than 64 features. ``"joint"``: ``(x, a y)`` with a public factor a.
        ``"separate"``: x and y by a mechanism each, as in the paper. ``"cells"``: the combination of all values, in
        randomized response; for features of few values.
    radius
        Radius of the ball to which coefficients of coded targets are projected; 1.5 by default.

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
    >>> model = IWPSGDRegressor(guarantee=GaussianDP(mu=3.0), seed=1)
    >>> for i in range(20_000):
    ...     x = (i * 7919 % 2003) / 1001.5 - 1
    ...     model.learn_one({"x": x}, 0.25 + 0.5 * x)
    >>> abs(model.coefficients()["x"] - 0.5) < 0.2
    True
    """

    target_bound: float | None = None

    def __post_init__(self) -> None:
        self.loss, self._target = "squared", "real"
        self._target_unit = self._set_range(records=self.inputs == "records", intercept=self.intercept).unit
        self._prepare()

    @classmethod
    def as_published(cls, *, guarantee: Guarantee, gamma: float = 1e-4, **more: Any) -> Self:
        """Return a learner with the paper's settings: separate releases, constant steps, the last iterate."""
        settings = published(PROTOCOL, "real", guarantee) | {"step": InverseScalingStep(gamma, 0.0)}
        del settings["loss"]
        settings["target_bounds"] = None if "target_bound" in more else (-1.0, 1.0)
        return cls(guarantee=guarantee, **{**settings, **more})

    def _released_target(self, x: Record, y: Any) -> float:
        return target(y)

    def _shown(self, target: float) -> float:
        # A joint release scales the target by a public factor.
        return target / float(self._require().settings.scale)

    def _means(self, rows: Floats) -> Floats:
        return self._range.middle + self._range.unit * self._linear(rows)

    @classmethod
    def _unit_test_params(cls) -> Any:
        yield {"guarantee": GaussianDP(mu=1.0), "seed": 1}
        yield {"guarantee": GaussianDP(mu=4.0), "target_bounds": (-10.0, 10.0), "seed": 1}
        yield {
            "guarantee": ApproxDP(epsilon=2.0, delta=1e-5),
            "release": "separate",
            "target_bounds": (0.0, 100.0),
            "seed": 1,
        }
