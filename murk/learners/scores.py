"""River classifier and regressor for scores in rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from river import base
from river.utils import dataframe

from murk._internal.arrays import Floats
from murk._internal.links import class_probabilities
from murk.errors import UserError
from murk.inference.drift import Drift
from murk.inference.prediction_sets import COVERAGES, SHARES, PredictionSets
from murk.inference.target_range import TargetRange
from murk.learners._docstrings import documented
from murk.learners.base import LabelEstimator, PersonEstimator, Record, TargetEstimator, several_labels, two_chances
from murk.learners.public_sample import PublicSample
from murk.privacy import Guarantee
from murk.protocols.linear_algebra import contrasts
from murk.protocols.mean_functions import LINKS, LOSSES, Curve, ResponseRange, coded_curve, curve_of
from murk.protocols.options import chosen_noise
from murk.protocols.rows import Rows
from murk.protocols.scores.device import survey_of
from murk.protocols.scores.engine import drift_of, merged
from murk.protocols.scores.estimate import ScoreEstimate
from murk.protocols.scores.in_process import InProcessScores
from murk.protocols.scores.mechanisms import ScoreMechanisms, score_mechanisms
from murk.protocols.scores.model import CoverageQuery, with_constant
from murk.protocols.scores.settings import FEWEST_KEPT, Settings
from murk.task.protocols.base import Scale
from murk.task.values import frame_of

_ERROR_CODE = "MURK-LEARN-001"


@dataclass(kw_only=True, eq=False, repr=False)
class Scores(PersonEstimator[InProcessScores]):
    """Base class of both estimators.

    Parameters
    ----------
    public
        Public covariates without targets (array, frame, iterable of mappings or a CSV file's path). Rows like the
        people's make the estimate more precise; without any, some people release features' second moments instead.
    interactive
        Whether people of a round answer at one published model. ``False``: all people answer at coefficients of zero,
        where they release their label's sign or target times the direction of their whitened features. The estimate is
        the coefficients at which the expected mean of these answers over ``public`` equals the released mean.
        ``public`` is then required, except for more than two classes.
    features
        Feature names in a fixed order; required unless noise is simulated, then by default the sorted names of the
        first record. Features should be within about [-1, 1]; anything but a number counts as 0.
    forget
        Number of newest releases to learn from, at least 24,000. As whole rounds are forgotten, at times only seven
        eighths of this number are used. Intervals then stop shrinking. By default all releases count.
    coverage
        Share of people whose target is in their prediction set, such as 0.9; by default there are no sets.
    coverage_share
        Share of people who release whether their target is in their prediction set, instead of a score.
    """

    public: Any = None
    interactive: bool = True
    mechanism: str | None = None
    exponent: float | None = field(init=False, default=None)
    forget: int | None = None
    coverage: float | None = None
    coverage_share: float = 0.1

    _curve: Curve = field(init=False)  # mean function of the loss or link
    _binary: ClassVar[bool]
    _labels: tuple[str, ...] = field(init=False, default=())  # the classes, if there are more than two
    _range: TargetRange = field(init=False)  # the range of a real target

    def _prepare(self) -> None:
        if self.interactive:
            self._check_curve()
        else:
            self._check_once()
        if self.exponent is not None and not 0.0 <= self.exponent <= 1.0:
            raise UserError(f"exponent={self.exponent!r} is not between 0 and 1")
        if self.exponent is not None and self.exponent < 1.0 and self.public is None:
            raise UserError(
                f"exponent={self.exponent!r}: an uncentred score needs the features' distribution; give public= "
                "covariates, or leave exponent out"
            )
        if self.forget is not None and not (isinstance(self.forget, int) and self.forget >= FEWEST_KEPT):
            raise UserError(
                f"forget={self.forget!r}: give the number of newest releases to learn from, at least "
                f"{FEWEST_KEPT:,}, or None for all"
            )
        for name, (least, most) in (("coverage", COVERAGES), ("coverage_share", SHARES)):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, int | float) and least <= value <= most):
                raise UserError(f"{name}={value!r} is not between {least:g} and {most:g}")
        self._sample, self.public = PublicSample.of_argument(self.public, self.features)
        super()._prepare()

    def _check_curve(self) -> None:
        if self._curve.name not in ("logistic", "identity"):
            key = "loss" if self._binary else "link"
            raise UserError(
                f"{key}={self._curve.name!r} is for people who answer once: give interactive=False, or leave {key} out"
            )

    def _check_once(self) -> None:
        if self.public is None and not self._labels:
            raise UserError(
                "interactive=False needs public covariates to solve for coefficients: give public=, or leave "
                "interactive out"
            )
        if self._curve.name == "cubic":
            raise UserError("link='cubic' is flat at coefficients of zero: use PublicGLMRegressor")
        if self._labels and self._curve.name != "logistic":
            raise UserError(f"loss={self._curve.name!r} is for two classes, not {len(self._labels)}: leave it out")
        for name in ("exponent", "forget", "coverage"):
            if getattr(self, name) is not None:
                raise UserError(
                    f"{name}={getattr(self, name)!r} has no effect with interactive=False: remove one of them"
                )

    def _begin(self, names: tuple[Any, ...]) -> InProcessScores:
        coded, covariates = self._coded_names(names), None
        if self._sample is not None:
            covariates = Rows.of_features(self._sample.select(names).rows)
        labels = self._labels
        wanted = None if self.coverage is None else CoverageQuery(float(self.coverage), float(self.coverage_share))
        survey = None
        if self.interactive and covariates is None and names:
            dimension = max(len(labels) - 1, 1) * len(coded)
            target = not self._binary and wanted is None
            numbers = [True] * (len(names) + target)
            survey = survey_of(self.mechanism, self.guarantee, dimension, numbers, target=target)
        more: dict[str, Any] = {"forget": self.forget, "line": covariates is None, "wanted": wanted, "survey": survey}
        if not self.interactive:
            more = {"once": True, "curve": None if labels else coded_curve(self._curve, self._response)}
        settings = Settings(coded, self._binary and not labels, covariates, self.exponent, labels, **more)
        if labels and not settings.matrices:
            raise UserError(
                f"scores of several classes with interactive=False need few features, not {len(names)}, whose second "
                "moments are too noisy: give fewer features, or leave interactive out"
            )
        self._names, self._default, self._settings = names, "default", settings
        levels, noise = {**(self.levels or {}), "default": self.guarantee}, chosen_noise(self.seed, self.noise)
        engine = InProcessScores(settings, levels, self._mechanism_for, noise)
        self._fix(names, engine)
        return engine

    @property
    def _response(self) -> ResponseRange:
        """Response that coded targets of -1 and +1 mean."""
        return ResponseRange(0.0, 1.0) if self._binary else ResponseRange(self._range.low, self._range.high)

    def _mechanism_for(self, guarantee: Guarantee) -> ScoreMechanisms:
        settings = self._settings
        sizes = settings.features, settings.contrasts
        return score_mechanisms(self.mechanism, guarantee, *sizes, matrices=settings.matrices, bits=settings.bits)

    def _person_mechanism(self, guarantee: Guarantee) -> str:
        return self._require().level(guarantee)

    def published(self) -> tuple[int, list[float]]:
        """Return the version at which the newest round began, and the round's model, at which devices answer."""
        published = self._require().published()
        assert published is not None
        return published

    def estimate(self) -> ScoreEstimate:
        """Return coefficients with their intervals; half-widths are infinite for coefficients that were not learned."""
        estimate: ScoreEstimate = super().estimate()  # type: ignore[assignment]
        return estimate

    def merged(self, others: Sequence[Self]) -> ScoreEstimate:
        """Return the joint estimate of this learner and ``others`` of the same settings."""
        joint: ScoreEstimate = self._in_units(merged(self._engines(others)))
        return joint

    def drift(self) -> Drift:
        """Test whether the coefficients have changed; slow. False alarms have probability 1% over a stream's life."""
        engine = self._require()
        drift = drift_of(engine.settings, [(engine.now, engine.mechanisms)])
        unit = 1.0 if self._binary else self._range.unit
        return replace(drift, changes={name: unit * change for name, change in drift.changes.items()})

    def prediction_sets(self) -> PredictionSets:
        """Return the prediction sets, which change when predictions do; raise UserError if they were not asked for."""
        if self.coverage is None:
            raise UserError("prediction sets need people who release whether a set has their target: give coverage=0.9")
        sets = self._require().sets()
        assert sets is not None
        return sets

    def _linear(self, rows: Floats) -> Floats:
        """Return logits or coded targets of rows without the constant, (n, 1); contrasts, (n, K - 1), for K classes."""
        coefficients = self._require().shown()
        return np.asarray(with_constant(rows) @ coefficients.reshape(-1, rows.shape[1] + 1).T)


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class ScoreClassifier(Scores, LabelEstimator, base.MiniBatchClassifier):
    """Logistic or softmax regression, or a line for each of several classes, by scores in rounds, with intervals.

    Each person answers one query at the model of their round, randomized once at their guarantee and drawn before
    their record is read: mostly their score ``r(y, x'a) c(z) z``, sometimes a matrix of their features. Rounds double.
    The learner keeps sums per round, and solves all rounds' equations on request, without steps or a radius.

    Parameters
    ----------
    classes
        The labels; of two labels, the positive one last. Any other label counts as missing, and the fit is that of
        people with a label. For more than two, coefficients with ``public`` are contrasts of log odds; without it, each
        class has a least-squares line through labels of -1 and +1, whose halved slopes change the probability.
    exponent
        g from 0 to 1, the share of a label's probability that a score subtracts; chosen by rule if omitted. 1, the
        balanced score, is valid for any features; less needs ``public``.
    loss
        With ``interactive=False``, ``"logistic"``, ``"poisson"`` (``P(y = 1) = exp(x'w)``) or ``"boosting"``
        (``z/2 + sqrt(1 + z^2/4)``).

    Notes
    -----
    Each call of ``learn_one`` is one release of one person. Predictions use the solution at the last of 1, 2, ..., 8,
    10, 12, 14, 16, 20, ... releases (four times a round), shrunk while noise dominates. A coefficient with an infinite
    interval was not learned at this privacy. People's own guarantees (``learn_one(x, y, guarantee)``) may take at most
    64 different values, as sums are kept for each.

    References
    ----------
    Fieller. Some problems in interval estimation. 1954. Asi, Feldman, Talwar. Optimal algorithms for mean estimation
    under local differential privacy. 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from murk.learners import ScoreClassifier
    >>> from murk.privacy import GaussianDP
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(-1, 1, size=(30_000, 2))
    >>> y = rng.random(30_000) < 1 / (1 + np.exp(0.5 - 2 * X[:, 0]))
    >>> model = ScoreClassifier(guarantee=GaussianDP(mu=2.0), features=["a", "b"], seed=1)
    >>> model.learn_many(X, y)
    >>> low, high = model.confidence_intervals(0.95)["a"]
    >>> 1.0 < low < 2.0 < high
    True
    >>> model.predict_one({"a": 0.9, "b": 0.0})
    True
    """

    loss: Literal["logistic", "poisson", "boosting"] = "logistic"
    exponent: float | None = None

    _binary: ClassVar[bool] = True

    def __post_init__(self) -> None:
        self._codes = several_labels(self.classes)
        self._labels = tuple(map(str, self.classes)) if len(self.classes) > 2 else ()
        self._curve = curve_of(self.loss, LOSSES, "loss")
        self._prepare()

    def _scale(self) -> Scale:
        if not self._labels:
            return "log odds" if self.loss == "logistic" else "own"
        return "probability" if self.public is None else "own"

    def _chances(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        scores = self._linear(rows)
        if len(self.classes) == 2:
            return two_chances(np.clip(self._curve.mean(scores[:, 0]), 0.0, 1.0))
        return class_probabilities(scores, contrasts(len(self.classes)))

    def predict_set_one(self, x: Record) -> set[Any]:
        """Return the labels in a record's prediction set, possibly none; raise UserError if there are no sets yet."""
        (members,) = self.prediction_sets().members(with_constant(self._row(x)))
        return {label for label, inside in zip(self.classes, members, strict=True) if inside}

    def predict_set_many(self, X: Any) -> Any:
        """Return whether each label is in a row's set, one column for each label; see `predict_set_one`."""
        return self._labelled(self.prediction_sets().members(with_constant(self._matrix(X, self._names))), X)


@documented
@dataclass(kw_only=True, eq=False, repr=False)
class ScoreRegressor(Scores, TargetEstimator, base.MiniBatchRegressor):
    """Linear regression of a bounded target's mean, by scores in rounds, with intervals.

    Each person answers one query, randomized once at their guarantee and drawn before their record is read: mostly
    their score ``y c(z) z``, y coded to [-1, 1], sometimes a matrix of their features. The learner keeps sums, and
    solves on request, without steps or a radius.

    Parameters
    ----------
    target_bounds
        Public bounds (low, high) of the target, to which it is clipped; noise is added for the whole range. Required
        unless noise is simulated, then (-1, 1) by default. The coefficients are those among people with a target.
    link
        With ``interactive=False``, ``"identity"``, ``"sigmoid"``, ``"softplus"`` (``log(1 + e^z)``) or ``"exp"``,
        Poisson regression of bounded counts.

    Notes
    -----
    Each call of ``learn_one`` is one release of one person. Coefficients are in the target's own units. Predictions use
    the solution at the last of 1, 2, ..., 8, 10, 12, 14, 16, 20, ... releases, shrunk while noise dominates. A
    coefficient with an infinite interval was not learned at this privacy. People's own guarantees (``learn_one(x, y,
    guarantee)``) may take at most 64 different values, as sums are kept for each.

    References
    ----------
    Fieller. Some problems in interval estimation. 1954.

    Examples
    --------
    >>> import numpy as np
    >>> from murk.learners import ScoreRegressor
    >>> from murk.privacy import GaussianDP
    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(-1, 1, size=(30_000, 2))
    >>> y = 20 + 10 * X[:, 0] + rng.normal(size=30_000)
    >>> model = ScoreRegressor(guarantee=GaussianDP(mu=2.0), target_bounds=(0, 40), features=["a", "b"], seed=1)
    >>> model.learn_many(X, y)
    >>> abs(model.coefficients()["a"] - 10) < 1
    True
    """

    link: Literal["identity", "sigmoid", "softplus", "exp"] = "identity"

    _binary: ClassVar[bool] = False

    def __post_init__(self) -> None:
        self._set_range()
        self._curve = curve_of(self.link, LINKS, "link")
        self._prepare()

    def _expected(self) -> tuple[float | None, float | None]:
        return 1.0, 1.0

    def _scale(self) -> Scale:
        return "slope" if self._curve.name == "identity" else "own"

    def _in_units(self, estimate: ScoreEstimate) -> ScoreEstimate:
        if self._curve.name != "identity":
            return estimate
        return replace(self._range.in_units(estimate), unit=estimate.unit * self._range.unit)

    def _means(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        target_range, linear = self._range, self._linear(rows)[:, 0]
        means = (
            target_range.middle + target_range.unit * linear
            if self._curve.name == "identity"
            else self._curve.mean(linear)
        )
        return np.clip(means, target_range.low, target_range.high)

    def predict_interval_one(self, x: Record) -> tuple[float, float]:
        """Return the ends of the interval of a person's target, not its mean; raise UserError if there is none yet."""
        low, high = self._ends(self._row(x))[0].tolist()
        return low, high

    def predict_interval_many(self, X: Any) -> Any:
        """Return the ends for the rows of a data frame or an array, columns ``low`` and ``high``."""
        ends = self._ends(self._matrix(X, self._names))
        if isinstance(X, np.ndarray):
            return ends
        return dataframe.to_native_frame({"low": ends[:, 0], "high": ends[:, 1]}, like=frame_of(X))

    def _ends(self, rows: Floats) -> Floats:
        return self._range.middle + self._range.unit * self.prediction_sets().intervals(with_constant(rows))
